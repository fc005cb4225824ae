//! Accepting: listeners, what a fresh connection speaks, and HTTP as a server.

mod alarm;
pub mod announce;
mod detect;
pub mod dns;
mod drain;
mod http1;
mod http2;
mod listen;
mod peek;
mod process;
mod proxy_protocol;
#[cfg(test)]
mod samples;
mod service;
pub mod socks5;
mod transparent;

pub use detect::{Detected, Expect, Place, detect};
pub use drain::{Drain, DrainSignal};
pub use http1::serve_http1;
pub use http2::serve_http2;
pub use interflow_wire::proxy_protocol::ProxyHeader;
pub use listen::{ListenOptions, Listener, bind};
pub use process::Processes;
pub use proxy_protocol::read_proxy_header;
pub use service::{HttpOptions, Incoming, Interim, OnUpgrade, Outgoing, Service};
pub use transparent::original_destination;
