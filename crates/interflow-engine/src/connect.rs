//! Tunnels: CONNECT and SOCKS5, and what is decided about them: looked into, or passed through unseen.

use std::sync::Arc;
use std::time::Duration;

use interflow_flow::{
    Authority, Blame, BoxFuture, ByteStr, ClientTls, Error, Host, Kind, Phase, RequestHead, ResponseHead, Result,
    Scheme, StatusCode, Target, Transport, Url, Verdict, Version,
};
use interflow_net::egress::Exchange;
use interflow_net::ingress::socks5::{self, SocksReply};
use interflow_net::ingress::{self, Detected, Incoming, Outgoing};
use interflow_net::io::Io;
use interflow_net::relay::{self, TunnelCounters, TunnelOptions};
use interflow_net::tls::{self, Alpn, ClientTlsFailure};
use interflow_wire::client_hello::ClientHello;

use crate::access::Credentials;
use crate::conn::{Conn, Entry, Inside};
use crate::exchange::fail;
use crate::pages;
use crate::tracker::Tracker;
use crate::worker::{Live, Worker};

/// What is decided about a tunnel before a byte of it has come.
enum Choice {
    /// Look at what the client says first.
    Look,
    /// Pass it through unseen.
    Pass,
}

/// A tunnel that was asked for and may be.
struct Tunnel {
    tracker: Tracker,
    choice: Choice,
}

/// Users, access rules and stages have their say.
async fn admit(
    conn: &Conn,
    live: &Live,
    transport: Transport,
    authority: Authority,
    user: Result<Option<Arc<str>>>,
) -> Result<Tunnel, (Tracker, Error)> {
    let name = user.as_ref().ok().cloned().flatten();
    let key = conn.plan_key(Scheme::Https, authority.clone(), None, transport, name.clone());
    let flow = conn.flow(transport, Scheme::Https, authority.clone(), name);
    let plan = user.and_then(|_| conn.plan(live, key.clone(), "CONNECT"));
    let (plan, error) = match plan {
        Ok(plan) => (plan, None),
        Err(e) => (live.plans.get(&live.settings, key), Some(e)),
    };
    let mut tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    if let Some(e) = error {
        return Err((tracker, e));
    }
    let plan = Arc::clone(&tracker.plan);
    let mut look = plan.intercept && !conn.worker.shared.pinning.passes(conn.client.peer.ip(), &authority.host);
    for stage in plan.stages(Phase::Authority) {
        match stage.authority(&mut tracker.flow).get().await {
            Verdict::Deny(e) => return Err((tracker, e)),
            Verdict::Intercept => look = true,
            Verdict::Tunnel => look = false,
            Verdict::Continue | Verdict::Answer(_) | Verdict::Drop => {}
        }
    }
    let choice = if look || pages::is_local(&authority.host) { Choice::Look } else { Choice::Pass };
    Ok(Tunnel { tracker, choice })
}

/// A CONNECT request (RFC 9110 9.3.6).
pub(crate) async fn http_connect(conn: &Conn, live: Arc<Live>, incoming: Incoming) -> Outgoing {
    let Incoming { target, headers, method, version, protocol, .. } = incoming;
    let Target::Authority(authority) = target else {
        return Outgoing::Abort(Error::new(Kind::Internal, "a CONNECT request has no authority"));
    };
    let url = Url { scheme: Scheme::Https, authority: authority.clone(), path: ByteStr::from_static("/") };
    let head = RequestHead { method, url, version, headers, protocol };
    let user = conn.authenticate(&live, &head.headers).await;
    let tunnel = match admit(conn, &live, Transport::Connect, authority, user).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            tracker.begin_capture(&live.settings, Some(&head)).await;
            return fail(tracker, &live, &head, &e);
        }
    };
    let place = Place::of(conn);
    let established = ResponseHead { reason: "Connection established".into(), ..ResponseHead::new(StatusCode::OK) };
    match tunnel.choice {
        Choice::Look => {
            let tracker = tunnel.tracker;
            Outgoing::Upgrade(established, Box::new(|io| look_inside(place, live, tracker, io)))
        }
        Choice::Pass => {
            let mut tracker = tunnel.tracker;
            match dial(&mut tracker, &live).await {
                Ok(upstream) => Outgoing::Upgrade(
                    established,
                    Box::new(|io| Box::pin(async move { pass(tracker, &live, io, upstream).await })),
                ),
                Err(e) => {
                    tracker.begin_capture(&live.settings, Some(&head)).await;
                    fail(tracker, &live, &head, &e)
                }
            }
        }
    }
}

/// A SOCKS5 connection, from its greeting on (RFC 1928, RFC 1929).
pub(crate) async fn socks(conn: &Conn, live: Arc<Live>, io: Io) -> Result<()> {
    let timeout = live.settings.config.timeouts.head.0;
    let settings = Arc::clone(&live.settings);
    let check = move |name: &str, password: &str| {
        let settings = Arc::clone(&settings);
        let credentials = Credentials { name: name.into(), password: password.into() };
        Box::pin(async move {
            match &settings.users {
                Some(users) => users.verify(&credentials).await,
                None => true,
            }
        }) as BoxFuture<'_, bool>
    };
    let auth = if live.settings.users.is_some() { socks5::Auth::Password(&check) } else { socks5::Auth::Open };
    let socks5::Asked { authority, mut io, user } = socks5::accept(io, auth, timeout).await?;
    let user = Ok(user.map(Arc::from));
    let tunnel = match admit(conn, &live, Transport::Socks5, authority, user).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            let _ = socks5::reply(&mut io, socks_reply(e.kind()), None).await;
            tracker.begin_capture(&live.settings, None).await;
            tracker.fail(&e);
            return Ok(());
        }
    };
    let mut tracker = tunnel.tracker;
    match tunnel.choice {
        Choice::Look => {
            socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
            look_inside(Place::of(conn), live, tracker, io).await;
        }
        Choice::Pass => match dial(&mut tracker, &live).await {
            Ok(upstream) => {
                socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
                pass(tracker, &live, io, upstream).await;
            }
            Err(e) => {
                let _ = socks5::reply(&mut io, socks_reply(e.kind()), None).await;
                tracker.begin_capture(&live.settings, None).await;
                tracker.fail(&e);
            }
        },
    }
    Ok(())
}

fn client_gone(e: std::io::Error) -> Error {
    Error::new(Kind::ClientGone, "the client went away").because(e)
}

const fn socks_reply(kind: Kind) -> SocksReply {
    match kind {
        Kind::Denied | Kind::Unauthorized | Kind::Loop | Kind::Limited => SocksReply::NotAllowed,
        Kind::Dns => SocksReply::HostUnreachable,
        Kind::Connect => SocksReply::ConnectionRefused,
        Kind::ConnectTimeout => SocksReply::TtlExpired,
        _ => SocksReply::GeneralFailure,
    }
}

/// What the inside of a tunnel keeps of the connection that it came by.
struct Place {
    worker: Arc<Worker>,
    client: Arc<interflow_flow::ClientInfo>,
}

impl Place {
    fn of(conn: &Conn) -> Self {
        Self { worker: Arc::clone(&conn.worker), client: Arc::clone(&conn.client) }
    }

    fn inside(&self, inside: Inside, tls: Option<Arc<ClientTls>>) -> Arc<Conn> {
        Arc::new(Conn::new(Arc::clone(&self.worker), Arc::clone(&self.client), Entry::Inside(inside), tls))
    }

    async fn serve_http1(&self, live: &Live, io: Io, inside: Inside, tls: Option<Arc<ClientTls>>) {
        let options = live.settings.http_options();
        let served = ingress::serve_http1(io, &options, self.worker.drain.clone(), self.inside(inside, tls)).await;
        self.worker.log_end(&self.client, served);
    }

    async fn serve_http2(&self, live: &Live, io: Io, inside: Inside, tls: Option<Arc<ClientTls>>) {
        let options = live.settings.http_options();
        let served = ingress::serve_http2(io, &options, self.worker.drain.clone(), self.inside(inside, tls)).await;
        self.worker.log_end(&self.client, served);
    }
}

/// The tunnel stands; what comes out of it decides what it is. Boxed, since requests inside may open tunnels again.
fn look_inside(place: Place, live: Arc<Live>, tracker: Tracker, io: Io) -> BoxFuture<'static, ()> {
    Box::pin(first_bytes(place, live, tracker, io))
}

async fn first_bytes(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io) {
    let wait = live.settings.config.intercept.server_first_after.0;
    let (detected, io) = match ingress::detect(io, wait).await {
        Ok(found) => found,
        Err(e) => return tracker.fail(&e),
    };
    let inside = |tracker: &Tracker| Inside {
        scheme: Scheme::Http,
        authority: tracker.flow.authority.clone(),
        dial: None,
        transport: tracker.flow.transport,
        user: tracker.flow.user.clone(),
    };
    match detected {
        Detected::Tls(hello) => intercept(place, live, tracker, io, *hello).await,
        Detected::Http1 => {
            let inside = inside(&tracker);
            tracker.replaced();
            place.serve_http1(&live, io, inside, None).await;
        }
        Detected::Http2 => {
            let inside = inside(&tracker);
            tracker.replaced();
            place.serve_http2(&live, io, inside, None).await;
        }
        Detected::Closed => tracker.replaced(),
        Detected::Socks5 | Detected::Other | Detected::Silent => match dial(&mut tracker, &live).await {
            Ok(upstream) => pass(tracker, &live, io, upstream).await,
            Err(e) => {
                tracker.begin_capture(&live.settings, None).await;
                tracker.fail(&e);
            }
        },
    }
}

/// TLS in a tunnel that may be looked into: decided once more, now that the hello is known.
async fn intercept(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, hello: ClientHello) {
    let identity = identity(&tracker.flow.authority, &hello);
    let client = place.client.peer.ip();
    let mut look = !live.settings.never_intercepts(&identity.host)
        && (tracker.plan.intercept || live.settings.intercepts(&identity.host))
        && !place.worker.shared.pinning.passes(client, &identity.host);
    tracker.flow.client_tls = Some(Arc::new(hello_facts(&hello)));
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::ClientHello) {
        match stage.client_hello(&mut tracker.flow).get().await {
            Verdict::Deny(e) => {
                tracker.begin_capture(&live.settings, None).await;
                return tracker.fail(&e);
            }
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
        Err(e) => {
            tracker.begin_capture(&live.settings, None).await;
            tracker.fail(&e);
        }
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
    place: Place,
    live: Arc<Live>,
    mut tracker: Tracker,
    io: Io,
    identity: Authority,
    hello: &ClientHello,
) {
    let dial = (identity != tracker.flow.authority).then(|| tracker.flow.authority.clone());
    let inside = Inside {
        scheme: Scheme::Https,
        authority: identity.clone(),
        dial,
        transport: tracker.flow.transport,
        user: tracker.flow.user.clone(),
    };
    tracker.flow.authority = identity;
    let alpn = alpn_for_client(&mut tracker, &live, &inside, hello).await;
    let host = &inside.authority.host;
    let leaf = place.worker.ca.server_tls(host, alpn);
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

/// The protocol to agree on with the client: the one that the origin speaks, so that nothing is translated.
async fn alpn_for_client(tracker: &mut Tracker, live: &Live, inside: &Inside, hello: &ClientHello) -> Alpn {
    if pages::is_local(&inside.authority.host) || !hello.offers_alpn(b"h2") {
        return Alpn::Http1;
    }
    let route = live.settings.route(Scheme::Https, &inside.authority, inside.dial.clone());
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
    if ClientTlsFailure::of(&error).is_some_and(ClientTlsFailure::is_refusal) {
        place.worker.counters.leaf_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let host = &inside.authority.host;
        let client = place.client.peer.ip();
        if place.worker.shared.pinning.refused(client, host, config.pinning_failures, config.pinning_pass.0) {
            tracing::warn!(%client, %host, "the client refuses our certificate: its TLS to this host passes unseen for {}", config.pinning_pass);
        }
    }
    tracker.begin_capture(&live.settings, None).await;
    tracker.fail(&error);
}

/// TLS is open; usually HTTP is inside, but nothing says so before the client does.
async fn inside_tls(place: Place, live: Arc<Live>, mut tracker: Tracker, io: Io, inside: Inside, tls: Arc<ClientTls>) {
    let agreed = tls.alpn.as_deref();
    if agreed == Some("h2") {
        tracker.replaced();
        return place.serve_http2(&live, io, inside, Some(tls)).await;
    }
    let wait = if agreed == Some("http/1.1") {
        live.settings.config.timeouts.idle.0
    } else {
        live.settings.config.intercept.server_first_after.0.max(Duration::from_millis(1))
    };
    let (detected, io) = match ingress::detect(io, wait).await {
        Ok(found) => found,
        Err(e) => return tracker.fail(&e),
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
            Err(e) => {
                tracker.begin_capture(&live.settings, None).await;
                tracker.fail(&e);
            }
        },
    }
}

/// Connects to the tunnel's authority.
async fn dial(tracker: &mut Tracker, live: &Live) -> Result<Io> {
    let plan = Arc::clone(&tracker.plan);
    let flow = &mut tracker.flow;
    let mut x =
        Exchange { clock: &flow.clock, timings: &mut flow.timings, upstream: &mut flow.upstream, interim: &mut |_| () };
    live.egress.connect(&plan.route, &mut x).await
}

/// Connects, and opens TLS of our own towards the origin: for what is not HTTP inside the client's TLS.
async fn dial_tls(tracker: &mut Tracker, live: &Live, inside: &Inside) -> Result<Io> {
    let route = live.settings.route(Scheme::Https, &inside.authority, inside.dial.clone());
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
async fn pass(mut tracker: Tracker, live: &Live, client: Io, upstream: Io) {
    tracker.begin_capture(&live.settings, None).await;
    tracker.counters().tunnels.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let options = TunnelOptions { idle: live.settings.config.timeouts.tunnel_idle.0, ..TunnelOptions::default() };
    let counters = TunnelCounters::default();
    match relay::tunnel(client, upstream, &options, &counters).await {
        Ok(bytes) => tracker.tunnelled(bytes),
        Err(e) => tracker.tunnel_failed(&e.blame_on(Blame::Upstream), counters.get()),
    }
}
