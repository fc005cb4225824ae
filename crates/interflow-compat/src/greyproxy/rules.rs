//! `/api/rules`: the approval rules.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use interflow_approvals::config::ApprovalAction;
use interflow_approvals::{RuleSource, RuleView};
use serde::Deserialize;
use serde_json::{Value, json};

use super::json_format::{self, GreyproxyRuleInput};
use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, LenientJson};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct GreyproxyRuleFilter {
    container: String,
    destination: String,
    action: String,
    limit: Option<usize>,
    offset: usize,
}

/// `GET /api/rules`
pub(super) async fn list(State(grey): GreyproxyApiState, Query(filter): Query<GreyproxyRuleFilter>) -> Json<Value> {
    let holds = |value: &Value, key: &str, part: &str| {
        part.is_empty() || value[key].as_str().is_some_and(|v| v.to_lowercase().contains(&part.to_lowercase()))
    };
    let all: Vec<Value> = grey.approvals.rules().iter().map(json_format::rule).collect();
    let fits = |r: &&Value| {
        holds(r, "container_pattern", &filter.container)
            && holds(r, "destination_pattern", &filter.destination)
            && (filter.action.is_empty() || r["action"] == filter.action.as_str())
    };
    let chosen: Vec<&Value> = all.iter().filter(fits).collect();
    let page: Vec<_> = chosen.iter().skip(filter.offset).take(filter.limit.unwrap_or(100)).collect();
    Json(json!({"items": page, "total": chosen.len()}))
}

/// `POST /api/rules`
pub(super) async fn create(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<GreyproxyRuleInput>,
) -> Result<(StatusCode, Json<Value>), GreyproxyError> {
    let spec = given.spec().map_err(GreyproxyError::bad_request)?;
    // Two rules with the same effect are one rule, regardless of their notes.
    let same = |r: &&RuleView| {
        let rule = &r.spec;
        let told = interflow_approvals::config::RuleSpec {
            note: rule.note.clone(),
            until: rule.until.clone(),
            ..spec.clone()
        };
        r.removable && r.layer == RuleSource::Global && *rule == told
    };
    if let Some(there) = grey.approvals.rules().iter().find(same) {
        return Ok((StatusCode::OK, Json(json_format::rule(there))));
    }
    let made = grey.approvals.edit(|approvals, turn| approvals.add_rule(turn, spec)).await?;
    Ok((StatusCode::CREATED, Json(json_format::rule(&made))))
}

/// `POST /api/rules/ingest`: a list of rules.
pub(super) async fn ingest(
    State(grey): GreyproxyApiState,
    LenientJson(list): LenientJson<Vec<GreyproxyRuleInput>>,
) -> GreyproxyResult {
    let before = grey.approvals.pending_requests().len();
    let (mut imported, mut skipped) = (0, 0);
    for given in list {
        let known = grey.approvals.rules().len();
        let added = match given.spec() {
            Ok(spec) => grey.approvals.edit(|approvals, turn| approvals.add_rule(turn, spec)).await.is_ok(),
            Err(_) => false,
        };
        if added && grey.approvals.rules().len() > known {
            imported += 1;
        } else {
            skipped += 1;
        }
    }
    let cleaned = before.saturating_sub(grey.approvals.pending_requests().len());
    Ok(Json(json!({"imported": imported, "skipped": skipped, "pending_cleaned": cleaned})))
}

/// `PUT /api/rules/:id`: absent fields stay unchanged.
pub(super) async fn update(
    State(grey): GreyproxyApiState,
    Path(id): Path<i64>,
    LenientJson(given): LenientJson<GreyproxyRuleInput>,
) -> GreyproxyResult {
    let old = find(&grey, id)?;
    let mut all = given.clone();
    let text = |list: &[String]| if list.is_empty() { "*".to_owned() } else { list.join(",") };
    let who = [&old.spec.agents, &old.spec.users, &old.spec.containers, &old.spec.processes];
    all.container_pattern =
        given.container_pattern.or_else(|| who.into_iter().find(|l| !l.is_empty()).map(|l| l.join(",")));
    all.destination_pattern = given.destination_pattern.or_else(|| Some(text(&old.spec.hosts)));
    all.port_pattern = given.port_pattern.or_else(|| Some(text(&old.spec.ports)));
    all.method_pattern = given.method_pattern.or_else(|| Some(text(&old.spec.methods)));
    all.path_pattern = given.path_pattern.or_else(|| Some(text(&old.spec.paths)));
    all.action =
        given.action.or_else(|| Some(if old.spec.action == ApprovalAction::Deny { "deny" } else { "allow" }.into()));
    all.expires_at = given.expires_at.or_else(|| old.spec.until.clone());
    all.notes = given.notes.or_else(|| old.spec.note.clone());
    let spec = all.spec().map_err(GreyproxyError::bad_request)?;
    let changed = grey.approvals.edit(move |approvals, turn| approvals.change_rule(turn, &old.id, spec)).await?;
    Ok(Json(json_format::rule(&changed)))
}

/// `DELETE /api/rules/:id`
pub(super) async fn remove(State(grey): GreyproxyApiState, Path(id): Path<i64>) -> GreyproxyResult {
    let deleted = match find(&grey, id) {
        Ok(rule) => {
            grey.approvals.edit(move |approvals, turn| approvals.remove_rule(turn, &rule.id)).await.map(|()| true)?
        }
        Err(_) => false,
    };
    Ok(Json(json!({"status": "ok", "deleted": deleted})))
}

/// The modifiable rule with this number.
fn find(grey: &super::GreyproxyState, id: i64) -> Result<RuleView, GreyproxyError> {
    let rules = grey.approvals.rules();
    let found =
        rules.iter().find(|r| json_format::number(&r.id) == id).ok_or_else(|| GreyproxyError::not_found("rule"))?;
    if !found.removable || found.layer != RuleSource::Global {
        return Err(GreyproxyError::bad_request(
            "this rule comes from the configuration or a session, and is changed there",
        ));
    }
    Ok(found.clone())
}
