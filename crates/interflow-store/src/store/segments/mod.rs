//! Bodies and messages: chunks in segment files, and what refers to them.

pub mod batch_chunks;
pub(crate) mod body;
pub(crate) mod body_assembly;
pub mod chunk_refs;
pub(crate) mod chunker;
pub(crate) mod chunks;
pub mod compress;
pub(crate) mod messages;
pub(crate) mod segment;
pub(crate) mod varint;
