//! Sessions of clients (MCP 2025-11-25, session management): each has placeholders of its own, and sessions of its own
//! with servers over HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_redact::{PlaceholderVault, RedactError, RedactionSession, VaultKey};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use crate::client_capabilities::ClientCapabilities;
use crate::client_message::ListKind;
use crate::jsonrpc::{RpcError, notification};
use crate::listed_names::ListedNames;
use crate::log_messages::SharedLogLevel;
use crate::settings::McpServer;
use crate::standing_events::StandingEvents;
use crate::upstream::{HttpSession, StdioServer, UpstreamClient};
use crate::uri_template::UriTemplate;
use crate::url_elicitation::SentElicitations;

/// Placeholders and originals, of values from one side. Locked only while texts are processed, never across an await.
pub(crate) type SharedVault = Arc<Mutex<RedactionSession>>;

/// Bound on listed resources that a session remembers.
const MAX_RESOURCES: usize = 10_000;
/// Bound on listed templates that a session remembers; each is compared with the URI of a resource that was not listed.
const MAX_TEMPLATES: usize = 1_000;
/// Bound on subscriptions of a session to resources.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Bound on requests of servers that wait for the client.
const MAX_ASKED: usize = 64;

/// A session's process of a server with the stdio transport.
struct OwnProcess {
    own: Arc<StdioServer>,
    /// The shared one of the configuration, which is replaced when that changes.
    shared: Arc<StdioServer>,
}

pub(crate) struct McpSession {
    pub id: String,
    /// The virtual key, or the holder of the access token, that began it; nobody else may use it.
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
    asked: Mutex<AskedRequests>,
    /// Subscriptions, by server and URI as the server knows it; the value is the URI as the client's was redacted.
    subscriptions: Mutex<HashMap<(Arc<str>, String), String>>,
    /// The servers of resources, by URI as listed.
    resources: Mutex<HashMap<String, Arc<str>>>,
    /// The servers of templates of resources, as listed.
    templates: Mutex<Vec<(UriTemplate, Arc<str>)>>,
    in_progress: Mutex<HashMap<String, Arc<Notify>>>,
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
            asked: Mutex::default(),
            subscriptions: Mutex::default(),
            resources: Mutex::default(),
            templates: Mutex::default(),
            in_progress: Mutex::default(),
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
        if let Some(known) = all.get(&server.name).filter(|known| Arc::ptr_eq(&known.shared, shared)) {
            return Arc::clone(&known.own);
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

    pub fn remember_resource(&self, uri: &str, server: &Arc<str>) {
        let mut resources = self.resources.lock();
        if resources.len() < MAX_RESOURCES || resources.contains_key(uri) {
            resources.insert(uri.to_owned(), Arc::clone(server));
        }
    }

    pub fn remember_template(&self, template: &str, server: &Arc<str>) {
        let template = UriTemplate::parse(template);
        let mut templates = self.templates.lock();
        let is_known = templates.iter().any(|(known, owner)| *known == template && owner == server);
        if !is_known && templates.len() < MAX_TEMPLATES {
            templates.push((template, Arc::clone(server)));
        }
    }

    /// The server whose template a URI fits: of several that of the most specific template, and none if two servers
    /// have equally specific ones.
    pub fn server_of_template(&self, uri: &str) -> Option<Arc<str>> {
        let templates = self.templates.lock();
        let fitting = || templates.iter().filter(|(template, _)| template.matches(uri));
        let most = fitting().map(|(template, _)| template.specificity()).max()?;
        let mut owners = fitting().filter(|(template, _)| template.specificity() == most).map(|(_, owner)| owner);
        let owner = owners.next()?;
        owners.all(|other| other == owner).then(|| Arc::clone(owner))
    }

    /// The server of a resource or a template by which an argument is to be completed; none if two servers listed the
    /// same template.
    pub fn server_of_reference(&self, uri: &str) -> Option<Arc<str>> {
        let templates = self.templates.lock();
        let mut owners = templates.iter().filter(|(template, _)| template.text() == uri).map(|(_, owner)| owner);
        if let Some(owner) = owners.next() {
            return owners.all(|other| other == owner).then(|| Arc::clone(owner));
        }
        drop(templates);
        self.server_of_resource(uri).or_else(|| self.server_of_template(uri))
    }

    /// Whether a server listed a resource or a template just so: it tells no server anything new.
    pub fn is_listed(&self, uri: &str) -> bool {
        let is_template = || self.templates.lock().iter().any(|(template, _)| template.text() == uri);
        self.resources.lock().contains_key(uri) || is_template()
    }

    /// The server that listed a resource.
    pub fn server_of_resource(&self, uri: &str) -> Option<Arc<str>> {
        self.resources.lock().get(uri).cloned()
    }

    /// It is in use now.
    pub fn touch(&self) {
        *self.last_use.lock() = Instant::now();
    }

    /// A session whose client listens is in use.
    fn is_expired(&self, timeout: Duration) -> bool {
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
                let uri = self.subscriptions.lock().get(&(Arc::clone(server), uri.to_owned())).cloned();
                let Some(uri) = uri else { return };
                notification(method, &serde_json::json!({ "uri": uri }))
            }
            _ => return,
        };
        self.standing.push(text);
    }

    /// Remembers a subscription; `shown` is the URI for the client.
    ///
    /// # Errors
    /// There are too many.
    pub fn subscribe(&self, server: &Arc<str>, uri: &str, shown: &str) -> Result<(), RpcError> {
        let mut all = self.subscriptions.lock();
        if all.len() >= MAX_SUBSCRIPTIONS {
            return Err(RpcError::server(format!("the session has {MAX_SUBSCRIPTIONS} subscriptions already")));
        }
        all.insert((Arc::clone(server), uri.to_owned()), shown.to_owned());
        Ok(())
    }

    pub fn unsubscribe(&self, server: &Arc<str>, uri: &str) {
        self.subscriptions.lock().remove(&(Arc::clone(server), uri.to_owned()));
    }

    pub fn is_subscribed(&self, server: &Arc<str>, uri: &str) -> bool {
        self.subscriptions.lock().contains_key(&(Arc::clone(server), uri.to_owned()))
    }

    /// Registers a request of a server that the client has to answer.
    ///
    /// # Errors
    /// The client has not answered too many.
    pub fn begin_ask(self: &Arc<Self>, server: &Arc<McpServer>) -> Result<AskedRequest, RpcError> {
        let mut asked = self.asked.lock();
        if asked.waiting.len() >= MAX_ASKED {
            return Err(RpcError::server(format!("{MAX_ASKED} requests wait for the client already")));
        }
        asked.last += 1;
        let (id, (sender, answered)) = (asked.last, oneshot::channel());
        asked.waiting.insert(id, (Arc::clone(server), sender));
        Ok(AskedRequest { session: Arc::clone(self), id, answered: Mutex::new(Some(answered)) })
    }

    /// The server that waits for an answer of the client.
    pub fn asking_server(&self, id: &Value) -> Option<Arc<McpServer>> {
        self.asked.lock().waiting.get(&id.as_u64()?).map(|(server, _)| Arc::clone(server))
    }

    /// Gives a server the answer of the client.
    pub fn answer(&self, id: &Value, answer: Result<String, RpcError>) {
        let waiting = id.as_u64().and_then(|id| self.asked.lock().waiting.remove(&id));
        if let Some((_, sender)) = waiting {
            let _ = sender.send(answer);
        }
    }

    /// Registers a request that the client may cancel.
    pub fn begin_request(self: &Arc<Self>, id: &serde_json::Value) -> RequestGuard {
        let (id, cancelled) = (id.to_string(), Arc::new(Notify::new()));
        self.in_progress.lock().insert(id.clone(), Arc::clone(&cancelled));
        RequestGuard { session: Arc::clone(self), id, cancelled }
    }

    pub fn cancel_request(&self, id: &serde_json::Value) {
        if let Some(cancelled) = self.in_progress.lock().get(&id.to_string()) {
            cancelled.notify_one();
        }
    }
}

/// What the client answers to a request of a server.
type ClientAnswer = Result<String, RpcError>;

#[derive(Default)]
struct AskedRequests {
    last: u64,
    waiting: HashMap<u64, (Arc<McpServer>, oneshot::Sender<ClientAnswer>)>,
}

/// A request of a server that the client was sent.
pub(crate) struct AskedRequest {
    session: Arc<McpSession>,
    pub id: u64,
    answered: Mutex<Option<oneshot::Receiver<ClientAnswer>>>,
}

impl AskedRequest {
    /// The client's answer; `None` if none can come any more.
    pub async fn answer(&self) -> Option<ClientAnswer> {
        let answered = self.answered.lock().take()?;
        answered.await.ok()
    }
}

impl Drop for AskedRequest {
    fn drop(&mut self) {
        self.session.asked.lock().waiting.remove(&self.id);
    }
}

/// Measures for how long a client is asked something, during which the time limits of its calls do not run.
#[derive(Default)]
pub(crate) struct WaitClock(Mutex<WaitState>);

#[derive(Default)]
struct WaitState {
    open: u32,
    since: Option<Instant>,
    before: Duration,
}

pub(crate) struct Waiting<'c>(&'c WaitClock);

impl WaitClock {
    pub fn begin(&self) -> Waiting<'_> {
        let mut state = self.0.lock();
        state.open += 1;
        state.since.get_or_insert_with(Instant::now);
        Waiting(self)
    }

    /// All the time so far.
    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        if state.open == 0
            && let Some(since) = state.since.take()
        {
            state.before += since.elapsed();
        }
    }
}

/// A request in progress.
pub(crate) struct RequestGuard {
    session: Arc<McpSession>,
    id: String,
    pub cancelled: Arc<Notify>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut all = self.session.in_progress.lock();
        // Another request may have the same id, against the protocol.
        if all.get(&self.id).is_some_and(|other| Arc::ptr_eq(other, &self.cancelled)) {
            all.remove(&self.id);
        }
    }
}

/// All sessions, at most so many.
#[derive(Default)]
pub(crate) struct SessionTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    sessions: HashMap<String, Arc<McpSession>>,
    /// Whether a task ends sessions that expired.
    has_sweeper: bool,
}

/// What a session that begins makes necessary.
pub(crate) struct Insertion {
    /// The sessions that made room for it, which have to be ended at their servers.
    pub removed: Vec<Arc<McpSession>>,
    /// No task ends sessions that expired: one has to be started.
    pub needs_sweeper: bool,
}

impl SessionTable {
    /// The session with this id, if the key and the endpoint are those that began it. One that expired is left to
    /// [`take_expired`](Self::take_expired).
    pub fn find(
        &self,
        id: &str,
        key: Option<&Arc<str>>,
        endpoint: Option<&str>,
        timeout: Duration,
    ) -> Option<Arc<McpSession>> {
        let state = self.0.lock();
        let session = state.sessions.get(id)?;
        if session.is_expired(timeout) {
            return None;
        }
        if session.key.as_ref() != key || session.endpoint.as_deref() != endpoint {
            return None;
        }
        session.touch();
        Some(Arc::clone(session))
    }

    /// Adds a session. If there are too many, the holder of the most sessions makes room with the one that it did not use
    /// for longest, so that a key cannot end the sessions of others by beginning many.
    pub fn insert(&self, session: Arc<McpSession>, most: usize) -> Insertion {
        let mut state = self.0.lock();
        let mut removed = Vec::new();
        while state.sessions.len() >= most.max(1) {
            let Some(id) = state.session_to_remove(&session) else { break };
            removed.extend(state.sessions.remove(&id));
        }
        state.sessions.insert(session.id.clone(), session);
        Insertion { removed, needs_sweeper: !std::mem::replace(&mut state.has_sweeper, true) }
    }

    /// Removes the sessions that were not used for so long, which have to be ended at their servers; and whether there are
    /// no others, so that the task which calls this is not needed any more.
    pub fn take_expired(&self, timeout: Duration) -> (Vec<Arc<McpSession>>, bool) {
        let mut state = self.0.lock();
        let expired =
            state.sessions.extract_if(|_, session| session.is_expired(timeout)).map(|(_, session)| session).collect();
        let is_over = state.sessions.is_empty();
        // In the same moment: the next session begins another.
        state.has_sweeper = !is_over;
        (expired, is_over)
    }

    /// The task that ends sessions was cut short.
    pub fn lose_sweeper(&self) {
        self.0.lock().has_sweeper = false;
    }

    /// Whether another session subscribed to a resource.
    pub fn is_subscribed_elsewhere(&self, than: &McpSession, server: &Arc<str>, uri: &str) -> bool {
        self.0.lock().sessions.values().any(|session| session.id != than.id && session.is_subscribed(server, uri))
    }

    /// Ends the streams of all sessions, which would keep their connections open.
    pub fn close_streams(&self) {
        self.0.lock().sessions.values().for_each(|session| session.standing.close());
    }

    pub fn remove(&self, id: &str) {
        self.0.lock().sessions.remove(id);
    }

    pub fn len(&self) -> usize {
        self.0.lock().sessions.len()
    }
}

impl TableState {
    /// The session that makes room for another one: of the holder with the most sessions, the one that begins counted; of
    /// several such holders, of the one that begins another.
    fn session_to_remove(&self, beginning: &McpSession) -> Option<String> {
        let mut counts = HashMap::<Option<&str>, usize>::new();
        for session in self.sessions.values().map(|s| &**s).chain([beginning]) {
            *counts.entry(session.key.as_deref()).or_default() += 1;
        }
        let count = |session: &McpSession| counts.get(&session.key.as_deref()).copied().unwrap_or_default();
        let most = self.sessions.values().map(|session| count(session)).max()?;
        let largest = self.sessions.values().filter(|session| count(session) == most);
        let oldest = largest.min_by_key(|session| (session.key != beginning.key, *session.last_use.lock()))?;
        Some(oldest.id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: Option<&str>, endpoint: Option<&str>) -> Arc<McpSession> {
        Arc::new(
            McpSession::new(key.map(Into::into), endpoint.map(Into::into), "", ClientCapabilities::default()).unwrap(),
        )
    }

    #[test]
    fn a_session_belongs_to_its_key_and_endpoint_and_expires() {
        let (table, hour) = (SessionTable::default(), Duration::from_secs(3600));
        let session = session(Some("a"), Some("github"));
        let id = session.id.clone();
        assert!(table.insert(session, 10).removed.is_empty());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(table.find(&id, Some(&a), Some("github"), hour).is_some());
        assert!(table.find(&id, Some(&b), Some("github"), hour).is_none());
        assert!(table.find(&id, None, Some("github"), hour).is_none());
        assert!(table.find(&id, Some(&a), None, hour).is_none());
        assert!(table.find(&id, Some(&a), Some("github"), Duration::ZERO).is_none(), "it expired");
        assert_eq!(table.take_expired(hour).0.len(), 0);
        assert_eq!(table.take_expired(Duration::ZERO).0.len(), 1);
        assert!(table.find(&id, Some(&a), Some("github"), hour).is_none(), "and is gone");
    }

    #[test]
    fn the_session_that_was_not_used_for_longest_makes_room() {
        let (table, hour) = (SessionTable::default(), Duration::from_secs(3600));
        let sessions: Vec<_> = (0..3).map(|_| session(None, None)).collect();
        assert!(table.insert(Arc::clone(&sessions[0]), 2).removed.is_empty());
        assert!(table.insert(Arc::clone(&sessions[1]), 2).removed.is_empty());
        assert!(table.find(&sessions[0].id, None, None, hour).is_some());
        let removed = table.insert(Arc::clone(&sessions[2]), 2).removed;
        assert!(removed.len() == 1 && Arc::ptr_eq(&removed[0], &sessions[1]));
        assert_eq!(table.len(), 2);
        assert!(table.find(&sessions[1].id, None, None, hour).is_none());
        assert!(table.find(&sessions[0].id, None, None, hour).is_some());
    }

    #[test]
    fn a_key_with_many_sessions_makes_room_with_its_own() {
        let (table, hour) = (SessionTable::default(), Duration::from_secs(3600));
        let begin = |key: Option<&str>| {
            let session = session(key, None);
            let removed = table.insert(Arc::clone(&session), 4).removed;
            (session, removed.first().map(|s| s.key.as_deref().map(str::to_owned)))
        };
        let (victim, _) = begin(Some("b"));
        for n in 0..20 {
            let (_, removed) = begin(Some("a"));
            assert_eq!(removed, (n >= 3).then(|| Some("a".to_owned())), "{n}");
        }
        let key: Arc<str> = "b".into();
        assert!(table.find(&victim.id, Some(&key), None, hour).is_some(), "another's stays");
        // A client without a key counts as one, and another key gets room from the one that has most.
        assert_eq!(begin(None).1, Some(Some("a".to_owned())));
        assert_eq!(begin(Some("b")).1, Some(Some("b".to_owned())), "it would have as many as a has");
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn sessions_always_have_a_task_that_ends_them() {
        let table = SessionTable::default();
        assert!(table.insert(session(None, None), 10).needs_sweeper);
        assert!(!table.insert(session(None, None), 10).needs_sweeper);
        assert!(!table.take_expired(Duration::from_secs(3600)).1);
        assert!(table.take_expired(Duration::ZERO).1, "it is over");
        assert!(table.insert(session(None, None), 10).needs_sweeper, "while those that expired are still being ended");
        table.lose_sweeper();
        assert!(table.insert(session(None, None), 10).needs_sweeper);
    }

    #[test]
    fn a_resource_belongs_to_the_server_with_the_most_specific_template() {
        let session = session(None, None);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for (template, server) in [("file:///{x}", &a), ("file:///home/{x}", &b), ("db://{t}", &a), ("db://{u}", &b)] {
            session.remember_template(template, server);
        }
        assert_eq!(session.server_of_template("file:///etc/hosts"), Some(a));
        assert_eq!(session.server_of_template("file:///home/anna"), Some(b));
        assert_eq!(session.server_of_template("db://users"), None, "two servers have it");
        assert_eq!(session.server_of_template("http://x/"), None);
    }

    #[tokio::test]
    async fn a_request_in_progress_can_be_cancelled_by_its_id() {
        let session = session(None, None);
        let request = session.begin_request(&serde_json::json!(1));
        session.cancel_request(&serde_json::json!("1"));
        session.cancel_request(&serde_json::json!(1));
        request.cancelled.notified().await;
        drop(request);
        assert!(session.in_progress.lock().is_empty());
    }
}
