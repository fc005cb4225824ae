//! Limits and virtual keys: what is allowed and used; creating and revoking keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_files::EditTurn;
use interflow_limits::{
    CounterSnapshot, KeyChange, KeyFileError, KeyScope, KeyState, KeyStore, NewVirtualKey, PriceListDates, Quota,
    RequestAttributes, RuleConfig, SharedStoreStatus, TagSet, UsageRow, VirtualKey, parse_timestamp,
};
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::edited::edits::run_edit;
use crate::api::input::StrictJson;
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::state::{AdminState, LimitDeps, SharedState};

/// The properties of a new key.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NewKeyInput {
    /// Its id in limits, logs and audit records.
    id: String,
    /// Who it is issued to; counts as the user of its requests.
    owner: Option<String>,
    note: Option<String>,
    /// Expiry, as RFC 3339: `2027-01-31T12:00:00Z`.
    expires: Option<String>,
    /// Provider names that it may be used with; empty for all.
    providers: Vec<String>,
    /// Model names that it may be used with; empty for all.
    models: Vec<String>,
    /// Paths that it may be used with; empty for all.
    paths: Vec<String>,
    /// MCP servers and tools that it may be used with, as `SERVER` or `SERVER/TOOL`; empty for all.
    mcp: Vec<String>,
    limits: Quota,
    /// The id of its team.
    team: Option<String>,
    /// Its tags, beside those of its team and organisation.
    tags: TagSet,
}

/// Bound on the subjects whose counters are listed.
const MAX_SUBJECTS: usize = 2_000;

pub(crate) fn limit_deps(state: &AdminState) -> Result<LimitDeps> {
    state.limits.clone().ok_or_else(|| ApiError::unavailable("no_limits", "this instance keeps no keys and limits"))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct LimitsView {
    /// The configured rules.
    rules: Vec<RuleConfig>,
    counters: Vec<CounterSnapshot>,
    /// Usage since the start, by key, user, provider and model.
    usage: Vec<UsageRow>,
    refused: u64,
    /// Health of the shared counter store; null if there is none.
    shared: Option<SharedStoreStatus>,
    /// Why counters are missing.
    problem: Option<String>,
    prices_as_of: PriceListDates,
}

/// `GET /limits`: rules with their counters. If the shared store fails in between, the counters read so far are
/// returned with the problem.
pub async fn limits(state: SharedState) -> Result<Json<LimitsView>> {
    let deps = limit_deps(&state)?;
    let limits = &deps.limits;
    let (counters, problem) = current_counters(&deps, MAX_SUBJECTS).await;
    Ok(Json(LimitsView {
        rules: limits.config().rule,
        counters,
        usage: limits.usage().rows(),
        refused: limits.rejected_count(),
        shared: limits.shared_status(),
        problem,
        prices_as_of: limits.prices_as_of(),
    }))
}

/// The counters of the subjects seen since the start, and of all keys: only theirs can be non-zero. At most
/// `max_subjects` are read. With them, why some are missing.
pub(crate) async fn current_counters(deps: &LimitDeps, max_subjects: usize) -> (Vec<CounterSnapshot>, Option<String>) {
    let LimitDeps { keys, limits, .. } = deps;
    let usage = limits.usage().rows();
    let ring = keys.ring();
    let find = |id: &Option<Arc<str>>| ring.keys().iter().find(|k| Some(&k.id) == id.as_ref()).cloned();
    let recent =
        usage.iter().map(|row| request_attributes(find(&row.key), row.user.clone(), &row.provider, row.model.clone()));
    let keyed = ring.keys().iter().map(|k| request_attributes(Some(Arc::clone(k)), None, "any", None));
    // Several subjects share a counter, for example that of a team; each is shown once.
    let mut listed = BTreeSet::new();
    let mut counters: Vec<CounterSnapshot> = Vec::new();
    let mut problem = None;
    for subject in recent.chain(keyed).take(max_subjects) {
        match limits.snapshot(&subject).await {
            Ok(readings) => counters
                .extend(readings.into_iter().filter(|r| listed.insert((r.rule.clone(), r.counter, r.who.clone())))),
            Err(e) => {
                problem = Some(e.to_string());
                // The store does not answer; asking for further subjects would only wait again.
                break;
            }
        }
    }
    (counters, problem)
}

fn request_attributes(
    key: Option<Arc<VirtualKey>>,
    user: Option<Arc<str>>,
    provider: &str,
    model: Option<Arc<str>>,
) -> RequestAttributes {
    // No client: counters by client address are not listed.
    let client = std::net::IpAddr::from([0, 0, 0, 0]);
    let tags = key.as_ref().map(|key| Arc::new(key.tags.clone())).unwrap_or_default();
    let route = Some(provider.into());
    RequestAttributes { key, user, route, provider: provider.into(), model, client, tags, deployments: Vec::new() }
}

#[derive(Serialize, JsonSchema)]
struct VirtualKeyView {
    #[serde(flatten)]
    key: VirtualKey,
    state: KeyState,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct VirtualKeys {
    keys: Vec<VirtualKeyView>,
}

pub async fn keys(state: SharedState) -> Result<Json<VirtualKeys>> {
    let ring = limit_deps(&state)?.keys.ring();
    let view = |key: &Arc<VirtualKey>| VirtualKeyView { state: key.state_now(), key: VirtualKey::clone(key) };
    Ok(Json(VirtualKeys { keys: ring.keys().iter().map(view).collect() }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedKey {
    id: String,
    /// The key itself. It is shown this once, because only its hash is stored.
    key: String,
}

pub async fn make_key(
    state: SharedState,
    caller: Caller,
    StrictJson(input): StrictJson<NewKeyInput>,
) -> Result<Json<CreatedKey>> {
    limit_deps(&state)?;
    input.limits.check().map_err(|e| ApiError::bad_request(format!("limits: {e}")))?;
    let expires = input.expires.as_deref().map(parse_timestamp).transpose().map_err(ApiError::bad_request)?;
    let mut detail = json!({
        "owner": input.owner, "team": input.team, "expires": input.expires, "providers": input.providers,
        "models": input.models, "paths": input.paths, "mcp": input.mcp, "limits": input.limits,
    });
    let new = NewVirtualKey {
        id: input.id,
        owner: input.owner,
        note: input.note,
        expires,
        scope: KeyScope { providers: input.providers, models: input.models, paths: input.paths, mcp: input.mcp },
        policy: None,
        limits: input.limits,
        team: input.team,
        tags: input.tags,
    };
    // Before it is written, so that the audit trail has it whatever becomes of the request.
    caller.record_detail(detail.clone());
    let (secret, id) = change_keys(&state, move |keys, turn| keys.add(turn, new)).await?;
    detail["key"] = json!(id.to_string());
    caller.record_detail(detail);
    Ok(Json(CreatedKey { id: id.to_string(), key: secret.reveal().to_owned() }))
}

/// What to change of a key. Absent members stay as they are.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeyChangeInput {
    /// Whether it is rejected until it is enabled again.
    disabled: Option<bool>,
    /// Expiry, as RFC 3339; an empty text removes it.
    expires: Option<String>,
    /// The id of its team; an empty text removes it from its team.
    team: Option<String>,
    /// Its own tags, in place of those it has.
    tags: Option<TagSet>,
}

/// Runs a change of the keys file. Its errors are those of the request.
pub(crate) async fn change_keys<T: Send + 'static>(
    state: &AdminState,
    change: impl FnOnce(&KeyStore, &EditTurn) -> std::result::Result<T, KeyFileError> + Send + 'static,
) -> Result<T> {
    let keys = limit_deps(state)?.keys;
    run_edit(state, move |turn| change(&keys, turn).map_err(|e| ApiError::bad_request(e.to_string()))).await
}

/// A new value: none if the text is empty, and no change without one.
pub(crate) fn changed<T>(text: Option<&str>, parse: fn(&str) -> Result<T, String>) -> Result<Option<Option<T>>> {
    let value = |text: &str| (!text.is_empty()).then(|| parse(text)).transpose();
    text.map(value).transpose().map_err(ApiError::bad_request)
}

fn no_key(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_key", format!("there is no key {id}"))
}

/// `PATCH /keys/{id}`: a revoked key cannot be changed.
pub async fn change_key(
    state: SharedState,
    caller: Caller,
    Path(id): Path<String>,
    StrictJson(input): StrictJson<KeyChangeInput>,
) -> Result<StatusCode> {
    caller.record_detail(json!({
        "disabled": input.disabled, "expires": input.expires, "team": input.team, "tags": input.tags,
    }));
    let expires = changed(input.expires.as_deref(), parse_timestamp)?;
    let team = input.team.map(|id| Some(id).filter(|id| !id.is_empty()));
    let change = KeyChange { disabled: input.disabled, expires, team, tags: input.tags };
    let key = id.clone();
    let exists = change_keys(&state, move |keys, turn| keys.change(turn, &key, change)).await?;
    ApiError::no_content(exists, || no_key(&id))
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RotateInput {
    /// How long the old secret stays valid, too: `24h`. If absent, it is rejected from now on.
    overlap: Option<HumanDuration>,
}

/// `POST /keys/{id}/rotate`: of several earlier secrets only the last is valid during the overlap.
pub async fn rotate_key(
    state: SharedState,
    Path(id): Path<String>,
    StrictJson(input): StrictJson<RotateInput>,
) -> Result<Json<CreatedKey>> {
    let (key, overlap) = (id.clone(), input.overlap.map(|overlap| overlap.0));
    let secret = change_keys(&state, move |keys, turn| keys.rotate(turn, &key, overlap)).await?;
    let secret = secret.ok_or_else(|| no_key(&id))?;
    Ok(Json(CreatedKey { id, key: secret.reveal().to_owned() }))
}

pub async fn revoke_key(state: SharedState, Path(id): Path<String>) -> Result<StatusCode> {
    let keys = limit_deps(&state)?.keys;
    let key = id.clone();
    let revoke = move |turn: &EditTurn| keys.revoke(turn, &key).map_err(|e| ApiError::internal(e.to_string()));
    ApiError::no_content(run_edit(&state, revoke).await?, || no_key(&id))
}
