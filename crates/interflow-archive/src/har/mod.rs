//! HAR 1.2, the archive format of browsers.
//!
//! Facts without a place in HAR are stored in fields that begin with `_`, as the format allows: WebSocket messages in
//! Chromium's form, binary request bodies, errors, tags, and facts of the downstream and upstream sides.

mod body;
mod entry;
mod export;
mod import;
mod parts;

pub(super) use entry::{LENIENT_BASE64, parse_url, version};
pub use export::HarWriter;
pub use import::import;
pub(super) use parts::{from_iso, iso};
