//! The admin side: health, metrics, the API and the web UI, behind a token, on an address of its own.
#![forbid(unsafe_code)]

mod api;
mod config;
pub mod greyproxy;
mod guard;
mod health;
mod login;
pub mod mcp;
mod metrics;
mod page;
mod serve;
mod server;
mod sessions;
mod ui;

pub use api::rules::sample;
pub use config::AdminConfig;
pub use guard::new_token;
pub use server::{Admin, AdminParts, Doctor, LimitParts};
