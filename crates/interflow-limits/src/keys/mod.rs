//! Virtual keys: what clients show the gateway in place of a provider's key. Kept as hashes, with an owner, a scope and
//! an end.

mod key_file;
mod scope;
mod secret;
mod slow;
mod store;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

pub(crate) use scope::any_matches;

pub use key_file::{KeyFileError, NewVirtualKey, add_key, parse_timestamp, revoke_key};
pub use scope::{KeyScope, ScopeRequest, ScopeViolation};
pub use secret::{KEY_PREFIX, PlaintextKey};
pub use store::KeyStore;

use crate::rules::Quota;
use key_file::KeyHash;
use secret::KeyDigest;
use slow::SlowKeys;

/// One virtual key. The key itself is not in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualKey {
    /// Its name in limits, logs and audit lines.
    pub id: Arc<str>,
    /// Whom it was given to; counts as the user of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// What the owner of the gateway noted about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    pub created: Option<Timestamp>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    pub revoked: Option<Timestamp>,
    /// What it may be used for.
    #[serde(flatten)]
    pub scope: KeyScope,
    /// The redaction policy of its requests, by its name in `redact.policies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// Limits of its own, besides the rules of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Quota>,
}

fn serialize_timestamp<S: serde::Serializer>(at: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => s.collect_str(at),
        None => s.serialize_none(),
    }
}

/// A key as the keys file holds it: `sha256:` and 64 hex digits.
pub fn hash_key(key: &str) -> String {
    KeyDigest::from_key(key).to_string()
}

/// Whether a text is a hash that a keys file takes: `sha256:…`, `sha256$…`, or bcrypt's, also behind `bcrypt$`. `None` when
/// it does not claim to be one.
pub fn check_hash(text: &str) -> Option<Result<(), String>> {
    let claims = text.starts_with("sha256:") || text.starts_with("sha256$") || slow::SlowHash::parse(text).is_some();
    claims.then(|| KeyHash::parse(text).map(drop))
}

/// Whether a key may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It may.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl KeyState {
    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl VirtualKey {
    /// Whether it may be used now.
    pub fn state_now(&self) -> KeyState {
        self.state(Timestamp::now())
    }

    /// Whether it may be used at this moment.
    pub fn state(&self, now: Timestamp) -> KeyState {
        if self.revoked.is_some() {
            KeyState::Revoked
        } else if self.expires.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }
}

/// Why what a client showed does not open the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// No key was shown, and one is needed.
    #[error("a key of this gateway is needed, and none was sent")]
    Missing,
    /// It is none of ours.
    #[error("the key is not known to this gateway")]
    Unknown,
    /// Its time is over.
    #[error("the key {0} has expired")]
    Expired(Arc<str>),
    /// It was taken back.
    #[error("the key {0} was revoked")]
    Revoked(Arc<str>),
}

impl KeyRejection {
    /// The code in answers, audit lines and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "missing_api_key",
            Self::Unknown | Self::Expired(_) | Self::Revoked(_) => "invalid_api_key",
        }
    }
}

/// All keys of one file.
#[derive(Debug, Default)]
pub struct VirtualKeyRing {
    by_digest: HashMap<KeyDigest, Arc<VirtualKey>>,
    slow: SlowKeys,
    keys: Vec<Arc<VirtualKey>>,
    lists_models: bool,
}

impl VirtualKeyRing {
    /// Reads a keys file. An empty text is an empty ring.
    ///
    /// # Errors
    /// The line, or the key, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut ring = Self::default();
        for (hash, key) in key_file::parse_keys(text)? {
            let key = Arc::new(key);
            ring.lists_models |= !key.scope.models.is_empty();
            match hash {
                KeyHash::Fast(digest) => drop(ring.by_digest.insert(digest, Arc::clone(&key))),
                KeyHash::Slow(hash) => ring.slow.push(hash, Arc::clone(&key)),
            }
            ring.keys.push(key);
        }
        Ok(ring)
    }

    /// The key that a client showed, when it may be used now. One hash and one look-up, however many keys there are;
    /// how long it takes says nothing about the keys, since only hashes are compared. One whose hash is bcrypt's is known
    /// once it was [checked](Self::check).
    ///
    /// # Errors
    /// It is unknown, over, or taken back.
    pub fn find(&self, shown: &str, now: Timestamp) -> Result<Arc<VirtualKey>, KeyRejection> {
        let fast = self.by_digest.get(&KeyDigest::from_key(shown));
        let key = fast.or_else(|| self.slow.known(shown)).ok_or(KeyRejection::Unknown)?;
        match key.state(now) {
            KeyState::Active => Ok(Arc::clone(key)),
            KeyState::Expired => Err(KeyRejection::Expired(Arc::clone(&key.id))),
            KeyState::Revoked => Err(KeyRejection::Revoked(Arc::clone(&key.id))),
        }
    }

    /// The same at this moment.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_now(&self, shown: &str) -> Result<Arc<VirtualKey>, KeyRejection> {
        self.find(shown, Timestamp::now())
    }

    /// Whether [`find`](Self::find) can say nothing of this key before it was held against bcrypt's hashes. Keys that
    /// Interflow makes never are.
    pub fn needs_check(&self, shown: &str) -> bool {
        !shown.starts_with(KEY_PREFIX)
            && self.slow.needs_check(shown)
            && !self.by_digest.contains_key(&KeyDigest::from_key(shown))
    }

    /// Whether any key has a bcrypt hash.
    pub fn has_slow_keys(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Holds a key against bcrypt's hashes and remembers what was found. Each takes some hundredths of a second or more:
    /// not for a thread that serves others.
    pub fn check(&self, shown: &str) {
        self.slow.check(shown);
    }

    /// A digest of a key that says nothing outside of this ring.
    pub fn digest(&self, shown: &str) -> [u8; 32] {
        self.slow.digest(shown)
    }

    /// Whether any key is good for some models only.
    pub const fn restricts_models(&self) -> bool {
        self.lists_models
    }

    /// Every key in the order of the file.
    pub fn keys(&self) -> &[Arc<VirtualKey>] {
        &self.keys
    }
}

#[cfg(test)]
pub(crate) fn tests_key(id: &str, owner: Option<&str>) -> VirtualKey {
    VirtualKey {
        id: id.into(),
        owner: owner.map(Into::into),
        note: None,
        created: None,
        expires: None,
        revoked: None,
        scope: KeyScope::default(),
        policy: None,
        limits: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_opens_until_it_ends_or_is_revoked() {
        let now = at("2026-05-01T00:00:00Z");
        let mut text = String::new();
        let lasting =
            add_key(&mut text, NewVirtualKey { id: "lasting".into(), ..NewVirtualKey::default() }, now).unwrap();
        let ending = NewVirtualKey {
            id: "ending".into(),
            expires: Some(at("2026-05-02T00:00:00Z")),
            ..NewVirtualKey::default()
        };
        let ending = add_key(&mut text, ending, now).unwrap();
        let ring = VirtualKeyRing::parse(&text).unwrap();
        assert_eq!(&*ring.find(lasting.reveal(), now).unwrap().id, "lasting");
        assert_eq!(&*ring.find(ending.reveal(), now).unwrap().id, "ending");
        let later = at("2026-05-02T00:00:00Z");
        assert_eq!(ring.find(ending.reveal(), later), Err(KeyRejection::Expired("ending".into())));
        assert_eq!(ring.find("ifk_nothing", now), Err(KeyRejection::Unknown));
        assert!(revoke_key(&mut text, "lasting", now).unwrap());
        let ring = VirtualKeyRing::parse(&text).unwrap();
        assert_eq!(ring.find(lasting.reveal(), now), Err(KeyRejection::Revoked("lasting".into())));
    }

    #[test]
    fn the_file_never_holds_the_key() {
        let mut text = String::new();
        let key = add_key(
            &mut text,
            NewVirtualKey { id: "a".into(), ..NewVirtualKey::default() },
            at("2026-05-01T00:00:00Z"),
        )
        .unwrap();
        assert!(!text.contains(key.reveal()), "{text}");
        assert!(!format!("{key:?}").contains(key.reveal()));
    }
}
