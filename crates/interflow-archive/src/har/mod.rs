//! HAR 1.2: the archive that browsers write and read.
//!
//! What HAR has no place for stands in fields that begin with `_`, as the format allows: WebSocket messages as Chromium
//! writes them, bodies of requests that are no text, errors, tags, and facts of both legs.

mod body;
mod entry;
mod export;
mod import;
mod parts;

pub(super) use entry::{parse_url, version};
pub use export::HarWriter;
pub use import::import;
pub(super) use parts::{from_iso, iso};
