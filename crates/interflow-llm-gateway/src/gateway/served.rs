//! Which models may serve a request, and which did: limits price requests by them rather than by the client's name.

use interflow_limits::{SHADOW_TAG, ServedModel, TagSet, TokenCounts};
use interflow_llm::ResponseSummary;

use super::routing::{Deployment, Route};
use super::{LlmGateway, LlmUpstream, UpstreamTable, resolve_alias};

/// The deployment that served a flow, once it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedBy(pub Option<ServedModel>);

/// How far a request came that the gateway sends itself, by the attempt that came farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeliveryState {
    /// No attempt reached a provider, or the provider rejected it.
    #[default]
    Unsent,
    /// The provider failed instead of answering.
    Failed,
    /// An attempt is under way, or was given up: the provider may have generated a reply.
    Underway,
}

/// Called with the usage of a request of the operator's own, its tags, and the model that the response names.
pub(super) type OperatorSpend = Box<dyn Fn(&ServedModel, &TokenCounts, Option<&str>, TagSet) + Send + Sync>;

/// The name of the client's model at a deployment. One without a name for it is sent the one of the upstream that the
/// client addressed.
pub(super) fn served_model(
    table: &UpstreamTable,
    addressed: &LlmUpstream,
    deployment: &Deployment,
    model: Option<&str>,
) -> Option<ServedModel> {
    let upstream = &deployment.upstream;
    let name = deployment.model.as_deref().or_else(|| {
        let model = model?;
        let first = resolve_alias(table, addressed, model).unwrap_or(model);
        Some(resolve_alias(table, upstream, model).or_else(|| resolve_alias(table, upstream, first)).unwrap_or(first))
    })?;
    Some(ServedModel { provider: upstream.name.as_str().into(), model: name.into() })
}

impl LlmGateway {
    /// The models that may serve a request for this model to an upstream's endpoint, along a route if it has one.
    pub fn deployments_of(&self, upstream: &str, route: Option<&str>, model: &str) -> Vec<ServedModel> {
        let table = self.table();
        let Some(addressed) = table.get(upstream) else { return Vec::new() };
        let served = |route: &Route| {
            let deployments = route.deployments.iter();
            deployments.filter_map(|d| served_model(&table, addressed, d, Some(model))).collect()
        };
        let by_model = route.and_then(|name| table.routes.get(name));
        match by_model.or_else(|| table.routes.of_upstream(upstream)) {
            Some(route) => served(route),
            None => Vec::new(),
        }
    }

    /// Sets what counts the cost of copies for shadow deployments. May be set once.
    pub fn set_operator_spend(
        &self,
        record: impl Fn(&ServedModel, &TokenCounts, Option<&str>, TagSet) + Send + Sync + 'static,
    ) {
        let _ = self.operator_spend.set(Box::new(record));
    }

    /// Counts the usage of a copy for a shadow deployment.
    pub(super) fn record_shadow(&self, deployment: &Deployment, served: Option<&ServedModel>, said: &ResponseSummary) {
        let (Some(record), Some(served), Some(usage)) = (self.operator_spend.get(), served, said.usage) else { return };
        let tags = TagSet::from([(SHADOW_TAG.to_owned(), deployment.name.to_string())]);
        record(served, &crate::limits::token_counts(&usage), said.model.as_deref(), tags);
    }
}
