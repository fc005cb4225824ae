//! Responses in memory, bounded by their bytes: those that were not used for longest are dropped first.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::entry::StoredResponse;
use super::key::CacheKey;

pub(super) struct MemoryStore {
    max: u64,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    entries: HashMap<CacheKey, MemoryEntry>,
    /// Keys by their last use.
    order: BTreeMap<u64, CacheKey>,
    bytes: u64,
    uses: u64,
}

struct MemoryEntry {
    response: StoredResponse,
    last_use: u64,
}

impl MemoryStore {
    pub fn new(max: u64) -> Self {
        Self { max, state: Mutex::default() }
    }

    pub fn get(&self, key: &CacheKey) -> Option<StoredResponse> {
        let mut state = self.state.lock();
        state.uses += 1;
        let now = state.uses;
        let entry = state.entries.get_mut(key)?;
        let before = std::mem::replace(&mut entry.last_use, now);
        let response = entry.response.clone();
        state.order.remove(&before);
        state.order.insert(now, *key);
        Some(response)
    }

    /// Returns how many others were dropped for it.
    pub fn put(&self, key: CacheKey, response: StoredResponse) -> u64 {
        let size = response.size();
        if size > self.max {
            return 0;
        }
        let mut state = self.state.lock();
        state.remove(&key);
        let mut dropped = 0;
        while state.bytes + size > self.max {
            let Some((_, oldest)) = state.order.first_key_value() else { break };
            let oldest = *oldest;
            state.remove(&oldest);
            dropped += 1;
        }
        state.uses += 1;
        let last_use = state.uses;
        state.bytes += size;
        state.order.insert(last_use, key);
        state.entries.insert(key, MemoryEntry { response, last_use });
        dropped
    }

    /// Responses and their bytes.
    pub fn size(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.entries.len() as u64, state.bytes)
    }
}

impl MemoryState {
    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.last_use);
            self.bytes -= entry.response.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: usize) -> StoredResponse {
        StoredResponse { stored_at: 0, headers: Vec::new(), body: vec![b'x'; bytes].into() }
    }

    #[test]
    fn the_least_recently_used_is_dropped_when_the_bytes_are_spent() {
        let [a, b, c] = [1, 2, 3].map(|n| CacheKey([n; 32]));
        let store = MemoryStore::new(entry(1000).size() * 2);
        assert_eq!((store.put(a, entry(1000)), store.put(b, entry(1000))), (0, 0));
        assert!(store.get(&a).is_some());
        assert_eq!(store.put(c, entry(1000)), 1);
        assert!(store.get(&b).is_none() && store.get(&a).is_some() && store.get(&c).is_some());
        assert_eq!(store.put(c, entry(10)), 0, "it replaces its own");
        assert_eq!(store.size(), (2, entry(1000).size() + entry(10).size()));
        assert_eq!(store.put(b, entry(10_000)), 0, "one that does not fit drops nothing");
        assert_eq!(store.size().0, 2);
    }
}
