//! The MCP gateway: servers of the Model Context Protocol, over standard streams or HTTP, behind one endpoint of the
//! gateway listener. Clients show a virtual key, arguments and results are redacted, and a person may have to approve
//! a call of a tool.
//!
//! A request is parsed and redacted by a [stage](McpService::stages) before it is recorded, and answered by the
//! handler of the [mount](McpMount). What the handler learns of a server is redacted before it is recorded.
#![forbid(unsafe_code)]

mod access;
mod access_identity;
mod config;
mod cross_origin;
mod endpoint;
mod exchange;
mod grants;
mod introspection;
mod methods;
mod policy;
mod protected_resource;
mod protocol;
mod redaction;
mod service;
mod session;
mod settings;
mod stages;
mod upstream;

pub use access_identity::{AccessIdentity, AccessRefusal, AccessTokenSource, AccessTokens};
pub use config::{
    ArgumentMode, ArgumentTest, CallAction, CallRule, McpClientCredentials, McpConfig, McpGrant, McpIntrospection,
    McpLogin, McpOAuthConfig, McpServerConfig,
};
pub use endpoint::McpMount;
pub use grants::KeyRingSource;
pub use grants::vault::GrantFile;
pub use protocol::client_capabilities::ClientRequestKind;
pub use protocol::envelope::is_stateless;
pub use protocol::header_values::RoutingFields;
pub use protocol::responses::stateless_status;
pub use protocol::versions::{VERSIONS, supported as supported_versions};
pub use service::{McpAccount, McpCallCounts, McpDeps, McpService};
pub use settings::McpSettings;
