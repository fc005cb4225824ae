//! Speaking to origins: names, connections, pools, HTTP as a client.
//!
//! One [`Egress`] per worker. A request finds a connection of its worker's own pool or makes one; the connection is
//! filed under everything that changes its identity ([`PoolKey`]).

pub mod dial;
pub mod dns;
pub mod doh;
mod http1;
mod http2;
mod pool;
pub mod proxy;
mod route;
mod shared;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interflow_flow::{
    Body, Error, Kind, Method, Request, RequestHead, Retry, Scheme, UpstreamInfo, UpstreamTls, Version,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use http1::ExchangeOptions;
pub use pool::PoolLimits;
pub use route::{Answer, Exchange, PoolKey, Protocol, Route};
pub use shared::EgressShared;

use crate::io::Io;
use crate::tls::{Alpn, connect_tls, speaks_none_offered};
use dial::{DialInfo, DialTimes, Dialer};
use http1::{Conn, Failed, ProxyHop};
use http2::H2Conn;
use pool::{HostPool, Lease, Pool};
use proxy::ProxyKind;

/// What a worker's way out is made with.
#[derive(Clone, Debug)]
pub struct EgressOptions {
    /// Bounds of the pool.
    pub pool: PoolLimits,
    /// Bounds of each exchange.
    pub exchange: ExchangeOptions,
    /// How long a TLS handshake may take.
    pub tls_timeout: Duration,
    /// How long a request may wait for a connection when the cap per host is reached.
    pub pool_timeout: Duration,
}

impl Default for EgressOptions {
    fn default() -> Self {
        Self {
            pool: PoolLimits::default(),
            exchange: ExchangeOptions::default(),
            tls_timeout: Duration::from_secs(10),
            pool_timeout: Duration::from_secs(30),
        }
    }
}

/// One worker's way out.
pub struct Egress {
    options: EgressOptions,
    dialer: Arc<Dialer>,
    shared: Arc<EgressShared>,
    pool: Arc<Pool>,
}

/// A connection to put a request on.
enum Connection {
    Http1(Lease),
    Http2(Arc<H2Conn>),
}

/// Whether a pooled connection will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Any,
    Fresh,
}

impl Egress {
    /// A way out for the worker that calls it; `shared` is the same for all workers.
    pub fn new(options: EgressOptions, dialer: Arc<Dialer>, shared: Arc<EgressShared>) -> Self {
        let pool = Pool::new(options.pool.clone(), shared.clone());
        Self { options, dialer, shared, pool }
    }

    /// Sends the request and waits for the head of its response. The rest of the request's body, if any, goes on its
    /// way while the answer's body is read. A request that a reused connection swallowed without a byte of answer is
    /// sent once more over a fresh one where RFC 9110 9.2.2 allows.
    ///
    /// Cancel-safe in the sense that dropping the future ends the exchange: an HTTP/1 connection is closed, an
    /// HTTP/2 stream reset.
    ///
    /// # Errors
    /// Whatever kept the head of a final response from coming: [`Kind::Dns`], [`Kind::Connect`],
    /// [`Kind::UpstreamTls`], [`Kind::PoolTimeout`], [`Kind::UpstreamClosed`], [`Kind::UpstreamTimeout`],
    /// [`Kind::BadResponse`] and so on; an error of the request's own body as it is. [`Kind::Unsupported`] with
    /// [`Retry::Yes`] for an upgrade over [`Protocol::Http2`] that the origin does not take (RFC 8441): the same
    /// request may go over [`Protocol::Http1`].
    pub async fn send(&self, route: &Route, request: Request, x: &mut Exchange<'_>) -> Result<Answer, Error> {
        self.send_parts(route, &request.head, request.body, x).await
    }

    /// The same for a head that the caller keeps; it is copied only where the connection asks for another one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_parts(
        &self,
        route: &Route,
        head: &RequestHead,
        mut body: Body,
        x: &mut Exchange<'_>,
    ) -> Result<Answer, Error> {
        let mut head = Cow::Borrowed(head);
        if let Some(fingerprint) = route.tls.fingerprint() {
            fingerprint.order(&mut head.to_mut().headers);
        }
        let mut protocol = effective(route, &head);
        let mut want = Want::Any;
        loop {
            let mut host = self.pool.host(route, protocol);
            if host.only_http2.load(Ordering::Relaxed) && may_turn_to_http2(route, protocol) {
                protocol = Protocol::Http2;
                host = self.pool.host(route, protocol);
            }
            let connection = match self.connection(route, protocol, &host, &head.method, want, x).await {
                Ok(connection) => connection,
                // An origin of HTTP/2 alone: an upgrade becomes an extended CONNECT (RFC 8441).
                Err(e) if may_turn_to_http2(route, protocol) && speaks_none_offered(&e) => {
                    host.only_http2.store(true, Ordering::Relaxed);
                    protocol = Protocol::Http2;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let outcome = match connection {
                Connection::Http1(lease) => http1::exchange(lease, &mut head, body, x, &self.options.exchange).await,
                Connection::Http2(conn) => {
                    Box::pin(http2::exchange(&conn, &head, body, x, &self.options.exchange)).await
                }
            };
            let Failed { error, replay } = match outcome {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            body = match replay {
                Some(body) if want == Want::Any && may_retry(&error, &head) => body,
                _ => return Err(error),
            };
            tracing::debug!(%error, authority = %route.authority, "sent again over a fresh connection");
            if error.kind() == Kind::Unsupported {
                if !is_open(route.protocol) || head.protocol.is_some() {
                    return Err(error);
                }
                protocol = Protocol::Http1;
            }
            want = Want::Fresh;
        }
    }

    /// A tunnel's bytes to the route's authority, through its chain of proxies; TLS is the client's own affair.
    ///
    /// # Errors
    /// As [`send`](Self::send) until the connection is there.
    pub async fn connect(&self, route: &Route, x: &mut Exchange<'_>) -> Result<Io, Error> {
        let (io, info) = self.dial(route, x).await?;
        *x.upstream = Some(upstream_info(&info, None, Version::Http11));
        Ok(io)
    }

    /// What the origin speaks. When that is not remembered, a connection is made, and kept for the request that is
    /// likely to come.
    ///
    /// # Errors
    /// As [`send`](Self::send) until the connection is there.
    pub async fn alpn(&self, route: &Route, x: &mut Exchange<'_>) -> Result<Version, Error> {
        match (route.protocol, route.scheme) {
            (Protocol::Http1, _) | (Protocol::Auto | Protocol::Same, Scheme::Http) => return Ok(Version::Http11),
            (Protocol::Http2, _) => return Ok(Version::H2),
            (Protocol::Auto | Protocol::Same, Scheme::Https) => {}
        }
        let host = self.pool.host(route, Protocol::Auto);
        if let Some(version) = host.version(&self.shared, route.tls.id()) {
            return Ok(version);
        }
        match self.connection(route, Protocol::Auto, &host, &Method::GET, Want::Any, x).await? {
            Connection::Http1(mut lease) => {
                if goes_alike(route) {
                    // The request that is likely to come looks for it there.
                    lease.host = self.pool.host(route, Protocol::Http1);
                }
                lease.give_back();
                Ok(Version::Http11)
            }
            Connection::Http2(_) => Ok(Version::H2),
        }
    }

    /// How many HTTP/1 connections of this worker are idle.
    pub fn idle_connections(&self) -> usize {
        self.pool.idle()
    }

    /// A connection from the pool, or a new one.
    async fn connection(
        &self,
        route: &Route,
        protocol: Protocol,
        host: &Arc<HostPool>,
        method: &Method,
        want: Want,
        x: &mut Exchange<'_>,
    ) -> Result<Connection, Error> {
        let now = Instant::now();
        let may_be_h2 = protocol == Protocol::Http2 || (protocol == Protocol::Auto && route.scheme == Scheme::Https);
        if may_be_h2 && let Some(conn) = host.h2(now, &self.options.pool) {
            return Ok(Connection::Http2(conn));
        }
        let permit = match &host.cap {
            Some(cap) => {
                let asked = x.clock.micros();
                let permit = cap.acquire(&route.authority, self.options.pool_timeout).await?;
                x.timings.blocked = Some(x.clock.micros().saturating_sub(asked));
                Some(permit)
            }
            None => None,
        };
        if want == Want::Any && protocol != Protocol::Http2 {
            while let Some(conn) = self.pool.take(host, now) {
                if method.is_idempotent() || conn.is_silent_for_certain() {
                    *x.upstream = Some(UpstreamInfo { reused: conn.exchanges > 0, ..conn.info.clone() });
                    return Ok(Connection::Http1(Lease { conn, host: host.clone(), pool: self.pool.clone(), permit }));
                }
            }
        }
        if !may_be_h2 || host.version(&self.shared, route.tls.id()) == Some(Version::Http11) {
            // Boxed: few requests make a connection, and the place for it would be kept for all.
            return Box::pin(self.open(route, protocol, host, permit, x)).await;
        }
        Box::pin(self.open_shared(route, protocol, host, permit, x)).await
    }

    /// Makes a connection that may turn out to be HTTP/2: one caller makes it, those who waited share it. Where that
    /// came to nothing, each who waited tries for itself, so that no line forms before an origin that does not answer.
    async fn open_shared(
        &self,
        route: &Route,
        protocol: Protocol,
        host: &Arc<HostPool>,
        permit: Option<OwnedSemaphorePermit>,
        x: &mut Exchange<'_>,
    ) -> Result<Connection, Error> {
        let failed = host.flights_failed.load(Ordering::Relaxed);
        let flight = host.flight.lock().await;
        if let Some(conn) = host.h2(Instant::now(), &self.options.pool) {
            return Ok(Connection::Http2(conn));
        }
        let is_http1 =
            protocol == Protocol::Auto && host.version(&self.shared, route.tls.id()) == Some(Version::Http11);
        if is_http1 || host.flights_failed.load(Ordering::Relaxed) != failed {
            drop(flight);
            return self.open(route, protocol, host, permit, x).await;
        }
        let opened = self.open(route, protocol, host, permit, x).await;
        if opened.is_err() {
            host.flights_failed.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }

    /// Makes a connection, with TLS where the scheme wants it.
    async fn open(
        &self,
        route: &Route,
        protocol: Protocol,
        host: &Arc<HostPool>,
        permit: Option<OwnedSemaphorePermit>,
        x: &mut Exchange<'_>,
    ) -> Result<Connection, Error> {
        let open = host.cap.as_ref().map(|cap| cap.open());
        if let Some(hop) = forward_hop(route, protocol) {
            let mut times = DialTimes::default();
            self.dialer.judge(route.names.as_ref(), &route.authority).await?;
            let dialled = self.dialer.dial_proxy(&route.via, route.names.as_ref(), &mut times).await;
            (x.timings.dns, x.timings.connect) = (times.dns, times.connect);
            let (io, info) = dialled?;
            let info = upstream_info(&info, None, Version::Http11);
            *x.upstream = Some(info.clone());
            return Ok(self.lease(Conn::new(io, info, Some(hop), open), host, permit));
        }
        let (io, dialled) = self.dial(route, x).await?;
        let (io, tls) = self.secure(route, protocol, io, x).await?;
        let spoken = tls.as_ref().and_then(|tls| tls.alpn.as_deref());
        let h2 = protocol == Protocol::Http2 || (protocol == Protocol::Auto && spoken == Some("h2"));
        if h2 && route.scheme == Scheme::Https && spoken != Some("h2") {
            let text = format!("{} does not speak HTTP/2, and the route wants nothing else", route.authority);
            return Err(Error::new(Kind::Unsupported, text));
        }
        let version = if h2 { Version::H2 } else { Version::Http11 };
        if route.scheme == Scheme::Https && protocol == Protocol::Auto {
            host.learn(&self.shared, route.tls.id(), version);
        }
        let info = upstream_info(&dialled, tls, version);
        *x.upstream = Some(info.clone());
        if !h2 {
            return Ok(self.lease(Conn::new(io, info, None, open), host, permit));
        }
        let shape = route.tls.fingerprint().and_then(|f| f.http2.as_ref());
        let conn = H2Conn::open(io, info, &self.options.exchange, open, shape).await?;
        self.pool.put_h2(host, conn.clone());
        Ok(Connection::Http2(conn))
    }

    fn lease(&self, conn: Box<Conn>, host: &Arc<HostPool>, permit: Option<OwnedSemaphorePermit>) -> Connection {
        Connection::Http1(Lease { conn, host: host.clone(), pool: self.pool.clone(), permit })
    }

    async fn dial(&self, route: &Route, x: &mut Exchange<'_>) -> Result<(Io, DialInfo), Error> {
        let mut times = DialTimes::default();
        let target = route.dial.as_ref().unwrap_or(&route.authority);
        let connect_via = route.connect_via.as_deref();
        let dialled = self.dialer.dial_by(route.names.as_ref(), target, &route.via, connect_via, &mut times).await;
        (x.timings.dns, x.timings.connect) = (times.dns, times.connect);
        dialled
    }

    async fn secure(
        &self,
        route: &Route,
        protocol: Protocol,
        io: Io,
        x: &mut Exchange<'_>,
    ) -> Result<(Io, Option<Arc<UpstreamTls>>), Error> {
        if route.scheme == Scheme::Http {
            return Ok((io, None));
        }
        let alpn = match protocol {
            Protocol::Auto | Protocol::Same => Alpn::Both,
            Protocol::Http1 => Alpn::Http1,
            Protocol::Http2 => Alpn::Http2,
        };
        let begun = x.clock.micros();
        let made = connect_tls(io, &route.authority.host, &route.tls, alpn, self.options.tls_timeout).await;
        x.timings.tls = Some(x.clock.micros().saturating_sub(begun));
        made.map(|(io, tls)| (io, Some(Arc::new(tls))))
    }
}

/// The protocol of the route for this request; never [`Protocol::Same`]. Upgrades go over HTTP/1.1 unless HTTP/2 is demanded.
fn effective(route: &Route, head: &RequestHead) -> Protocol {
    match route.protocol {
        Protocol::Auto | Protocol::Same if head.protocol.is_some() => Protocol::Http1,
        Protocol::Same if goes_alike(route) && head.version.is_http1() => Protocol::Http1,
        Protocol::Same => Protocol::Auto,
        protocol => protocol,
    }
}

/// Whether requests go over the protocol that they came by.
fn goes_alike(route: &Route) -> bool {
    route.protocol == Protocol::Same && route.scheme == Scheme::Https && route.tls.fingerprint().is_none()
}

/// Whether the route leaves it to the origin what is spoken.
const fn is_open(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Auto | Protocol::Same)
}

/// Whether a request that was to go over this protocol may go over HTTP/2 when the origin speaks nothing else.
fn may_turn_to_http2(route: &Route, protocol: Protocol) -> bool {
    protocol == Protocol::Http1 && is_open(route.protocol)
}

/// RFC 9110 9.2.2: again only what was certainly not looked at, or does no more harm twice than once.
fn may_retry(error: &Error, head: &RequestHead) -> bool {
    match error.retry() {
        Retry::Yes => true,
        Retry::ReusedOnly => head.method.is_idempotent(),
        Retry::No => false,
    }
}

/// An HTTP proxy at the end of the chain is given requests in cleartext as they are, rather than asked for a tunnel.
fn forward_hop(route: &Route, protocol: Protocol) -> Option<ProxyHop> {
    let last = route.via.last()?;
    let forwards = route.scheme == Scheme::Http
        && route.dial.is_none()
        && protocol != Protocol::Http2
        && matches!(last.kind, ProxyKind::Http | ProxyKind::Https);
    forwards.then(|| ProxyHop { authorization: last.basic_auth() })
}

fn upstream_info(dialled: &DialInfo, tls: Option<Arc<UpstreamTls>>, version: Version) -> UpstreamInfo {
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
