//! The stage of approvals: asks about tunnels that pass unseen and about every request, and puts secrets in for placeholders
//! where nobody looks any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use interflow_flow::{
    Authority, Body, ByteStr, Direction, Error, Flow, Headers, Host, Interest, Kind, Message, MessageKind, Phase,
    RequestHead, ResponseHead, Scheme, Scope, Stage, Step, Transport, Verdict, Way,
};

use interflow_llm::coding;

use super::held::HeldQuestion;
use super::rules::Question;
use super::secrets::Secret;
use super::sessions::now;
use super::substitute::{Swap, SwapStream};
use super::{Approvals, Word, bracketed};
use crate::approvals::config::Action;
use crate::dns::CalledByDns;

/// Bodies up to this size, in bytes, are read whole, so that their length can be told beforehand.
const WHOLE: usize = 1 << 20;

/// The most bytes that a body's content coding may hide.
const LARGEST_PLAIN: u64 = 16 << 20;
/// The shortest secret, in bytes, that is looked for in base64: a shorter one would be found where it is not.
const SHORTEST_PACKED: usize = 8;

/// See the module.
pub struct ApprovalsStage {
    approvals: Arc<Approvals>,
}

/// The secrets that were put into a flow's request, which its response must not show.
#[derive(Default)]
struct Used {
    secrets: Vec<Arc<Secret>>,
    /// Basic credentials that they were put into, and how those stood before.
    packed: Vec<(Vec<u8>, Vec<u8>)>,
    /// What takes them out again, made when it is needed.
    hides: Option<Arc<Swap>>,
}

impl Used {
    fn add(&mut self, secret: &Arc<Secret>) {
        if !self.secrets.iter().any(|u| Arc::ptr_eq(u, secret)) {
            self.secrets.push(Arc::clone(secret));
            self.hides = None;
        }
    }
}

/// The secrets that may be put into what a client says over a WebSocket.
#[derive(Default)]
struct Spoken(Vec<Arc<Secret>>);

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
            })),
        }
    }

    /// Waits until somebody has decided.
    async fn hold(&self, flow: &mut Flow, question: HeldQuestion) -> Verdict {
        flow.tag("held");
        let (host, port) = (bracketed(&question.host), question.port);
        let (patience, most) = (self.approvals.patience(), self.approvals.max_held());
        let began = std::time::Instant::now();
        let why = match self.approvals.waiting().ask(question, flow.id, patience, most).await {
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
        let secrets = self.approvals.live_secrets();
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
        let live = secrets.iter().filter(|s| !s.is_over() && own(s) && safe(s));
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

/// The names that a flow to an address is decided by, in place of the address: the one that the client itself gives (SNI,
/// `Host`), where the DNS port gave the address out for it; else the one it was given out for last. A name that it was never
/// given out for is a mere claim: the address must be allowed beside it.
fn called(flow: &Flow, mut all: Vec<Authority>) -> Vec<Authority> {
    let (Host::Ip(_), Some(CalledByDns(names))) = (&flow.authority.host, flow.note::<CalledByDns>()) else {
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

    /// Secrets are put in, and rules on methods and paths hold, only where requests are seen.
    fn needs_inspection(&self, scope: &Scope<'_>) -> bool {
        let host = &scope.authority.host;
        let secrets = self.approvals.live_secrets();
        secrets.iter().any(|s| !s.is_over() && s.is_for(host)) || self.approvals.book.load().needs_requests(host)
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
            Word::Deny(_) if flow.note::<CalledByDns>().is_some_and(|n| n.0.iter().any(may_be_called)) => {
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
        self.decide(flow, &hosts, Some((head.method.as_str(), path_only(&head.url.path))))
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
        let secrets = self.bound_for(flow, head);
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
                Step::Now(Ok(SwapStream::wrap(body, swap, |_| {})))
            }
            _ => Step::Now(Ok(body)),
        }
    }

    fn follows(&self, flow: &Flow) -> bool {
        flow.note::<Spoken>().is_some() || flow.note::<Used>().is_some()
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        if message.direction == Direction::Response
            && is_spoken(message)
            && let Some((hidden, _)) = hiding(flow).and_then(|swap| swap.swap(&message.payload))
        {
            message.payload = hidden.into();
        }
        Step::Now(Verdict::Continue)
    }

    fn message_sending(&self, flow: &mut Flow, message: &mut Message) {
        if message.direction != Direction::Request || !is_spoken(message) {
            return;
        }
        let live = |s: &&Arc<Secret>| !s.is_over();
        let secrets: Vec<_> = flow.note::<Spoken>().into_iter().flat_map(|s| &s.0).filter(live).cloned().collect();
        let json = message.payload.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'['));
        let written: fn(&str) -> Vec<u8> = if json { in_json } else { |v| v.as_bytes().to_vec() };
        let swap = Swap::new(pairs(&secrets, written));
        if let Some((payload, found)) = swap.and_then(|swap| swap.swap(&message.payload)) {
            message.payload = payload.into();
            note_used(flow, &secrets, &found);
        }
    }
}

/// Whether a message is one of a WebSocket that its ends wrote.
const fn is_spoken(message: &Message) -> bool {
    matches!(message.kind, MessageKind::Text | MessageKind::Binary)
}

/// Placeholders, as they are and as they stand where they had to be percent-coded, and what is put in for them.
fn pairs(secrets: &[Arc<Secret>], with: fn(&str) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let plain = secrets.iter().map(|s| (s.placeholder.as_bytes().to_vec(), with(s.value())));
    let coded = secrets.iter().map(|s| (escaped(&s.placeholder), with(s.value())));
    plain.chain(coded).collect()
}

/// Counts what was put in, and writes it down. `found` are indices into the pairs of these secrets.
fn note_used(flow: &mut Flow, secrets: &[Arc<Secret>], found: &[usize]) {
    for secret in found.iter().filter_map(|i| secrets.get(i % secrets.len())) {
        secret.used.fetch_add(1, Relaxed);
        flow.tag(format!("secret:{}", secret.label));
        flow.note_mut::<Used>().add(secret);
    }
}

/// What takes the secrets out of a response again, in whatever form an origin may repeat them.
fn hiding(flow: &mut Flow) -> Option<Arc<Swap>> {
    flow.note::<Used>()?;
    let used = flow.note_mut::<Used>();
    if used.hides.is_none() {
        let of = |s: &Arc<Secret>| {
            let placeholder = s.placeholder.as_bytes().to_vec();
            forms(s.value()).into_iter().map(move |form| (form, placeholder.clone())).collect::<Vec<_>>()
        };
        let pairs = used.secrets.iter().flat_map(of).chain(used.packed.iter().cloned());
        used.hides = Swap::new(pairs.collect()).map(Arc::new);
    }
    used.hides.clone()
}

/// A secret as origins repeat it: as it is, in JSON, HTML and base64, and percent-coded as paths, forms and scripts do it.
fn forms(value: &str) -> BTreeSet<Vec<u8>> {
    let text = |kept: &str| String::from_utf8_lossy(&coded(value, kept)).into_owned();
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut all = BTreeSet::from([value.as_bytes().to_vec(), in_json(value)]);
    if value.len() >= SHORTEST_PACKED {
        all.insert(STANDARD_NO_PAD.encode(value).into_bytes());
    }
    for quote in ["&quot;", "&#34;"] {
        all.insert(html.replace('"', quote).into_bytes());
    }
    for kept in ["", "/", "!*'()"] {
        all.extend([coded(value, kept), lower_hex(&text(kept)), text(kept).replace("%20", "+").into_bytes()]);
    }
    all
}

/// The digits of percent-codes in lower case.
fn lower_hex(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push_str(&format!("%{}{rest}", code.to_ascii_lowercase()));
    }
    out.into_bytes()
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
    let Some(swap) = Swap::new(pairs(&secrets, |v| v.as_bytes().to_vec())) else { return Ok(body) };
    let (headers, mut found) = swapped_headers(&swap, &head.headers);
    let packed = changed_basic(&head.headers, &headers);
    head.headers = headers;
    if let Some(swap) = Swap::new(pairs(&secrets, escaped))
        && let Some((path, more)) = swap.swap(head.url.path.as_bytes())
        && let Ok(path) = String::from_utf8(path)
    {
        head.url.path = ByteStr::from(path);
        found.extend(more);
    }
    note_used(flow, &secrets, &found);
    if !packed.is_empty() {
        flow.note_mut::<Used>().packed.extend(packed);
    }
    if !found.is_empty() {
        // So that the response can be looked through for what was put in.
        let _ = head.headers.set("Accept-Encoding", "identity");
    }
    let media = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    // Messages of gRPC say their lengths, which would be wrong then.
    if body.is_empty() || media.starts_with("application/grpc") {
        return Ok(body);
    }
    let written: fn(&str) -> Vec<u8> = if media.contains("json") {
        in_json
    } else if media.starts_with("application/x-www-form-urlencoded") {
        escaped
    } else {
        |v| v.as_bytes().to_vec()
    };
    let Some(swap) = Swap::new(pairs(&secrets, written)) else { return Ok(body) };
    if coding::is_coded(&head.headers) {
        return put_into_coded(flow, head, body, &secrets, &swap).await;
    }
    if body.remaining().is_none_or(|n| n > WHOLE as u64) {
        // What it holds shows later, so the response hides every secret of the host.
        secrets.iter().for_each(|s| flow.note_mut::<Used>().add(s));
        let _ = head.headers.set("Accept-Encoding", "identity");
        let count = move |i: usize| {
            if let Some(secret) = secrets.get(i % secrets.len()) {
                secret.used.fetch_add(1, Relaxed);
            }
        };
        return Ok(SwapStream::wrap(body, Arc::new(swap), count));
    }
    match body.collect(WHOLE).await {
        Ok((bytes, None)) => match swap.swap(&bytes) {
            Some((bytes, found)) => {
                note_used(flow, &secrets, &found);
                let _ = head.headers.set("Accept-Encoding", "identity");
                Ok(Body::from(bytes::Bytes::from(bytes)))
            }
            None => Ok(Body::from(bytes)),
        },
        Ok((bytes, Some(trailers))) => {
            let (bytes, found) = swap.swap(&bytes).map_or((bytes, Vec::new()), |(b, found)| (b.into(), found));
            note_used(flow, &secrets, &found);
            Ok(whole_with_trailers(bytes, trailers))
        }
        // It promised to be shorter; whoever sends it is not to be trusted with more.
        Err(interflow_flow::CollectError::TooLarge(body)) => Ok(body),
        Err(interflow_flow::CollectError::Broken(e)) => Err(Verdict::Deny(e)),
    }
}

/// Puts the secrets into a body with a content coding, which loses the coding then. One without placeholders, or whose coding
/// cannot be undone, goes on as it came; so does a very long one.
async fn put_into_coded(
    flow: &mut Flow,
    head: &mut RequestHead,
    body: Body,
    secrets: &[Arc<Secret>],
    swap: &Swap,
) -> Result<Body, Verdict> {
    let (bytes, trailers) = match body.collect(WHOLE).await {
        Ok(whole) => whole,
        Err(interflow_flow::CollectError::TooLarge(body)) => return Ok(body),
        Err(interflow_flow::CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
    };
    let plain = coding::decode(&head.headers, &bytes, LARGEST_PLAIN).ok().flatten();
    let bytes = match plain.and_then(|plain| swap.swap(&plain)) {
        None => bytes,
        Some((plain, found)) => {
            note_used(flow, secrets, &found);
            head.headers.remove("content-encoding");
            let _ = head.headers.set("Accept-Encoding", "identity");
            plain.into()
        }
    };
    Ok(match trailers {
        None => Body::from(bytes),
        Some(trailers) => whole_with_trailers(bytes, trailers),
    })
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
    coded(value, "")
}

/// Percent-coded (RFC 3986 2.1), but for what is unreserved and what is kept.
fn coded(value: &str, kept: &str) -> Vec<u8> {
    let plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') || kept.as_bytes().contains(&b);
    let coded = value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") });
    coded.collect::<String>().into_bytes()
}

/// The Basic credentials that are others now, and as they were before.
fn changed_basic(before: &Headers, after: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
    let packed = |value: &[u8]| {
        let (_, packed) = value.split_at_checked(6).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic "))?;
        Some(packed.trim_ascii().to_vec()).filter(|p| p.len() >= 8)
    };
    let pairs = before.into_iter().zip(after).filter(|((_, old), (_, new))| old != new);
    pairs.filter_map(|((_, old), (_, new))| Some((packed(new)?, packed(old)?))).collect()
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
