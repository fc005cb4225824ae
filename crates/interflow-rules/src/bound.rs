//! The rules that one host can match, as the stage that its plan calls.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_flow::{
    Body, ByteStr, Direction, Error, Flow, Interest, Kind, Message, Phase, RequestHead, ResponseHead, Result, Scope,
    Stage, Step, Verdict, Way,
};
use interflow_query::Truth;

use crate::act::{At, Effect, RequestAt, Waiting, act, capture, uncache};
use crate::action::Action;
use crate::body::{self, Seen};
use crate::config::OnFailure;
use crate::index::{Gate, Picked, RequestIndex};
use crate::needs::{acts_when_asked, counts, is_mark, looks_back, needs_body};
use crate::originals;
use crate::program::{Program, Rule};
use crate::readings;
use crate::service::Ask;
use crate::state::RuleState;

/// A rule in one phase.
#[derive(Debug)]
struct Entry {
    rule: u32,
    /// Its actions of this phase, by place.
    actions: Vec<u16>,
    /// Whether one of them needs the whole body.
    whole: bool,
    /// Whether its condition may ask for the body.
    asks_body: bool,
    /// Whether its condition counts how often it is asked, or is a matter of chance, and all its actions are marks: a tunnel
    /// that is opened leaves it to the requests inside.
    left_to_requests: bool,
    /// Whether one of its actions may edit the message.
    edits: bool,
    gate: Gate,
}

/// The rules of one phase.
#[derive(Debug, Default)]
struct List {
    entries: Vec<Entry>,
    /// Whether a whole body may be wanted at all.
    may_want_whole: bool,
    index: Option<RequestIndex>,
}

/// Up to this length a request's body that is to be changed is had whole, so that it keeps a length; longer ones stream.
const SHORT: u64 = 1 << 20;

const PHASES: usize = Phase::Done as usize + 1;

/// The rules that one host can match.
#[derive(Debug)]
pub(crate) struct Bound {
    program: Arc<Program>,
    lists: [List; PHASES],
    interest: Interest,
    /// Whether later phases need the request's head, or the response's.
    keeps_request: bool,
    keeps_response: bool,
    /// Rules on messages inside of bodies.
    messages: bool,
    /// Rules before the request leave something on the flow.
    marks_at_connect: bool,
    /// Services are asked about responses, and shown the request's body then.
    calls: bool,
    /// Rules of later phases that ask for the request's body, which is kept for them.
    looks_back: Vec<u32>,
}

/// Where a walk through a phase's rules stands.
#[derive(Clone, Copy, Default)]
struct Cursor {
    entry: usize,
    action: usize,
}

enum Walked {
    Done(Verdict),
    Wait(Cursor, Waiting),
}

impl Bound {
    pub fn new(program: Arc<Program>, rules: &[u32]) -> Self {
        let mut lists: [List; PHASES] = Default::default();
        for id in rules {
            let rule = &program.rules[*id as usize];
            for (i, (phase, action)) in rule.actions.iter().enumerate() {
                let list = &mut lists[*phase as usize].entries;
                if list.last().is_none_or(|e| e.rule != *id) {
                    let asks_body =
                        matches!(phase, Phase::RequestBody | Phase::ResponseBody) && rule.cond.phase() >= *phase;
                    list.push(Entry {
                        rule: *id,
                        actions: Vec::new(),
                        whole: false,
                        asks_body,
                        left_to_requests: counts(rule),
                        edits: false,
                        gate: Gate::default(),
                    });
                }
                let entry = list.last_mut().expect("one was just put there");
                entry.actions.push(i as u16);
                entry.whole |= needs_body(action);
                entry.left_to_requests &= is_mark(action);
                entry.edits |= !action.only_annotates();
            }
        }
        let looks_back: Vec<u32> =
            rules.iter().copied().filter(|id| looks_back(&program.rules[*id as usize])).collect();
        let mut interest = interest(&program, &lists);
        if !looks_back.is_empty() {
            interest = interest.and(Phase::RequestBody);
        }
        for (phase, list) in lists.iter_mut().enumerate() {
            list.may_want_whole = list.entries.iter().any(|e| e.whole || e.asks_body);
            let has_request = phase >= Phase::RequestHead as usize && phase <= Phase::ResponseBody as usize;
            if has_request && phase != Phase::Dial as usize {
                list.index = RequestIndex::new(list.entries.iter().map(|e| &program.rules[e.rule as usize].cond));
            }
        }
        for phase in [Phase::RequestHead, Phase::RequestBody, Phase::ResponseHead, Phase::ResponseBody] {
            let List { entries, index, .. } = &mut lists[phase as usize];
            for entry in entries {
                entry.gate = Gate::new(&program.rules[entry.rule as usize], phase, index.is_some());
            }
        }
        let has = |phase: Phase| !lists[phase as usize].entries.is_empty();
        let messages = has(Phase::Message);
        let marks_at_connect =
            [Phase::Authority, Phase::ClientHello].iter().any(|p| leaves_marks(&program, &lists[*p as usize]));
        let calls = rules
            .iter()
            .any(|id| program.rules[*id as usize].actions.iter().any(|(_, a)| matches!(a, Action::Call(_))));
        let (keeps_request, keeps_response) = (messages || has(Phase::Done), has(Phase::Done));
        Self { interest, keeps_request, keeps_response, messages, marks_at_connect, calls, looks_back, lists, program }
    }

    fn list(&self, phase: Phase) -> &List {
        &self.lists[phase as usize]
    }

    fn pick(&self, at: &At<'_>) -> Option<Picked> {
        let index = self.list(at.phase).index.as_ref()?;
        at.request().map(|r| readings::pick(index, r))
    }

    /// Goes through the rules of a phase until one ends the flow or must wait.
    fn walk(&self, at: &mut At<'_>, picked: Option<&Picked>, mut from: Cursor) -> Walked {
        let entries = &self.list(at.phase).entries;
        loop {
            if let Some(picked) = picked.filter(|_| from.action == 0) {
                from.entry = next_picked(picked, from.entry);
            }
            let Some(entry) = entries.get(from.entry) else { break };
            if at.opens && entry.left_to_requests {
                from.entry += 1;
                continue;
            }
            if from.action == 0 && !(entry.gate.is_open(at.request(), at.response.as_deref()) && self.holds(at, entry))
            {
                from.entry += 1;
                continue;
            }
            let rule = &self.program.rules[entry.rule as usize];
            if entry.edits {
                at.remember();
            }
            while let Some(i) = entry.actions.get(from.action) {
                from.action += 1;
                match act(at, &rule.actions[usize::from(*i)].1, rule, &self.program) {
                    Effect::Go => {}
                    Effect::Stop => return Walked::Done(Verdict::Continue),
                    Effect::End(verdict) => return Walked::Done(verdict),
                    Effect::Wait(waiting) => return Walked::Wait(from, waiting),
                }
            }
            if rule.stop {
                return Walked::Done(Verdict::Continue);
            }
            from = Cursor { entry: from.entry + 1, action: 0 };
        }
        Walked::Done(Verdict::Continue)
    }

    /// Whether no rule of this phase can hold of the flow, nor is anything kept for it.
    fn rests(&self, phase: Phase, flow: &Flow, request: &RequestHead, response: Option<&ResponseHead>) -> bool {
        let list = self.list(phase);
        list.index.is_none()
            && !self.messages
            && (phase != Phase::RequestBody || self.looks_back.is_empty())
            && flow.note::<RuleState>().is_none()
            && list.entries.iter().all(|e| !e.gate.is_open(Some(request), response))
    }

    /// Whether a rule acts on the flow in this phase.
    fn holds(&self, at: &mut At<'_>, entry: &Entry) -> bool {
        let rule = &self.program.rules[entry.rule as usize];
        if rule.remembers
            && let Some(before) = at.flow.note::<RuleState>().and_then(|s| s.decided(entry.rule))
        {
            return before;
        }
        let answer = readings::ask(rule, at, &self.program);
        let Truth::Known(holds) = answer else { return false };
        if rule.remembers {
            at.state().decide(entry.rule, holds);
        }
        if holds {
            rule.matches.fetch_add(1, Relaxed);
            if at.phase < Phase::Message {
                at.flow.tag(ByteStr::from_static("ruled"));
            }
            capture(at, rule, &self.program);
        }
        holds
    }

    /// Asks the rules of the phases before a request again for a request in a tunnel, which is a flow of its own: what marks a
    /// flow, sets variables or stops holds for it too. The other actions were the tunnel's.
    fn connect_marks(&self, flow: &mut Flow) {
        flow.note_mut::<RuleState>().connected = true;
        for phase in [Phase::Authority, Phase::ClientHello] {
            if phase == Phase::ClientHello && flow.client_tls.is_none() {
                continue;
            }
            let mut at = At::new(phase, flow);
            for entry in &self.list(phase).entries {
                let rule = &self.program.rules[entry.rule as usize];
                let mut marks = entry.actions.iter().map(|i| &rule.actions[usize::from(*i)].1).filter(|a| is_mark(a));
                let Some(first) = marks.next() else { continue };
                if !self.holds(&mut at, entry) {
                    continue;
                }
                let stops = std::iter::once(first)
                    .chain(marks)
                    .any(|mark| matches!(act(&mut at, mark, rule, &self.program), Effect::Stop));
                if stops || rule.stop {
                    break;
                }
            }
        }
    }

    /// A phase before a request. `opens` says that requests inside of a tunnel are asked about themselves.
    pub fn connect<'a>(&'a self, phase: Phase, flow: &'a mut Flow, opens: bool) -> Step<'a, Verdict> {
        flow.note_mut::<RuleState>().connected = true;
        self.plain(At { opens, ..At::new(phase, flow) })
    }

    /// Goes on where something was waited for.
    async fn go_on(&self, at: &mut At<'_>, picked: Option<&Picked>, cursor: Cursor, waiting: Waiting) -> Verdict {
        let (mut cursor, mut waiting) = (cursor, waiting);
        loop {
            let rule = &self.program.rules[self.list(at.phase).entries[cursor.entry].rule as usize];
            match waiting.over(at, rule, &self.program).await {
                Effect::End(verdict) => return verdict,
                Effect::Stop => return Verdict::Continue,
                Effect::Wait(more) => waiting = more,
                Effect::Go => match self.walk(at, picked, cursor) {
                    Walked::Done(verdict) => return verdict,
                    Walked::Wait(next, more) => (cursor, waiting) = (next, more),
                },
            }
        }
    }

    /// A phase without a body.
    fn plain<'a>(&'a self, mut at: At<'a>) -> Step<'a, Verdict> {
        let picked = self.pick(&at);
        match self.walk(&mut at, picked.as_ref(), Cursor::default()) {
            Walked::Done(verdict) => {
                self.leave(&mut at);
                Step::Now(verdict)
            }
            Walked::Wait(cursor, waiting) => Step::later(async move {
                let verdict = self.go_on(&mut at, picked.as_ref(), cursor, waiting).await;
                self.leave(&mut at);
                verdict
            }),
        }
    }

    /// What a phase leaves for later ones.
    fn leave(&self, at: &mut At<'_>) {
        at.keep_original(None);
        if !at.work.is_empty() {
            let work = std::mem::take(&mut at.work);
            at.state().pending = Some(work);
        }
    }

    /// A phase with a body.
    fn with_body<'a>(&'a self, at: At<'a>, body: Body) -> Step<'a, Result<Body, Verdict>> {
        let mut at = at;
        // A note is made only for flows that there is something to remember of.
        if at.flow.note::<RuleState>().is_some_and(|s| s.pending.is_some()) {
            at.work = at.state().pending.take().unwrap_or_default();
            at.remember();
        }
        let picked = self.pick(&at);
        if self.wants_whole(&mut at, picked.as_ref(), &body) {
            return Step::later(self.whole(at, body, picked));
        }
        match self.walk(&mut at, picked.as_ref(), Cursor::default()) {
            Walked::Done(Verdict::Continue) if !self.must_wait(&at, &body) => {
                Step::Now(self.done(at, Seen::Stream(body)))
            }
            Walked::Done(Verdict::Continue) => Step::later(async move {
                let seen = self.read(&mut at, body).await.map_err(Verdict::Deny)?;
                self.done(at, seen)
            }),
            Walked::Done(verdict) => Step::Now(Err(verdict)),
            Walked::Wait(cursor, waiting) => Step::later(async move {
                match self.go_on(&mut at, picked.as_ref(), cursor, waiting).await {
                    Verdict::Continue if !self.must_wait(&at, &body) => self.done(at, Seen::Stream(body)),
                    Verdict::Continue => {
                        let seen = self.read(&mut at, body).await.map_err(Verdict::Deny)?;
                        self.done(at, seen)
                    }
                    verdict => Err(verdict),
                }
            }),
        }
    }

    async fn whole(&self, mut at: At<'_>, body: Body, picked: Option<Picked>) -> Result<Body, Verdict> {
        let seen = self.read(&mut at, body).await.map_err(Verdict::Deny)?;
        let verdict = match self.walk(&mut at, picked.as_ref(), Cursor::default()) {
            Walked::Done(verdict) => verdict,
            Walked::Wait(cursor, waiting) => self.go_on(&mut at, picked.as_ref(), cursor, waiting).await,
        };
        match verdict {
            Verdict::Continue => self.done(at, seen),
            verdict => Err(verdict),
        }
    }

    /// Whether a rule that may act needs the whole body to be asked, or to act.
    fn wants_whole(&self, at: &mut At<'_>, picked: Option<&Picked>, body: &Body) -> bool {
        if at.phase == Phase::RequestBody && self.may_look_back(at) {
            return true;
        }
        if !self.list(at.phase).may_want_whole {
            return false;
        }
        // An event stream may never end: a condition on its body stays open rather than hold it back.
        let endless = matches!(body, Body::Stream(_)) && at.head().is_some_and(body::is_event_stream);
        let entries = &self.list(at.phase).entries;
        entries.iter().enumerate().any(|(i, entry)| {
            if !(entry.whole || entry.asks_body && !endless) || picked.is_some_and(|p| p[i / 64] & 1 << (i % 64) == 0) {
                return false;
            }
            if !entry.gate.is_open(at.request(), at.response.as_deref()) {
                return false;
            }
            let rule = &self.program.rules[entry.rule as usize];
            if let Some(before) = at.flow.note::<RuleState>().and_then(|s| s.decided(entry.rule)) {
                return before && entry.whole;
            }
            match quiet(rule, at, &self.program) {
                Truth::NotYet => !endless,
                Truth::Known(holds) => holds && entry.whole && self.really_whole(entry, at),
            }
        })
    }

    /// Whether a rule that may yet act asks for the request's body later on.
    fn may_look_back(&self, at: &At<'_>) -> bool {
        self.looks_back.iter().any(|id| {
            let rule = &self.program.rules[*id as usize];
            !matches!(quiet(rule, at, &self.program), Truth::Known(false))
        })
    }

    /// A service that has greeted says which bodies it wants: chunks of one need not be held.
    fn really_whole(&self, entry: &Entry, at: &At<'_>) -> bool {
        let rule = &self.program.rules[entry.rule as usize];
        let kind = if at.phase == Phase::RequestBody { Ask::Request } else { Ask::Response };
        entry.actions.iter().map(|i| &rule.actions[usize::from(*i)].1).any(|action| match action {
            Action::Call(names) => {
                let service = names.0.first().and_then(|n| self.program.services.get(n));
                let hello = service.and_then(|s| s.greeted());
                // What follows at the response may ask for the request's body.
                hello.is_none_or(|h| {
                    let view = at.view(&self.program);
                    h.wants(kind, &view) || kind == Ask::Request && h.has(Ask::Response)
                })
            }
            other => needs_body(other),
        })
    }

    fn must_wait(&self, at: &At<'_>, body: &Body) -> bool {
        let Some(headers) = at.head() else { return false };
        // Many an origin reads no request without a length, which an edit on the way cannot tell beforehand.
        let short =
            || headers.get_str("content-length").and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n <= SHORT);
        let sized = || at.side() == Direction::Request && !at.work.changes.is_empty() && short();
        matches!(body, Body::Stream(_) | Body::Full(_)) && (at.work.needs_whole(headers) || sized())
    }

    /// Reads the body as far as it may be held.
    async fn read(&self, at: &mut At<'_>, body: Body) -> Result<Seen> {
        let headers = at.head().cloned().unwrap_or_default();
        let cap = usize::try_from(self.program.config.max_body.0).unwrap_or(usize::MAX);
        let seen = body::collect(body, &headers, cap).await?;
        match &seen {
            Seen::Whole(whole) => {
                at.body = Some(whole.plain.clone());
                if at.phase == Phase::RequestBody && (self.calls || !self.looks_back.is_empty()) {
                    at.state().request_body = Some(whole.plain.clone());
                }
            }
            Seen::Stream(_) => {
                tracing::debug!(flow = %at.flow.id, "the body is larger than rules.max_body: rules that need it whole do not see it");
            }
        }
        Ok(seen)
    }

    fn done(&self, mut at: At<'_>, seen: Seen) -> Result<Body, Verdict> {
        let mut work = std::mem::take(&mut at.work);
        let side = at.side();
        if let Some(cap) = at.flow.note::<RuleState>().and_then(|s| s.throttle[side as usize].clone()) {
            work.throttle = Some(cap);
        }
        let messages = self.messages.then(|| crate::messages::Watched::new(self, &at, side)).flatten();
        if work.is_empty() && messages.is_none() {
            at.keep_original(None);
            return Ok(body::unchanged(seen));
        }
        let Some(headers) = at.head_mut() else { return Ok(body::unchanged(seen)) };
        let too_large = matches!(seen, Seen::Stream(Body::Stream(_))) && work.needs_whole(headers);
        let mut original = None;
        let finished = if too_large {
            let what = "a rule needs the whole body, which is larger than rules.max_body: raise that, or use an edit that streams (find)";
            Failed::Kept(Error::new(Kind::BodyTooLarge, what), seen)
        } else {
            let spare = match (&seen, self.program.config.on_failure) {
                (Seen::Whole(whole), OnFailure::Pass) => Some(Seen::Whole(whole.clone())),
                _ => None,
            };
            let by = work.by.join("`, `");
            let seen = if work.edits() { originals::seen(seen, &mut original) } else { seen };
            match body::finish(work, seen, headers) {
                Ok(body) => {
                    let original = original.filter(|o| originals::differs(o, &body));
                    let body = crate::messages::watch(messages, body, headers);
                    at.keep_original(original);
                    return Ok(body);
                }
                Err(e) => {
                    let e = if by.is_empty() { e } else { Error::new(e.kind(), format!("rule `{by}`: {e}")) };
                    match spare {
                        Some(seen) => Failed::Kept(e, seen),
                        None => Failed::Lost(e),
                    }
                }
            }
        };
        at.flow.tag("rule_failed");
        at.keep_original(None);
        match (finished, self.program.config.on_failure) {
            (Failed::Kept(e, seen), OnFailure::Pass) => {
                tracing::warn!(flow = %at.flow.id, "the body passes unchanged: {e}");
                Ok(body::unchanged(seen))
            }
            (Failed::Kept(e, _) | Failed::Lost(e), _) => Err(Verdict::Deny(e)),
        }
    }

    /// The rules on messages, for bodies that carry them.
    pub(crate) async fn message_now(&self, at: &mut At<'_>) -> Verdict {
        match self.walk(at, None, Cursor::default()) {
            Walked::Done(verdict) => verdict,
            Walked::Wait(cursor, run @ Waiting::Script(_)) => self.go_on(at, None, cursor, run).await,
            // Inside of a body nobody else is waited for: what would wait goes on.
            Walked::Wait(..) => Verdict::Continue,
        }
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.program
    }
}

enum Failed {
    Kept(Error, Seen),
    Lost(Error),
}

/// The first entry from here on that was picked; one behind the last when there is none.
fn next_picked(picked: &Picked, from: usize) -> usize {
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

/// Asks a condition without counting.
fn quiet(rule: &Rule, at: &At<'_>, program: &Program) -> Truth {
    if acts_when_asked(rule) { Truth::NotYet } else { rule.cond.ask(&at.view(program)) }
}

/// Whether a rule of the list leaves a mark on the flow.
fn leaves_marks(program: &Program, list: &List) -> bool {
    let action = |e: &Entry, i: &u16| is_mark(&program.rules[e.rule as usize].actions[usize::from(*i)].1);
    list.entries.iter().any(|e| e.actions.iter().any(|i| action(e, i)))
}

fn interest(program: &Program, lists: &[List; PHASES]) -> Interest {
    use Phase::*;
    let mut all = Interest::NONE;
    for phase in [Authority, ClientHello, RequestHead, RequestBody, Dial, ResponseHead, ResponseBody, Message, Done] {
        let entries = &lists[phase as usize].entries;
        if entries.is_empty() {
            continue;
        }
        all = all.and(phase);
        if phase <= ClientHello && leaves_marks(program, &lists[phase as usize]) {
            all = all.and(RequestHead);
        }
        if phase == Message {
            all = all.and(RequestHead).and(RequestBody).and(ResponseBody);
        }
        if phase == Done {
            all = all.and(RequestHead).and(ResponseHead);
        }
        for entry in entries {
            for i in &entry.actions {
                match &program.rules[entry.rule as usize].actions[usize::from(*i)].1 {
                    Action::Throttle(s) => {
                        let (up, down) = (s.request.is_some(), s.response.is_some());
                        all = if up { all.and(RequestBody) } else { all };
                        all = if down { all.and(ResponseBody) } else { all };
                    }
                    Action::Anticache(_) | Action::StickyCookie(_) => all = all.and(ResponseHead),
                    Action::Hold(_) | Action::Script(_) if phase == RequestHead => all = all.and(RequestBody),
                    Action::Hold(_) | Action::Script(_) if phase == ResponseHead => all = all.and(ResponseBody),
                    _ => {}
                }
            }
        }
    }
    all
}

impl Bound {
    /// Whether rules change or decide what is inside: they hold only where that is seen.
    pub fn needs_content(&self) -> bool {
        use Phase::{Message, RequestBody, RequestHead, ResponseBody, ResponseHead};
        let inside = [RequestHead, RequestBody, ResponseHead, ResponseBody, Message];
        let entries = inside.iter().flat_map(|phase| &self.lists[*phase as usize].entries);
        let action = |rule: u32, i: u16| &self.program.rules[rule as usize].actions[usize::from(i)].1;
        entries.into_iter().any(|e| e.actions.iter().any(|i| !action(e.rule, *i).only_annotates()))
    }
}

impl Stage for Bound {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, _scope: &Scope<'_>) -> Interest {
        self.interest
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        self.connect(Phase::Authority, flow, false)
    }

    fn client_hello<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        self.connect(Phase::ClientHello, flow, false)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        if self.marks_at_connect && !flow.note::<RuleState>().is_some_and(|s| s.connected) {
            self.connect_marks(flow);
        }
        if self.keeps_request {
            flow.note_mut::<RuleState>().request = Some(Arc::new(head.clone()));
        } else if self.rests(Phase::RequestHead, flow, head, None) {
            return Step::Now(Verdict::Continue);
        }
        self.plain(At { request: RequestAt::Changing(head), ..At::new(Phase::RequestHead, flow) })
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        if self.rests(Phase::RequestBody, flow, head, None) {
            return Step::Now(Ok(body));
        }
        self.with_body(At { request: RequestAt::Changing(head), ..At::new(Phase::RequestBody, flow) }, body)
    }

    fn dial<'a>(&'a self, flow: &'a mut Flow, head: Option<&'a RequestHead>, way: &'a mut Way) -> Step<'a, Verdict> {
        let request = head.map_or(RequestAt::None, RequestAt::Seen);
        self.plain(At { request, way: Some(way), ..At::new(Phase::Dial, flow) })
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        let mut before = None;
        if let Some(state) = flow.note::<RuleState>() {
            if state.sticky {
                let at = At::new(Phase::ResponseHead, flow);
                let host = at.view(&self.program).with_host(ToOwned::to_owned);
                self.program.around.sessions.keep_cookies(&host, &head.headers);
            }
            if flow.note::<RuleState>().is_some_and(|s| s.uncached) {
                before = Some(Box::new(originals::Before::Response(head.clone())));
                uncache(&mut head.headers);
            }
        }
        if self.keeps_response {
            flow.note_mut::<RuleState>().response = Some(Arc::new(head.clone()));
        } else if before.is_none() && self.rests(Phase::ResponseHead, flow, request, Some(head)) {
            return Step::Now(Verdict::Continue);
        }
        let at = At::new(Phase::ResponseHead, flow);
        self.plain(At { request: RequestAt::Seen(request), response: Some(head), before, ..at })
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        if self.rests(Phase::ResponseBody, flow, request, Some(head)) {
            return Step::Now(Ok(body));
        }
        let at = At::new(Phase::ResponseBody, flow);
        self.with_body(At { request: RequestAt::Seen(request), response: Some(head), ..at }, body)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        let request = flow.note::<RuleState>().and_then(|s| s.request.clone());
        let request = request.map_or(RequestAt::None, RequestAt::Kept);
        self.plain(At { request, message: Some(message), ..At::new(Phase::Message, flow) })
    }

    fn done(&self, flow: &Flow) {
        let mut copy = crate::view::shadow(flow);
        let (request, mut response) =
            flow.note::<RuleState>().map_or((None, None), |s| (s.request.clone(), s.response.as_deref().cloned()));
        let request = request.map_or(RequestAt::None, RequestAt::Kept);
        let mut at = At { request, response: response.as_mut(), ..At::new(Phase::Done, &mut copy) };
        self.walk(&mut at, None, Cursor::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_picked_is_found_in_order() {
        let picked: Picked = [1 | 1 << 63, 0, 1 << 2].into_iter().collect();
        let mut found = Vec::new();
        let mut from = 0;
        while next_picked(&picked, from) < 192 {
            from = next_picked(&picked, from);
            found.push(from);
            from += 1;
        }
        assert_eq!(found, [0, 63, 130]);
        assert_eq!(next_picked(&Picked::new(), 0), 0);
    }
}
