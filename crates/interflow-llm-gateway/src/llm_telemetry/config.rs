//! Configuration of the audit log and of tracing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::units::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The audit log: one JSON line per request to a provider, without content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// Whether the audit log is written.
    pub enabled: bool,
    /// The file, relative to the data directory; `-` for standard output.
    pub file: PathBuf,
    /// Whether each line contains the hash of the previous one, and `FILE.head` beside the log that of the last, so
    /// that changed, removed or truncated lines are detected (`interflow audit verify`).
    pub chain: bool,
    /// A secret for keyed hashes (HMAC), so that nobody without it can forge a chain: `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The size at which the file is rotated; the old one becomes `FILE.1`.
    pub rotate: ByteSize,
    /// Rotated files to keep.
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

/// Traces of requests to providers, exported over OTLP/HTTP with JSON. Unset keys default to OpenTelemetry's
/// environment variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector: `http://127.0.0.1:4318`. If neither this nor `OTEL_EXPORTER_OTLP_ENDPOINT` is set, nothing is
    /// exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Header fields for requests to the collector; values may be `env:NAME` or `file:PATH`.
    pub headers: BTreeMap<String, String>,
    /// The service's name.
    pub service: String,
    /// How long spans are batched before export.
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
