//! Limits and virtual keys: what is allowed, what is used, keys made and taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use interflow_limits::{NewKey, Quota, Reading, Scope, Subject, VirtualKey, moment};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::Input;
use crate::server::{AdminState, LimitParts};

/// What a new key is to be.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(crate) struct Wanted {
    id: String,
    owner: Option<String>,
    note: Option<String>,
    expires: Option<String>,
    providers: Vec<String>,
    models: Vec<String>,
    paths: Vec<String>,
    limits: Quota,
}

fn parts(state: &AdminState) -> Result<LimitParts> {
    state.limits.clone().ok_or_else(|| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_limits", "this instance keeps no keys and limits")
    })
}

/// `GET /limits`
pub(crate) async fn limits(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let LimitParts { keys, limits, .. } = parts(&state)?;
    let usage = limits.usage().rows();
    let ring = keys.ring();
    let find = |id: &Option<Arc<str>>| ring.keys().iter().find(|k| Some(&k.id) == id.as_ref()).cloned();
    // Who was seen since the start, and every key: their counters are those that hold something.
    let seen = usage.iter().map(|row| subject(find(&row.key), row.user.clone(), &row.provider, row.model.clone()));
    let keyed = ring.keys().iter().map(|k| subject(Some(Arc::clone(k)), None, "any", None));
    let mut told = BTreeSet::new();
    let mut counters: Vec<Reading> = Vec::new();
    let mut problem = None;
    for subject in seen.chain(keyed).take(2_000) {
        match limits.read(&subject).await {
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
        "refused": limits.refused(),
        "shared": limits.shared(),
        "problem": problem,
        "prices_as_of": limits.prices_as_of(),
    })))
}

fn subject(key: Option<Arc<VirtualKey>>, user: Option<Arc<str>>, provider: &str, model: Option<Arc<str>>) -> Subject {
    let client = std::net::IpAddr::from([0, 0, 0, 0]);
    Subject { key, user, route: Some(provider.into()), provider: provider.into(), model, client }
}

/// `GET /keys`
pub(crate) async fn keys(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let ring = parts(&state)?.keys.ring();
    let keys: Vec<Value> = ring.keys().iter().map(|k| shown(k)).collect();
    Ok(Json(json!({ "keys": keys })))
}

fn shown(key: &VirtualKey) -> Value {
    let mut value = serde_json::to_value(key).unwrap_or_default();
    value["state"] = key.state_now().as_str().into();
    value
}

/// `POST /keys`
pub(crate) async fn make_key(
    State(state): State<Arc<AdminState>>,
    Input(wanted): Input<Wanted>,
) -> Result<Json<Value>> {
    let keys = parts(&state)?.keys;
    wanted.limits.check().map_err(|e| ApiError::bad_request(format!("limits: {e}")))?;
    let expires = wanted.expires.as_deref().map(moment).transpose().map_err(ApiError::bad_request)?;
    let new = NewKey {
        id: wanted.id,
        owner: wanted.owner,
        note: wanted.note,
        expires,
        scope: Scope { providers: wanted.providers, models: wanted.models, paths: wanted.paths },
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
    let keys = parts(&state)?.keys;
    let asked = id.clone();
    let done = tokio::task::spawn_blocking(move || keys.revoke(&asked)).await;
    let done = done.map_err(|e| ApiError::internal(e.to_string()))?;
    if done.map_err(|e| ApiError::internal(e.to_string()))? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::new(StatusCode::NOT_FOUND, "no_key", format!("there is no key {id}")))
    }
}
