//! What happens to a text: it is searched within a capacity, its findings are resolved and cached, and it is redacted
//! whole, as a document or as a stream.

pub(crate) mod document;
pub(crate) mod finding_cache;
pub(crate) mod redactor;
pub mod scan_capacity;
pub(crate) mod span_resolution;
pub(crate) mod stop_flag;
pub(crate) mod stream;
