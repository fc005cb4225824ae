//! The admin side: health, metrics, the API and the web UI, authenticated by a token, on a separate listener.
#![forbid(unsafe_code)]

pub mod admin_audit;
mod api;
mod auth;
mod collections;
mod config;
pub mod config_masking;
mod cookie_scope;
mod doctor;
mod ended_sessions;
mod error;
pub mod error_kinds;
mod event_clients;
mod health;
pub mod identity;
mod issuer_login;
mod last_editors;
mod login;
pub mod mcp;
pub mod metrics;
pub mod oidc;
mod pending;
mod person_sessions;
mod reload;
mod request_origin;
mod serve;
mod server;
mod sessions;
pub mod settings;
mod setup;
pub mod shared_audit;
mod state;
mod status_page;
mod ui;

#[cfg(feature = "schema")]
pub use api::openapi::generate_openapi;
pub use api::rules::flow_fixture;
pub use api::tokens::{TokenLifetimes, parse_expiry as parse_token_expiry};
pub use config::{AdminAuditConfig, AdminConfig, SettingsAccess};
pub use doctor::{DoctorFinding, DoctorFn, FindingState};
pub use last_editors::LastEditors;
pub use pending::FleetPending;
pub use reload::{ReloadFn, ReloadReport};
pub use server::{AdminServer, check_access};
pub use setup::{BrowserRequest, MachineSetup, SetupFacts, SetupFactsFn, StartBrowserFn};
pub use state::{AdminDeps, AdminState, LimitDeps};
