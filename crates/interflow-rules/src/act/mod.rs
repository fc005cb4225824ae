//! What actions do, each at its moment.

pub(crate) mod answers;
mod bodies;
mod called;
mod heads;
pub(crate) mod held;
mod notes;
mod upstream;

use std::cell::OnceCell;
use std::time::Duration;

pub(crate) use heads::uncache;

use bytes::Bytes;
use interflow_flow::{
    BoxFuture, Direction, Error, Flow, Headers, Kind, Message, Phase, RequestHead, ResponseHead, Verdict, Way,
};

use crate::action::Action;
use crate::body::Work;
use crate::config::OnFailure;
use crate::originals::Before;
use crate::program::{Program, Rule};
use crate::state::RuleState;
use crate::template::{Fill, Template};
use crate::view::View;

/// The request of a moment: being changed, or only looked at.
pub(crate) enum RequestAt<'a> {
    None,
    Seen(&'a RequestHead),
    Changing(&'a mut RequestHead),
    /// Kept from an earlier phase.
    Kept(std::sync::Arc<RequestHead>),
}

/// A flow at the moment in which rules act on it.
pub(crate) struct At<'a> {
    pub phase: Phase,
    pub flow: &'a mut Flow,
    pub request: RequestAt<'a>,
    pub response: Option<&'a mut ResponseHead>,
    pub way: Option<&'a mut Way>,
    pub message: Option<&'a mut Message>,
    /// The body of this phase's side without its coding, when it was read whole.
    pub body: Option<Bytes>,
    /// What shall be done to the body of this phase.
    pub work: Work,
    /// The flow is a tunnel that is looked into: its requests are asked about themselves.
    pub opens: bool,
    /// The URL as a text, once a rule asked for it; forgotten when the request is changed.
    pub url: OnceCell<String>,
    /// The head of this phase's side, before a rule that may edit it acted.
    pub before: Option<Box<Before>>,
}

impl<'a> At<'a> {
    pub fn new(phase: Phase, flow: &'a mut Flow) -> Self {
        Self {
            phase,
            flow,
            request: RequestAt::None,
            response: None,
            way: None,
            message: None,
            body: None,
            work: Work::default(),
            opens: false,
            url: OnceCell::new(),
            before: None,
        }
    }

    pub fn request(&self) -> Option<&RequestHead> {
        match &self.request {
            RequestAt::None => None,
            RequestAt::Seen(head) => Some(head),
            RequestAt::Changing(head) => Some(head),
            RequestAt::Kept(head) => Some(head),
        }
    }

    pub fn request_mut(&mut self) -> Option<&mut RequestHead> {
        self.url.take();
        match &mut self.request {
            RequestAt::Changing(head) => Some(head),
            _ => None,
        }
    }

    pub fn view<'v>(&'v self, program: &'v Program) -> View<'v> {
        let mut view = View::new(self.phase, self.flow, &program.constants);
        view.request = self.request();
        view.response = self.response.as_deref();
        view.message = self.message.as_deref();
        view.shared_url = Some(&self.url);
        match self.phase {
            Phase::RequestBody => view.request_body = self.body.as_deref(),
            Phase::ResponseBody => view.response_body = self.body.as_deref(),
            _ => {}
        }
        if self.phase > Phase::RequestBody {
            view.request_body = self.flow.note::<RuleState>().and_then(|s| s.request_body.as_deref());
        }
        view
    }

    pub fn fill(&self, program: &Program, template: &Template) -> String {
        template.fill(&Fill::of(&self.view(program))).into_owned()
    }

    /// The head that belongs to this phase's side.
    pub fn head_mut(&mut self) -> Option<&mut Headers> {
        if self.phase >= Phase::ResponseHead {
            return self.response.as_deref_mut().map(|r| &mut r.headers);
        }
        self.request_mut().map(|r| &mut r.headers)
    }

    /// The fields of this phase's side.
    pub fn head(&self) -> Option<&Headers> {
        match self.side() {
            Direction::Response => self.response.as_ref().map(|r| &r.headers),
            Direction::Request => self.request().map(|r| &r.headers),
        }
    }

    pub const fn side(&self) -> Direction {
        if matches!(self.phase, Phase::ResponseHead | Phase::ResponseBody) {
            Direction::Response
        } else {
            Direction::Request
        }
    }

    pub fn state(&mut self) -> &mut RuleState {
        self.flow.note_mut::<RuleState>()
    }
}

/// What an action comes to.
pub(crate) enum Effect {
    /// On to the next.
    Go,
    /// The flow ends, or takes another way.
    End(Verdict),
    /// No later rule in this phase.
    Stop,
    /// Something must be waited for first.
    Wait(Waiting),
}

/// What is waited for.
pub(crate) enum Waiting {
    /// Time.
    Sleep(Duration),
    /// A service's answer.
    Service(std::sync::Arc<crate::service::Service>),
    /// A script's run.
    Script(Box<crate::script::Run>),
    /// A decision.
    Decision(BoxFuture<'static, Option<crate::hold::Decision>>, bool),
}

impl Waiting {
    /// Waits, and does what came of it.
    pub async fn over(self, at: &mut At<'_>, rule: &Rule, program: &Program) -> Effect {
        match self {
            Self::Sleep(time) => {
                tokio::time::sleep(time).await;
                Effect::Go
            }
            Self::Service(service) => called::ask(at, service, rule, program).await,
            Self::Script(run) => {
                let ran = program.scripts.run(*run).await;
                called::ran(at, rule, program, ran)
            }
            Self::Decision(decision, pass) => {
                let decision = decision.await;
                held::decided(at, rule, program, decision, pass)
            }
        }
    }
}

/// An action that could not do its work: the flow ends or goes on, as the owner chose.
pub(crate) fn failed(program: &Program, rule: &Rule, flow: &mut Flow, error: Error) -> Effect {
    flow.tag("rule_failed");
    match program.config.on_failure {
        OnFailure::Deny => Effect::End(Verdict::Deny(error)),
        OnFailure::Pass => {
            tracing::warn!(flow = %flow.id, rule = rule.name, "the rule is passed over: {error}");
            Effect::Go
        }
    }
}

/// A text that became unusable by what was filled in.
pub(crate) fn unusable(rule: &Rule, what: &str, text: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::StageFailed, format!("rule `{}`: the {what} `{text}` cannot be used: {why}", rule.name))
}

/// Does what an action says.
pub(crate) fn act(at: &mut At<'_>, action: &Action, rule: &Rule, program: &Program) -> Effect {
    match action {
        Action::Nothing(_) => Effect::Go,
        Action::Stop(_) => Effect::Stop,
        Action::Tunnel(_) => Effect::End(Verdict::Tunnel),
        Action::Intercept(_) => Effect::End(Verdict::Intercept),
        Action::Delay(d) => Effect::Wait(Waiting::Sleep(crate::faults::jittered(d.time.0, d.jitter.0))),
        Action::Abort(_) => Effect::End(answers::abort(rule)),
        Action::Hold(h) => held::hold(at, h, rule, program),
        Action::Replay(_) | Action::Script(_) | Action::Call(_) => called::act(at, action, rule, program),
        Action::Tag(_)
        | Action::Comment(_)
        | Action::Colour(_)
        | Action::SetVariable(_)
        | Action::Capture(_)
        | Action::Log(_)
        | Action::Print(_)
        | Action::PrintError(_)
        | Action::AppendFile(_) => notes::act(at, action, rule, program),
        Action::UpstreamProxy(_)
        | Action::Direct(_)
        | Action::HttpVersion(_)
        | Action::ConnectTo(_)
        | Action::DnsOverHttps(_)
        | Action::TlsVersion(_)
        | Action::ServeHttp1(_)
        | Action::ShowCertificate(_)
        | Action::DangerSkipVerify(_)
        | Action::ClientCertificate(_)
        | Action::Impersonate(_)
        | Action::OwnConnection(_) => upstream::act(at, action, rule, program),
        Action::Answer(_) | Action::Block(_) | Action::Redirect(_) | Action::MapLocal(_) | Action::ServeCa(_) => {
            answers::act(at, action, rule, program)
        }
        Action::EditRequestBody(_)
        | Action::EditResponseBody(_)
        | Action::InjectHtml(_)
        | Action::EditMessage(_)
        | Action::InjectMessage(_)
        | Action::DropMessage(_)
        | Action::Throttle(_)
        | Action::TruncateResponse(_)
        | Action::ResetResponse(_)
        | Action::ResetRequest(_)
        | Action::CorruptResponse(_)
        | Action::SaveResponseBody(_) => bodies::act(at, action, rule, program),
        _ => heads::act(at, action, rule, program),
    }
}

/// Takes the groups of the condition's regexes into variables.
pub(crate) fn capture(at: &mut At<'_>, rule: &Rule, program: &Program) {
    if rule.captures.is_empty() {
        return;
    }
    let mut found = Vec::new();
    {
        let view = at.view(program);
        for (place, regex) in &rule.captures {
            let _ = place.ask(&view, &mut |value| {
                let Some(groups) = regex.captures(value) else { return false };
                found.extend(crate::text::names(regex).filter_map(|n| {
                    Some((n.to_owned(), String::from_utf8_lossy(groups.name(n)?.as_bytes()).into_owned()))
                }));
                true
            });
        }
    }
    let state = at.state();
    found.into_iter().for_each(|(name, value)| state.set(&name, value));
}
