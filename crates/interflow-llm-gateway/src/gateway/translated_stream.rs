//! The step of an upstream's stream that makes it one in the client's format.

use std::time::Duration;

use interflow_llm::event_stream::EventReader;
use interflow_llm::parsed_event::ParsedEvent;
use interflow_types::{Error, ErrorKind};
use tokio::time::Instant;

use interflow_llm::translate::{ChatEvent, EventTranslator, ReplyWriter, TranslatedError};
use interflow_llm::usage::OutputCounter;
use interflow_llm::{CountedOutput, LlmCall, ResponseProgress, ResponseSummary};

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::stream::{AbortCause, EventStep, Rescue, StreamEnd, StreamRest};

/// Reads the events of the upstream, and writes those of the client.
pub(super) struct TranslationStep {
    reader: EventTranslator,
    writer: ReplyWriter,
    /// Divides what was written into events.
    written: EventReader,
    /// Counted here, since a client's format may not report usage.
    call: LlmCall,
    output: OutputCounter,
    last_output: Instant,
    ping_after: Duration,
}

/// After so long without output a sign of life of the upstream becomes one for the client.
const PING_AFTER: Duration = Duration::from_secs(5);

impl TranslationStep {
    pub fn new(reader: EventTranslator, writer: ReplyWriter, call: LlmCall) -> Self {
        let (output, last_output) = (OutputCounter::default(), Instant::now());
        let written = EventReader::new(writer.framing(), usize::MAX);
        let step = Self { reader, writer, written, call, output, last_output, ping_after: PING_AFTER };
        step.record_count();
        step
    }

    fn record_count(&self) {
        let (unreported, progress) = (self.output.tokens(), ResponseProgress::Partial);
        self.call.record_count(CountedOutput { unreported, progress, is_upstream: true });
    }

    fn write(&mut self, events: Vec<ChatEvent>, out: &mut Vec<ParsedEvent>) {
        // A report covers the text of its own event, wherever the event has it.
        let (reports, output): (Vec<_>, Vec<_>) = events.iter().partition(|e| matches!(e, ChatEvent::Usage(_)));
        output.into_iter().chain(reports).for_each(|event| self.note(event));
        let mut raw = Vec::new();
        for event in events {
            self.writer.write(event, &mut raw);
        }
        self.record_count();
        self.send(&raw, out);
    }

    /// Passes on what was written, which is whole events.
    fn send(&mut self, raw: &[u8], out: &mut Vec<ParsedEvent>) {
        if raw.is_empty() {
            return;
        }
        self.last_output = Instant::now();
        self.written.push(raw);
        while let Ok(Some(event)) = self.written.next_event() {
            out.push(event.into());
        }
        if self.writer.has_ended() {
            out.extend(self.written.finish().map(ParsedEvent::from));
        }
    }

    fn note(&mut self, event: &ChatEvent) {
        let summary = match event {
            ChatEvent::Text(text) | ChatEvent::Refusal(text) | ChatEvent::Thinking(text) => {
                return self.output.add_text(text.len());
            }
            ChatEvent::ToolInput { json, .. } => return self.output.add_text(json.len()),
            ChatEvent::Usage(usage) => {
                self.output.add_report(usage.output);
                ResponseSummary { usage: Some(*usage), ..ResponseSummary::default() }
            }
            ChatEvent::Start { id, model } => ResponseSummary {
                id: id.as_deref().map(Into::into),
                model: model.as_deref().map(Into::into),
                ..ResponseSummary::default()
            },
            _ => return,
        };
        self.call.merge_summary(&summary);
    }
}

impl EventStep for TranslationStep {
    fn event(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        let events = self.reader.read(event.event());
        self.write(events, out);
        Ok(())
    }

    fn finish(&mut self, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> StreamRest {
        let events = self.reader.finish(rest.as_ref().map(ParsedEvent::event));
        self.write(events, out);
        Ok(None)
    }

    /// The reply may be complete all the same.
    fn finish_truncated(&mut self, _: AbortCause, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> Rescue {
        self.finish(rest, out).map(|_| ()).map_err(AbortCause::Step)
    }

    /// Ends the stream with an error event, which every SDK raises as an exception.
    fn abort(&mut self, cause: AbortCause, _is_begun: bool, out: &mut Vec<ParsedEvent>) -> StreamEnd {
        let error = match cause {
            AbortCause::Transfer(e) => e,
            AbortCause::Step(halt) => Error::new(ErrorKind::BadResponse, halt.message),
            AbortCause::Coding(e) => {
                Error::new(ErrorKind::BadResponse, format!("the upstream's stream cannot be decoded: {e}"))
            }
            AbortCause::Framing(e) => {
                let events = self.reader.fail_stream(&e.to_string());
                self.write(events, out);
                return StreamEnd::Complete;
            }
        };
        let (mut raw, message) = (Vec::new(), format!("the upstream's stream failed: {error}"));
        self.writer.fail(&TranslatedError { status: 502, kind: "response_cut".into(), message }, &mut raw);
        self.send(&raw, out);
        StreamEnd::Complete
    }

    fn after_data(&mut self, out: &mut Vec<ParsedEvent>) -> bool {
        // What an upstream sends after its reply is of no use to the client.
        if self.writer.has_ended() {
            return true;
        }
        if out.is_empty() && self.last_output.elapsed() >= self.ping_after {
            let mut raw = Vec::new();
            self.writer.ping(&mut raw);
            self.send(&raw, out);
        }
        false
    }

    /// Nothing in trailers belongs to another format.
    fn forwards_trailers(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use interflow_llm::event_stream::StreamFraming;
    use interflow_llm::translate::{ReplyHead, WireFormat};
    use interflow_types::{Body, BodyFrame, Headers};

    use super::*;
    use crate::exchange::response::stream::rewrite;

    fn translation(upstream: WireFormat, client: WireFormat, call: LlmCall) -> TranslationStep {
        let head = ReplyHead {
            id: "flow".into(),
            model: "m".into(),
            created: interflow_types::Timestamp::from_secs(0),
            grows: false,
            stream_usage: false,
            custom_tools: Vec::new(),
            upstream,
        };
        TranslationStep::new(EventTranslator::new(upstream), ReplyWriter::new(client, head), call)
    }

    async fn rewritten(body: Body, step: TranslationStep) -> String {
        let sse = StreamFraming::Sse;
        let body = rewrite(body, &mut Headers::new(), sse, u64::MAX, step, sse).unwrap();
        let (raw, _) = body.collect(1 << 20).await.unwrap();
        String::from_utf8(raw.to_vec()).unwrap()
    }

    async fn translated(ping_after: Duration) -> String {
        let chunk = |delta: &str, reason: &str| {
            format!(
                "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n"
            )
        };
        let pieces = [
            chunk("{\"content\":\"so\"}", "null"),
            ": processing\n\n".to_owned(),
            chunk("{\"content\":\" far\"}", "\"stop\""),
            "data: [DONE]\n\n".to_owned(),
        ];
        let frames = pieces.into_iter().map(|piece| Ok(BodyFrame::Data(piece.into()))).collect();
        let step = translation(WireFormat::OpenAiChat, WireFormat::Anthropic, LlmCall::default());
        rewritten(Body::replay(frames, Body::Empty), TranslationStep { ping_after, ..step }).await
    }

    #[tokio::test]
    async fn text_in_the_event_that_reports_the_usage_is_not_counted_besides() {
        let call = LlmCall::default();
        let event = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"twenty words or more\"}]},\"finishReason\":\"STOP\"}],\
                     \"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":100}}\n\n";
        let step = translation(WireFormat::Gemini, WireFormat::OpenAiChat, call.clone());
        rewritten(Body::from(bytes::Bytes::from_static(event.as_bytes())), step).await;
        assert_eq!((call.summary().usage.unwrap().output, call.counted().unreported), (100, 0));
    }

    #[tokio::test]
    async fn a_sign_of_life_of_the_upstream_is_passed_on_after_a_silence() {
        let text = translated(Duration::ZERO).await;
        let place = |mark: &str| text.find(mark).unwrap_or_else(|| panic!("{mark} in {text}"));
        assert!(place("\"so\"") < place("event: ping") && place("event: ping") < place("\" far\""));
        assert_eq!(text.matches("event: ping").count(), 1, "{text}");
        assert!(!translated(PING_AFTER).await.contains("ping"));
    }
}
