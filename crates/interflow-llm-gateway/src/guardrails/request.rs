//! Checks requests: reads the body, runs the guardrails of input, and replaces what they mask.

use std::sync::Arc;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_llm::spans::{self, multipart};
use interflow_llm::{LlmCall, LlmRefusal};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, CollectError, Direction, EarlyExit, Flow, Headers, RequestHead, StatusCode};

use super::evaluate::{BackgroundCheck, CheckJob, blocked_refusal};
use super::record::GuardrailRecord;
use super::settings::{ActiveGuards, Guard};
use super::texts::{GuardText, body_edits, texts_of_form, texts_of_json};
use super::{GuardrailService, GuardrailState};
use crate::exchange::response::event_rewriter::splice;
use crate::redaction::{overloaded, replace_request_body, request_identity_encoding, undecodable};

/// A body's texts, decoded, with the memory that they take.
struct ReadBody {
    plain: Bytes,
    texts: Arc<Vec<GuardText>>,
    held: Arc<MemoryReservation>,
}

/// The stage's step in phase `RequestBody`.
pub(super) async fn check(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    head: &mut RequestHead,
    call: LlmCall,
    body: Body,
) -> Result<Body, EarlyExit> {
    let active = service.settings.load().for_flow(flow, &call);
    if !active.output.is_empty() {
        request_identity_encoding(head);
    }
    flow.extension_mut::<GuardrailState>().active = active.clone();
    let ActiveGuards { input: guards, facts, max_body, .. } = active;
    if guards.is_empty() || body.is_empty() {
        return Ok(body);
    }
    let strict = guards.iter().any(|g| g.is_strict());
    let raw = match body.collect(max_body).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
        Err(CollectError::TooLarge(body)) if !strict => {
            flow.tag("guardrail:unread");
            return Ok(body);
        }
        Err(CollectError::TooLarge(_)) => {
            let message =
                format!("the body is larger than {max_body} bytes (llm.max_body), so that it cannot be checked");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            let refusal = LlmRefusal::new(status, "payload_too_large", "request_body_too_large", message);
            return Err(service.refuse(flow, &refusal));
        }
    };
    let read = match read_body(&head.headers, &raw, max_body).await {
        Ok(read) => read,
        Err(refusal) if strict => return Err(service.refuse(flow, &refusal)),
        Err(_) => {
            flow.tag("guardrail:unread");
            return Ok(raw.into());
        }
    };
    let (texts, held) = (Arc::clone(&read.texts), Arc::clone(&read.held));
    let job = CheckJob { direction: Direction::Request, facts, texts, _held: held };
    // What only flags and asks a service does not keep the request waiting.
    let (later, now): (Vec<Arc<Guard>>, Vec<_>) =
        guards.iter().cloned().partition(|g| g.check.is_remote() && !g.is_strict());
    if !later.is_empty() {
        let (record, job) = (GuardrailRecord::of(flow), job.clone());
        flow.defer(BackgroundCheck::start(Arc::clone(service), later, record, async { Some(job) }));
    }
    let outcomes = job.run(service, &now).await;
    let edits = job.act(service, flow, head, outcomes).await?;
    if edits.is_empty() {
        return Ok(raw.into());
    }
    match body_edits(&read.plain, &read.texts, edits) {
        Ok(edits) => {
            flow.extension_mut::<GuardrailState>().masked = true;
            Ok(replace_request_body(head, splice(&read.plain, &edits)))
        }
        Err(_) => {
            let refusal = unmaskable(&now, Direction::Request);
            Err(service.refuse(flow, &refusal))
        }
    }
}

/// What was found cannot be replaced without breaking the JSON of a tool call: it is blocked.
pub(super) fn unmaskable(guards: &[Arc<Guard>], direction: Direction) -> LlmRefusal {
    let what = "what was found in a tool call cannot be masked without breaking its JSON";
    match guards.iter().find(|g| g.is_strict()) {
        Some(guard) => blocked_refusal(guard, direction, what),
        None => LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "guardrail_blocked", what),
    }
}

async fn read_body(headers: &Headers, raw: &Bytes, max: usize) -> Result<ReadBody, LlmRefusal> {
    let plain = coding::decode_off_thread(headers, raw, max as u64).await.map_err(undecodable)?;
    let plain = plain.unwrap_or_else(|| raw.clone());
    // The texts are copies.
    let held = PROCESS_BUDGET.reserve(plain.len() as u64).map_err(|e| overloaded(&e))?;
    let boundary = multipart::boundary(headers.get_str("content-type").unwrap_or_default());
    let body = plain.clone();
    let read = move || match boundary {
        Some(boundary) => match multipart::parse(&body, &boundary) {
            Ok(form) => Ok(texts_of_form(&body, &form)),
            Err(e) => Err(bad_request("bad_form", e.to_string())),
        },
        None => match spans::mark_body(&body, true) {
            Ok(marked) => Ok(texts_of_json(&body, &marked)),
            Err(spans::MarkError::Overloaded(e)) => Err(overloaded(&e)),
            Err(spans::MarkError::Json(e)) => Err(bad_request("bad_json", format!("the body cannot be read: {e}"))),
        },
    };
    let broken = || bad_request("bad_json", "the work on the body was cut short".to_owned());
    let texts = spans::beside(plain.len(), read).await.ok_or_else(broken)??;
    Ok(ReadBody { plain, texts: Arc::new(texts), held: Arc::new(held) })
}

fn bad_request(code: &'static str, message: String) -> LlmRefusal {
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request", code, message)
}
