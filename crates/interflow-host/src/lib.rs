//! The machine on which Interflow runs: the data directory and the instance that runs with it, commands behind the proxy,
//! trust stores, the system's proxy settings, the browser, the terminal, and the checks of `interflow doctor`.
#![forbid(unsafe_code)]

pub mod browser;
mod confirm;
pub mod data_dir;
#[cfg(unix)]
mod data_dir_access;
pub mod doctor;
mod error;
pub mod exec;
mod instance_api;
pub mod running_instances;
pub mod service;
pub mod system_proxy;
pub mod terminal;
pub mod trust_store;

pub use confirm::confirmed;
pub use error::{CliError, CliExit, Result};
pub use instance_api::{InstanceApi, not_running};
