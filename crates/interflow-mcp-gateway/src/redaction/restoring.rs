//! Originals in place of placeholders, for servers and for clients.

use interflow_redact::{SharedSession, ValuePolicy};

use crate::session::client_session::McpSession;
use crate::upstream::server::McpServer;

/// Restores in JSON for a server what it may have: what the client sent, if only the recording was to be without it, and
/// what servers sent, if they may share it.
pub(crate) fn restore_for_server(
    server: &McpServer,
    policy: &ValuePolicy,
    session: &McpSession,
    json: String,
) -> String {
    let restored = |vault: &SharedSession, may_have: bool, json: String| {
        may_have.then(|| restore_json(vault, &json)).flatten().unwrap_or(json)
    };
    let json = restored(&session.from_client, server.arguments_are_restored(policy), json);
    restored(&session.from_servers, server.results_are_restored(), json)
}

/// Restores originals in a JSON value; `None` if there is nothing to restore.
pub(crate) fn restore_json(session: &SharedSession, json: &str) -> Option<String> {
    session.lock().vault()?.restore_json(json)
}
