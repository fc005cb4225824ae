//! Checks responses: as a whole where a guardrail needs the whole, event by event where it does not.

use std::sync::Arc;

use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::TextPlace;
use interflow_llm::{GuardrailAction, LlmRefusal};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, Direction, EarlyExit, Flow, RequestHead, ResponseHead, StatusCode};
use tokio::sync::oneshot;

use super::evaluate::{BackgroundCheck, CheckJob};
use super::record::GuardrailRecord;
use super::request::unmaskable;
use super::settings::{ActiveGuards, Guard};
use super::stream::{CollectRewriter, CollectedTexts, EditRewriter, MatchRewriter, StreamedTexts};
use super::texts::{GuardText, TextEdit, body_edits, texts_of_json, whole_text};
use super::{GuardrailService, add_header};
use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::splice;
use crate::exchange::response::rewrite_step::{ResponseScanContext, rewrite_whole};
use crate::exchange::response::whole::{UnreadResponse, WholeResponse, replace_body as replace_response_body};
use crate::exchange::{off_worker, overloaded};
use crate::redaction::redacts_flow;

/// The stage's step in phase `ResponseBody`.
pub(super) async fn check(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    request: &RequestHead,
    active: ActiveGuards,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let max = active.max_body;
    let (context, body) = ResponseScanContext::for_response(flow, head, body, max as u64).await;
    let Some(context) = context else { return Ok(body) };
    if context.framing() == StreamFraming::Whole {
        return check_whole(service, flow, request, &active, head, body).await;
    }
    let whole = |g: &Arc<Guard>| g.check.matcher().is_none() || g.config.action == GuardrailAction::Ask;
    if active.output.iter().any(|g| g.is_strict() && whole(g)) {
        return check_held_stream(service, flow, request, &active, context.framing(), head, body).await;
    }
    // The rest only flags, or finds its matches in fragments.
    let (matching, later): (Vec<_>, Vec<_>) = active.output.iter().cloned().partition(|g| !whole(g));
    for guard in &matching {
        service.counters.checked(&guard.name, Direction::Response);
    }
    let record = GuardrailRecord::of(flow);
    let collector = (!later.is_empty()).then(|| check_at_end(service, flow, &active, later));
    let rewriter = MatchRewriter::new(Arc::clone(service), matching, record, collector, max);
    context.rewrite_stream(head, body, rewriter).map_err(|refusal| service.refuse(flow, &refusal))
}

/// A check that runs when a stream has ended; its texts are sent to where this leads.
fn check_at_end(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    active: &ActiveGuards,
    guards: Vec<Arc<Guard>>,
) -> oneshot::Sender<CollectedTexts> {
    let (send, receive) = oneshot::channel();
    let (facts, record) = (Arc::clone(&active.facts), GuardrailRecord::of(flow));
    let job = async move {
        let (texts, held): CollectedTexts = receive.await.ok()?;
        Some(CheckJob { direction: Direction::Response, facts, texts: Arc::new(texts), _held: Arc::new(held) })
    };
    flow.defer(BackgroundCheck::start(Arc::clone(service), guards, record, job));
    send
}

/// Reads a body whole; `Err` contains one that may pass unread.
async fn read_whole(
    service: &GuardrailService,
    flow: &mut Flow,
    active: &ActiveGuards,
    head: &ResponseHead,
    body: Body,
) -> Result<Result<WholeResponse, Body>, EarlyExit> {
    let max = active.max_body;
    let strict = active.output.iter().any(|g| g.is_strict());
    match WholeResponse::read(flow, head, body, max).await? {
        Ok(whole) => Ok(Ok(whole)),
        Err(UnreadResponse::TooLarge(_)) if strict => {
            let message =
                format!("the response is larger than {max} bytes (llm.max_body), so that it cannot be checked");
            let refusal = LlmRefusal::new(StatusCode::BAD_GATEWAY, "provider_error", "response_too_large", message);
            Err(service.refuse(flow, &refusal))
        }
        Err(UnreadResponse::Undecodable(_, e)) if strict => {
            Err(service.refuse(flow, &StreamAbort::unreadable(&e).refusal()))
        }
        Err(unread) => {
            flow.tag("guardrail:unread");
            Ok(Err(unread.into_body()))
        }
    }
}

async fn check_whole(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    request: &RequestHead,
    active: &ActiveGuards,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let mut whole = match read_whole(service, flow, active, head, body).await? {
        Ok(whole) => whole,
        Err(body) => return Ok(body),
    };
    let plain = whole.plain().clone();
    // The texts are copies.
    let held = PROCESS_BUDGET.reserve(plain.len() as u64).map_err(|e| service.refuse(flow, &overloaded(&e)))?;
    let texts = match texts_of_response(head, &mut whole).await {
        Ok(texts) => texts,
        Err(halt) if active.output.iter().any(|g| g.is_strict()) => {
            return Err(service.refuse(flow, &halt.refusal()));
        }
        Err(_) => {
            flow.tag("guardrail:unread");
            return Ok(pass_on(flow, whole));
        }
    };
    let texts = Arc::new(texts);
    let edits = run(service, flow, request, active, Arc::clone(&texts), held).await?;
    add_output_header(flow, head);
    if edits.is_empty() {
        return Ok(pass_on(flow, whole));
    }
    match body_edits(&plain, &texts, edits) {
        Ok(edits) => Ok(replace_response_body(head, splice(&plain, &edits))),
        Err(_) => Err(service.refuse(flow, &unmaskable(&active.output, Direction::Response))),
    }
}

/// The body unchanged. What was read of it is kept for the stage that restores originals, if there is one.
fn pass_on(flow: &mut Flow, whole: WholeResponse) -> Body {
    if redacts_flow(flow).is_some() { whole.keep(flow) } else { whole.into_raw() }
}

async fn texts_of_response(head: &ResponseHead, whole: &mut WholeResponse) -> Result<Vec<GuardText>, StreamAbort> {
    let Some(marked) = whole.marked_unless_text(head).await? else {
        return Ok(vec![whole_text(&String::from_utf8_lossy(whole.plain()), TextPlace::Assistant)]);
    };
    let plain = whole.plain().clone();
    let texts = off_worker(plain.len(), move || texts_of_json(&plain, &marked)).await;
    texts.ok_or_else(|| StreamAbort::unreadable(&"the work on the body was cut short"))
}

/// Runs the guardrails of output over complete texts. Those that only flag and ask a service run beside.
async fn run(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    request: &RequestHead,
    active: &ActiveGuards,
    texts: Arc<Vec<GuardText>>,
    held: MemoryReservation,
) -> Result<Vec<TextEdit>, EarlyExit> {
    let (facts, held) = (Arc::clone(&active.facts), Arc::new(held));
    let job = CheckJob { direction: Direction::Response, facts, texts, _held: held };
    let (later, now): (Vec<_>, Vec<_>) =
        active.output.iter().cloned().partition(|g| g.check.is_remote() && !g.is_strict());
    if !later.is_empty() {
        let (record, job) = (GuardrailRecord::of(flow), job.clone());
        flow.defer(BackgroundCheck::start(Arc::clone(service), later, record, async { Some(job) }));
    }
    let outcomes = job.run(service, &now).await;
    job.act(service, flow, request, outcomes).await
}

fn add_output_header(flow: &Flow, head: &mut ResponseHead) {
    head.headers.remove(super::HEADER);
    add_header(flow, &mut head.headers);
}

/// A stream that is held until all of it was checked: a guardrail that blocks, masks or asks needs the whole.
async fn check_held_stream(
    service: &Arc<GuardrailService>,
    flow: &mut Flow,
    request: &RequestHead,
    active: &ActiveGuards,
    framing: StreamFraming,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let whole = match read_whole(service, flow, active, head, body).await? {
        Ok(whole) => whole,
        Err(body) => return Ok(body),
    };
    let plain = whole.plain().clone();
    let held = PROCESS_BUDGET.reserve(plain.len() as u64).map_err(|e| service.refuse(flow, &overloaded(&e)))?;
    let collected = StreamedTexts::default();
    rewrite_whole(framing, [&plain[..]], CollectRewriter::new(collected.clone()))
        .map_err(|halt| service.refuse(flow, &halt.refusal()))?;
    let texts = Arc::new(collected.take());
    let edits = run(service, flow, request, active, Arc::clone(&texts), held).await?;
    add_output_header(flow, head);
    if edits.is_empty() {
        return Ok(whole.into_raw());
    }
    match rewrite_whole(framing, [&plain[..]], EditRewriter::new(edits)) {
        Ok(out) => Ok(replace_response_body(head, out)),
        Err(halt) => Err(service.refuse(flow, &halt.refusal())),
    }
}
