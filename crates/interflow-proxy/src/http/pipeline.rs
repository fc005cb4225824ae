//! The request pipeline: one HTTP exchange, phase by phase, until the response's last byte.

use std::sync::Arc;

use interflow_codec::ja4h;
use interflow_net::egress::{UpstreamClient, UpstreamReport, UpstreamResponse, UpstreamRoute};
use interflow_net::ingress::{IncomingRequest, InformationalSender, ServiceReply};
use interflow_types::{
    Authority, Body, BoxFuture, ByteStr, ClientInfo, Direction, EarlyExit, EndpointId, EntryKind, Error, ErrorKind,
    ErrorRenderer, Flow, FlowClock, FlowId, ForwardedBy, GatewayRequest, Host, HttpVersion, LocalHandler, MaybeFuture,
    MountTarget, NotRecorded, Phase, Request, RequestHead, RequestId, RequestTarget, RequestVerdict, Response,
    ResponseHead, ResponseHeadFilter, Result, Scheme, Timestamp, TunnelVerdict, Url,
};

use crate::downstream::access::AccessRequest;
use crate::downstream::connection::{ClientConnection, ConnectionKind, TunnelTarget, challenge};
use crate::downstream::{builtin_pages, gateway};
use crate::http::error_response::error_response;
use crate::http::hop_by_hop::{self, MaxForwards};
use crate::http::loop_detection::ReceivedVia;
use crate::http::{body_preview, expect_continue, grpc, upgrade};
use crate::observe::flow_guard::{FlowGuard, local_body_bytes};
use crate::state::ActiveConfig;
use crate::upstream::plan::PlanKey;
use crate::upstream::route;

/// How the processing of a request begins.
pub(crate) enum PipelineStart<'a> {
    /// The common case: the request enters the pipeline.
    Pipeline(Box<PipelineRequest>),
    /// Something must be awaited first, such as authentication.
    Later(BoxFuture<'a, ServiceReply>),
    /// It has already been answered.
    Done(ServiceReply),
}

/// Input of the pipeline. Boxed, because it is moved between futures before they first run.
pub(crate) struct PipelineRequest {
    live: Arc<ActiveConfig>,
    flow: Box<Flow>,
    key: PlanKey,
    url: Url,
    incoming: IncomingRequest,
    /// Answers in the origin's place.
    handler: Option<Arc<dyn LocalHandler>>,
}

/// A request on the proxy port, normally in absolute-form.
pub(crate) fn from_proxy(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    mut incoming: IncomingRequest,
) -> PipelineStart<'_> {
    let target = std::mem::replace(&mut incoming.target, RequestTarget::Asterisk);
    let RequestTarget::Absolute(url) = target else {
        return PipelineStart::Done(ServiceReply::Response(builtin_pages::not_a_proxy_request(conn.client.local)));
    };
    match conn.cached_user(&live, &incoming.headers) {
        Some(user) => from_authenticated_proxy(conn, live, url, incoming, user),
        None => PipelineStart::Later(Box::pin(async move {
            match conn.authenticate(&live, &incoming.headers).await {
                Ok(user) => {
                    Box::pin(run_request(conn, from_authenticated_proxy(conn, live, url, incoming, user))).await
                }
                Err(e) => {
                    let key = conn.plan_key(url.scheme, url.authority.clone(), None, EntryKind::Absolute, None);
                    let flow = conn.flow(incoming.clock, EntryKind::Absolute, url.scheme, url.authority.clone(), None);
                    reject(conn, &live, flow, key, url, incoming, e).await
                }
            }
        })),
    }
}

/// The request after authentication.
fn from_authenticated_proxy<'a>(
    conn: &'a ClientConnection,
    live: Arc<ActiveConfig>,
    url: Url,
    incoming: IncomingRequest,
    user: Option<Arc<str>>,
) -> PipelineStart<'a> {
    if builtin_pages::is_local(&url.authority.host) {
        return PipelineStart::Done(ServiceReply::Response(builtin_pages::serve_local(&url, &conn.worker.ca)));
    }
    let key = conn.plan_key(url.scheme, url.authority.clone(), None, EntryKind::Absolute, user.clone());
    let flow = conn.flow(incoming.clock, EntryKind::Absolute, url.scheme, url.authority.clone(), user);
    PipelineStart::Pipeline(Box::new(PipelineRequest { live, flow, key, url, incoming, handler: None }))
}

/// A request on the gateway port.
pub(crate) fn from_gateway(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    mut incoming: IncomingRequest,
) -> PipelineStart<'_> {
    // The port also accepts connections without TLS, and a connection may be older than the configuration.
    if live.settings.config.gateway.requires_certificate() && conn.client_name().is_none() {
        let text = "this gateway requires a client certificate: use https:// and present one";
        let error = Error::new(ErrorKind::Denied, text);
        conn.worker.counters.error(&error);
        tracing::debug!(client = %conn.client.peer, "gateway: a request without a client certificate is refused");
        return PipelineStart::Done(ServiceReply::Response(error_response(&error, None, None)));
    }
    let forwarded = conn.forwarded_client(&live, &incoming.headers);
    let target = std::mem::replace(&mut incoming.target, RequestTarget::Asterisk);
    let (path, authority, unreadable) = match target {
        RequestTarget::Origin(path) => {
            let named = incoming.headers.get_str("host").and_then(|h| Authority::parse(h, Some(80)).ok());
            let unreadable = named.is_none() && incoming.headers.contains("host");
            (path, named, unreadable)
        }
        RequestTarget::Absolute(url) => (url.path, Some(url.authority), false),
        RequestTarget::Asterisk | RequestTarget::Authority(_) => {
            let text = "the gateway accepts requests for a path; tunnels belong on the proxy port";
            let refused = reject_malformed(conn, &live, &Error::new(ErrorKind::Unsupported, text));
            return PipelineStart::Done(ServiceReply::Response(refused));
        }
    };
    let request = GatewayRequest {
        method: &incoming.method,
        path: &path,
        host: authority.as_ref().map(|a| &a.host),
        headers: &incoming.headers,
    };
    let found = gateway::find_target(&live.settings.routes, &live.settings.mounts, &request);
    let authorized = matches!(found, Some((_, true)));
    if !authorized
        && let Err(refusal) = live.settings.web_pages.check(authority.as_ref(), unreadable, &incoming.headers)
    {
        let client = forwarded.as_ref().unwrap_or(&conn.client).peer;
        tracing::debug!(%client, ?refusal, "gateway: a web page's request was refused");
        return PipelineStart::Done(ServiceReply::Response(refusal.response()));
    }
    let (url, keep_host, endpoint) = match found.map(|(mounted, _)| mounted) {
        Some(MountTarget::Forward { url, keep_host, endpoint }) => (url, keep_host, endpoint),
        Some(MountTarget::Serve(handler)) => {
            return PipelineStart::Pipeline(Box::new(handler_request(
                conn, live, handler, authority, path, incoming, forwarded,
            )));
        }
        None => {
            let accept = incoming.headers.get_str("accept").unwrap_or_default();
            let mut response = live.settings.routes.not_found(&path, accept);
            RequestId::new(&incoming.headers, FlowId::new(Timestamp::now())).put(&mut response.head.headers);
            return PipelineStart::Done(ServiceReply::Response(response));
        }
    };
    if !keep_host {
        // Set again for the origin.
        incoming.headers.remove("host");
    }
    let key = conn.plan_key(url.scheme, url.authority.clone(), None, EntryKind::Gateway, conn.client_name());
    let mut flow = gateway_flow(conn, incoming.clock, url.scheme, url.authority.clone(), forwarded);
    if endpoint.is_some() {
        *flow.extension_mut::<EndpointId>() = EndpointId(endpoint);
    }
    PipelineStart::Pipeline(Box::new(PipelineRequest { live, flow, key, url, incoming, handler: None }))
}

/// A flow on the gateway port: of the client that a trusted reverse proxy names, with the name in its certificate.
fn gateway_flow(
    conn: &ClientConnection,
    clock: FlowClock,
    scheme: Scheme,
    authority: Authority,
    forwarded: Option<Arc<ClientInfo>>,
) -> Box<Flow> {
    let name = conn.client_name();
    let mut flow = conn.flow(clock, EntryKind::Gateway, scheme, authority, name.clone());
    if let Some(name) = name {
        flow.tag(format!("certificate:{name}"));
    }
    if let Some(client) = forwarded {
        *flow.extension_mut() = ForwardedBy(Some(conn.client.peer));
        flow.client = client;
    }
    flow
}

/// A request that a local handler answers. Its plan has Interflow's own address as the origin.
fn handler_request(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    handler: Arc<dyn LocalHandler>,
    named: Option<Authority>,
    path: ByteStr,
    incoming: IncomingRequest,
    forwarded: Option<Arc<ClientInfo>>,
) -> PipelineRequest {
    let local = Authority::new(Host::Ip(conn.client.local.ip()), conn.client.local.port());
    let scheme = if conn.tls.is_some() { Scheme::Https } else { Scheme::Http };
    let url = Url { scheme, authority: named.unwrap_or_else(|| local.clone()), path };
    let key = conn.plan_key(scheme, local.clone(), None, EntryKind::Gateway, conn.client_name());
    let mut flow = gateway_flow(conn, incoming.clock, scheme, local, forwarded);
    if handler.is_private() {
        flow.extension_mut::<NotRecorded>();
    }
    PipelineRequest { live, flow, key, url, incoming, handler: Some(handler) }
}

/// A request in a tunnel.
pub(crate) fn from_tunnel<'a>(
    conn: &'a ClientConnection,
    live: Arc<ActiveConfig>,
    inside: &TunnelTarget,
    mut incoming: IncomingRequest,
) -> PipelineStart<'a> {
    let named = retarget_by_host(conn, inside, &incoming);
    let inside = named.as_ref().unwrap_or(inside);
    let target = std::mem::replace(&mut incoming.target, RequestTarget::Asterisk);
    let place = hop_by_hop::TunnelTargetRef { scheme: inside.scheme, authority: &inside.authority };
    let url = match hop_by_hop::resolve_tunnel_url(target, &place, &mut incoming.headers) {
        Ok(url) => url,
        Err(e) => return PipelineStart::Done(ServiceReply::Response(reject_malformed(conn, &live, &e))),
    };
    if builtin_pages::is_local(&url.authority.host) {
        return PipelineStart::Done(ServiceReply::Response(builtin_pages::serve_local(&url, &conn.worker.ca)));
    }
    let (scheme, authority) = (inside.scheme, inside.authority.clone());
    let user = inside.user.clone();
    let received_via = inside.received_via.clone();
    let key = conn.plan_key(scheme, authority.clone(), inside.dial.clone(), inside.transport, user.clone());
    let mut flow = conn.flow(incoming.clock, inside.transport, scheme, authority, user);
    if received_via.is_some() {
        *flow.extension_mut() = ReceivedVia(received_via);
    }
    if let Some(other) = fronted_host(inside, &incoming) {
        flow.tag("host_mismatch");
        let access = AccessRequest {
            user: inside.user.as_deref(),
            client: conn.client.peer.ip(),
            authority: &other,
            method: incoming.method.as_str(),
        };
        if let Err(denied) = conn.check_access(&live, &access) {
            return PipelineStart::Later(Box::pin(async move {
                reject(conn, &live, flow, key, url, incoming, denied).await
            }));
        }
    }
    PipelineStart::Pipeline(Box::new(PipelineRequest { live, flow, key, url, incoming, handler: None }))
}

/// A redirected client connects to an address and names the host only in each request: then the name is the
/// authority, and the address is where to connect. The same applies to clients of a reverse-proxy listener.
fn retarget_by_host(
    conn: &ClientConnection,
    inside: &TunnelTarget,
    incoming: &IncomingRequest,
) -> Option<TunnelTarget> {
    let named = || fronted_host(inside, incoming);
    match inside.transport {
        EntryKind::Transparent if inside.dial.is_none() => {
            let authority = named().filter(|a| matches!(a.host, Host::Name(_)))?;
            Some(TunnelTarget { authority, dial: Some(inside.authority.clone()), ..inside.clone() })
        }
        // Without TLS there is no SNI to name the origin.
        EntryKind::Reverse if inside.scheme == Scheme::Http => {
            let Authority { host, port } = named()?;
            let own = inside.authority.port;
            let port = if own == conn.client.local.port() { port } else { own };
            Some(TunnelTarget { authority: Authority::new(host, port), ..inside.clone() })
        }
        _ => None,
    }
}

/// The authority in `Host`, if it differs from the tunnel's: domain fronting must be allowed for both.
fn fronted_host(inside: &TunnelTarget, incoming: &IncomingRequest) -> Option<Authority> {
    let host = incoming.headers.get_str("host")?;
    let named = Authority::parse(host, Some(inside.scheme.default_port())).ok()?;
    (named.host != inside.authority.host).then_some(named)
}

/// Answers a request that could not be parsed or has no destination. It is recorded as a failed flow, for the
/// tunnel's authority or Interflow's own address.
pub(crate) fn reject_malformed(conn: &ClientConnection, live: &ActiveConfig, error: &Error) -> Response {
    let (scheme, authority, transport, user) = match &conn.entry {
        ConnectionKind::Inside(i) => (i.scheme, i.authority.clone(), i.transport, i.user.clone()),
        ConnectionKind::Proxy | ConnectionKind::Gateway => {
            let transport =
                if matches!(conn.entry, ConnectionKind::Proxy) { EntryKind::Absolute } else { EntryKind::Gateway };
            let local = conn.client.local;
            (Scheme::Http, Authority::new(Host::Ip(local.ip()), local.port()), transport, None)
        }
    };
    let key = conn.plan_key(scheme, authority.clone(), None, transport, user.clone());
    let plan = live.plans.get(&live.settings, key);
    let mut flow = conn.flow(FlowClock::start(), transport, scheme, authority, user);
    flow.tag("malformed");
    let mut tracker = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    tracker.begin_capture_at_once(&live.settings, None);
    let response = error_response(error, Some(tracker.flow.id), None);
    tracing::info!(client = %conn.client.peer, flow = %tracker.flow.id, kind = error.kind().as_str(), "refused: {error}");
    tracker.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        tracker.local_response(bytes);
    }
    tracker.fail(error);
    response
}

/// Rejects a request; it is recorded as a failed flow.
async fn reject(
    conn: &ClientConnection,
    live: &Arc<ActiveConfig>,
    flow: Box<Flow>,
    key: PlanKey,
    url: Url,
    incoming: IncomingRequest,
    error: Error,
) -> ServiceReply {
    let plan = live.plans.get(&live.settings, key);
    let mut tracker = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    let head = request_head(incoming.method, url, incoming.version, incoming.headers, incoming.protocol);
    tracker.begin_capture(&live.settings, Some(&head)).await;
    fail(tracker, live, &head, &error)
}

fn request_head(
    method: interflow_types::Method,
    url: Url,
    version: HttpVersion,
    headers: interflow_types::Headers,
    protocol: Option<interflow_types::ByteStr>,
) -> RequestHead {
    RequestHead { method, url, version, headers, protocol }
}

/// Runs an exchange from its beginning.
pub(crate) async fn run_request(conn: &ClientConnection, start: PipelineStart<'_>) -> ServiceReply {
    match start {
        PipelineStart::Pipeline(pending) => run_pipeline(conn, pending).await,
        PipelineStart::Later(outgoing) => outgoing.await,
        PipelineStart::Done(outgoing) => outgoing,
    }
}

/// A flow before it enters the pipeline.
struct PipelineState {
    live: Arc<ActiveConfig>,
    tracker: FlowGuard,
    head: RequestHead,
    body: Body,
    interim: InformationalSender,
    handler: Option<Arc<dyn LocalHandler>>,
    /// The access rules deny it.
    denied: Option<Error>,
}

fn begin_flow(conn: &ClientConnection, pending: PipelineRequest) -> PipelineState {
    let PipelineRequest { live, mut flow, key, url, incoming, handler } = pending;
    let IncomingRequest { method, version, headers, protocol, body, interim, clock, opening, .. } = incoming;
    conn.worker.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    flow.timings.request_head = Some(clock.micros());
    flow.client_http2 = opening;
    if flow.client_tls.is_some() && live.settings.recorder.is_some() {
        // Computed before hop-by-hop fields are stripped, since they are part of the fingerprint.
        flow.ja4h = Some(ja4h(&method, version, &headers).into());
    }
    let head = request_head(method, url, version, headers, protocol);
    if let Some(handler) = &handler {
        handler.identify_client(&mut flow, &head);
    }
    let (plan, denied) = match conn.plan(&live, &key, head.method.as_str(), flow.client.peer.ip()) {
        Ok(plan) => (plan, None),
        Err(e) => (live.plans.get(&live.settings, key), Some(e)),
    };
    let tracker = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    PipelineState { live, tracker, head, body, interim, handler, denied }
}

/// Runs the pipeline; the request is answered by an origin or a local handler.
async fn run_pipeline(conn: &ClientConnection, pending: Box<PipelineRequest>) -> ServiceReply {
    let PipelineState { live, mut tracker, mut head, body, interim, handler, denied } = begin_flow(conn, *pending);
    if let Some(e) = denied.or_else(|| live.settings.pseudonym.check(&head.headers).err()) {
        tracker.begin_capture(&live.settings, Some(&head)).await;
        return fail(tracker, &live, &head, &e);
    }
    let body = match request_phases(&mut tracker, &mut head, body, &interim, &live).await {
        Ok(body) => body,
        Err(end) => {
            tracker.begin_capture(&live.settings, Some(&head)).await;
            return exit_early(tracker, &live, &head, end);
        }
    };
    tracker.begin_capture(&live.settings, Some(&head)).await;
    if let Some(handler) = handler {
        return Box::pin(serve_locally(tracker, &live, head, body, &*handler)).await;
    }
    let exclusive = conn.exclusive_upstream(&head.headers);
    if tracker.plan.wants(Phase::UpstreamConnect) {
        tracker.join_deferred().await;
    }
    let route = match route::select_route(&mut tracker, &live, &head, exclusive, &conn.client_fingerprint).await {
        Ok(route) => route,
        Err(end) => return exit_early(tracker, &live, &head, end),
    };
    let body = grpc::inspect_body(&mut tracker, Direction::Request, &mut head.headers, body);
    let body = tracker.request_body(body, &head);
    let (mut leaving, body) = match before_send(&mut tracker, &head, body).await {
        Ok(leaving) => leaving,
        Err(end) => return exit_early(tracker, &live, &head, end),
    };
    if let Some(word) = tracker.continue_state.take() {
        expect_continue::finish_expectation(&word, leaving.get_or_insert_with(|| head.clone()), &body);
    }
    live.settings.pseudonym.add_via(&head, &mut leaving, &route, &tracker.flow);
    let leaving = leaving.as_ref().unwrap_or(&head);
    let answer = match send(&mut tracker, &live.egress, &route, leaving, body, &interim).await {
        Ok(answer) => answer,
        Err(e) => return fail(tracker, &live, &head, &route::explain_http2_error(e, &route, &head)),
    };
    match answer.upgrade {
        Some(upstream) => upgrade::complete_upgrade(tracker, &live, head, answer.head, upstream),
        None => deliver(tracker, &live, &head, answer.head, answer.body).await,
    }
}

/// The last phase before the request is sent. What stages change here goes into a separate copy of the head, hidden
/// from recorder and other stages.
pub(crate) async fn before_send(
    tracker: &mut FlowGuard,
    head: &RequestHead,
    mut body: Body,
) -> Result<(Option<RequestHead>, Body), EarlyExit> {
    let plan = Arc::clone(&tracker.plan);
    if !plan.wants(Phase::BeforeSend) {
        return Ok((None, body));
    }
    let mut leaving = head.clone();
    for stage in plan.stages(Phase::BeforeSend) {
        body = stage.before_send(&mut tracker.flow, &mut leaving, body).resolve().await?;
    }
    Ok((Some(leaving), body))
}

/// Answers the request from a local handler.
async fn serve_locally(
    mut tracker: FlowGuard,
    live: &ActiveConfig,
    head: RequestHead,
    body: Body,
    handler: &dyn LocalHandler,
) -> ServiceReply {
    let body = tracker.request_body(body, &head);
    let served = handler.serve(&mut tracker.flow, Request { head: head.clone(), body }).await;
    match served {
        Ok(Response { head: answered, body }) => deliver(tracker, live, &head, answered, body).await,
        Err(e) => fail(tracker, live, &head, &e),
    }
}

/// Processes the request head from as received to as sent upstream.
async fn request_phases(
    tracker: &mut FlowGuard,
    head: &mut RequestHead,
    mut body: Body,
    interim: &InformationalSender,
    live: &ActiveConfig,
) -> Result<Body, EarlyExit> {
    hop_by_hop::clean_request(head);
    // The URL's authority wins over `Host`; what a stage then sets in `Host` is kept (RFC 9112 3.2.2).
    hop_by_hop::set_host_for(head, tracker.flow.transport);
    tracker.flow.has_request_body = Some(!body.is_empty());
    let plan = Arc::clone(&tracker.plan);
    // Requests in a tunnel were authorized with their tunnel.
    if tracker.flow.is_outside_tunnel() {
        for stage in plan.stages(Phase::Authority) {
            match stage.authority(&mut tracker.flow).resolve().await {
                // Whether TLS is decrypted is not in question for a request that was read.
                TunnelVerdict::Continue | TunnelVerdict::Intercept | TunnelVerdict::Tunnel => {}
                TunnelVerdict::Deny(error) => return Err(EarlyExit::Deny(error)),
            }
        }
    }
    if hop_by_hop::max_forwards(head) == MaxForwards::Answer {
        return Err(EarlyExit::Answer(Box::new(builtin_pages::max_forwards_response(head))));
    }
    for stage in plan.stages(Phase::RequestHead) {
        // A client that disconnects withdraws a request that waits for an operator's decision.
        let may_wait = stage.may_wait_for_human();
        let preview = if may_wait { body_preview::preview_of(&mut tracker.flow, head, &body) } else { None };
        let verdict = match stage.request_head(&mut tracker.flow, head) {
            MaybeFuture::Ready(verdict) => verdict,
            later if may_wait => {
                interim.pause_timeouts(true);
                let (verdict, read) = body_preview::wait_and_read(preview.clone(), later, body).await;
                body = read;
                interim.pause_timeouts(false);
                if let (RequestVerdict::Continue, Some(preview)) = (&verdict, &preview) {
                    body_preview::apply_replacement(preview, &mut tracker.flow, head);
                }
                verdict
            }
            later => later.resolve().await,
        };
        verdict.into_result()?;
    }
    let reads = plan.wants(Phase::RequestBody) || plan.wants(Phase::BeforeSend);
    if reads && head.headers.has_token("expect", "100-continue") {
        let (held, word) = expect_continue::defer_continue(body, interim.clone());
        tracker.continue_state = Some(word);
        body = held;
    }
    for stage in plan.stages(Phase::RequestBody) {
        body = stage.request_body(&mut tracker.flow, head, body).resolve().await?;
    }
    if !head.headers.contains("host") {
        hop_by_hop::set_host(head);
    }
    let via = &live.settings.config.proxy.via;
    if !via.is_empty() {
        let version = head.version;
        hop_by_hop::add_via(&mut head.headers, version, via);
    }
    Ok(body)
}

pub(crate) async fn send(
    tracker: &mut FlowGuard,
    egress: &UpstreamClient,
    route: &UpstreamRoute,
    head: &RequestHead,
    body: Body,
    interim: &InformationalSender,
) -> Result<UpstreamResponse> {
    let filter = ResponseHeadFilter::for_flow(&tracker.flow);
    let mut relay = InterimRelay { to: interim, heads: Vec::new(), filter };
    let flow = &mut tracker.flow;
    let mut x = UpstreamReport {
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

/// Forwards 1xx responses and keeps them for the recorder.
struct InterimRelay<'a> {
    to: &'a InformationalSender,
    heads: Vec<ResponseHead>,
    filter: ResponseHeadFilter,
}

impl InterimRelay<'_> {
    fn relay(&mut self, mut head: ResponseHead) {
        hop_by_hop::clean_response(&mut head.headers, false);
        self.filter.apply(&mut head);
        self.to.send(head.clone());
        // An origin may send 1xx without end; the first few are enough.
        if self.heads.len() < 8 {
            self.heads.push(head);
        }
    }
}

/// Processes the origin's response and hands it to the client.
async fn deliver(
    mut tracker: FlowGuard,
    live: &ActiveConfig,
    request: &RequestHead,
    mut head: ResponseHead,
    mut body: Body,
) -> ServiceReply {
    hop_by_hop::clean_response(&mut head.headers, false);
    RequestId::echo(&tracker.flow, &mut head.headers);
    let plan = Arc::clone(&tracker.plan);
    let held = tracker.hold_messages().await;
    tracker.join_deferred().await;
    for stage in plan.stages(Phase::ResponseHead) {
        let verdict = stage.response_head(&mut tracker.flow, request, &mut head).resolve().await;
        if let Err(end) = verdict.into_result() {
            return exit_early(tracker, live, request, end);
        }
    }
    for stage in plan.stages(Phase::ResponseBody) {
        if stage.restores_secrets(&tracker.flow) {
            body = tracker.record_before_restore(body, &head);
        }
        body = match stage.response_body(&mut tracker.flow, request, &mut head, body).resolve().await {
            Ok(body) => body,
            Err(end) => return exit_early(tracker, live, request, end),
        };
    }
    let via = &live.settings.config.proxy.via;
    if !via.is_empty() {
        let version = head.version;
        hop_by_hop::add_via(&mut head.headers, version, via);
    }
    tracker.release_messages(held);
    let body = hop_by_hop::strip_forbidden_body(request, &head, body);
    let body = grpc::inspect_body(&mut tracker, Direction::Response, &mut head.headers, body);
    tracker.response(&head);
    let body = tracker.response_body(body, &head);
    ServiceReply::Response(Response { head, body })
}

/// Answers with a stage's response or denial.
fn exit_early(mut tracker: FlowGuard, live: &ActiveConfig, request: &RequestHead, end: EarlyExit) -> ServiceReply {
    match end {
        EarlyExit::Deny(e) => fail(tracker, live, request, &e),
        EarlyExit::Answer(response) => {
            let Response { mut head, body } = *response;
            tracker.flow.tag("answered-locally");
            RequestId::echo(&tracker.flow, &mut head.headers);
            tracker.response(&head);
            let body = tracker.response_body(hop_by_hop::strip_forbidden_body(request, &head, body), &head);
            ServiceReply::Response(Response { head, body })
        }
    }
}

/// Ends the flow with an error and answers the client.
pub(crate) fn fail(mut tracker: FlowGuard, live: &ActiveConfig, request: &RequestHead, error: &Error) -> ServiceReply {
    if error.kind() == ErrorKind::ClientGone {
        tracker.fail(error);
        return ServiceReply::Abort(Error::new(ErrorKind::ClientGone, error.message()));
    }
    let html = request.headers.get_str("accept").is_some_and(|a| a.contains("text/html"));
    let renderer = tracker.flow.extension::<ErrorRenderer>().filter(|_| !html).and_then(|r| r.0);
    let mut response = match renderer {
        Some(render) => render(&tracker.flow, error),
        None => error_response(error, Some(tracker.flow.id), Some(&request.headers)),
    };
    if error.kind() == ErrorKind::Unauthorized {
        response = challenge(response, &live.settings.config.auth.realm);
    }
    RequestId::echo(&tracker.flow, &mut response.head.headers);
    tracker.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        tracker.local_response(bytes);
    }
    tracker.fail(error);
    ServiceReply::Response(response)
}
