//! The client for URLs that outsiders supply: private, loopback and other special-purpose addresses are refused after
//! DNS resolution, unless the operator allows them.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use interflow_net::egress::UpstreamClient;
use interflow_types::{Error, ErrorKind, Flow, HttpClient, Request, ResponseFuture};
use ipnet::IpNet;

use crate::downstream::access::PrivateAddressFilter;
use crate::server::ProxyServer;
use crate::state::{ActiveConfig, ProxyWorker};
use interflow_types::NotRecorded;

thread_local! {
    /// The worker that runs on this thread.
    static CURRENT_WORKER: RefCell<Weak<ProxyWorker>> = const { RefCell::new(Weak::new()) };
}

/// Sets the worker that runs on this thread.
pub(crate) fn set_current_worker(worker: &Arc<ProxyWorker>) {
    CURRENT_WORKER.with(|here| *here.borrow_mut() = Arc::downgrade(worker));
}

/// The index of this thread's worker, if it is one of these.
pub(crate) fn current_worker(workers: &[Arc<ProxyWorker>]) -> Option<usize> {
    let here = CURRENT_WORKER.with(|here| here.borrow().upgrade())?;
    workers.iter().position(|w| Arc::ptr_eq(w, &here))
}

/// One worker's filtered client, replaced after a reload. Its connections are not shared with others: a pooled
/// connection to a private address must not serve a request that may not go there.
struct PerWorkerClient {
    generation: u64,
    egress: Arc<UpstreamClient>,
}

/// Sends requests on the calling worker, but only to addresses that the filter allows. It does not follow redirects:
/// the caller sends each hop as a request, which is filtered again.
pub(crate) struct FilteredClient {
    engine: Weak<ProxyServer>,
    guard: Arc<PrivateAddressFilter>,
    ways: Vec<ArcSwapOption<PerWorkerClient>>,
    metadata: bool,
}

/// Addresses of cloud metadata services, and of their agents on this machine.
const METADATA_NETS: [&str; 4] = ["169.254.0.0/16", "fd00:ec2::/32", "127.0.0.0/8", "::1/128"];

/// Extension on a flow to a metadata service: an upstream proxy would reach its own machine's service.
#[derive(Default)]
pub(crate) struct WithoutProxy;

impl FilteredClient {
    pub fn new(engine: &Arc<ProxyServer>, allow: Vec<IpNet>, key: &'static str) -> Self {
        let ways = (0..engine.worker_count()).map(|_| ArcSwapOption::empty()).collect();
        let guard = Arc::new(PrivateAddressFilter::new(true, allow, engine.listener_addresses()).with_config_key(key));
        Self { engine: Arc::downgrade(engine), guard, ways, metadata: false }
    }

    /// A client for cloud metadata services, which no other request may reach: no upstream proxy, and no recording,
    /// because the responses are credentials.
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

impl HttpClient for FilteredClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let stopped = || {
                Error::new(
                    ErrorKind::Internal,
                    "the proxy is not running yet (or is shutting down); internal requests are unavailable",
                )
            };
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
