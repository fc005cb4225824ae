//! The inside of a tunnel: what its first bytes are, whether its TLS is looked into, and what passes unseen.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use interflow_flow::{
    Authority, Blame, BoxFuture, ByteStr, ClientTls, Error, Host, Kind, Phase, Result, Scheme, Shown, TunnelBytes,
    Verdict, Version,
};
use interflow_net::egress::Exchange;
use interflow_net::ingress::{self, Detected, Expect};
use interflow_net::io::Io;
use interflow_net::relay::{self, TunnelCounters, TunnelOptions};
use interflow_net::tls::{self, Alpn, ClientTlsFailure, ServerTls};
use interflow_wire::client_hello::ClientHello;
use tokio::io::AsyncReadExt;

use crate::conn::{Conn, Entry, Inside};
use crate::loops::ReceivedVia;
use crate::tracker::Tracker;
use crate::worker::{Live, Worker};
use crate::{pages, route};

/// What the inside of a tunnel keeps of the connection that it came by.
pub(crate) struct Place {
    worker: Arc<Worker>,
    client: Arc<interflow_flow::ClientInfo>,
    /// Kept only by builds that can greet origins alike.
    hello: Option<Arc<ClientHello>>,
}

impl Place {
    pub fn of(conn: &Conn) -> Self {
        Self { worker: Arc::clone(&conn.worker), client: Arc::clone(&conn.client), hello: None }
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

/// What a stage wished of a tunnel's TLS before its hello was known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    Intercept,
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
        Err(e) => return tracker.fail(&e),
    };
    let mut upstream = None;
    if matches!(detected, Detected::Silent) {
        // A slow client, or a protocol in which the server speaks first: who speaks next tells them apart.
        let far = match dial(&mut tracker, &live).await {
            Ok(far) => far,
            Err(e) => return never_connected(tracker, &live, &e).await,
        };
        match first_to_speak(io, far, live.settings.config.timeouts.tunnel_idle.0).await {
            First::Server(near, far) => return pass(tracker, &live, near, far).await,
            First::Nobody => return tracker.tunnelled(TunnelBytes::default()),
            First::Client(near, far) => {
                upstream = Some(far);
                (detected, io) = match ingress::detect(near, expect).await {
                    Ok(found) => found,
                    Err(e) => return tracker.fail(&e),
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
        Detected::Tls(hello) => intercept(place, live, tracker, io, *hello, wish).await,
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

/// TLS in a tunnel that may be looked into: decided once more, now that the hello is known.
async fn intercept(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, hello: ClientHello, wish: Wish) {
    let identity = identity(&tracker.flow.authority, &hello);
    let client = place.client.peer.ip();
    let mut look = wish == Wish::Intercept
        || !live.settings.never_intercepts(&identity.host)
            && (tracker.plan.intercept || live.settings.intercepts(&identity.host))
            && !place.worker.shared.pinning.passes(client, &identity.host);
    tracker.flow.client_tls = Some(Arc::new(hello_facts(&hello)));
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::ClientHello) {
        match stage.client_hello(&mut tracker.flow).get().await {
            Verdict::Deny(e) => return never_connected(tracker, &live, &e).await,
            Verdict::Intercept => look = true,
            Verdict::Tunnel => look = false,
            Verdict::Continue | Verdict::Answer(_) | Verdict::Drop => {}
        }
    }
    if look || pages::is_local(&identity.host) {
        return terminate(place, live, tracker, io, identity, &hello).await;
    }
    match dial(&mut tracker, &live).await {
        Ok(upstream) => pass(tracker, &live, io, upstream).await,
        Err(e) => never_connected(tracker, &live, &e).await,
    }
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
    identity: Authority,
    hello: &ClientHello,
) {
    place.hello = tls::IMPERSONATES.then(|| Arc::new(hello.clone()));
    let dial = (identity != tracker.flow.authority).then(|| tracker.flow.authority.clone());
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
    place.worker.shared.pinning.accepted(place.client.peer.ip(), host);
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

async fn leaf_refused(place: &Place, live: &Live, mut tracker: Tracker, inside: &Inside, error: Error) {
    let config = &live.settings.config.intercept;
    if let Some(failure) = ClientTlsFailure::of(&error).filter(|f| f.is_refusal()) {
        place.worker.counters.leaf_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let host = &inside.authority.host;
        let client = place.client.peer.ip();
        let silently = failure == ClientTlsFailure::ClosedAfterLeaf;
        let pinning = &place.worker.shared.pinning;
        if pinning.refused(client, host, silently, config.pinning_failures, config.pinning_pass.0) {
            tracing::warn!(%client, %host, "the client refuses our certificate: its TLS to this host passes unseen for {}", config.pinning_pass);
        }
    }
    tracker.begin_capture(&live.settings, None).await;
    tracker.fail(&error);
}

/// TLS is open; usually HTTP is inside, but nothing says so before the client does.
async fn inside_tls(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, inside: Inside, tls: Arc<ClientTls>) {
    if tls.alpn.as_deref() == Some("h2") {
        tracker.replaced();
        return place.serve_http2(&live, io, inside, Some(tls)).await;
    }
    let agreed = tls.alpn.as_deref() == Some("http/1.1");
    let mut expect = expect_in_tunnel(&live);
    if agreed {
        expect.first = live.settings.config.timeouts.idle.0;
    }
    let (detected, io) = match ingress::detect(io, expect).await {
        Ok(found) => found,
        Err(e) => return tracker.fail(&e),
    };
    let detected = match detected {
        Detected::ForProxy(named) if names(&named, &inside) => Detected::Http1,
        other @ (Detected::ForProxy(_) | Detected::Closed) => other,
        // Who agreed to HTTP/1.1 speaks it, or hears that what it says is none.
        _ if agreed => Detected::Http1,
        other => other,
    };
    match detected {
        Detected::Http1 => {
            tracker.replaced();
            place.serve_http1(&live, io, inside, Some(tls)).await;
        }
        Detected::Http2 => {
            tracker.replaced();
            place.serve_http2(&live, io, inside, Some(tls)).await;
        }
        Detected::Closed => tracker.replaced(),
        _ => match dial_tls(&mut tracker, &live, &inside).await {
            Ok(upstream) => pass(tracker, &live, io, upstream).await,
            Err(e) => never_connected(tracker, &live, &e).await,
        },
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
