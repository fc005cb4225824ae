//! HLS, DASH, CENC decryption, signed links and playlists.
#![forbid(unsafe_code)]

pub mod bmff;
pub mod cenc;
