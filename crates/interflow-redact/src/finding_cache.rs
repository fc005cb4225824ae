//! A cache of findings: conversations send their history again with every turn.
//!
//! The key contains the policy's fingerprint and everything else that findings depend on, so a changed policy finds no
//! old entries. Entries are dropped by generation: when the younger half is full it becomes the older one, and what was
//! not used since then is gone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::RedactError;
use crate::detect::Finding;
use crate::strategy::random;

/// Shorter texts are not cached: scanning them is as fast as a lookup.
const MIN_CACHED_BYTES: usize = 256;

/// Findings by the hash of their text.
type FindingGeneration = HashMap<[u8; 32], Arc<[Finding]>>;

/// Findings by a keyed hash of the text; the texts themselves are not stored. Bounded: the older half is evicted when
/// it is full.
#[derive(Debug)]
pub struct FindingCache {
    key: [u8; 32],
    half: usize,
    generations: Mutex<[FindingGeneration; 2]>,
}

impl FindingCache {
    /// A cache for about `entries` texts. The key of its hash is random, so that stored hashes do not reveal texts.
    ///
    /// # Errors
    /// When there are no random bytes for its key.
    pub fn new(entries: usize) -> Result<Self, RedactError> {
        Ok(Self { key: random()?, half: (entries / 2).max(1), generations: Mutex::default() })
    }

    pub fn len(&self) -> usize {
        self.generations.lock().iter().map(HashMap::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The findings in the text under this policy, computed if they are not cached. The lock is not held meanwhile,
    /// so two threads may compute the same.
    pub(crate) fn get_or(&self, scope: &[&[u8]], text: &str, look: impl FnOnce() -> Vec<Finding>) -> Arc<[Finding]> {
        if text.len() < MIN_CACHED_BYTES {
            return look().into();
        }
        let key = self.key_of(scope, text);
        if let Some(known) = self.get_by_key(&key) {
            return known;
        }
        let found: Arc<[Finding]> = look().into();
        // The findings of a cancelled scan are incomplete.
        if !crate::stop_flag::is_stop_requested() {
            self.insert_by_key(key, found.clone());
        }
        found
    }

    fn key_of(&self, scope: &[&[u8]], text: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in scope {
            // With lengths, so that different splits of the same bytes have different keys.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        *hasher.update(text.as_bytes()).finalize().as_bytes()
    }

    /// The cached findings of a text of any length, for findings that are costly, such as those of external
    /// detectors.
    pub(crate) fn get(&self, scope: &[&[u8]], text: &str) -> Option<Arc<[Finding]>> {
        self.get_by_key(&self.key_of(scope, text))
    }

    /// Caches the findings of a text of any length.
    pub(crate) fn insert_findings(&self, scope: &[&[u8]], text: &str, found: Arc<[Finding]>) {
        self.insert_by_key(self.key_of(scope, text), found);
    }

    fn get_by_key(&self, key: &[u8; 32]) -> Option<Arc<[Finding]>> {
        let mut generations = self.generations.lock();
        // A hit in the older half moves the entry to the younger one.
        if let Some(found) = generations[0].get(key) {
            return Some(found.clone());
        }
        let found = generations[1].remove(key)?;
        self.insert(&mut generations, *key, found.clone());
        Some(found)
    }

    fn insert_by_key(&self, key: [u8; 32], found: Arc<[Finding]>) {
        self.insert(&mut self.generations.lock(), key, found);
    }

    fn insert(&self, generations: &mut [FindingGeneration; 2], key: [u8; 32], found: Arc<[Finding]>) {
        if generations[0].len() >= self.half {
            // The older half is dropped as a whole, which needs no order of use.
            generations.swap(0, 1);
            generations[0].clear();
        }
        generations[0].insert(key, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn findings_are_cached_per_policy_and_the_cache_is_bounded() {
        let memo = FindingCache::new(8).expect("random bytes");
        let looks = Cell::new(0);
        let look = |scope: &[u8], text: &str| {
            memo.get_or(&[scope], text, || {
                looks.set(looks.get() + 1);
                Vec::new()
            });
        };
        let text = "x".repeat(300);
        look(b"a", &text);
        look(b"a", &text);
        assert_eq!(looks.get(), 1);
        look(b"b", &text);
        assert_eq!(looks.get(), 2);
        for n in 0..100 {
            look(b"a", &format!("{text}{n}"));
        }
        assert!(memo.len() <= 8);
    }

    #[test]
    fn short_texts_are_not_cached() {
        let memo = FindingCache::new(8).expect("random bytes");
        memo.get_or(&[], "short", Vec::new);
        assert!(memo.is_empty());
    }
}
