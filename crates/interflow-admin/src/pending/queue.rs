//! What waits for a decision in this process.

use std::sync::Arc;

use interflow_approvals::{Approvals, Resolution};
use interflow_files::EditTurn;
use interflow_rules::{ActiveRules, HoldDecision, HoldQueue};
use interflow_store::HeaderMasker;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::item::{PendingId, PendingItem, PendingKind};
use crate::error::{ApiError, Result};

/// Both kinds, as they are at any time.
#[derive(Clone)]
pub(crate) struct PendingQueue {
    approvals: Option<Arc<Approvals>>,
    rules: Option<Arc<ActiveRules>>,
}

/// A decision about one kind, read and checked as far as that is possible without the request.
pub(crate) enum PendingAction {
    Approval(Resolution),
    Rule(HoldDecision),
}

impl PendingAction {
    /// # Errors
    /// It is not a decision about this kind.
    pub fn parse(kind: PendingKind, mut said: Value) -> Result<Self> {
        let wrong = |e: serde_json::Error| ApiError::bad_request(e.to_string());
        if kind == PendingKind::Approval {
            return serde_json::from_value(said).map(Self::Approval).map_err(wrong);
        }
        // Rules know no `allow`: with a body it is a change, without one the flow continues as it is.
        if said["action"] == "allow" {
            said = match said["body"].take() {
                Value::Null => json!({ "action": "continue" }),
                body => json!({ "action": "change", "body": body }),
            };
        }
        serde_json::from_value(said).map(Self::Rule).map_err(wrong)
    }
}

/// What a decision did.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct DecidedItem {
    pub id: String,
    pub flows: usize,
    /// The approval rule that was created with the decision, if any.
    #[schemars(with = "Option<interflow_approvals::RuleView>")]
    pub rule: Option<Value>,
}

impl PendingQueue {
    pub const fn new(approvals: Option<Arc<Approvals>>, rules: Option<Arc<ActiveRules>>) -> Self {
        Self { approvals, rules }
    }

    fn holds(&self) -> Option<&Arc<HoldQueue>> {
        self.rules.as_ref().map(|rules| &rules.runtime().holds)
    }

    /// The version of each kind, which only grows.
    pub fn versions(&self) -> [u64; 2] {
        [self.approvals.as_ref().map_or(0, |a| a.waiting.version()), self.holds().map_or(0, |h| h.version())]
    }

    /// Waits until a version differs. Cancel-safe.
    pub async fn changed_since(&self, [approvals, holds]: [u64; 2]) {
        let approvals = async {
            match &self.approvals {
                Some(a) => a.waiting.changed_since(approvals).await,
                // Only the other kind can end the wait.
                None => std::future::pending().await,
            }
        };
        let held = async {
            if let Some(h) = self.holds() { h.changed_since(holds).await } else { std::future::pending().await }
        };
        tokio::select! { () = approvals => {}, () = held => {} }
    }

    /// All that waits, the oldest first. Nothing of it was recorded yet, so the masks of the recorder are applied here.
    pub fn items(&self, mask: &HeaderMasker) -> Vec<PendingItem> {
        let questions = self.approvals.as_ref().map(|a| a.waiting.list()).unwrap_or_default();
        let held = self.holds().map(|h| h.list()).unwrap_or_default();
        let questions = questions.iter().map(|q| PendingItem::from_question(q, mask));
        let mut items: Vec<_> = questions.chain(held.into_iter().map(|h| PendingItem::from_hold(h, mask))).collect();
        items.sort_by_key(|item| item.since);
        items
    }

    /// Of several decisions about one request, only the first finds it.
    ///
    /// # Errors
    /// Nothing waits under this id; the decision is not possible.
    pub fn decide(&self, turn: &EditTurn, id: &PendingId, action: PendingAction) -> Result<DecidedItem> {
        let id_text = id.to_string();
        match action {
            PendingAction::Rule(decision) => {
                let holds = self.holds().ok_or_else(|| not_found(&id_text))?;
                holds.decide(id.number, decision).map_err(|_| not_found(&id_text))?;
                Ok(DecidedItem { id: id_text, flows: 1, rule: None })
            }
            PendingAction::Approval(answer) => {
                let approvals = self.approvals.as_ref().ok_or_else(no_approvals)?;
                let done = approvals.resolve(turn, id.number, &answer)?;
                let rule = done.rule.map(|rule| serde_json::to_value(rule).expect("a rule is plain data"));
                Ok(DecidedItem { id: id_text, flows: done.flows, rule })
            }
        }
    }
}

pub(crate) fn no_approvals() -> ApiError {
    ApiError::unavailable("no_approvals", "this instance has no approvals")
}

pub(crate) fn not_found(id: &str) -> ApiError {
    let text = format!("nothing waits under {id}: it was decided, timed out, or its client went away");
    ApiError::not_found(text).remedy("GET /api/v1/pending lists what waits")
}
