//! Telling which wire shape a request has: by its path where that is known, else by what its body holds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A wire shape: who made it up, not who speaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Google's Gemini.
    Gemini,
    /// Amazon Bedrock's Converse.
    Converse,
    /// Ollama's own.
    Ollama,
}

/// Ends of paths that say enough, without the query.
const ENDINGS: [(&str, Shape); 18] = [
    ("/v1/messages", Shape::Anthropic),
    ("/v1/messages/count_tokens", Shape::Anthropic),
    (":counttokens", Shape::Gemini),
    ("/responses/input_tokens", Shape::Responses),
    ("/chat/completions", Shape::Chat),
    ("/v1/completions", Shape::Chat),
    ("/responses", Shape::Responses),
    ("/codex/responses", Shape::Responses),
    (":generatecontent", Shape::Gemini),
    (":streamgeneratecontent", Shape::Gemini),
    ("/converse", Shape::Converse),
    ("/converse-stream", Shape::Converse),
    ("/invoke", Shape::Anthropic),
    ("/invoke-with-response-stream", Shape::Anthropic),
    (":rawpredict", Shape::Anthropic),
    (":streamrawpredict", Shape::Anthropic),
    ("/api/chat", Shape::Ollama),
    ("/api/generate", Shape::Ollama),
];

impl Shape {
    /// What a path promises. It is only a promise: [`of`](Self::of) looks at the body too.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/').to_ascii_lowercase();
        ENDINGS.iter().find(|(end, _)| path.ends_with(end)).map(|(_, shape)| *shape)
    }

    /// The shape of a request's body that came on this path; `None` when it is no question to a language model.
    pub fn of(path: &str, body: &Value) -> Option<Self> {
        Self::told(None, path, body)
    }

    /// As [`of`](Self::of), when the owner says what is spoken there: the owner's word goes before the path's promise, as
    /// long as the body can be of that shape.
    pub fn told(told: Option<Self>, path: &str, body: &Value) -> Option<Self> {
        let mut known = [told, Self::of_path(path)].into_iter().flatten();
        known.find(|shape| shape.fits(body)).or_else(|| Self::of_body(body))
    }

    /// Whether a body can have this shape.
    fn fits(self, body: &Value) -> bool {
        let list = |key: &str| body[key].is_array();
        match self {
            Self::Anthropic | Self::Converse => list("messages"),
            Self::Chat | Self::Ollama => list("messages") || body.get("prompt").is_some_and(|p| !p.is_null()),
            Self::Responses => body["input"].is_string() || list("input") || body["previous_response_id"].is_string(),
            Self::Gemini => list("contents") || body["request"]["contents"].is_array(),
        }
    }

    /// The shape of a body on a path that says nothing: gateways and resellers serve the known shapes at paths of their own.
    fn of_body(body: &Value) -> Option<Self> {
        let model = body["model"].is_string();
        if Self::Gemini.fits(body) && any(&body["contents"], |m| m["parts"].is_array()) {
            return Some(Self::Gemini);
        }
        let messages = &body["messages"];
        let talks = any(messages, |m| m["role"].is_string());
        if talks && (body["anthropic_version"].is_string() || model && is_anthropic(body)) {
            return Some(Self::Anthropic);
        }
        if talks && model {
            return Some(Self::Chat);
        }
        let said = any(&body["input"], |i| i["role"].is_string() || i["type"].is_string());
        if model && (said || body["instructions"].is_string() && body["input"].is_string()) {
            return Some(Self::Responses);
        }
        let converse = any(messages, |m| any(&m["content"], |b| b["text"].is_string() && b.get("type").is_none()));
        (talks && converse).then_some(Self::Converse)
    }
}

/// Signs that only Anthropic's shape bears.
fn is_anthropic(body: &Value) -> bool {
    let blocks = |m: &Value| {
        any(&m["content"], |b| {
            matches!(b["type"].as_str(), Some("tool_use" | "tool_result" | "thinking")) || b["source"].is_object()
        })
    };
    let system = match &body["system"] {
        Value::String(_) => true,
        parts => any(parts, |p| p["type"] == "text"),
    };
    system || any(&body["tools"], |t| t["input_schema"].is_object()) || any(&body["messages"], blocks)
}

fn any(list: &Value, test: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|l| l.iter().any(test))
}
