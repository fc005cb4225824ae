//! Redaction: what it found, and a place to try a policy in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_redact::{Policy, Redactor, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::Input;
use crate::server::AdminState;

/// The longest text that is tried, in bytes.
const LONGEST: usize = 1 << 20;

fn absent() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_redaction", "this instance redacts nothing")
}

/// `GET /privacy`
pub(crate) async fn found(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let counts = state.redaction.as_ref().ok_or_else(absent)?.counts();
    Ok(Json(json!({ "requests": counts.requests, "refused": counts.refused, "found": counts.found })))
}

/// A text to try.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trial {
    text: String,
    /// Our TOML or Phileas's JSON; the policy in force when there is none.
    #[serde(default)]
    policy: Option<String>,
}

/// `POST /privacy/try`: nothing of it is kept or logged.
pub(crate) async fn attempt(State(state): State<Arc<AdminState>>, Input(trial): Input<Trial>) -> Result<Json<Value>> {
    if trial.text.len() > LONGEST {
        return Err(ApiError::too_large("the text", LONGEST as u64));
    }
    let redactor = match &trial.policy {
        Some(text) => Arc::new(Redactor::new(Policy::parse(text).map_err(|e| ApiError::bad_request(e.to_string()))?)),
        None => state.redaction.as_ref().ok_or_else(absent)?.redactor(),
    };
    let work = tokio::task::spawn_blocking(move || {
        let done = redactor.redact_text(&trial.text, &mut Session::one_way())?;
        Ok::<_, interflow_redact::RedactError>((done.output.unwrap_or(trial.text), done.spans))
    });
    let (output, spans) =
        work.await.map_err(|e| ApiError::internal(e.to_string()))?.map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Json(json!({ "output": output, "spans": spans })))
}
