//! The LLM call of a flow: a flow extension, created with the request and completed by the response.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use interflow_types::{ByteStr, CallUsage, Headers, ServiceTier};

use crate::event_stream::ResponseForm;
use crate::provider::{Operation, Provider};

/// The flow extension of an LLM call. `provider` and `operation` are set from `RequestHead`, the model and the
/// estimates from `RequestBody`, usage at `Done`. Present on every flow that was recognised as a call.
#[derive(Clone, Debug, Default)]
pub struct LlmCall {
    /// The provider whose API format is used, which need not be the one that serves the request.
    pub provider: Provider,
    pub operation: Operation,
    /// The gateway's name of the upstream, for requests of the gateway.
    pub upstream: Option<ByteStr>,
    /// The gateway's route (`llm.route`) that the model's name selects.
    pub route: Option<ByteStr>,
    /// Upstreams that the request may be sent to beside `upstream`, as a fallback or by its route: it must be suitable
    /// for them too.
    pub others: Vec<ByteStr>,
    /// The model as requested by the client.
    pub model: Option<ByteStr>,
    /// Whether the provider may take another model of the body than `model`.
    pub is_model_unclear: bool,
    /// The response that the request, or the last event of a WebSocket, continues at its provider.
    pub continues: Option<ByteStr>,
    /// How much the model is asked to think, and the service tier, by the words of the client's API.
    pub reasoning_level: Option<ByteStr>,
    pub service_tier: Option<ByteStr>,
    /// The response that the request continues at the provider.
    pub previous_response: Option<ByteStr>,
    /// Exempt from redaction by the operator's configuration.
    pub exempt: bool,
    /// The mapped model name, once determined by the dispatcher.
    pub renamed: Option<ByteStr>,
    /// Whether the client requested a stream, by path or body.
    pub stream: bool,
    /// Estimated input tokens: about four bytes of text per token, and a weight for each medium.
    pub estimated_input: u64,
    /// Whether the request is translated for its upstream: `provider` is then that of the client's format.
    pub translated: bool,
    /// Whether a stream has the form of a growing JSON array (Gemini without `alt=sse`).
    pub grows: bool,
    /// The client's limit on the output tokens of one choice, under whatever name its API has for it.
    pub max_output: Option<u64>,
    /// Whether the client's limit is not a number of tokens that an API takes.
    pub is_max_output_invalid: bool,
    /// How many choices the client asks for; 0 if it does not say.
    pub choices: u64,
    /// Characters of text to speech.
    pub characters: u64,
    /// The model of a Realtime session that writes down what the client says.
    pub transcription_model: Option<ByteStr>,
    // Shared with the stage that reads the response, which outlives the call that created it.
    pub summary: Arc<Mutex<ResponseSummary>>,
    /// What was counted of the response; see [`record_count`](Self::record_count).
    pub count: Arc<Mutex<CountedOutput>>,
    /// Bytes of the response that passed, read or not.
    pub delivered: Arc<AtomicU64>,
    /// When the first text of a streamed response arrived, in microseconds after the flow's start.
    pub first_token: Arc<OnceLock<u64>>,
}

/// The field in which Gemini names the level of service that answered.
pub const SERVICE_TIER_HEADER: &str = "x-gemini-service-tier";

/// What a response reported about itself: token usage, which not every server counts, model and id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    pub usage: Option<CallUsage>,
    pub model: Option<ByteStr>,
    pub id: Option<ByteStr>,
    /// What became of the response, where it may go on in the background: `completed`, `queued`.
    pub status: Option<ByteStr>,
    /// The service tier that answered.
    pub service_tier: Option<ByteStr>,
    /// Of several responses (of a WebSocket): what each model used.
    pub by_model: Vec<ModelUsage>,
}

/// The most models of a WebSocket that are counted apart; what others use is added to the first.
const MAX_MODELS: usize = 64;

/// What the responses used for which the client asked for one model, and which another may have answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    pub asked: Option<ByteStr>,
    pub answered: Option<ByteStr>,
    pub usage: CallUsage,
}

/// What was counted of a response while it passed: of a stream that is cut, no usage report tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedOutput {
    /// Output tokens of the text that no usage report covers.
    pub unreported: u64,
    pub progress: ResponseProgress,
    /// It was counted as the upstream sent it. What is counted of its translation for the client is the same text again.
    pub is_upstream: bool,
}

/// How far a response was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseProgress {
    /// None of it was.
    #[default]
    None,
    /// It was cut, by the provider, the client or a stage.
    Partial,
    /// Its coding is unknown or broken, or it is too large.
    Unreadable,
    Complete,
}

impl LlmCall {
    /// What it says about the form of the response.
    pub const fn response_form(&self) -> ResponseForm {
        ResponseForm {
            is_stream: self.stream,
            grows: self.grows,
            has_lines: matches!(self.provider, Provider::Ollama | Provider::Cohere),
            is_reply: self.operation.is_reply(),
        }
    }

    /// The summary so far: complete at `Done`, or when the response was relayed.
    pub fn summary(&self) -> ResponseSummary {
        self.lock().clone()
    }

    /// Token usage as counted by the provider; `None` if it reported none.
    pub fn usage(&self) -> Option<CallUsage> {
        self.lock().usage
    }

    /// Merges a part of the response. Counts are running totals, of which the larger stays; of names the first stays,
    /// because later events may repeat them in another form.
    pub fn merge_summary(&self, part: &ResponseSummary) {
        self.lock().merge(part);
    }

    /// Merges what the head of a response says. What the body says of it, which comes later, counts.
    pub fn merge_head(&self, headers: &Headers) {
        let service_tier = headers.get_str(SERVICE_TIER_HEADER).map(ByteStr::from);
        self.merge_summary(&ResponseSummary { service_tier, ..ResponseSummary::default() });
    }

    /// Adds another of several responses (of a WebSocket), whose usage is summed. `requested` is the model that it is of.
    pub fn merge_more(&self, requested: Option<&ByteStr>, summary: &ResponseSummary) {
        let mut settled = self.lock();
        if let Some(more) = summary.usage {
            settled.usage.get_or_insert_default().add(more);
            let (asked, answered) = (requested.cloned(), summary.model.clone());
            let is_full = settled.by_model.len() >= MAX_MODELS;
            let same =
                settled.by_model.iter_mut().find(|own| is_full || own.asked == asked && own.answered == answered);
            match same {
                Some(own) => own.usage.add(more),
                None => settled.by_model.push(ModelUsage { asked, answered, usage: more }),
            }
        }
        settled.model = summary.model.clone().or(settled.model.take());
        settled.id = summary.id.clone().or(settled.id.take());
    }

    /// What was counted of the response so far.
    pub fn counted(&self) -> CountedOutput {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what was counted of the response so far. Where the upstream's was counted, the client's is not.
    pub fn record_count(&self, counted: CountedOutput) {
        let mut current = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.is_upstream || !current.is_upstream {
            *current = counted;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ResponseSummary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseSummary {
    /// Merges a later part of the same response: streams report running totals.
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
        // The last ones count: a response begins in progress, at a tier that the provider has yet to choose.
        self.status = later.status.clone().or(self.status.take());
        self.service_tier = later.service_tier.clone().or(self.service_tier.take());
        // The price depends on it, whichever event names it.
        if let Some(usage) = &mut self.usage {
            let named =
                later.usage.and_then(|usage| usage.tier).or(later.service_tier.as_deref().map(ServiceTier::from_name));
            usage.tier = named.or(usage.tier).or(self.service_tier.as_deref().map(ServiceTier::from_name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_later_updates() {
        let exchange = LlmCall::default();
        let seen = exchange.clone();
        exchange.merge_summary(&ResponseSummary {
            usage: Some(CallUsage { input: 5, ..CallUsage::default() }),
            ..ResponseSummary::default()
        });
        exchange.merge_summary(&ResponseSummary {
            usage: Some(CallUsage { output: 7, ..CallUsage::default() }),
            model: Some("m".into()),
            ..ResponseSummary::default()
        });
        assert_eq!(seen.usage(), Some(CallUsage { input: 5, output: 7, ..CallUsage::default() }));
        assert_eq!(seen.summary().model, Some("m".into()));
    }
}
