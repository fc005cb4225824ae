//! The session of a client (MCP 2025-11-25, session management): it has placeholders of its own, and sessions of its own
//! with servers over HTTP. The requests of one holder in a version without sessions share what a session has, too.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_redact::{PlaceholderVault, RedactionSession, SharedSession, VaultKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client_questions::ClientQuestions;
use super::listed_names::ListedNames;
use super::resource_owners::ResourceOwners;
use super::running_requests::RunningRequests;
use super::standing_events::StandingEvents;
use super::subscriptions::Subscriptions;
use super::wait_clock::WaitClock;
use super::waiting_calls::{MAX_WAITING, WaitingCalls};
use crate::grants::user::AccountUser;
use crate::protocol::client_capabilities::ClientCapabilities;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::{RpcError, notification};
use crate::protocol::listen_filter::RESOURCE_UPDATED;
use crate::upstream::access_tokens::{SharedUserToken, UserToken};
use crate::upstream::http::{HttpSession, LeasedSession};
use crate::upstream::server::{McpServer, ServerTransport};
use crate::upstream::server_hello::{ServerHello, SharedLogLevel, UpstreamClient};
use crate::upstream::stdio::StdioServer;

/// A session's process of a server with the stdio transport.
struct OwnProcess {
    own: Arc<StdioServer>,
    /// The shared one of the configuration, which is replaced when that changes.
    shared: Arc<StdioServer>,
}

#[derive(Default)]
pub(crate) struct McpSession {
    pub id: String,
    /// It was begun at another replica, which listed things for the client.
    pub is_resumed: bool,
    /// The virtual key, or the holder of the access token, that began it. No other may use it.
    key: Option<Arc<str>>,
    /// The server of its endpoint; `None` for all of them.
    endpoint: Option<Arc<str>>,
    /// Values that the client sent. They may be restored for the client.
    pub from_client: SharedSession,
    /// Values that servers sent. They may be restored for servers.
    pub from_servers: SharedSession,
    /// What the client can be asked.
    pub capabilities: ClientCapabilities,
    /// The ids of the URLs that it was sent for its user.
    pub elicitations: Subscriptions,
    /// The tools that searches of the client returned, which are in its list.
    pub found_tools: watch::Sender<VecDeque<String>>,
    /// The tools and prompts that servers listed in it.
    pub listed: ListedNames,
    /// The level from which on the client wants log messages.
    pub log_level: SharedLogLevel,
    /// For how long calls did not go on because the client was asked.
    pub clock: WaitClock,
    /// The access token of its user, for servers that are shown one of theirs for it.
    pub user: SharedUserToken,
    /// Its user, for servers at which users have accounts.
    pub account_user: Option<Arc<AccountUser>>,
    pub(super) http: Mutex<HashMap<Arc<str>, Arc<HttpSession>>>,
    /// Further sessions with servers, for calls at the same time.
    pub(super) further_http: Mutex<Vec<(Arc<str>, Arc<HttpSession>)>>,
    stdio: Mutex<HashMap<Arc<str>, OwnProcess>>,
    /// What listens to servers over HTTP for requests without a session.
    relays: Mutex<JoinSet<()>>,
    /// The events of the stream outside of calls.
    pub standing: StandingEvents,
    /// What servers wait for.
    pub questions: ClientQuestions,
    /// What tasks asked the client, inspected.
    pub task_questions: Mutex<HashMap<blake3::Hash, Value>>,
    /// Calls without a session that wait for the answers of the client.
    pub waiting: WaitingCalls,
    pub subscriptions: Arc<Subscriptions>,
    /// The tasks that it began or, without a session, of which the client wants to know: their ids at their servers, with
    /// those for the client.
    pub tasks: Arc<Subscriptions>,
    /// The servers of the resources that were listed in it.
    pub resources: ResourceOwners,
    pub running: RunningRequests,
    last_use: LastUse,
    /// Shared with the streams without a session that are open: it is in use until they drop this.
    pub open_streams: Arc<()>,
}

/// When a session was used last: at first, when it begins.
struct LastUse(Mutex<Instant>);

impl Default for LastUse {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

/// What the id of what requests without sessions share begins with: no header field can have it.
pub(crate) const STATELESS_ID: &str = "\0";

/// How full the vault of a holder without sessions may be before another takes its place, in placeholders.
const MAX_SHARED_PLACEHOLDERS: usize = 50_000;

impl McpSession {
    pub fn new(
        id: String,
        key: Option<Arc<str>>,
        endpoint: Option<Arc<str>>,
        (from_client, from_servers): (SharedSession, SharedSession),
        capabilities: ClientCapabilities,
    ) -> Self {
        Self { id, key, endpoint, from_client, from_servers, capabilities, ..Self::default() }
    }

    /// Whether it is what requests without a session share.
    pub fn is_stateless(&self) -> bool {
        self.id.starts_with(STATELESS_ID)
    }

    /// Whether its vaults have room for the requests of further hours.
    pub fn has_room(&self) -> bool {
        let has_room = |vault: &SharedSession| vault.lock().vault().is_none_or(|v| v.len() < MAX_SHARED_PLACEHOLDERS);
        has_room(&self.from_client) && has_room(&self.from_servers)
    }

    /// The session with a server over HTTP, begun or not.
    pub fn http(&self, server: &McpServer) -> Arc<HttpSession> {
        Arc::clone(self.http.lock().entry(Arc::clone(&server.name)).or_insert_with(|| self.begin_http(server)))
    }

    /// The session with a server over HTTP for a call during which the server may ask the client. Without a session of the
    /// client, each call has one for itself: a server with sessions may ask on a stream that is that of no call.
    ///
    /// # Errors
    /// Too many calls of the client are in progress.
    pub fn http_of_call(&self, server: &McpServer, hello: &ServerHello) -> Result<LeasedSession, RpcError> {
        let first = self.http(server);
        if !self.is_stateless() || hello.is_stateless() || self.capabilities.kinds.is_empty() {
            return Ok(first.shared());
        }
        let mut further = self.further_http.lock();
        let own = further.iter().filter(|(name, _)| *name == server.name);
        if let Some(leased) = std::iter::once(&first).chain(own.map(|(_, http)| http)).find_map(HttpSession::lease) {
            return Ok(leased);
        }
        if further.len() >= MAX_WAITING {
            return Err(RpcError::server(format!("{MAX_WAITING} calls of the client are in progress already")));
        }
        let begun = self.begin_http(server);
        further.push((Arc::clone(&server.name), Arc::clone(&begun)));
        Ok(begun.lease().unwrap_or_else(|| begun.shared()))
    }

    fn begin_http(&self, server: &McpServer) -> Arc<HttpSession> {
        let begun = Arc::new(HttpSession::new(self.upstream_client(server)));
        if let (ServerTransport::Http(target), true) = (&server.transport, self.is_stateless()) {
            self.relays.lock().spawn(target.clone().relay(Arc::clone(&begun)));
        }
        begun
    }

    /// The process of its own at a server with the stdio transport, started or not.
    pub fn stdio(&self, server: &McpServer, shared: &Arc<StdioServer>) -> Arc<StdioServer> {
        let mut all = self.stdio.lock();
        if let Some(process) = all.get(&server.name).filter(|process| Arc::ptr_eq(&process.shared, shared)) {
            return Arc::clone(&process.own);
        }
        let own = Arc::new(shared.fork(self.upstream_client(server)));
        let process = OwnProcess { own: Arc::clone(&own), shared: Arc::clone(shared) };
        all.insert(Arc::clone(&server.name), process);
        own
    }

    /// What a server is told of the client.
    pub fn upstream_client(&self, server: &McpServer) -> UpstreamClient {
        UpstreamClient {
            server: Arc::clone(&server.name),
            is_stateless: self.is_stateless(),
            capabilities: self.capabilities.declared(&server.config.client_requests),
            extensions: self.capabilities.extensions.clone(),
            log_level: Arc::clone(&self.log_level),
            subscriptions: Arc::clone(&self.subscriptions),
            tasks: Arc::clone(&self.tasks),
            user: Arc::clone(&self.user),
            account_user: self.account_user.clone(),
        }
    }

    /// It is in use now.
    pub fn touch(&self) {
        *self.last_use.0.lock() = Instant::now();
    }

    pub fn last_use(&self) -> Instant {
        *self.last_use.0.lock()
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether it was begun with this key, or by this holder of an access token, at this endpoint.
    pub fn is_of(&self, key: Option<&Arc<str>>, endpoint: Option<&str>) -> bool {
        self.key.as_ref() == key && self.endpoint.as_deref() == endpoint
    }

    /// Takes the access token of a request of its holder; `false` if it is of another user, or allows something else.
    pub fn take_user(&self, user: Option<&UserToken>) -> bool {
        let mut own = self.user.lock();
        let is_same = own.as_ref().map(|own| &own.grant) == user.map(|user| &user.grant);
        if is_same {
            *own = user.cloned();
        }
        is_same
    }

    /// A session whose client listens is in use.
    pub fn is_expired(&self, timeout: Duration) -> bool {
        let is_listening = self.standing.is_open() || Arc::strong_count(&self.open_streams) > 1;
        self.last_use().elapsed() > timeout && !is_listening
    }

    /// The params for the client of a notification, if it is of a kind that is known.
    pub fn notification_params(&self, server: &Arc<str>, method: &str, params: &Value) -> Option<Value> {
        if let Some(kind) = ListKind::ALL.into_iter().find(|kind| kind.changed_method() == method) {
            self.listed.forget(server, kind);
            return Some(json!({}));
        }
        let uri = params["uri"].as_str().filter(|_| method == RESOURCE_UPDATED)?;
        Some(json!({ "uri": self.subscriptions.client_uri(server, uri)? }))
    }

    /// Passes a notification on to the stream of the session, if it is of a kind that is known.
    pub fn notify(&self, server: &Arc<str>, method: &str, params: &Value) {
        if let Some(params) = self.notification_params(server, method, params) {
            self.standing.push(notification(method, &params));
        }
    }
}

/// Vaults for values of the client and of servers, with one key for both, so that a value has one placeholder, whichever side
/// named it first. Servers may repeat what is in either. `master` is the secret of the installation, so that placeholders are
/// the same on all replicas.
pub(crate) fn new_vaults(master: &[u8; 32], name: &str, context: &str) -> (SharedSession, SharedSession) {
    let key = VaultKey::for_conversation(master, name.as_bytes());
    let vault = || RedactionSession::reversible(PlaceholderVault::new(&key)).in_context(context);
    let from_client = Arc::new(Mutex::new(vault()));
    let from_servers = vault().repeating(Arc::clone(&from_client));
    (from_client, Arc::new(Mutex::new(from_servers)))
}

#[cfg(test)]
impl McpSession {
    pub fn of_test(key: Option<&str>, endpoint: Option<&str>) -> Self {
        let (id, key, endpoint) = (interflow_types::random_token(), key.map(Into::into), endpoint.map(Into::into));
        let vaults = new_vaults(&[7; 32], &id, "");
        Self::new(id, key, endpoint, vaults, ClientCapabilities::default())
    }
}
