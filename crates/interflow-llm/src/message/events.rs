//! Events of a streamed body that was recorded: server-sent events, JSON lines, AWS event streams.

use base64::Engine;
use bytes::BytesMut;
use interflow_codec::sse::SseParser;
use interflow_codec::{aws_event_stream, json};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct ReplyEvent {
    /// Its name; empty if the stream's framing has none.
    pub name: String,
    /// Its data; [`Value::Null`] if it is not JSON, as the end mark of Chat Completions.
    pub data: Value,
    /// `data: [DONE]`, the end mark of Chat Completions.
    pub done: bool,
}

/// Calls `each` with the events of a streamed body, as far as received; returns false if the body is not a stream,
/// without having called it.
pub fn events(media_type: &str, body: &[u8], each: &mut dyn FnMut(ReplyEvent)) -> bool {
    match media_type {
        "text/event-stream" => sse_events(body, each),
        "application/vnd.amazon.eventstream" => aws(body, each),
        "application/x-ndjson" | "application/jsonl" | "application/json-seq" => lines(body, each),
        // Some servers send no media type or a wrong one: check the first bytes.
        _ if body.starts_with(b"data:") || body.starts_with(b"event:") => sse_events(body, each),
        _ => return false,
    }
    true
}

fn sse_events(body: &[u8], each: &mut dyn FnMut(ReplyEvent)) {
    // The whole body is there, so no event can exceed the limit.
    let mut parser = SseParser::new(body.len() + 4);
    parser.push(body);
    // Completes the last event of a truncated stream if its line is complete.
    parser.push(b"\n\n");
    while let Ok(Some(event)) = parser.next_event() {
        if let Some(data) = event.data {
            each(from_text(event.event.unwrap_or_default(), &data));
        }
    }
}

pub fn from_text(name: String, data: &str) -> ReplyEvent {
    let done = data.trim() == "[DONE]";
    ReplyEvent { name, data: json::parse(data.as_bytes()).unwrap_or_default(), done }
}

fn lines(body: &[u8], each: &mut dyn FnMut(ReplyEvent)) {
    for line in body.split(|b| *b == b'\n') {
        if let Ok(data) = json::parse(line) {
            each(ReplyEvent { name: String::new(), data, done: false });
        }
    }
}

fn aws(body: &[u8], each: &mut dyn FnMut(ReplyEvent)) {
    let mut rest = BytesMut::from(body);
    while let Ok(Some(message)) = aws_event_stream::next_message(&mut rest, body.len()) {
        let header = |name: &str| message.header_str(name).unwrap_or_default().to_owned();
        let name = match header(":exception-type") {
            none if none.is_empty() => header(":event-type"),
            exception => exception,
        };
        let data: Value = json::parse(&message.payload).unwrap_or_default();
        // InvokeModel wraps the model's own events in base64.
        let inner = (name == "chunk").then(|| data["bytes"].as_str()).flatten();
        let inner = inner.and_then(|b| base64::engine::general_purpose::STANDARD.decode(b).ok());
        let data = inner.and_then(|bytes| json::parse(&bytes).ok()).unwrap_or(data);
        each(ReplyEvent { name, data, done: false });
    }
}
