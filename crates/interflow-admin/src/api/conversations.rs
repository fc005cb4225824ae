//! LLM conversations: lists, threads, documents, totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::response::Response;
use interflow_conversations::assembly::MessageHash;
use interflow_conversations::assembly::cache_report::PromptCacheReport;
use interflow_conversations::assembly::diff::RequestDiff;
use interflow_conversations::conversations::endpoints::{EndpointOverride, EndpointOverrides};
use interflow_conversations::conversations::export::{self, ExportFormat};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_conversations::conversations::load::{self, CarriedToolCall, ConversationView};
use interflow_conversations::conversations::prompt_cache as cache_report;
use interflow_conversations::conversations::search::{self as text_search, TextSearchPage};
use interflow_conversations::conversations::tree::load_tree;
use interflow_store::{
    ConversationNote, ConversationOptions, ConversationSummary, ConversationTotal, FlowStore, TotalsRange,
};
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{CallUsage, Timestamp, config_sections};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::blocking::run_query;
use crate::api::flows::AnnotationPatch;
use crate::api::input::{StrictJson, StrictQuery, flow_id, query, query_warnings};
use crate::api::operations::context::OperationContext;
use crate::api::untrusted_content;
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::records::{CancelFlag, Records, blocking};
use crate::state::{AdminState, SharedState};

const MAX_PAGE: usize = 500;
const MAX_FLOWS: usize = 500;
/// How long after its last exchange a conversation counts as active, in microseconds.
const ACTIVE_WITHIN: u64 = 90_000_000;
/// Shortest time bucket of totals, in microseconds: one minute.
const MIN_SPAN: u64 = 60_000_000;
/// Farthest clock from UTC, in minutes.
const MAX_OFFSET: i32 = 24 * 60;

config_sections! {
    pub struct ConversationListParams {
        /// Keys as for flows: agent:, model:, provider:, host:, user:, tokens:, time:, dur:, tag:, comment:.
        pub query: String,
        /// Conversations on a page, 1 to 500.
        pub limit: usize = 100,
        /// Only those behind this cursor: `next` of the page before.
        pub after: Option<String>,
        /// Only sub-agents of the conversation of this id.
        pub parent: Option<String>,
        /// Also sub-agents, and conversations of utility calls alone.
        pub all: bool,
        /// Only with an exchange that started then or later, in microseconds since the Unix epoch.
        pub from: Option<u64>,
        /// Only with an exchange that started before.
        pub to: Option<u64>,
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ConversationPage {
    conversations: Vec<ListedConversation>,
    /// The cursor for the next page; null on the last one.
    next: Option<String>,
    /// What in the query is probably not meant, such as an operator in lower case, which is searched as a word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct ListedConversation {
    #[serde(flatten)]
    summary: ConversationSummary,
    /// Whether its last exchange was at most 90 seconds ago.
    live: bool,
}

/// A range of time whose end may be open.
fn range(from: u64, to: Option<u64>) -> (Timestamp, Timestamp) {
    // SQLite's integers are signed.
    let time = |t: u64| Timestamp::from_micros(t.min(i64::MAX as u64));
    (time(from), time(to.unwrap_or(u64::MAX)))
}

pub async fn list(
    state: SharedState,
    StrictQuery(params): StrictQuery<ConversationListParams>,
) -> Result<Json<ConversationPage>> {
    let limit = params.limit.clamp(1, MAX_PAGE);
    let query = query(&params.query)?;
    let warnings = query_warnings(&query);
    let options = ConversationOptions {
        query,
        parent: params.parent,
        all: params.all,
        after: params.after,
        during: (params.from.is_some() || params.to.is_some())
            .then(|| range(params.from.unwrap_or_default(), params.to)),
        limit,
    };
    run_query(&state, move |store, _| {
        let conversations = store.conversations(&options)?;
        // A full page may be the last one; the next is empty then.
        let next = if conversations.len() == limit { conversations.last().map(|l| l.row.cursor()) } else { None };
        let now = Timestamp::now();
        let listed = |summary: ConversationSummary| ListedConversation {
            live: now.micros().saturating_sub(summary.row.updated.micros()) < ACTIVE_WITHIN,
            summary,
        };
        Ok(Json(ConversationPage { conversations: conversations.into_iter().map(listed).collect(), next, warnings }))
    })
    .await
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TextSearchParams {
    /// The text, whatever its case.
    text: String,
    /// Only conversations that this query selects.
    query: String,
    /// Also sub-agents, and conversations of utility calls alone.
    all: bool,
    /// Only those behind this cursor: `next` of the page before.
    after: Option<String>,
    /// Conversations on a page, 1 to 100; 30 by default.
    limit: Option<usize>,
}

/// `GET /conversations/search`: reads for at most two seconds; `next` continues.
pub async fn search(
    state: SharedState,
    StrictQuery(params): StrictQuery<TextSearchParams>,
) -> Result<Json<TextSearchPage>> {
    if params.text.trim().is_empty() {
        return Err(ApiError::bad_request("`text` is what to search for"));
    }
    let options = ConversationOptions {
        query: query(&params.query)?,
        all: params.all,
        after: params.after,
        limit: params.limit.unwrap_or(30).clamp(1, 100),
        ..ConversationOptions::default()
    };
    run_query(&state, move |store, cancelled| {
        Ok(Json(text_search::search(store, params.text.trim(), options, &|| cancelled.check())?))
    })
    .await
}

/// Changes to tags and comment of a conversation; what is absent stays.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConversationPatch {
    /// The key of the message to change; the conversation itself if absent.
    message: Option<String>,
    /// Replaces all tags.
    tags: Option<Vec<String>>,
    add_tags: Vec<String>,
    remove_tags: Vec<String>,
    comment: Option<String>,
}

/// The tags and comments of a conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConversationNotes {
    notes: Vec<ConversationNote>,
}

pub async fn annotate(
    records: Records,
    Path(id): Path<String>,
    StrictJson(patch): StrictJson<ConversationPatch>,
) -> Result<Json<ConversationNotes>> {
    let message = patch.message.as_deref().map(message_key).transpose()?.map(|k| k.0);
    let marks = AnnotationPatch::new(patch.tags, [patch.add_tags, patch.remove_tags], patch.comment);
    marks.check()?;
    let work = move |store: &dyn FlowStore, _: &CancelFlag| {
        let id = resolve_id(store, &id)?;
        let summary = || store.conversation(&id)?.ok_or_else(|| not_found(&id));
        if let Some(key) = message
            && !store.nodes(&id, false)?.iter().any(|n| n.key == key)
        {
            let why = format!("the conversation {id} has no message {}", patch.message.unwrap_or_default());
            return Err(ApiError::not_found(why));
        }
        let now = summary()?;
        let change = marks.into_annotation(now.note(message).map_or(&[], |n| &n.tags));
        store.annotate_conversation(&id, message, change)?;
        Ok(Json(ConversationNotes { notes: summary()?.notes }))
    };
    records.query(work).await
}

fn message_key(text: &str) -> Result<MessageHash> {
    let wrong = |_| ApiError::bad_request(format!("`{text}` is not a message's key: 32 hexadecimal digits"));
    u128::from_str_radix(text, 16).map(MessageHash).map_err(wrong)
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConversationShowParams {
    /// The key of the message that the thread leads to; by default the last one.
    leaf: Option<String>,
}

/// `GET /conversations/{id}`: the id may be shortened to a unique prefix.
pub async fn show(
    state: SharedState,
    Path(id): Path<String>,
    StrictQuery(params): StrictQuery<ConversationShowParams>,
) -> Result<Json<ConversationView>> {
    let leaf = params.leaf.as_deref().map(message_key).transpose()?;
    run_query(&state, move |store, _| {
        let id = resolve_id(store, &id)?;
        let opened = load::load_conversation(store, &id, leaf)?.ok_or_else(|| not_found(&id))?;
        Ok(Json(opened))
    })
    .await
}

fn resolve_id(store: &dyn FlowStore, word: &str) -> Result<String> {
    load::find_conversation(store, word)?.ok_or_else(|| not_found(word))
}

fn not_found(word: &str) -> ApiError {
    ApiError::not_found(format!("there is no conversation `{word}`"))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConversationExportParams {
    /// markdown (default), jsonl, html or otel.
    format: Option<String>,
}

pub async fn export(
    state: SharedState,
    Path(id): Path<String>,
    StrictQuery(params): StrictQuery<ConversationExportParams>,
) -> Result<Response> {
    let form: ExportFormat = params.format.as_deref().unwrap_or("markdown").parse().map_err(ApiError::bad_request)?;
    let (name, text) = run_query(&state, move |store, _| {
        let id = resolve_id(store, &id)?;
        let tree = load_tree(store, &id)?.ok_or_else(|| not_found(&id))?;
        Ok((id, export::write(&tree, form)))
    })
    .await?;
    let (ending, media) = form.file();
    Ok(untrusted_content::file_response(media, &format!("{name}.{ending}"), Body::from(text)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesParams {
    /// The flow of the exchange.
    flow: String,
    /// The exchange's number within a WebSocket.
    #[serde(default)]
    part: u64,
}

/// Changes from the preceding request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RequestChanges {
    /// Null for the first request.
    changes: Option<RequestDiff>,
}

/// `GET /conversations/{id}/changes`: how the request of an exchange differs from the one before it in the
/// conversation.
pub async fn changes(
    state: SharedState,
    Path(id): Path<String>,
    StrictQuery(params): StrictQuery<ChangesParams>,
) -> Result<Json<RequestChanges>> {
    let flow = flow_id(&params.flow)?;
    run_query(&state, move |store, _| {
        let id = resolve_id(store, &id)?;
        Ok(Json(RequestChanges { changes: load::request_diff(store, &id, flow, params.part)? }))
    })
    .await
}

/// `GET /conversations/{id}/cache`: where the provider's prompt cache broke in a conversation, why, and what it cost.
pub async fn prompt_cache(state: SharedState, Path(id): Path<String>) -> Result<Json<PromptCacheReport>> {
    let limits = state.limits.as_ref().map(|deps| Arc::clone(&deps.limits));
    run_query(&state, move |store, _| {
        let id = resolve_id(store, &id)?;
        let pricing = move |provider: &str, model: &str, usage: &CallUsage, at: Timestamp| {
            limits.as_ref()?.prices().dollars(provider, model, usage, at)
        };
        let report = cache_report::report(store, &id, &pricing);
        Ok(Json(report?.ok_or_else(|| not_found(&id))?))
    })
    .await
}

config_sections! {
    pub struct TotalsParams {
        /// How far back; 7 days by default.
        pub since: HumanDuration = HumanDuration::from_secs(7 * 86_400),
        /// The length of each bucket, at least a minute; one day by default.
        pub span: HumanDuration = HumanDuration::from_secs(86_400),
        /// The begin of the range instead of `since`, in microseconds since the Unix epoch.
        pub from: Option<u64>,
        /// The end of the range, in microseconds since the Unix epoch; now by default.
        pub to: Option<u64>,
        /// Minutes by which the buckets' clock is ahead of UTC, so that days begin at midnight there.
        pub offset: i32,
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Totals {
    /// Start of the first bucket, in microseconds since the Unix epoch.
    since: u64,
    /// Length of a bucket, in microseconds.
    span: u64,
    totals: Vec<ConversationTotal>,
}

pub async fn totals(state: SharedState, StrictQuery(params): StrictQuery<TotalsParams>) -> Result<Json<Totals>> {
    let span = (params.span.0.as_micros() as u64).max(MIN_SPAN);
    let past = Timestamp::now().micros().saturating_sub(params.since.0.as_micros() as u64);
    let (since, until) = range(params.from.unwrap_or(past), params.to);
    let offset = i64::from(params.offset.clamp(-MAX_OFFSET, MAX_OFFSET)) * 60_000_000;
    let range = TotalsRange { since, until, span, offset };
    run_query(&state, move |store, _| Ok(Json(Totals { since: since.micros(), span, totals: store.totals(range)? })))
        .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowIdsParams {
    /// Ids of flows, separated by commas.
    flows: String,
}

/// The columns of the traffic table for a flow that carries a model call.
#[derive(Serialize, JsonSchema)]
struct FlowConversation {
    conversation: String,
    agent: String,
    model: String,
    input: u64,
    output: u64,
    /// US dollars; null if a price is unknown.
    cost: Option<f64>,
}

/// The conversations of flows, by the flow's id; flows without a model call are absent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowConversations {
    flows: BTreeMap<String, FlowConversation>,
}

/// `GET /conversations/by-flow`: at most 500 flows; further ids are ignored.
pub async fn for_flows(
    state: SharedState,
    StrictQuery(params): StrictQuery<FlowIdsParams>,
) -> Result<Json<FlowConversations>> {
    let ids = params.flows.split(',').filter(|t| !t.is_empty()).take(MAX_FLOWS);
    let ids = ids.map(flow_id).collect::<Result<Vec<_>>>()?;
    run_query(&state, move |store, _| {
        let mut flows = BTreeMap::new();
        for id in ids {
            let exchanges = store.exchanges_in(id)?;
            // A WebSocket carries several exchanges; their usage is summed up, and the last one names the model.
            let Some(last) = exchanges.last() else { continue };
            let sum = |f: fn(&interflow_store::TokenUsage) -> u64| {
                exchanges.iter().map(|e| f(&e.used)).fold(0, u64::saturating_add)
            };
            // One unknown price makes the sum meaningless.
            let is_priced = exchanges.iter().all(|e| e.used.unpriced == 0);
            let of = FlowConversation {
                conversation: last.conversation.clone(),
                agent: last.agent.clone(),
                model: last.model.clone(),
                input: sum(|u| u.input),
                output: sum(|u| u.output),
                cost: is_priced.then(|| exchanges.iter().map(|e| e.used.cost).sum()),
            };
            flows.insert(id.to_string(), of);
        }
        Ok(Json(FlowConversations { flows }))
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CarriedCallParams {
    /// A flow of the MCP gateway.
    flow: String,
}

/// The tool call of a conversation that a flow carried.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CarriedCall {
    /// Null if the flow carried none, or if more than one fits.
    call: Option<CarriedToolCall>,
}

/// `GET /conversations/tool-call`: the way back from a flow of the MCP gateway.
pub async fn tool_call(
    state: SharedState,
    StrictQuery(params): StrictQuery<CarriedCallParams>,
) -> Result<Json<CarriedCall>> {
    let flow = flow_id(&params.flow)?;
    run_query(&state, move |store, _| Ok(Json(CarriedCall { call: load::call_of_flow(store, flow)? }))).await
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointOverrideList {
    endpoints: Vec<EndpointOverride>,
}

impl EndpointOverrideList {
    fn of(overrides: &EndpointOverrides) -> Self {
        Self { endpoints: overrides.list().to_vec() }
    }
}

pub async fn endpoints(state: SharedState) -> Result<Json<EndpointOverrideList>> {
    run_query(&state, |store, _| Ok(Json(EndpointOverrideList::of(&EndpointOverrides::load(store)?)))).await
}

/// `PUT /conversations/endpoints`: replaces all of them.
pub async fn set_endpoints(
    state: SharedState,
    caller: Caller,
    StrictJson(given): StrictJson<EndpointOverrideList>,
) -> Result<Json<EndpointOverrideList>> {
    caller.record_detail(json!({ "endpoints": given.endpoints }));
    let endpoints = EndpointOverrides::new(given.endpoints).map_err(ApiError::bad_request)?;
    indexer(&state)?.save_endpoints(endpoints.clone()).await?;
    Ok(Json(EndpointOverrideList::of(&endpoints)))
}

fn indexer(state: &AdminState) -> Result<IndexerHandle> {
    let none = || ApiError::unavailable("not_recording", "no conversations are put together here");
    state.conversations.clone().ok_or_else(none)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RebuildResult {
    /// How many exchanges were found in the recorded flows.
    exchanges: u64,
}

/// `POST /conversations/rebuild`: returns when the whole store has been read again.
pub async fn rebuild(context: OperationContext) -> Result<Json<RebuildResult>> {
    let exchanges = match context {
        OperationContext::Instance(state) => indexer(&state)?.rebuild().await?,
        OperationContext::Offline(opened) => blocking(move || opened.rebuild()).await??,
    };
    Ok(Json(RebuildResult { exchanges }))
}
