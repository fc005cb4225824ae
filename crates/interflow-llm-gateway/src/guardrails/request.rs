//! Checks requests: reads the body, runs the guardrails of input, and replaces what they mask.

use std::sync::Arc;

use bytes::Bytes;
use interflow_llm::{LlmCall, LlmRefusal};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, Direction, EarlyExit, Flow, RequestHead, StatusCode};

use super::evaluate::{CheckJob, blocked_refusal};
use super::settings::{ActiveGuards, Guard};
use super::texts::{GuardText, body_edits, texts_of_form, texts_of_json};
use super::{GuardrailService, GuardrailState};
use crate::exchange::response::event_rewriter::splice;
use crate::exchange::{self, BodyShape, Pass, RequestBody, overloaded, request_identity_encoding};

/// A body's texts, unescaped, with the memory that they take.
struct ReadBody {
    request: Arc<RequestBody>,
    texts: Arc<Vec<GuardText>>,
    held: Arc<MemoryReservation>,
}

/// The pass over a request.
pub(crate) async fn check(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    head: &mut RequestHead,
    call: &LlmCall,
    body: Body,
) -> Result<Body, EarlyExit> {
    let active = service.settings.load().for_flow(flow, call);
    if !active.output.is_empty() {
        request_identity_encoding(head);
    }
    flow.extension_mut::<GuardrailState>().active = active.clone();
    let ActiveGuards { input: guards, facts, max_body, .. } = active;
    if guards.is_empty() || body.is_empty() {
        return Ok(body);
    }
    let is_strict = guards.iter().any(|g| g.is_strict());
    let pass = Pass { name: "guardrail", section: "llm", max_body, is_strict };
    let raw = match pass.collect(flow, &head.headers, body, |flow, refusal| service.refuse(flow, refusal)).await? {
        Ok(raw) => raw,
        Err(body) => return Ok(body),
    };
    let read = match read_body(flow, head, &raw, max_body).await {
        Ok(read) => read,
        Err(refusal) if is_strict => return Err(service.refuse(flow, &refusal)),
        Err(_) => {
            pass.tag_unread(flow);
            return Ok(raw.into());
        }
    };
    let (texts, held) = (Arc::clone(&read.texts), Arc::clone(&read.held));
    let job = CheckJob { direction: Direction::Request, facts, texts, _held: held };
    let edits = job.act(service, flow, head, &guards).await?;
    if edits.is_empty() {
        return Ok(raw.into());
    }
    let plain = read.request.plain();
    let masked = match body_edits(plain, &read.texts, edits) {
        Ok(edits) => {
            flow.extension_mut::<GuardrailState>().masked = true;
            exchange::replace(flow, head, splice(plain, &edits))
        }
        Err(_) => Err(unmaskable(&guards, Direction::Request)),
    };
    masked.map_err(|refusal| service.refuse(flow, &refusal))
}

/// What was found cannot be replaced, as it would break the JSON of a tool call or is in an encoded file: it is blocked.
pub(super) fn unmaskable(guards: &[Arc<Guard>], direction: Direction) -> LlmRefusal {
    let what =
        "what was found cannot be masked where it is: it is part of the JSON of a tool call, or of an encoded file";
    match guards.iter().find(|g| g.is_strict()) {
        Some(guard) => blocked_refusal(guard, direction, what),
        None => LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "guardrail_blocked", what),
    }
}

async fn read_body(flow: &mut Flow, head: &RequestHead, raw: &Bytes, max: usize) -> Result<ReadBody, LlmRefusal> {
    let request = exchange::request_body(flow, &head.headers, raw, max).await?;
    // The texts are copies.
    let held = PROCESS_BUDGET.reserve(request.plain().len() as u64).map_err(|e| overloaded(&e))?;
    let texts = request.read(move |body| {
        let content = if body.is_opaque() { body.everything()? } else { body.content_now(true)? };
        Ok(match &content.shape {
            BodyShape::Form(form) => texts_of_form(body.plain(), form)?,
            BodyShape::Json(marked) => texts_of_json(body.plain(), marked),
        })
    });
    let texts = Arc::new(texts.await?);
    Ok(ReadBody { request, texts, held: Arc::new(held) })
}
