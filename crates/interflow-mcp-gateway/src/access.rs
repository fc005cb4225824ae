//! What a client may use: by the configuration of a server, and by the client's virtual key.

use interflow_limits::VirtualKey;

use crate::protocol::jsonrpc::RpcError;
use crate::upstream::server::McpServer;

/// Something that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer<'a> {
    Tool(&'a str),
    Resources,
    Prompts,
    /// They may be about anything that it does.
    LogMessages,
    /// What it tells the model of the client.
    Instructions,
}

/// Checks whether a client may use what a server offers.
///
/// # Errors
/// It may not, and what decides.
pub(crate) fn check(server: &McpServer, key: Option<&VirtualKey>, offer: Offer<'_>) -> Result<(), RpcError> {
    let (name, config) = (&server.name, &server.config);
    let (is_offered, what) = match offer {
        Offer::Tool(tool) => (config.offers_tool(tool), format!("the tool `{tool}`")),
        Offer::Resources => (config.resources, "the resources".to_owned()),
        Offer::Prompts => (config.prompts, "the prompts".to_owned()),
        Offer::LogMessages => (true, "the log messages".to_owned()),
        Offer::Instructions => (true, "the instructions".to_owned()),
    };
    if !is_offered {
        let message = format!("{what} of the MCP server {name} may not be used (mcp.server.{name})");
        return Err(RpcError::not_allowed(message));
    }
    let tool = if let Offer::Tool(tool) = offer { Some(tool) } else { None };
    key.filter(|key| !key.allows_mcp(name, tool)).map_or(Ok(()), |key| Err(refusal(key, &what, name)))
}

/// Checks whether a client may use anything of a server at all.
///
/// # Errors
/// It may not.
pub(crate) fn check_any(server: &McpServer, key: Option<&VirtualKey>) -> Result<(), RpcError> {
    let name = &server.name;
    key.filter(|key| !key.reaches_mcp(name)).map_or(Ok(()), |key| Err(refusal(key, "anything", name)))
}

fn refusal(key: &VirtualKey, what: &str, server: &str) -> RpcError {
    RpcError::not_allowed(format!(
        "the key {} does not allow {what} of the MCP server {server} (`mcp` of the key, its team or its organisation)",
        key.id
    ))
}

/// Whether a client with this key gets the log messages of a server.
pub(crate) fn may_log(server: &McpServer, key: Option<&VirtualKey>) -> bool {
    // A process that sessions share does not say for whom it worked: its messages may be about another client.
    server.is_per_session() && check(server, key, Offer::LogMessages).is_ok()
}
