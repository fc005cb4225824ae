//! The LLM gateway: routes and the state of their deployments.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use interflow_llm_gateway::gateway::LlmRouteView;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use crate::state::AdminState;

#[derive(Serialize, JsonSchema)]
pub(crate) struct LlmRoutes {
    /// Those of `[llm.route]`, and providers with fallbacks or several attempts.
    routes: Vec<LlmRouteView>,
}

/// `GET /llm/routes`; an instance without the gateway has none.
pub(crate) async fn routes(State(state): State<Arc<AdminState>>) -> Json<LlmRoutes> {
    Json(LlmRoutes { routes: state.llm.as_ref().map(|gateway| gateway.routes()).unwrap_or_default() })
}
