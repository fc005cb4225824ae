//! The accounts that users of the MCP gateway have connected at servers.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use interflow_mcp_gateway::{McpAccount, McpService};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::input::StrictJson;
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::state::{AdminState, SharedState};

#[derive(Serialize, JsonSchema)]
pub(crate) struct McpAccounts {
    accounts: Vec<McpAccount>,
}

/// An account to forget.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpAccountInput {
    server: String,
    user: String,
}

fn service(state: &AdminState) -> Result<&Arc<McpService>> {
    let none = || ApiError::unavailable("no_mcp", "this instance has no MCP gateway");
    state.mcp.as_ref().ok_or_else(none)
}

pub async fn list(state: SharedState) -> Result<Json<McpAccounts>> {
    let accounts = service(&state)?.accounts().await.map_err(ApiError::internal)?;
    Ok(Json(McpAccounts { accounts }))
}

pub async fn remove(
    state: SharedState,
    caller: Caller,
    StrictJson(account): StrictJson<McpAccountInput>,
) -> Result<StatusCode> {
    let McpAccountInput { server, user } = account;
    caller.record_detail(json!({ "server": server, "user": user }));
    let exists = service(&state)?.remove_account(&user, &server).await.map_err(ApiError::internal)?;
    let message = || format!("{user} has no account at {server}");
    ApiError::no_content(exists, || ApiError::new(StatusCode::NOT_FOUND, "no_account", message()))
}
