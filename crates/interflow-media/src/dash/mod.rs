//! DASH manifests (ISO 23009-1): parsed, and converted to HLS playlists or to manifests whose media is routed through
//! Interflow.
//!
//! [`xml`] reads the document, [`model`] resolves inheritance, [`segments`] lists the available segments, [`to_hls`]
//! and [`to_mpd`] write.

pub mod addressing;
pub mod model;
pub mod segments;
pub mod time;
pub mod to_hls;
pub mod to_mpd;
pub mod xml;

use interflow_types::{Error, ErrorKind};

pub(crate) fn manifest_error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadResponse, format!("the manifest cannot be read: {}", text.into()))
}
