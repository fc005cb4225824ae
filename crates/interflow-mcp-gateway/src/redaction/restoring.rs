//! Originals in place of placeholders, for servers and for clients.

use interflow_redact::{JsonPart, PlaceholderRestorer, ValuePolicy, json_parts};

use crate::session::client_session::{McpSession, SharedVault};
use crate::upstream::server::McpServer;

/// Restores in JSON for a server what it may have: what the client sent, if only the recording was to be without it, and
/// what servers sent, if they may share it.
pub(crate) fn restore_for_server(
    server: &McpServer,
    policy: &ValuePolicy,
    session: &McpSession,
    json: String,
) -> String {
    let restored = |vault: &SharedVault, may_have: bool, json: String| {
        may_have.then(|| restore_json(vault, &json)).flatten().unwrap_or(json)
    };
    let json = restored(&session.from_client, server.arguments_are_restored(policy), json);
    restored(&session.from_servers, server.results_are_restored(), json)
}

/// Restores originals in the strings and names of a JSON value; `None` if there is nothing to restore.
pub(crate) fn restore_json(vault: &SharedVault, json: &str) -> Option<String> {
    let session = vault.lock();
    let vault = session.vault().filter(|vault| !vault.is_empty())?;
    let (mut out, mut copied) = (String::new(), 0);
    for span in json_parts(json.as_bytes()).ok()?.into_iter().filter(|span| span.part != JsonPart::Number) {
        let raw = json.get(span.range.clone())?;
        let mut restorer = PlaceholderRestorer::in_string(false);
        let mut restored = String::new();
        restorer.push(vault, raw, &mut restored);
        restored.push_str(&restorer.end(vault));
        if restored != raw {
            out.push_str(json.get(copied..span.range.start)?);
            out.push_str(&restored);
            copied = span.range.end;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(json.get(copied..)?);
    Some(out)
}
