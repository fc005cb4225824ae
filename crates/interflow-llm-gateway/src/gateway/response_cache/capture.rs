//! Copies a response while it is relayed, and decides at its end whether it is one to repeat.

use std::sync::Arc;

use bytes::Bytes;
use interflow_llm::event_stream::{ResponseForm, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_types::{Body, ResponseHead, StatusCode, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use super::ActiveCache;
use super::entry::StoredResponse;
use super::in_flight::Leader;
use super::key::CacheKey;
use super::semantic::IndexedText;
use crate::exchange::response::body_copy::BodyCopy;
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
    copy: Arc<Mutex<CopiedResponse>>,
}

#[derive(Default)]
struct CopiedResponse {
    body: BodyCopy,
    is_complete: bool,
    /// Others wait for this response.
    leader: Option<Leader>,
}

impl PendingEntry {
    pub(super) fn new(
        cache: Arc<ActiveCache>,
        key: CacheKey,
        form: ResponseForm,
        meaning: Option<IndexedText>,
        leader: Option<Leader>,
    ) -> Self {
        let copy = Arc::new(Mutex::new(CopiedResponse { leader, ..CopiedResponse::default() }));
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
        let CopiedResponse { mut body, is_complete, leader } = std::mem::take(&mut *self.copy.lock());
        let Some((head, body)) = self.head.filter(|_| is_complete).zip(body.take()) else { return };
        let (cache, key, meaning, length) = (self.cache, self.key, self.meaning, body.len());
        let framing = self.form.framing(&head.headers);
        let work = move || {
            if !is_repeatable(framing, &body) {
                return leader.map_or((), Leader::release);
            }
            // Stored without a content coding, so that every client can read it.
            let (stored_at, headers) = (Timestamp::now().micros(), StoredResponse::headers_of(&head));
            // The copy's memory is that of requests in progress.
            let entry = StoredResponse { stored_at, headers, body: Bytes::copy_from_slice(&body) };
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
    copy: Arc<Mutex<CopiedResponse>>,
    max: usize,
}

impl EventObserver for CopyObserver {
    fn event(&mut self, event: &ParsedEvent) {
        let mut copy = self.copy.lock();
        if !copy.body.push(event.raw(), self.max) {
            copy.give_up();
        }
    }

    fn end(&mut self, end: ReadEnd) {
        match end {
            ReadEnd::Complete => self.copy.lock().is_complete = true,
            ReadEnd::Truncated | ReadEnd::Broken | ReadEnd::Unreadable => self.copy.lock().give_up(),
        }
    }
}

impl CopiedResponse {
    fn give_up(&mut self) {
        if let Some(leader) = self.leader.take() {
            leader.release();
        }
        self.body.give_up();
    }
}

/// Whether a response with status 200 is a whole and good one: neither an error, nor cut off, nor a refusal.
fn is_repeatable(framing: StreamFraming, body: &[u8]) -> bool {
    let mut events = Vec::new();
    let rest = stream::for_each_event(framing, [body], |event| {
        events.push(event.into_event());
        Ok(())
    });
    let Ok(rest) = rest else { return false };
    events.extend(rest.map(ParsedEvent::into_event));
    if let [whole] = &events[..]
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
        || value["candidates"].as_array().is_some_and(|all| all.iter().any(|c| c["finishReason"].as_str() > Some("")))
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
    use super::*;

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
            assert_eq!(is_repeatable(StreamFraming::Whole, body.as_bytes()), expected, "{body}");
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
            ("data: {\"candidates\":[{\"finishReason\":\"\"}]}\n\n".to_owned(), false),
        ] {
            assert_eq!(is_repeatable(StreamFraming::Sse, body.as_bytes()), expected, "{body}");
        }
        assert!(is_repeatable(StreamFraming::Lines, b"{\"response\":\"a\"}\n{\"done\":true}\n"));
        assert!(is_repeatable(StreamFraming::Array, b"[{\"candidates\":[{\"finishReason\":\"STOP\"}]}]"));
    }

    #[test]
    fn a_response_that_is_too_large_is_not_kept() {
        let copy = Arc::new(Mutex::new(CopiedResponse::default()));
        let mut observer = CopyObserver { copy: Arc::clone(&copy), max: 4 };
        for text in ["abc", "de"] {
            observer.event(&interflow_llm::event_stream::StreamEvent::separator(text.into()).into());
        }
        observer.end(ReadEnd::Complete);
        assert_eq!(copy.lock().body.take(), None);
    }
}
