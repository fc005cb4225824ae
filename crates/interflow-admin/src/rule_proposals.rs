//! Rules that agents have proposed, until the operator applies or dismisses them.

use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::Serialize;

/// Proposals that may wait for the operator.
pub(crate) const MAX_PROPOSALS: usize = 20;

/// The proposals, and the number of the last one. They are lost when the instance stops.
#[derive(Default)]
pub(crate) struct RuleProposals(Mutex<(u64, Vec<RuleProposal>)>);

impl RuleProposals {
    pub fn list(&self) -> Vec<RuleProposal> {
        self.0.lock().1.clone()
    }

    /// Adds a proposal under the next number; `None` if too many wait.
    pub fn add(&self, proposal: RuleProposal) -> Option<RuleProposal> {
        let (last, list) = &mut *self.0.lock();
        if list.len() >= MAX_PROPOSALS {
            return None;
        }
        *last += 1;
        let proposal = RuleProposal { id: *last, ..proposal };
        list.push(proposal.clone());
        Some(proposal)
    }

    pub fn find(&self, id: u64) -> Option<RuleProposal> {
        self.0.lock().1.iter().find(|p| p.id == id).cloned()
    }

    /// Whether there was one with this number.
    pub fn remove(&self, id: u64) -> bool {
        let list = &mut self.0.lock().1;
        let before = list.len();
        list.retain(|p| p.id != id);
        list.len() < before
    }
}

#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct RuleProposal {
    pub id: u64,
    /// The rules, as the text of a rule file.
    pub text: String,
    /// Why they are proposed.
    pub reason: String,
    pub proposed: Timestamp,
    /// Recorded flows on which the rules were tried: the newest ones of the query.
    pub tried: usize,
    /// Which of them each rule would match; at most 50.
    pub matches: Vec<ProposalMatch>,
}

#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct ProposalMatch {
    pub rule: String,
    pub flow: String,
    pub method: String,
    pub url: String,
}
