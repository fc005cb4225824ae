//! Compatibility with other programs: their APIs, settings, data and rule formats.
#![forbid(unsafe_code)]

pub mod fluxzy;
pub mod greyproxy;
#[cfg(feature = "media")]
pub mod mediaflow;
pub mod mitmproxy;
pub mod philter;
