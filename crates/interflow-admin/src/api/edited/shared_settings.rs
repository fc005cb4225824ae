//! Settings that replicas share: their revisions with author and time, the difference of two, and the way back to one.

use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_store::shared_state::{RollBack, SettingRevision, SettingStatus};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::input::{StrictJson, StrictQuery};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::records::blocking;
use crate::settings::{SettingsDiffLine, SharedSettings};
use crate::state::{AdminState, SharedState};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 1000;
/// How long a caller waits for the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings that replicas share.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct SharedSettingList {
    /// Whether any are shared: `record.store` and `fleet.share` say so.
    enabled: bool,
    /// The newest revision of each; none of one that was never changed.
    settings: Vec<SettingRevision>,
    /// What each replica did with the newest revision that it saw.
    replicas: Vec<SettingStatus>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RevisionParams {
    /// At most this many, 1 to 1000; 50 by default.
    limit: Option<u32>,
}

/// Revisions of a setting, the newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RevisionList {
    revisions: Vec<SettingRevision>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The earlier revision; 0 for an empty text.
    from: u32,
    /// The later revision; the newest by default.
    to: Option<u32>,
}

/// The difference of two revisions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RevisionDiff {
    name: String,
    from: i64,
    to: i64,
    /// The lines that differ, with their surroundings; none if the texts are equal.
    lines: Vec<SettingsDiffLine>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollBackInput {
    /// The revision whose text is wanted.
    revision: u32,
    /// The newest revision that the caller has seen: if there is a newer one, the request fails.
    base: u32,
}

/// The newest revision after going back.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RolledBack {
    revision: i64,
    /// Whether it was made for this; false if the newest one had the same text.
    changed: bool,
}

fn shared(state: &AdminState) -> Result<&SharedSettings> {
    state.shared_settings.as_ref().ok_or_else(|| {
        let message = "this instance shares no settings with others";
        ApiError::not_found(message).remedy("set record.store and fleet.share")
    })
}

/// The shared settings, if this is one of them.
fn with_name<'a>(state: &'a AdminState, name: &str) -> Result<&'a SharedSettings> {
    let settings = shared(state)?;
    if settings.names.iter().any(|known| known == name) {
        return Ok(settings);
    }
    let names = settings.names.join(", ");
    Err(ApiError::not_found(format!("{name} is not shared; these are: {names}")))
}

fn no_revision(name: &str, revision: i64) -> ApiError {
    ApiError::not_found(format!("{name} has no revision {revision}"))
}

/// The answer of the database.
async fn within<T>(answer: impl Future<Output = interflow_store::Result<T>>) -> Result<T> {
    let late = |_| {
        let message = format!("the shared store did not answer within {} s", PATIENCE.as_secs());
        ApiError::unavailable("shared_store", message)
    };
    Ok(tokio::time::timeout(PATIENCE, answer).await.map_err(late)??)
}

/// `GET /fleet/settings`
pub async fn list(state: SharedState) -> Result<Json<SharedSettingList>> {
    let Some(shared) = &state.shared_settings else { return Ok(Json(SharedSettingList::default())) };
    let mut settings = within(shared.store.newest()).await?;
    settings.retain(|revision| shared.names.contains(&revision.name));
    Ok(Json(SharedSettingList { enabled: true, settings, replicas: within(shared.store.statuses()).await? }))
}

/// `GET /fleet/settings/{name}/revisions`
pub async fn revisions(
    state: SharedState,
    Path(name): Path<String>,
    StrictQuery(params): StrictQuery<RevisionParams>,
) -> Result<Json<RevisionList>> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let store = &with_name(&state, &name)?.store;
    let revisions = within(store.history(Some(&name), i64::from(limit))).await?;
    Ok(Json(RevisionList { revisions }))
}

/// `GET /fleet/settings/{name}/diff`
pub async fn diff(
    state: SharedState,
    Path(name): Path<String>,
    StrictQuery(params): StrictQuery<DiffParams>,
) -> Result<Json<RevisionDiff>> {
    let shared = with_name(&state, &name)?;
    let text = async |revision: Option<i64>| {
        let text = within(shared.store.text(&name, revision)).await?;
        text.ok_or_else(|| no_revision(&name, revision.unwrap_or_default()))
    };
    let (from, before) = match params.from {
        0 => (0, String::new()),
        from => text(Some(i64::from(from))).await?,
    };
    let (to, after) = text(params.to.map(i64::from)).await?;
    let diff = shared.diff;
    // Texts may have some megabytes.
    let lines = blocking(move || diff(&before, &after)).await?;
    Ok(Json(RevisionDiff { name, from, to, lines }))
}

/// `POST /fleet/settings/{name}/rollback`
pub async fn roll_back(
    state: SharedState,
    caller: Caller,
    Path(name): Path<String>,
    StrictJson(input): StrictJson<RollBackInput>,
) -> Result<Json<RolledBack>> {
    let shared = with_name(&state, &name)?;
    let (restores, base) = (i64::from(input.revision), i64::from(input.base));
    let author = format!("{} ({})", caller.identity.name, shared.replica);
    let done = within(shared.store.roll_back(&name, restores, Some(base), &author)).await?;
    let (revision, changed) = match done {
        RollBack::Made(revision) => (revision, true),
        RollBack::SameText(revision) => (revision, false),
        RollBack::NotFound => return Err(no_revision(&name, restores)),
        RollBack::ChangedMeanwhile => {
            let message = format!("{name} has a newer revision than {base}");
            return Err(ApiError::new(StatusCode::CONFLICT, "changed_meanwhile", message)
                .remedy("look at the newest revision first"));
        }
    };
    caller.record_detail(json!({ "setting": name, "restores": restores, "revision": revision, "changed": changed }));
    Ok(Json(RolledBack { revision, changed }))
}
