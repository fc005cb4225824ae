//! Where the text stands in a body: the insides of strings that people, models and tools wrote, and the media beside them.
//!
//! Every string counts as text unless its place says that it is structure (a type, a role, an id, a tool's name), so that
//! a member that is new to us is looked at rather than let through.

mod container_rules;
mod fields;
mod media;
pub mod multipart;
mod span_walker;

use std::ops::Range;

pub use fields::{FIELDS, FieldClass, FieldEntry};
pub use media::{MediaKind, MediaSpan};
pub use span_walker::{EndedChannels, MarkError, MarkedText, beside, facts, facts_held, mark_body, mark_event};

/// The inside of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSpan {
    /// The bytes between the quotes.
    pub range: Range<usize>,
    /// The name of the member it belongs to, or of the array it stands in.
    pub name: Option<Range<usize>>,
    /// What it holds.
    pub kind: SpanKind,
    /// In an event of a stream: which text it continues.
    pub channel: Option<TextChannel>,
    /// Whether it is part of a client's fixed prompts: its system prompt, its definitions of tools.
    pub fixed: bool,
}

/// What a string holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Text.
    Text,
    /// JSON, as text: a tool call's arguments.
    Json,
    /// Text that the provider signed, such as what a model thought: it goes back byte for byte.
    Signed,
    /// A member's name, where members are named by people or tools.
    Name,
    /// A number in such a place; its range has no quotes.
    Number,
    /// A text file in base64.
    Base64Text,
    /// An image, sound or document.
    Media(MediaSpan),
}

/// A text that comes in pieces: one choice's answer, one tool call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextChannel {
    /// Its identity within the stream.
    pub id: u64,
    /// The choice or block that it belongs to, which ends it.
    pub group: u64,
}

#[cfg(test)]
mod tests;
