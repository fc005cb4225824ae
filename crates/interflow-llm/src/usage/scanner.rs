//! Reads usage, model and id from a response while it is relayed, buffering as little as possible.

use super::{OutputCounter, may_hold_usage, summary_from_json};
use crate::parsed_event::ParsedEvent;
use crate::text_delta::text_of;
use crate::{ResponseSummary, reply_error, spans};

/// Maximum number of events that are examined for the first text.
const MAX_EXAMINED_EVENTS: u32 = 64;

/// Reads the events of one response; what it cannot read, it ignores.
#[derive(Debug, Default)]
pub struct UsageReader {
    settled: ResponseSummary,
    begun: bool,
    /// Events that were examined for the first text: a stream of an unknown format is not examined to its end.
    examined: u32,
    has_text: bool,
    error: Option<String>,
    output: OutputCounter,
}

impl UsageReader {
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
        self.examined < MAX_EXAMINED_EVENTS
    }

    pub const fn summary(&self) -> &ResponseSummary {
        &self.settled
    }

    /// Output tokens of the text beside those that the provider reported, by count.
    pub const fn unreported_output(&self) -> u64 {
        self.output.tokens()
    }

    /// Reads the next event.
    pub fn read(&mut self, event: &ParsedEvent) {
        let json = event.json();
        if json.is_empty() {
            return;
        }
        let is_whole = event.event().is_whole;
        let added = if is_whole { None } else { text_of(json) };
        if !is_whole {
            self.read_text(event, added.as_deref());
        }
        // The first event contains model and id.
        if (!self.begun || added.is_none() && may_hold_usage(json))
            && let Some(summary) = summary_from_json(json)
        {
            self.begun |= summary.model.is_some();
            self.settled.merge(&summary);
            // A report covers the text of its own event.
            self.output.add_report(summary.usage.map_or(0, |usage| usage.output));
        }
        if is_whole
            && self.settled.usage.is_none_or(|usage| usage.output == 0)
            && let Ok(facts) = spans::facts(json)
        {
            self.output.add_text(facts.text_bytes);
        }
    }

    /// Counts the text of an event of a stream, and notices the first, or the error in its place. Most events do nothing
    /// but add this text.
    fn read_text(&mut self, event: &ParsedEvent, added: Option<&str>) {
        let marked = if added.is_some() { None } else { event.marked().ok() };
        // Events that end a text repeat it, without a channel.
        let texts = marked.into_iter().flat_map(|marked| &marked.spans).filter(|span| span.channel.is_some());
        let generated = texts.map(|span| span.range.len());
        let mut has_text = false;
        for length in generated.chain(added.map(str::len)).filter(|length| *length > 0) {
            has_text = true;
            self.output.add_text(length);
        }
        if self.examines() {
            self.has_text = has_text;
            if !has_text {
                self.error = reply_error(event.name(), event.json());
            }
            let is_decided = has_text || self.error.is_some();
            self.examined = if is_decided { MAX_EXAMINED_EVENTS } else { self.examined + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::event_stream::{EventReader, StreamFraming};
    use interflow_types::CallUsage;

    /// What is read of a response in pieces of this size.
    fn read(framing: StreamFraming, raw: &[u8], size: usize) -> UsageReader {
        let (mut events, mut usage) = (EventReader::new(framing, 16 << 20), UsageReader::default());
        for piece in raw.chunks(size) {
            events.push(piece);
            while let Ok(Some(event)) = events.next_event() {
                usage.read(&event.into());
            }
        }
        events.finish().into_iter().for_each(|event| usage.read(&event.into()));
        usage
    }

    fn scanned(framing: StreamFraming, raw: &[u8]) -> ResponseSummary {
        read(framing, raw, 7).summary().clone()
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
    fn the_status_and_the_tier_of_a_response_are_those_of_its_end() {
        let raw = b"data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"m\",\"status\":\"in_progress\",\"service_tier\":\"auto\"}}\n\n\
            data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"service_tier\":\"flex\",\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
        let settled = scanned(StreamFraming::Sse, raw);
        assert_eq!((settled.status, settled.service_tier), (Some("completed".into()), Some("flex".into())));
    }

    #[test]
    fn the_tier_that_any_event_names_last_is_that_of_the_usage() {
        use interflow_types::ServiceTier;

        let chunk =
            |tier: &str, rest: &str| format!("data: {{\"id\":\"c\",\"model\":\"m\"{tier},\"choices\":[]{rest}}}\n\n");
        let usage = ",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}";
        let (flex, default) = (",\"service_tier\":\"flex\"", ",\"service_tier\":\"default\"");
        for (first, last, tier) in [
            (flex, "", Some(ServiceTier::Flex)),
            (flex, default, Some(ServiceTier::Standard)),
            (default, flex, Some(ServiceTier::Flex)),
            ("", "", None),
        ] {
            let raw = chunk(first, "") + &chunk(last, usage);
            let settled = scanned(StreamFraming::Sse, raw.as_bytes());
            assert_eq!(settled.usage.unwrap().tier, tier, "{raw}");
            let mut translator = crate::translate::EventTranslator::new(crate::translate::WireFormat::OpenAiChat);
            let mut events = EventReader::new(StreamFraming::Sse, 1 << 20);
            events.push(raw.as_bytes());
            let mut last = None;
            while let Ok(Some(event)) = events.next_event() {
                last = translator.read(&event).into_iter().find_map(|event| match event {
                    crate::translate::ChatEvent::Usage(usage) => Some(usage.tier),
                    _ => last,
                });
            }
            assert_eq!(last, Some(tier), "translated: {raw}");
        }
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
            let has_text = |raw: String| read(StreamFraming::Sse, raw.as_bytes(), raw.len()).has_text();
            assert!(!has_text(announced.to_owned()), "{announced}");
            assert!(has_text([announced, text].concat()), "{text}");
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
            assert_eq!(read(framing, raw.as_bytes(), 7).unreported_output(), counted, "{raw}");
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
