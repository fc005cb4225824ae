//! Runs a flow through the rules without a network: for `rules test`, and for the tests of this crate. The same code
//! as in traffic runs, in the order of the request pipeline.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{
    Body, ClientTlsOverride, EntryKind, Error, ErrorKind, InjectedMessages, MessageVerdict, Phase, PhaseSet,
    RequestHead, RequestVerdict, Response, ResponseHead, Stage, StatusCode, StreamMessage, TunnelVerdict,
    UpstreamOverrides,
};

use crate::compiled::expect::{Expectation, MessageExpectation, TestRequest, TestResponse};
use crate::compiled::program::RuleProgram;
use crate::flow::fixture::FlowFixture;
use crate::host_rules::{HostRuleStage, MAX_MESSAGE_SIZE, RulesByHost};

/// The result of a simulation: what would have been sent, and what the rules noted.
#[derive(Debug, Default)]
pub struct Simulation {
    /// Names of the rules that matched, in the order of the program.
    pub matched: Vec<String>,
    /// The request sent to the origin; `None` if a rule ended the flow before.
    pub request: Option<(RequestHead, Bytes)>,
    /// The response sent to the client; `None` if there is none.
    pub response: Option<(ResponseHead, Bytes)>,
    /// Whether a rule answered in the origin's place.
    pub answered: bool,
    /// Why a rule denied the flow.
    pub denied: Option<interflow_types::Error>,
    /// Why a body broke off, by an injected fault.
    pub broken: Option<String>,
    /// The upstream overrides (proxy, address, TLS) that rules set.
    pub overrides: UpstreamOverrides,
    /// `Some(true)`: pass TLS through without inspection; `Some(false)`: intercept it.
    pub tunnel: Option<bool>,
    /// The TLS presented to the client, as changed by rules.
    pub client_tls: ClientTlsOverride,
    /// The messages, each followed by those that rules injected.
    pub messages: Vec<StreamMessage>,
    pub tags: Vec<String>,
}

/// Maximum size of a body in a simulation; the rest is dropped.
const MAX_BODY_SIZE: usize = 64 << 20;

/// Runs a flow through the rules; the fixture's response is the origin's. Counters of the rules are advanced, as in
/// traffic.
pub async fn run(program: &Arc<RuleProgram>, sample: FlowFixture) -> Simulation {
    let before: Vec<u64> = program.rules.iter().map(crate::compiled::program::CompiledRule::matches).collect();
    let mut trial = Simulation::default();
    let FlowFixture { mut flow, request, request_body, response, response_body, messages } = sample;
    let by_host = RulesByHost::new(Arc::clone(program));
    if let Some(bound) = by_host.rules_for(&flow.authority.host) {
        let interest = bound.interest;
        let stage = HostRuleStage { bound, phases: &[], opens: false };
        let mut course = StageRun { stage: &stage, trial: &mut trial, flow: &mut flow, interest };
        if course.run_request(request, request_body).await {
            course.run_response(response, response_body).await;
            course.run_messages(messages).await;
        }
    } else {
        trial.request = request.map(|r| (r, request_body));
        trial.response = response.map(|r| (r, response_body));
        trial.messages = messages;
    }
    by_host.clear_cache();
    if let Some(shown) = flow.extension::<ClientTlsOverride>() {
        trial.client_tls = shown.clone();
    }
    trial.tags = flow.tags.iter().map(ToString::to_string).collect();
    let after = program.rules.iter().zip(before);
    trial.matched = after.filter(|(r, n)| r.matches() > *n).map(|(r, _)| r.name.clone()).collect();
    trial
}

struct StageRun<'a> {
    stage: &'a HostRuleStage,
    trial: &'a mut Simulation,
    flow: &'a mut interflow_types::Flow,
    interest: PhaseSet,
}

impl StageRun<'_> {
    /// Runs the messages, and the end of the flow behind them.
    async fn run_messages(&mut self, messages: Vec<StreamMessage>) {
        for mut message in messages {
            if !self.interest.contains(Phase::Message) {
                self.trial.messages.push(message);
                continue;
            }
            let (direction, kind) = (message.direction, message.kind);
            if message.payload.len() > MAX_MESSAGE_SIZE {
                // As the proxy does with a message that it does not hold.
                let mut unread = StreamMessage { payload: Bytes::new(), ..message.clone() };
                let why = format!("the message is larger than {MAX_MESSAGE_SIZE} bytes");
                let why = Error::new(ErrorKind::BodyTooLarge, why);
                if let Err(e) = self.stage.unreadable_message(self.flow, &mut unread, &why).resolve().await {
                    return self.trial.denied = Some(e);
                }
                self.trial.messages.push(message);
                continue;
            }
            match self.stage.message(self.flow, &mut message).resolve().await {
                MessageVerdict::Continue => self.trial.messages.push(message),
                MessageVerdict::Drop => {}
                MessageVerdict::Deny(e) => return self.trial.denied = Some(e),
            }
            let InjectedMessages { forward: onward, reply: back } =
                std::mem::take(self.flow.extension_mut::<InjectedMessages>());
            for (direction, payloads) in [(direction, onward), (direction.opposite(), back)] {
                let made = |payload| crate::flow::view::test_message(direction, kind, payload);
                self.trial.messages.extend(payloads.into_iter().map(made));
            }
        }
        if self.interest.contains(Phase::Done) {
            self.stage.finish(self.flow);
            self.stage.bound.run_done(self.flow).resolve().await;
        }
    }

    /// Applies a verdict to the simulation, and returns whether the flow continues.
    async fn apply_verdict(&mut self, verdict: RequestVerdict) -> bool {
        match verdict {
            RequestVerdict::Continue => true,
            RequestVerdict::Answer(response) => {
                self.trial.answered = true;
                let Response { head, body } = *response;
                self.trial.response = Some((head, self.read_body(body).await));
                false
            }
            RequestVerdict::Deny(e) => {
                self.trial.denied = Some(e);
                false
            }
        }
    }

    async fn read_body(&mut self, body: Body) -> Bytes {
        let mut body = body;
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(interflow_types::BodyFrame::Data(d)) if all.len() + d.len() <= MAX_BODY_SIZE => {
                    all.extend_from_slice(&d)
                }
                Ok(_) => {}
                Err(e) => {
                    self.trial.broken = Some(e.to_string());
                    break;
                }
            }
        }
        all.into()
    }

    /// Runs the phases before the request, on a tunnel or on the request's own flow. Returns whether the flow
    /// continues.
    async fn run_connect(&mut self, tunnel: bool) -> bool {
        for phase in [Phase::Authority, Phase::ClientHello] {
            if !self.interest.contains(phase) || phase == Phase::ClientHello && !tunnel {
                continue;
            }
            let verdict = self.stage.bound.run_connect(phase, self.flow, tunnel).resolve().await;
            match verdict {
                TunnelVerdict::Continue => {}
                TunnelVerdict::Tunnel => self.trial.tunnel = Some(true),
                TunnelVerdict::Intercept => self.trial.tunnel = Some(false),
                TunnelVerdict::Deny(e) => {
                    self.trial.denied = Some(e);
                    return false;
                }
            }
        }
        true
    }

    async fn run_request(&mut self, request: Option<RequestHead>, body: Bytes) -> bool {
        // As in traffic, a request in a tunnel is a flow of its own, which begins after the tunnel was decided.
        let inside = request.is_some() && self.flow.transport == EntryKind::Connect;
        if inside {
            let mut tunnel = crate::flow::view::copy_facts(self.flow);
            let mut course = StageRun { flow: &mut tunnel, trial: &mut *self.trial, ..*self };
            let goes_on = course.run_connect(true).await;
            self.trial.client_tls = tunnel.extension::<ClientTlsOverride>().cloned().unwrap_or_default();
            if !goes_on || self.trial.tunnel == Some(true) {
                // The request is not inspected.
                tunnel.tags.into_iter().for_each(|t| self.flow.tag(t));
                if goes_on {
                    self.trial.request = request.map(|r| (r, body));
                }
                return false;
            }
        } else if !self.run_connect(self.flow.transport == EntryKind::Connect).await {
            return false;
        }
        let mut head = request;
        if let Some(head) = &mut head {
            if self.interest.contains(Phase::RequestHead) {
                let verdict = self.stage.request_head(self.flow, head).resolve().await;
                if !self.apply_verdict(verdict).await {
                    return false;
                }
            }
            let mut body = Body::from(body);
            if self.interest.contains(Phase::RequestBody) {
                body = match self.stage.request_body(self.flow, head, body).resolve().await {
                    Ok(body) => body,
                    Err(exit) => return self.apply_verdict(exit.into()).await,
                };
            }
            let body = self.read_body(body).await;
            self.trial.request = Some((head.clone(), body));
        }
        if self.interest.contains(Phase::UpstreamConnect) {
            let mut overrides = UpstreamOverrides::default();
            let verdict = self.stage.upstream_connect(self.flow, head.as_ref(), &mut overrides).resolve().await;
            self.trial.overrides = overrides;
            if !self.apply_verdict(verdict).await {
                self.trial.request = None;
                return false;
            }
        }
        true
    }

    async fn run_response(&mut self, response: Option<ResponseHead>, body: Bytes) {
        let (Some(mut head), Some((request, _))) = (response, self.trial.request.clone()) else { return };
        if self.interest.contains(Phase::ResponseHead) {
            let verdict = self.stage.response_head(self.flow, &request, &mut head).resolve().await;
            if !self.apply_verdict(verdict).await {
                return;
            }
        }
        let mut body = Body::from(body);
        if self.interest.contains(Phase::ResponseBody) {
            body = match self.stage.response_body(self.flow, &request, &mut head, body).resolve().await {
                Ok(body) => body,
                Err(exit) => {
                    self.apply_verdict(exit.into()).await;
                    return;
                }
            };
        }
        let body = self.read_body(body).await;
        self.trial.response = Some((head, body));
    }
}

/// Builds the flow that an expectation describes.
///
/// # Errors
/// An invalid URL, method, status or field.
pub fn fixture_from(asked: &TestRequest, told: &TestResponse) -> Result<FlowFixture, String> {
    let mut sample = FlowFixture::for_request(asked.method.as_deref().unwrap_or("GET"), &asked.url)?;
    for (name, value) in &asked.headers {
        sample = sample.with_header(name, value)?;
    }
    sample.request_body = asked.body.clone().into();
    sample.flow.has_request_body = Some(!sample.request_body.is_empty());
    let headers: Vec<(&str, &str)> = told.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    sample.with_response(told.status.unwrap_or(200), &headers, told.body.clone())
}

/// Runs an expectation; returns each difference as one line, none if it is met.
///
/// # Errors
/// A flow that cannot be built, or an expectation about a rule that does not exist.
pub async fn check_expectation(program: &Arc<RuleProgram>, test: &Expectation) -> Result<Vec<String>, String> {
    let mut flow = fixture_from(&test.request, &test.response)?;
    if let Some(message) = &test.message {
        flow = flow.with_message(interflow_types::Direction::Request, message.clone());
    }
    let trial = run(program, flow).await;
    let mut wrong = Vec::new();
    let e = &test.expect;
    if let Some(name) = e.matched.iter().chain(&e.not_matched).find(|name| program.rule(name).is_none()) {
        return Err(format!("there is no rule `{name}`"));
    }
    let matched = |name: &String| trial.matched.contains(name);
    wrong.extend(e.matched.iter().filter(|n| !matched(n)).map(|n| format!("rule `{n}` did not match")));
    wrong.extend(e.not_matched.iter().filter(|n| matched(n)).map(|n| format!("rule `{n}` matched")));
    let mut same = |what: &str, wanted: Option<bool>, is: bool| {
        if wanted.is_some_and(|w| w != is) {
            wrong.push(format!("{what} is {is}"));
        }
    };
    same("answered", e.answered, trial.answered);
    same("denied", e.denied, trial.denied.is_some());
    let missing = e.tags.iter().filter(|t| !trial.tags.contains(t));
    wrong.extend(missing.map(|tag| format!("the tag `{tag}` is missing; there are {:?}", trial.tags)));
    let request = trial.request.as_ref().map(|(h, b)| ActualMessage {
        method: Some(h.method.to_string()),
        url: Some(h.url.to_string()),
        status: None,
        headers: &h.headers,
        body: b,
    });
    compare_message("request", &e.request, request, &mut wrong);
    let response = trial.response.as_ref().map(|(h, b)| ActualMessage {
        method: None,
        url: None,
        status: Some(h.status),
        headers: &h.headers,
        body: b,
    });
    compare_message("response", &e.response, response, &mut wrong);
    if let Some(wanted) = &e.message {
        let got = trial.messages.first().map(|m| String::from_utf8_lossy(&m.payload).into_owned());
        if got.as_ref() != Some(wanted) {
            wrong.push(format!("the message is {got:?}"));
        }
    }
    Ok(wrong)
}

struct ActualMessage<'a> {
    method: Option<String>,
    url: Option<String>,
    status: Option<StatusCode>,
    headers: &'a interflow_types::Headers,
    body: &'a Bytes,
}

/// Compares only what the expectation mentions.
fn compare_message(side: &str, wanted: &MessageExpectation, got: Option<ActualMessage<'_>>, wrong: &mut Vec<String>) {
    let Some(got) = got else {
        if format!("{wanted:?}") != format!("{:?}", MessageExpectation::default()) {
            wrong.push(format!("there is no {side}"));
        }
        return;
    };
    let mut differs = |what: &str, wanted: Option<&String>, is: &Option<String>| {
        if let Some(w) = wanted
            && is.as_ref() != Some(w)
        {
            wrong.push(format!("the {side}'s {what} is {:?}", is.as_deref().unwrap_or("none")));
        }
    };
    differs("method", wanted.method.as_ref(), &got.method);
    differs("URL", wanted.url.as_ref(), &got.url);
    for (name, value) in &wanted.headers {
        let is = got.headers.get(name).map(|v| String::from_utf8_lossy(v).into_owned());
        differs(&format!("field {name}"), Some(value), &is);
    }
    let text = String::from_utf8_lossy(got.body).into_owned();
    differs("body", wanted.body.as_ref(), &Some(text.clone()));
    if let (Some(w), Some(is)) = (wanted.status, got.status)
        && w != is.as_u16()
    {
        wrong.push(format!("the {side}'s status is {}", is.as_u16()));
    }
    let unwanted = wanted.without.iter().filter(|n| got.headers.contains(n));
    wrong.extend(unwanted.map(|name| format!("the {side} has the field {name}")));
    if let Some(part) = wanted.contains.as_ref().filter(|p| !text.contains(p.as_str())) {
        wrong.push(format!("the {side}'s body lacks {part:?}"));
    }
}
