//! The request plan: decisions made once for a client's requests to one authority, so that each request pays only for
//! the stages that are interested in it.

use std::sync::Arc;

use hashlink::LruCache;
use interflow_net::egress::UpstreamRoute;
use interflow_types::{Authority, EntryKind, Phase, PhaseSet, PlanScope, Scheme, Stage};
use parking_lot::Mutex;

use crate::compiled::CompiledConfig;

/// The decisions for all requests with the same [`PlanKey`]: the route, and the stages with their phases. Valid until
/// the configuration changes.
pub(crate) struct RequestPlan {
    pub route: UpstreamRoute,
    /// Whether the client's own fingerprint is mirrored to this origin.
    pub mirrors: bool,
    stages: Vec<(Arc<dyn Stage>, PhaseSet)>,
    interest: PhaseSet,
}

impl RequestPlan {
    // Only the authority's name: the SNI may still differ, and is decided on by itself.
    fn new(settings: &CompiledConfig, key: &PlanKey) -> Self {
        let intercepted = settings.passthrough(&[&key.authority.host], key.authority.port).is_none();
        let scope = key.scope(intercepted);
        let stages: Vec<_> = settings
            .stages
            .iter()
            // A stage may replace itself by one prepared for this plan, such as the rules that this host can match.
            .map(|s| s.specialize(&scope).unwrap_or_else(|| Arc::clone(s)))
            .map(|s| {
                let interest = s.interest(&scope);
                (s, interest)
            })
            // A stage without interest costs a request nothing, not even a test.
            .filter(|(_, interest)| *interest != PhaseSet::NONE)
            .collect();
        // The union answers `wants` for all stages with one bit test.
        let interest = stages.iter().fold(PhaseSet::NONE, |all, (_, i)| all.union(*i));
        let mut route = settings.route_of(key.transport, key.scheme, &key.authority, key.dial.clone());
        // Connections are not shared between users, since credentials may be bound to a connection.
        route.isolation.user = key.user.clone();
        let mirrors = settings.fingerprints.mirrors(&key.authority);
        Self { route, mirrors, stages, interest }
    }

    pub fn wants(&self, phase: Phase) -> bool {
        self.interest.contains(phase)
    }

    /// The stage, if any, whose purpose would be defeated if this traffic passed through without inspection.
    pub fn protected_by(&self, scope: &PlanScope<'_>) -> Option<&'static str> {
        self.stages.iter().find(|(s, _)| s.needs_inspection(scope)).map(|(s, _)| s.name())
    }

    /// The stages interested in this phase, in order.
    pub fn stages(&self, phase: Phase) -> impl Iterator<Item = &dyn Stage> {
        self.stages.iter().filter(move |(_, i)| i.contains(phase)).map(|(s, _)| &**s)
    }
}

/// The inputs of a plan: everything that route and stages may depend on, but nothing of the single request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    pub listener: Arc<str>,
    pub user: Option<Arc<str>>,
    pub scheme: Scheme,
    pub authority: Authority,
    pub dial: Option<Authority>,
    pub transport: EntryKind,
}

impl PlanKey {
    pub fn scope(&self, intercepted: bool) -> PlanScope<'_> {
        let (listener, user, authority) = (&self.listener, self.user.as_deref(), &self.authority);
        PlanScope { listener, user, authority, transport: self.transport, intercepted }
    }

    /// Where to connect, unless a certificate proves that the authority is at this address. Another name than the client
    /// asked for is not proven: the connection itself may already tell something.
    pub fn unproven_dial(&self) -> Option<&Authority> {
        self.dial.as_ref().filter(|dial| self.scheme == Scheme::Http || dial.host.name().is_some())
    }
}

/// One worker's plans. Dropped as a whole when the configuration changes.
pub(crate) struct PlanCache {
    made: Mutex<LruCache<PlanKey, Arc<RequestPlan>>>,
}

/// Bounds the memory that clients of many authorities, such as crawlers, can take. Beyond it, the least recently used
/// plan goes.
const MAX_PLANS: usize = 4096;

impl Default for PlanCache {
    fn default() -> Self {
        Self { made: Mutex::new(LruCache::new(MAX_PLANS)) }
    }
}

impl PlanCache {
    pub fn get(&self, settings: &CompiledConfig, key: PlanKey) -> Arc<RequestPlan> {
        // The lock is held while a plan is made, which does no I/O. Each worker has a cache of its own.
        let mut made = self.made.lock();
        if let Some(plan) = made.get(&key) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(RequestPlan::new(settings, &key));
        made.insert(key, Arc::clone(&plan));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiled::ServerComponents;

    #[test]
    fn only_a_certificate_proves_that_a_name_is_at_an_address() {
        let (address, name) = ("203.0.113.9:80", "other.test:443");
        for (scheme, dial, is_proven) in
            [(Scheme::Https, address, true), (Scheme::Http, address, false), (Scheme::Https, name, false)]
        {
            let dial: Authority = dial.parse().unwrap();
            let key = PlanKey {
                listener: "proxy".into(),
                user: None,
                scheme,
                authority: "docs.test:80".parse().unwrap(),
                dial: Some(dial.clone()),
                transport: EntryKind::Transparent,
            };
            assert_eq!(key.unproven_dial(), Some(&dial).filter(|_| !is_proven), "{scheme:?} {dial}");
        }
    }

    #[test]
    fn the_plan_of_a_busy_host_survives_a_crawl_of_many() {
        let settings = CompiledConfig::new(Default::default(), Vec::new(), ServerComponents::default()).unwrap();
        let key = |host: &str| PlanKey {
            listener: "proxy".into(),
            user: None,
            scheme: Scheme::Http,
            authority: Authority::parse(host, Some(80)).unwrap(),
            dial: None,
            transport: EntryKind::Absolute,
        };
        let plans = PlanCache::default();
        let busy = plans.get(&settings, key("busy.test"));
        let once = Arc::downgrade(&plans.get(&settings, key("once.test")));
        for i in 0..MAX_PLANS + 10 {
            plans.get(&settings, key(&format!("{i}.crawled.test")));
            if i % 1000 == 0 {
                assert!(Arc::ptr_eq(&busy, &plans.get(&settings, key("busy.test"))), "after {i} others");
            }
        }
        assert_eq!(plans.made.lock().len(), MAX_PLANS);
        assert!(once.upgrade().is_none(), "what is not used any more goes");
    }
}
