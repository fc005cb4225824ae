//! The inside of a tunnel: what its first bytes are, whether its TLS is intercepted, and what is passed through uninspected.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use interflow_flow::{
    Authority, Blame, BoxFuture, ByteStr, ClientTls, Error, Host, Kind, Passthrough, Phase, Result, Scheme, Scope,
    Shown, TunnelBytes, Verdict, Version,
};
use interflow_net::egress::Exchange;
use interflow_net::ingress::{self, Detected, Expect};
use interflow_net::io::Io;
use interflow_net::relay::{self, TunnelCounters, TunnelOptions};
use interflow_net::tls::{self, Alpn, ClientTlsFailure, ServerTls};
use interflow_wire::client_hello::ClientHello;
use tokio::io::AsyncReadExt;

use crate::access::Asked;
use crate::conn::{Conn, Entry, Inside};
use crate::loops::ReceivedVia;
use crate::pinning::{Program, Refusal};
use crate::plan::PlanKey;
use crate::settings::Settings;
use crate::tracker::Tracker;
use crate::worker::{Live, Worker};
use crate::{pages, refusal, route};

/// What the inside of a tunnel keeps of the connection that it came by.
pub(crate) struct Place {
    worker: Arc<Worker>,
    client: Arc<interflow_flow::ClientInfo>,
    /// Kept only by builds that can greet origins alike.
    hello: Option<Arc<ClientHello>>,
    /// The client is a program that `interflow exec` started.
    of_exec: bool,
}

impl Place {
    pub fn of(conn: &Conn) -> Self {
        Self {
            worker: Arc::clone(&conn.worker),
            client: Arc::clone(&conn.client),
            hello: None,
            of_exec: conn.is_of_exec(),
        }
    }

    /// The program that sent the hello of this flow.
    fn program(&self, tracker: &Tracker) -> Program {
        Program::of(&self.client, tracker.flow.client_tls.as_ref().and_then(|tls| tls.ja4.as_ref()))
    }

    fn inside(&self, inside: Inside, tls: Option<Arc<ClientTls>>) -> Arc<Conn> {
        let conn = Conn::new(Arc::clone(&self.worker), Arc::clone(&self.client), Entry::Inside(inside), tls);
        Arc::new(conn.greeted(self.hello.clone()))
    }

    async fn serve_http1(&self, live: &Live, io: Io, inside: Inside, tls: Option<Arc<ClientTls>>) {
        let options = live.settings.http_options(false);
        let served = ingress::serve_http1(io, &options, self.worker.drain.clone(), self.inside(inside, tls)).await;
        self.worker.log_end(&self.client, served);
    }

    async fn serve_http2(&self, live: &Live, io: Io, inside: Inside, tls: Option<Arc<ClientTls>>) {
        let options = live.settings.http_options(false);
        let served = ingress::serve_http2(io, &options, self.worker.drain.clone(), self.inside(inside, tls)).await;
        self.worker.log_end(&self.client, served);
    }
}

/// What stages wish of a tunnel's TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    Intercept,
    Tunnel,
}

impl Wish {
    /// The last stage that says something is followed.
    pub fn follow(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Intercept => *self = Self::Intercept,
            Verdict::Tunnel => *self = Self::Tunnel,
            Verdict::Continue | Verdict::Answer(_) | Verdict::Deny(_) | Verdict::Drop => {}
        }
    }

    /// Why a host of these names is passed through, if it is, as far as stages and configuration say.
    pub fn passthrough(self, settings: &Settings, names: &[&Host]) -> Option<Passthrough> {
        match self {
            Self::Intercept => None,
            Self::Tunnel => Some(Passthrough::Rule),
            Self::None => settings.passthrough(names),
        }
    }
}

/// The tunnel stands; what comes out of it decides what it is. Boxed, since requests inside may open tunnels again.
pub(crate) fn look_inside(
    place: Place,
    live: Arc<Live>,
    tracker: Tracker,
    io: Io,
    wish: Wish,
) -> BoxFuture<'static, ()> {
    Box::pin(first_bytes(place, live, tracker, io, wish))
}

async fn first_bytes(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, wish: Wish) {
    let expect = expect_in_tunnel(&live);
    let (mut detected, mut io) = match ingress::detect(io, expect).await {
        Ok(found) => found,
        Err(e) => return unclear(tracker, &live, &e).await,
    };
    let mut upstream = None;
    if matches!(detected, Detected::Silent) {
        // A slow client, or a protocol in which the server speaks first: who speaks next tells them apart.
        let far = match dial(&mut tracker, &live).await {
            Ok(far) => far,
            Err(e) => return never_connected(tracker, &live, &e).await,
        };
        match first_to_speak(io, far, live.settings.config.timeouts.tunnel_idle.0).await {
            First::Server(near, far) => {
                tracker.flow.passthrough = Some(Passthrough::ServerFirst);
                return pass(tracker, &live, near, far).await;
            }
            First::Nobody => return tracker.tunnelled(TunnelBytes::default()),
            First::Client(near, far) => {
                upstream = Some(far);
                (detected, io) = match ingress::detect(near, expect).await {
                    Ok(found) => found,
                    Err(e) => return unclear(tracker, &live, &e).await,
                };
            }
        }
    }
    let inside = Inside {
        scheme: Scheme::Http,
        authority: tracker.flow.authority.clone(),
        dial: None,
        transport: tracker.flow.transport,
        user: tracker.flow.user.clone(),
        received_via: tracker.flow.note::<ReceivedVia>().and_then(|via| via.0.clone()),
    };
    let detected = match detected {
        Detected::ForProxy(named) if names(&named, &inside) => Detected::Http1,
        other => other,
    };
    match detected {
        Detected::Tls(hello) => judge(place, live, tracker, (io, None), *hello, wish).await,
        Detected::Http1 => {
            tracker.replaced();
            place.serve_http1(&live, io, inside, None).await;
        }
        Detected::Http2 => {
            tracker.replaced();
            place.serve_http2(&live, io, inside, None).await;
        }
        Detected::Closed => tracker.replaced(),
        Detected::ForProxy(_) | Detected::Socks5 | Detected::Other | Detected::Silent => {
            let nested = matches!(detected, Detected::ForProxy(_) | Detected::Socks5);
            tracker.flow.passthrough =
                Some(if nested { Passthrough::NestedProxy } else { Passthrough::UnknownProtocol });
            let far = match upstream {
                Some(far) => Ok(far),
                None => dial(&mut tracker, &live).await,
            };
            match far {
                Ok(far) => pass(tracker, &live, io, far).await,
                Err(e) => never_connected(tracker, &live, &e).await,
            }
        }
    }
}

fn expect_in_tunnel(live: &Live) -> Expect {
    Expect {
        first: live.settings.config.intercept.server_first_after.0.max(Duration::from_millis(1)),
        rest: live.settings.config.timeouts.head.0,
        place: ingress::Place::Tunnel,
    }
}

/// Who broke the silence of a tunnel. The bytes are put back in front of their stream.
enum First {
    Client(Io, Io),
    Server(Io, Io),
    Nobody,
}

async fn first_to_speak(mut near: Io, mut far: Io, limit: Duration) -> First {
    let (mut said, mut heard) = (BytesMut::with_capacity(4096), BytesMut::with_capacity(4096));
    // An end or a failure is told by the next reader.
    tokio::select! {
        _ = near.read_buf(&mut said) => First::Client(near.prefixed(said.freeze()), far),
        _ = far.read_buf(&mut heard) => First::Server(near, far.prefixed(heard.freeze())),
        () = tokio::time::sleep(limit) => First::Nobody,
    }
}

/// Ends a tunnel that did not come about.
async fn never_connected(mut tracker: Tracker, live: &Live, error: &Error) {
    tracker.begin_capture(&live.settings, None).await;
    tracker.fail(error);
}

/// A tunnel that passes through unless the name in its TLS says otherwise. The connection upstream is there already, so
/// that who speaks first may be either.
pub(crate) fn watch(
    place: Place,
    live: Arc<Live>,
    mut tracker: Tracker,
    (io, upstream): (Io, Io),
    wish: Wish,
    why: Passthrough,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        tracker.flow.passthrough = Some(why);
        if !live.settings.names_matter() {
            return pass(tracker, &live, io, upstream).await;
        }
        match first_to_speak(io, upstream, live.settings.config.timeouts.tunnel_idle.0).await {
            First::Server(near, far) => pass(tracker, &live, near, far).await,
            First::Nobody => {
                tracker.begin_capture(&live.settings, None).await;
                tracker.tunnelled(TunnelBytes::default());
            }
            First::Client(near, far) => match ingress::detect(near, expect_in_tunnel(&live)).await {
                Ok((Detected::Tls(hello), near)) => judge(place, live, tracker, (near, Some(far)), *hello, wish).await,
                Ok((_, near)) => pass(tracker, &live, near, far).await,
                Err(e) => unclear(tracker, &live, &e).await,
            },
        }
    })
}

/// Ends a tunnel whose first bytes did not come to anything.
async fn unclear(tracker: Tracker, live: &Live, error: &Error) {
    match error.kind() {
        Kind::ClientTimeout => never_connected(tracker, live, error).await,
        _ => tracker.fail(error),
    }
}

/// TLS in a tunnel, whose hello is known: access rules and stages are asked about the name in it, and it is decided whether
/// the TLS is intercepted or passed through.
async fn judge(
    place: Place,
    live: Arc<Live>,
    mut tracker: Tracker,
    (io, upstream): (Io, Option<Io>),
    hello: ClientHello,
    mut wish: Wish,
) {
    let tunnel = tracker.flow.authority.clone();
    let identity = identity(&tunnel, &hello);
    tracker.flow.passthrough = None;
    tracker.flow.client_tls = Some(Arc::new(hello_facts(&hello)));
    let by_tunnel = Arc::clone(&tracker.plan);
    if let Err(e) = ask_about(&place, &live, &mut tracker, &identity, &mut wish).await {
        return never_connected(tracker, &live, &e).await;
    }
    let mut passes = wish.passthrough(&live.settings, &[&tunnel.host, &identity.host]);
    let program = place.program(&tracker);
    if passes.is_none()
        && wish == Wish::None
        && place.worker.shared.pinning.passes(&program, &identity.host)
        && !place.of_exec
        && protection(&place, &live, &tracker, &identity).is_none()
    {
        passes = Some(Passthrough::PinningBypass);
    }
    let Some(why) = passes.filter(|_| !pages::is_local(&identity.host)) else {
        return terminate(place, live, tracker, io, (tunnel, identity), &hello).await;
    };
    // Nobody vouches for the name: the tunnel goes where it was asked for.
    tracker.plan = by_tunnel;
    tracker.flow.authority = tunnel;
    tracker.flow.passthrough = Some(why);
    let upstream = match upstream {
        Some(upstream) => Ok(upstream),
        None => dial(&mut tracker, &live).await,
    };
    match upstream {
        Ok(upstream) => pass(tracker, &live, io, upstream).await,
        Err(e) => never_connected(tracker, &live, &e).await,
    }
}

/// Access rules and stages have their say about the hello, and about the name in it where the tunnel was asked for under
/// another one, such as an address.
///
/// # Errors
/// It is denied.
async fn ask_about(
    place: &Place,
    live: &Live,
    tracker: &mut Tracker,
    identity: &Authority,
    wish: &mut Wish,
) -> Result<()> {
    ask(tracker, Phase::ClientHello, wish).await?;
    let flow = &mut tracker.flow;
    if identity.host == flow.authority.host {
        return Ok(());
    }
    let tunnel = std::mem::replace(&mut flow.authority, identity.clone());
    let asked =
        Asked { user: flow.user.as_deref(), client: place.client.peer.ip(), authority: identity, method: "CONNECT" };
    live.settings.rules.check(&asked).map_err(|i| {
        let text = format!("access to {identity}, which the client's TLS names (SNI), is denied by access.rule[{i}]");
        Error::new(Kind::Denied, text)
    })?;
    let key = PlanKey {
        listener: Arc::clone(&place.client.listener),
        user: flow.user.clone(),
        scheme: Scheme::Https,
        authority: identity.clone(),
        dial: Some(tunnel),
        transport: flow.transport,
    };
    tracker.plan = live.plans.get(&live.settings, key);
    ask(tracker, Phase::Authority, wish).await?;
    ask(tracker, Phase::ClientHello, wish).await
}

/// What the stages of the plan say in a phase before the inside is known.
async fn ask(tracker: &mut Tracker, phase: Phase, wish: &mut Wish) -> Result<()> {
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(phase) {
        let flow = &mut tracker.flow;
        let step = if phase == Phase::Authority { stage.authority(flow) } else { stage.client_hello(flow) };
        match step.get().await {
            Verdict::Deny(e) => return Err(e),
            verdict => wish.follow(&verdict),
        }
    }
    Ok(())
}

/// Who protects what passes to this host, so that nothing of it passes uninspected because the client refuses our leaf.
fn protection(place: &Place, live: &Live, tracker: &Tracker, identity: &Authority) -> Option<&'static str> {
    let scope = Scope {
        listener: &place.client.listener,
        user: tracker.flow.user.as_deref(),
        authority: identity,
        transport: tracker.flow.transport,
        intercepted: true,
    };
    let by_method = || live.settings.rules.needs_method(&identity.host).then_some("access.rule");
    tracker.plan.protected_by(&scope).or_else(by_method)
}

/// Whom the client believes to speak to: the name in its hello, on the tunnel's port; else the tunnel's authority.
fn identity(authority: &Authority, hello: &ClientHello) -> Authority {
    match hello.server_name.as_deref().map(Host::parse) {
        Some(Ok(host @ Host::Name(_))) => Authority::new(host, authority.port),
        _ => authority.clone(),
    }
}

fn hello_facts(hello: &ClientHello) -> ClientTls {
    ClientTls {
        sni: hello.server_name.clone(),
        alpn_offered: hello.alpn.iter().map(|p| ByteStr::from(String::from_utf8_lossy(p).into_owned())).collect(),
        ja3: Some(hello.ja3().into()),
        ja4: Some(hello.ja4().into()),
        ..ClientTls::default()
    }
}

/// We are the client's TLS server.
async fn terminate(
    mut place: Place,
    live: Arc<Live>,
    mut tracker: Tracker,
    io: Io,
    (tunnel, identity): (Authority, Authority),
    hello: &ClientHello,
) {
    place.hello = tls::IMPERSONATES.then(|| Arc::new(hello.clone()));
    let dial = (identity != tunnel).then_some(tunnel);
    let inside = Inside {
        scheme: Scheme::Https,
        authority: identity.clone(),
        dial,
        transport: tracker.flow.transport,
        user: tracker.flow.user.clone(),
        received_via: tracker.flow.note::<ReceivedVia>().and_then(|via| via.0.clone()),
    };
    tracker.flow.authority = identity;
    let alpn = alpn_for_client(&mut tracker, &live, &inside, hello).await;
    let host = &inside.authority.host;
    let leaf = match leaf(&place, &live, &tracker, host, alpn) {
        Ok(leaf) => leaf,
        Err(e) => return never_connected(tracker, &live, &e).await,
    };
    let facts = tracker.flow.client_tls.clone().unwrap_or_default();
    let (io, agreed) = match tls::accept_tls(io, &leaf, live.settings.config.timeouts.handshake.0).await {
        Ok(done) => done,
        Err(e) => return leaf_refused(&place, &live, tracker, &inside, e).await,
    };
    place.worker.counters.intercepted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let both =
        Arc::new(ClientTls { version: agreed.version, cipher: agreed.cipher, alpn: agreed.alpn, ..(*facts).clone() });
    tracker.flow.client_tls = Some(Arc::clone(&both));
    inside_tls(place, live, tracker, io, inside, both).await;
}

/// What the client is shown: a leaf of our own, or the certificate that a stage named.
fn leaf(place: &Place, live: &Live, tracker: &Tracker, host: &Host, alpn: Alpn) -> Result<Arc<ServerTls>> {
    match tracker.flow.note::<Shown>().and_then(|s| s.certificate.as_ref()) {
        None => Ok(place.worker.ca.server_tls(host, alpn)),
        Some(files) => live.settings.leaf_of(files, alpn).map_err(|e| {
            Error::new(Kind::StageFailed, "a stage named a certificate for the client that cannot be used").because(e)
        }),
    }
}

/// The protocol to agree on with the client: the one that the origin speaks, so that nothing is translated.
async fn alpn_for_client(tracker: &mut Tracker, live: &Live, inside: &Inside, hello: &ClientHello) -> Alpn {
    let (http2, http1) = (hello.offers_alpn(b"h2"), hello.offers_alpn(b"http/1.1"));
    // Who offers HTTP/2 alone would be refused: it is served as it can be.
    if http1 && tracker.flow.note::<Shown>().is_some_and(|s| s.http1) {
        return Alpn::Http1;
    }
    match (http2, http1) {
        // Another protocol's client; we cannot agree to it, and refusing would end the connection.
        (false, false) if !hello.alpn.is_empty() => return Alpn::None,
        (false, _) => return Alpn::Http1,
        // gRPC clients speak nothing else: for an origin without HTTP/2 it is translated.
        (true, false) => return Alpn::Http2,
        (true, true) => {}
    }
    if pages::is_local(&inside.authority.host) {
        return Alpn::Both;
    }
    // A stage may yet choose another way, another address or another resolver, and a fingerprint may be the client's own:
    // nobody is asked before that is known.
    if tracker.plan.wants(Phase::Dial) || live.settings.likenesses.mirrors(&inside.authority.host) {
        return Alpn::Both;
    }
    let mut route = live.settings.route(Scheme::Https, &inside.authority, inside.dial.clone());
    live.settings.pseudonym.hand_on(&mut route, &tracker.flow);
    let flow = &mut tracker.flow;
    let mut x =
        Exchange { clock: &flow.clock, timings: &mut flow.timings, upstream: &mut flow.upstream, interim: &mut |_| () };
    match live.egress.alpn(&route, &mut x).await {
        Ok(Version::H2) => Alpn::Both,
        Ok(_) => Alpn::Http1,
        // The request itself will meet the same error, and can tell the client about it.
        Err(_) => Alpn::Both,
    }
}

/// The client refused our leaf, or its TLS failed otherwise.
async fn leaf_refused(place: &Place, live: &Live, mut tracker: Tracker, inside: &Inside, error: Error) {
    let Some(failure) = ClientTlsFailure::of(&error).filter(|f| f.is_refusal()) else {
        return never_connected(tracker, live, &error).await;
    };
    place.worker.counters.leaf_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let config = &live.settings.config.intercept;
    let host = &inside.authority.host;
    let program = place.program(&tracker);
    let protected = protection(place, live, &tracker, &inside.authority);
    let failures = if place.of_exec || protected.is_some() { 0 } else { config.pinning_failures };
    let refusal = place.worker.shared.pinning.refused(&program, host, failures, config.pinning_pass.0);
    let why = refusal::explain(refusal, place.of_exec, protected, config.pinning_pass);
    if refusal == (Refusal::Pins { bypassed: true }) {
        tracing::warn!(client = %place.client.peer.ip(), %host, "the client refuses our certificate: {why}");
    }
    tracker.begin_capture(&live.settings, None).await;
    tracker.fail(&refusal::error(failure, &why));
}

/// How soon after the handshake a client that goes away without a word has probably refused our leaf: some verify it only
/// then. Who keeps a connection ready for later closes it much later.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);

/// The client went away before it said anything inside our TLS.
async fn left(place: &Place, live: &Live, mut tracker: Tracker, inside: &Inside, since: Instant, error: Option<Error>) {
    if let Some(error) = error {
        if error.kind() != Kind::ClientGone {
            return never_connected(tracker, live, &error).await;
        }
        if ClientTlsFailure::of(&error).is_some_and(ClientTlsFailure::is_refusal) {
            return leaf_refused(place, live, tracker, inside, error).await;
        }
    }
    let known = place.worker.shared.pinning.took_it(&place.program(&tracker), &inside.authority.host);
    if !known && since.elapsed() < REFUSED_WITHIN {
        return leaf_refused(place, live, tracker, inside, ClientTlsFailure::ClosedAfterLeaf.into_error()).await;
    }
    tracker.flow.tag("no_request");
    tracker.begin_capture(&live.settings, None).await;
    tracker.tunnelled(TunnelBytes::default());
}

/// TLS is open; usually HTTP is inside, but nothing says so before the client does.
async fn inside_tls(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, inside: Inside, tls: Arc<ClientTls>) {
    let since = Instant::now();
    let http2 = tls.alpn.as_deref() == Some("h2");
    let agreed = http2 || tls.alpn.as_deref() == Some("http/1.1");
    let mut expect = expect_in_tunnel(&live);
    if agreed {
        expect.first = live.settings.config.timeouts.idle.0;
    }
    let found = tokio::select! {
        found = ingress::detect(io, expect) => found,
        () = place.worker.drain.drained(), if agreed => return tracker.replaced(),
    };
    let (detected, io) = match found {
        Ok(found) => found,
        Err(e) => return left(&place, &live, tracker, &inside, since, Some(e)).await,
    };
    let detected = match detected {
        Detected::Closed => return left(&place, &live, tracker, &inside, since, None).await,
        Detected::Silent if agreed => return left(&place, &live, tracker, &inside, since, None).await,
        _ if http2 => Detected::Http2,
        Detected::ForProxy(named) if names(&named, &inside) => Detected::Http1,
        other @ Detected::ForProxy(_) => other,
        // Who agreed to HTTP/1.1 speaks it, or hears that what it says is none.
        _ if agreed => Detected::Http1,
        other => other,
    };
    if !matches!(detected, Detected::Silent) {
        place.worker.shared.pinning.accepted(&place.program(&tracker), &inside.authority.host);
    }
    match detected {
        Detected::Http1 => {
            tracker.replaced();
            place.serve_http1(&live, io, inside, Some(tls)).await;
        }
        Detected::Http2 => {
            tracker.replaced();
            place.serve_http2(&live, io, inside, Some(tls)).await;
        }
        _ => {
            tracker.flow.passthrough = Some(Passthrough::NotHttp);
            match dial_tls(&mut tracker, &live, &inside).await {
                Ok(upstream) => pass(tracker, &live, io, upstream).await,
                Err(e) => never_connected(tracker, &live, &e).await,
            }
        }
    }
}

/// Whether a request in absolute-form is for the tunnel's own authority, and not for a proxy at its end.
fn names(authority: &str, inside: &Inside) -> bool {
    Authority::parse(authority, Some(inside.scheme.default_port())).is_ok_and(|a| a == inside.authority)
}

/// Connects to the tunnel's authority.
pub(crate) async fn dial(tracker: &mut Tracker, live: &Live) -> Result<Io> {
    let planned = tracker.plan.route.clone();
    let route = route::choose_for_tunnel(tracker, live, planned).await?;
    let flow = &mut tracker.flow;
    let mut x =
        Exchange { clock: &flow.clock, timings: &mut flow.timings, upstream: &mut flow.upstream, interim: &mut |_| () };
    live.egress.connect(&route, &mut x).await
}

/// Connects, and opens TLS of our own towards the origin: for what is not HTTP inside the client's TLS.
async fn dial_tls(tracker: &mut Tracker, live: &Live, inside: &Inside) -> Result<Io> {
    let route = live.settings.route(Scheme::Https, &inside.authority, inside.dial.clone());
    let route = route::choose_for_tunnel(tracker, live, route).await?;
    let flow = &mut tracker.flow;
    let mut x =
        Exchange { clock: &flow.clock, timings: &mut flow.timings, upstream: &mut flow.upstream, interim: &mut |_| () };
    let io = live.egress.connect(&route, &mut x).await?;
    let limit = live.settings.config.timeouts.handshake.0;
    let (io, agreed) = tls::connect_tls(io, &inside.authority.host, &route.tls, Alpn::None, limit).await?;
    if let Some(upstream) = &mut flow.upstream {
        upstream.tls = Some(Arc::new(agreed));
    }
    Ok(io)
}

/// Carries bytes both ways until both sides are done.
pub(crate) async fn pass(mut tracker: Tracker, live: &Live, client: Io, upstream: Io) {
    tracker.begin_capture(&live.settings, None).await;
    tracker.counters().tunnels.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let options = TunnelOptions { idle: live.settings.config.timeouts.tunnel_idle.0, ..TunnelOptions::default() };
    let counters = TunnelCounters::default();
    match relay::tunnel(client, upstream, &options, &counters).await {
        Ok(bytes) => tracker.tunnelled(bytes),
        Err(e) => tracker.tunnel_failed(&e.blame_on(Blame::Upstream), counters.get()),
    }
}
