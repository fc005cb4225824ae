//! Resources: what agents and their operators attach to a conversation by its URI, the same texts as the tools give.

use interflow_store::FlowStore;
use serde_json::{Value, json};

use super::{failure, success, tools};

/// The rules are those of the running instance.
pub const RULES: &str = "interflow://rules";
const FLOWS: &str = "interflow://flows";
const CONVERSATIONS: &str = "interflow://conversations";
const QUERY_HELP: &str = "interflow://query-help";
/// "Resource not found" in the protocol.
const NOT_FOUND: i64 = -32002;

/// The resources that always exist.
pub fn list() -> Vec<Value> {
    let all = [
        (FLOWS, "Newest flows", "The 50 newest recorded flows, one per line", "text/plain"),
        (CONVERSATIONS, "Newest conversations", "The 30 latest conversations with language models", "text/plain"),
        (RULES, "Active rules", "The rules of the running instance, and how often each matched", "text/plain"),
        (QUERY_HELP, "Query language", "The query language on a page", "text/plain"),
    ];
    listed("uri", &all)
}

/// The resources that are named by an id.
pub fn templates() -> Vec<Value> {
    let all = [
        ("interflow://flow/{id}", "Flow", "One flow: heads, bodies as text, messages, errors", "text/plain"),
        ("interflow://conversation/{id}", "Conversation", "One conversation as Markdown", "text/markdown"),
    ];
    listed("uriTemplate", &all)
}

fn listed(key: &str, all: &[(&str, &str, &str, &str)]) -> Vec<Value> {
    let resource = |(uri, name, description, media): &(&str, &str, &str, &str)| json!({key: uri, "name": name, "description": description, "mimeType": media});
    all.iter().map(resource).collect()
}

/// Answers `resources/read` of every resource but the rules.
pub fn read(store: &dyn FlowStore, id: &Value, uri: &str) -> Value {
    let (tool, arguments) = match uri {
        FLOWS => ("search_flows", json!({})),
        CONVERSATIONS => ("list_conversations", json!({})),
        QUERY_HELP => ("query_help", json!({})),
        _ => match uri.strip_prefix("interflow://").and_then(|rest| rest.split_once('/')) {
            Some(("flow", flow)) => ("read_flow", json!({ "id": flow })),
            Some(("conversation", conversation)) => ("read_conversation", json!({ "id": conversation })),
            _ => return failure(id, NOT_FOUND, &format!("there is no resource `{uri}`")),
        },
    };
    let outcome = tools::call(store, tool, &arguments).unwrap_or_else(|| Err("it cannot be read here".into()));
    contents(id, uri, outcome)
}

pub fn contents(id: &Value, uri: &str, outcome: Result<String, String>) -> Value {
    let media = if uri.starts_with("interflow://conversation/") { "text/markdown" } else { "text/plain" };
    match outcome {
        Ok(text) => success(id, json!({"contents": [{"uri": uri, "mimeType": media, "text": text}]})),
        Err(why) => failure(id, NOT_FOUND, &why),
    }
}
