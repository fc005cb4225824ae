//! Lists of what servers offer: of all servers together, without what the client may not use.

use std::sync::Arc;

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use serde_json::{Value, json};

use super::capabilities::with_hints;
use crate::access::{self, Offer};
use crate::protocol::client_message::ListKind;
use crate::protocol::header_values::MirroredParam;
use crate::protocol::jsonrpc::RpcError;
use crate::session::client_session::McpSession;
use crate::session::listed_names::is_usable;
use crate::settings::McpSettings;
use crate::upstream::server::McpServer;

/// Bounds on the pages and the items of a list of one server.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 10_000;

/// A list, and the servers of which it has nothing because they failed.
pub(crate) struct MergedList {
    pub result: String,
    pub failed: Vec<Arc<str>>,
}

/// The list of one server.
pub(crate) struct ServerList {
    items: Vec<Value>,
    /// How long a client may keep it, in milliseconds.
    ttl: u64,
}

/// The list of an endpoint. With several servers, those that fail are left out.
///
/// # Errors
/// The only server failed.
pub(crate) async fn list(
    settings: &McpSettings,
    session: &McpSession,
    only: Option<&str>,
    key: Option<&VirtualKey>,
    kind: ListKind,
) -> Result<MergedList, RpcError> {
    let servers: Vec<_> = settings.of_endpoint(only).into_iter().filter(|s| may_list(s, key, kind)).collect();
    let lists = join_all(servers.iter().map(|server| list_of_server(server, session, kind))).await;
    let (mut items, mut failed, mut ttl) = (Vec::new(), Vec::new(), None::<u64>);
    for (server, list) in servers.iter().zip(lists) {
        match list {
            Ok(list) => {
                ttl = Some(ttl.unwrap_or(list.ttl).min(list.ttl));
                items.extend(list.items.into_iter().filter_map(|item| offered(server, session, only, key, kind, item)));
            }
            Err(e) if only.is_some() => return Err(e),
            Err(e) => {
                tracing::warn!("{} failed, and is left out: {e}", kind.method());
                failed.push(Arc::clone(&server.name));
            }
        }
    }
    let result = json!({ kind.member(): items });
    let result = match session.is_stateless() {
        // A list without that of a server which failed is not for keeping.
        true => with_hints(result, ttl.filter(|_| failed.is_empty()).unwrap_or_default()),
        false => result.to_string(),
    };
    Ok(MergedList { result, failed })
}

fn may_list(server: &McpServer, key: Option<&VirtualKey>, kind: ListKind) -> bool {
    match kind {
        // Each tool is checked by itself.
        ListKind::Tools => true,
        ListKind::Prompts => access::check(server, key, Offer::Prompts).is_ok(),
        ListKind::Resources | ListKind::ResourceTemplates => access::check(server, key, Offer::Resources).is_ok(),
    }
}

/// An item under the name that clients of the endpoint use; `None` if the client may not use it.
fn offered(
    server: &Arc<McpServer>,
    session: &McpSession,
    only: Option<&str>,
    key: Option<&VirtualKey>,
    kind: ListKind,
    mut item: Value,
) -> Option<Value> {
    match kind {
        ListKind::Tools | ListKind::Prompts => {
            let name = item["name"].as_str().filter(|name| is_usable(name))?.to_owned();
            if kind == ListKind::Tools {
                access::check(server, key, Offer::Tool(&name)).ok()?;
            }
            item["name"] = server.offered_name(only, &name).into();
            // Tasks of versions with sessions, which others do not have.
            if let (true, Some(members)) = (session.is_stateless(), item.as_object_mut()) {
                members.remove("execution");
            }
        }
        ListKind::Resources => session.resources.add_resource(item["uri"].as_str()?, &server.name),
        ListKind::ResourceTemplates => session.resources.add_template(item["uriTemplate"].as_str()?, &server.name),
    }
    Some(item)
}

/// The list of one server, which the session remembers.
///
/// # Errors
/// The server failed, or its list is too long.
pub(crate) async fn list_of_server(
    server: &McpServer,
    session: &McpSession,
    kind: ListKind,
) -> Result<ServerList, RpcError> {
    let mut list = ServerList { items: Vec::new(), ttl: u64::MAX };
    let hello = server.hello(session).await?;
    if !hello.offers(kind.capability()) {
        return Ok(ServerList { ttl: 0, ..list });
    }
    let mut cursor = None::<String>;
    for _ in 0..MAX_PAGES {
        let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor })).to_string();
        let page = server.request(session, kind.method(), &params, None).await?;
        let mut page: Value = serde_json::from_str(&page).map_err(|e| RpcError::server(e.to_string()))?;
        if let Some(Value::Array(more)) = page.get_mut(kind.member()).map(Value::take) {
            let has_fields = kind == ListKind::Tools && hello.is_stateless();
            let is_valid = |item: &Value| !has_fields || MirroredParam::of_schema(&item["inputSchema"]).is_some();
            list.items.extend(more.into_iter().filter(is_valid));
        }
        list.ttl = list.ttl.min(page["ttlMs"].as_u64().unwrap_or_default());
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            if matches!(kind, ListKind::Tools | ListKind::Prompts) {
                session.listed.remember(&server.name, kind, &list.items);
            }
            return Ok(list);
        }
        if list.items.len() > MAX_ITEMS {
            break;
        }
    }
    let (name, method) = (&server.name, kind.method());
    Err(RpcError::server(format!("MCP server {name}: {method} has more than {MAX_ITEMS} items or {MAX_PAGES} pages")))
}
