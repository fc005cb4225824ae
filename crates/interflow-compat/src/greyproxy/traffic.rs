//! Logs, transactions, the dashboard and conversations: flows in Greyproxy's format.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use interflow_conversations::conversations::load;
use interflow_query::Query as Wanted;
use interflow_store::{ConversationOptions, FlowRow, FlowStore, ListOptions, ListOrder, decoded_body};
use interflow_types::{Direction, FlowId, Headers};
use serde::Deserialize;
use serde_json::{Value, json};

use super::json_format;
use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, GreyproxyState};
use interflow_admin::{ApiError, run_query};

/// Flows read from the store at a time.
const PAGE: usize = 500;
/// Maximum number of flows that statistics are computed from, the latest first.
const MAX_FLOWS: usize = 50_000;
/// Maximum size of a body in a response, in bytes.
const MAX_BODY_TEXT: usize = 2 << 20;

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
pub(super) struct TrafficFilter {
    container: String,
    destination: String,
    method: String,
    result: String,
    model: String,
    provider: String,
    from_date: String,
    to_date: String,
    limit: Option<usize>,
    offset: usize,
}

impl TrafficFilter {
    fn limit(&self, usual: usize) -> usize {
        self.limit.unwrap_or(usual).clamp(1, 1000)
    }

    /// The filter as an Interflow query.
    fn query(&self, only: &str) -> Result<Wanted, GreyproxyError> {
        let quoted = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!(" {key}:\"{}\"", value.replace(['"', '\\'], "")),
        };
        let mut text = only.to_owned();
        if !self.destination.is_empty() {
            // A substring of the name.
            let part = self.destination.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
            let part = part.map(|c| if c == '.' { "\\.".to_owned() } else { c.to_string() }).collect::<String>();
            text.push_str(&format!(" host:/{part}/"));
        }
        text.push_str(&quoted("method", &self.method));
        match self.result.as_str() {
            "blocked" => text.push_str(" error:denied"),
            "allowed" | "auto" => text.push_str(" -error:denied"),
            _ => {}
        }
        for (sign, date) in [(">=", &self.from_date), ("<=", &self.to_date)] {
            if !date.is_empty() {
                text.push_str(&format!(" time:{sign}{}", date.replace(['"', ' '], "")));
            }
        }
        Wanted::parse(text.trim()).map_err(|e| GreyproxyError::bad_request(e.to_string()))
    }
}

/// The latest flows of a query that match, with Greyproxy's paging.
async fn page(
    grey: &GreyproxyState,
    filter: TrafficFilter,
    only: &'static str,
    shape: fn(&FlowRow) -> Value,
) -> Result<Json<Value>, GreyproxyError> {
    let query = filter.query(only)?;
    let limit = filter.limit(50);
    let (items, total) = run_query(&grey.admin, move |store, wanted| {
        let mut options = ListOptions { query: query.clone(), order: ListOrder::Newest, after: None, limit: PAGE };
        let (mut items, mut seen) = (Vec::new(), 0);
        'pages: loop {
            let rows = store.list_while(&options, &mut || wanted.check())?;
            for row in &rows {
                let shaped = shape(row);
                let named = shaped["container_name"].as_str().unwrap_or_default();
                if !filter.container.is_empty() && !named.contains(&filter.container) {
                    continue;
                }
                seen += 1;
                if seen > filter.offset {
                    items.push(shaped);
                }
                if items.len() >= limit {
                    break 'pages;
                }
            }
            options.after = rows.last().map(|r| r.id);
            if rows.len() < PAGE || seen >= MAX_FLOWS {
                break;
            }
        }
        let total = if filter.container.is_empty() { store.count(&query)? } else { seen as u64 };
        Ok((items, total))
    })
    .await?;
    let (page, pages) = (filter.offset / limit + 1, (total as usize).div_ceil(limit).max(1));
    Ok(Json(json!({"items": items, "total": total, "page": page, "pages": pages})))
}

/// `GET /api/logs`
pub(super) async fn logs(State(grey): GreyproxyApiState, Query(filter): Query<TrafficFilter>) -> GreyproxyResult {
    page(&grey, filter, "", json_format::log).await
}

/// `GET /api/transactions`
pub(super) async fn transactions(
    State(grey): GreyproxyApiState,
    Query(filter): Query<TrafficFilter>,
) -> GreyproxyResult {
    page(&grey, filter, "method:*", |row| json_format::transaction(row, None)).await
}

/// `GET /api/transactions/:id`
pub(super) async fn transaction(State(grey): GreyproxyApiState, Path(id): Path<u64>) -> GreyproxyResult {
    let found = run_query(&grey.admin, move |store, _| {
        let Some(row) = by_number(store, id)? else { return Ok(None) };
        let bodies = (text(store, &row, Direction::Request)?, text(store, &row, Direction::Response)?);
        Ok(Some(json_format::transaction(&row, Some(bodies))))
    });
    found.await?.map(Json).ok_or_else(|| GreyproxyError::not_found("transaction"))
}

/// The flow that began at this time: flow ids begin with the millisecond.
fn by_number(store: &dyn FlowStore, id: u64) -> Result<Option<FlowRow>, ApiError> {
    let before = u128::from(id / 1000).saturating_sub(1) << 80;
    let mut options = ListOptions {
        query: Wanted::all(),
        order: ListOrder::Oldest,
        after: Some(FlowId::from_u128(before)),
        limit: PAGE,
    };
    loop {
        let rows = store.list(&options)?;
        let Some(last) = rows.last() else { return Ok(None) };
        let (end, full) = (last.started.micros() > id + 1000, rows.len() == PAGE);
        options.after = Some(last.id);
        if let Some(found) = rows.into_iter().find(|r| json_format::flow_number(r) == id) {
            return Ok(Some(found));
        }
        if end || !full {
            return Ok(None);
        }
    }
}

fn text(store: &dyn FlowStore, row: &FlowRow, side: Direction) -> Result<String, ApiError> {
    let Some(kept) = row.body(side).map(|b| b.kept).filter(|k| *k > 0) else { return Ok(String::new()) };
    let bytes = store.body(row.id, side, 0..kept.min(MAX_BODY_TEXT as u64))?;
    let bytes = bytes.read_all(MAX_BODY_TEXT).map_err(|e| ApiError::internal(e.to_string()))?;
    let empty = Headers::new();
    let plain = decoded_body::decode_body(row.headers(side).unwrap_or(&empty), bytes, MAX_BODY_TEXT).bytes;
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

/// Counters over flows.
#[derive(Default)]
struct FlowCounts {
    total: u64,
    blocked: u64,
}

impl FlowCounts {
    fn add(&mut self, blocked: bool) {
        self.total += 1;
        self.blocked += u64::from(blocked);
    }
}

async fn traffic_stats(grey: &GreyproxyState, filter: TrafficFilter) -> Result<Value, GreyproxyError> {
    let today = jiff::Timestamp::now().strftime("%Y-%m-%dT00:00:00Z").to_string();
    let from = if filter.from_date.is_empty() { today } else { filter.from_date.clone() };
    let until = if filter.to_date.is_empty() { String::new() } else { filter.to_date.clone() };
    let query =
        TrafficFilter { from_date: from.clone(), to_date: until.clone(), ..TrafficFilter::default() }.query("")?;
    let shaped: Vec<Value> = run_query(&grey.admin, move |store, wanted| {
        let mut options = ListOptions { query, order: ListOrder::Newest, after: None, limit: PAGE };
        let mut shaped = Vec::new();
        while shaped.len() < MAX_FLOWS {
            let rows = store.list_while(&options, &mut || wanted.check())?;
            shaped.extend(rows.iter().map(json_format::log));
            options.after = rows.last().map(|r| r.id);
            if rows.len() < PAGE {
                break;
            }
        }
        Ok(shaped)
    })
    .await?;
    let (mut all, mut containers, mut hours) = (FlowCounts::default(), BTreeMap::new(), BTreeMap::new());
    let mut blocked_places: BTreeMap<(String, u64), (u64, Vec<String>)> = BTreeMap::new();
    for log in &shaped {
        let word = |key: &str| log[key].as_str().unwrap_or_default().to_owned();
        let blocked = log["result"] == "blocked";
        all.add(blocked);
        containers.entry(word("container_name")).or_insert_with(FlowCounts::default).add(blocked);
        let hour = word("timestamp").get(..13).map(|h| format!("{h}:00:00Z")).unwrap_or_default();
        hours.entry(hour).or_insert_with(FlowCounts::default).add(blocked);
        if blocked {
            let place = (word("destination_host"), log["destination_port"].as_u64().unwrap_or_default());
            let (count, who) = blocked_places.entry(place).or_default();
            *count += 1;
            let container = word("container_name");
            if !who.contains(&container) {
                who.push(container);
            }
        }
    }
    let rate = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let mut by_container: Vec<Value> = containers
        .iter()
        .map(|(name, c)| {
            json!({"name": name, "total": c.total, "allowed": c.total - c.blocked, "blocked": c.blocked,
            "percentage": rate(c.total, all.total)})
        })
        .collect();
    by_container.sort_by_key(|c| std::cmp::Reverse(c["total"].as_u64()));
    by_container.truncate(20);
    let mut top: Vec<Value> = blocked_places
        .iter()
        .map(|((host, port), (count, who))| {
            json!({"host": host, "port": port, "resolved_hostname": "", "count": count,
            "containers": who})
        })
        .collect();
    top.sort_by_key(|t| std::cmp::Reverse(t["count"].as_u64()));
    top.truncate(10);
    let timeline: Vec<Value> = hours
        .iter()
        .map(|(hour, c)| json!({"timestamp": hour, "allowed": c.total - c.blocked, "blocked": c.blocked}))
        .collect();
    Ok(json!({
        "period": {"from": from, "to": until},
        "total_requests": all.total,
        "allowed": all.total - all.blocked,
        "blocked": all.blocked,
        "allow_rate": rate(all.total - all.blocked, all.total),
        "by_container": by_container,
        "top_blocked": top,
        "timeline": timeline,
        "recent": shaped.iter().take(10).collect::<Vec<_>>(),
    }))
}

/// `GET /api/dashboard`
pub(super) async fn dashboard(State(grey): GreyproxyApiState, Query(filter): Query<TrafficFilter>) -> GreyproxyResult {
    Ok(Json(traffic_stats(&grey, filter).await?))
}

/// `GET /api/logs/stats`
pub(super) async fn log_stats(State(grey): GreyproxyApiState, Query(filter): Query<TrafficFilter>) -> GreyproxyResult {
    let mut all = traffic_stats(&grey, filter).await?;
    all["top_containers"] = all["by_container"].take();
    all["top_destinations"] = all["top_blocked"].take();
    Ok(Json(all))
}

/// `GET /api/conversations`
pub(super) async fn conversations(
    State(grey): GreyproxyApiState,
    Query(filter): Query<TrafficFilter>,
) -> GreyproxyResult {
    let mut text = String::new();
    for (key, value) in [("user", &filter.container), ("model", &filter.model), ("provider", &filter.provider)] {
        if !value.is_empty() {
            text.push_str(&format!(" {key}:\"{}\"", value.replace(['"', '\\'], "")));
        }
    }
    let query = Wanted::parse(text.trim()).map_err(|e| GreyproxyError::bad_request(e.to_string()))?;
    let (limit, offset) = (filter.limit(50), filter.offset.min(MAX_FLOWS));
    let found = run_query(&grey.admin, move |store, _| {
        let options = ConversationOptions { query, limit: offset + limit, ..ConversationOptions::default() };
        Ok(store.conversations(&options)?)
    })
    .await?;
    let items: Vec<Value> = found.iter().skip(offset).map(json_format::conversation).collect();
    Ok(Json(json!({"items": items, "total": found.len()})))
}

/// `GET /api/conversations/:id`
pub(super) async fn conversation(State(grey): GreyproxyApiState, Path(id): Path<String>) -> GreyproxyResult {
    let opened = run_query(&grey.admin, move |store, _| Ok(load::load_conversation(store, &id, None)?)).await?;
    let opened = opened.ok_or_else(|| GreyproxyError::not_found("conversation"))?;
    let mut shaped = json_format::conversation(&opened.listed);
    let turns = opened.thread.turns.iter().map(|turn| {
        let first = turn.items.first().map_or(0, |i| i.at);
        let last = turn.items.last().map_or(first, |i| i.at);
        let text = |role: &str| {
            let items = turn.items.iter().filter_map(|i| serde_json::to_value(i).ok());
            items
                .filter(|i| i["role"] == role && i["kind"] == "text")
                .find_map(|i| i["text"].as_str().map(str::to_owned))
        };
        json!({
            "turn_number": turn.number,
            "user_prompt": text("user"),
            "steps": turn.items,
            "api_calls_in_turn": turn.exchanges.len(),
            "timestamp": json_format::format_micros(first),
            "timestamp_end": json_format::format_micros(last),
            "duration_ms": last.saturating_sub(first) / 1000,
            "model": opened.listed.row.model,
        })
    });
    shaped["turns"] = turns.collect();
    shaped["linked_subagents"] = opened.children.iter().map(|c| json_format::conversation(&c.listed)).collect();
    Ok(Json(shaped))
}

/// `GET /api/conversations/:id/subagents`
pub(super) async fn subagents(State(grey): GreyproxyApiState, Path(id): Path<String>) -> GreyproxyResult {
    let found = run_query(&grey.admin, move |store, _| {
        let options = ConversationOptions { parent: Some(id), ..ConversationOptions::default() };
        Ok(store.conversations(&options)?)
    });
    let items: Vec<Value> = found.await?.iter().map(json_format::conversation).collect();
    Ok(Json(json!({"items": items})))
}
