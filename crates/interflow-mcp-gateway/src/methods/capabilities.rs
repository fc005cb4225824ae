//! The capabilities that the gateway declares to a client: those that it has itself, and those of the servers that the
//! client may use.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use serde_json::{Map, Value, json};

use crate::access::{self, Offer, may_log};
use crate::exchange::ClientView;
use crate::protocol::client_capabilities::TASKS_EXTENSION;
use crate::protocol::versions::supported;
use crate::session::client_session::McpSession;
use crate::upstream::server::McpServer;
use crate::upstream::server_hello::ServerHello;

/// The capability of calls that go on, of versions with sessions.
const TASKS: &str = "tasks";

/// How long the beginning of a session waits for a server of which nothing is known yet.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The capabilities for a client of an endpoint with this key.
pub(crate) async fn declared(view: ClientView<'_>) -> Value {
    let mut declared = json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
    });
    let servers = view.servers();
    let optional = join_all(servers.iter().map(|server| optional_of_server(server, view.session, view.key))).await;
    for name in optional.into_iter().flatten() {
        declared[name] = match name {
            TASKS => json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }),
            _ => json!({}),
        };
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
    let may_have = [
        ("completions", may_use(Offer::Prompts) || may_use(Offer::Resources)),
        ("logging", may_log(server, key)),
        (TASKS, !session.is_stateless() && access::check_any(server, key).is_ok()),
    ];
    let mut names: Vec<_> = may_have.into_iter().filter_map(|(name, may)| may.then_some(name)).collect();
    if names.is_empty() {
        // It is not even started.
        return names;
    }
    let hello = known_hello(server, session).await;
    names.retain(|name| if *name == TASKS { hello.has_tasks() } else { hello.offers(name) });
    names
}

/// What a client without a session learns of the gateway: its versions and capabilities, and what servers tell the model
/// of the client.
pub(crate) async fn discovery(view: ClientView<'_>) -> String {
    let mut capabilities = declared(view).await;
    let servers = view.servers();
    let servers = servers.iter().filter(|server| access::check(server, view.key, Offer::Instructions).is_ok());
    let hellos =
        join_all(servers.map(|server| async move { (&server.name, known_hello(server, view.session).await) })).await;
    let (mut extensions, mut instructions) = (Map::new(), Vec::new());
    for (name, hello) in &hellos {
        let own = hello.capabilities["extensions"].as_object().into_iter().flatten();
        // Those of a server with sessions are other tasks.
        let own = own.filter(|(id, _)| hello.is_stateless() || *id != TASKS_EXTENSION);
        extensions.extend(own.map(|(id, value)| (id.clone(), value.clone())));
        let text = hello.instructions.as_ref();
        instructions
            .extend(text.map(|text| if view.only.is_some() { text.clone() } else { format!("{name}: {text}") }));
    }
    if !extensions.is_empty() {
        capabilities["extensions"] = Value::Object(extensions);
    }
    let mut result = json!({ "supportedVersions": supported(), "capabilities": capabilities });
    if !instructions.is_empty() {
        result["instructions"] = instructions.join("\n\n").into();
    }
    with_hints(result, 0)
}

/// A result of the gateway itself for a client without a session: how long the client may keep it for itself, in
/// milliseconds.
pub(crate) fn with_hints(mut result: Value, ttl: u64) -> String {
    result["ttlMs"] = ttl.into();
    // What a client gets depends on its key.
    result["cacheScope"] = "private".into();
    result.to_string()
}

/// What a server said of itself, as far as it is known within a time limit; nothing if it failed.
pub(crate) async fn known_hello(server: &Arc<McpServer>, session: &Arc<McpSession>) -> ServerHello {
    if let Some(hello) = server.known.get() {
        return hello;
    }
    // A start that takes longer goes on, for the first request to the server.
    let (owned, session) = (Arc::clone(server), Arc::clone(session));
    let hello = tokio::spawn(async move { owned.hello(&session).await });
    let why = match tokio::time::timeout(MAX_WAIT, hello).await {
        Ok(Ok(Ok(hello))) => return hello,
        Ok(Ok(Err(e))) => format!("reading its capabilities failed with the code {}", e.code),
        Ok(Err(_)) | Err(_) => "timed out reading its capabilities".to_owned(),
    };
    tracing::warn!("MCP server {}: {why}", server.name);
    ServerHello::default()
}
