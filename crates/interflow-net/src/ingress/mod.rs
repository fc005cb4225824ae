//! Accepting: listeners, what a fresh connection speaks, and HTTP as a server.

mod alarm;
mod drain;
mod http1;
mod service;

pub use drain::{Drain, DrainSignal};
pub use http1::serve_http1;
pub use service::{HttpOptions, Incoming, Interim, OnUpgrade, Outgoing, Service};
