//! Prompts: tasks that operators start by name in their client.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{failure, success};

#[derive(Deserialize)]
struct McpPrompt {
    name: String,
    title: String,
    description: String,
    /// Its only argument: name, meaning, and whether it is required.
    argument: (String, String, bool),
    /// `{}` stands for the argument, or for `otherwise` if it is absent.
    text: String,
    otherwise: String,
}

static PROMPTS: LazyLock<Vec<McpPrompt>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/prompts.json")).expect("a test reads the file of prompts")
});

pub fn list() -> Vec<Value> {
    let prompt = |p: &McpPrompt| {
        let (name, description, required) = &p.argument;
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
    let (argument, about, required) = &prompt.argument;
    let value = match &params["arguments"][argument.as_str()] {
        Value::String(text) if !text.trim().is_empty() => text.trim(),
        Value::Null | Value::String(_) if *required => {
            return failure(id, -32602, &format!("`{argument}` is missing: {about}"));
        }
        Value::Null | Value::String(_) => &prompt.otherwise,
        other => return failure(id, -32602, &format!("`{argument}` is {other}: a string is expected")),
    };
    let text = prompt.text.replace("{}", value);
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    success(id, json!({ "description": prompt.description, "messages": [message] }))
}
