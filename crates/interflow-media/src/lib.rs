//! HLS, DASH, CENC decryption, signed links and playlists.
//!
//! [`endpoint`] answers on the gateway port: it asks [`token`] who may, [`relay`] for bytes, [`cenc`] to decrypt them.
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

pub use config::MediaConfig;
pub use endpoint::{MediaMount, MediaService, MediaSetup};
