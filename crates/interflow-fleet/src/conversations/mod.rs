//! Conversations in the shared store: reading, writing, and the indexer's view.

pub(crate) mod columns;
mod index;
mod read;
pub(crate) mod turn;
pub(crate) mod write;
