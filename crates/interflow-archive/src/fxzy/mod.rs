//! Fluxzy archives: a folder, or the same folder as a zip with the extension `.fxzy`. Metadata is MessagePack, bodies
//! are separate files with their content coding.
//!
//! Objects are arrays with positional members, or maps by name; strings that .NET stores as character memory are arrays
//! of UTF-16 units. All of these are read; the variant that Fluxzy expects is written.

mod export;
mod import;
mod pack;
mod value;

pub use export::FxzyWriter;
pub(super) use import::import;
pub use pack::{pack, pack_to_temp_file};

/// Exchanges and connections are stored in folders of a hundred, whose names the import ignores.
fn bucket(id: u64) -> String {
    let begin = id / 100 * 100;
    format!("{begin}-{}", begin + 100)
}
