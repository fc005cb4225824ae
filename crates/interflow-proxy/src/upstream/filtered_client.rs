//! The way out for what outsiders ask Interflow to fetch: private, loopback and other special addresses are refused
//! after DNS, unless the owner allows them.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use interflow_net::egress::UpstreamClient;
use interflow_types::{Error, ErrorKind, Flow, HttpClient as Door, Request, ResponseFuture};
use ipnet::IpNet;

use crate::downstream::access::PrivateAddressFilter;
use crate::server::ProxyServer;
use crate::worker::{ActiveConfig, ProxyWorker};
use interflow_types::NotRecorded;

thread_local! {
    /// The worker whose thread this is.
    static CURRENT_WORKER: RefCell<Weak<ProxyWorker>> = const { RefCell::new(Weak::new()) };
}

/// Says which worker this thread runs.
pub(crate) fn set_current_worker(worker: &Arc<ProxyWorker>) {
    CURRENT_WORKER.with(|here| *here.borrow_mut() = Arc::downgrade(worker));
}

/// The worker whose thread this is, when it is one of these.
pub(crate) fn current_worker(workers: &[Arc<ProxyWorker>]) -> Option<usize> {
    let here = CURRENT_WORKER.with(|here| here.borrow().upgrade())?;
    workers.iter().position(|w| Arc::ptr_eq(w, &here))
}

/// One worker's guarded way out, made anew after a reload. Its connections are kept apart from all others: a pooled
/// connection to a private address must not serve a request that may not go there.
struct PerWorkerClient {
    generation: u64,
    egress: Arc<UpstreamClient>,
}

/// Sends requests like the engine does, on the worker that asks, but never to an address that the owner did not allow.
/// Redirects are the caller's affair: each hop is a request of its own, and guarded like the first.
pub(crate) struct FilteredClient {
    engine: Weak<ProxyServer>,
    guard: Arc<PrivateAddressFilter>,
    ways: Vec<ArcSwapOption<PerWorkerClient>>,
    metadata: bool,
}

/// Where clouds have their metadata services, and agents on this machine theirs.
const METADATA_NETS: [&str; 4] = ["169.254.0.0/16", "fd00:ec2::/32", "127.0.0.0/8", "::1/128"];

/// The note on a flow that asks a metadata service: an upstream proxy would ask its own machine's.
#[derive(Default)]
pub(crate) struct WithoutProxy;

impl FilteredClient {
    pub fn new(engine: &Arc<ProxyServer>, allow: Vec<IpNet>, key: &'static str) -> Self {
        let ways = (0..engine.worker_count()).map(|_| ArcSwapOption::empty()).collect();
        let guard = Arc::new(PrivateAddressFilter::new(true, allow, engine.listener_addresses()).with_config_key(key));
        Self { engine: Arc::downgrade(engine), guard, ways, metadata: false }
    }

    /// The egress to the metadata services of clouds: to addresses that are reached for nobody else, without an upstream
    /// proxy, and without a record, since the answers are credentials.
    pub fn for_metadata(engine: &Arc<ProxyServer>) -> Self {
        let nets = METADATA_NETS.iter().filter_map(|net| net.parse().ok()).collect();
        Self { metadata: true, ..Self::new(engine, nets, "no key") }
    }

    fn client_for_worker(&self, worker: usize, live: &ActiveConfig, engine: &ProxyServer) -> Arc<UpstreamClient> {
        let slot = &self.ways[worker];
        if let Some(way) = slot.load_full().filter(|way| way.generation == live.generation) {
            return Arc::clone(&way.egress);
        }
        let egress = Arc::new(engine.client_with_filter(live, Arc::clone(&self.guard)));
        slot.store(Some(Arc::new(PerWorkerClient { generation: live.generation, egress: Arc::clone(&egress) })));
        egress
    }
}

impl Door for FilteredClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let stopped = || Error::new(ErrorKind::Internal, "the corridor does not run, so nothing can be sent out");
            let engine = self.engine.upgrade().ok_or_else(stopped)?;
            let here = engine.current_worker();
            let worker = here.unwrap_or(0);
            let live = engine.active_config(worker);
            let egress = self.client_for_worker(worker, &live, &engine);
            let note = |flow: &mut Flow| {
                if self.metadata {
                    flow.extension_mut::<NotRecorded>();
                    flow.extension_mut::<WithoutProxy>();
                }
            };
            engine.send_with_client(here, live, egress, request, note).await
        })
    }
}
