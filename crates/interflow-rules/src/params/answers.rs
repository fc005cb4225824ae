//! Parameters of actions that respond locally.

use std::fmt;

use interflow_types::schema::JsonSchema;
use interflow_types::{Method, StatusCode};
use serde::{Deserialize, Deserializer, de};

use super::value_types::{RegexParam, TemplatePairs};
use crate::text::template::{ReplacementTemplate, TextTemplate};

/// Files in the place of an origin.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "MapLocalParams", transform = super::short_form("path"))]
pub struct MapLocalParams {
    /// A file, or a folder in which the request's path is looked up.
    pub path: ReplacementTemplate,
    /// A regex on the whole URL; `path` may contain `$1`, and what follows the match is looked up below a folder.
    pub regex: Option<RegexParam>,
    /// A prefix to remove from the request's path first.
    pub strip: Option<String>,
    /// Whether the request goes to the origin if there is no such file; otherwise the response is 404.
    #[serde(default)]
    pub fall_through: bool,
    /// The status.
    #[serde(default = "ok_status")]
    pub status: u16,
    /// The media type; derived from the file name when absent.
    pub content_type: Option<String>,
}

impl MapLocalParams {
    fn checked(self) -> Result<Self, String> {
        Ok(Self { status: final_status(self.status)?.as_u16(), ..self })
    }
}
shorthand!(MapLocalParams by path, MapLocalParams::checked);

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
        Ok(Self { status: final_status(m.status)?.as_u16(), headers, body, content_type })
    }
}
shorthand!(AnswerParams from AnswerMap by status);

/// The response of a blocked request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[schemars(rename = "BlockParams", transform = super::short_form("status"))]
pub struct BlockParams {
    /// The status. Without a message, the response is Interflow's own page. 444 closes the connection.
    #[serde(default = "blocked_status")]
    pub status: u16,
    /// The reason returned to the client.
    pub message: Option<TextTemplate>,
    /// The media type of the message; plain text when absent.
    pub content_type: Option<TextTemplate>,
}

impl BlockParams {
    fn checked(self) -> Result<Self, String> {
        Ok(Self { status: final_status(self.status)?.as_u16(), ..self })
    }
}
shorthand!(BlockParams by status, BlockParams::checked);

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "RedirectParams", transform = super::short_form("to"))]
pub struct RedirectParams {
    /// The URL.
    pub to: TextTemplate,
    /// 301, 302, 303, 307 or 308.
    #[serde(default = "redirect_status")]
    pub status: u16,
}

impl RedirectParams {
    fn checked(self) -> Result<Self, String> {
        match self.status {
            301 | 302 | 303 | 307 | 308 => Ok(self),
            other => Err(format!("{other} is not a redirect status: 301, 302, 303, 307 or 308")),
        }
    }
}
shorthand!(RedirectParams by to, RedirectParams::checked);

const fn ok_status() -> u16 {
    200
}

const fn blocked_status() -> u16 {
    403
}

const fn redirect_status() -> u16 {
    302
}

/// `CONNECT` opens a tunnel, which no request can become.
pub(crate) fn request_method(text: &str) -> Result<Method, String> {
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| text != "CONNECT");
    method.ok_or_else(|| format!("`{text}` is not a method of a request: write one word, such as GET"))
}

/// Informational statuses (1xx) cannot end a request; statuses up to 999 are allowed for tests of clients.
pub(crate) fn final_status(code: u16) -> Result<StatusCode, String> {
    let status = StatusCode::from_u16(code).ok().filter(|_| code >= 200);
    status.ok_or_else(|| format!("{code} is not a final status code: 200 to 999"))
}
