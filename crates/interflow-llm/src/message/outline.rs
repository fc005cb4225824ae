//! The features of a request body that identify its API format, parsed without building a value tree, which would take
//! many times the memory of the body.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Absent,
    Null,
    Scalar,
    Text,
    List,
    Object,
}

/// Features of list elements, as a bit set: a list has the features of all its elements.
pub(super) mod sign {
    pub const ROLE: u16 = 1;
    pub const TYPE: u16 = 1 << 1;
    pub const TYPE_TEXT: u16 = 1 << 2;
    /// A block type that only Anthropic's format has.
    pub const ANTHROPIC: u16 = 1 << 3;
    /// `text` without a `type`, as in Converse.
    pub const UNTYPED_TEXT: u16 = 1 << 4;
    pub const SCHEMA: u16 = 1 << 5;
    pub const PARTS: u16 = 1 << 6;
    /// The same for the blocks in `content`.
    pub const HOLDS_ANTHROPIC: u16 = 1 << 7;
    pub const HOLDS_UNTYPED_TEXT: u16 = 1 << 8;
}

/// A member's value: its kind, and the union of its elements' features if it is a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub kind: Kind,
    pub signs: u16,
}

impl Seen {
    pub fn is_text(self) -> bool {
        self.kind == Kind::Text
    }

    pub fn is_list(self) -> bool {
        self.kind == Kind::List
    }

    pub fn is_given(self) -> bool {
        !matches!(self.kind, Kind::Absent | Kind::Null)
    }

    /// Whether any element of the list has the feature.
    pub fn any(self, sign: u16) -> bool {
        self.signs & sign != 0
    }
}

/// The outline of a request body. Of duplicate members the last one counts, as in a [`Value`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Outline {
    pub(super) model: Seen,
    pub(super) agent: Seen,
    pub(super) prompt: Seen,
    pub(super) instructions: Seen,
    pub(super) previous_response_id: Seen,
    pub(super) anthropic_version: Seen,
    pub(super) system: Seen,
    pub(super) tools: Seen,
    pub(super) messages: Seen,
    pub(super) contents: Seen,
    pub(super) input: Seen,
    pub(super) message: Seen,
    /// `contents` inside `request`, as in the Code Assist endpoint's bodies.
    pub(super) inner_contents: Seen,
}

impl Outline {
    /// The outline of a body; `None` if it is not JSON. What providers read all the same does not hide a call: a byte order mark,
    /// bytes that are not UTF-8, and halves of surrogate pairs.
    pub fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().or_else(|| {
            let text = String::from_utf8_lossy(json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json));
            // Only the kind of a value counts here, not its characters.
            serde_json::from_str(&text.replace("\\ud", "\\u0").replace("\\uD", "\\u0")).ok()
        })
    }

    /// The outline of a body that is parsed already.
    pub fn of(body: &Value) -> Self {
        // A parsed value can be walked unless it is nested too deeply.
        Self::deserialize(body).unwrap_or_default()
    }

    /// Whether it is a text completion: a `prompt` and no messages.
    pub(crate) fn completes(&self) -> bool {
        !self.messages.is_given() && self.prompt.is_given()
    }

    /// Whether it names a model and has one text for it, as in Cohere's chat.
    pub(crate) fn chats(&self) -> bool {
        self.message.is_text() && self.model.is_text()
    }

    /// Whether it is an embedding request: input texts and a model.
    pub(crate) fn embeds(&self) -> bool {
        [self.input, self.prompt].iter().any(|s| s.is_text() || s.is_list()) && self.model.is_text()
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut outline = Self::default();
        Look { members: &mut |name, value| outline.note(name, value), depth: TOP }.deserialize(from)?;
        Ok(outline)
    }
}

impl Outline {
    fn note(&mut self, name: Name, value: Found) {
        let at = match name {
            Name::Model => &mut self.model,
            Name::Agent => &mut self.agent,
            Name::Prompt => &mut self.prompt,
            Name::Instructions => &mut self.instructions,
            Name::PreviousResponseId => &mut self.previous_response_id,
            Name::AnthropicVersion => &mut self.anthropic_version,
            Name::System => &mut self.system,
            Name::Tools => &mut self.tools,
            Name::Messages => &mut self.messages,
            Name::Contents => &mut self.contents,
            Name::Input => &mut self.input,
            Name::Message => &mut self.message,
            Name::Request => {
                self.inner_contents = Seen { kind: value.contents, signs: 0 };
                return;
            }
            _ => return,
        };
        *at = value.seen;
    }
}

/// The members that are examined, at any level; the value of any other one is skipped unread.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    Model,
    Agent,
    Prompt,
    Instructions,
    PreviousResponseId,
    AnthropicVersion,
    System,
    Tools,
    Messages,
    Contents,
    Input,
    Message,
    Request,
    Role,
    Type,
    Text,
    Source,
    InputSchema,
    Parts,
    Content,
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Default)]
struct Found {
    seen: Seen,
    /// Its value, if it is one of the strings that tell formats apart.
    word: Option<Word>,
    /// The kind of an object's member `contents`.
    contents: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Text,
    Anthropic,
}

/// Nesting levels examined: the body, its lists, their elements, the lists in these, and their blocks.
const TOP: u8 = 5;

/// Examines a value, and passes an object's members to `members`. Below `depth` levels, values are skipped.
struct Look<'f> {
    members: &'f mut dyn FnMut(Name, Found),
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Found, D::Error> {
        from.deserialize_any(self)
    }
}

const fn of_kind(kind: Kind) -> Found {
    Found { seen: Seen { kind, signs: 0 }, word: None, contents: Kind::Absent }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        Ok(of_kind(Kind::Null))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Found, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Found, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Found, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Found, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Found, E> {
        let word = match text {
            "text" => Some(Word::Text),
            "tool_use" | "tool_result" | "thinking" => Some(Word::Anthropic),
            _ => None,
        };
        Ok(Found { word, ..of_kind(Kind::Text) })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        let mut lists = of_kind(Kind::List);
        // Skipped, but still checked for being JSON.
        if self.depth == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(lists);
        }
        loop {
            let mut element = Element::default();
            let mut members = |name, value| element.note(name, value);
            if list.next_element_seed(Look { members: &mut members, depth: self.depth - 1 })?.is_none() {
                return Ok(lists);
            }
            lists.seen.signs |= element.signs();
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Found, A::Error> {
        let mut objects = of_kind(Kind::Object);
        while let Some(name) = object.next_key::<Name>()? {
            if self.depth == 0 || matches!(name, Name::Other) {
                object.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = object.next_value_seed(Look { members: &mut |_, _| {}, depth: self.depth - 1 })?;
            if matches!(name, Name::Contents) {
                objects.contents = value.seen.kind;
            }
            (self.members)(name, value);
        }
        Ok(objects)
    }
}

/// The features of one list element: a message, a block, a tool.
#[derive(Default)]
struct Element {
    role: Seen,
    kind: Seen,
    word: Option<Word>,
    text: Seen,
    source: Seen,
    schema: Seen,
    parts: Seen,
    content: Seen,
}

impl Element {
    fn note(&mut self, name: Name, value: Found) {
        let at = match name {
            Name::Role => &mut self.role,
            Name::Type => {
                self.word = value.word;
                &mut self.kind
            }
            Name::Text => &mut self.text,
            Name::Source => &mut self.source,
            Name::InputSchema => &mut self.schema,
            Name::Parts => &mut self.parts,
            Name::Content => &mut self.content,
            _ => return,
        };
        *at = value.seen;
    }

    fn signs(&self) -> u16 {
        let anthropic = self.word == Some(Word::Anthropic) || self.source.kind == Kind::Object;
        [
            (self.role.is_text(), sign::ROLE),
            (self.kind.is_text(), sign::TYPE),
            (self.word == Some(Word::Text), sign::TYPE_TEXT),
            (anthropic, sign::ANTHROPIC),
            (self.text.is_text() && self.kind.kind == Kind::Absent, sign::UNTYPED_TEXT),
            (self.schema.kind == Kind::Object, sign::SCHEMA),
            (self.parts.is_list(), sign::PARTS),
            (self.content.any(sign::ANTHROPIC), sign::HOLDS_ANTHROPIC),
            (self.content.any(sign::UNTYPED_TEXT), sign::HOLDS_UNTYPED_TEXT),
        ]
        .iter()
        .fold(0, |signs, (has, sign)| if *has { signs | sign } else { signs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ApiFormat;

    #[test]
    fn format_is_detected_equally_from_document_and_outline() {
        let cases = [
            (r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#, Some(ApiFormat::Chat)),
            (
                r#"{"model":"m","messages":[1,{"role":"user","content":[{"type":"tool_use"}]}]}"#,
                Some(ApiFormat::Anthropic),
            ),
            (r#"{"model":"m","messages":[{"role":"user"}],"system":[{"type":"text"}]}"#, Some(ApiFormat::Anthropic)),
            (r#"{"model":"m","messages":[{"role":"user"}],"tools":[{"input_schema":{}}]}"#, Some(ApiFormat::Anthropic)),
            (r#"{"messages":[{"role":"user","content":[{"text":"x"}]}]}"#, Some(ApiFormat::Converse)),
            (r#"{"messages":[{"role":"user","content":[{"text":"x","type":null}]}]}"#, None),
            (r#"{"model":"m","input":[{"type":"message"}]}"#, Some(ApiFormat::Responses)),
            (r#"{"model":"m","input":"x","instructions":"y"}"#, Some(ApiFormat::Responses)),
            (r#"{"contents":[{"parts":[{"text":"x"}]}]}"#, Some(ApiFormat::Gemini)),
            (r#"{"m\u006fdel":"m","messages":[],"messages":[{"r\u006fle":"user"}]}"#, Some(ApiFormat::Chat)),
            (r#"{"model":"m","messages":[{"role":"user"}],"messages":null}"#, None),
            (r#"["model","messages"]"#, None),
        ];
        for (body, shape) in cases {
            let kept: Value = serde_json::from_str(body).unwrap();
            assert_eq!(ApiFormat::detect("/any", &kept), shape, "{body}");
            assert_eq!(
                ApiFormat::detect_with_override(None, "/any", &Outline::read(body.as_bytes()).unwrap()),
                shape,
                "{body}"
            );
        }
        let wrapped = Outline::read(br#"{"request":{"contents":[]}}"#).unwrap();
        assert_eq!(ApiFormat::detect_with_override(None, "/x:generateContent", &wrapped), Some(ApiFormat::Gemini));
        assert!(Outline::read(b"{").is_none() && Outline::read(b"{} x").is_none());
    }

    #[test]
    fn deep_nesting_does_not_hide_format_markers() {
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        let body = format!(r#"{{"x":{deep},"model":"m","messages":[{{"role":"user","content":"x"}}]}}"#);
        assert_eq!(
            ApiFormat::detect_with_override(None, "/any", &Outline::read(body.as_bytes()).unwrap()),
            Some(ApiFormat::Chat)
        );
    }
}
