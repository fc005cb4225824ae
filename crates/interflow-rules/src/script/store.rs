//! The key-value store that scripts share between flows, bounded in entries, bytes and time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A value that may be stored: no tables or functions, which belong to one Lua state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredScriptValue {
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(Vec<u8>),
}

impl StoredScriptValue {
    fn size(&self) -> usize {
        match self {
            Self::Text(t) => t.len(),
            _ => 8,
        }
    }
}

/// Limits of the store, from `rules.store_*`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptStoreBounds {
    pub entries: usize,
    pub bytes: usize,
    /// Default time to live.
    pub ttl: Duration,
}

#[derive(Debug)]
struct ScriptStoreEntry {
    value: StoredScriptValue,
    until: Instant,
    age: u64,
}

/// The store of all scripts. When it is full, the values that were written longest ago are evicted.
#[derive(Debug, Default)]
pub(crate) struct ScriptStore {
    entries: HashMap<Vec<u8>, ScriptStoreEntry>,
    /// Keys in the order of their last write.
    ages: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    clock: u64,
}

/// The store as its scripts share it.
pub(crate) type SharedScriptStore = Arc<Mutex<ScriptStore>>;

impl ScriptStore {
    /// The value, unless its time to live is over.
    pub fn get(&mut self, key: &[u8], now: Instant) -> Option<StoredScriptValue> {
        if self.entries.get(key)?.until <= now {
            self.delete(key);
            return None;
        }
        self.entries.get(key).map(|e| e.value.clone())
    }

    /// Stores a value, and evicts others if there is no space left.
    ///
    /// # Errors
    /// The value alone exceeds the size of the store.
    pub fn set(
        &mut self,
        key: &[u8],
        value: StoredScriptValue,
        ttl: Option<Duration>,
        b: ScriptStoreBounds,
        now: Instant,
    ) -> Result<(), String> {
        let needed = cost(key, &value);
        if needed > b.bytes || b.entries == 0 {
            return Err(format!(
                "store.set: a value of {} bytes is larger than rules.store_bytes allows",
                value.size()
            ));
        }
        // First, so that a value is not evicted in favour of its own new one.
        self.delete(key);
        while self.entries.len() >= b.entries || self.bytes + needed > b.bytes {
            let Some((_, oldest)) = self.ages.first_key_value().map(|(a, k)| (*a, k.clone())) else { break };
            self.delete(&oldest);
        }
        self.clock += 1;
        self.bytes += needed;
        self.ages.insert(self.clock, key.to_vec());
        let until = now.checked_add(ttl.unwrap_or(b.ttl)).unwrap_or(now + b.ttl);
        self.entries.insert(key.to_vec(), ScriptStoreEntry { value, until, age: self.clock });
        Ok(())
    }

    /// Adds to an integer, which is 0 if absent; returns the sum. The time to live starts at the first
    /// addition.
    ///
    /// # Errors
    /// The value is not an integer.
    pub fn add(
        &mut self,
        key: &[u8],
        n: i64,
        ttl: Option<Duration>,
        b: ScriptStoreBounds,
        now: Instant,
    ) -> Result<i64, String> {
        let (before, left) = match self.entries.get(key).filter(|e| e.until > now) {
            None => (0, ttl),
            Some(ScriptStoreEntry { value: StoredScriptValue::Integer(before), until, .. }) => {
                (*before, Some(*until - now))
            }
            Some(_) => return Err("store.add: the value is not an integer".into()),
        };
        let sum = before.saturating_add(n);
        self.set(key, StoredScriptValue::Integer(sum), left, b, now)?;
        Ok(sum)
    }

    /// Whether there was a value.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.ages.remove(&entry.age);
        self.bytes -= cost(key, &entry.value);
        true
    }
}

/// Size of an entry in bytes besides its key, which is stored twice, and its value.
const ENTRY_OVERHEAD: usize = 96;

/// What an entry counts towards the limit in bytes.
fn cost(key: &[u8], value: &StoredScriptValue) -> usize {
    2 * key.len() + value.size() + ENTRY_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ScriptStoreBounds = ScriptStoreBounds { entries: 3, bytes: 1000, ttl: Duration::from_secs(60) };

    #[test]
    fn oldest_values_are_evicted_and_all_bounds_hold() {
        let (mut store, now) = (ScriptStore::default(), Instant::now());
        let text = |n: usize| StoredScriptValue::Text(vec![b'x'; n]);
        for key in [b"a", b"b", b"c", b"d"] {
            store.set(key, StoredScriptValue::Integer(1), None, BOUNDS, now).unwrap();
        }
        assert_eq!((store.get(b"a", now), store.get(b"d", now)), (None, Some(StoredScriptValue::Integer(1))));
        store.set(b"e", text(700), None, BOUNDS, now).unwrap();
        assert_eq!((store.get(b"b", now), store.bytes <= 1000), (None, true));
        assert!(store.set(b"f", text(1000), None, BOUNDS, now).is_err());
        assert!(store.delete(b"e") && !store.delete(b"e"));
    }

    #[test]
    fn values_expire_and_counters_keep_their_expiry() {
        let (mut store, now) = (ScriptStore::default(), Instant::now());
        let at = |s: u64| now + Duration::from_secs(s);
        store.set(b"a", StoredScriptValue::Boolean(true), Some(Duration::from_secs(5)), BOUNDS, now).unwrap();
        assert_eq!((store.get(b"a", at(4)), store.get(b"a", at(5))), (Some(StoredScriptValue::Boolean(true)), None));
        let mut add = |s: u64| store.add(b"n", 2, Some(Duration::from_secs(10)), BOUNDS, at(s));
        assert_eq!((add(0), add(9), add(11)), (Ok(2), Ok(4), Ok(2)));
        store.set(b"t", StoredScriptValue::Text(b"x".to_vec()), None, BOUNDS, now).unwrap();
        assert!(store.add(b"t", 1, None, BOUNDS, now).is_err());
    }
}
