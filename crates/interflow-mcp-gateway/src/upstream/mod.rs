//! Connections to MCP servers: this gateway is their client.

pub(crate) mod access_tokens;
pub(crate) mod event_sink;
pub(crate) mod http;
pub(crate) mod known_capabilities;
mod resumption;
pub(crate) mod server;
pub(crate) mod server_hello;
pub(crate) mod server_secrets;
pub(crate) mod server_url;
pub(crate) mod stdio;
