//! Per-flow state of the rules.

use std::sync::Arc;

use interflow_types::{ByteStr, Error, RequestHead, Response, ResponseHead};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::body::BodyEdits;
use crate::body::content::BodyContent;
use crate::body::fault_injection::Throttle;

/// The flow extension that holds rule state; created on demand.
#[derive(Default)]
pub(crate) struct RuleState {
    /// Name, value, and whether the value is fixed by the rules, whatever peers send.
    pub vars: SmallVec<[(String, String, bool); 2]>,
    /// Decisions made at an earlier phase, by rule, so that a rule with actions in several phases decides once.
    pub decided: SmallVec<[(u32, bool); 4]>,
    /// Speed limits by direction; they outlive the phase that set them.
    pub throttle: [Option<Arc<Throttle>>; 2],
    /// Body edits requested at a phase without a body (the head), applied at the next one with a body.
    pub pending: Option<BodyEdits>,
    /// The rules of the phase `connect` were already evaluated on this flow itself.
    pub connected: bool,
    /// The answer that was decided before the request's head, and is given there.
    pub answer: Mutex<Option<Box<Response>>>,
    /// The response must be marked as uncacheable (`anticache`).
    pub uncached: bool,
    /// Cookies of the response are stored (`sticky-cookie`).
    pub sticky: bool,
    /// The decoded request body, for services that are called about the response.
    pub request_body: Option<BodyContent>,
    /// Why the request's body cannot be read, if a rule needed it.
    pub unread_request: Option<Arc<Error>>,
    /// The request's head, for phases that do not receive it.
    pub request: Option<Arc<RequestHead>>,
    /// The response's head, for the phase `done`.
    pub response: Option<Arc<ResponseHead>>,
    /// The tags of the copies of the flow on which the rules on events run.
    pub event_tags: Vec<Arc<Mutex<Vec<ByteStr>>>>,
}

impl RuleState {
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.vars.iter().find(|(n, ..)| n == name).map(|(_, v, _)| v.as_str())
    }

    /// Whether the value is fixed by the rules. A variable that the flow does not have is a constant or absent.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.vars.iter().find(|(n, ..)| n == name).is_none_or(|(.., fixed)| *fixed)
    }

    pub fn set_variable(&mut self, name: &str, value: String) {
        self.put_variable(name, value, false);
    }

    pub fn put_variable(&mut self, name: &str, value: String, is_fixed: bool) {
        self.vars.retain(|(n, ..)| n != name);
        self.vars.push((name.to_owned(), value, is_fixed));
    }

    pub fn decided(&self, rule: u32) -> Option<bool> {
        self.decided.iter().find(|(r, _)| *r == rule).map(|(_, b)| *b)
    }

    pub fn record_decision(&mut self, rule: u32, holds: bool) {
        self.decided.push((rule, holds));
    }

    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vars.iter().map(|(n, v, _)| (n.as_str(), v.as_str()))
    }
}
