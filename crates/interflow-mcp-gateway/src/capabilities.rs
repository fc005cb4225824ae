//! The capabilities that the gateway declares to a client: those that it has itself, and those of the servers that the
//! client may use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::access::{self, Offer};
use crate::log_messages::may_log;
use crate::sessions::McpSession;
use crate::settings::{McpServer, McpSettings};

/// How long the beginning of a session waits for a server of which nothing is known yet.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How long a server that failed is taken to have nothing, without being asked again.
const RETRY: Duration = Duration::from_secs(30);

/// What a server declared the last time that a session with it began; `None` if it failed.
#[derive(Default)]
pub(crate) struct KnownCapabilities(Mutex<Option<(Option<Value>, Instant)>>);

impl KnownCapabilities {
    pub fn record(&self, capabilities: Option<Value>) {
        *self.0.lock() = Some((capabilities, Instant::now()));
    }

    /// What is known; `None` if the server has to be asked.
    fn get(&self) -> Option<Value> {
        match &*self.0.lock() {
            Some((Some(capabilities), _)) => Some(capabilities.clone()),
            Some((None, at)) if at.elapsed() < RETRY => Some(Value::Null),
            _ => None,
        }
    }
}

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
    let mut wanted = Vec::new();
    if may_use(Offer::Prompts) || may_use(Offer::Resources) {
        wanted.push("completions");
    }
    if may_log(server, key) {
        wanted.push("logging");
    }
    if wanted.is_empty() {
        // It is not even started.
        return wanted;
    }
    let capabilities = capabilities_of(server, session).await;
    wanted.retain(|name| capabilities.get(name).is_some_and(|c| !c.is_null()));
    wanted
}

/// What a server declared, as far as it is known within a time limit; null if nothing is.
pub(crate) async fn capabilities_of(server: &Arc<McpServer>, session: &Arc<McpSession>) -> Value {
    if let Some(known) = server.known.get() {
        return known;
    }
    // A start that takes longer goes on, for the first request to the server.
    let (owned, session) = (Arc::clone(server), Arc::clone(session));
    let asked = tokio::spawn(async move { owned.hello(&session).await.map(|hello| hello.capabilities) });
    match tokio::time::timeout(MAX_WAIT, asked).await {
        Ok(Ok(Ok(capabilities))) => capabilities,
        Ok(Ok(Err(e))) => {
            tracing::warn!("nothing is known of the capabilities of an MCP server: {e}");
            Value::Null
        }
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("MCP server {}: its capabilities are not known yet", server.name);
            Value::Null
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_failed_is_not_asked_again_at_once() {
        let known = KnownCapabilities::default();
        assert_eq!(known.get(), None);
        known.record(None);
        assert_eq!(known.get(), Some(Value::Null));
        known.record(Some(json!({ "logging": {} })));
        assert_eq!(known.get(), Some(json!({ "logging": {} })));
    }
}
