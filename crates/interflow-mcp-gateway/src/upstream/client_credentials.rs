//! Access tokens of the gateway at a server (RFC 6749, section 4.4): fetched when they are needed, by one request for all,
//! and kept until they expire.

use std::sync::Arc;
use std::time::Duration;

use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy};
use interflow_types::percent::encoded;
use interflow_types::{
    Body, Error, ErrorKind, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Response, ResponseFuture,
    Result, StatusCode, Url,
};
use serde::Deserialize;

use crate::config::McpClientCredentials;

/// Bound on a response of the token endpoint, in bytes.
const MAX_RESPONSE: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
const LIFETIMES: TokenPolicy = TokenPolicy {
    default_lifetime: Duration::from_secs(300),
    max_lifetime: Duration::from_secs(86_400),
    margin: Duration::from_secs(30),
    failure_ttl: Duration::from_secs(1),
    renewal_failure_ttl: Duration::from_secs(1),
};

/// Sends requests with an access token. A token that the server refuses is fetched anew, once.
pub(super) struct AuthorizedClient {
    inner: Arc<dyn HttpClient>,
    token_url: Url,
    /// With the client's secret.
    form: String,
    token: CachedToken<String>,
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
        Ok(Self { inner, token_url, form, token: CachedToken::new(LIFETIMES) })
    }

    async fn token(&self) -> Result<String> {
        let token = self.token.get(|| {
            let (inner, request) = (Arc::clone(&self.inner), self.token_request());
            async move {
                let fetched = tokio::time::timeout(TIMEOUT, fetch(&*inner, request)).await;
                fetched.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
            }
        });
        token.await.map_err(|why| {
            let message = format!("no access token from its token endpoint (oauth.token_url): {why}");
            Error::new(ErrorKind::BadResponse, message)
        })
    }

    fn token_request(&self) -> Request {
        let mut headers = Headers::new();
        headers.append_unchecked(b"Accept", b"application/json");
        headers.append_unchecked(b"Content-Type", b"application/x-www-form-urlencoded");
        let (method, url) = (Method::POST, self.token_url.clone());
        let head = RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None };
        Request { head, body: Body::from(bytes::Bytes::from(self.form.clone())) }
    }

    async fn send_with_token(&self, request: Request) -> Result<Response> {
        let token = self.token().await?;
        let Request { head, body } = request;
        let again = match &body {
            Body::Empty => Body::Empty,
            Body::Full(bytes) => Body::Full(bytes.clone()),
            // It cannot be sent twice.
            _ => return self.inner.send(Request { head: authorized(&head, &token), body }).await,
        };
        let first = Request { head: authorized(&head, &token), body };
        let response = self.inner.send(first).await?;
        if response.head.status != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.token.discard(&token);
        let token = self.token().await?;
        self.inner.send(Request { head: authorized(&head, &token), body: again }).await
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

async fn fetch(client: &dyn HttpClient, request: Request) -> std::result::Result<FetchedToken<String>, String> {
    let response = client.send(request).await.map_err(|e| e.to_string())?;
    if !response.head.status.is_success() {
        return Err(format!("status {}", response.head.status.as_u16()));
    }
    let (raw, _) = response.body.collect(MAX_RESPONSE).await.map_err(|_| "its response broke off")?;
    // The response is a secret: nothing of it is part of the error.
    let token: TokenResponse = serde_json::from_slice(&raw).map_err(|_| "its response has no token")?;
    let is_token = !token.access_token.is_empty() && token.access_token.bytes().all(|b| b.is_ascii_graphic());
    if !is_token {
        return Err("its response has no token".to_owned());
    }
    Ok(FetchedToken { value: token.access_token, lifetime: token.expires_in.map(Duration::from_secs) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use interflow_types::StatusCode;

    use super::*;

    /// A token endpoint that answers so and counts, and a server that accepts one of its tokens.
    struct Issuer {
        body: &'static str,
        accepted: &'static str,
        fetches: AtomicU32,
    }

    impl HttpClient for Issuer {
        fn send(&self, request: Request) -> ResponseFuture<'_> {
            let answered = if request.head.url.path.ends_with("/token") {
                let number = self.fetches.fetch_add(1, Relaxed) + 1;
                match self.body {
                    "" => Err(Error::new(ErrorKind::Connect, "down")),
                    body => {
                        Ok(Response::full(StatusCode::OK, "application/json", body.replace('#', &number.to_string())))
                    }
                }
            } else {
                let is_accepted = request.head.headers.get_str("authorization") == Some(self.accepted);
                let status = if is_accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
                Ok(Response::full(status, "text/plain", String::new()))
            };
            Box::pin(std::future::ready(answered))
        }
    }

    fn client(body: &'static str, accepted: &'static str) -> (AuthorizedClient, Arc<Issuer>) {
        let issuer = Arc::new(Issuer { body, accepted, fetches: AtomicU32::new(0) });
        let config = McpClientCredentials {
            token_url: "https://issuer.test/token".into(),
            client_id: "c".into(),
            client_secret: "s".into(),
            ..McpClientCredentials::default()
        };
        (AuthorizedClient::new(&config, "s", Arc::clone(&issuer) as Arc<dyn HttpClient>).unwrap(), issuer)
    }

    fn call() -> Request {
        let (method, url) = (Method::POST, Url::of_service("https://server.test/mcp").unwrap());
        let (version, headers) = (HttpVersion::Http11, Headers::new());
        Request {
            head: RequestHead { method, url, version, headers, protocol: None },
            body: bytes::Bytes::from_static(b"{}").into(),
        }
    }

    #[tokio::test]
    async fn an_issuer_that_is_down_is_named_and_not_asked_by_each_request() {
        let (client, issuer) = client("", "");
        for _ in 0..3 {
            let error = client.send(call()).await.err().unwrap().to_string();
            assert!(error.contains("oauth.token_url") && error.contains("down"), "{error}");
        }
        assert_eq!(issuer.fetches.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_token_that_the_server_refuses_is_fetched_anew_once() {
        let body = r#"{"access_token":"t#","expires_in":18446744073709551615}"#;
        let (client, issuer) = client(body, "Bearer t2");
        // Without a body, as a stream of events is opened and a session is ended.
        let bodiless = Request { body: Body::Empty, ..call() };
        for request in [bodiless, call()] {
            assert_eq!(client.send(request).await.unwrap().head.status, StatusCode::OK);
            assert_eq!(issuer.fetches.load(Relaxed), 2);
        }
    }

    #[tokio::test]
    async fn a_response_without_a_token_is_no_part_of_the_error() {
        let (client, _) = client(r#"{"access_token":"two words"}"#, "");
        let error = client.send(call()).await.err().unwrap().to_string();
        assert!(error.contains("has no token") && !error.contains("words"), "{error}");
    }
}
