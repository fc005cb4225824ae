//! The configuration of limits on LLM traffic and of virtual keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{CountBy, Quota};

/// Virtual keys: what clients present to the gateway in place of a provider's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// Whether LLM requests at the gateway need a virtual key; if not, clients may send the provider's own key. If
    /// unset, a virtual key is required from other machines wherever the gateway adds a key of its own
    /// (`llm.provider.NAME.key`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_virtual_key: Option<bool>,
    /// The keys file, written by `interflow keys`; relative to the data folder. It need not exist.
    pub file: PathBuf,
    /// A header that may carry a virtual key beside the provider's own credentials; it is never forwarded upstream.
    /// Keys are also accepted where the provider's SDK puts its key.
    pub header: String,
    /// The providers' keys that replace virtual keys: `openai = "env:OPENAI_API_KEY"`; also `file:PATH`. Named by the
    /// gateway's upstream, by host, by `host:port`, or by provider; the last applies only to the provider's own hosts.
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
    /// The rules; a request must be admitted by every rule that matches it.
    pub rule: Vec<RuleConfig>,
    /// A price list (JSON) that overrides the built-in one; relative to the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<PathBuf>,
    /// Output tokens reserved when a request starts, until its usage is known; a smaller `max_tokens` of the request
    /// takes precedence.
    pub reserve_output: u64,
    /// Maximum time a concurrency slot is held, even if its request does not end. Slots of a dead process are freed
    /// sooner, by `shared.heartbeat`.
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

/// One rule: whom it counts, which requests it matches, and how much it allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "QuotaRule")]
pub struct RuleConfig {
    /// The rule's name in responses, metrics and the API.
    pub name: String,
    /// What is counted separately: `global` (everything together), `key`, `user`, `route`, `provider`, `model` or
    /// `client`.
    pub count_by: CountBy,
    /// Only requests with these virtual keys (ids, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Only requests of these users (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Only requests on these routes (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Only requests to these providers (names, with `*`); empty: all. `media` means the media endpoints, whose
    /// requests are counted only by rules that name it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Only requests for these models (names, with `*`); empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How much is allowed.
    pub allow: Quota,
}

/// Limits shared through Redis, so that several processes enforce one limit together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharedQuotaConfig {
    /// The server: `redis://[user:password@]host[:port][/db]`, or `rediss://` for TLS; also `env:NAME` or `file:PATH`.
    /// If unset, counters are local to this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
    /// Prefix of all key names on the server.
    pub prefix: String,
    /// Timeout of one command, connecting included.
    pub timeout: HumanDuration,
    /// How often each process renews its concurrency slots on the server, from 100 ms to 10 min. Slots of a dead
    /// process are freed after three times this.
    pub heartbeat: HumanDuration,
    /// What happens to requests while the server is unreachable.
    pub failure: SharedFailureMode,
    /// The CA that signed the server's certificate (PEM), in place of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The client certificate to present to the server (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The private key of that certificate (PEM).
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

/// What happens to requests while the shared counters are unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SharedFailureMode {
    /// Requests are rejected with 503.
    #[default]
    Closed,
    /// Requests are admitted without being counted.
    Open,
    /// Requests are counted in this process only.
    Local,
}
