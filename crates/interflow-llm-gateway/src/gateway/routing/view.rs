//! The state of routes, for the API, the command line and metrics.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use interflow_llm::{RouteStrategy, Stickiness};
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use super::{Deployment, Route};

/// A route and the state of its deployments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LlmRouteView {
    /// The model's name that clients ask for, or the provider that has fallbacks.
    pub name: String,
    /// Whether it is one of `[llm.route]`; otherwise a provider with its fallbacks or attempts.
    pub configured: bool,
    pub strategy: RouteStrategy,
    pub sticky: Stickiness,
    /// Retries that the budget allows now; null if it does not limit them.
    pub retries_left: Option<u32>,
    pub deployments: Vec<DeploymentView>,
}

/// A deployment and its state, on this instance and since its start.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeploymentView {
    /// `provider`, or `provider/model`.
    pub name: String,
    pub provider: String,
    /// The model's name at the provider; null: the client's.
    pub model: Option<String>,
    pub role: DeploymentRole,
    pub weight: u32,
    pub priority: u32,
    pub state: DeploymentState,
    /// Seconds until it is used again; null unless it is cooling down.
    pub cooling_down_for: Option<u64>,
    /// Requests in progress.
    pub busy: u32,
    /// The average time to the first data of a response, in milliseconds; null before the first.
    pub latency_ms: Option<f32>,
    pub requests: u64,
    pub errors: u64,
    /// Those of the errors that were time limits.
    pub timeouts: u64,
    /// How often it was left alone after failures, or because it asked for that.
    pub cooldowns: u64,
}

interflow_types::labelled_enum! {
    /// What a deployment is used for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum DeploymentRole {
        Deployment "deployment",
        /// Variant B of the experiment.
        Experiment "experiment",
        /// It gets copies of requests.
        Shadow "shadow",
    }
}

/// Whether a deployment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentState {
    Healthy,
    CoolingDown,
    /// The next request shows whether it is healthy again.
    Probing,
}

impl LlmRouteView {
    pub(crate) fn new(route: &Route, now: Instant) -> Self {
        Self {
            name: route.name.clone(),
            configured: route.is_configured,
            strategy: route.strategy,
            sticky: route.sticky,
            retries_left: route.budget.left(),
            deployments: route.every_deployment().map(|(role, d)| DeploymentView::new(d, role, now)).collect(),
        }
    }
}

impl DeploymentView {
    fn new(deployment: &Deployment, role: DeploymentRole, now: Instant) -> Self {
        let remaining = deployment.health.remaining(now);
        let state = match remaining {
            None => DeploymentState::Healthy,
            Some(remaining) if remaining.is_zero() => DeploymentState::Probing,
            Some(_) => DeploymentState::CoolingDown,
        };
        Self {
            name: deployment.name.as_str().to_owned(),
            provider: deployment.upstream.name.clone(),
            model: deployment.model.as_ref().map(|m| m.as_str().to_owned()),
            role,
            weight: deployment.weight,
            priority: deployment.priority,
            state,
            cooling_down_for: remaining.filter(|pause| !pause.is_zero()).map(|pause| pause.as_secs().max(1)),
            busy: deployment.stats.busy(),
            latency_ms: deployment.stats.latency(),
            requests: deployment.stats.requests.load(Relaxed),
            errors: deployment.stats.errors.load(Relaxed),
            timeouts: deployment.stats.timeouts.load(Relaxed),
            cooldowns: deployment.stats.cooldowns.load(Relaxed),
        }
    }
}
