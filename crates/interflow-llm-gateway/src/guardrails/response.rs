//! Checks responses: as a whole where a guardrail needs the whole, event by event where it does not.

use std::sync::Arc;

use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::TextPlace;
use interflow_llm::{GuardrailAction, LlmRefusal};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, Direction, EarlyExit, Flow, RequestHead, ResponseHead};
use tokio::sync::oneshot;

use super::evaluate::{CheckJob, check_in_background};
use super::record::GuardrailRecord;
use super::request::unmaskable;
use super::settings::{ActiveGuards, Guard};
use super::stream::{CollectRewriter, CollectedTexts, EditRewriter, MatchRewriter, StreamedTexts};
use super::texts::{GuardText, TextEdit, body_edits, texts_of_json, whole_text};
use super::{GuardrailService, add_header};
use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::splice;
use crate::exchange::response::rewrite_step::{ResponseScanContext, rewrite_whole};
use crate::exchange::response::whole::{WholeResponse, replace_body as replace_response_body};
use crate::exchange::{BodyResult, off_worker, overloaded};
use crate::redaction::redacts_flow;

/// The guardrails of one response.
pub(crate) struct ResponseCheck<'a> {
    pub service: &'a Arc<GuardrailService>,
    pub flow: &'a mut Flow,
    pub request: &'a RequestHead,
    pub active: ActiveGuards,
}

impl ResponseCheck<'_> {
    /// The pass over a response.
    pub async fn run(mut self, head: &mut ResponseHead, body: Body) -> BodyResult {
        let max = self.active.max_body;
        let (context, body) = ResponseScanContext::for_response(self.flow, head, body, max as u64).await;
        let Some(context) = context else { return Ok(body) };
        let whole = |g: &Arc<Guard>| g.check.matcher().is_none() || g.config.action == GuardrailAction::Ask;
        let framing = context.framing();
        if framing == StreamFraming::Whole || self.active.output.iter().any(|g| g.is_strict() && whole(g)) {
            let read = match self.read_whole(head, body).await? {
                Ok(read) => read,
                Err(body) => return Ok(body),
            };
            // Memory for copies of the texts.
            let held = PROCESS_BUDGET.reserve(read.plain().len() as u64).map_err(|e| self.refuse(&overloaded(&e)))?;
            return match framing {
                StreamFraming::Whole => self.check_whole(head, read, held).await,
                _ => self.check_held_stream(framing, head, read, held).await,
            };
        }
        // The rest only flags, or finds its matches in fragments.
        let (matching, later): (Vec<_>, Vec<_>) = self.active.output.iter().cloned().partition(|g| !whole(g));
        for guard in &matching {
            self.service.counters.checked(&guard.name, Direction::Response);
        }
        let record = GuardrailRecord::of(self.flow);
        let collector = (!later.is_empty()).then(|| self.check_at_end(later));
        let rewriter = MatchRewriter::new(Arc::clone(self.service), matching, record, collector, max);
        context.rewrite_stream(head, body, rewriter).map_err(|refusal| self.refuse(&refusal))
    }

    /// A check that runs when a stream has ended; its texts are sent to where this leads.
    fn check_at_end(&mut self, guards: Vec<Arc<Guard>>) -> oneshot::Sender<CollectedTexts> {
        let (send, receive) = oneshot::channel();
        let facts = Arc::clone(&self.active.facts);
        let job = async move {
            let (texts, held): CollectedTexts = receive.await.ok()?;
            Some(CheckJob { direction: Direction::Response, facts, texts: Arc::new(texts), _held: Arc::new(held) })
        };
        check_in_background(Arc::clone(self.service), guards, self.flow, job);
        send
    }

    /// Reads a body whole; `Err` contains one that may pass unread.
    async fn read_whole(&mut self, head: &ResponseHead, body: Body) -> Result<Result<WholeResponse, Body>, EarlyExit> {
        let (service, how) = (self.service, (self.active.max_body, "llm.max_body", self.is_strict()));
        let read =
            WholeResponse::read_or(self.flow, head, body, how, |flow, refusal| service.refuse(flow, refusal)).await?;
        if read.is_err() {
            self.flow.tag("guardrail:unread");
        }
        Ok(read)
    }

    fn is_strict(&self) -> bool {
        self.active.output.iter().any(|g| g.is_strict())
    }

    fn refuse(&mut self, refusal: &LlmRefusal) -> EarlyExit {
        self.service.refuse(self.flow, refusal)
    }

    async fn check_whole(
        mut self,
        head: &mut ResponseHead,
        mut whole: WholeResponse,
        held: MemoryReservation,
    ) -> BodyResult {
        let texts = match texts_of_response(head, &mut whole, self.is_strict()).await {
            Ok(texts) => texts,
            Err(halt) if self.is_strict() => return Err(self.refuse(&halt.refusal())),
            Err(_) => {
                self.flow.tag("guardrail:unread");
                return Ok(pass_on(self.flow, whole));
            }
        };
        let texts = Arc::new(texts);
        let edits = self.act(Arc::clone(&texts), held, head).await?;
        if edits.is_empty() {
            return Ok(pass_on(self.flow, whole));
        }
        let edits = body_edits(whole.plain(), &texts, edits);
        let edits = edits.map_err(|_| self.refuse(&unmaskable(&self.active.output, Direction::Response)))?;
        Ok(replace_response_body(head, splice(whole.plain(), &edits)))
    }

    /// Runs the guardrails of output over complete texts.
    async fn act(
        &mut self,
        texts: Arc<Vec<GuardText>>,
        held: MemoryReservation,
        head: &mut ResponseHead,
    ) -> Result<Vec<TextEdit>, EarlyExit> {
        let facts = Arc::clone(&self.active.facts);
        let job = CheckJob { direction: Direction::Response, facts, texts, _held: Arc::new(held) };
        let edits = job.act(self.service, self.flow, self.request, &self.active.output).await?;
        head.headers.remove(super::HEADER);
        add_header(self.flow, &mut head.headers);
        Ok(edits)
    }

    /// A stream that is held until all of it was checked: a guardrail that blocks, masks or asks needs the whole.
    async fn check_held_stream(
        mut self,
        framing: StreamFraming,
        head: &mut ResponseHead,
        whole: WholeResponse,
        held: MemoryReservation,
    ) -> BodyResult {
        let collected = StreamedTexts::default();
        // The stream as it was, but for the tokens with their probabilities.
        let plain = rewrite_whole(framing, [&whole.plain()[..]], CollectRewriter::new(collected.clone()))
            .map_err(|halt| self.refuse(&halt.refusal()))?;
        let texts = Arc::new(collected.take());
        let edits = self.act(texts, held, head).await?;
        if edits.is_empty() && plain == *whole.plain() {
            return Ok(whole.into_raw());
        }
        let edited = rewrite_whole(framing, [&plain[..]], EditRewriter::new(edits));
        edited.map(|out| replace_response_body(head, out)).map_err(|halt| self.refuse(&halt.refusal()))
    }
}

/// The body unchanged. What was read of it is kept for the stage that restores originals, if there is one.
fn pass_on(flow: &mut Flow, whole: WholeResponse) -> Body {
    if redacts_flow(flow).is_some() { whole.keep(flow) } else { whole.into_raw() }
}

async fn texts_of_response(
    head: &mut ResponseHead,
    whole: &mut WholeResponse,
    is_strict: bool,
) -> Result<Vec<GuardText>, StreamAbort> {
    let Some(marked) = whole.marked_unless_text(head, is_strict).await? else {
        return Ok(vec![whole_text(&String::from_utf8_lossy(whole.plain()), TextPlace::Assistant)]);
    };
    let plain = whole.plain().clone();
    let texts = off_worker(plain.len(), move || texts_of_json(&plain, &marked)).await;
    texts.ok_or_else(|| StreamAbort::unreadable(&"the work on the body was cut short"))
}
