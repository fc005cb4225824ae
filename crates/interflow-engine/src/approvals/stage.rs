//! The stage of approvals: asks about tunnels that pass unseen and about every request, and puts secrets in for placeholders
//! where nobody looks any more.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_flow::{
    Authority, Body, ByteStr, Error, Flow, Headers, Host, Interest, Kind, Phase, RequestHead, ResponseHead, Scheme,
    Scope, Stage, Step, Transport, Verdict, Way,
};

use super::held::HeldQuestion;
use super::rules::Question;
use super::secrets::Secret;
use super::sessions::now;
use super::substitute::{Swap, SwapStream};
use super::{Approvals, Word, bracketed};
use crate::approvals::config::Action;

/// Bodies up to this size, in bytes, are read whole, so that their length can be told beforehand.
const WHOLE: usize = 1 << 20;

/// See the module.
pub struct ApprovalsStage {
    approvals: Arc<Approvals>,
}

/// The secrets that were put into a flow's request, which its response must not show.
#[derive(Default)]
struct Used(Vec<Arc<Secret>>);

impl ApprovalsStage {
    /// The stage of these approvals.
    pub fn new(approvals: Arc<Approvals>) -> Self {
        Self { approvals }
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
                client: flow.client.peer.ip().to_canonical().to_string(),
                sessions: sessions.iter().map(ToString::to_string).collect(),
                host: super::hosts::shown(host).0,
                port,
                method: request.map(|(method, _)| method.to_owned()),
                path: request.map(|(_, path)| path.to_owned()),
            })),
        }
    }

    /// Waits until somebody has decided.
    async fn hold(&self, flow: &mut Flow, question: HeldQuestion) -> Verdict {
        flow.tag("held");
        let (host, port) = (bracketed(&question.host), question.port);
        let (patience, most) = (self.approvals.patience(), self.approvals.max_held());
        let why = match self.approvals.waiting().ask(question, flow.id, patience, most).await {
            Some(Action::Allow) => return Verdict::Continue,
            Some(Action::Deny) => "it was denied when somebody was asked",
            None => "nobody allowed it in time (`interflow approvals list` shows what is held)",
        };
        Verdict::Deny(Error::new(Kind::Denied, format!("{host}:{port} may not be reached: {why}")))
    }

    /// Asks about each of these hosts; most requests name one.
    fn decide<'a>(
        &'a self,
        flow: &'a mut Flow,
        hosts: &[Authority],
        request: Option<(&str, &str)>,
    ) -> Step<'a, Verdict> {
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
        Step::later(async move {
            for question in questions {
                match self.hold(flow, question).await {
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
        let (secrets, now) = (self.approvals.live_secrets(), now());
        if secrets.is_empty() {
            return Vec::new();
        }
        let (sessions, _) = self.approvals.sessions_of(&flow.client, flow.user.as_deref());
        let local = match &url.authority.host {
            Host::Ip(ip) => ip.to_canonical().is_loopback(),
            Host::Name(name) => &**name == "localhost",
        };
        let safe = |s: &Secret| url.scheme == Scheme::Https || local || s.plain_http;
        let own = |s: &Secret| s.session.as_ref().is_none_or(|(id, _)| sessions.contains(id));
        let live = secrets.iter().filter(|s| !s.is_over(now) && own(s) && safe(s));
        let hosts = named(flow, head);
        live.filter(|s| hosts.iter().all(|a| s.is_for(&a.host))).cloned().collect()
    }
}

/// Whom a request goes to: the connection's origin, the URL's, and in a tunnel the one that `Host` names; one host may serve
/// for another.
fn named(flow: &Flow, head: &RequestHead) -> Vec<Authority> {
    let mut all = vec![flow.authority.clone()];
    let mut add = |authority: Authority| {
        if all.iter().all(|a| a.host != authority.host) {
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

fn denied(host: &Host, port: u16, why: &str) -> Verdict {
    let name = bracketed(&super::hosts::shown(host).0);
    Verdict::Deny(Error::new(Kind::Denied, format!("{name}:{port} may not be reached: {why}")))
}

fn path_only(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}

impl Stage for ApprovalsStage {
    fn name(&self) -> &'static str {
        "approvals"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let (looks, secrets) = self.approvals.shape();
        let mut interest = Interest::NONE;
        if scope.transport == Transport::Internal {
            return interest;
        }
        if looks {
            interest = interest.and(Phase::Authority).and(Phase::RequestHead).and(Phase::Dial);
        }
        if secrets {
            interest = interest.and(Phase::Sending).and(Phase::ResponseHead).and(Phase::ResponseBody);
        }
        interest
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
            sessions: &sessions,
            agents: &agents,
            host,
            port,
            request: None,
            now: now(),
        };
        Step::Now(match self.approvals.judge(&question, true) {
            Word::Deny(why) => denied(host, port, &why),
            _ => Verdict::Continue,
        })
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        let hosts = named(flow, head);
        self.decide(flow, &hosts, Some((head.method.as_str(), path_only(&head.url.path))))
    }

    /// Requests were asked about; a tunnel that passes unseen was not.
    fn dial<'a>(&'a self, flow: &'a mut Flow, head: Option<&'a RequestHead>, _: &'a mut Way) -> Step<'a, Verdict> {
        if head.is_some() {
            return Step::Now(Verdict::Continue);
        }
        let hosts = [flow.authority.clone()];
        self.decide(flow, &hosts, None)
    }

    fn sending<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let secrets = self.bound_for(flow, head);
        if secrets.is_empty() {
            return Step::Now(Ok(body));
        }
        Step::later(put_in(flow, head, body, secrets))
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        if let Some(swap) = hiding(flow) {
            head.headers = swapped_headers(&swap, &head.headers).0;
        }
        Step::Now(Verdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let coded = head.headers.tokens("content-encoding").any(|t| !t.eq_ignore_ascii_case(b"identity"));
        match hiding(flow) {
            Some(swap) if !coded && !body.is_empty() => {
                head.headers.remove("content-length");
                Step::Now(Ok(SwapStream::wrap(body, Arc::new(swap), |_| {})))
            }
            _ => Step::Now(Ok(body)),
        }
    }
}

/// What takes the secrets out of a response again, as they are and as JSON writes them.
fn hiding(flow: &Flow) -> Option<Swap> {
    let used = flow.note::<Used>()?;
    let pair = |value: Vec<u8>, s: &Secret| (value, s.placeholder.as_bytes().to_vec());
    let plain = used.0.iter().map(|s| pair(s.value().as_bytes().to_vec(), s));
    let json = used.0.iter().map(|s| pair(in_json(s.value()), s));
    Swap::new(plain.chain(json).collect())
}

/// As it stands between the quotes of a JSON string.
fn in_json(value: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

/// Puts the secrets in: fields, Basic credentials, path and query, body.
async fn put_in(
    flow: &mut Flow,
    head: &mut RequestHead,
    body: Body,
    secrets: Vec<Arc<Secret>>,
) -> Result<Body, Verdict> {
    let pairs = |with: fn(&str) -> Vec<u8>| {
        secrets.iter().map(|s| (s.placeholder.as_bytes().to_vec(), with(s.value()))).collect::<Vec<_>>()
    };
    let Some(swap) = Swap::new(pairs(|v| v.as_bytes().to_vec())) else { return Ok(body) };
    let (headers, mut found) = swapped_headers(&swap, &head.headers);
    head.headers = headers;
    if let Some(swap) = Swap::new(pairs(escaped))
        && let Some((path, more)) = swap.swap(head.url.path.as_bytes())
        && let Ok(path) = String::from_utf8(path)
    {
        head.url.path = ByteStr::from(path);
        found.extend(more);
    }
    let note = |flow: &mut Flow, found: &[usize]| {
        for secret in found.iter().filter_map(|i| secrets.get(*i)) {
            secret.used.fetch_add(1, Relaxed);
            flow.tag(format!("secret:{}", secret.label));
            let used = &mut flow.note_mut::<Used>().0;
            if !used.iter().any(|u| Arc::ptr_eq(u, secret)) {
                used.push(Arc::clone(secret));
            }
        }
    };
    note(flow, &found);
    if !found.is_empty() {
        // So that the response can be looked through for what was put in.
        let _ = head.headers.set("Accept-Encoding", "identity");
    }
    let coded = head.headers.tokens("content-encoding").any(|t| !t.eq_ignore_ascii_case(b"identity"));
    let media = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    // Messages of gRPC say their lengths, which would be wrong then.
    if coded || body.is_empty() || media.starts_with("application/grpc") {
        return Ok(body);
    }
    let written: fn(&str) -> Vec<u8> = if media.contains("json") {
        in_json
    } else if media.starts_with("application/x-www-form-urlencoded") {
        escaped
    } else {
        |v| v.as_bytes().to_vec()
    };
    let Some(swap) = Swap::new(pairs(written)) else { return Ok(body) };
    if body.remaining().is_none_or(|n| n > WHOLE as u64) {
        // What it holds shows later, so the response hides every secret of the host.
        flow.note_mut::<Used>().0.extend(secrets.iter().cloned());
        let _ = head.headers.set("Accept-Encoding", "identity");
        let count = move |i: usize| {
            if let Some(secret) = secrets.get(i) {
                secret.used.fetch_add(1, Relaxed);
            }
        };
        return Ok(SwapStream::wrap(body, Arc::new(swap), count));
    }
    match body.collect(WHOLE).await {
        Ok((bytes, None)) => match swap.swap(&bytes) {
            Some((bytes, found)) => {
                note(flow, &found);
                let _ = head.headers.set("Accept-Encoding", "identity");
                Ok(Body::from(bytes::Bytes::from(bytes)))
            }
            None => Ok(Body::from(bytes)),
        },
        Ok((bytes, Some(trailers))) => {
            Ok(whole_with_trailers(swap.swap(&bytes).map_or(bytes, |(b, _)| b.into()), trailers))
        }
        // It promised to be shorter; whoever sends it is not to be trusted with more.
        Err(interflow_flow::CollectError::TooLarge(body)) => Ok(body),
        Err(interflow_flow::CollectError::Broken(e)) => Err(Verdict::Deny(e)),
    }
}

/// A body that ends with trailers.
fn whole_with_trailers(bytes: bytes::Bytes, trailers: Headers) -> Body {
    struct Two(Option<bytes::Bytes>, Option<Headers>);
    impl interflow_flow::BodyStream for Two {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<interflow_flow::Result<interflow_flow::Frame>>> {
            let data = self.0.take().filter(|b| !b.is_empty()).map(interflow_flow::Frame::Data);
            std::task::Poll::Ready(data.or_else(|| self.1.take().map(interflow_flow::Frame::Trailers)).map(Ok))
        }
    }
    Body::stream(Two(Some(bytes), Some(trailers)))
}

/// What may not stand in a path or query is percent-coded.
fn escaped(value: &str) -> Vec<u8> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    let coded = value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") });
    coded.collect::<String>().into_bytes()
}

/// The fields with everything put in, Basic credentials (RFC 7617) included, and the indices of what was found.
fn swapped_headers(swap: &Swap, headers: &Headers) -> (Headers, Vec<usize>) {
    let mut out = Headers::with_capacity(headers.len(), headers.size());
    let mut all = Vec::new();
    for (name, value) in headers {
        let basic = || {
            let (scheme, packed) = value.split_at_checked(6).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic "))?;
            let (plain, found) = swap.swap(&STANDARD.decode(packed.trim_ascii()).ok()?)?;
            Some(([scheme, STANDARD.encode(plain).as_bytes()].concat(), found))
        };
        match swap.swap(value).or_else(basic) {
            Some((value, found)) => {
                out.append_parsed(name, &value);
                all.extend(found);
            }
            None => out.append_parsed(name, value),
        }
    }
    (out, all)
}
