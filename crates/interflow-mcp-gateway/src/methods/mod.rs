//! The methods of the protocol, as this gateway answers them.

pub(crate) mod answer;
mod call;
mod call_context;
mod capabilities;
mod connect_account;
mod listen;
pub(crate) mod lists;
mod log_messages;
mod server_call;
mod server_events;
pub(crate) mod standing_stream;
pub(crate) mod tasks;
mod tool_search;
mod url_elicitation;
