//! Sessions of clients (MCP 2025-06-18, session management): each has placeholders of its own, and sessions of its own
//! with servers over HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_redact::{PlaceholderVault, RedactError, RedactionSession, VaultKey};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::upstream::HttpSession;
use crate::uri_template::UriTemplate;

/// Placeholders and originals, of values from one side. Locked only while texts are processed, never across an await.
pub(crate) type SharedVault = Arc<Mutex<RedactionSession>>;

/// Bound on listed resources that a session remembers.
const MAX_RESOURCES: usize = 10_000;
/// Bound on listed templates that a session remembers; each is compared with the URI of a resource that was not listed.
const MAX_TEMPLATES: usize = 1_000;

pub(crate) struct McpSession {
    pub id: String,
    /// The virtual key that began it; nobody else may use it.
    key: Option<Arc<str>>,
    /// The server of its endpoint; `None` for all of them.
    endpoint: Option<Arc<str>>,
    /// Values that the client sent. They may be restored for the client.
    pub from_client: SharedVault,
    /// Values that servers sent. They may be restored for servers.
    pub from_servers: SharedVault,
    http: Mutex<HashMap<Arc<str>, Arc<HttpSession>>>,
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
    pub fn new(key: Option<Arc<str>>, endpoint: Option<Arc<str>>, context: &str) -> Result<Self, RedactError> {
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
            http: Mutex::default(),
            resources: Mutex::default(),
            templates: Mutex::default(),
            in_progress: Mutex::default(),
            last_use: Mutex::new(Instant::now()),
        })
    }

    /// The session with a server over HTTP, begun or not.
    pub fn http(&self, server: &Arc<str>) -> Arc<HttpSession> {
        Arc::clone(self.http.lock().entry(Arc::clone(server)).or_default())
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

    /// The server that listed a resource.
    pub fn server_of_resource(&self, uri: &str) -> Option<Arc<str>> {
        self.resources.lock().get(uri).cloned()
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
pub(crate) struct SessionTable(Mutex<HashMap<String, Arc<McpSession>>>);

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
        let all = self.0.lock();
        let session = all.get(id)?;
        if session.last_use.lock().elapsed() > timeout {
            return None;
        }
        if session.key.as_ref() != key || session.endpoint.as_deref() != endpoint {
            return None;
        }
        *session.last_use.lock() = Instant::now();
        Some(Arc::clone(session))
    }

    /// Adds a session, and returns those that make room for it.
    #[must_use = "sessions with servers have to be ended"]
    pub fn insert(&self, session: Arc<McpSession>, most: usize) -> Vec<Arc<McpSession>> {
        let mut all = self.0.lock();
        let mut removed = Vec::new();
        while all.len() >= most.max(1) {
            let oldest = all.values().min_by_key(|s| *s.last_use.lock()).map(|s| s.id.clone());
            let Some(oldest) = oldest else { break };
            removed.extend(all.remove(&oldest));
        }
        all.insert(session.id.clone(), session);
        removed
    }

    /// Removes the sessions that were not used for so long.
    #[must_use = "sessions with servers have to be ended"]
    pub fn take_expired(&self, timeout: Duration) -> Vec<Arc<McpSession>> {
        let mut all = self.0.lock();
        all.extract_if(|_, session| session.last_use.lock().elapsed() > timeout).map(|(_, session)| session).collect()
    }

    pub fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: Option<&str>, endpoint: Option<&str>) -> Arc<McpSession> {
        Arc::new(McpSession::new(key.map(Into::into), endpoint.map(Into::into), "").unwrap())
    }

    #[test]
    fn a_session_belongs_to_its_key_and_endpoint_and_expires() {
        let (table, hour) = (SessionTable::default(), Duration::from_secs(3600));
        let session = session(Some("a"), Some("github"));
        let id = session.id.clone();
        assert!(table.insert(session, 10).is_empty());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(table.find(&id, Some(&a), Some("github"), hour).is_some());
        assert!(table.find(&id, Some(&b), Some("github"), hour).is_none());
        assert!(table.find(&id, None, Some("github"), hour).is_none());
        assert!(table.find(&id, Some(&a), None, hour).is_none());
        assert!(table.find(&id, Some(&a), Some("github"), Duration::ZERO).is_none(), "it expired");
        assert!(table.take_expired(hour).is_empty());
        assert_eq!(table.take_expired(Duration::ZERO).len(), 1);
        assert!(table.find(&id, Some(&a), Some("github"), hour).is_none(), "and is gone");
    }

    #[test]
    fn the_session_that_was_not_used_for_longest_makes_room() {
        let (table, hour) = (SessionTable::default(), Duration::from_secs(3600));
        let sessions: Vec<_> = (0..3).map(|_| session(None, None)).collect();
        assert!(table.insert(Arc::clone(&sessions[0]), 2).is_empty());
        assert!(table.insert(Arc::clone(&sessions[1]), 2).is_empty());
        assert!(table.find(&sessions[0].id, None, None, hour).is_some());
        let removed = table.insert(Arc::clone(&sessions[2]), 2);
        assert!(removed.len() == 1 && Arc::ptr_eq(&removed[0], &sessions[1]));
        assert_eq!(table.len(), 2);
        assert!(table.find(&sessions[1].id, None, None, hour).is_none());
        assert!(table.find(&sessions[0].id, None, None, hour).is_some());
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
