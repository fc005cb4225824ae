//! The way out for what outsiders ask Interflow to fetch: private, loopback and other special addresses are refused
//! after DNS, unless the owner allows them.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use interflow_flow::{Egress as Door, Error, Flow, Kind, Reply, Request};
use interflow_net::egress::Egress;
use ipnet::IpNet;

use crate::access::Guard;
use crate::engine::Engine;
use crate::worker::{Live, Worker};
use interflow_flow::NotRecorded;

thread_local! {
    /// The worker whose thread this is.
    static HERE: RefCell<Weak<Worker>> = const { RefCell::new(Weak::new()) };
}

/// Says which worker this thread runs.
pub(crate) fn enter(worker: &Arc<Worker>) {
    HERE.with(|here| *here.borrow_mut() = Arc::downgrade(worker));
}

/// The worker whose thread this is, when it is one of these.
pub(crate) fn here(workers: &[Arc<Worker>]) -> Option<usize> {
    let here = HERE.with(|here| here.borrow().upgrade())?;
    workers.iter().position(|w| Arc::ptr_eq(w, &here))
}

/// One worker's guarded way out, made anew after a reload. Its connections are kept apart from all others: a pooled
/// connection to a private address must not serve a request that may not go there.
struct WayOut {
    generation: u64,
    egress: Arc<Egress>,
}

/// Sends requests like the engine does, on the worker that asks, but never to an address that the owner did not allow.
/// Redirects are the caller's affair: each hop is a request of its own, and guarded like the first.
pub(crate) struct GuardedEgress {
    engine: Weak<Engine>,
    guard: Arc<Guard>,
    ways: Vec<ArcSwapOption<WayOut>>,
    metadata: bool,
}

/// Where clouds have their metadata services, and agents on this machine theirs.
const METADATA_NETS: [&str; 4] = ["169.254.0.0/16", "fd00:ec2::/32", "127.0.0.0/8", "::1/128"];

/// The note on a flow that asks a metadata service: an upstream proxy would ask its own machine's.
#[derive(Default)]
pub(crate) struct WithoutProxy;

impl GuardedEgress {
    pub fn new(engine: &Arc<Engine>, allow: Vec<IpNet>, key: &'static str) -> Self {
        let ways = (0..engine.worker_count()).map(|_| ArcSwapOption::empty()).collect();
        let guard = Arc::new(Guard::new(true, allow, engine.own_addresses()).allowed_by(key));
        Self { engine: Arc::downgrade(engine), guard, ways, metadata: false }
    }

    /// The egress to the metadata services of clouds: to addresses that are reached for nobody else, without an upstream
    /// proxy, and without a record, since the answers are credentials.
    pub fn for_metadata(engine: &Arc<Engine>) -> Self {
        let nets = METADATA_NETS.iter().filter_map(|net| net.parse().ok()).collect();
        Self { metadata: true, ..Self::new(engine, nets, "no key") }
    }

    fn way(&self, worker: usize, live: &Live, engine: &Engine) -> Arc<Egress> {
        let slot = &self.ways[worker];
        if let Some(way) = slot.load_full().filter(|way| way.generation == live.generation) {
            return Arc::clone(&way.egress);
        }
        let egress = Arc::new(engine.egress_with(live, Arc::clone(&self.guard)));
        slot.store(Some(Arc::new(WayOut { generation: live.generation, egress: Arc::clone(&egress) })));
        egress
    }
}

impl Door for GuardedEgress {
    fn send(&self, request: Request) -> Reply<'_> {
        Box::pin(async move {
            let stopped = || Error::new(Kind::Internal, "the corridor does not run, so nothing can be sent out");
            let engine = self.engine.upgrade().ok_or_else(stopped)?;
            let here = engine.here();
            let worker = here.unwrap_or(0);
            let live = engine.live(worker);
            let egress = self.way(worker, &live, &engine);
            let note = |flow: &mut Flow| {
                if self.metadata {
                    flow.note_mut::<NotRecorded>();
                    flow.note_mut::<WithoutProxy>();
                }
            };
            engine.send_over(here, live, egress, request, note).await
        })
    }
}
