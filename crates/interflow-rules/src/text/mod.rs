//! Templates, and the formats of texts in rules and messages: URLs, queries, cookies, dates, JSON.

pub(crate) mod cookies;
pub(crate) mod dates;
pub(crate) mod json;
pub(crate) mod json_document;
mod json_steps;
pub(crate) mod query_params;
pub(crate) mod shape;
pub(crate) mod string_list;
pub(crate) mod template;
pub(crate) mod url;
