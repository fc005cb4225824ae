//! What guardrails found in a flow: for its tags, the audit log, the header and the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use interflow_llm::GuardrailAction;
use interflow_types::{Direction, Flow};
use parking_lot::Mutex;

/// Reasons that are kept of one guardrail in one flow.
const MAX_REASONS: usize = 8;

/// Findings of a flow. Shared, because a streamed response outlives the stage's call.
#[derive(Clone, Debug, Default)]
pub struct GuardrailRecord(Arc<Mutex<RecordState>>);

#[derive(Debug, Default)]
struct RecordState {
    /// By guardrail and direction.
    hits: BTreeMap<(Arc<str>, &'static str), Hit>,
    /// Whether something passed that could not be checked.
    is_unread: bool,
}

#[derive(Clone, Debug)]
struct Hit {
    result: GuardrailResult,
    reasons: BTreeSet<String>,
    score: f64,
}

interflow_types::labelled_enum! {
    /// What became of a request or response in which a guardrail found something.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum GuardrailResult {
        /// A service failed, and the guardrail is configured to go on.
        Failed "failed",
        Flagged "flagged",
        Masked "masked",
        /// A person allowed it.
        Allowed "allowed",
        /// A person denied it, or nobody decided in time.
        Denied "denied",
        Blocked "blocked",
    }
}

impl GuardrailResult {
    /// The result of an action that needs no person.
    pub(super) const fn of_action(action: GuardrailAction) -> Self {
        match action {
            GuardrailAction::Flag => Self::Flagged,
            GuardrailAction::Mask => Self::Masked,
            GuardrailAction::Ask => Self::Denied,
            GuardrailAction::Block => Self::Blocked,
        }
    }
}

pub(super) const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Request => "input",
        Direction::Response => "output",
    }
}

impl GuardrailRecord {
    /// The record of a flow, created if it has none.
    pub(super) fn of(flow: &mut Flow) -> Self {
        flow.extension_mut::<Self>().clone()
    }

    /// Adds a finding; true if it is the guardrail's first in this direction.
    pub(super) fn add(
        &self,
        guardrail: &Arc<str>,
        direction: Direction,
        result: GuardrailResult,
        reasons: impl IntoIterator<Item = String>,
        score: f64,
    ) -> bool {
        let key = (Arc::clone(guardrail), direction_name(direction));
        let hits = &mut self.0.lock().hits;
        let is_new = !hits.contains_key(&key);
        let hit = hits.entry(key).or_insert_with(|| Hit { result, reasons: BTreeSet::new(), score });
        hit.result = hit.result.max(result);
        hit.score = hit.score.max(score);
        for reason in reasons {
            if hit.reasons.len() < MAX_REASONS {
                hit.reasons.insert(reason);
            }
        }
        is_new
    }

    /// Something passed that could not be checked.
    pub(super) fn mark_unread(&self) {
        self.0.lock().is_unread = true;
    }

    /// Sets the tags: `guardrail:unread`, `guardrail:NAME`, and one with direction, result and reasons for each finding.
    pub(crate) fn tag(flow: &mut Flow) {
        let Some(record) = flow.extension::<Self>().cloned() else { return };
        let state = record.0.lock();
        if state.is_unread {
            flow.tag("guardrail:unread");
        }
        for ((name, direction), hit) in &state.hits {
            let result = hit.result.as_str();
            flow.tag(format!("guardrail:{name}"));
            let reasons: Vec<&str> = hit.reasons.iter().map(String::as_str).collect();
            flow.tag(format!("guardrail-finding:{name}/{direction}/{result}/{:.2}/{}", hit.score, reasons.join("; ")));
        }
    }

    /// `NAME;input;flagged`, one for each guardrail that found something so far: for the header and the audit log.
    pub fn summary(flow: &Flow) -> Vec<String> {
        let Some(record) = flow.extension::<Self>() else { return Vec::new() };
        let state = record.0.lock();
        let hits = state.hits.iter();
        hits.map(|((name, direction), hit)| format!("{name};{direction};{}", hit.result.as_str())).collect()
    }
}

/// Counters since the start, for metrics.
#[derive(Clone, Debug, Default)]
pub struct GuardrailCounts {
    /// Requests and responses in which something was found, by guardrail, direction and result.
    pub findings: BTreeMap<(String, &'static str, &'static str), u64>,
    /// Failures of services, by guardrail.
    pub errors: BTreeMap<String, u64>,
    /// Requests and responses checked, by guardrail and direction.
    pub checks: BTreeMap<(String, &'static str), u64>,
}

#[derive(Default)]
pub(super) struct Counters(Mutex<GuardrailCounts>);

impl Counters {
    pub fn get(&self) -> GuardrailCounts {
        self.0.lock().clone()
    }

    pub fn checked(&self, guardrail: &str, direction: Direction) {
        *self.0.lock().checks.entry((guardrail.to_owned(), direction_name(direction))).or_default() += 1;
    }

    pub fn found(&self, guardrail: &str, direction: Direction, result: GuardrailResult) {
        let key = (guardrail.to_owned(), direction_name(direction), result.as_str());
        *self.0.lock().findings.entry(key).or_default() += 1;
    }

    pub fn failed(&self, guardrail: &str) {
        *self.0.lock().errors.entry(guardrail.to_owned()).or_default() += 1;
    }
}
