//! Parameters of actions on bodies.

use std::fmt;
use std::sync::Arc;

use interflow_types::units::ByteSize;
use regex::bytes::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{AnswerBody, RegexParam};
use crate::fault_injection::ThrottleBudget;
use crate::json::JsonPath;
use crate::matchers::OneOrManyStrings;
use crate::template::{ReplacementTemplate, TextTemplate};

/// A change of a text.
#[derive(Clone, Debug)]
pub enum EditParams {
    /// This text everywhere by that one, while it streams.
    Find(TextTemplate, TextTemplate),
    /// What a regex finds.
    Regex(Regex, ReplacementTemplate),
    /// Another text altogether.
    Set(TextTemplate),
    /// Another text from a file.
    File(TextTemplate),
    /// Values by JSONPath.
    JsonSet(Vec<(JsonPath, JsonTemplate)>),
    /// Places by JSONPath.
    JsonRemove(Vec<JsonPath>),
    /// A JSON Patch.
    JsonPatch(Vec<serde_json::Value>),
}

/// A message to put in.
#[derive(Clone, Debug)]
pub struct InjectParams {
    /// What it says.
    pub text: InjectText,
    /// Whether it goes back to where the message came from.
    pub back: bool,
}

/// What an injected message says.
#[derive(Clone, Debug)]
pub enum InjectText {
    /// A text with variables.
    Text(TextTemplate),
    /// Bytes.
    Bytes(bytes::Bytes),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InjectMap {
    /// What it says; `${message}` is the message that matched.
    #[serde(default)]
    text: Option<TextTemplate>,
    /// The same as bytes in base64, for gRPC and binary messages.
    #[serde(default)]
    base64: Option<String>,
    /// `onward`, to where the message goes (when absent), or `back`, to where it came from (WebSockets alone).
    #[serde(default)]
    to: Option<InjectDirection>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum InjectDirection {
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
        Ok(Self { text, back: m.to == Some(InjectDirection::Back) })
    }
}
shorthand!(InjectParams from InjectMap by text);

/// A JSON value whose texts may hold variables.
#[derive(Clone, Debug)]
pub enum JsonTemplate {
    /// As it is.
    Plain(serde_json::Value),
    /// A text with variables.
    Filled(TextTemplate),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct EditMap {
    /// A text that is replaced wherever it stands.
    find: Option<TextTemplate>,
    /// A regex; what it finds is replaced. Needs the whole body, or the whole event or message of a stream.
    regex: Option<RegexParam>,
    /// What stands there instead; nothing when absent.
    with: Option<ReplacementTemplate>,
    /// The whole new text.
    set: Option<TextTemplate>,
    /// A file with the whole new text.
    file: Option<TextTemplate>,
    /// Values by JSONPath.
    json_set: Option<serde_json::Map<String, serde_json::Value>>,
    /// JSONPaths of what is taken out.
    json_remove: Option<OneOrManyStrings>,
    /// A JSON Patch (RFC 6902).
    json_patch: Option<Vec<serde_json::Value>>,
}

impl TryFrom<EditMap> for EditParams {
    type Error = String;

    fn try_from(m: EditMap) -> Result<Self, String> {
        let with = m.with;
        let given = [
            m.find.is_some(),
            m.regex.is_some(),
            m.set.is_some(),
            m.file.is_some(),
            m.json_set.is_some(),
            m.json_remove.is_some(),
            m.json_patch.is_some(),
        ];
        if given.iter().filter(|g| **g).count() != 1 {
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
        crate::json::check_patch(&patch).map_err(|e| format!("`json_patch`: {e}"))?;
        Ok(Self::JsonPatch(patch))
    }
}
shorthand!(EditParams from EditMap by set);

/// HTML to insert.
#[derive(Clone, Debug)]
pub struct InjectHtmlParams {
    /// The tag behind which it stands, in lower case.
    pub tag: String,
    /// The HTML.
    pub html: AnswerBody,
    /// Whether only `text/html` is touched.
    pub only_html: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InjectHtmlMap {
    /// The tag behind whose first opening it stands; `head` when absent.
    #[serde(default)]
    tag: Option<String>,
    /// The HTML.
    #[serde(default)]
    html: Option<TextTemplate>,
    /// A file with the HTML.
    #[serde(default)]
    file: Option<TextTemplate>,
    /// Whether only `text/html` is touched; true when absent.
    #[serde(default)]
    only_html: Option<bool>,
}

impl TryFrom<InjectHtmlMap> for InjectHtmlParams {
    type Error = String;

    fn try_from(m: InjectHtmlMap) -> Result<Self, String> {
        let html = match (m.html, m.file) {
            (Some(html), None) => AnswerBody::Text(html),
            (None, Some(file)) => AnswerBody::File(file),
            _ => return Err("one of `html` and `file` is needed".into()),
        };
        let tag = m.tag.unwrap_or_else(|| "head".into()).to_ascii_lowercase();
        if tag.is_empty() || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!("`{tag}` is no name of an HTML tag"));
        }
        Ok(Self { tag, html, only_html: m.only_html.unwrap_or(true) })
    }
}
shorthand!(InjectHtmlParams from InjectHtmlMap by html);

/// Caps on speed, in bytes per second.
#[derive(Clone, Debug)]
pub struct ThrottleParams {
    /// Of the request's body.
    pub request: Option<ByteSize>,
    /// Of the response's body.
    pub response: Option<ByteSize>,
    /// One budget for all flows of the rule.
    pub shared: Option<[Arc<ThrottleBudget>; 2]>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ThrottleMap {
    /// Of both bodies, in bytes per second: `64KiB`.
    both: Option<ByteSize>,
    /// Of the request's body.
    request: Option<ByteSize>,
    /// Of the response's body.
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

/// An amount of bytes.
#[derive(Clone, Debug)]
pub struct ByteOffsetParams {
    /// After how many bytes.
    pub after: ByteSize,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ByteOffsetMap {
    /// After how many bytes; at once when absent.
    after: ByteSize,
}

impl TryFrom<ByteOffsetMap> for ByteOffsetParams {
    type Error = String;

    fn try_from(m: ByteOffsetMap) -> Result<Self, String> {
        Ok(Self { after: m.after })
    }
}
shorthand!(ByteOffsetParams from ByteOffsetMap by after);
