//! The configuration of limits on LLM traffic and of virtual keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{CountBy, Quota};

/// Virtual keys: what clients show the gateway in place of a provider's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// Whether LLM requests at the gateway need a virtual key; when not, clients may bring the provider's own key. Left out,
    /// those from other machines need one where the gateway adds a key of its own (`llm.provider.NAME.key`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_virtual_key: Option<bool>,
    /// The keys file, written by `interflow keys`; relative to the data folder. None need be there.
    pub file: PathBuf,
    /// A header in which a virtual key may stand beside the provider's own credentials; it never goes upstream. Keys are
    /// also taken where the provider's SDK puts its key.
    pub header: String,
    /// The providers' keys that virtual keys stand for: `openai = "env:OPENAI_API_KEY"`; also `file:PATH`. Named by the
    /// gateway's upstream, by host, by `host:port`, or by provider; the last only counts for the provider's own hosts.
    pub provider: BTreeMap<String, String>,
}

impl Default for KeysConfig {
    fn default() -> Self {
        Self {
            require_virtual_key: None,
            file: "keys.toml".into(),
            header: "x-interflow-key".into(),
            provider: BTreeMap::new(),
        }
    }
}

/// Limits on requests, tokens and money of LLM traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaConfig {
    /// The rules; each one that fits a request must let it pass.
    pub rule: Vec<RuleConfig>,
    /// A price list (JSON) laid over the built-in one; relative to the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<PathBuf>,
    /// Tokens set aside at the start for an answer, until its usage is known; a smaller `max_tokens` of the request counts
    /// instead.
    pub reserve_output: u64,
    /// How long a concurrency slot is held at the most, whatever becomes of its request. Slots of a process that died come
    /// back sooner, by `shared.heartbeat`.
    pub slot_lease: HumanDuration,
    /// Counting together with other processes, through Redis.
    pub shared: SharedQuotaConfig,
}

impl Default for QuotaConfig {
    fn default() -> Self {
        Self {
            rule: Vec::new(),
            prices: None,
            reserve_output: 1_000,
            slot_lease: HumanDuration::from_secs(1_800),
            shared: SharedQuotaConfig::default(),
        }
    }
}

/// One rule: whom it counts, which requests, and how much is allowed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleConfig {
    /// The rule's name in answers, metrics and the API.
    pub name: String,
    /// Who is counted by itself: `global` (all together), `key`, `user`, `route`, `provider`, `model` or `client`.
    pub count_by: CountBy,
    /// Only requests with these virtual keys (ids, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Only requests of these users (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Only requests by these routes (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Only requests to these providers (names, with `*`); empty: all. `media` stands for the media endpoints, whose requests
    /// no other rule counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Only requests for these models (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How much is allowed.
    pub allow: Quota,
}

/// Limits shared through Redis, so that several processes hold one limit together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharedQuotaConfig {
    /// The server: `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS; also `env:NAME` or `file:PATH`.
    /// Without it everything is counted in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
    /// What the names of all keys on the server begin with.
    pub prefix: String,
    /// How long the server may take for one answer, connecting included.
    pub timeout: HumanDuration,
    /// How often each process tells the server that its concurrency slots are still held, from 100 ms to 10 min. A process
    /// that died gives its slots back after three times this.
    pub heartbeat: HumanDuration,
    /// What happens to requests while the server cannot be asked.
    pub failure: SharedFailureMode,
    /// The authority that signed the server's certificate (PEM), in place of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// A certificate to show the server (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl Default for SharedQuotaConfig {
    fn default() -> Self {
        Self {
            redis: None,
            prefix: "interflow:limits:".into(),
            timeout: HumanDuration::from_millis(250),
            heartbeat: HumanDuration::from_secs(5),
            failure: SharedFailureMode::Closed,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

/// What happens to requests while the shared counts cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SharedFailureMode {
    /// They are refused with 503.
    #[default]
    Closed,
    /// They pass uncounted.
    Open,
    /// They are counted in this process alone.
    Local,
}
