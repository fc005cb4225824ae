//! Tool calls that need the running instance: rule explanations, and changes.

use interflow_types::FlowId;
use serde_json::{Value, json};

use super::{failure, success};

/// Whether tools that change something are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    ReadOnly,
    /// Enabled by the operator.
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAction {
    /// `GET /rules/explain/{id}`, which changes nothing.
    ExplainRules,
    /// `PATCH /flows/{id}`, with the tags and comment of the arguments.
    Annotate,
    /// `POST /flows/{id}/replay`, with the changes of the arguments.
    Replay,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RemoteToolCall {
    id: Value,
    pub verb: ToolAction,
    pub flow: FlowId,
    pub input: Value,
}

/// Arguments that are passed on to the API. Others are not, so that agents cannot use what the tools do not describe.
const FORWARDED_ARGUMENTS: [&str; 8] =
    ["add_tags", "remove_tags", "comment", "method", "url", "headers", "body", "tags"];
/// Prefixes of reasons that contain no value of a field or body.
const PLAIN: [&str; 9] = ["host", "path", "method", "status", "scheme", "port", "there ", "it is ", "the phase"];

/// Parses a remote tool call, or returns why it is not allowed; `None` for every other message.
pub fn remote_tool_call(message: &Value, access: WriteAccess) -> Option<Result<RemoteToolCall, Value>> {
    if message["method"] != "tools/call" {
        return None;
    }
    let verb = match message["params"]["name"].as_str()? {
        "explain_rules" => ToolAction::ExplainRules,
        "annotate_flow" => ToolAction::Annotate,
        "replay_flow" => ToolAction::Replay,
        _ => return None,
    };
    // A notification cannot call a tool: its result would go nowhere.
    let id = message.get("id").filter(|id| !id.is_null())?.clone();
    if verb != ToolAction::ExplainRules && access == WriteAccess::ReadOnly {
        let why = "this server is read-only; `interflow mcp --write`, or admin.mcp_writes for the admin port, offers this tool";
        return Some(Err(failure(&id, -32602, why)));
    }
    let arguments = &message["params"]["arguments"];
    let flow = arguments["id"].as_str().unwrap_or_default();
    let Ok(flow) = flow.parse::<FlowId>() else {
        // A wrong argument is an error of the tool, which the model can correct.
        return Some(Err(tool_result(&id, Err(format!("`{flow}` is no flow id: search_flows lists them")))));
    };
    let mut input = json!({});
    for name in FORWARDED_ARGUMENTS {
        if let Some(value) = arguments.get(name) {
            input[name] = value.clone();
        }
    }
    Some(Ok(RemoteToolCall { id, verb, flow, input }))
}

impl RemoteToolCall {
    pub fn path(&self) -> String {
        match self.verb {
            ToolAction::ExplainRules => format!("/rules/explain/{}", self.flow),
            ToolAction::Annotate => format!("/flows/{}", self.flow),
            ToolAction::Replay => format!("/flows/{}/replay", self.flow),
        }
    }

    /// The response to the client, from the API's result.
    pub fn answer(&self, outcome: Result<Value, String>) -> Value {
        tool_result(&self.id, outcome.map(|said| self.format_result(&said)))
    }

    fn format_result(&self, said: &Value) -> String {
        match self.verb {
            ToolAction::ExplainRules => format_explanation(&said["rules"]),
            ToolAction::Annotate => format!("tags: {}; comment: {}", said["tags"], said["comment"]),
            ToolAction::Replay => {
                let status = &said["response"]["status"];
                let outcome = match said["error"]["message"].as_str() {
                    Some(error) => format!("it failed: {error}"),
                    None => format!("status {status}, {} bytes", said["response"]["size"]),
                };
                let omitted: Vec<&str> =
                    said["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let omitted = match omitted.is_empty() {
                    true => String::new(),
                    false => format!("\nnot sent, since recorded with masked values: {}", omitted.join(", ")),
                };
                format!("sent again as flow {}: {outcome}{omitted}", said["id"].as_str().unwrap_or_default())
            }
        }
    }
}

fn format_explanation(rules: &Value) -> String {
    let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
    if rules.is_empty() {
        return "no rules are active".to_owned();
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    for rule in rules {
        let word = if rule["matches"] == true { "matched" } else { "did not match" };
        out.push_str(&format!("{} ({}) {word}\n", text(&rule["rule"]), text(&rule["location"])));
        for phase in rule["phases"].as_array().into_iter().flatten() {
            let actions: Vec<String> = phase["actions"].as_array().into_iter().flatten().map(text).collect();
            let why = format_reasons(&text(&phase["why"]));
            out.push_str(&format!(
                "  {} [{}] {}: {why}\n",
                text(&phase["phase"]),
                actions.join(", "),
                text(&phase["outcome"])
            ));
        }
    }
    out
}

/// Reasons with secrets removed: they quote the flow, whose fields and bodies may contain secrets.
fn format_reasons(why: &str) -> String {
    let shown = |reason: &str| match PLAIN.iter().any(|p| reason.starts_with(p)) {
        true => reason.to_owned(),
        false => "(a reason with values of the flow is not shown)".to_owned(),
    };
    // Reasons come in pairs: what the flow has, and what the rule asks for. The second is shown only if the first is.
    why.split("; ")
        .collect::<Vec<_>>()
        .chunks(2)
        .map(|pair| match pair {
            [is, asks] if asks.starts_with("the rule asks") && shown(is) == *is => format!("{is}; {asks}"),
            [is, asks] if asks.starts_with("the rule asks") => shown(is),
            pair => pair.iter().map(|r| shown(r)).collect::<Vec<_>>().join("; "),
        })
        .collect::<Vec<_>>()
        .join("; ")
}

fn tool_result(id: &Value, outcome: Result<String, String>) -> Value {
    let (text, failed) = match outcome {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    success(id, json!({"content": [{"type": "text", "text": text}], "isError": failed}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn writing_mcp_tools_are_refused_unless_enabled() {
        let id = FlowId::new(interflow_types::Timestamp::now()).to_string();
        for name in ["annotate_flow", "replay_flow"] {
            let message = call(name, json!({"id": id, "comment": "x", "strange": 1}));
            let refused = remote_tool_call(&message, WriteAccess::ReadOnly).unwrap().unwrap_err();
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            let allowed = remote_tool_call(&message, WriteAccess::Writes).unwrap().unwrap();
            assert_eq!(allowed.input, json!({"comment": "x"}));
            assert!(allowed.path().contains(&id));
        }
        assert!(remote_tool_call(&call("explain_rules", json!({"id": id})), WriteAccess::ReadOnly).unwrap().is_ok());
        let wrong =
            remote_tool_call(&call("explain_rules", json!({"id": 4})), WriteAccess::ReadOnly).unwrap().unwrap_err();
        assert_eq!(wrong["result"]["isError"], true);
        assert_eq!(remote_tool_call(&call("read_flow", json!({"id": id})), WriteAccess::Writes), None);
    }

    #[test]
    fn rule_explanations_do_not_quote_headers_or_bodies() {
        for (why, shown) in [
            ("host is \"a\"; the rule asks for host:b", true),
            ("status is 404; the rule asks for status:500", true),
            ("there is no cookie sid", true),
            ("header Authorization is \"Bearer sk-1\"; the rule asks for one that is \"x\"", false),
            ("the body is \"sk-1\"; the rule asks for another", false),
            ("not: header X is \"sk-1\"", false),
        ] {
            let out = format_reasons(why);
            assert!(!out.contains("sk-1"), "{out}");
            assert_eq!(out == why, shown, "{out}");
        }
    }
}
