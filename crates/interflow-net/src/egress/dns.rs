//! Name resolution: the system's own name servers and hosts file or DNS over HTTPS, a cache that honours TTLs, and one
//! lookup at a time per name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use interflow_types::{Error, ErrorKind, Host, Retryable};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::doh::{DohClient, DohServer};

/// How names are resolved.
#[derive(Clone, Debug)]
pub struct ResolverOptions {
    /// Names with addresses of their own, in lower case; these are never looked up.
    pub overrides: HashMap<Arc<str>, Vec<IpAddr>>,
    /// Name servers to ask; none means the system's.
    pub name_servers: Vec<SocketAddr>,
    /// A server to ask over HTTPS in place of name servers; names of the local network are still asked of the system.
    pub https: Option<DohServer>,
    /// How many names are remembered.
    pub capacity: usize,
    /// An answer is remembered at least this long, whatever its TTL says.
    pub min_ttl: Duration,
    /// An answer is remembered at most this long.
    pub max_ttl: Duration,
    /// That a name does not exist, or could not be looked up, is remembered at most this long.
    pub negative_ttl: Duration,
    /// One lookup may take this long.
    pub timeout: Duration,
}

impl Default for ResolverOptions {
    /// The system's name servers; 4,096 names; TTLs between a second and an hour, ten seconds for failures.
    fn default() -> Self {
        Self {
            overrides: HashMap::new(),
            name_servers: Vec::new(),
            https: None,
            capacity: 4096,
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_secs(3600),
            negative_ttl: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
        }
    }
}

/// What a lookup ended with; a failure is kept as its sentence.
type LookupResult = Result<Arc<[IpAddr]>, Arc<str>>;

/// What is known of a name.
enum DnsCacheEntry {
    /// This, until then.
    Resolved(LookupResult, Instant),
    /// Somebody is looking it up; the answer will be told here.
    InFlight(watch::Receiver<Option<LookupResult>>),
}

/// Resolves names. Cheap to clone and shared by all workers.
#[derive(Clone)]
pub struct DnsResolver(Arc<ResolverState>);

struct ResolverState {
    options: ResolverOptions,
    known: RwLock<HashMap<Arc<str>, DnsCacheEntry>>,
    system: SystemResolver,
    https: Option<DohClient>,
}

impl DnsResolver {
    /// A resolver; the system's configuration is read at the first lookup.
    pub fn new(options: ResolverOptions) -> Self {
        let system = SystemResolver::default();
        let https = options.https.clone().map(|server| DohClient::new(server, options.timeout));
        Self(Arc::new(ResolverState { options, known: RwLock::default(), system, https }))
    }

    /// The addresses of a host, at least one. An address is its own; `localhost` and names below it are loopback and
    /// leave the machine as little as overrides do (RFC 6761 6.3). Cancel-safe: a lookup begun goes on for others.
    ///
    /// # Errors
    /// [`ErrorKind::Dns`], with the name and the reason.
    pub async fn resolve(&self, host: &Host) -> Result<Arc<[IpAddr]>, Error> {
        let name = match host {
            Host::Ip(ip) => return Ok(Arc::new([*ip])),
            Host::Name(name) => name,
        };
        let plain = name.strip_suffix('.').unwrap_or(name);
        if let Some(fixed) = self.static_addresses(plain) {
            return Ok(fixed);
        }
        loop {
            let mut told = match self.lookup_cached(name) {
                DnsCacheEntry::Resolved(answer, _) => return finish(plain, answer),
                DnsCacheEntry::InFlight(told) => told,
            };
            let answer = told.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
            match answer {
                Some(answer) => return finish(plain, answer),
                // The worker that asked went away before it had an answer: ask again.
                None => self.remove_in_flight(name, &told),
            }
        }
    }

    /// How many names are remembered.
    pub fn cached_names(&self) -> usize {
        self.0.known.read().len()
    }

    /// Forgets all that was looked up.
    pub fn clear(&self) {
        self.0.known.write().clear();
    }

    fn static_addresses(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        if let Some(addrs) = self.0.options.overrides.get(name) {
            return Some(addrs.as_slice().into());
        }
        let is_loopback = name == "localhost" || name.ends_with(".localhost");
        is_loopback.then(|| Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]) as Arc<[IpAddr]>)
    }

    /// What is known of the name; when that is nothing, begins to look it up.
    fn lookup_cached(&self, name: &Arc<str>) -> DnsCacheEntry {
        let now = Instant::now();
        if let Some(known) = self.0.known.read().get(name).and_then(|k| k.if_fresh(now)) {
            return known;
        }
        let mut all = self.0.known.write();
        if let Some(known) = all.get(name).and_then(|k| k.if_fresh(now)) {
            return known;
        }
        evict(&mut all, self.0.options.capacity, now);
        let (tell, told) = watch::channel(None);
        all.insert(name.clone(), DnsCacheEntry::InFlight(told.clone()));
        drop(all);
        let (inner, name) = (self.0.clone(), name.clone());
        tokio::spawn(async move {
            let (answer, ttl) = inner.look_up(&name).await;
            inner.known.write().insert(name, DnsCacheEntry::Resolved(answer.clone(), Instant::now() + ttl));
            tell.send_replace(Some(answer));
        });
        DnsCacheEntry::InFlight(told)
    }

    fn remove_in_flight(&self, name: &Arc<str>, told: &watch::Receiver<Option<LookupResult>>) {
        let mut all = self.0.known.write();
        if let Some(DnsCacheEntry::InFlight(other)) = all.get(name)
            && other.same_channel(told)
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
            Self::InFlight(told) => Some(Self::InFlight(told.clone())),
        }
    }
}

fn finish(name: &str, answer: LookupResult) -> Result<Arc<[IpAddr]>, Error> {
    answer.map_err(|why| {
        Error::new(ErrorKind::Dns, format!("{name} could not be resolved: {why}")).with_retryable(Retryable::Yes)
    })
}

/// Drops what is out of date, and if that is nothing, what ends soonest.
fn evict(all: &mut HashMap<Arc<str>, DnsCacheEntry>, capacity: usize, now: Instant) {
    if all.len() < capacity.max(1) {
        return;
    }
    all.retain(|_, known| known.if_fresh(now).is_some());
    while all.len() >= capacity.max(1) {
        let soonest = all.iter().filter_map(|(name, known)| match known {
            DnsCacheEntry::Resolved(_, until) => Some((*until, name.clone())),
            DnsCacheEntry::InFlight(_) => None,
        });
        let Some((_, name)) = soonest.min() else { return };
        all.remove(&name);
    }
}

impl ResolverState {
    /// Looks a name up, and says how long the answer may be remembered.
    async fn look_up(&self, name: &str) -> (LookupResult, Duration) {
        let o = &self.options;
        match tokio::time::timeout(o.timeout, self.try_all(name)).await {
            Ok(Ok((addrs, ttl))) if !addrs.is_empty() => (Ok(addrs.into()), ttl.clamp(o.min_ttl, o.max_ttl)),
            Ok(Ok(_)) => (Err("it has no address".into()), o.negative_ttl),
            Ok(Err(failure)) => {
                let ttl = failure.ttl.map_or(o.negative_ttl, |ttl| ttl.min(o.negative_ttl)).max(o.min_ttl);
                (Err(failure.why.into()), ttl)
            }
            Err(_) => {
                let why = format!("no name server answered within {} s", o.timeout.as_secs_f32());
                (Err(why.into()), o.min_ttl)
            }
        }
    }

    async fn try_all(&self, name: &str) -> Result<(Vec<IpAddr>, Duration), LookupFailure> {
        // Names of the local network are often known to mDNS or NSS alone.
        let is_local = !name.trim_end_matches('.').contains('.') || name.ends_with(".local");
        if let Some(https) = self.https.as_ref().filter(|_| !is_local) {
            return https.look_up(name).await;
        }
        let Some(dns) = self.system.resolver(&self.options) else { return lookup_with_getaddrinfo(name).await };
        let failure = match dns.lookup_ip(name).await {
            Ok(found) => {
                let ttl = found.valid_until().saturating_duration_since(Instant::now());
                return Ok((found.iter().collect(), ttl));
            }
            Err(error) => LookupFailure::from(error),
        };
        if is_local
            && self.options.name_servers.is_empty()
            && let Ok(found) = lookup_with_getaddrinfo(name).await
        {
            return Ok(found);
        }
        Err(failure)
    }
}

/// A lookup that failed, and how long its zone wants that remembered (RFC 2308).
pub(super) struct LookupFailure {
    pub why: String,
    pub ttl: Option<Duration>,
}

impl LookupFailure {
    pub fn new(why: String, ttl: Option<Duration>) -> Self {
        Self { why, ttl }
    }
}

impl From<NetError> for LookupFailure {
    fn from(error: NetError) -> Self {
        let nx = error.is_nx_domain();
        match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) => Self {
                why: if nx { "the name does not exist".to_owned() } else { "it has no address".to_owned() },
                ttl: none.negative_ttl.map(|s| Duration::from_secs(s.into())),
            },
            NetError::Timeout => Self { why: "no name server answered in time".to_owned(), ttl: Some(Duration::ZERO) },
            NetError::NoConnections => {
                Self { why: "no name server can be reached".to_owned(), ttl: Some(Duration::ZERO) }
            }
            error => Self { why: error.to_string(), ttl: Some(Duration::ZERO) },
        }
    }
}

/// `getaddrinfo` on a blocking thread. It tells no TTL.
async fn lookup_with_getaddrinfo(name: &str) -> Result<(Vec<IpAddr>, Duration), LookupFailure> {
    match tokio::net::lookup_host((name, 0)).await {
        Ok(found) => {
            let mut addrs = Vec::new();
            for addr in found.map(|a| a.ip()) {
                if !addrs.contains(&addr) {
                    addrs.push(addr);
                }
            }
            Ok((addrs, Duration::from_secs(30)))
        }
        Err(error) => Err(LookupFailure { why: error.to_string(), ttl: Some(Duration::ZERO) }),
    }
}

/// The system's configuration, read when it is first needed and again when its files change: a laptop changes
/// networks.
#[derive(Default)]
struct SystemResolver(Mutex<Option<LoadedResolver>>);

struct LoadedResolver {
    /// `None`: there is no configuration that can be used.
    resolver: Option<TokioResolver>,
    files: [Option<SystemTime>; 2],
    checked: Instant,
}

impl SystemResolver {
    const CHECK_EVERY: Duration = Duration::from_secs(5);

    fn resolver(&self, options: &ResolverOptions) -> Option<TokioResolver> {
        let mut loaded = self.0.lock();
        if let Some(loaded) = &mut *loaded {
            if loaded.checked.elapsed() < Self::CHECK_EVERY {
                return loaded.resolver.clone();
            }
            loaded.checked = Instant::now();
            if loaded.files == Self::files() {
                return loaded.resolver.clone();
            }
        }
        let resolver = build(options);
        *loaded = Some(LoadedResolver { resolver: resolver.clone(), files: Self::files(), checked: Instant::now() });
        resolver
    }

    /// When the files were last written.
    fn files() -> [Option<SystemTime>; 2] {
        ["/etc/resolv.conf", "/etc/hosts"].map(|path| Path::new(path).metadata().ok()?.modified().ok())
    }
}

fn build(options: &ResolverOptions) -> Option<TokioResolver> {
    let mut builder = if options.name_servers.is_empty() {
        match TokioResolver::builder_tokio() {
            Ok(builder) => builder,
            Err(error) => {
                tracing::warn!(%error, "the system's DNS configuration cannot be used; the C library resolves names");
                return None;
            }
        }
    } else {
        with_servers(&options.name_servers)
    };
    let opts = builder.options_mut();
    opts.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    // Answers are remembered here, as addresses; a second cache below would hold whole messages.
    opts.cache_size = 0;
    opts.try_tcp_on_error = true;
    match builder.build() {
        Ok(resolver) => Some(resolver),
        Err(error) => {
            tracing::warn!(%error, "the DNS client could not be set up; the C library resolves names");
            None
        }
    }
}

fn with_servers(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let server = |addr: &SocketAddr| {
        let on_port = |mut connection: ConnectionConfig| {
            connection.port = addr.port();
            connection
        };
        let connections = vec![on_port(ConnectionConfig::udp()), on_port(ConnectionConfig::tcp())];
        NameServerConfig::new(addr.ip(), true, connections)
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
