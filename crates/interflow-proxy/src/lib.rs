//! The proxy core: accepts client connections, runs each request through the pipeline and its [stages], connects to
//! origins and maps every error to a response.
//!
//! The life of a flow, in the order in which to read the modules:
//!
//! 1. [`server`] starts the listeners and one [`worker`] thread per processor; each worker has its own runtime,
//!    connection pools and plans, accepts connections and detects their protocol.
//! 2. [`downstream`] holds the client side: connections, authentication, access rules, gateway routes.
//! 3. [`tunnel`] handles CONNECT, SOCKS5, transparent and reverse-proxy connections, and decides whether their TLS is
//!    intercepted or passed through.
//! 4. [`http`] is the request pipeline: phases and stages, hop-by-hop handling, upgrades, WebSocket and gRPC messages.
//! 5. [`upstream`] plans the route, selects the TLS fingerprint and sends requests, Interflow's own ones included.
//! 6. [`observe`] ends each flow exactly once and feeds the recorder, the counters and the log.
//!
//! Beside this path: [`config`] defines the keys, [`compiled`] prepares them once per reload, and [`dns`] is the DNS
//! listener.
//!
//! [stages]: interflow_types::Stage
#![forbid(unsafe_code)]

mod build_cache;
mod compiled;
pub mod config;
pub mod dns;
pub mod downstream;
mod http;
mod listener_tls;
pub mod observe;
mod server;
mod state;
pub mod tunnel;
mod upstream;
mod worker;

pub use compiled::{check, check_certificate, check_listeners};
pub use config::{ConfigError, ProxyServerConfig};
pub use interflow_net::ca::CertificateAuthority;
pub use server::{PreparedConfig, ProxyServer, ServerDeps, StartError, try_bind};
pub use upstream::fingerprint::check_fingerprint;
pub use upstream::local_client::LocalClient;
