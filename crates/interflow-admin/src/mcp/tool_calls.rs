//! Tool calls that are operations of the running instance: rule explanations, and changes.

use interflow_types::FlowId;
use serde_json::Value;

use super::tools::{Tool, ToolEffect, ToolRun, WriteAccess, find};
use super::{failure, resources, tool_result};
use crate::api::operations::call::OperationCall;
use crate::api::operations::table::OperationId;

#[derive(Debug)]
pub struct RemoteToolCall {
    id: Value,
    /// Whether it is asked for as the resource of the rules.
    is_resource: bool,
    call: OperationCall,
    /// The text for the agent of the operation's result.
    text: fn(&Value) -> String,
}

/// Parses a remote tool call, or returns why it is not allowed; `None` for every other message.
pub fn remote_tool_call(message: &Value, access: WriteAccess) -> Option<Result<RemoteToolCall, Value>> {
    let is_resource = message["method"] == "resources/read" && message["params"]["uri"] == resources::RULES;
    let name = match message["method"].as_str() {
        _ if is_resource => "list_rules",
        Some("tools/call") => message["params"]["name"].as_str()?,
        _ => return None,
    };
    let (tool, ToolRun::Operation(operation, text)) = find(name)? else { return None };
    // A notification cannot call a tool: its result would go nowhere.
    let id = message.get("id").filter(|id| !id.is_null())?.clone();
    if is_resource {
        return Some(Ok(RemoteToolCall { id, is_resource, call: operation.call(), text }));
    }
    if tool.effect != ToolEffect::Reads && access == WriteAccess::ReadOnly {
        let why = "this server is read-only; `interflow mcp --write`, or admin.mcp_writes for the admin port, offers this tool";
        return Some(Err(failure(&id, -32602, why)));
    }
    // A wrong argument is an error of the tool, which the model can correct.
    Some(match operation_call(tool, operation, &message["params"]["arguments"]) {
        Ok(call) => Ok(RemoteToolCall { id, is_resource, call, text }),
        Err(why) => Err(tool_result(&id, Err(why))),
    })
}

fn operation_call(tool: &Tool, operation: OperationId, arguments: &Value) -> Result<OperationCall, String> {
    tool.check_arguments(arguments)?;
    let (method, path) = operation.route();
    let mut call = operation.call();
    if path.contains("{id}") {
        let text = arguments["id"].as_str().unwrap_or_default();
        let flow: FlowId = text.parse().map_err(|_| format!("`{text}` is not a flow id: search_flows lists them"))?;
        call = call.path(flow);
    }
    let parameters = tool.body(arguments);
    if method != "GET" {
        return Ok(call.body(parameters));
    }
    let texts = parameters.as_object().into_iter().flatten();
    Ok(texts
        .fold(call, |call, (name, value)| call.query(name, value.as_str().map_or(value.to_string(), str::to_owned))))
}

impl RemoteToolCall {
    pub const fn call(&self) -> &OperationCall {
        &self.call
    }

    /// The response to the client, from the operation's result.
    pub fn answer(&self, outcome: Result<Value, String>) -> Value {
        let outcome = outcome.map(|result| (self.text)(&result));
        match self.is_resource {
            true => resources::contents(&self.id, resources::RULES, outcome),
            false => tool_result(&self.id, outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn writing_mcp_tools_are_refused_unless_enabled() {
        let id = FlowId::new(interflow_types::Timestamp::now()).to_string();
        for name in ["annotate_flow", "replay_flow"] {
            let argument = if name == "annotate_flow" { "comment" } else { "method" };
            let message = call(name, json!({"id": id, argument: "x"}));
            let refused = remote_tool_call(&message, WriteAccess::ReadOnly).unwrap().unwrap_err();
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            let allowed = remote_tool_call(&message, WriteAccess::Writes).unwrap().unwrap();
            let (_, target, body) = allowed.call.parts();
            assert!(target.contains(&id) && body == Some(&json!({argument: "x"})), "{allowed:?}");
            let strange = call(name, json!({"id": id, "strange": 1}));
            let refused = remote_tool_call(&strange, WriteAccess::Writes).unwrap().unwrap_err();
            assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("`strange`"), "{refused}");
        }
        assert!(remote_tool_call(&call("explain_rules", json!({"id": id})), WriteAccess::ReadOnly).unwrap().is_ok());
        let models = call("list_models", json!({"query": "opus 5", "limit": 3}));
        let allowed = remote_tool_call(&models, WriteAccess::ReadOnly).unwrap().unwrap();
        assert_eq!(allowed.call.parts().1, "/models?query=opus%205&limit=3");
        let wrong =
            remote_tool_call(&call("explain_rules", json!({"id": 4})), WriteAccess::ReadOnly).unwrap().unwrap_err();
        assert_eq!(wrong["result"]["isError"], true);
        // There is no tool that decides.
        for other in ["read_flow", "wait_for_flow", "decide_pending"] {
            assert!(remote_tool_call(&call(other, json!({"id": id})), WriteAccess::Writes).is_none(), "{other}");
        }
    }
}
