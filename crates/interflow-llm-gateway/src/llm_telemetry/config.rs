//! The configuration of audit lines and of spans.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::units::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The audit log: one line of JSON for each request to a provider; never any content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// Whether lines are written.
    pub enabled: bool,
    /// The file, relative to the data folder; `-` for standard output.
    pub file: PathBuf,
    /// Whether each line holds the hash of the one before it, and `FILE.head` beside the log that of the last, so that a line
    /// that was changed, taken out or cut off shows (`interflow audit verify`).
    pub chain: bool,
    /// A secret that the hashes are made with, so that nobody without it can make a chain anew: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The size at which a new file is begun; the old one becomes `FILE.1`.
    pub rotate: ByteSize,
    /// How many old files are kept.
    pub keep: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            file: "audit.jsonl".into(),
            chain: true,
            key: None,
            rotate: ByteSize(100_000_000),
            keep: 10,
        }
    }
}

/// Spans of requests to providers, sent to a collector over OTLP/HTTP with JSON. What is left open here is filled in by
/// OpenTelemetry's variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and their kin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector: `http://127.0.0.1:4318`. Without it, and without `OTEL_EXPORTER_OTLP_ENDPOINT`, no spans are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Header fields for the collector; values may be `env:NAME` or `file:PATH`.
    pub headers: BTreeMap<String, String>,
    /// The service's name.
    pub service: String,
    /// How long spans are gathered before they are sent together.
    pub interval: HumanDuration,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: BTreeMap::new(),
            service: "interflow".into(),
            interval: HumanDuration::from_secs(5),
        }
    }
}
