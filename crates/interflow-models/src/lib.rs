//! The catalog of language models: what a call costs, and what a model takes and refuses.

#![forbid(unsafe_code)]

mod capabilities;
mod catalog;
mod names;

use std::sync::Arc;

pub use capabilities::{Capabilities, Effort, ThinkingBinding, ThinkingMode};
pub use catalog::{Catalog, Limits, Model, current};

/// What a model can do, by its name at a provider as a request has it; `None` if neither it nor its family is in the
/// catalog. The name of the provider in the configuration may be any: the maker's entry then counts.
pub fn capabilities(provider: &str, model: &str) -> Option<Arc<Capabilities>> {
    current().capabilities(provider, model)
}
