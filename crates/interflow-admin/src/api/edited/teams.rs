//! Teams and organisations, which virtual keys belong to.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_limits::{
    GroupChange, GroupLevel, KeyGroup, KeyState, Quota, TagSet, VirtualKey, VirtualKeyRing, parse_timestamp,
};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::edited::limits::{change_keys, changed, limit_deps};
use crate::api::input::StrictJson;
use crate::error::{ApiError, Result};
use crate::state::SharedState;

#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyGroupView {
    #[serde(flatten)]
    group: KeyGroup,
    state: KeyState,
    /// Virtual keys that belong to it, also by their team.
    keys: usize,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct KeyGroups {
    organisations: Vec<KeyGroupView>,
    teams: Vec<KeyGroupView>,
}

/// What to set of a team or an organisation. Absent members stay as they are.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeyGroupInput {
    /// The organisation of a team; an empty text removes it from its organisation.
    organisation: Option<String>,
    note: Option<String>,
    /// Expiry, as RFC 3339; an empty text removes it.
    expires: Option<String>,
    /// Whether all its keys are rejected until it is enabled again.
    disabled: Option<bool>,
    /// Model names that its keys may use, with `*`; an empty list allows all.
    models: Option<Vec<String>>,
    /// MCP servers and tools that its keys may use, as `SERVER` or `SERVER/TOOL`; an empty list allows all.
    mcp: Option<Vec<String>>,
    /// Its own tags, in place of those it has.
    tags: Option<TagSet>,
    /// Its limits, in place of those it has.
    limits: Option<Quota>,
}

impl KeyGroupInput {
    fn into_change(self) -> Result<GroupChange> {
        if let Some(limits) = &self.limits {
            limits.check().map_err(|e| ApiError::bad_request(format!("limits: {e}")))?;
        }
        Ok(GroupChange {
            organisation: self.organisation.map(|id| Some(id).filter(|id| !id.is_empty())),
            note: self.note,
            expires: changed(self.expires.as_deref(), parse_timestamp)?,
            disabled: self.disabled,
            models: self.models,
            mcp: self.mcp,
            tags: self.tags,
            limits: self.limits,
        })
    }
}

/// `GET /teams`
pub async fn teams(state: SharedState) -> Result<Json<KeyGroups>> {
    let ring = limit_deps(&state)?.keys.ring();
    let of_level = |level| ring.groups().iter().filter(move |g| g.level == level).map(|g| view(&ring, g)).collect();
    Ok(Json(KeyGroups { organisations: of_level(GroupLevel::Organisation), teams: of_level(GroupLevel::Team) }))
}

fn view(ring: &VirtualKeyRing, group: &Arc<KeyGroup>) -> KeyGroupView {
    let belongs = |key: &&Arc<VirtualKey>| key.groups().any(|g| Arc::ptr_eq(g, group));
    let keys = ring.keys().iter().filter(belongs).count();
    KeyGroupView { state: group.state_now(), keys, group: KeyGroup::clone(group) }
}

const fn level(is_team: bool) -> GroupLevel {
    if is_team { GroupLevel::Team } else { GroupLevel::Organisation }
}

/// Creates a team or an organisation.
pub async fn add<const IS_TEAM: bool>(
    state: SharedState,
    Path(id): Path<String>,
    StrictJson(input): StrictJson<KeyGroupInput>,
) -> Result<StatusCode> {
    let settings = input.into_change()?;
    change_keys(&state, move |keys, turn| keys.add_group(turn, level(IS_TEAM), &id, settings)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn no_content(exists: bool, level: GroupLevel, id: &str) -> Result<StatusCode> {
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "no_group", format!("there is no {level} {id}"));
    ApiError::no_content(exists, missing)
}

pub async fn change<const IS_TEAM: bool>(
    state: SharedState,
    Path(id): Path<String>,
    StrictJson(input): StrictJson<KeyGroupInput>,
) -> Result<StatusCode> {
    let (change, group) = (input.into_change()?, id.clone());
    let exists = change_keys(&state, move |keys, turn| keys.change_group(turn, level(IS_TEAM), &group, change)).await?;
    no_content(exists, level(IS_TEAM), &id)
}

pub async fn remove<const IS_TEAM: bool>(state: SharedState, Path(id): Path<String>) -> Result<StatusCode> {
    let group = id.clone();
    let exists = change_keys(&state, move |keys, turn| keys.remove_group(turn, level(IS_TEAM), &group)).await?;
    no_content(exists, level(IS_TEAM), &id)
}
