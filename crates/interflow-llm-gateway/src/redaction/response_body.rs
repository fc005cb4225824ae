//! Responses: scanned if configured, and restored to their originals; buffered ones as a whole, streams event by
//! event.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans;
use interflow_llm::spans::SpanKind;
use interflow_redact::OutboundMode;
use interflow_types::{Body, CollectError, EarlyExit, Flow, ResponseHead, Result};

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::{ByteReplacement, TextRewriter, span_text, splice};
use crate::exchange::response::rewrite_step::ResponseScanContext;
use crate::llm_telemetry::ResponseFindings;

use super::effective_policy::EffectivePolicy;
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
    if answer.framing() != StreamFraming::Whole {
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
    if answer.framing() != StreamFraming::Whole {
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
            return Err(service.refuse(flow, &halt.refusal()));
        }
    };
    let begun = Instant::now();
    let looked = match coding::decode_off_thread(&head.headers, &raw, max as u64).await {
        Ok(plain) => scan_whole(&mut rewriter, &choice, head, plain.as_ref().unwrap_or(&raw)),
        Err(e) => Err(StreamAbort::unreadable(&e)),
    };
    passing.add_scan_time(begun.elapsed().as_micros() as u64);
    match looked {
        Ok(Some(output)) if strict => Ok(replace_body(head, output)),
        Err(halt) if strict => Err(service.refuse(flow, &halt.refusal())),
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
        let text = std::str::from_utf8(body).map_err(|e| StreamAbort::unreadable(&e))?;
        let redaction = choice.redactor.redact_text(text, &mut session).map_err(|e| StreamAbort::unreadable(&e))?;
        rewriter.record_findings(&redaction.spans)?;
        return Ok(redaction.output.map(String::into_bytes));
    }
    let mut marked = spans::mark_body(body, true).map_err(|e| StreamAbort::unreadable(&e))?;
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
