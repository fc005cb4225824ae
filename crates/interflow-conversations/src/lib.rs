//! Conversations with language models, assembled from recorded calls: the indexer, views and exports.
#![forbid(unsafe_code)]

pub mod assembly;
pub mod conversations;
