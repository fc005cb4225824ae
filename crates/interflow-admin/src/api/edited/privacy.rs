//! Redaction: findings, and a sandbox for trying a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use interflow_llm_gateway::redaction::RedactionCounts;
use interflow_query::{CompareOp, Expr, Key, Query, TermTest, TimePoint, TimeTest};
use interflow_redact::{PlaceholderVault, Policy, RedactionSession, Redactor, Replacement, VaultKey};
use interflow_store::{ListOptions, StoreError};
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{Timestamp, config_sections};
use serde::{Deserialize, Serialize};

use crate::api::blocking::run_query;
use crate::api::edited::edits::check_text;
use crate::api::input::{StrictJson, StrictQuery};
use crate::error::{ApiError, Result};
use crate::records::blocking;
use crate::state::SharedState;

/// Maximum size of a text to try, in bytes.
const MAX_TEXT: usize = 1 << 20;

pub(crate) fn redaction_disabled() -> ApiError {
    ApiError::unavailable("no_redaction", "this instance redacts nothing")
}

pub async fn findings(state: SharedState) -> Result<Json<RedactionCounts>> {
    Ok(Json(state.redaction.as_ref().ok_or_else(redaction_disabled)?.counts()))
}

/// Prefix of the tag that names a kind found in a flow.
const FINDING_TAG_PREFIX: &str = "found:";
/// Prefix of the tag that names the route by which the flow's policy was selected.
const ROUTE_TAG_PREFIX: &str = "redact:route:";
/// Maximum number of flows per history; the newest count.
const MAX_FLOWS: usize = 50_000;
/// Shortest time bucket of a history, in microseconds: one minute.
const MIN_SPAN: u64 = 60_000_000;

config_sections! {
    pub struct HistoryParams {
        /// How far back; one day by default.
        pub since: HumanDuration = HumanDuration::from_secs(86_400),
        /// The length of one bucket; one hour by default.
        pub span: HumanDuration = HumanDuration::from_secs(3600),
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FindingsHistory {
    /// Start of the first bucket, in microseconds since the Unix epoch.
    since: u64,
    /// Length of a bucket, in microseconds.
    span: u64,
    found: Vec<FoundKind>,
}

#[derive(Serialize, JsonSchema)]
struct FoundKind {
    /// Start of the bucket, in microseconds since the Unix epoch.
    from: u64,
    kind: String,
    host: String,
    /// `gateway`, `intercepted`, or an exception's name.
    route: String,
    flows: u64,
}

/// `GET /privacy/history`: recorded flows with findings, by time bucket, kind, host and route.
pub async fn history(
    state: SharedState,
    StrictQuery(over): StrictQuery<HistoryParams>,
) -> Result<Json<FindingsHistory>> {
    let span = (over.span.0.as_micros() as u64).max(MIN_SPAN);
    let since = Timestamp::now().micros().saturating_sub(over.since.0.as_micros() as u64);
    // Buckets begin at multiples of their length, so that they stay the same from one call to the next.
    let since = since - since % span;
    let begun = TermTest::Time(TimeTest::Compare(CompareOp::Ge, TimePoint::At { start: since, lasts: 1 }));
    let tagged = Query::parse("tag:found:*").map_err(|e| ApiError::internal(e.to_string()))?;
    let query = tagged.and(Expr::term(Key::Time, begun).into());
    run_query(&state, move |store, wanted| {
        let options = ListOptions { query, limit: MAX_FLOWS, ..ListOptions::default() };
        let mut findings: BTreeMap<(u64, String, String, String), u64> = BTreeMap::new();
        let rows = match store.list_while(&options, &mut || wanted.check()) {
            // The client has gone away; nobody reads the result.
            Err(StoreError::Cancelled) => Vec::new(),
            rows => rows?,
        };
        for row in &rows {
            let from = row.started.micros() - row.started.micros() % span;
            let host = row.host();
            let route = row.tags.iter().find_map(|t| t.strip_prefix(ROUTE_TAG_PREFIX)).unwrap_or("intercepted");
            for kind in row.tags.iter().filter_map(|t| t.strip_prefix(FINDING_TAG_PREFIX)) {
                // A flow counts once for each kind that was found in it.
                let key = (from, kind.to_owned(), host.clone().into_owned(), route.to_owned());
                *findings.entry(key).or_default() += 1;
            }
        }
        let row = |((from, kind, host, route), flows)| FoundKind { from, kind, host, route, flows };
        Ok(Json(FindingsHistory { since, span, found: findings.into_iter().map(row).collect() }))
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedactionTrialInput {
    text: String,
    /// Interflow's TOML or Phileas JSON; the active policy if absent.
    policy: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RedactionTrial {
    output: String,
    spans: Vec<Replacement>,
}

/// `POST /privacy/try`: nothing of it is stored or logged.
pub async fn try_policy(
    state: SharedState,
    StrictJson(trial): StrictJson<RedactionTrialInput>,
) -> Result<Json<RedactionTrial>> {
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
    let work = move || {
        // Placeholders as of a conversation, whose key is forgotten with the trial.
        let vault = PlaceholderVault::new(&VaultKey::random()?);
        let done = redactor.redact_text(&trial.text, &mut RedactionSession::reversible(vault))?;
        let output = done.output.unwrap_or(trial.text);
        Ok::<_, interflow_redact::RedactError>(Json(RedactionTrial { output, spans: done.spans }))
    };
    blocking(work).await?.map_err(|e| ApiError::bad_request(e.to_string()))
}
