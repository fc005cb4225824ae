//! Opens connections: Happy Eyeballs (RFC 8305) and chains of upstream proxies.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_types::{Authority, Error, ErrorKind, Retryable};
use smallvec::SmallVec;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::dns::DnsResolver;
use super::proxy::{ProxyKind, UpstreamProxy, http_connect, socks5_connect};
use crate::io::IoStream;
use crate::tls::{Alpn, TlsProfile, TlsProfileOptions, connect_tls};

/// Decides which addresses may be connected to. Called after name resolution for every address, so that no name can
/// lead to a forbidden one.
///
/// ```
/// use std::net::SocketAddr;
///
/// use interflow_net::egress::dial::AddressFilter;
/// use interflow_types::{Error, ErrorKind};
///
/// /// Connects to loopback only, as tests do.
/// struct LoopbackOnly;
///
/// impl AddressFilter for LoopbackOnly {
///     fn check(&self, addr: SocketAddr) -> Result<(), Error> {
///         match addr.ip().is_loopback() {
///             true => Ok(()),
///             false => Err(Error::new(ErrorKind::Denied, format!("{addr} is not on this machine"))),
///         }
///     }
/// }
/// ```
pub trait AddressFilter: Send + Sync {
    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// The reason if not, such as [`ErrorKind::Denied`] or [`ErrorKind::Loop`].
    fn check(&self, addr: SocketAddr) -> Result<(), Error>;

    /// Whether names are resolved here and their addresses checked before the name is passed to an upstream proxy.
    /// Names of this machine (`localhost`) are always checked.
    fn resolves_names(&self) -> bool {
        false
    }

    /// Called with the name for an upstream proxy that could not be resolved here, so that its addresses are unknown.
    ///
    /// # Errors
    /// The reason why it must not be passed on.
    fn check_unresolved(&self, _target: &Authority, error: Error) -> Result<(), Error> {
        Err(error)
    }
}

/// Allows every address.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAllAddresses;

impl AddressFilter for AllowAllAddresses {
    fn check(&self, _: SocketAddr) -> Result<(), Error> {
        Ok(())
    }
}

options! {
    /// Timeouts and socket options of new connections. By default 10 s to connect, 250 ms between attempts, a probe after a
    /// minute.
    #[derive(Clone)]
    pub struct DialerOptions {
        /// The timeout of all attempts to connect to one host, without name resolution; through upstream proxies, of the
        /// whole way to the target, with the TLS handshakes and tunnels of the proxies.
        pub connect_timeout: Duration = Duration::from_secs(10),
        /// After this delay without a response, the next address is tried in parallel (RFC 8305 5).
        pub attempt_delay: Duration = Duration::from_millis(250),
        /// The idle time before TCP keepalive probes; `None` to disable them.
        pub keepalive: Option<Duration> = Some(Duration::from_secs(60)),
        /// How HTTPS proxies are verified; `None` for the platform's roots.
        pub proxy_tls: Option<Arc<TlsProfile>>,
    }
}

/// How long the parts of connecting took, in microseconds: name resolution, and connecting with the handshakes of
/// upstream proxies. `None` if a part did not occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialTimes {
    pub dns: Option<u64>,
    pub connect: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct DialInfo {
    /// The remote address: the origin's, or the first upstream proxy's.
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// The upstream proxies in order, without credentials, if there are any.
    pub via: Option<Arc<str>>,
}

/// Opens connections. Shared by all workers.
pub struct Dialer {
    resolver: DnsResolver,
    guard: Arc<dyn AddressFilter>,
    proxy_tls: Arc<TlsProfile>,
    options: DialerOptions,
}

impl Dialer {
    pub fn new(resolver: DnsResolver, guard: Arc<dyn AddressFilter>, options: DialerOptions) -> Self {
        let proxy_tls = options.proxy_tls.clone().unwrap_or_else(|| {
            TlsProfile::new(TlsProfileOptions::default()).expect("default options name no file that could be wrong")
        });
        Self { resolver, guard, proxy_tls, options }
    }

    /// Connects to `target`, through the proxies of `chain` in order if there are any. With a chain, the last proxy
    /// resolves the target's name, after it was [checked](Self::check_proxied_target). Cancel-safe: dropping the
    /// future closes what it opened.
    ///
    /// # Errors
    /// [`ErrorKind::Dns`], [`ErrorKind::Connect`] and [`ErrorKind::ConnectTimeout`] with every address tried, the
    /// filter's own error if it refuses all addresses, [`ErrorKind::UpstreamProxy`] with the proxy that failed and
    /// its response.
    pub async fn dial(
        &self,
        target: &Authority,
        chain: &[UpstreamProxy],
        times: &mut DialTimes,
    ) -> Result<(IoStream, DialInfo), Error> {
        self.dial_via(None, target, chain, None, times).await
    }

    /// As [`dial`](Self::dial), with another resolver for names that are resolved here, and with a `Via` for the last
    /// proxy.
    ///
    /// # Errors
    /// As [`Self::dial`].
    pub async fn dial_via(
        &self,
        names: Option<&DnsResolver>,
        target: &Authority,
        chain: &[UpstreamProxy],
        connect_via: Option<&str>,
        times: &mut DialTimes,
    ) -> Result<(IoStream, DialInfo), Error> {
        // Without a proxy, the addresses are resolved and checked in `direct`.
        let Some(last) = chain.last() else { return self.direct(names, target, &*self.guard, times).await };
        self.check_proxied_target(names, target).await?;
        let (io, info) = self.dial_proxy(chain, names, times).await?;
        // The tunnel counts as connecting; name resolution was timed in `dial_proxy`.
        let begun = Instant::now();
        let opened = self.open_proxy_tunnel(io, last, target, connect_via, self.time_left(times)).await;
        add_elapsed(&mut times.connect, begun);
        Ok((opened?, info))
    }

    /// Checks a target that an upstream proxy will connect to, as far as its addresses can be determined here. It is
    /// refused if any of them is, since the proxy may choose each. The proxy resolves the name again, and may get
    /// other addresses.
    ///
    /// # Errors
    /// The filter's.
    pub async fn check_proxied_target(&self, names: Option<&DnsResolver>, target: &Authority) -> Result<(), Error> {
        if let Some(ip) = target.host.ip() {
            return self.guard.check(SocketAddr::new(ip.to_canonical(), target.port));
        }
        if target.host.name().is_some_and(is_loopback_name) {
            // These names are never resolved elsewhere (RFC 6761 6.3), so it does not matter whether the filter
            // resolves names.
            for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                self.guard.check(SocketAddr::new(ip, target.port))?;
            }
            return Ok(());
        }
        if !self.guard.resolves_names() {
            return Ok(());
        }
        match names.unwrap_or(&self.resolver).resolve(&target.host).await {
            // All of them, because the proxy may pick any.
            Ok(ips) => ips.iter().try_for_each(|ip| self.guard.check(SocketAddr::new(ip.to_canonical(), target.port))),
            Err(error) => self.guard.check_unresolved(target, error),
        }
    }

    /// Connects to the last proxy of `chain`, through those before it, with TLS if it uses that: ready for a request
    /// in absolute-form. The caller must have its target [checked](Self::check_proxied_target) first.
    ///
    /// # Errors
    /// As [`Self::dial`]; an empty chain is [`ErrorKind::Internal`].
    pub async fn dial_proxy(
        &self,
        chain: &[UpstreamProxy],
        names: Option<&DnsResolver>,
        times: &mut DialTimes,
    ) -> Result<(IoStream, DialInfo), Error> {
        let Some(first) = chain.first() else {
            return Err(Error::new(ErrorKind::Internal, "a chain of upstream proxies is empty"));
        };
        // The operator configured the proxies, so their addresses are not filtered.
        let reached = self.direct(names, &first.authority, &AllowAllAddresses, times).await;
        let (mut io, mut info) = reached.map_err(|e| unreachable_proxy(first, e))?;
        info.via = Some(chain.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ").into());
        let mut begun = Instant::now();
        let mut time_left = |dialer: &Self| {
            add_elapsed(&mut times.connect, begun);
            begun = Instant::now();
            dialer.time_left(times)
        };
        io = self.tls_to_proxy(io, first, time_left(self)).await?;
        for pair in chain.windows(2) {
            if let [proxy, next] = pair {
                // `Via` is sent only to the last proxy, whose tunnel leads to the origin.
                io = self.open_proxy_tunnel(io, proxy, &next.authority, None, time_left(self)).await?;
                io = self.tls_to_proxy(io, next, time_left(self)).await?;
            }
        }
        add_elapsed(&mut times.connect, begun);
        Ok((io, info))
    }

    /// What is left of the time to connect.
    fn time_left(&self, times: &DialTimes) -> Duration {
        let spent = Duration::from_micros(times.connect.unwrap_or_default());
        self.options.connect_timeout.saturating_sub(spent)
    }

    async fn tls_to_proxy(&self, io: IoStream, proxy: &UpstreamProxy, limit: Duration) -> Result<IoStream, Error> {
        if proxy.kind != ProxyKind::Https {
            return Ok(io);
        }
        // HTTP/1.1, because CONNECT is written as HTTP/1.
        let done = connect_tls(io, &proxy.authority.host, &self.proxy_tls, Alpn::Http1, limit).await;
        let done = done.map_err(|e| match e.kind() {
            // The configured time, not what connecting has left of it.
            ErrorKind::ConnectTimeout => {
                let seconds = self.options.connect_timeout.as_secs_f32();
                let message = format!("the TLS handshake was not done within {seconds} s (timeouts.connect)");
                Error::new(ErrorKind::ConnectTimeout, message).with_retryable(e.retryable())
            }
            _ => e,
        });
        Ok(done.map_err(|e| unreachable_proxy(proxy, e))?.0)
    }

    async fn open_proxy_tunnel(
        &self,
        io: IoStream,
        proxy: &UpstreamProxy,
        next: &Authority,
        connect_via: Option<&str>,
        limit: Duration,
    ) -> Result<IoStream, Error> {
        let opened = async {
            match proxy.kind {
                ProxyKind::Http | ProxyKind::Https => http_connect(io, proxy, next, connect_via).await,
                ProxyKind::Socks5 => socks5_connect(io, proxy, next).await,
            }
        };
        tokio::time::timeout(limit, opened).await.unwrap_or_else(|_| {
            let seconds = self.options.connect_timeout.as_secs_f32();
            let message = format!(
                "the upstream proxy {proxy} did not open a tunnel to {next} within {seconds} s (timeouts.connect)"
            );
            // Retryable: nothing of the request has been sent.
            Err(Error::new(ErrorKind::UpstreamProxy, message).with_retryable(Retryable::Yes))
        })
    }

    async fn direct(
        &self,
        names: Option<&DnsResolver>,
        target: &Authority,
        guard: &dyn AddressFilter,
        times: &mut DialTimes,
    ) -> Result<(IoStream, DialInfo), Error> {
        let begun = Instant::now();
        let ips = names.unwrap_or(&self.resolver).resolve(&target.host).await?;
        // An address in the URL needs no resolution, hence no time for it.
        if target.host.ip().is_none() {
            add_elapsed(&mut times.dns, begun);
        }
        // The filter sees the addresses that are dialled, and there is no second resolution; a name that changes its
        // answer (DNS rebinding) gains nothing.
        let (addrs, refused) = filter_addresses(&ips, target.port, guard)?;
        let begun = Instant::now();
        // A name with the proxy's own address among others means the proxy itself if the others do not respond.
        let tcp = self.connect_first(target, addrs).await.map_err(|e| match refused {
            Some(refused) if refused.kind() == ErrorKind::Loop => refused,
            _ => e,
        })?;
        add_elapsed(&mut times.connect, begun);
        self.tune(&tcp);
        let ends = tcp.peer_addr().and_then(|peer| Ok((peer, tcp.local_addr()?)));
        let (peer, local) = ends.map_err(|e| {
            Error::new(ErrorKind::Connect, format!("{target} closed at once"))
                .with_source(e)
                .with_retryable(Retryable::Yes)
        })?;
        Ok((IoStream::from(tcp), DialInfo { peer, local, via: None }))
    }

    /// Neither option is essential, so a system that refuses one does not fail the connection.
    fn tune(&self, tcp: &TcpStream) {
        // Nagle's algorithm would hold back small writes, such as a request head, until earlier ones are
        // acknowledged.
        let _ = tcp.set_nodelay(true);
        if let Some(idle) = self.options.keepalive {
            let _ = SockRef::from(tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle / 4));
        }
    }

    /// Tries the addresses in order, each after a delay or as soon as the one before has failed; the first to connect
    /// wins and the others are dropped.
    async fn connect_first(&self, target: &Authority, mut addrs: AddressQueue) -> Result<TcpStream, Error> {
        let mut tried: SmallVec<[SocketAddr; 4]> = SmallVec::new();
        let mut failures: SmallVec<[(SocketAddr, io::Error); 4]> = SmallVec::new();
        let mut attempts = FuturesUnordered::new();
        // One deadline for all attempts together, however many addresses there are.
        let deadline = tokio::time::sleep(self.options.connect_timeout);
        let next = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(deadline, next);
        // Dropping `attempts` on return closes the connections that lost.
        loop {
            tokio::select! {
                // In this order: a connection that is ready wins over starting another one, and over the deadline.
                biased;
                Some((addr, outcome)) = attempts.next() => match outcome {
                    // Checked here and not before connecting: the number is known only once the socket exists.
                    Ok(tcp) if crate::descriptors::is_reserved(&tcp) => {
                        let why = "this process has no file descriptor left for a connection: raise its limit of open files";
                        return Err(Error::new(ErrorKind::Connect, why));
                    }
                    Ok(tcp) => return Ok(tcp),
                    Err(error) => {
                        failures.push((addr, error));
                        if addrs.is_empty() && attempts.is_empty() {
                            return Err(all_failed_error(target, &failures));
                        }
                        // A failure starts the next attempt at once (RFC 8305 5).
                        next.as_mut().reset(tokio::time::Instant::now());
                    }
                },
                () = &mut next, if !addrs.is_empty() => {
                    if let Some(addr) = addrs.pop_front() {
                        tried.push(addr);
                        attempts.push(async move { (addr, TcpStream::connect(addr).await) });
                    }
                    // The next address after the delay, unless this attempt fails earlier.
                    next.as_mut().reset(tokio::time::Instant::now() + self.options.attempt_delay);
                }
                () = &mut deadline => {
                    return Err(timeout_error(target, &tried, &failures, self.options.connect_timeout));
                }
            }
        }
    }
}

type AddressQueue = VecDeque<SocketAddr>;

fn add_elapsed(total: &mut Option<u64>, begun: Instant) {
    *total = Some(total.unwrap_or(0) + begun.elapsed().as_micros() as u64);
}

fn unreachable_proxy(proxy: &UpstreamProxy, error: Error) -> Error {
    let retry = error.retryable();
    let message = format!("the upstream proxy {proxy} cannot be reached");
    Error::new(ErrorKind::UpstreamProxy, message).with_retryable(retry).with_source(error)
}

/// Whether a name denotes the resolving machine (RFC 6761 6.3).
pub fn is_loopback_name(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
}

/// The addresses that the filter allows, alternating between families (RFC 8305 4) in the resolver's order; and the
/// filter's error for the first one that it refuses.
fn filter_addresses(
    ips: &[IpAddr],
    port: u16,
    guard: &dyn AddressFilter,
) -> Result<(AddressQueue, Option<Error>), Error> {
    let mut refusal = None;
    let mut same = VecDeque::new();
    let mut other = VecDeque::new();
    let mut family = None;
    for ip in ips {
        let addr = SocketAddr::new(ip.to_canonical(), port);
        match guard.check(addr) {
            Ok(()) => {
                // The family of the resolver's first address goes first in each pair.
                let first = *family.get_or_insert(addr.is_ipv6());
                if addr.is_ipv6() == first { same.push_back(addr) } else { other.push_back(addr) }
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    let mut turns = VecDeque::with_capacity(same.len() + other.len());
    while !(same.is_empty() && other.is_empty()) {
        turns.extend(same.pop_front());
        turns.extend(other.pop_front());
    }
    match refusal {
        Some(refusal) if turns.is_empty() => Err(refusal),
        refusal => Ok((turns, refusal)),
    }
}

fn all_failed_error(target: &Authority, failures: &[(SocketAddr, io::Error)]) -> Error {
    let mut message = format!("could not connect to {target}");
    for (i, (addr, error)) in failures.iter().enumerate() {
        let _ = write!(message, "{} {addr} {}", if i == 0 { ":" } else { "," }, connect_error_text(error));
    }
    // Otherwise at least one address responded, if only with a refusal.
    let all_timed_out = !failures.is_empty() && failures.iter().all(|(_, e)| e.kind() == io::ErrorKind::TimedOut);
    let kind = if all_timed_out { ErrorKind::ConnectTimeout } else { ErrorKind::Connect };
    Error::new(kind, message).with_retryable(Retryable::Yes)
}

fn timeout_error(
    target: &Authority,
    tried: &[SocketAddr],
    failures: &[(SocketAddr, io::Error)],
    limit: Duration,
) -> Error {
    let mut message = format!("could not connect to {target} within {} s (timeouts.connect)", limit.as_secs_f32());
    for (i, addr) in tried.iter().enumerate() {
        let _ = write!(message, "{} {addr} ", if i == 0 { ":" } else { "," });
        match failures.iter().find(|(failed, _)| failed == addr) {
            Some((_, error)) => message.push_str(&connect_error_text(error)),
            None => message.push_str("did not respond"),
        }
    }
    Error::new(ErrorKind::ConnectTimeout, message).with_retryable(Retryable::Yes)
}

fn connect_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused the connection".to_owned(),
        io::ErrorKind::ConnectionReset => "reset the connection".to_owned(),
        io::ErrorKind::TimedOut => "did not respond".to_owned(),
        io::ErrorKind::HostUnreachable => "cannot be reached (no route to the host)".to_owned(),
        io::ErrorKind::NetworkUnreachable => "cannot be reached (no route to its network)".to_owned(),
        io::ErrorKind::PermissionDenied => "must not be connected to (possibly a firewall on this machine)".to_owned(),
        _ => format!("failed ({error})"),
    }
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
