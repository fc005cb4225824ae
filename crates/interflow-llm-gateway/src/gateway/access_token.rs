//! Short-lived cloud credentials: Google service accounts, Entra client credentials, AWS roles, and ambient
//! credentials. Each is cached until shortly before it expires, and concurrent requests share one fetch.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use interflow_tasks::own_request::form;
use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy};
use interflow_types::{StatusCode, percent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ambient::{Ambient, Call, Environment, GOOGLE_TOKEN_URL, TokenEgress, aws, azure_scope, lifetime};
use super::aws_signature::AwsCredentials;
use super::upstream::SecretReader;
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

/// Where tokens come from. The calls go to a token endpoint.
enum Fetcher {
    /// A Google service account (RFC 7523).
    ServiceAccount {
        account: ServiceAccount,
        key: Box<KeyPair>,
        call: Call,
    },
    /// Entra's client credentials (RFC 6749, section 4.4).
    ClientCredentials(Call),
    /// An AWS role, assumed with these credentials.
    Role {
        own: AwsCredentials,
        region: String,
        call: Call,
    },
    Ambient(Ambient),
}

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
    GOOGLE_TOKEN_URL.into()
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

    /// Whether it provides keys for signing requests (AWS), rather than a bearer token.
    pub fn signs(&self) -> bool {
        match &*self.fetcher {
            Fetcher::Role { .. } => true,
            Fetcher::Ambient(ambient) => ambient.signs(),
            Fetcher::ServiceAccount { .. } | Fetcher::ClientCredentials(_) => false,
        }
    }

    fn service_account(text: &str) -> Result<Self, String> {
        let (account, key) = account(text)?;
        let call = account_call(&account)?;
        Ok(Self::of(Fetcher::ServiceAccount { account, key: Box::new(key), call }))
    }

    fn client_credentials(config: &LlmUpstreamConfig, tenant: &str, id: &str, key: &str) -> Result<Self, String> {
        let scope = azure_scope(config);
        let pairs = [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", key), ("scope", scope)];
        let default = || format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", percent::encoded(tenant));
        let url = config.token_url.clone().unwrap_or_else(default);
        let call = Call::post_form(&url, &pairs).map_err(|e| format!("token_url: {e}"))?;
        Ok(Self::of(Fetcher::ClientCredentials(call)))
    }

    fn assume_role(config: &LlmUpstreamConfig, role: &str, own: &AwsCredentials) -> Result<Self, String> {
        let region = config.region.clone().unwrap_or_else(|| "us-east-1".into());
        let url = config.token_url.clone().unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
        let call = aws::role_call(&url, role).map_err(|e| format!("token_url: {e}"))?;
        Ok(Self::of(Fetcher::Role { own: own.clone(), region, call }))
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
    fn issuer(&self) -> String {
        match self {
            Self::ServiceAccount { call, .. } | Self::ClientCredentials(call) | Self::Role { call, .. } => call.at(),
            Self::Ambient(ambient) => format!("{}'s endpoint", ambient.name()),
        }
    }

    async fn fetch(&self, egress: &TokenEgress) -> Result<Fetched, String> {
        let web = &*egress.web;
        match self {
            Self::ServiceAccount { account, key, call } => {
                let body = account_form(account, key, jiff::Timestamp::now())?;
                Call { body, ..call.clone() }.send(web).await?.bearer()
            }
            Self::ClientCredentials(call) => call.clone().send(web).await?.bearer(),
            Self::Role { own, region, call } => aws::assume_role(call.clone(), own, region, web).await,
            Self::Ambient(ambient) => ambient.fetch(egress).await,
        }
    }
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
    Ok(form(&[
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("assertion", &assertion(account, key, now.as_second())?),
    ]))
}

/// The token request for this key file.
pub(super) fn account_request(text: &str) -> Result<Call, String> {
    let (account, key) = account(text)?;
    let body = account_form(&account, &key, jiff::Timestamp::now())?;
    Ok(Call { body, ..account_call(&account)? })
}

/// The token request without its assertion.
fn account_call(account: &ServiceAccount) -> Result<Call, String> {
    Call::post_form(&account.token_uri, &[]).map_err(|e| format!("token_uri: {e}"))
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
    let of_seconds = |s: f64| jiff::Timestamp::from_second(s as i64).unwrap_or(jiff::Timestamp::MAX);
    let until = c["Expiration"].as_f64().map(of_seconds);
    let until = until.or_else(|| c["Expiration"].as_str()?.parse().ok())?;
    Some((AccessToken::Aws(credentials), Some(lifetime(until))))
}

/// The DER content of a PEM block (RFC 7468). Google's key files contain PKCS #8 (RFC 5958).
fn pkcs8(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (inside, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    STANDARD.decode(inside.split_ascii_whitespace().collect::<String>()).ok()
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
