//! The corridor: takes clients' connections, leads each flow through its phases past the stages that want it, and
//! turns every error into an answer.
//!
//! Read it in the order of a flow's life: [`worker`] accepts, [`conn`] knows who asks, [`connect`] decides about
//! tunnels, [`inside`] looks into them, [`exchange`] leads a request through, [`upgrade`] takes over when the protocol
//! changes, [`tracker`] follows to the end.
#![forbid(unsafe_code)]

pub mod access;
pub mod accounts;
mod answers;
pub mod approvals;
mod batch;
mod body_preview;
mod calls;
pub mod config;
mod conn;
mod connect;
mod containers;
pub mod conversations;
pub mod dns;
mod engine;
mod exchange;
mod expectation;
mod gateway;
mod guarded;
mod hop;
mod inside;
mod internal;
mod likeness;
pub mod limits;
mod loops;
mod messages;
mod no_proxy;
mod opened;
mod originals;
mod pages;
pub mod pinning;
mod plan;
pub mod redaction;
mod refusal;
mod route;
mod seldom;
mod settings;
pub mod stats;
mod tracker;
mod unrecorded;
mod upgrade;
mod worker;

pub use config::EngineConfig;
pub use engine::{Engine, Parts, StartError};
pub use interflow_net::ca::Ca;
pub use likeness::check_fingerprint;
pub use settings::{ConfigError, check, check_certificate};
