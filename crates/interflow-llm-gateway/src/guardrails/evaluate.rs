//! Runs guardrails over the texts of a request or response, and carries out their actions.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use interflow_llm::{GuardrailAction, GuardrailFailure, LlmRefusal};
use interflow_redact::is_stop_requested;
use interflow_types::budget::MemoryReservation;
use interflow_types::{Direction, EarlyExit, Flow, MaybeFuture, RequestHead, StatusCode};

use super::GuardrailService;
use super::check::{CallFacts, CheckResult, Finding};
use super::record::{GuardrailRecord, GuardrailResult};
use super::settings::Guard;
use super::texts::{GuardText, TextEdit};
use crate::exchange::background::Background;
use crate::exchange::{for_now, off_worker};

/// Characters around a finding that the person who decides is shown.
const EXCERPT: usize = 60;

/// The texts of a request or response, and what is to be known about them.
#[derive(Clone)]
pub(super) struct CheckJob {
    pub direction: Direction,
    pub facts: Arc<CallFacts>,
    pub texts: Arc<Vec<GuardText>>,
    /// The memory of the texts, for as long as somebody looks at them.
    pub _held: Arc<MemoryReservation>,
}

/// What one guardrail found, or why it could not look.
pub(super) struct GuardOutcome {
    pub guard: Arc<Guard>,
    pub result: CheckResult,
}

/// What outcomes leave to do: people to ask, and parts of texts to replace.
pub(super) struct SettledOutcomes {
    pub asking: Vec<(Arc<Guard>, Vec<Finding>)>,
    pub edits: Vec<TextEdit>,
}

impl CheckJob {
    /// Runs these guardrails. After a local one that blocks, services are not asked any more.
    pub async fn run(&self, service: &GuardrailService, guards: &[Arc<Guard>]) -> Vec<GuardOutcome> {
        let (local, remote): (Vec<_>, Vec<_>) = guards.iter().cloned().partition(|g| !g.check.is_remote());
        for guard in guards {
            service.counters.checked(&guard.name, self.direction);
        }
        let mut outcomes = self.run_local(local).await;
        let blocks = |o: &GuardOutcome| {
            o.guard.config.action == GuardrailAction::Block && o.result.as_ref().is_ok_and(|f| !f.is_empty())
        };
        if !outcomes.iter().any(blocks) {
            let requests = remote.iter().map(|guard| self.run_remote(guard));
            outcomes.extend(join_all(requests).await);
        }
        outcomes
    }

    async fn run_local(&self, guards: Vec<Arc<Guard>>) -> Vec<GuardOutcome> {
        let size: usize = self.texts.iter().map(|t| t.text.len()).sum();
        let job = self.clone();
        let names = guards.clone();
        let work = move || guards.into_iter().map(|guard| job.check_now(guard)).collect();
        off_worker(size, work).await.unwrap_or_else(|| {
            let failed = |guard| GuardOutcome { guard, result: Err("the check was cut short".into()) };
            names.into_iter().map(failed).collect()
        })
    }

    fn check_now(&self, guard: Arc<Guard>) -> GuardOutcome {
        if is_stop_requested() {
            return GuardOutcome { guard, result: Err("the check was cancelled".into()) };
        }
        let selected = guard.select(self.direction, &self.texts);
        let result = match guard.check.check(guard.input(self.direction, &self.facts, &self.texts, &selected)) {
            MaybeFuture::Ready(result) => result,
            MaybeFuture::Pending(_) => Err("it has to wait for a service".into()),
        };
        GuardOutcome { guard, result }
    }

    async fn run_remote(&self, guard: &Arc<Guard>) -> GuardOutcome {
        let selected = guard.select(self.direction, &self.texts);
        if selected.is_empty() {
            return GuardOutcome { guard: Arc::clone(guard), result: Ok(Vec::new()) };
        }
        let input = guard.input(self.direction, &self.facts, &self.texts, &selected);
        let limit = guard.config.timeout;
        let result = tokio::time::timeout(limit.0, guard.check.check(input).resolve()).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {limit}")));
        GuardOutcome { guard: Arc::clone(guard), result }
    }

    /// Runs guardrails and carries out their actions: the parts of texts to replace, or why the request or response
    /// ends here. What only flags and asks a service runs beside. `head` is that of the request, for the person who
    /// decides.
    pub async fn act(
        self,
        service: &Arc<GuardrailService>,
        flow: &mut Flow,
        head: &RequestHead,
        guards: &[Arc<Guard>],
    ) -> Result<Vec<TextEdit>, EarlyExit> {
        let (later, now): (Vec<Arc<Guard>>, Vec<_>) =
            guards.iter().cloned().partition(|g| g.check.is_remote() && !g.is_strict());
        if !later.is_empty() {
            let job = self.clone();
            check_in_background(Arc::clone(service), later, flow, async { Some(job) });
        }
        let outcomes = self.run(service, &now).await;
        let record = GuardrailRecord::of(flow);
        let settled = self.settle(service, &record, outcomes);
        let SettledOutcomes { asking, edits } = settled.map_err(|refusal| service.refuse(flow, &refusal))?;
        for (guard, findings) in &asking {
            let decision = self.ask(service, flow, head, &record, guard, findings).await;
            decision.map_err(|refusal| service.refuse(flow, &refusal))?;
        }
        Ok(edits)
    }

    /// Records outcomes, and returns what is left to do.
    ///
    /// # Errors
    /// Something is blocked, or could not be checked.
    pub fn settle(
        &self,
        service: &GuardrailService,
        record: &GuardrailRecord,
        outcomes: Vec<GuardOutcome>,
    ) -> Result<SettledOutcomes, LlmRefusal> {
        let mut violations = Vec::new();
        let mut refused: Option<LlmRefusal> = None;
        for GuardOutcome { guard, result } in outcomes {
            match result {
                Ok(findings) if findings.is_empty() => {}
                Ok(findings) => violations.push((guard, findings)),
                Err(why) => {
                    refused = refused.or(service.fail(record, &guard, self.direction, &why));
                }
            }
        }
        for (guard, findings) in &violations {
            if guard.config.action != GuardrailAction::Ask {
                let result = GuardrailResult::of_action(guard.config.action);
                service.record(record, guard, self.direction, result, findings);
            }
        }
        let blocked = violations.iter().find(|(guard, _)| guard.config.action == GuardrailAction::Block);
        if let Some((guard, findings)) = blocked {
            refused = Some(blocked_refusal(guard, self.direction, &self.describe(findings)));
        }
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        let (asking, others): (Vec<_>, Vec<_>) =
            violations.into_iter().partition(|(guard, _)| guard.config.action == GuardrailAction::Ask);
        let masking = others.into_iter().filter(|(guard, _)| guard.config.action == GuardrailAction::Mask);
        let edits = masking.flat_map(|(guard, findings)| self.edits(&guard, findings)).collect();
        Ok(SettledOutcomes { asking, edits })
    }

    fn edits(&self, guard: &Guard, findings: Vec<Finding>) -> Vec<TextEdit> {
        let editable = |f: &Finding| self.texts.get(f.text).is_some_and(GuardText::is_editable);
        let mask = || guard.config.mask.clone();
        let edit = |f: Finding| TextEdit { text: f.text, range: f.range, with: f.replacement.unwrap_or_else(mask) };
        findings.into_iter().filter(editable).map(edit).collect()
    }

    /// Waits for a person's decision.
    ///
    /// # Errors
    /// It was denied, or nobody decided.
    pub async fn ask(
        &self,
        service: &GuardrailService,
        flow: &mut Flow,
        head: &RequestHead,
        record: &GuardrailRecord,
        guard: &Guard,
        findings: &[Finding],
    ) -> Result<(), LlmRefusal> {
        flow.tag("held");
        let side = if self.direction == Direction::Request { "request" } else { "response" };
        let what = self.describe(findings);
        let excerpt = findings.iter().max_by(|a, b| a.score.total_cmp(&b.score)).and_then(|f| self.excerpt(f));
        let excerpt = excerpt.map(|e| format!(": “{e}”")).unwrap_or_default();
        let reason = format!("guardrail {}: {what} of the {side}{excerpt}", guard.name);
        let allowed = (service.reviewer)(flow, head, reason).await;
        let result = if allowed.is_ok() { GuardrailResult::Allowed } else { GuardrailResult::Denied };
        service.record(record, guard, self.direction, result, findings);
        allowed.map_err(|why| blocked_refusal(guard, self.direction, &format!("{what}; {why}")))
    }

    /// What was found, and where: never the text itself.
    pub fn describe(&self, findings: &[Finding]) -> String {
        let Some(first) = findings.iter().max_by(|a, b| a.score.total_cmp(&b.score)) else { return String::new() };
        let place_name = self.texts.get(first.text).map_or("text", |t| t.place.as_str());
        let score = if first.score < 1.0 { format!(", score {:.2}", first.score) } else { String::new() };
        format!("{} in {}{score}", first.reason, place_name.replace('_', " "))
    }

    fn excerpt(&self, finding: &Finding) -> Option<String> {
        let text = &self.texts.get(finding.text)?.text;
        let from = text.floor_char_boundary(finding.range.start.saturating_sub(EXCERPT));
        let to = text.ceil_char_boundary((finding.range.end.min(finding.range.start + 3 * EXCERPT)) + EXCERPT);
        let part = text.get(from..to.min(text.len()))?;
        Some(part.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

/// The error for something that a guardrail blocks.
pub(super) fn blocked_refusal(guard: &Guard, direction: Direction, what: &str) -> LlmRefusal {
    let side = if direction == Direction::Request { "request" } else { "response" };
    let message = format!("the guardrail `{}` blocked the {side}: {what}", guard.name);
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "guardrail_blocked", message)
}

impl GuardrailService {
    /// Counts and records a finding.
    pub(super) fn record(
        &self,
        record: &GuardrailRecord,
        guard: &Guard,
        direction: Direction,
        result: GuardrailResult,
        findings: &[Finding],
    ) {
        let score = findings.iter().map(|f| f.score).fold(0.0, f64::max);
        let reasons = findings.iter().map(|f| f.reason.clone()).map(Cow::into_owned);
        if record.add(&guard.name, direction, result, reasons, score) {
            self.counters.found(&guard.name, direction, result);
        }
    }

    /// A check failed: the refusal, if the guardrail fails closed.
    fn fail(&self, record: &GuardrailRecord, guard: &Guard, direction: Direction, why: &str) -> Option<LlmRefusal> {
        let name = &guard.name;
        self.counters.failed(name);
        let closed = guard.is_strict() && guard.config.on_error == GuardrailFailure::Closed;
        if !closed {
            tracing::warn!("llm.guardrail.{name}: {why}; what it should check goes on unchecked");
            record.add(name, direction, GuardrailResult::Failed, None, 0.0);
            return None;
        }
        tracing::error!("llm.guardrail.{name}: {why}");
        let message = format!("the guardrail `{name}` could not check it; nothing was passed on");
        let (status, code) = (StatusCode::SERVICE_UNAVAILABLE, "guardrail_unavailable");
        Some(for_now(LlmRefusal::new(status, "capacity", code, message)))
    }

    /// Ends the flow with an error in the client's format, and counts it.
    pub(super) fn refuse(&self, flow: &mut Flow, refusal: &LlmRefusal) -> EarlyExit {
        let mut exit = crate::llm_telemetry::refuse(flow, refusal);
        if let EarlyExit::Answer(response) = &mut exit {
            super::add_header(flow, &mut response.head.headers);
        }
        exit
    }
}

/// Runs guardrails that only flag beside the flow, and records with it what they find. The texts come now or later; `None`
/// means that there is nothing to check after all.
pub(super) fn check_in_background(
    service: Arc<GuardrailService>,
    guards: Vec<Arc<Guard>>,
    flow: &mut Flow,
    job: impl Future<Output = Option<CheckJob>> + Send + 'static,
) {
    let record = GuardrailRecord::of(flow);
    let work = async move {
        let Some(job) = job.await else { return };
        for outcome in job.run(&service, &guards).await {
            match outcome.result {
                Ok(findings) if findings.is_empty() => {}
                Ok(findings) => {
                    let result = GuardrailResult::Flagged;
                    service.record(&record, &outcome.guard, job.direction, result, &findings);
                }
                Err(why) => drop(service.fail(&record, &outcome.guard, job.direction, &why)),
            }
        }
    };
    flow.defer(Background::start(work, false, |_, _| {}));
}
