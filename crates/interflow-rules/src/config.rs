//! The `[rules]` section of the config.

use std::path::PathBuf;

use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

/// Rules: the rule files, and defaults for whatever a rule does not set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RulesConfig {
    /// Rule files in order of evaluation: Interflow's in TOML or YAML, or those of another program that this build reads.
    /// They are reloaded when they change.
    pub files: Vec<PathBuf>,
    /// Maximum size of a body that is buffered for a rule that needs the whole of it.
    pub max_body: ByteSize,
    /// What happens to a flow when a rule cannot be applied: it depends on content that is too large, in an unknown
    /// coding or charset, or JSON that is too complex; or its script fails.
    pub on_failure: OnFailure,
    /// How long `hold` waits for a decision.
    pub hold_timeout: HumanDuration,
    /// Maximum number of flows held at once; further ones are treated as undecided in time.
    pub max_held: usize,
    /// Time limit of one run of a script.
    pub script_timeout: HumanDuration,
    /// Maximum number of instructions of one run of a script. The steps of a text pattern and the bytes that a function
    /// processes count too.
    pub script_instructions: u64,
    /// Memory limit of one run of a script.
    pub script_memory: ByteSize,
    /// How many scripts run concurrently, each on a thread apart from the workers.
    pub script_threads: usize,
    /// How many runs may wait for a thread; further ones fail, subject to `on_failure`.
    pub script_queue: usize,
    /// How many values scripts may keep in `store`; the oldest are evicted.
    pub store_entries: usize,
    /// How many bytes scripts may keep in `store`.
    pub store_bytes: ByteSize,
    /// How long a value is kept in `store` unless its script sets a time.
    pub store_ttl: HumanDuration,
}

/// What happens to a flow when a rule cannot be applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The flow ends with an error.
    #[default]
    Deny,
    /// The flow continues as if the rule did not exist; a warning is logged.
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
