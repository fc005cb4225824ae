//! The request plan: decisions made once for a client's requests to one authority, so that each request pays only for
//! the stages that are interested in it.

use std::collections::HashMap;
use std::sync::Arc;

use interflow_net::egress::UpstreamRoute;
use interflow_types::{Authority, EntryKind, Phase, PhaseSet, PlanScope, Scheme, Stage};
use parking_lot::Mutex;

use crate::compiled::CompiledConfig;

/// Valid for every request of one kind to one authority until the configuration changes.
pub(crate) struct RequestPlan {
    pub route: UpstreamRoute,
    /// Whether the client's own fingerprint is mirrored to this origin.
    pub mirrors: bool,
    stages: Vec<(Arc<dyn Stage>, PhaseSet)>,
    interest: PhaseSet,
}

impl RequestPlan {
    fn new(settings: &CompiledConfig, key: &PlanKey) -> Self {
        let intercepted = settings.passthrough(&[&key.authority.host], key.authority.port).is_none();
        let scope = PlanScope {
            listener: &key.listener,
            user: key.user.as_deref(),
            authority: &key.authority,
            transport: key.transport,
            intercepted,
        };
        let stages: Vec<_> = settings
            .stages
            .iter()
            .map(|s| s.specialize(&scope).unwrap_or_else(|| Arc::clone(s)))
            .map(|s| {
                let interest = s.interest(&scope);
                (s, interest)
            })
            .filter(|(_, interest)| *interest != PhaseSet::NONE)
            .collect();
        let interest = stages.iter().fold(PhaseSet::NONE, |all, (_, i)| all.union(*i));
        let mut route = settings.route_of(key.transport, key.scheme, &key.authority, key.dial.clone());
        route.isolation.user = key.user.clone();
        let mirrors = settings.fingerprints.mirrors(&key.authority);
        Self { route, mirrors, stages, interest }
    }

    pub fn wants(&self, phase: Phase) -> bool {
        self.interest.contains(phase)
    }

    /// The stage that protects this traffic, which must then not be passed through without inspection.
    pub fn protected_by(&self, scope: &PlanScope<'_>) -> Option<&'static str> {
        self.stages.iter().find(|(s, _)| s.needs_inspection(scope)).map(|(s, _)| s.name())
    }

    /// The stages interested in this phase, in order.
    pub fn stages(&self, phase: Phase) -> impl Iterator<Item = &dyn Stage> {
        self.stages.iter().filter(move |(_, i)| i.contains(phase)).map(|(s, _)| &**s)
    }
}

/// The inputs of a plan.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    pub listener: Arc<str>,
    pub user: Option<Arc<str>>,
    pub scheme: Scheme,
    pub authority: Authority,
    pub dial: Option<Authority>,
    pub transport: EntryKind,
}

/// One worker's plans. Dropped as a whole when the configuration changes.
#[derive(Default)]
pub(crate) struct PlanCache {
    made: Mutex<HashMap<PlanKey, Arc<RequestPlan>>>,
}

/// Bounds the memory that clients of many authorities, such as crawlers, can take.
const MAX_PLANS: usize = 4096;

impl PlanCache {
    pub fn get(&self, settings: &CompiledConfig, key: PlanKey) -> Arc<RequestPlan> {
        let mut made = self.made.lock();
        if let Some(plan) = made.get(&key) {
            return Arc::clone(plan);
        }
        if made.len() >= MAX_PLANS {
            made.clear();
        }
        let plan = Arc::new(RequestPlan::new(settings, &key));
        made.insert(key, Arc::clone(&plan));
        plan
    }
}
