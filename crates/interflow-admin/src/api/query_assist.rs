//! Query input assistance: completion, validation, help.

use axum::Json;
use axum::http::StatusCode;
use interflow_query::{Query, complete as completions, help as help_text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::StrictQuery;

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompletionParams {
    q: String,
}

/// `GET /query/complete`
pub(crate) async fn complete(StrictQuery(typed): StrictQuery<CompletionParams>) -> Result<Json<Value>> {
    if typed.q.len() > interflow_query::MAX_LENGTH {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_query", "the query is too long"));
    }
    let list: Vec<Value> =
        completions(&typed.q).into_iter().map(|c| json!({"start": c.start, "text": c.text, "doc": c.doc})).collect();
    Ok(Json(json!({ "completions": list })))
}

/// `GET /query/check`: an invalid query is a regular result here, not an error.
pub(crate) async fn check(StrictQuery(typed): StrictQuery<CompletionParams>) -> Json<Value> {
    Json(match Query::parse(&typed.q) {
        Ok(query) => json!({"ok": true, "query": query.to_string(), "all": query.is_all()}),
        Err(e) => {
            let error = ApiError::from(e).to_json();
            json!({"ok": false, "error": error["error"]})
        }
    })
}

/// `GET /query/help`
pub(crate) async fn help() -> Json<Value> {
    Json(json!({ "text": help_text() }))
}
