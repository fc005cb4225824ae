//! Reads usage, model and id from a response while it is relayed, buffering as little as possible.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{OutputCounter, may_hold_usage, summary_from_json};
use crate::event_stream::{EventReader, StreamEvent, StreamFraming};
use crate::spans::{self, mark_event};
use crate::{ResponseSummary, reply_error};

/// Maximum size of a complete response, or event, that is parsed; larger ones are relayed without usage.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Maximum number of events that are examined for the first text.
const MAX_EXAMINED_EVENTS: u32 = 64;

/// Scans one response while it is relayed; whatever it cannot read, it ignores.
#[derive(Debug)]
pub struct UsageScanner {
    /// `None` once the response cannot be scanned any further, or has ended.
    reader: Option<EventReader>,
    settled: ResponseSummary,
    begun: bool,
    /// Whether it is one JSON value, rather than a stream.
    is_whole: bool,
    /// Events that may still be examined for the first text: a whole response has none, and a stream of an unknown
    /// format is not examined to its end.
    unexamined: u32,
    has_text: bool,
    error: Option<String>,
    output: OutputCounter,
}

impl UsageScanner {
    pub fn new(framing: StreamFraming) -> Self {
        Self {
            reader: Some(EventReader::new(framing, MAX_EVENT_BYTES)),
            settled: ResponseSummary::default(),
            begun: false,
            is_whole: framing == StreamFraming::Whole,
            unexamined: if framing == StreamFraming::Whole { 0 } else { MAX_EXAMINED_EVENTS },
            has_text: false,
            error: None,
            output: OutputCounter::default(),
        }
    }

    /// Processes the next bytes, after content decoding.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(mut reader) = self.reader.take() else { return };
        reader.push(bytes);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => self.read_event(&event),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        self.reader = Some(reader);
    }

    /// The end of the response: its summary. May be called again.
    pub fn finish(&mut self) -> &ResponseSummary {
        if let Some(event) = self.reader.take().and_then(|mut r| r.finish()) {
            self.read_event(&event);
        }
        &self.settled
    }

    /// Whether a stream has delivered generated text, reasoning included: the events before only announce it.
    pub const fn has_text(&self) -> bool {
        self.has_text
    }

    /// The error that a stream reported before any generated text.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Whether the first text may still be noticed.
    pub const fn examines(&self) -> bool {
        self.reader.is_some() && self.unexamined > 0
    }

    pub const fn summary(&self) -> &ResponseSummary {
        &self.settled
    }

    /// Whether nothing more can be read although the response has not ended: it is too large, or malformed.
    pub const fn has_failed(&self) -> bool {
        self.reader.is_none()
    }

    /// Output tokens of the text beside those that the provider reported, by count.
    pub const fn unreported_output(&self) -> u64 {
        self.output.tokens()
    }

    fn read_event(&mut self, event: &StreamEvent) {
        let inner = bedrock_chunk(&event.data);
        let json = inner.as_deref().unwrap_or(&event.data);
        if json.is_empty() {
            return;
        }
        if !self.is_whole {
            self.read_text(event, json);
        }
        // The first event contains model and id.
        if (!self.begun || may_hold_usage(json))
            && let Some(said) = summary_from_json(json)
        {
            self.begun |= said.model.is_some();
            self.settled.merge(&said);
            // A report covers the text of its own event.
            self.output.add_report(said.usage.map_or(0, |usage| usage.output));
        }
        if self.is_whole
            && self.settled.usage.is_none_or(|usage| usage.output == 0)
            && let Ok(facts) = spans::facts(json)
        {
            self.output.add_text(facts.text_bytes);
        }
    }

    /// Counts the text of an event of a stream, and notices the first, or the error in its place.
    fn read_text(&mut self, event: &StreamEvent, json: &[u8]) {
        let texts = mark_event(json, event.name.as_deref()).map(|marked| marked.spans).unwrap_or_default();
        // Events that end a text repeat it, without a channel.
        let generated = texts.iter().filter(|s| s.channel.is_some() && !s.range.is_empty());
        let mut has_text = false;
        for span in generated {
            has_text = true;
            self.output.add_text(span.range.len());
        }
        if self.unexamined > 0 {
            self.has_text = has_text;
            if !has_text {
                self.error = reply_error(event.name.as_deref(), json);
            }
            let is_decided = has_text || self.error.is_some();
            self.unexamined = if is_decided { 0 } else { self.unexamined - 1 };
        }
    }
}

/// The JSON in InvokeModel's `{"bytes":"…"}`, which is base64; `None` for any other payload.
pub(crate) fn bedrock_chunk(payload: &[u8]) -> Option<Vec<u8>> {
    let text = payload.strip_prefix(b"{\"bytes\":\"")?;
    let end = memchr::memchr(b'"', text)?;
    STANDARD.decode(text.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::CallUsage;

    fn scanned(framing: StreamFraming, raw: &[u8]) -> ResponseSummary {
        let mut scanner = UsageScanner::new(framing);
        raw.chunks(7).for_each(|c| scanner.push(c));
        scanner.finish().clone()
    }

    #[test]
    fn usage_of_a_stream_is_accumulated() {
        let raw = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n\
            data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"no \\\"usage\\\" here\"}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":12}}\n\n";
        let settled = scanned(StreamFraming::Sse, raw);
        assert_eq!(settled.usage, Some(CallUsage { input: 9, output: 12, ..CallUsage::default() }));
        assert_eq!((settled.model, settled.id), (Some("m".into()), Some("msg_1".into())));
    }

    #[test]
    fn the_first_text_of_a_stream_is_noticed_but_not_its_announcement() {
        for (announced, text) in [
            (
                "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"m\"}}\n\n",
                "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"a\"}\n\n",
            ),
            (
                "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"m\",\"content\":[]}}\n\ndata: {\"type\":\"ping\"}\n\n",
                "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
            ),
            (
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
            ),
        ] {
            let mut scanner = UsageScanner::new(StreamFraming::Sse);
            scanner.push(announced.as_bytes());
            assert!(!scanner.has_text(), "{announced}");
            scanner.push(text.as_bytes());
            assert!(scanner.has_text(), "{text}");
        }
    }

    #[test]
    fn text_without_a_usage_report_is_counted_in_every_format() {
        let text = "x".repeat(400);
        for (framing, raw, counted) in [
            (
                StreamFraming::Sse,
                format!(
                    "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}}}}],\"usage\":null}}\n\n\
                     data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":null}}\n\n"
                ),
                100,
            ),
            (
                StreamFraming::Sse,
                format!(
                    "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{text}\"}}}}]}}}}]}}\n\n\
                     data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"reasoning_content\":\"{text}\"}}}}]}}\n\n"
                ),
                200,
            ),
            (
                StreamFraming::Sse,
                format!(
                    "data: {{\"type\":\"message_start\",\"message\":{{\"id\":\"i\",\"model\":\"m\",\"usage\":{{\"input_tokens\":9,\"output_tokens\":1}}}}}}\n\n\
                     data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"thinking_delta\",\"thinking\":\"{text}\"}}}}\n\n\
                     data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"signature_delta\",\"signature\":\"{text}\"}}}}\n\n\
                     data: {{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
                ),
                200,
            ),
            (
                StreamFraming::Sse,
                format!(
                    "data: {{\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"{text}\",\"obfuscation\":\"k3Zx\"}}\n\n\
                     data: {{\"type\":\"response.output_text.done\",\"output_index\":0,\"text\":\"{text}\"}}\n\n\
                     data: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{{\"type\":\"message\",\"content\":[{{\"type\":\"output_text\",\"text\":\"{text}\"}}]}}}}\n\n"
                ),
                100,
            ),
            (
                StreamFraming::Sse,
                format!(
                    "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}}}}]}}\n\n"
                ),
                100,
            ),
            (
                StreamFraming::Lines,
                format!("{{\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\"done\":false}}\n"),
                100,
            ),
            (StreamFraming::Whole, format!("{{\"choices\":[{{\"message\":{{\"content\":\"{text}\"}}}}]}}"), 100),
            (
                StreamFraming::Whole,
                format!("{{\"usage\":{{\"output_tokens\":3}},\"content\":[{{\"text\":\"{text}\"}}]}}"),
                0,
            ),
            (StreamFraming::Whole, "{\"data\":[{\"embedding\":[0.1,0.2]}]}".to_owned(), 0),
            (StreamFraming::Whole, "<html>".to_owned(), 0),
        ] {
            let mut scanner = UsageScanner::new(framing);
            raw.as_bytes().chunks(7).for_each(|c| scanner.push(c));
            scanner.finish();
            assert_eq!(scanner.unreported_output(), counted, "{raw}");
        }
    }

    #[test]
    fn usage_of_a_whole_response_is_read_at_its_end() {
        let settled = scanned(
            StreamFraming::Whole,
            br#"{"id":"c","model":"m","usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        );
        assert_eq!(settled.usage.map(|u| u.total()), Some(4));
        assert_eq!(scanned(StreamFraming::Whole, b"<html>"), ResponseSummary::default());
    }

    #[test]
    fn usage_is_read_from_base64_bedrock_chunks() {
        let inner = STANDARD.encode(
            r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":2}}"#,
        );
        let payload = format!("{{\"bytes\":\"{inner}\"}}");
        let mut raw = Vec::new();
        interflow_codec::aws_event_stream::write_message(&mut raw, &[], payload.as_bytes()).unwrap();
        assert_eq!(scanned(StreamFraming::EventStream, &raw).usage.map(|u| u.total()), Some(11));
    }
}
