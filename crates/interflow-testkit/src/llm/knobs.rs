//! Parameters by which a request controls the fake provider's response.

use std::time::Duration;

use serde_json::{Value, json};

use crate::llm::{STAMP, refusals};
use crate::message::Request;

/// The settings of a request, by query parameter or `x-` header.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// `status`: 200 unless set; 429 comes with `Retry-After: 1`, 529 as `overloaded_error`.
    pub status: u16,
    /// `chunks`: number of text fragments in a stream, 4 unless set.
    pub chunks: usize,
    /// `gap`: milliseconds between the fragments, 0 unless set.
    pub gap: Duration,
    /// `delay`: milliseconds before the head, 0 unless set.
    pub delay: Duration,
    /// `size`: bytes of text, 64 unless set; ignored with `text` or `echo`.
    pub size: usize,
    /// `text`: exactly this text (`+` is a space in a query).
    pub text: Option<String>,
    /// `echo=1`: the text is that of the last user message, as a provider repeats a placeholder.
    pub echo: bool,
    /// `tool`: also calls the tool of this name, with the arguments `{"city":"Paris","days":3}`; `tool=*`: the first one
    /// that the request offers, unless it ends with the result of a call, or forbids calls.
    pub tool: Option<String>,
    /// `shell`: a command; of the tools that the request offers, the one that runs commands is called with it, unless the
    /// request ends with the result of a call. For agents.
    pub shell: Option<String>,
    /// `calls`: how often it calls `tool`, 1 unless set.
    pub calls: usize,
    /// `strict=1`: refuses what the real provider refuses; see `strict`.
    pub strict: bool,
    /// `mistral=1`: Chat Completions are those of Mistral, whose thoughts are parts of the content, and which refuses
    /// more with `strict`.
    pub mistral: bool,
    /// `thinking=1`: thinks first (Responses: a reasoning item).
    pub thinking: bool,
    /// `signed=1`: calls of Gemini's tools have a thought signature, [`CALL_SIGNATURE`](super::CALL_SIGNATURE).
    pub signed: bool,
    /// `stamp=1`: each fragment of a stream's text begins with its send time, 19 digits of nanoseconds since 1970.
    pub stamp: bool,
}

impl Knobs {
    pub(super) fn of(request: &Request) -> Self {
        let in_path = path_settings(request);
        let text = |name: &str| {
            let in_path = in_path.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            let query = request.query(name).map(|v| v.replace('+', " "));
            in_path.or(query).or_else(|| request.header(&format!("x-{name}")).map(str::to_owned))
        };
        let number = |name: &str| text(name).and_then(|n| n.parse::<u64>().ok());
        Self {
            status: number("status").map_or(200, |n| n as u16),
            chunks: number("chunks").unwrap_or(4).clamp(1, 1_000_000) as usize,
            gap: Duration::from_millis(number("gap").unwrap_or(0)),
            delay: Duration::from_millis(number("delay").unwrap_or(0)),
            size: number("size").unwrap_or(64).min(64 << 20) as usize,
            text: text("text"),
            echo: number("echo") == Some(1),
            tool: text("tool"),
            shell: text("shell"),
            calls: number("calls").unwrap_or(1).clamp(1, 8) as usize,
            strict: number("strict") == Some(1),
            mistral: number("mistral") == Some(1),
            thinking: number("thinking") == Some(1),
            signed: number("signed") == Some(1),
            stamp: number("stamp") == Some(1),
        }
    }
}

/// What tools are called with.
const TOOL_ARGUMENTS: &str = r#"{"city":"Paris","days":3}"#;

pub(super) const THOUGHT: &str = "The user wants a short answer.";

/// One response, before it is formatted for an API.
pub(super) struct Turn {
    pub id: String,
    pub model: String,
    pub text: String,
    pub pieces: Vec<String>,
    /// The tools that are called, in order.
    pub tools: Vec<String>,
    /// With this, as JSON.
    pub arguments: String,
    pub thinking: bool,
    /// Of Claude: what is shown of its thought, and the signature.
    pub thought: &'static str,
    pub signature: String,
    pub signed: bool,
    pub input_tokens: usize,
    pub output_tokens: usize,
    pub stream_usage: bool,
    pub mistral: bool,
}

impl Turn {
    pub fn new(knobs: &Knobs, request: &Request, body: &Value) -> Self {
        let text = match (&knobs.text, knobs.echo) {
            (Some(text), _) => text.clone(),
            (None, true) => last_user_text(body),
            (None, false) => "The quick brown fox jumps over the lazy dog. ".chars().cycle().take(knobs.size).collect(),
        };
        let mut pieces = cut(&text, knobs.chunks);
        if knobs.stamp {
            let stamp = String::from_utf8_lossy(STAMP);
            pieces.iter_mut().for_each(|p| p.insert_str(0, &stamp));
        }
        let model = body["model"].as_str().map_or_else(|| model_in_path(request.path()), str::to_owned);
        let is_single =
            body["parallel_tool_calls"] == false || body["tool_choice"]["disable_parallel_tool_use"] == true;
        let calls = if is_single { 1 } else { knobs.calls };
        let shell = knobs.shell.as_deref().and_then(|command| shell_call(body, command));
        let (tool, arguments) = match (shell, knobs.tool.as_deref()) {
            (Some((tool, arguments)), _) => (Some(tool), arguments),
            (None, Some("*")) => (offered_tools(body).next().map(|(name, _)| name), TOOL_ARGUMENTS.to_owned()),
            (None, tool) => (tool.map(str::to_owned), TOOL_ARGUMENTS.to_owned()),
        };
        Self {
            // Derived from the body, so that equal requests get equal ids.
            id: format!("{:016x}", fnv1a(&request.body)),
            thought: if refusals::omits_thoughts(&model, body) { "" } else { THOUGHT },
            model,
            // Four bytes per token, a rough estimate that is the same every time.
            input_tokens: request.body.len().div_ceil(4),
            output_tokens: text.len().div_ceil(4),
            text,
            pieces,
            tools: tool.into_iter().flat_map(|tool| std::iter::repeat_n(tool, calls)).collect(),
            arguments,
            thinking: knobs.thinking,
            signature: refusals::signature(body, usize::MAX),
            signed: knobs.signed,
            stream_usage: knobs.mistral || body["stream_options"]["include_usage"] == true,
            mistral: knobs.mistral,
        }
    }
}

impl Turn {
    /// Tells ids of parallel calls apart; empty for the first.
    pub fn suffix(&self, index: usize) -> String {
        if index == 0 { String::new() } else { format!("_{index}") }
    }
}

/// Settings in the first segment of the path, for clients that set neither query nor headers:
/// `/~tool=f&calls=2/v1/messages`.
fn path_settings(request: &Request) -> Vec<(&str, &str)> {
    let first = request.path().strip_prefix("/~").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    first.split('&').filter_map(|pair| pair.split_once('=')).collect()
}

/// The text of the last user message that has one, in any of the API formats.
fn last_user_text(body: &Value) -> String {
    if let Some(text) = body["input"].as_str() {
        return text.to_owned();
    }
    let lists = ["messages", "input", "contents"];
    let messages = lists.iter().find_map(|name| body[*name].as_array());
    let users = messages.into_iter().flatten().rev().filter(|m| m["role"] == "user");
    let text = |m: &Value| match if m["parts"].is_array() { &m["parts"] } else { &m["content"] } {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    };
    users.map(text).find(|text| !text.is_empty()).unwrap_or_default()
}

/// The tools that a request in any format offers, with the schemas of their arguments; none if it ends with the result of
/// a call, or forbids calls.
fn offered_tools(body: &Value) -> impl Iterator<Item = (String, &Value)> {
    let lists = ["messages", "input", "contents"];
    let last = lists.iter().find_map(|name| body[*name].as_array()?.last()).map(Value::to_string).unwrap_or_default();
    let results =
        ["\"role\":\"tool\"", "\"tool_result\"", "\"function_call_output\"", "\"functionResponse\"", "\"toolResult\""];
    let is_forbidden = body["tool_choice"] == "none" || body["tool_choice"]["type"] == "none";
    let offers = !is_forbidden && !results.iter().any(|mark| last.contains(mark));
    let lists = [&body["tools"], &body["toolConfig"]["tools"]].into_iter().filter_map(Value::as_array);
    let tools = lists.flatten().flat_map(|tool| match tool["functionDeclarations"].as_array() {
        Some(functions) => functions.iter().collect(),
        None => vec![tool],
    });
    tools.filter(move |_| offers).filter_map(|tool| {
        let inner = ["function", "toolSpec"].iter().find_map(|name| tool.get(*name)).unwrap_or(tool);
        let schemas = ["/parameters", "/input_schema", "/parametersJsonSchema", "/inputSchema/json"];
        let schema = schemas.iter().find_map(|at| inner.pointer(at)).unwrap_or(&Value::Null);
        Some((inner["name"].as_str()?.to_owned(), schema))
    })
}

/// A call of the tool that runs commands, by its name and the members of its schema.
fn shell_call(body: &Value, command: &str) -> Option<(String, String)> {
    let is_shell = |name: &str| ["bash", "shell", "exec_command", "run_shell_command"].contains(&name);
    let (name, schema) = offered_tools(body).find(|(name, _)| is_shell(&name.to_ascii_lowercase()))?;
    let members = &schema["properties"];
    let arguments = match () {
        () if members.get("cmd").is_some() => json!({ "cmd": command }),
        () if members["command"]["type"] == "array" => json!({ "command": ["bash", "-c", command] }),
        () => json!({ "command": command, "description": "Runs it" }),
    };
    Some((name, arguments.to_string()))
}

/// Splits text into at most `n` pieces of about the same number of characters.
fn cut(text: &str, n: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(chars.len().div_ceil(n)).map(|c| c.iter().collect()).collect()
}

/// The model in a path of Gemini or Bedrock.
pub(super) fn model_in_path(path: &str) -> String {
    let rest = ["/models/", "/model/"].iter().find_map(|mark| path.split_once(mark)).map_or("", |(_, rest)| rest);
    rest.split(['/', ':']).next().unwrap_or_default().to_owned()
}

pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_at_character_boundaries_without_loss() {
        for (text, n) in [("héllo wörld", 3), ("ab", 5), ("", 4), ("日本語", 2)] {
            let pieces = cut(text, n);
            assert!(pieces.len() <= n.max(1));
            assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn the_last_user_message_is_found_in_every_shape() {
        for body in [
            json!({"contents": [{"role": "user", "parts": [{"text": "b"}]}]}),
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image"}]}]}),
            json!({"input": "b"}),
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "b"}]}]}),
        ] {
            assert_eq!(last_user_text(&body), "b", "{body}");
        }
    }
}
