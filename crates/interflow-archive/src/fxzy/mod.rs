//! Fluxzy's archives: a folder, or the same folder as a zip with the ending `.fxzy`. Heads and facts are MessagePack, bodies
//! are files of their own with their content coding.
//!
//! Objects are arrays whose places have a meaning, or maps from member to value; texts that .NET holds as memory of
//! characters are arrays of UTF-16 units. All of these are read; what that program expects is written.

mod export;
mod import;
mod pack;
mod value;

pub use export::FxzyWriter;
pub(super) use import::import;
pub use pack::{pack, pack_to_temp_file};

/// Exchanges and connections stand a hundred to a folder.
fn bucket(id: u64) -> String {
    let begin = id / 100 * 100;
    format!("{begin}-{}", begin + 100)
}
