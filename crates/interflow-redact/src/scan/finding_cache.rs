//! A cache of findings: conversations send their history again with every turn.
//!
//! The key contains the policy's fingerprint and everything else that findings depend on, so a changed policy finds no
//! old entries. What was not used for longest is dropped first. The cache is full by its number of texts or by the bytes
//! of their findings, which count towards the [budget](interflow_types::budget) of the process.

use std::sync::Arc;

use interflow_tasks::WeighedCache;
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use parking_lot::Mutex;

use crate::Result;
use crate::detect::Finding;
use crate::strategy::random;

/// Shorter texts are not cached: scanning them is as fast as a lookup.
const MIN_CACHED_BYTES: usize = 256;

/// Bytes of an entry besides its findings: its hash, its place in the table, and its allocation.
const ENTRY_BYTES: usize = 112;

/// A cache takes at most one part in so many of the process's budget.
const BUDGET_SHARE: u64 = 8;

/// Findings by the hash of their text, and the memory that they take.
#[derive(Debug, Default)]
struct CachedFindings {
    entries: WeighedCache<[u8; 32], Arc<[Finding]>>,
    reserved: MemoryReservation,
}

/// Findings by a keyed hash of the text; the texts themselves are not stored. Bounded.
#[derive(Debug)]
pub struct FindingCache {
    key: [u8; 32],
    max_entries: usize,
    max_bytes: usize,
    cached: Mutex<CachedFindings>,
}

impl FindingCache {
    /// The memory of a cache in bytes, if none is given: 32 MiB.
    pub const DEFAULT_MAX_BYTES: usize = 32 << 20;

    /// A cache for `entries` texts, of [`DEFAULT_MAX_BYTES`](Self::DEFAULT_MAX_BYTES). The key of its hash is random,
    /// so that stored hashes do not reveal texts.
    ///
    /// # Errors
    /// When there are no random bytes for its key.
    pub fn new(entries: usize) -> Result<Self> {
        let (max_entries, max_bytes) = (entries.max(1), Self::DEFAULT_MAX_BYTES);
        Ok(Self { key: random()?, max_entries, max_bytes, cached: Mutex::default() })
    }

    /// Sets the memory that the findings may take, in bytes.
    pub fn with_max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// The memory that the findings take, in bytes.
    pub fn bytes(&self) -> usize {
        self.cached.lock().entries.weight() as usize
    }

    pub fn len(&self) -> usize {
        self.cached.lock().entries.len()
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
        if let Some(cached) = self.get_by_key(&key) {
            return cached;
        }
        let findings: Arc<[Finding]> = look().into();
        // The findings of a cancelled scan are incomplete.
        if !crate::scan::stop_flag::is_stop_requested() {
            self.insert_by_key(key, findings.clone());
        }
        findings
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
    pub(crate) fn insert_findings(&self, scope: &[&[u8]], text: &str, findings: Arc<[Finding]>) {
        self.insert_by_key(self.key_of(scope, text), findings);
    }

    fn get_by_key(&self, key: &[u8; 32]) -> Option<Arc<[Finding]>> {
        self.cached.lock().entries.get(key).cloned()
    }

    /// The memory of the cache. It must not take from requests what a small budget has for them.
    fn max_bytes_now(&self) -> usize {
        let share = match PROCESS_BUDGET.limit() {
            0 => u64::MAX,
            limit => limit / BUDGET_SHARE,
        };
        self.max_bytes.min(usize::try_from(share).unwrap_or(usize::MAX))
    }

    fn insert_by_key(&self, key: [u8; 32], findings: Arc<[Finding]>) {
        let (bytes, max_bytes) = (ENTRY_BYTES + size_of_val(&*findings), self.max_bytes_now());
        // One text must not evict all others.
        if bytes > max_bytes / 4 {
            return;
        }
        let CachedFindings { entries, reserved } = &mut *self.cached.lock();
        entries.insert(key, findings, bytes as u64);
        // Without memory, the oldest are dropped, in the end also the new one.
        while entries.len() > self.max_entries
            || entries.weight() > max_bytes as u64
            || reserved.resize(entries.weight() as usize).is_err()
        {
            entries.remove_oldest();
        }
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
    fn texts_full_of_findings_take_bounded_memory() {
        let finding = Finding { start: 0, end: 1, kind: crate::Kind::Ssn, confidence: 90, rule: 0, evidence: None };
        let memo = FindingCache::new(1_000).expect("random bytes").with_max_bytes(64 << 10);
        let insert = |n: usize, findings: usize| {
            memo.insert_findings(&[], &n.to_string(), vec![finding; findings].into());
        };
        for n in 0..100 {
            insert(n, 100);
            assert!(memo.bytes() <= 64 << 10, "{}", memo.bytes());
        }
        assert!((4..100).contains(&memo.len()), "{}", memo.len());
        let before = memo.len();
        insert(100, 100_000);
        assert_eq!(memo.len(), before, "a text with too many findings evicts no others");
        insert(99, 100);
        let bytes = memo.bytes();
        insert(99, 100);
        assert_eq!(memo.bytes(), bytes, "the same text is counted once");
    }

    #[test]
    fn short_texts_are_not_cached() {
        let memo = FindingCache::new(8).expect("random bytes");
        memo.get_or(&[], "short", Vec::new);
        assert!(memo.is_empty());
    }
}
