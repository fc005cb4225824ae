//! The OpenAPI document and its page, generated from the table of operations and the types of their handlers, compared
//! with the committed ones.

pub(crate) mod descriptions;
mod documentation;
mod openapi;
mod openapi_page;
