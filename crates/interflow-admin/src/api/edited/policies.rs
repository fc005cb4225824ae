//! Redaction policies: which ones are active for which requests, their texts, and validated changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use interflow_files::EditTurn;
use interflow_llm_gateway::redaction::{PolicyFileView, PolicyUpdateError, RedactionService, RouteView};
use interflow_redact::{Kind, Policy, PolicyProblem};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::edited::edits::{check_text, edit_error, save_text};
use crate::api::edited::privacy::redaction_disabled;
use crate::api::input::{StrictJson, StrictQuery};
use crate::error::{ApiError, Result, TextProblem};
use crate::identity::caller::Caller;
use crate::state::SharedState;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyFileParam {
    /// The file, as the list of policies names it.
    file: PathBuf,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyTextInput {
    text: String,
    /// The text that the change is based on: if the file has changed since, the request fails.
    base: Option<String>,
}

pub async fn list(state: SharedState) -> Result<Json<Policies>> {
    Ok(Json(Policies::of(state.redaction.as_ref().ok_or_else(redaction_disabled)?)))
}

/// The active policies, and the requests that each applies to.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Policies {
    policies: Vec<PolicyFileView>,
    routes: Vec<RouteView>,
}

impl Policies {
    fn of(redaction: &RedactionService) -> Self {
        Self { policies: redaction.policies(), routes: redaction.routes() }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PolicySource {
    file: PathBuf,
    text: String,
}

/// `GET /privacy/policies/source?file=…`: only files of active policies can be read.
pub async fn source(state: SharedState, StrictQuery(of): StrictQuery<PolicyFileParam>) -> Result<Json<PolicySource>> {
    let redaction = state.redaction.as_ref().ok_or_else(redaction_disabled)?;
    let text = redaction.policy_text(&of.file).map_err(|e| rejected_policy(redaction, &of.file, e))?;
    Ok(Json(PolicySource { file: of.file, text }))
}

/// `PUT /privacy/policies/source?file=…`: validates, writes and activates the text, or rejects it as a whole.
pub async fn save(
    state: SharedState,
    caller: Caller,
    StrictQuery(of): StrictQuery<PolicyFileParam>,
    StrictJson(text): StrictJson<PolicyTextInput>,
) -> Result<Json<Policies>> {
    let redaction = Arc::clone(state.redaction.as_ref().ok_or_else(redaction_disabled)?);
    let checked = text.text.clone();
    caller.record_detail(json!({ "file": of.file, "sha256": hex::encode(Sha256::digest(&text.text)) }));
    let work = move |turn: &EditTurn| {
        let PolicyTextInput { text, base } = text;
        let replaced = redaction.replace_policy(turn, &of.file, base.as_deref(), text);
        let rejected = |e| rejected_policy(&redaction, &of.file, e);
        replaced.map_err(|e| edit_error(&of.file.display().to_string(), e, rejected))?;
        Ok(Json(Policies::of(&redaction)))
    };
    save_text(&state, &checked, work).await
}

fn rejected_policy(redaction: &RedactionService, file: &Path, why: PolicyUpdateError) -> ApiError {
    match why {
        PolicyUpdateError::Unknown => {
            let files: Vec<String> = redaction.policies().iter().map(|p| p.file.display().to_string()).collect();
            let message = format!("no active policy has the file {}", file.display());
            ApiError::new(StatusCode::NOT_FOUND, "no_file", message).with(|details| details.files = files)
        }
        PolicyUpdateError::Bad(problem) => {
            invalid_policy(problem.to_string()).with(|details| details.problems = vec![TextProblem::Policy(problem)])
        }
        PolicyUpdateError::Section(message) => invalid_policy(message),
        PolicyUpdateError::Io(e) => ApiError::internal(format!("{}: {e}", file.display())),
    }
}

fn invalid_policy(message: String) -> ApiError {
    ApiError::unprocessable("bad_policy", message)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CheckedPolicy {
    ok: bool,
    /// The policy's name, if it is valid.
    name: Option<String>,
    problems: Vec<PolicyProblem>,
}

pub async fn check(state: SharedState, StrictJson(text): StrictJson<PolicyTextInput>) -> Result<Json<CheckedPolicy>> {
    let text = text.text;
    let checked = text.clone();
    let work = move || {
        Ok(Json(match Policy::check(&text) {
            Ok(policy) => CheckedPolicy { ok: true, name: Some(policy.name().to_owned()), problems: Vec::new() },
            Err(problem) => CheckedPolicy { ok: false, name: None, problems: vec![problem] },
        }))
    };
    check_text(&state, &checked, work).await
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PolicySchema {
    /// The JSON Schema of Interflow's policies.
    #[schemars(with = "serde_json::Map<String, Value>")]
    schema: Value,
    kinds: Vec<&'static str>,
}

/// `GET /privacy/schema`: for completion in an editor; includes the list of kinds.
pub async fn schema() -> Json<PolicySchema> {
    let kinds = Kind::ALL.iter().map(|k| k.as_str()).collect();
    Json(PolicySchema { schema: Policy::schema(), kinds })
}
