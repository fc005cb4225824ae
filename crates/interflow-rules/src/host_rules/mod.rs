//! The rules that can match one host, as the stage that its plan calls.

mod bodies;
mod by_host;
mod messages;
mod originals;
mod path_variants;
mod requirements;
mod stage;

pub(crate) use by_host::RulesByHost;
pub(crate) use messages::MAX_MESSAGE_SIZE;
pub(crate) use path_variants::judge;
pub(crate) use requirements::unread_error;
pub(crate) use stage::HostRuleStage;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_query::Tristate;
use interflow_types::{
    Body, BodyFuture, ByteStr, Direction, EarlyExit, Error, ErrorKind, Flow, MaybeFuture, MessageVerdict, Phase,
    PhaseSet, PlanScope, RequestHead, RequestVerdict, ResponseHead, Result, Stage, StreamMessage, TunnelVerdict,
    UpstreamOverrides,
};

use crate::action::Action;
use crate::actions::{
    ActionContext, ActionEffect, PendingAction, RequestAccess, action_failed, apply, capture_groups, disable_caching,
};
use crate::body::{self, BodyReadState};
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::config::OnFailure;
use crate::flow::flow_state::RuleState;
use crate::flow::verdict::RuleVerdict;
use crate::matching::condition::ConditionExpr;
use crate::matching::index::{Candidates, Prefilter, RequestIndex};
use crate::service::ServiceMessageKind;
use requirements::{
    has_side_effects, is_stateful, needs_earlier_request_body, needs_whole_body, runs_program, waits_at_end,
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

impl PhaseRule {
    /// Whether it judges or edits the content of a response, rather than replace it.
    fn reads_content(&self, phase: Phase, program: &RuleProgram) -> bool {
        phase == Phase::Message
            || self.asks_body
            || self.whole
            || self.actions_in(program).any(|a| matches!(a, Action::EditResponseBody(_) | Action::InjectHtml(_)))
    }

    /// Its actions in this phase.
    fn actions_in<'p>(&self, program: &'p RuleProgram) -> impl Iterator<Item = &'p Action> {
        let actions = &program.rules[self.rule as usize].actions;
        self.actions.iter().map(|i| &actions[usize::from(*i)].1)
    }
}

/// The rules of one phase, in the order of the files.
#[derive(Debug, Default)]
struct PhaseRuleList {
    entries: Vec<PhaseRule>,
    /// Whether any of them may need a whole body; if not, bodies stream without asking any.
    may_want_whole: bool,
    index: Option<RequestIndex>,
}

impl PhaseRuleList {
    fn has_action(&self, program: &RuleProgram, is: impl Fn(&Action) -> bool) -> bool {
        self.entries.iter().any(|entry| entry.actions_in(program).any(&is))
    }
}

const PHASE_COUNT: usize = Phase::Done as usize + 1;

/// The rules that can match one host. What they need is computed once here, so that flows pay only for that.
#[derive(Debug)]
pub(crate) struct HostRules {
    by_host: Arc<RulesByHost>,
    program: Arc<RuleProgram>,
    lists: [PhaseRuleList; PHASE_COUNT],
    pub interest: PhaseSet,
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
    /// Whether rules may need the content of responses, which must then be in a coding that can be decoded.
    reads_responses: bool,
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
    /// That depends on a program or on JSON, which must be evaluated first.
    Run(PendingAction),
    /// That depends on content that cannot be read.
    Unread(Arc<Error>),
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
                entry.left_to_requests &= action.is_annotation();
                entry.edits |= !action.only_annotates();
            }
        }
        let looks_back: Vec<u32> =
            rules.iter().copied().filter(|id| needs_earlier_request_body(&program.rules[*id as usize], true)).collect();
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
        let reads_responses = [Phase::ResponseBody, Phase::Message]
            .iter()
            .any(|phase| lists[*phase as usize].entries.iter().any(|e| e.reads_content(*phase, &program)));
        if reads_responses {
            interest = interest.with(Phase::RequestHead);
        }
        let has = |phase: Phase| !lists[phase as usize].entries.is_empty();
        let messages = has(Phase::Message);
        let any = |phase: Phase, is: fn(&CompiledRule) -> bool| {
            lists[phase as usize].entries.iter().any(|e| is(&program.rules[e.rule as usize]))
        };
        let acts = |phase: Phase, is: fn(&Action) -> bool| lists[phase as usize].has_action(&program, is);
        Self {
            interest,
            keeps_request: messages || has(Phase::Done),
            keeps_response: has(Phase::Done),
            messages,
            marks_at_connect: acts(Phase::Authority, Action::is_annotation)
                || acts(Phase::ClientHello, Action::is_annotation),
            marks_wait: any(Phase::Authority, runs_program) || any(Phase::ClientHello, runs_program),
            done_waits: any(Phase::Done, waits_at_end),
            // A person may answer a request that is held in this phase; the answer is given at the request's head.
            answers_at_connect: acts(Phase::Authority, |action| matches!(action, Action::Hold(_))),
            calls: lists.iter().any(|list| list.has_action(&program, |action| matches!(action, Action::Call(_)))),
            later_body_rules: looks_back,
            reads_responses,
            lists,
            program,
            by_host,
        }
    }

    fn phase_rules(&self, phase: Phase) -> &PhaseRuleList {
        &self.lists[phase as usize]
    }

    /// The first rule of the phase, from this one on, that the request may match; past the end if there is none.
    fn next_candidate(&self, at: &mut ActionContext<'_>, from: usize) -> usize {
        let Some(index) = &self.phase_rules(at.phase).index else { return from };
        if at.candidates.is_none() {
            at.candidates = at.request().map(|request| path_variants::candidates(index, request));
        }
        at.candidates.as_ref().map_or(from, |picked| next_candidate(picked, from))
    }

    /// Evaluates the rules of a phase until one ends the flow or must wait.
    fn run_rules(&self, at: &mut ActionContext<'_>, mut from: RuleCursor) -> WalkResult {
        let entries = &self.phase_rules(at.phase).entries;
        'rules: loop {
            // In the middle of a rule's actions its condition has already been decided.
            if from.action == 0 {
                from.entry = self.next_candidate(at, from.entry);
            }
            let Some(entry) = entries.get(from.entry) else { break };
            let next = RuleCursor { entry: from.entry + 1, action: 0 };
            if at.opens && entry.left_to_requests {
                from = next;
                continue;
            }
            if from.action == 0 {
                let may = entry.gate.may_match(at.request(), at.response.as_deref());
                match if may { self.rule_matches(at, entry) } else { RuleMatch::No } {
                    RuleMatch::Yes => {}
                    RuleMatch::No => {
                        from = next;
                        continue;
                    }
                    RuleMatch::Run(waiting) => return WalkResult::Wait(from, waiting),
                    RuleMatch::Unread(why) => {
                        if let Some(verdict) = self.pass_over_unread(at, entry, &why) {
                            return WalkResult::Done(verdict);
                        }
                        from = next;
                        continue;
                    }
                }
            }
            let rule = &self.program.rules[entry.rule as usize];
            if entry.edits {
                at.snapshot_head();
            }
            while let Some(i) = entry.actions.get(from.action) {
                from.action += 1;
                let action = &rule.actions[usize::from(*i)].1;
                if let Some(why) = requirements::unread_content(action, at) {
                    if let Some(verdict) = self.pass_over_unread(at, entry, &why) {
                        return WalkResult::Done(verdict);
                    }
                    from = next;
                    continue 'rules;
                }
                match apply(at, action, rule) {
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
            from = next;
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
        let answer = match (&rule.cond, requirements::evaluate_captured_json(rule, at)) {
            (_, false) => Tristate::NotYet,
            (ConditionExpr::Always(holds), true) => Tristate::Known(*holds),
            (condition, true) => {
                let evaluate = |other: Option<&RequestHead>| {
                    let mut view = at.view();
                    if other.is_some() {
                        (view.request, view.shared_url) = (other, None);
                    }
                    (condition.evaluate(&view), ())
                };
                judge(rule.judged, at.request(), evaluate).0
            }
        };
        if let Some(run) = at.json.take_wanted() {
            return RuleMatch::Run(PendingAction::Json(run));
        }
        if let Some(program) = at.exec.take_wanted() {
            return RuleMatch::Run(PendingAction::Exec(program));
        }
        // Still open in its last phase: it does not match, unless it judges what cannot be read.
        let Tristate::Known(holds) = answer else {
            return requirements::unread_by_condition(rule, at).map_or(RuleMatch::No, RuleMatch::Unread);
        };
        if rule.remembers {
            at.state().record_decision(entry.rule, holds);
        }
        if holds {
            rule.matches.fetch_add(1, Relaxed);
            at.flow.tag(ByteStr::from_static("rule-matched"));
            capture_groups(at, rule);
        }
        RuleMatch::from(holds)
    }

    /// A rule depends on content that cannot be read: `on_failure` decides whether the flow ends.
    fn pass_over_unread(&self, at: &mut ActionContext<'_>, entry: &PhaseRule, why: &Error) -> Option<RuleVerdict> {
        let rule = &self.program.rules[entry.rule as usize];
        // The next message may be readable.
        if rule.remembers && at.unread_message.is_none() {
            at.state().record_decision(entry.rule, false);
        }
        let error = requirements::unread_error(&rule.name, at, why);
        match action_failed(at, rule, error) {
            ActionEffect::End(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Evaluates the rules of the connection phases again for a request in a tunnel, which is a flow of its own:
    /// annotations, variables and `stop` apply to it too. The other actions applied to the tunnel.
    async fn apply_connect_marks(&self, flow: &mut Flow) {
        flow.extension_mut::<RuleState>().connected = true;
        for phase in [Phase::Authority, Phase::ClientHello] {
            if phase == Phase::ClientHello && flow.client_tls.is_none() {
                continue;
            }
            let mut at = self.context(phase, flow);
            for entry in &self.phase_rules(phase).entries {
                let rule = &self.program.rules[entry.rule as usize];
                let mut marks = entry.actions_in(&self.program).filter(|a| a.is_annotation());
                let Some(first) = marks.next() else { continue };
                let matches = loop {
                    match self.rule_matches(&mut at, entry) {
                        RuleMatch::Yes => break true,
                        RuleMatch::No | RuleMatch::Unread(_) => break false,
                        RuleMatch::Run(waiting) => {
                            waiting.complete(&mut at, rule).await;
                        }
                    }
                };
                if !matches {
                    continue;
                }
                let stops = std::iter::once(first)
                    .chain(marks)
                    .any(|mark| matches!(apply(&mut at, mark, rule), ActionEffect::Stop));
                if stops || rule.stop {
                    break;
                }
            }
        }
    }

    /// Runs a phase before the request. `opens` means that the requests inside a tunnel are matched individually.
    pub fn run_connect<'a>(&'a self, phase: Phase, flow: &'a mut Flow, opens: bool) -> MaybeFuture<'a, TunnelVerdict> {
        flow.extension_mut::<RuleState>().connected = true;
        self.run_without_body(ActionContext { opens, ..self.context(phase, flow) })
    }

    /// Continues after an asynchronous action, until the phase is done.
    async fn resume(
        &self,
        at: &mut ActionContext<'_>,
        mut cursor: RuleCursor,
        mut waiting: PendingAction,
    ) -> RuleVerdict {
        loop {
            let rule = &self.program.rules[self.phase_rules(at.phase).entries[cursor.entry].rule as usize];
            match waiting.complete(at, rule).await {
                ActionEffect::End(verdict) => return verdict,
                ActionEffect::Stop => return RuleVerdict::Continue,
                ActionEffect::Wait(more) => waiting = more,
                ActionEffect::Continue => match self.run_rules(at, cursor) {
                    WalkResult::Done(verdict) => return verdict,
                    WalkResult::Wait(next, more) => (cursor, waiting) = (next, more),
                },
            }
        }
    }

    /// Evaluates the rules of a phase, whatever has to be waited for.
    pub(crate) async fn run_to_end(&self, at: &mut ActionContext<'_>) -> RuleVerdict {
        match self.run_rules(at, RuleCursor::default()) {
            WalkResult::Done(verdict) => verdict,
            WalkResult::Wait(cursor, waiting) => self.resume(at, cursor, waiting).await,
        }
    }

    /// Runs a phase without a body. A future is made only if something has to be waited for.
    fn run_without_body<'a, V>(&'a self, mut at: ActionContext<'a>) -> MaybeFuture<'a, V>
    where
        V: From<RuleVerdict> + Send + 'a,
    {
        match self.run_rules(&mut at, RuleCursor::default()) {
            WalkResult::Done(verdict) => {
                self.save_for_later(&mut at);
                MaybeFuture::Ready(verdict.into())
            }
            WalkResult::Wait(cursor, waiting) => MaybeFuture::pending(async move {
                let verdict = self.resume(&mut at, cursor, waiting).await;
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
fn evaluate_uncounted(rule: &CompiledRule, at: &ActionContext<'_>) -> Tristate {
    if has_side_effects(rule) { Tristate::NotYet } else { rule.cond.evaluate(&at.view()) }
}

fn phases_of_interest(program: &RuleProgram, lists: &[PhaseRuleList; PHASE_COUNT]) -> PhaseSet {
    use Phase::*;
    let mut all = PhaseSet::NONE;
    for phase in
        [Authority, ClientHello, RequestHead, RequestBody, UpstreamConnect, ResponseHead, ResponseBody, Message, Done]
    {
        let list = &lists[phase as usize];
        if list.entries.is_empty() {
            continue;
        }
        all = all.with(phase);
        if phase <= ClientHello && list.has_action(program, |a| a.is_annotation() || matches!(a, Action::Hold(_))) {
            all = all.with(RequestHead);
        }
        if phase == Message {
            all = all.with(RequestHead).with(RequestBody).with(ResponseBody).with(Done);
        }
        if phase == Done {
            all = all.with(RequestHead).with(ResponseHead);
        }
        for action in list.entries.iter().flat_map(|entry| entry.actions_in(program)) {
            match action {
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
    all
}

impl HostRules {
    /// Whether rules read or change the content, and therefore require interception.
    pub fn needs_content(&self) -> bool {
        use Phase::{Message, RequestBody, RequestHead, ResponseBody, ResponseHead};
        let inside = [RequestHead, RequestBody, ResponseHead, ResponseBody, Message];
        inside.iter().any(|phase| self.phase_rules(*phase).has_action(&self.program, |a| !a.only_annotates()))
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
