//! Redaction's policies: which are in force for which requests, their texts, and changes with refusal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_engine::redaction::{PolicyRefused, Redaction};
use interflow_redact::{Kind, Policy, PolicyProblem};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::{Input, Params};
use super::privacy::absent;
use super::rules::unchanged;
use super::work::check_text;
use crate::server::AdminState;

/// The file of a policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    file: PathBuf,
}

/// A policy's text: our TOML or Phileas's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    text: String,
    /// What stood in the file when the change began: another text there by now is not written over.
    #[serde(default)]
    was: Option<String>,
}

/// `GET /privacy/policies`
pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    Ok(Json(shown(state.redaction.as_ref().ok_or_else(absent)?)))
}

fn shown(room: &Redaction) -> Value {
    let policies: Vec<Value> = room
        .policies()
        .iter()
        .map(|p| json!({ "file": p.file, "written": p.written, "name": p.name, "routes": p.routes }))
        .collect();
    let routes: Vec<Value> = room
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
pub(crate) async fn source(State(state): State<Arc<AdminState>>, Params(of): Params<Of>) -> Result<Json<Value>> {
    let room = state.redaction.as_ref().ok_or_else(absent)?;
    let text = room.policy_text(&of.file).map_err(|e| refused(room, &of.file, e))?;
    Ok(Json(json!({ "file": of.file, "text": text })))
}

/// `PUT /privacy/policies/source?file=…`: checked, written and put in force; refused as a whole otherwise.
pub(crate) async fn put(
    State(state): State<Arc<AdminState>>,
    Params(of): Params<Of>,
    Input(text): Input<Text>,
) -> Result<Json<Value>> {
    let room = Arc::clone(state.redaction.as_ref().ok_or_else(absent)?);
    let checked = text.text.clone();
    let work = move || {
        let now = || room.policy_text(&of.file).unwrap_or_default();
        unchanged(&of.file.display().to_string(), text.was.as_deref(), now)?;
        room.replace_policy(&of.file, &text.text).map_err(|e| refused(&room, &of.file, e))?;
        Ok(Json(shown(&room)))
    };
    check_text(&state, &checked, work).await
}

fn refused(room: &Redaction, file: &Path, why: PolicyRefused) -> ApiError {
    match why {
        PolicyRefused::Unknown => {
            let known: Vec<String> = room.policies().iter().map(|p| p.file.display().to_string()).collect();
            let message = format!("no policy in force is of the file {}", file.display());
            ApiError::new(StatusCode::NOT_FOUND, "no_file", message).fact("files", known)
        }
        PolicyRefused::Bad(problem) => bad(problem.to_string()).fact("problems", vec![told(&problem)]),
        PolicyRefused::Section(message) => bad(message),
        PolicyRefused::Io(e) => ApiError::internal(format!("{}: {e}", file.display())),
    }
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_policy", message)
        .remedy("nothing has changed: the policy that was in force still is")
}

fn told(problem: &PolicyProblem) -> Value {
    json!({ "line": problem.line, "column": problem.column, "message": problem.message })
}

/// `POST /privacy/check`
pub(crate) async fn check(State(state): State<Arc<AdminState>>, Input(text): Input<Text>) -> Result<Json<Value>> {
    let text = text.text;
    let checked = text.clone();
    let work = move || {
        Ok(Json(match Policy::check(&text) {
            Ok(policy) => json!({ "ok": true, "name": policy.name(), "problems": [] }),
            Err(problem) => json!({ "ok": false, "name": null, "problems": [told(&problem)] }),
        }))
    };
    check_text(&state, &checked, work).await
}

/// `GET /privacy/schema`: by which an editor completes; the kinds are listed beside it.
pub(crate) async fn schema() -> Json<Value> {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|k| k.as_str()).collect();
    Json(json!({ "schema": Policy::schema(), "kinds": kinds }))
}
