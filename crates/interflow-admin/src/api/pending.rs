//! Everything that waits for a decision, in one list: approval questions, and flows held by rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use interflow_approvals::approvals::{PendingRequest as Question, Resolution};
use interflow_query::Tristate;
use interflow_rules::{HeldFlow as RuleHold, HoldDecision, HoldQueue};
use interflow_store::HeaderMasker;
use interflow_types::units::HumanDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::approvals::MAX_WAIT;
use super::error::{ApiError, Result};
use super::input::{StrictJson, StrictQuery, query};
use super::pending_filter::PendingSubject;
use crate::server::AdminState;

/// Id prefix of flows held by rules.
const RULE: &str = "rule-";
/// Id prefix of approval questions.
const APPROVAL: &str = "approval-";

fn holds(state: &AdminState) -> Option<Arc<HoldQueue>> {
    state.rules.as_ref().map(|rules| Arc::clone(&rules.runtime().holds))
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PendingParams {
    after: Option<u64>,
    wait: Option<HumanDuration>,
    /// Each member reports whether this query selects it; null if too little is known about it.
    query: Option<String>,
}

/// `GET /pending`: at once, or as soon as something has changed since a version.
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    StrictQuery(watch): StrictQuery<PendingParams>,
) -> Result<Json<Value>> {
    let query = watch.query.as_deref().map(query).transpose()?;
    let holds = holds(&state);
    let versions = || {
        let approvals = state.approvals.as_ref().map_or(0, |a| a.version());
        (approvals, holds.as_ref().map_or(0, |h| h.version()))
    };
    let (approvals, rules) = versions();
    if watch.after == Some(approvals + rules) {
        let patience = watch.wait.map_or(std::time::Duration::ZERO, |w| w.0).min(MAX_WAIT);
        let asked = async {
            match &state.approvals {
                Some(a) => a.changed_since(approvals).await,
                None => std::future::pending().await,
            }
        };
        let held = async {
            match &holds {
                Some(h) => h.changed_since(rules).await,
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(patience, async {
            tokio::select! { () = asked => {}, () = held => {} }
        })
        .await;
    }
    let (approvals, rules) = versions();
    let mask = HeaderMasker::from_config(&state.config["record"]);
    let questions = state.approvals.as_ref().map(|a| a.pending_requests()).unwrap_or_default();
    let held = holds.map(|h| h.list()).unwrap_or_default();
    let mut all: Vec<(interflow_types::Timestamp, Value)> = questions
        .iter()
        .map(|q| (q.since, question_json(q, &mask)))
        .chain(held.into_iter().map(|h| (h.since, rule_hold_json(h, &mask))))
        .collect();
    all.sort_by_key(|(since, _)| *since);
    let mut pending: Vec<Value> = all.into_iter().map(|(_, value)| value).collect();
    if let Some(query) = query {
        for item in &mut pending {
            item["matches"] = match query.evaluate(&PendingSubject(item)) {
                Tristate::Known(matches) => matches.into(),
                Tristate::NotYet => Value::Null,
            };
        }
    }
    Ok(Json(json!({ "version": approvals + rules, "pending": pending })))
}

fn question_json(held: &Question, mask: &HeaderMasker) -> Value {
    let q = &held.question;
    let host = if q.host.contains(':') { format!("[{}]", q.host) } else { q.host.clone() };
    let asked = held.asked.as_ref();
    json!({
        "id": format!("{APPROVAL}{}", held.id),
        "kind": "approval",
        "what": if q.method.is_some() { "request" } else { "tunnel" },
        "method": q.method,
        "url": asked.map_or_else(|| format!("{host}:{}", q.port), |a| mask.mask_url(&a.url)),
        "host": q.host,
        "port": q.port,
        "status": null,
        "headers": asked.map(|a| mask.mask_fields(&a.headers)).unwrap_or_default(),
        "body": asked.and_then(|a| a.body()),
        "body_size": asked.and_then(|a| a.size),
        "client": {
            "address": q.client, "user": q.user, "process": q.process, "container": q.container, "sessions": q.sessions,
        },
        "waiting": held.waiting,
        "flows": held.flows,
        "since": held.since,
        "until": held.until,
        "at_end": "deny",
        "rule": null,
        "phase": null,
        "note": null,
    })
}

fn rule_hold_json(held: RuleHold, mask: &HeaderMasker) -> Value {
    let url = interflow_rules::parse_url(&held.url).ok();
    json!({
        "id": format!("{RULE}{}", held.id),
        "kind": "rule",
        "what": held.what,
        "method": held.method,
        // Not masked, because it can be edited: the mask would be sent.
        "url": held.url,
        "host": url.as_ref().map(|u| u.authority.host.to_string()).unwrap_or_default(),
        "port": url.as_ref().map(|u| u.authority.port),
        "status": held.status,
        "headers": mask.mask_fields(&held.headers),
        "body_size": held.body.as_ref().map(String::len),
        "body": held.body,
        "client": {
            "address": held.client, "user": held.user, "process": held.process, "container": null, "sessions": [],
        },
        "waiting": 1,
        "flows": [held.flow],
        "since": held.since,
        "until": held.until,
        "at_end": if held.pass { "continue" } else { "deny" },
        "rule": held.rule,
        "phase": held.phase,
        "note": held.note,
    })
}

/// `POST /pending/{id}`: decides a question, or a flow held by a rule.
pub(crate) async fn decide(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    StrictJson(mut said): StrictJson<Value>,
) -> Result<Json<Value>> {
    let wrong = |e: serde_json::Error| ApiError::bad_request(e.to_string());
    if let Some(number) = id.strip_prefix(RULE).and_then(|n| n.parse::<u64>().ok()) {
        if said["action"] == "allow" {
            said = match said["body"].take() {
                Value::Null => json!({ "action": "continue" }),
                body => json!({ "action": "change", "body": body }),
            };
        }
        let decision: HoldDecision = serde_json::from_value(said).map_err(wrong)?;
        let holds = holds(&state).ok_or_else(|| not_found(&id))?;
        holds.decide(number, decision).map_err(|_| not_found(&id))?;
        return Ok(Json(json!({ "id": id, "flows": 1, "rule": null })));
    }
    let number = id.strip_prefix(APPROVAL).unwrap_or(&id).parse::<u64>().map_err(|_| not_found(&id))?;
    let answer: Resolution = serde_json::from_value(said).map_err(wrong)?;
    let done = state.approvals()?.resolve(number, &answer)?;
    Ok(Json(json!({ "id": format!("{APPROVAL}{number}"), "flows": done.flows, "rule": done.rule })))
}

fn not_found(id: &str) -> ApiError {
    let text = format!("nothing waits under {id}: it was decided, timed out, or its client went away");
    ApiError::new(axum::http::StatusCode::NOT_FOUND, "not_found", text).remedy("GET /api/v1/pending lists what waits")
}
