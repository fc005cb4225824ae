//! The `[llm.route.NAME]` sections of the config: one model name for clients, several deployments that serve it.

use std::time::Duration;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use serde::{Deserialize, Serialize};

config_sections! {
    /// A model of the gateway's own, served by one of several deployments. Its name is what clients ask for as the
    /// model; one that ends in `*` stands for all names with this beginning.
    pub struct LlmRouteConfig {
        /// Where requests may be sent.
        pub deployments: Vec<DeploymentConfig>,
        /// How one of the healthy deployments with the lowest `priority` is chosen.
        pub strategy: RouteStrategy,
        /// What stays at one deployment while it is healthy, so that the provider's prompt cache keeps matching.
        /// Choices by `weight` then replace `strategy`.
        pub sticky: Stickiness,
        /// Further attempts after the first, all deployments together. None is made once a response has begun.
        pub retries: u32 = 2,
        /// The share of requests that may be retried or hedged, so that an outage does not multiply the load. Ten are
        /// always allowed after a quiet time; 0 allows none, 1 does not limit.
        pub retry_budget: f64 = 0.2,
        /// Response statuses that are retried, and that count as failures of the deployment.
        pub retry_on: Vec<u16> = vec![408, 429, 500, 502, 503, 504, 529],
        /// Time limit of all attempts together until a response begins.
        pub timeout: HumanDuration = HumanDuration(Duration::from_secs(60)),
        /// Time limit of one attempt until its response begins; then the next deployment is tried. Unset: only
        /// `timeout`.
        pub attempt_timeout: Option<HumanDuration>,
        /// Time limit of one attempt at a stream until its first token. Unset: `attempt_timeout`, which ends with the
        /// response's head.
        pub first_token_timeout: Option<HumanDuration>,
        /// Consecutive failures after which a deployment is left alone; 0: never.
        pub cooldown_failures: u32 = 3,
        /// How long it is left alone; then one request probes it.
        pub cooldown: HumanDuration = HumanDuration(Duration::from_secs(30)),
        /// The longest `Retry-After` of a response that is honored; a longer one counts as this.
        pub max_retry_after: HumanDuration = HumanDuration(Duration::from_secs(60)),
        /// Sends a second request to another deployment if the first has not begun to respond by then. The first
        /// response is used, and the other request is cancelled.
        pub hedge_after: Option<HumanDuration>,
        /// Sends a copy of some requests to another deployment. Its response is recorded, and otherwise discarded.
        pub shadow: Option<ShadowConfig>,
        /// Serves a share of sessions or users by another deployment (variant B); the rest are variant A.
        pub experiment: Option<ExperimentConfig>,
    }
}

/// A model at a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeploymentConfig {
    /// A name of `[llm.provider]`, or a predefined provider.
    pub provider: String,
    /// The model's name there; unset: the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its share of the requests, relative to the others of the same priority.
    #[serde(default = "one")]
    pub weight: u32,
    /// Deployments with a higher number are used only while all with a lower one are unhealthy.
    #[serde(default)]
    pub priority: u32,
    /// In place of the route's `attempt_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<HumanDuration>,
    /// In place of the route's `first_token_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_timeout: Option<HumanDuration>,
}

const fn one() -> u32 {
    1
}

/// How a deployment is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteStrategy {
    /// At random, by `weight`.
    #[default]
    Weighted,
    /// The one with the fewest requests in progress, relative to its weight.
    LeastBusy,
    /// The faster of two chosen by weight, by the average time to the first data of a response.
    Latency,
    /// The cheapest by the price list.
    Cost,
}

/// What stays at one deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stickiness {
    /// Each request is routed by itself.
    #[default]
    None,
    /// A conversation: by its session header or id, else by its first messages.
    Session,
    /// A virtual key or user, or else a provider key.
    User,
}

/// A deployment that gets copies of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShadowConfig {
    /// A name of `[llm.provider]`, or a predefined provider.
    pub provider: String,
    /// The model's name there; unset: the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The share of requests that are copied, from 0 to 1.
    pub share: f64,
}

/// The deployment of variant B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// A name of `[llm.provider]`, or a predefined provider.
    pub provider: String,
    /// The model's name there; unset: the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The share of sessions or users that get variant B, from 0 to 1.
    pub share: f64,
    /// What keeps its variant.
    #[serde(default)]
    pub by: ExperimentUnit,
}

/// What keeps its variant of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExperimentUnit {
    /// A conversation.
    #[default]
    Session,
    /// A virtual key or user, or else a provider key.
    User,
}
