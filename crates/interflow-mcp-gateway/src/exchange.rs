//! A request to an endpoint: its state, kept with its flow from stage to stage, and the session that it names.

use std::sync::Arc;

use interflow_limits::{KeyContext, VirtualKey};
use interflow_redact::ValuePolicy;
use interflow_types::{Flow, RequestHead, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;

use crate::grants::user::AccountUser;
use crate::protocol::client_capabilities::ClientCapabilities;
use crate::protocol::client_message::ClientMessage;
use crate::protocol::envelope::Envelope;
use crate::protocol::jsonrpc::RpcError;
use crate::protocol::log_level::LogLevel;
use crate::protocol::responses::refusal;
use crate::service::McpService;
use crate::session::call_outcome::CallOutcome;
use crate::session::client_session::{McpSession, STATELESS_ID, new_vaults};
use crate::session::request_state::{RequestState, StateBinding};
use crate::settings::McpSettings;
use crate::upstream::access_tokens::UserToken;
use crate::upstream::server::McpServer;

const SESSION_HEADER: &str = "mcp-session-id";

/// What the holder of an access token begins with, before its subject.
pub(crate) const TOKEN_HOLDER: &str = "token:";

/// Bound on what a session's id says of the client, in bytes.
const MAX_SEALED: usize = 2048;

/// An endpoint: of one server, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint(pub Option<Arc<str>>);

/// What a client sees of the servers: those of its endpoint, as far as its key allows.
#[derive(Clone, Copy)]
pub(crate) struct ClientView<'a> {
    pub settings: &'a McpSettings,
    pub session: &'a Arc<McpSession>,
    /// The server of the endpoint; `None` for all of them.
    pub only: Option<&'a str>,
    pub key: Option<&'a VirtualKey>,
}

impl ClientView<'_> {
    pub fn servers(&self) -> Vec<Arc<McpServer>> {
        self.settings.of_endpoint(self.only)
    }
}

/// The state of a request to an endpoint, kept with its flow.
#[derive(Default)]
pub(crate) struct McpExchange {
    /// Set before any stage; only flows to the endpoints have it.
    pub endpoint: Option<Endpoint>,
    /// By a reverse proxy, whose clients are not on this machine although it is.
    pub is_forwarded: bool,
    pub prepared: Option<PreparedRequest>,
    pub session: Option<Arc<McpSession>>,
    /// The subject of the access token of the request.
    pub holder: Option<Arc<str>>,
    /// That token, if a server is shown another one for it.
    pub user: Option<UserToken>,
    /// What the client sent is restored in the response.
    pub restores: bool,
    /// The response is a stream: what has to be restored in it may be known only later.
    pub is_stream: bool,
    pub outcome: Arc<Mutex<CallOutcome>>,
}

impl McpExchange {
    /// The response is the stream of a session.
    pub fn begin_stream(&mut self, session: &Arc<McpSession>, restores: bool) {
        self.session = Some(Arc::clone(session));
        (self.restores, self.is_stream) = (restores, true);
    }
}

/// A request that was parsed and redacted.
pub(crate) struct PreparedRequest {
    pub settings: Arc<McpSettings>,
    /// As it is recorded.
    pub message: ClientMessage,
    /// As the client sent it, if the server gets more than the recording.
    pub original: Option<ClientMessage>,
    /// The server of a call, and the name of the tool or prompt there; or why the call is refused.
    pub target: Option<Result<(Arc<McpServer>, String), RpcError>>,
    /// The rule by which a person is asked about the call.
    pub asks: Option<String>,
    pub policy: ValuePolicy,
    pub key: Option<Arc<VirtualKey>>,
    /// What the client gave back of an earlier answer to its request.
    pub state: RequestState,
    /// What the state of a call is bound to.
    pub binding: Option<Arc<StateBinding>>,
    /// The resources of a request for notifications.
    pub subscriptions: Vec<Subscription>,
}

/// A resource of whose changes the client wants to know.
pub(crate) struct Subscription {
    pub server: Arc<McpServer>,
    /// As it is recorded.
    pub uri: String,
    /// As the client sent it, if the server gets more than the recording.
    pub original: Option<String>,
}

/// To whom a session of this request belongs: the holder of its virtual key or of its access token.
pub(crate) fn session_holder(flow: &Flow) -> Option<Arc<str>> {
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.as_ref());
    key.map(|key| Arc::clone(&key.id)).or_else(|| flow.extension::<McpExchange>()?.holder.clone())
}

/// To whom what the requests without a session share belongs: the holder, or else the user or the address.
pub(crate) fn stateless_holder(flow: &Flow) -> Arc<str> {
    let user = || flow.user.as_ref().map(|user| format!("user:{user}").into());
    session_holder(flow).or_else(user).unwrap_or_else(|| format!("address:{}", flow.client.peer.ip()).into())
}

/// A request of which the session is looked for.
#[derive(Clone, Copy)]
pub(crate) struct SessionRequest<'a> {
    pub service: &'a Arc<McpService>,
    pub settings: &'a McpSettings,
    pub flow: &'a Flow,
    pub endpoint: &'a Endpoint,
}

impl SessionRequest<'_> {
    /// The user of the request, for servers at which users have accounts.
    fn account_user(self) -> Option<Arc<AccountUser>> {
        let exchange = self.flow.extension::<McpExchange>()?;
        let subject = exchange.holder.as_deref().and_then(|holder| holder.strip_prefix(TOKEN_HOLDER));
        AccountUser::of(self.flow, subject, self.settings.public_url.as_deref(), exchange.is_forwarded)
    }

    fn user(self) -> Option<UserToken> {
        self.flow.extension::<McpExchange>().and_then(|exchange| exchange.user.clone())
    }

    /// What the requests of a client share that have this envelope.
    pub fn stateless_session(self, envelope: &Envelope, context: &str) -> Arc<McpSession> {
        let Self { service, settings, flow, endpoint: Endpoint(endpoint) } = self;
        let (holder, user, account_user) = (stateless_holder(flow), self.user(), self.account_user());
        let (capabilities, level) = (envelope.capabilities.to_value(), envelope.log_level.map(LogLevel::as_str));
        let grant = user.as_ref().map(|user| &user.grant);
        let since = account_user.as_ref().map(|user| user.since);
        let named = blake3::hash(json!([holder, endpoint, capabilities, level, grant, since]).to_string().as_bytes());
        let prefix = format!("{STATELESS_ID}{context}\0");
        let id = format!("{prefix}{}", named.to_hex());
        let session = service.sessions.find_stateless(&id, &holder).unwrap_or_else(|other| {
            // With the vaults of another envelope, if there are any.
            let vaults = other.filter(|other| other.id.starts_with(&prefix)).map_or_else(
                || new_vaults(&service.deps.master, &format!("mcp\0{holder}"), context),
                |other| (Arc::clone(&other.from_client), Arc::clone(&other.from_servers)),
            );
            let capabilities = envelope.capabilities.clone();
            let mut session = McpSession::new(id, Some(holder), endpoint.clone(), vaults, capabilities);
            session.log_level = Arc::new(Mutex::new(envelope.log_level));
            session.account_user = account_user;
            service.begin_session(Arc::new(session), settings)
        });
        *session.user.lock() = user;
        session
    }

    /// What the id of a session is bound to.
    fn binding(self) -> StateBinding {
        let (holder, endpoint) = (session_holder(self.flow), self.endpoint.0.as_deref());
        StateBinding::new(holder.as_deref().unwrap_or_default(), endpoint.unwrap_or_default(), "initialize", "")
    }

    /// A session for the client. Its id says what the client can be asked, sealed, so that another replica goes on with it.
    pub fn new_session(self, capabilities: ClientCapabilities, context: &str) -> Result<Arc<McpSession>, RpcError> {
        let declared = capabilities.to_value();
        let id = match declared.to_string().len() <= MAX_SEALED {
            true => self.service.sealer.seal_value(&declared, &self.binding())?,
            // Too long for a header field.
            false => interflow_types::random_token(),
        };
        Ok(Arc::new(self.session_with_id(id, capabilities, context)))
    }

    fn session_with_id(self, id: String, capabilities: ClientCapabilities, context: &str) -> McpSession {
        let vaults = new_vaults(&self.service.deps.master, &format!("mcp session\0{id}"), context);
        let (holder, endpoint) = (session_holder(self.flow), self.endpoint.0.clone());
        let mut session = McpSession::new(id, holder, endpoint, vaults, capabilities);
        session.account_user = self.account_user();
        *session.user.lock() = self.user();
        session
    }

    /// The session of this id that the same client began at another replica, or before a restart.
    fn resumed_session(self, id: &str) -> Option<Arc<McpSession>> {
        let service = self.service;
        let declared = service.sealer.open_value(id, &self.binding()).filter(|_| service.sessions.is_new(id))?;
        let capabilities = ClientCapabilities::parse(&declared);
        let context = service.flow_policy(self.flow, None).ok()?.context;
        let mut session = self.session_with_id(id.to_owned(), capabilities, &context);
        session.is_resumed = true;
        Some(service.begin_session(Arc::new(session), self.settings))
    }

    /// The session that the request names.
    pub fn find(self, head: &RequestHead) -> Result<Arc<McpSession>, Box<Response>> {
        let Some(id) = head.headers.get_str(SESSION_HEADER) else {
            let message = "the header Mcp-Session-Id is missing: begin a session with `initialize`";
            return Err(refusal(StatusCode::BAD_REQUEST, message).into());
        };
        let (holder, endpoint) = (session_holder(self.flow), self.endpoint.0.as_deref());
        let session = self.service.sessions.find(id, holder.as_ref(), endpoint, self.settings.session_timeout);
        let session = session.or_else(|| self.resumed_session(id));
        let (user, account_user) = (self.user(), self.account_user());
        let is_same =
            |session: &Arc<McpSession>| AccountUser::is_same(session.account_user.as_ref(), account_user.as_ref());
        session.filter(|session| is_same(session) && session.take_user(user.as_ref())).ok_or_else(|| {
            refusal(StatusCode::NOT_FOUND, "there is no such session, or it ended: begin one with `initialize`").into()
        })
    }
}
