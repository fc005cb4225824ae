//! The engine: binds the listeners, starts the workers, reloads, and stops in good order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use interflow_flow::budget::HELD;
use interflow_flow::{
    ClientInfo, Egress as Door, Error, Flow, FlowId, Host, Kind, Mount, NotRecorded, Recorder, Reply, Request,
    Response, Result, Stage, Timestamp, Transport,
};
use interflow_limits::{ConnectionLimits, Connections};
use interflow_net::ca::Ca;
use interflow_net::egress::{Egress, EgressShared};
use interflow_net::ingress::{DrainSignal, ListenOptions, Listener, bind};
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::access::{Guard, Passes};
use crate::config::{EngineConfig, LimitsConfig};
use crate::conn::{Conn, Entry};
use crate::guarded::{self, GuardedEgress};
use crate::internal;
use crate::loops::Pseudonym;
use crate::pinning::Passing;
use crate::settings::{ConfigError, Rooms, Settings};
use crate::stats::{Snapshot, Stats};
use crate::unrecorded::UnrecordedEgress;
use crate::worker::{Live, PortTls, Role, Shared, Worker};

/// What the engine is given besides its config.
pub struct Parts {
    /// The certificate authority.
    pub ca: Arc<Ca>,
    /// Who keeps what passes.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// The stages in their order.
    pub stages: Vec<Arc<dyn Stage>>,
    /// The rooms with doors on the gateway port, asked in this order after the owner's routes.
    pub mounts: Vec<Arc<dyn Mount>>,
    /// Addresses of our own that must not be reached through the proxy: the admin listener's.
    pub own: Vec<SocketAddr>,
}

/// The running corridor.
pub struct Engine {
    parts: Parts,
    shared: Arc<Shared>,
    workers: Vec<Arc<Worker>>,
    runtimes: Vec<tokio::runtime::Handle>,
    stats: Stats,
    drain: DrainSignal,
    leaving: AtomicBool,
    addresses: Vec<(Role, SocketAddr)>,
    pseudonym: Pseudonym,
    generation: AtomicU64,
    settings: Mutex<Arc<Settings>>,
    started: Instant,
}

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on, or the machine gives no threads.
    #[error(transparent)]
    Bind(#[from] Error),
}

impl Engine {
    /// Binds and starts. When this returns, clients are served.
    ///
    /// # Errors
    /// A config that is wrong, naming the key; an address that is taken.
    pub fn start(config: EngineConfig, parts: Parts) -> Result<Arc<Self>, StartError> {
        let count = match config.workers.count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let (addresses, listeners) = bind_all(&config, count)?;
        let pseudonym = Pseudonym::random();
        let settings = Arc::new(settings(&config, &parts, &addresses, &pseudonym)?);
        settings.warm();
        let shared = Arc::new(shared(&config)?);
        HELD.set_limit(config.limits.held_bytes.0);
        let tls = PortTls::load(&config)?;
        let stats = Stats::new(count);
        let drain = DrainSignal::new();
        let workers: Vec<_> = (0..count)
            .map(|i| {
                let live = Live::new(0, Arc::clone(&settings), &shared, tls.clone());
                let (ca, shared) = (Arc::clone(&parts.ca), Arc::clone(&shared));
                Arc::new(Worker::new(live, stats.worker(i), ca, shared, drain.drain()))
            })
            .collect();
        let mut runtimes = Vec::new();
        for (i, (worker, listeners)) in workers.iter().zip(listeners).enumerate() {
            let handle = spawn_worker(i, config.workers.pin, Arc::clone(worker), listeners)?;
            runtimes.push(handle);
        }
        Ok(Arc::new(Self {
            parts,
            shared,
            workers,
            runtimes,
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

    /// Puts another config in force, users file and all. Listeners and workers stay as they are; flows under way keep
    /// what they began with.
    ///
    /// # Errors
    /// A config that is wrong: the old one stays in force.
    pub fn reload(&self, config: EngineConfig) -> Result<(), ConfigError> {
        let settings = Arc::new(settings(&config, &self.parts, &self.addresses, &self.pseudonym)?);
        let tls = PortTls::load(&config)?;
        self.shared.connections.set(connection_limits(&config.limits));
        HELD.set_limit(config.limits.held_bytes.0);
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        for worker in &self.workers {
            worker.reload(Live::new(generation, Arc::clone(&settings), &self.shared, tls.clone()));
        }
        *self.settings.lock() = settings;
        Ok(())
    }

    /// The addresses of the proxy port, with the ports that were really bound.
    pub fn proxy_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(Role::Proxy)
    }

    /// The addresses of the gateway port, with the ports that were really bound.
    pub fn gateway_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(Role::Gateway)
    }

    /// The addresses that take redirected connections, with the ports that were really bound.
    pub fn transparent_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_of(Role::Transparent)
    }

    /// The addresses of clients that take us for the origin, with the ports that were really bound.
    pub fn reverse_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().filter(|(r, _)| matches!(r, Role::Reverse(_))).map(|(_, a)| *a).collect()
    }

    fn addresses_of(&self, role: Role) -> Vec<SocketAddr> {
        self.addresses.iter().filter(|(r, _)| *r == role).map(|(_, a)| *a).collect()
    }

    /// The certificate authority.
    pub fn ca(&self) -> &Arc<Ca> {
        &self.parts.ca
    }

    /// The config in force.
    pub fn config(&self) -> EngineConfig {
        self.settings.lock().config.clone()
    }

    /// The password of a new pass for a program that the operator starts, under this user's name: good until it is taken back,
    /// or nobody shows it for a day. What shows it is never passed through uninspected because it refuses our certificate, and
    /// whoever passes for that reason is intercepted again.
    pub fn issue_pass(&self, name: &str) -> String {
        self.forget_passing(None);
        self.shared.passes.issue(name, Instant::now())
    }

    /// Takes a pass back.
    pub fn revoke_pass(&self, name: &str, password: &str) {
        self.shared.passes.revoke(name, password);
    }

    /// What was counted until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut s = self.stats.snapshot();
        s.connections_open = self.shared.connections.open() as u64;
        s
    }

    /// How long the engine has run.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it has begun to stop, or is about to.
    pub fn is_draining(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.drain.drain().is_draining()
    }

    /// Says that it is about to stop, while everything is still accepted.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// How many connections of clients are open.
    pub fn connections(&self) -> usize {
        self.shared.connections.open()
    }

    /// Programs whose TLS passes uninspected because they refuse our certificate.
    pub fn passing(&self) -> Vec<Passing> {
        self.shared.pinning.passing()
    }

    /// Intercepts those programs again, or their connections to one host. Says how many passed.
    pub fn forget_passing(&self, host: Option<&Host>) -> usize {
        self.shared.pinning.forget(host)
    }

    /// Sends a request as a flow of its own, made from `parent` when that is given. The flow is there, with its error,
    /// when the request fails too. Whoever wants the response recorded whole reads its body to the end.
    ///
    /// # Errors
    /// As any request's.
    pub async fn send(&self, request: Request, parent: Option<FlowId>) -> (FlowId, Result<Response>) {
        let (worker, runtime) = (Arc::clone(&self.workers[0]), &self.runtimes[0]);
        let client = Arc::new(internal_client(&worker));
        let url = &request.head.url;
        let mut flow = Flow::begin(Arc::clone(&client), Transport::Internal, url.scheme, url.authority.clone());
        flow.parent = parent;
        if parent.is_some() {
            flow.tag("replay");
        }
        let id = flow.id;
        let sent = runtime.spawn(async move {
            let conn = Conn::new(Arc::clone(&worker), client, Entry::Proxy, None);
            let live = worker.live();
            internal::send_own(&conn, Arc::clone(&live), &live.egress, Box::new(flow), request).await
        });
        let ended = |e| Err(Error::new(Kind::Internal, "the request's task ended early").because(e));
        (id, sent.await.unwrap_or_else(ended))
    }

    /// A way out for what outsiders ask to be fetched: private, loopback, link-local and other special addresses, and
    /// our own listeners, are refused after DNS. `allow` names those that may be reached all the same, `key` the key
    /// of the configuration that says so.
    pub fn guarded_egress(self: &Arc<Self>, allow: Vec<IpNet>, key: &'static str) -> Arc<dyn Door> {
        Arc::new(GuardedEgress::new(self, allow, key))
    }

    /// The egress to the metadata services of clouds, which are at link-local and loopback addresses whatever
    /// `access.deny_private` says. Nothing that a client chose may be sent over it.
    pub fn metadata_egress(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(GuardedEgress::for_metadata(self))
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn own_addresses(&self) -> Vec<SocketAddr> {
        self.parts.own.iter().copied().chain(self.addresses.iter().map(|(_, a)| *a)).collect()
    }

    /// The worker whose thread this is.
    pub(crate) fn here(&self) -> Option<usize> {
        guarded::here(&self.workers)
    }

    pub(crate) fn live(&self, worker: usize) -> Arc<Live> {
        self.workers[worker].live()
    }

    pub(crate) fn egress_with(&self, live: &Live, guard: Arc<Guard>) -> Egress {
        Live::egress(&live.settings, &self.shared, guard)
    }

    /// Sends a request as a flow of its own over another way out than the worker's: on this worker, when the thread is
    /// one's, else on the first.
    pub(crate) async fn send_over(
        &self,
        here: Option<usize>,
        live: Arc<Live>,
        egress: Arc<Egress>,
        request: Request,
        note: impl FnOnce(&mut Flow),
    ) -> Result<Response> {
        let index = here.unwrap_or(0);
        let worker = Arc::clone(&self.workers[index]);
        let client = Arc::new(internal_client(&worker));
        let url = &request.head.url;
        let mut flow = Flow::begin(Arc::clone(&client), Transport::Internal, url.scheme, url.authority.clone());
        note(&mut flow);
        let conn = Conn::new(worker, client, Entry::Proxy, None);
        let send = async move { internal::send_own(&conn, live, &egress, Box::new(flow), request).await };
        if here.is_some() {
            return send.await;
        }
        let ended = |e| Err(Error::new(Kind::Internal, "the request's task ended early").because(e));
        self.runtimes[index].spawn(send).await.unwrap_or_else(ended)
    }

    /// A way out for calls that no recorder may be shown, such as texts that are yet to be redacted.
    pub fn unrecorded_egress(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(UnrecordedEgress(Arc::downgrade(self)))
    }

    pub(crate) async fn send_unrecorded(&self, request: Request) -> Result<Response> {
        let here = self.here();
        let index = here.unwrap_or(0);
        let worker = Arc::clone(&self.workers[index]);
        let client = Arc::new(internal_client(&worker));
        let url = &request.head.url;
        let mut flow = Flow::begin(Arc::clone(&client), Transport::Internal, url.scheme, url.authority.clone());
        flow.note_mut::<NotRecorded>();
        let live = worker.live();
        let conn = Conn::new(worker, client, Entry::Proxy, None);
        let send =
            async move { internal::send_own(&conn, Arc::clone(&live), &live.egress, Box::new(flow), request).await };
        if here.is_some() {
            return send.await;
        }
        let ended = |e| Err(Error::new(Kind::Internal, "the request's task ended early").because(e));
        self.runtimes[index].spawn(send).await.unwrap_or_else(ended)
    }

    /// Stops: takes nothing new, lets what is under way finish for at most the config's `proxy.drain`, then ends.
    pub async fn stop(&self) {
        let patience = self.config().proxy.drain.0;
        self.drain.start();
        let deadline = Instant::now() + patience;
        while self.shared.connections.open() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left = self.shared.connections.open();
        if left > 0 {
            tracing::warn!("{left} connections were cut after {patience:?} of draining");
        }
    }
}

impl Door for Engine {
    fn send(&self, request: Request) -> Reply<'_> {
        Box::pin(async move { Self::send(self, request, None).await.1 })
    }
}

fn internal_client(worker: &Worker) -> ClientInfo {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    ClientInfo {
        connection: worker.shared.next_connection.fetch_add(1, Ordering::Relaxed),
        peer: nowhere,
        local: nowhere,
        listener: "internal".into(),
        accepted: Timestamp::now(),
        container: None,
        process: None,
    }
}

fn settings(
    config: &EngineConfig,
    parts: &Parts,
    bound: &[(Role, SocketAddr)],
    pseudonym: &Pseudonym,
) -> Result<Settings, ConfigError> {
    let own = parts.own.iter().copied().chain(bound.iter().map(|(_, a)| *a)).collect();
    let rooms = Rooms {
        stages: parts.stages.clone(),
        mounts: parts.mounts.clone(),
        recorder: parts.recorder.clone(),
        pseudonym: pseudonym.clone(),
    };
    Settings::new(config.clone(), own, rooms)
}

fn shared(config: &EngineConfig) -> Result<Shared, ConfigError> {
    Ok(Shared {
        passes: Passes::default(),
        connections: Connections::new(connection_limits(&config.limits)),
        pinning: Default::default(),
        egress: EgressShared::new(u32::try_from(config.upstream.connections_per_host).ok().filter(|n| *n > 0)),
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
        accept_per_second: limits.accepts_per_second,
    }
}

/// What was bound, and for which role.
type Bound = Vec<(Role, SocketAddr)>;

/// What each worker listens on.
type Listeners = Vec<(Role, std::net::TcpListener)>;

/// One listener per address and worker. The first worker's binding fixes a port that was given as 0.
fn bind_all(config: &EngineConfig, workers: usize) -> Result<(Bound, Vec<Listeners>), Error> {
    let mut addresses = Vec::new();
    let mut all: Vec<Listeners> = (0..workers).map(|_| Vec::new()).collect();
    let of = |role: Role, list: &[SocketAddr]| list.iter().map(|a| (role, *a)).collect::<Vec<_>>();
    let wanted = [
        of(Role::Proxy, &config.proxy.listen),
        of(Role::Gateway, &config.gateway.listen),
        of(Role::Transparent, &config.proxy.transparent),
        config.proxy.reverse.iter().map(|r| (Role::Reverse(r.port), r.listen)).collect(),
    ];
    for (role, addr) in wanted.concat() {
        // Another program's socket with SO_REUSEPORT would silently share our port: ask without it first.
        if addr.port() != 0 {
            drop(bind(&ListenOptions { reuse_port: false, ..ListenOptions::new(addr) })?);
        }
        let mut options = ListenOptions {
            reuse_port: workers > 1,
            transparent: role == Role::Transparent,
            ..ListenOptions::new(addr)
        };
        for listeners in &mut all {
            let listener = bind(&options)?;
            options.addr =
                listener.local_addr().map_err(|e| Error::new(Kind::Internal, "no local address").because(e))?;
            listeners.push((role, listener));
        }
        addresses.push((role, options.addr));
    }
    Ok((addresses, all))
}

fn spawn_worker(
    index: usize,
    pin: bool,
    worker: Arc<Worker>,
    listeners: Listeners,
) -> Result<tokio::runtime::Handle, Error> {
    let failed = |e: std::io::Error| Error::new(Kind::Internal, "a worker could not be started").because(e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let listeners = {
        let _inside = runtime.enter();
        let ready = |(role, listener)| Listener::from_std(listener).map(|l| (role, l));
        listeners.into_iter().map(ready).collect::<std::io::Result<Vec<_>>>().map_err(failed)?
    };
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            if pin {
                pin_to_processor(index);
            }
            guarded::enter(&worker);
            runtime.block_on(async move {
                for (role, listener) in listeners {
                    tokio::spawn(Arc::clone(&worker).accept(listener, role));
                }
                std::future::pending::<()>().await;
            });
        })
        .map_err(failed)?;
    Ok(handle)
}

fn pin_to_processor(index: usize) {
    let processors = core_affinity::get_core_ids().unwrap_or_default();
    let pinned = processors.get(index % processors.len().max(1)).is_some_and(|p| core_affinity::set_for_current(*p));
    if !pinned {
        tracing::warn!("worker {index} could not be tied to a processor (workers.pin)");
    }
}
