//! Conversations with language models: lists, threads, documents, totals.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use interflow_engine::conversations::endpoints::{Endpoint, Endpoints};
use interflow_engine::conversations::export::{self, Form};
use interflow_engine::conversations::live::Live;
use interflow_engine::conversations::open;
use interflow_flow::Timestamp;
use interflow_flow::units::Span;
use interflow_llm::conversation::Key;
use interflow_record::{ConversationOptions, Listed, Store, Total};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::error::{ApiError, Result};
use super::hostile;
use super::input::{Input, Params, flow_id, query};
use super::work::ask;
use crate::server::AdminState;

/// The most conversations on one page.
const MAX_PAGE: usize = 500;
/// The most flows asked about at once.
const MAX_FLOWS: usize = 500;
/// How long after its last exchange a conversation counts as going on, in microseconds.
const GOING_ON: u64 = 90_000_000;
/// The shortest span of totals, in microseconds: a minute.
const SHORTEST_SPAN: u64 = 60_000_000;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListParams {
    query: String,
    limit: usize,
    after: Option<String>,
    parent: Option<String>,
    all: bool,
}

impl Default for ListParams {
    fn default() -> Self {
        Self { query: String::new(), limit: 100, after: None, parent: None, all: false }
    }
}

/// `GET /conversations`
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    Params(params): Params<ListParams>,
) -> Result<Json<Value>> {
    let limit = params.limit.clamp(1, MAX_PAGE);
    let options = ConversationOptions {
        query: query(&params.query)?,
        parent: params.parent,
        all: params.all,
        after: params.after,
        limit,
    };
    ask(&state, move |store, _| {
        let found = store.conversations(&options)?;
        let next = if found.len() == limit { found.last().map(|l| l.row.id.clone()) } else { None };
        let now = Timestamp::now();
        let conversations: Vec<Value> = found.iter().map(|l| listed(l, now)).collect();
        Ok(Json(json!({"conversations": conversations, "next": next})))
    })
    .await
}

fn listed(listed: &Listed, now: Timestamp) -> Value {
    let mut value = json!(listed);
    value["live"] = (now.micros().saturating_sub(listed.row.updated.micros()) < GOING_ON).into();
    value
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ShowParams {
    leaf: Option<String>,
}

/// `GET /conversations/{id}`
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    Params(params): Params<ShowParams>,
) -> Result<Json<Value>> {
    let leaf = params.leaf.map(|t| u128::from_str_radix(&t, 16).map(Key)).transpose();
    let leaf = leaf.map_err(|_| ApiError::bad_request("`leaf` is a message's key: 32 hexadecimal digits"))?;
    ask(&state, move |store, _| {
        let id = named(store, &id)?;
        let opened = open::open(store, &id, leaf)?.ok_or_else(|| missing(&id))?;
        Ok(Json(json!(opened)))
    })
    .await
}

/// The conversation that a word names.
fn named(store: &dyn Store, word: &str) -> Result<String> {
    open::find(store, word)?.ok_or_else(|| missing(word))
}

fn missing(word: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is no conversation `{word}`"))
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExportParams {
    format: Option<String>,
}

/// `GET /conversations/{id}/export`
pub(crate) async fn export(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    Params(params): Params<ExportParams>,
) -> Result<Response> {
    let form: Form = params.format.as_deref().unwrap_or("markdown").parse().map_err(ApiError::bad_request)?;
    let (name, text) = ask(&state, move |store, _| {
        let id = named(store, &id)?;
        let tree = export::tree(store, &id)?.ok_or_else(|| missing(&id))?;
        Ok((id, export::write(&tree, form)))
    })
    .await?;
    let (ending, media) = form.file();
    Ok(hostile::file(media, &format!("{name}.{ending}"), Body::from(text)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesParams {
    flow: String,
    #[serde(default)]
    part: u64,
}

/// `GET /conversations/{id}/changes`
pub(crate) async fn changes(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    Params(params): Params<ChangesParams>,
) -> Result<Json<Value>> {
    let flow = flow_id(&params.flow)?;
    ask(&state, move |store, _| {
        let id = named(store, &id)?;
        Ok(Json(json!({"changes": open::changes(store, &id, flow, params.part)?})))
    })
    .await
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TotalsParams {
    since: Span,
    span: Span,
}

impl Default for TotalsParams {
    fn default() -> Self {
        Self { since: Span::secs(7 * 86_400), span: Span::secs(86_400) }
    }
}

/// `GET /conversations/totals`
pub(crate) async fn totals(
    State(state): State<Arc<AdminState>>,
    Params(params): Params<TotalsParams>,
) -> Result<Json<Value>> {
    let span = (params.span.0.as_micros() as u64).max(SHORTEST_SPAN);
    let since = Timestamp::now().micros().saturating_sub(params.since.0.as_micros() as u64);
    ask(&state, move |store, _| {
        let totals: Vec<Total> = store.totals(Timestamp::from_micros(since), span)?;
        Ok(Json(json!({"since": since, "span": span, "totals": totals})))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowsParams {
    flows: String,
}

/// What the traffic table shows of a flow that is an exchange with a model.
#[derive(Serialize)]
struct OfFlow {
    conversation: String,
    agent: String,
    model: String,
    input: u64,
    output: u64,
    cost: Option<f64>,
}

/// `GET /conversations/of`
pub(crate) async fn of_flows(
    State(state): State<Arc<AdminState>>,
    Params(params): Params<FlowsParams>,
) -> Result<Json<Value>> {
    let ids = params.flows.split(',').filter(|t| !t.is_empty()).take(MAX_FLOWS);
    let ids = ids.map(flow_id).collect::<Result<Vec<_>>>()?;
    ask(&state, move |store, _| {
        let mut found = Map::new();
        for id in ids {
            let exchanges = store.exchanges_in(id)?;
            let Some(last) = exchanges.last() else { continue };
            let sum = |f: fn(&interflow_record::Used) -> u64| exchanges.iter().map(|e| f(&e.used)).sum();
            let of = OfFlow {
                conversation: last.conversation.clone(),
                agent: last.agent.clone(),
                model: last.model.clone(),
                input: sum(|u| u.input),
                output: sum(|u| u.output),
                cost: exchanges
                    .iter()
                    .all(|e| e.used.unpriced == 0)
                    .then(|| exchanges.iter().map(|e| e.used.cost).sum()),
            };
            found.insert(id.to_string(), json!(of));
        }
        Ok(Json(json!({ "flows": found })))
    })
    .await
}

/// What the owner says of endpoints.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenEndpoints {
    endpoints: Vec<Endpoint>,
}

/// `GET /conversations/endpoints`
pub(crate) async fn endpoints(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    ask(&state, |store, _| Ok(Json(json!({"endpoints": Endpoints::of(store)?.list()})))).await
}

/// `PUT /conversations/endpoints`: all of them at once.
pub(crate) async fn set_endpoints(
    State(state): State<Arc<AdminState>>,
    Input(given): Input<GivenEndpoints>,
) -> Result<Json<Value>> {
    let endpoints = Endpoints::new(given.endpoints).map_err(ApiError::bad_request)?;
    live(&state)?.heed(endpoints.clone()).await?;
    Ok(Json(json!({"endpoints": endpoints.list()})))
}

fn live(state: &AdminState) -> Result<Live> {
    state.conversations.clone().ok_or_else(|| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_recording", "no conversations are put together here")
            .remedy("set record.enabled = true and start without --no-record")
    })
}

/// `POST /conversations/rebuild`
pub(crate) async fn rebuild(State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    Ok(Json(json!({"exchanges": live(&state)?.rebuild().await?})))
}
