//! The `[llm]` section of the config.

use std::collections::BTreeMap;
use std::time::Duration;

use interflow_types::units::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// LLM providers: the gateway's doors to them, and what is read of requests to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmConfig {
    /// Whether the gateway port leads to providers: `/openai/v1/…`, `/anthropic/v1/…`, one door per upstream.
    pub gateway: bool,
    /// Whether the gateway port also takes the providers' own paths, so that only the host of a client changes:
    /// `/v1/chat/completions`, `/v1/messages`, `/model/…/converse`.
    pub native_paths: bool,
    /// The largest request whose model and length are read; larger ones go on without.
    pub max_body: ByteSize,
    /// What is done with telemetry that agents send to their provider: Claude Code's event log, Codex's analytics, traces of
    /// OpenAI's Agents SDK, OTLP and statsig at a provider's host.
    pub telemetry: TelemetryRule,
    /// Other names for models, in all upstreams: the client's name on the left. What stands on the right may itself be an
    /// alias, or a name in an upstream's `models`.
    pub aliases: BTreeMap<String, String>,
    /// Upstreams by name, which is the first part of their paths. The providers are there already; what is set for one of
    /// them here replaces its default.
    pub provider: BTreeMap<String, LlmUpstreamConfig>,
}

/// What is done with an agent's telemetry to its provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TelemetryRule {
    /// It passes; where prompts are redacted, so is its text.
    #[default]
    Redact,
    /// It passes as it is, even where prompts are redacted.
    Pass,
    /// It is refused with 403, `telemetry_refused`.
    Refuse,
}

/// Where an upstream's credentials come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialsMode {
    /// From the surroundings of the process: variables, files, metadata services.
    Ambient,
}

/// A provider, or a server that speaks a provider's API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmUpstreamConfig {
    /// Whose API it speaks: `openai`, `azure`, `anthropic`, `gemini`, `vertex`, `bedrock`, `ollama`, `cohere`, `mistral`.
    /// By its name, else `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where it is: `https://host/path`. Paths go behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The gateway's own key, `env:NAME` or `file:PATH`, sent in place of the client's. Without one the client's goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Other names for models at this upstream; they go before `llm.aliases`. What stands on the right is looked up again. A
    /// fallback without a name for a model takes the one that the first upstream gives it.
    pub models: BTreeMap<String, String>,
    /// Upstreams of the same API that are tried in turn when this one fails, each followed by its own fallbacks; none is
    /// asked twice.
    pub fallback: Vec<String>,
    /// How often each upstream is tried.
    pub attempts: u32,
    /// How long all attempts together may take until an answer begins.
    pub budget: HumanDuration,
    /// Statuses after which another attempt is made.
    pub retry_on: Vec<u16>,
    /// Failures in a row after which the upstream is left alone; 0 for never.
    pub breaker_failures: u32,
    /// How long it is left alone; then one request tries it.
    pub breaker_pause: HumanDuration,
    /// Where the credentials of a cloud come from, when the configuration holds none: `ambient` takes those that the machine,
    /// the container or the pod is given, as the cloud's own SDKs find them. For bedrock, azure, vertex and gemini.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsMode>,
    /// Azure's `api-version`, for requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Bedrock's region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Bedrock: the access key that requests are signed with, `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key: Option<String>,
    /// Bedrock: the secret key that belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<String>,
    /// Bedrock: the token of temporary credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
    /// Bedrock: the keys of this profile in AWS's credentials file (`AWS_SHARED_CREDENTIALS_FILE`, else
    /// `~/.aws/credentials`), where `access_key` is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Bedrock: the role that is assumed with these keys; requests are signed with what it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
    /// Vertex: the key file of a service account, `file:PATH` or its JSON in `env:NAME`. Requests carry tokens that are
    /// fetched with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Azure: the Entra tenant that `client_id` and `client_secret` belong to. Requests carry tokens that are fetched with
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Azure: the application's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Azure: the application's secret, `env:NAME` or `file:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Azure: what the token is asked for; `https://cognitiveservices.azure.com/.default` unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Where tokens are fetched, in place of Entra's address or AWS's token service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
}

impl Default for LlmConfig {
    fn default() -> Self {
        Self {
            gateway: true,
            native_paths: true,
            max_body: ByteSize(50 << 20),
            telemetry: TelemetryRule::default(),
            aliases: BTreeMap::new(),
            provider: BTreeMap::new(),
        }
    }
}

impl Default for LlmUpstreamConfig {
    fn default() -> Self {
        Self {
            kind: None,
            url: None,
            api_key: None,
            models: BTreeMap::new(),
            fallback: Vec::new(),
            attempts: 1,
            budget: HumanDuration(Duration::from_secs(60)),
            retry_on: vec![429, 500, 502, 503, 504, 529],
            breaker_failures: 0,
            breaker_pause: HumanDuration(Duration::from_secs(30)),
            credentials: None,
            api_version: None,
            region: None,
            access_key: None,
            secret_key: None,
            session_token: None,
            profile: None,
            role_arn: None,
            service_account: None,
            tenant: None,
            client_id: None,
            client_secret: None,
            scope: None,
            token_url: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_section_is_the_default_and_unknown_keys_are_refused() {
        assert_eq!(serde_json::from_str::<LlmConfig>("{}").unwrap(), LlmConfig::default());
        assert!(serde_json::from_str::<LlmConfig>(r#"{"provider": {"openai": {"target": "x"}}}"#).is_err());
        let c: LlmConfig =
            serde_json::from_str(r#"{"provider": {"local": {"url": "http://127.0.0.1:8000"}}}"#).unwrap();
        assert_eq!(c.provider["local"].attempts, 1);
    }
}
