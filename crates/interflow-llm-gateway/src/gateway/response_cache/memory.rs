//! Responses in memory, bounded by their bytes: those that were not used for longest are dropped first.

use interflow_tasks::WeighedCache;
use parking_lot::Mutex;

use super::entry::StoredResponse;
use super::key::CacheKey;

pub(super) struct MemoryStore {
    max: u64,
    responses: Mutex<WeighedCache<CacheKey, StoredResponse>>,
}

impl MemoryStore {
    pub fn new(max: u64) -> Self {
        Self { max, responses: Mutex::default() }
    }

    pub fn get(&self, key: &CacheKey) -> Option<StoredResponse> {
        self.responses.lock().get(key).cloned()
    }

    /// Returns how many others were dropped for it.
    pub fn put(&self, key: CacheKey, response: StoredResponse) -> u64 {
        let size = response.size();
        if size > self.max {
            return 0;
        }
        let mut responses = self.responses.lock();
        responses.insert(key, response, size);
        let mut dropped = 0;
        while responses.weight() > self.max && responses.remove_oldest() {
            dropped += 1;
        }
        dropped
    }

    /// Responses and their bytes.
    pub fn size(&self) -> (u64, u64) {
        let responses = self.responses.lock();
        (responses.len() as u64, responses.weight())
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
