//! Connecting: Happy Eyeballs (RFC 8305) and the chain of upstream proxies.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_types::{Authority, Error, ErrorKind, Host, Retryable};
use smallvec::SmallVec;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::dns::DnsResolver;
use super::proxy::{ProxyKind, UpstreamProxy, open_tunnel};
use crate::io::IoStream;
use crate::tls::{Alpn, TlsProfile, TlsProfileOptions, connect_tls};

/// Says which addresses may be connected to. Asked after name resolution, of every address, so that no name leads
/// where an address may not.
pub trait AddressFilter: Send + Sync {
    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// Why not, for instance [`ErrorKind::Denied`] or [`ErrorKind::Loop`].
    fn check(&self, addr: SocketAddr) -> Result<(), Error>;

    /// Whether a name is resolved here and judged by its addresses before an upstream proxy is given it. Names of this
    /// machine (`localhost`) are judged in any case.
    fn resolves_names(&self) -> bool {
        false
    }

    /// A name for an upstream proxy that could not be resolved here, so that its addresses are not known.
    ///
    /// # Errors
    /// Why it may not be handed over.
    fn check_unresolved(&self, _target: &Authority, error: Error) -> Result<(), Error> {
        Err(error)
    }
}

/// Lets every address pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAllAddresses;

impl AddressFilter for AllowAllAddresses {
    fn check(&self, _: SocketAddr) -> Result<(), Error> {
        Ok(())
    }
}

/// Times and socket options of new connections.
#[derive(Clone)]
pub struct DialerOptions {
    /// All attempts to connect to one host together may take this long, its name's resolution aside.
    pub connect_timeout: Duration,
    /// When one address has not answered after this long, the next is tried beside it (RFC 8305 5).
    pub attempt_delay: Duration,
    /// An upstream proxy may take this long to open its tunnel, and to make TLS when it speaks that.
    pub proxy_timeout: Duration,
    /// An idle connection is probed after this long, so that a peer that vanished is noticed. `None`: never.
    pub keepalive: Option<Duration>,
    /// How HTTPS proxies are verified; `None`: by the platform's roots.
    pub proxy_tls: Option<Arc<TlsProfile>>,
}

impl Default for DialerOptions {
    /// 10 s to connect, 250 ms between attempts, 30 s for a proxy, a probe after a minute.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            attempt_delay: Duration::from_millis(250),
            proxy_timeout: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(60)),
            proxy_tls: None,
        }
    }
}

/// How long the parts of a dial took, in microseconds; `None` where a part did not come up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialTimes {
    /// Name resolution.
    pub dns: Option<u64>,
    /// Connecting, and the handshakes of upstream proxies.
    pub connect: Option<u64>,
}

/// Where a connection leads.
#[derive(Clone, Debug)]
pub struct DialInfo {
    /// The address connected to: the origin's, or the first upstream proxy's.
    pub peer: SocketAddr,
    /// Our own address.
    pub local: SocketAddr,
    /// The upstream proxies in their order, without credentials, when there are any.
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
    /// A dialer.
    pub fn new(resolver: DnsResolver, guard: Arc<dyn AddressFilter>, options: DialerOptions) -> Self {
        let proxy_tls = options.proxy_tls.clone().unwrap_or_else(|| {
            TlsProfile::new(TlsProfileOptions::default()).expect("default options name no file that could be wrong")
        });
        Self { resolver, guard, proxy_tls, options }
    }

    /// The resolver it asks.
    pub fn resolver(&self) -> &DnsResolver {
        &self.resolver
    }

    /// Connects to `target`, through the proxies of `chain` in their order when there are any. With a chain the
    /// target's name is resolved by the last proxy, after it was [judged](Self::judge). Cancel-safe: dropping the future closes what it opened.
    ///
    /// # Errors
    /// [`ErrorKind::Dns`], [`ErrorKind::Connect`] and [`ErrorKind::ConnectTimeout`] with every address tried, the guard's own error
    /// when it refuses all addresses, [`ErrorKind::UpstreamProxy`] with the proxy that failed and what it said.
    pub async fn dial(
        &self,
        target: &Authority,
        chain: &[UpstreamProxy],
        times: &mut DialTimes,
    ) -> Result<(IoStream, DialInfo), Error> {
        self.dial_via(None, target, chain, None, times).await
    }

    /// The same with another resolver for the names that are resolved here, and with a `Via` for the last proxy.
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
        let Some(last) = chain.last() else { return self.direct(names, target, &*self.guard, times).await };
        self.check_proxied_target(names, target).await?;
        let (io, info) = self.dial_proxy(chain, names, times).await?;
        let begun = Instant::now();
        let io = self.open_proxy_tunnel(io, last, target, connect_via).await?;
        add_elapsed(&mut times.connect, begun);
        Ok((io, info))
    }

    /// Judges a target that an upstream proxy is to connect to, as far as its addresses can be known here: the guard
    /// refuses it when it refuses any of them, since the proxy may choose each. The proxy resolves the name once more, and
    /// may see other addresses.
    ///
    /// # Errors
    /// The guard's.
    pub async fn check_proxied_target(&self, names: Option<&DnsResolver>, target: &Authority) -> Result<(), Error> {
        if let Some(ip) = target.host.ip() {
            return self.guard.check(SocketAddr::new(ip.to_canonical(), target.port));
        }
        if is_local_name(&target.host) {
            for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                self.guard.check(SocketAddr::new(ip, target.port))?;
            }
            return Ok(());
        }
        if !self.guard.resolves_names() {
            return Ok(());
        }
        match names.unwrap_or(&self.resolver).resolve(&target.host).await {
            Ok(ips) => ips.iter().try_for_each(|ip| self.guard.check(SocketAddr::new(ip.to_canonical(), target.port))),
            Err(error) => self.guard.check_unresolved(target, error),
        }
    }

    /// Connects to the last proxy of `chain`, through those before it, and makes TLS with it when it speaks that:
    /// ready for a request in absolute-form. Whoever sends one has its target [judged](Self::judge) first.
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
        // The owner named the proxies, so the guard has no say about their addresses.
        let reached = self.direct(names, &first.authority, &AllowAllAddresses, times).await;
        let (mut io, mut info) = reached.map_err(|e| unreachable_proxy(first, e))?;
        info.via = Some(proxy_chain_text(chain));
        let begun = Instant::now();
        io = self.tls_to_proxy(io, first).await?;
        for pair in chain.windows(2) {
            if let [proxy, next] = pair {
                io = self.open_proxy_tunnel(io, proxy, &next.authority, None).await?;
                io = self.tls_to_proxy(io, next).await?;
            }
        }
        add_elapsed(&mut times.connect, begun);
        Ok((io, info))
    }

    async fn tls_to_proxy(&self, io: IoStream, proxy: &UpstreamProxy) -> Result<IoStream, Error> {
        if proxy.kind != ProxyKind::Https {
            return Ok(io);
        }
        let limit = self.options.proxy_timeout;
        let done = connect_tls(io, &proxy.authority.host, &self.proxy_tls, Alpn::Http1, limit).await;
        Ok(done.map_err(|e| unreachable_proxy(proxy, e))?.0)
    }

    async fn open_proxy_tunnel(
        &self,
        io: IoStream,
        proxy: &UpstreamProxy,
        next: &Authority,
        connect_via: Option<&str>,
    ) -> Result<IoStream, Error> {
        let limit = self.options.proxy_timeout;
        tokio::time::timeout(limit, open_tunnel(io, proxy, next, connect_via)).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs_f32();
            let message = format!("the upstream proxy {proxy} did not open a tunnel to {next} within {seconds} s");
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
        if target.host.ip().is_none() {
            add_elapsed(&mut times.dns, begun);
        }
        let (addrs, refused) = filter_addresses(&ips, target.port, guard)?;
        let begun = Instant::now();
        // A name that leads to ourselves at one of its addresses means us, when nobody answers at the others.
        let tcp = self.connect_first(target, addrs).await.map_err(|e| match refused {
            Some(refused) if refused.kind() == ErrorKind::Loop => refused,
            _ => e,
        })?;
        add_elapsed(&mut times.connect, begun);
        self.set_options(&tcp);
        let ends = tcp.peer_addr().and_then(|peer| Ok((peer, tcp.local_addr()?)));
        let (peer, local) = ends.map_err(|e| {
            Error::new(ErrorKind::Connect, format!("{target} closed at once"))
                .with_source(e)
                .with_retryable(Retryable::Yes)
        })?;
        Ok((IoStream::from(tcp), DialInfo { peer, local, via: None }))
    }

    /// Neither option decides over a connection's use, so a system that refuses one does not fail the dial.
    fn set_options(&self, tcp: &TcpStream) {
        let _ = tcp.set_nodelay(true);
        if let Some(idle) = self.options.keepalive {
            let _ = SockRef::from(tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle / 4));
        }
    }

    /// Tries the addresses one after the other, each a little after the one before or as soon as that has failed;
    /// the first to answer wins and the others are dropped.
    async fn connect_first(&self, target: &Authority, mut addrs: AddressQueue) -> Result<TcpStream, Error> {
        let mut tried: SmallVec<[SocketAddr; 4]> = SmallVec::new();
        let mut failures: SmallVec<[(SocketAddr, io::Error); 4]> = SmallVec::new();
        let mut attempts = FuturesUnordered::new();
        let deadline = tokio::time::sleep(self.options.connect_timeout);
        let next = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(deadline, next);
        loop {
            tokio::select! {
                biased;
                Some((addr, outcome)) = attempts.next() => match outcome {
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
                        next.as_mut().reset(tokio::time::Instant::now());
                    }
                },
                () = &mut next, if !addrs.is_empty() => {
                    if let Some(addr) = addrs.pop_front() {
                        tried.push(addr);
                        attempts.push(async move { (addr, TcpStream::connect(addr).await) });
                    }
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

fn proxy_chain_text(chain: &[UpstreamProxy]) -> Arc<str> {
    let mut text = String::new();
    for proxy in chain {
        let arrow = if text.is_empty() { "" } else { " > " };
        let _ = write!(text, "{arrow}{proxy}");
    }
    text.into()
}

fn unreachable_proxy(proxy: &UpstreamProxy, error: Error) -> Error {
    let retry = error.retryable();
    let message = format!("the upstream proxy {proxy} cannot be reached");
    Error::new(ErrorKind::UpstreamProxy, message).with_retryable(retry).with_source(error)
}

/// Names that mean the machine that resolves them (RFC 6761 6.3).
fn is_local_name(host: &Host) -> bool {
    host.name().map(|name| name.trim_end_matches('.')).is_some_and(|name| {
        let last = name.rsplit('.').next().unwrap_or_default();
        last.eq_ignore_ascii_case("localhost")
    })
}

/// The addresses that the guard lets pass, families in turn (RFC 8305 4), the resolver's first choice first; and what
/// it said of the first that it does not.
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
    let mut message = format!("could not connect to {target} within {} s", limit.as_secs_f32());
    for (i, addr) in tried.iter().enumerate() {
        let _ = write!(message, "{} {addr} ", if i == 0 { ":" } else { "," });
        match failures.iter().find(|(failed, _)| failed == addr) {
            Some((_, error)) => message.push_str(&connect_error_text(error)),
            None => message.push_str("did not answer"),
        }
    }
    Error::new(ErrorKind::ConnectTimeout, message).with_retryable(Retryable::Yes)
}

fn connect_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused the connection".to_owned(),
        io::ErrorKind::ConnectionReset => "reset the connection".to_owned(),
        io::ErrorKind::TimedOut => "did not answer".to_owned(),
        io::ErrorKind::HostUnreachable => "cannot be reached (no route to the host)".to_owned(),
        io::ErrorKind::NetworkUnreachable => "cannot be reached (no route to its network)".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be connected to (a firewall of this machine?)".to_owned(),
        _ => format!("failed ({error})"),
    }
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
