//! The session of a client (MCP 2025-11-25, session management): it has placeholders of its own, and sessions of its own
//! with servers over HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_redact::{PlaceholderVault, RedactError, RedactionSession, VaultKey};
use parking_lot::Mutex;
use serde_json::Value;

use super::client_questions::ClientQuestions;
use super::listed_names::ListedNames;
use super::resource_owners::ResourceOwners;
use super::running_requests::RunningRequests;
use super::sent_elicitations::SentElicitations;
use super::standing_events::StandingEvents;
use super::subscriptions::Subscriptions;
use super::wait_clock::WaitClock;
use crate::protocol::client_capabilities::ClientCapabilities;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::notification;
use crate::upstream::http::HttpSession;
use crate::upstream::server::McpServer;
use crate::upstream::server_hello::{SharedLogLevel, UpstreamClient};
use crate::upstream::stdio::StdioServer;

/// Placeholders and originals, of values from one side. Locked only while texts are processed, never across an await.
pub(crate) type SharedVault = Arc<Mutex<RedactionSession>>;

/// A session's process of a server with the stdio transport.
struct OwnProcess {
    own: Arc<StdioServer>,
    /// The shared one of the configuration, which is replaced when that changes.
    shared: Arc<StdioServer>,
}

pub(crate) struct McpSession {
    pub id: String,
    /// The virtual key, or the holder of the access token, that began it. No other may use it.
    key: Option<Arc<str>>,
    /// The server of its endpoint; `None` for all of them.
    endpoint: Option<Arc<str>>,
    /// Values that the client sent. They may be restored for the client.
    pub from_client: SharedVault,
    /// Values that servers sent. They may be restored for servers.
    pub from_servers: SharedVault,
    /// What the client can be asked.
    pub capabilities: ClientCapabilities,
    /// The URLs that it was sent for its user.
    pub elicitations: SentElicitations,
    /// The tools and prompts that servers listed in it.
    pub listed: ListedNames,
    /// The level from which on the client wants log messages.
    pub log_level: SharedLogLevel,
    /// For how long calls did not go on because the client was asked.
    pub clock: WaitClock,
    http: Mutex<HashMap<Arc<str>, Arc<HttpSession>>>,
    stdio: Mutex<HashMap<Arc<str>, OwnProcess>>,
    /// The events of the stream outside of calls.
    pub standing: StandingEvents,
    /// What servers wait for.
    pub questions: ClientQuestions,
    pub subscriptions: Subscriptions,
    /// The servers of the resources that were listed in it.
    pub resources: ResourceOwners,
    pub running: RunningRequests,
    last_use: Mutex<Instant>,
}

impl McpSession {
    /// # Errors
    /// There are no random bytes.
    pub fn new(
        key: Option<Arc<str>>,
        endpoint: Option<Arc<str>>,
        context: &str,
        capabilities: ClientCapabilities,
    ) -> Result<Self, RedactError> {
        // One key for both, so that a value has one placeholder, whichever side named it first.
        let vault_key = VaultKey::random()?;
        let vault = || {
            let session = RedactionSession::reversible(PlaceholderVault::new(&vault_key));
            Arc::new(Mutex::new(session.in_context(context)))
        };
        Ok(Self {
            id: interflow_types::random_token(),
            key,
            endpoint,
            from_client: vault(),
            from_servers: vault(),
            capabilities,
            elicitations: SentElicitations::default(),
            listed: ListedNames::default(),
            log_level: SharedLogLevel::default(),
            clock: WaitClock::default(),
            http: Mutex::default(),
            stdio: Mutex::default(),
            standing: StandingEvents::default(),
            questions: ClientQuestions::default(),
            subscriptions: Subscriptions::default(),
            resources: ResourceOwners::default(),
            running: RunningRequests::default(),
            last_use: Mutex::new(Instant::now()),
        })
    }

    /// The session with a server over HTTP, begun or not.
    pub fn http(&self, server: &McpServer) -> Arc<HttpSession> {
        let begin = || Arc::new(HttpSession::new(self.upstream_client(server)));
        Arc::clone(self.http.lock().entry(Arc::clone(&server.name)).or_insert_with(begin))
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
    fn upstream_client(&self, server: &McpServer) -> UpstreamClient {
        let capabilities = self.capabilities.declared(&server.config.client_requests);
        UpstreamClient { capabilities, log_level: Arc::clone(&self.log_level) }
    }

    /// Its sessions with servers over HTTP.
    pub fn take_http(&self) -> HashMap<Arc<str>, Arc<HttpSession>> {
        std::mem::take(&mut self.http.lock())
    }

    /// It is in use now.
    pub fn touch(&self) {
        *self.last_use.lock() = Instant::now();
    }

    pub fn last_use(&self) -> Instant {
        *self.last_use.lock()
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether it was begun with this key, or by this holder of an access token, at this endpoint.
    pub fn is_of(&self, key: Option<&Arc<str>>, endpoint: Option<&str>) -> bool {
        self.key.as_ref() == key && self.endpoint.as_deref() == endpoint
    }

    /// A session whose client listens is in use.
    pub fn is_expired(&self, timeout: Duration) -> bool {
        self.last_use.lock().elapsed() > timeout && !self.standing.is_open()
    }

    /// Passes a notification on to the client, if it is of a kind that is known.
    pub fn notify(&self, server: &Arc<str>, method: &str, params: &Value) {
        for kind in [ListKind::Tools, ListKind::Prompts] {
            if method == kind.changed_method() {
                self.listed.forget(server, kind);
            }
        }
        let text = match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => notification(method, &Value::Object(serde_json::Map::new())),
            "notifications/resources/updated" => {
                let Some(uri) = params["uri"].as_str() else { return };
                let Some(uri) = self.subscriptions.client_uri(server, uri) else { return };
                notification(method, &serde_json::json!({ "uri": uri }))
            }
            _ => return,
        };
        self.standing.push(text);
    }
}
