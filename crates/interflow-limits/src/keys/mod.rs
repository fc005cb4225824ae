//! Virtual keys: what clients present to the gateway in place of a provider's key. Stored as hashes, with an owner, a
//! scope and an expiry.

mod context;
mod group;
mod group_file;
mod key_file;
pub(crate) mod scope;
mod secret;
mod store;

use std::collections::HashMap;
use std::sync::Arc;

use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use jiff::Timestamp;
use serde::Serialize;

pub use context::{KeyContext, KeyedEndpoint};
pub use scope::{any_matches, covers_model, matches_model};

pub use group::{GroupLevel, KeyGroup};
pub use group_file::GroupChange;
pub use key_file::{KeyChange, KeyFileError, NewVirtualKey, add_key, parse_timestamp, revoke_key};
pub use scope::{KeyScope, MCP_SEPARATOR, ScopeRequest, ScopeViolation, check_mcp_name};
pub use secret::{KEY_PREFIX, PlaintextKey, holds_key};
pub use store::KeyStore;

use crate::rules::Quota;
use crate::tags::TagSet;
use secret::KeyDigest;

/// The record of one virtual key; does not contain the key itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VirtualKey {
    /// Its id in limits, logs and audit records.
    pub id: Arc<str>,
    /// Who it was issued to; counts as the user of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// The operator's note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    #[schemars(with = "Option<String>")]
    pub created: Option<Timestamp>,
    /// The first moment at which it is no longer valid.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    #[schemars(with = "Option<String>")]
    pub expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    #[schemars(with = "Option<String>")]
    pub revoked: Option<Timestamp>,
    /// Whether it is rejected until it is enabled again.
    pub disabled: bool,
    #[serde(flatten)]
    pub scope: KeyScope,
    /// The redaction policy of its requests, by its name in `redact.policies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// Limits of this key, in addition to the configured rules and to those of its team and organisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Quota>,
    /// The team to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "group::serialize_group")]
    #[schemars(with = "Option<String>")]
    pub team: Option<Arc<KeyGroup>>,
    /// Its own tags, and those of its team and organisation.
    #[serde(skip_serializing_if = "TagSet::is_empty")]
    pub tags: TagSet,
    /// Until when the secret before the last rotation is valid, too.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    #[schemars(with = "Option<String>")]
    pub previous_until: Option<Timestamp>,
}

fn serialize_timestamp<S: serde::Serializer>(at: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
    at.map(|at| at.to_string()).serialize(s)
}

/// The hash of a key as stored in the keys file: `sha256:` and 64 hex digits.
pub fn hash_key(key: &str) -> String {
    KeyDigest::from_key(key).to_string()
}

labelled_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum KeyState {
        Active "active",
        Disabled "disabled",
        Expired "expired",
        Revoked "revoked",
    }
}

impl VirtualKey {
    /// As [`state`](Self::state), at the current time.
    pub fn state_now(&self) -> KeyState {
        self.state(Timestamp::now())
    }

    /// Revocation counts more than expiry, so that a revoked key is reported as revoked for ever.
    pub fn state(&self, now: Timestamp) -> KeyState {
        if self.revoked.is_some() {
            KeyState::Revoked
        } else if self.expires.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else if self.disabled {
            KeyState::Disabled
        } else {
            KeyState::Active
        }
    }

    /// Its team and its organisation, as far as it has them.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<KeyGroup>> {
        std::iter::successors(self.team.as_ref(), |group| group.parent.as_ref())
    }

    /// The organisation of its team.
    pub fn organisation(&self) -> Option<&Arc<KeyGroup>> {
        self.team.as_ref()?.parent.as_ref()
    }

    /// Whether it or a level above it has limits.
    pub fn has_limits(&self) -> bool {
        self.limits.is_some() || self.groups().any(|group| group.limits.is_some())
    }

    /// Whether it or a level above it is restricted to certain models.
    pub fn restricts_models(&self) -> bool {
        !self.scope.models.is_empty() || self.groups().any(|group| !group.models.is_empty())
    }

    pub fn allows_model(&self, model: &str) -> bool {
        self.scope.allows_model(model) && self.groups().all(|group| group.allows_model(model))
    }

    /// Whether it and every level above it allow a tool of an MCP server; without a tool, all that the server offers.
    pub fn allows_mcp(&self, server: &str, tool: Option<&str>) -> bool {
        let allows = |patterns: &[String]| scope::allows_mcp(patterns, server, tool);
        allows(&self.scope.mcp) && self.groups().all(|group| allows(&group.mcp))
    }

    /// Whether the key and every level above it allow something of an MCP server.
    pub fn reaches_mcp(&self, server: &str) -> bool {
        let reaches = |patterns: &[String]| scope::reaches_mcp(patterns, server);
        reaches(&self.scope.mcp) && self.groups().all(|group| reaches(&group.mcp))
    }

    /// Checks a request against the scope of the key and the models of every level above it.
    ///
    /// # Errors
    /// The first axis that it violates, and the team or organisation if that is not the key's.
    pub fn allows(&self, asked: &ScopeRequest<'_>) -> Result<(), (ScopeViolation, Option<Arc<KeyGroup>>)> {
        self.scope.allows(asked).map_err(|why| (why, None))?;
        // A request without a model must not bypass a model list.
        let allows = |group: &Arc<KeyGroup>| asked.model.map_or(group.models.is_empty(), |m| group.allows_model(m));
        let refusing = self.groups().find(|group| !allows(group));
        refusing.map_or(Ok(()), |group| Err((ScopeViolation::Model, Some(Arc::clone(group)))))
    }

    /// Whether the key and every level above it admit requests now.
    fn check_state(&self, now: Timestamp) -> Result<(), KeyRejection> {
        match self.state(now) {
            KeyState::Active => {}
            KeyState::Expired => return Err(KeyRejection::Expired(Arc::clone(&self.id))),
            KeyState::Revoked => return Err(KeyRejection::Revoked(Arc::clone(&self.id))),
            KeyState::Disabled => return Err(KeyRejection::Disabled(Arc::clone(&self.id))),
        }
        for group in self.groups() {
            let (level, name, key) = (group.level, Arc::clone(&group.id), Arc::clone(&self.id));
            match group.state(now) {
                KeyState::Active | KeyState::Revoked => {}
                KeyState::Expired => return Err(KeyRejection::GroupExpired { level, name, key }),
                KeyState::Disabled => return Err(KeyRejection::GroupDisabled { level, name, key }),
            }
        }
        Ok(())
    }
}

/// Why the presented credential was rejected by the gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// No key was presented, and one is required.
    #[error("a key of this gateway is needed, and none was sent")]
    Missing,
    #[error("the key is not known to this gateway")]
    Unknown,
    #[error("the key {0} has expired")]
    Expired(Arc<str>),
    #[error("the key {0} was revoked")]
    Revoked(Arc<str>),
    #[error("the key {0} is disabled")]
    Disabled(Arc<str>),
    /// The secret that the key had before its rotation, after the overlap.
    #[error("the key {0} was rotated, and its old secret is no longer valid: use the new one")]
    Replaced(Arc<str>),
    #[error(
        "the {level} {name} of the key {key} is disabled: the operator can enable it with `interflow keys {level} enable {name}`"
    )]
    GroupDisabled { level: GroupLevel, name: Arc<str>, key: Arc<str> },
    #[error(
        "the {level} {name} of the key {key} has expired: the operator can prolong it with `interflow keys {level} change {name} --expires …`"
    )]
    GroupExpired { level: GroupLevel, name: Arc<str>, key: Arc<str> },
}

impl KeyRejection {
    /// The code in responses, audit records and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "missing_api_key",
            _ => "invalid_api_key",
        }
    }
}

/// All keys of one file, indexed by hash. Immutable: a change of the file makes a new ring.
#[derive(Debug, Default)]
pub struct VirtualKeyRing {
    by_digest: HashMap<KeyDigest, Credential>,
    keys: Vec<Arc<VirtualKey>>,
    groups: Vec<Arc<KeyGroup>>,
    lists_models: bool,
}

/// A secret's key. `until`: the secret was replaced, and is valid until then.
#[derive(Clone, Debug)]
struct Credential {
    key: Arc<VirtualKey>,
    until: Option<Timestamp>,
}

impl VirtualKeyRing {
    /// Parses a keys file. An empty text is an empty ring.
    ///
    /// # Errors
    /// The line or the key, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let parsed = key_file::parse_keys(text)?;
        let mut ring = Self { groups: parsed.groups, ..Self::default() };
        for entry in parsed.keys {
            let key = Arc::new(entry.key);
            ring.lists_models |= key.restricts_models();
            let previous = entry.previous.map(|(hash, until)| (hash, Some(until)));
            for (hash, until) in std::iter::once((entry.hash, None)).chain(previous) {
                ring.by_digest.insert(hash, Credential { key: Arc::clone(&key), until });
            }
            ring.keys.push(key);
        }
        Ok(ring)
    }

    /// Looks up a presented key that is currently valid. One hash and one lookup, whatever the number of keys; the
    /// timing reveals nothing about the keys, since only hashes are compared.
    ///
    /// # Errors
    /// It is unknown, expired, revoked or disabled, or a level above it is.
    pub fn find(&self, presented: &str, now: Timestamp) -> Result<Arc<VirtualKey>, KeyRejection> {
        let credential = self.by_digest.get(&KeyDigest::from_key(presented));
        let Credential { key, until } = credential.ok_or(KeyRejection::Unknown)?;
        key.check_state(now)?;
        match until {
            Some(end) if *end <= now => Err(KeyRejection::Replaced(Arc::clone(&key.id))),
            _ => Ok(Arc::clone(key)),
        }
    }

    /// As [`find`](Self::find), at the current time.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_now(&self, presented: &str) -> Result<Arc<VirtualKey>, KeyRejection> {
        self.find(presented, Timestamp::now())
    }

    /// Whether any key is restricted to certain models. Only then do model lists in responses have to be filtered.
    pub const fn restricts_models(&self) -> bool {
        self.lists_models
    }

    pub fn keys(&self) -> &[Arc<VirtualKey>] {
        &self.keys
    }

    /// Whether a key, a team or an organisation has limits.
    pub fn has_limits(&self) -> bool {
        let limits = self.keys.iter().map(|key| &key.limits).chain(self.groups.iter().map(|group| &group.limits));
        limits.flatten().any(|quota| *quota != Quota::default())
    }

    /// Organisations, then teams, each in the order of the file.
    pub fn groups(&self) -> &[Arc<KeyGroup>] {
        &self.groups
    }

    pub fn group(&self, level: GroupLevel, id: &str) -> Option<&Arc<KeyGroup>> {
        self.groups.iter().find(|group| group.level == level && &*group.id == id)
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
        disabled: false,
        scope: KeyScope::default(),
        policy: None,
        limits: None,
        team: None,
        tags: TagSet::new(),
        previous_until: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn key_is_accepted_until_expiry_or_revocation() {
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
    fn key_file_never_contains_the_plaintext_key() {
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
