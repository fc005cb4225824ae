//! The step of a response's stream that rewrites its texts.

use interflow_llm::event_stream::{StreamEvent, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::{LlmCall, LlmRefusal, Operation, Provider};
use interflow_types::{Body, Error, ErrorKind, Flow, FlowId, ResponseHead};

use super::abort::StreamAbort;
use super::event_rewriter::{EventRewriter, TextRewriter};
use super::stream::{self, AbortCause, EventStep, StreamEnd};
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

    fn finish(
        &mut self,
        rest: Option<ParsedEvent>,
        out: &mut Vec<ParsedEvent>,
    ) -> Result<Option<ParsedEvent>, StreamAbort> {
        self.rewriter.finish(rest, out)
    }

    /// Tells the client why the stream is cut off: with an error event in the provider's format.
    fn abort(&mut self, cause: AbortCause, is_begun: bool, out: &mut Vec<ParsedEvent>) -> StreamEnd {
        let context = &self.context;
        let (halt, failure) = match cause.into_abort() {
            // The previous stage has already notified the client.
            Err(e) if context.passing.is_cut() => return StreamEnd::Failed(e),
            Err(e) => (StreamAbort::new("response_cut", format!("the provider's stream failed: {e}")), Some(e)),
            Ok(halt) => (halt, None),
        };
        let refusal = halt.refusal();
        let mut raw = match (context.operation, context.framing) {
            (Operation::Responses, StreamFraming::Sse) => refusal.to_responses_event(self.events),
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
