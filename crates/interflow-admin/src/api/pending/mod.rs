//! Everything that waits for a decision, in one list: approval questions, and flows held by rules.

mod filter;

use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use interflow_approvals::Resolution;
use interflow_query::Tristate;
use interflow_rules::HoldDecision;
use interflow_store::HeaderMasker;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::edited::approvals::MAX_WAIT;
use crate::api::edited::edits::run_edit;
use crate::api::edited::rules::{check_change, may_change_held};
use crate::api::input::{StrictJson, StrictQuery, query};
use crate::api::pending::filter::PendingSubject;
use crate::error::Result;
use crate::identity::Rights;
use crate::identity::caller::Caller;
use crate::pending::item::{PendingId, PendingItem};
use crate::pending::queue::{DecidedItem, PendingAction, not_found};
use crate::state::SharedState;

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
/// both kinds and of what other replicas hold, each of which only grows.
pub async fn list(
    state: SharedState,
    caller: Caller,
    StrictQuery(watch): StrictQuery<PendingParams>,
) -> Result<Json<PendingItems>> {
    let query = watch.query.as_deref().map(query).transpose()?;
    let (queue, fleet) = (&state.pending, state.fleet_pending.as_ref());
    let versions = || (queue.versions(), fleet.map_or(0, |fleet| fleet.version()));
    let sum = |(own, others): ([u64; 2], u64)| own[0] + own[1] + others;
    let (own, others) = versions();
    // Without a change since then the answer is delayed. Any other version, also an unknown one, is answered at once.
    if watch.after == Some(sum((own, others))) {
        let patience = watch.wait.map_or(Duration::ZERO, |w| w.0).min(MAX_WAIT);
        let elsewhere = async {
            if let Some(fleet) = fleet { fleet.changed_since(others).await } else { std::future::pending().await }
        };
        let _ = tokio::time::timeout(patience, async {
            tokio::select! { () = queue.changed_since(own) => {}, () = elsewhere => {} }
        })
        .await;
    }
    // Read before the lists: a change in between is reported twice rather than never.
    let version = sum(versions());
    let mask = HeaderMasker::from_config(&state.config()["record"]);
    let mut pending = queue.items(&mask);
    if let Some(fleet) = fleet {
        fleet.add_others(&mut pending);
    }
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
    Ok(Json(PendingItems { version, pending }))
}

/// Everything that waits for a decision.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PendingItems {
    /// Increases with each change.
    version: u64,
    pending: Vec<PendingItem>,
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

/// `POST /pending/{id}`: decides a question, or a flow held by a rule, of this replica or of another one.
pub async fn decide(
    state: SharedState,
    caller: Caller,
    Path(text): Path<String>,
    StrictJson(PendingDecisionInput(said)): StrictJson<PendingDecisionInput>,
) -> Result<Json<DecidedItem>> {
    caller.record_detail(json!({ "action": said["action"] }));
    let id: PendingId = text.parse().map_err(|()| not_found(&text))?;
    // Whoever decides needs the same rights wherever the request is held, so they are checked here.
    let action = PendingAction::parse(id.kind, said.clone())?;
    if let PendingAction::Rule(decision) = &action {
        check_change(&caller, decision)?;
    }
    let fleet = state.fleet_pending.as_ref();
    match (&id.place, fleet) {
        (None, _) => {}
        (Some(place), Some(fleet)) if place == fleet.place() => {}
        (Some(_), Some(fleet)) => return fleet.decide(&id, &said, &caller.identity.name).await.map(Json),
        (Some(_), None) => return Err(not_found(&text)),
    }
    // A decision that becomes a rule is written to the disk.
    let queue = state.pending.clone();
    run_edit(&state, move |turn| queue.decide(turn, &id, action)).await.map(Json)
}
