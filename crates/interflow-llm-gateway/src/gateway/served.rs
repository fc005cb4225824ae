//! Which models may serve a request, which did, and which were sent it besides: limits price requests by them rather than
//! by the client's name.

use interflow_limits::ServedModel;
use interflow_types::{ByteStr, ErrorKind};

use super::routing::{Deployment, Route};
use super::{LlmGateway, LlmUpstream, UpstreamTable, resolve_alias};

/// The deployment that served a flow, once it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedBy(pub Option<ServedModel>);

/// How far a request came that the gateway sends itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeliveryState {
    /// It did not reach the provider, or the provider rejected it.
    #[default]
    Unsent,
    /// The provider failed instead of answering.
    Failed,
    /// It is under way, or was given up: the provider may have generated a reply.
    Underway,
}

impl DeliveryState {
    /// Of an attempt that ended with this error.
    pub(crate) const fn after(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UpstreamTimeout => Self::Underway,
            ErrorKind::UpstreamClosed | ErrorKind::BadResponse => Self::Failed,
            _ => Self::Unsent,
        }
    }
}

/// The attempts of a flow that a provider got, or may have got, without an answer for the client: those under way, those
/// that failed or timed out, and hedges that lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnansweredAttempts(Vec<UnansweredAttempt>);

#[derive(Clone, Debug)]
pub(crate) struct UnansweredAttempt {
    deployment: ByteStr,
    pub state: DeliveryState,
    pub served: Option<ServedModel>,
}

impl UnansweredAttempts {
    /// Adds an attempt that is about to be sent.
    pub fn begin(&mut self, deployment: ByteStr, served: Option<ServedModel>) {
        self.0.push(UnansweredAttempt { deployment, state: DeliveryState::Underway, served });
    }

    /// The latest attempt at this deployment ended; one that was answered or did not arrive is no longer among these.
    pub fn end(&mut self, deployment: &str, state: DeliveryState) {
        let Some(at) = self.0.iter().rposition(|attempt| attempt.deployment == *deployment) else { return };
        match state {
            DeliveryState::Unsent => drop(self.0.remove(at)),
            state => self.0[at].state = state,
        }
    }

    /// The one that came farthest, which counts as the request if none was answered.
    pub fn farthest(&self) -> Option<&UnansweredAttempt> {
        self.0.iter().max_by_key(|attempt| attempt.state)
    }

    /// The others.
    pub fn besides<'a>(&'a self, one: Option<&'a UnansweredAttempt>) -> impl Iterator<Item = &'a UnansweredAttempt> {
        self.0.iter().filter(move |attempt| one.is_none_or(|one| !std::ptr::eq(*attempt, one)))
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
}
