//! The proxy server: binds the listeners, starts the workers, reloads the configuration, shuts down gracefully.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use interflow_limits::{ConnectionLimiter, ConnectionLimits};
use interflow_net::ca::CertificateAuthority;
use interflow_net::egress::EgressShared;
use interflow_net::ingress::{ClientListener, DrainSignal, ListenOptions, ListenSockets};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Error, ErrorKind, FlowId, GatewayMount, Host, Recorder, Request, Response, Result, Stage};
use parking_lot::Mutex;

use crate::compiled::{CompiledConfig, ServerComponents};
use crate::config::{ConfigError, LimitsConfig, ProxyServerConfig};
use crate::downstream::access::EphemeralCredentials;
use crate::http::loop_detection::ViaPseudonym;
use crate::listener_tls::ListenerTls;
use crate::observe::stats::{ServerStats, StatsSnapshot};
use crate::state::{ActiveConfig, ListenerRole, ProxyWorker, ServerState};
use crate::tunnel::pinning_bypass::BypassedClient;
use crate::upstream::local_client::{self, LocalClient, WorkerSet};

pub struct ServerDeps {
    pub ca: Arc<CertificateAuthority>,
    /// Records flows; `None` records nothing.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// The stages, in the order in which they run in every phase. The order is the caller's responsibility.
    pub stages: Vec<Arc<dyn Stage>>,
    /// Components with endpoints on the gateway port, tried in this order after the configured routes.
    pub mounts: Vec<Arc<dyn GatewayMount>>,
    /// Interflow's other listeners, which must not be reachable through the proxy: the admin listener.
    pub own: Vec<SocketAddr>,
    /// The client for Interflow's own requests, which stages and mounts may hold; it works once the server has
    /// started.
    pub local: LocalClient,
    /// Where the listeners' sockets come from.
    pub sockets: Arc<ListenSockets>,
}

/// A running proxy server.
pub struct ProxyServer {
    parts: ServerDeps,
    shared: Arc<ServerState>,
    workers: Arc<WorkerSet>,
    stats: ServerStats,
    /// Announces the shutdown to all connections, which finish their current exchange.
    drain: DrainSignal,
    leaving: AtomicBool,
    addresses: Vec<(ListenerRole, SocketAddr)>,
    pseudonym: ViaPseudonym,
    /// Counts reloads. Whatever is cached per configuration carries the generation that it was made for.
    generation: AtomicU64,
    settings: Mutex<Arc<CompiledConfig>>,
    started: Instant,
}

/// A configuration that was compiled, to be activated.
pub struct PreparedConfig {
    settings: Arc<CompiledConfig>,
    tls: ListenerTls,
}

/// Why the server could not start: the configuration is invalid, an address cannot be bound, or a thread cannot be
/// started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Bind(#[from] Error),
}

impl ProxyServer {
    /// Binds the listeners and starts the workers. When it returns, clients are served.
    ///
    /// # Errors
    /// The configuration is invalid (the error names the key), an address is in use, or a thread cannot be started.
    pub fn start(config: ProxyServerConfig, parts: ServerDeps) -> Result<Arc<Self>, StartError> {
        let count = match config.workers.count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        // Bound first, because the compiled configuration needs the actual ports to detect loops.
        let (addresses, listeners) = bind_all(&config, count, &parts.sockets)?;
        let pseudonym = ViaPseudonym::random();
        let settings = Arc::new(compile_config(&config, &parts, &addresses, &pseudonym)?);
        // Before the first connection, so that no request pays for reading the platform's trust roots.
        settings.preload_roots();
        let shared = Arc::new(new_server_state(&config)?);
        PROCESS_BUDGET.resize(config.limits.held_bytes.0);
        let tls = ListenerTls::load(&config)?;
        let stats = ServerStats::new(count);
        let drain = DrainSignal::new();
        let workers: Vec<_> = (0..count)
            .map(|i| {
                // Each worker has its own plans and pools; only the compiled settings are shared.
                let config = ActiveConfig::new(0, Arc::clone(&settings), &shared, tls.clone());
                let (ca, shared) = (Arc::clone(&parts.ca), Arc::clone(&shared));
                Arc::new(ProxyWorker::new(config, stats.worker(i), ca, shared, drain.drain()))
            })
            .collect();
        let ready = listeners.into_iter().map(worker_runtime).collect::<Result<Vec<_>, _>>()?;
        let runtimes = ready.iter().map(|(runtime, _)| runtime.handle().clone()).collect();
        let listeners = parts.own.iter().copied().chain(addresses.iter().map(|(_, a)| *a)).collect();
        let workers = Arc::new(WorkerSet { workers, runtimes, listeners });
        // Before the first connection: components may send requests of their own to serve a client's.
        parts.local.attach(&workers);
        for (i, (worker, ready)) in workers.workers.iter().zip(ready).enumerate() {
            spawn_worker(i, config.workers.cpu_affinity, Arc::clone(worker), ready)?;
        }
        Ok(Arc::new(Self {
            parts,
            shared,
            workers,
            stats,
            drain,
            leaving: AtomicBool::new(false),
            addresses,
            pseudonym,
            generation: AtomicU64::new(0),
            settings: Mutex::new(settings),
            started: Instant::now(),
        }))
    }

    /// Compiles another configuration and reads the files that it names, without activating it.
    ///
    /// # Errors
    /// The configuration or a file is invalid.
    pub fn prepare(&self, config: &ProxyServerConfig) -> Result<PreparedConfig, ConfigError> {
        let settings = Arc::new(compile_config(config, &self.parts, &self.addresses, &self.pseudonym)?);
        Ok(PreparedConfig { settings, tls: ListenerTls::load(config)? })
    }

    /// Activates a prepared configuration. Listeners and workers stay; flows in progress keep the configuration they
    /// began with, but end if their user is no longer valid.
    pub fn activate(&self, PreparedConfig { settings, tls }: PreparedConfig) {
        let limits = &settings.config.limits;
        self.shared.connections.replace_limits(connection_limits(limits));
        PROCESS_BUDGET.resize(limits.held_bytes.0);
        let mut active = self.settings.lock();
        self.replace_active(&settings, |_| tls.clone());
        *active = settings;
    }

    /// [Prepares](Self::prepare) a configuration and activates it.
    ///
    /// # Errors
    /// The configuration is invalid: the old one stays active.
    pub fn reload(&self, config: ProxyServerConfig) -> Result<(), ConfigError> {
        self.activate(self.prepare(&config)?);
        Ok(())
    }

    /// Drops all cached plans, because a stage has changed what it is interested in. The configuration stays.
    pub fn drop_plans(&self) {
        let active = self.settings.lock();
        self.replace_active(&active, |worker| worker.active_config().port_tls.clone());
    }

    /// To be called with the lock of the settings, so that all workers end with the same ones.
    fn replace_active(&self, settings: &Arc<CompiledConfig>, tls: impl Fn(&ProxyWorker) -> ListenerTls) {
        // Cached plans and filtered clients of older generations are not used any more.
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        // One worker after the other: for a moment, new connections may still get the old configuration.
        for worker in &self.workers.workers {
            worker.reload(ActiveConfig::new(generation, Arc::clone(settings), &self.shared, tls(worker)));
        }
    }

    /// The bound addresses of the proxy port: port 0 in the configuration is replaced by the actual port.
    pub fn proxy_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(ListenerRole::Proxy)
    }

    pub fn gateway_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(ListenerRole::Gateway)
    }

    pub fn transparent_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(ListenerRole::Transparent)
    }

    pub fn reverse_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().filter(|(r, _)| matches!(r, ListenerRole::Reverse(_))).map(|(_, a)| *a).collect()
    }

    fn addresses_of(&self, role: ListenerRole) -> Vec<SocketAddr> {
        self.addresses.iter().filter(|(r, _)| *r == role).map(|(_, a)| *a).collect()
    }

    pub fn ca(&self) -> &Arc<CertificateAuthority> {
        &self.parts.ca
    }

    pub fn config(&self) -> ProxyServerConfig {
        self.settings.lock().config.clone()
    }

    /// Issues a password for a program that the operator starts, under this user name: valid until it is revoked, or
    /// unused for a day. Connections that authenticate with it never get a pinning bypass, and all current bypasses
    /// are cleared.
    pub fn issue_credential(&self, name: &str) -> String {
        self.clear_bypass(None);
        let password = self.shared.ephemeral_credentials.issue(name, Instant::now());
        // Older ones may have freed capacity.
        self.recheck_logins();
        password
    }

    /// Ends the credentials, and what was opened with them: tunnels, WebSockets, responses in progress.
    pub fn revoke_credential(&self, name: &str, password: &str) {
        self.shared.ephemeral_credentials.revoke(name, password);
        self.recheck_logins();
    }

    fn recheck_logins(&self) {
        self.workers.workers.iter().for_each(|worker| worker.recheck_logins());
    }

    pub fn snapshot(&self) -> StatsSnapshot {
        let mut s = self.stats.snapshot();
        s.connections_open = self.shared.connections.open_count() as u64;
        let pools = self.workers.workers.iter().map(|w| w.active_config().egress.idle_connections() as u64);
        s.idle_upstream_connections = pools.sum();
        s.cached_names = self.settings.lock().resolver.cached_names() as u64;
        s
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether shutdown has begun or been announced: `/readyz` then answers 503.
    pub fn is_draining(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.drain.drain().is_draining()
    }

    /// Announces shutdown while connections are still accepted, so that load balancers notice before the port closes.
    pub fn begin_shutdown(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.open_count()
    }

    /// Programs whose TLS is passed through without inspection because they refuse Interflow's certificate.
    pub fn bypassed_clients(&self) -> Vec<BypassedClient> {
        self.shared.pinning.bypassed_clients()
    }

    /// Ends the pinning bypass of all clients, or for one host. Returns how many there were.
    pub fn clear_bypass(&self, host: Option<&Host>) -> usize {
        self.shared.pinning.clear(host)
    }

    /// Sends a request that the operator chose as a flow of its own: a replay of `parent`, or a composed request. The
    /// flow is recorded even if the request fails. To record the whole response, read its body to the end.
    ///
    /// # Errors
    /// As for a client's request.
    pub async fn send(&self, request: Request, parent: Option<FlowId>) -> (FlowId, Result<Response>) {
        let (id, sent) = self.parts.local.send_chosen(request, parent);
        (id, sent.await.map(|(response, _)| response))
    }

    pub fn local_client(&self) -> &LocalClient {
        &self.parts.local
    }

    fn ending_flows(&self) -> i64 {
        self.workers.workers.iter().map(|worker| worker.counters.ending.load(Ordering::Relaxed)).sum()
    }

    /// Shuts down: accepts nothing new, lets flows finish for at most `proxy.drain_timeout`, then ends.
    pub async fn stop(&self) {
        let patience = self.config().proxy.drain_timeout.0;
        self.drain.start();
        let deadline = Instant::now() + patience;
        // Polled, because connections end in many places; 20 ms is short beside the time that draining takes.
        let pause = || tokio::time::sleep(Duration::from_millis(20));
        while (self.shared.connections.open_count() > 0 || self.ending_flows() > 0) && Instant::now() < deadline {
            pause().await;
        }
        // What is left of them is recorded without the work that they wait for.
        let deadline = Instant::now() + END_TIMEOUT;
        while self.ending_flows() > 0 && Instant::now() < deadline {
            self.workers.workers.iter().for_each(|worker| worker.counters.end_now.notify_waiters());
            pause().await;
        }
        let open = self.shared.connections.open_count();
        if open > 0 {
            tracing::warn!("{open} connections were closed after draining for {patience:?}");
        }
    }
}

/// How long flows whose work is given up have to be recorded.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds the listeners of a configuration, and closes them again unless they are those of `sockets`.
///
/// # Errors
/// An address is in use or not available.
pub fn try_bind(config: &ProxyServerConfig, sockets: &ListenSockets) -> Result<(), Error> {
    bind_all(config, 1, sockets).map(drop)
}

fn compile_config(
    config: &ProxyServerConfig,
    parts: &ServerDeps,
    bound: &[(ListenerRole, SocketAddr)],
    pseudonym: &ViaPseudonym,
) -> Result<CompiledConfig, ConfigError> {
    let own = parts.own.iter().copied().chain(bound.iter().map(|(_, a)| *a)).collect();
    let components = ServerComponents {
        stages: parts.stages.clone(),
        mounts: parts.mounts.clone(),
        recorder: parts.recorder.clone(),
        pseudonym: pseudonym.clone(),
    };
    CompiledConfig::new(config.clone(), own, components)
}

fn new_server_state(config: &ProxyServerConfig) -> Result<ServerState, ConfigError> {
    Ok(ServerState {
        ephemeral_credentials: EphemeralCredentials::default(),
        connections: ConnectionLimiter::new(connection_limits(&config.limits)),
        pinning: Default::default(),
        // 0 in the configuration means no limit.
        egress: EgressShared::new(u32::try_from(config.upstream.max_connections_per_host).ok().filter(|n| *n > 0)),
        next_connection: AtomicU64::new(1),
        processes: Default::default(),
        containers: Default::default(),
        no_header: Default::default(),
        no_descriptor: Default::default(),
    })
}

fn connection_limits(limits: &LimitsConfig) -> ConnectionLimits {
    ConnectionLimits {
        total: limits.connections,
        per_client: limits.connections_per_client,
        accept_per_second: limits.accept_rate,
    }
}

type BoundListeners = Vec<(ListenerRole, SocketAddr)>;

type WorkerListeners = Vec<(ListenerRole, std::net::TcpListener)>;

/// One listener per address and worker. The first worker's bind resolves port 0.
fn bind_all(
    config: &ProxyServerConfig,
    workers: usize,
    sockets: &ListenSockets,
) -> Result<(BoundListeners, Vec<WorkerListeners>), Error> {
    let mut addresses = Vec::new();
    let mut all: Vec<WorkerListeners> = (0..workers).map(|_| Vec::new()).collect();
    let of = |role: ListenerRole, list: &[SocketAddr]| list.iter().map(|a| (role, *a)).collect::<Vec<_>>();
    let listeners = [
        of(ListenerRole::Proxy, &config.proxy.listen),
        of(ListenerRole::Gateway, &config.gateway.listen),
        of(ListenerRole::Transparent, &config.proxy.transparent),
        config.proxy.reverse.iter().map(|r| (ListenerRole::Reverse(r.port), r.listen)).collect(),
    ];
    for (role, addr) in listeners.concat() {
        let options = ListenOptions { transparent: role == ListenerRole::Transparent, ..ListenOptions::new(addr) };
        let bound = sockets.bind_for_workers(role.as_str(), &options, workers)?;
        let addr =
            bound[0].local_addr().map_err(|e| Error::new(ErrorKind::Internal, "no local address").with_source(e))?;
        for (i, listener) in bound.into_iter().enumerate() {
            all[i % workers].push((role, listener));
        }
        addresses.push((role, addr));
    }
    Ok((addresses, all))
}

type ReadyWorker = (tokio::runtime::Runtime, Vec<(ListenerRole, ClientListener)>);

fn worker_failed(e: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "a worker could not be started").with_source(e)
}

fn worker_runtime(listeners: WorkerListeners) -> Result<ReadyWorker, Error> {
    // Single-threaded: what a worker's connections share needs no lock against other threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(worker_failed)?;
    let listeners = {
        // Registering a socket needs the runtime's reactor.
        let _inside = runtime.enter();
        let ready = |(role, listener)| ClientListener::from_std(listener).map(|l| (role, l));
        listeners.into_iter().map(ready).collect::<std::io::Result<Vec<_>>>().map_err(worker_failed)?
    };
    Ok((runtime, listeners))
}

fn spawn_worker(index: usize, pin: bool, worker: Arc<ProxyWorker>, ready: ReadyWorker) -> Result<(), Error> {
    let (runtime, listeners) = ready;
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            if pin {
                pin_to_processor(index);
            }
            local_client::set_current_worker(&worker);
            runtime.block_on(async move {
                for (role, listener) in listeners {
                    tokio::spawn(Arc::clone(&worker).accept(listener, role));
                }
                // The thread lives as long as the process: connections and pools belong to its runtime.
                std::future::pending::<()>().await;
            });
        })
        .map(drop)
        .map_err(worker_failed)
}

fn pin_to_processor(index: usize) {
    // More workers than processors wrap around.
    let processors = core_affinity::get_core_ids().unwrap_or_default();
    let pinned = processors.get(index % processors.len().max(1)).is_some_and(|p| core_affinity::set_for_current(*p));
    if !pinned {
        tracing::warn!("worker {index} could not be pinned to a processor (workers.cpu_affinity)");
    }
}
