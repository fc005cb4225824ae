//! The text by which a request is compared, and everything else, which has to be equal.

use interflow_codec::json::{JsonReader, JsonToken};
use serde_json::{Map, Value};

/// A request with its last text taken out.
#[derive(Debug, PartialEq)]
pub(in super::super) struct SemanticQuery {
    /// What the user said last.
    pub text: String,
    /// The JSON without it: model, parameters, system prompt, tools, the conversation before.
    pub rest: String,
}

impl SemanticQuery {
    /// `None` if the request is not one to be compared by its text: it has images, documents, calls of tools or their
    /// results, its last message is not one text of the user, or it can be read in more than one way. Whatever is not
    /// known to be text rules a request out.
    pub fn read(body: &[u8], max_text: usize) -> Option<Self> {
        let mut read = serde_json::from_slice(body).ok().filter(|read| !repeats_members(body, read))?;
        let text = take_last_text(read.as_object_mut()?)?;
        let is_text = !text.trim().is_empty() && text.len() <= max_text;
        is_text.then(|| Self { text, rest: read.to_string() })
    }
}

fn take_last_text(body: &mut Map<String, Value>) -> Option<String> {
    let lists = ["messages", "input", "contents"];
    let mut present = lists.iter().filter(|name| body.contains_key(**name));
    let (Some(name), None) = (present.next(), present.next()) else { return None };
    // Another place for texts of users, which would not be compared.
    if body.contains_key("prompt") {
        return None;
    }
    match body.get_mut(*name)? {
        Value::String(text) if *name == "input" => Some(std::mem::take(text)),
        Value::Array(messages) => {
            let last = messages.last()?;
            if !messages.iter().all(is_plain) || !matches!(last["role"].as_str(), Some("user") | None) {
                return None;
            }
            let last = messages.last_mut()?;
            let content = if last.get("parts").is_some() { &mut last["parts"] } else { &mut last["content"] };
            let text = match content {
                Value::Array(parts) if parts.len() == 1 => &mut parts.first_mut()?["text"],
                text => text,
            };
            match text {
                Value::String(text) => Some(std::mem::take(text)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a message holds nothing but text.
fn is_plain(message: &Value) -> bool {
    let known = ["role", "content", "parts", "type", "name", "id", "status"];
    let Some(members) = message.as_object() else { return false };
    let has_role = matches!(message["role"].as_str(), Some("system" | "developer" | "user" | "assistant" | "model"))
        || message.get("role").is_none() && message.get("parts").is_some();
    let is_message = matches!(message["type"].as_str(), None | Some("message"));
    let content = ["content", "parts"].iter().filter_map(|name| members.get(*name)).collect::<Vec<_>>();
    let is_text = |content: &Value| match content {
        Value::String(_) => true,
        Value::Array(parts) => parts.iter().all(is_text_part),
        _ => false,
    };
    has_role
        && is_message
        && members.keys().all(|key| known.contains(&key.as_str()))
        && matches!(content[..], [content] if is_text(content))
}

fn is_text_part(part: &Value) -> bool {
    let is_known = |key: &String| matches!(key.as_str(), "type" | "text" | "cache_control" | "annotations");
    let kind = part["type"].as_str();
    part.as_object().is_some_and(|members| members.keys().all(is_known))
        && part["text"].is_string()
        && matches!(kind, None | Some("text" | "input_text" | "output_text"))
}

/// Whether an object of a JSON text has a member twice: parsers disagree about which one counts.
fn repeats_members(json: &[u8], read: &Value) -> bool {
    let (mut reader, mut names) = (JsonReader::new(json), 0);
    while let Ok(Some(token)) = reader.next_token() {
        names += usize::from(matches!(token, JsonToken::Name(_)));
    }
    names != members_of(read)
}

/// How many members all objects of a value have.
fn members_of(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len() + members.values().map(members_of).sum::<usize>(),
        Value::Array(all) => all.iter().map(members_of).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<(String, String)> {
        SemanticQuery::read(body.as_bytes(), 100).map(|query| (query.text, query.rest))
    }

    #[test]
    fn the_last_text_of_the_user_is_taken_out_in_every_format() {
        for (body, text, rest) in [
            (
                r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}"#,
                "hi",
                r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":""}]}"#,
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"system":"s"}"#,
                "hi",
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":""}]}],"system":"s"}"#,
            ),
            (r#"{"input":"hi","model":"m"}"#, "hi", r#"{"input":"","model":"m"}"#),
            (r#"{"contents":[{"parts":[{"text":"hi"}]}]}"#, "hi", r#"{"contents":[{"parts":[{"text":""}]}]}"#),
        ] {
            assert_eq!(read(body), Some((text.to_owned(), rest.to_owned())), "{body}");
        }
    }

    #[test]
    fn what_is_more_than_text_is_not_compared() {
        for body in [
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}"#,
            r#"{"messages":[{"role":"user","content":"a","images":["x"]}]}"#,
            r#"{"messages":[{"role":"assistant","content":"a","tool_calls":[]},{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"tool","content":"a"},{"role":"user","content":"b"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]}"#,
            r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#,
            r#"{"messages":[{"role":"user","content":"a","content":"b"}]}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"input":"b"}"#,
            r#"{"contents":[{"parts":[{"text":"a","thought":true}]}]}"#,
            r#"{"input":[{"type":"function_call_output","call_id":"c","output":"o"}]}"#,
            r#"{"input":"a","prompt":{"id":"p"}}"#,
            r#"{"input":"  "}"#,
            r#"{"messages":[]}"#,
            "[]",
        ] {
            assert_eq!(read(body), None, "{body}");
        }
        assert_eq!(read(&format!(r#"{{"input":"{}"}}"#, "x".repeat(101))), None);
    }
}
