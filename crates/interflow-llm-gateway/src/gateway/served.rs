//! Which models may serve a request, which did, and which were sent it besides: limits price requests by them rather than
//! by the client's name.

use std::sync::Arc;

use interflow_limits::ServedModel;
use interflow_llm::LlmCall;
use interflow_types::{Attempt, AttemptState, Attempts, ErrorKind, Flow};

use super::routing::Deployment;
use super::{LlmGateway, LlmUpstream, UpstreamTable};

/// How far a request came that the gateway sends itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeliveryState {
    /// It did not reach the provider, or the provider rejected it.
    #[default]
    Unsent,
    /// The provider failed instead of answering.
    Failed,
    /// It was given up after its time. Nothing is known of a reply.
    Late,
    /// It is under way, or its client left: the provider may have generated a reply.
    Underway,
}

impl DeliveryState {
    /// Of an attempt that ended with this error.
    pub(crate) const fn after(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UpstreamTimeout => Self::Late,
            ErrorKind::UpstreamClosed | ErrorKind::BadResponse => Self::Failed,
            _ => Self::Unsent,
        }
    }

    /// Of an attempt besides the one that served the client.
    const fn of(attempt: &Attempt) -> Self {
        match (attempt.state, attempt.error) {
            (AttemptState::Running | AttemptState::Cancelled, _) => Self::Underway,
            (AttemptState::Failed, Some(kind)) => Self::after(kind),
            (AttemptState::Failed, None) | (AttemptState::Served, _) => Self::Unsent,
        }
    }
}

/// An attempt with its place among those of its flow.
#[derive(Clone, Debug)]
pub(crate) struct ListedAttempt {
    pub index: usize,
    pub state: DeliveryState,
    pub served: Option<ServedModel>,
    /// Whether its response has a status of success.
    pub is_success: bool,
}

impl ListedAttempt {
    fn new((index, attempt): (usize, &Attempt)) -> Self {
        let served = attempt
            .model
            .as_deref()
            .map(|model| ServedModel { provider: attempt.provider.as_str().into(), model: model.into() });
        let is_success = attempt.status.is_some_and(|status| (200..300).contains(&status));
        Self { index, state: DeliveryState::of(attempt), served, is_success }
    }

    /// The attempt whose response went to the client, once one did.
    pub fn serving(flow: &Flow) -> Option<Self> {
        let attempts = flow.extension::<Attempts>()?.list();
        attempts.iter().enumerate().find(|(_, attempt)| attempt.state == AttemptState::Served).map(Self::new)
    }

    /// The attempts that a provider got, or may have got, without an answer for the client: those under way, those that
    /// failed or timed out, and hedges that lost.
    pub fn unanswered(flow: &Flow) -> Vec<Self> {
        let attempts = flow.extension::<Attempts>().map(Attempts::list).unwrap_or_default();
        let listed = attempts.iter().enumerate().map(Self::new);
        listed.filter(|attempt| attempt.state != DeliveryState::Unsent).collect()
    }
}

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
        let first = table.resolve_model(addressed, model).unwrap_or(model);
        Some(table.resolve_model(upstream, model).or_else(|| table.resolve_model(upstream, first)).unwrap_or(first))
    })?;
    Some(ServedModel { provider: upstream.name.as_str().into(), model: name.into() })
}

impl LlmGateway {
    /// The name of a call's model, and those of the models that may serve it; none if the model is not known
    /// for certain.
    pub(crate) fn models_of(&self, call: &LlmCall) -> Vec<Arc<str>> {
        let Some(model) = call.model.as_ref().filter(|_| !call.is_model_unclear) else { return Vec::new() };
        let served = self.deployments_of(call, Some(model));
        std::iter::once(Arc::from(&**model)).chain(served.into_iter().map(|served| served.model)).collect()
    }

    /// The models that may serve a call of this model at an upstream's endpoint, along its route if it has one.
    pub(crate) fn deployments_of(&self, call: &LlmCall, model: Option<&str>) -> Vec<ServedModel> {
        let table = self.table();
        let Some(addressed) = call.upstream.as_deref().and_then(|name| table.get(name)) else { return Vec::new() };
        let by_model = call.route.as_deref().and_then(|name| table.routes.get(name));
        let route = by_model.or_else(|| table.routes.of_upstream(&addressed.name));
        let deployments = route.into_iter().flat_map(|route| &route.deployments);
        deployments.filter_map(|d| served_model(&table, addressed, d, Some(model?))).collect()
    }
}
