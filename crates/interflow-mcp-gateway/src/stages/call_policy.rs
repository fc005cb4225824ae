//! What the rules of a server say about a call.

use interflow_types::Flow;
use serde_json::{Value, json};

use super::request_redaction::RequestInspection;

use crate::config::CallAction;
use crate::policy::repeats_names;
use crate::protocol::client_message::{ClientMethod, CompletionRef, ListKind};
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError};
use crate::redaction::restoring::restore_for_server;
use crate::upstream::server::McpServer;

impl RequestInspection<'_> {
    /// Checks a call as the client sent it, with the originals of placeholders that the server would get. Returns the rule by
    /// which a person has to be asked.
    ///
    /// # Errors
    /// The call is refused.
    pub fn check_rules(
        self,
        flow: &mut Flow,
        server: &McpServer,
        name: &str,
        method: &ClientMethod,
    ) -> Result<Option<String>, RpcError> {
        let (kind, sent) = match method {
            ClientMethod::CallTool(_, arguments) => (ListKind::Tools, arguments.clone()),
            ClientMethod::GetPrompt(_, arguments) => (ListKind::Prompts, arguments.clone()),
            ClientMethod::Complete(CompletionRef::Prompt(_), values) => {
                (ListKind::Prompts, completed_arguments(values))
            }
            ClientMethod::ReadResource(uri)
            | ClientMethod::Subscribe(uri)
            | ClientMethod::Complete(CompletionRef::Resource(uri), _) => {
                (ListKind::Resources, json!({ "uri": uri }).to_string())
            }
            _ => return Ok(None),
        };
        let sent = restore_for_server(server, self.policy, self.session, sent);
        let arguments: Value = serde_json::from_str(&sent).unwrap_or_default();
        if !server.config.rules.is_empty() && repeats_names(&sent, &arguments) {
            let why =
                "an object in `arguments` has a member twice, and servers differ in which they take: send one of them";
            return Err(RpcError::new(INVALID_PARAMS, why));
        }
        let name = if kind == ListKind::Resources { arguments["uri"].as_str().unwrap_or_default() } else { name };
        let (action, rule) = server.rules.decide(kind, name, &arguments);
        if action == CallAction::Allow {
            return Ok(None);
        }
        flow.tag(format!("mcp-rule:{rule}"));
        let what = match kind {
            ListKind::Tools => format!("the tool `{name}`"),
            ListKind::Prompts => format!("the prompt `{name}`"),
            ListKind::Resources | ListKind::ResourceTemplates => "this resource".to_owned(),
        };
        let message = match action {
            CallAction::Ask if !matches!(method, ClientMethod::Complete(..)) => return Ok(Some(rule)),
            CallAction::Ask => format!("the rule `{rule}` has a person decide on {what}, and completes nothing"),
            _ if rule == "default_action" => format!("no rule allows these arguments of {what}"),
            _ => format!("the rule `{rule}` denies these arguments of {what}"),
        };
        let server = &server.name;
        self.service.count_call(server, "refused");
        let remedy = format!("use others, or ask the operator to change mcp.server.{server}.rules");
        Err(RpcError::not_allowed(format!("MCP server {server}: {message}; {remedy}")))
    }
}

/// The arguments of a prompt of which one is completed.
fn completed_arguments(values: &str) -> String {
    let mut values: Value = serde_json::from_str(values).unwrap_or_default();
    let mut arguments = values["context"]["arguments"].take();
    if let Value::String(name) = values["argument"]["name"].take() {
        arguments[name] = values["argument"]["value"].take();
    }
    arguments.to_string()
}
