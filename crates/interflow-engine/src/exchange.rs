//! One HTTP exchange, from the request's head to the response's last byte, phase by phase.

use std::sync::Arc;

use interflow_flow::{
    Authority, Body, BoxFuture, ByteStr, ClientInfo, Clock, Direction, Door, Error, ErrorRenderer, Flow, FlowId,
    ForwardedBy, Handler, Host, Kind, Knock, Method, Mounted, NotRecorded, Phase, Request, RequestHead, RequestId,
    Response, ResponseHead, ResponseHeadFilter, Result, Scheme, StatusCode, Step, Target, Timestamp, Transport, Url,
    Verdict, Version,
};
use interflow_net::egress::{Answer, Egress, Exchange, Route};
use interflow_net::ingress::{Incoming, Interim, Outgoing};

use interflow_wire::ja4h;

use crate::access::Asked;
use crate::answers::error_response;
use crate::conn::{Conn, Entry, Inside, challenge};
use crate::hop::{self, MaxForwards};
use crate::loops::ReceivedVia;
use crate::plan::PlanKey;
use crate::tracker::{Tracker, own_bytes};
use crate::worker::Live;
use crate::{body_preview, calls, expectation, gateway, pages, route, upgrade};

/// How a request's exchange begins.
pub(crate) enum Start<'a> {
    /// As nearly every one does: into the corridor.
    Corridor(Box<Asking>),
    /// Something must be waited for first.
    Later(BoxFuture<'a, Outgoing>),
    /// It is over already.
    Done(Outgoing),
}

/// What goes into the corridor. Boxed, since futures carry it through several hands before they first run.
pub(crate) struct Asking {
    live: Arc<Live>,
    flow: Box<Flow>,
    key: PlanKey,
    url: Url,
    incoming: Incoming,
    /// At the corridor's far end stands a room of ours in the origin's place.
    handler: Option<Arc<dyn Handler>>,
}

/// A request on the proxy port, in absolute-form, or by mistake in origin-form.
pub(crate) fn from_proxy(conn: &Conn, live: Arc<Live>, mut incoming: Incoming) -> Start<'_> {
    let target = std::mem::replace(&mut incoming.target, Target::Asterisk);
    let Target::Absolute(url) = target else {
        return Start::Done(Outgoing::Response(pages::not_a_proxy_request(conn.client.local)));
    };
    match conn.known_user(&live, &incoming.headers) {
        Some(user) => admitted(conn, live, url, incoming, user),
        None => Start::Later(Box::pin(async move {
            match conn.authenticate(&live, &incoming.headers).await {
                Ok(user) => Box::pin(follow(conn, admitted(conn, live, url, incoming, user))).await,
                Err(e) => {
                    let key = conn.plan_key(url.scheme, url.authority.clone(), None, Transport::Absolute, None);
                    let flow = conn.flow(incoming.clock, Transport::Absolute, url.scheme, url.authority.clone(), None);
                    refuse(conn, &live, flow, key, url, incoming, e).await
                }
            }
        })),
    }
}

/// The same once it is known whose request it is.
fn admitted<'a>(conn: &'a Conn, live: Arc<Live>, url: Url, incoming: Incoming, user: Option<Arc<str>>) -> Start<'a> {
    if pages::is_local(&url.authority.host) {
        return Start::Done(Outgoing::Response(pages::local(&url, &conn.worker.ca)));
    }
    let key = conn.plan_key(url.scheme, url.authority.clone(), None, Transport::Absolute, user.clone());
    let flow = conn.flow(incoming.clock, Transport::Absolute, url.scheme, url.authority.clone(), user);
    Start::Corridor(Box::new(Asking { live, flow, key, url, incoming, handler: None }))
}

/// A request on the gateway port.
pub(crate) fn from_gateway(conn: &Conn, live: Arc<Live>, mut incoming: Incoming) -> Start<'_> {
    // The port takes connections without TLS too, and one may be older than the config.
    if live.settings.config.gateway.requires_certificate() && conn.client_name().is_none() {
        let text = "this gateway asks for a client certificate: use https:// and show one";
        let error = Error::new(Kind::Denied, text);
        conn.worker.counters.error(&error);
        tracing::debug!(client = %conn.client.peer, "gateway: a request without a client certificate is refused");
        return Start::Done(Outgoing::Response(error_response(&error, None, None)));
    }
    let forwarded = conn.forwarded_client(&live, &incoming.headers);
    let target = std::mem::replace(&mut incoming.target, Target::Asterisk);
    let (path, authority, unreadable) = match target {
        Target::Origin(path) => {
            let named = incoming.headers.get_str("host").and_then(|h| Authority::parse(h, Some(80)).ok());
            let unreadable = named.is_none() && incoming.headers.contains("host");
            (path, named, unreadable)
        }
        Target::Absolute(url) => (url.path, Some(url.authority), false),
        Target::Asterisk | Target::Authority(_) => {
            let text = "the gateway takes requests for a path; tunnels belong to the proxy port";
            let refused = refuse_unread(conn, &live, &Error::new(Kind::Unsupported, text));
            return Start::Done(Outgoing::Response(refused));
        }
    };
    let knock = Knock {
        method: &incoming.method,
        path: &path,
        host: authority.as_ref().map(|a| &a.host),
        headers: &incoming.headers,
    };
    let found = gateway::find(&live.settings, &knock);
    let authorized = matches!(found, Some((_, true)));
    if !authorized
        && let Err(refusal) = live.settings.web_pages.check(authority.as_ref(), unreadable, &incoming.headers)
    {
        let client = forwarded.as_ref().unwrap_or(&conn.client).peer;
        tracing::debug!(%client, ?refusal, "gateway: a request of a web page is refused");
        return Start::Done(Outgoing::Response(refusal.response()));
    }
    let (url, keep_host, door) = match found.map(|(mounted, _)| mounted) {
        Some(Mounted::Forward { url, keep_host, door }) => (url, keep_host, door),
        Some(Mounted::Serve(handler)) => {
            return Start::Corridor(Box::new(serve(conn, live, handler, authority, path, incoming, forwarded)));
        }
        None => {
            let accept = incoming.headers.get_str("accept").unwrap_or_default();
            let mut response = live.settings.routes.not_found(&path, accept);
            RequestId::new(&incoming.headers, FlowId::new(Timestamp::now())).put(&mut response.head.headers);
            return Start::Done(Outgoing::Response(response));
        }
    };
    if !keep_host {
        // Put in anew for the origin.
        incoming.headers.remove("host");
    }
    let key = conn.plan_key(url.scheme, url.authority.clone(), None, Transport::Gateway, conn.client_name());
    let mut flow = gateway_flow(conn, incoming.clock, url.scheme, url.authority.clone(), forwarded);
    if door.is_some() {
        *flow.note_mut::<Door>() = Door(door);
    }
    Start::Corridor(Box::new(Asking { live, flow, key, url, incoming, handler: None }))
}

/// A flow of the gateway port: of the client that a trusted reverse proxy names, and the name in its certificate.
fn gateway_flow(
    conn: &Conn,
    clock: Clock,
    scheme: Scheme,
    authority: Authority,
    forwarded: Option<Arc<ClientInfo>>,
) -> Box<Flow> {
    let name = conn.client_name();
    let mut flow = conn.flow(clock, Transport::Gateway, scheme, authority, name.clone());
    if let Some(name) = name {
        flow.tag(format!("certificate:{name}"));
    }
    if let Some(client) = forwarded {
        *flow.note_mut() = ForwardedBy(Some(conn.client.peer));
        flow.client = client;
    }
    flow
}

/// A request that a room answers in an origin's place. To the plan, the origin is our own address.
fn serve(
    conn: &Conn,
    live: Arc<Live>,
    handler: Arc<dyn Handler>,
    named: Option<Authority>,
    path: ByteStr,
    incoming: Incoming,
    forwarded: Option<Arc<ClientInfo>>,
) -> Asking {
    let local = Authority::new(Host::Ip(conn.client.local.ip()), conn.client.local.port());
    let scheme = if conn.tls.is_some() { Scheme::Https } else { Scheme::Http };
    let url = Url { scheme, authority: named.unwrap_or_else(|| local.clone()), path };
    let key = conn.plan_key(scheme, local.clone(), None, Transport::Gateway, conn.client_name());
    let mut flow = gateway_flow(conn, incoming.clock, scheme, local, forwarded);
    if handler.is_private() {
        flow.note_mut::<NotRecorded>();
    }
    Asking { live, flow, key, url, incoming, handler: Some(handler) }
}

/// A request in a tunnel.
pub(crate) fn from_tunnel<'a>(conn: &'a Conn, live: Arc<Live>, inside: &Inside, mut incoming: Incoming) -> Start<'a> {
    let named = by_name(conn, inside, &incoming);
    let inside = named.as_ref().unwrap_or(inside);
    let target = std::mem::replace(&mut incoming.target, Target::Asterisk);
    let place = hop::Inside { scheme: inside.scheme, authority: &inside.authority };
    let url = match hop::resolve_inside(target, &place, &mut incoming.headers) {
        Ok(url) => url,
        Err(e) => return Start::Done(Outgoing::Response(refuse_unread(conn, &live, &e))),
    };
    if pages::is_local(&url.authority.host) {
        return Start::Done(Outgoing::Response(pages::local(&url, &conn.worker.ca)));
    }
    let (scheme, authority) = (inside.scheme, inside.authority.clone());
    let user = inside.user.clone();
    let received_via = inside.received_via.clone();
    let key = conn.plan_key(scheme, authority.clone(), inside.dial.clone(), inside.transport, user.clone());
    let mut flow = conn.flow(incoming.clock, inside.transport, scheme, authority, user);
    if received_via.is_some() {
        *flow.note_mut() = ReceivedVia(received_via);
    }
    if let Some(other) = other_host(inside, &incoming) {
        flow.tag("other_host");
        let asked = Asked {
            user: inside.user.as_deref(),
            client: conn.client.peer.ip(),
            authority: &other,
            method: incoming.method.as_str(),
        };
        if let Err(denied) = conn.allowed(&live, &asked) {
            return Start::Later(Box::pin(async move { refuse(conn, &live, flow, key, url, incoming, denied).await }));
        }
    }
    Start::Corridor(Box::new(Asking { live, flow, key, url, incoming, handler: None }))
}

/// A redirected client connects to an address and names its host in each request only, as it would to the origin: then
/// the name is the authority, and the address where to connect. A client that takes us for the origin names it there too.
fn by_name(conn: &Conn, inside: &Inside, incoming: &Incoming) -> Option<Inside> {
    let named = || other_host(inside, incoming);
    match inside.transport {
        Transport::Transparent if inside.dial.is_none() => {
            let authority = named().filter(|a| matches!(a.host, Host::Name(_)))?;
            Some(Inside { authority, dial: Some(inside.authority.clone()), ..inside.clone() })
        }
        // Without TLS, in whose hello the name stood.
        Transport::Reverse if inside.scheme == Scheme::Http => {
            let Authority { host, port } = named()?;
            let own = inside.authority.port;
            let port = if own == conn.client.local.port() { port } else { own };
            Some(Inside { authority: Authority::new(host, port), ..inside.clone() })
        }
        _ => None,
    }
}

/// The authority in `Host`, when it is not the tunnel's: what one host serves for another (domain fronting) must be
/// allowed for both.
fn other_host(inside: &Inside, incoming: &Incoming) -> Option<Authority> {
    let host = incoming.headers.get_str("host")?;
    let named = Authority::parse(host, Some(inside.scheme.default_port())).ok()?;
    (named.host != inside.authority.host).then_some(named)
}

/// A request that could not be read, or not be taken for any origin: kept as a flow with its error, for the tunnel's
/// authority or our own address.
pub(crate) fn refuse_unread(conn: &Conn, live: &Live, error: &Error) -> Response {
    let (scheme, authority, transport, user) = match &conn.entry {
        Entry::Inside(i) => (i.scheme, i.authority.clone(), i.transport, i.user.clone()),
        Entry::Proxy | Entry::Gateway => {
            let transport = if matches!(conn.entry, Entry::Proxy) { Transport::Absolute } else { Transport::Gateway };
            let local = conn.client.local;
            (Scheme::Http, Authority::new(Host::Ip(local.ip()), local.port()), transport, None)
        }
    };
    let key = conn.plan_key(scheme, authority.clone(), None, transport, user.clone());
    let plan = live.plans.get(&live.settings, key);
    let mut flow = conn.flow(Clock::start(), transport, scheme, authority, user);
    flow.tag("unread");
    let mut tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    tracker.begin_capture_at_once(&live.settings, None);
    let response = error_response(error, Some(tracker.flow.id), None);
    tracing::info!(client = %conn.client.peer, flow = %tracker.flow.id, kind = error.kind().as_str(), "refused: {error}");
    tracker.response(&response.head);
    if let Some(bytes) = own_bytes(&response.body) {
        tracker.own_response(bytes);
    }
    tracker.fail(error);
    response
}

/// A request that is not let in: kept as a flow with its error.
async fn refuse(
    conn: &Conn,
    live: &Arc<Live>,
    flow: Box<Flow>,
    key: PlanKey,
    url: Url,
    incoming: Incoming,
    error: Error,
) -> Outgoing {
    let plan = live.plans.get(&live.settings, key);
    let mut tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    let head = request_head(incoming.method, url, incoming.version, incoming.headers, incoming.protocol);
    tracker.begin_capture(&live.settings, Some(&head)).await;
    fail(tracker, live, &head, &error)
}

fn request_head(
    method: interflow_flow::Method,
    url: Url,
    version: Version,
    headers: interflow_flow::Headers,
    protocol: Option<interflow_flow::ByteStr>,
) -> RequestHead {
    RequestHead { method, url, version, headers, protocol }
}

/// An exchange from its beginning.
pub(crate) async fn follow(conn: &Conn, start: Start<'_>) -> Outgoing {
    match start {
        Start::Corridor(asking) => run(conn, asking).await,
        Start::Later(outgoing) => outgoing.await,
        Start::Done(outgoing) => outgoing,
    }
}

/// A flow at the corridor's entrance.
struct Entered {
    live: Arc<Live>,
    tracker: Tracker,
    head: RequestHead,
    body: Body,
    interim: Interim,
    handler: Option<Arc<dyn Handler>>,
    /// The access rules do not let it in.
    denied: Option<Error>,
}

fn enter(conn: &Conn, asking: Asking) -> Entered {
    let Asking { live, mut flow, key, url, incoming, handler } = asking;
    let Incoming { method, version, headers, protocol, body, interim, clock, opening, .. } = incoming;
    conn.worker.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    flow.timings.request_head = Some(clock.micros());
    flow.client_http2 = opening;
    if flow.client_tls.is_some() && live.settings.recorder.is_some() {
        // Before hop-by-hop fields go, which are part of a client's habits.
        flow.ja4h = Some(ja4h(&method, version, &headers).into());
    }
    let head = request_head(method, url, version, headers, protocol);
    if let Some(handler) = &handler {
        handler.enter(&mut flow, &head);
    }
    let (plan, denied) = match conn.plan(&live, &key, head.method.as_str(), flow.client.peer.ip()) {
        Ok(plan) => (plan, None),
        Err(e) => (live.plans.get(&live.settings, key), Some(e)),
    };
    let tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    Entered { live, tracker, head, body, interim, handler, denied }
}

/// The corridor, whose far end is an origin or a room of ours.
async fn run(conn: &Conn, asking: Box<Asking>) -> Outgoing {
    let Entered { live, mut tracker, mut head, body, interim, handler, denied } = enter(conn, *asking);
    if let Some(e) = denied.or_else(|| live.settings.pseudonym.check(&head.headers).err()) {
        tracker.begin_capture(&live.settings, Some(&head)).await;
        return fail(tracker, &live, &head, &e);
    }
    let asked = match request_phases(&mut tracker, &mut head, body, &interim, &live).await {
        Ok(body) => body,
        Err(end) => {
            tracker.begin_capture(&live.settings, Some(&head)).await;
            return end_early(tracker, &live, &head, end);
        }
    };
    tracker.begin_capture(&live.settings, Some(&head)).await;
    if let Some(handler) = handler {
        return Box::pin(handle(tracker, &live, head, asked, &*handler)).await;
    }
    let partition = conn.partition(&head.headers);
    if tracker.plan.wants(Phase::Dial) {
        tracker.join_deferred().await;
    }
    let route = match route::choose(&mut tracker, &live, &head, partition, &conn.seen).await {
        Ok(route) => route,
        Err(end) => return end_early(tracker, &live, &head, end),
    };
    let asked = calls::shown(&mut tracker, Direction::Request, &mut head.headers, asked);
    let body = tracker.request_body(asked, &head);
    let (mut leaving, body) = match sending(&mut tracker, &head, body).await {
        Ok(leaving) => leaving,
        Err(end) => return end_early(tracker, &live, &head, end),
    };
    if let Some(word) = tracker.held_back.take() {
        expectation::settle(&word, leaving.get_or_insert_with(|| head.clone()), &body);
    }
    live.settings.pseudonym.mark(&head, &mut leaving, &route, &tracker.flow);
    let leaving = leaving.as_ref().unwrap_or(&head);
    let answer = match send(&mut tracker, &live.egress, &route, leaving, body, &interim).await {
        Ok(answer) => answer,
        Err(e) => return fail(tracker, &live, &head, &route::explained(e, &route, &head)),
    };
    match answer.upgrade {
        Some(upstream) => upgrade::accepted(tracker, &live, head, answer.head, upstream),
        None => deliver(tracker, &live, &head, answer.head, answer.body).await,
    }
}

/// The last phase on the way out. What stages change here is kept apart from the head that everybody else sees.
pub(crate) async fn sending(
    tracker: &mut Tracker,
    head: &RequestHead,
    mut body: Body,
) -> Result<(Option<RequestHead>, Body), End> {
    let plan = Arc::clone(&tracker.plan);
    if !plan.wants(Phase::Sending) {
        return Ok((None, body));
    }
    let mut leaving = head.clone();
    for stage in plan.stages(Phase::Sending) {
        body = match stage.sending(&mut tracker.flow, &mut leaving, body).get().await {
            Ok(body) => body,
            Err(verdict) => return Err(End::of(verdict).unwrap_or_else(|| End::Failed(stage_gave_up(stage.name())))),
        };
    }
    Ok((Some(leaving), body))
}

/// A room answers in the origin's place.
async fn handle(mut tracker: Tracker, live: &Live, head: RequestHead, asked: Body, handler: &dyn Handler) -> Outgoing {
    let body = tracker.request_body(asked, &head);
    let served = handler.serve(&mut tracker.flow, Request { head: head.clone(), body }).await;
    match served {
        Ok(Response { head: answered, body }) => deliver(tracker, live, &head, answered, body).await,
        Err(e) => fail(tracker, live, &head, &e),
    }
}

/// Why a request does not go upstream.
pub(crate) enum End {
    Answered(Box<Response>),
    Failed(Error),
}

impl End {
    /// What a stage's verdict means for the flow, if it ends it.
    pub fn of(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Answer(response) => Some(Self::Answered(response)),
            Verdict::Deny(error) => Some(Self::Failed(error)),
            Verdict::Continue | Verdict::Intercept | Verdict::Tunnel | Verdict::Drop => None,
        }
    }

    /// What it means for a request of our own, which wants the origin's response or none.
    pub fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Answered(response) => {
                let status = response.head.status.as_u16();
                Error::new(Kind::Denied, format!("it was answered with {status} before it was sent"))
            }
        }
    }
}

/// From the request's head as received to what goes upstream.
async fn request_phases(
    tracker: &mut Tracker,
    head: &mut RequestHead,
    mut body: Body,
    interim: &Interim,
    live: &Live,
) -> Result<Body, End> {
    hop::clean_request(head);
    // What the target says holds; what a stage then puts into `Host` stays, whatever the protocol (RFC 9112 3.2.2).
    hop::set_host_for(head, tracker.flow.transport);
    tracker.flow.uploads = Some(!body.is_empty());
    let plan = Arc::clone(&tracker.plan);
    // A tunnel's requests were asked about with their tunnel.
    let alone = matches!(tracker.flow.transport, Transport::Absolute | Transport::Gateway)
        || tracker.flow.transport == Transport::Reverse && tracker.flow.scheme == Scheme::Http;
    if alone {
        for stage in plan.stages(Phase::Authority) {
            if let Some(end) = End::of(stage.authority(&mut tracker.flow).get().await) {
                return Err(end);
            }
        }
    }
    if hop::max_forwards(head) == MaxForwards::Answer {
        return Err(End::Answered(Box::new(pages::last_hop(head))));
    }
    for stage in plan.stages(Phase::RequestHead) {
        // A client that leaves withdraws the request that a person was to decide.
        let may_wait = stage.may_wait_for_human();
        let preview = if may_wait { body_preview::preview_of(&mut tracker.flow, head, &body) } else { None };
        let verdict = match stage.request_head(&mut tracker.flow, head) {
            Step::Now(verdict) => verdict,
            later if may_wait => {
                interim.hold(true);
                let (verdict, read) = body_preview::wait_and_read(preview.clone(), later, body).await;
                body = read;
                interim.hold(false);
                if let (Verdict::Continue, Some(preview)) = (&verdict, &preview) {
                    body_preview::apply_replacement(preview, &mut tracker.flow, head);
                }
                verdict
            }
            later => later.get().await,
        };
        if let Some(end) = End::of(verdict) {
            return Err(end);
        }
    }
    let reads = plan.wants(Phase::RequestBody) || plan.wants(Phase::Sending);
    if reads && head.headers.has_token("expect", "100-continue") {
        let (held, word) = expectation::held_back(body, interim.clone());
        tracker.held_back = Some(word);
        body = held;
    }
    for stage in plan.stages(Phase::RequestBody) {
        body = match stage.request_body(&mut tracker.flow, head, body).get().await {
            Ok(body) => body,
            Err(verdict) => {
                return Err(End::of(verdict).unwrap_or_else(|| End::Failed(stage_gave_up(stage.name()))));
            }
        };
    }
    if !head.headers.contains("host") {
        hop::set_host(head);
    }
    let via = &live.settings.config.proxy.via;
    if !via.is_empty() {
        let version = head.version;
        hop::add_via(&mut head.headers, version, via);
    }
    Ok(body)
}

pub(crate) fn stage_gave_up(name: &str) -> Error {
    Error::new(Kind::StageFailed, format!("the stage {name} took the request's body and gave nothing back"))
}

pub(crate) async fn send(
    tracker: &mut Tracker,
    egress: &Egress,
    route: &Route,
    head: &RequestHead,
    body: Body,
    interim: &Interim,
) -> Result<Answer> {
    let filter = ResponseHeadFilter::for_flow(&tracker.flow);
    let mut relay = InterimRelay { to: interim, heads: Vec::new(), filter };
    let flow = &mut tracker.flow;
    let mut x = Exchange {
        clock: &flow.clock,
        timings: &mut flow.timings,
        upstream: &mut flow.upstream,
        interim: &mut |head| relay.relay(head),
    };
    let answer = egress.send_parts(route, head, body, &mut x).await;
    for head in &relay.heads {
        tracker.interim(head);
    }
    answer
}

/// Passes 1xx on and keeps them for the recorder.
struct InterimRelay<'a> {
    to: &'a Interim,
    heads: Vec<ResponseHead>,
    filter: ResponseHeadFilter,
}

impl InterimRelay<'_> {
    fn relay(&mut self, mut head: ResponseHead) {
        hop::clean_response(&mut head.headers, false);
        self.filter.apply(&mut head);
        self.to.send(head.clone());
        // An origin may send 1xx without end; a few tell the story.
        if self.heads.len() < 8 {
            self.heads.push(head);
        }
    }
}

/// From the origin's response to what goes to the client.
async fn deliver(
    mut tracker: Tracker,
    live: &Live,
    request: &RequestHead,
    mut head: ResponseHead,
    mut body: Body,
) -> Outgoing {
    hop::clean_response(&mut head.headers, false);
    RequestId::echo(&tracker.flow, &mut head.headers);
    let plan = Arc::clone(&tracker.plan);
    let held = tracker.hold_messages().await;
    tracker.join_deferred().await;
    for stage in plan.stages(Phase::ResponseHead) {
        if let Some(end) = End::of(stage.response_head(&mut tracker.flow, request, &mut head).get().await) {
            return end_early(tracker, live, request, end);
        }
    }
    for stage in plan.stages(Phase::ResponseBody) {
        if stage.keeps_response_private(&tracker.flow) {
            body = tracker.show_response(body, &head);
        }
        body = match stage.response_body(&mut tracker.flow, request, &mut head, body).get().await {
            Ok(body) => body,
            Err(verdict) => {
                let end = End::of(verdict).unwrap_or_else(|| End::Failed(stage_gave_up(stage.name())));
                return end_early(tracker, live, request, end);
            }
        };
    }
    let via = &live.settings.config.proxy.via;
    if !via.is_empty() {
        let version = head.version;
        hop::add_via(&mut head.headers, version, via);
    }
    tracker.release_messages(held);
    let body = bodiless(request, &head, body);
    let body = calls::shown(&mut tracker, Direction::Response, &mut head.headers, body);
    tracker.response(&head);
    let body = tracker.response_body(body, &head);
    Outgoing::Response(Response { head, body })
}

/// The body as far as there is one: none to HEAD, nor with 204 and 304 (RFC 9110 6.4.1), whatever a stage gave. One
/// that is a stream carries the exchange to its end, and stays.
fn bodiless(request: &RequestHead, head: &ResponseHead, body: Body) -> Body {
    let none =
        request.method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    match body {
        Body::Full(_) if none => Body::Empty,
        body => body,
    }
}

/// A stage answered or denied.
fn end_early(mut tracker: Tracker, live: &Live, request: &RequestHead, end: End) -> Outgoing {
    match end {
        End::Failed(e) => fail(tracker, live, request, &e),
        End::Answered(response) => {
            let Response { mut head, body } = *response;
            tracker.flow.tag("answered");
            RequestId::echo(&tracker.flow, &mut head.headers);
            tracker.response(&head);
            let body = tracker.response_body(bodiless(request, &head, body), &head);
            Outgoing::Response(Response { head, body })
        }
    }
}

/// Ends the flow with an error, and tells the client.
pub(crate) fn fail(mut tracker: Tracker, live: &Live, request: &RequestHead, error: &Error) -> Outgoing {
    if error.kind() == Kind::ClientGone {
        tracker.fail(error);
        return Outgoing::Abort(Error::new(Kind::ClientGone, error.message()));
    }
    let html = request.headers.get_str("accept").is_some_and(|a| a.contains("text/html"));
    let renderer = tracker.flow.note::<ErrorRenderer>().filter(|_| !html).and_then(|r| r.0);
    let mut response = match renderer {
        Some(render) => render(&tracker.flow, error),
        None => error_response(error, Some(tracker.flow.id), Some(&request.headers)),
    };
    if error.kind() == Kind::Unauthorized {
        response = challenge(response, &live.settings.config.auth.realm);
    }
    RequestId::echo(&tracker.flow, &mut response.head.headers);
    tracker.response(&response.head);
    if let Some(bytes) = own_bytes(&response.body) {
        tracker.own_response(bytes);
    }
    tracker.fail(error);
    Outgoing::Response(response)
}
