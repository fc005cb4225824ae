//! Configuration of the audit log and of tracing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

config_sections! {
    /// The audit log: one JSON line per request to a provider, without content.
    pub struct AuditConfig {
        /// Whether the audit log is written.
        pub enabled: bool,
        /// The file, relative to the data directory; `-` for standard output.
        pub file: PathBuf = "audit.jsonl".into(),
        /// Whether each line contains the hash of the previous one, and `FILE.head` beside the log that of the last, so
        /// that changed, removed or truncated lines are detected (`interflow audit verify`).
        pub chain: bool = true,
        /// A secret for keyed hashes (HMAC), without which a chain cannot be forged: `env:NAME` or `file:PATH`.
        pub key: Option<String>,
        /// The size at which the file is rotated; the old one becomes `FILE.1`.
        pub rotate: ByteSize = ByteSize(100_000_000),
        /// Rotated files to keep.
        pub keep: u32 = 10,
    }
}

/// What spans have of the texts of requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContentMode {
    /// Nothing.
    #[default]
    None,
    /// What the provider gets and sends: with placeholders. Nothing of requests that are not redacted.
    Redacted,
    /// What the client sends and gets, personal data and secrets included.
    Full,
}

/// A set of attributes' names. All of them describe the same span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttributeSet {
    /// OpenTelemetry's conventions for generative AI.
    #[serde(rename = "gen_ai")]
    GenAi,
    /// Names that these conventions had before August 2026.
    #[serde(rename = "gen_ai_legacy")]
    GenAiLegacy,
    /// OpenInference's, for Arize Phoenix and others.
    OpenInference,
    /// Langfuse's.
    Langfuse,
}

config_sections! {
    /// Where events of LLM traffic are posted to, as JSON in batches.
    pub struct TelemetryWebhookConfig {
        /// The address: `https://host/path`; also `env:NAME` or `file:PATH`, since it often holds a secret.
        pub url: String,
        /// The events: `request` (every request that ended), `refused` (by Interflow), `failed` (at the provider).
        pub events: Vec<WebhookEvent> = vec![WebhookEvent::Refused, WebhookEvent::Failed],
        /// The secret that batches are signed with, as Standard Webhooks have it: `env:NAME` or `file:PATH`; one that
        /// begins with `whsec_` is Base64.
        pub secret: Option<String>,
        /// Header fields; values may be `env:NAME` or `file:PATH`.
        pub headers: BTreeMap<String, String>,
        /// How long events are collected before they are sent, at most 100 at once.
        pub interval: HumanDuration = HumanDuration::from_secs(2),
        /// Time limit of a delivery. One that fails is repeated five times, after pauses from a second to half a
        /// minute.
        pub timeout: HumanDuration = HumanDuration::from_secs(10),
        /// Events that may wait; further ones are dropped and counted.
        pub max_queue: u32 = 10_000,
    }
}

/// An event that a webhook is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookEvent {
    /// A request has ended, well or not.
    Request,
    /// Interflow refused a request or cut a response off.
    Refused,
    /// The provider failed, or answered with an error.
    Failed,
}

config_sections! {
    /// Traces of requests to providers, exported over OTLP/HTTP with JSON. Unset keys default to OpenTelemetry's
    /// environment variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and others.
    pub struct TelemetryConfig {
        /// The collector: `http://127.0.0.1:4318`. If neither this nor `OTEL_EXPORTER_OTLP_ENDPOINT` is set, nothing is
        /// exported.
        pub endpoint: Option<String>,
        /// Header fields for requests to the collector; values may be `env:NAME` or `file:PATH`.
        pub headers: BTreeMap<String, String>,
        /// The service's name.
        pub service: String = "interflow".into(),
        /// How long spans are batched before export.
        pub interval: HumanDuration = HumanDuration::from_secs(5),
        /// What spans have of the texts of requests and responses: `none`, `redacted` (what the provider gets, and
        /// nothing of requests that are not redacted) or `full` (personal data and secrets included).
        pub content: ContentMode = ContentMode::None,
        /// Maximum size of an attribute with texts; of a conversation the latest messages stay.
        pub max_content: ByteSize = ByteSize(64 << 10),
        /// Names of attributes: `gen_ai`, and beside it `gen_ai_legacy`, `openinference`, `langfuse`.
        pub attributes: Vec<AttributeSet> = vec![AttributeSet::GenAi],
        /// Webhooks for events, independent of the collector.
        pub webhook: Vec<TelemetryWebhookConfig>,
    }
}
