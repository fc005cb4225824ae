//! Query input assistance: completion, validation, help.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
use interflow_query::{Query, complete as completions, help as help_text};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::blocking::run_query;
use crate::api::input::StrictQuery;
use crate::error::{ApiError, ErrorDetails, Result};
use crate::state::SharedState;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompletionParams {
    q: String,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CheckParams {
    q: String,
    /// Whether `did_you_mean` may name a host of the newest flows.
    hosts: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Completions {
    completions: Vec<Completion>,
}

/// What may replace the end of the query.
#[derive(Serialize, JsonSchema)]
struct Completion {
    /// Where the replaced text begins, in bytes.
    start: usize,
    text: String,
    doc: &'static str,
}

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct CheckedQuery {
    ok: bool,
    /// The query in its canonical form, if it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    /// Whether it selects every flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<bool>,
    /// What in it is probably not meant, such as an operator in lower case, which is searched as a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// A query that was probably meant, if this one selects nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    did_you_mean: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDetails>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueryHelp {
    text: String,
}

pub async fn complete(StrictQuery(typed): StrictQuery<CompletionParams>) -> Result<Json<Completions>> {
    if typed.q.len() > interflow_query::MAX_LENGTH {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_query", "the query is too long"));
    }
    let completion = |c: interflow_query::Completion| Completion { start: c.start, text: c.text, doc: c.doc };
    Ok(Json(Completions { completions: completions(&typed.q).into_iter().map(completion).collect() }))
}

/// `GET /query/check`: an invalid query is a regular result here, not an error.
pub async fn check(state: SharedState, StrictQuery(typed): StrictQuery<CheckParams>) -> Result<Json<CheckedQuery>> {
    let query = match Query::parse(&typed.q) {
        Ok(query) => query,
        Err(e) => {
            let error = Some(ApiError::from(e).into_details());
            return Ok(Json(CheckedQuery { error, ..CheckedQuery::default() }));
        }
    };
    // Without a store there are none to suggest.
    let hosts = match typed.hosts {
        true => run_query(&state, |store, wanted| Ok(store.recent_hosts(&mut || wanted.check())?)).await,
        false => Ok(BTreeSet::new()),
    };
    Ok(Json(CheckedQuery {
        ok: true,
        query: Some(query.to_string()),
        all: Some(query.is_all()),
        hint: query.hint().map(ToString::to_string),
        did_you_mean: query.did_you_mean(&typed.q, &hosts.unwrap_or_default()),
        ..CheckedQuery::default()
    }))
}

pub async fn help() -> Json<QueryHelp> {
    Json(QueryHelp { text: help_text() })
}
