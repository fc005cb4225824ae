//! The choice of the deployment for an attempt.

use std::time::Instant;

use interflow_llm::RouteStrategy;

use super::{Affinity, Deployment, Pin, Route};

/// What one request knows of a route: which deployments it may use, and which it has tried.
pub(crate) struct Selection {
    /// By the index of the deployment.
    candidates: Vec<Candidate>,
    /// What keeps the request at a deployment.
    pub sticky: Option<Affinity>,
    /// The deployment that an experiment assigns the request to.
    pub assigned: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct Candidate {
    excluded: bool,
    tried: u32,
    /// When it asked to be tried again.
    not_before: Option<Instant>,
}

/// The deployment to try next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Deployment(usize),
    /// All were tried, and this is when the first of them asked to be tried again.
    Wait(Instant),
    None,
}

impl Selection {
    /// `suits` says whether a deployment may be sent the request.
    pub fn new(route: &Route, suits: impl Fn(&Deployment) -> bool) -> Self {
        let candidate = |d: &Deployment| Candidate { excluded: d.is_variant || !suits(d), ..Candidate::default() };
        Self { candidates: route.deployments.iter().map(candidate).collect(), sticky: None, assigned: None }
    }

    /// The request belongs to variant B of the route's experiment.
    pub fn assign(&mut self, index: usize) {
        self.assigned = Some(index);
        self.candidates[index].excluded = false;
    }

    /// The request continues a response that only one upstream keeps; its deployment comes first. Returns whether the
    /// route has it.
    pub fn pin(&mut self, route: &Route, pin: &Pin, suits: impl Fn(&Deployment) -> bool) -> bool {
        let made_it = route.deployments.iter().position(|d| d.name == pin.deployment);
        for (candidate, deployment) in self.candidates.iter_mut().zip(&route.deployments) {
            candidate.excluded |= deployment.upstream.name != pin.upstream.as_str();
        }
        self.assigned = made_it;
        // Variant B is a candidate only for those that are assigned to it.
        if let Some(i) = made_it.filter(|i| route.deployments[*i].is_variant && suits(&route.deployments[*i])) {
            self.candidates[i].excluded = false;
        }
        route.deployments.iter().any(|d| d.upstream.name == pin.upstream.as_str())
    }

    pub fn exclude(&mut self, index: usize) {
        self.candidates[index].excluded = true;
    }

    pub fn count_attempt(&mut self, index: usize) {
        self.candidates[index].tried += 1;
    }

    pub fn is_tried(&self, index: usize) -> bool {
        self.candidates[index].tried > 0
    }

    pub fn wait_until(&mut self, index: usize, at: Instant) {
        self.candidates[index].not_before = Some(at);
    }

    /// Whether there is nothing to try at all.
    pub fn is_empty(&self) -> bool {
        self.candidates.iter().all(|c| c.excluded)
    }

    /// The first deployment that is left alone, and for how many seconds more.
    pub fn held_back<'r>(&self, route: &'r Route, now: Instant) -> Option<(&'r Deployment, u64)> {
        let held = |(_, d): &(&Candidate, &Deployment)| d.health.is_open();
        let usable = self.candidates.iter().zip(&route.deployments).filter(|(c, _)| !c.excluded);
        usable.filter(held).map(|(_, d)| (d, d.health.retry_after(now))).min_by_key(|(_, seconds)| *seconds)
    }

    /// The next deployment. `random` gives numbers from 0 to 1, `cost` the price of the request at a deployment.
    pub fn next(
        &self,
        route: &Route,
        now: Instant,
        random: &mut dyn FnMut() -> f64,
        cost: &dyn Fn(&Deployment) -> Option<u64>,
    ) -> Next {
        let open = |(_, c): &(usize, &Candidate)| !c.excluded && route.attempts_each.is_none_or(|most| c.tried < most);
        let remaining: Vec<usize> = self.candidates.iter().enumerate().filter(open).map(|(i, _)| i).collect();
        let ready = |i: &usize| {
            let is_due = self.candidates[*i].not_before.is_none_or(|at| at <= now);
            is_due && route.deployments[*i].health.may_allow(now)
        };
        let ready: Vec<usize> = remaining.iter().copied().filter(ready).collect();
        // What a fallback chain tries often comes first, what a route has not tried yet.
        let rank = |i: &usize| match route.attempts_each {
            Some(_) => (0, route.deployments[*i].priority),
            None => (self.candidates[*i].tried, route.deployments[*i].priority),
        };
        let Some(best) = ready.iter().map(rank).min() else {
            let soonest = remaining.iter().filter_map(|i| self.candidates[*i].not_before).min();
            return soonest.filter(|at| *at > now).map_or(Next::None, Next::Wait);
        };
        if let Some(assigned) = self.assigned.filter(|i| ready.contains(i) && !self.is_tried(*i)) {
            return Next::Deployment(assigned);
        }
        let group: Vec<(usize, &Deployment)> =
            ready.iter().filter(|i| rank(i) == best).map(|i| (*i, &route.deployments[*i])).collect();
        Next::Deployment(match self.sticky {
            Some(key) => by_rendezvous(&group, key),
            None => by_strategy(route.strategy, &group, now, random, cost),
        })
    }
}

/// Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): a key stays where it is unless its own deployment
/// is lost or added, and no table of keys is kept.
fn by_rendezvous(group: &[(usize, &Deployment)], key: Affinity) -> usize {
    let score = |d: &Deployment| -f64::from(d.weight) / key.position(&d.name).max(f64::MIN_POSITIVE).ln();
    group.iter().max_by(|a, b| score(a.1).total_cmp(&score(b.1))).map_or(0, |(i, _)| *i)
}

fn by_strategy(
    strategy: RouteStrategy,
    group: &[(usize, &Deployment)],
    now: Instant,
    random: &mut dyn FnMut() -> f64,
    cost: &dyn Fn(&Deployment) -> Option<u64>,
) -> usize {
    match strategy {
        RouteStrategy::Weighted => by_weight(group, random),
        RouteStrategy::LeastBusy => {
            let load = |d: &Deployment| f64::from(d.stats.busy()) / f64::from(d.weight);
            least(group, random, load)
        }
        // "The Power of Two Choices in Randomized Load Balancing" (Mitzenmacher, 2001): always taking the fastest would
        // send every request there until it is the slowest.
        RouteStrategy::Latency => {
            let first = by_weight(group, random);
            let others: Vec<_> = group.iter().copied().filter(|(i, _)| *i != first).collect();
            let pair = [first, if others.is_empty() { first } else { by_weight(&others, random) }];
            let load = |i: &usize| group.iter().find(|(g, _)| g == i).map_or(f64::MAX, |(_, d)| d.stats.load(now));
            if load(&pair[1]) < load(&pair[0]) { pair[1] } else { pair[0] }
        }
        // Unknown prices come last.
        RouteStrategy::Cost => least(group, random, |d| cost(d).map_or(f64::MAX, |micros| micros as f64)),
    }
}

/// One of those with the smallest value, by weight.
fn least(group: &[(usize, &Deployment)], random: &mut dyn FnMut() -> f64, value: impl Fn(&Deployment) -> f64) -> usize {
    let values: Vec<f64> = group.iter().map(|(_, d)| value(d)).collect();
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let best: Vec<_> = group.iter().zip(&values).filter(|(_, v)| **v <= smallest).map(|(g, _)| *g).collect();
    by_weight(&best, random)
}

fn by_weight(group: &[(usize, &Deployment)], random: &mut dyn FnMut() -> f64) -> usize {
    let total: f64 = group.iter().map(|(_, d)| f64::from(d.weight)).sum();
    let mut point = random() * total;
    for (i, deployment) in group {
        point -= f64::from(deployment.weight);
        if point < 0.0 {
            return *i;
        }
    }
    group.last().map_or(0, |(i, _)| *i)
}
