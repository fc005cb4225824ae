//! Parameters of `replay` and `script`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Deserializer, de};

use super::value_types::yes;
use crate::text::shape::written_schema;
use crate::text::string_list::OneOrManyStrings;

/// Answers from a recording.
#[derive(Clone, Debug)]
pub struct ReplayParams {
    pub from: ReplaySource,
    /// Parts of the request that are ignored: `host`, `port`, `query`, `body`, or names of query parameters.
    pub ignore: Vec<String>,
    /// Form fields of the request's body that are ignored.
    pub ignore_form: Vec<String>,
    /// Request fields that must equal the recorded ones.
    pub headers: Vec<String>,
    /// Whether a response may be served more than once.
    pub reuse: bool,
    /// What happens to a request that was not recorded.
    pub extra: OnMiss,
    /// Whether dates are shifted to the present.
    pub refresh: bool,
    /// The recording, loaded with the rules and shared by clones; the error if that failed.
    pub(crate) loaded: Arc<std::sync::OnceLock<Result<crate::state::recording::ReplayIndex, String>>>,
}

/// Where recorded flows come from.
#[derive(Clone, Debug)]
pub enum ReplaySource {
    /// An archive, in any format that is imported.
    File(PathBuf),
    /// Recorded flows of this instance that a query selects when the rules are loaded.
    Flows(String),
}

/// What happens to a request that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMiss {
    /// It is sent to the origin.
    #[default]
    Forward,
    /// A response with this status.
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

written_schema!(OnMiss, "Extra", |_| json_schema!({ "anyOf": [
            { "enum": ["forward", "not_found", "abort", "kill"] },
            { "type": "integer", "minimum": 200, "maximum": 599 },
        ] }));

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplayMap {
    /// The archive, in any format that `interflow flows import` reads.
    file: Option<PathBuf>,
    /// In place of a file: a query for recorded flows of this instance, evaluated when the rules are loaded.
    flows: Option<String>,
    /// Parts of the request to ignore: `host`, `port`, `query`, `body`, or names of query parameters.
    #[serde(default)]
    ignore: OneOrManyStrings,
    /// Form fields of the request's body to ignore.
    #[serde(default)]
    ignore_form: OneOrManyStrings,
    /// Request fields that must equal the recorded ones; none when absent.
    #[serde(default)]
    headers: OneOrManyStrings,
    /// Whether a response may be served more than once; otherwise each is served once, in the recorded order.
    #[serde(default)]
    reuse: bool,
    /// What happens to a request that was not recorded: it is sent to the origin (`forward`), answered with 404
    /// (`not_found`) or this status, or its connection is closed (`abort`).
    #[serde(default)]
    extra: OnMiss,
    /// Whether dates are shifted to the present.
    #[serde(default = "yes")]
    refresh: bool,
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
            refresh: m.refresh,
            loaded: Arc::default(),
        })
    }
}
shorthand!(ReplayParams from ReplayMap by file);

/// A script and its limits.
#[derive(Clone, Debug)]
pub struct ScriptParams {
    /// The name in errors.
    pub name: String,
    pub source: ScriptSource,
    pub limit: Option<HumanDuration>,
    pub memory: Option<ByteSize>,
    /// Compiled once, on first use, and shared by clones.
    pub(crate) compiled: Arc<std::sync::OnceLock<Arc<crate::script::CompiledScript>>>,
}

/// Where the text of a script comes from.
#[derive(Clone, Debug)]
pub enum ScriptSource {
    Text(String),
    File(PathBuf),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptMap {
    /// The script.
    code: Option<String>,
    /// The file that it is in.
    file: Option<PathBuf>,
    /// Time limit of one run; `rules.script_timeout` when absent.
    limit: Option<HumanDuration>,
    /// Memory limit of one run; `rules.script_memory` when absent.
    memory: Option<ByteSize>,
}

impl TryFrom<ScriptMap> for ScriptParams {
    type Error = String;

    fn try_from(m: ScriptMap) -> Result<Self, String> {
        let (name, source) = match (m.code, m.file) {
            (Some(code), None) => ("script".to_owned(), ScriptSource::Text(code)),
            (None, Some(file)) => {
                // Without its folder: clients may see its errors.
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (name, ScriptSource::File(file))
            }
            _ => return Err("one of `code` and `file` is needed".into()),
        };
        Ok(Self { name, source, limit: m.limit, memory: m.memory, compiled: Arc::default() })
    }
}
shorthand!(ScriptParams from ScriptMap by code);
