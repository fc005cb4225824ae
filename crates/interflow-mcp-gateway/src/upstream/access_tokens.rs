//! Access tokens for a server: of the gateway (RFC 6749, section 4.4), or of each user, for whose own access token the issuer
//! gives another (RFC 8693). Fetched when they are needed, by one request for all, and kept until they expire.

use std::sync::Arc;
use std::time::Duration;

use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy, WeighedCache};
use interflow_types::{
    Body, Error, ErrorKind, HttpClient, Request, RequestHead, Response, ResponseFuture, StatusCode, Url,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::access_identity::AccessIdentity;
use crate::config::{McpClientCredentials, McpGrant, oauth_endpoint};
use crate::protocol::client_key::ClientCredential;
use crate::protocol::oauth_form::{ClientProof, TokenResponse, form_request, response_of};

const LIFETIMES: TokenPolicy = TokenPolicy {
    default_lifetime: Duration::from_secs(300),
    max_lifetime: Duration::from_secs(86_400),
    margin: Duration::from_secs(30),
    failure_ttl: Duration::from_secs(1),
    renewal_failure_ttl: Duration::from_secs(1),
};
/// Bound on the users whose tokens are kept.
const MAX_USERS: usize = 10_000;

/// The access token that a client showed.
#[derive(Clone)]
pub(crate) struct UserToken {
    pub token: Arc<str>,
    /// Of its user and what it allows: another token of the same user may allow less.
    pub grant: Arc<str>,
}

impl UserToken {
    pub fn new(token: Arc<str>, identity: &AccessIdentity) -> Self {
        let mut scopes = identity.scopes.clone();
        scopes.sort_unstable();
        let grant = blake3::hash(json!([identity.subject, scopes]).to_string().as_bytes());
        Self { token, grant: grant.to_hex().as_str().into() }
    }
}

/// The latest token of a user.
pub(crate) type SharedUserToken = Arc<Mutex<Option<UserToken>>>;

/// Sends requests with an access token. A token that the server refuses is fetched anew, once.
pub(super) struct AuthorizedClient {
    inner: Arc<dyn HttpClient>,
    token_url: Url,
    config: McpClientCredentials,
    credential: ClientCredential,
    /// By the grant of the user; of the gateway itself, by none.
    tokens: Mutex<WeighedCache<Arc<str>, CachedToken<String>>>,
}

/// A client for the requests of a user.
struct UserClient(Arc<AuthorizedClient>, SharedUserToken);

impl AuthorizedClient {
    /// # Errors
    /// The URL is invalid.
    pub fn new(config: &McpClientCredentials, secret: &str, inner: Arc<dyn HttpClient>) -> Result<Self, String> {
        let (token_url, credential) = (oauth_endpoint(&config.token_url)?, ClientCredential::new(config, secret)?);
        Ok(Self { inner, token_url, config: config.clone(), credential, tokens: Mutex::default() })
    }

    /// A client for the requests of a user.
    pub fn of_user(self: &Arc<Self>, user: SharedUserToken) -> Arc<dyn HttpClient> {
        Arc::new(UserClient(Arc::clone(self), user))
    }

    fn cached(&self, user: Option<&UserToken>) -> CachedToken<String> {
        let grant = user.map_or_else(|| Arc::from(""), |user| Arc::clone(&user.grant));
        let mut tokens = self.tokens.lock();
        if let Some(token) = tokens.get(&grant) {
            return token.clone();
        }
        if tokens.len() >= MAX_USERS {
            tokens.remove_oldest();
        }
        let token = CachedToken::new(LIFETIMES);
        tokens.insert(grant, token.clone(), 1);
        token
    }

    async fn token(&self, cached: &CachedToken<String>, user: Option<&UserToken>) -> Result<String, Error> {
        let token = cached.get(|| {
            let exchanged = user.map(|user| Arc::clone(&user.token));
            fetch(Arc::clone(&self.inner), self.token_request(user), exchanged)
        });
        token.await.map_err(|why| {
            let message = format!("no access token from its token endpoint (oauth.token_url): {why}");
            Error::new(ErrorKind::BadResponse, message)
        })
    }

    fn token_request(&self, user: Option<&UserToken>) -> Result<Request, String> {
        let (config, scope) = (&self.config, self.config.scopes.join(" "));
        let access_token = "urn:ietf:params:oauth:token-type:access_token";
        let mut fields = match user {
            None => vec![("grant_type", "client_credentials")],
            Some(user) => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                ("subject_token", &user.token),
                ("subject_token_type", access_token),
                ("requested_token_type", access_token),
            ],
        };
        let scope = Some(scope.as_str()).filter(|scope| !scope.is_empty());
        let options =
            [("scope", scope), ("resource", config.resource.as_deref()), ("audience", config.audience.as_deref())];
        fields.extend(options.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let proof = match &self.credential {
            ClientCredential::Secret(secret) => ClientProof::PostedSecret(secret),
            ClientCredential::Key(key) => {
                let audience = config.issuer.as_ref().unwrap_or(&config.token_url);
                ClientProof::Assertion(key.assertion(&config.client_id, audience)?)
            }
        };
        Ok(form_request(&self.token_url, &fields, &config.client_id, &proof))
    }

    async fn send_with_token(&self, request: Request, user: Option<UserToken>) -> Result<Response, Error> {
        let user = user.filter(|_| self.config.grant == McpGrant::TokenExchange);
        if user.is_none() && self.config.grant == McpGrant::TokenExchange {
            let message = "it is reached with the access token of a user (oauth.grant), and the client showed none: a \
                           virtual key is not enough; log in by OAuth";
            return Err(Error::new(ErrorKind::BadResponse, message));
        }
        let cached = self.cached(user.as_ref());
        let token = self.token(&cached, user.as_ref()).await?;
        let Request { head, body } = request;
        let Some(again) = copy_of(&body) else {
            return self.inner.send(Request { head: authorized(&head, &token), body }).await;
        };
        let first = Request { head: authorized(&head, &token), body };
        let response = self.inner.send(first).await?;
        if response.head.status != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        cached.discard(&token);
        let token = self.token(&cached, user.as_ref()).await?;
        self.inner.send(Request { head: authorized(&head, &token), body: again }).await
    }
}

impl HttpClient for UserClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        let user = self.1.lock().clone();
        Box::pin(self.0.send_with_token(request, user))
    }
}

/// A body for a repetition of the request; `None` if it cannot be sent twice.
pub(crate) fn copy_of(body: &Body) -> Option<Body> {
    match body {
        Body::Empty => Some(Body::Empty),
        Body::Full(bytes) => Some(Body::Full(bytes.clone())),
        _ => None,
    }
}

/// The head of a request with an access token.
pub(crate) fn authorized(head: &RequestHead, token: &str) -> RequestHead {
    let mut head = head.clone();
    head.headers.remove("authorization");
    head.headers.append_unchecked(b"Authorization", format!("Bearer {token}").as_bytes());
    head
}

async fn fetch(
    client: Arc<dyn HttpClient>,
    request: Result<Request, String>,
    exchanged: Option<Arc<str>>,
) -> Result<FetchedToken<String>, String> {
    let response = TokenResponse::parse(&response_of(&*client, request?).await?)?;
    if exchanged.is_some_and(|own| *own == *response.access_token) {
        return Err("it gave the user's own token back, which goes to no server".to_owned());
    }
    Ok(FetchedToken { lifetime: response.expires().map(Duration::from_secs), value: response.access_token })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use interflow_types::{Headers, HttpVersion, Method};

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
            let error = client.send_with_token(call(), None).await.err().unwrap().to_string();
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
            assert_eq!(client.send_with_token(request, None).await.unwrap().head.status, StatusCode::OK);
            assert_eq!(issuer.fetches.load(Relaxed), 2);
        }
    }

    #[tokio::test]
    async fn a_response_without_a_token_is_no_part_of_the_error() {
        let (client, _) = client(r#"{"access_token":"two words"}"#, "");
        let error = client.send_with_token(call(), None).await.err().unwrap().to_string();
        assert!(error.contains("has no token") && !error.contains("words"), "{error}");
    }
}
