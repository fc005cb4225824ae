//! Everything that waits for a decision, in one list: approval questions, and flows held by rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use interflow_approvals::approvals::{PendingRequest as Question, Resolution, RuleView};
use interflow_query::Tristate;
use interflow_rules::{HeldFlow as RuleHold, HeldPart, HoldDecision, HoldQueue};
use interflow_store::HeaderMasker;
use interflow_types::Timestamp;
use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::approvals::MAX_WAIT;
use super::input::{StrictJson, StrictQuery, query};
use super::pending_filter::PendingSubject;
use super::rules::{check_change, may_change_held};
use crate::error::{ApiError, Result};
use crate::identity::Rights;
use crate::identity::caller::Caller;
use crate::state::AdminState;

/// Prefix of the ids of flows held by rules. Both kinds have numbers of their own, which may be equal.
const RULE: &str = "rule-";
const APPROVAL: &str = "approval-";

fn holds(state: &AdminState) -> Option<Arc<HoldQueue>> {
    state.rules.as_ref().map(|rules| Arc::clone(&rules.runtime().holds))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PendingParams {
    /// Wait until the version is another than this.
    after: Option<u64>,
    /// How long, at most: 25s.
    wait: Option<HumanDuration>,
    /// Each member reports whether this query selects it; null if too little is known about it.
    query: Option<String>,
}

/// `GET /pending`: at once, or as soon as something has changed since a version. The version is the sum of those of
/// both kinds, each of which only grows.
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    caller: Caller,
    StrictQuery(watch): StrictQuery<PendingParams>,
) -> Result<Json<PendingItems>> {
    let query = watch.query.as_deref().map(query).transpose()?;
    let holds = holds(&state);
    let versions = || {
        let approvals = state.approvals.as_ref().map_or(0, |a| a.version());
        (approvals, holds.as_ref().map_or(0, |h| h.version()))
    };
    let (approvals, rules) = versions();
    // Without a change since then the answer is delayed. Any other version, also an unknown one, is answered at once.
    if watch.after == Some(approvals + rules) {
        let patience = watch.wait.map_or(std::time::Duration::ZERO, |w| w.0).min(MAX_WAIT);
        let asked = async {
            match &state.approvals {
                Some(a) => a.changed_since(approvals).await,
                // Only the other kind can end the wait.
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
    // Read before the lists: a change in between is reported twice rather than never.
    let (approvals, rules) = versions();
    // Nothing was recorded yet, so the masks of the recorder are applied here.
    let mask = HeaderMasker::from_config(&state.config()["record"]);
    let questions = state.approvals.as_ref().map(|a| a.pending_requests()).unwrap_or_default();
    let held = holds.map(|h| h.list()).unwrap_or_default();
    let questions = questions.iter().map(|q| PendingItem::from_question(q, &mask));
    let mut pending: Vec<_> = questions.chain(held.into_iter().map(|h| PendingItem::from_hold(h, &mask))).collect();
    pending.sort_by_key(|item| item.since);
    if !caller.has(Rights::READ_BODIES) {
        pending.iter_mut().for_each(|item| item.body = None);
    }
    if !may_change_held(&caller) {
        pending.iter_mut().for_each(|item| item.url = mask.mask_url(&item.url));
    }
    if let Some(query) = query {
        for item in &mut pending {
            item.matches = match query.evaluate(&PendingSubject(item)) {
                Tristate::Known(matches) => Some(matches),
                Tristate::NotYet => None,
            };
        }
    }
    Ok(Json(PendingItems { version: approvals + rules, pending }))
}

/// Everything that waits for a decision.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PendingItems {
    /// Increases with each change.
    version: u64,
    pending: Vec<PendingItem>,
}

/// A request, tunnel, response or message that waits for a decision.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PendingItem {
    /// The id by which it is decided.
    pub id: String,
    pub kind: PendingKind,
    pub what: PendingPart,
    /// Null for a tunnel, which has no request yet.
    pub method: Option<String>,
    /// For a tunnel, host and port.
    pub url: String,
    pub host: String,
    pub port: Option<u16>,
    /// The response's status, if that is held.
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    /// The body, if it is short text that has arrived, and the caller may read bodies.
    pub body: Option<String>,
    pub body_size: Option<u64>,
    pub client: PendingClient,
    /// Number of flows that wait for the same decision.
    pub waiting: usize,
    /// The first of those flows.
    pub flows: Vec<String>,
    pub since: Timestamp,
    /// When it times out; then `on_timeout` applies.
    pub until: Timestamp,
    pub on_timeout: TimeoutAction,
    pub rule: Option<String>,
    /// The phase in which a rule holds it.
    pub phase: Option<&'static str>,
    /// The rule author's note, or what a guardrail found.
    pub note: Option<String>,
    /// Whether the query selects this; null if there is none, or too little is known.
    pub matches: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PendingKind {
    Approval,
    Rule,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PendingPart {
    Request,
    Tunnel,
    Response,
    Message,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeoutAction {
    Deny,
    Continue,
}

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct PendingClient {
    pub address: String,
    pub user: Option<String>,
    pub process: Option<String>,
    pub container: Option<String>,
    pub sessions: Vec<String>,
}

impl PendingItem {
    fn from_question(held: &Question, mask: &HeaderMasker) -> Self {
        let q = &held.question;
        // Addresses of IPv6 are in brackets in a URL (RFC 3986).
        let host = if q.host.contains(':') { format!("[{}]", q.host) } else { q.host.clone() };
        let asked = held.asked.as_ref();
        Self {
            id: format!("{APPROVAL}{}", held.id),
            kind: PendingKind::Approval,
            what: if q.method.is_some() { PendingPart::Request } else { PendingPart::Tunnel },
            method: q.method.clone(),
            url: asked.map_or_else(|| format!("{host}:{}", q.port), |a| mask.mask_url(&a.url)),
            host: q.host.clone(),
            port: Some(q.port),
            status: None,
            headers: asked.map(|a| mask.mask_fields(&a.headers)).unwrap_or_default(),
            body: asked.and_then(|a| a.body()),
            body_size: asked.and_then(|a| a.size),
            client: PendingClient {
                address: q.client.clone(),
                user: q.user.clone(),
                process: q.process.clone(),
                container: q.container.clone(),
                sessions: q.sessions.clone(),
            },
            waiting: held.waiting,
            flows: held.flows.clone(),
            since: held.since,
            until: held.until,
            on_timeout: TimeoutAction::Deny,
            rule: None,
            phase: None,
            note: q.reason.clone(),
            matches: None,
        }
    }

    fn from_hold(held: RuleHold, mask: &HeaderMasker) -> Self {
        let url = interflow_rules::parse_url(&held.url).ok();
        Self {
            id: format!("{RULE}{}", held.id),
            kind: PendingKind::Rule,
            what: match held.what {
                HeldPart::Request => PendingPart::Request,
                HeldPart::Response => PendingPart::Response,
                HeldPart::Message => PendingPart::Message,
            },
            method: held.method,
            host: url.as_ref().map(|u| u.authority.host.to_string()).unwrap_or_default(),
            port: url.as_ref().map(|u| u.authority.port),
            // Not masked for those who can edit it: the mask would be sent.
            url: held.url,
            status: held.status,
            headers: mask.mask_fields(&held.headers),
            body_size: held.body.as_ref().map(|b| b.len() as u64),
            body: held.body,
            client: PendingClient {
                address: held.client,
                user: held.user,
                process: held.process,
                ..PendingClient::default()
            },
            waiting: 1,
            flows: vec![held.flow],
            since: held.since,
            until: held.until,
            on_timeout: if held.continue_on_timeout { TimeoutAction::Continue } else { TimeoutAction::Deny },
            rule: Some(held.rule),
            phase: Some(held.phase),
            note: held.note,
            matches: None,
        }
    }
}

/// A decision: a resolution for an approval, a decision about a hold for a flow that a rule holds. `allow` and `deny`
/// are for both.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct PendingDecisionInput(#[schemars(with = "PendingDecision")] Value);

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "for the documentation: which of the two is read depends on the id")]
enum PendingDecision {
    Approval(Resolution),
    Rule(HoldDecision),
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct DecidedItem {
    id: String,
    flows: usize,
    /// The approval rule that was created with the decision, if any.
    rule: Option<RuleView>,
}

/// `POST /pending/{id}`: decides a question, or a flow held by a rule.
pub(crate) async fn decide(
    State(state): State<Arc<AdminState>>,
    caller: Caller,
    Path(id): Path<String>,
    StrictJson(PendingDecisionInput(mut said)): StrictJson<PendingDecisionInput>,
) -> Result<Json<DecidedItem>> {
    let wrong = |e: serde_json::Error| ApiError::bad_request(e.to_string());
    caller.set_detail(json!({ "action": said["action"] }));
    if let Some(number) = id.strip_prefix(RULE).and_then(|n| n.parse::<u64>().ok()) {
        // Rules know no `allow`: with a body it is a change, without one the flow continues as it is.
        if said["action"] == "allow" {
            said = match said["body"].take() {
                Value::Null => json!({ "action": "continue" }),
                body => json!({ "action": "change", "body": body }),
            };
        }
        let decision: HoldDecision = serde_json::from_value(said).map_err(wrong)?;
        check_change(&caller, &decision)?;
        let holds = holds(&state).ok_or_else(|| not_found(&id))?;
        // Deciding twice fails: the hold is removed with the first decision.
        holds.decide(number, decision).map_err(|_| not_found(&id))?;
        return Ok(Json(DecidedItem { id, flows: 1, rule: None }));
    }
    // A bare number is an approval.
    let number = id.strip_prefix(APPROVAL).unwrap_or(&id).parse::<u64>().map_err(|_| not_found(&id))?;
    let answer: Resolution = serde_json::from_value(said).map_err(wrong)?;
    let done = state.approvals()?.resolve(number, &answer)?;
    Ok(Json(DecidedItem { id: format!("{APPROVAL}{number}"), flows: done.flows, rule: done.rule }))
}

fn not_found(id: &str) -> ApiError {
    let text = format!("nothing waits under {id}: it was decided, timed out, or its client went away");
    ApiError::new(axum::http::StatusCode::NOT_FOUND, "not_found", text).remedy("GET /api/v1/pending lists what waits")
}
