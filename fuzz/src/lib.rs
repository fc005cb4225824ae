//! What the fuzz targets run: entries that take any bytes and assert what must hold for them.

pub mod archive;
pub mod llm;
pub mod media;
pub mod query;
pub mod wire;
