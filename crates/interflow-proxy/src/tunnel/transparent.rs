//! Connections whose clients ask for no proxy: redirected by a firewall, or sent to a reverse-proxy listener. They
//! cannot authenticate, and learn of an error only by the end of the connection.

use std::sync::Arc;

use interflow_net::ingress::{self, ClientProtocol, SniffTimeouts};
use interflow_net::io::IoStream;
use interflow_types::{Authority, ClientInfo, EntryKind, Error, ErrorKind, Host, Result, Scheme};

use crate::downstream::access::Login;
use crate::downstream::connection::{ClientConnection, ConnectionKind, TunnelTarget};
use crate::state::{ActiveConfig, ProxyWorker};
use crate::tunnel::connect::{TunnelRequest, open_tunnel};

/// A connection to `authority` that the client did not ask a proxy for. A refusal can only close it: the client does
/// not expect a proxy's answer.
pub(crate) async fn serve_transparent(
    conn: &ClientConnection,
    config: Arc<ActiveConfig>,
    io: IoStream,
    transport: EntryKind,
    authority: Authority,
) {
    let request = TunnelRequest { transport, authority, login: Ok(Login::NotAsked(None)), received_via: None };
    // The half-close of a client that only listens is for the origin.
    match ingress::while_connected(io, true, open_tunnel(conn, &config, request)).await {
        Some((Ok(tunnel), io)) => tunnel.serve(io).await,
        Some((Err(refused), _)) => refused.end(&config).await,
        // The flow is recorded already.
        None => {}
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
    config: Arc<ActiveConfig>,
    io: IoStream,
    port: Option<u16>,
) -> Result<()> {
    let timeouts = &config.settings.config.timeouts;
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
        // The port that the client used is the listener's own, which says nothing about the origin's.
        let authority = Authority::new(name, port.unwrap_or(443));
        serve_transparent(&conn(ConnectionKind::Proxy), config, io, EntryKind::Reverse, authority).await;
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
        login: Login::NotAsked(None),
        received_via: None,
        unreachable: None,
    };
    let (options, drain) = (config.settings.http_options(false), worker.drain.clone());
    // Each request names its origin in `Host`, see `resolve::retarget_by_host`.
    let conn = Arc::new(conn(ConnectionKind::Inside(inside)));
    match detected {
        ClientProtocol::Http2 => ingress::serve_http2(io, &options, drain, conn).await,
        _ => ingress::serve_http1(io, &options, drain, conn).await,
    }
}
