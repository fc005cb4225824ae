//! Parameters of actions that delay, annotate or hold.

use std::fmt;

use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use regex::bytes::Regex;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::value_types::RegexParam;
use crate::text::json::JsonPath;
use crate::text::template::TextTemplate;

/// A delay of the message; the client waits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "DelayParams", transform = super::short_form("time"))]
pub struct DelayParams {
    /// How long; at most an hour.
    pub time: HumanDuration,
    /// Random variation, up to this much longer or shorter.
    #[serde(default)]
    pub jitter: HumanDuration,
}

impl DelayParams {
    fn checked(self) -> Result<Self, String> {
        if self.time.0.as_secs() > 3600 {
            return Err(format!("{} is longer than an hour: no client waits that long", self.time));
        }
        Ok(self)
    }
}
shorthand!(DelayParams by time, DelayParams::checked);

/// What is stored in which variable.
#[derive(Clone, Debug)]
pub struct CaptureParams {
    pub name: String,
    pub source: CaptureSource,
    /// A regex on it: its first group, or the whole match.
    pub regex: Option<Regex>,
}

/// Where the value of a captured variable comes from.
#[derive(Clone, Debug)]
pub enum CaptureSource {
    Text(TextTemplate),
    Json(interflow_types::Direction, JsonPath),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaptureMap {
    /// The variable: `${var.NAME}`.
    name: String,
    /// The source text, such as `${resp.header.location}`.
    from: Option<TextTemplate>,
    /// A JSONPath in the request's body.
    request_json: Option<String>,
    /// A JSONPath in the response's body.
    response_json: Option<String>,
    /// A regex: its first group, or the whole match, is taken.
    regex: Option<RegexParam>,
}

impl TryFrom<CaptureMap> for CaptureParams {
    type Error = String;

    fn try_from(m: CaptureMap) -> Result<Self, String> {
        use interflow_types::Direction::{Request, Response};
        let source = match (m.from, m.request_json, m.response_json) {
            (Some(from), None, None) => CaptureSource::Text(from),
            (None, Some(path), None) => CaptureSource::Json(Request, JsonPath::parse(&path)?),
            (None, None, Some(path)) => CaptureSource::Json(Response, JsonPath::parse(&path)?),
            _ => return Err("one of from, request_json and response_json is needed".into()),
        };
        Ok(Self { name: m.name, source, regex: m.regex.map(|r| r.0) })
    }
}
shorthand!(CaptureParams from CaptureMap by name);

/// A line in Interflow's log.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "LogParams", transform = super::short_form("text"))]
pub struct LogParams {
    /// The text.
    pub text: TextTemplate,
    /// The severity.
    #[serde(default)]
    pub level: LogLevel,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Debug.
    Debug,
    /// Informational.
    #[default]
    Info,
    /// Warning.
    Warn,
    /// Error.
    Error,
}
shorthand!(LogParams by text);

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendFileParams {
    /// The file.
    pub file: TextTemplate,
    /// The line.
    pub text: TextTemplate,
    /// Whether the text is written without a trailing line feed.
    #[serde(default)]
    pub verbatim: bool,
}

/// A flow held for an operator; see `HoldMap` for the meaning of each.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[schemars(rename = "HoldParams", transform = super::short_form("timeout"))]
pub struct HoldParams {
    /// Time limit for the decision; `rules.hold_timeout` when absent.
    pub timeout: Option<HumanDuration>,
    /// Whether the flow continues without a decision in time; otherwise it is denied.
    pub pass: bool,
    /// A note for the operator.
    pub note: Option<TextTemplate>,
}
shorthand!(HoldParams by timeout);
