//! Prompts: tasks that operators start by name in their client.

use serde_json::{Value, json};

use super::{failure, success};

struct McpPrompt {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    /// Its only argument: name, meaning, and whether it is required.
    argument: (&'static str, &'static str, bool),
    /// `{}` stands for the argument, or for `otherwise` if it is absent.
    text: &'static str,
    otherwise: &'static str,
}

const PROMPTS: [McpPrompt; 3] = [
    McpPrompt {
        name: "debug_request",
        title: "Debug a failing request",
        description: "Find out why a recorded request failed, from the flow, the rules, and a similar one that worked.",
        argument: ("id", "the flow's id; the newest failed one by default", false),
        text: "Find out why this request failed: {}.\n\
               1. Read it with read_flow: status, error, headers, both bodies.\n\
               2. Look for a similar request that worked with search_flows (same host and path, status:<400), and compare \
               the two with diff_flows.\n\
               3. If an instance is running, see with explain_rules whether a rule changed or blocked it.\n\
               Then say in a few sentences what failed, on which side (client, proxy, network, origin), what shows it, and \
               what to change. Say so if the recording does not decide it.",
        otherwise: "the newest flow of search_flows with the query `is:error OR status:>=400`",
    },
    McpPrompt {
        name: "explain_cost",
        title: "Explain a conversation's cost",
        description: "Where the tokens of a conversation went, and what would make it cheaper.",
        argument: ("id", "the conversation's id; `last` by default", false),
        text: "Explain what the conversation {} cost, and why.\n\
               1. Find it with list_conversations: tokens in, cached, out, cost.\n\
               2. conversation_changes lists for each request what was added, and why the provider's cache was hit or missed.\n\
               3. Read the turns that stand out with read_conversation.\n\
               Then name the most expensive turns, the cache misses with their causes, and the largest tool results; say what \
               would make it cheaper, with an estimate from the numbers that you read.",
        otherwise: "`last`",
    },
    McpPrompt {
        name: "review_host",
        title: "Review what a host receives",
        description: "What recorded requests send to a host: data, identifiers, credentials, errors.",
        argument: ("host", "the host, such as api.example.com", true),
        text: "Review what the recorded requests send to the host {}.\n\
               1. stats with the query `host:{}` gives numbers, statuses and durations.\n\
               2. Read a few different requests with search_flows and read_flow.\n\
               Then list the endpoints, which data and identifiers each receives, whether personal data or credentials are \
               among them (their values are masked, their names are not), and which requests fail.",
        otherwise: "",
    },
];

pub fn list() -> Vec<Value> {
    let prompt = |p: &McpPrompt| {
        let (name, description, required) = p.argument;
        json!({
            "name": p.name,
            "title": p.title,
            "description": p.description,
            "arguments": [{"name": name, "description": description, "required": required}],
        })
    };
    PROMPTS.iter().map(prompt).collect()
}

/// Answers `prompts/get`.
pub fn get(id: &Value, params: &Value) -> Value {
    let name = params["name"].as_str().unwrap_or_default();
    let Some(prompt) = PROMPTS.iter().find(|p| p.name == name) else {
        return failure(id, -32602, &format!("there is no prompt `{name}`"));
    };
    let (argument, about, required) = prompt.argument;
    let value = match &params["arguments"][argument] {
        Value::String(text) if !text.trim().is_empty() => text.trim(),
        Value::Null | Value::String(_) if required => {
            return failure(id, -32602, &format!("`{argument}` is missing: {about}"));
        }
        Value::Null | Value::String(_) => prompt.otherwise,
        other => return failure(id, -32602, &format!("`{argument}` is {other}: a string is expected")),
    };
    let text = prompt.text.replace("{}", value);
    success(
        id,
        json!({
            "description": prompt.description,
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }),
    )
}
