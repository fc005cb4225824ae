//! Ambient credentials: those that a cloud provides to the machine, container or pod, found as the cloud's own SDKs do.
//! Enabled by `credentials = "ambient"`.

pub(super) mod aws;
mod azure;
mod google;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use interflow_tasks::own_request::{self, FORM, form};
use interflow_types::{Body, HttpClient, Method, Request, RequestHead, StatusCode, Url};
use serde_json::Value;

use super::access_token::{Fetched, parse_bearer, without_token};
use super::upstream::parse_target;
use crate::environment;
pub(super) use azure::scope as azure_scope;
pub(super) use google::TOKEN_URL as GOOGLE_TOKEN_URL;
use interflow_llm::{CredentialsMode, LlmUpstreamConfig, Provider};

/// Maximum size of a token endpoint's response; tokens have a few kilobytes.
const MAX_ANSWER: usize = 256 << 10;

/// Maximum size of a credentials file.
const MAX_FILE: u64 = 256 << 10;

/// Timeout of metadata services: they are link-local, or absent.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// Refresh interval of credentials without an expiry: files and variables, which may be replaced while the process
/// runs.
const UNLIMITED: Duration = Duration::from_secs(15 * 60);

/// The client for token endpoints on the Internet, and the one for metadata services. Only the latter can reach
/// link-local and loopback addresses, whatever `access.deny_private` is, and it never uses an upstream proxy.
#[derive(Clone)]
pub(in crate::gateway) struct TokenEgress {
    pub web: Arc<dyn HttpClient>,
    pub metadata: Arc<dyn HttpClient>,
}

/// Environment variables; replaceable in tests.
#[derive(Clone)]
pub(in crate::gateway) struct Environment(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var(name).ok())
    }

    pub fn new(get: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(get))
    }

    /// A variable that is set and not empty. An empty one counts as unset, as in the clouds' SDKs.
    fn get(&self, name: &str) -> Option<String> {
        debug_assert!(environment::is_listed(name), "{name} is not in environment.rs");
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    fn home(&self) -> Option<String> {
        self.get("HOME").or_else(|| self.get("USERPROFILE"))
    }
}

/// Credentials from the environment of the process, for one cloud.
pub(in crate::gateway) struct Ambient {
    cloud: Cloud,
    environment: Environment,
}

enum Cloud {
    Aws(aws::Options),
    Azure(Box<LlmUpstreamConfig>),
    Google,
}

impl Ambient {
    /// The source for `credentials = "ambient"`.
    ///
    /// # Errors
    /// Keys that contradict it, or an API whose cloud has no such credentials.
    pub fn of(config: &LlmUpstreamConfig, provider: Provider, env: Environment) -> Result<Option<Self>, String> {
        let Some(CredentialsMode::Ambient) = config.credentials else { return Ok(None) };
        let fixed = [
            ("key", config.api_key.is_some()),
            ("access_key", config.access_key.is_some()),
            ("profile", config.profile.is_some()),
            ("service_account", config.service_account.is_some()),
            ("client_secret", config.client_secret.is_some()),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, set)| *set) {
            return Err(format!("credentials = \"ambient\" and {key} exclude each other: take one of them out"));
        }
        let cloud = match provider {
            Provider::Bedrock => Cloud::Aws(aws::Options::new(config, &env)?),
            Provider::Azure => Cloud::Azure(Box::new(config.clone())),
            Provider::Vertex | Provider::Gemini => Cloud::Google,
            other => {
                let name = other.as_str();
                return Err(format!(
                    "credentials: \"ambient\" is for bedrock, azure, vertex and gemini, not for {name}; set key"
                ));
            }
        };
        Ok(Some(Self { cloud, environment: env }))
    }

    /// Whether it provides keys for signing requests (AWS), rather than a bearer token.
    pub fn signs(&self) -> bool {
        matches!(self.cloud, Cloud::Aws(_))
    }

    /// The cloud's name for messages.
    pub fn name(&self) -> &'static str {
        match self.cloud {
            Cloud::Aws(_) => "AWS",
            Cloud::Azure(_) => "Azure",
            Cloud::Google => "Google",
        }
    }

    /// Fetches credentials from the first source of the chain that has any.
    ///
    /// # Errors
    /// What is missing, or which endpoint rejected the request; never contains a secret.
    pub async fn fetch(&self, egress: &TokenEgress) -> Result<Fetched, String> {
        let environment = &self.environment;
        match &self.cloud {
            Cloud::Aws(options) => aws::fetch(options, environment, egress).await,
            Cloud::Azure(options) => azure::fetch(options, environment, egress).await,
            Cloud::Google => google::fetch(environment, egress).await,
        }
    }
}

/// A request to a token endpoint or a metadata service. Never recorded: its response is a credential.
#[derive(Clone)]
pub(in crate::gateway) struct Call {
    pub head: RequestHead,
    pub body: String,
}

impl Call {
    fn new(method: Method, url: &str) -> Result<Self, String> {
        // A target URL has no query, this one may have.
        let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
        let (scheme, authority, path) = parse_target(base)?;
        let mut path = if path.is_empty() { "/".to_owned() } else { path };
        // Metadata services list the entries below a path that ends in `/`.
        if base.ends_with('/') && !path.ends_with('/') {
            path.push('/');
        }
        if let Some(query) = query {
            path = format!("{path}?{query}");
        }
        let head = own_request::get(Url { scheme, authority, path: path.into() }).head;
        Ok(Self { head: RequestHead { method, ..head }, body: String::new() })
    }

    fn get(url: &str) -> Result<Self, String> {
        Self::new(Method::GET, url)
    }

    pub fn post_form(url: &str, pairs: &[(&str, &str)]) -> Result<Self, String> {
        let call = Self::new(Method::POST, url)?;
        Ok(Self { body: form(pairs), ..call }.with_known("Content-Type", FORM))
    }

    fn with_known(mut self, name: &str, value: &str) -> Self {
        self.head.headers.append_unchecked(name.as_bytes(), value.as_bytes());
        self
    }

    /// A field whose value comes from a file or a variable, and may therefore be invalid.
    fn with(mut self, name: &str, value: &str) -> Result<Self, String> {
        let added = self.head.headers.append(name, value);
        added.map(|()| self).map_err(|_| format!("the value for {name} holds what no field may hold"))
    }

    /// Where it goes.
    pub fn at(&self) -> String {
        self.head.url.authority.to_string()
    }

    pub async fn send(self, egress: &dyn HttpClient) -> Result<Answered, String> {
        let at = self.at();
        let request = Request { head: self.head, body: Body::from(bytes::Bytes::from(self.body)) };
        let answered = own_request::fetch(egress, request, MAX_ANSWER).await;
        let (head, body) = answered.map_err(|e| format!("{at} cannot be asked: {e}"))?;
        Ok(Answered { at, status: head.status, text: String::from_utf8_lossy(&body).into_owned() })
    }

    /// As `send`, to a link-local service with a short timeout: outside the cloud nobody answers there.
    async fn send_near(self, egress: &dyn HttpClient) -> Result<Answered, String> {
        let at = self.at();
        let sent = tokio::time::timeout(METADATA_TIMEOUT, self.send(egress)).await;
        sent.unwrap_or_else(|_| Err(format!("{at} did not answer within {}s", METADATA_TIMEOUT.as_secs())))
    }
}

pub(in crate::gateway) struct Answered {
    at: String,
    status: StatusCode,
    text: String,
}

impl Answered {
    /// The JSON of a successful response.
    ///
    /// # Errors
    /// The status and the error code; descriptions may echo secrets, so they are omitted.
    fn granted(&self) -> Result<Value, String> {
        let said: Value = serde_json::from_str(&self.text).unwrap_or_default();
        if self.status.is_success() {
            return Ok(said);
        }
        let Self { at, status, .. } = self;
        let codes = [&said["error"], &said["Error"]["Code"], &said["Code"], &said["error"]["status"]];
        let xml = || between(&self.text, "Code");
        let code = codes.into_iter().find_map(|code| code.as_str()).or_else(xml).unwrap_or("no reason given");
        Err(format!("{at} gives no credentials: {status}, {code}"))
    }

    /// The access token in a response of OAuth 2.
    pub fn bearer(&self) -> Result<Fetched, String> {
        parse_bearer(&self.granted()?).ok_or_else(|| without_token(&self.at, self.status))
    }
}

/// The content of an XML element without attributes, which is all that STS's responses need.
fn between<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inside, _)| inside.trim())
}

/// Reads a small file that a variable or a convention names.
///
/// # Errors
/// The path and why it cannot be read.
fn read_file(path: &str) -> Result<String, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{path} cannot be read: {why}");
    let size = std::fs::metadata(path).map_err(|e| wrong(&e))?.len();
    if size > MAX_FILE {
        return Err(wrong(&format!("it is larger than {} KiB", MAX_FILE >> 10)));
    }
    std::fs::read_to_string(path).map_err(|e| wrong(&e))
}

/// The time until expiry.
pub(super) fn lifetime(until: jiff::Timestamp) -> Duration {
    let seconds = until.as_second().saturating_sub(jiff::Timestamp::now().as_second()).max(0);
    Duration::from_secs(seconds.unsigned_abs())
}
