//! The stream of an upstream, translated while it is relayed.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use interflow_codec::content_coding::ContentDecoder;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result};
use tokio::time::Instant;

use interflow_llm::translate::{ChatEvent, EventTranslator, ReplyWriter, TranslatedError};
use interflow_llm::usage::OutputCounter;
use interflow_llm::{CountedOutput, LlmCall, ResponseProgress, ResponseSummary};

/// A body in the client's format, made from the upstream's.
pub(super) struct TranslatedStream {
    body: Body,
    decoder: Option<ContentDecoder>,
    reader: EventTranslator,
    writer: ReplyWriter,
    /// Counted here, since a client's format may not report usage.
    call: LlmCall,
    output: OutputCounter,
    over: bool,
    last_output: Instant,
    ping_after: Duration,
}

/// After so long without output a sign of life of the upstream becomes one for the client.
const PING_AFTER: Duration = Duration::from_secs(5);

impl TranslatedStream {
    pub fn new(
        body: Body,
        decoder: Option<ContentDecoder>,
        reader: EventTranslator,
        writer: ReplyWriter,
        call: LlmCall,
    ) -> Self {
        let (output, last_output) = (OutputCounter::default(), Instant::now());
        let stream =
            Self { body, decoder, reader, writer, call, output, over: false, last_output, ping_after: PING_AFTER };
        stream.record_count();
        stream
    }

    fn record_count(&self) {
        let (unreported, progress) = (self.output.tokens(), ResponseProgress::Partial);
        self.call.record_count(CountedOutput { unreported, progress, is_upstream: true });
    }

    fn feed(&mut self, data: &[u8]) -> Result<Vec<ChatEvent>> {
        match &mut self.decoder {
            None => Ok(self.reader.push(data)),
            Some(decoder) => {
                let plain = decoder.push(data).map_err(|e| {
                    Error::new(ErrorKind::BadResponse, format!("the upstream's stream cannot be decoded: {e}"))
                })?;
                Ok(self.reader.push(&plain))
            }
        }
    }

    /// The end of the upstream's body.
    fn finish(&mut self) -> Vec<ChatEvent> {
        let rest = self.decoder.as_mut().and_then(|decoder| decoder.finish().ok()).unwrap_or_default();
        let mut events = self.reader.push(&rest);
        events.extend(self.reader.finish());
        events
    }

    fn write(&mut self, events: Vec<ChatEvent>, out: &mut Vec<u8>) {
        for event in events {
            self.note(&event);
            self.writer.write(event, out);
        }
        self.record_count();
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
                usage: None,
            },
            _ => return,
        };
        self.call.merge_summary(&summary);
    }
}

impl BodyStream for TranslatedStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            let mut out = Vec::new();
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => match self.feed(&data) {
                    Ok(events) => self.write(events, &mut out),
                    Err(e) => self.fail(&e, &mut out),
                },
                // Nothing in trailers belongs to another format.
                Some(Ok(BodyFrame::Trailers(_))) => {}
                Some(Err(e)) => self.fail(&e, &mut out),
                None => {
                    let events = self.finish();
                    self.write(events, &mut out);
                    self.over = true;
                }
            }
            // What an upstream sends after its reply is of no use to the client.
            self.over |= self.writer.has_ended();
            if out.is_empty() && !self.over && self.last_output.elapsed() >= self.ping_after {
                self.writer.ping(&mut out);
            }
            if !out.is_empty() {
                self.last_output = Instant::now();
                return Poll::Ready(Some(Ok(BodyFrame::Data(out.into()))));
            }
        }
    }
}

impl TranslatedStream {
    /// Ends the stream with an error event, which every SDK raises as an exception.
    fn fail(&mut self, error: &Error, out: &mut Vec<u8>) {
        let message = format!("the upstream's stream failed: {error}");
        self.writer.fail(&TranslatedError { status: 502, kind: "response_cut".into(), message }, out);
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use interflow_llm::event_stream::StreamFraming;
    use interflow_llm::translate::{ReplyHead, WireFormat};

    use super::*;

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
        let head = ReplyHead {
            id: "flow".into(),
            model: "m".into(),
            created: 0,
            stream_usage: false,
            custom_tools: Vec::new(),
            upstream: WireFormat::OpenAiChat,
        };
        let reader = EventTranslator::new(WireFormat::OpenAiChat, StreamFraming::Sse);
        let writer = ReplyWriter::new(WireFormat::Anthropic, head);
        let body = Body::replay(frames, Body::Empty);
        let stream = TranslatedStream::new(body, None, reader, writer, LlmCall::default());
        let (raw, _) = Body::stream(TranslatedStream { ping_after, ..stream }).collect(1 << 20).await.unwrap();
        String::from_utf8(raw.to_vec()).unwrap()
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
