//! Parameters of actions that respond locally.

use std::fmt;

use interflow_types::schema::JsonSchema;
use regex::bytes::Regex;
use serde::{Deserialize, Deserializer, de};

use super::value_types::{RegexParam, TemplatePairs};
use crate::text::template::{ReplacementTemplate, TextTemplate};

/// Files in the place of an origin.
#[derive(Clone, Debug)]
pub struct MapLocalParams {
    /// A file, or a folder; may contain groups of the regex.
    pub path: ReplacementTemplate,
    /// A regex on the whole URL; what follows the match is the path below the folder.
    pub regex: Option<Regex>,
    /// A prefix removed from the request's path before it is looked up below the folder.
    pub strip: Option<String>,
    /// Whether the request goes to the origin if there is no such file.
    pub fall_through: bool,
    pub status: u16,
    /// Overrides the media type derived from the file name.
    pub content_type: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LocalMap {
    /// A file, or a folder in which the request's path is looked up.
    path: ReplacementTemplate,
    /// A regex on the whole URL; `path` may contain `$1`, and what follows the match is looked up below a folder.
    #[serde(default)]
    regex: Option<RegexParam>,
    /// A prefix to remove from the request's path first.
    #[serde(default)]
    strip: Option<String>,
    /// Whether the request goes to the origin if there is no such file; otherwise the response is 404.
    #[serde(default)]
    fall_through: bool,
    /// The status.
    #[serde(default = "ok_status")]
    status: u16,
    /// The media type; derived from the file name when absent.
    #[serde(default)]
    content_type: Option<String>,
}

impl TryFrom<LocalMap> for MapLocalParams {
    type Error = String;

    fn try_from(m: LocalMap) -> Result<Self, String> {
        Ok(Self {
            path: m.path,
            regex: m.regex.map(|r| r.0),
            strip: m.strip,
            fall_through: m.fall_through,
            status: final_status(m.status)?,
            content_type: m.content_type,
        })
    }
}
shorthand!(MapLocalParams from LocalMap by path);

/// A local response.
#[derive(Clone, Debug)]
pub struct AnswerParams {
    pub status: u16,
    pub headers: Vec<(TextTemplate, TextTemplate)>,
    pub body: AnswerBody,
    pub content_type: Option<TextTemplate>,
}

/// The source of a body that Interflow sends.
#[derive(Clone, Debug)]
pub enum AnswerBody {
    Text(TextTemplate),
    Bytes(bytes::Bytes),
    /// A file, read for each response.
    File(TextTemplate),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AnswerMap {
    /// The status.
    #[serde(default = "ok_status")]
    status: u16,
    /// Header fields.
    headers: Option<TemplatePairs>,
    /// A text as the body.
    body: Option<TextTemplate>,
    /// JSON as the body.
    json: Option<serde_json::Value>,
    /// Bytes as the body, in base64.
    base64: Option<String>,
    /// A file as the body.
    file: Option<TextTemplate>,
    /// The media type; derived from the kind of body when absent.
    content_type: Option<TextTemplate>,
}

impl TryFrom<AnswerMap> for AnswerParams {
    type Error = String;

    fn try_from(m: AnswerMap) -> Result<Self, String> {
        use base64::Engine as _;
        let sources = [m.body.is_some(), m.json.is_some(), m.base64.is_some(), m.file.is_some()];
        if sources.iter().filter(|g| **g).count() > 1 {
            return Err("an answer has one of body, json, base64 and file".into());
        }
        let mut content_type = m.content_type;
        let mut usual = |t: &str| {
            content_type.get_or_insert_with(|| TextTemplate::literal(t));
        };
        let body = if let Some(json) = m.json {
            usual("application/json");
            AnswerBody::Text(TextTemplate::parse(&json.to_string())?)
        } else if let Some(text) = m.base64 {
            usual("application/octet-stream");
            let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim());
            AnswerBody::Bytes(bytes.map_err(|e| format!("`base64` is none: {e}"))?.into())
        } else if let Some(file) = m.file {
            if let Some(t) = file.as_literal().and_then(interflow_types::media_type::by_file_name) {
                usual(t);
            }
            AnswerBody::File(file)
        } else {
            if m.body.is_some() {
                usual("text/plain; charset=utf-8");
            }
            AnswerBody::Text(m.body.unwrap_or_default())
        };
        let headers = m.headers.map(|h| h.0).unwrap_or_default();
        Ok(Self { status: final_status(m.status)?, headers, body, content_type })
    }
}
shorthand!(AnswerParams from AnswerMap by status);

/// The response of a blocked request.
#[derive(Clone, Debug)]
pub struct BlockParams {
    pub status: u16,
    /// The reason returned to the client.
    pub message: Option<TextTemplate>,
    pub content_type: Option<TextTemplate>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BlockMap {
    /// The status. Without a message, the response is Interflow's own page. 444 closes the connection.
    #[serde(default = "blocked_status")]
    status: u16,
    /// The reason returned to the client.
    message: Option<TextTemplate>,
    /// The media type of the message; plain text when absent.
    content_type: Option<TextTemplate>,
}

impl TryFrom<BlockMap> for BlockParams {
    type Error = String;

    fn try_from(m: BlockMap) -> Result<Self, String> {
        Ok(Self { status: final_status(m.status)?, message: m.message, content_type: m.content_type })
    }
}
shorthand!(BlockParams from BlockMap by status);

#[derive(Clone, Debug)]
pub struct RedirectParams {
    pub status: u16,
    pub to: TextTemplate,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedirectMap {
    /// The URL.
    to: TextTemplate,
    /// 301, 302, 303, 307 or 308.
    #[serde(default = "redirect_status")]
    status: u16,
}

impl TryFrom<RedirectMap> for RedirectParams {
    type Error = String;

    fn try_from(m: RedirectMap) -> Result<Self, String> {
        match m.status {
            status @ (301 | 302 | 303 | 307 | 308) => Ok(Self { status, to: m.to }),
            other => Err(format!("{other} is not a redirect status: 301, 302, 303, 307 or 308")),
        }
    }
}
shorthand!(RedirectParams from RedirectMap by to);

const fn ok_status() -> u16 {
    200
}

const fn blocked_status() -> u16 {
    403
}

const fn redirect_status() -> u16 {
    302
}

/// Informational statuses (1xx) cannot end a request; statuses up to 999 are allowed for tests of clients.
fn final_status(code: u16) -> Result<u16, String> {
    if (200..=999).contains(&code) { Ok(code) } else { Err(format!("{code} is not a final status code: 200 to 999")) }
}
