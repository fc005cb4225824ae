//! The assembler: sessions in memory, the least recently used forgotten.

use std::collections::HashMap;

use super::recorded_call::ParsedCall;
use super::records::{Conversation, NodeFacts};
pub use super::session::SessionUpdate;
use super::session::{AgentSession, MAX_THREADS};

/// Messages of all sessions in memory: some 100 bytes each.
const MAX_MESSAGES: usize = 1_000_000;

/// A conversation as it was kept, with the places of its messages in the order in which they came.
pub type StoredConversation = (Conversation, Vec<(u128, Option<u128>, NodeFacts)>);

/// Puts exchanges together, one after another.
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
    /// Conversations of one session that a restored one needs, the latest.
    pub const MAX_THREADS: usize = MAX_THREADS;

    /// One that keeps at most so many messages in memory, apart from the session at hand.
    pub fn new(most: usize) -> Self {
        Self { sessions: HashMap::new(), clock: 0, weight: 0, most }
    }

    /// Puts an exchange in its place. `restore` is asked for a session that is not in memory: what was kept of it.
    ///
    /// # Errors
    /// Those of `restore`; nothing has changed then.
    pub fn add_call<E>(
        &mut self,
        seen: ParsedCall,
        restore: impl FnOnce(&str) -> Result<Vec<StoredConversation>, E>,
    ) -> Result<SessionUpdate, E> {
        self.clock += 1;
        let key = seen.key().to_owned();
        if !self.sessions.contains_key(&key) {
            let session = AgentSession::from_stored(restore(&key)?);
            self.weight += session.message_count();
            self.sessions.insert(key.clone(), (self.clock, session));
        }
        let Some((used, session)) = self.sessions.get_mut(&key) else { return Ok(SessionUpdate::default()) };
        *used = self.clock;
        let before = session.message_count();
        let found = session.add_call(seen);
        self.weight = self.weight - before + session.message_count();
        self.evict_sessions(&key);
        Ok(found)
    }

    /// Forgets a session, when what it led to could not be kept.
    pub fn drop_session(&mut self, key: &str) {
        if let Some((_, session)) = self.sessions.remove(key) {
            self.weight -= session.message_count();
        }
    }

    fn evict_sessions(&mut self, but: &str) {
        while self.weight > self.most && self.sessions.len() > 1 {
            let oldest = self.sessions.iter().filter(|(k, _)| *k != but).min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(k, _)| k.clone()) else { return };
            self.drop_session(&key);
        }
    }
}
