//! The step of a response's stream that rewrites its texts.

use interflow_llm::event_stream::{StreamEvent, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::{LlmCall, LlmRefusal, Operation, Provider};
use interflow_types::{Body, Error, ErrorKind, Flow, FlowId, ResponseHead};

use super::abort::StreamAbort;
use super::event_rewriter::{EventRewriter, TextRewriter};
use super::stream::{self, AbortCause, EventStep, StreamEnd, StreamRest};
use crate::llm_telemetry::ResponseFindings;

/// What is to be known of a response whose texts are scanned or rewritten, taken from the flow before its body is processed.
pub(crate) struct ResponseScanContext {
    framing: StreamFraming,
    provider: Provider,
    operation: Operation,
    flow: FlowId,
    max: u64,
    passing: ResponseFindings,
}

impl ResponseScanContext {
    /// `None` beside the body if it has no text: audio, an image, or another file that is not JSON. A model's reply has text,
    /// whatever its media type says.
    pub async fn for_response(flow: &mut Flow, head: &ResponseHead, body: Body, max: u64) -> (Option<Self>, Body) {
        let Some(call) = flow.extension::<LlmCall>() else { return (None, body) };
        let (provider, operation, form) = (call.provider, call.operation, call.response_form());
        let (body, framing, is_json) = stream::sniff(body, &head.headers, form.framing(&head.headers)).await;
        let media_type = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
        let silent = ["audio/", "image/", "video/", "application/octet-stream", "application/pdf"];
        let is_stream = !matches!(framing, StreamFraming::Whole | StreamFraming::Lines);
        if !(form.is_reply || is_json || is_stream) && silent.iter().any(|s| media_type.starts_with(s)) {
            return (None, body);
        }
        let passing = flow.extension_mut::<ResponseFindings>().clone();
        (Some(Self { framing, provider, operation, flow: flow.id, max, passing }), body)
    }

    pub const fn framing(&self) -> StreamFraming {
        self.framing
    }

    pub fn rewrite_stream<P: TextRewriter + 'static>(
        self,
        head: &mut ResponseHead,
        body: Body,
        rewriter: P,
    ) -> Result<Body, LlmRefusal> {
        // A stream may be unlimited in length; only the expansion of each chunk is bounded.
        let (framing, max) = (self.framing, self.max.saturating_mul(64));
        let step = RewriteStep { rewriter: EventRewriter::new(framing, rewriter), context: self, events: 0 };
        stream::rewrite(body, &mut head.headers, framing, max, step, framing)
            .map_err(|e| StreamAbort::unreadable(&e).refusal())
    }
}

/// Passes a complete stream, in these pieces, through a rewriter.
pub(crate) fn rewrite_whole<'b>(
    framing: StreamFraming,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    rewriter: impl TextRewriter,
) -> Result<Vec<u8>, StreamAbort> {
    let mut rewriter = EventRewriter::new(framing, rewriter);
    let (mut events, mut out) = (Vec::new(), Vec::new());
    let rest = stream::for_each_event(framing, pieces, |event| {
        rewriter.rewrite(event, &mut events)?;
        events.drain(..).for_each(|event| out.extend_from_slice(event.raw()));
        Ok(())
    })?;
    let rest = rewriter.finish(rest, &mut events)?;
    events.into_iter().chain(rest).for_each(|event| out.extend_from_slice(event.raw()));
    Ok(out)
}

struct RewriteStep<P> {
    rewriter: EventRewriter<P>,
    context: ResponseScanContext,
    /// So many were read.
    events: u64,
}

impl<P: TextRewriter> EventStep for RewriteStep<P> {
    fn event(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        self.events += u64::from(!event.event().data.is_empty());
        self.rewriter.rewrite(event, out)
    }

    fn finish(&mut self, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> StreamRest {
        self.rewriter.finish(rest, out)
    }

    /// Tells the client why the stream is cut off: with an error event in the provider's format.
    fn abort(&mut self, cause: AbortCause, is_begun: bool, out: &mut Vec<ParsedEvent>) -> StreamEnd {
        let context = &self.context;
        // What arrived before the cut is sent, unless it is this step that cuts.
        let released = match cause {
            AbortCause::Step(_) => Ok(()),
            _ if context.passing.is_cut() => Ok(()),
            _ => self.rewriter.release(out),
        };
        let cause = released.err().map_or(cause, AbortCause::Step);
        let (halt, failure) = match cause.into_abort() {
            // The previous stage, or the provider, has already notified the client.
            Err(e) if context.passing.is_cut() => return StreamEnd::Failed(e),
            Err(e) if self.rewriter.has_failed => {
                if context.framing == StreamFraming::Array {
                    out.push(StreamEvent::separator(b"]"[..].into()).into());
                }
                return StreamEnd::Failed(e);
            }
            Err(e) => (StreamAbort::new("response_cut", format!("the provider's stream failed: {e}")), Some(e)),
            Ok(halt) => (halt, None),
        };
        let refusal = halt.refusal();
        let mut raw = match (context.operation, context.framing) {
            (Operation::Responses, StreamFraming::Sse) => refusal.to_responses_event(context.provider, self.events),
            _ => refusal.to_event(context.provider, context.framing, context.flow),
        };
        if context.framing == StreamFraming::Array {
            if !is_begun {
                // There is no element before it.
                raw.splice(..1, *b"[");
            }
            let end = raw.split_off(raw.len().saturating_sub(1));
            out.push(StreamEvent::from_raw(context.framing, raw.into()).into());
            out.push(StreamEvent::separator(end.into()).into());
        } else {
            out.push(StreamEvent::from_raw(context.framing, raw.into()).into());
        }
        context.passing.mark_cut(refusal.kind, refusal.code);
        match failure {
            Some(e) => StreamEnd::Failed(e),
            None if halt.is_by_policy() => StreamEnd::Complete,
            None => {
                let why = format!("the response was cut off: {}", halt.message);
                StreamEnd::Failed(Error::new(ErrorKind::BadResponse, why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use interflow_llm::spans::SpanKind;
    use interflow_types::{BodyFrame, Headers};

    use super::*;

    /// Holds back each text until its end.
    #[derive(Default)]
    struct Holder(std::collections::HashMap<u64, String>);

    impl TextRewriter for Holder {
        fn rewrite_whole(&mut self, _: &str, _: &SpanKind) -> Result<Option<String>, StreamAbort> {
            Ok(None)
        }

        fn rewrite_piece(&mut self, id: u64, raw: &str, _: &SpanKind) -> Result<Option<String>, StreamAbort> {
            self.0.entry(id).or_default().push_str(raw);
            Ok(Some(String::new()))
        }

        fn finish(&mut self, id: u64, out: &mut String) -> Result<(), StreamAbort> {
            let text = self.0.remove(&id).unwrap_or_default();
            match text.as_str() {
                "open" => Err(StreamAbort::new("open_placeholder", "")),
                "secret" => Err(StreamAbort::new("outbound_blocked", "")),
                _ => {
                    out.push_str(&text);
                    Ok(())
                }
            }
        }

        fn has_buffered(&self, id: u64) -> bool {
            self.0.contains_key(&id)
        }

        fn is_strict(&self) -> bool {
            false
        }
    }

    async fn sent(framing: StreamFraming, operation: Operation, raw: &str, is_broken: bool) -> String {
        let mut frames = vec![Ok(BodyFrame::Data(Bytes::copy_from_slice(raw.as_bytes())))];
        frames.extend(is_broken.then(|| Err(Error::new(ErrorKind::UpstreamClosed, "gone"))));
        let context = ResponseScanContext {
            framing,
            provider: Provider::Gemini,
            operation,
            flow: FlowId::from_u128(1),
            max: 1 << 20,
            passing: ResponseFindings::default(),
        };
        let step = RewriteStep { rewriter: EventRewriter::new(framing, Holder::default()), context, events: 0 };
        let body = Body::replay(frames, Body::Empty);
        let mut body = stream::rewrite(body, &mut Headers::new(), framing, 1 << 20, step, framing).unwrap();
        let mut out = String::new();
        while let Some(Ok(BodyFrame::Data(data))) = body.frame().await {
            out.push_str(std::str::from_utf8(&data).unwrap());
        }
        out
    }

    #[tokio::test]
    async fn held_text_comes_before_the_one_error_of_a_stream_that_fails() {
        let error = r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#;
        for (text, fails, is_broken) in
            ["See E", "open", "secret"].iter().flat_map(|t| [(t, true, false), (t, true, true), (t, false, true)])
        {
            let chunk = format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}}}}]}}"#);
            let case = format!("{text} {fails} {is_broken}");
            let end = if is_broken { "" } else { "]" };
            let array = if fails { format!("[{chunk},\r\n{error}{end}") } else { format!("[{chunk}") };
            let out = sent(StreamFraming::Array, Operation::Chat, &array, is_broken).await;
            let all: Vec<serde_json::Value> =
                serde_json::from_str(&out).unwrap_or_else(|e| panic!("{case}: {e}: {out}"));
            let (last, before) = all.split_last().unwrap();
            assert!(last["error"].is_object() && before.iter().all(|e| e["error"].is_null()), "{case}: {out}");
            assert_eq!(last["error"]["message"] == "m", fails && *text != "secret", "{case}: {out}");
            let texts = before.iter().filter_map(|e| e["candidates"][0]["content"]["parts"][0]["text"].as_str());
            let expected = if *text == "See E" { text } else { "" };
            assert_eq!(texts.collect::<String>(), expected, "{case}: {out}");

            let sse = if fails { format!("data: {chunk}\n\ndata: {error}\n\n") } else { format!("data: {chunk}\n\n") };
            let out = sent(StreamFraming::Sse, Operation::Chat, &sse, is_broken).await;
            assert_eq!(out.matches("\"error\"").count(), 1, "{case}: {out}");
            assert_eq!(out.contains("See E\""), *text == "See E", "{case}: {out}");
            assert!(out.trim_end().lines().next_back().unwrap().contains("\"error\""), "{case}: {out}");
        }
    }

    #[tokio::test]
    async fn errors_of_interactions_have_their_form() {
        let event = "event: step.delta\ndata: {\"event_type\":\"step.delta\",\"index\":0,\"delta\":{\"type\":\"text\",\"text\":\"a\"}}\n\n";
        let out = sent(StreamFraming::Sse, Operation::Responses, event, true).await;
        let (_, error) = out.rsplit_once("event: error\ndata: ").unwrap_or_else(|| panic!("{out}"));
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(
            (&error["event_type"], &error["error"]["code"]),
            (&"error".into(), &"UNAVAILABLE".into()),
            "{error}"
        );
    }
}
