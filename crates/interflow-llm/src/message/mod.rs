//! The canonical message model, into which all API formats are parsed.
//!
//! [`ApiFormat::detect`] determines the format of a request, [`parse::request`] and [`parse::reply`] parse it. Content
//! without a canonical form is kept as [`ContentBlock::Other`], so nothing is lost to search.

mod anthropic;
mod api_format;
mod chat;
mod converse;
mod events;
mod gemini;
mod interactions;
mod json_access;
mod ollama;
mod outline;
pub mod parse;
mod responses;

#[cfg(test)]
mod tests;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use api_format::ApiFormat;
pub use events::{ReplyEvent, events};
pub use outline::Outline;

pub(crate) use anthropic::REDACTED;
pub(crate) use chat::{StreamedCalls, reply as chat_reply, thought_in};
pub(crate) use converse::DOCUMENTS;
pub use json_access::is_text_format;
pub(crate) use json_access::{arguments, error_block, number, optional_number, take_list, take_string, take_value};

use interflow_types::CallUsage;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The person, or the requesting program. Tool results have this role in most formats.
    User,
    Assistant,
}

/// A part of a message, in the form that all API formats are translated to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    Text {
        text: String,
    },
    /// Thinking before the answer; empty if the provider does not disclose it.
    Thinking {
        text: String,
        /// By which the provider recognises its reasoning when it is sent back.
        #[serde(skip)]
        signature: Carried,
    },
    ToolUse {
        /// The call's id; empty if the format has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        name: String,
        /// Its arguments; a string if they are not JSON.
        input: Value,
    },
    ToolResult {
        /// The call's id; empty if the format has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        id: String,
        /// The tool's name, if the format includes it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        content: Vec<ContentBlock>,
        /// Whether the tool reported a failure.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// An image, by reference: its bytes remain in the flow.
    Image(Attachment),
    /// A document, audio or another file, by reference.
    Document(Attachment),
    /// An error in place of a reply, or at its end.
    Error {
        /// The provider's error type, or the HTTP status.
        kind: String,
        message: String,
    },
    /// Content without a canonical form, kept so that it can be displayed and searched.
    Other {
        /// The API format's name for it.
        kind: String,
        /// The original value.
        value: Value,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    /// Empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// A URL or a file's id, if it was referenced rather than sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Its title or file name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Length of the base64 (or text) that was sent, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// BLAKE3 of the data, the first 16 hexadecimal digits: equal for the same image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The base64 itself; of a text file the text.
    #[serde(skip)]
    pub data: Carried,
    /// OpenAI's `detail` of an image, unless it is left to the model; of a document what [`details`](Self::details)
    /// has.
    #[serde(skip)]
    pub detail: Carried,
}

/// The kind of a block with a search result: `source`, `title`, `content` (texts) and `citations`, in Anthropic's form or
/// Converse's, which differ in the `type` of texts alone.
pub(crate) const SEARCH_RESULT: &str = "search_result";

/// Data that only a translation into another API format needs: neither stored nor compared, and dropped where
/// conversations are read ([`parse::request`]).
#[derive(Clone, Default)]
pub struct Carried(Option<Box<str>>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub role: MessageRole,
    pub blocks: Vec<ContentBlock>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its definition as sent, schema included.
    pub definition: Value,
}

/// A request to a model, in the canonical form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// The model's name, from the body or the path.
    pub model: String,
    /// The parts of the system prompt, in order.
    pub system: Vec<String>,
    pub tools: Vec<ToolDefinition>,
    /// The history, the latest message last.
    pub messages: Vec<ChatMessage>,
    /// The client's session id, if the body contains one.
    pub session: Option<String>,
    /// The response that this request continues (`previous_response_id`).
    pub previous: Option<String>,
    /// The client's limit on output tokens.
    pub max_tokens: Option<u64>,
    /// Whether the body or the path requested a stream.
    pub stream: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReply {
    /// The provider's response id.
    pub id: Option<String>,
    /// The model that replied, which may be a dated version of the requested one.
    pub model: Option<String>,
    pub blocks: Vec<ContentBlock>,
    /// The provider's stop reason: `end_turn`, `tool_calls`, `length`.
    pub stop: Option<String>,
    /// Token usage; `None` if the provider did not report it.
    pub usage: Option<CallUsage>,
    /// Cost in US dollars, if the provider reports it.
    pub cost: Option<f64>,
    /// False for a stream that broke off.
    pub complete: bool,
}

impl Attachment {
    /// The text of a text file that was sent; `None` for any other file.
    pub fn text(&self) -> Option<&str> {
        self.data.get().filter(|_| is_text_format(&self.media_type))
    }

    /// What Anthropic and Converse have besides a document's content: `citations`, `context`, and the texts that are
    /// cited as a whole (`content`).
    pub fn details(&self) -> Value {
        self.detail.get().and_then(|details| serde_json::from_str(details).ok()).unwrap_or_default()
    }
}

impl ChatMessage {
    pub fn text(role: MessageRole, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![ContentBlock::Text { text: text.into() }] }
    }
}

impl Carried {
    /// Nothing, if the text is empty.
    pub fn new(text: String) -> Self {
        Self((!text.is_empty()).then(|| text.into()))
    }

    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    fn drop_data(&mut self) {
        self.0 = None;
    }
}

impl PartialEq for Carried {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Carried {}

impl std::fmt::Debug for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.as_ref().map_or(0, |data| data.len()))
    }
}

impl ContentBlock {
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking { text: text.into(), signature: Carried::default() }
    }

    /// Forgets what is only carried along.
    fn drop_carried(&mut self) {
        match self {
            Self::Thinking { signature, .. } => signature.drop_data(),
            Self::Image(file) | Self::Document(file) => {
                file.data.drop_data();
                file.detail.drop_data();
            }
            Self::ToolResult { content, .. } => content.iter_mut().for_each(Self::drop_carried),
            Self::Other { .. } => self.write_out_search(),
            Self::Text { .. } | Self::ToolUse { .. } | Self::Error { .. } => {}
        }
    }

    /// Whether it is a search result or a tool's result with one.
    pub(crate) fn has_search(&self) -> bool {
        match self {
            Self::ToolResult { content, .. } => content.iter().any(Self::has_search),
            Self::Other { kind, .. } => kind == SEARCH_RESULT,
            _ => false,
        }
    }

    /// Makes search results texts.
    pub(crate) fn write_out_search(&mut self) {
        match self {
            Self::ToolResult { content, .. } => content.iter_mut().for_each(Self::write_out_search),
            Self::Other { kind, value } if kind == SEARCH_RESULT => {
                let head = [&value["title"], &value["source"]].into_iter();
                let parts = value["content"].as_array().into_iter().flatten().map(|part| &part["text"]);
                let texts = head.chain(parts).filter_map(Value::as_str).filter(|text| !text.is_empty());
                *self = Self::text(texts.collect::<Vec<_>>().join("\n"));
            }
            _ => {}
        }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text of a text block; `None` for any other block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

/// Joins the texts of the blocks by line breaks; other blocks are omitted.
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
