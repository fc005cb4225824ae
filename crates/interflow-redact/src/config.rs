//! The `[redact]` section of the config.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interflow_types::units::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BackendConfig;

/// The name of the policy that holds where nothing names another one.
pub const MAIN_POLICY: &str = "default";

/// Personal data and secrets on the way to LLM providers: what is taken out, where, and what comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedactConfig {
    /// What is done with requests to providers through the gateway.
    pub gateway: RedactMode,
    /// What is done with requests to providers that clients send through the proxy.
    pub proxied: RedactMode,
    /// The file of the policy: our TOML, or Phileas's JSON. When absent, `policy.toml` of the data folder, where the web UI
    /// writes; without that file the built-in policy takes out everything that tells of a person, and every secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// The files of further policies, by the names under which virtual keys ask for them (`policy = "NAME"` in the keys file)
    /// and clients of `/api/filter` (`p`). `default` is the policy above.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, PathBuf>,
    /// The context that a policy's conditions may ask for.
    pub context: String,
    /// Whether answers get their originals back.
    pub restore: bool,
    /// What is done with personal data and secrets in answers. A stream is held back by some 200 bytes per text then. Where
    /// requests are only flagged, answers are too.
    pub responses: OutboundMode,
    /// Whether members that only describe a request (`metadata`, `user`, `labels`) are looked at too.
    pub metadata: bool,
    /// What is done with personal data and secrets in the path and query of a provider's URL. The model's name and the
    /// parameters that the API defines are not looked at.
    pub url: AddressRule,
    /// What is done with personal data and secrets in header fields that neither HTTP nor the provider nor its SDK
    /// defines. Credentials are not looked at.
    pub headers: AddressRule,
    /// What is done with requests to a provider whose bodies are of no shape that is known, where their text would have to
    /// be guessed at.
    pub unknown: UnknownRule,
    /// What is done with images and films in prompts.
    pub images: MediaRule,
    /// What is done with sound in prompts and with uploads of it.
    pub audio: MediaRule,
    /// What is done with documents that hold no plain text, such as PDF.
    pub documents: MediaRule,
    /// The largest request or whole answer that is looked into, content codings undone; larger ones are refused.
    pub max_body: ByteSize,
    /// How many texts of conversations are known again, so that a history is not looked at anew with every turn.
    pub finding_cache_size: usize,
    /// How many conversations that a provider continues by an id are remembered, for their placeholders.
    pub conversations: usize,
    /// The secret that placeholders are made with, the same for every replica: `env:NAME` or `file:PATH`. One is made in
    /// the data folder when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Services that are asked what they find too, before a request goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backend: Vec<BackendConfig>,
    /// Exceptions, asked in order; the first one that matches counts, and what it does not say stays as it is above.
    pub route: Vec<RedactRoute>,
}

/// What is done with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedactMode {
    /// What is found is taken out, and put back into the answer.
    #[default]
    Redact,
    /// What would be taken out is shown by tags; nothing is changed.
    Flag,
    /// Nothing is looked at.
    Off,
}

/// What is done with findings in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutboundMode {
    /// Answers are not looked at.
    #[default]
    Off,
    /// Findings are logged and tagged; nothing is changed.
    Flag,
    /// Findings are replaced.
    Redact,
    /// An answer with findings is refused; a stream ends with an error before them.
    Block,
}

/// What is done with a request of an unknown shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownRule {
    /// It is refused.
    #[default]
    Refuse,
    /// It goes on as it is.
    Pass,
}

/// What is done with findings in a URL or in header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressRule {
    /// They are replaced.
    #[default]
    Redact,
    /// The request is refused.
    Refuse,
    /// Nothing is looked at.
    Pass,
}

/// What is done with a medium that cannot be looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediaRule {
    /// It goes on.
    #[default]
    Pass,
    /// A note that it was removed goes on in its place.
    Drop,
    /// The request is refused.
    Refuse,
}

/// An exception for some requests. All conditions given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedactRoute {
    /// What it is called where findings are counted by route; `route 1` and so on, by its place, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Header fields with these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The model, as the client names it; `*` at the end stands for anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The gateway's name of the upstream, or the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The authenticated user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is done then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<RedactMode>,
    /// The policy's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// The context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Whether answers get their originals back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<bool>,
    /// What is done with findings in answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<OutboundMode>,
}

impl RedactConfig {
    /// Whether a virtual key may ask for the policy of this name.
    pub fn has_policy(&self, name: &str) -> bool {
        name == MAIN_POLICY || self.policies.contains_key(name)
    }
}

impl Default for RedactConfig {
    fn default() -> Self {
        Self {
            gateway: RedactMode::Redact,
            proxied: RedactMode::Flag,
            policy: None,
            policies: BTreeMap::new(),
            context: String::new(),
            restore: true,
            responses: OutboundMode::Off,
            metadata: true,
            url: AddressRule::Redact,
            headers: AddressRule::Redact,
            unknown: UnknownRule::Refuse,
            images: MediaRule::Pass,
            audio: MediaRule::Pass,
            documents: MediaRule::Pass,
            max_body: ByteSize(50 << 20),
            finding_cache_size: 20_000,
            conversations: 1_000,
            secret: None,
            backend: Vec::new(),
            route: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_redacts_and_what_is_intercepted_is_only_flagged() {
        let config: RedactConfig = toml::from_str("").unwrap();
        assert_eq!(config, RedactConfig::default());
        assert_eq!((config.gateway, config.proxied), (RedactMode::Redact, RedactMode::Flag));
        assert!(toml::from_str::<RedactConfig>("intercept = 'off'").is_err());
        let route: RedactConfig = toml::from_str("[[route]]\nmodel = 'x*'\nresponses = 'block'").unwrap();
        assert_eq!((route.route[0].responses, route.route[0].mode), (Some(OutboundMode::Block), None));
    }
}
