//! Which models may serve a request, which did, and which were sent it besides: limits price requests by them rather than
//! by the client's name.

use std::collections::BTreeSet;

use interflow_limits::ServedModel;
use interflow_llm::translate::WireFormat;
use interflow_llm::{LlmRefusal, Provider};
use interflow_types::{
    Attempt, AttemptState, Attempts, BoxFuture, ErrorKind, Flow, GatewayRequest, LocalHandler, Method, Request,
    Response, Result, StatusCode, Timestamp, percent,
};
use serde_json::{Value, json};

use super::routes::ResolvedRoute;
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

/// Answers clients of Gemini that list models, at an upstream with another API: the models of its provider in the catalog,
/// and the names that the operator gave to models.
pub(super) struct ModelListHandler {
    models: Vec<Value>,
    /// The model that is looked up, instead of all.
    requested: Option<String>,
}

impl ModelListHandler {
    /// `None` for any other request.
    pub fn new(table: &UpstreamTable, route: &ResolvedRoute<'_>, request: &GatewayRequest<'_>) -> Option<Self> {
        let (upstream, path) = (&route.upstream, route.rest.split('?').next()?.trim_end_matches('/'));
        let is_google = || ["x-goog-api-key", "x-goog-api-client"].iter().any(|name| request.headers.contains(name));
        let requested =
            path.strip_prefix("/v1beta/models").or_else(|| path.strip_prefix("/v1/models").filter(|_| is_google()));
        let requested = requested.filter(|_| matches!(*request.method, Method::GET | Method::HEAD))?;
        let requested = if requested.is_empty() { None } else { Some(requested.strip_prefix('/')?) };
        if upstream.takes(WireFormat::Gemini) || matches!(upstream.provider, Provider::Gemini | Provider::Vertex) {
            return None;
        }
        let (catalog, today) = (interflow_models::current(), interflow_models::day(Timestamp::now()));
        let at_provider = format!("{}/", upstream.name);
        let own = catalog.names(&at_provider).filter_map(|name| name.strip_prefix(&at_provider));
        let is_served = |name: &&str| {
            let model = catalog.model(&upstream.name, name);
            model.is_some_and(|model| {
                matches!(model.mode.as_deref(), Some("chat" | "responses"))
                    && model.ends.as_ref().is_none_or(|day| *day >= today)
            })
        };
        let given = table.routes.configured_models().chain(table.aliases.keys()).chain(upstream.models.keys());
        let names: BTreeSet<&str> = own.filter(is_served).chain(given.map(String::as_str)).collect();
        let names = names.into_iter().filter(|name| !name.contains('*'));
        let models = names.map(|name| {
            let target = table.resolve_model(upstream, name).unwrap_or(name);
            let limits = catalog.model(&upstream.name, target).map(|model| model.limits).unwrap_or_default();
            json!({
                "name": format!("models/{name}"), "version": "", "displayName": name,
                "inputTokenLimit": limits.input, "outputTokenLimit": limits.output,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            })
        });
        Some(Self { models: models.collect(), requested: requested.map(|name| percent::decoded(name).into_owned()) })
    }
}

impl LocalHandler for ModelListHandler {
    fn serve<'a>(&'a self, flow: &'a mut Flow, _: Request) -> BoxFuture<'a, Result<Response>> {
        let response = |body: &Value| Response::full(StatusCode::OK, "application/json", body.to_string());
        let answer = match &self.requested {
            None => response(&json!({ "models": self.models })),
            Some(name) => match self.models.iter().find(|model| model["displayName"] == **name) {
                Some(model) => response(model),
                None => {
                    let message = format!("there is no model {name} in the catalog or the configuration");
                    LlmRefusal::new(StatusCode::NOT_FOUND, "not_found", "model_not_found", message)
                        .to_response(Provider::Gemini, flow)
                }
            },
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

impl LlmGateway {
    /// The models that may serve a request for this model to an upstream's endpoint, along a route if it has one.
    pub fn deployments_of(&self, upstream: &str, route: Option<&str>, model: &str) -> Vec<ServedModel> {
        let table = self.table();
        let Some(addressed) = table.get(upstream) else { return Vec::new() };
        let by_model = route.and_then(|name| table.routes.get(name));
        let route = by_model.or_else(|| table.routes.of_upstream(upstream));
        let deployments = route.into_iter().flat_map(|route| &route.deployments);
        deployments.filter_map(|d| served_model(&table, addressed, d, Some(model))).collect()
    }
}
