//! The capabilities that the gateway declares to a client: those that it has itself, and those of the servers that the
//! client may use.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use serde_json::{Value, json};

use crate::access::{self, Offer, may_log};
use crate::session::client_session::McpSession;
use crate::settings::McpSettings;
use crate::upstream::server::McpServer;

/// How long the beginning of a session waits for a server of which nothing is known yet.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The capabilities for a client of an endpoint with this key.
pub(crate) async fn declared(
    settings: &McpSettings,
    session: &Arc<McpSession>,
    only: Option<&str>,
    key: Option<&VirtualKey>,
) -> Value {
    let mut declared = json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
    });
    let servers = settings.of_endpoint(only);
    let optional = join_all(servers.iter().map(|server| optional_of_server(server, session, key))).await;
    for name in optional.into_iter().flatten() {
        declared[name] = json!({});
    }
    declared
}

/// The capabilities of a server that a client has if one of its servers has them, and that it may use.
async fn optional_of_server(
    server: &Arc<McpServer>,
    session: &Arc<McpSession>,
    key: Option<&VirtualKey>,
) -> Vec<&'static str> {
    let may_use = |offer: Offer<'_>| access::check(server, key, offer).is_ok();
    let mut names = Vec::new();
    if may_use(Offer::Prompts) || may_use(Offer::Resources) {
        names.push("completions");
    }
    if may_log(server, key) {
        names.push("logging");
    }
    if names.is_empty() {
        // It is not even started.
        return names;
    }
    let capabilities = capabilities_of(server, session).await;
    names.retain(|name| capabilities.get(name).is_some_and(|c| !c.is_null()));
    names
}

/// What a server declared, as far as it is known within a time limit; null if nothing is.
pub(crate) async fn capabilities_of(server: &Arc<McpServer>, session: &Arc<McpSession>) -> Value {
    if let Some(capabilities) = server.known.get() {
        return capabilities;
    }
    // A start that takes longer goes on, for the first request to the server.
    let (owned, session) = (Arc::clone(server), Arc::clone(session));
    let hello = tokio::spawn(async move { owned.hello(&session).await.map(|hello| hello.capabilities) });
    match tokio::time::timeout(MAX_WAIT, hello).await {
        Ok(Ok(Ok(capabilities))) => capabilities,
        Ok(Ok(Err(e))) => {
            tracing::warn!("cannot read the capabilities of an MCP server: {e}");
            Value::Null
        }
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("MCP server {}: timed out reading its capabilities", server.name);
            Value::Null
        }
    }
}
