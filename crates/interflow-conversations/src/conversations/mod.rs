//! Conversations with language models, built from recorded flows.
//!
//! `from_recording` parses LLM calls from recorded flows, [`indexer`] feeds them to the assembler as flows end and
//! stores its results, over a [`cursor`] for each kind of store, [`load`] turns a stored conversation into a view.

mod cursor;
pub mod endpoints;
pub mod export;
mod from_recording;
pub mod indexer;
mod late_sessions;
pub mod load;
mod mapping;
mod mcp_links;
mod otel;
pub mod prompt_cache;
pub mod search;
pub mod tree;
mod weight;

pub use mapping::CallPricing;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
