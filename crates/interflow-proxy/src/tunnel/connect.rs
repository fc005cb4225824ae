//! Opens tunnels for CONNECT, SOCKS5, transparent and reverse-proxy connections: authorization, then interception or
//! passthrough.

use std::sync::Arc;

use interflow_net::ingress::socks5::{self, SocksReply};
use interflow_net::ingress::{self, ClientProtocol, IncomingRequest, ServiceReply, SniffTimeouts};
use interflow_net::io::IoStream;
use interflow_types::{
    Authority, BoxFuture, ByteStr, ClientInfo, EntryKind, Error, ErrorKind, FlowClock, Host, Passthrough, Phase,
    RequestHead, RequestTarget, ResponseHead, Result, Scheme, StatusCode, Url,
};

use crate::downstream::access::BasicCredentials;
use crate::downstream::builtin_pages;
use crate::downstream::connection::{ClientConnection, ConnectionKind, TunnelTarget};
use crate::http::loop_detection::{ReceivedVia, received_via};
use crate::http::pipeline::fail;
use crate::observe::flow_guard::FlowGuard;
use crate::state::{ActiveConfig, ProxyWorker};
use crate::tunnel::intercept::{InterceptOverride, TunnelContext, dial, inspect, inspect_passthrough};

/// The interception decision before the tunnel's first byte.
enum TunnelMode {
    /// Inspect the client's first bytes; TLS is always intercepted if a stage said so.
    Inspect(InterceptOverride),
    /// Pass it through, unless the SNI changes the decision.
    Passthrough(InterceptOverride, Passthrough),
}

/// An authorized tunnel.
struct AdmittedTunnel {
    tracker: FlowGuard,
    choice: TunnelMode,
}

/// Applies users, access rules and stages.
async fn authorize_tunnel(
    conn: &ClientConnection,
    live: &ActiveConfig,
    transport: EntryKind,
    authority: Authority,
    user: Result<Option<Arc<str>>>,
) -> Result<AdmittedTunnel, (FlowGuard, Error)> {
    let name = user.as_ref().ok().cloned().flatten();
    let key = conn.plan_key(Scheme::Https, authority.clone(), None, transport, name.clone());
    let flow = conn.flow(FlowClock::start(), transport, Scheme::Https, authority.clone(), name);
    let plan = user.and_then(|_| conn.plan(live, &key, "CONNECT", conn.client.peer.ip()));
    let (plan, error) = match plan {
        Ok(plan) => (plan, None),
        Err(e) => (live.plans.get(&live.settings, key), Some(e)),
    };
    let mut tracker = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    if let Some(e) = error {
        return Err((tracker, e));
    }
    let plan = Arc::clone(&tracker.plan);
    let mut interception = InterceptOverride::None;
    for stage in plan.stages(Phase::Authority) {
        let verdict = stage.authority(&mut tracker.flow).resolve().await;
        if let Err(e) = interception.apply_verdict(verdict) {
            return Err((tracker, e));
        }
    }
    let choice = match interception.passthrough(&live.settings, &[&authority.host], authority.port) {
        Some(why) if !builtin_pages::is_local(&authority.host) => TunnelMode::Passthrough(interception, why),
        _ => TunnelMode::Inspect(interception),
    };
    Ok(AdmittedTunnel { tracker, choice })
}

/// A CONNECT request (RFC 9110 9.3.6).
pub(crate) async fn http_connect(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    incoming: IncomingRequest,
) -> ServiceReply {
    let IncomingRequest { target, headers, method, version, protocol, .. } = incoming;
    let RequestTarget::Authority(authority) = target else {
        return ServiceReply::Abort(Error::new(ErrorKind::Internal, "a CONNECT request has no authority"));
    };
    let url = Url { scheme: Scheme::Https, authority: authority.clone(), path: ByteStr::from_static("/") };
    let head = RequestHead { method, url, version, headers, protocol };
    let user = conn.authenticate(&live, &head.headers).await;
    let user = user.and_then(|user| live.settings.pseudonym.check(&head.headers).map(|()| user));
    let mut tunnel = match authorize_tunnel(conn, &live, EntryKind::Connect, authority, user).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            tracker.begin_capture(&live.settings, Some(&head)).await;
            return fail(tracker, &live, &head, &e);
        }
    };
    if let Some(received) = received_via(&head.headers) {
        *tunnel.tracker.flow.extension_mut() = ReceivedVia(Some(received));
    }
    let place = TunnelContext::from_connection(conn);
    let established = ResponseHead { reason: "Connection established".into(), ..ResponseHead::new(StatusCode::OK) };
    match tunnel.choice {
        TunnelMode::Inspect(interception) => {
            let tracker = tunnel.tracker;
            ServiceReply::Upgrade(established, Box::new(move |io| inspect(place, live, tracker, io, interception)))
        }
        TunnelMode::Passthrough(interception, why) => {
            let mut tracker = tunnel.tracker;
            match dial(&mut tracker, &live).await {
                Ok(upstream) => ServiceReply::Upgrade(
                    established,
                    Box::new(move |io| inspect_passthrough(place, live, tracker, (io, upstream), interception, why)),
                ),
                Err(e) => {
                    tracker.begin_capture(&live.settings, Some(&head)).await;
                    fail(tracker, &live, &head, &e)
                }
            }
        }
    }
}

/// A SOCKS5 connection, from its method negotiation on (RFC 1928, RFC 1929).
pub(crate) async fn serve_socks(conn: &ClientConnection, live: Arc<ActiveConfig>, io: IoStream) -> Result<()> {
    let timeout = live.settings.config.timeouts.header_timeout.0;
    let settings = Arc::clone(&live.settings);
    let check = move |name: &str, password: &str| {
        let settings = Arc::clone(&settings);
        let credentials = BasicCredentials { name: name.into(), password: password.into() };
        Box::pin(async move {
            match &settings.users {
                Some(users) => conn.verify(users, &credentials).await.unwrap_or(false),
                None => true,
            }
        }) as BoxFuture<'_, bool>
    };
    let auth = match (&live.settings.users, live.settings.config.auth.accept_unverified_names) {
        (Some(_), _) => socks5::SocksAuth::Password(&check),
        (None, true) => socks5::SocksAuth::Named,
        (None, false) => socks5::SocksAuth::Open,
    };
    let socks5::SocksRequest { authority, mut io, user } = socks5::accept(io, auth, timeout).await?;
    let user = Ok(user.filter(|u| !u.is_empty()).map(Arc::from));
    let tunnel = match authorize_tunnel(conn, &live, EntryKind::Socks5, authority, user).await {
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
        TunnelMode::Inspect(interception) => {
            socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
            inspect(TunnelContext::from_connection(conn), live, tracker, io, interception).await;
        }
        TunnelMode::Passthrough(interception, why) => match dial(&mut tracker, &live).await {
            Ok(upstream) => {
                socks5::reply(&mut io, SocksReply::Succeeded, None).await.map_err(client_gone)?;
                inspect_passthrough(
                    TunnelContext::from_connection(conn),
                    live,
                    tracker,
                    (io, upstream),
                    interception,
                    why,
                )
                .await;
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

/// A connection to `wanted` that the firewall redirected here. Its client cannot authenticate, and errors can only
/// close the connection.
pub(crate) async fn serve_transparent(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    io: IoStream,
    wanted: Authority,
) {
    open_tunnel(conn, live, io, EntryKind::Transparent, wanted).await;
}

/// Opens a tunnel that the client did not request.
async fn open_tunnel(
    conn: &ClientConnection,
    live: Arc<ActiveConfig>,
    io: IoStream,
    transport: EntryKind,
    wanted: Authority,
) {
    let mut tunnel = match authorize_tunnel(conn, &live, transport, wanted, Ok(None)).await {
        Ok(tunnel) => tunnel,
        Err((mut tracker, e)) => {
            tracker.begin_capture(&live.settings, None).await;
            return tracker.fail(&e);
        }
    };
    match tunnel.choice {
        TunnelMode::Inspect(interception) => {
            inspect(TunnelContext::from_connection(conn), live, tunnel.tracker, io, interception).await
        }
        TunnelMode::Passthrough(interception, why) => match dial(&mut tunnel.tracker, &live).await {
            Ok(upstream) => {
                inspect_passthrough(
                    TunnelContext::from_connection(conn),
                    live,
                    tunnel.tracker,
                    (io, upstream),
                    interception,
                    why,
                )
                .await
            }
            Err(e) => {
                tunnel.tracker.begin_capture(&live.settings, None).await;
                tunnel.tracker.fail(&e);
            }
        },
    }
}

/// A connection on a reverse-proxy listener: the origin is named by the SNI, or by `Host` in each request. `port` is
/// the origins' port, if it differs from the default.
///
/// # Errors
/// The client's first bytes do not name an origin.
pub(crate) async fn serve_reverse(
    worker: &Arc<ProxyWorker>,
    client: &Arc<ClientInfo>,
    live: Arc<ActiveConfig>,
    io: IoStream,
    port: Option<u16>,
) -> Result<()> {
    let timeouts = &live.settings.config.timeouts;
    let expect =
        SniffTimeouts { first: timeouts.idle.0, rest: timeouts.header_timeout.0, place: ingress::SniffContext::Port };
    let (detected, io) = ingress::sniff(io, expect).await?;
    let conn = |entry| ClientConnection::new(Arc::clone(worker), Arc::clone(client), entry, None);
    if let ClientProtocol::Tls(hello) = &detected {
        let nameless = || {
            Error::new(
                ErrorKind::UnknownProtocol,
                "the client's TLS has no server name (SNI), so the origin is unknown",
            )
        };
        let name = hello.server_name.as_deref().and_then(|n| Host::parse(n).ok()).ok_or_else(nameless)?;
        open_tunnel(
            &conn(ConnectionKind::Proxy),
            live,
            io,
            EntryKind::Reverse,
            Authority::new(name, port.unwrap_or(443)),
        )
        .await;
        return Ok(());
    }
    if matches!(detected, ClientProtocol::Closed | ClientProtocol::Timeout) {
        return Ok(());
    }
    let local = Authority::new(Host::Ip(client.local.ip()), port.unwrap_or(client.local.port()));
    let inside = TunnelTarget {
        scheme: Scheme::Http,
        authority: local,
        dial: None,
        transport: EntryKind::Reverse,
        user: None,
        received_via: None,
    };
    let (options, drain) = (live.settings.http_options(false), worker.drain.clone());
    let conn = Arc::new(conn(ConnectionKind::Inside(inside)));
    match detected {
        ClientProtocol::Http2 => ingress::serve_http2(io, &options, drain, conn).await,
        _ => ingress::serve_http1(io, &options, drain, conn).await,
    }
}

fn client_gone(e: std::io::Error) -> Error {
    Error::new(ErrorKind::ClientGone, "the client went away").with_source(e)
}

const fn socks_reply(kind: ErrorKind) -> SocksReply {
    match kind {
        ErrorKind::Denied | ErrorKind::Unauthorized | ErrorKind::Loop | ErrorKind::Limited => SocksReply::NotAllowed,
        ErrorKind::Dns => SocksReply::HostUnreachable,
        ErrorKind::Connect => SocksReply::ConnectionRefused,
        ErrorKind::ConnectTimeout => SocksReply::TtlExpired,
        _ => SocksReply::GeneralFailure,
    }
}
