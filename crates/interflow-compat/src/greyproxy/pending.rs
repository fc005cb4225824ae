//! `/api/pending`: pending requests of approvals.

use axum::Json;
use axum::extract::{Path, Query, State};
use interflow_approvals::EditTurn;
use interflow_approvals::Resolution as Decision;
use serde::Deserialize;
use serde_json::{Value, json};

use super::json_format;
use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, GreyproxyState, LenientJson};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PendingFilter {
    container: String,
    destination: String,
    limit: Option<usize>,
    offset: usize,
}

/// Scope and duration of a decision.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct DecisionInput {
    scope: String,
    duration: String,
    notes: Option<String>,
    pending_ids: Vec<u64>,
}

/// `GET /api/pending`
pub(super) async fn list(State(grey): GreyproxyApiState, Query(filter): Query<PendingFilter>) -> Json<Value> {
    let held: Vec<Value> = grey.approvals.pending_requests().iter().map(json_format::pending).collect();
    let holds = |v: &Value, key: &str, part: &str| part.is_empty() || v[key].as_str().is_some_and(|t| t.contains(part));
    let fits =
        |v: &&Value| holds(v, "container_name", &filter.container) && holds(v, "destination_host", &filter.destination);
    let chosen: Vec<&Value> = held.iter().filter(fits).collect();
    let page: Vec<_> = chosen.iter().skip(filter.offset).take(filter.limit.unwrap_or(100)).collect();
    Json(json!({"items": page, "total": chosen.len()}))
}

/// `GET /api/pending/count`
pub(super) async fn count(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(json!({"count": grey.approvals.pending_requests().len()}))
}

/// Decides one request; returns the rule it created.
pub(super) async fn decide(
    grey: &GreyproxyState,
    id: u64,
    action: &str,
    given: &DecisionInput,
) -> Result<Value, GreyproxyError> {
    let answer = json_format::resolution(action, &given.scope, &given.duration).map_err(GreyproxyError::bad_request)?;
    let mut answer: Decision =
        serde_json::from_value(answer).map_err(|e| GreyproxyError::bad_request(e.to_string()))?;
    answer.note = given.notes.clone().filter(|n| !n.is_empty());
    let done = grey.approvals.edit(move |approvals, turn| approvals.resolve(turn, id, &answer)).await?;
    Ok(done.rule.map_or(Value::Null, |r| json_format::rule(&r)))
}

impl DecisionInput {
    /// From the fields of a WebSocket command.
    pub(super) fn new(scope: &str, duration: &str, notes: Option<String>) -> Self {
        Self { scope: scope.to_owned(), duration: duration.to_owned(), notes, pending_ids: Vec::new() }
    }
}

/// `POST /api/pending/:id/allow`
pub(super) async fn allow(
    State(grey): GreyproxyApiState,
    Path(id): Path<u64>,
    LenientJson(given): LenientJson<DecisionInput>,
) -> GreyproxyResult {
    Ok(Json(json!({"rule": decide(&grey, id, "allow", &given).await?, "pending_removed": true})))
}

/// `POST /api/pending/:id/deny`
pub(super) async fn deny(
    State(grey): GreyproxyApiState,
    Path(id): Path<u64>,
    LenientJson(given): LenientJson<DecisionInput>,
) -> GreyproxyResult {
    Ok(Json(json!({"rule": decide(&grey, id, "deny", &given).await?, "pending_removed": true})))
}

/// Denies the waiting requests without creating a rule; returns whether there were any.
pub(super) fn drop_one(grey: &GreyproxyState, id: u64) -> bool {
    let once = json!({"action": "deny", "scope": "once"});
    serde_json::from_value(once)
        .is_ok_and(|answer: Decision| grey.approvals.resolve(&EditTurn::unlimited(), id, &answer).is_ok())
}

/// `DELETE /api/pending/:id`
pub(super) async fn dismiss(State(grey): GreyproxyApiState, Path(id): Path<u64>) -> Json<Value> {
    Json(json!({"status": "ok", "removed": drop_one(&grey, id)}))
}

/// `POST /api/pending/bulk-allow`
pub(super) async fn bulk_allow(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<DecisionInput>,
) -> GreyproxyResult {
    let mut rules = Vec::new();
    for id in &given.pending_ids {
        rules.extend(decide(&grey, *id, "allow", &given).await);
    }
    Ok(Json(json!({"pending_removed": rules.len(), "rules_created": rules})))
}

/// `POST /api/pending/bulk-dismiss`
pub(super) async fn bulk_dismiss(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<DecisionInput>,
) -> Json<Value> {
    let removed = given.pending_ids.iter().filter(|id| drop_one(&grey, **id)).count();
    Json(json!({"status": "ok", "removed": removed}))
}
