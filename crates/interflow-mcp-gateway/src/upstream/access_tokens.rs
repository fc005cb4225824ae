//! Access tokens for a server: of the gateway (RFC 6749, section 4.4; RFC 7523, section 2.1), or of each user, for whose own
//! access token the issuer gives another (RFC 8693). Fetched when they are needed, by one request for all, and kept until they expire.

use std::sync::Arc;
use std::time::Duration;

use interflow_tasks::{CachedToken, FetchedToken, TokenPolicy, WeighedCache};
use interflow_types::{Error, ErrorKind, HttpClient, Request, Response, StatusCode, Url};
use parking_lot::Mutex;
use serde_json::json;

use crate::access_identity::AccessIdentity;
use crate::config::{McpClientCredentials, McpGrant};
use crate::protocol::client_key::ClientCredential;
use crate::protocol::dpop::{DpopKey, copy_of, send_authorized};
use crate::protocol::oauth_form::{TokenResponse, form_request, response_of};

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
    server: Arc<str>,
    inner: Arc<dyn HttpClient>,
    token_url: Url,
    config: McpClientCredentials,
    credential: ClientCredential,
    /// To which tokens are bound.
    dpop: Option<DpopKey>,
    /// By the grant of the user; of the gateway itself, by none.
    tokens: Mutex<WeighedCache<Arc<str>, CachedToken<String>>>,
}

impl AuthorizedClient {
    /// # Errors
    /// The URL is invalid.
    pub fn new(
        server: &str,
        config: &McpClientCredentials,
        credential: ClientCredential,
        dpop: Option<DpopKey>,
        inner: Arc<dyn HttpClient>,
    ) -> Result<Self, String> {
        let token_url = config.token_endpoint()?;
        let (server, config, tokens) = (server.into(), config.clone(), Mutex::default());
        Ok(Self { server, inner, token_url, config, credential, dpop, tokens })
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

    async fn token(self: &Arc<Self>, cached: &CachedToken<String>, user: Option<&UserToken>) -> Result<String, Error> {
        let (own, exchanged) = (Arc::clone(self), user.map(|user| Arc::clone(&user.token)));
        let token = cached.get(|| async move { own.fetch(exchanged).await });
        token.await.map_err(|why| {
            let message = format!("no access token from its token endpoint (oauth.token_url): {why}");
            Error::new(ErrorKind::BadResponse, message)
        })
    }

    async fn fetch(&self, exchanged: Option<Arc<str>>) -> Result<FetchedToken<String>, String> {
        let (config, scope) = (&self.config, self.config.scopes.join(" "));
        let access_token = "urn:ietf:params:oauth:token-type:access_token";
        let assertion;
        let mut fields = match (&exchanged, &config.workload_token) {
            (None, Some(reference)) => {
                // A file is read each time: the token in it is replaced before it expires.
                assertion = interflow_files::resolve_secret_ref(reference).map_err(|error| {
                    // The client is not told where it is.
                    tracing::warn!(server = &*self.server, error, "cannot read oauth.workload_token");
                    "oauth.workload_token cannot be read; the log of the gateway says why"
                })?;
                vec![("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion.as_str())]
            }
            (None, None) => vec![("grant_type", "client_credentials")],
            (Some(token), _) => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                ("subject_token", token),
                ("subject_token_type", access_token),
                ("requested_token_type", access_token),
            ],
        };
        let scope = Some(scope.as_str()).filter(|scope| !scope.is_empty());
        let options =
            [("scope", scope), ("resource", config.resource.as_deref()), ("audience", config.audience.as_deref())];
        fields.extend(options.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let client = (config.id(), config.issuer.as_ref().or(config.token_url.as_ref()).map_or("", String::as_str));
        let build = || form_request(&self.token_url, &fields, client, &self.credential, false);
        let raw = response_of(&*self.inner, build, self.dpop.as_ref()).await?;
        let response = TokenResponse::parse(&raw, self.dpop.is_some())?;
        if exchanged.is_some_and(|own| *own == *response.access_token) {
            return Err("it gave the user's own token back, which goes to no server".to_owned());
        }
        Ok(FetchedToken { lifetime: response.expires().map(Duration::from_secs), value: response.access_token })
    }

    /// Whether each user has tokens of their own.
    pub fn is_by_user(&self) -> bool {
        self.config.grant == McpGrant::TokenExchange
    }

    /// Sends a request of a user. `note` is told which token it is sent with.
    pub async fn send(
        self: &Arc<Self>,
        request: Request,
        user: Option<UserToken>,
        note: &(dyn Fn(&[&str]) + Sync),
    ) -> Result<Response, Error> {
        let user = user.filter(|_| self.is_by_user());
        if user.is_none() && self.is_by_user() {
            let message = "it is reached with the access token of a user (oauth.grant), and the client showed none: a \
                           virtual key is not enough; log in by OAuth";
            return Err(Error::new(ErrorKind::BadResponse, message));
        }
        let cached = self.cached(user.as_ref());
        let token = self.token(&cached, user.as_ref()).await?;
        note(&[&token]);
        let (again, key) = (copy_of(&request), self.dpop.as_ref());
        let response = send_authorized(&*self.inner, request, &token, key).await?;
        let is_refused = response.head.status == StatusCode::UNAUTHORIZED;
        let Some(again) = again.filter(|_| is_refused) else { return Ok(response) };
        cached.discard(&token);
        let token = self.token(&cached, user.as_ref()).await?;
        note(&[&token]);
        send_authorized(&*self.inner, again, &token, key).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use interflow_types::{Body, Headers, HttpVersion, Method, RequestHead, ResponseFuture};

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

    fn client(body: &'static str, accepted: &'static str) -> (Arc<AuthorizedClient>, Arc<Issuer>) {
        let issuer = Arc::new(Issuer { body, accepted, fetches: AtomicU32::new(0) });
        let config = McpClientCredentials {
            token_url: Some("https://issuer.test/token".into()),
            client_id: Some("c".into()),
            client_secret: Some("s".into()),
            ..McpClientCredentials::default()
        };
        let (credential, http) = (ClientCredential::Secret("s".into()), Arc::clone(&issuer) as Arc<dyn HttpClient>);
        (Arc::new(AuthorizedClient::new("crm", &config, credential, None, http).unwrap()), issuer)
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
            let error = client.send(call(), None, &|_| ()).await.err().unwrap().to_string();
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
            assert_eq!(client.send(request, None, &|_| ()).await.unwrap().head.status, StatusCode::OK);
            assert_eq!(issuer.fetches.load(Relaxed), 2);
        }
    }

    #[tokio::test]
    async fn a_response_without_a_token_is_no_part_of_the_error() {
        let (client, _) = client(r#"{"access_token":"two words"}"#, "");
        let error = client.send(call(), None, &|_| ()).await.err().unwrap().to_string();
        assert!(error.contains("has no token") && !error.contains("words"), "{error}");
    }
}
