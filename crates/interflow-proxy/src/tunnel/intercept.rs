//! The inside of a tunnel: detects its protocol, decides on interception, terminates TLS or passes it through.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_codec::client_hello::ClientHello;
use interflow_net::ingress::{self, ClientProtocol, SniffTimeouts};
use interflow_net::io::IoStream;
use interflow_net::tls::{self, Alpn, ClientTlsFailure, ServerTls};
use interflow_types::{
    Authority, BoxFuture, ByteCounts, ByteStr, ClientTls, ClientTlsOverride, DialedAuthority, Error, ErrorKind, Flow,
    Host, HttpVersion, Passthrough, Phase, PlanScope, Result, Scheme, TunnelVerdict,
};

use crate::compiled::CompiledConfig;
use crate::downstream::access::{AccessRequest, Login};
use crate::downstream::builtin_pages;
use crate::downstream::connection::{ClientConnection, ConnectionKind, FailedDial, TunnelTarget};
use crate::http::loop_detection::ReceivedVia;
use crate::observe::flow_guard::FlowGuard;
use crate::state::{ActiveConfig, ProxyWorker};
use crate::tunnel::leaf_refusal::{self, RefusalEvidence};
use crate::tunnel::passthrough::{FirstSpeaker, dial, dial_tls, end_tunnel, first_speaker, pass_on, passthrough};
use crate::tunnel::pinning_bypass::{ClientProgram, LeafRefusal};
use crate::upstream::plan::{PlanKey, RequestPlan};
use crate::upstream::route::collect_tunnel_overrides;

/// How long a client that has sent nothing yet is waited for when its origin cannot be reached. A client that waits for
/// the server to speak first learns of the failure then.
const LATE_CLIENT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct TunnelContext {
    worker: Arc<ProxyWorker>,
    /// The configuration at the time of the tunnel's opening.
    config: Arc<ActiveConfig>,
    client: Arc<interflow_types::ClientInfo>,
    /// The client's ClientHello, to mirror its fingerprint. Kept only in builds that can impersonate one.
    hello: Option<Arc<ClientHello>>,
    /// As whom the client opened the tunnel.
    login: Login,
}

impl TunnelContext {
    pub fn new(conn: &ClientConnection, config: Arc<ActiveConfig>, login: Login) -> Self {
        Self { worker: Arc::clone(&conn.worker), config, client: Arc::clone(&conn.client), hello: None, login }
    }

    /// The program that sent this flow's ClientHello.
    fn program(&self, guard: &FlowGuard) -> ClientProgram {
        ClientProgram::from_client(&self.client, guard.flow.client_tls.as_ref().and_then(|tls| tls.ja4.as_ref()))
    }

    /// The key of the plan for a tunnel of this client to `authority`.
    fn plan_key(&self, flow: &Flow, authority: Authority, dial: Option<Authority>) -> PlanKey {
        let (listener, user, transport) = (Arc::clone(&self.client.listener), flow.user.clone(), flow.transport);
        PlanKey { listener, user, scheme: Scheme::Https, authority, dial, transport }
    }

    /// `Err` holds the index of the access rule that denies a tunnel to this authority.
    fn check_access(&self, flow: &Flow, authority: &Authority) -> Result<(), usize> {
        let (user, client) = (flow.user.as_deref(), self.client.peer.ip());
        self.config.settings.rules.check(&AccessRequest { user, client, authority, method: "CONNECT" })
    }

    fn tunnel_connection(&self, inside: TunnelTarget, tls: Option<Arc<ClientTls>>) -> Arc<ClientConnection> {
        let conn = ClientConnection::new(
            Arc::clone(&self.worker),
            Arc::clone(&self.client),
            ConnectionKind::Inside(inside),
            tls,
        );
        Arc::new(conn.with_client_hello(self.hello.clone()))
    }

    /// Serves the requests inside.
    async fn serve_http(&self, http2: bool, io: IoStream, inside: TunnelTarget, tls: Option<Arc<ClientTls>>) {
        let options = self.config.settings.http_options(false);
        let (drain, connection) = (self.worker.drain.clone(), self.tunnel_connection(inside, tls));
        let served = match http2 {
            // Boxed, as it is large, and a tunnel that is passed on would hold room for it.
            true => Box::pin(ingress::serve_http2(io, &options, drain, connection)).await,
            false => ingress::serve_http1(io, &options, drain, connection).await,
        };
        self.worker.log_end(&self.client, served);
    }
}

/// The stages' decision about a tunnel's TLS; `None` leaves it to the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterceptOverride {
    None,
    Intercept,
    Tunnel,
}

impl InterceptOverride {
    /// Applies a stage's verdict; the last stage with a decision wins.
    ///
    /// # Errors
    /// The stage denied the tunnel.
    pub fn apply_verdict(&mut self, verdict: TunnelVerdict) -> Result<()> {
        match verdict {
            TunnelVerdict::Continue => {}
            TunnelVerdict::Intercept => *self = Self::Intercept,
            TunnelVerdict::Tunnel => *self = Self::Tunnel,
            TunnelVerdict::Deny(error) => return Err(error),
        }
        Ok(())
    }

    /// Why TLS to a host with these names is passed through, if it is, by stages and configuration.
    pub fn passthrough(self, settings: &CompiledConfig, names: &[&Host], port: u16) -> Option<Passthrough> {
        match self {
            Self::Intercept => None,
            Self::Tunnel => Some(Passthrough::Rule),
            Self::None => settings.passthrough(names, port),
        }
    }
}

/// Serves an established tunnel by the protocol of its first bytes. Boxed, because requests inside may open tunnels
/// again.
pub(crate) fn inspect(
    context: TunnelContext,
    guard: FlowGuard,
    io: IoStream,
    interception: InterceptOverride,
) -> BoxFuture<'static, ()> {
    Box::pin(sniff(context, guard, io, interception))
}

async fn sniff(context: TunnelContext, mut guard: FlowGuard, io: IoStream, interception: InterceptOverride) {
    // Bounded: a client that sends nothing must not keep the tunnel's protocol undecided forever.
    let expect = sniff_timeouts(&context.config);
    let (mut detected, mut io) = match ingress::sniff(io, expect).await {
        Ok(found) => found,
        Err(e) => return fail_sniff(guard, &context.config, &e).await,
    };
    let mut upstream = None;
    if matches!(detected, ClientProtocol::Timeout) {
        // A slow client, or a protocol in which the server speaks first: wait for both sides.
        let (near, expect) = match Box::pin(dial(&mut guard, &context.config)).await {
            // A client that was only slow can be told why, in its own protocol.
            Err(e) => {
                upstream = Some(Err(e));
                (io, SniffTimeouts { first: LATE_CLIENT_TIMEOUT, ..expect })
            }
            Ok(far) => match first_speaker(io, far, context.config.settings.config.timeouts.tunnel_idle.0).await {
                FirstSpeaker::Server(near, far) => {
                    guard.flow.passthrough = Some(Passthrough::ServerFirst);
                    return passthrough(guard, &context.config, near, far).await;
                }
                FirstSpeaker::Nobody => return guard.tunnelled(ByteCounts::default()),
                FirstSpeaker::Client(near, far) => {
                    // The connection is kept for the case that the protocol turns out to be unknown.
                    upstream = Some(Ok(far));
                    (near, expect)
                }
            },
        };
        (detected, io) = match ingress::sniff(near, expect).await {
            Ok(found) => found,
            Err(e) => return fail_sniff(guard, &context.config, &e).await,
        };
        if let (ClientProtocol::Closed | ClientProtocol::Timeout, Some(Err(e))) = (&detected, &upstream) {
            return end_tunnel(guard, &context.config, Err(e)).await;
        }
    }
    let inside = TunnelTarget {
        scheme: Scheme::Http,
        authority: guard.flow.authority.clone(),
        dial: None,
        transport: guard.flow.transport,
        login: context.login.clone(),
        received_via: guard.flow.extension::<ReceivedVia>().and_then(|via| via.0.clone()),
        unreachable: upstream.as_ref().and_then(|dialled| dialled.as_ref().err()).map(FailedDial::new),
    };
    match refuse_covered(&context, &guard, detected) {
        ClientProtocol::Tls(hello) => serve_tls(context, guard, (io, upstream), *hello, interception).await,
        http @ (ClientProtocol::Http1 | ClientProtocol::Http2) => {
            // The requests inside are flows of their own.
            guard.discard();
            Box::pin(context.serve_http(matches!(http, ClientProtocol::Http2), io, inside, None)).await;
        }
        // Closed without a byte: nothing worth recording happened.
        ClientProtocol::Closed => guard.discard(),
        other => {
            // A proxy protocol within the tunnel is not for Interflow: it goes to the proxy at the tunnel's end.
            let nested = matches!(other, ClientProtocol::NestedConnect(_) | ClientProtocol::Socks5);
            guard.flow.passthrough = Some(if nested { Passthrough::NestedProxy } else { Passthrough::UnknownProtocol });
            pass_on(guard, &context.config, io, upstream).await;
        }
    }
}

fn sniff_timeouts(config: &ActiveConfig) -> SniffTimeouts {
    SniffTimeouts {
        // At least 1 ms: with 0, the timer would fire before the first read.
        first: config.settings.config.intercept.sniff_timeout.0.max(Duration::from_millis(1)),
        rest: config.settings.config.timeouts.header_timeout.0,
        place: ingress::SniffContext::Tunnel,
    }
}

/// A tunnel that is passed through unless its SNI changes the decision. The upstream connection already exists, so
/// either side may send first.
pub(crate) fn inspect_passthrough(
    context: TunnelContext,
    mut guard: FlowGuard,
    (io, upstream): (IoStream, IoStream),
    interception: InterceptOverride,
    why: Passthrough,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        guard.flow.passthrough = Some(why);
        // Nobody would use the name: relaying can begin at once.
        if !context.config.settings.needs_tls_name() {
            return passthrough(guard, &context.config, io, upstream).await;
        }
        match first_speaker(io, upstream, context.config.settings.config.timeouts.tunnel_idle.0).await {
            FirstSpeaker::Server(near, far) => passthrough(guard, &context.config, near, far).await,
            FirstSpeaker::Nobody => {
                end_tunnel(guard, &context.config, Ok(ByteCounts::default())).await;
            }
            FirstSpeaker::Client(near, far) => match ingress::sniff(near, sniff_timeouts(&context.config)).await {
                Ok((ClientProtocol::Tls(hello), near)) => {
                    serve_tls(context, guard, (near, Some(Ok(far))), *hello, interception).await
                }
                // Not TLS: the decision to pass through stands.
                Ok((_, near)) => passthrough(guard, &context.config, near, far).await,
                Err(e) => fail_sniff(guard, &context.config, &e).await,
            },
        }
    })
}

/// Ends a tunnel whose protocol could not be detected.
async fn fail_sniff(guard: FlowGuard, config: &ActiveConfig, error: &Error) {
    match error.kind() {
        // A timeout is recorded. Other errors mean that the client disconnected before it sent anything, which is
        // not.
        ErrorKind::ClientTimeout => end_tunnel(guard, config, Err(error)).await,
        _ => guard.fail(error),
    }
}

/// Intercepts TLS in a tunnel, or passes it through. What the decision needs is gone before bytes are relayed: thousands
/// of tunnels may wait there.
async fn serve_tls(
    context: TunnelContext,
    guard: FlowGuard,
    streams: (IoStream, Option<Result<IoStream>>),
    hello: ClientHello,
    interception: InterceptOverride,
) {
    let config = Arc::clone(&context.config);
    if let Some((guard, io, upstream)) = Box::pin(intercept(context, guard, streams, hello, interception)).await {
        pass_on(guard, &config, io, upstream).await;
    }
}

/// Decides whether TLS in a tunnel is intercepted or passed through, after access rules and stages have seen its
/// ClientHello and SNI. Serves what is intercepted, and returns what is to be passed through.
async fn intercept(
    context: TunnelContext,
    mut guard: FlowGuard,
    (io, upstream): (IoStream, Option<Result<IoStream>>),
    hello: ClientHello,
    mut interception: InterceptOverride,
) -> Option<(FlowGuard, IoStream, Option<Result<IoStream>>)> {
    let tunnel = guard.flow.authority.clone();
    let identity = tls_authority(&tunnel, &hello);
    // Set again below if the tunnel is passed through after all.
    guard.flow.passthrough = None;
    guard.flow.client_tls = Some(Arc::new(client_tls_info(&hello)));
    // Kept, because the stages of the SNI's plan must not decide on a tunnel that goes to another address.
    let by_tunnel = Arc::clone(&guard.plan);
    if let Err(e) = authorize_hello(&context, &mut guard, &identity, &mut interception).await {
        end_tunnel(guard, &context.config, Err(&e)).await;
        return None;
    }
    // Both names count for exclusions, see `CompiledConfig::passthrough`.
    let mut passes = interception.passthrough(&context.config.settings, &[&tunnel.host, &identity.host], tunnel.port);
    // A pinning bypass yields to a stage's decision, to stages that protect the host, and to programs started by
    // `interflow exec`, which are expected to trust the CA.
    let program = context.program(&guard);
    if passes.is_none()
        && interception == InterceptOverride::None
        && context.worker.shared.pinning.is_bypassed(&program, &identity.host)
        && !context.login.is_exec()
        && protecting_stage(&context, &guard.plan, &guard.flow, &identity).is_none()
    {
        passes = Some(Passthrough::PinningBypass);
    }
    // The built-in pages have no origin to pass anything to.
    let Some(why) = passes.filter(|_| !builtin_pages::is_local(&identity.host)) else {
        let unreachable = upstream.and_then(Result::err).as_ref().map(FailedDial::new);
        Box::pin(terminate(context, guard, io, (tunnel, identity, unreachable), &hello)).await;
        return None;
    };
    // The SNI is not verified: the tunnel goes to the requested address.
    guard.plan = by_tunnel;
    guard.flow.authority = tunnel;
    guard.flow.passthrough = Some(why);
    // The stages decided on a connection that is open already before they knew of this name.
    if guard.flow.authority.host != identity.host
        && let Some(Ok(_)) = &upstream
        && let Err(e) = collect_tunnel_overrides(&mut guard.flow, &guard.plan).await
    {
        end_tunnel(guard, &context.config, Err(&e)).await;
        return None;
    }
    Some((guard, io, upstream))
}

/// Applies access rules and stages to the ClientHello, and to its SNI if the tunnel was requested under another name,
/// such as an address.
///
/// # Errors
/// The connection is denied.
async fn authorize_hello(
    context: &TunnelContext,
    guard: &mut FlowGuard,
    identity: &Authority,
    interception: &mut InterceptOverride,
) -> Result<()> {
    run_stages(guard, Phase::ClientHello, interception).await?;
    let flow = &mut guard.flow;
    // The usual case: CONNECT named the same host, and its checks apply.
    if identity.host == flow.authority.host {
        return Ok(());
    }
    // The requested authority was allowed; the name in the SNI is a second destination, which must be allowed too.
    let tunnel = std::mem::replace(&mut flow.authority, identity.clone());
    context.check_access(flow, identity).map_err(|i| {
        let text = format!("access to {identity} (the client's SNI) is denied by access.rule[{i}]");
        Error::new(ErrorKind::Denied, text)
    })?;
    // The connection goes to the address that was requested; only the name differs.
    let key = context.plan_key(flow, identity.clone(), Some(tunnel));
    guard.plan = context.config.plans.get(&context.config.settings, key);
    // From here on with the stages of the name's plan, whose `Authority` phase has not seen this tunnel.
    run_stages(guard, Phase::Authority, interception).await?;
    run_stages(guard, Phase::ClientHello, interception).await
}

/// Runs the plan's stages in a phase before interception is decided.
async fn run_stages(guard: &mut FlowGuard, phase: Phase, interception: &mut InterceptOverride) -> Result<()> {
    let plan = Arc::clone(&guard.plan);
    for stage in plan.stages(phase) {
        let flow = &mut guard.flow;
        let step = if phase == Phase::Authority { stage.authority(flow) } else { stage.client_hello(flow) };
        interception.apply_verdict(step.resolve().await)?;
    }
    Ok(())
}

/// The stage, if any, that protects traffic to this host: it must not be passed through uninspected because the
/// client refuses the leaf.
fn protecting_stage(
    context: &TunnelContext,
    plan: &RequestPlan,
    flow: &Flow,
    identity: &Authority,
) -> Option<&'static str> {
    let (listener, user) = (&context.client.listener, flow.user.as_deref());
    let scope = PlanScope { listener, user, authority: identity, transport: flow.transport, intercepted: true };
    let by_method = || context.config.settings.rules.needs_method(&identity.host).then_some("access.rule");
    // Rules for methods could not be enforced on bytes that are not decrypted.
    plan.protected_by(&scope).or_else(by_method)
}

/// The authority that the client means: the SNI on the tunnel's port, or else the tunnel's authority.
fn tls_authority(authority: &Authority, hello: &ClientHello) -> Authority {
    // An IP address is not allowed in SNI (RFC 6066 section 3) and is ignored.
    match hello.server_name.as_deref().map(Host::parse) {
        Some(Ok(host @ Host::Name(_))) => Authority::new(host, authority.port),
        _ => authority.clone(),
    }
}

fn client_tls_info(hello: &ClientHello) -> ClientTls {
    ClientTls {
        sni: hello.server_name.clone(),
        alpn_offered: hello.alpn.iter().map(|p| ByteStr::from(String::from_utf8_lossy(p).into_owned())).collect(),
        ja3: Some(hello.ja3().into()),
        ja4: Some(hello.ja4().into()),
        ..ClientTls::default()
    }
}

/// Terminates the client's TLS as its server.
async fn terminate(
    mut context: TunnelContext,
    mut guard: FlowGuard,
    io: IoStream,
    (tunnel, identity, unreachable): (Authority, Authority, Option<Arc<FailedDial>>),
    hello: &ClientHello,
) {
    // Cloning a ClientHello is pointless in builds that cannot imitate it.
    context.hello = tls::SUPPORTS_IMPERSONATION.then(|| Arc::new(hello.clone()));
    // The certificate is for the name, the connection to the address.
    let dial = (identity != tunnel).then_some(tunnel);
    if let Some(named) = dial.as_ref().filter(|dial| dial.host.name().is_some()) {
        *guard.flow.extension_mut() = DialedAuthority(Some(named.clone()));
    }
    let mut inside = TunnelTarget {
        scheme: Scheme::Https,
        authority: identity.clone(),
        dial,
        transport: guard.flow.transport,
        login: context.login.clone(),
        received_via: guard.flow.extension::<ReceivedVia>().and_then(|via| via.0.clone()),
        unreachable,
    };
    guard.flow.authority = identity;
    let alpn = alpn_for_client(&mut guard, &context.config, &mut inside, hello).await;
    let host = &inside.authority.host;
    let leaf = match select_leaf(&context, &guard, host, alpn).await {
        Ok(leaf) => leaf,
        Err(e) => return end_tunnel(guard, &context.config, Err(&e)).await,
    };
    let facts = guard.flow.client_tls.clone().unwrap_or_default();
    let (io, agreed) = match tls::accept_tls(io, &leaf, context.config.settings.config.timeouts.handshake.0).await {
        Ok(done) => done,
        Err(e) => {
            return handle_leaf_refusal(&context, guard, &inside, RefusalEvidence::Handshake, e).await;
        }
    };
    // Counted after the handshake: before it, the client may still refuse.
    context.worker.counters.intercepted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let both = Arc::new(ClientTls {
        version: agreed.version,
        cipher: agreed.cipher,
        alpn: agreed.alpn,
        certificates: agreed.certificates,
        ..(*facts).clone()
    });
    guard.flow.client_tls = Some(Arc::clone(&both));
    serve_intercepted_tls(context, guard, io, inside, both).await;
}

/// Selects the certificate for the client: an issued leaf, or one that a stage named.
async fn select_leaf(context: &TunnelContext, guard: &FlowGuard, host: &Host, alpn: Alpn) -> Result<Arc<ServerTls>> {
    match guard.flow.extension::<ClientTlsOverride>().and_then(|s| s.certificate.as_ref()) {
        // A browser of `interflow browser` recognises the CA by its key, for which it must be sent.
        None if context.login.is_exec() => Ok(context.worker.ca.server_tls_with_root(host, alpn)),
        // From the leaf cache, or signed now.
        None => Ok(context.worker.ca.server_tls(host, alpn)),
        Some(files) => context.config.settings.leaf_from_files(files, alpn).await.map_err(|e| {
            Error::new(ErrorKind::StageFailed, "a stage selected an unusable certificate for the client").with_source(e)
        }),
    }
}

/// The ALPN protocol to negotiate with the client: the one that the origin supports, to avoid translation.
async fn alpn_for_client(
    guard: &mut FlowGuard,
    config: &ActiveConfig,
    inside: &mut TunnelTarget,
    hello: &ClientHello,
) -> Alpn {
    let (http2, http1) = (hello.offers_alpn(b"h2"), hello.offers_alpn(b"http/1.1"));
    // A client that offers only HTTP/2 would fail the handshake, so its HTTP/2 is accepted.
    if http1 && guard.flow.extension::<ClientTlsOverride>().is_some_and(|s| s.http1) {
        return Alpn::Http1;
    }
    match (http2, http1) {
        // The client offers only other protocols, which Interflow does not support; refusing would end the
        // connection.
        (false, false) if !hello.alpn.is_empty() => return Alpn::None,
        (false, _) => return Alpn::Http1,
        // gRPC clients offer only HTTP/2: for an origin without it, requests are translated.
        (true, false) => return Alpn::Http2,
        (true, true) => {}
    }
    if builtin_pages::is_local(&inside.authority.host) || inside.unreachable().is_some() {
        return Alpn::Both;
    }
    // A stage may still change route, address or resolver, and the fingerprint may be the client's own: the origin
    // must not be contacted before that is known.
    if guard.plan.wants(Phase::UpstreamConnect) || config.settings.fingerprints.mirrors(&inside.authority) {
        return Alpn::Both;
    }
    // That of the requests, which look for the connection under the same key.
    let mut route = guard.plan.route.clone();
    config.settings.pseudonym.add_tunnel_via(&mut route, &guard.flow);
    // The connection made here goes into the pool, and the first request uses it.
    match config.egress.alpn(&route, &mut guard.upstream_report(&mut |_| ())).await {
        Ok(HttpVersion::H2) => Alpn::Both,
        Ok(_) => Alpn::Http1,
        // The request gets the same error, without waiting for it again, and can report it to the client.
        Err(e) => {
            inside.unreachable = Some(FailedDial::new(&e));
            Alpn::Both
        }
    }
}

/// The client refused the leaf, or its TLS failed otherwise.
async fn handle_leaf_refusal(
    context: &TunnelContext,
    guard: FlowGuard,
    inside: &TunnelTarget,
    evidence: RefusalEvidence,
    error: Error,
) {
    let Some(failure) = ClientTlsFailure::from_error(&error).filter(|f| f.is_refusal()) else {
        return end_tunnel(guard, &context.config, Err(&error)).await;
    };
    // Counted for every refusal, also where no bypass may follow.
    context.worker.counters.leaf_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let intercept = &context.config.settings.config.intercept;
    let host = &inside.authority.host;
    let program = context.program(&guard);
    let protected = protecting_stage(context, &guard.plan, &guard.flow, &inside.authority);
    // 0 turns the bypass off for this refusal: protected traffic fails rather than passes unread.
    let may_bypass = evidence == RefusalEvidence::Handshake && !context.login.is_exec() && protected.is_none();
    let failures = if may_bypass { intercept.pinning_failures } else { 0 };
    let refusal = context.worker.shared.pinning.record_refusal(&program, host, failures, intercept.pinning_bypass.0);
    let why = leaf_refusal::explain(refusal, context.login.is_exec(), protected, evidence, intercept.pinning_bypass);
    // Once per bypass, not per refusal: only now does the operator lose sight of this traffic.
    if refusal == (LeafRefusal::Pins { bypassed: true }) {
        tracing::warn!(client = %context.client.peer.ip(), %host, "the client refuses Interflow's certificate: {why}");
    }
    end_tunnel(guard, &context.config, Err(&leaf_refusal::error(failure, &why))).await;
}

/// A client that closes this soon after the handshake without sending anything may have refused the leaf: some verify
/// it only then. Most preconnected idle connections are closed much later, but not all.
const REFUSAL_WINDOW: Duration = Duration::from_secs(3);

/// The client closed before it sent anything inside the intercepted TLS.
async fn handle_early_close(
    context: &TunnelContext,
    mut guard: FlowGuard,
    inside: &TunnelTarget,
    since: Instant,
    error: Option<Error>,
) {
    if let Some(error) = error {
        if error.kind() != ErrorKind::ClientGone {
            return end_tunnel(guard, &context.config, Err(&error)).await;
        }
        // TLS 1.3 clients verify the certificate after the server believes the handshake to be complete.
        if ClientTlsFailure::from_error(&error).is_some_and(ClientTlsFailure::is_refusal) {
            return handle_leaf_refusal(context, guard, inside, RefusalEvidence::Handshake, error).await;
        }
    }
    // Some clients open connections in advance and close them unused: one that accepted this leaf before is taken for
    // such a client.
    let accepted_leaf = context.worker.shared.pinning.accepted_leaf(&context.program(&guard), &inside.authority.host);
    if !accepted_leaf && since.elapsed() < REFUSAL_WINDOW {
        let error = ClientTlsFailure::ClosedAfterLeaf.into_error();
        return handle_leaf_refusal(context, guard, inside, RefusalEvidence::Silence, error).await;
    }
    guard.flow.tag("no_request");
    end_tunnel(guard, &context.config, Ok(ByteCounts::default())).await;
}

/// Serves decrypted TLS: usually HTTP, but only the client's first bytes tell.
async fn serve_intercepted_tls(
    context: TunnelContext,
    mut guard: FlowGuard,
    io: IoStream,
    inside: TunnelTarget,
    tls: Arc<ClientTls>,
) {
    let since = Instant::now();
    let http2 = tls.alpn.as_deref() == Some("h2");
    let agreed = http2 || tls.alpn.as_deref() == Some("http/1.1");
    let mut expect = sniff_timeouts(&context.config);
    // The handshake settled the protocol, so a silent client is idle and does not wait for the server to speak.
    if agreed {
        expect.first = context.config.settings.config.timeouts.idle.0;
    }
    let sniffed = tokio::select! {
        sniffed = ingress::sniff(io, expect) => sniffed,
        // A connection without a request need not delay shutdown.
        () = context.worker.drain.drained(), if agreed => return guard.discard(),
    };
    let (detected, io) = match sniffed {
        Ok(sniffed) => sniffed,
        Err(e) => return handle_early_close(&context, guard, &inside, since, Some(e)).await,
    };
    let detected = match detected {
        ClientProtocol::Closed => return handle_early_close(&context, guard, &inside, since, None).await,
        ClientProtocol::Timeout if agreed => {
            return handle_early_close(&context, guard, &inside, since, None).await;
        }
        // After ALPN h2 anything but the preface is an error, which the HTTP/2 driver reports.
        _ if http2 => ClientProtocol::Http2,
        nested @ ClientProtocol::NestedConnect(_) => refuse_covered(&context, &guard, nested),
        // A client that negotiated HTTP/1.1 must use it, or it gets a 400.
        _ if agreed => ClientProtocol::Http1,
        other => other,
    };
    // A client that only waits has not shown that it accepts the leaf.
    if !matches!(detected, ClientProtocol::Timeout) {
        context.worker.shared.pinning.record_acceptance(&context.program(&guard), &inside.authority.host);
    }
    match detected {
        http @ (ClientProtocol::Http1 | ClientProtocol::Http2) => {
            guard.discard();
            context.serve_http(matches!(http, ClientProtocol::Http2), io, inside, Some(tls)).await;
        }
        _ => {
            // Not HTTP: Interflow ends TLS on both sides and relays what is inside.
            guard.flow.passthrough = Some(Passthrough::NotHttp);
            let upstream = dial_tls(&mut guard, &context.config, &inside).await;
            pass_on(guard, &context.config, io, Some(upstream)).await;
        }
    }
}

/// Takes a CONNECT to the proxy at the tunnel's end for an HTTP request, which is refused, if an access rule or a stage
/// covers the tunnel or the host that it names: what follows could not be inspected.
fn refuse_covered(context: &TunnelContext, guard: &FlowGuard, detected: ClientProtocol) -> ClientProtocol {
    let ClientProtocol::NestedConnect(named) = &detected else { return detected };
    let admitted = Authority::parse(named, None).is_ok_and(|authority| {
        let (settings, flow) = (&context.config.settings, &guard.flow);
        let key = context.plan_key(flow, authority, None);
        let is_covered = |plan: &RequestPlan, authority: &Authority| {
            plan.wants(Phase::Authority) || protecting_stage(context, plan, flow, authority).is_some()
        };
        context.check_access(flow, &key.authority).is_ok()
            && !is_covered(&guard.plan, &flow.authority)
            && !is_covered(&context.config.plans.get(settings, key.clone()), &key.authority)
    });
    if admitted { detected } else { ClientProtocol::Http1 }
}
