//! The detection engine: a text in, findings in the text's own offsets out.

use std::cell::RefCell;

use crate::detect::{self, Finding, Scan, Wants};
use crate::text::normalize;
use crate::token::Tokens;

/// Looks for what a policy wants. Cheap to share between threads.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub wants: Wants,
}

thread_local! {
    static TOKENS: RefCell<Tokens> = RefCell::default();
}

impl Engine {
    /// Everything found, in the order of the detectors; findings may overlap.
    pub fn find(&self, text: &str) -> Vec<Finding> {
        let (plain, map) = normalize(text);
        let mut found = Vec::new();
        TOKENS.with_borrow_mut(|tokens| {
            tokens.cut(&plain);
            tokens.raise(&plain);
            let mut scan =
                Scan { text: &plain, bytes: plain.as_bytes(), tokens, wants: &self.wants, found: &mut found };
            detect::detect(&mut scan);
        });
        if !map.is_identity() {
            for finding in &mut found {
                finding.start = map.start(finding.start);
                finding.end = map.end(finding.end);
            }
        }
        found
    }
}
