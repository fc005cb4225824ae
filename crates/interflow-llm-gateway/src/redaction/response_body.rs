//! Responses: scanned if configured, and restored to their originals; buffered ones as a whole, streams event by
//! event.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_llm::LlmRefusal;
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::{MarkedText, SpanKind};
use interflow_llm::translate::WireFormat;
use interflow_redact::{OutboundMode, SharedSession};
use interflow_types::{Body, EarlyExit, Flow, ResponseHead, Result};

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::{ByteReplacement, TextRewriter, span_text, splice};
use crate::exchange::response::rewrite_step::ResponseScanContext;
use crate::exchange::response::whole::{WholeResponse, replace_body};
use crate::llm_telemetry::ResponseFindings;

use super::RedactionService;
use super::effective_policy::EffectivePolicy;
use super::request_body::json_spans;
use super::rewriters::{RestoreRewriter, ScanRewriter};

/// Restores originals for the client. An error here never reveals anything: the placeholders stay.
pub(crate) async fn restore(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    session: SharedSession,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let max_body = service.settings().max_body as u64;
    let (answer, body) = ResponseScanContext::for_response(flow, head, body, max_body).await;
    let Some(answer) = answer else { return Ok(body) };
    let passing = flow.extension_mut::<ResponseFindings>().clone();
    let mut rewriter = RestoreRewriter::new(session, may_be_signed(flow), passing);
    if answer.framing() != StreamFraming::Whole {
        return answer.rewrite_stream(head, body, rewriter).map_err(|r| service.refuse(flow, &r));
    }
    let mut whole = match WholeResponse::read(flow, head, body, (service.settings().max_body, false)).await? {
        Ok(whole) => whole,
        // A response that cannot be read keeps its placeholders: that reveals nothing.
        Err(unread) => {
            flow.tag("restore:unread");
            return Ok(unread.into_body());
        }
    };
    let restored = match whole.marked_unless_text(head, false).await.unwrap_or_default() {
        Some(marked) => restore_json(&mut rewriter, whole.plain(), &marked),
        // A body that is not JSON is plain text.
        None => {
            let text = std::str::from_utf8(whole.plain()).unwrap_or_default();
            rewriter.rewrite_plain(text).unwrap_or_default().map(String::into_bytes)
        }
    };
    Ok(restored.map_or_else(|| whole.into_raw(), |restored| replace_body(head, restored)))
}

/// Scans for personal data and secrets. With `flag`, the response is forwarded whatever happens; otherwise a response
/// that cannot be inspected is rejected.
pub(crate) async fn scan(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    choice: Arc<EffectivePolicy>,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let max_body = service.settings().max_body as u64;
    let (answer, body) = ResponseScanContext::for_response(flow, head, body, max_body).await;
    let Some(answer) = answer else { return Ok(body) };
    let passing = flow.extension_mut::<ResponseFindings>().clone();
    let mut rewriter = ScanRewriter::new(Arc::clone(service), &choice, may_be_signed(flow), passing.clone());
    if answer.framing() != StreamFraming::Whole {
        return answer.rewrite_stream(head, body, rewriter).map_err(|r| service.refuse(flow, &r));
    }
    let strict = choice.outbound != OutboundMode::Flag;
    let how = (service.settings().max_body, "redact.max_body", strict);
    let refuse = |flow: &mut Flow, refusal: &LlmRefusal| service.refuse(flow, refusal);
    let mut whole = match WholeResponse::read_or(flow, head, body, how, refuse).await? {
        Ok(whole) => whole,
        Err(body) => {
            passing.mark_unread("redact:unread");
            return Ok(body);
        }
    };
    let marked = whole.marked_unless_text(head, strict).await;
    let begun = Instant::now();
    let looked = scan_whole(&mut rewriter, &choice, head, whole.plain(), marked);
    passing.add_scan_time(begun.elapsed().as_micros() as u64);
    match looked {
        Ok(Some(output)) if strict => Ok(replace_body(head, output)),
        Err(halt) if strict => Err(service.refuse(flow, &halt.refusal())),
        looked => {
            if looked.is_err() {
                passing.mark_unread("redact:unread");
            }
            Ok(whole.keep(flow))
        }
    }
}

/// Scans a buffered response; returns its replacement, if any. `None` also means that nothing was found.
fn scan_whole(
    rewriter: &mut ScanRewriter,
    choice: &EffectivePolicy,
    head: &ResponseHead,
    body: &Bytes,
    marked: Result<Option<Arc<MarkedText>>, StreamAbort>,
) -> Result<Option<Vec<u8>>, StreamAbort> {
    // One-way: what a response contains is replaced for good, since the client never had the original.
    let mut session = interflow_redact::RedactionSession::one_way().in_context(choice.context.clone());
    let marked = match marked {
        Ok(Some(marked)) => marked,
        Err(halt) if head.status.is_success() => return Err(halt),
        // Errors may be plain text whatever their media type.
        Err(_) | Ok(None) => {
            let text = std::str::from_utf8(body).map_err(|e| StreamAbort::unreadable(&e))?;
            return Ok(rewriter.rewrite_plain(text)?.map(String::into_bytes));
        }
    };
    let mut marked = MarkedText { spans: marked.spans.clone(), ..MarkedText::default() };
    match choice.outbound {
        // The client sends it back later, and the provider rejects it if its signature does not match.
        OutboundMode::Redact => marked.spans.retain(|span| span.kind != SpanKind::Signed),
        // Blocking and flagging change nothing, so signed text can be scanned too.
        _ => marked.spans.iter_mut().filter(|s| s.kind == SpanKind::Signed).for_each(|s| s.kind = SpanKind::Text),
    }
    let spans = json_spans(body, &marked);
    let redaction = choice.redactor.redact_spans(body, spans, &mut session).map_err(|e| StreamAbort::unreadable(&e))?;
    rewriter.record_findings(&redaction.spans)?;
    Ok(redaction.output)
}

/// Whether the provider may have signed the thoughts in a response: the events of a stream do not tell. By the flow's own tag,
/// since a provider must not decide which texts it gets back unredacted.
fn may_be_signed(flow: &Flow) -> bool {
    let translated = flow.tags.iter().find_map(|tag| WireFormat::from_name(tag.strip_prefix("translated:")?));
    translated.is_none_or(WireFormat::signs_thoughts)
}

/// Restores every text of a JSON response.
fn restore_json(rewriter: &mut RestoreRewriter, body: &[u8], marked: &MarkedText) -> Option<Vec<u8>> {
    let mut edits: Vec<ByteReplacement> = Vec::new();
    for span in &marked.spans {
        let Some(raw) = span_text(body, span) else { continue };
        if let Ok(Some(with)) = rewriter.rewrite_whole(raw, &span.kind) {
            edits.push((span.range.clone(), with));
        }
    }
    (!edits.is_empty()).then(|| splice(body, &edits))
}
