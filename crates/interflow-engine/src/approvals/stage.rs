//! The stage of approvals: asks about tunnels that pass unseen and about every request, and puts secrets in for placeholders
//! where nobody looks any more.

use std::sync::Arc;

use interflow_flow::{
    Authority, Body, Direction, Error, Flow, Host, Interest, Kind, Message, MessageKind, Phase, RequestHead,
    ResolvedNames, ResponseHead, Scope, Stage, Step, Transport, Verdict, Way,
};

use super::held::{Asker, HeldQuestion};
use super::hide::{self, Ready};
use super::preview::Asked;
use super::put_in::{is_spoken, put_in, put_into_message};
use super::rules::Question;
use super::secrets::Secret;
use super::sessions::now;
use super::{Approvals, Word, bracketed};
use crate::approvals::config::Action;

/// See the module.
pub struct ApprovalsStage {
    approvals: Arc<Approvals>,
    /// What takes secrets out of responses, by hosts.
    ready: Ready,
}

/// The secrets that may be put into what a client says over a WebSocket.
#[derive(Default)]
struct Spoken(Vec<Arc<Secret>>);

impl ApprovalsStage {
    /// The stage of these approvals.
    pub fn new(approvals: Arc<Approvals>) -> Self {
        Self { approvals, ready: Ready::default() }
    }

    /// What rules and mode say; the question, when somebody has to be asked. `request` is there when one is seen.
    fn judge(
        &self,
        flow: &mut Flow,
        host: &Host,
        port: u16,
        request: Option<(&str, &str)>,
    ) -> Result<Verdict, Box<HeldQuestion>> {
        let (sessions, agents) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let process = flow.client.process.as_deref().map(|p| p.name.clone());
        let question = Question {
            user: flow.user.as_deref(),
            process: process.as_deref(),
            container: flow.client.container.as_deref(),
            sessions: &sessions,
            agents: &agents,
            host,
            port,
            request,
            now: now(),
        };
        match self.approvals.judge(&question, false) {
            Word::Allow => Ok(Verdict::Continue),
            Word::WouldDeny => {
                flow.tag("would_deny");
                Ok(Verdict::Continue)
            }
            Word::Deny(why) => Ok(denied(host, port, &why)),
            Word::Ask => Err(Box::new(HeldQuestion {
                user: flow.user.as_deref().map(str::to_owned),
                process: process.map(|p| p.to_string()),
                container: flow.client.container.as_deref().map(str::to_owned),
                client: flow.client.peer.ip().to_canonical().to_string(),
                sessions: sessions.iter().map(ToString::to_string).collect(),
                host: super::hosts::shown(host).0,
                port,
                method: request.map(|(method, _)| method.to_owned()),
                path: request.map(|(_, path)| path.to_owned()),
                query: None,
                alone: request.and(flow.uploads.filter(|has_body| *has_body)).map(|_| flow.id),
            })),
        }
    }

    /// Waits until somebody has decided.
    async fn hold(&self, flow: &mut Flow, question: HeldQuestion, asked: Option<Asked>) -> Verdict {
        flow.tag("held");
        let (host, port) = (bracketed(&question.host), question.port);
        let (patience, most) = (self.approvals.patience(), self.approvals.max_held());
        let began = std::time::Instant::now();
        let why = match self.approvals.waiting().ask(question, Asker { flow: flow.id, asked }, patience, most).await {
            Some(Action::Allow) => return Verdict::Continue,
            Some(Action::Deny) => "it was denied when somebody was asked",
            None if self.approvals.waiting().is_closed() => {
                let why = format!(
                    "{host}:{port} was not reached: the request was held when Interflow stopped; send it again"
                );
                return Verdict::Deny(Error::new(Kind::Draining, why));
            }
            None if began.elapsed() < patience => {
                let why = format!(
                    "{host}:{port} may not be reached: {most} questions are open already, and no more are asked"
                );
                return Verdict::Deny(Error::new(
                    Kind::Denied,
                    format!("{why} (approvals.max_held); answer some first"),
                ));
            }
            None => "nobody allowed it in time (`interflow approvals list` shows what is held)",
        };
        Verdict::Deny(Error::new(Kind::Denied, format!("{host}:{port} may not be reached: {why}")))
    }

    /// Rules hold for replays too. Nobody is asked: whoever sends one has decided.
    fn judge_replay(&self, flow: &mut Flow, hosts: &[Authority], head: &RequestHead) -> Verdict {
        let request = Some((head.method.as_str(), path_only(&head.url.path)));
        let denied = |v: &Verdict| matches!(v, Verdict::Deny(_));
        let mut words = hosts.iter().filter_map(|a| self.judge(flow, &a.host, a.port, request).ok());
        words.find(denied).unwrap_or(Verdict::Continue)
    }

    /// Asks about each of these hosts; most requests name one.
    fn decide<'a>(&'a self, flow: &'a mut Flow, hosts: &[Authority], head: Option<&RequestHead>) -> Step<'a, Verdict> {
        let request = head.map(|head| (head.method.as_str(), path_only(&head.url.path)));
        let mut questions = Vec::new();
        for Authority { host, port } in hosts {
            match self.judge(flow, host, *port, request) {
                Ok(Verdict::Continue) => {}
                Ok(verdict) => return Step::Now(verdict),
                Err(question) => questions.push(*question),
            }
        }
        if questions.is_empty() {
            return Step::Now(Verdict::Continue);
        }
        let query = head.and_then(|head| head.url.path.split_once('?')).map(|(_, query)| query.to_owned());
        let asked = head.map(|head| Asked::of(flow, head));
        Step::later(async move {
            for question in questions {
                let question = HeldQuestion { query: query.clone(), ..question };
                match self.hold(flow, question, asked.clone()).await {
                    Verdict::Continue => {}
                    verdict => return verdict,
                }
            }
            Verdict::Continue
        })
    }

    /// Pairs of placeholders and the secrets that may go to this host.
    fn bound_for(&self, flow: &Flow, head: &RequestHead) -> Vec<Arc<Secret>> {
        let url = &head.url;
        let secrets = self.approvals.live_secrets();
        if secrets.is_empty() {
            return Vec::new();
        }
        let (sessions, _) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let own = |s: &Secret| s.session.as_ref().is_none_or(|(id, _)| sessions.contains(id));
        let live = secrets.iter().filter(|s| !s.is_over() && own(s));
        let origins = named(flow, head);
        live.filter(|s| origins.iter().all(|a| s.is_for(url.scheme, a))).cloned().collect()
    }

    /// Has the response looked through for every secret of the hosts that the request goes to: whoever it was put in for, on
    /// whichever port, and whether its session has ended.
    fn hide(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), Verdict> {
        let all = self.approvals.hidden_secrets();
        if all.is_empty() {
            return Ok(());
        }
        let mut hosts: Vec<Host> = named(flow, head).into_iter().map(|a| a.host).collect();
        let sni = flow.client_tls.as_deref().and_then(|t| t.sni.as_deref()).map(ToString::to_string);
        let by_dns = flow.note::<ResolvedNames>().map(|n| n.0.clone()).unwrap_or_default();
        let names = sni.into_iter().chain(by_dns.iter().map(ToString::to_string));
        hosts.extend(names.filter_map(|n| Host::parse(&n).ok()));
        let these: Vec<_> = all.iter().filter(|s| hosts.iter().any(|h| s.is_at(h))).cloned().collect();
        if these.is_empty() {
            return Ok(());
        }
        let hosts: Vec<String> = hosts.iter().map(|h| super::hosts::shown(h).0).collect();
        hide::begin(flow, head, &self.ready, &all, these, hosts.join(" "))
    }
}

/// Whom a request goes to: the connection's origin, the URL's, and in a tunnel the one that `Host` names; one host may serve
/// for another.
fn named(flow: &Flow, head: &RequestHead) -> Vec<Authority> {
    let mut all = vec![flow.authority.clone()];
    let mut add = |authority: Authority| {
        if !all.contains(&authority) {
            all.push(authority);
        }
    };
    add(head.url.authority.clone());
    let inside = !matches!(flow.transport, Transport::Absolute | Transport::Gateway);
    let host = head.headers.get_str("host").filter(|_| inside);
    if let Some(named) = host.and_then(|h| Authority::parse(h, Some(flow.authority.port)).ok()) {
        add(named);
    }
    all
}

/// The names that a flow to an address is decided by, in place of the address: the one that the client itself gives (SNI,
/// `Host`), where the DNS port gave the address out for it; else the one it was given out for last. A name that it was never
/// given out for is a mere claim: the address must be allowed beside it.
fn called(flow: &Flow, mut all: Vec<Authority>) -> Vec<Authority> {
    let (Host::Ip(_), Some(ResolvedNames(names))) = (&flow.authority.host, flow.note::<ResolvedNames>()) else {
        return all;
    };
    let is_known = |a: &Authority| matches!(&a.host, Host::Name(n) if names.iter().any(|k| k.eq_ignore_ascii_case(n)));
    let claims = all.iter().any(|a| matches!(a.host, Host::Name(_)));
    if all.iter().any(is_known) {
        all.retain(|a| a.host != flow.authority.host);
    } else if let Some(Ok(name)) = names.first().filter(|_| !claims).map(|n| Host::parse(n)) {
        all.iter_mut().filter(|a| a.host == flow.authority.host).for_each(|a| a.host = name.clone());
    }
    all
}

fn denied(host: &Host, port: u16, why: &str) -> Verdict {
    let name = bracketed(&super::hosts::shown(host).0);
    Verdict::Deny(Error::new(Kind::Denied, format!("{name}:{port} may not be reached: {why}")))
}

fn path_only(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}

impl Stage for ApprovalsStage {
    fn name(&self) -> &'static str {
        super::STAGE
    }

    fn may_wait_for_human(&self) -> bool {
        true
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let (looks, secrets) = self.approvals.shape();
        let mut interest = Interest::NONE;
        if scope.transport == Transport::Internal {
            // Replays, which pass none of the other phases; the engine's own calls are not asked about.
            return if looks || secrets { interest.and(Phase::Sending) } else { interest };
        }
        if looks {
            interest = interest.and(Phase::Authority).and(Phase::RequestHead).and(Phase::Dial);
        }
        if secrets {
            interest = interest.and(Phase::Sending).and(Phase::ResponseHead).and(Phase::ResponseBody);
            interest = interest.and(Phase::Message);
        }
        interest
    }

    /// Secrets are put in and hidden, and rules on methods and paths hold, only where requests are seen.
    fn needs_inspection(&self, scope: &Scope<'_>) -> bool {
        let host = &scope.authority.host;
        let secrets = self.approvals.hidden_secrets();
        secrets.iter().any(|s| s.is_at(host)) || self.approvals.book.load().needs_requests(host)
    }

    /// A tunnel that is denied whatever is in it ends here; all else is asked about when more is known.
    fn authority<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        if matches!(flow.transport, Transport::Absolute | Transport::Gateway) {
            return Step::Now(Verdict::Continue);
        }
        let (sessions, agents) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let (host, port) = (&flow.authority.host, flow.authority.port);
        let question = Question {
            user: flow.user.as_deref(),
            process: flow.client.process.as_deref().map(|p| p.name.as_str()),
            container: flow.client.container.as_deref(),
            sessions: &sessions,
            agents: &agents,
            host,
            port,
            request: None,
            now: now(),
        };
        // An address may stand for a name that is allowed; which one, what is inside will tell.
        let may_be_called = |name: &Arc<str>| {
            Host::parse(name).is_ok_and(|name| {
                let question = Question { host: &name, ..question.clone() };
                !matches!(self.approvals.judge(&question, true), Word::Deny(_))
            })
        };
        Step::Now(match self.approvals.judge(&question, true) {
            Word::Deny(_) if flow.note::<ResolvedNames>().is_some_and(|n| n.0.iter().any(may_be_called)) => {
                Verdict::Continue
            }
            Word::Deny(why) => denied(host, port, &why),
            _ => Verdict::Continue,
        })
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        let hosts = called(flow, named(flow, head));
        if flow.transport == Transport::Internal {
            return Step::Now(self.judge_replay(flow, &hosts, head));
        }
        self.decide(flow, &hosts, Some(head))
    }

    /// Requests were asked about; a tunnel that passes unseen was not.
    fn dial<'a>(&'a self, flow: &'a mut Flow, head: Option<&'a RequestHead>, _: &'a mut Way) -> Step<'a, Verdict> {
        if head.is_some() {
            return Step::Now(Verdict::Continue);
        }
        let mut hosts = vec![flow.authority.clone()];
        let sni = flow.client_tls.as_deref().and_then(|t| t.sni.as_deref());
        if let (Host::Ip(_), Some(Ok(name @ Host::Name(_)))) = (&flow.authority.host, sni.map(Host::parse)) {
            hosts.push(Authority::new(name, flow.authority.port));
        }
        let hosts = called(flow, hosts);
        self.decide(flow, &hosts, None)
    }

    fn sending<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        if let Err(verdict) = self.hide(flow, head) {
            return Step::Now(Err(verdict));
        }
        // What Interflow asks for itself has no secret put in; a replay does.
        let own = flow.transport == Transport::Internal && flow.parent.is_none();
        let secrets = if own { Vec::new() } else { self.bound_for(flow, head) };
        if secrets.is_empty() {
            return Step::Now(Ok(body));
        }
        if head.protocol.as_deref() == Some("websocket") {
            flow.note_mut::<Spoken>().0.clone_from(&secrets);
        }
        Step::later(put_in(flow, head, body, secrets))
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        hide::in_head(flow, head);
        Step::Now(Verdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        Step::Now(hide::in_body(flow, request, head, body))
    }

    fn follows(&self, flow: &Flow) -> bool {
        flow.note::<Spoken>().is_some() || hide::follows(flow)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        // Those of gRPC were looked through in their body.
        if message.direction == Direction::Response && message.kind != MessageKind::Grpc {
            hide::in_message(flow, message);
        }
        Step::Now(Verdict::Continue)
    }

    fn message_sending(&self, flow: &mut Flow, message: &mut Message) {
        if message.direction != Direction::Request || !is_spoken(message) {
            return;
        }
        let live = |s: &&Arc<Secret>| !s.is_over();
        let secrets: Vec<_> = flow.note::<Spoken>().into_iter().flat_map(|s| &s.0).filter(live).cloned().collect();
        put_into_message(flow, message, &secrets);
    }
}
