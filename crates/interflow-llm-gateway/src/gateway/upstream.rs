//! One upstream: URL, API and credentials.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::percent::{COMPONENT, encoded_as};
use interflow_types::{Authority, ByteStr, Headers, RequestHead, Scheme, StatusCode, Url};

use super::access_token::{self, AccessToken, AccessTokenSource};
use super::ambient::TokenEgress;
use super::aws_signature::AwsCredentials;
use super::circuit_breaker::CircuitBreaker;
use super::routing::{AttemptLimits, check_retry_on};
use crate::credentials::{key_field, remove_credentials};
use crate::exchange::for_now;
use interflow_files::check_field_secret;
use interflow_llm::translate::WireFormat;
use interflow_llm::{LlmRefusal, LlmUpstreamConfig, Provider};

/// Resolves a value that may be a reference: `env:NAME`, `file:PATH`. When a configuration is only checked,
/// references are returned as they are.
pub type SecretReader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// A compiled upstream. Its name is the first segment of its paths.
pub struct LlmUpstream {
    pub name: String,
    /// The provider whose API it offers, possibly not the one that runs it: many services offer OpenAI's.
    pub provider: Provider,
    target: Option<(Scheme, Authority, String)>,
    /// Whether the target is the provider's default, whose host may depend on the request: Vertex by location,
    /// Bedrock by region.
    by_default: bool,
    key: Option<String>,
    pub(super) aws: Option<AwsCredentials>,
    pub(super) source: Option<AccessTokenSource>,
    pub(super) region: Option<String>,
    pub(super) project: Option<String>,
    pub(super) api_version: Option<String>,
    /// The wire formats that it is sent; others are translated to the first.
    pub(super) formats: Vec<WireFormat>,
    /// Limit on output tokens of translated requests that have none.
    pub(super) max_tokens: u64,
    /// Whether translated requests have a message of the assistant between results of tools and the user's words.
    pub(super) assistant_after_tools: bool,
    pub(super) models: BTreeMap<String, String>,
    pub(crate) fallback: Vec<String>,
    pub(super) attempts: u32,
    pub(super) budget: Duration,
    pub(super) attempt_limits: AttemptLimits,
    pub(super) retry_on: Vec<u16>,
    pub(super) breaker: Arc<CircuitBreaker>,
}

impl LlmUpstream {
    pub(super) fn new(
        name: &str,
        provider: Provider,
        default: Option<&str>,
        config: &LlmUpstreamConfig,
        secret: &SecretReader<'_>,
    ) -> Result<Self, String> {
        let target =
            config.url.as_deref().or(default).map(parse_target).transpose().map_err(|e| format!("url: {e}"))?;
        let read = |key: &str, value: &Option<String>| {
            let value = value.as_deref().map(|value| secret(value).and_then(check_field_secret));
            value.transpose().map_err(|e| format!("{key}: {e}"))
        };
        let key = read("api_key", &config.api_key)?;
        let pair = (read("access_key", &config.access_key)?, read("secret_key", &config.secret_key)?);
        let token = read("session_token", &config.session_token)?;
        let aws = match pair {
            (Some(id), Some(key)) => Some(AwsCredentials { id, key, token }),
            (None, None) => profile_credentials(config, secret)?,
            _ => return Err("access_key and secret_key belong together".into()),
        };
        let formats = formats(provider, config.format.as_deref())?;
        check_retry_on(&config.retry_on)?;
        let source = AccessTokenSource::from_config(config, provider, aws.as_ref(), secret)?;
        let attempt_limits = AttemptLimits::new(config.attempt_timeout, config.first_token_timeout);
        // The key's place is added to the message by the caller.
        attempt_limits.check().map_err(|e| e.trim_start_matches('.').to_owned())?;
        Ok(Self {
            name: name.to_owned(),
            provider,
            target,
            by_default: config.url.is_none(),
            key,
            aws,
            source,
            region: config.region.clone(),
            project: config.project.clone(),
            formats,
            max_tokens: config.max_tokens.max(1),
            assistant_after_tools: config.assistant_after_tools.unwrap_or(provider == Provider::Mistral),
            api_version: config.api_version.clone(),
            models: config.models.clone(),
            fallback: config.fallback.clone(),
            attempts: config.attempts.max(1),
            budget: config.budget.0,
            attempt_limits,
            retry_on: config.retry_on.clone(),
            breaker: Arc::new(CircuitBreaker::new(config.breaker_failures, config.breaker_pause.0)),
        })
    }

    /// Whether a request may have to be sent more than once. Its body is then held in memory.
    pub(super) fn may_retry(&self) -> bool {
        self.attempts > 1 || !self.fallback.is_empty()
    }

    /// Whether requests carry the gateway's own credentials, of whatever kind.
    pub fn has_key(&self) -> bool {
        self.key.is_some() || self.aws.is_some() || self.source.is_some()
    }

    /// Whether it is a cloud's predefined upstream without configuration.
    pub(super) fn is_unconfigured(&self) -> bool {
        matches!(self.provider, Provider::Azure | Provider::Bedrock | Provider::Vertex)
            && self.by_default
            && !self.has_key()
    }

    /// The key without which no request of a route could be sent to it.
    pub(super) fn missing_for_route(&self) -> Option<&'static str> {
        match self.provider {
            _ if self.target.is_none() => Some("url"),
            Provider::Bedrock if self.by_default && self.region.is_none() => Some("region"),
            _ => None,
        }
    }

    /// The error for a request that could not succeed, with the keys that would remedy it.
    pub(super) fn disabled(&self) -> LlmRefusal {
        let name = &self.name;
        let (code, what, keys) = match self.provider {
            Provider::Azure => ("azure_disabled", "url", "url, and api_key or credentials = \"ambient\""),
            Provider::Bedrock => (
                "bedrock_disabled",
                "credentials",
                "access_key and secret_key, or profile, or credentials = \"ambient\"",
            ),
            Provider::Vertex => ("vertex_disabled", "credentials", "service_account, or credentials = \"ambient\""),
            _ => ("upstream_disabled", "url", "url"),
        };
        let own = if what == "url" { "" } else { ", and the request brings none of its own" };
        let message = format!("the upstream {name} has no {what}{own}: set llm.provider.{name}.{keys}");
        LlmRefusal::new(StatusCode::NOT_FOUND, "not_found", code, message)
    }

    /// Whether requests are signed with the gateway's own keys.
    pub(super) fn signs(&self) -> bool {
        self.aws.is_some() || self.source.as_ref().is_some_and(AccessTokenSource::signs)
    }

    /// The short-lived token for requests, if the upstream uses one. May wait for a fetch; failures become an error
    /// in the provider's format.
    pub(super) async fn token(&self, egress: TokenEgress) -> Result<Option<AccessToken>, LlmRefusal> {
        let Some(source) = &self.source else { return Ok(None) };
        source.get(egress).await.map(Some).map_err(|why| {
            let code = match self.provider {
                Provider::Azure => "azure_auth_failed",
                Provider::Vertex | Provider::Gemini => "vertex_auth_failed",
                Provider::Bedrock => "bedrock_auth_failed",
                _ => "auth_failed",
            };
            tracing::warn!("llm.provider.{}: {why}", self.name);
            let message = format!("the gateway has no credentials for the upstream {}: {why}", self.name);
            for_now(LlmRefusal::new(StatusCode::BAD_GATEWAY, "provider_error", code, message))
        })
    }

    /// Whether both are at the same host, so that credentials for one may be sent to the other. Scheme and port count
    /// as well.
    pub(super) fn is_same_host(&self, other: &Self) -> bool {
        let targets = self.target.as_ref().zip(other.target.as_ref());
        targets.is_some_and(|(own, other)| (own.0, &own.1) == (other.0, &other.1))
    }

    /// Whether it is a provider's own service: by its name, since a test may stand for it, or by its host, since an
    /// operator may have several accounts.
    pub(super) fn is_service(&self, name: &str, host: &str) -> bool {
        let is_there = |target: &(Scheme, Authority, String)| target.1.host.name() == Some(host);
        self.name == name || self.target.as_ref().is_some_and(is_there)
    }

    /// Its target for messages.
    pub(super) fn target(&self) -> String {
        match &self.target {
            Some((scheme, authority, base)) => format!("{scheme}://{}{base}", authority.to_host_header(*scheme)),
            None => "(no target)".to_owned(),
        }
    }

    /// The URL of a path at this upstream; `None` if its host is not known, as for Azure without a configured target.
    pub(super) fn url(&self, rest: &str, headers: &Headers) -> Option<Url> {
        let (scheme, mut authority, base) = self.target.clone()?;
        if self.by_default {
            authority = self.host_by_request(rest, headers).unwrap_or(authority);
        }
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let mut path = format!("{base}{slash}{rest}");
        if let Some(version) = &self.api_version
            && !path.contains("api-version=")
        {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str("api-version=");
            path.push_str(version);
        }
        Some(Url { scheme, authority, path: ByteStr::from(path) })
    }

    /// Vertex has a host per location, Bedrock one per region. Vertex's location `global` has the host without a
    /// prefix.
    fn host_by_request(&self, rest: &str, headers: &Headers) -> Option<Authority> {
        let host = match self.provider {
            Provider::Vertex => {
                let location = rest.split("/locations/").nth(1)?.split('/').next()?;
                match location {
                    "global" => return None,
                    // Groups of regions.
                    "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
                    _ => format!("{location}-aiplatform.googleapis.com"),
                }
            }
            Provider::Bedrock => format!("bedrock-runtime.{}.amazonaws.com", self.region_for(headers)?),
            _ => return None,
        };
        Authority::parse(&host, Some(443)).ok()
    }

    /// The signing region: the configured one, or the one the client signed for (the third part of its credential
    /// scope).
    pub(super) fn region_for(&self, headers: &Headers) -> Option<String> {
        let of_client = || {
            let signed = headers.get_str("authorization")?.split("Credential=").nth(1)?;
            signed.split('/').nth(2).map(str::to_owned)
        };
        self.region.clone().or_else(of_client)
    }

    /// The path here of a request that was addressed to another upstream. Azure offers OpenAI's API below paths of its
    /// own, which name the model unless the API has no version.
    pub(super) fn path_from<'p>(&self, addressed: &Self, rest: &'p str, model: Option<&str>) -> Cow<'p, str> {
        let azure = |upstream: &Self| upstream.provider == Provider::Azure;
        match (azure(addressed), azure(self)) {
            (false, true) => match (rest.strip_prefix("/v1/"), &self.api_version, model) {
                (Some(tail), None, _) => format!("/openai/v1/{tail}").into(),
                (Some(tail), Some(_), _) if tail.starts_with("responses") => format!("/openai/{tail}").into(),
                (Some(tail), Some(_), Some(model)) => {
                    format!("/openai/deployments/{}/{tail}", encoded_as(model, COMPONENT)).into()
                }
                _ => rest.into(),
            },
            (true, false) => {
                let by_model = rest.strip_prefix("/openai/deployments/").and_then(|tail| Some(tail.split_once('/')?.1));
                let tail = rest.strip_prefix("/openai/v1/").or(by_model);
                tail.map_or_else(|| rest.into(), |tail| format!("/v1/{tail}").into())
            }
            _ => rest.into(),
        }
    }

    /// The path at this upstream, if the URL is below its target.
    pub(super) fn path_within(&self, url: &Url) -> Option<String> {
        let (scheme, authority, base) = self.target.as_ref()?;
        let dynamic = self.by_default
            && url.authority.host.name().is_some_and(|h| match self.provider {
                Provider::Vertex => h.ends_with("-aiplatform.googleapis.com") || h.ends_with(".rep.googleapis.com"),
                Provider::Bedrock => h.starts_with("bedrock-runtime."),
                _ => false,
            });
        if !dynamic && (*scheme != url.scheme || *authority != url.authority) {
            return None;
        }
        url.path.strip_prefix(base.as_str()).filter(|r| r.starts_with('/')).map(str::to_owned)
    }

    /// Replaces the client's key with the gateway's own. Without a key of its own, the client's passes.
    pub(super) fn authorize(&self, head: &mut RequestHead, token: Option<&AccessToken>) {
        let bearer = if let Some(AccessToken::Bearer(bearer)) = token { Some(bearer) } else { None };
        let Some(key) = bearer.or(self.key.as_ref()) else { return };
        remove_credentials(head);
        if bearer.is_some() {
            head.headers.append_unchecked(b"Authorization", format!("Bearer {key}").as_bytes());
        } else {
            let (name, value) = key_field(self.provider, key);
            head.headers.append_unchecked(name.as_bytes(), value.as_bytes());
        }
    }
}

/// The formats that an upstream is sent: the configured one, or those of its API, the first for translations.
///
/// # Errors
/// The format is unknown, or not one of the API's.
fn formats(provider: Provider, configured: Option<&str>) -> Result<Vec<WireFormat>, String> {
    let spoken: &[WireFormat] = match provider {
        Provider::OpenAi | Provider::Azure => &[WireFormat::OpenAiChat, WireFormat::OpenAiResponses],
        Provider::Mistral => &[WireFormat::Mistral, WireFormat::OpenAiChat],
        Provider::Anthropic => &[WireFormat::Anthropic],
        Provider::Gemini => &[WireFormat::Gemini, WireFormat::Interactions],
        // Claude is there too, by its model's name.
        Provider::Vertex => &[WireFormat::Gemini, WireFormat::Anthropic],
        Provider::Bedrock => &[WireFormat::Bedrock],
        Provider::Cohere => &[WireFormat::Cohere],
        Provider::Ollama => &[WireFormat::Ollama, WireFormat::OpenAiChat],
        Provider::Unknown => &[],
    };
    // Mistral takes a part of OpenAI's Chat Completions only: the client's requests are examined.
    let Some(name) = configured else {
        let count = if provider == Provider::Mistral { 1 } else { spoken.len() };
        return Ok(spoken[..count].to_vec());
    };
    let format = WireFormat::from_name(name).ok_or_else(|| {
        format!("format: `{name}` is not a wire format that is known; write one of {}", WireFormat::names())
    })?;
    if !spoken.contains(&format) {
        let names = spoken.iter().map(|f| f.as_str()).filter(|name| WireFormat::from_name(name).is_some());
        let names: Vec<&str> = names.collect();
        let (kind, names) = (provider.as_str(), names.join(" or "));
        return Err(format!("format: an upstream of the kind {kind} speaks {names}, not {name}; set kind as well"));
    }
    Ok(vec![format])
}

/// The keys of an AWS profile.
fn profile_credentials(
    config: &LlmUpstreamConfig,
    secret: &SecretReader<'_>,
) -> Result<Option<AwsCredentials>, String> {
    let Some(name) = &config.profile else { return Ok(None) };
    let at = |e: String| format!("profile: {e}");
    let text = secret(&format!("file:{}", access_token::profile_file().map_err(at)?)).map_err(at)?;
    if text.starts_with("file:") {
        return Ok(None);
    }
    access_token::parse_profile(&text, name).map(Some).map_err(at)
}

/// Splits a target into scheme, authority and base path without a trailing slash. The base path may be empty.
pub(super) fn parse_target(target: &str) -> Result<(Scheme, Authority, String), String> {
    let wrong = |why: &str| format!("`{target}` is not a URL of a provider: {why}; write it as https://host/path");
    let (scheme, authority, base) = Url::split_service(target).map_err(|e| wrong(&e.to_string()))?;
    if base.contains(['?', '#']) {
        return Err(wrong("a query has no place here"));
    }
    Ok((scheme, authority, base.trim_end_matches('/').to_owned()))
}
