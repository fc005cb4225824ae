//! The `[redact]` section of the config.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::ByteSize;
use serde::{Deserialize, Serialize};

use crate::{BackendConfig, FindingCache, ModelConfig};

/// The name under which the policy of `[redact]` itself is selected.
pub const MAIN_POLICY: &str = "default";

config_sections! {
    /// Redaction of personal data and secrets in traffic to LLM providers: what is redacted, where, and what is restored.
    pub struct RedactConfig {
        /// What is done with requests to providers through the gateway.
        pub gateway: RedactMode = RedactMode::Redact,
        /// What is done with requests to providers that clients send through the proxy.
        pub proxied: RedactMode = RedactMode::Flag,
        /// The policy file: Interflow's TOML, or Phileas's JSON. If unset, `policy.toml` in the data directory, which the web
        /// UI writes; if that does not exist, the built-in policy redacts all personal data and every secret. Relative to the
        /// data directory.
        pub policy: Option<PathBuf>,
        /// Further policy files, by the names under which virtual keys select them (`policy = "NAME"` in the keys file) and
        /// clients of `/api/filter` (`p`). `default` is the policy above. Relative to the data directory.
        pub policies: BTreeMap<String, PathBuf>,
        /// The context that a policy's conditions may test.
        pub context: String,
        /// Whether placeholders in responses are replaced by the original values.
        pub restore: bool = true,
        /// What is done with personal data and secrets in responses. If enabled, a stream is delayed by about 200 bytes per
        /// text. Where requests are only flagged, responses are too.
        pub responses: OutboundMode = OutboundMode::Off,
        /// Whether members that only describe a request (`metadata`, `user`, `labels`) are inspected too.
        pub metadata: bool = true,
        /// What is done with personal data and secrets in the path and query of a provider's URL. The model's name is
        /// not inspected.
        pub url: AddressRule = AddressRule::Redact,
        /// What is done with personal data and secrets in header fields that neither HTTP nor the provider nor its SDK
        /// defines. Credentials are not inspected.
        pub headers: AddressRule = AddressRule::Redact,
        /// What is done with requests to a provider whose body has an unknown format, so that the position of its text is
        /// not certain.
        pub unknown: UnknownRule = UnknownRule::Refuse,
        /// What is done with images and videos in prompts.
        pub images: MediaRule = MediaRule::Pass,
        /// What is done with audio in prompts and in uploads.
        pub audio: MediaRule = MediaRule::Pass,
        /// What is done with documents that are not plain text, such as PDF.
        pub documents: MediaRule = MediaRule::Pass,
        /// Maximum decoded size of a request or a complete response that is inspected; larger ones are rejected.
        pub max_body: ByteSize = ByteSize(50 << 20),
        /// How many texts of conversations are cached with their findings, so that a history is not scanned again with
        /// every turn.
        pub finding_cache_size: usize = 20_000,
        /// How much memory these findings may take. It counts towards `limits.held_bytes`, of which it is an eighth at most.
        pub finding_cache_bytes: ByteSize = ByteSize(FindingCache::DEFAULT_MAX_BYTES as u64),
        /// How many conversations that a provider continues by an id are remembered, for their placeholders.
        pub conversations: usize = 1_000,
        /// The secret from which placeholders are derived, the same for every replica: `env:NAME` or `file:PATH`. If unset,
        /// one is generated in the data directory.
        pub secret: Option<String>,
        /// External PII detectors that are called before a request is sent.
        pub backend: Vec<BackendConfig>,
        /// A model of names that runs in this process and whose findings are weighed with those of the built-in detectors;
        /// for requests that are redacted.
        pub model: Option<ModelConfig>,
        /// Exceptions in order; the first match applies, and what it does not set stays as above.
        pub route: Vec<RedactRoute>,
    }
}

/// What is done with a request.
// The strictest is the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedactMode {
    /// Findings are replaced, and restored in the response.
    #[default]
    Redact,
    /// Findings are reported by tags; nothing is changed.
    Flag,
    /// Requests are not inspected.
    Off,
}

/// What is done with findings in a response.
// The strictest is the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutboundMode {
    /// Responses are not inspected.
    #[default]
    Off,
    /// Findings are logged and tagged; nothing is changed.
    Flag,
    /// Findings are replaced.
    Redact,
    /// A response with findings is rejected; a stream ends with an error before them.
    Block,
}

/// What is done with a request in an unknown format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownRule {
    /// It is rejected.
    #[default]
    Refuse,
    /// All of it is text: every string, number and name of JSON, or the body as a whole. Rejected if it is neither JSON
    /// nor a form nor UTF-8.
    Scan,
    /// It is forwarded unchanged.
    Pass,
}

/// What is done with findings in a URL or in header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressRule {
    /// They are replaced.
    #[default]
    Redact,
    /// The request is rejected.
    Refuse,
    /// URL and header fields are not inspected.
    Pass,
}

/// What is done with media that cannot be inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediaRule {
    /// It is forwarded.
    #[default]
    Pass,
    /// It is replaced by a note that it was removed.
    Drop,
    /// The request is rejected.
    Refuse,
}

config_sections! {
    /// An exception for some requests. All conditions that are set must match.
    pub struct RedactRoute {
        /// Its name where findings are counted by route; `route 1` and so on, by position, when absent.
        pub name: Option<String>,
        /// A prefix of the path.
        pub path: Option<String>,
        /// Header fields that must have these values.
        pub headers: Option<BTreeMap<String, String>>,
        /// The model as named by the client; a trailing `*` matches anything.
        pub model: Option<String>,
        /// The gateway's name of the upstream, or the provider's.
        pub upstream: Option<String>,
        /// The authenticated user.
        pub user: Option<String>,
        /// Overrides the mode.
        pub mode: Option<RedactMode>,
        /// Overrides the policy file; relative to the data directory.
        pub policy: Option<PathBuf>,
        /// Overrides the context.
        pub context: Option<String>,
        /// Overrides whether responses are restored.
        pub restore: Option<bool>,
        /// Overrides what is done with findings in responses.
        pub responses: Option<OutboundMode>,
    }
}

impl RedactConfig {
    /// Whether a virtual key may select the policy of this name.
    pub fn has_policy(&self, name: &str) -> bool {
        name == MAIN_POLICY || self.policies.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use interflow_codec::document::from_toml;

    use super::*;

    #[test]
    fn default_modes_are_redact_for_gateway_and_flag_for_proxied() {
        let config: RedactConfig = from_toml("").unwrap();
        assert_eq!(config, RedactConfig::default());
        assert_eq!((config.gateway, config.proxied), (RedactMode::Redact, RedactMode::Flag));
        assert!(from_toml::<RedactConfig>("intercept = 'off'").is_err());
        let route: RedactConfig = from_toml("[[route]]\nmodel = 'x*'\nresponses = 'block'").unwrap();
        assert_eq!((route.route[0].responses, route.route[0].mode), (Some(OutboundMode::Block), None));
    }
}
