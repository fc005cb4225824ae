//! The issuer: its discovery document and its keys, fetched when they are needed and kept for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_tasks::own_request::{self, FORM};
use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy};
use interflow_types::{Host, HttpClient, Request, Scheme, Url};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{LoginError, Result};
use super::id_token;

/// Bound on a response of the issuer, in bytes.
const MAX_RESPONSE: usize = 1 << 20;
/// How long the discovery document and the keys are kept. While keys cannot be renewed, the issuer is asked again after half a
/// minute, so that not each request waits for one that does not answer.
const LIFETIMES: TokenPolicy = TokenPolicy {
    default_lifetime: Duration::from_secs(3600),
    max_lifetime: Duration::from_secs(3600),
    margin: Duration::ZERO,
    failure_ttl: Duration::from_secs(1),
    renewal_failure_ttl: Duration::from_secs(30),
};
/// How often the keys are fetched before that, because a token is signed with another.
const MAX_EARLY: u32 = 5;
const EARLY_WITHIN: Duration = Duration::from_secs(60);
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// What the issuer says about itself (OpenID Connect Discovery 1.0, section 3).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    jwks_uri: String,
    pub userinfo_endpoint: Option<String>,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Vec<String>,
    /// RFC 9207: every authorization response names the issuer.
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

pub(super) struct Provider {
    pub client: IssuerClient,
    discovery: CachedToken<Arc<Discovery>, LoginError>,
    keys: CachedToken<Arc<JwkSet>, LoginError>,
    /// Since when, and how often, the keys were fetched before their time.
    early: Mutex<(Instant, u32)>,
}

/// Requests to the issuer. Cheap to clone, for fetches that several logins share.
#[derive(Clone)]
pub(super) struct IssuerClient {
    issuer: Arc<str>,
    timeout: Duration,
    http: Arc<dyn HttpClient>,
}

/// Why there is no key for a token.
#[derive(Debug)]
pub(super) enum KeyError {
    /// The keys are not there, and cannot be fetched: nothing is known of the token.
    Unavailable(LoginError),
    /// The token cannot be read, or no key of the issuer is the one that it names.
    Token(LoginError),
}

impl From<KeyError> for LoginError {
    fn from(e: KeyError) -> Self {
        match e {
            KeyError::Unavailable(e) | KeyError::Token(e) => e,
        }
    }
}

impl Provider {
    pub fn new(issuer: &str, timeout: Duration, http: Arc<dyn HttpClient>) -> Self {
        let client = IssuerClient { issuer: issuer.into(), timeout, http };
        // Unlike keys, an old document is not used on.
        let discovery = TokenPolicy { renewal_failure_ttl: LIFETIMES.failure_ttl, ..LIFETIMES };
        let (discovery, keys) = (CachedToken::new(discovery), CachedToken::new(LIFETIMES));
        Self { client, discovery, keys, early: Mutex::new((Instant::now(), 0)) }
    }

    pub async fn discovery(&self) -> Result<Arc<Discovery>> {
        let fetch = || {
            let client = self.client.clone();
            async move { client.discovery().await.map(fetched) }
        };
        self.discovery.get(fetch).await
    }

    /// The key that verifies a token. Issuers rotate keys, also under the same id, so they are fetched anew once if the
    /// kept ones do not verify it. While that fails, the kept ones go on being used.
    pub async fn key_for(&self, token: &str) -> Result<Jwk, KeyError> {
        let id = id_token::key_id(token).map_err(KeyError::Token)?;
        let unknown = || KeyError::Token(no_key(id.as_deref()));
        let is_verifying = |key: &Jwk| id_token::is_signed_by(token, key);
        let cached = self.keys.latest();
        let mut fetched = self.keys.get(|| self.fetch_keys()).await;
        if let Ok(keys) = &fetched {
            let key = find_key(keys, id.as_deref());
            let is_new = !cached.is_some_and(|cached| Arc::ptr_eq(&cached, keys));
            // One that does not verify the token is refused by the check of the token.
            if is_new || key.as_ref().is_some_and(is_verifying) || !self.may_fetch_early() {
                return key.ok_or_else(unknown);
            }
            fetched = self.keys.renew(|| self.fetch_keys()).await;
        }
        match fetched {
            Ok(keys) => find_key(&keys, id.as_deref()).ok_or_else(unknown),
            Err(e) => {
                let key = self.keys.latest().and_then(|keys| find_key(&keys, id.as_deref()));
                let Some(key) = key else { return Err(KeyError::Unavailable(e)) };
                tracing::warn!("cannot renew the issuer's keys, and use them as they are: {}", e.message);
                Ok(key)
            }
        }
    }

    fn fetch_keys(&self) -> impl Future<Output = Result<FetchedToken<Arc<JwkSet>>>> + Send + use<> {
        let (client, discovery) = (self.client.clone(), self.discovery.clone());
        async move {
            let owned = client.clone();
            let discovery = discovery.get(|| async move { owned.discovery().await.map(fetched) }).await?;
            let keys = client.get::<RawKeys>(&discovery.jwks_uri, None).await?;
            Ok(fetched(JwkSet { keys: keys.known() }))
        }
    }

    /// Whether keys may be fetched although they are kept: tokens that nothing verifies are no load for the issuer.
    fn may_fetch_early(&self) -> bool {
        let mut early = self.early.lock();
        if early.0.elapsed() >= EARLY_WITHIN {
            *early = (Instant::now(), 0);
        }
        early.1 += 1;
        early.1 <= MAX_EARLY
    }
}

/// Without a lifetime of its own.
fn fetched<T>(value: T) -> FetchedToken<Arc<T>> {
    FetchedToken { value: Arc::new(value), lifetime: None }
}

impl IssuerClient {
    async fn discovery(&self) -> Result<Discovery> {
        let url = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let discovery: Discovery = self.get(&url, None).await?;
        // Section 4.3: otherwise another issuer could speak for this one.
        if discovery.issuer != *self.issuer {
            let issuer = &discovery.issuer;
            let remedy = format!("set admin.oidc.issuer = \"{issuer}\", exactly so, if that is the right one");
            return Err(LoginError::config(format!("the issuer at {url} calls itself {issuer}"), remedy));
        }
        for endpoint in [&discovery.authorization_endpoint, &discovery.token_endpoint, &discovery.jwks_uri] {
            check_url(endpoint)?;
        }
        Ok(discovery)
    }

    pub async fn get<T: DeserializeOwned>(&self, url: &str, bearer: Option<&str>) -> Result<T> {
        let mut request = own_request::get(check_url(url)?);
        own_request::authorize(&mut request.head.headers, bearer).map_err(|_| not_json(url))?;
        let (status, body) = self.send(url, request).await?;
        if !(200..300).contains(&status) {
            let remedy = "check admin.oidc.issuer, and whether the issuer works";
            return Err(LoginError::issuer(format!("{url} answered with status {status}"), remedy));
        }
        serde_json::from_slice(&body).map_err(|_| not_json(url))
    }

    /// Posts a form; returns status and body.
    pub async fn post_form(&self, url: &str, authorization: Option<&str>, form: String) -> Result<(u16, Bytes)> {
        let mut request = own_request::post(check_url(url)?, FORM, form);
        if let Some(value) = authorization {
            request.head.headers.append_unchecked(b"Authorization", value.as_bytes());
        }
        self.send(url, request).await
    }

    async fn send(&self, url: &str, request: Request) -> Result<(u16, Bytes)> {
        let unreachable = |why: String| {
            let remedy = "check that the issuer is up, and that this machine can reach it";
            LoginError::issuer(format!("the issuer cannot be reached at {url}: {why}"), remedy)
        };
        let late = |_| Err(format!("no response within {:?} (admin.oidc.timeout)", self.timeout));
        let answered = own_request::fetch(&*self.http, request, MAX_RESPONSE);
        let answered = tokio::time::timeout(self.timeout, answered).await.unwrap_or_else(late);
        answered.map(|(head, body)| (head.status.as_u16(), body)).map_err(unreachable)
    }
}

/// Keys of unknown kinds are skipped: issuers may have some for other purposes.
#[derive(Deserialize)]
struct RawKeys {
    keys: Vec<Value>,
}

impl RawKeys {
    fn known(self) -> Vec<Jwk> {
        let keys = self.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        // Keys for encryption sign nothing, and shared secrets nothing that is accepted.
        let signs = |key: &Jwk| {
            use AlgorithmParameters::{EllipticCurve, OctetKeyPair, RSA};
            let is_pair = matches!(key.algorithm, RSA(_) | EllipticCurve(_) | OctetKeyPair(_));
            is_pair && key.common.public_key_use != Some(PublicKeyUse::Encryption)
        };
        keys.filter(signs).collect()
    }
}

fn find_key(keys: &JwkSet, id: Option<&str>) -> Option<Jwk> {
    match id {
        Some(id) => keys.find(id).cloned(),
        // A token may leave the id out if there is only one key (OpenID Connect Core 1.0, section 10.1).
        None => <&[Jwk; 1]>::try_from(keys.keys.as_slice()).ok().map(|[only]| only.clone()),
    }
}

fn no_key(id: Option<&str>) -> LoginError {
    let which = id.map_or_else(|| "no key id".to_owned(), |id| format!("the unknown key `{id}`"));
    let remedy = "log in again; if that does not help, the issuer's jwks_uri does not list its signing key";
    LoginError::issuer(format!("the token is signed with {which}"), remedy)
}

fn not_json(url: &str) -> LoginError {
    let remedy = "check admin.oidc.issuer: is it an OpenID Connect issuer?";
    LoginError::issuer(format!("what {url} answered cannot be read"), remedy)
}

/// A URL of the issuer: with TLS, unless it is on this machine.
///
/// # Errors
/// It is not a URL, or one of another machine without TLS.
pub(super) fn check_url(text: &str) -> Result<Url> {
    let url = Url::of_service(text)
        .map_err(|e| LoginError::config(format!("`{text}` is not a URL: {e}"), "correct admin.oidc.issuer"))?;
    let is_local = match &url.authority.host {
        Host::Name(name) => &**name == "localhost",
        Host::Ip(ip) => ip.is_loopback(),
    };
    if url.scheme == Scheme::Http && !is_local {
        let remedy = "use an issuer with https; http is for issuers on this machine only";
        return Err(LoginError::config(format!("{text} is without TLS"), remedy));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use interflow_types::{Error, ErrorKind, Response, ResponseFuture, StatusCode};
    use serde_json::json;

    use super::*;

    /// An issuer that answers so many requests, and then none.
    struct FailingIssuer(Mutex<usize>);

    impl HttpClient for FailingIssuer {
        fn send(&self, request: Request) -> ResponseFuture<'_> {
            let mut remaining = self.0.lock();
            let answer = match remaining.checked_sub(1) {
                None => Err(Error::new(ErrorKind::Connect, "down")),
                Some(rest) => {
                    *remaining = rest;
                    let body = match request.head.url.path.ends_with(DISCOVERY_PATH) {
                        true => json!({ "issuer": "https://a.test", "authorization_endpoint": "https://a.test/a",
                            "token_endpoint": "https://a.test/t", "jwks_uri": "https://a.test/k" }),
                        false => json!({ "keys": [{ "kty": "RSA", "kid": "first", "n": "AQAB", "e": "AQAB" }] }),
                    };
                    Ok(Response::full(StatusCode::OK, "application/json", body.to_string()))
                }
            };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_used_for_as_long_as_they_cannot_be_renewed() {
        let token = |id: &str| {
            let header = json!({ "alg": "RS256", "kid": id }).to_string();
            format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(header))
        };
        let provider = |answers| {
            Provider::new("https://a.test", Duration::from_secs(10), Arc::new(FailingIssuer(Mutex::new(answers))))
        };
        assert!(matches!(provider(0).key_for(&token("first")).await, Err(KeyError::Unavailable(_))));
        assert!(matches!(provider(0).key_for("made.up.token").await, Err(KeyError::Token(_))));
        let working = provider(2);
        assert!(working.key_for(&token("first")).await.is_ok());
        tokio::time::advance(LIFETIMES.max_lifetime).await;
        for _ in 0..3 {
            assert!(working.key_for(&token("first")).await.is_ok(), "they are old");
        }
        // It may have a new key by now.
        assert!(matches!(working.key_for(&token("second")).await, Err(KeyError::Unavailable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn logins_share_a_request_to_an_issuer_that_does_not_answer() {
        struct Silent(Mutex<u32>);
        impl HttpClient for Silent {
            fn send(&self, _request: Request) -> ResponseFuture<'_> {
                *self.0.lock() += 1;
                Box::pin(std::future::pending())
            }
        }
        let silent = Arc::new(Silent(Mutex::default()));
        let provider = Provider::new("https://a.test", Duration::from_secs(10), Arc::clone(&silent) as _);
        let begun = tokio::time::Instant::now();
        let logins = futures_util::future::join_all((0..20).map(|_| provider.discovery())).await;
        assert!(logins.iter().all(Result::is_err));
        assert_eq!((begun.elapsed(), *silent.0.lock()), (Duration::from_secs(10), 1));
    }
}
