//! Redaction: what it found, and a place to try a policy in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use interflow_flow::Timestamp;
use interflow_flow::units::Span;
use interflow_query::{Expr, Key, Op, Query, Test, Time, TimePoint};
use interflow_record::{ListOptions, StoreError};
use interflow_redact::{Policy, Redactor, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::input::{Input, Params};
use super::work::{ask, check_text};
use crate::server::AdminState;

/// The longest text that is tried, in bytes.
const LONGEST: usize = 1 << 20;

pub(super) fn absent() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_redaction", "this instance redacts nothing")
}

/// `GET /privacy`
pub(crate) async fn found(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let counts = state.redaction.as_ref().ok_or_else(absent)?.counts();
    Ok(Json(json!({ "requests": counts.requests, "refused": counts.refused, "found": counts.found })))
}

/// What stands before a kind in the tag of a flow that holds it.
const FOUND: &str = "found:";
/// What stands before the route that the flow's policy was chosen by.
const ROUTE: &str = "redact:route:";
/// Flows that are looked at for one history.
const MOST_FLOWS: usize = 50_000;
/// The shortest span of a history, in microseconds.
const SHORTEST_SPAN: u64 = 60_000_000;

/// Since when, and in spans of what length.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Over {
    since: Span,
    span: Span,
}

impl Default for Over {
    fn default() -> Self {
        Self { since: Span::secs(86_400), span: Span::secs(3600) }
    }
}

/// `GET /privacy/history`: recorded flows in which something was found, by span of time, kind, host and route.
pub(crate) async fn history(State(state): State<Arc<AdminState>>, Params(over): Params<Over>) -> Result<Json<Value>> {
    let span = (over.span.0.as_micros() as u64).max(SHORTEST_SPAN);
    let since = Timestamp::now().micros().saturating_sub(over.since.0.as_micros() as u64);
    let since = since - since % span;
    let begun = Test::Time(Time::Compare(Op::Ge, TimePoint::At { start: since, lasts: 1 }));
    let tagged = Query::parse("tag:found:*").map_err(|e| ApiError::internal(e.to_string()))?;
    let query = tagged.and(Expr::term(Key::Time, begun).into());
    ask(&state, move |store, wanted| {
        let options = ListOptions { query, limit: MOST_FLOWS, ..ListOptions::default() };
        let mut found: BTreeMap<(u64, String, String, String), u64> = BTreeMap::new();
        let rows = match store.list_while(&options, &mut || wanted.go_on()) {
            Err(StoreError::Cancelled) => Vec::new(),
            rows => rows?,
        };
        for row in &rows {
            let from = row.started.micros() - row.started.micros() % span;
            let host = row.host();
            let route = row.tags.iter().find_map(|t| t.strip_prefix(ROUTE)).unwrap_or("intercepted");
            for kind in row.tags.iter().filter_map(|t| t.strip_prefix(FOUND)) {
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
        Some(text) => {
            let policy = text.clone();
            let read = move || Policy::check(&policy).map_err(|e| ApiError::bad_request(e.to_string()));
            Arc::new(Redactor::new(check_text(&state, text, read).await?))
        }
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
