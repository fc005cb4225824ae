//! Zip files, as needed for archives of flows: written in one pass to any output, and read defensively, since a zip's
//! directory may contain false data (PKWARE APPNOTE 6.3). The format itself is `rawzip`'s.

mod entry;
mod read;
mod truncated;
mod write;

pub(super) use entry::ZipEntry;
pub(super) use read::{MAX_RATIO, ZipReader};
pub(super) use write::ZipWriter;
