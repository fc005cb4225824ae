//! Name resolution through the system's name servers and hosts file or DNS over HTTPS, with a cache that respects TTLs.
//!
//! Lookups are single-flight: the first caller for a name spawns the lookup, and all callers wait for its result. The
//! lookup is a task of its own, so a caller that gives up does not cancel it for the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hashlink::LruCache;
use interflow_types::{Error, ErrorKind, Host, Retryable};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dial::is_loopback_name;
use super::doh::{DohClient, DohServer};
use super::name_servers::{self, DnsAnswer, LookupFailure, NameServers};

options! {
    /// By default, the system's name servers are asked; 4,096 names are kept, for between a second and an hour, failures for ten
    /// seconds.
    #[derive(Clone, Debug)]
    pub struct ResolverOptions {
        /// Names with fixed addresses, in lower case; they are never looked up.
        pub overrides: HashMap<Arc<str>, Vec<IpAddr>>,
        /// Name servers to query; empty for the system's.
        pub name_servers: Vec<SocketAddr>,
        /// A DNS over HTTPS server to query instead of name servers; names of the local network still use the system's.
        pub https: Option<DohServer>,
        pub capacity: usize = 4096,
        /// The minimum time for which an answer is cached, whatever its TTL.
        pub min_ttl: Duration = Duration::from_secs(1),
        /// The maximum time for which an answer is cached.
        pub max_ttl: Duration = Duration::from_secs(3600),
        /// The maximum time for which a failure, or the absence of a name, is cached.
        pub negative_ttl: Duration = Duration::from_secs(10),
        pub timeout: Duration = Duration::from_secs(10),
    }
}

/// The result of a lookup; a failure is its description.
type LookupResult = Result<Arc<[IpAddr]>, Arc<str>>;

enum DnsCacheEntry {
    /// A result, valid until the given time.
    Resolved(LookupResult, Instant),
    /// A lookup is in progress; its result is sent here.
    InFlight(watch::Receiver<Option<LookupResult>>),
}

/// Resolves names. Cheap to clone and shared by all workers.
#[derive(Clone)]
pub struct DnsResolver(Arc<ResolverState>);

struct ResolverState {
    options: ResolverOptions,
    /// By the last use.
    known: Mutex<LruCache<Arc<str>, DnsCacheEntry>>,
    system: SystemResolver,
    https: Option<DohClient>,
}

impl DnsResolver {
    /// The system's configuration is read at the first lookup.
    pub fn new(options: ResolverOptions) -> Self {
        let system = SystemResolver::default();
        let https = options.https.clone().map(|server| DohClient::new(server, options.timeout));
        let known = Mutex::new(LruCache::new(options.capacity.max(1)));
        Self(Arc::new(ResolverState { options, known, system, https }))
    }

    /// The addresses of a host, at least one. An address resolves to itself; `localhost` and names below it to
    /// loopback. These and the overrides cause no lookup (RFC 6761 6.3). Cancel-safe: a lookup in progress continues
    /// for other callers.
    ///
    /// # Errors
    /// [`ErrorKind::Dns`], with the name and the reason.
    pub async fn resolve(&self, host: &Host) -> Result<Arc<[IpAddr]>, Error> {
        let name = match host {
            Host::Ip(ip) => return Ok(Arc::new([*ip])),
            Host::Name(name) => name,
        };
        // `example.com.` and `example.com` are the same name.
        let plain = name.strip_suffix('.').unwrap_or(name);
        if let Some(fixed) = self.static_addresses(plain) {
            return Ok(fixed);
        }
        loop {
            let mut result = match self.lookup_cached(name) {
                DnsCacheEntry::Resolved(answer, _) => return finish(plain, answer),
                DnsCacheEntry::InFlight(result) => result,
            };
            // The receiver is cancel-safe: dropping it leaves the lookup to the others.
            let answer = result.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
            match answer {
                Some(answer) => return finish(plain, answer),
                // The worker that ran the lookup has ended without a result: try again.
                None => self.remove_in_flight(name, &result),
            }
        }
    }

    pub fn cached_names(&self) -> usize {
        self.0.known.lock().len()
    }

    fn static_addresses(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        if let Some(addrs) = self.0.options.overrides.get(name) {
            return Some(addrs.as_slice().into());
        }
        is_loopback_name(name).then(|| Arc::from([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]))
    }

    /// The entry of the name; starts a lookup if there is none.
    fn lookup_cached(&self, name: &Arc<str>) -> DnsCacheEntry {
        let now = Instant::now();
        let mut all = self.0.known.lock();
        if let Some(known) = all.get(name).and_then(|k| k.if_fresh(now)) {
            return known;
        }
        let (send, result) = watch::channel(None);
        all.insert(name.clone(), DnsCacheEntry::InFlight(result.clone()));
        drop(all);
        let (inner, name) = (self.0.clone(), name.clone());
        tokio::spawn(async move {
            let (answer, ttl) = inner.look_up(&name).await;
            // The cache is written first, so that callers woken by the channel and new ones see the same result.
            inner.known.lock().insert(name, DnsCacheEntry::Resolved(answer.clone(), Instant::now() + ttl));
            send.send_replace(Some(answer));
        });
        DnsCacheEntry::InFlight(result)
    }

    fn remove_in_flight(&self, name: &Arc<str>, result: &watch::Receiver<Option<LookupResult>>) {
        let mut all = self.0.known.lock();
        if let Some(DnsCacheEntry::InFlight(other)) = all.get(name)
            // Only this caller's entry: another caller may have started a new lookup already.
            && other.same_channel(result)
        {
            all.remove(name);
        }
    }
}

impl Default for DnsResolver {
    fn default() -> Self {
        Self::new(ResolverOptions::default())
    }
}

impl DnsCacheEntry {
    fn if_fresh(&self, now: Instant) -> Option<Self> {
        match self {
            Self::Resolved(answer, until) if now < *until => Some(Self::Resolved(answer.clone(), *until)),
            Self::Resolved(..) => None,
            // A lookup in progress has no expiry; its own timeout ends it.
            Self::InFlight(result) => Some(Self::InFlight(result.clone())),
        }
    }
}

fn finish(name: &str, answer: LookupResult) -> Result<Arc<[IpAddr]>, Error> {
    answer.map_err(|why| {
        Error::new(ErrorKind::Dns, format!("{name} could not be resolved: {why}")).with_retryable(Retryable::Yes)
    })
}

impl ResolverState {
    /// Looks up a name; also returns for how long the result may be cached.
    async fn look_up(&self, name: &str) -> (LookupResult, Duration) {
        // Failures are cached too, but briefly: without that, every request to a dead name would wait for the timeout.
        let o = &self.options;
        match tokio::time::timeout(o.timeout, self.try_all(name)).await {
            Ok(Ok(DnsAnswer { addrs, ttl })) if !addrs.is_empty() => {
                (Ok(addrs.into()), ttl.clamp(o.min_ttl, o.max_ttl))
            }
            Ok(Ok(_)) => (Err("it has no address".into()), o.negative_ttl),
            // The zone's SOA may shorten the negative answer, but never lengthen it beyond the configured maximum.
            Ok(Err(LookupFailure::NoSuchName(ttl))) => {
                let ttl = ttl.map_or(o.negative_ttl, |ttl| ttl.min(o.negative_ttl)).max(o.min_ttl);
                (Err("the name does not exist".into()), ttl)
            }
            Ok(Err(LookupFailure::Server(why))) => (Err(why.into()), o.min_ttl),
            Err(_) => {
                let why = format!("no name server answered within {} s", o.timeout.as_secs_f32());
                // The shortest time: the next request should try again soon.
                (Err(why.into()), o.min_ttl)
            }
        }
    }

    async fn try_all(&self, name: &str) -> Result<DnsAnswer, LookupFailure> {
        // Names of the local network are often known only to mDNS or NSS.
        let is_local = !name.trim_end_matches('.').contains('.') || name.ends_with(".local");
        if let Some(https) = self.https.as_ref().filter(|_| !is_local) {
            return https.look_up(name).await;
        }
        let Some(servers) = self.system.servers(&self.options) else { return lookup_with_getaddrinfo(name).await };
        let answer = servers.look_up(name).await;
        // Name servers that the operator configured are the only ones asked.
        if is_local
            && self.options.name_servers.is_empty()
            && !answer.as_ref().is_ok_and(|answer| !answer.addrs.is_empty())
            && let Ok(local) = lookup_with_getaddrinfo(name).await
        {
            return Ok(local);
        }
        answer
    }
}

/// Calls `getaddrinfo` on a blocking thread. It returns no TTL.
async fn lookup_with_getaddrinfo(name: &str) -> Result<DnsAnswer, LookupFailure> {
    let sockets = tokio::net::lookup_host((name, 0)).await.map_err(|e| LookupFailure::Server(e.to_string()))?;
    let mut addrs = Vec::new();
    for addr in sockets.map(|a| a.ip()) {
        // `getaddrinfo` returns each address once per socket type.
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    // The C library reports no TTL; half a minute limits both the load and the staleness.
    Ok(DnsAnswer { addrs, ttl: Duration::from_secs(30) })
}

/// The system's configuration, read when it is first needed and again when its files change, because a laptop changes
/// networks.
#[derive(Default)]
struct SystemResolver(Mutex<Option<LoadedResolver>>);

struct LoadedResolver {
    /// `None` if there is no usable configuration.
    servers: Option<Arc<NameServers>>,
    files: [Option<SystemTime>; 2],
    checked: Instant,
}

impl SystemResolver {
    const CHECK_EVERY: Duration = Duration::from_secs(5);

    fn servers(&self, options: &ResolverOptions) -> Option<Arc<NameServers>> {
        let mut loaded = self.0.lock();
        if let Some(loaded) = &mut *loaded {
            if loaded.checked.elapsed() < Self::CHECK_EVERY {
                // At most every five seconds, because every uncached lookup comes through here.
                return loaded.servers.clone();
            }
            // Set before the files are read, so that a failure does not repeat at every lookup.
            loaded.checked = Instant::now();
            if loaded.files == Self::files() {
                return loaded.servers.clone();
            }
        }
        let servers = if options.name_servers.is_empty() {
            NameServers::of_system()
                .inspect_err(|error| {
                    tracing::warn!(%error, "the system's DNS configuration cannot be used; the C library resolves names");
                })
                .ok()
        } else {
            Some(NameServers::new(options.name_servers.clone()))
        };
        let servers = servers.map(Arc::new);
        *loaded = Some(LoadedResolver { servers: servers.clone(), files: Self::files(), checked: Instant::now() });
        servers
    }

    fn files() -> [Option<SystemTime>; 2] {
        name_servers::FILES.map(|path| Path::new(path).metadata().ok()?.modified().ok())
    }
}

/// The system's name servers; empty if they cannot be determined.
pub fn system_name_servers() -> Vec<SocketAddr> {
    NameServers::of_system().map(|system| system.servers).unwrap_or_default()
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
