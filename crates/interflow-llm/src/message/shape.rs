//! Telling which wire shape a request has: by its path where that is known, else by what its body holds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outline::{Outline, sign};

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
        Self::told(None, path, &Outline::of(body))
    }

    /// As [`of`](Self::of), when the owner says what is spoken there: the owner's word goes before the path's promise, as
    /// long as the body can be of that shape.
    pub fn told(told: Option<Self>, path: &str, body: &Outline) -> Option<Self> {
        let mut known = [told, Self::of_path(path)].into_iter().flatten();
        known.find(|shape| shape.fits(body)).or_else(|| Self::of_body(body))
    }

    /// Whether a body can have this shape.
    fn fits(self, body: &Outline) -> bool {
        match self {
            Self::Anthropic | Self::Converse => body.messages.is_list(),
            Self::Chat | Self::Ollama => body.messages.is_list() || body.prompt.is_given(),
            Self::Responses => body.input.is_text() || body.input.is_list() || body.previous_response_id.is_text(),
            Self::Gemini => body.contents.is_list() || body.inner_contents.is_list(),
        }
    }

    /// The shape of a body on a path that says nothing: gateways and resellers serve the known shapes at paths of their own.
    fn of_body(body: &Outline) -> Option<Self> {
        let model = body.model.is_text();
        if body.contents.any(sign::PARTS) {
            return Some(Self::Gemini);
        }
        let talks = body.messages.any(sign::ROLE);
        if talks && (body.anthropic_version.is_text() || model && is_anthropic(body)) {
            return Some(Self::Anthropic);
        }
        if talks && model {
            return Some(Self::Chat);
        }
        let said = body.input.any(sign::ROLE | sign::TYPE);
        if model && (said || body.instructions.is_text() && body.input.is_text()) {
            return Some(Self::Responses);
        }
        (talks && body.messages.any(sign::HOLDS_UNTYPED_TEXT)).then_some(Self::Converse)
    }
}

/// Signs that only Anthropic's shape bears.
fn is_anthropic(body: &Outline) -> bool {
    body.system.is_text()
        || body.system.any(sign::TYPE_TEXT)
        || body.tools.any(sign::SCHEMA)
        || body.messages.any(sign::HOLDS_ANTHROPIC)
}
