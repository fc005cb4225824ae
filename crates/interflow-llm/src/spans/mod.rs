//! Locates text in bodies: strings written by people, models and tools, and media.
//!
//! Every string counts as text unless its position identifies it as structure (a type, a role, an id, a tool's name),
//! so that unknown members are inspected rather than passed through.

mod container_rules;
mod fields;
mod media;
pub mod multipart;
mod places;
mod span_walker;
mod words;

use std::ops::Range;

use interflow_codec::json::replace_ranges;
use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::usage::estimated_tokens;

pub use media::{MediaKind, MediaSpan};
pub use span_walker::{MarkError, facts, mark_body, mark_event, mark_everything, mark_response};

/// A string, or another value, that contains text. Positions refer to the body as it was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSpan {
    /// The bytes between the quotes, still escaped; for a number, its digits.
    pub range: Range<usize>,
    /// The name of its member, or of the enclosing array.
    pub name: Option<Range<usize>>,
    pub kind: SpanKind,
    /// In a stream event: the text that it continues. `None` if the text is complete within the event.
    pub channel: Option<TextChannel>,
    /// Whether it belongs to a client's fixed prompts: its system prompt or tool definitions, the same in every
    /// session.
    pub fixed: bool,
    pub place: TextPlace,
}

labelled_enum! {
    /// Where a text is in the message model: who wrote it, as far as the body says.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum TextPlace {
        /// The body does not say.
        #[default]
        Unknown "unknown",
        /// A system prompt or a developer's message.
        System "system",
        User "user",
        /// The model's reply, now or earlier.
        Assistant "assistant",
        /// The model's reasoning.
        Thinking "thinking",
        /// The description of a tool.
        ToolDefinition "tool_definition",
        /// A tool call's arguments.
        ToolCall "tool_call",
        /// What a tool returned.
        ToolResult "tool_result",
        /// A document that was sent along.
        Document "document",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Text,
    /// JSON encoded as a string: a tool call's arguments.
    Json,
    /// Text signed by the provider, such as thinking: it must be returned byte for byte.
    Signed,
    /// A member's name, where people or tools choose the names.
    Name,
    /// A number in such a position; its range has no quotes.
    Number,
    /// A text file in base64, to be redacted in its decoded form.
    Base64Text,
    Media(MediaSpan),
}

/// A text streamed in fragments: one choice's reply, one tool call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextChannel {
    /// The same for all fragments of a text within one stream; a hash of the names and indices on the path to it.
    pub id: u64,
    /// The choice or block whose end also ends it.
    pub group: u64,
}

/// The result of marking a body. All ranges are byte offsets of the content of strings, without their quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedText {
    pub spans: Vec<TextSpan>,
    pub model: Option<Range<usize>>,
    /// Whether another member may name the model to the provider: a second one, or one in other letters.
    pub is_model_unclear: bool,
    /// The model of the session that a request or an event sets up (`session.model`, `setup.model`).
    pub session_model: Option<Range<usize>>,
    /// The agent of an interaction that an event creates.
    pub agent: Option<Range<usize>>,
    pub stream: Option<bool>,
    /// The largest limit on output tokens: an API may know several names for it.
    pub max_output: Option<u64>,
    /// Whether a limit on output tokens is not a whole number that an API takes: negative, a fraction, too large, a word.
    pub is_max_output_invalid: bool,
    /// How much the model is asked to think, by the word of its API.
    pub effort: Option<Range<usize>>,
    pub service_tier: Option<Range<usize>>,
    /// How many choices are asked for, of all prompts; 0 if the body does not say.
    pub choices: u64,
    /// The first message of the conversation, which identifies it in clients that send no id.
    pub first_message: Option<Range<usize>>,
    /// The response or conversation that this request continues at the provider (`previous_response_id`,
    /// `conversation`).
    pub continues: Option<Range<usize>>,
    /// Of these, the response.
    pub previous_response: Option<Range<usize>>,
    pub id: Option<Range<usize>>,
    pub text_bytes: usize,
    /// The part of them in members that only describe the request, which [`facts`] leaves out.
    pub metadata_bytes: usize,
    /// Estimated tokens of its media.
    pub media_tokens: u64,
    /// In a response: the containers that have its tokens one by one.
    pub logprobs: Vec<Range<usize>>,
    /// In an event: the texts that end with it, so that what was held back of them can be sent.
    pub ended: Vec<EndedChannels>,
}

impl MarkedText {
    /// The response without its tokens and their probabilities, in which nothing is found that is in several of them;
    /// `None` if it has none.
    pub fn without_logprobs(&self, json: &[u8]) -> Option<Vec<u8>> {
        let empty = |at: &Range<usize>| if json.get(at.start) == Some(&b'[') { &b"[]"[..] } else { b"null" };
        let edits = self.logprobs.iter().map(|at| (at.clone(), empty(at)));
        (!self.logprobs.is_empty()).then(|| replace_ranges(json, edits))
    }

    /// Estimates the tokens of the body: its text at about four bytes per token, and its media. Members that only describe
    /// the request do not count, whether they were marked or not.
    pub const fn estimated_tokens(&self) -> u64 {
        estimated_tokens(self.text_bytes.saturating_sub(self.metadata_bytes)).saturating_add(self.media_tokens)
    }
}

/// Which texts of a stream end with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedChannels {
    /// Those of this choice or block: see [`TextChannel::group`].
    Group(u64),
    /// Every text of the stream.
    All,
}

/// A string of a JSON text, without its escapes, by the range between its quotes.
pub fn string_at(json: &[u8], range: Option<Range<usize>>) -> Option<String> {
    let quoted = range.and_then(|range| json.get(range.start.checked_sub(1)?..range.end + 1))?;
    serde_json::from_slice(quoted).ok()
}

#[cfg(test)]
mod tests;
