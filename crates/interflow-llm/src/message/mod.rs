//! One model of what is said to and by language models, whatever wire shape it came in.
//!
//! [`ApiFormat::of`] tells which shape a request has, [`parse::request`] and [`parse::reply`] read it. What a shape says
//! that the model has no word for is kept as [`ContentBlock::Other`], so nothing a person may look for is lost.

mod anthropic;
mod api_format;
mod chat;
mod converse;
mod events;
mod gemini;
mod json_access;
mod ollama;
mod outline;
pub mod parse;
mod responses;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use api_format::ApiFormat;
pub use events::{ReplyEvent, events};
pub use outline::Outline;

use crate::CallUsage;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The person, or the program that asks.
    User,
    /// The model.
    Assistant,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought before it answered; empty when the provider keeps it to itself.
    Thinking {
        /// The text.
        text: String,
    },
    /// The model wants a tool called.
    ToolUse {
        /// The call's name; empty where the shape has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments; a string when they are no JSON.
        input: Value,
    },
    /// What a tool gave back.
    ToolResult {
        /// The call it answers; empty where the shape has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// The tool's name, where the shape says it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        /// What came back.
        content: Vec<ContentBlock>,
        /// The tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// An image, by reference: its bytes stay in the flow.
    Image(Attachment),
    /// A document, a recording or another file, by reference.
    Document(Attachment),
    /// An error that stood in place of an answer, or ended it.
    Error {
        /// The provider's name for it, or the HTTP status.
        kind: String,
        /// What it said.
        message: String,
    },
    /// Something this model has no word for.
    Other {
        /// The shape's name for it.
        kind: String,
        /// It, as it was.
        value: Value,
    },
}

/// Something that was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its media type; empty when it is not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// Where it lies, when it was named rather than sent: a URL or a file's id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Its title or file name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Characters of base64 (or text) that were sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// BLAKE3 of what was sent, the first 16 hexadecimal digits: the same image has the same one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// A message of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said, in order.
    pub blocks: Vec<ContentBlock>,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its definition as it was sent.
    pub definition: Value,
}

/// What is asked of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// The model's name; the path may hold it instead of the body.
    pub model: String,
    /// The system prompt's parts.
    pub system: Vec<String>,
    /// The tools.
    pub tools: Vec<ToolDefinition>,
    /// The history, the latest last.
    pub messages: Vec<ChatMessage>,
    /// The client's own name for the session, where the body says it.
    pub session: Option<String>,
    /// The answer whose history this request goes on from (`previous_response_id`).
    pub previous: Option<String>,
    /// The most tokens that may come back.
    pub max_tokens: Option<u64>,
    /// The answer was to be streamed.
    pub stream: bool,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReply {
    /// The provider's name for this answer.
    pub id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The answer.
    pub blocks: Vec<ContentBlock>,
    /// Why it ended, in the provider's word: `end_turn`, `tool_calls`, `length`.
    pub stop: Option<String>,
    /// Tokens used up; `None` when the provider did not say.
    pub usage: Option<CallUsage>,
    /// What it cost in US dollars, when the provider says so itself.
    pub cost: Option<f64>,
    /// It came to its end. A stream that was cut has what came until then.
    pub complete: bool,
}

impl ChatMessage {
    /// A message of one text.
    pub fn text(role: MessageRole, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![ContentBlock::Text { text: text.into() }] }
    }
}

impl ContentBlock {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

/// Joins the texts of some blocks by line breaks; what is no text is left out.
pub fn joined(blocks: &[ContentBlock]) -> String {
    let mut out = String::new();
    for text in blocks.iter().filter_map(ContentBlock::as_text) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(text);
    }
    out
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}
