//! The corridor: takes clients' connections, leads each flow through its phases past the stages that want it, and
//! turns every error into an answer.
//!
//! Read it in the order of a flow's life: [`worker`] accepts, [`conn`] knows who asks, [`connect`] decides about
//! tunnels, [`inside`] looks into them, [`exchange`] leads a request through, [`upgrade`] takes over when the protocol
//! changes, [`tracker`] follows to the end.
#![forbid(unsafe_code)]

mod compiled;
pub mod config;
pub mod dns;
pub mod downstream;
mod http;
pub mod observe;
mod server;
pub mod tunnel;
mod upstream;
mod worker;

pub use compiled::{ConfigError, check, check_certificate};
pub use config::ProxyServerConfig;
pub use interflow_net::ca::CertificateAuthority;
pub use server::{ProxyServer, ServerDeps, StartError};
pub use upstream::fingerprint::check_fingerprint;
