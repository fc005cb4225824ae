//! Interflow's own HTTP client: for replays, and for the requests of its components. It exists before the server
//! starts, so that components can be built with it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use futures_util::future::{Either, ready};
use interflow_net::egress::{UpstreamClient, UpstreamReport};
use interflow_net::io::IoStream;
use interflow_net::tls::{self, Alpn};
use interflow_tasks::AbortOnDrop;
use interflow_types::{
    AttemptHandle, Authority, ByteStr, ClientInfo, EntryKind, Error, ErrorKind, Flow, FlowClock, FlowId, FlowTimings,
    HttpClient, NotRecorded, Request, Response, ResponseFuture, Result, Scheme, SecretBodies, Timestamp,
};
use ipnet::IpNet;
use tokio::io::DuplexStream;
use tokio::sync::SetOnce;

use crate::downstream::access::{PrivateAddressFilter, UnresolvedNames};
use crate::downstream::connection::{ClientConnection, ConnectionKind};
use crate::state::{ActiveConfig, ProxyWorker};
use crate::upstream::local_request::{LocalRequest, send_local};

/// Addresses of cloud metadata services, and of their agents on this machine: link-local (IPv4), the unique local
/// prefix that AWS uses for IPv6, and loopback.
const METADATA_NETS: [&str; 4] = ["169.254.0.0/16", "fd00:ec2::/32", "127.0.0.0/8", "::1/128"];

thread_local! {
    static CURRENT_WORKER: RefCell<Weak<ProxyWorker>> = const { RefCell::new(Weak::new()) };
}

pub(crate) fn set_current_worker(worker: &Arc<ProxyWorker>) {
    CURRENT_WORKER.with(|here| *here.borrow_mut() = Arc::downgrade(worker));
}

/// The workers of a server, as its own requests need them: a request runs on a worker, because pools belong to its
/// runtime.
pub(crate) struct WorkerSet {
    pub workers: Vec<Arc<ProxyWorker>>,
    /// The runtime of each worker.
    pub runtimes: Vec<tokio::runtime::Handle>,
    /// Interflow's own listeners, which filtered requests must not reach.
    pub listeners: Vec<SocketAddr>,
}

impl WorkerSet {
    /// The index of this thread's worker, if it is one of these.
    fn current(&self) -> Option<usize> {
        // `None` on other threads, and on workers of another server in the same process (tests).
        let here = CURRENT_WORKER.with(|here| here.borrow().upgrade())?;
        self.workers.iter().position(|w| Arc::ptr_eq(w, &here))
    }
}

/// A response; and the client's end of the connection, if the origin switched protocols.
pub type SendResult = Result<(Response, Option<DuplexStream>)>;

/// Sends Interflow's own requests: on the calling thread's worker, or else on the first. Each is a flow, and recorded
/// like a client's unless the client is [unrecorded](Self::unrecorded). Redirects are not followed.
///
/// A client belongs to the server that is started with it, or with the client that it was derived from
/// ([`ServerDeps::local`](crate::ServerDeps::local)). Until then, and after the server has stopped, requests fail. It
/// does not keep the server alive.
#[derive(Clone, Default)]
pub struct LocalClient {
    workers: Arc<SetOnce<Weak<WorkerSet>>>,
    is_unrecorded: bool,
    has_secret_bodies: bool,
    /// No upstream proxy is used.
    is_direct: bool,
    filter: Option<Arc<AddressFilter>>,
}

impl LocalClient {
    /// A client whose requests are not recorded, such as those with text that is still to be redacted.
    pub fn unrecorded(&self) -> Self {
        Self { is_unrecorded: true, ..self.clone() }
    }

    /// A client for keys and licences: of the bodies of its requests only the sizes are recorded. It shares the
    /// connections of this one.
    pub fn with_secret_bodies(&self) -> Self {
        Self { has_secret_bodies: true, ..self.clone() }
    }

    /// A client for URLs that outsiders supply: private, loopback, link-local and other special-purpose addresses,
    /// and Interflow's own listeners, are refused after DNS resolution. `allow` lists exceptions, `key` is the
    /// configuration key that sets them. Names that only an upstream proxy can resolve are left to it, unless they are
    /// names of private networks; `access.allow_unresolved` allows these too. The caller sends each hop of a redirect as a request, which is filtered
    /// again.
    pub fn filtered(&self, allow: Vec<IpNet>, key: &'static str) -> Self {
        let filter = AddressFilter { allow, key, clients: OnceLock::new() };
        Self { filter: Some(Arc::new(filter)), ..self.clone() }
    }

    /// A client for cloud metadata services, at link-local and loopback addresses, regardless of
    /// `access.deny_private`, which no other request may reach. It uses no upstream proxy, which would reach its own
    /// machine's service, and records nothing, because the responses are credentials. Never send anything over it
    /// that a client chose.
    pub fn metadata(&self) -> Self {
        let nets = METADATA_NETS.iter().filter_map(|net| net.parse().ok()).collect();
        Self { is_direct: true, ..self.unrecorded().filtered(nets, "no key") }
    }

    /// Attaches the workers of the started server. A client serves the first server that is started with it.
    pub(crate) fn attach(&self, workers: &Arc<WorkerSet>) {
        let _ = self.workers.set(Arc::downgrade(workers));
    }

    fn workers(&self) -> Result<Arc<WorkerSet>> {
        self.workers.get().and_then(Weak::upgrade).ok_or_else(|| {
            let text = "the proxy is not running yet (or is shutting down); internal requests are unavailable";
            Error::new(ErrorKind::Internal, text)
        })
    }

    /// Sends a request that the operator chose, as a flow of its own: a replay of `parent`, or a composed request. The
    /// stages that control what may be reached decide about it. The flow is recorded even if the request fails. To
    /// record the whole response, read its body to the end.
    ///
    /// If the request has `protocol`, and the origin switches protocols, the response comes with the client's end of the
    /// connection, which is recorded like a client's.
    ///
    /// # Errors
    /// As for a client's request.
    pub fn send_chosen(
        &self,
        request: Request,
        parent: Option<FlowId>,
    ) -> (FlowId, impl Future<Output = SendResult> + Send + use<>) {
        self.send_flow(request, FlowOrigin { parent, is_chosen: true, ..FlowOrigin::default() }, None)
    }

    fn send_flow(
        &self,
        request: Request,
        origin: FlowOrigin,
        until: Option<Instant>,
    ) -> (FlowId, impl Future<Output = SendResult> + Send + use<>) {
        let workers = match self.workers() {
            Ok(workers) => workers,
            Err(e) => return (FlowId::new(Timestamp::now()), Either::Left(ready(Err(e)))),
        };
        let here = workers.current();
        // Any worker would do; the first exists always.
        let index = here.unwrap_or(0);
        let worker = Arc::clone(&workers.workers[index]);
        let config = worker.active_config();
        let filtered = self.filter.as_ref().map(|filter| filter.client(&workers, index, &config));
        let is_chosen = origin.is_chosen;
        let (flow, client) = self.begin_flow(&worker, &request, origin);
        let id = flow.id;
        let is_direct = self.is_direct;
        let send = async move {
            let conn = ClientConnection::new(worker, client, ConnectionKind::Proxy, None);
            let egress = filtered.as_deref().unwrap_or(&config.egress);
            send_local(
                LocalRequest { conn: &conn, config: &config, egress, flow, is_direct, is_chosen, until },
                request,
            )
            .await
        };
        // Pooled connections belong to their worker's runtime, so a request from another thread runs as a task there, which
        // is cancelled with the caller's future.
        let runtime = here.is_none().then(|| workers.runtimes[index].clone());
        let ended = |e| Err(Error::new(ErrorKind::Internal, "the request's task ended early").with_source(e));
        let send = async move {
            match runtime {
                None => send.await,
                Some(runtime) => AbortOnDrop(runtime.spawn(send)).await.unwrap_or_else(ended),
            }
        };
        (id, Either::Right(send))
    }

    /// A component's request, which does not switch protocols.
    fn send_own(&self, request: Request, origin: FlowOrigin, until: Option<Instant>) -> ResponseFuture<'_> {
        Box::pin(async move { Ok(self.send_flow(request, origin, until).1.await?.0) })
    }

    fn begin_flow(&self, worker: &ProxyWorker, request: &Request, origin: FlowOrigin) -> (Box<Flow>, Arc<ClientInfo>) {
        let client = Arc::new(internal_client(worker));
        let url = &request.head.url;
        let mut flow = Flow::begin(Arc::clone(&client), EntryKind::Internal, url.scheme, url.authority.clone());
        let FlowOrigin { parent, is_chosen, tags, attempt } = origin;
        // Only replays have a parent.
        flow.parent = parent;
        match parent {
            Some(_) => flow.tag("replay"),
            None if is_chosen => flow.tag("composed"),
            None => {}
        }
        tags.into_iter().for_each(|tag| flow.tag(tag));
        if self.is_unrecorded || attempt.is_some() {
            flow.extension_mut::<NotRecorded>();
        }
        if self.has_secret_bodies {
            flow.extension_mut::<SecretBodies>();
        }
        if let Some(attempt) = attempt {
            *flow.extension_mut() = attempt;
        }
        (Box::new(flow), client)
    }

    /// Connects to an authority, through the configured upstream proxies, and opens TLS as to an origin, offering
    /// HTTP/1.1: for a protocol other than HTTP. Waits until the server has started, since components connect while
    /// the configuration is read; the caller bounds the wait. The connection belongs to the calling runtime.
    ///
    /// # Errors
    /// Any failure of an upstream request: DNS, connection, certificate.
    pub async fn open_tls(&self, authority: &Authority) -> Result<IoStream> {
        self.workers.wait().await;
        let config = self.workers()?.workers[0].active_config();
        let route = config.settings.route(Scheme::Https, authority, None);
        let (clock, mut timings, mut upstream) = (FlowClock::start(), FlowTimings::default(), None);
        let mut report =
            UpstreamReport { clock: &clock, timings: &mut timings, upstream: &mut upstream, interim: &mut |_| () };
        let io = config.egress.connect(&route, &mut report).await?;
        let limit = config.settings.config.timeouts.handshake.0;
        Ok(tls::connect_tls(io, &authority.host, &route.tls, Alpn::Http1, limit).await?.0)
    }
}

impl HttpClient for LocalClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        self.send_own(request, FlowOrigin::default(), None)
    }

    fn send_until(&self, request: Request, tags: Vec<ByteStr>, until: Instant) -> ResponseFuture<'_> {
        let origin = FlowOrigin { tags, ..FlowOrigin::default() };
        self.send_own(request, origin, Some(until))
    }

    fn send_attempt(&self, request: Request, attempt: AttemptHandle, until: Instant) -> ResponseFuture<'_> {
        let origin = FlowOrigin { attempt: Some(attempt), ..FlowOrigin::default() };
        self.send_own(request, origin, Some(until))
    }
}

/// What a request of Interflow's own is sent for.
#[derive(Default)]
struct FlowOrigin {
    /// The flow that it replays.
    parent: Option<FlowId>,
    /// The operator chose it.
    is_chosen: bool,
    tags: Vec<ByteStr>,
    /// The attempt at a client's request that it is.
    attempt: Option<AttemptHandle>,
}

fn internal_client(worker: &ProxyWorker) -> ClientInfo {
    // No socket exists; loopback with port 0 stands for Interflow itself.
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

/// Addresses that requests may go to, with the connections that were checked against them. These are not shared with
/// other requests: a pooled connection to a private address must not serve a request that may not go there.
struct AddressFilter {
    allow: Vec<IpNet>,
    key: &'static str,
    /// One client for each worker. Made once the server's workers are known.
    clients: OnceLock<Vec<ArcSwapOption<FilteredClient>>>,
}

struct FilteredClient {
    generation: u64,
    egress: Arc<UpstreamClient>,
}

impl AddressFilter {
    fn client(&self, set: &WorkerSet, index: usize, config: &ActiveConfig) -> Arc<UpstreamClient> {
        let clients = self.clients.get_or_init(|| set.workers.iter().map(|_| ArcSwapOption::empty()).collect());
        let slot = &clients[index];
        // After a reload, limits, resolvers and rules may differ: the client is built again, and old pooled connections
        // are dropped.
        if let Some(known) = slot.load_full().filter(|known| known.generation == config.generation) {
            return Arc::clone(&known.egress);
        }
        let unresolved = match config.settings.config.access.allow_unresolved {
            true => UnresolvedNames::All,
            false => UnresolvedNames::Public,
        };
        let filter = PrivateAddressFilter::new(true, self.allow.clone(), set.listeners.clone())
            .with_config_key(self.key)
            .with_unresolved(unresolved);
        let egress = Arc::new(ActiveConfig::egress(&config.settings, &set.workers[index].shared, Arc::new(filter)));
        slot.store(Some(Arc::new(FilteredClient { generation: config.generation, egress: Arc::clone(&egress) })));
        egress
    }
}
