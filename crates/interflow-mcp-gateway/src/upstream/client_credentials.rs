//! Access tokens of the gateway at a server (RFC 6749, section 4.4): fetched when they are needed, by one request for all,
//! and kept until they expire.

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
/// The longest that a token is kept, whatever the issuer says.
const MAX_LIFETIME: Duration = Duration::from_secs(86_400);
/// How long a failure is returned to further requests without a new attempt.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Sends requests with an access token. A token that the server refuses is fetched anew, once.
pub(super) struct AuthorizedClient {
    inner: Arc<dyn HttpClient>,
    token_url: Url,
    /// With the client's secret.
    form: String,
    /// Locked while a token is fetched, so that requests that wait for it share it.
    kept: Mutex<KeptToken>,
}

#[derive(Default)]
struct KeptToken {
    /// With the time at which it is renewed.
    token: Option<(String, Instant)>,
    /// Why there is none, and until when nobody tries again.
    failure: Option<(String, Instant)>,
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
        Ok(Self { inner, token_url, form, kept: Mutex::default() })
    }

    /// The token; another than `refused`. Cancel-safe: the next request makes an attempt of its own.
    async fn token(&self, refused: Option<&str>) -> Result<String> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        if let Some((token, until)) = &kept.token
            && refused != Some(token.as_str())
            && *until > now
        {
            return Ok(token.clone());
        }
        // Requests that waited for an attempt get its error, instead of making one each.
        if let Some((why, until)) = &kept.failure
            && *until > now
        {
            return Err(failed(why));
        }
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch()).await;
        match fetched.unwrap_or_else(|_| Err("it did not answer in time".to_owned())) {
            Ok(TokenResponse { access_token, expires_in }) => {
                let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
                let until = Instant::now() + lifetime.saturating_sub(MARGIN);
                *kept = KeptToken { token: Some((access_token.clone(), until)), failure: None };
                Ok(access_token)
            }
            Err(why) => {
                let error = failed(&why);
                *kept = KeptToken { token: None, failure: Some((why, Instant::now() + FAILURE_TTL)) };
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> std::result::Result<TokenResponse, String> {
        let mut headers = Headers::new();
        headers.append_unchecked(b"Accept", b"application/json");
        headers.append_unchecked(b"Content-Type", b"application/x-www-form-urlencoded");
        let (method, url) = (Method::POST, self.token_url.clone());
        let head = RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None };
        let body = Body::from(bytes::Bytes::from(self.form.clone()));
        let response = self.inner.send(Request { head, body }).await.map_err(|e| e.to_string())?;
        if !response.head.status.is_success() {
            return Err(format!("status {}", response.head.status.as_u16()));
        }
        let (raw, _) = response.body.collect(MAX_RESPONSE).await.map_err(|_| "its response broke off")?;
        // The response is a secret: nothing of it is part of the error.
        let token: TokenResponse = serde_json::from_slice(&raw).map_err(|_| "its response has no token")?;
        let is_token = !token.access_token.is_empty() && token.access_token.bytes().all(|b| b.is_ascii_graphic());
        if is_token { Ok(token) } else { Err("its response has no token".to_owned()) }
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

#[cfg(test)]
mod tests {
    use interflow_types::StatusCode;
    use parking_lot::Mutex as SyncMutex;

    use super::*;

    /// A token endpoint that answers so, and counts.
    struct Endpoint(&'static str, SyncMutex<u32>);

    impl HttpClient for Endpoint {
        fn send(&self, _request: Request) -> ResponseFuture<'_> {
            *self.1.lock() += 1;
            Box::pin(async {
                // Others come while it is asked.
                tokio::task::yield_now().await;
                match self.0 {
                    "" => Err(Error::new(ErrorKind::Connect, "down")),
                    body => Ok(Response::full(StatusCode::OK, "application/json", body.to_owned())),
                }
            })
        }
    }

    fn client(body: &'static str) -> (AuthorizedClient, Arc<Endpoint>) {
        let endpoint = Arc::new(Endpoint(body, SyncMutex::default()));
        let config = McpClientCredentials {
            token_url: "https://issuer.test/token".into(),
            client_id: "c".into(),
            client_secret: "s".into(),
            ..McpClientCredentials::default()
        };
        (AuthorizedClient::new(&config, "s", Arc::clone(&endpoint) as Arc<dyn HttpClient>).unwrap(), endpoint)
    }

    #[tokio::test]
    async fn requests_that_wait_for_an_issuer_that_is_down_share_one_attempt() {
        let (client, endpoint) = client("");
        let all = futures_util::future::join_all((0..20).map(|_| client.token(None))).await;
        assert!(all.iter().all(|token| token.as_ref().is_err_and(|e| e.to_string().contains("oauth.token_url"))));
        assert_eq!(*endpoint.1.lock(), 1);
        client.kept.lock().await.failure.as_mut().unwrap().1 = Instant::now();
        assert!(client.token(None).await.is_err());
        assert_eq!(*endpoint.1.lock(), 2, "later it is tried again");
    }

    #[tokio::test]
    async fn a_lifetime_of_ages_is_bounded() {
        for body in [r#"{"access_token":"t","expires_in":18446744073709551615}"#, r#"{"access_token":"t"}"#] {
            let (client, endpoint) = client(body);
            assert_eq!(client.token(None).await.unwrap(), "t");
            assert_eq!(client.token(None).await.unwrap(), "t");
            let until = client.kept.lock().await.token.as_ref().unwrap().1;
            assert!(until <= Instant::now() + MAX_LIFETIME && *endpoint.1.lock() == 1, "{body}");
        }
    }
}
