//! Servers over HTTP: the streamable HTTP transport (MCP 2025-11-25 and 2026-07-28, transports). Each session of a client
//! has a session of its own with a server that has sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use bytes::Bytes;
use interflow_codec::sse::SseParser;
use interflow_types::secret_names::mask_url;
use interflow_types::{
    Body, BodyFrame, CollectError, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Response,
    StatusCode, Url,
};
use serde_json::json;
use tokio::sync::{Mutex, watch};

use super::access_tokens::{AuthorizedClient, SharedUserToken};
use super::event_sink::{EventSink, Listeners, ServerEvent, own_answer};
use super::resumption::Resumption;
use super::server_hello::{ServerHello, UpstreamClient, initialize_params};
use super::server_secrets::{SecretMask, SentSecrets, ServerSecrets};
use super::server_url::parse_url;
use crate::config::{McpClientCredentials, McpGrant};
use crate::grants::granted_client::AccountClient;
use crate::grants::link::request_error;
use crate::grants::user::AccountUser;
use crate::grants::{AccountServer, Grants};
use crate::protocol::client_message::DISCOVER;
use crate::protocol::dpop::DpopKey;
use crate::protocol::header_values::{MirroredParam, routing_fields};
use crate::protocol::jsonrpc::{self, RpcError, ServerMessage, server_error};
use crate::protocol::listen_filter::LISTEN;
use crate::protocol::log_level;
use crate::protocol::versions::STATELESS;

const SESSION_HEADER: &str = "mcp-session-id";
/// Bound on the length of a session's id at a server.
const MAX_SESSION_ID: usize = 1024;

/// Everything that requests to one server have in common, and their user. Cheap to clone, for requests that go on by themselves.
#[derive(Clone)]
pub(crate) struct HttpServer(Arc<HttpServerParts>, UpstreamUser);

/// The user of a session, as servers with access tokens or with accounts know them.
#[derive(Clone, Default)]
struct UpstreamUser {
    token: SharedUserToken,
    account: Option<Arc<AccountUser>>,
}

struct HttpServerParts {
    url: Url,
    headers: Headers,
    max_message: usize,
    access: Access,
    mask: SecretMask,
    sent: SentSecrets,
    next_id: AtomicU64,
    /// It was found to have sessions, so that it is not asked again.
    has_sessions: AtomicBool,
}

/// How requests are authorized.
enum Access {
    /// By fields of the configuration, if at all.
    Fields(Arc<dyn HttpClient>),
    Tokens(Arc<AuthorizedClient>),
    Accounts(Arc<AccountClient>),
}

/// How long a server may take to say whether it has no sessions. Some with sessions do not answer a request before one.
pub(super) const DISCOVERY_WAIT: Duration = Duration::from_secs(5);

/// How often the stream of a response is resumed.
const MAX_RESUMPTIONS: u32 = 1_000;

/// How long a request waits until the stream outside of requests is open. Some servers open it only to send something.
const STREAM_WAIT: Duration = Duration::from_secs(2);

/// A session with a server, once it has begun.
pub(crate) struct HttpSession {
    open: Mutex<Option<OpenSession>>,
    client: UpstreamClient,
    /// How often the stream outside of requests was needed: for each beginning, and for each listener.
    streams_needed: watch::Sender<u64>,
    /// How many of these streams the server has opened, has not, or has not in time.
    streams_settled: watch::Sender<u64>,
    /// The calls in progress of a client without a session, by id.
    calls: parking_lot::Mutex<BTreeMap<u64, EventSink>>,
    /// Who listens without a session.
    listeners: Listeners,
    /// A call has it for itself.
    is_leased: AtomicBool,
}

/// A session with a server that a call uses. It may have it for itself, until this is dropped.
pub(crate) struct LeasedSession {
    pub session: Arc<HttpSession>,
    is_exclusive: bool,
}

impl Drop for LeasedSession {
    fn drop(&mut self) {
        if self.is_exclusive {
            self.session.is_leased.store(false, Release);
        }
    }
}

impl HttpSession {
    pub fn new(client: UpstreamClient) -> Self {
        let (streams_needed, streams_settled) = (watch::Sender::new(0), watch::Sender::new(0));
        let (open, calls, listeners, is_leased) = Default::default();
        Self { open, client, streams_needed, streams_settled, calls, listeners, is_leased }
    }

    /// For a call that does not need it for itself.
    pub fn shared(self: Arc<Self>) -> LeasedSession {
        LeasedSession { session: self, is_exclusive: false }
    }

    /// For a call alone, unless another one has it.
    pub fn lease(self: &Arc<Self>) -> Option<LeasedSession> {
        let is_free = !self.is_leased.swap(true, Acquire);
        is_free.then(|| LeasedSession { session: Arc::clone(self), is_exclusive: true })
    }

    /// Adds a listener to those of [`HttpServer::relay`].
    pub fn add_listener(&self, sink: EventSink, needs_stream: bool) {
        self.listeners.add(sink);
        if needs_stream {
            self.renew_stream();
        }
    }

    /// Announces a listener: from now on, requests wait until it can hear the server.
    pub fn announce_listener(&self) -> watch::Receiver<u64> {
        let needed = self.streams_needed.subscribe();
        self.streams_needed.send_modify(|count| *count += 1);
        needed
    }

    /// The stream outside of requests is needed anew: for other resources than before.
    pub fn renew_stream(&self) {
        self.streams_needed.send_modify(|count| *count += 1);
    }

    /// If somebody listens, waits until the stream is open: what a server sends before, many servers drop.
    async fn wait_for_stream(&self) {
        if self.streams_needed.receiver_count() == 0 {
            return;
        }
        let (needed, mut settled) = (*self.streams_needed.borrow(), self.streams_settled.subscribe());
        let waited = tokio::time::timeout(STREAM_WAIT, settled.wait_for(|count| *count >= needed)).await;
        if waited.is_err() {
            // Once is enough.
            self.settle_streams(needed);
        }
    }

    fn settle_streams(&self, settled: u64) {
        self.streams_settled.send_if_modified(|count| {
            let is_more = settled > *count;
            *count = settled.max(*count);
            is_more
        });
    }
}

#[derive(Clone)]
struct OpenSession {
    id: Option<String>,
    hello: ServerHello,
}

/// Where what is read belongs: the session with the server, and what listens.
#[derive(Clone, Copy, Default)]
struct Reading<'a> {
    open: Option<&'a OpenSession>,
    sink: Option<&'a EventSink>,
}

/// A request: its method, its params as raw JSON, and the params that header fields repeat.
type RpcCall<'a> = (&'a str, &'a str, &'a [MirroredParam]);

/// Why a request failed.
enum Failure {
    /// The server does not know the session any more.
    SessionGone,
    Rpc(RpcError),
}

impl From<RpcError> for Failure {
    fn from(e: RpcError) -> Self {
        Self::Rpc(e)
    }
}

impl HttpServer {
    /// # Errors
    /// The URL or a header field is invalid.
    pub fn new(
        name: &str,
        url: &str,
        oauth: Option<&McpClientCredentials>,
        secrets: &ServerSecrets,
        max_message: usize,
        grants: &Arc<Grants>,
    ) -> Result<Self, String> {
        let url = parse_url(url).map_err(|why| format!("url: {why}"))?;
        let mut fields = Headers::new();
        for (field, value) in &secrets.values {
            fields.append(field, value).map_err(|_| format!("headers.{field}: invalid HTTP header field"))?;
        }
        let access = match oauth.map(|oauth| (oauth, oauth.auth().credential(secrets.oauth.clone()))) {
            None => Access::Fields(Arc::clone(&grants.http)),
            Some((oauth, credential)) if oauth.grant == McpGrant::AuthorizationCode => {
                Access::Accounts(AccountClient::new(AccountServer::new(grants, name, url.clone(), oauth, credential?)?))
            }
            Some((oauth, credential)) => {
                let key = oauth.dpop.then(|| DpopKey::derive(&grants.master, name)).transpose()?;
                let client = AuthorizedClient::new(name, oauth, credential?, key, Arc::clone(&grants.http))?;
                Access::Tokens(Arc::new(client))
            }
        };
        tracing::debug!("MCP server {name} at {}", mask_url(&url.to_string()));
        let (next_id, mask) = (AtomicU64::new(1), secrets.mask());
        let (sent, has_sessions) = Default::default();
        let parts = HttpServerParts { url, headers: fields, max_message, access, mask, sent, next_id, has_sessions };
        Ok(Self(Arc::new(parts), UpstreamUser::default()))
    }

    /// As the user of a session reaches it.
    fn of(&self, session: &HttpSession) -> Self {
        let UpstreamClient { user, account_user, .. } = &session.client;
        Self(Arc::clone(&self.0), UpstreamUser { token: Arc::clone(user), account: account_user.clone() })
    }

    async fn send(&self, request: Request) -> interflow_types::Result<Response> {
        let Self(parts, user) = self;
        let token = user.token.lock().clone();
        let note = |secrets: &[&str]| parts.sent.note(&self.token_user(), secrets);
        match &parts.access {
            Access::Fields(client) => client.send(request).await,
            Access::Tokens(client) => client.send(request, token, &note).await,
            Access::Accounts(client) => client.send(request, user.account.as_ref(), &note).await,
        }
    }

    /// Whose access tokens requests have; of the gateway itself, without a name.
    fn token_user(&self) -> Arc<str> {
        let Self(parts, UpstreamUser { token, account }) = self;
        let user = match &parts.access {
            Access::Tokens(client) if client.is_by_user() => token.lock().as_ref().map(|user| Arc::clone(&user.grant)),
            Access::Accounts(_) => account.as_ref().map(|user| Arc::clone(&user.name)),
            _ => None,
        };
        user.unwrap_or_default()
    }

    /// What the server sent, without the secrets that it was sent.
    fn masked(&self, sent: &str) -> String {
        self.0.sent.mask(&self.token_user()).masked(&self.0.mask.masked(sent)).into_owned()
    }

    fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Relaxed)
    }

    /// The server, if users have accounts there.
    pub fn accounts(&self) -> Option<&AccountServer> {
        if let Access::Accounts(own) = &self.0.access { Some(&own.server) } else { None }
    }

    pub async fn hello(&self, session: &HttpSession, start: Duration) -> Result<ServerHello, RpcError> {
        self.of(session).open(session, start).await.map(|open| open.hello)
    }

    pub async fn request(
        &self,
        session: &HttpSession,
        start: Duration,
        method: &str,
        params: &str,
        mirrored: &[MirroredParam],
        sink: Option<EventSink>,
    ) -> Result<String, RpcError> {
        let server = self.of(session);
        for is_second in [false, true] {
            let open = server.open(session, start).await?;
            let id = self.next_id();
            let token = sink.as_ref().is_some_and(|sink| sink.wants_progress).then_some(id);
            let params = session.client.params(&open.hello, params, token);
            // Without a session, the end of the response is enough.
            let mut cancel = CancelOnDrop((!open.hello.is_stateless()).then(|| (server.clone(), open.clone(), id)));
            let _call = sink.as_ref().map(|sink| {
                session.calls.lock().insert(id, sink.clone());
                CallInProgress(session, id)
            });
            let reading = Reading { open: Some(&open), sink: sink.as_ref() };
            let done = server.exchange(id, (method, &params, mirrored), reading).await;
            cancel.0 = None;
            match done {
                Ok((_, result)) => return Ok(result),
                Err(Failure::Rpc(e)) => return Err(e),
                // Such as after a restart of the server: the session begins again, once.
                Err(Failure::SessionGone) if !is_second => {
                    let mut slot = session.open.lock().await;
                    if slot.as_ref().is_some_and(|s| s.id == open.id) {
                        *slot = None;
                    }
                }
                Err(Failure::SessionGone) => break,
            }
        }
        Err(RpcError::server("it refuses every session with status 404; check `url`"))
    }

    /// Ends a session. The result is of no consequence: a server may not allow it.
    pub async fn end(&self, session: &HttpSession) {
        let Some(open) = session.open.lock().await.take().filter(|s| s.id.is_some()) else { return };
        let request = self.http_request(Method::DELETE, Body::Empty, Some(&open));
        let _ = tokio::time::timeout(Duration::from_secs(5), self.of(session).send(request)).await;
    }

    /// The session, which begins with the first request, when a client that listens can hear the server.
    async fn open(&self, session: &HttpSession, start: Duration) -> Result<OpenSession, RpcError> {
        let open = self.begin(session, start).await?;
        session.wait_for_stream().await;
        Ok(open)
    }

    async fn begin(&self, session: &HttpSession, start: Duration) -> Result<OpenSession, RpcError> {
        let mut slot = session.open.lock().await;
        if let Some(open) = &*slot {
            return Ok(open.clone());
        }
        let begin = async {
            let has_sessions = self.0.has_sessions.swap(false, Relaxed);
            let mut needed = None;
            if !has_sessions {
                match self.discover(&session.client).await {
                    Ok(Some(hello)) => return Ok(OpenSession { id: None, hello }),
                    Ok(None) => {}
                    Err(e) => needed = Some(e),
                }
            }
            let params = initialize_params(&session.client.capabilities);
            let begun = self.exchange(self.next_id(), ("initialize", &params, &[]), Reading::default()).await;
            let (session_id, result) = begun.map_err(|failure| match (failure, needed) {
                // A server without sessions does not know the request.
                (Failure::Rpc(e), Some(needed)) if !e.has_own_link() => needed,
                (Failure::Rpc(e), _) => e,
                (Failure::SessionGone, _) => RpcError::server("there is no MCP server at its URL: status 404"),
            })?;
            let open = OpenSession { id: session_id, hello: ServerHello::parse(&result)? };
            let text = jsonrpc::notification("notifications/initialized", &json!({}));
            self.notify(text, &open).await.map_err(|e| request_error(&e))?;
            if let Some(params) = session.client.log_level_params(&open.hello) {
                let reading = Reading { open: Some(&open), sink: None };
                // Without it the server sends more than the client gets.
                let _ = self.exchange(self.next_id(), (log_level::SET_LEVEL, &params, &[]), reading).await;
            }
            self.0.has_sessions.store(true, Relaxed);
            Ok(open)
        };
        let limit = interflow_types::units::HumanDuration(start);
        let begun = tokio::time::timeout(start, begin).await;
        let open = begun.map_err(|_| RpcError::server(format!("no session within {limit} (start_timeout)")))??;
        *slot = Some(open.clone());
        session.streams_needed.send_modify(|count| *count += 1);
        Ok(open)
    }

    /// What the server says of itself, if it has no sessions. Any other answer, or none, means that it has.
    ///
    /// # Errors
    /// The user has to connect their account before it is known.
    async fn discover(&self, client: &UpstreamClient) -> Result<Option<ServerHello>, RpcError> {
        let open = OpenSession { id: None, hello: ServerHello::stateless() };
        for _ in 0..2 {
            let (params, reading) = (client.params(&open.hello, "{}", None), Reading { open: Some(&open), sink: None });
            let answered = self.exchange(self.next_id(), (DISCOVER, &params, &[]), reading);
            match tokio::time::timeout(DISCOVERY_WAIT, answered).await {
                Ok(Ok((_, result))) => return Ok(ServerHello::parse_discovery(&result)),
                // It has the version after all, as it says itself.
                Ok(Err(Failure::Rpc(e))) if e.supports(STATELESS) => {}
                Ok(Err(Failure::Rpc(e))) if e.has_own_link() => return Err(e),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(None)
    }

    /// Sends a message that is not answered.
    async fn notify(&self, text: String, open: &OpenSession) -> interflow_types::Result<Response> {
        self.send(self.http_request(Method::POST, Bytes::from(text).into(), Some(open))).await
    }

    fn http_request(&self, method: Method, body: Body, open: Option<&OpenSession>) -> Request {
        let mut headers = self.0.headers.clone();
        if method == Method::POST {
            headers.append_unchecked(b"Content-Type", b"application/json");
        }
        headers.append_unchecked(b"Accept", b"application/json, text/event-stream");
        headers.append_unchecked(b"Accept-Encoding", b"identity");
        if let Some(open) = open {
            headers.append_unchecked(b"MCP-Protocol-Version", open.hello.version.as_bytes());
            if let Some(id) = &open.id {
                headers.append_unchecked(b"Mcp-Session-Id", id.as_bytes());
            }
        }
        let url = self.0.url.clone();
        Request { head: RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None }, body }
    }

    /// A request, for a server without sessions with header fields that repeat what is in it.
    fn rpc_request(
        &self,
        id: u64,
        (method, params, mirrored): RpcCall<'_>,
        open: Option<&OpenSession>,
    ) -> Result<Request, RpcError> {
        let text = jsonrpc::request(id, method, params);
        let mut request = self.http_request(Method::POST, Bytes::from(text).into(), open);
        if open.is_some_and(|open| open.hello.is_stateless()) {
            for (name, value) in routing_fields(method, params, mirrored) {
                let invalid = |_| RpcError::server(format!("the header field {name} cannot have its value"));
                request.head.headers.append(&name, value).map_err(invalid)?;
            }
        }
        Ok(request)
    }

    /// Sends a request and reads until its response. Returns the session's id, too, if the server names one.
    async fn exchange(
        &self,
        id: u64,
        call: RpcCall<'_>,
        reading: Reading<'_>,
    ) -> Result<(Option<String>, String), Failure> {
        let request = self.rpc_request(id, call, reading.open)?;
        let response = self.send(request).await.map_err(|e| request_error(&e))?;
        let status = response.head.status;
        if status == StatusCode::NOT_FOUND && reading.open.is_none_or(|open| open.id.is_some()) {
            return Err(Failure::SessionGone);
        }
        if !status.is_success() {
            return Err(self.refused(status, response.body).await.into());
        }
        let headers = &response.head.headers;
        let session_id = headers.get_str(SESSION_HEADER).filter(|id| id.len() <= MAX_SESSION_ID).map(str::to_owned);
        if headers.get_str("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            return Err(RpcError::server("its response has a content coding, which was not asked for").into());
        }
        let result = if has_events(headers) {
            self.read_response(id, response.body, reading).await?
        } else {
            let text = self.read_text(response.body).await?;
            match ServerMessage::parse(&text).map_err(RpcError::server)? {
                ServerMessage::Response(other, result) if other == id => result?,
                _ => return Err(RpcError::server("its response is not for this request").into()),
            }
        };
        Ok((session_id, result))
    }

    /// What a status other than success means.
    async fn refused(&self, status: StatusCode, body: Body) -> RpcError {
        match status.as_u16() {
            status @ 301..=308 => {
                RpcError::server(format!("status {status}: redirects are not followed; set `url` to the target"))
            }
            status @ (401 | 403) => RpcError::server(format!(
                "status {status}: it refuses the gateway's credentials; check `headers` or `oauth`"
            )),
            status => {
                // Some servers explain themselves by a JSON-RPC error.
                let text = self.read_text(body).await.unwrap_or_default();
                let value: serde_json::Value = interflow_codec::json::parse(text.as_bytes()).unwrap_or_default();
                match value["error"]["message"].is_string() {
                    true => server_error(&value["error"]),
                    false => RpcError::server(format!("status {status}")),
                }
            }
        }
    }

    async fn read_text(&self, body: Body) -> Result<String, RpcError> {
        let bytes = match body.collect(self.0.max_message).await {
            Ok((bytes, _)) => bytes,
            Err(CollectError::TooLarge(_)) => return Err(self.too_large()),
            Err(CollectError::Broken(e)) => return Err(RpcError::server(e.to_string())),
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| RpcError::server("its response is not UTF-8"))?;
        Ok(self.masked(text))
    }

    fn too_large(&self) -> RpcError {
        RpcError::server(format!("its message is larger than {} bytes (mcp.max_message)", self.0.max_message))
    }

    /// Reads a stream until the response. A server may end it before, and send the rest in another one.
    async fn read_response(&self, id: u64, body: Body, reading: Reading<'_>) -> Result<String, RpcError> {
        let mut resumption = Resumption::default();
        let mut read = self.read_events(Some(id), body, reading, &mut resumption).await;
        for _ in 0..MAX_RESUMPTIONS {
            match read {
                Ok(Some(result)) => return Ok(result),
                Err(e) if resumption.last_event.is_none() => return Err(e),
                Ok(None) if resumption.last_event.is_none() => break,
                // Without a session, the request is lost.
                _ if reading.open.is_some_and(|open| open.hello.is_stateless()) => break,
                // It broke off or was ended, and can be resumed.
                Ok(None) | Err(_) => {}
            }
            tokio::time::sleep(resumption.pause).await;
            let Some(body) = self.open_stream(reading.open, resumption.last_event.as_deref()).await? else { break };
            read = self.read_events(Some(id), body, reading, &mut resumption).await;
        }
        Err(RpcError::server("its stream ended without the response"))
    }

    /// Reads a stream: to the response of a request, whose error is one of this, or to its end.
    async fn read_events(
        &self,
        id: Option<u64>,
        mut body: Body,
        reading: Reading<'_>,
        resumption: &mut Resumption,
    ) -> Result<Option<String>, RpcError> {
        let mut events = SseParser::new(self.0.max_message);
        while let Some(frame) = body.frame().await {
            let BodyFrame::Data(data) = frame.map_err(|e| RpcError::server(e.to_string()))? else { continue };
            events.push(&data);
            while let Some(event) = events.next_event().map_err(|_| self.too_large())? {
                resumption.note(event.id.as_ref(), event.retry);
                let Some(text) = event.data.filter(|text| !text.is_empty()) else { continue };
                match ServerMessage::parse(&self.masked(&text)) {
                    Err(_) if id.is_none() => {}
                    Err(why) => {
                        // It may be the response, which would not be sent again.
                        resumption.last_event = None;
                        return Err(RpcError::server(why));
                    }
                    Ok(ServerMessage::Response(other, result)) if Some(other) == id => {
                        resumption.last_event = None;
                        return result.map(Some);
                    }
                    Ok(ServerMessage::Notification { method, params }) => {
                        if let Some(sink) = reading.sink {
                            sink.notify(method, params);
                        }
                    }
                    Ok(ServerMessage::Request { id, method, params }) => {
                        self.answer_server(id, method, params, reading);
                    }
                    Ok(ServerMessage::Response(..) | ServerMessage::Other) => {}
                }
            }
        }
        Ok(None)
    }

    /// Answers a request of the server, while its stream is read on.
    fn answer_server(&self, id: String, method: String, params: String, reading: Reading<'_>) {
        let Some(open) = reading.open.filter(|open| !open.hello.is_stateless()).cloned() else { return };
        let (server, sink) = (self.clone(), reading.sink.cloned());
        tokio::spawn(async move {
            let answer = match (own_answer(&method, sink.is_some()), sink) {
                (Some(answer), _) => answer,
                (None, Some(sink)) => sink.ask(method, params).await,
                (None, None) => return,
            };
            if let Err(e) = server.notify(jsonrpc::response(&id, &answer), &open).await {
                tracing::debug!("an answer to an MCP server was not delivered: {e}");
            }
        });
    }

    /// The stream for what belongs to no request, or the rest of one; `None` if the server has none.
    async fn open_stream(&self, open: Option<&OpenSession>, last: Option<&str>) -> Result<Option<Body>, RpcError> {
        self.read_stream(self.http_request(Method::GET, Body::Empty, open), last).await
    }

    async fn read_stream(&self, mut request: Request, last_event: Option<&str>) -> Result<Option<Body>, RpcError> {
        if let Some(id) = last_event {
            let invalid = |_| RpcError::server("the id of its event is not a valid HTTP header value");
            request.head.headers.append("Last-Event-ID", id).map_err(invalid)?;
        }
        let response = self.send(request).await.map_err(|e| request_error(&e))?;
        let headers = &response.head.headers;
        let is_stream = response.head.status.is_success() && has_events(headers);
        Ok((is_stream && !headers.contains("content-encoding")).then_some(response.body))
    }

    /// The stream for what belongs to no request of a server without sessions.
    async fn open_subscription(&self, client: &UpstreamClient, open: &OpenSession) -> Result<Option<Body>, RpcError> {
        let params = client.listen_params(&open.hello);
        self.read_stream(self.rpc_request(self.next_id(), (LISTEN, &params, &[]), Some(open))?, None).await
    }

    /// Passes on what the server sends outside of requests, from the beginning of the session with it. A session that the
    /// client does not begin is not begun for this. `needed` is of [`HttpSession::announce_listener`].
    pub async fn listen(&self, session: &HttpSession, mut needed: watch::Receiver<u64>, sink: &EventSink) {
        let server = self.of(session);
        loop {
            let slot = session.open.lock().await;
            let (open, number) = (slot.clone(), *needed.borrow_and_update());
            drop(slot);
            let mut resumption = Resumption::default();
            let reading = async {
                let Some(open) = open else { return std::future::pending().await };
                // A client without a session may not listen at all.
                if open.hello.is_stateless() && session.client.is_stateless && session.listeners.open().is_empty() {
                    session.settle_streams(number);
                    return std::future::pending().await;
                }
                loop {
                    let body = match open.hello.is_stateless() {
                        true => server.open_subscription(&session.client, &open).await,
                        false => server.open_stream(Some(&open), resumption.last_event.as_deref()).await,
                    };
                    session.settle_streams(number);
                    // A server that has no such stream is not asked again in this session.
                    let Ok(Some(body)) = body else { break };
                    let reading = Reading { open: Some(&open), sink: Some(sink) };
                    let _ = server.read_events(None, body, reading, &mut resumption).await;
                    tokio::time::sleep(resumption.pause).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = reading => {}
                changed = needed.changed() => if changed.is_err() { return },
            }
        }
    }

    /// For a client without a session, passes on what the server sends outside of requests: its own requests to the call
    /// that has the session, and the rest to all listeners. The stream counts as needed from this call on.
    pub fn relay(self, session: Arc<HttpSession>) -> impl Future<Output = ()> + Send {
        let needed = session.announce_listener();
        async move {
            let (sink, mut events) = EventSink::new(false);
            let passing = async {
                while let Some(event) = events.recv().await {
                    match event {
                        ServerEvent::Request(_) => {
                            let call = session.calls.lock().last_key_value().map(|(_, sink)| sink.clone());
                            if let Some(call) = call {
                                call.pass(event);
                            }
                        }
                        ServerEvent::Notification { method, params } => {
                            let listeners = session.listeners.open();
                            listeners.iter().for_each(|sink| sink.notify(method.clone(), params.clone()));
                        }
                        ServerEvent::Progress(_) => {}
                    }
                }
            };
            tokio::join!(self.listen(&session, needed, &sink), passing);
        }
    }
}

/// Whether the body of a message is an event stream.
fn has_events(headers: &Headers) -> bool {
    let media_type = headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    media_type.trim_start().starts_with("text/event-stream")
}

/// A call of a client without a session, to which the server may have requests.
struct CallInProgress<'s>(&'s HttpSession, u64);

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().remove(&self.1);
    }
}

/// Tells the server that the request is cancelled, unless the response came.
struct CancelOnDrop(Option<(HttpServer, OpenSession, u64)>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((server, open, id)) = self.0.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let text = jsonrpc::notification("notifications/cancelled", &json!({ "requestId": id }));
            let _ = tokio::time::timeout(Duration::from_secs(5), server.notify(text, &open)).await;
        });
    }
}
