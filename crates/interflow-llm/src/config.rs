//! The `[llm]` section of the config.

use std::collections::BTreeMap;
use std::time::Duration;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::{GuardrailConfig, LlmRouteConfig, ResponseCacheConfig};

config_sections! {
    /// LLM providers: the gateway's endpoints for them, and how requests to them are parsed.
    pub struct LlmConfig {
        /// Whether the gateway port has endpoints for providers: `/openai/v1/…`, `/anthropic/v1/…`, one per upstream.
        pub gateway: bool = true,
        /// Whether the gateway port also accepts the providers' own paths, so that only the host of a client changes:
        /// `/v1/chat/completions`, `/v1/messages`, `/model/…/converse`.
        pub native_paths: bool = true,
        /// Maximum size of a request whose model and token count are read; larger ones are forwarded without.
        pub max_body: ByteSize = ByteSize(50 << 20),
        /// What is done with telemetry that agents send to their provider: Claude Code's event log, Codex's analytics,
        /// traces of OpenAI's Agents SDK, OTLP and statsig at a provider's host.
        pub telemetry: TelemetryRule,
        /// Model aliases for all upstreams, with the client's name on the left. The name on the right may itself be an
        /// alias, or a name in an upstream's `models`.
        pub aliases: BTreeMap<String, String>,
        /// Upstreams by name, which is the first segment of their paths. The known providers are predefined; a setting
        /// here replaces the default.
        pub provider: BTreeMap<String, LlmUpstreamConfig>,
        /// Models that several deployments serve, by the name that clients ask for.
        pub route: BTreeMap<String, LlmRouteConfig>,
        /// Checks of the texts of requests and responses, by a name of the operator's choice.
        pub guardrail: BTreeMap<String, GuardrailConfig>,
        /// Responses of OpenAI's Responses API whose deployment is remembered, so that a request that continues one
        /// (`previous_response_id`) is sent there. The oldest are forgotten first; 0 remembers none.
        pub response_pins: usize = 10_000,
        /// The response cache.
        pub cache: ResponseCacheConfig,
    }
}

/// What is done with an agent's telemetry to its provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TelemetryRule {
    /// It is forwarded; where prompts are redacted, so is its text.
    #[default]
    Redact,
    /// It is forwarded unchanged, even where prompts are redacted.
    Pass,
    /// It is rejected with 403, `telemetry_refused`.
    Refuse,
}

/// The source of an upstream's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialsMode {
    /// From the environment of the process: variables, files, metadata services.
    Ambient,
}

config_sections! {
    /// A provider, or a server with a provider's API.
    pub struct LlmUpstreamConfig {
        /// Its API: `openai`, `azure`, `anthropic`, `gemini`, `vertex`, `bedrock`, `ollama`, `cohere`, `mistral`; or
        /// another predefined provider, such as `groq`. Derived from its name if unset, else from its format, else
        /// `openai`.
        pub kind: Option<String>,
        /// The wire format of chat requests sent to it: `anthropic`, `openai_chat`, `openai_responses`, `gemini`,
        /// `bedrock`, `cohere`, `ollama`, `mistral`. Requests of clients with another API (the first five, and Google's
        /// Interactions) are translated. If unset, those formats that its API has are sent as they are: a server with
        /// OpenAI's API is taken to have both of OpenAI's.
        pub format: Option<String>,
        /// Limit on output tokens of translated requests that have none, for APIs that require one (Anthropic's).
        pub max_tokens: u64 = 8_192,
        /// Translated requests get a message of the assistant, `OK.`, between the result of a tool and the user's
        /// words, which some chat templates and APIs demand. Unset: for Mistral's API.
        pub assistant_after_tools: Option<bool>,
        /// The base URL: `https://host/path`. Request paths are appended.
        pub url: Option<String>,
        /// The gateway's own key, `env:NAME` or `file:PATH`, sent in place of the client's. If unset, the client's key
        /// is forwarded.
        pub api_key: Option<String>,
        /// Model names at this upstream; they take precedence over `llm.aliases`. The name on the right is looked up
        /// again. A fallback without a name for a model uses the one of the first upstream.
        pub models: BTreeMap<String, String>,
        /// Upstreams that are tried in turn when this one fails, each followed by its own fallbacks; none is tried
        /// twice. For one with another API, chat requests are translated.
        pub fallback: Vec<String>,
        /// Attempts per upstream.
        pub attempts: u32 = 1,
        /// Time limit of all attempts together until a response begins.
        pub budget: HumanDuration = HumanDuration(Duration::from_secs(60)),
        /// Time limit of one attempt at this provider until its response begins; then the next attempt is made. Unset:
        /// only `budget`. Applies where requests may be repeated: with `attempts` or `fallback`.
        pub attempt_timeout: Option<HumanDuration>,
        /// Time limit of one attempt at a stream until its first token. Unset: `attempt_timeout`, which ends with the
        /// response's head.
        pub first_token_timeout: Option<HumanDuration>,
        /// Response statuses that are retried.
        pub retry_on: Vec<u16> = vec![429, 500, 502, 503, 504, 529],
        /// Consecutive failures that open the circuit breaker; 0 disables it.
        pub breaker_failures: u32,
        /// How long the circuit breaker stays open; then one request probes the upstream.
        pub breaker_pause: HumanDuration = HumanDuration(Duration::from_secs(30)),
        /// The source of cloud credentials when the configuration has none: `ambient` uses those of the machine,
        /// container or pod, found as the cloud's own SDKs do. For bedrock, azure, vertex and gemini.
        pub credentials: Option<CredentialsMode>,
        /// Azure's `api-version`, for requests that name none.
        pub api_version: Option<String>,
        /// Bedrock's region; Vertex: the location of translated requests, `global` unless set.
        pub region: Option<String>,
        /// Bedrock: the access key for signing requests, `env:NAME` or `file:PATH`.
        pub access_key: Option<String>,
        /// Bedrock: the matching secret key.
        pub secret_key: Option<String>,
        /// Bedrock: the session token of temporary credentials.
        pub session_token: Option<String>,
        /// Bedrock: the profile of AWS's credentials file (`AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`) to
        /// use if `access_key` is not set.
        pub profile: Option<String>,
        /// Bedrock: the role to assume with these keys; requests are signed with the role's temporary credentials.
        pub role_arn: Option<String>,
        /// Vertex: the Google Cloud project of translated requests, whose paths do not name one.
        pub project: Option<String>,
        /// Vertex: the key file of a service account, `file:PATH` or its JSON in `env:NAME`. Requests carry access
        /// tokens obtained with it.
        pub service_account: Option<String>,
        /// Azure: the Entra tenant of `client_id` and `client_secret`. Requests carry access tokens obtained with them.
        pub tenant: Option<String>,
        /// Azure: the application's id.
        pub client_id: Option<String>,
        /// Azure: the application's secret, `env:NAME` or `file:PATH`.
        pub client_secret: Option<String>,
        /// Azure: the OAuth scope; `https://cognitiveservices.azure.com/.default` unless set.
        pub scope: Option<String>,
        /// The token endpoint, in place of Entra's or AWS STS.
        pub token_url: Option<String>,
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
