//! Accepting connections: listeners, protocol detection, and HTTP servers.

pub mod dns;
mod http1;
mod http2;
mod listen;
mod listen_sockets;
pub mod mdns;
mod original_dst;
mod peek;
mod process_lookup;
mod proxy_protocol;
mod service;
#[cfg(test)]
mod services_for_tests;
mod shutdown;
mod sniff;
pub mod socks5;

pub use http1::serve_http1;
pub use http2::serve_http2;
pub use interflow_codec::proxy_protocol::ProxyHeader;
pub use listen::{ClientListener, ListenOptions};
pub use listen_sockets::{ListenSocket, ListenSockets};
pub use original_dst::original_destination;
pub use peek::while_connected;
pub use process_lookup::ProcessLookup;
pub use proxy_protocol::read_proxy_header;
pub use service::{HttpOptions, HttpService, IncomingRequest, InformationalSender, OnUpgrade, ServiceReply};
pub use shutdown::{Drain, DrainSignal};
pub use sniff::{ClientProtocol, SniffContext, SniffTimeouts, sniff};
