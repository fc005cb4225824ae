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

/// Features of values, as a bit set: a list has the features of all its elements.
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
    /// Of a string: it is one of those that tell formats apart.
    pub const WORD_TEXT: u16 = 1 << 9;
    pub const WORD_ANTHROPIC: u16 = 1 << 10;
    /// Of an object: it has a list `contents`, as `request` in the Code Assist endpoint's bodies.
    pub const CONTENTS: u16 = 1 << 11;
}

/// A member's value: its kind, and its features.
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

    pub fn is_text_or_list(self) -> bool {
        self.is_text() || self.is_list()
    }

    pub fn is_given(self) -> bool {
        !matches!(self.kind, Kind::Absent | Kind::Null)
    }

    /// Whether it has one of the features.
    pub fn any(self, sign: u16) -> bool {
        self.signs & sign != 0
    }
}

/// What is seen of the members of an object: of a request body, or of an element of a list. Of duplicate members the last
/// one counts, as in a [`Value`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Outline([Seen; Name::Other as usize + 1]);

impl Outline {
    /// The outline of a body; `None` if it is not JSON. What providers read all the same does not hide a call: a byte order mark,
    /// bytes that are not UTF-8, and halves of surrogate pairs.
    pub fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().or_else(|| {
            let text = String::from_utf8_lossy(json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json));
            interflow_codec::json::parse(text.as_bytes()).ok()
        })
    }

    /// The outline of a body that is parsed already.
    pub fn of(body: &Value) -> Self {
        // A parsed value can be walked unless it is nested too deeply.
        Self::deserialize(body).unwrap_or_default()
    }

    pub(super) const fn at(&self, name: Name) -> Seen {
        self.0[name as usize]
    }

    /// Whether it is a text completion: a `prompt` and no messages.
    pub(crate) fn completes(&self) -> bool {
        !self.at(Name::Messages).is_given() && self.at(Name::Prompt).is_given()
    }

    /// Whether it names a model and has one text for it, as in Cohere's chat.
    pub(crate) fn chats(&self) -> bool {
        self.at(Name::Message).is_text() && self.at(Name::Model).is_text()
    }

    /// Whether it is an embedding request: input texts and a model.
    pub(crate) fn embeds(&self) -> bool {
        [Name::Input, Name::Prompt].iter().any(|name| self.at(*name).is_text_or_list())
            && self.at(Name::Model).is_text()
    }

    /// The features of one list element: a message, a block, a tool.
    fn signs(&self) -> u16 {
        let [role, kind, text] = [Name::Role, Name::Type, Name::Text].map(|name| self.at(name));
        let (schema, content) = (self.at(Name::InputSchema), self.at(Name::Content));
        let anthropic = kind.any(sign::WORD_ANTHROPIC) || self.at(Name::Source).kind == Kind::Object;
        [
            (role.is_text(), sign::ROLE),
            (kind.is_text(), sign::TYPE),
            (kind.any(sign::WORD_TEXT), sign::TYPE_TEXT),
            (anthropic, sign::ANTHROPIC),
            (text.is_text() && kind.kind == Kind::Absent, sign::UNTYPED_TEXT),
            (schema.kind == Kind::Object, sign::SCHEMA),
            (self.at(Name::Parts).is_list(), sign::PARTS),
            (content.any(sign::ANTHROPIC), sign::HOLDS_ANTHROPIC),
            (content.any(sign::UNTYPED_TEXT), sign::HOLDS_UNTYPED_TEXT),
        ]
        .iter()
        .fold(0, |signs, (has, sign)| if *has { signs | sign } else { signs })
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut outline = Self::default();
        Look { members: &mut outline, depth: TOP }.deserialize(from)?;
        Ok(outline)
    }
}

/// The members that are examined, at any level; the value of any other one is skipped unread.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
pub(super) enum Name {
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

/// Nesting levels examined: the body, its lists, their elements, the lists in these, and their blocks.
const TOP: u8 = 5;

/// Examines a value, and notes an object's members in `members`. Below `depth` levels, values are skipped.
struct Look<'f> {
    members: &'f mut Outline,
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Seen, D::Error> {
        from.deserialize_any(self)
    }
}

const fn of_kind(kind: Kind) -> Seen {
    Seen { kind, signs: 0 }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        Ok(of_kind(Kind::Null))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Seen, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Seen, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Seen, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Seen, E> {
        Ok(of_kind(Kind::Scalar))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Seen, E> {
        let signs = match text {
            "text" => sign::WORD_TEXT,
            "tool_use" | "tool_result" | "thinking" => sign::WORD_ANTHROPIC,
            _ => 0,
        };
        Ok(Seen { kind: Kind::Text, signs })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seen, A::Error> {
        let mut lists = of_kind(Kind::List);
        // Skipped, but still checked for being JSON.
        if self.depth == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(lists);
        }
        loop {
            let mut element = Outline::default();
            if list.next_element_seed(Look { members: &mut element, depth: self.depth - 1 })?.is_none() {
                return Ok(lists);
            }
            lists.signs |= element.signs();
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Seen, A::Error> {
        let mut objects = of_kind(Kind::Object);
        while let Some(name) = object.next_key::<Name>()? {
            if self.depth == 0 || matches!(name, Name::Other) {
                object.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = object.next_value_seed(Look { members: &mut Outline::default(), depth: self.depth - 1 })?;
            if matches!(name, Name::Contents) {
                objects.signs = if value.is_list() { sign::CONTENTS } else { 0 };
            }
            self.members.0[name as usize] = value;
        }
        Ok(objects)
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
