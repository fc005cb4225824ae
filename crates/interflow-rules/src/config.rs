//! The `[rules]` section of the config.

use std::path::PathBuf;

use interflow_types::units::{ByteSize, HumanDuration};
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
    pub hold_timeout: HumanDuration,
    /// The most flows that are held at once; further ones are treated as if nobody had decided.
    pub max_held: usize,
    /// How long one run of a script may take.
    pub script_timeout: HumanDuration,
    /// How many instructions one run of a script may take. The steps of a text pattern, and the bytes that a function goes
    /// over, count too.
    pub script_instructions: u64,
    /// How much memory one run of a script may take.
    pub script_memory: ByteSize,
    /// How many scripts run at once, each on a thread apart from the workers.
    pub script_threads: usize,
    /// How many runs wait for a thread; further ones fail, and `on_failure` says what that means.
    pub script_queue: usize,
    /// How many values scripts keep in `store`; the oldest make room for new ones.
    pub store_entries: usize,
    /// How many bytes scripts keep in `store`.
    pub store_bytes: ByteSize,
    /// How long a value is kept in `store` when its script does not say.
    pub store_ttl: HumanDuration,
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
            hold_timeout: HumanDuration::from_secs(300),
            max_held: 256,
            script_timeout: HumanDuration::from_millis(50),
            script_instructions: 20_000_000,
            script_memory: ByteSize(16 << 20),
            script_threads: 4,
            script_queue: 1024,
            store_entries: 10_000,
            store_bytes: ByteSize(8 << 20),
            store_ttl: HumanDuration::from_secs(3600),
        }
    }
}
