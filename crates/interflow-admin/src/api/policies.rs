//! Redaction policies: which ones are active for which requests, their texts, and validated changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_llm_gateway::redaction::{PolicyUpdateError, RedactionService};
use interflow_redact::{Kind, Policy, PolicyProblem};
use serde::Deserialize;
use serde_json::{Value, json};

use super::blocking::check_text;
use super::error::{ApiError, Result};
use super::input::{StrictJson, StrictQuery};
use super::privacy::redaction_disabled;
use super::rules::require_unchanged;
use crate::server::AdminState;

/// Selects a policy by its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFileParam {
    file: PathBuf,
}

/// A policy's text: Interflow's TOML or Phileas JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyTextInput {
    text: String,
    /// The text that the change is based on: if the file has changed since, the request fails.
    #[serde(default)]
    was: Option<String>,
}

/// `GET /privacy/policies`
pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    Ok(Json(policies_json(state.redaction.as_ref().ok_or_else(redaction_disabled)?)))
}

fn policies_json(redaction: &RedactionService) -> Value {
    let policies: Vec<Value> = redaction
        .policies()
        .iter()
        .map(|p| json!({ "file": p.file, "written": p.written, "name": p.name, "routes": p.routes }))
        .collect();
    let routes: Vec<Value> = redaction
        .routes()
        .iter()
        .map(|r| {
            json!({
                "name": r.name, "mode": r.mode, "outbound": r.outbound, "file": r.file, "exception": r.exception,
            })
        })
        .collect();
    json!({ "policies": policies, "routes": routes })
}

/// `GET /privacy/policies/source?file=…`
pub(crate) async fn source(
    State(state): State<Arc<AdminState>>,
    StrictQuery(of): StrictQuery<PolicyFileParam>,
) -> Result<Json<Value>> {
    let redaction = state.redaction.as_ref().ok_or_else(redaction_disabled)?;
    let text = redaction.policy_text(&of.file).map_err(|e| rejected_policy(redaction, &of.file, e))?;
    Ok(Json(json!({ "file": of.file, "text": text })))
}

/// `PUT /privacy/policies/source?file=…`: validates, writes and activates the text, or rejects it as a whole.
pub(crate) async fn save(
    State(state): State<Arc<AdminState>>,
    StrictQuery(of): StrictQuery<PolicyFileParam>,
    StrictJson(text): StrictJson<PolicyTextInput>,
) -> Result<Json<Value>> {
    let redaction = Arc::clone(state.redaction.as_ref().ok_or_else(redaction_disabled)?);
    let checked = text.text.clone();
    let work = move || {
        let now = || redaction.policy_text(&of.file).unwrap_or_default();
        require_unchanged(&of.file.display().to_string(), text.was.as_deref(), now)?;
        redaction.replace_policy(&of.file, &text.text).map_err(|e| rejected_policy(&redaction, &of.file, e))?;
        Ok(Json(policies_json(&redaction)))
    };
    check_text(&state, &checked, work).await
}

fn rejected_policy(redaction: &RedactionService, file: &Path, why: PolicyUpdateError) -> ApiError {
    match why {
        PolicyUpdateError::Unknown => {
            let known: Vec<String> = redaction.policies().iter().map(|p| p.file.display().to_string()).collect();
            let message = format!("no active policy has the file {}", file.display());
            ApiError::new(StatusCode::NOT_FOUND, "no_file", message).fact("files", known)
        }
        PolicyUpdateError::Bad(problem) => {
            invalid_policy(problem.to_string()).fact("problems", vec![problem_json(&problem)])
        }
        PolicyUpdateError::Section(message) => invalid_policy(message),
        PolicyUpdateError::Io(e) => ApiError::internal(format!("{}: {e}", file.display())),
    }
}

fn invalid_policy(message: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_policy", message)
        .remedy("nothing has changed: the previous policy is still active")
}

fn problem_json(problem: &PolicyProblem) -> Value {
    json!({ "line": problem.line, "column": problem.column, "message": problem.message })
}

/// `POST /privacy/check`
pub(crate) async fn check(
    State(state): State<Arc<AdminState>>,
    StrictJson(text): StrictJson<PolicyTextInput>,
) -> Result<Json<Value>> {
    let text = text.text;
    let checked = text.clone();
    let work = move || {
        Ok(Json(match Policy::check(&text) {
            Ok(policy) => json!({ "ok": true, "name": policy.name(), "problems": [] }),
            Err(problem) => json!({ "ok": false, "name": null, "problems": [problem_json(&problem)] }),
        }))
    };
    check_text(&state, &checked, work).await
}

/// `GET /privacy/schema`: for completion in an editor; includes the list of kinds.
pub(crate) async fn schema() -> Json<Value> {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|k| k.as_str()).collect();
    Json(json!({ "schema": Policy::schema(), "kinds": kinds }))
}
