//! The approvals stage: authorizes tunnels that are passed through and every inspected request, and inserts secrets
//! for placeholders just before the request is sent.

use std::sync::Arc;

use interflow_types::{
    Authority, Body, BodyFuture, DialedAuthority, Direction, EarlyExit, EntryKind, Error, ErrorKind, Flow, Host,
    MaybeFuture, MessageKind, MessageVerdict, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, ResolvedNames,
    ResponseHead, Stage, StreamMessage, TunnelOrigin, TunnelVerdict, UpstreamOverrides,
};

use super::clock::now;
use super::inject_secrets::{inject_into_message, inject_secrets, is_data_message};
use super::mask_secrets::{self, SecretMaskCache};
use super::pending::{PendingQuestion, PendingRequester};
use super::request_preview::RequestPreview;
use super::rule_set::AccessQuestion;
use super::secrets::StoredSecret;
use super::{Approvals, Decision, bracket_ipv6};
use crate::config::ApprovalAction;

pub struct ApprovalsStage {
    approvals: Arc<Approvals>,
    ready: SecretMaskCache,
}

/// Secrets that may be inserted into a client's WebSocket messages, as decided by the handshake.
#[derive(Default)]
struct WebSocketSecrets(Vec<Arc<StoredSecret>>);

/// What an operator allowed for a tunnel, which is decided once more if its server name is another.
#[derive(Default)]
struct AllowedAuthorities(Vec<Authority>);

impl ApprovalsStage {
    pub fn new(approvals: Arc<Approvals>) -> Self {
        Self { approvals, ready: SecretMaskCache::default() }
    }

    /// The decision of rules and mode; the question if an operator must decide. `request` is `None` for a tunnel.
    fn decide(
        &self,
        flow: &mut Flow,
        host: &Host,
        port: u16,
        request: Option<(&str, &str)>,
    ) -> Result<RequestVerdict, Box<PendingQuestion>> {
        let (sessions, agents) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let question = access_question(flow, (&sessions, &agents), (host, port), request);
        match self.approvals.decide(&question, false) {
            Decision::Allow => Ok(RequestVerdict::Continue),
            Decision::WouldDeny => {
                flow.tag("would_deny");
                Ok(RequestVerdict::Continue)
            }
            Decision::Deny(why) => Ok(RequestVerdict::Deny(denied(host, port, &why))),
            Decision::Ask => Err(Box::new(PendingQuestion {
                method: request.map(|(method, _)| method.to_owned()),
                path: request.map(|(_, path)| path.to_owned()),
                // A request with a body waits alone: the operator decides on this body.
                alone: request.and(flow.has_request_body.filter(|has_body| *has_body)).map(|_| flow.id),
                ..PendingQuestion::about(flow, &sessions, host, port)
            })),
        }
    }

    async fn wait_for_decision(
        &self,
        flow: &mut Flow,
        question: PendingQuestion,
        preview: Option<RequestPreview>,
    ) -> RequestVerdict {
        flow.tag("held");
        let (host, port) = (bracket_ipv6(&question.host), question.port);
        let (waiting, patience) = (&self.approvals.waiting, self.approvals.timeout());
        let most = self.approvals.settings.load().max_held;
        let requester = PendingRequester { flow: flow.id, asked: preview };
        let began = std::time::Instant::now();
        let why = match waiting.wait_for_decision(question, requester, patience, most).await {
            Some(ApprovalAction::Allow) => return RequestVerdict::Continue,
            Some(ApprovalAction::Deny) => "the operator denied it",
            None if waiting.is_closed() => {
                let why = format!(
                    "{host}:{port} was not reached: the request was pending when Interflow stopped; send it again"
                );
                return RequestVerdict::Deny(Error::new(ErrorKind::Draining, why));
            }
            // It returned before the time was over: there was no place for another question.
            None if began.elapsed() < patience => {
                &format!("{most} requests are pending already (the limit, approvals.max_held); decide some first")
            }
            None => "it was not allowed in time (`interflow pending list` shows pending requests)",
        };
        RequestVerdict::Deny(Error::new(ErrorKind::Denied, format!("{host}:{port} may not be reached: {why}")))
    }

    /// Rules apply to replays too. A replay never waits: whoever sends it has decided.
    fn recheck_replay(&self, flow: &mut Flow, hosts: &[Authority], head: &RequestHead) -> RequestVerdict {
        let request = Some((head.method.as_str(), path_only(&head.url.path)));
        let is_denied = |v: &RequestVerdict| matches!(v, RequestVerdict::Deny(_));
        let mut words = hosts.iter().filter_map(|a| self.decide(flow, &a.host, a.port, request).ok());
        words.find(is_denied).unwrap_or(RequestVerdict::Continue)
    }

    /// Decides for each of these hosts; most requests have one.
    fn decide_for_hosts<'a>(
        &'a self,
        flow: &'a mut Flow,
        hosts: &[Authority],
        head: Option<&RequestHead>,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let request = head.map(|head| (head.method.as_str(), path_only(&head.url.path)));
        let mut questions = Vec::new();
        for authority in hosts {
            match self.decide(flow, &authority.host, authority.port, request) {
                Ok(RequestVerdict::Continue) => {}
                // One denial decides, so nobody is asked in vain.
                Ok(verdict) => return MaybeFuture::Ready(verdict),
                Err(_) if flow.extension::<AllowedAuthorities>().is_some_and(|own| own.0.contains(authority)) => {}
                Err(question) => questions.push((authority.clone(), *question)),
            }
        }
        if questions.is_empty() {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        let query = head.and_then(|head| head.url.path.split_once('?')).map(|(_, query)| query.to_owned());
        let preview = head.map(|head| RequestPreview::from_request(flow, head));
        MaybeFuture::pending(async move {
            // One after the other: a denial ends the questions.
            for (authority, question) in questions {
                let question = PendingQuestion { query: query.clone(), ..question };
                match self.wait_for_decision(flow, question, preview.clone()).await {
                    RequestVerdict::Continue => flow.extension_mut::<AllowedAuthorities>().0.push(authority),
                    verdict => return verdict,
                }
            }
            RequestVerdict::Continue
        })
    }

    /// The secrets that may be sent to the request's origin.
    fn secrets_for_request(&self, flow: &Flow, head: &RequestHead) -> Vec<Arc<StoredSecret>> {
        let secrets = self.approvals.secrets.load();
        // A proxy at the end of a tunnel gets none: it would read what is for the host that it is asked for.
        if secrets.is_empty() || flow.extension::<TunnelOrigin>().is_some() {
            return Vec::new();
        }
        let (sessions, _) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let own = |s: &StoredSecret| s.session.as_ref().is_none_or(|(id, _)| sessions.contains(id));
        let live = secrets.iter().filter(|s| !s.is_expired() && own(s));
        let origins = requested_authorities(flow, head);
        // All authorities must be allowed, or domain fronting could lead the secret elsewhere.
        live.filter(|s| origins.iter().all(|a| s.allows_origin(head.url.scheme, a))).cloned().collect()
    }

    /// Registers the response for masking of every secret of the hosts that the request goes to: whoever it was
    /// inserted for, on any port, and even if its session has ended.
    fn mask_secrets(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        let all = self.approvals.hidden.load_full();
        if all.is_empty() {
            return Ok(());
        }
        let mut hosts: Vec<Host> = requested_authorities(flow, head).into_iter().map(|a| a.host).collect();
        // Names by which the client may have meant an address.
        let sni = flow.client_tls.as_deref().and_then(|t| t.sni.as_deref()).map(ToString::to_string);
        let by_dns = flow.extension::<ResolvedNames>().map(|n| n.0.clone()).unwrap_or_default();
        let names = sni.into_iter().chain(by_dns.iter().map(ToString::to_string));
        hosts.extend(names.filter_map(|n| Host::parse(&n).ok()));
        let these: Vec<_> = all.iter().filter(|s| hosts.iter().any(|h| s.allows_host(h))).cloned().collect();
        if these.is_empty() {
            return Ok(());
        }
        let hosts: Vec<String> = hosts.iter().map(Host::canonical_text).collect();
        mask_secrets::start_masking(flow, head, &self.ready, &all, these, hosts.join(" "))
    }
}

/// What rules decide about a flow to this host and port; its `request` is `None` for a tunnel.
fn access_question<'a>(
    flow: &'a Flow,
    (sessions, agents): (&'a [Arc<str>], &'a [Arc<str>]),
    (host, port): (&'a Host, u16),
    request: Option<(&'a str, &'a str)>,
) -> AccessQuestion<'a> {
    AccessQuestion {
        user: flow.user.as_deref(),
        process: flow.client.process.as_deref().map(|p| p.name.as_str()),
        container: flow.client.container.as_deref(),
        sessions,
        agents,
        host,
        port,
        request,
        now: now(),
    }
}

/// The authorities of a request: the flow's, the URL's, in a tunnel that of `Host`, because of domain fronting, the
/// tunnel's own if a proxy at its end gets the request, and where the connection goes if the flow's is only a claim.
fn requested_authorities(flow: &Flow, head: &RequestHead) -> Vec<Authority> {
    let mut all = vec![flow.authority.clone()];
    let mut add = |authority: Authority| {
        if !all.contains(&authority) {
            all.push(authority);
        }
    };
    add(head.url.authority.clone());
    // For a proxy request in absolute form, the URL is the target and `Host` must be ignored (RFC 9112 section
    // 3.2.2).
    let inside = !matches!(flow.transport, EntryKind::Absolute | EntryKind::Gateway);
    let host = head.headers.get_str("host").filter(|_| inside);
    if let Some(named) = host.and_then(|h| Authority::parse(h, Some(flow.authority.port)).ok()) {
        add(named);
    }
    let tunnel = flow.extension::<TunnelOrigin>().and_then(|tunnel| tunnel.0.clone());
    tunnel.into_iter().chain(unproven_dial(flow)).for_each(add);
    all
}

/// Where the connection goes, if neither a certificate nor the DNS listener says that this is the flow's authority.
fn unproven_dial(flow: &Flow) -> Option<Authority> {
    let dialed = flow.extension::<DialedAuthority>()?.0.clone()?;
    let name = flow.authority.host.canonical_text();
    let is_known = |ResolvedNames(names): &ResolvedNames| names.iter().any(|known| known.eq_ignore_ascii_case(&name));
    Some(dialed).filter(|_| !flow.extension().is_some_and(is_known))
}

/// Names that replace an address in the decision: the one given by the client (SNI, `Host`), if the DNS listener
/// returned the address for it; else the last one it was returned for. Any other name is only a claim, so the address
/// must be allowed as well.
fn resolve_dns_names(flow: &Flow, mut all: Vec<Authority>) -> Vec<Authority> {
    let (Host::Ip(_), Some(ResolvedNames(names))) = (&flow.authority.host, flow.extension::<ResolvedNames>()) else {
        return all;
    };
    let is_known = |a: &Authority| matches!(&a.host, Host::Name(n) if names.iter().any(|k| k.eq_ignore_ascii_case(n)));
    let claims = all.iter().any(|a| matches!(a.host, Host::Name(_)));
    if all.iter().any(is_known) {
        // Only this one: the address may also be a tunnel's, with another port.
        all.retain(|a| *a != flow.authority);
    } else if let Some(Ok(name)) = names.first().filter(|_| !claims).map(|n| Host::parse(n)) {
        all.iter_mut().filter(|a| a.host == flow.authority.host).for_each(|a| a.host = name.clone());
    }
    all
}

fn denied(host: &Host, port: u16, why: &str) -> Error {
    let name = bracket_ipv6(&host.canonical_text());
    Error::new(ErrorKind::Denied, format!("{name}:{port} may not be reached: {why}"))
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

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let (looks, secrets) = self.approvals.interest();
        let mut interest = PhaseSet::NONE;
        if scope.transport == EntryKind::Internal {
            // Replays run only this phase; Interflow's own requests are not subject to approval.
            return if looks || secrets { interest.with(Phase::BeforeSend) } else { interest };
        }
        if looks {
            interest = interest.with(Phase::Authority).with(Phase::RequestHead).with(Phase::UpstreamConnect);
        }
        if secrets {
            interest = interest.with(Phase::BeforeSend).with(Phase::ResponseHead).with(Phase::ResponseBody);
            interest = interest.with(Phase::Message);
        }
        interest
    }

    /// Secrets, and rules with methods or paths, need decrypted requests.
    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        let host = &scope.authority.host;
        let secrets = self.approvals.hidden.load();
        secrets.iter().any(|s| s.allows_host(host)) || self.approvals.book.load().needs_requests(host)
    }

    /// Denies a tunnel that is denied whatever it contains; otherwise the decision is made when more is known.
    fn authority<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        // A plain request is decided with its head.
        if matches!(flow.transport, EntryKind::Absolute | EntryKind::Gateway) {
            return MaybeFuture::Ready(TunnelVerdict::Continue);
        }
        let (sessions, agents) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let (host, port) = (&flow.authority.host, flow.authority.port);
        let question = access_question(flow, (&sessions, &agents), (host, port), None);
        // The address may belong to a name that is allowed; the tunnel's content will tell which.
        let may_be_called = |name: &Arc<str>| {
            Host::parse(name).is_ok_and(|name| {
                let question = AccessQuestion { host: &name, ..question.clone() };
                !matches!(self.approvals.decide(&question, true), Decision::Deny(_))
            })
        };
        MaybeFuture::Ready(match self.approvals.decide(&question, true) {
            Decision::Deny(_) if flow.extension::<ResolvedNames>().is_some_and(|n| n.0.iter().any(may_be_called)) => {
                TunnelVerdict::Continue
            }
            Decision::Deny(why) => TunnelVerdict::Deny(denied(host, port, &why)),
            _ => TunnelVerdict::Continue,
        })
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let hosts = resolve_dns_names(flow, requested_authorities(flow, head));
        if flow.transport == EntryKind::Internal {
            return MaybeFuture::Ready(self.recheck_replay(flow, &hosts, head));
        }
        self.decide_for_hosts(flow, &hosts, Some(head))
    }

    /// Requests were already decided; a tunnel that is passed through was not.
    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: Option<&'a RequestHead>,
        _: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        if head.is_some() || flow.extension::<TunnelOrigin>().is_some() {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        let mut hosts = vec![flow.authority.clone()];
        let sni = flow.client_tls.as_deref().and_then(|t| t.sni.as_deref());
        // Another name of a tunnel is a claim; both must be allowed.
        if let Some(Ok(name @ Host::Name(_))) = sni.map(Host::parse)
            && name != flow.authority.host
        {
            hosts.push(Authority::new(name, flow.authority.port));
        }
        hosts.extend(unproven_dial(flow));
        let hosts = resolve_dns_names(flow, hosts);
        self.decide_for_hosts(flow, &hosts, None)
    }

    fn before_send<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        // First, so that a response cannot return a secret that is not masked yet.
        if let Err(verdict) = self.mask_secrets(flow, head) {
            return MaybeFuture::Ready(Err(verdict));
        }
        // Interflow's own requests get no secrets; a replay does.
        let own = flow.transport == EntryKind::Internal && flow.parent.is_none();
        let secrets = if own { Vec::new() } else { self.secrets_for_request(flow, head) };
        if secrets.is_empty() {
            return MaybeFuture::Ready(Ok(body));
        }
        if head.protocol.as_deref() == Some("websocket") {
            flow.extension_mut::<WebSocketSecrets>().0.clone_from(&secrets);
        }
        MaybeFuture::pending(inject_secrets(flow, head, body, secrets))
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        mask_secrets::mask_head(flow, head);
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        MaybeFuture::Ready(mask_secrets::mask_body(flow, request, head, body))
    }

    fn wants_messages(&self, flow: &Flow) -> bool {
        flow.extension::<WebSocketSecrets>().is_some() || mask_secrets::wants_messages(flow)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        // gRPC messages were masked in the body.
        if message.direction == Direction::Response && message.kind != MessageKind::Grpc {
            mask_secrets::mask_message(flow, message);
        }
        MaybeFuture::Ready(MessageVerdict::Continue)
    }

    fn before_message_send(&self, flow: &mut Flow, message: &mut StreamMessage) {
        if message.direction != Direction::Request || !is_data_message(message) {
            return;
        }
        // A secret that was removed or expired while the socket is open is not inserted any more.
        let live = |s: &&Arc<StoredSecret>| !s.is_expired();
        let secrets: Vec<_> =
            flow.extension::<WebSocketSecrets>().into_iter().flat_map(|s| &s.0).filter(live).cloned().collect();
        inject_into_message(flow, message, &secrets);
    }
}
