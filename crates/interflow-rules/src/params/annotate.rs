//! Parameters of actions that wait or leave marks.

use std::fmt;

use interflow_types::units::HumanDuration;
use regex::bytes::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::RegexParam;
use crate::json::JsonPath;
use crate::template::TextTemplate;

/// A wait.
#[derive(Clone, Debug)]
pub struct DelayParams {
    /// How long.
    pub time: HumanDuration,
    /// Up to so much longer or shorter, at random.
    pub jitter: HumanDuration,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DelayMap {
    /// How long; at most an hour.
    time: HumanDuration,
    /// Up to so much longer or shorter, at random.
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

/// What goes into a variable.
#[derive(Clone, Debug)]
pub struct CaptureParams {
    /// The variable.
    pub name: String,
    /// Where it is taken from.
    pub source: CaptureSource,
    /// A regex on it: its first group, or all that it found.
    pub regex: Option<Regex>,
}

/// Where a variable is taken from.
#[derive(Clone, Debug)]
pub enum CaptureSource {
    /// A text.
    Text(TextTemplate),
    /// A JSONPath in the body of a side.
    Json(interflow_types::Direction, JsonPath),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaptureMap {
    /// The variable: `${var.NAME}`.
    name: String,
    /// The text it is taken from, such as `${resp.header.location}`.
    #[serde(default)]
    from: Option<TextTemplate>,
    /// A JSONPath in the request's body.
    #[serde(default)]
    request_json: Option<String>,
    /// A JSONPath in the response's body.
    #[serde(default)]
    response_json: Option<String>,
    /// A regex: its first group, or all that it found, is taken.
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

/// A line for the log.
#[derive(Clone, Debug)]
pub struct LogParams {
    /// The text.
    pub text: TextTemplate,
    /// How grave.
    pub level: LogLevel,
}

/// How grave a line of the log is.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Of no weight.
    Debug,
    /// Worth knowing.
    #[default]
    Info,
    /// Worth looking at.
    Warn,
    /// Wrong.
    Error,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogMap {
    /// The text.
    text: TextTemplate,
    /// How grave; `info` when absent.
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

/// A line for a file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendFileParams {
    /// The file.
    pub file: TextTemplate,
    /// The line.
    pub text: TextTemplate,
    /// Whether the text is written as it is, without a line feed behind it.
    #[serde(default)]
    pub verbatim: bool,
}

/// A hold.
#[derive(Clone, Debug)]
pub struct HoldParams {
    /// How long; the configuration's when absent.
    pub timeout: Option<HumanDuration>,
    /// Whether the flow goes on when nobody decided.
    pub pass: bool,
    /// Words for whoever decides.
    pub note: Option<TextTemplate>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HoldMap {
    /// How long somebody may take; `rules.hold_timeout` when absent.
    timeout: Option<HumanDuration>,
    /// Whether the flow goes on when nobody decided in time; otherwise it is denied.
    pass: bool,
    /// Words for whoever decides.
    note: Option<TextTemplate>,
}

impl TryFrom<HoldMap> for HoldParams {
    type Error = String;

    fn try_from(m: HoldMap) -> Result<Self, String> {
        Ok(Self { timeout: m.timeout, pass: m.pass, note: m.note })
    }
}
shorthand!(HoldParams from HoldMap by timeout);
