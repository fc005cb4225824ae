//! Responses: scanned if configured, and restored to their originals; buffered ones as a whole, streams event by
//! event.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::SpanKind;
use interflow_llm::{LlmCall, LlmRefusal, Provider, spans};
use interflow_redact::OutboundMode;
use interflow_types::{
    Body, BodyFrame, BodyStream, CollectError, EarlyExit, Error, ErrorKind, Flow, FlowId, ResponseHead, Result,
    StatusCode,
};

use crate::llm_telemetry::ResponseFindings;

use super::effective_policy::EffectivePolicy;
use super::event_rewriter::{ByteReplacement, EventRewriter, StreamAbort, TextRewriter, span_text, splice};
use super::request_body::json_spans;
use super::rewriters::{RestoreRewriter, ScanRewriter};
use super::{RedactionService, SharedSession};

/// Restores originals for the client. An error here never reveals anything: the placeholders stay.
pub(super) async fn restore(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    _choice: Arc<EffectivePolicy>,
    session: SharedSession,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let max_body = service.settings().max_body as u64;
    let Some(answer) = ResponseScanContext::for_response(flow, head, max_body) else { return Ok(body) };
    let mut rewriter = RestoreRewriter::new(session);
    if answer.framing != StreamFraming::Whole {
        return answer.rewrite_stream(head, body, rewriter).map_err(|r| service.refuse(flow, &r));
    }
    let max = service.settings().max_body;
    let raw = match body.collect(max).await {
        Ok((raw, _)) => raw,
        Err(CollectError::TooLarge(body)) => return Ok(body),
        Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
    };
    // A response that cannot be decoded keeps its placeholders: that reveals nothing.
    let Ok(plain) = coding::decode_off_thread(&head.headers, &raw, max as u64).await else { return Ok(raw.into()) };
    let text = plain.as_deref().unwrap_or(&raw);
    let restored = if is_text(head) { restore_text(&rewriter, text) } else { restore_json(&mut rewriter, text) };
    Ok(match restored {
        Some(restored) => replace_body(head, restored),
        None => raw.into(),
    })
}

/// Scans for personal data and secrets. With `flag`, the response is forwarded whatever happens; otherwise a response
/// that cannot be inspected is rejected.
pub(super) async fn scan(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    choice: Arc<EffectivePolicy>,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let max_body = service.settings().max_body as u64;
    let Some(answer) = ResponseScanContext::for_response(flow, head, max_body) else { return Ok(body) };
    let passing = flow.extension_mut::<ResponseFindings>().clone();
    let mut rewriter = ScanRewriter::new(Arc::clone(service), &choice, passing.clone());
    if answer.framing != StreamFraming::Whole {
        return answer.rewrite_stream(head, body, rewriter).map_err(|r| service.refuse(flow, &r));
    }
    let strict = choice.outbound != OutboundMode::Flag;
    let max = service.settings().max_body;
    let raw = match body.collect(max).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
        Err(CollectError::TooLarge(body)) if !strict => {
            passing.mark_unread();
            return Ok(body);
        }
        Err(CollectError::TooLarge(_)) => {
            let halt = StreamAbort::new(
                "response_too_large",
                format!("the response is larger than {max} bytes (redact.max_body)"),
            );
            return Err(service.refuse(flow, &abort_refusal(&halt)));
        }
    };
    let begun = Instant::now();
    let looked = match coding::decode_off_thread(&head.headers, &raw, max as u64).await {
        Ok(plain) => scan_whole(&mut rewriter, &choice, head, plain.as_ref().unwrap_or(&raw)),
        Err(e) => Err(unreadable(&e)),
    };
    passing.add_scan_time(begun.elapsed().as_micros() as u64);
    match looked {
        Ok(Some(output)) if strict => Ok(replace_body(head, output)),
        Err(halt) if strict => Err(service.refuse(flow, &abort_refusal(&halt))),
        looked => {
            if looked.is_err() {
                passing.mark_unread();
            }
            Ok(raw.into())
        }
    }
}

/// Scans a buffered response; returns its replacement, if any. `None` also means that nothing was found.
fn scan_whole(
    rewriter: &mut ScanRewriter,
    choice: &EffectivePolicy,
    head: &ResponseHead,
    body: &Bytes,
) -> Result<Option<Vec<u8>>, StreamAbort> {
    // One-way: what a response contains is replaced for good, since the client never had the original.
    let mut session = interflow_redact::RedactionSession::one_way().in_context(choice.context.clone());
    // Errors may be plain text whatever their media type.
    let error = !head.status.is_success() && spans::mark_body(body, true).is_err();
    if is_text(head) || error {
        let text = std::str::from_utf8(body).map_err(|e| unreadable(&e))?;
        let redaction = choice.redactor.redact_text(text, &mut session).map_err(|e| unreadable(&e))?;
        rewriter.record_findings(&redaction.spans)?;
        return Ok(redaction.output.map(String::into_bytes));
    }
    let mut marked = spans::mark_body(body, true).map_err(|e| unreadable(&e))?;
    match choice.outbound {
        // The client sends it back later, and the provider rejects it if its signature does not match.
        OutboundMode::Redact => marked.spans.retain(|span| span.kind != SpanKind::Signed),
        // Blocking and flagging change nothing, so signed text can be scanned too.
        _ => marked.spans.iter_mut().filter(|s| s.kind == SpanKind::Signed).for_each(|s| s.kind = SpanKind::Text),
    }
    let spans = json_spans(body, &marked);
    let redaction = choice.redactor.redact_spans(body, spans, &mut session).map_err(|e| unreadable(&e))?;
    rewriter.record_findings(&redaction.spans)?;
    Ok(redaction.output)
}

pub(crate) fn unreadable(e: &dyn std::fmt::Display) -> StreamAbort {
    StreamAbort::new("response_unreadable", format!("the response cannot be inspected: {e}"))
}

/// Restores every text of a JSON response; a body that is not JSON is plain text.
fn restore_json(rewriter: &mut RestoreRewriter, body: &[u8]) -> Option<Vec<u8>> {
    let Ok(marked) = spans::mark_body(body, true) else { return restore_text(rewriter, body) };
    let mut edits: Vec<ByteReplacement> = Vec::new();
    for span in &marked.spans {
        let Some(raw) = span_text(body, span) else { continue };
        if let Ok(Some(with)) = rewriter.rewrite_whole(raw, &span.kind) {
            edits.push((span.range.clone(), with));
        }
    }
    (!edits.is_empty()).then(|| splice(body, &edits))
}

fn restore_text(rewriter: &RestoreRewriter, body: &[u8]) -> Option<Vec<u8>> {
    rewriter.restore_plain(std::str::from_utf8(body).ok()?).map(String::into_bytes)
}

/// Whether the response is plain text rather than JSON, such as a transcript (`response_format=text`).
pub(crate) fn is_text(head: &ResponseHead) -> bool {
    let media_type = head.headers.get_str("content-type").unwrap_or_default();
    media_type.trim_start().to_ascii_lowercase().starts_with("text/")
}

pub(crate) fn replace_body(head: &mut ResponseHead, output: Vec<u8>) -> Body {
    coding::strip_stale_headers(&mut head.headers);
    Body::from(Bytes::from(output))
}

/// Blocked by policy is the operator's decision (403); everything else is a fault of the response (502).
pub(crate) fn abort_refusal(halt: &StreamAbort) -> LlmRefusal {
    let (status, class) = match halt.code {
        "outbound_blocked" => (StatusCode::FORBIDDEN, "pii_blocked"),
        "guardrail_blocked" => (StatusCode::BAD_REQUEST, "invalid_request_error"),
        _ => (StatusCode::BAD_GATEWAY, "provider_error"),
    };
    LlmRefusal::new(status, class, halt.code, halt.message.clone())
}

/// Context of a response to be scanned, taken from the flow before its body is processed.
pub(crate) struct ResponseScanContext {
    framing: StreamFraming,
    provider: Provider,
    flow: FlowId,
    max: u64,
    passing: ResponseFindings,
}

impl ResponseScanContext {
    /// `None` if it has no text: audio, an image, or another binary type.
    pub fn for_response(flow: &mut Flow, head: &ResponseHead, max: u64) -> Option<Self> {
        let media_type = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
        let silent = ["audio/", "image/", "video/", "application/octet-stream", "application/pdf"];
        if silent.iter().any(|s| media_type.starts_with(s)) {
            return None;
        }
        let exchange = flow.extension::<LlmCall>()?;
        let (framing, provider) = (StreamFraming::from_headers(&head.headers, exchange.grows), exchange.provider);
        let passing = flow.extension_mut::<ResponseFindings>().clone();
        Some(Self { framing, provider, flow: flow.id, max, passing })
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
        let decoder = ContentDecoder::new(&head.headers, self.max.saturating_mul(64)).map_err(|e| {
            abort_refusal(&StreamAbort::new("response_unreadable", format!("the response cannot be inspected: {e}")))
        })?;
        // The rewritten stream is sent without a content coding and without a length.
        coding::strip_stale_headers(&mut head.headers);
        let editor = EventRewriter::new(self.framing, rewriter);
        Ok(Body::stream(RewrittenBody {
            body,
            decoder,
            editor,
            answer: self,
            begun: false,
            state: RewrittenBodyState::Running,
        }))
    }
}

enum RewrittenBodyState {
    Running,
    /// The last bytes were sent; then the stream fails, so that the client does not take it for complete.
    Failed(Error),
    Over,
}

/// A stream that is rewritten as it is forwarded. Not more than one event and the held-back ends of texts are
/// buffered.
struct RewrittenBody<P> {
    body: Body,
    decoder: Option<ContentDecoder>,
    editor: EventRewriter<P>,
    answer: ResponseScanContext,
    /// Part of the response was already sent. An error event then has to fit into what the client has received.
    begun: bool,
    state: RewrittenBodyState,
}

impl<P: TextRewriter> RewrittenBody<P> {
    fn feed(&mut self, data: &Bytes, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        match &mut self.decoder {
            None => self.editor.feed(data, out),
            Some(decoder) => {
                let plain = decoder.push(data).map_err(|e| StreamAbort::new("response_unreadable", e.to_string()))?;
                self.editor.feed(&plain, out)
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        if let Some(decoder) = &mut self.decoder {
            let plain = decoder.finish().map_err(|e| StreamAbort::new("response_unreadable", e.to_string()))?;
            self.editor.feed(&plain, out)?;
        }
        self.editor.finish(out)
    }

    /// Tells the client why the stream is cut off: with an error event in the provider's format.
    fn abort_stream(&mut self, halt: &StreamAbort, out: &mut Vec<u8>) {
        let refusal = abort_refusal(halt);
        let mut event = refusal.to_event(self.answer.provider, self.answer.framing, self.answer.flow);
        if self.answer.framing == StreamFraming::Array && !self.begun && out.is_empty() {
            // There is no element before it.
            event.splice(..1, *b"[");
        }
        out.extend(event);
        self.answer.passing.mark_cut(refusal.kind, refusal.code);
        self.state = match halt.code {
            // Configured by the operator, and a proper end of the stream; nothing follows.
            "outbound_blocked" | "guardrail_blocked" => RewrittenBodyState::Over,
            _ => RewrittenBodyState::Failed(Error::new(
                ErrorKind::BadResponse,
                format!("the response was cut off: {}", halt.message),
            )),
        };
    }
}

impl<P: TextRewriter> BodyStream for RewrittenBody<P> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            // Over, unless a branch below says otherwise: a stream that was polled after its end must not be read
            // again.
            match std::mem::replace(&mut self.state, RewrittenBodyState::Over) {
                RewrittenBodyState::Over => return Poll::Ready(None),
                RewrittenBodyState::Failed(e) => return Poll::Ready(Some(Err(e))),
                RewrittenBodyState::Running => self.state = RewrittenBodyState::Running,
            }
            let mut out = Vec::new();
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => {
                    if let Err(halt) = self.feed(&data, &mut out) {
                        self.abort_stream(&halt, &mut out);
                    }
                }
                // The previous stage has already notified the client.
                Some(Err(e)) if self.answer.passing.is_cut() => return Poll::Ready(Some(Err(e))),
                Some(Err(e)) => {
                    let halt = StreamAbort::new("response_cut", format!("the provider's stream failed: {e}"));
                    self.abort_stream(&halt, &mut out);
                    self.state = RewrittenBodyState::Failed(e);
                }
                None => {
                    self.state = RewrittenBodyState::Over;
                    if let Err(halt) = self.finish(&mut out) {
                        self.abort_stream(&halt, &mut out);
                    }
                }
                Some(other) => return Poll::Ready(Some(other)),
            }
            // A chunk may yield no output, while its event is incomplete: then the next one is awaited.
            if !out.is_empty() {
                self.begun = true;
                return Poll::Ready(Some(Ok(BodyFrame::Data(out.into()))));
            }
        }
    }
}
