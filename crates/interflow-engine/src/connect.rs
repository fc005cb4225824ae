//! Tunnels: CONNECT and SOCKS5, who may have one, and whether it is looked into or passes unseen.

use std::sync::Arc;

use interflow_flow::{
    Authority, BoxFuture, ByteStr, Error, Kind, Phase, RequestHead, ResponseHead, Result, Scheme, StatusCode, Target,
    Transport, Url, Verdict,
};
use interflow_net::ingress::socks5::{self, SocksReply};
use interflow_net::ingress::{Incoming, Outgoing};
use interflow_net::io::Io;

use crate::access::Credentials;
use crate::conn::Conn;
use crate::exchange::fail;
use crate::inside::{Place, Wish, dial, look_inside, pass};
use crate::pages;
use crate::tracker::Tracker;
use crate::worker::Live;

/// What is decided about a tunnel before a byte of it has come.
enum Choice {
    /// Look at what the client says first; TLS is looked into in any case when a stage said so.
    Look(Wish),
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
    let mut wish = Wish::None;
    for stage in plan.stages(Phase::Authority) {
        match stage.authority(&mut tracker.flow).get().await {
            Verdict::Deny(e) => return Err((tracker, e)),
            Verdict::Intercept => (look, wish) = (true, Wish::Intercept),
            Verdict::Tunnel => (look, wish) = (false, Wish::None),
            Verdict::Continue | Verdict::Answer(_) | Verdict::Drop => {}
        }
    }
    let choice = if look || pages::is_local(&authority.host) { Choice::Look(wish) } else { Choice::Pass };
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
        Choice::Look(wish) => {
            let tracker = tunnel.tracker;
            Outgoing::Upgrade(established, Box::new(move |io| look_inside(place, live, tracker, io, wish)))
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
        Choice::Look(wish) => {
            socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
            look_inside(Place::of(conn), live, tracker, io, wish).await;
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
