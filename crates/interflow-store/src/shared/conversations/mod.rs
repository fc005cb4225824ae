//! Conversations in the shared store: reading, writing, and the indexer's view.

pub(crate) mod index;
pub(crate) mod read;
pub(crate) mod write;
