//! Routes: a model's name, the deployments that serve it, and how one is chosen. A provider with fallbacks is a route,
//! too: its fallbacks are deployments of descending priority.

mod affinity;
mod attempt_limits;
mod model_list;
mod pins;
mod retry;
mod selection;
mod stats;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_llm::{DeploymentConfig, ExperimentUnit, LlmConfig, LlmRouteConfig, RouteStrategy, Stickiness};
use interflow_types::ByteStr;

use super::circuit_breaker::CircuitBreaker;
use super::{LlmUpstream, UpstreamTable};

pub(super) use affinity::Affinity;
pub(super) use attempt_limits::{AttemptLimits, HoldFailure, HoldLimits, hold_until_content};
pub(super) use model_list::ModelListHandler;
pub(crate) use pins::response_in_path;
pub(super) use pins::{Pin, ResponseOwner, ResponsePins};
pub(super) use retry::{Backoff, RetryBudget, check_retry_on, retry_after};
pub(super) use selection::{Next, Selection};
pub(super) use stats::{ActiveRequest, DeploymentStats};
pub use view::{DeploymentRole, DeploymentState, DeploymentView, LlmRouteView};

/// A model at an upstream.
pub(crate) struct Deployment {
    /// `provider`, or `provider/model`.
    pub name: ByteStr,
    pub upstream: Arc<LlmUpstream>,
    /// The model's name there; `None`: the client's.
    pub model: Option<ByteStr>,
    pub weight: u32,
    pub priority: u32,
    /// Variant B of an experiment: used for those requests that are assigned to it.
    pub is_variant: bool,
    pub limits: AttemptLimits,
    pub health: Arc<CircuitBreaker>,
    pub stats: Arc<DeploymentStats>,
}

/// A compiled route.
pub(crate) struct Route {
    pub name: String,
    /// From `[llm.route]`; otherwise a provider with its fallbacks.
    pub is_configured: bool,
    /// The deployments, variant B last.
    pub deployments: Vec<Deployment>,
    pub strategy: RouteStrategy,
    pub sticky: Stickiness,
    /// Attempts at each deployment before the next; `None`: each is tried once before any is repeated.
    pub attempts_each: Option<u32>,
    /// Attempts after the first.
    pub retries: u32,
    pub budget: RetryBudget,
    pub retry_on: Vec<u16>,
    pub timeout: Duration,
    pub max_retry_after: Duration,
    pub hedge_after: Option<Duration>,
    pub shadow: Option<Shadow>,
    pub experiment: Option<Experiment>,
}

pub(crate) struct Shadow {
    pub deployment: Deployment,
    pub share: f64,
}

pub(crate) struct Experiment {
    pub share: f64,
    pub by: ExperimentUnit,
}

/// The routes of a configuration.
#[derive(Default)]
pub(crate) struct RouteTable {
    configured: BTreeMap<String, Arc<Route>>,
    /// Beginnings of names, from the longest.
    prefixes: Vec<String>,
    /// By provider.
    fallbacks: BTreeMap<String, Arc<Route>>,
}

impl RouteTable {
    /// # Errors
    /// What is wrong in `[llm.route]`, with its key.
    pub(super) fn new(config: &LlmConfig, table: &UpstreamTable) -> Result<Self, String> {
        let mut routes = Self::default();
        for (name, own) in &config.route {
            let route = Route::configured(name, own, table).map_err(|e| format!("llm.route.{name}{e}"))?;
            routes.prefixes.extend(name.strip_suffix('*').map(str::to_owned));
            routes.configured.insert(name.clone(), Arc::new(route));
        }
        routes.prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        for upstream in table.upstreams() {
            routes.fallbacks.insert(upstream.name.clone(), Arc::new(Route::of_upstream(upstream, table)));
        }
        Ok(routes)
    }

    pub fn is_empty(&self) -> bool {
        self.configured.is_empty()
    }

    /// Whether some deployment uses a key of the gateway's own.
    pub fn hold_key(&self) -> bool {
        self.configured.values().any(|route| route.deployments.iter().any(|d| d.upstream.has_key()))
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Route>> {
        self.configured.get(name)
    }

    /// The route of a model's name: that of the same name, else the longest beginning.
    pub fn of_model(&self, model: &str) -> Option<&Arc<Route>> {
        let by_prefix = || self.prefixes.iter().find(|prefix| model.starts_with(prefix.as_str()));
        self.configured.get(model).or_else(|| self.configured.get(&format!("{}*", by_prefix()?)))
    }

    pub fn of_upstream(&self, name: &str) -> Option<&Arc<Route>> {
        self.fallbacks.get(name)
    }

    /// The names of models that `[llm.route]` has.
    pub fn configured_models(&self) -> impl Iterator<Item = &String> {
        self.configured.keys()
    }

    /// The routes that an operator configured: those of `[llm.route]`, and providers with fallbacks or attempts.
    pub fn shown(&self) -> impl Iterator<Item = &Arc<Route>> {
        let retried = |route: &&Arc<Route>| route.deployments.len() > 1 || route.attempts_each != Some(1);
        self.configured.values().chain(self.fallbacks.values().filter(retried))
    }

    /// Takes over what was counted before a reload.
    pub fn continue_counters(&mut self, before: &Self) {
        for (routes, old) in [(&mut self.configured, &before.configured), (&mut self.fallbacks, &before.fallbacks)] {
            for (name, route) in routes.iter_mut() {
                let (Some(route), Some(old)) = (Arc::get_mut(route), old.get(name)) else { continue };
                for (role, deployment) in route.every_deployment_mut() {
                    let same =
                        |(old_role, d): &(DeploymentRole, &Deployment)| *old_role == role && d.name == deployment.name;
                    if let Some((_, same)) = old.every_deployment().find(same) {
                        deployment.stats = Arc::clone(&same.stats);
                    }
                }
            }
        }
    }
}

impl Route {
    fn configured(name: &str, config: &LlmRouteConfig, table: &UpstreamTable) -> Result<Self, String> {
        let of_route = AttemptLimits::new(config.attempt_timeout, config.first_token_timeout);
        of_route.check()?;
        check_retry_on(&config.retry_on).map_err(|e| format!(".{e}"))?;
        let deployment = |key: &str, own: &DeploymentConfig| {
            let health = CircuitBreaker::new(config.cooldown_failures, config.cooldown.0);
            let deployment = Deployment::new(own, table, Arc::new(health)).map_err(|e| format!("{key}{e}"))?;
            let limits = AttemptLimits::new(own.attempt_timeout, own.first_token_timeout).or(of_route);
            limits.check().map_err(|e| format!("{key}{e}"))?;
            Ok::<_, String>(Deployment { limits, ..deployment })
        };
        let plain = |provider: &str, model: &Option<String>| DeploymentConfig {
            provider: provider.to_owned(),
            model: model.clone(),
            weight: 1,
            priority: 0,
            attempt_timeout: None,
            first_token_timeout: None,
        };
        let share = |key: &str, share: f64| match (0.0..=1.0).contains(&share) {
            true => Ok(share),
            false => Err(format!(".{key}: {share} is not between 0 and 1")),
        };
        if name.is_empty() || name.strip_suffix('*').unwrap_or(name).contains('*') {
            return Err(": a route is named like the model, with a * at the end only".into());
        }
        if config.deployments.is_empty() {
            return Err(".deployments: it is empty; write [{ provider = \"openai\", model = \"gpt-5\" }]".into());
        }
        let mut deployments = Vec::new();
        for (i, own) in config.deployments.iter().enumerate() {
            let deployment = deployment(&format!(".deployments[{i}]"), own)?;
            if deployments.iter().any(|d: &Deployment| d.name == deployment.name) {
                return Err(format!(".deployments[{i}]: {} is listed twice", deployment.name));
            }
            deployments.push(deployment);
        }
        let experiment = config.experiment.as_ref().map(|own| {
            let variant = deployment(".experiment", &plain(&own.provider, &own.model))?;
            deployments.push(Deployment { is_variant: true, ..variant });
            Ok::<_, String>(Experiment { share: share("experiment.share", own.share)?, by: own.by })
        });
        let shadow = config.shadow.as_ref().map(|own| {
            let deployment = deployment(".shadow", &plain(&own.provider, &own.model))?;
            Ok::<_, String>(Shadow { deployment, share: share("shadow.share", own.share)? })
        });
        Ok(Self {
            name: name.to_owned(),
            is_configured: true,
            strategy: config.strategy,
            sticky: config.sticky,
            attempts_each: None,
            retries: config.retries,
            budget: RetryBudget::new(share("retry_budget", config.retry_budget)?),
            retry_on: config.retry_on.clone(),
            timeout: config.timeout.0,
            max_retry_after: config.max_retry_after.0,
            hedge_after: config.hedge_after.map(|after| after.0),
            experiment: experiment.transpose()?,
            shadow: shadow.transpose()?,
            deployments,
        })
    }

    /// A provider with its fallbacks, which have its circuit breakers.
    pub fn of_upstream(upstream: &Arc<LlmUpstream>, table: &UpstreamTable) -> Self {
        let others = table.fallback_order(upstream);
        let others = others.iter().filter_map(|name| table.get(name));
        let chain = std::iter::once(upstream).chain(others).enumerate();
        let deployment = |(i, upstream): (usize, &Arc<LlmUpstream>)| Deployment {
            name: upstream.name.as_str().into(),
            model: None,
            weight: 1,
            priority: u32::try_from(i).unwrap_or(u32::MAX),
            is_variant: false,
            limits: upstream.attempt_limits,
            health: Arc::clone(&upstream.breaker),
            stats: DeploymentStats::new(),
            upstream: Arc::clone(upstream),
        };
        Self {
            name: upstream.name.clone(),
            is_configured: false,
            deployments: chain.map(deployment).collect(),
            strategy: RouteStrategy::Weighted,
            sticky: Stickiness::None,
            attempts_each: Some(upstream.attempts),
            retries: u32::MAX,
            budget: RetryBudget::new(1.0),
            retry_on: upstream.retry_on.clone(),
            timeout: upstream.budget,
            max_retry_after: upstream.budget,
            hedge_after: None,
            shadow: None,
            experiment: None,
        }
    }

    /// All deployments, the shadow included.
    pub fn every_deployment(&self) -> impl Iterator<Item = (DeploymentRole, &Deployment)> {
        let shadow = self.shadow.iter().map(|s| (DeploymentRole::Shadow, &s.deployment));
        self.deployments.iter().map(|d| (d.role(), d)).chain(shadow)
    }

    fn every_deployment_mut(&mut self) -> impl Iterator<Item = (DeploymentRole, &mut Deployment)> {
        let shadow = self.shadow.iter_mut().map(|s| (DeploymentRole::Shadow, &mut s.deployment));
        self.deployments.iter_mut().map(|d| (d.role(), d)).chain(shadow)
    }

    /// The upstreams that a request may be sent to, each once.
    pub fn upstreams(&self) -> Vec<ByteStr> {
        let mut names: Vec<ByteStr> = Vec::new();
        for (_, deployment) in self.every_deployment() {
            let name = &deployment.upstream.name;
            if !names.iter().any(|n| n.as_str() == name) {
                names.push(name.as_str().into());
            }
        }
        names
    }

    /// The deployment of variant B.
    pub fn variant(&self) -> Option<usize> {
        self.deployments.iter().position(|d| d.is_variant)
    }
}

impl Deployment {
    const fn role(&self) -> DeploymentRole {
        if self.is_variant { DeploymentRole::Experiment } else { DeploymentRole::Deployment }
    }

    fn new(config: &DeploymentConfig, table: &UpstreamTable, health: Arc<CircuitBreaker>) -> Result<Self, String> {
        let provider = &config.provider;
        let upstream =
            table.get(provider).ok_or_else(|| format!(".provider: there is no provider {provider} in llm.provider"))?;
        if let Some(key) = upstream.missing_for_route() {
            return Err(format!(".provider: {provider} has no {key}; set llm.provider.{provider}.{key}"));
        }
        if config.weight == 0 {
            return Err(".weight: 0 is not a share; remove the deployment, or give it a higher priority number".into());
        }
        if config.model.as_deref().is_some_and(str::is_empty) {
            return Err(".model: it is empty; leave it out to keep the client's".into());
        }
        let name = config.model.as_ref().map_or_else(|| provider.clone(), |model| format!("{provider}/{model}"));
        Ok(Self {
            name: name.into(),
            upstream: Arc::clone(upstream),
            model: config.model.as_deref().map(Into::into),
            weight: config.weight,
            priority: config.priority,
            is_variant: false,
            limits: AttemptLimits::default(),
            health,
            stats: DeploymentStats::new(),
        })
    }
}
