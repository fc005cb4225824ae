//! Media proxy: HLS, DASH, CENC decryption, signed links and IPTV lists.
//!
//! [`endpoint`] serves the gateway port, using [`token`] for authorisation, [`relay`] for fetching, and [`cenc`] for
//! decryption.
#![forbid(unsafe_code)]

pub mod bmff;
pub mod cenc;
pub mod config;
pub mod dash;
pub mod endpoint;
pub mod hls;
pub mod relay;
pub mod remux;
pub mod sample_aes;
pub mod token;
pub mod webvtt;

pub use config::MediaConfig;
pub use endpoint::{MediaMount, MediaService, MediaSetup};
