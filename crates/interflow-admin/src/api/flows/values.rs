//! What the table of flows shows beyond the lists: value counts for the completion of filters, and details of its rows.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use interflow_store::{FlowRecord, ListOptions, ListOrder, MAX_EXAMINED, StoreError};
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, FlowTimings};
use serde::{Deserialize, Serialize};

use crate::api::blocking::run_query;
use crate::api::input::{StrictQuery, flow_id, query};
use crate::api::operation_name::operation_name;
use crate::error::{ApiError, Result};
use crate::identity::Rights;
use crate::identity::caller::Caller;
use crate::state::SharedState;

/// Distinct values in a response.
const MAX_VALUES: usize = 200;
/// Flows per request for row details; further ids are ignored.
const MAX_ROWS: usize = 200;
/// Characters of a comment that a row shows.
const MAX_COMMENT: usize = 200;

/// A key of the query language whose values are counted.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ValueKey {
    Host,
    Method,
    Status,
    Type,
    Tag,
    User,
    Process,
    Error,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValueParams {
    key: ValueKey,
    /// Counts only flows of this query; all of them when it is empty.
    #[serde(default)]
    query: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ValueCounts {
    /// The most frequent values, the most frequent one first.
    values: Vec<ValueCount>,
    /// How many flows were examined: the newest ones.
    examined: usize,
    /// Whether these are all flows of the query.
    complete: bool,
}

#[derive(Serialize, JsonSchema)]
struct ValueCount {
    value: String,
    count: usize,
}

/// `GET /flows/values`: counts over the newest flows only.
pub async fn values(state: SharedState, StrictQuery(params): StrictQuery<ValueParams>) -> Result<Json<ValueCounts>> {
    let query = query(&params.query)?;
    let options = ListOptions { query, order: ListOrder::Newest, after: None, limit: MAX_EXAMINED };
    run_query(&state, move |store, wanted| {
        let rows = store.list_while(&options, &mut || wanted.check())?;
        let mut counts = HashMap::<String, usize>::new();
        for value in rows.iter().flat_map(|row| values_of(row, params.key)) {
            *counts.entry(value).or_default() += 1;
        }
        let mut values: Vec<_> = counts.into_iter().map(|(value, count)| ValueCount { value, count }).collect();
        values.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
        values.truncate(MAX_VALUES);
        Ok(Json(ValueCounts { values, examined: rows.len(), complete: rows.len() < MAX_EXAMINED }))
    })
    .await
}

fn values_of(row: &FlowRecord, key: ValueKey) -> Vec<String> {
    match key {
        ValueKey::Host => vec![row.authority.host.to_string()],
        ValueKey::Method => row.request.iter().map(|r| r.method.clone()).collect(),
        ValueKey::Status => row.response.iter().map(|r| r.status.to_string()).collect(),
        ValueKey::Type => row.media_type(Direction::Response).into_iter().collect(),
        ValueKey::Tag => row.tags.clone(),
        ValueKey::User => row.user.iter().map(ToString::to_string).collect(),
        ValueKey::Process => row.client.process.iter().map(|p| p.name.clone()).collect(),
        ValueKey::Error => row.error.iter().map(|e| e.kind.to_string()).collect(),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RowDetailsParams {
    /// Ids of flows, separated by commas; at most 200 of them count.
    flows: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RowDetailsById {
    /// By the flow's id; flows that do not exist are absent.
    flows: BTreeMap<String, RowDetails>,
}

/// What a row of the table shows beyond the summary.
#[derive(Serialize, JsonSchema)]
struct RowDetails {
    timings: FlowTimings,
    /// The client's program, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<String>,
    /// The client's container, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    /// The request's `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    /// What the request does, if its body names it, and the caller may read bodies: a GraphQL operation or a JSON-RPC
    /// method.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
}

/// `GET /flows/details`: requested for the visible rows only.
pub async fn details(
    state: SharedState,
    caller: Caller,
    StrictQuery(params): StrictQuery<RowDetailsParams>,
) -> Result<Json<RowDetailsById>> {
    let ids = params.flows.split(',').filter(|t| !t.is_empty()).take(MAX_ROWS);
    let ids = ids.map(flow_id).collect::<Result<Vec<_>>>()?;
    let reads_bodies = caller.has(Rights::READ_BODIES);
    run_query(&state, move |store, wanted| {
        let mut flows = BTreeMap::new();
        for id in ids {
            if wanted.check().is_break() {
                return Err(ApiError::from(StoreError::Cancelled));
            }
            let row = match store.get(id) {
                Ok(row) => row,
                // Deleted since the list was loaded.
                Err(StoreError::NotFound(_)) => continue,
                Err(e) => return Err(e.into()),
            };
            let agent = row.request.as_ref().and_then(|request| request.headers.get_str("user-agent"));
            let row_details = RowDetails {
                user_agent: agent.map(|text| text.chars().take(MAX_COMMENT).collect()),
                operation: reads_bodies.then(|| operation_name(store, &row)).flatten(),
                timings: row.timings,
                process: row.client.process.map(|p| p.name),
                container: row.client.container,
                comment: row.comment.map(|c| c.chars().take(MAX_COMMENT).collect()),
            };
            flows.insert(id.to_string(), row_details);
        }
        Ok(Json(RowDetailsById { flows }))
    })
    .await
}
