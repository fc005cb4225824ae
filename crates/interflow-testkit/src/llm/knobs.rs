//! Parameters by which a request controls the fake provider's response.

use std::time::Duration;

use serde_json::Value;

use crate::llm::STAMP;
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
    /// `tool`: also calls the tool of this name, with the arguments `{"city":"Paris","days":3}`.
    pub tool: Option<String>,
    /// `thinking=1`: thinks first (Responses: a reasoning item).
    pub thinking: bool,
    /// `stamp=1`: each fragment of a stream's text begins with its send time, 19 digits of nanoseconds since 1970.
    pub stamp: bool,
}

impl Knobs {
    pub(super) fn of(request: &Request) -> Self {
        let text = |name: &str| {
            let query = request.query(name).map(|v| v.replace('+', " "));
            query.or_else(|| request.header(&format!("x-{name}")).map(str::to_owned))
        };
        let number = |name: &str| request.number(name);
        Self {
            status: number("status").map_or(200, |n| n as u16),
            chunks: number("chunks").unwrap_or(4).clamp(1, 1_000_000) as usize,
            gap: Duration::from_millis(number("gap").unwrap_or(0)),
            delay: Duration::from_millis(number("delay").unwrap_or(0)),
            size: number("size").unwrap_or(64).min(64 << 20) as usize,
            text: text("text"),
            echo: number("echo") == Some(1),
            tool: text("tool"),
            thinking: number("thinking") == Some(1),
            stamp: number("stamp") == Some(1),
        }
    }
}

pub(super) const TOOL_ARGUMENTS: &str = r#"{"city":"Paris","days":3}"#;

pub(super) const THOUGHT: &str = "The user wants a short answer.";

/// One response, before it is formatted for an API.
pub(super) struct Turn {
    pub id: String,
    pub model: String,
    pub text: String,
    pub pieces: Vec<String>,
    pub tool: Option<String>,
    pub thinking: bool,
    pub input_tokens: usize,
    pub output_tokens: usize,
    pub stream_usage: bool,
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
        Self {
            // Derived from the body, so that equal requests get equal ids.
            id: format!("{:016x}", fnv1a(&request.body)),
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            // Four bytes per token, a rough estimate that is the same every time.
            input_tokens: request.body.len().div_ceil(4),
            output_tokens: text.len().div_ceil(4),
            text,
            pieces,
            tool: knobs.tool.clone(),
            thinking: knobs.thinking,
            stream_usage: body["stream_options"]["include_usage"] == true,
        }
    }
}

/// The text of the last user message in any of the three API formats.
fn last_user_text(body: &Value) -> String {
    if let Some(text) = body["input"].as_str() {
        return text.to_owned();
    }
    let messages = body["messages"].as_array().or_else(|| body["input"].as_array());
    let last = messages.into_iter().flatten().rfind(|m| m["role"] == "user");
    match last.map(|m| &m["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|p| p["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Splits text into at most `n` pieces of about the same number of characters.
fn cut(text: &str, n: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(chars.len().div_ceil(n)).map(|c| c.iter().collect()).collect()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image"}]}]}),
            json!({"input": "b"}),
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "b"}]}]}),
        ] {
            assert_eq!(last_user_text(&body), "b", "{body}");
        }
    }
}
