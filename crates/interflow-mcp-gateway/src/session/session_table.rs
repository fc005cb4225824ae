//! The sessions of all clients: at most so many, and each for its holder alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client_session::McpSession;

/// Bound on the sessions that ended and are remembered.
const MAX_ENDED: usize = 10_000;

/// All sessions, at most so many.
#[derive(Default)]
pub(crate) struct SessionTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    sessions: HashMap<String, Arc<McpSession>>,
    /// The hashes of the ids of those that ended, the latest last: only what another replica began is begun here again.
    ended: VecDeque<blake3::Hash>,
    /// Whether a task ends sessions that expired.
    has_sweeper: bool,
}

/// What a session that begins makes necessary.
pub(crate) struct Insertion {
    /// The session, or the one with its id that another request added meanwhile.
    pub session: Arc<McpSession>,
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
        let is_usable = |session: &&Arc<McpSession>| !session.is_expired(timeout) && session.is_of(key, endpoint);
        let session = state.sessions.get(id).filter(is_usable)?;
        session.touch();
        Some(Arc::clone(session))
    }

    /// What the requests of a holder share that have the same envelope, if it is there; and otherwise what those with
    /// another share.
    pub fn find_stateless(&self, id: &str, holder: &str) -> Result<Arc<McpSession>, Option<Arc<McpSession>>> {
        let state = self.0.lock();
        if let Some(session) = state.sessions.get(id).filter(|session| session.has_room()) {
            session.touch();
            return Ok(Arc::clone(session));
        }
        let is_other = |s: &&Arc<McpSession>| s.key() == Some(holder) && s.is_stateless() && s.id != id && s.has_room();
        Err(state.sessions.values().find(is_other).cloned())
    }

    pub fn for_each(&self, visit: impl FnMut(&Arc<McpSession>)) {
        let sessions: Vec<_> = self.0.lock().sessions.values().cloned().collect();
        sessions.iter().for_each(visit);
    }

    /// Adds a session. If there are too many, the holder of the most sessions makes room with the one that it did not use
    /// for longest, so that a key cannot end the sessions of others by beginning many.
    pub fn insert(&self, session: Arc<McpSession>, most: usize) -> Insertion {
        let mut state = self.0.lock();
        if let Some(same) = state.sessions.get(&session.id).filter(|same| !same.is_stateless() || same.has_room()) {
            return Insertion { session: Arc::clone(same), removed: Vec::new(), needs_sweeper: false };
        }
        let mut removed = Vec::new();
        while state.sessions.len() >= most.max(1) {
            let Some(id) = state.session_to_remove(&session) else { break };
            removed.extend(state.sessions.remove(&id));
        }
        removed.extend(state.sessions.insert(session.id.clone(), Arc::clone(&session)));
        Insertion { session, removed, needs_sweeper: !std::mem::replace(&mut state.has_sweeper, true) }
    }

    /// Removes the sessions that were not used for so long, which have to be ended at their servers; and whether there are
    /// no others, so that the task which calls this is not needed any more.
    pub fn take_expired(&self, timeout: Duration) -> (Vec<Arc<McpSession>>, bool) {
        let mut state = self.0.lock();
        let expired: Vec<_> =
            state.sessions.extract_if(|_, session| session.is_expired(timeout)).map(|(_, session)| session).collect();
        expired.iter().for_each(|session| state.note_end(&session.id));
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
        let state = self.0.lock();
        let mut others = state.sessions.values().filter(|other| other.id != than.id);
        others.any(|other| other.subscriptions.client_uri(server, uri).is_some())
    }

    /// Ends the streams of all sessions, which would keep their connections open.
    pub fn close_streams(&self) {
        self.0.lock().sessions.values().for_each(|session| session.standing.close());
    }

    pub fn remove(&self, id: &str) {
        let mut state = self.0.lock();
        state.sessions.remove(id);
        state.note_end(id);
    }

    /// Whether there was never a session with this id, as far as is remembered.
    pub fn is_new(&self, id: &str) -> bool {
        let state = self.0.lock();
        !state.sessions.contains_key(id) && !state.ended.contains(&blake3::hash(id.as_bytes()))
    }

    pub fn len(&self) -> usize {
        self.0.lock().sessions.len()
    }
}

impl TableState {
    fn note_end(&mut self, id: &str) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(blake3::hash(id.as_bytes()));
    }

    /// The session that makes room for another one: of the holder with the most sessions, the one that begins counted; of
    /// several such holders, of the one that begins another.
    fn session_to_remove(&self, beginning: &McpSession) -> Option<String> {
        let mut counts = HashMap::<Option<&str>, usize>::new();
        for session in self.sessions.values().map(|s| &**s).chain([beginning]) {
            *counts.entry(session.key()).or_default() += 1;
        }
        let count = |session: &McpSession| counts.get(&session.key()).copied().unwrap_or_default();
        let most = self.sessions.values().map(|session| count(session)).max()?;
        let largest = self.sessions.values().filter(|session| count(session) == most);
        let oldest = largest.min_by_key(|session| (session.key() != beginning.key(), session.last_use()))?;
        Some(oldest.id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: Option<&str>, endpoint: Option<&str>) -> Arc<McpSession> {
        Arc::new(McpSession::of_test(key, endpoint))
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
            (session, removed.first().map(|s| s.key().map(str::to_owned)))
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
}
