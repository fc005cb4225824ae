//! A running instance: its configuration, start, reload, log and shutdown.

pub mod config;
pub mod diagnosis;
pub mod environment;
pub mod exposure;
pub mod features;
pub mod heartbeat;
pub mod log;
pub mod machine_setup;
pub mod reload;
pub mod renamed;
#[cfg(unix)]
pub mod restart;
pub mod run;
pub mod settings;
pub mod shared_settings;
