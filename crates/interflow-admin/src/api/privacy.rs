//! Redaction: what it found, and a place to try a policy in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_query::{CompareOp, Expr, Key, Query, TermTest, TimePoint, TimeTest};
use interflow_redact::{Policy, RedactionSession, Redactor};
use interflow_store::{ListOptions, StoreError};
use interflow_types::Timestamp;
use interflow_types::units::HumanDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::blocking::{check_text, run_query};
use super::error::{ApiError, Result};
use super::input::{StrictJson, StrictQuery};
use crate::server::AdminState;

/// The longest text that is tried, in bytes.
const MAX_TEXT: usize = 1 << 20;

pub(super) fn redaction_disabled() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_redaction", "this instance redacts nothing")
}

/// `GET /privacy`
pub(crate) async fn findings(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let counts = state.redaction.as_ref().ok_or_else(redaction_disabled)?.counts();
    Ok(Json(json!({ "requests": counts.requests, "refused": counts.refused, "found": counts.found })))
}

/// What stands before a kind in the tag of a flow that holds it.
const FINDING_TAG_PREFIX: &str = "found:";
/// What stands before the route that the flow's policy was chosen by.
const ROUTE_TAG_PREFIX: &str = "redact:route:";
/// Flows that are looked at for one history.
const MAX_FLOWS: usize = 50_000;
/// The shortest span of a history, in microseconds.
const MIN_SPAN: u64 = 60_000_000;

/// Since when, and in spans of what length.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HistoryParams {
    since: HumanDuration,
    span: HumanDuration,
}

impl Default for HistoryParams {
    fn default() -> Self {
        Self { since: HumanDuration::from_secs(86_400), span: HumanDuration::from_secs(3600) }
    }
}

/// `GET /privacy/history`: recorded flows in which something was found, by span of time, kind, host and route.
pub(crate) async fn history(
    State(state): State<Arc<AdminState>>,
    StrictQuery(over): StrictQuery<HistoryParams>,
) -> Result<Json<Value>> {
    let span = (over.span.0.as_micros() as u64).max(MIN_SPAN);
    let since = Timestamp::now().micros().saturating_sub(over.since.0.as_micros() as u64);
    let since = since - since % span;
    let begun = TermTest::Time(TimeTest::Compare(CompareOp::Ge, TimePoint::At { start: since, lasts: 1 }));
    let tagged = Query::parse("tag:found:*").map_err(|e| ApiError::internal(e.to_string()))?;
    let query = tagged.and(Expr::term(Key::Time, begun).into());
    run_query(&state, move |store, wanted| {
        let options = ListOptions { query, limit: MAX_FLOWS, ..ListOptions::default() };
        let mut found: BTreeMap<(u64, String, String, String), u64> = BTreeMap::new();
        let rows = match store.list_while(&options, &mut || wanted.check()) {
            Err(StoreError::Cancelled) => Vec::new(),
            rows => rows?,
        };
        for row in &rows {
            let from = row.started.micros() - row.started.micros() % span;
            let host = row.host();
            let route = row.tags.iter().find_map(|t| t.strip_prefix(ROUTE_TAG_PREFIX)).unwrap_or("intercepted");
            for kind in row.tags.iter().filter_map(|t| t.strip_prefix(FINDING_TAG_PREFIX)) {
                let key = (from, kind.to_owned(), host.clone().into_owned(), route.to_owned());
                *found.entry(key).or_default() += 1;
            }
        }
        let rows: Vec<Value> = found
            .into_iter()
            .map(|((from, kind, host, route), flows)| {
                json!({ "from": from, "kind": kind, "host": host, "route": route, "flows": flows })
            })
            .collect();
        Ok(Json(json!({ "since": since, "span": span, "found": rows })))
    })
    .await
}

/// A text to try.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedactionTrialInput {
    text: String,
    /// Our TOML or Phileas's JSON; the policy in force when there is none.
    #[serde(default)]
    policy: Option<String>,
}

/// `POST /privacy/try`: nothing of it is kept or logged.
pub(crate) async fn try_policy(
    State(state): State<Arc<AdminState>>,
    StrictJson(trial): StrictJson<RedactionTrialInput>,
) -> Result<Json<Value>> {
    if trial.text.len() > MAX_TEXT {
        return Err(ApiError::too_large("the text", MAX_TEXT as u64));
    }
    let redactor = match &trial.policy {
        Some(text) => {
            let policy = text.clone();
            let read = move || Policy::check(&policy).map_err(|e| ApiError::bad_request(e.to_string()));
            Arc::new(Redactor::new(check_text(&state, text, read).await?))
        }
        None => state.redaction.as_ref().ok_or_else(redaction_disabled)?.redactor(),
    };
    let work = tokio::task::spawn_blocking(move || {
        let done = redactor.redact_text(&trial.text, &mut RedactionSession::one_way())?;
        Ok::<_, interflow_redact::RedactError>((done.output.unwrap_or(trial.text), done.spans))
    });
    let (output, spans) =
        work.await.map_err(|e| ApiError::internal(e.to_string()))?.map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Json(json!({ "output": output, "spans": spans })))
}
