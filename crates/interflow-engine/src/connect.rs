//! Tunnels: CONNECT and SOCKS5, who may have one, and whether it is inspected or passed through.

use std::sync::Arc;

use interflow_flow::{
    Authority, BoxFuture, ByteStr, ClientInfo, Clock, Error, Host, Kind, Passthrough, Phase, RequestHead, ResponseHead,
    Result, Scheme, StatusCode, Target, Transport, Url, Verdict,
};
use interflow_net::ingress::socks5::{self, SocksReply};
use interflow_net::ingress::{self, Detected, Expect, Incoming, Outgoing};
use interflow_net::io::Io;

use crate::access::Credentials;
use crate::conn::{Conn, Entry, Inside};
use crate::exchange::fail;
use crate::inside::{Place, Wish, dial, look_inside, watch};
use crate::loops::{ReceivedVia, received_via};
use crate::pages;
use crate::tracker::Tracker;
use crate::worker::{Live, Worker};

/// What is decided about a tunnel before a byte of it has come.
enum Choice {
    /// Look at what the client says first; TLS is intercepted in any case when a stage said so.
    Look(Wish),
    /// Pass it through, unless the name in its TLS says otherwise.
    Pass(Wish, Passthrough),
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
    let flow = conn.flow(Clock::start(), transport, Scheme::Https, authority.clone(), name);
    let plan = user.and_then(|_| conn.plan(live, &key, "CONNECT", conn.client.peer.ip()));
    let (plan, error) = match plan {
        Ok(plan) => (plan, None),
        Err(e) => (live.plans.get(&live.settings, key), Some(e)),
    };
    let mut tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    if let Some(e) = error {
        return Err((tracker, e));
    }
    let plan = Arc::clone(&tracker.plan);
    let mut wish = Wish::None;
    for stage in plan.stages(Phase::Authority) {
        match stage.authority(&mut tracker.flow).get().await {
            Verdict::Deny(e) => return Err((tracker, e)),
            verdict => wish.follow(&verdict),
        }
    }
    let choice = match wish.passthrough(&live.settings, &[&authority.host]) {
        Some(why) if !pages::is_local(&authority.host) => Choice::Pass(wish, why),
        _ => Choice::Look(wish),
    };
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
    let user = user.and_then(|user| live.settings.pseudonym.check(&head.headers).map(|()| user));
    let mut tunnel = match admit(conn, &live, Transport::Connect, authority, user).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            tracker.begin_capture(&live.settings, Some(&head)).await;
            return fail(tracker, &live, &head, &e);
        }
    };
    if let Some(received) = received_via(&head.headers) {
        *tunnel.tracker.flow.note_mut() = ReceivedVia(Some(received));
    }
    let place = Place::of(conn);
    let established = ResponseHead { reason: "Connection established".into(), ..ResponseHead::new(StatusCode::OK) };
    match tunnel.choice {
        Choice::Look(wish) => {
            let tracker = tunnel.tracker;
            Outgoing::Upgrade(established, Box::new(move |io| look_inside(place, live, tracker, io, wish)))
        }
        Choice::Pass(wish, why) => {
            let mut tracker = tunnel.tracker;
            match dial(&mut tracker, &live).await {
                Ok(upstream) => Outgoing::Upgrade(
                    established,
                    Box::new(move |io| watch(place, live, tracker, (io, upstream), wish, why)),
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
                Some(users) => conn.knows(users, &credentials).await.unwrap_or(false),
                None => true,
            }
        }) as BoxFuture<'_, bool>
    };
    let auth = match (&live.settings.users, live.settings.config.auth.trust_names) {
        (Some(_), _) => socks5::Auth::Password(&check),
        (None, true) => socks5::Auth::Named,
        (None, false) => socks5::Auth::Open,
    };
    let socks5::Asked { authority, mut io, user } = socks5::accept(io, auth, timeout).await?;
    let user = Ok(user.filter(|u| !u.is_empty()).map(Arc::from));
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
        Choice::Look(wish) => {
            socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
            look_inside(Place::of(conn), live, tracker, io, wish).await;
        }
        Choice::Pass(wish, why) => match dial(&mut tracker, &live).await {
            Ok(upstream) => {
                socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
                watch(Place::of(conn), live, tracker, (io, upstream), wish, why).await;
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

/// A connection that the firewall sent here instead of to `wanted`. Its client knows of no proxy: it cannot say who it
/// is, and an end without a word is all it can be told.
pub(crate) async fn redirected(conn: &Conn, live: Arc<Live>, io: Io, wanted: Authority) {
    enter(conn, live, io, Transport::Transparent, wanted).await;
}

/// A tunnel whose client did not ask for one.
async fn enter(conn: &Conn, live: Arc<Live>, io: Io, transport: Transport, wanted: Authority) {
    let mut tunnel = match admit(conn, &live, transport, wanted, Ok(None)).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            tracker.begin_capture(&live.settings, None).await;
            return tracker.fail(&e);
        }
    };
    match tunnel.choice {
        Choice::Look(wish) => look_inside(Place::of(conn), live, tunnel.tracker, io, wish).await,
        Choice::Pass(wish, why) => match dial(&mut tunnel.tracker, &live).await {
            Ok(upstream) => watch(Place::of(conn), live, tunnel.tracker, (io, upstream), wish, why).await,
            Err(e) => {
                tunnel.tracker.begin_capture(&live.settings, None).await;
                tunnel.tracker.fail(&e);
            }
        },
    }
}

/// A connection from a client that takes us for the origin: the name in its TLS hello, or in each of its requests, says for
/// which one. `port` is the origins' port, where clients cannot know it.
///
/// # Errors
/// What the client says first names no origin.
pub(crate) async fn reversed(
    worker: &Arc<Worker>,
    client: &Arc<ClientInfo>,
    live: Arc<Live>,
    io: Io,
    port: Option<u16>,
) -> Result<()> {
    let timeouts = &live.settings.config.timeouts;
    let expect = Expect { first: timeouts.idle.0, rest: timeouts.head.0, place: ingress::Place::Port };
    let (detected, io) = ingress::detect(io, expect).await?;
    let conn = |entry| Conn::new(Arc::clone(worker), Arc::clone(client), entry, None);
    if let Detected::Tls(hello) = &detected {
        let nameless =
            || Error::new(Kind::UnknownProtocol, "the client's TLS names no server (SNI), so no origin is known");
        let name = hello.server_name.as_deref().and_then(|n| Host::parse(n).ok()).ok_or_else(nameless)?;
        enter(&conn(Entry::Proxy), live, io, Transport::Reverse, Authority::new(name, port.unwrap_or(443))).await;
        return Ok(());
    }
    if matches!(detected, Detected::Closed | Detected::Silent) {
        return Ok(());
    }
    let local = Authority::new(Host::Ip(client.local.ip()), port.unwrap_or(client.local.port()));
    let inside = Inside {
        scheme: Scheme::Http,
        authority: local,
        dial: None,
        transport: Transport::Reverse,
        user: None,
        received_via: None,
    };
    let (options, drain) = (live.settings.http_options(false), worker.drain.clone());
    let conn = Arc::new(conn(Entry::Inside(inside)));
    match detected {
        Detected::Http2 => ingress::serve_http2(io, &options, drain, conn).await,
        _ => ingress::serve_http1(io, &options, drain, conn).await,
    }
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
