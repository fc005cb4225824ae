//! A cache of what was learnt from origins, which is learnt again after some time.

use std::hash::Hash;
use std::time::{Duration, Instant};

use hashlink::LruCache;
use parking_lot::Mutex;

/// How long an entry is used.
const TTL: Duration = Duration::from_secs(600);

/// Entries of the last ten minutes. The least recently used ones are evicted.
pub struct TtlCache<K, V>(Mutex<LruCache<K, (Instant, V)>>);

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self(Mutex::new(LruCache::new(capacity)))
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).filter(|(since, _)| since.elapsed() < TTL).map(|(_, value)| value.clone())
    }

    pub fn insert(&self, key: K, value: V) {
        self.0.lock().insert(key, (Instant::now(), value));
    }

    pub fn remove(&self, key: &K) {
        self.0.lock().remove(key);
    }
}
