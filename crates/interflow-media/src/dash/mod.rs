//! DASH manifests (ISO 23009-1): read, and made into HLS playlists or into manifests whose media passes through us.
//!
//! [`xml`] reads the document, [`model`] resolves what is inherited, [`segments`] lists what is there, [`to_hls`] and
//! [`to_mpd`] write.

pub mod addressing;
pub mod model;
pub mod segments;
pub mod time;
pub mod to_hls;
pub mod to_mpd;
pub mod xml;

use interflow_types::{Error, ErrorKind};

/// What is wrong with a manifest.
pub(crate) fn manifest_error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadResponse, format!("the manifest cannot be read: {}", text.into()))
}
