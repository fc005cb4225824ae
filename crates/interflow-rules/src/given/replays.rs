//! Parameters of recordings and scripts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use interflow_flow::units::{ByteSize, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use crate::when::Texts;

/// A recording to answer from.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The HAR file.
    pub file: PathBuf,
    /// Parts of the request that do not matter: `host`, `port`, `query`, `body`, or names of query parameters.
    pub ignore: Vec<String>,
    /// Whether an answer may be given again.
    pub reuse: bool,
    /// What happens to a request that was not recorded.
    pub extra: Extra,
    /// Whether dates are moved to now.
    pub refresh: bool,
    /// The recording once it was read.
    pub(crate) loaded: Arc<std::sync::OnceLock<Result<crate::replay::Recording, String>>>,
}

/// What happens to a request that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    /// It goes on to the origin.
    #[default]
    Forward,
    /// It is answered with 404.
    NotFound,
    /// The client's connection is closed.
    Abort,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplayMap {
    /// The HAR file.
    file: PathBuf,
    /// Parts of the request that do not matter: `host`, `port`, `query`, `body`, or names of query parameters.
    #[serde(default)]
    ignore: Texts,
    /// Whether an answer may be given again; otherwise each is given once, in the recorded order.
    #[serde(default)]
    reuse: bool,
    /// What happens to a request that was not recorded.
    #[serde(default)]
    extra: Extra,
    /// Whether dates are moved to now; true when absent.
    #[serde(default)]
    refresh: Option<bool>,
}

impl TryFrom<ReplayMap> for Replay {
    type Error = String;

    fn try_from(m: ReplayMap) -> Result<Self, String> {
        Ok(Self {
            file: m.file,
            ignore: m.ignore.0,
            reuse: m.reuse,
            extra: m.extra,
            refresh: m.refresh.unwrap_or(true),
            loaded: Arc::default(),
        })
    }
}
shorthand!(Replay from ReplayMap by file);

/// A script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Where it came from, for errors.
    pub name: String,
    /// Its text, or the file it is in.
    pub source: ScriptSource,
    /// How long one run may take.
    pub limit: Option<Span>,
    /// How much memory one run may take.
    pub memory: Option<ByteSize>,
    /// The script made ready.
    pub(crate) compiled: Arc<std::sync::OnceLock<Arc<crate::script::Compiled>>>,
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
    limit: Option<Span>,
    /// How much memory one run may take; `rules.script_memory` when absent.
    #[serde(default)]
    memory: Option<ByteSize>,
}

impl TryFrom<ScriptMap> for Script {
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
shorthand!(Script from ScriptMap by code);
