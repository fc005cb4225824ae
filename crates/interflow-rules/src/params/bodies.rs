//! Parameters of actions on bodies.

use std::fmt;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use interflow_types::units::ByteSize;
use regex::bytes::Regex;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::answers::AnswerBody;
use super::value_types::{RegexParam, yes};
use crate::body::fault_injection::ThrottleBudget;
use crate::text::json::{JsonPath, PatchOperation};
use crate::text::string_list::OneOrManyStrings;
use crate::text::template::{ReplacementTemplate, TextTemplate};

/// An edit of a text: of a body, or of an event or message of a stream.
#[derive(Clone, Debug)]
pub enum EditParams {
    /// Replaces every occurrence of a text; works on a stream.
    Find(TextTemplate, TextTemplate),
    /// Replaces the matches of a regex.
    Regex(Regex, ReplacementTemplate),
    Set(TextTemplate),
    /// Replaces the whole text by a file.
    File(TextTemplate),
    /// Sets values by JSONPath.
    JsonSet(Vec<(JsonPath, JsonTemplate)>),
    /// Removes values by JSONPath.
    JsonRemove(Vec<JsonPath>),
    /// Applies a JSON Patch (RFC 6902).
    JsonPatch(Vec<PatchOperation>),
}

/// A message inserted into a stream.
#[derive(Clone, Debug)]
pub struct InjectParams {
    pub text: InjectText,
    /// Whether it is sent back to the sender of the matching message.
    pub back: bool,
}

/// The payload of an injected message.
#[derive(Clone, Debug)]
pub enum InjectText {
    Text(TextTemplate),
    Bytes(bytes::Bytes),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InjectMap {
    /// The payload; `${message}` is the message that matched.
    text: Option<TextTemplate>,
    /// The payload as bytes in base64, for gRPC and binary messages.
    base64: Option<String>,
    /// `onward`, in the direction of the message, or `back`, to its sender (WebSockets only).
    #[serde(default)]
    to: InjectDirection,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum InjectDirection {
    #[default]
    Onward,
    Back,
}

impl TryFrom<InjectMap> for InjectParams {
    type Error = String;

    fn try_from(m: InjectMap) -> Result<Self, String> {
        use base64::Engine as _;
        let text = match (m.text, m.base64) {
            (Some(text), None) => InjectText::Text(text),
            (None, Some(coded)) => InjectText::Bytes(
                base64::engine::general_purpose::STANDARD
                    .decode(coded.trim())
                    .map_err(|e| format!("`base64` is none: {e}"))?
                    .into(),
            ),
            _ => return Err("one of `text` and `base64` is needed".into()),
        };
        Ok(Self { text, back: m.to == InjectDirection::Back })
    }
}
shorthand!(InjectParams from InjectMap by text);

/// A JSON value whose texts may contain variables.
#[derive(Clone, Debug)]
pub enum JsonTemplate {
    Plain(serde_json::Value),
    Filled(TextTemplate),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct EditMap {
    /// A text to replace, everywhere.
    find: Option<TextTemplate>,
    /// A regex whose matches are replaced. Needs the whole body, or the whole event or message of a stream.
    regex: Option<RegexParam>,
    /// The replacement; empty when absent.
    with: Option<ReplacementTemplate>,
    /// The new text.
    set: Option<TextTemplate>,
    /// A file with the new text.
    file: Option<TextTemplate>,
    /// Values to set by JSONPath.
    json_set: Option<serde_json::Map<String, serde_json::Value>>,
    /// JSONPaths of values to remove.
    json_remove: Option<OneOrManyStrings>,
    /// A JSON Patch (RFC 6902).
    json_patch: Option<Vec<serde_json::Value>>,
}

impl TryFrom<EditMap> for EditParams {
    type Error = String;

    fn try_from(m: EditMap) -> Result<Self, String> {
        let with = m.with;
        let sources = [
            m.find.is_some(),
            m.regex.is_some(),
            m.set.is_some(),
            m.file.is_some(),
            m.json_set.is_some(),
            m.json_remove.is_some(),
            m.json_patch.is_some(),
        ];
        if sources.iter().filter(|g| **g).count() != 1 {
            return Err("an edit has one of find, regex, set, file, json_set, json_remove and json_patch".into());
        }
        if with.is_some() && m.find.is_none() && m.regex.is_none() {
            return Err("`with` goes with find or regex".into());
        }
        if let Some(find) = m.find {
            if find.source().is_empty() {
                return Err("`find` is empty: there is nothing to look for".into());
            }
            let with = with.map_or(Ok(TextTemplate::default()), |w| TextTemplate::parse(w.0.source()))?;
            return Ok(Self::Find(find, with));
        }
        if let Some(pat) = m.regex {
            return Ok(Self::Regex(pat.0, with.unwrap_or_default()));
        }
        if let Some(text) = m.set {
            return Ok(Self::Set(text));
        }
        if let Some(file) = m.file {
            return Ok(Self::File(file));
        }
        if let Some(set) = m.json_set {
            let one = |(path, value): (String, serde_json::Value)| {
                let value = match &value {
                    serde_json::Value::String(s) if s.contains("${") => JsonTemplate::Filled(TextTemplate::parse(s)?),
                    _ => JsonTemplate::Plain(value),
                };
                Ok::<_, String>((JsonPath::parse(&path)?, value))
            };
            return Ok(Self::JsonSet(set.into_iter().map(one).collect::<Result<_, _>>()?));
        }
        if let Some(paths) = m.json_remove {
            return Ok(Self::JsonRemove(paths.0.iter().map(|p| JsonPath::parse(p)).collect::<Result<_, _>>()?));
        }
        let patch = m.json_patch.unwrap_or_default();
        Ok(Self::JsonPatch(crate::text::json::parse_patch(&patch).map_err(|e| format!("`json_patch`: {e}"))?))
    }
}
shorthand!(EditParams from EditMap by set);

/// HTML inserted into a page.
#[derive(Clone, Debug)]
pub struct InjectHtmlParams {
    /// The tag after which it is inserted, in lower case.
    pub tag: String,
    pub html: AnswerBody,
    /// Whether only `text/html` is changed.
    pub only_html: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InjectHtmlMap {
    /// The tag after whose first occurrence the HTML is inserted.
    #[serde(default = "head_tag")]
    tag: String,
    /// The HTML.
    html: Option<TextTemplate>,
    /// A file with the HTML.
    file: Option<TextTemplate>,
    /// Whether only `text/html` is changed.
    #[serde(default = "yes")]
    only_html: bool,
}

impl TryFrom<InjectHtmlMap> for InjectHtmlParams {
    type Error = String;

    fn try_from(m: InjectHtmlMap) -> Result<Self, String> {
        let html = match (m.html, m.file) {
            (Some(html), None) => AnswerBody::Text(html),
            (None, Some(file)) => AnswerBody::File(file),
            _ => return Err("one of `html` and `file` is needed".into()),
        };
        let tag = m.tag.to_ascii_lowercase();
        if tag.is_empty() || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!("`{tag}` is not the name of an HTML tag"));
        }
        Ok(Self { tag, html, only_html: m.only_html })
    }
}
shorthand!(InjectHtmlParams from InjectHtmlMap by html);

fn head_tag() -> String {
    "head".to_owned()
}

/// Speed limits in bytes per second by direction.
#[derive(Clone, Debug)]
pub struct ThrottleParams {
    pub request: Option<ByteSize>,
    pub response: Option<ByteSize>,
    /// The budgets by direction that all flows of the rule share, if they do.
    pub shared: Option<[Arc<ThrottleBudget>; 2]>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ThrottleMap {
    /// Limit for both bodies, in bytes per second: `64KiB`.
    both: Option<ByteSize>,
    /// Limit for the request's body.
    request: Option<ByteSize>,
    /// Limit for the response's body.
    response: Option<ByteSize>,
    /// Whether all flows of the rule share one budget; otherwise each has its own.
    shared: bool,
}

impl TryFrom<ThrottleMap> for ThrottleParams {
    type Error = String;

    fn try_from(m: ThrottleMap) -> Result<Self, String> {
        let (request, response) = (m.request.or(m.both), m.response.or(m.both));
        if request.or(response).is_none() {
            return Err("a speed is needed: both, request or response".into());
        }
        if [request, response].into_iter().flatten().any(|s| s.0 == 0) {
            return Err("a speed of 0 would never end: use `abort`, or a small speed".into());
        }
        Ok(Self { request, response, shared: m.shared.then(Default::default) })
    }
}
shorthand!(ThrottleParams from ThrottleMap by both);

/// Where a fault takes effect.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[schemars(rename = "ByteOffsetParams", transform = super::short_form("after"))]
pub struct ByteOffsetParams {
    /// Number of bytes before it takes effect.
    pub after: ByteSize,
}
shorthand!(ByteOffsetParams by after);
