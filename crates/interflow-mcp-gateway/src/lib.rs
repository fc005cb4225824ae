//! The MCP gateway: servers of the Model Context Protocol, over standard streams or HTTP, behind one endpoint of the
//! gateway listener. Clients show a virtual key, arguments and results are redacted, and a person may have to approve
//! a call of a tool.
//!
//! A request is parsed and redacted by a [stage](McpService::stages) before it is recorded, and answered by the
//! handler of the [mount](McpMount). What the handler learns of a server is redacted before it is recorded.
#![forbid(unsafe_code)]

mod access;
mod capabilities;
mod client_capabilities;
mod client_message;
mod client_requests;
mod config;
mod endpoint;
mod jsonrpc;
mod listed_names;
mod lists;
mod log_messages;
mod methods;
mod oauth;
mod protected_resource;
mod redaction;
mod responses;
mod restore;
mod service;
mod sessions;
mod settings;
mod stages;
mod standing_events;
mod standing_stream;
mod streamed_reply;
mod tool_call;
mod upstream;
mod uri_template;
mod url_elicitation;

pub use client_capabilities::ClientRequestKind;
pub use config::{ArgumentMode, McpClientCredentials, McpConfig, McpOAuthConfig, McpServerConfig};
pub use endpoint::McpMount;
pub use protected_resource::{AccessIdentity, AccessRefusal, AccessTokenSource, AccessTokens};
pub use service::{CallGuard, McpCallCounts, McpDeps, McpService};
pub use settings::McpSettings;
