//! The admin side: health, metrics, the API and the web UI, authenticated by a token, on a separate listener.
#![forbid(unsafe_code)]

mod api;
pub mod audit;
mod auth;
mod collections;
mod composed_streams;
mod config;
pub mod config_masking;
mod doctor;
mod error;
pub mod error_kinds;
mod event_clients;
mod health;
pub mod identity;
pub mod mcp;
pub mod metrics;
pub mod oidc;
mod pending;
mod records;
mod reload;
mod rule_proposals;
mod serve;
mod server;
pub mod settings;
mod setup;
mod state;
mod status_page;
mod ui;

pub use api::edited::rules::flow_fixture;
pub use api::operations::call::OperationCall;
pub use api::operations::context::{OfflineDeps, RebuildFn, SpendReportFn};
pub use api::operations::offline::{OfflineOperations, OperationRefusal};
pub use api::operations::table::OperationId;
pub use api::system::tokens::parse_expiry as parse_token_expiry;
pub use audit::last_editors::LastEditors;
pub use config::{AdminAuditConfig, AdminConfig, SettingsAccess};
pub use doctor::{DoctorFinding, DoctorFn, FindingState};
pub use identity::token_lifetimes::TokenLifetimes;
pub use pending::FleetPending;
pub use reload::{ActiveConfig, ReloadFn, ReloadReport};
pub use server::{AdminServer, check_access};
pub use setup::{BrowserRequest, MachineSetup, SetupFacts, SetupFactsFn, StartBrowserFn};
pub use state::{AdminDeps, AdminState, ArchiveProgressFn, LimitDeps};
