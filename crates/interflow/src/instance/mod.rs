//! A running instance: its configuration, start, reload, log and shutdown.

pub mod banner;
pub mod config;
pub mod diagnosis;
pub mod environment;
pub mod exposure;
pub mod features;
pub mod heartbeat;
pub mod log;
pub mod machine_setup;
pub mod reload;
#[cfg(unix)]
pub mod restart;
pub mod run;
pub mod settings;
pub mod shutdown_signal;
pub mod start_check;
#[cfg(unix)]
pub mod successor_check;
pub mod terminal;
pub mod watched_files;
