//! Lists of models for clients of Gemini at an upstream with another API.

use std::collections::BTreeSet;
use std::sync::Arc;

use interflow_llm::translate::WireFormat;
use interflow_llm::{LlmRefusal, Provider};
use interflow_types::{
    BoxFuture, Flow, GatewayRequest, LocalHandler, Method, Request, Response, Result, StatusCode, Timestamp, percent,
};
use serde_json::{Value, json};

use super::super::routes::ResolvedRoute;
use super::super::{LlmGateway, LlmUpstream};

/// Answers with the models of the upstream's provider in the catalog, and the names that the operator gave to models.
pub(crate) struct ModelListHandler {
    gateway: Arc<LlmGateway>,
    upstream: Arc<LlmUpstream>,
    /// The model that is looked up, instead of all.
    requested: Option<String>,
}

impl ModelListHandler {
    /// `None` for any other request.
    pub fn new(gateway: &Arc<LlmGateway>, route: &ResolvedRoute<'_>, request: &GatewayRequest<'_>) -> Option<Self> {
        let (upstream, path) = (&route.upstream, route.rest.split('?').next()?.trim_end_matches('/'));
        let is_google = || ["x-goog-api-key", "x-goog-api-client"].iter().any(|name| request.headers.contains(name));
        let requested =
            path.strip_prefix("/v1beta/models").or_else(|| path.strip_prefix("/v1/models").filter(|_| is_google()));
        let requested = requested.filter(|_| matches!(*request.method, Method::GET | Method::HEAD))?;
        let requested = if requested.is_empty() { None } else { Some(requested.strip_prefix('/')?) };
        if upstream.takes(WireFormat::Gemini) || matches!(upstream.provider, Provider::Gemini | Provider::Vertex) {
            return None;
        }
        let requested = requested.map(|name| percent::decoded(name).into_owned());
        Some(Self { gateway: Arc::clone(gateway), upstream: Arc::clone(upstream), requested })
    }

    fn models(&self) -> Vec<Value> {
        let (table, upstream) = (self.gateway.table(), &self.upstream);
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
        models.collect()
    }
}

impl LocalHandler for ModelListHandler {
    fn serve<'a>(&'a self, flow: &'a mut Flow, _: Request) -> BoxFuture<'a, Result<Response>> {
        let response = |body: &Value| Response::full(StatusCode::OK, "application/json", body.to_string());
        let models = self.models();
        let answer = match &self.requested {
            None => response(&json!({ "models": models })),
            Some(name) => match models.iter().find(|model| model["displayName"] == **name) {
                Some(model) => response(model),
                None => {
                    let message = format!("there is no model {name} in the catalog or the configuration");
                    let refusal = LlmRefusal::new(StatusCode::NOT_FOUND, "not_found", "model_not_found", message);
                    refusal.to_response(Provider::Gemini, flow)
                }
            },
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}
