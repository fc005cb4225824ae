//! The `[rules]` section of the config.

use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

config_sections! {
    /// Rules: the rule files, and defaults for whatever a rule does not set.
    pub struct RulesConfig {
        /// Rule files in order of evaluation: Interflow's in TOML or YAML, or those of another program that this build reads.
        /// They are reloaded when they change.
        pub files: Vec<PathBuf>,
        /// Maximum size of a body that is buffered for a rule that needs the whole of it.
        pub max_body: ByteSize = ByteSize(16 << 20),
        /// What happens to a flow when a rule cannot be applied: it depends on content that is too large, in an unknown
        /// coding or charset, or JSON that is too complex; or its script fails.
        pub on_failure: OnFailure = OnFailure::Deny,
        /// How long `hold` waits for a decision.
        pub hold_timeout: HumanDuration = HumanDuration::from_secs(300),
        /// Maximum number of flows held at once; further ones are treated as undecided in time.
        pub max_held: usize = 256,
        /// Time limit of one run of a script.
        pub script_timeout: HumanDuration = HumanDuration::from_millis(50),
        /// Maximum number of instructions of one run of a script. The steps of a text pattern and the bytes that a function
        /// processes count too.
        pub script_instructions: u64 = 20_000_000,
        /// Memory limit of one run of a script.
        pub script_memory: ByteSize = ByteSize(16 << 20),
        /// How many scripts run concurrently, each on a thread apart from the workers.
        pub script_threads: usize = 4,
        /// How many runs may wait for a thread; further ones fail, subject to `on_failure`.
        pub script_queue: usize = 1024,
        /// How many values scripts may keep in `store`; the oldest are evicted.
        pub store_entries: usize = 10_000,
        /// How many bytes scripts may keep in `store`.
        pub store_bytes: ByteSize = ByteSize(8 << 20),
        /// How long a value is kept in `store` unless its script sets a time.
        pub store_ttl: HumanDuration = HumanDuration::from_secs(3600),
    }
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
