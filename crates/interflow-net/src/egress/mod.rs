//! The upstream client: name resolution, connections, pools, and HTTP as a client.
//!
//! There is one [`UpstreamClient`] per worker. A request reuses a connection of its worker's own pool or opens one.
//! Connections are pooled by everything that affects their identity ([`PoolKey`]).

pub mod dial;
pub mod dns;
pub(crate) mod dns_exchange;
pub mod doh;
mod http1;
mod http2;
mod name_servers;
mod pool;
pub mod proxy;
mod replayable_body;
mod route;
mod shared_limits;
mod standalone;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interflow_types::{
    Body, Error, ErrorKind, HttpVersion, Method, Request, RequestHead, Retryable, Scheme, StatusCode, UpstreamInfo,
    UpstreamTls,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use http1::ExchangeOptions;
pub use pool::PoolLimits;
pub use route::{Isolation, PoolKey, RouteResolver, UpstreamProtocol, UpstreamReport, UpstreamResponse, UpstreamRoute};
pub use shared_limits::EgressShared;
pub use standalone::{StandaloneClient, StandaloneOptions};

use crate::io::IoStream;
use crate::tls::{Alpn, connect_tls, is_no_application_protocol};
use dial::{DialInfo, DialTimes, Dialer};
use http1::{FailedExchange, Http1Connection, ProxyHop};
use http2::Http2Connection;
use pool::{ConnectionLease, ConnectionPool, HostPool};
use proxy::ProxyKind;

options! {
    /// Options of an [`UpstreamClient`]. `tls_timeout` (default 10 s) limits a handshake; `pool_timeout` (default 30 s) how
    /// long a request may wait for a connection if the limit per host is reached.
    #[derive(Clone, Debug)]
    pub struct EgressOptions {
        pub pool: PoolLimits,
        pub exchange: ExchangeOptions,
        pub tls_timeout: Duration = Duration::from_secs(10),
        pub pool_timeout: Duration = Duration::from_secs(30),
    }
}

/// A worker's client for origins. Its pool is its own; the name cache, the limits per host and what is known about the
/// origins' protocols are in `shared`, the same for all workers.
pub struct UpstreamClient {
    options: EgressOptions,
    dialer: Arc<Dialer>,
    shared: Arc<EgressShared>,
    pool: Arc<ConnectionPool>,
}

enum UpstreamConnection {
    Http1(ConnectionLease),
    Http2(Arc<Http2Connection>),
}

/// Which pooled connections may carry a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionReuse {
    Allowed,
    /// For a retry: the other pooled connections may be as dead as the first, or about to be. One that was opened for
    /// another request since then is as good as a new one.
    OpenedAfter(Instant),
    /// This request is to be the first of a new connection.
    Never,
}

/// How often a request that the origin certainly did not process is sent again. An origin that ends each connection
/// after a number of requests may refuse a request several times in a row, when many arrive at once.
const MAX_RETRIES: u32 = 5;
/// How many of the retries may use a connection that was opened for another request.
const MAX_SHARED_RETRIES: u32 = 2;

impl UpstreamClient {
    /// A client for the calling worker; `shared` is the same for all workers.
    pub fn new(options: EgressOptions, dialer: Arc<Dialer>, shared: Arc<EgressShared>) -> Self {
        let pool = ConnectionPool::new(options.pool.clone(), shared.clone());
        Self { options, dialer, shared, pool }
    }

    /// Sends the request and waits for the head of its response. The rest of the request's body, if any, is sent
    /// while the response body is read. If a reused connection fails without a byte of response, the request is sent
    /// once more over a new one where RFC 9110 9.2.2 allows it; if the origin certainly did not process it (RFC 9113
    /// 8.7), a few times.
    ///
    /// Dropping the future cancels the exchange: an HTTP/1 connection is closed, an HTTP/2 stream reset.
    ///
    /// # Errors
    /// Whatever prevented the head of a final response: [`ErrorKind::Dns`], [`ErrorKind::Connect`],
    /// [`ErrorKind::UpstreamTls`], [`ErrorKind::PoolTimeout`], [`ErrorKind::UpstreamClosed`],
    /// [`ErrorKind::UpstreamTimeout`], [`ErrorKind::BadResponse`] and so on; an error of the request's own body is
    /// returned unchanged. [`ErrorKind::Unsupported`] with [`Retryable::Yes`] for an upgrade over
    /// [`UpstreamProtocol::Http2`] that the origin does not support (RFC 8441): the same request can be sent over
    /// [`UpstreamProtocol::Http1`].
    pub async fn send(
        &self,
        route: &UpstreamRoute,
        request: Request,
        x: &mut UpstreamReport<'_>,
    ) -> Result<UpstreamResponse, Error> {
        self.send_parts(route, &request.head, request.body, x).await
    }

    /// As [`send`](Self::send) for a borrowed head; it is copied only if the connection needs a different one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_parts(
        &self,
        route: &UpstreamRoute,
        head: &RequestHead,
        mut body: Body,
        x: &mut UpstreamReport<'_>,
    ) -> Result<UpstreamResponse, Error> {
        let mut head = Cow::Borrowed(head);
        // The order of fields is part of what is imitated.
        if let Some(fingerprint) = route.tls.fingerprint() {
            fingerprint.reorder_fields(&mut head.to_mut().headers);
        }
        let mut protocol = resolve_protocol(route, &head);
        let mut want = ConnectionReuse::Allowed;
        let (mut failures, mut may_repeat) = (0, head.method.is_idempotent());
        // Bounded: the retries are counted, and the switch to HTTP/2 that an origin may demand happens once.
        loop {
            // Looked up in each round: the protocol is part of the key.
            let mut host = self.pool.host_pool(route, protocol);
            // Learnt from an earlier request, which saves the handshake that would fail.
            if host.only_http2.load(Ordering::Relaxed) && can_upgrade_to_h2(route, protocol) {
                protocol = UpstreamProtocol::Http2;
                host = self.pool.host_pool(route, protocol);
            }
            let connection = match self.connection(route, protocol, &host, &head.method, want, x).await {
                Ok(connection) => connection,
                // An HTTP/2-only origin: an upgrade becomes an extended CONNECT (RFC 8441).
                Err(e) if can_upgrade_to_h2(route, protocol) && is_no_application_protocol(&e) => {
                    host.only_http2.store(true, Ordering::Relaxed);
                    protocol = UpstreamProtocol::Http2;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let (outcome, lives_on) = match connection {
                UpstreamConnection::Http1(lease) => {
                    (http1::exchange(lease, &mut head, body, x, &self.options.exchange).await, false)
                }
                UpstreamConnection::Http2(conn) => {
                    let outcome = Box::pin(http2::exchange(&conn, &head, body, x, &self.options.exchange)).await;
                    (outcome, !conn.is_retired())
                }
            };
            let FailedExchange { error, replay } = match outcome {
                Ok(answer) => return refuse_proxy_login(route, protocol, answer),
                Err(failed) => failed,
            };
            failures += 1;
            body = match replay {
                Some(body) if failures <= MAX_RETRIES && may_retry(&error, &mut may_repeat) => body,
                _ => return Err(error),
            };
            tracing::debug!(%error, authority = %route.authority, "sent again over a fresh connection");
            if error.kind() == ErrorKind::Unsupported {
                if !is_negotiable(route.protocol) || head.protocol.is_some() {
                    return Err(error);
                }
                protocol = UpstreamProtocol::Http1;
            }
            want = match failures {
                // Only this stream was refused, as when there were too many.
                ..=MAX_SHARED_RETRIES if lives_on => ConnectionReuse::Allowed,
                // Idle connections of the pool may all have died together, so the retry uses a later one.
                ..=MAX_SHARED_RETRIES => ConnectionReuse::OpenedAfter(Instant::now()),
                _ => ConnectionReuse::Never,
            };
        }
    }

    /// Opens a tunnel to the route's authority, through its chain of proxies. TLS inside it is up to the client.
    ///
    /// # Errors
    /// As [`send`](Self::send) up to the connection.
    pub async fn connect(&self, route: &UpstreamRoute, x: &mut UpstreamReport<'_>) -> Result<IoStream, Error> {
        let (io, info) = self.dial(route, x).await?;
        *x.upstream = Some(upstream_info(&info, None, HttpVersion::Http11));
        Ok(io)
    }

    /// The protocol that the origin negotiates. If it is not cached, a connection is opened, and kept for the request
    /// that is likely to follow.
    ///
    /// # Errors
    /// As [`send`](Self::send) up to the connection.
    pub async fn alpn(&self, route: &UpstreamRoute, x: &mut UpstreamReport<'_>) -> Result<HttpVersion, Error> {
        match (route.protocol, route.scheme) {
            (UpstreamProtocol::Http1, _) | (UpstreamProtocol::Auto | UpstreamProtocol::MatchClient, Scheme::Http) => {
                return Ok(HttpVersion::Http11);
            }
            (UpstreamProtocol::Http2, _) => return Ok(HttpVersion::H2),
            (UpstreamProtocol::Auto | UpstreamProtocol::MatchClient, Scheme::Https) => {}
        }
        let host = self.pool.host_pool(route, UpstreamProtocol::Auto);
        if let Some(version) = host.version(&self.shared, route.tls.id()) {
            return Ok(version);
        }
        // GET: whatever the method of the request, nothing is sent here.
        match self.connection(route, UpstreamProtocol::Auto, &host, &Method::GET, ConnectionReuse::Allowed, x).await? {
            UpstreamConnection::Http1(mut lease) => {
                if matches_client_protocol(route) {
                    // The request that is likely to follow looks for it there.
                    lease.host = self.pool.host_pool(route, UpstreamProtocol::Http1);
                    // Into the pool of the key under which HTTP/1 requests look.
                }
                lease.release();
                Ok(HttpVersion::Http11)
            }
            // It is in the pool already.
            UpstreamConnection::Http2(_) => Ok(HttpVersion::H2),
        }
    }

    /// How many HTTP/1 connections of this worker are idle.
    pub fn idle_connections(&self) -> usize {
        self.pool.idle()
    }

    /// A connection from the pool, or a new one.
    async fn connection(
        &self,
        route: &UpstreamRoute,
        protocol: UpstreamProtocol,
        host: &Arc<HostPool>,
        method: &Method,
        want: ConnectionReuse,
        x: &mut UpstreamReport<'_>,
    ) -> Result<UpstreamConnection, Error> {
        let now = Instant::now();
        let may_be_h2 = protocol == UpstreamProtocol::Http2
            || (protocol == UpstreamProtocol::Auto && route.scheme == Scheme::Https);
        // A connection with free streams needs no permit: it is open and counted.
        if may_be_h2 && let Some(conn) = self.pooled_h2(host, want) {
            return Ok(UpstreamConnection::Http2(conn));
        }
        let permit = match &host.cap {
            Some(cap) => {
                // Only the time in the queue counts as blocked; without a limit there is none.
                let sent_at = x.clock.micros();
                let permit = cap.acquire(&route.authority, self.options.pool_timeout).await?;
                x.timings.blocked = Some(x.clock.micros().saturating_sub(sent_at));
                Some(permit)
            }
            None => None,
        };
        if want == ConnectionReuse::Allowed && protocol != UpstreamProtocol::Http2 {
            while let Some(conn) = self.pool.take(host, now) {
                // An idempotent request is retried if the connection proves dead, so the readiness that `take` checked
                // is enough. Others cannot be retried; for them a system call asks the kernel.
                if method.is_idempotent() || conn.is_quiet() {
                    *x.upstream = Some(UpstreamInfo { reused: conn.exchanges > 0, ..conn.info.clone() });
                    return Ok(self.lease(conn, host, permit));
                }
            }
        }
        // HTTP/1 connections are not shared, so there is nothing to wait for.
        let shared = may_be_h2 && want != ConnectionReuse::Never;
        if !shared || host.version(&self.shared, route.tls.id()) == Some(HttpVersion::Http11) {
            // Boxed because few requests open a connection, and all would reserve space for this future.
            return Box::pin(self.open(route, protocol, host, permit, x)).await;
        }
        Box::pin(self.open_shared(route, protocol, host, permit, want, x)).await
    }

    fn pooled_h2(&self, host: &HostPool, want: ConnectionReuse) -> Option<Arc<Http2Connection>> {
        let after = match want {
            ConnectionReuse::Allowed => None,
            ConnectionReuse::OpenedAfter(time) => Some(time),
            ConnectionReuse::Never => return None,
        };
        host.h2(Instant::now(), after, &self.options.pool)
    }

    /// Opens a connection that may turn out to be HTTP/2: one caller opens it, and those that waited share it. If
    /// that fails, each waiting caller tries by itself, so that no queue forms before an origin that does not
    /// respond.
    async fn open_shared(
        &self,
        route: &UpstreamRoute,
        protocol: UpstreamProtocol,
        host: &Arc<HostPool>,
        permit: Option<OwnedSemaphorePermit>,
        want: ConnectionReuse,
        x: &mut UpstreamReport<'_>,
    ) -> Result<UpstreamConnection, Error> {
        // Read before waiting for the lock, so that a failure in the meantime is noticed.
        let failed = host.failed_attempts.load(Ordering::Relaxed);
        let flight = host.flight.lock().await;
        if let Some(conn) = self.pooled_h2(host, want) {
            return Ok(UpstreamConnection::Http2(conn));
        }
        let is_http1 = protocol == UpstreamProtocol::Auto
            && host.version(&self.shared, route.tls.id()) == Some(HttpVersion::Http11);
        // The attempt that this caller waited for failed, or showed that the origin speaks HTTP/1.
        if is_http1 || host.failed_attempts.load(Ordering::Relaxed) != failed {
            drop(flight);
            return self.open(route, protocol, host, permit, x).await;
        }
        let opened = self.open(route, protocol, host, permit, x).await;
        // Callers that wait for `flight` notice, and try by themselves.
        if opened.is_err() {
            host.failed_attempts.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }

    /// Opens a connection, with TLS if the scheme requires it.
    async fn open(
        &self,
        route: &UpstreamRoute,
        protocol: UpstreamProtocol,
        host: &Arc<HostPool>,
        permit: Option<OwnedSemaphorePermit>,
        x: &mut UpstreamReport<'_>,
    ) -> Result<UpstreamConnection, Error> {
        // Counted before connecting, so that the limit holds while connections are being made.
        let open = host.cap.as_ref().map(|cap| cap.open());
        if let Some(hop) = plain_proxy_hop(route, protocol) {
            // Cleartext through an HTTP proxy needs no tunnel (RFC 9112 3.2.2), but the target is checked against the
            // address rules here, because the proxy resolves it.
            let mut times = DialTimes::default();
            self.dialer.check_proxied_target(route.resolver(), &route.authority).await?;
            let dialled = self.dialer.dial_proxy(&route.via, route.resolver(), &mut times).await;
            (x.timings.dns, x.timings.connect) = (times.dns, times.connect);
            let (io, info) = dialled?;
            let info = upstream_info(&info, None, HttpVersion::Http11);
            *x.upstream = Some(info.clone());
            return Ok(self.lease(Http1Connection::new(io, info, Some(hop), open), host, permit));
        }
        let (io, dialled) = self.dial(route, x).await?;
        let (io, tls) = self.tls_handshake(route, protocol, io, x).await?;
        let spoken = tls.as_ref().and_then(|tls| tls.alpn.as_deref());
        let h2 = protocol == UpstreamProtocol::Http2 || (protocol == UpstreamProtocol::Auto && spoken == Some("h2"));
        if h2 && route.scheme == Scheme::Https && spoken != Some("h2") {
            let text = format!("{} does not speak HTTP/2, and the route wants nothing else", route.authority);
            // The scheme demands TLS, and TLS did not agree on the protocol that the route demands.
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let version = if h2 { HttpVersion::H2 } else { HttpVersion::Http11 };
        // Only a negotiated version is remembered; a demanded one says nothing about the origin's preference.
        if route.scheme == Scheme::Https && protocol == UpstreamProtocol::Auto {
            host.remember_version(&self.shared, route.tls.id(), version);
        }
        let info = upstream_info(&dialled, tls, version);
        *x.upstream = Some(info.clone());
        if !h2 {
            return Ok(self.lease(
                Http1Connection::new(io, info, route.absolute_form.then(ProxyHop::default), open),
                host,
                permit,
            ));
        }
        let shape = route.tls.fingerprint().and_then(|f| f.http2.as_ref());
        let conn = Http2Connection::open(io, info, &self.options.exchange, open, shape).await?;
        self.pool.put_h2(host, conn.clone());
        Ok(UpstreamConnection::Http2(conn))
    }

    fn lease(
        &self,
        conn: Box<Http1Connection>,
        host: &Arc<HostPool>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> UpstreamConnection {
        UpstreamConnection::Http1(ConnectionLease { conn, host: host.clone(), pool: self.pool.clone(), permit })
    }

    async fn dial(&self, route: &UpstreamRoute, x: &mut UpstreamReport<'_>) -> Result<(IoStream, DialInfo), Error> {
        let mut times = DialTimes::default();
        // TLS still verifies the name of the authority.
        let target = route.connect_to.as_ref().unwrap_or(&route.authority);
        let connect_via = route.connect_via.as_deref();
        let dialled = self.dialer.dial_via(route.resolver(), target, &route.via, connect_via, &mut times).await;
        (x.timings.dns, x.timings.connect) = (times.dns, times.connect);
        dialled
    }

    async fn tls_handshake(
        &self,
        route: &UpstreamRoute,
        protocol: UpstreamProtocol,
        io: IoStream,
        x: &mut UpstreamReport<'_>,
    ) -> Result<(IoStream, Option<Arc<UpstreamTls>>), Error> {
        if route.scheme == Scheme::Http {
            return Ok((io, None));
        }
        let alpn = match protocol {
            UpstreamProtocol::Auto | UpstreamProtocol::MatchClient => Alpn::Both,
            UpstreamProtocol::Http1 => Alpn::Http1,
            UpstreamProtocol::Http2 => Alpn::Http2,
        };
        let begun = x.clock.micros();
        // SNI and certificate check use the authority, not the address that was dialled.
        let made = connect_tls(io, &route.authority.host, &route.tls, alpn, self.options.tls_timeout).await;
        x.timings.tls = Some(x.clock.micros().saturating_sub(begun));
        made.map(|(io, tls)| (io, Some(Arc::new(tls))))
    }
}

/// The protocol for this request; never [`UpstreamProtocol::MatchClient`]. Upgrades use HTTP/1.1 unless HTTP/2 is
/// required.
fn resolve_protocol(route: &UpstreamRoute, head: &RequestHead) -> UpstreamProtocol {
    match route.protocol {
        UpstreamProtocol::Auto | UpstreamProtocol::MatchClient if head.protocol.is_some() => UpstreamProtocol::Http1,
        UpstreamProtocol::MatchClient if matches_client_protocol(route) && head.version.is_http1() => {
            UpstreamProtocol::Http1
        }
        UpstreamProtocol::MatchClient => UpstreamProtocol::Auto,
        protocol => protocol,
    }
}

/// Whether requests use the protocol in which they were received.
fn matches_client_protocol(route: &UpstreamRoute) -> bool {
    route.protocol == UpstreamProtocol::MatchClient
        && route.scheme == Scheme::Https
        && route.tls.fingerprint().is_none()
}

/// Whether the protocol is negotiated with the origin.
const fn is_negotiable(protocol: UpstreamProtocol) -> bool {
    matches!(protocol, UpstreamProtocol::Auto | UpstreamProtocol::MatchClient)
}

/// Whether a request for this protocol may use HTTP/2 if the origin supports nothing else.
fn can_upgrade_to_h2(route: &UpstreamRoute, protocol: UpstreamProtocol) -> bool {
    protocol == UpstreamProtocol::Http1 && is_negotiable(route.protocol)
}

/// RFC 9110 9.2.2: only requests that were certainly not processed, or that are idempotent, may be retried; the latter
/// once, after which `may_repeat` is false.
fn may_retry(error: &Error, may_repeat: &mut bool) -> bool {
    match error.retryable() {
        Retryable::Yes => true,
        Retryable::ReusedOnly => std::mem::take(may_repeat),
        Retryable::No => false,
    }
}

/// A 407 to a request in absolute-form is the proxy's answer to Interflow, as to CONNECT: the client cannot log in there
/// (RFC 9110 15.5.8).
fn refuse_proxy_login(
    route: &UpstreamRoute,
    protocol: UpstreamProtocol,
    answer: UpstreamResponse,
) -> Result<UpstreamResponse, Error> {
    match route.via.last() {
        Some(proxy)
            if answer.head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                && plain_proxy_hop(route, protocol).is_some() =>
        {
            Err(proxy::connect_refusal(proxy, &route.authority, &answer.head))
        }
        _ => Ok(answer),
    }
}

/// If the last proxy of the chain is an HTTP proxy, cleartext requests are sent to it in absolute-form instead of
/// through a tunnel.
fn plain_proxy_hop(route: &UpstreamRoute, protocol: UpstreamProtocol) -> Option<ProxyHop> {
    let last = route.via.last()?;
    let forwards = route.scheme == Scheme::Http
        && route.connect_to.is_none()
        && !route.absolute_form
        && protocol != UpstreamProtocol::Http2
        && matches!(last.kind, ProxyKind::Http | ProxyKind::Https);
    forwards.then(|| ProxyHop { authorization: last.basic_auth() })
}

fn upstream_info(dialled: &DialInfo, tls: Option<Arc<UpstreamTls>>, version: HttpVersion) -> UpstreamInfo {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    UpstreamInfo {
        peer: Some(dialled.peer),
        local: Some(dialled.local),
        via: dialled.via.clone(),
        version,
        connection: NEXT.fetch_add(1, Ordering::Relaxed),
        reused: false,
        tls,
    }
}

#[cfg(test)]
mod tests;
