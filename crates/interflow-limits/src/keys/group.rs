//! Teams and organisations: levels above a key, each with limits, models, tags and an end of its own. A request needs the
//! consent of every level.

use std::fmt;
use std::sync::Arc;

use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use jiff::Timestamp;
use serde::Serialize;

use super::scope::matches_model;
use super::{KeyState, serialize_timestamp};
use crate::rules::Quota;
use crate::tags::TagSet;

labelled_enum! {
    /// A level above a key, by its name in the keys file, in limits and in messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum GroupLevel {
        /// Keys belong to a team.
        Team "team",
        /// Teams belong to an organisation.
        Organisation "organisation",
    }
}

impl fmt::Display for GroupLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A team or an organisation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct KeyGroup {
    pub level: GroupLevel,
    pub id: Arc<str>,
    /// The organisation of a team.
    #[serde(rename = "organisation", skip_serializing_if = "Option::is_none", serialize_with = "serialize_group")]
    #[schemars(with = "Option<String>")]
    pub parent: Option<Arc<KeyGroup>>,
    /// The operator's note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The first moment at which its keys are no longer valid.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_timestamp")]
    #[schemars(with = "Option<String>")]
    pub expires: Option<Timestamp>,
    /// Whether all its keys are rejected until it is enabled again.
    pub disabled: bool,
    /// Model names that its keys may use, with `*`; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// MCP servers and tools that its keys may use, as in a key's scope; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<String>,
    /// Its own tags, and those of its organisation.
    #[serde(skip_serializing_if = "TagSet::is_empty")]
    pub tags: TagSet,
    /// Limits of all its keys together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Quota>,
}

/// As its id.
pub(super) fn serialize_group<S: serde::Serializer>(group: &Option<Arc<KeyGroup>>, s: S) -> Result<S::Ok, S::Error> {
    group.as_ref().map(|group| &group.id).serialize(s)
}

impl KeyGroup {
    /// As [`state`](Self::state), at the current time.
    pub fn state_now(&self) -> KeyState {
        self.state(Timestamp::now())
    }

    /// Its own state, whatever that of the level above.
    pub fn state(&self, now: Timestamp) -> KeyState {
        match self.expires {
            Some(end) if end <= now => KeyState::Expired,
            _ if self.disabled => KeyState::Disabled,
            _ => KeyState::Active,
        }
    }

    pub fn allows_model(&self, model: &str) -> bool {
        self.models.is_empty() || matches_model(&self.models, model)
    }
}
