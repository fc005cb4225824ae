//! The Model Context Protocol over HTTP: one message, or one batch, per POST.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::Result;
use super::input::Input;
use super::work::ask;
use crate::mcp;
use crate::server::AdminState;

/// `POST /mcp`
pub(crate) async fn post(State(state): State<Arc<AdminState>>, Input(message): Input<Value>) -> Result<Response> {
    let answer = ask(&state, move |store, _| Ok(mcp::answer(store, &message))).await?;
    Ok(answer.map_or_else(|| StatusCode::ACCEPTED.into_response(), |answer| Json(answer).into_response()))
}
