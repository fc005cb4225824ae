//! Keys stored as bcrypt hashes, for compatibility with Philter's proxy. bcrypt is slow by design and cannot be looked
//! up, so an unknown key costs one hash per entry; results are therefore cached.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use interflow_types::random_bytes;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::Credential;

/// Maximum number of bcrypt entries in one file: an unknown key costs that many hashes, which is what a client
/// without a key can make the gateway compute.
pub(super) const MAX_SLOW_KEYS: usize = 64;
/// The highest accepted cost; one hash takes more than a second at it.
const MAX_COST: u32 = 14;
/// bcrypt ignores everything after this many bytes, so longer keys are rejected: two of them could otherwise be the
/// same key.
const MAX_KEY_BYTES: usize = 72;
/// Size of the cache of wrong keys (least recently used is evicted).
const MAX_WRONG: usize = 8192;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SlowHash(String);

impl SlowHash {
    /// Parses `$2b$10$…`, also prefixed `bcrypt$` as written by Philter's proxy. `None` if it is not a bcrypt hash.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let bare = text.strip_prefix("bcrypt$").or_else(|| text.strip_prefix("bcrypt:"));
        let hash = match bare.unwrap_or(text) {
            rest if rest.starts_with("$2") => rest.to_owned(),
            rest if bare.is_some() && rest.starts_with('2') => format!("${rest}"),
            _ => return bare.map(|_| Err("nothing that begins with $2a$, $2b$ or $2y$ is behind bcrypt$".into())),
        };
        Some(Self::checked(hash))
    }

    fn checked(hash: String) -> Result<Self, String> {
        let parts: bcrypt::HashParts = hash.parse().map_err(|e| format!("the bcrypt hash is broken: {e}"))?;
        match parts.get_cost() {
            cost if cost > MAX_COST => Err(format!(
                "the bcrypt hash has the cost {cost}, and at most {MAX_COST} is taken: each check takes seconds"
            )),
            _ => Ok(Self(hash)),
        }
    }

    fn matches(&self, key: &str) -> bool {
        // A hash that cannot be verified matches nothing.
        bcrypt::verify(key, &self.0).unwrap_or(false)
    }
}

impl fmt::Debug for SlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlowHash(…)")
    }
}

/// The bcrypt entries, and the cached results of presented keys.
pub(super) struct SlowKeys {
    entries: Vec<(SlowHash, Credential)>,
    /// Per-process key of the digests in the cache, so that a memory dump reveals no plain hash of a presented key.
    secret: [u8; 32],
    checked: Mutex<Checked>,
}

/// A keyed digest of a presented key.
type KeyDigest = [u8; 32];

#[derive(Default)]
struct Checked {
    /// For each entry the key that matched: wrong guesses cannot evict it.
    right: Vec<Option<KeyDigest>>,
    wrong: RecentlyWrong,
}

impl Default for SlowKeys {
    fn default() -> Self {
        Self { entries: Vec::new(), secret: random_bytes(), checked: Mutex::default() }
    }
}

impl fmt::Debug for SlowKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowKeys({})", self.entries.len())
    }
}

impl SlowKeys {
    pub fn push(&mut self, hash: SlowHash, key: Credential) {
        self.entries.push((hash, key));
        self.checked.get_mut().right.push(None);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key record, if this key matched before.
    pub fn known(&self, presented: &str) -> Option<&Credential> {
        if self.entries.is_empty() {
            return None;
        }
        let digest = self.digest(presented);
        let at = self.checked.lock().right.iter().position(|right| *right == Some(digest))?;
        self.entries.get(at).map(|(_, key)| key)
    }

    /// Whether this key has no cached result and may match an entry.
    pub fn needs_check(&self, presented: &str) -> bool {
        if self.entries.is_empty() || presented.is_empty() || presented.len() > MAX_KEY_BYTES {
            return false;
        }
        let digest = self.digest(presented);
        let mut checked = self.checked.lock();
        !checked.right.contains(&Some(digest)) && !checked.wrong.contains(&digest)
    }

    /// Hashes the key for each entry (a tenth of a second each) and caches the result.
    pub fn check(&self, presented: &str) {
        // Outside of the lock: this takes seconds if no entry matches.
        let at = self.entries.iter().position(|(hash, _)| hash.matches(presented));
        let digest = self.digest(presented);
        let mut checked = self.checked.lock();
        match at.and_then(|at| checked.right.get_mut(at)) {
            Some(right) => *right = Some(digest),
            None => checked.wrong.insert(digest),
        }
    }

    /// The digest under which the result of a key is cached.
    pub fn digest(&self, presented: &str) -> KeyDigest {
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        hasher.update(presented);
        hasher.finalize().into()
    }
}

#[derive(Default)]
struct RecentlyWrong {
    turns: HashMap<KeyDigest, u64>,
    by_turn: BTreeMap<u64, KeyDigest>,
    next: u64,
}

impl RecentlyWrong {
    fn contains(&mut self, digest: &KeyDigest) -> bool {
        let is_known = self.turns.contains_key(digest);
        if is_known {
            self.insert(*digest);
        }
        is_known
    }

    fn insert(&mut self, digest: KeyDigest) {
        self.next += 1;
        if let Some(before) = self.turns.insert(digest, self.next) {
            self.by_turn.remove(&before);
        }
        self.by_turn.insert(self.next, digest);
        while self.turns.len() > MAX_WRONG {
            let Some((_, oldest)) = self.by_turn.pop_first() else { return };
            self.turns.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests_key;

    fn keys(of: &[&str]) -> SlowKeys {
        let mut keys = SlowKeys::default();
        for text in of {
            let hash = bcrypt::hash(text, 4).unwrap();
            keys.push(
                SlowHash::parse(&hash).unwrap().unwrap(),
                Credential { key: std::sync::Arc::new(tests_key(text, None)), until: None },
            );
        }
        keys
    }

    #[test]
    fn bcrypt_hash_is_parsed_in_every_form_and_invalid_ones_refused() {
        let hash = bcrypt::hash("team-key", 4).unwrap();
        for text in [hash.clone(), format!("bcrypt${hash}"), format!("bcrypt{hash}"), format!("bcrypt:{hash}")] {
            assert!(SlowHash::parse(&text).unwrap().unwrap().matches("team-key"), "{text}");
        }
        for (bad, says) in [
            ("bcrypt$x".to_owned(), "$2a$"),
            ("$2b$04$short".to_owned(), "broken"),
            (hash.replacen("$04$", "$15$", 1), "cost 15"),
        ] {
            assert!(SlowHash::parse(&bad).unwrap().unwrap_err().contains(says), "{bad}");
        }
        assert!(SlowHash::parse("sha256:00").is_none());
    }

    #[test]
    fn key_checks_are_cached_and_wrong_keys_do_not_evict_valid_ones() {
        let keys = keys(&["one", "two"]);
        assert!(keys.needs_check("two") && keys.known("two").is_none());
        keys.check("two");
        assert_eq!(keys.known("two").map(|k| &*k.key.id), Some("two"));
        for i in 0..MAX_WRONG as u64 + 2 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&i.to_le_bytes());
            keys.checked.lock().wrong.insert(digest);
        }
        keys.check("guess");
        assert!(!keys.needs_check("two") && !keys.needs_check("guess") && keys.needs_check("other"));
        assert_eq!(keys.checked.lock().wrong.turns.len(), MAX_WRONG);
        assert!(!keys.needs_check(&"k".repeat(73)), "bcrypt would take it for the first 72 bytes of it");
    }

    #[test]
    fn least_recently_used_wrong_key_is_evicted() {
        let mut wrong = RecentlyWrong::default();
        let digest = |i: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&(i as u64).to_le_bytes());
            digest
        };
        (0..MAX_WRONG).for_each(|i| wrong.insert(digest(i)));
        assert!(wrong.contains(&digest(0)));
        wrong.insert(digest(MAX_WRONG));
        assert!(wrong.contains(&digest(0)) && !wrong.contains(&digest(1)));
        assert_eq!(wrong.by_turn.len(), wrong.turns.len());
    }
}
