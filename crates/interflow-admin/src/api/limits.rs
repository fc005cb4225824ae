//! Limits and virtual keys: what is allowed and used; creating and revoking keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use interflow_limits::{
    CounterSnapshot, KeyScope, NewVirtualKey, Quota, RequestAttributes, VirtualKey, parse_timestamp,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::StrictJson;
use crate::server::{AdminState, LimitDeps};

/// The properties of a new key.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(crate) struct NewKeyInput {
    id: String,
    owner: Option<String>,
    note: Option<String>,
    expires: Option<String>,
    providers: Vec<String>,
    models: Vec<String>,
    paths: Vec<String>,
    limits: Quota,
}

fn limit_deps(state: &AdminState) -> Result<LimitDeps> {
    state.limits.clone().ok_or_else(|| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_limits", "this instance keeps no keys and limits")
    })
}

/// `GET /limits`
pub(crate) async fn limits(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let LimitDeps { keys, limits, .. } = limit_deps(&state)?;
    let usage = limits.usage().rows();
    let ring = keys.ring();
    let find = |id: &Option<Arc<str>>| ring.keys().iter().find(|k| Some(&k.id) == id.as_ref()).cloned();
    // Subjects seen since the start, and all keys: only their counters can be non-zero.
    let seen =
        usage.iter().map(|row| request_attributes(find(&row.key), row.user.clone(), &row.provider, row.model.clone()));
    let keyed = ring.keys().iter().map(|k| request_attributes(Some(Arc::clone(k)), None, "any", None));
    let mut told = BTreeSet::new();
    let mut counters: Vec<CounterSnapshot> = Vec::new();
    let mut problem = None;
    for subject in seen.chain(keyed).take(2_000) {
        match limits.snapshot(&subject).await {
            Ok(readings) => counters
                .extend(readings.into_iter().filter(|r| told.insert((r.rule.clone(), r.counter, r.who.clone())))),
            Err(e) => {
                problem = Some(e.to_string());
                break;
            }
        }
    }
    Ok(Json(json!({
        "rules": limits.config().rule,
        "counters": counters,
        "usage": usage,
        "refused": limits.rejected_count(),
        "shared": limits.shared_status(),
        "problem": problem,
        "prices_as_of": limits.prices_as_of(),
    })))
}

fn request_attributes(
    key: Option<Arc<VirtualKey>>,
    user: Option<Arc<str>>,
    provider: &str,
    model: Option<Arc<str>>,
) -> RequestAttributes {
    let client = std::net::IpAddr::from([0, 0, 0, 0]);
    RequestAttributes { key, user, route: Some(provider.into()), provider: provider.into(), model, client }
}

/// `GET /keys`
pub(crate) async fn keys(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let ring = limit_deps(&state)?.keys.ring();
    let keys: Vec<Value> = ring.keys().iter().map(|k| key_json(k)).collect();
    Ok(Json(json!({ "keys": keys })))
}

fn key_json(key: &VirtualKey) -> Value {
    let mut value = serde_json::to_value(key).unwrap_or_default();
    value["state"] = key.state_now().as_str().into();
    value
}

/// `POST /keys`
pub(crate) async fn make_key(
    State(state): State<Arc<AdminState>>,
    StrictJson(wanted): StrictJson<NewKeyInput>,
) -> Result<Json<Value>> {
    let keys = limit_deps(&state)?.keys;
    wanted.limits.check().map_err(|e| ApiError::bad_request(format!("limits: {e}")))?;
    let expires = wanted.expires.as_deref().map(parse_timestamp).transpose().map_err(ApiError::bad_request)?;
    let new = NewVirtualKey {
        id: wanted.id,
        owner: wanted.owner,
        note: wanted.note,
        expires,
        scope: KeyScope { providers: wanted.providers, models: wanted.models, paths: wanted.paths },
        policy: None,
        limits: wanted.limits,
    };
    let made = tokio::task::spawn_blocking(move || keys.add(new)).await;
    let made = made.map_err(|e| ApiError::internal(e.to_string()))?;
    let (secret, id) = made.map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Json(json!({ "id": id, "key": secret.reveal() })))
}

/// `DELETE /keys/{id}`
pub(crate) async fn revoke_key(State(state): State<Arc<AdminState>>, Path(id): Path<String>) -> Result<StatusCode> {
    let keys = limit_deps(&state)?.keys;
    let asked = id.clone();
    let done = tokio::task::spawn_blocking(move || keys.revoke(&asked)).await;
    let done = done.map_err(|e| ApiError::internal(e.to_string()))?;
    if done.map_err(|e| ApiError::internal(e.to_string()))? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::new(StatusCode::NOT_FOUND, "no_key", format!("there is no key {id}")))
    }
}
