//! The rules that can match one host, as the stage that its plan calls.

mod by_host;
mod messages;
mod originals;
mod path_variants;
mod requirements;
mod stage;

pub(crate) use by_host::RulesByHost;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_query::Tristate;
use interflow_types::{
    Body, ByteStr, Direction, EarlyExit, Error, ErrorKind, Flow, MaybeFuture, MessageVerdict, Phase, PhaseSet,
    PlanScope, RequestHead, RequestVerdict, ResponseHead, Result, Stage, StreamMessage, TunnelVerdict,
    UpstreamOverrides,
};

use crate::action::Action;
use crate::actions::{
    ActionContext, ActionEffect, PendingAction, RequestAccess, apply, capture_groups, disable_caching,
};
use crate::body::{self, BodyReadState};
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::config::OnFailure;
use crate::flow::exec_run::ExecRun;
use crate::flow::flow_state::RuleState;
use crate::flow::verdict::RuleVerdict;
use crate::matching::index::{Candidates, Prefilter, RequestIndex};
use crate::service::ServiceMessageKind;
use requirements::{
    has_side_effects, is_annotation, is_stateful, needs_earlier_request_body, needs_whole_body, runs_program,
    waits_at_end,
};

/// A rule in one phase.
#[derive(Debug)]
struct PhaseRule {
    rule: u32,
    /// Indices of its actions in this phase.
    actions: Vec<u16>,
    /// Whether one of its actions needs the whole body, so that it is buffered.
    whole: bool,
    /// Whether its condition may read the body.
    asks_body: bool,
    /// Whether its condition counts or is random, and all its actions are annotations: an intercepted tunnel leaves
    /// such a rule to the requests inside.
    left_to_requests: bool,
    /// Whether one of its actions may edit the message.
    edits: bool,
    gate: Prefilter,
}

/// The rules of one phase, in the order of the files.
#[derive(Debug, Default)]
struct PhaseRuleList {
    entries: Vec<PhaseRule>,
    /// Whether any of them may need a whole body; if not, bodies stream without asking any.
    may_want_whole: bool,
    index: Option<RequestIndex>,
}

/// Request bodies up to this size are buffered for an edit, so that they keep a `Content-Length`; longer ones are
/// streamed.
const MAX_BUFFERED_REQUEST: u64 = 1 << 20;

const PHASE_COUNT: usize = Phase::Done as usize + 1;

/// The rules that can match one host. What they need is computed once here, so that flows pay only for that.
#[derive(Debug)]
pub(crate) struct HostRules {
    by_host: Arc<RulesByHost>,
    program: Arc<RuleProgram>,
    lists: [PhaseRuleList; PHASE_COUNT],
    interest: PhaseSet,
    /// Whether later phases need the request's head, or the response's.
    keeps_request: bool,
    keeps_response: bool,
    /// Whether there are rules on messages inside bodies.
    messages: bool,
    /// Whether rules before the request annotate the flow.
    marks_at_connect: bool,
    /// Whether one of these rules has to be waited for.
    marks_wait: bool,
    /// Whether rules at the end of a flow have to be waited for.
    done_waits: bool,
    /// Whether a rule may decide before the request's head that the request is answered.
    answers_at_connect: bool,
    /// Whether services are called at the response, which also receive the request's body.
    calls: bool,
    /// Rules of later phases that read the request's body, which is kept for them.
    later_body_rules: Vec<u32>,
}

/// Position in the evaluation of a phase's rules, to continue after an operation that had to be waited for.
#[derive(Clone, Copy, Default)]
struct RuleCursor {
    entry: usize,
    action: usize,
}

enum RuleMatch {
    Yes,
    No,
    /// That depends on a program, which has not run yet.
    Run(Box<ExecRun>),
}

impl From<bool> for RuleMatch {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

enum WalkResult {
    Done(RuleVerdict),
    Wait(RuleCursor, PendingAction),
}

impl HostRules {
    pub fn new(by_host: Arc<RulesByHost>, rules: &[u32]) -> Self {
        let program = Arc::clone(&by_host.program);
        let mut lists: [PhaseRuleList; PHASE_COUNT] = Default::default();
        for id in rules {
            let rule = &program.rules[*id as usize];
            for (i, (phase, action)) in rule.actions.iter().enumerate() {
                let list = &mut lists[*phase as usize].entries;
                if list.last().is_none_or(|e| e.rule != *id) {
                    let asks_body =
                        matches!(phase, Phase::RequestBody | Phase::ResponseBody) && rule.cond.phase() >= *phase;
                    list.push(PhaseRule {
                        rule: *id,
                        actions: Vec::new(),
                        whole: false,
                        asks_body,
                        left_to_requests: is_stateful(rule),
                        edits: false,
                        gate: Prefilter::default(),
                    });
                }
                let entry = list.last_mut().expect("one was just put there");
                entry.actions.push(i as u16);
                entry.whole |= needs_whole_body(action);
                entry.left_to_requests &= is_annotation(action);
                entry.edits |= !action.only_annotates();
            }
        }
        let looks_back: Vec<u32> =
            rules.iter().copied().filter(|id| needs_earlier_request_body(&program.rules[*id as usize])).collect();
        let mut interest = phases_of_interest(&program, &lists);
        if !looks_back.is_empty() {
            interest = interest.with(Phase::RequestBody);
        }
        for (phase, list) in lists.iter_mut().enumerate() {
            list.may_want_whole = list.entries.iter().any(|e| e.whole || e.asks_body);
            let has_request = phase >= Phase::RequestHead as usize && phase <= Phase::ResponseBody as usize;
            if has_request && phase != Phase::UpstreamConnect as usize {
                list.index = RequestIndex::new(list.entries.iter().map(|e| &program.rules[e.rule as usize].cond));
            }
        }
        for phase in [Phase::RequestHead, Phase::RequestBody, Phase::ResponseHead, Phase::ResponseBody] {
            let PhaseRuleList { entries, index, .. } = &mut lists[phase as usize];
            for entry in entries {
                let rule = &program.rules[entry.rule as usize];
                entry.gate = Prefilter::new(&rule.cond, rule.judged, phase, index.is_some());
            }
        }
        let has = |phase: Phase| !lists[phase as usize].entries.is_empty();
        let messages = has(Phase::Message);
        let marks_at_connect =
            [Phase::Authority, Phase::ClientHello].iter().any(|p| leaves_marks(&program, &lists[*p as usize]));
        let any = |phase: Phase, is: fn(&CompiledRule) -> bool| {
            lists[phase as usize].entries.iter().any(|e| is(&program.rules[e.rule as usize]))
        };
        let marks_wait = any(Phase::Authority, runs_program) || any(Phase::ClientHello, runs_program);
        let done_waits = any(Phase::Done, waits_at_end);
        let answers_at_connect = may_answer_at_connect(&program, &lists[Phase::Authority as usize]);
        let calls = rules
            .iter()
            .any(|id| program.rules[*id as usize].actions.iter().any(|(_, a)| matches!(a, Action::Call(_))));
        let (keeps_request, keeps_response) = (messages || has(Phase::Done), has(Phase::Done));
        Self {
            interest,
            keeps_request,
            keeps_response,
            messages,
            marks_at_connect,
            marks_wait,
            done_waits,
            answers_at_connect,
            calls,
            later_body_rules: looks_back,
            lists,
            program,
            by_host,
        }
    }

    fn phase_rules(&self, phase: Phase) -> &PhaseRuleList {
        &self.lists[phase as usize]
    }

    fn candidates(&self, at: &ActionContext<'_>) -> Option<Candidates> {
        let index = self.phase_rules(at.phase).index.as_ref()?;
        at.request().map(|r| path_variants::candidates(index, r))
    }

    /// Evaluates the rules of a phase until one ends the flow or must wait.
    fn run_rules(&self, at: &mut ActionContext<'_>, picked: Option<&Candidates>, mut from: RuleCursor) -> WalkResult {
        let entries = &self.phase_rules(at.phase).entries;
        loop {
            // In the middle of a rule's actions its condition has already been decided.
            if let Some(picked) = picked.filter(|_| from.action == 0) {
                from.entry = next_candidate(picked, from.entry);
            }
            let Some(entry) = entries.get(from.entry) else { break };
            if at.opens && entry.left_to_requests {
                from.entry += 1;
                continue;
            }
            if from.action == 0 {
                let may = entry.gate.may_match(at.request(), at.response.as_deref());
                match if may { self.rule_matches(at, entry) } else { RuleMatch::No } {
                    RuleMatch::Yes => {}
                    RuleMatch::No => {
                        from.entry += 1;
                        continue;
                    }
                    RuleMatch::Run(program) => return WalkResult::Wait(from, PendingAction::Exec(program)),
                }
            }
            let rule = &self.program.rules[entry.rule as usize];
            if entry.edits {
                at.snapshot_head();
            }
            while let Some(i) = entry.actions.get(from.action) {
                from.action += 1;
                match apply(at, &rule.actions[usize::from(*i)].1, rule, &self.program) {
                    ActionEffect::Continue => {}
                    ActionEffect::Stop => return WalkResult::Done(RuleVerdict::Continue),
                    ActionEffect::End(verdict) => return WalkResult::Done(verdict),
                    // The cursor already points behind the action that is waited for.
                    ActionEffect::Wait(waiting) => return WalkResult::Wait(from, waiting),
                }
            }
            if rule.stop {
                return WalkResult::Done(RuleVerdict::Continue);
            }
            from = RuleCursor { entry: from.entry + 1, action: 0 };
        }
        WalkResult::Done(RuleVerdict::Continue)
    }

    /// Whether no rule of this phase can match the flow and no state is pending: the fast path of most flows.
    fn is_idle(&self, phase: Phase, flow: &Flow, request: &RequestHead, response: Option<&ResponseHead>) -> bool {
        let list = self.phase_rules(phase);
        list.index.is_none()
            && !self.messages
            && (phase != Phase::RequestBody || self.later_body_rules.is_empty())
            && flow.extension::<RuleState>().is_none()
            && list.entries.iter().all(|e| !e.gate.may_match(Some(request), response))
    }

    /// Whether a rule acts on the flow in this phase.
    fn rule_matches(&self, at: &mut ActionContext<'_>, entry: &PhaseRule) -> RuleMatch {
        let rule = &self.program.rules[entry.rule as usize];
        if rule.remembers
            && let Some(before) = at.flow.extension::<RuleState>().and_then(|s| s.decided(entry.rule))
        {
            return RuleMatch::from(before);
        }
        let answer = path_variants::evaluate(rule, at, &self.program);
        if let Some(program) = at.exec.take_wanted() {
            return RuleMatch::Run(program);
        }
        // Still open in its last phase: it does not match.
        let Tristate::Known(holds) = answer else { return RuleMatch::No };
        if rule.remembers {
            at.state().record_decision(entry.rule, holds);
        }
        if holds {
            rule.matches.fetch_add(1, Relaxed);
            // Later phases cannot tag the flow in time for its record.
            if at.phase < Phase::Message {
                at.flow.tag(ByteStr::from_static("rule-matched"));
            }
            capture_groups(at, rule, &self.program);
        }
        RuleMatch::from(holds)
    }

    /// Evaluates the rules of the connection phases again for a request in a tunnel, which is a flow of its own:
    /// annotations, variables and `stop` apply to it too. The other actions applied to the tunnel.
    async fn apply_connect_marks(&self, flow: &mut Flow) {
        flow.extension_mut::<RuleState>().connected = true;
        for phase in [Phase::Authority, Phase::ClientHello] {
            if phase == Phase::ClientHello && flow.client_tls.is_none() {
                continue;
            }
            let mut at = ActionContext::new(phase, flow);
            for entry in &self.phase_rules(phase).entries {
                let rule = &self.program.rules[entry.rule as usize];
                let mut marks =
                    entry.actions.iter().map(|i| &rule.actions[usize::from(*i)].1).filter(|a| is_annotation(a));
                let Some(first) = marks.next() else { continue };
                let matches = loop {
                    match self.rule_matches(&mut at, entry) {
                        RuleMatch::Yes => break true,
                        RuleMatch::No => break false,
                        RuleMatch::Run(program) => {
                            let (key, answer) = (program.key(), program.run().await);
                            at.exec.record(key, answer);
                        }
                    }
                };
                if !matches {
                    continue;
                }
                let stops = std::iter::once(first)
                    .chain(marks)
                    .any(|mark| matches!(apply(&mut at, mark, rule, &self.program), ActionEffect::Stop));
                if stops || rule.stop {
                    break;
                }
            }
        }
    }

    /// Runs a phase before the request. `opens` means that the requests inside a tunnel are matched individually.
    pub fn run_connect<'a>(&'a self, phase: Phase, flow: &'a mut Flow, opens: bool) -> MaybeFuture<'a, TunnelVerdict> {
        flow.extension_mut::<RuleState>().connected = true;
        self.run_without_body(ActionContext { opens, ..ActionContext::new(phase, flow) })
    }

    /// Continues after an asynchronous action, until the phase is done.
    async fn resume(
        &self,
        at: &mut ActionContext<'_>,
        picked: Option<&Candidates>,
        cursor: RuleCursor,
        waiting: PendingAction,
    ) -> RuleVerdict {
        let (mut cursor, mut waiting) = (cursor, waiting);
        loop {
            let rule = &self.program.rules[self.phase_rules(at.phase).entries[cursor.entry].rule as usize];
            match waiting.complete(at, rule, &self.program).await {
                ActionEffect::End(verdict) => return verdict,
                ActionEffect::Stop => return RuleVerdict::Continue,
                ActionEffect::Wait(more) => waiting = more,
                ActionEffect::Continue => match self.run_rules(at, picked, cursor) {
                    WalkResult::Done(verdict) => return verdict,
                    WalkResult::Wait(next, more) => (cursor, waiting) = (next, more),
                },
            }
        }
    }

    /// Runs a phase without a body. A future is made only if something has to be waited for.
    fn run_without_body<'a, V>(&'a self, mut at: ActionContext<'a>) -> MaybeFuture<'a, V>
    where
        V: From<RuleVerdict> + Send + 'a,
    {
        let picked = self.candidates(&at);
        match self.run_rules(&mut at, picked.as_ref(), RuleCursor::default()) {
            WalkResult::Done(verdict) => {
                self.save_for_later(&mut at);
                MaybeFuture::Ready(verdict.into())
            }
            WalkResult::Wait(cursor, waiting) => MaybeFuture::pending(async move {
                let verdict = self.resume(&mut at, picked.as_ref(), cursor, waiting).await;
                self.save_for_later(&mut at);
                verdict.into()
            }),
        }
    }

    /// Saves what later phases need: the original head, and edits of the body that follows.
    fn save_for_later(&self, at: &mut ActionContext<'_>) {
        at.keep_original(None);
        if !at.edits.is_empty() {
            let work = std::mem::take(&mut at.edits);
            at.state().pending = Some(work);
        }
    }

    /// Runs a phase with a body, which is buffered only if a rule that may act needs it whole.
    fn run_with_body<'a>(&'a self, at: ActionContext<'a>, body: Body) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        let mut at = at;
        // State is created only for flows that need it.
        if at.flow.extension::<RuleState>().is_some_and(|s| s.pending.is_some()) {
            at.edits = at.state().pending.take().unwrap_or_default();
            at.snapshot_head();
        }
        let picked = self.candidates(&at);
        if self.wants_whole(&mut at, picked.as_ref(), &body) {
            return MaybeFuture::pending(self.run_on_whole_body(at, body, picked));
        }
        let (cursor, waiting) = match self.run_rules(&mut at, picked.as_ref(), RuleCursor::default()) {
            WalkResult::Done(verdict) => match verdict.into_result() {
                Ok(()) if self.must_read_body(&at, &body) => {
                    return MaybeFuture::pending(self.read_and_apply_edits(at, body));
                }
                Ok(()) => return MaybeFuture::Ready(self.apply_body_edits(at, BodyReadState::Stream(body))),
                Err(exit) => return MaybeFuture::Ready(Err(exit)),
            },
            WalkResult::Wait(cursor, waiting) => (cursor, waiting),
        };
        MaybeFuture::pending(async move {
            self.resume(&mut at, picked.as_ref(), cursor, waiting).await.into_result()?;
            match self.must_read_body(&at, &body) {
                true => self.read_and_apply_edits(at, body).await,
                false => self.apply_body_edits(at, BodyReadState::Stream(body)),
            }
        })
    }

    async fn read_and_apply_edits(&self, mut at: ActionContext<'_>, body: Body) -> Result<Body, EarlyExit> {
        let seen = self.read_body(&mut at, body).await?;
        self.apply_body_edits(at, seen)
    }

    async fn run_on_whole_body(
        &self,
        mut at: ActionContext<'_>,
        body: Body,
        picked: Option<Candidates>,
    ) -> Result<Body, EarlyExit> {
        let seen = self.read_body(&mut at, body).await?;
        let verdict = match self.run_rules(&mut at, picked.as_ref(), RuleCursor::default()) {
            WalkResult::Done(verdict) => verdict,
            WalkResult::Wait(cursor, waiting) => self.resume(&mut at, picked.as_ref(), cursor, waiting).await,
        };
        verdict.into_result()?;
        self.apply_body_edits(at, seen)
    }

    /// Whether a rule that may act needs the whole body, for its condition or its action.
    fn wants_whole(&self, at: &mut ActionContext<'_>, picked: Option<&Candidates>, body: &Body) -> bool {
        if at.phase == Phase::RequestBody && self.may_need_request_body(at) {
            return true;
        }
        if !self.phase_rules(at.phase).may_want_whole {
            return false;
        }
        // An event stream may never end: a condition on its body stays undecided instead of holding it back.
        let endless = matches!(body, Body::Stream(_)) && at.head().is_some_and(body::is_event_stream);
        let entries = &self.phase_rules(at.phase).entries;
        entries.iter().enumerate().any(|(i, entry)| {
            if !(entry.whole || entry.asks_body && !endless) || picked.is_some_and(|p| p[i / 64] & 1 << (i % 64) == 0) {
                return false;
            }
            if !entry.gate.may_match(at.request(), at.response.as_deref()) {
                return false;
            }
            let rule = &self.program.rules[entry.rule as usize];
            if let Some(before) = at.flow.extension::<RuleState>().and_then(|s| s.decided(entry.rule)) {
                return before && entry.whole;
            }
            match evaluate_uncounted(rule, at, &self.program) {
                Tristate::NotYet => !endless,
                Tristate::Known(holds) => holds && entry.whole && self.requires_whole_body(entry, at),
            }
        })
    }

    /// Whether a rule that may still act reads the request's body later.
    fn may_need_request_body(&self, at: &ActionContext<'_>) -> bool {
        self.later_body_rules.iter().any(|id| {
            let rule = &self.program.rules[*id as usize];
            !matches!(evaluate_uncounted(rule, at, &self.program), Tristate::Known(false))
        })
    }

    /// A service declares in its handshake which bodies it needs; chunks for it need no buffering.
    fn requires_whole_body(&self, entry: &PhaseRule, at: &ActionContext<'_>) -> bool {
        let rule = &self.program.rules[entry.rule as usize];
        let kind =
            if at.phase == Phase::RequestBody { ServiceMessageKind::Request } else { ServiceMessageKind::Response };
        entry.actions.iter().map(|i| &rule.actions[usize::from(*i)].1).any(|action| match action {
            Action::Call(names) => {
                let service = names.0.first().and_then(|n| self.program.services.get(n));
                let hello = service.and_then(|s| s.handshake_if_ready());
                // Later response rules may read the request's body.
                hello.is_none_or(|h| {
                    h.wants_message(kind, at.flow, at.request(), at.response.as_deref())
                        || kind == ServiceMessageKind::Request && h.wants_kind(ServiceMessageKind::Response)
                })
            }
            other => needs_whole_body(other),
        })
    }

    fn must_read_body(&self, at: &ActionContext<'_>, body: &Body) -> bool {
        let Some(headers) = at.head() else { return false };
        // Many origins reject requests without a length, which a streaming edit cannot know in advance.
        let short = || {
            headers
                .get_str("content-length")
                .and_then(|n| n.parse::<u64>().ok())
                .is_some_and(|n| n <= MAX_BUFFERED_REQUEST)
        };
        let sized = || at.side() == Direction::Request && !at.edits.changes.is_empty() && short();
        matches!(body, Body::Stream(_) | Body::Full(_)) && (at.edits.needs_whole(headers) || sized())
    }

    /// Buffers the body up to `rules.max_body`; a larger one goes on as a stream, which rules do not see whole.
    async fn read_body(&self, at: &mut ActionContext<'_>, body: Body) -> Result<BodyReadState> {
        let headers = at.head().cloned().unwrap_or_default();
        let cap = usize::try_from(self.program.config.max_body.0).unwrap_or(usize::MAX);
        let seen = body::collect(body, &headers, cap).await?;
        match &seen {
            BodyReadState::Whole(whole) => {
                at.body = Some(whole.plain.clone());
                if at.phase == Phase::RequestBody && (self.calls || !self.later_body_rules.is_empty()) {
                    at.state().request_body = Some(whole.plain.clone());
                }
            }
            BodyReadState::Stream(_) => {
                tracing::debug!(flow = %at.flow.id, "the body is larger than rules.max_body: rules that need it whole do not see it");
            }
        }
        Ok(seen)
    }

    /// Applies the collected edits, then message rules. `on_failure` decides about a body that cannot be edited.
    fn apply_body_edits(&self, mut at: ActionContext<'_>, seen: BodyReadState) -> Result<Body, EarlyExit> {
        let mut work = std::mem::take(&mut at.edits);
        let side = at.side();
        if let Some(cap) = at.flow.extension::<RuleState>().and_then(|s| s.throttle[side as usize].clone()) {
            work.throttle = Some(cap);
        }
        let messages = self.messages.then(|| messages::MessageRuleContext::new(self, &at, side)).flatten();
        if work.is_empty() && messages.is_none() {
            at.keep_original(None);
            return Ok(body::into_body(seen));
        }
        let Some(headers) = at.head_mut() else { return Ok(body::into_body(seen)) };
        let too_large = matches!(seen, BodyReadState::Stream(Body::Stream(_))) && work.needs_whole(headers);
        let mut original = None;
        let finished = if too_large {
            let what = "a rule needs the whole body, which is larger than rules.max_body: raise that, or use an edit that streams (find)";
            BodyFailure::Kept(Error::new(ErrorKind::BodyTooLarge, what), seen)
        } else {
            // `finish` consumes the body; a copy shares its bytes.
            let spare = match (&seen, self.program.config.on_failure) {
                (BodyReadState::Whole(whole), OnFailure::Pass) => Some(BodyReadState::Whole(whole.clone())),
                _ => None,
            };
            let by = work.by.join("`, `");
            let seen = if work.may_change_body() { originals::tee_original(seen, &mut original) } else { seen };
            match body::finish(work, seen, headers) {
                Ok(body) => {
                    let original = original.filter(|o| originals::is_different(o, &body));
                    let body = messages::apply_message_rules(messages, body, headers);
                    at.keep_original(original);
                    return Ok(body);
                }
                Err(e) => {
                    let e = if by.is_empty() { e } else { Error::new(e.kind(), format!("rule `{by}`: {e}")) };
                    match spare {
                        Some(seen) => BodyFailure::Kept(e, seen),
                        None => BodyFailure::Lost(e),
                    }
                }
            }
        };
        at.flow.tag("rule_failed");
        at.keep_original(None);
        match (finished, self.program.config.on_failure) {
            (BodyFailure::Kept(e, seen), OnFailure::Pass) => {
                tracing::warn!(flow = %at.flow.id, "the body passes unchanged: {e}");
                Ok(body::into_body(seen))
            }
            (BodyFailure::Kept(e, _) | BodyFailure::Lost(e), _) => Err(EarlyExit::Deny(e)),
        }
    }

    /// Evaluates message rules for bodies that contain messages.
    pub(crate) async fn run_message_rules(&self, at: &mut ActionContext<'_>) -> MessageVerdict {
        match self.run_rules(at, None, RuleCursor::default()) {
            WalkResult::Done(verdict) => verdict.into(),
            WalkResult::Wait(cursor, run) if run.is_possible_in_body() => {
                self.resume(at, None, cursor, run).await.into()
            }
            // Asynchronous actions are not supported inside a body: the message continues.
            WalkResult::Wait(..) => MessageVerdict::Continue,
        }
    }
}

enum BodyFailure {
    Kept(Error, BodyReadState),
    Lost(Error),
}

/// The next candidate at or after `from`; past the end if there is none.
fn next_candidate(picked: &Candidates, from: usize) -> usize {
    let mut word = from / 64;
    let mut bits = picked.get(word).map_or(0, |w| w & (u64::MAX << (from % 64)));
    while bits == 0 {
        word += 1;
        match picked.get(word) {
            Some(next) => bits = *next,
            None => return picked.len() * 64,
        }
    }
    word * 64 + bits.trailing_zeros() as usize
}

/// Evaluates a condition without side effects; open if that is impossible.
fn evaluate_uncounted(rule: &CompiledRule, at: &ActionContext<'_>, program: &RuleProgram) -> Tristate {
    if has_side_effects(rule) { Tristate::NotYet } else { rule.cond.evaluate(&at.view(program)) }
}

/// Whether a rule of the list annotates the flow.
fn leaves_marks(program: &RuleProgram, list: &PhaseRuleList) -> bool {
    let action = |e: &PhaseRule, i: &u16| is_annotation(&program.rules[e.rule as usize].actions[usize::from(*i)].1);
    list.entries.iter().any(|e| e.actions.iter().any(|i| action(e, i)))
}

/// Whether a person may answer a request that is held in this phase; the answer is given at the request's head.
fn may_answer_at_connect(program: &RuleProgram, list: &PhaseRuleList) -> bool {
    let holds =
        |e: &PhaseRule, i: &u16| matches!(program.rules[e.rule as usize].actions[usize::from(*i)].1, Action::Hold(_));
    list.entries.iter().any(|e| e.actions.iter().any(|i| holds(e, i)))
}

fn phases_of_interest(program: &RuleProgram, lists: &[PhaseRuleList; PHASE_COUNT]) -> PhaseSet {
    use Phase::*;
    let mut all = PhaseSet::NONE;
    for phase in
        [Authority, ClientHello, RequestHead, RequestBody, UpstreamConnect, ResponseHead, ResponseBody, Message, Done]
    {
        let entries = &lists[phase as usize].entries;
        if entries.is_empty() {
            continue;
        }
        all = all.with(phase);
        let list = &lists[phase as usize];
        if phase <= ClientHello && (leaves_marks(program, list) || may_answer_at_connect(program, list)) {
            all = all.with(RequestHead);
        }
        if phase == Message {
            all = all.with(RequestHead).with(RequestBody).with(ResponseBody);
        }
        if phase == Done {
            all = all.with(RequestHead).with(ResponseHead);
        }
        for entry in entries {
            for i in &entry.actions {
                match &program.rules[entry.rule as usize].actions[usize::from(*i)].1 {
                    Action::Throttle(s) => {
                        let (up, down) = (s.request.is_some(), s.response.is_some());
                        all = if up { all.with(RequestBody) } else { all };
                        all = if down { all.with(ResponseBody) } else { all };
                    }
                    Action::Anticache(_) | Action::StickyCookie(_) => all = all.with(ResponseHead),
                    Action::Hold(_) | Action::Script(_) if phase == RequestHead => all = all.with(RequestBody),
                    Action::Hold(_) | Action::Script(_) if phase == ResponseHead => all = all.with(ResponseBody),
                    _ => {}
                }
            }
        }
    }
    all
}

impl HostRules {
    /// Whether rules read or change the content, and therefore require interception.
    pub fn needs_content(&self) -> bool {
        use Phase::{Message, RequestBody, RequestHead, ResponseBody, ResponseHead};
        let inside = [RequestHead, RequestBody, ResponseHead, ResponseBody, Message];
        let entries = inside.iter().flat_map(|phase| &self.lists[*phase as usize].entries);
        let action = |rule: u32, i: u16| &self.program.rules[rule as usize].actions[usize::from(i)].1;
        entries.into_iter().any(|e| e.actions.iter().any(|i| !action(e.rule, *i).only_annotates()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_iterated_in_order() {
        let picked: Candidates = [1 | 1 << 63, 0, 1 << 2].into_iter().collect();
        let mut found = Vec::new();
        let mut from = 0;
        while next_candidate(&picked, from) < 192 {
            from = next_candidate(&picked, from);
            found.push(from);
            from += 1;
        }
        assert_eq!(found, [0, 63, 130]);
        assert_eq!(next_candidate(&Candidates::new(), 0), 0);
    }
}
