//! What is known of one exchange with a provider: a note on its flow, begun with the request and settled by the answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interflow_types::ByteStr;

use crate::provider::{Operation, Provider};
use crate::usage::CallUsage;

/// A note on a flow that is an exchange with a provider. `provider` and `operation` are there from `RequestHead`, the
/// model and the estimates from `RequestBody`, what was used up at `Done`.
#[derive(Clone, Debug, Default)]
pub struct LlmCall {
    /// Whose wire shape is spoken.
    pub provider: Provider,
    /// What is asked for.
    pub operation: Operation,
    /// The gateway's name of the upstream, when the request came through the gateway.
    pub upstream: Option<ByteStr>,
    /// Upstreams that the request may go to when this one fails: what it holds must be fit for them too.
    pub others: Vec<ByteStr>,
    /// The model as the client asked for it.
    pub model: Option<ByteStr>,
    /// Whether it passes as it is, by the operator's word, even where prompts are redacted.
    pub exempt: bool,
    /// The name under which an upstream is asked for the model, where it is settled already.
    pub(crate) renamed: Option<ByteStr>,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// Tokens that the request will be counted as, by its length: about four bytes of text per token.
    pub estimated_input: u64,
    /// Whether a stream comes as a growing JSON array (Gemini without `alt=sse`).
    pub grows: bool,
    /// The most tokens that the client lets the answer have.
    pub max_output: Option<u64>,
    pub(crate) summary: Arc<Mutex<ResponseSummary>>,
}

/// What an answer said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// Tokens used up; `None` when the answer did not tell.
    pub usage: Option<CallUsage>,
    /// The model that answered.
    pub model: Option<ByteStr>,
    /// The answer's id.
    pub id: Option<ByteStr>,
}

impl LlmCall {
    /// What the answer said of itself until now: complete at `Done`.
    pub fn summary(&self) -> ResponseSummary {
        self.lock().clone()
    }

    /// Tokens used up, as the provider counted them.
    pub fn usage(&self) -> Option<CallUsage> {
        self.lock().usage
    }

    /// Adds what a part of the answer said.
    pub fn merge_summary(&self, part: &ResponseSummary) {
        self.lock().merge(part);
    }

    /// Adds what one of several answers said: each counts for itself.
    pub fn merge_more(&self, said: &ResponseSummary) {
        let mut settled = self.lock();
        if let Some(more) = said.usage {
            settled.usage.get_or_insert_default().add(more);
        }
        settled.model = said.model.clone().or(settled.model.take());
        settled.id = said.id.clone().or(settled.id.take());
    }

    fn lock(&self) -> MutexGuard<'_, ResponseSummary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseSummary {
    /// Adds what a later part of the same answer said: streams tell their counts bit by bit, each time in full.
    pub fn merge(&mut self, later: &Self) {
        self.usage = match (self.usage, later.usage) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        if self.model.is_none() {
            self.model.clone_from(&later.model);
        }
        if self.id.is_none() {
            self.id.clone_from(&later.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_sees_what_is_settled_later() {
        let exchange = LlmCall::default();
        let seen = exchange.clone();
        exchange.merge_summary(&ResponseSummary {
            usage: Some(CallUsage { input: 5, ..CallUsage::default() }),
            ..ResponseSummary::default()
        });
        exchange.merge_summary(&ResponseSummary {
            usage: Some(CallUsage { output: 7, ..CallUsage::default() }),
            model: Some("m".into()),
            id: None,
        });
        assert_eq!(seen.usage(), Some(CallUsage { input: 5, output: 7, ..CallUsage::default() }));
        assert_eq!(seen.summary().model, Some("m".into()));
    }
}
