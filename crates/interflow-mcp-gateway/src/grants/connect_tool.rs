//! The tool with which a user connects their account at a server: the gateway's own, in the list of each client that may use
//! the server, whether or not the account is connected.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::access;
use crate::exchange::ClientView;
use crate::upstream::server::McpServer;

pub(crate) const NAME: &str = "connect_account";

/// The server whose tool has this name.
pub(crate) fn server<'v>(view: ClientView<'v>, name: &str) -> Option<&'v Arc<McpServer>> {
    let (server, name) = view.settings.resolve(view.only, name)?;
    (name == NAME && server.accounts().is_some() && access::check_any(server, view.key).is_ok()).then_some(server)
}

/// The definitions for a client.
pub(crate) fn tools(view: ClientView<'_>) -> Vec<Value> {
    let servers = view.servers();
    let own = servers.iter().filter(|own| own.accounts().is_some() && access::check_any(own, view.key).is_ok());
    own.map(|server| definition(&server.offered_name(view.only, NAME), &server.name)).collect()
}

fn definition(name: &str, server: &str) -> Value {
    let description = format!(
        "Gives the user a link with which they connect their account at {server}, or disconnect it. Call it if the user \
         asks for that, or if the tools of {server} are missing."
    );
    json!({
        "name": name,
        "title": format!("Connect an account at {server}"),
        "description": description,
        "inputSchema": { "type": "object", "properties": {} },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}
