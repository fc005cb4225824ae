//! Lists of flows, single flows, their messages, and the operator's annotations.

pub(crate) mod body;
pub(crate) mod certificates;
pub(crate) mod compose;
pub(crate) mod composed_call;
pub(crate) mod composed_socket;
pub(crate) mod events;
pub(crate) mod overview;
pub(crate) mod query_assist;
pub(crate) mod replay;
pub(crate) mod transfer;
pub(crate) mod values;

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use interflow_archive::replay::masked_fields;
use interflow_archive::view::{self, BinaryKind, BodyContext, ProtoSchemas};
use interflow_query::Query;
use interflow_store::{
    FlowAnnotation, FlowRecord, FlowState, FlowStore, FlowSummary, ListOptions, ListOrder, MessageRecord,
};
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{FlowId, MessageKind, Timestamp, config_sections};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::blocking::run_query;
use crate::api::input::{
    FlowIdPath, MessagePath, StrictJson, StrictQuery, flow_id, query, query_warnings, strict_query,
};
use crate::api::untrusted_content;
use crate::error::{ApiError, Result};
use crate::identity::caller::{Caller, listed};
use crate::records::{CancelFlag, Records};
use crate::state::SharedState;

const MAX_PAGE: usize = 1000;
/// Maximum bytes of messages per page.
const MAX_MESSAGES: usize = 16 << 20;
/// Messages read from the store at a time.
const MESSAGE_STEP: u64 = 50;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    #[default]
    Newest,
    Oldest,
}

impl From<SortOrder> for ListOrder {
    fn from(sort: SortOrder) -> Self {
        match sort {
            SortOrder::Newest => Self::Newest,
            SortOrder::Oldest => Self::Oldest,
        }
    }
}

config_sections! {
    pub struct FlowListParams {
        /// The query; every flow when it is empty.
        pub query: String,
        /// Flows on a page, 1 to 1000.
        pub limit: usize = 100,
        /// Only flows behind the flow of this id, in the requested order.
        pub after: Option<String>,
        /// Only flows before the flow of this id, those next to it.
        pub before: Option<String>,
        pub order: SortOrder,
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowPage {
    flows: Vec<FlowSummary>,
    /// The cursor for the next page in the requested direction.
    next: Option<String>,
    /// Damaged flows that were skipped since the start.
    #[serde(skip_serializing_if = "is_zero")]
    damaged: u64,
    /// What in the query is probably not meant, such as an operator in lower case, which is searched as a word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

pub async fn list(state: SharedState, StrictQuery(params): StrictQuery<FlowListParams>) -> Result<Json<FlowPage>> {
    let query = query(&params.query)?;
    let warnings = query_warnings(&query);
    let (after, before) = (cursor(params.after)?, cursor(params.before)?);
    if after.is_some() && before.is_some() {
        return Err(ApiError::bad_request("give `after` or `before`, not both"));
    }
    let limit = params.limit.clamp(1, MAX_PAGE);
    // What precedes a flow is what follows it in the opposite order.
    let order = match (params.order.into(), before) {
        (ListOrder::Newest, Some(_)) => ListOrder::Oldest,
        (ListOrder::Oldest, Some(_)) => ListOrder::Newest,
        (order, None) => order,
    };
    let options = ListOptions { query, order, after: after.or(before), limit };
    run_query(&state, move |store, wanted| {
        let rows = store.list_while(&options, &mut || wanted.check())?;
        let next = if rows.len() == limit { rows.last().map(|r| r.id.to_string()) } else { None };
        let now = Timestamp::now();
        let mut flows: Vec<_> = rows.iter().map(|r| r.summary(now)).collect();
        if before.is_some() {
            flows.reverse();
        }
        Ok(Json(FlowPage { flows, next, damaged: store.damaged_flows(), warnings }))
    })
    .await
}

fn cursor(text: Option<String>) -> Result<Option<FlowId>> {
    text.map(|t| flow_id(&t)).transpose()
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueryParam {
    /// The query; every flow when it is empty.
    pub query: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowCount {
    count: u64,
    /// As for the list of flows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub async fn count(state: SharedState, StrictQuery(params): StrictQuery<QueryParam>) -> Result<Json<FlowCount>> {
    let query = query(&params.query)?;
    run_query(&state, move |store, wanted| {
        let count = count_flows(store, &query, wanted)?;
        Ok(Json(FlowCount { count, warnings: query_warnings(&query) }))
    })
    .await
}

/// Counting that examines bodies may take long: it runs on several threads and ends when the client disconnects.
fn count_flows(store: &dyn FlowStore, query: &Query, wanted: &CancelFlag) -> Result<u64> {
    use interflow_types::Direction::{Request, Response};
    // Without bodies the query runs on an index or on rows alone, which is fast enough on one thread.
    if !query.wants_body(Request) && !query.wants_body(Response) {
        return Ok(store.count_while(query, &mut || wanted.check())?);
    }
    let mut n = 0;
    store.search(query, &|_| wanted.check(), &mut |_| {
        n += 1;
        ControlFlow::Continue(())
    })?;
    Ok(n)
}

/// One flow with its heads and derived fields.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowDetail {
    #[serde(flatten)]
    row: FlowRecord,
    url: String,
    /// Duration in microseconds, up to now while it is open.
    duration: u64,
    /// Request fields whose values were masked: a replay omits them unless they are set again.
    masked: Vec<String>,
}

impl FlowDetail {
    fn from_row(row: FlowRecord) -> Json<Self> {
        let (url, masked) = (row.url(), masked_fields(&row));
        let duration = row.summary(Timestamp::now()).duration;
        Json(Self { row, url, duration, masked })
    }
}

pub async fn show(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<Json<FlowDetail>> {
    run_query(&state, move |store, _| Ok(FlowDetail::from_row(store.get(id)?))).await
}

/// Changes to tags and comment; what is absent stays.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AnnotationPatch {
    /// Replaces all tags.
    tags: Option<Vec<String>>,
    add_tags: Vec<String>,
    remove_tags: Vec<String>,
    comment: Option<String>,
}

/// Maximum size of a tag, in bytes.
const MAX_TAG: usize = 100;
/// Maximum size of a comment, in bytes.
const MAX_COMMENT: usize = 64 << 10;

impl AnnotationPatch {
    pub(crate) fn new(
        tags: Option<Vec<String>>,
        [add_tags, remove_tags]: [Vec<String>; 2],
        comment: Option<String>,
    ) -> Self {
        Self { tags, add_tags, remove_tags, comment }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let tags = self.tags.iter().flatten().chain(&self.add_tags);
        if let Some(bad) = tags.into_iter().find(|t| t.is_empty() || t.len() > MAX_TAG || t.contains(char::is_control))
        {
            return Err(ApiError::bad_request(format!("`{bad}` is not a tag"))
                .remedy(format!("a tag is a text of 1 to {MAX_TAG} bytes without control characters")));
        }
        if self.comment.as_ref().is_some_and(|c| c.len() > MAX_COMMENT) {
            return Err(ApiError::too_large("the comment", MAX_COMMENT as u64));
        }
        Ok(())
    }

    /// The change of what has these tags now.
    pub(crate) fn into_annotation(self, now: &[String]) -> FlowAnnotation {
        let (mut add_tags, mut remove_tags) = (self.add_tags, self.remove_tags);
        if let Some(tags) = self.tags {
            // Replacing is expressed as a difference, so that a tag which was added concurrently survives.
            remove_tags.extend(now.iter().filter(|t| !tags.contains(t)).cloned());
            add_tags.extend(tags);
        }
        FlowAnnotation { add_tags, remove_tags, comment: self.comment }
    }
}

pub async fn annotate(
    records: Records,
    FlowIdPath(id): FlowIdPath,
    StrictJson(marks): StrictJson<AnnotationPatch>,
) -> Result<Json<FlowDetail>> {
    marks.check()?;
    let work = move |store: &dyn FlowStore, _: &CancelFlag| {
        let change = marks.into_annotation(&store.get(id)?.tags);
        store.annotate(id, change)?;
        Ok(FlowDetail::from_row(store.get(id)?))
    };
    records.query(work).await
}

/// `DELETE /flows/{id}`: a running flow is not deleted, because its writer would not find it any more.
pub async fn delete(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<StatusCode> {
    run_query(&state, move |store, _| {
        let row = store.get(id)?;
        if store.delete(&[id])? == 0 && row.state == FlowState::Open {
            return Err(ApiError::new(StatusCode::CONFLICT, "open", "the flow still runs"));
        }
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowIdsInput {
    ids: Vec<String>,
}

impl FlowIdsInput {
    pub(crate) fn ids(&self) -> Result<Vec<FlowId>> {
        self.ids.iter().map(|t| flow_id(t)).collect()
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedFlows {
    deleted: u64,
}

pub async fn delete_selected(
    state: SharedState,
    caller: Caller,
    StrictJson(chosen): StrictJson<FlowIdsInput>,
) -> Result<Json<DeletedFlows>> {
    let ids = chosen.ids()?;
    caller.record_detail(json!({ "flows": listed(&ids) }));
    run_query(&state, move |store, _| Ok(Json(DeletedFlows { deleted: store.delete(&ids)? }))).await
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PruneInput {
    query: String,
    /// Only flows that began longer ago than this.
    older: Option<HumanDuration>,
    /// Confirms the deletion of every flow.
    all: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PrunedFlows {
    pruned: u64,
}

/// `POST /flows/flush`: returns once everything that was recorded before is written, so that readers of the store's
/// files see it.
pub async fn flush(records: Records) -> Result<Json<FlushedFlows>> {
    records.query(|store, _| Ok(store.flush().map(|()| Json(FlushedFlows { flushed: true }))?)).await
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FlushedFlows {
    flushed: bool,
}

/// `POST /flows/prune`: an empty query needs `all`, so that a forgotten query cannot delete everything.
pub async fn prune(
    records: Records,
    caller: Caller,
    StrictJson(prune): StrictJson<PruneInput>,
) -> Result<Json<PrunedFlows>> {
    let mut selected = strict_query(&prune.query)?;
    caller.record_detail(json!({ "query": prune.query, "older": prune.older, "all": prune.all }));
    if let Some(HumanDuration(age)) = prune.older {
        let before = Timestamp::now().micros().saturating_sub(age.as_micros() as u64);
        selected = selected.and(older_than(before));
    }
    if selected.is_all() && !prune.all {
        return Err(ApiError::bad_request("this would delete every flow").remedy("say so with {\"all\": true}"));
    }
    records.query(move |store, _| Ok(Json(PrunedFlows { pruned: store.prune(&selected)? }))).await
}

/// Flows that began before this time, in microseconds since the Unix epoch.
fn older_than(micros: u64) -> Query {
    use interflow_query::{CompareOp, Expr, Key, TermTest, TimePoint, TimeTest};
    let point = TimePoint::At { start: micros, lasts: 1 };
    Expr::term(Key::Time, TermTest::Time(TimeTest::Compare(CompareOp::Lt, point))).into()
}

config_sections! {
    pub struct MessageParams {
        /// The number of the first message, from 0.
        pub from: u64,
        /// 1 to 1000.
        pub limit: u64 = 200,
        /// Bytes shown of each payload.
        pub payload: usize = 64 << 10,
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct MessagePage {
    messages: Vec<MessageView>,
    total: u64,
    /// The number of the first message of the next page.
    next: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Message")]
struct MessageView {
    #[serde(flatten)]
    row: MessageRecord,
    /// A gRPC message decoded to text by its schema, or from the wire format alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    decoded: Option<String>,
}

/// A rendered gRPC message as recorded, if it can be rendered; at most `cap` bytes of text.
fn structured_view(flow: &FlowRecord, message: &MessageRecord, schemas: &ProtoSchemas, cap: usize) -> Option<String> {
    if message.kind != MessageKind::Grpc {
        return None;
    }
    let request = flow.request.as_ref()?;
    let headers = flow.headers(message.direction).unwrap_or(&request.headers);
    let context = BodyContext { headers, path: request.path.as_str(), direction: message.direction, message: None };
    let text = view::pretty(BinaryKind::Protobuf, &context, &message.payload, schemas, cap);
    text.ok().filter(|text| !text.trim().is_empty())
}

/// `GET /flows/{id}/messages`: a page ends at `limit` messages or at 16 MiB of payloads, whichever comes first.
pub async fn messages(
    state: SharedState,
    FlowIdPath(id): FlowIdPath,
    StrictQuery(params): StrictQuery<MessageParams>,
) -> Result<Json<MessagePage>> {
    let schemas = Arc::clone(&state.schemas);
    run_query(&state, move |store, _| {
        let flow = store.get(id)?;
        let total = flow.messages;
        let until = params.from.saturating_add(params.limit.clamp(1, 1000)).min(total);
        let (mut messages, mut bytes, mut at) = (Vec::new(), 0, params.from);
        while at < until && bytes < MAX_MESSAGES {
            let step = store.messages(id, at..(at + MESSAGE_STEP).min(until))?;
            at = (at + MESSAGE_STEP).min(until);
            for mut row in step {
                // Decoded from the whole payload: a truncated message cannot be parsed.
                let decoded = structured_view(&flow, &row, &schemas, params.payload);
                truncate_payload(&mut row.payload, params.payload);
                bytes += row.payload.len() + decoded.as_ref().map_or(0, String::len);
                messages.push(MessageView { row, decoded });
            }
        }
        Ok(Json(MessagePage { messages, total, next: (at < total).then_some(at) }))
    })
    .await
}

/// Truncates a payload; text is cut at a character boundary.
fn truncate_payload(payload: &mut Bytes, most: usize) {
    if payload.len() <= most {
        return;
    }
    let at = if let Ok(text) = std::str::from_utf8(payload) { text.floor_char_boundary(most) } else { most };
    // The copy releases the rest.
    *payload = Bytes::copy_from_slice(&payload[..at]);
}

/// `GET /flows/{id}/messages/{index}`: the payload as recorded, as a download.
pub async fn message(state: SharedState, MessagePath(id, index): MessagePath) -> Result<Response> {
    let message = run_query(&state, move |store, _| {
        let messages = store.messages(id, index..index.saturating_add(1))?;
        let missing = || ApiError::not_found(format!("flow {id} has no message {index}"));
        messages.into_iter().next().ok_or_else(missing)
    })
    .await?;
    Ok(untrusted_content::raw_response(StatusCode::OK, &format!("{id}-message-{index}.bin"), message.payload.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_text_stays_valid_utf8() {
        let mut payload = Bytes::from("aé");
        truncate_payload(&mut payload, 2);
        assert_eq!(payload, "a");
        let mut payload = Bytes::from_static(&[0xff, 0xfe, 0xfd]);
        truncate_payload(&mut payload, 2);
        assert_eq!(&payload[..], [0xff, 0xfe]);
    }

    #[test]
    fn older_filter_selects_flows_started_before() {
        let row = |micros| {
            let at = Timestamp::from_micros(micros);
            let authority = "a.test:80".parse().unwrap();
            let transport = interflow_types::EntryKind::Absolute;
            FlowRecord::new(FlowId::new(at), at, transport, interflow_types::Scheme::Http, authority)
        };
        let query = older_than(5_000_000);
        assert!(query.matches(&row(4_999_999)) && !query.matches(&row(5_000_000)));
    }
}
