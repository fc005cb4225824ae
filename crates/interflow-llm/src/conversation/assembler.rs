//! The assembler: sessions in memory, the least recently used forgotten.

use std::collections::HashMap;

use super::facts::{Conversation, NodeFacts};
use super::recorded::Recorded;
pub use super::session::Found;
use super::session::{MOST_THREADS, Session};

/// Messages of all sessions in memory: some 100 bytes each.
const MOST_MESSAGES: usize = 1_000_000;

/// A conversation as it was kept, with the places of its messages in the order in which they came.
pub type Kept = (Conversation, Vec<(u128, Option<u128>, NodeFacts)>);

/// Puts exchanges together, one after another.
pub struct Assembler {
    sessions: HashMap<String, (u64, Session)>,
    clock: u64,
    weight: usize,
    most: usize,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new(MOST_MESSAGES)
    }
}

impl Assembler {
    /// Conversations of one session that a restored one needs, the latest.
    pub const THREADS: usize = MOST_THREADS;

    /// One that keeps at most so many messages in memory, apart from the session at hand.
    pub fn new(most: usize) -> Self {
        Self { sessions: HashMap::new(), clock: 0, weight: 0, most }
    }

    /// Puts an exchange in its place. `restore` is asked for a session that is not in memory: what was kept of it.
    ///
    /// # Errors
    /// Those of `restore`; nothing has changed then.
    pub fn take<E>(&mut self, seen: Recorded, restore: impl FnOnce(&str) -> Result<Vec<Kept>, E>) -> Result<Found, E> {
        self.clock += 1;
        let key = seen.key().to_owned();
        if !self.sessions.contains_key(&key) {
            let session = Session::restored(restore(&key)?);
            self.weight += session.weight();
            self.sessions.insert(key.clone(), (self.clock, session));
        }
        let Some((used, session)) = self.sessions.get_mut(&key) else { return Ok(Found::default()) };
        *used = self.clock;
        let before = session.weight();
        let found = session.take(seen);
        self.weight = self.weight - before + session.weight();
        self.forget(&key);
        Ok(found)
    }

    /// Forgets a session, when what it led to could not be kept.
    pub fn drop_session(&mut self, key: &str) {
        if let Some((_, session)) = self.sessions.remove(key) {
            self.weight -= session.weight();
        }
    }

    fn forget(&mut self, but: &str) {
        while self.weight > self.most && self.sessions.len() > 1 {
            let oldest = self.sessions.iter().filter(|(k, _)| *k != but).min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(k, _)| k.clone()) else { return };
            self.drop_session(&key);
        }
    }
}
