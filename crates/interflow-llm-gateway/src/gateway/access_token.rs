//! Short-lived cloud credentials: Google service accounts, Entra client credentials, AWS roles, and ambient
//! credentials. Each is cached until shortly before it expires, and concurrent requests share one fetch.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy};
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, StatusCode, Url, percent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ambient::{Ambient, Environment, TokenEgress};
use super::aws_signature::{self, AwsCredentials};
use super::upstream::{SecretReader, parse_target};
use interflow_llm::{LlmUpstreamConfig, Provider};

/// Without a lifetime, which RFC 6749 only recommends, a token is fetched again after five minutes.
const LIFETIMES: TokenPolicy = TokenPolicy {
    default_lifetime: Duration::from_secs(300),
    max_lifetime: Duration::from_secs(86_400),
    margin: Duration::from_secs(60),
    failure_ttl: Duration::from_secs(1),
    renewal_failure_ttl: Duration::from_secs(1),
};

/// Covers connecting and the whole response. Requests wait for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a token endpoint's response.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// A token, and how long it is valid if its issuer says so.
pub(super) type Fetched = (AccessToken, Option<Duration>);

#[derive(Clone, Debug)]
pub(super) enum AccessToken {
    Bearer(String),
    Aws(AwsCredentials),
}

/// The source of tokens, with a cache.
pub(super) struct AccessTokenSource {
    fetcher: Arc<Fetcher>,
    cached: CachedToken<AccessToken>,
}

enum Fetcher {
    /// A token endpoint, with credentials from the configuration.
    Endpoint {
        kind: AccessTokenKind,
        url: Url,
    },
    Ambient(Ambient),
}

enum AccessTokenKind {
    ServiceAccount { account: ServiceAccount, key: Box<KeyPair> },
    ClientCredentials { form: String },
    Role { own: AwsCredentials, region: String, form: String },
}

/// The fields of a Google service account key file (JSON) that are needed for a token.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default = "default_token_uri")]
    token_uri: String,
}

fn default_token_uri() -> String {
    "https://oauth2.googleapis.com/token".into()
}

impl AccessTokenSource {
    /// The source named by a configuration, if any; `own` are AWS keys of the configuration, with which a role is
    /// assumed.
    pub fn from_config(
        config: &LlmUpstreamConfig,
        provider: Provider,
        own: Option<&AwsCredentials>,
        secret: &SecretReader<'_>,
    ) -> Result<Option<Self>, String> {
        if let Some(ambient) = Ambient::of(config, provider, Environment::of_process())? {
            return Ok(Some(Self::of(Fetcher::Ambient(ambient))));
        }
        let read = |key: &str, value: &Option<String>| {
            value.as_deref().map(secret).transpose().map_err(|e| format!("{key}: {e}"))
        };
        if let Some(text) = read("service_account", &config.service_account)? {
            // When a configuration is only checked, references are not resolved.
            if text.starts_with("env:") || text.starts_with("file:") {
                return Ok(None);
            }
            return Self::service_account(&text).map(Some).map_err(|e| format!("service_account: {e}"));
        }
        if let Some(tenant) = &config.tenant {
            let both = (read("client_id", &config.client_id)?, read("client_secret", &config.client_secret)?);
            let (Some(id), Some(key)) = both else {
                return Err("tenant needs client_id and client_secret".into());
            };
            return Self::client_credentials(config, tenant, &id, &key).map(Some);
        }
        match (&config.role_arn, own) {
            (None, _) => Ok(None),
            (Some(_), None) => {
                Err("role_arn needs access_key and secret_key, or profile, or credentials = \"ambient\"".into())
            }
            (Some(role), Some(own)) => Self::assume_role(config, role, own).map(Some),
        }
    }

    fn of(fetcher: Fetcher) -> Self {
        Self { fetcher: Arc::new(fetcher), cached: CachedToken::new(LIFETIMES) }
    }

    fn new(kind: AccessTokenKind, url: &str, key: &str) -> Result<Self, String> {
        let (scheme, authority, path) = parse_target(url).map_err(|e| format!("{key}: {e}"))?;
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let url = Url { scheme, authority, path: path.into() };
        Ok(Self::of(Fetcher::Endpoint { kind, url }))
    }

    /// Whether it provides keys for signing requests (AWS), rather than a bearer token.
    pub fn signs(&self) -> bool {
        match &*self.fetcher {
            Fetcher::Endpoint { kind, .. } => matches!(kind, AccessTokenKind::Role { .. }),
            Fetcher::Ambient(ambient) => ambient.signs(),
        }
    }

    fn service_account(text: &str) -> Result<Self, String> {
        let (account, key) = account(text)?;
        let url = account.token_uri.clone();
        Self::new(AccessTokenKind::ServiceAccount { account, key: Box::new(key) }, &url, "token_uri")
    }

    fn client_credentials(config: &LlmUpstreamConfig, tenant: &str, id: &str, key: &str) -> Result<Self, String> {
        let scope = config.scope.as_deref().unwrap_or("https://cognitiveservices.azure.com/.default");
        let form = form_encode(&[
            ("grant_type", "client_credentials"),
            ("client_id", id),
            ("client_secret", key),
            ("scope", scope),
        ]);
        let default = || format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", percent::encoded(tenant));
        let url = config.token_url.clone().unwrap_or_else(default);
        Self::new(AccessTokenKind::ClientCredentials { form }, &url, "token_url")
    }

    fn assume_role(config: &LlmUpstreamConfig, role: &str, own: &AwsCredentials) -> Result<Self, String> {
        let region = config.region.clone().unwrap_or_else(|| "us-east-1".into());
        let form = form_encode(&[
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", role),
            ("RoleSessionName", "interflow"),
        ]);
        let url = config.token_url.clone().unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
        Self::new(AccessTokenKind::Role { own: own.clone(), region, form }, &url, "token_url")
    }

    /// A token that remains valid for a while.
    ///
    /// # Cancellation
    /// As of [`CachedToken`]: other callers go on with the fetch.
    ///
    /// # Errors
    /// Why there is none; never contains a secret.
    pub async fn get(&self, egress: TokenEgress) -> Result<AccessToken, String> {
        let fetch = || {
            let fetcher = Arc::clone(&self.fetcher);
            async move {
                let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetcher.fetch(&egress)).await;
                let fetched =
                    fetched.unwrap_or_else(|_| Err(format!("the token request to {} timed out", fetcher.issuer())));
                fetched.map(|(value, lifetime)| FetchedToken { value, lifetime })
            }
        };
        self.cached.get(fetch).await
    }
}

impl Fetcher {
    /// The endpoint's host, for messages.
    fn issuer(&self) -> String {
        match self {
            Self::Endpoint { url, .. } => url.authority.to_string(),
            Self::Ambient(ambient) => format!("{}'s endpoint", ambient.name()),
        }
    }

    async fn fetch(&self, egress: &TokenEgress) -> Result<Fetched, String> {
        match self {
            Self::Endpoint { kind, url } => kind.fetch(url, &*egress.web).await,
            Self::Ambient(ambient) => ambient.fetch(egress).await,
        }
    }
}

impl AccessTokenKind {
    async fn fetch(&self, url: &Url, egress: &dyn HttpClient) -> Result<Fetched, String> {
        let request = self.request(url, jiff::Timestamp::now())?;
        let at = &url.authority;
        let response = egress.send(request).await.map_err(|e| format!("the token request to {at} failed: {e}"))?;
        let status = response.head.status;
        let (body, _) = response
            .body
            .collect(MAX_RESPONSE_BYTES)
            .await
            .map_err(|_| format!("the token response of {at} cannot be read"))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        // Only the error code is used: descriptions may echo the request, which contains secrets.
        if !status.is_success() {
            let code =
                answer["error"].as_str().or_else(|| answer["Error"]["Code"].as_str()).unwrap_or("no reason given");
            return Err(format!("the token request to {at} failed: {status}, {code}"));
        }
        let token = match self {
            Self::Role { .. } => parse_assumed_role(&answer["AssumeRoleResponse"]["AssumeRoleResult"]["Credentials"]),
            _ => parse_bearer(&answer),
        };
        token.ok_or_else(|| without_token(at, status))
    }

    fn request(&self, url: &Url, now: jiff::Timestamp) -> Result<Request, String> {
        let form = match self {
            Self::ServiceAccount { account, key } => account_form(account, key, now)?,
            Self::ClientCredentials { form } | Self::Role { form, .. } => form.clone(),
        };
        let mut head = form_head(url.clone());
        if let Self::Role { own, region, .. } = self {
            let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
            aws_signature::sign(
                &mut head,
                form.as_bytes(),
                own,
                &aws_signature::SigningScope { service: "sts", region },
                &time,
            );
        }
        Ok(Request { head, body: Body::from(bytes::Bytes::from(form)) })
    }
}

fn form_head(url: Url) -> RequestHead {
    let mut headers = Headers::new();
    headers.append_unchecked(b"Content-Type", b"application/x-www-form-urlencoded");
    headers.append_unchecked(b"Accept", b"application/json");
    RequestHead { method: Method::POST, url, version: HttpVersion::Http11, headers, protocol: None }
}

/// The message for a successful response without a token, as some captive portals and proxies send.
pub(super) fn without_token(at: impl std::fmt::Display, status: StatusCode) -> String {
    format!("{at} answered {status} without a token")
}

/// Parses a service account's key file: JSON with an RSA key in PEM.
fn account(text: &str) -> Result<(ServiceAccount, KeyPair), String> {
    let account: ServiceAccount =
        serde_json::from_str(text).map_err(|e| format!("this is not a service account key file: {e}"))?;
    let key = pkcs8(&account.private_key).ok_or("private_key is not PEM")?;
    let key = KeyPair::from_pkcs8(&key).map_err(|e| format!("private_key is not an RSA key: {e}"))?;
    Ok((account, key))
}

fn account_form(account: &ServiceAccount, key: &KeyPair, now: jiff::Timestamp) -> Result<String, String> {
    Ok(form_encode(&[
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("assertion", &assertion(account, key, now.as_second())?),
    ]))
}

/// The token request for this key file: its head and its form.
pub(super) fn account_request(text: &str) -> Result<(RequestHead, String), String> {
    let (account, key) = account(text)?;
    let (scheme, authority, path) = parse_target(&account.token_uri).map_err(|e| format!("token_uri: {e}"))?;
    let path = if path.is_empty() { "/".to_owned() } else { path };
    let form = account_form(&account, &key, jiff::Timestamp::now())?;
    Ok((form_head(Url { scheme, authority, path: path.into() }), form))
}

/// The assertion that a service account signs: a JWT (RFC 7523 2.1), valid for an hour, which is the longest that
/// Google accepts.
fn assertion(account: &ServiceAccount, key: &KeyPair, now: i64) -> Result<String, String> {
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": account.private_key_id });
    let claims = json!({
        "iss": account.client_email,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "aud": account.token_uri,
        "iat": now,
        "exp": now + 3600
    });
    let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "the service account's key does not sign".to_owned())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// An OAuth 2 response (RFC 6749 5.1). A token with bytes that no header field may contain is refused.
pub(super) fn parse_bearer(answer: &Value) -> Option<Fetched> {
    let token = answer["access_token"].as_str().filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic()))?;
    // Some servers write the number as a string.
    let lifetime = &answer["expires_in"];
    let lifetime = lifetime.as_u64().or_else(|| lifetime.as_str()?.parse().ok());
    Some((AccessToken::Bearer(token.to_owned()), lifetime.map(Duration::from_secs)))
}

/// The credentials in a response of AWS STS, whose JSON has the expiry as Unix time and whose XML has a date.
pub(super) fn parse_assumed_role(c: &Value) -> Option<Fetched> {
    let text = |name: &str| c[name].as_str().map(str::to_owned);
    let credentials =
        AwsCredentials { id: text("AccessKeyId")?, key: text("SecretAccessKey")?, token: Some(text("SessionToken")?) };
    // Unix time, or a date.
    let until = c["Expiration"].as_f64().map(|s| s as i64);
    let until = until.or_else(|| Some(c["Expiration"].as_str()?.parse::<jiff::Timestamp>().ok()?.as_second()))?;
    let lifetime = until.saturating_sub(jiff::Timestamp::now().as_second()).max(0);
    Some((AccessToken::Aws(credentials), Some(Duration::from_secs(lifetime.unsigned_abs()))))
}

/// The DER content of a PEM block (RFC 7468). Google's key files contain PKCS #8 (RFC 5958).
fn pkcs8(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (inside, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    STANDARD.decode(inside.split_ascii_whitespace().collect::<String>()).ok()
}

/// Encodes a form (`application/x-www-form-urlencoded`); a space becomes `%20`, not `+`.
pub(super) fn form_encode(pairs: &[(&str, &str)]) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={}", percent::encoded(value))).collect::<Vec<_>>().join("&")
}

/// The keys of a profile in an AWS credentials file. Accepts the `[profile NAME]` sections of the config file too.
///
/// # Errors
/// No such profile, or one without keys.
pub(super) fn parse_profile(text: &str, name: &str) -> Result<AwsCredentials, String> {
    let mut here = false;
    let mut keys = [None, None, None];
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let section = section.trim();
            here = section == name || section.strip_prefix("profile ").is_some_and(|s| s.trim() == name);
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| here) else { continue };
        let at =
            ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"].iter().position(|k| *k == key.trim());
        if let Some(slot) = at.and_then(|at| keys.get_mut(at)) {
            *slot = Some(value.trim().to_owned());
        }
    }
    let [id, key, token] = keys;
    match (id, key) {
        (Some(id), Some(key)) => Ok(AwsCredentials { id, key, token }),
        _ => Err(format!("the file has no keys for the profile `{name}`")),
    }
}

/// The path of the AWS credentials file.
pub(super) fn profile_file() -> Result<String, String> {
    if let Ok(path) = std::env::var("AWS_SHARED_CREDENTIALS_FILE") {
        return Ok(path);
    }
    let home = std::env::var("HOME").or_else(|_| std::env::var("USERPROFILE"));
    home.map(|home| format!("{home}/.aws/credentials")).map_err(|_| "there is no home folder".to_owned())
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
