//! The Model Context Protocol over HTTP: one message, or one batch, per POST.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::{ApiError, Result};
use super::input::{Id, Input};
use super::work::ask;
use super::{flows, replay, rules};
use crate::mcp::{self, Access, Errand, Verb};
use crate::server::AdminState;

/// `POST /mcp`
pub(crate) async fn post(
    State(state): State<Arc<AdminState>>,
    headers: HeaderMap,
    Input(message): Input<Value>,
) -> Result<Response> {
    // Clients name the version that they were greeted in with every message behind the greeting.
    if let Some(version) = headers.get("mcp-protocol-version").map(|v| v.to_str().unwrap_or_default())
        && !mcp::speaks(version)
    {
        return Err(ApiError::bad_request(format!("version `{version}` of the protocol is not spoken")));
    }
    let access = if state.mcp_writes { Access::Writes } else { Access::ReadOnly };
    let (messages, many) = match mcp::messages(message) {
        Ok(messages) => messages,
        Err(answer) => return Ok(Json(answer).into_response()),
    };
    let mut answers = Vec::new();
    for message in messages {
        let answer = match mcp::errand(&message, access) {
            Some(Ok(errand)) => Some(errand.answer(run(&state, &errand).await)),
            Some(Err(refused)) => Some(refused),
            None => ask(&state, move |store, _| Ok(mcp::answer(store, &message, access))).await?,
        };
        answers.extend(answer);
    }
    Ok(match (answers.len(), many) {
        (0, _) => StatusCode::ACCEPTED.into_response(),
        (_, true) => Json(Value::from(answers)).into_response(),
        (_, false) => Json(answers.swap_remove(0)).into_response(),
    })
}

/// Does what the API does for the same call.
async fn run(state: &Arc<AdminState>, errand: &Errand) -> Result<Value, String> {
    let said = |e: ApiError| e.to_json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    let (state, id, input) = (State(Arc::clone(state)), Id(errand.flow), errand.input.clone());
    match errand.verb {
        Verb::ExplainRules => rules::explain_flow(state, id).await.map(|Json(v)| v).map_err(said),
        Verb::Annotate => {
            let marks = serde_json::from_value(input).map_err(|e| e.to_string())?;
            flows::annotate(state, id, Input(marks)).await.map_err(said).and_then(|Json(v)| told(v))
        }
        Verb::Replay => {
            let replay = serde_json::from_value(input).map_err(|e| e.to_string())?;
            replay::replay(state, id, Input(replay)).await.map_err(said).and_then(|Json(v)| told(v))
        }
    }
}

fn told(value: impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|e| e.to_string())
}
