//! The request pipeline: one HTTP exchange, phase by phase, until the response's last byte.

use std::sync::Arc;

use interflow_codec::ja4h;
use interflow_codec::websocket::PermessageDeflate;
use interflow_net::egress::{UpstreamClient, UpstreamResponse, UpstreamRoute};
use interflow_net::ingress::{IncomingRequest, InformationalSender, ServiceReply};
use interflow_types::{
    Body, DialedAuthority, Direction, EarlyExit, EndpointId, EntryKind, Error, ErrorKind, Flow, FlowClock, ForwardedBy,
    HttpVersion, LocalHandler, MaybeFuture, NotRecorded, OutlivesClient, Phase, Request, RequestHead, RequestVerdict,
    Response, ResponseHead, ResponseHeadFilter, Result, ServedBy, TunnelOrigin, TunnelVerdict,
};

use crate::downstream::access::{AccessRequest, Login};
use crate::downstream::builtin_pages;
use crate::downstream::connection::{ClientConnection, challenge};
use crate::downstream::resolve::ResolvedRequest;
use crate::http::error_response::error_response;
use crate::http::expect_continue::PendingExpectation;
use crate::http::hop_by_hop::{self, MaxForwards};
use crate::http::loop_detection::ReceivedVia;
use crate::http::outlive::outlive_client;
use crate::http::response::{exit_early, fail};
use crate::http::{body_preview, grpc, upgrade};
use crate::observe::flow_guard::FlowGuard;
use crate::observe::login_watch::LoginWatch;
use crate::state::ActiveConfig;
use crate::upstream::plan::RequestPlan;
use crate::upstream::route::{self, SelectedRoute};

/// A request in the pipeline, with its flow. Boxed, because each future on its way would hold it once more.
pub(crate) struct PipelineRequest {
    config: Arc<ActiveConfig>,
    guard: FlowGuard,
    head: RequestHead,
    body: Body,
    interim: InformationalSender,
    /// Answers in the origin's place, after the request phases.
    handler: Option<Arc<dyn LocalHandler>>,
    /// The plan of the tunnel to the proxy that the request is for.
    through: Option<Arc<RequestPlan>>,
    /// Why the request is not allowed: the client was not authenticated, or an access rule denies it.
    denied: Option<Error>,
}

impl PipelineRequest {
    /// Begins the flow of a request, and finds its plan. `login` is the error of a client that was not
    /// authenticated.
    pub fn new(
        conn: &ClientConnection,
        config: Arc<ActiveConfig>,
        resolved: ResolvedRequest,
        incoming: IncomingRequest,
        login: Result<Login>,
    ) -> Box<Self> {
        let IncomingRequest { method, version, headers, protocol, body, interim, clock, opening, .. } = incoming;
        conn.worker.counters.request_started(resolved.key.transport);
        let mut flow = begin_flow(conn, &resolved, clock);
        flow.client_http2 = opening;
        if flow.client_tls.is_some() && config.settings.recorder.is_some() {
            // Computed before hop-by-hop fields are stripped, because JA4H covers the names of all fields in their
            // order.
            flow.ja4h = Some(ja4h(&method, version, &headers).into());
        }
        let ResolvedRequest { url, key, handler, fronted, through, .. } = resolved;
        let through = through.map(|tunnel| (config.plans.get(&config.settings, (*tunnel).clone()), tunnel));
        let head = RequestHead { method, url, version, headers, protocol };
        if let Some(handler) = &handler {
            handler.identify_client(&mut flow, &head);
        }
        let method = head.method.as_str();
        let mut login_watch = None;
        // All names must be allowed: below the one that the flow has, here that in `Host` with domain fronting, and that of a
        // tunnel whose SNI is another, which was checked as a CONNECT only. An address is no other name: a client that
        // resolves for itself, or does not know of the proxy, connects to one.
        let tunnel = key.dial.as_ref().filter(|dial| dial.host.name().is_some());
        let allowed = login.and_then(|login| {
            for authority in fronted.iter().chain(tunnel) {
                let (user, client) = (flow.user.as_deref(), flow.client.peer.ip());
                conn.check_access(&config, &AccessRequest { user, client, authority, method })?;
            }
            Ok(login)
        });
        // Only the stages of the named host see the request, which the tunnel's host may answer itself.
        let covered =
            through.as_ref().and_then(|(plan, key)| Some((plan.protected_by(&key.scope(true))?, &key.authority)));
        let refused = covered.map(|(stage, authority)| {
            let text = format!("requests for other hosts may not be sent to {authority}, which {stage} covers");
            Error::new(ErrorKind::Denied, text)
        });
        let allowed = allowed.and_then(|login| refused.map_or(Ok(login), Err));
        let allowed = allowed.map(|login| login_watch = LoginWatch::of_revocable(&conn.worker, login));
        let (plan, denied) = match allowed.and_then(|()| conn.plan(&config, &key, method, flow.client.peer.ip())) {
            Ok(plan) => (plan, None),
            // A denied request needs a plan too: its error response passes through the same guard and recording.
            Err(e) => (config.plans.get(&config.settings, key), Some(e)),
        };
        let guard = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters)).with_login(login_watch);
        let through = through.map(|(plan, _)| plan);
        Box::new(Self { config, guard, head, body, interim, handler, through, denied })
    }

    fn exit_early(self, end: EarlyExit) -> ServiceReply {
        exit_early(self.guard, &self.config, &self.head, end)
    }

    fn fail(self, error: &Error) -> ServiceReply {
        fail(self.guard, &self.config, &self.head, error)
    }
}

fn begin_flow(conn: &ClientConnection, resolved: &ResolvedRequest, clock: FlowClock) -> Box<Flow> {
    let key = &resolved.key;
    let mut flow = conn.flow(clock, key.transport, key.scheme, key.authority.clone(), key.user.clone());
    // The clock started with the first byte of the request, so this is the time that the head took to arrive.
    flow.timings.request_head = Some(clock.micros());
    if key.transport == EntryKind::Gateway {
        begin_gateway_flow(conn, resolved, &mut flow);
    }
    if resolved.received_via.is_some() {
        *flow.extension_mut() = ReceivedVia(resolved.received_via.clone());
    }
    if let Some(dial) = key.unproven_dial() {
        *flow.extension_mut() = DialedAuthority(Some(dial.clone()));
    }
    if let Some(tunnel) = &resolved.through {
        *flow.extension_mut() = TunnelOrigin(Some(tunnel.authority.clone()));
    }
    if resolved.fronted.is_some() {
        flow.tag("host_mismatch");
    }
    flow
}

/// A flow on the gateway port: of the client that a trusted reverse proxy names, with the name in its certificate.
fn begin_gateway_flow(conn: &ClientConnection, resolved: &ResolvedRequest, flow: &mut Flow) {
    if let Some(name) = &resolved.key.user {
        flow.tag(format!("certificate:{name}"));
    }
    if let Some(client) = &resolved.forwarded {
        // The recorder should see the real client; the reverse proxy remains in the extension.
        *flow.extension_mut() = ForwardedBy(Some(conn.client.peer));
        flow.client = Arc::clone(client);
    }
    if resolved.endpoint.0.is_some() {
        *flow.extension_mut::<EndpointId>() = resolved.endpoint.clone();
    }
    if resolved.handler.as_ref().is_some_and(|handler| handler.is_private()) {
        // The handler asks that its requests not be recorded.
        flow.extension_mut::<NotRecorded>();
    }
}

/// Runs the pipeline. A request whose login ends meanwhile, which may wait for a person or a slow origin, ends with it;
/// a response that has begun is ended by its tap.
///
/// Cancel safety: when the client disconnects, the server drops this future, and the guard in it ends the flow as
/// aborted by the client.
pub(crate) async fn run_pipeline(conn: &ClientConnection, request: Box<PipelineRequest>) -> ServiceReply {
    let Some(login) = request.guard.login.clone() else { return run_phases(conn, request).await };
    let config = Arc::clone(&request.config);
    tokio::select! {
        biased;
        reply = run_phases(conn, request) => reply,
        // The guard records the error.
        error = login.ended() => {
            let answer = error_response(&error, None, None);
            ServiceReply::Response(challenge(answer, &config.settings.config.auth.realm))
        }
    }
}

/// Begins the recording when it is dropped: after the request phases, or when the client leaves during them, which may
/// wait long.
struct Decided<'a>(&'a mut PipelineRequest);

impl Drop for Decided<'_> {
    fn drop(&mut self) {
        let PipelineRequest { config, guard, head, .. } = &mut *self.0;
        guard.begin_capture_at_once(&config.settings, Some(head));
    }
}

/// Request phases, recording, route, sending, response phases. The order is fixed, and the comments below say why each
/// step is where it is.
async fn run_phases(conn: &ClientConnection, mut request: Box<PipelineRequest>) -> ServiceReply {
    // Recorded from its end on, with the head as the stages left it; denied requests are recorded too.
    let decided = Decided(&mut request);
    let PipelineRequest { config, head, denied, .. } = &mut *decided.0;
    // The loop check comes first: a looping request must not reach stages, which could answer it.
    let admitted = match denied.take().map_or_else(|| config.settings.pseudonym.check(&head.headers), Err) {
        // From here on the head is what the stages see, not what the client sent.
        Ok(()) => request_phases(decided.0).await,
        Err(denied) => Err(EarlyExit::Deny(denied)),
    };
    drop(decided);
    request.guard.recorder_ready().await;
    let recording = request.guard.recording();
    let reply = exchange(conn, request, admitted).await;
    let waits = match &reply {
        // A flow with a body to come ends with it, and its tap waits likewise.
        ServiceReply::Response(Response { body, .. }) => matches!(body, Body::Empty | Body::Full(_)),
        // Its end may be hours away: the client waits until its beginning is stored.
        ServiceReply::Upgrade(..) => true,
        ServiceReply::Abort(_) => false,
    };
    if let Some(recording) = recording.filter(|_| waits) {
        recording.wait_until_stored().await;
    }
    reply
}

/// From the end of the request phases to the response.
async fn exchange(
    conn: &ClientConnection,
    mut request: Box<PipelineRequest>,
    admitted: Result<(Body, Option<PendingExpectation>), EarlyExit>,
) -> ServiceReply {
    let (body, expectation) = match admitted {
        Ok(admitted) => admitted,
        Err(end) => return request.exit_early(end),
    };
    let PipelineRequest { config, guard, head, handler, through, .. } = &mut *request;
    let outlives = guard.flow.extension::<OutlivesClient>().filter(|outlives| outlives.limit.is_some()).cloned();
    let handler = handler.take().or_else(|| guard.flow.extension::<ServedBy>()?.0.clone());
    if through.take_if(|_| handler.is_some() || head.url.authority != guard.flow.authority).is_some() {
        // A stage sent it elsewhere than to the proxy that the credentials are for: to another origin, or a handler.
        head.headers.remove("proxy-authorization");
    }
    if let Some(handler) = handler {
        let login = guard.login.clone();
        let served = serve_locally(request, body, handler);
        return match outlives {
            Some(terms) => outlive_client(terms, login, served).await,
            None => Box::pin(served).await,
        };
    }
    // Tested after the request stages, which may add or remove `Authorization`.
    let exclusive = conn.exclusive_upstream(&head.headers);
    if through.as_ref().unwrap_or(&guard.plan).wants(Phase::UpstreamConnect) {
        // The work may decide on the route, so a stage of this phase needs its result.
        guard.join_deferred().await;
    }
    let selected = match through {
        None => route::select_route(guard, config, head, exclusive, &conn.client_fingerprint).await,
        Some(tunnel) => Box::pin(route::select_nested_route(guard, config, tunnel, &conn.client_fingerprint)).await,
    };
    let route = match selected {
        Ok(route) => route,
        Err(end) => return request.exit_early(end),
    };
    // Message stages wrap the body before the recorder does, so that the recorder sees what they produce.
    let body = grpc::inspect_body(guard, Direction::Request, &mut head.headers, body);
    let body = guard.request_body(body, head);
    // After the recorder: what this phase inserts, such as a secret, is sent to the origin but not recorded.
    let (mut leaving, body) = match before_send(guard, head, body).await {
        Ok(leaving) => leaving,
        Err(end) => return request.exit_early(end),
    };
    if let Some(expectation) = expectation {
        expectation.finish(leaving.get_or_insert_with(|| Box::new(head.clone())), &body);
    }
    if let Some(error) = conn.unreachable(head, &guard.plan) {
        return request.fail(&error);
    }
    // After the decision on the route, because only some routes can loop.
    config.settings.pseudonym.add_via(head, &mut leaving, &route, &guard.flow);
    match outlives {
        Some(terms) => {
            let login = guard.login.clone();
            outlive_client(terms, login, send_and_deliver(request, leaving, route, body)).await
        }
        None => send_and_deliver(request, leaving, route, body).await,
    }
}

/// Sends the request, of which `leaving` is the head if it differs for the origin, and delivers its response.
async fn send_and_deliver(
    mut request: Box<PipelineRequest>,
    leaving: Option<Box<RequestHead>>,
    route: SelectedRoute,
    body: Body,
) -> ServiceReply {
    let PipelineRequest { config, guard, head, interim, .. } = &mut *request;
    let leaving = leaving.as_deref().unwrap_or(head);
    let answer = match send(guard, &config.egress, &route, leaving, body, interim).await {
        Ok(answer) => answer,
        // The request may have been sent already: the error is the client's answer in any case, and nothing is
        // retried here.
        Err(e) => {
            let error = route::explain_http2_error(e, &route, head);
            return request.fail(&error);
        }
    };
    match answer.upgrade {
        // The guard moves on: into the upgraded connection, or else into the response body.
        Some(upstream) => {
            if head.version == HttpVersion::H2
                && let Err(error) = upgrade::check_accept(head, &answer.head)
            {
                return request.fail(&error);
            }
            let PipelineRequest { config, guard, head, .. } = *request;
            let (head, relay) = upgrade::complete_upgrade(guard, &config, head, answer.head, upstream);
            ServiceReply::Upgrade(head, relay)
        }
        None => deliver(request, answer.head, answer.body).await,
    }
}

/// The last phase before the request is sent. What stages change here goes into a separate copy of the head, hidden
/// from recorder and other stages.
pub(crate) async fn before_send(
    guard: &mut FlowGuard,
    head: &RequestHead,
    mut body: Body,
) -> Result<(Option<Box<RequestHead>>, Body), EarlyExit> {
    // Cloned, because the stages borrow the plan while the flow in the same guard is changed.
    let plan = Arc::clone(&guard.plan);
    if !plan.wants(Phase::BeforeSend) {
        return Ok((None, body));
    }
    let mut leaving = Box::new(head.clone());
    for stage in plan.stages(Phase::BeforeSend) {
        body = stage.before_send(&mut guard.flow, &mut leaving, body).resolve().await?;
    }
    Ok((Some(leaving), body))
}

/// Answers the request from a local handler. Its response goes through the response phases like an origin's.
async fn serve_locally(mut request: Box<PipelineRequest>, body: Body, handler: Arc<dyn LocalHandler>) -> ServiceReply {
    let PipelineRequest { guard, head, .. } = &mut *request;
    let body = guard.request_body(body, head);
    match handler.serve(&mut guard.flow, Request { head: head.clone(), body }).await {
        Ok(Response { head, body }) => deliver(request, head, body).await,
        Err(e) => request.fail(&e),
    }
}

/// Processes the request head from as received to as sent upstream. Also returns the expectation of a client that
/// waits for 100.
async fn request_phases(request: &mut PipelineRequest) -> Result<(Body, Option<PendingExpectation>), EarlyExit> {
    let PipelineRequest { config, guard, head, body, interim, through, .. } = request;
    let mut body = std::mem::take(body);
    // Of the proxy at the tunnel's end.
    let login = through.as_ref().and_then(|_| head.headers.get("proxy-authorization").map(<[u8]>::to_vec));
    // Before any stage, so that stages see only end-to-end fields.
    hop_by_hop::clean_request(head);
    if let Some(login) = login {
        head.headers.append_unchecked(b"Proxy-Authorization", &login);
    }
    hop_by_hop::decline_dictionaries(&mut head.headers);
    // The URL's authority wins over `Host`; what a stage then sets in `Host` is kept (RFC 9112 3.2.2).
    hop_by_hop::set_host_for(head, guard.flow.transport);
    guard.flow.has_request_body = Some(!body.is_empty());
    let plan = Arc::clone(&guard.plan);
    // Requests in a tunnel were authorized with their tunnel, unless they name another host.
    if guard.flow.is_outside_tunnel() || through.is_some() {
        for stage in plan.stages(Phase::Authority) {
            match stage.authority(&mut guard.flow).resolve().await {
                // Whether TLS is decrypted is not in question for a request that was read.
                TunnelVerdict::Continue | TunnelVerdict::Intercept | TunnelVerdict::Tunnel => {}
                TunnelVerdict::Deny(error) => return Err(EarlyExit::Deny(error)),
            }
        }
    }
    if hop_by_hop::max_forwards(head) == MaxForwards::Answer {
        // After the access checks, so that TRACE tells nothing to a client that may not use the proxy.
        return Err(EarlyExit::Answer(Box::new(builtin_pages::max_forwards_response(head))));
    }
    for stage in plan.stages(Phase::RequestHead) {
        // A client that disconnects withdraws a request that waits for an operator's decision.
        let may_wait = stage.may_wait_for_human();
        let preview = if may_wait { body_preview::preview_of(&mut guard.flow, head, &body) } else { None };
        let verdict = match stage.request_head(&mut guard.flow, head) {
            MaybeFuture::Ready(verdict) => verdict,
            later if may_wait => {
                // The client's timeouts would otherwise end a request that waits for a person.
                interim.pause_timeouts(true);
                let (verdict, read) = body_preview::wait_and_read(preview.clone(), later, body).await;
                body = read;
                interim.pause_timeouts(false);
                // Only an approval may replace the body; after a denial the preview is dropped with the flow.
                if let (RequestVerdict::Continue, Some(preview)) = (&verdict, &preview) {
                    body_preview::apply_replacement(preview, &mut guard.flow, head);
                }
                verdict
            }
            later => later.resolve().await,
        };
        // The first verdict that is not `Continue` ends the request: later stages never see it.
        verdict.into_result()?;
    }
    // `BeforeSend` counts too, since its stages may read the body to sign it.
    let reads = plan.wants(Phase::RequestBody) || plan.wants(Phase::BeforeSend);
    let (mut body, expectation) = PendingExpectation::defer(reads, head, body, interim);
    for stage in plan.stages(Phase::RequestBody) {
        body = stage.request_body(&mut guard.flow, head, body).resolve().await?;
    }
    if head.protocol.as_deref() == Some("websocket") {
        // Frames are read to record messages and for stages, and other extensions may change what is in them.
        PermessageDeflate::retain_offers(&mut head.headers);
        // For an origin of HTTP/1.1: over HTTP/2, clients send none (RFC 8441 5).
        if head.version == HttpVersion::H2 {
            upgrade::set_key(head);
        }
    }
    // A stage may have removed `Host`, which every HTTP/1.1 request must have (RFC 9112 3.2).
    if !head.headers.contains("host") {
        hop_by_hop::set_host(head);
    }
    hop_by_hop::add_via(&mut head.headers, head.version, &config.settings.config.proxy.via);
    Ok((body, expectation))
}

pub(crate) async fn send(
    guard: &mut FlowGuard,
    egress: &UpstreamClient,
    route: &UpstreamRoute,
    head: &RequestHead,
    body: Body,
    interim: &InformationalSender,
) -> Result<UpstreamResponse> {
    let filter = ResponseHeadFilter::for_flow(&guard.flow);
    // 1xx heads are kept and recorded after the exchange, because `guard` is borrowed by the report until then.
    let mut relay = InterimRelay { to: interim, heads: Vec::new(), filter };
    let mut forward = |head| relay.relay(head);
    let answer = egress.send_parts(route, head, body, &mut guard.upstream_report(&mut forward)).await;
    for head in &relay.heads {
        guard.interim(head);
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
        // The same filter as for the final response: what a rule hides there must not leak here.
        self.filter.apply(&mut head);
        self.to.send(head.clone());
        // An origin may send 1xx without end; the first few are enough.
        if self.heads.len() < 8 {
            self.heads.push(head);
        }
    }
}

/// Processes the origin's response and hands it to the client.
async fn deliver(mut sent: Box<PipelineRequest>, mut head: ResponseHead, mut body: Body) -> ServiceReply {
    let PipelineRequest { config, guard, head: request, through, .. } = &mut *sent;
    // Of the proxy at the tunnel's end.
    let logins = ["Proxy-Authenticate", "Proxy-Authentication-Info"].into_iter().filter(|_| through.is_some());
    let logins: Vec<_> = logins.flat_map(|n| head.headers.get_all(n).map(move |value| (n, value.to_vec()))).collect();
    hop_by_hop::clean_response(&mut head.headers, false);
    for (name, value) in logins {
        head.headers.append_unchecked(name.as_bytes(), &value);
    }
    hop_by_hop::add_client_fields(&guard.flow, &mut head.headers);
    let plan = Arc::clone(&guard.plan);
    // Messages of a gRPC request may still be running: they pause while the response phases use the flow.
    let held = guard.hold_messages().await;
    guard.join_deferred().await;
    for stage in plan.stages(Phase::ResponseHead) {
        let verdict = stage.response_head(&mut guard.flow, request, &mut head).resolve().await;
        if let Err(end) = verdict.into_result() {
            return sent.exit_early(end);
        }
    }
    for stage in plan.stages(Phase::ResponseBody) {
        // The recorder must not see restored secrets: it gets the body as it is before the first such stage.
        if stage.restores_secrets(&guard.flow) {
            body = guard.record_before_restore(body, &head);
        }
        body = match stage.response_body(&mut guard.flow, request, &mut head, body).resolve().await {
            Ok(body) => body,
            Err(end) => return sent.exit_early(end),
        };
    }
    hop_by_hop::add_via(&mut head.headers, head.version, &config.settings.config.proxy.via);
    guard.release_messages(held);
    if let Err(error) = upgrade::check_not_accepted(request, head.status) {
        return sent.fail(&error);
    }
    let body = hop_by_hop::strip_forbidden_body(request, &head, body);
    let body = grpc::inspect_body(guard, Direction::Response, &mut head.headers, body);
    guard.response(&head);
    let body = sent.guard.response_body(body, &head);
    // The guard now lives in the body: the flow ends when the server has polled its last frame, or drops it.
    ServiceReply::Response(Response { head, body })
}
