//! Parameters of actions that wait or leave marks.

use std::fmt;

use interflow_flow::units::Span;
use regex::bytes::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::Pat;
use crate::json::Path;
use crate::template::Template;

/// A wait.
#[derive(Clone, Debug)]
pub struct Delay {
    /// How long.
    pub time: Span,
    /// Up to so much longer or shorter, at random.
    pub jitter: Span,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DelayMap {
    /// How long; at most an hour.
    time: Span,
    /// Up to so much longer or shorter, at random.
    #[serde(default)]
    jitter: Span,
}

impl TryFrom<DelayMap> for Delay {
    type Error = String;

    fn try_from(m: DelayMap) -> Result<Self, String> {
        if m.time.0.as_secs() > 3600 {
            return Err(format!("{} is longer than an hour: no client waits that long", m.time));
        }
        Ok(Self { time: m.time, jitter: m.jitter })
    }
}
shorthand!(Delay from DelayMap by time);

/// What goes into a variable.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The variable.
    pub name: String,
    /// Where it is taken from.
    pub source: CaptureFrom,
    /// A regex on it: its first group, or all that it found.
    pub regex: Option<Regex>,
}

/// Where a variable is taken from.
#[derive(Clone, Debug)]
pub enum CaptureFrom {
    /// A text.
    Text(Template),
    /// A JSONPath in the body of a side.
    Json(interflow_flow::Direction, Path),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaptureMap {
    /// The variable: `${var.NAME}`.
    name: String,
    /// The text it is taken from, such as `${resp.header.location}`.
    #[serde(default)]
    from: Option<Template>,
    /// A JSONPath in the request's body.
    #[serde(default)]
    request_json: Option<String>,
    /// A JSONPath in the response's body.
    #[serde(default)]
    response_json: Option<String>,
    /// A regex: its first group, or all that it found, is taken.
    #[serde(default)]
    regex: Option<Pat>,
}

impl TryFrom<CaptureMap> for Capture {
    type Error = String;

    fn try_from(m: CaptureMap) -> Result<Self, String> {
        use interflow_flow::Direction::{Request, Response};
        let source = match (m.from, m.request_json, m.response_json) {
            (Some(from), None, None) => CaptureFrom::Text(from),
            (None, Some(path), None) => CaptureFrom::Json(Request, Path::parse(&path)?),
            (None, None, Some(path)) => CaptureFrom::Json(Response, Path::parse(&path)?),
            _ => return Err("one of from, request_json and response_json is needed".into()),
        };
        Ok(Self { name: m.name, source, regex: m.regex.map(|r| r.0) })
    }
}
shorthand!(Capture from CaptureMap by name);

/// A line for the log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The text.
    pub text: Template,
    /// How grave.
    pub level: Level,
}

/// How grave a line of the log is.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
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
struct LogLineMap {
    /// The text.
    text: Template,
    /// How grave; `info` when absent.
    #[serde(default)]
    level: Level,
}

impl TryFrom<LogLineMap> for LogLine {
    type Error = String;

    fn try_from(m: LogLineMap) -> Result<Self, String> {
        Ok(Self { text: m.text, level: m.level })
    }
}
shorthand!(LogLine from LogLineMap by text);

/// A line for a file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Append {
    /// The file.
    pub file: Template,
    /// The line.
    pub text: Template,
    /// Whether the text is written as it is, without a line feed behind it.
    #[serde(default)]
    pub verbatim: bool,
}

/// A hold.
#[derive(Clone, Debug)]
pub struct Hold {
    /// How long; the configuration's when absent.
    pub timeout: Option<Span>,
    /// Whether the flow goes on when nobody decided.
    pub pass: bool,
    /// Words for whoever decides.
    pub note: Option<Template>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HoldMap {
    /// How long somebody may take; `rules.hold_timeout` when absent.
    timeout: Option<Span>,
    /// Whether the flow goes on when nobody decided in time; otherwise it is denied.
    pass: bool,
    /// Words for whoever decides.
    note: Option<Template>,
}

impl TryFrom<HoldMap> for Hold {
    type Error = String;

    fn try_from(m: HoldMap) -> Result<Self, String> {
        Ok(Self { timeout: m.timeout, pass: m.pass, note: m.note })
    }
}
shorthand!(Hold from HoldMap by timeout);
