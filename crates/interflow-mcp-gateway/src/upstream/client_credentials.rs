//! Access tokens of the gateway at a server (RFC 6749, section 4.4): fetched when they are needed, kept until they expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_types::percent::encoded;
use interflow_types::{
    Body, Error, ErrorKind, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Response, ResponseFuture,
    Result, StatusCode, Url,
};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::config::McpClientCredentials;

/// Bound on a response of the token endpoint, in bytes.
const MAX_RESPONSE: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// A token is renewed so long before it expires, and kept for so long if the issuer does not say.
const MARGIN: Duration = Duration::from_secs(30);
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);

/// Sends requests with an access token. A token that the server refuses is fetched anew, once.
pub(super) struct AuthorizedClient {
    inner: Arc<dyn HttpClient>,
    token_url: Url,
    /// With the client's secret.
    form: String,
    token: Mutex<Option<(String, Instant)>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<u64>,
}

impl AuthorizedClient {
    /// # Errors
    /// The URL is invalid.
    pub fn new(
        config: &McpClientCredentials,
        secret: &str,
        inner: Arc<dyn HttpClient>,
    ) -> std::result::Result<Self, String> {
        let token_url = config.check()?;
        let mut form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            encoded(&config.client_id),
            encoded(secret)
        );
        let scope = config.scopes.join(" ");
        for (name, value) in [("scope", Some(&scope).filter(|s| !s.is_empty())), ("resource", config.resource.as_ref())]
        {
            if let Some(value) = value {
                form += &format!("&{name}={}", encoded(value));
            }
        }
        Ok(Self { inner, token_url, form, token: Mutex::default() })
    }

    /// The token; another than `refused`.
    async fn token(&self, refused: Option<&str>) -> Result<String> {
        let mut kept = self.token.lock().await;
        if let Some((token, until)) = &*kept
            && refused != Some(token.as_str())
            && *until > Instant::now()
        {
            return Ok(token.clone());
        }
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch()).await;
        let TokenResponse { access_token, expires_in } = fetched.map_err(|_| failed("it did not answer in time"))??;
        let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs);
        *kept = Some((access_token.clone(), Instant::now() + lifetime.saturating_sub(MARGIN)));
        Ok(access_token)
    }

    async fn fetch(&self) -> Result<TokenResponse> {
        let mut headers = Headers::new();
        headers.append_unchecked(b"Accept", b"application/json");
        headers.append_unchecked(b"Content-Type", b"application/x-www-form-urlencoded");
        let (method, url) = (Method::POST, self.token_url.clone());
        let head = RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None };
        let body = Body::from(bytes::Bytes::from(self.form.clone()));
        let response = self.inner.send(Request { head, body }).await.map_err(|e| failed(&e.to_string()))?;
        if !response.head.status.is_success() {
            return Err(failed(&format!("status {}", response.head.status.as_u16())));
        }
        let (raw, _) = response.body.collect(MAX_RESPONSE).await.map_err(|_| failed("its response broke off"))?;
        // The response is a secret: nothing of it is part of the error.
        let token: TokenResponse = serde_json::from_slice(&raw).map_err(|_| failed("its response has no token"))?;
        let is_token = !token.access_token.is_empty() && token.access_token.bytes().all(|b| b.is_ascii_graphic());
        if is_token { Ok(token) } else { Err(failed("its response has no token")) }
    }

    async fn send_with_token(&self, request: Request) -> Result<Response> {
        let token = self.token(None).await?;
        let Request { head, body } = request;
        let Body::Full(bytes) = body else {
            // What has no body, or cannot be sent twice.
            return self.inner.send(Request { head: authorized(&head, &token), body }).await;
        };
        let first = Request { head: authorized(&head, &token), body: Body::Full(bytes.clone()) };
        let response = self.inner.send(first).await?;
        if response.head.status != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let token = self.token(Some(&token)).await?;
        self.inner.send(Request { head: authorized(&head, &token), body: Body::Full(bytes) }).await
    }
}

impl HttpClient for AuthorizedClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send_with_token(request))
    }
}

fn authorized(head: &RequestHead, token: &str) -> RequestHead {
    let mut head = head.clone();
    head.headers.remove("authorization");
    head.headers.append_unchecked(b"Authorization", format!("Bearer {token}").as_bytes());
    head
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::BadResponse, format!("no access token from its token endpoint (oauth.token_url): {why}"))
}
