//! Assembles exchanges into conversations, with an LRU cache of sessions in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::recorded_call::ParsedCall;
use super::session::{AgentSession, MAX_THREADS};
pub use super::session::{SessionUpdate, StoredConversation};
use interflow_types::Timestamp;

/// Maximum number of messages of all sessions in memory, about 100 bytes each. The current session may exceed it.
const MAX_MESSAGES: usize = 1_000_000;

/// The sessions in memory, limited by their number of messages. A session that is not there is restored from the store
/// when its next call arrives; the one that was used least recently is dropped.
pub struct ConversationAssembler {
    sessions: HashMap<String, (u64, AgentSession)>,
    clock: u64,
    weight: usize,
    most: usize,
}

impl Default for ConversationAssembler {
    fn default() -> Self {
        Self::new(MAX_MESSAGES)
    }
}

impl ConversationAssembler {
    /// Maximum number of conversations to restore per session, the latest first.
    pub const MAX_THREADS: usize = MAX_THREADS;

    /// `most` limits the messages in memory, apart from the current session.
    pub fn new(most: usize) -> Self {
        Self { sessions: HashMap::new(), clock: 0, weight: 0, most }
    }

    /// Adds an exchange. For a session that is not in memory, `restore` is called to load it from the store.
    ///
    /// # Errors
    /// Errors of `restore`; nothing has changed then.
    pub fn add_call<E>(
        &mut self,
        seen: ParsedCall,
        restore: impl FnOnce(&str) -> Result<Vec<StoredConversation>, E>,
    ) -> Result<SessionUpdate, E> {
        // A logical clock: only the order of use matters.
        self.clock += 1;
        let key = seen.key().to_owned();
        let (used, session) = match self.sessions.entry(key.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // Restored before anything changes, so that an error leaves the assembler as it was.
                let session = AgentSession::from_stored(restore(&key)?);
                self.weight += session.message_count();
                place.insert((self.clock, session))
            }
        };
        *used = self.clock;
        let before = session.message_count();
        let update = session.add_call(seen);
        // The session may also have become smaller, if it dropped a conversation.
        self.weight = self.weight - before + session.message_count();
        self.evict_sessions(&key);
        Ok(update)
    }

    /// When the last indexed call of a session ended; `None` if it is not in memory.
    pub fn last_activity(&self, key: &str) -> Option<Timestamp> {
        self.sessions.get(key).map(|(_, session)| session.last_activity())
    }

    /// Drops a session from memory, if its update could not be stored.
    pub fn drop_session(&mut self, key: &str) {
        if let Some((_, session)) = self.sessions.remove(key) {
            self.weight -= session.message_count();
        }
    }

    fn evict_sessions(&mut self, but: &str) {
        // The current session stays, even if it alone exceeds the limit.
        while self.weight > self.most && self.sessions.len() > 1 {
            let oldest = self.sessions.iter().filter(|(k, _)| *k != but).min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(k, _)| k.clone()) else { return };
            self.drop_session(&key);
        }
    }
}
