//! `JsonSchema` as the types of every crate derive it: schemars' with the feature `schema`, which tests and `make docs`
//! use, and else nothing. A release embeds the documents that were generated with it.

#[cfg(feature = "schema")]
pub use schemars::{self, JsonSchema};

#[cfg(not(feature = "schema"))]
pub use interflow_schema_off::JsonSchema;

/// Implemented by every type: nothing is generated.
#[cfg(not(feature = "schema"))]
pub trait JsonSchema {}

#[cfg(not(feature = "schema"))]
impl<T: ?Sized> JsonSchema for T {}
