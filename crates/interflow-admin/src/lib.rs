//! The admin side: health, metrics, the API and the web UI, authenticated by a token, on a separate listener.
#![forbid(unsafe_code)]

mod api;
mod auth;
mod config;
mod health;
mod login;
pub mod mcp;
mod metrics;
mod serve;
mod server;
mod sessions;
mod status_page;
mod ui;

pub use api::instance::{DoctorFinding, FindingState};
pub use api::rules::flow_fixture;
pub use api::{ApiError, run_query};
pub use config::AdminConfig;
pub use serve::{PortLimits, serve};
pub use server::{AdminDeps, AdminServer, AdminState, DoctorFn, LimitDeps};
