//! Lists of what servers offer: of all servers together, without what the client may not use.

use std::sync::Arc;

use futures_util::future::join_all;
use interflow_limits::VirtualKey;
use serde_json::{Value, json};

use super::capabilities::with_hints;
use crate::access::{self, Offer};
use crate::exchange::ClientView;
use crate::grants::connect_tool;
use crate::protocol::client_message::ListKind;
use crate::protocol::header_values::MirroredParam;
use crate::protocol::jsonrpc::RpcError;
use crate::session::client_session::McpSession;
use crate::session::listed_names::is_usable;
use crate::upstream::server::McpServer;

/// The definition of the tool that searches.
const SEARCH_TOOL: &str = include_str!("../../data/search-tool.json");
/// Bounds on the pages and the items of a list of one server.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 10_000;

/// The lists of servers, and the servers of which there is none because they failed.
pub(crate) struct CollectedLists {
    pub lists: Vec<(Arc<McpServer>, Vec<Value>)>,
    pub failed: Vec<Arc<str>>,
    /// How long a client may keep them, in milliseconds.
    ttl: u64,
}

/// The list of one server.
pub(crate) struct ServerList {
    items: Vec<Value>,
    /// How long a client may keep it, in milliseconds.
    ttl: u64,
}

/// The list of an endpoint, and the servers that are missing in it.
///
/// # Errors
/// The only server failed.
pub(crate) async fn list(view: ClientView<'_>, kind: ListKind) -> Result<(String, Vec<Arc<str>>), RpcError> {
    let CollectedLists { mut lists, failed, ttl } = collect(view, kind).await?;
    let hides_tools = kind == ListKind::Tools && hide_tools(view, &mut lists);
    let search_tool = hides_tools.then(|| serde_json::from_str(SEARCH_TOOL).ok()).flatten();
    let connect_tools = if kind == ListKind::Tools { connect_tool::tools(view) } else { Vec::new() };
    let own = search_tool.into_iter().chain(connect_tools);
    let items: Vec<_> = own.chain(lists.into_iter().flat_map(|(_, items)| items)).collect();
    let result = json!({ kind.member(): items });
    let result = match view.session.is_stateless() {
        // A list without that of a server which failed is not for keeping, and one of tools that were found grows.
        true => with_hints(result, if hides_tools || !failed.is_empty() { 0 } else { ttl }),
        false => result.to_string(),
    };
    Ok((result, failed))
}

/// Leaves those tools out of lists that the client has to search for, and did not find yet. Whether there are any.
fn hide_tools(view: ClientView<'_>, lists: &mut [(Arc<McpServer>, Vec<Value>)]) -> bool {
    let (listed, mut is_hidden) = (view.session.found_tools.borrow(), false);
    for (_, tools) in searched(view, lists) {
        is_hidden |= !tools.is_empty();
        tools.retain(|tool| tool["name"].as_str().is_some_and(|name| listed.iter().any(|other| other == name)));
    }
    is_hidden
}

/// The lists of those servers whose tools the client has to search for. It sees all tools of the others.
pub(super) fn searched<'l>(
    view: ClientView<'_>,
    lists: &'l mut [(Arc<McpServer>, Vec<Value>)],
) -> impl Iterator<Item = &'l mut (Arc<McpServer>, Vec<Value>)> {
    let (own_limit, limit) = (|server: &McpServer| server.config.search_tools_above, view.settings.search_tools_above);
    let shared: usize =
        lists.iter().filter(|(server, _)| own_limit(server).is_none()).map(|(_, tools)| tools.len()).sum();
    lists.iter_mut().filter(move |(server, tools)| match own_limit(server) {
        Some(limit) => tools.len() > limit,
        None => limit.is_some_and(|limit| shared > limit),
    })
}

/// What the servers of an endpoint offer the client. With several servers, those that fail are left out.
///
/// # Errors
/// The only server failed, or the client may use nothing of it.
pub(super) async fn collect(view: ClientView<'_>, kind: ListKind) -> Result<CollectedLists, RpcError> {
    if let Some(server) = view.only.and_then(|name| view.settings.get(name)) {
        access::check_any(server, view.key)?;
    }
    let servers: Vec<_> = view.servers().into_iter().filter(|server| may_list(server, view.key, kind)).collect();
    let answers = join_all(servers.iter().map(|server| list_of_server(server, view.session, kind))).await;
    let (mut lists, mut failed, mut ttl) = (Vec::new(), Vec::new(), None::<u64>);
    for (server, list) in servers.into_iter().zip(answers) {
        match list {
            Ok(list) => {
                ttl = Some(ttl.unwrap_or(list.ttl).min(list.ttl));
                let items = list.items.into_iter().filter_map(|item| offered(&server, view, kind, item)).collect();
                lists.push((server, items));
            }
            // What connects the account is all that there is before.
            Err(e) if kind == ListKind::Tools && e.has_own_link() => failed.push(Arc::clone(&server.name)),
            Err(e) if view.only.is_some() => return Err(e),
            Err(e) => {
                // The text may be the server's own.
                let (name, method) = (&server.name, kind.as_str());
                tracing::warn!("{method} of the MCP server {name} failed with the code {}, and is left out", e.code);
                failed.push(Arc::clone(&server.name));
            }
        }
    }
    Ok(CollectedLists { lists, failed, ttl: ttl.unwrap_or_default() })
}

fn may_list(server: &McpServer, key: Option<&VirtualKey>, kind: ListKind) -> bool {
    match kind {
        // Each tool is checked by itself, too.
        ListKind::Tools => access::check_any(server, key).is_ok(),
        ListKind::Prompts => access::check(server, key, Offer::Prompts).is_ok(),
        ListKind::Resources | ListKind::ResourceTemplates => access::check(server, key, Offer::Resources).is_ok(),
    }
}

/// An item under the name that clients of the endpoint use; `None` if the client may not use it.
fn offered(server: &Arc<McpServer>, view: ClientView<'_>, kind: ListKind, mut item: Value) -> Option<Value> {
    let resources = &view.session.resources;
    let name = match kind {
        ListKind::Tools | ListKind::Prompts => {
            let name = item["name"].as_str().filter(|name| is_usable(name))?.to_owned();
            if kind == ListKind::Tools {
                // Calls by this name are for the gateway's own tool.
                if name == connect_tool::NAME && server.accounts().is_some() {
                    return None;
                }
                access::check(server, view.key, Offer::Tool(&name)).ok()?;
            }
            item["name"] = server.offered_name(view.only, &name).into();
            // Tasks of versions with sessions, which others do not have.
            if let (true, Some(members)) = (view.session.is_stateless(), item.as_object_mut()) {
                members.remove("execution");
            }
            name
        }
        ListKind::Resources => {
            resources.add_resource(item["uri"].as_str()?, &server.name);
            item["uri"].as_str()?.to_owned()
        }
        ListKind::ResourceTemplates => {
            resources.add_template(item["uriTemplate"].as_str()?, &server.name);
            item["uriTemplate"].as_str()?.to_owned()
        }
    };
    server.rules.may_call(kind, &name).then_some(item)
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
        let page = server.request(session, kind.as_str(), &params, None).await?;
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
    let (name, method) = (&server.name, kind.as_str());
    Err(RpcError::server(format!("MCP server {name}: {method} has more than {MAX_ITEMS} items or {MAX_PAGES} pages")))
}
