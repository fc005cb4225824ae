//! The plan: what is decided once for a client's requests to one authority, so that a request pays only for what
//! somebody wants.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use interflow_flow::{Authority, Interest, Phase, Scheme, Scope, Stage, Transport};
use interflow_net::egress::Route;
use parking_lot::Mutex;

use crate::settings::Settings;

/// What holds for every request of one kind to one authority until the configuration changes.
pub(crate) struct Plan {
    pub route: Route,
    /// Whether each client's own fingerprint goes on to this origin.
    pub mirrors: bool,
    stages: Vec<(Arc<dyn Stage>, Interest)>,
    interest: Interest,
}

impl Plan {
    fn new(settings: &Settings, key: &PlanKey) -> Self {
        let intercepted = settings.passthrough(&[&key.authority.host]).is_none();
        let scope = Scope {
            listener: &key.listener,
            user: key.user.as_deref(),
            authority: &key.authority,
            transport: key.transport,
            intercepted,
        };
        let stages: Vec<_> = settings
            .stages
            .iter()
            .map(|s| s.bind(&scope).unwrap_or_else(|| Arc::clone(s)))
            .map(|s| {
                let interest = s.interest(&scope);
                (s, interest)
            })
            .filter(|(_, interest)| *interest != Interest::NONE)
            .collect();
        let interest = stages.iter().fold(Interest::NONE, |all, (_, i)| all.union(*i));
        let mut route = settings.route_of(key.transport, key.scheme, &key.authority, key.dial.clone());
        route.partition = key.user.as_deref().map_or(0, partition_of);
        let mirrors = settings.likenesses.mirrors(&key.authority.host);
        Self { route, mirrors, stages, interest }
    }

    /// Whether any stage wants this phase.
    pub fn wants(&self, phase: Phase) -> bool {
        self.interest.has(phase)
    }

    /// Who protects what passes, so that it may not pass uninspected.
    pub fn protected_by(&self, scope: &Scope<'_>) -> Option<&'static str> {
        self.stages.iter().find(|(s, _)| s.needs_inspection(scope)).map(|(s, _)| s.name())
    }

    /// The stages that want this phase, in their order.
    pub fn stages(&self, phase: Phase) -> impl Iterator<Item = &dyn Stage> {
        self.stages.iter().filter(move |(_, i)| i.has(phase)).map(|(s, _)| &**s)
    }
}

/// Users do not share upstream connections. The top bit keeps them apart from partitions by connection.
fn partition_of(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

/// What a plan depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    pub listener: Arc<str>,
    pub user: Option<Arc<str>>,
    pub scheme: Scheme,
    pub authority: Authority,
    pub dial: Option<Authority>,
    pub transport: Transport,
}

/// One worker's plans. Dropped as a whole when the configuration changes.
#[derive(Default)]
pub(crate) struct Plans {
    made: Mutex<HashMap<PlanKey, Arc<Plan>>>,
}

/// A proxy in front of a crawler meets authorities without end.
const MOST: usize = 4096;

impl Plans {
    pub fn get(&self, settings: &Settings, key: PlanKey) -> Arc<Plan> {
        let mut made = self.made.lock();
        if let Some(plan) = made.get(&key) {
            return Arc::clone(plan);
        }
        if made.len() >= MOST {
            made.clear();
        }
        let plan = Arc::new(Plan::new(settings, &key));
        made.insert(key, Arc::clone(&plan));
        plan
    }
}
