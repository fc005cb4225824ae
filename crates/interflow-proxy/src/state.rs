//! What a worker and its connections share: the state of the server, and the configuration that is active until the
//! next reload.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use interflow_limits::ConnectionLimiter;
use interflow_net::ca::CertificateAuthority;
use interflow_net::egress::dial::{Dialer, DialerOptions};
use interflow_net::egress::{EgressOptions, EgressShared, ExchangeOptions, PoolLimits, UpstreamClient};
use interflow_net::ingress::{Drain, ProcessLookup};
use interflow_types::{ClientInfo, ErrorKind, Result};
use tokio::sync::watch;

use crate::compiled::CompiledConfig;
use crate::downstream::access::{EphemeralCredentials, PrivateAddressFilter};
use crate::downstream::container_lookup::ContainerLookup;
use crate::listener_tls::ListenerTls;
use crate::observe::log_limit::LogLimiter;
use crate::observe::stats::WorkerCounters;
use crate::tunnel::pinning_bypass::PinningBypass;
use crate::upstream::plan::PlanCache;

/// State shared by all workers. Accessed rarely: per connection, not per request.
pub(crate) struct ServerState {
    pub connections: Arc<ConnectionLimiter>,
    pub ephemeral_credentials: EphemeralCredentials,
    pub pinning: PinningBypass,
    pub egress: Arc<EgressShared>,
    /// The number of the next connection, which identifies it in flows and logs.
    pub next_connection: AtomicU64,
    pub processes: ProcessLookup,
    pub containers: ContainerLookup,
    /// Limits the log of connections without the expected PROXY protocol header.
    pub no_header: LogLimiter,
    /// Limits the log of connections that failed for lack of a file descriptor.
    pub no_descriptor: LogLimiter,
}

/// A worker's state until the next reload. A flow keeps the one that it began with.
pub(crate) struct ActiveConfig {
    pub generation: u64,
    pub settings: Arc<CompiledConfig>,
    pub egress: UpstreamClient,
    pub plans: PlanCache,
    pub port_tls: ListenerTls,
}

/// What clients on a listening address expect of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerRole {
    Proxy,
    Gateway,
    Transparent,
    /// A reverse-proxy listener, with the origins' port if one is configured.
    Reverse(Option<u16>),
}

impl ListenerRole {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Gateway => "gateway",
            Self::Transparent => "transparent",
            Self::Reverse(_) => "reverse",
        }
    }
}

impl ActiveConfig {
    pub fn new(generation: u64, settings: Arc<CompiledConfig>, shared: &ServerState, port_tls: ListenerTls) -> Self {
        let egress = Self::egress(&settings, shared, settings.guard.clone());
        Self { generation, settings, egress, plans: PlanCache::default(), port_tls }
    }

    /// An upstream client whose resolved addresses pass through `guard`. Connection limits are shared with all other
    /// clients; the pool is its own.
    pub fn egress(settings: &CompiledConfig, shared: &ServerState, guard: Arc<PrivateAddressFilter>) -> UpstreamClient {
        let config = &settings.config;
        let dialer = Dialer::new(
            settings.resolver.clone(),
            guard,
            DialerOptions {
                connect_timeout: config.timeouts.connect.0,
                proxy_tls: Some(Arc::clone(&settings.tls)),
                ..DialerOptions::default()
            },
        );
        let options = EgressOptions {
            pool: PoolLimits {
                idle_per_host: config.upstream.idle_per_host,
                idle_total: config.upstream.idle_total,
                idle_timeout: config.upstream.idle_timeout.0,
                ..PoolLimits::default()
            },
            exchange: ExchangeOptions {
                head: settings.response_head_limits(),
                head_timeout: config.timeouts.response_header_timeout.0,
                body_timeout: config.timeouts.body_idle_timeout.0,
                ..ExchangeOptions::default()
            },
            tls_timeout: config.timeouts.handshake.0,
            pool_timeout: config.upstream.pool_timeout.0,
        };
        UpstreamClient::new(options, Arc::new(dialer), Arc::clone(&shared.egress))
    }
}

/// One worker: its counters, and the active configuration. The configuration is swapped atomically, so a request that
/// loads it once sees one configuration throughout.
pub(crate) struct ProxyWorker {
    pub counters: Arc<WorkerCounters>,
    pub ca: Arc<CertificateAuthority>,
    pub shared: Arc<ServerState>,
    pub drain: Drain,
    config: ArcSwap<ActiveConfig>,
    /// Notifies whatever watches a login. Each worker has its own, since workers share no lock.
    login_changes: watch::Sender<()>,
}

impl ProxyWorker {
    pub fn new(
        config: ActiveConfig,
        counters: Arc<WorkerCounters>,
        ca: Arc<CertificateAuthority>,
        shared: Arc<ServerState>,
        drain: Drain,
    ) -> Self {
        Self {
            counters,
            ca,
            shared,
            drain,
            config: ArcSwap::from_pointee(config),
            login_changes: watch::Sender::default(),
        }
    }

    pub fn active_config(&self) -> Arc<ActiveConfig> {
        self.config.load_full()
    }

    pub fn reload(&self, config: ActiveConfig) {
        self.config.store(Arc::new(config));
        self.recheck_logins();
    }

    /// Notifies what watches a login that it may have ended.
    pub fn recheck_logins(&self) {
        self.login_changes.send_replace(());
    }

    pub fn login_changes(&self) -> watch::Receiver<()> {
        self.login_changes.subscribe()
    }

    pub fn log_end(&self, client: &ClientInfo, served: Result<()>) {
        if let Err(e) = served {
            let (peer, kind) = (client.peer, e.kind().as_str());
            match e.kind() {
                // No flow records these: the connection ended before a request was read.
                ErrorKind::HeadTooLarge | ErrorKind::Limited => tracing::info!(%peer, kind, "connection refused: {e}"),
                _ => tracing::debug!(%peer, kind, "connection ended: {e}"),
            }
        }
    }
}
