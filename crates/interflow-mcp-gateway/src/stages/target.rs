//! The server that a call is for.

use std::sync::Arc;

use interflow_types::Flow;

use super::request_redaction::RequestInspection;

use crate::access::{self, Offer};
use crate::exchange::ClientView;
use crate::methods::lists;
use crate::protocol::client_message::{ClientMethod, CompletionRef, ListKind};
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError};
use crate::redaction::values::Redaction;
use crate::session::listed_names::ListedSchema;
use crate::upstream::server::McpServer;

/// The server of a call, if it is one and the client may use it, and the name there.
pub(super) fn find_target(
    view: ClientView<'_>,
    method: &ClientMethod,
) -> Option<Result<(Arc<McpServer>, String), RpcError>> {
    Some(locate(view, method)?.and_then(|(server, name)| {
        let offer = match method {
            ClientMethod::CallTool(..) => Offer::Tool(&name),
            ClientMethod::GetPrompt(..) | ClientMethod::Complete(CompletionRef::Prompt(_), _) => Offer::Prompts,
            _ => Offer::Resources,
        };
        access::check(&server, view.key, offer)?;
        Ok((server, name))
    }))
}

/// The server of a call, if it is one, and the name there, whoever may use it.
pub(super) fn locate(
    view: ClientView<'_>,
    method: &ClientMethod,
) -> Option<Result<(Arc<McpServer>, String), RpcError>> {
    let (settings, session) = (view.settings, view.session);
    let unknown = |what: &str, name: &str| RpcError::new(INVALID_PARAMS, format!("there is no {what} `{name}`"));
    let named = |what: &str, name: &str| {
        let target = settings.resolve(view.only, name).map(|(server, name)| (Arc::clone(server), name.to_owned()));
        target.ok_or_else(|| unknown(what, name))
    };
    Some(match method {
        ClientMethod::CallTool(name, _) => named("tool", name),
        ClientMethod::GetPrompt(name, _) | ClientMethod::Complete(CompletionRef::Prompt(name), _) => {
            named("prompt", name)
        }
        ClientMethod::ReadResource(uri)
        | ClientMethod::Subscribe(uri)
        | ClientMethod::Unsubscribe(uri)
        | ClientMethod::Complete(CompletionRef::Resource(uri), _) => {
            let listed = match method {
                ClientMethod::Complete(..) => session.resources.of_reference(uri),
                _ => session.resources.of_resource(uri).or_else(|| session.resources.of_template(uri)),
            };
            let listed = listed.and_then(|server| settings.get(&server).cloned());
            let servers = view.servers();
            let single = || servers.first().filter(|_| servers.len() == 1).cloned();
            let target = listed.or_else(single).map(|server| (server, uri.clone()));
            target.ok_or_else(|| {
                let message =
                    "no server of this gateway listed this resource or a template of it; list resources first, or use /mcp/SERVER";
                RpcError::new(INVALID_PARAMS, message)
            })
        }
        _ => return None,
    })
}

pub(super) fn tag_target(flow: &mut Flow, server: &McpServer, method: &ClientMethod, name: &str) {
    flow.tag(format!("mcp:{}", server.name));
    if let ClientMethod::CallTool(..) = method {
        flow.tag(format!("mcp-tool:{name}"));
    }
}

impl RequestInspection<'_> {
    /// What is known of the schema of a tool; of a prompt, nothing. Asks the server for its list if it is not known yet that
    /// it has this name: another one could be read by the server as that of a tool which the client may not use.
    ///
    /// # Errors
    /// The server did not list just this name, or failed.
    pub async fn listed_schema(
        self,
        server: &McpServer,
        kind: ListKind,
        name: &str,
    ) -> Result<Arc<ListedSchema>, RpcError> {
        let Self { service, session, policy } = self;
        let listed = || session.listed.find(&server.name, kind, name);
        if let Some(schema) = listed() {
            return Ok(schema);
        }
        if let Err(e) = lists::list_of_server(server, session, kind).await {
            service.count_call(&server.name, "error");
            return Err(Redaction::of_results(policy, server, &session.from_servers).error(&e).await);
        }
        listed().ok_or_else(|| {
            let what = if kind == ListKind::Tools { "tool" } else { "prompt" };
            RpcError::new(INVALID_PARAMS, format!("the MCP server {} lists no {what} `{name}`", server.name))
        })
    }
}
