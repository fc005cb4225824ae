//! The corridor: takes clients' connections, leads each flow through its phases past the stages that want it, and
//! turns every error into an answer.
//!
//! Read it in the order of a flow's life: [`worker`] accepts, [`conn`] knows who asks, [`connect`] decides about
//! tunnels, [`inside`] looks into them, [`exchange`] leads a request through, [`upgrade`] takes over when the protocol
//! changes, [`tracker`] follows to the end.
#![forbid(unsafe_code)]

pub mod access;
pub mod approvals;
mod body_preview;
mod builtin_pages;
mod compiled;
pub mod config;
mod connection;
mod container_lookup;
pub mod conversations;
pub mod dns;
mod error_response;
mod expect_continue;
mod filtered_client;
mod fingerprint;
mod flow_guard;
mod gateway;
mod grpc;
mod hop_by_hop;
mod intercept;
mod leaf_refusal;
pub mod limits;
pub mod llm_telemetry;
mod local_client;
mod local_request;
mod log_limit;
mod loop_detection;
mod messages;
mod no_proxy;
mod original_messages;
pub mod pinning_bypass;
mod pipeline;
mod plan;
mod raw_tls;
pub mod redaction;
mod route;
mod server;
pub mod stats;
mod tunnel;
mod upgrade;
mod websocket_messages;
mod worker;

pub use compiled::{ConfigError, check, check_certificate};
pub use config::ProxyServerConfig;
pub use fingerprint::check_fingerprint;
pub use interflow_net::ca::CertificateAuthority;
pub use server::{ProxyServer, ServerDeps, StartError};
