//! Parameters of recordings and scripts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use interflow_types::units::{ByteSize, HumanDuration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use crate::matchers::OneOrManyStrings;

/// A recording to answer from.
#[derive(Clone, Debug)]
pub struct ReplayParams {
    /// Where it is.
    pub from: ReplaySource,
    /// Parts of the request that do not matter: `host`, `port`, `query`, `body`, or names of query parameters.
    pub ignore: Vec<String>,
    /// Fields of a form in the request's body that do not matter.
    pub ignore_form: Vec<String>,
    /// Fields of the request's head that must be as they were recorded.
    pub headers: Vec<String>,
    /// Whether an answer may be given again.
    pub reuse: bool,
    /// What happens to a request that was not recorded.
    pub extra: OnMiss,
    /// Whether dates are moved to now.
    pub refresh: bool,
    /// The recording once it was read.
    pub(crate) loaded: Arc<std::sync::OnceLock<Result<crate::replay::ReplayIndex, String>>>,
}

/// Where a recording is.
#[derive(Clone, Debug)]
pub enum ReplaySource {
    /// In an archive: HAR, JSONL, SAZ, Fluxzy's, mitmproxy's.
    File(PathBuf),
    /// In the recording of this instance: the flows that a query finds when the rules are read.
    Flows(String),
}

/// What happens to a request that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMiss {
    /// It goes on to the origin.
    #[default]
    Forward,
    /// It is answered with this status.
    Status(u16),
    /// The client's connection is closed.
    Abort,
}

impl<'de> Deserialize<'de> for OnMiss {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = OneOrManyStrings::deserialize(d)?;
        let word = text.0.first().map(String::as_str).unwrap_or_default();
        match word {
            "forward" => Ok(Self::Forward),
            "not_found" => Ok(Self::Status(404)),
            "abort" | "kill" => Ok(Self::Abort),
            status => match status.parse() {
                Ok(status @ 200..=599) => Ok(Self::Status(status)),
                _ => Err(de::Error::custom(format!("`{word}`: write forward, not_found, abort, or a status"))),
            },
        }
    }
}

impl JsonSchema for OnMiss {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Extra".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "enum": ["forward", "not_found", "abort", "kill"] },
            { "type": "integer", "minimum": 200, "maximum": 599 },
        ] })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplayMap {
    /// The archive: HAR, JSONL, SAZ, Fluxzy's or mitmproxy's.
    #[serde(default)]
    file: Option<PathBuf>,
    /// In place of a file: a query for recorded flows of this instance, read with the rules.
    #[serde(default)]
    flows: Option<String>,
    /// Parts of the request that do not matter: `host`, `port`, `query`, `body`, or names of query parameters.
    #[serde(default)]
    ignore: OneOrManyStrings,
    /// Fields of a form in the request's body that do not matter.
    #[serde(default)]
    ignore_form: OneOrManyStrings,
    /// Fields of the request's head that must be as they were recorded; none when absent.
    #[serde(default)]
    headers: OneOrManyStrings,
    /// Whether an answer may be given again; otherwise each is given once, in the recorded order.
    #[serde(default)]
    reuse: bool,
    /// What happens to a request that was not recorded.
    #[serde(default)]
    extra: OnMiss,
    /// Whether dates are moved to now; true when absent.
    #[serde(default)]
    refresh: Option<bool>,
}

impl TryFrom<ReplayMap> for ReplayParams {
    type Error = String;

    fn try_from(m: ReplayMap) -> Result<Self, String> {
        let from = match (m.file, m.flows) {
            (Some(file), None) => ReplaySource::File(file),
            (None, Some(query)) => ReplaySource::Flows(query),
            _ => return Err("one of `file` and `flows` is needed".into()),
        };
        Ok(Self {
            from,
            ignore: m.ignore.0,
            ignore_form: m.ignore_form.0,
            headers: m.headers.0,
            reuse: m.reuse,
            extra: m.extra,
            refresh: m.refresh.unwrap_or(true),
            loaded: Arc::default(),
        })
    }
}
shorthand!(ReplayParams from ReplayMap by file);

/// A script.
#[derive(Clone, Debug)]
pub struct ScriptParams {
    /// Where it came from, for errors.
    pub name: String,
    /// Its text, or the file it is in.
    pub source: ScriptSource,
    /// How long one run may take.
    pub limit: Option<HumanDuration>,
    /// How much memory one run may take.
    pub memory: Option<ByteSize>,
    /// The script made ready.
    pub(crate) compiled: Arc<std::sync::OnceLock<Arc<crate::script::CompiledScript>>>,
}

/// Where a script is.
#[derive(Clone, Debug)]
pub enum ScriptSource {
    /// Here.
    Text(String),
    /// In a file.
    File(PathBuf),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptMap {
    /// The script.
    #[serde(default)]
    code: Option<String>,
    /// The file that it is in.
    #[serde(default)]
    file: Option<PathBuf>,
    /// How long one run may take; `rules.script_timeout` when absent.
    #[serde(default)]
    limit: Option<HumanDuration>,
    /// How much memory one run may take; `rules.script_memory` when absent.
    #[serde(default)]
    memory: Option<ByteSize>,
}

impl TryFrom<ScriptMap> for ScriptParams {
    type Error = String;

    fn try_from(m: ScriptMap) -> Result<Self, String> {
        let (name, source) = match (m.code, m.file) {
            (Some(code), None) => ("script".to_owned(), ScriptSource::Text(code)),
            (None, Some(file)) => (file.display().to_string(), ScriptSource::File(file)),
            _ => return Err("one of `code` and `file` is needed".into()),
        };
        Ok(Self { name, source, limit: m.limit, memory: m.memory, compiled: Arc::default() })
    }
}
shorthand!(ScriptParams from ScriptMap by code);
