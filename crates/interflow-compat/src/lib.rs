//! Compatibility with other programs: their APIs, settings, data and rule formats.
#![forbid(unsafe_code)]

mod config;
pub mod fluxzy;
pub mod greyproxy;
#[cfg(feature = "media")]
pub mod mediaflow;
pub mod mitmproxy;
pub mod philter;

pub use config::CompatConfig;
