//! The messages of the protocol, and how they travel over HTTP.

pub(crate) mod challenge;
pub(crate) mod client_capabilities;
pub(crate) mod client_key;
pub(crate) mod client_message;
pub(crate) mod dpop;
pub(crate) mod envelope;
pub(crate) mod event_stream;
pub(crate) mod header_values;
pub(crate) mod jsonrpc;
pub(crate) mod list_kind;
pub(crate) mod listen_filter;
pub(crate) mod log_level;
pub(crate) mod oauth_form;
pub(crate) mod responses;
pub(crate) mod task_method;
pub(crate) mod uri_template;
pub(crate) mod versions;
