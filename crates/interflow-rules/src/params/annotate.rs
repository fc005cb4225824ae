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
#[derive(Clone, Debug)]
pub struct DelayParams {
    pub time: HumanDuration,
    pub jitter: HumanDuration,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DelayMap {
    /// How long; at most an hour.
    time: HumanDuration,
    /// Random variation, up to this much longer or shorter.
    #[serde(default)]
    jitter: HumanDuration,
}

impl TryFrom<DelayMap> for DelayParams {
    type Error = String;

    fn try_from(m: DelayMap) -> Result<Self, String> {
        if m.time.0.as_secs() > 3600 {
            return Err(format!("{} is longer than an hour: no client waits that long", m.time));
        }
        Ok(Self { time: m.time, jitter: m.jitter })
    }
}
shorthand!(DelayParams from DelayMap by time);

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
    #[serde(default)]
    from: Option<TextTemplate>,
    /// A JSONPath in the request's body.
    #[serde(default)]
    request_json: Option<String>,
    /// A JSONPath in the response's body.
    #[serde(default)]
    response_json: Option<String>,
    /// A regex: its first group, or the whole match, is taken.
    #[serde(default)]
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
#[derive(Clone, Debug)]
pub struct LogParams {
    pub text: TextTemplate,
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogMap {
    /// The text.
    text: TextTemplate,
    /// The severity.
    #[serde(default)]
    level: LogLevel,
}

impl TryFrom<LogMap> for LogParams {
    type Error = String;

    fn try_from(m: LogMap) -> Result<Self, String> {
        Ok(Self { text: m.text, level: m.level })
    }
}
shorthand!(LogParams from LogMap by text);

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
#[derive(Clone, Debug)]
pub struct HoldParams {
    pub timeout: Option<HumanDuration>,
    pub pass: bool,
    pub note: Option<TextTemplate>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HoldMap {
    /// Time limit for the decision; `rules.hold_timeout` when absent.
    timeout: Option<HumanDuration>,
    /// Whether the flow continues when nobody decided in time; otherwise it is denied.
    pass: bool,
    /// A note for the operator.
    note: Option<TextTemplate>,
}

impl TryFrom<HoldMap> for HoldParams {
    type Error = String;

    fn try_from(m: HoldMap) -> Result<Self, String> {
        Ok(Self { timeout: m.timeout, pass: m.pass, note: m.note })
    }
}
shorthand!(HoldParams from HoldMap by timeout);
