//! The LLM gateway: routes and the state of their deployments; models with their prices.

use axum::Json;
use interflow_limits::ModelListing;
use interflow_llm_gateway::gateway::LlmRouteView;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::input::StrictQuery;
use crate::api::operations::context::OperationContext;
use crate::error::{ApiError, Result};
use crate::state::SharedState;

#[derive(Serialize, JsonSchema)]
pub(crate) struct LlmRoutes {
    /// Those of `[llm.route]`, and providers with fallbacks or several attempts.
    routes: Vec<LlmRouteView>,
}

/// `GET /llm/routes`; an instance without the gateway has none.
pub async fn routes(state: SharedState) -> Json<LlmRoutes> {
    Json(LlmRoutes { routes: state.llm.as_ref().map(|gateway| gateway.routes()).unwrap_or_default() })
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelParams {
    /// Only models at this provider; `named` is then the model there.
    provider: Option<String>,
    /// A model, or a part of names: `gpt-6.1-sol`, `bedrock/us.anthropic.claude-opus-5-5`, `opus`.
    query: String,
    /// Maximum number of models; the default is 50.
    limit: Option<usize>,
}

/// `GET /models`
pub async fn models(
    context: OperationContext,
    StrictQuery(params): StrictQuery<ModelParams>,
) -> Result<Json<ModelListing>> {
    let listing = context.prices().models(params.provider.as_deref(), &params.query, params.limit.unwrap_or(50));
    listing.map(Json).map_err(ApiError::bad_request)
}
