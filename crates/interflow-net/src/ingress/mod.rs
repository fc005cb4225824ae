//! Accepting: listeners, what a fresh connection speaks, and HTTP as a server.

mod drain;
mod service;

pub use drain::{Drain, DrainSignal};
pub use service::{HttpOptions, Incoming, Interim, OnUpgrade, Outgoing, Service};
