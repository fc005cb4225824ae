//! What became of a call.

use std::collections::BTreeMap;

/// What became of a call, possibly after its response began.
#[derive(Default)]
pub(crate) struct CallOutcome {
    /// Findings in the result.
    pub findings: BTreeMap<String, u64>,
    pub is_error: bool,
    /// The token of the link in the response, which the recording is without.
    pub link: Option<String>,
}

impl CallOutcome {
    pub fn add(&mut self, findings: BTreeMap<String, u64>) {
        for (kind, count) in findings {
            *self.findings.entry(kind).or_default() += count;
        }
    }
}
