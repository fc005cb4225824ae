//! mitmproxy flow files: a sequence of tnetstrings, each a dictionary with the state of one flow. Written in version 21
//! of the format (mitmproxy 11 and 12); read in every version up to it.

mod export;
mod extra_fields;
mod import;
mod tnetstring;

pub(super) use export::write;
pub(super) use import::import;

/// The version that is written, and the newest that is read.
const VERSION: i64 = 21;
