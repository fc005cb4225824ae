//! What rules remember of one flow, and of nothing else.

use std::sync::Arc;

use interflow_types::{RequestHead, ResponseHead};
use smallvec::SmallVec;

use crate::body::BodyEdits;
use crate::fault_injection::Throttle;

/// The note that rules keep on a flow; made when there is something to remember.
#[derive(Default)]
pub(crate) struct RuleState {
    /// Variables by name.
    vars: SmallVec<[(String, String); 2]>,
    /// Rules that were decided at an earlier phase.
    decided: SmallVec<[(u32, bool); 4]>,
    /// Caps on the speed of each direction, for the bodies.
    pub throttle: [Option<Arc<Throttle>>; 2],
    /// What an earlier phase wants done to the body.
    pub pending: Option<BodyEdits>,
    /// The rules of the phase `connect` were asked about this flow itself.
    pub connected: bool,
    /// The response shall say that nothing may be kept.
    pub uncached: bool,
    /// The response's cookies are kept.
    pub sticky: bool,
    /// The request's body without its coding, for services that are asked about the response.
    pub request_body: Option<bytes::Bytes>,
    /// The request's head, for phases that are not shown it.
    pub request: Option<Arc<RequestHead>>,
    /// The response's head, for the end.
    pub response: Option<Arc<ResponseHead>>,
}

impl RuleState {
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn set_variable(&mut self, name: &str, value: String) {
        match self.vars.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value,
            None => self.vars.push((name.to_owned(), value)),
        }
    }

    pub fn decided(&self, rule: u32) -> Option<bool> {
        self.decided.iter().find(|(r, _)| *r == rule).map(|(_, b)| *b)
    }

    pub fn record_decision(&mut self, rule: u32, holds: bool) {
        self.decided.push((rule, holds));
    }

    /// Variables, for explanations.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vars.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}
