//! Copies a response while it is relayed, and decides at its end whether it is one to repeat.

use std::sync::Arc;

use bytes::Bytes;
use interflow_llm::event_stream::{ResponseForm, StreamEvent};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_types::budget::MemoryReservation;
use interflow_types::{Body, ResponseHead, StatusCode, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use super::ActiveCache;
use super::entry::StoredResponse;
use super::in_flight::Leader;
use super::key::CacheKey;
use super::semantic::IndexedText;
use crate::exchange::response::stream::{self, EventObserver, ReadEnd};
use crate::exchange::{is_inline, off_worker};

/// A response on its way to the client that may be stored once its flow has ended.
pub(crate) struct PendingEntry {
    cache: Arc<ActiveCache>,
    key: CacheKey,
    form: ResponseForm,
    /// How other requests find it that mean the same.
    meaning: Option<IndexedText>,
    head: Option<ResponseHead>,
    copy: Arc<Mutex<BodyCopy>>,
}

#[derive(Default)]
struct BodyCopy {
    events: Vec<StreamEvent>,
    length: usize,
    /// The bytes count against the process's budget while they are held.
    held: MemoryReservation,
    state: CopyState,
    /// Others wait for this response.
    leader: Option<Leader>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum CopyState {
    #[default]
    Incomplete,
    Complete,
    /// Too large, failed, or not one to store at all.
    GivenUp,
}

impl PendingEntry {
    pub(super) fn new(
        cache: Arc<ActiveCache>,
        key: CacheKey,
        form: ResponseForm,
        meaning: Option<IndexedText>,
        leader: Option<Leader>,
    ) -> Self {
        let copy = Arc::new(Mutex::new(BodyCopy { leader, ..BodyCopy::default() }));
        Self { cache, key, form, meaning, head: None, copy }
    }

    /// The response is not one to repeat: those that wait for it go on alone.
    pub fn give_up(&self) {
        self.copy.lock().give_up();
    }

    /// The body that copies itself; an error's is left alone.
    pub fn capture(&mut self, head: &ResponseHead, body: Body) -> Body {
        if head.status != StatusCode::OK || body.is_empty() {
            self.give_up();
            return body;
        }
        self.head = Some(head.clone());
        let max = usize::try_from(self.cache.config.max_body.0).unwrap_or(usize::MAX);
        let framing = self.form.framing(&head.headers);
        stream::observe(body, &head.headers, framing, CopyObserver { copy: Arc::clone(&self.copy), max })
    }

    /// Stores the response if it is complete and good.
    pub fn store(self) {
        let mut copy = std::mem::take(&mut *self.copy.lock());
        let leader = copy.leader.take();
        let Some(head) = self.head.filter(|_| copy.state == CopyState::Complete) else { return };
        let (cache, key, length) = (self.cache, self.key, copy.length);
        let meaning = self.meaning;
        let work = move || {
            if !is_repeatable(&copy.events) {
                return leader.map_or((), Leader::release);
            }
            // Stored without a content coding, so that every client can read it.
            let raw: Vec<&[u8]> = copy.events.iter().map(|event| &event.raw[..]).collect();
            let body = Bytes::from(raw.concat());
            let (stored_at, headers) = (Timestamp::now().micros(), StoredResponse::headers_of(&head));
            let entry = StoredResponse { stored_at, headers, body };
            Arc::clone(&cache).put(key, entry.clone());
            cache.index(meaning, key);
            // After it was stored, so that later requests find it there.
            if let Some(leader) = leader {
                leader.share(entry);
            }
        };
        if is_inline(length) {
            work();
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(off_worker(length, work));
        }
    }
}

/// Copies the events of a response.
struct CopyObserver {
    copy: Arc<Mutex<BodyCopy>>,
    max: usize,
}

impl EventObserver for CopyObserver {
    fn event(&mut self, event: &ParsedEvent) {
        self.copy.lock().push(event.event(), self.max);
    }

    fn end(&mut self, end: ReadEnd) {
        match end {
            ReadEnd::Complete => self.copy.lock().complete(),
            ReadEnd::Truncated | ReadEnd::Broken | ReadEnd::Unreadable => self.copy.lock().give_up(),
        }
    }
}

impl BodyCopy {
    fn push(&mut self, event: &StreamEvent, max: usize) {
        if self.state != CopyState::Incomplete {
            return;
        }
        self.length += event.raw.len();
        let held = self.length + (self.events.len() + 1) * size_of::<StreamEvent>();
        if self.length > max || self.held.resize(held).is_err() {
            self.give_up();
        } else {
            self.events.push(event.clone());
        }
    }

    fn complete(&mut self) {
        if self.state == CopyState::Incomplete {
            self.state = CopyState::Complete;
        }
    }

    fn give_up(&mut self) {
        if let Some(leader) = self.leader.take() {
            leader.release();
        }
        *self = Self { state: CopyState::GivenUp, ..Self::default() };
    }
}

/// Whether a response with status 200 is a whole and good one: neither an error, nor cut off, nor a refusal.
fn is_repeatable(events: &[StreamEvent]) -> bool {
    if let [whole] = events
        && whole.is_whole
    {
        return serde_json::from_slice(&whole.data).is_ok_and(|value: Value| value.is_object() && !is_failure(&value));
    }
    let mut has_ended = false;
    let is_good = events.iter().all(|event| {
        let (name, value) = (event.name.as_deref(), serde_json::from_slice(&event.data).unwrap_or_default());
        has_ended |= &event.data[..] == b"[DONE]" || is_end(name, &value);
        !(name == Some("error") || name.is_some_and(|n| n.ends_with("Exception")) || is_failure(&value))
    });
    is_good && has_ended
}

/// The last event of a stream: of Anthropic, Responses, Cohere, Bedrock, Ollama, Gemini. That of Chat Completions is not
/// JSON.
fn is_end(name: Option<&str>, value: &Value) -> bool {
    let kind = value["type"].as_str().unwrap_or_default();
    matches!(kind, "message_stop" | "response.completed" | "message-end")
        || name == Some("messageStop")
        || value["done"] == true
        || value["is_finished"] == true
        || value["candidates"].as_array().is_some_and(|all| all.iter().any(|c| c["finishReason"].is_string()))
}

/// Whether a response, or an event of it, says that it failed, or that the provider's filter stopped it.
fn is_failure(value: &Value) -> bool {
    let response = if value["response"].is_object() { &value["response"] } else { value };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
    let kind = text(&value["type"]);
    let stopped = ["stop_reason", "stopReason", "finish_reason"].iter().map(|name| text(&value[*name]));
    let choices = ["choices", "candidates"].iter().filter_map(|name| value[*name].as_array()).flatten();
    let of_choices = choices.flat_map(|c| [text(&c["finish_reason"]), text(&c["finishReason"])]);
    let mut reasons = stopped.chain([text(&value["delta"]["stop_reason"])]).chain(of_choices);
    let is_filtered = |reason: String| {
        matches!(reason.as_str(), "content_filter" | "content_filtered" | "guardrail_intervened" | "refusal" | "safety")
            || matches!(reason.as_str(), "blocklist" | "prohibited_content" | "spii" | "recitation")
    };
    response.get("error").is_some_and(|error| !error.is_null())
        || matches!(kind.as_str(), "error" | "response.failed" | "response.incomplete")
        || value["object"] == "response" && value["status"] != "completed"
        || reasons.any(is_filtered)
}

#[cfg(test)]
mod tests {
    use interflow_llm::event_stream::StreamFraming;

    use super::*;

    fn events(framing: StreamFraming, body: &[u8]) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        let rest = stream::for_each_event(framing, [body], |event| {
            events.push(event.into_event());
            Ok(())
        });
        events.extend(rest.unwrap().map(ParsedEvent::into_event));
        events
    }

    fn repeats(framing: StreamFraming, body: &[u8]) -> bool {
        is_repeatable(&events(framing, body))
    }

    #[test]
    fn whole_responses_are_repeated_unless_they_failed_or_were_filtered() {
        for (body, expected) in [
            (r#"{"choices":[{"finish_reason":"stop"}],"error":null}"#, true),
            (r#"{"type":"message","stop_reason":"max_tokens"}"#, true),
            (r#"{"object":"response","status":"completed","error":null}"#, true),
            (r#"{"object":"list","data":[{"embedding":[0.1]}]}"#, true),
            (r#"{"object":"response","status":"in_progress"}"#, false),
            (r#"{"error":{"message":"no"}}"#, false),
            (r#"{"choices":[{"finish_reason":"content_filter"}]}"#, false),
            (r#"{"candidates":[{"finishReason":"SAFETY"}]}"#, false),
            (r#"{"stopReason":"guardrail_intervened"}"#, false),
            (r#"{"choices":["#, false),
            ("<html>", false),
        ] {
            assert_eq!(repeats(StreamFraming::Whole, body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_stream_without_its_last_event_or_with_an_error_is_not_repeated() {
        let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let end = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for (body, expected) in [
            (format!("{chat}data: [DONE]\n\n"), true),
            (chat.to_owned(), false),
            (format!("{chat}data: {{\"error\":{{\"message\":\"x\"}}}}\n\ndata: [DONE]\n\n"), false),
            (format!("event: ping\ndata: {{}}\n\n{end}"), true),
            (format!("event: error\ndata: {{\"type\":\"error\"}}\n\n{end}"), false),
            ("data: {\"type\":\"response.completed\",\"response\":{\"error\":null}}\n\n".to_owned(), true),
            ("data: {\"type\":\"response.failed\",\"response\":{}}\n\n".to_owned(), false),
            ("data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n".to_owned(), true),
        ] {
            assert_eq!(repeats(StreamFraming::Sse, body.as_bytes()), expected, "{body}");
        }
        assert!(repeats(StreamFraming::Lines, b"{\"response\":\"a\"}\n{\"done\":true}\n"));
        assert!(repeats(StreamFraming::Array, b"[{\"candidates\":[{\"finishReason\":\"STOP\"}]}]"));
    }

    #[test]
    fn a_copy_that_is_too_large_is_given_up() {
        let mut copy = BodyCopy::default();
        copy.push(&StreamEvent::separator(Bytes::from_static(b"abc")), 4);
        copy.push(&StreamEvent::separator(Bytes::from_static(b"de")), 4);
        copy.complete();
        assert!(copy.state == CopyState::GivenUp && copy.events.is_empty());
    }
}
