//! The `[rules]` section of the config.

use std::path::PathBuf;

use interflow_flow::units::{ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rules: which files, and what holds where a rule says nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RulesConfig {
    /// Rule files in the order in which they are asked: ours in TOML or YAML, or Fluxzy's YAML. They are read again when they change.
    pub files: Vec<PathBuf>,
    /// The most of a body that is held for a rule that needs the whole of it.
    pub max_body: ByteSize,
    /// What happens to a flow when a rule cannot do its work: a body too large or in an unknown coding, a script or
    /// service that fails.
    pub on_failure: OnFailure,
    /// How long `hold` waits for a decision.
    pub hold_timeout: Span,
    /// The most flows that are held at once; further ones are treated as if nobody had decided.
    pub max_held: usize,
    /// How long one run of a script may take.
    pub script_timeout: Span,
    /// How much memory one run of a script may take.
    pub script_memory: ByteSize,
}

/// What happens to a flow when a rule cannot do its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The flow ends with an error.
    #[default]
    Deny,
    /// The flow goes on as if the rule were not there; the log says so.
    Pass,
}

impl Default for RulesConfig {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            max_body: ByteSize(16 << 20),
            on_failure: OnFailure::Deny,
            hold_timeout: Span::secs(300),
            max_held: 256,
            script_timeout: Span::millis(50),
            script_memory: ByteSize(16 << 20),
        }
    }
}
