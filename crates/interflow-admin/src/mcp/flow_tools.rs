//! The tools on flows: search, read, compare, count.

use std::collections::{BTreeMap, HashMap};

use interflow_archive::diff::FlowDiff;
use interflow_archive::text::{TextStyle, duration, size};
use interflow_store::{
    FlowRecord, FlowState, FlowStore, FlowWithBodies, ListOptions, StoreError, TotalsRange, decoded_body, media_type,
};
use interflow_types::{Direction, FlowId, Headers, Timestamp};
use serde_json::Value;

use super::arguments::{moment, number, offset, query, text};
use super::secret_masking::{mask_body, mask_header_values, mask_headers, mask_path};
use super::tool_text::{MAX_ROWS, MAX_TEXT, ToolCallResult, error_text, text_window};

/// Bytes of a body that are decoded for display.
const MAX_BODY: u64 = 16 << 20;
/// Messages that are read for display.
const MAX_MESSAGES: u64 = 2000;
/// Flows whose figures are added up: the newest ones.
const MAX_COUNTED: usize = 20_000;
/// Flows read from the store at a time.
const PAGE: usize = 1000;
/// Hosts, statuses and so on that are listed when the call does not say how many.
const TOP: u64 = 10;

pub fn search_flows(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let after = Some(text(arguments, "after")).filter(|t| !t.is_empty()).map(str::parse::<FlowId>).transpose();
    let limit = number(arguments, "limit", 50, MAX_ROWS);
    let options =
        ListOptions { query: query(arguments)?, after: after.map_err(error_text)?, limit, ..ListOptions::default() };
    let rows = store.list(&options).map_err(error_text)?;
    if rows.is_empty() {
        return Ok("no flow is selected".into());
    }
    let mut lines: Vec<_> = rows.iter().map(flow_line).collect();
    if let Some(last) = rows.last().filter(|_| rows.len() == limit) {
        lines.push(format!("[there may be older ones: after \"{}\" goes on]", last.id));
    }
    Ok(lines.join("\n"))
}

pub fn flow_line(row: &FlowRecord) -> String {
    let s = row.summary(Timestamp::now());
    let method = s.method.as_deref().unwrap_or("TUNNEL");
    let status = s.status.map_or_else(|| s.error.as_deref().unwrap_or("-").to_owned(), |n| n.to_string());
    let url = format!("{}://{}{}", s.scheme, s.authority, mask_path(s.path.as_deref().unwrap_or_default()));
    format!(
        "{} {method} {status} {url} ({} ms, {} B sent, {} B received)",
        s.id,
        s.duration / 1000,
        s.request_size,
        s.response_size
    )
}

fn flow_id(arguments: &Value, name: &str) -> Result<FlowId, String> {
    text(arguments, name).parse().map_err(|e| format!("`{name}`: {e}; search_flows lists ids"))
}

pub fn read_flow(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let id = flow_id(arguments, "id")?;
    let (skip, most) = (offset(arguments), number(arguments, "max_chars", 20_000, MAX_TEXT));
    let row = store.get(id).map_err(error_text)?;
    let side = match text(arguments, "part") {
        "request" => Direction::Request,
        "response" => Direction::Response,
        "messages" => return messages(store, &row, skip, most),
        _ if skip > 0 => return Err("`offset` needs `part`: which body, or the messages, to read on in".into()),
        _ => return whole_flow(store, &row, most),
    };
    match row.body(side).is_some_and(|b| b.size > 0) {
        true => body(store, &row, side, skip, most),
        false => Ok(format!("the {} of flow {id} has no body", side.as_str())),
    }
}

pub fn whole_flow(store: &dyn FlowStore, row: &FlowRecord, most: usize) -> ToolCallResult {
    let mut out = format!("flow {}, {:?}, {} ms\n", row.id, row.state, row.duration().unwrap_or_default() / 1000);
    if let Some(error) = &row.error {
        out.push_str(&format!("error {}: {}\n", error.kind, error.message));
    }
    if let Some(r) = &row.request {
        let target = format!("{}://{}{}", row.scheme, row.authority, mask_path(&r.path));
        out.push_str(&format!("\n{} {target} {}\n{}", r.method, r.version, mask_headers(&r.headers)));
        out.push_str(&body(store, row, Direction::Request, 0, most)?);
    }
    if let Some(r) = &row.response {
        out.push_str(&format!("\n{} {}\n{}", r.version, r.status, mask_headers(&r.headers)));
        out.push_str(&body(store, row, Direction::Response, 0, most)?);
    }
    if row.messages > 0 {
        out.push_str(&messages(store, row, 0, most)?);
    }
    Ok(out)
}

/// The decoded bytes of a body, and whether they are all of it.
fn decoded(store: &dyn FlowStore, row: &FlowRecord, side: Direction) -> Result<(bytes::Bytes, bool), String> {
    let Some(known) = row.body(side).filter(|b| b.kept > 0) else { return Ok((bytes::Bytes::new(), true)) };
    let bytes = store.body(row.id, side, 0..known.kept.min(MAX_BODY)).map_err(error_text)?;
    let bytes = bytes.read_all(MAX_BODY as usize).map_err(error_text)?;
    let empty = Headers::new();
    let decoded = decoded_body::decode_body(row.headers(side).unwrap_or(&empty), bytes, MAX_BODY as usize);
    Ok((decoded.bytes, known.kept <= MAX_BODY && !decoded.truncated))
}

fn body(store: &dyn FlowStore, row: &FlowRecord, side: Direction, skip: usize, most: usize) -> ToolCallResult {
    let Some(known) = row.body(side).filter(|b| b.size > 0) else { return Ok(String::new()) };
    let media = row.headers(side).and_then(media_type).unwrap_or_default();
    // A truncated body may end in the middle of a character.
    let (bytes, whole) = decoded(store, row, side)?;
    let Some(text) = mask_body(&media, &bytes, whole) else {
        return Ok(format!("\n[{} bytes of {media}]\n", known.size));
    };
    let part = format!("part \"{}\", ", side.as_str());
    let mut out = format!("\n{}\n", text_window(&text, skip, most, &part));
    if !whole {
        out.push_str(&format!("[only the first {} of the body can be read here]\n", size(MAX_BODY)));
    }
    if let Some(why) = known.missing_explanation() {
        out.push_str(&format!("[{} of {} bytes were recorded: {why}]\n", known.kept, known.size));
    }
    Ok(out)
}

fn messages(store: &dyn FlowStore, row: &FlowRecord, skip: usize, most: usize) -> ToolCallResult {
    let mut out = format!("\n{} messages\n", row.messages);
    let loaded = match store.messages(row.id, 0..row.messages.min(MAX_MESSAGES)) {
        // What is known of the flow is shown all the same.
        Err(e @ StoreError::Elsewhere { .. }) => return Ok(format!("{out}[{e}]\n")),
        loaded => loaded.map_err(error_text)?,
    };
    for m in loaded {
        let text = mask_body("", &m.payload, m.payload.len() as u64 == m.size);
        let text = text.unwrap_or_else(|| format!("[{} bytes]", m.size));
        out.push_str(&format!("{} {}\n", m.direction.as_str(), text.trim_end()));
        // Bounded: later messages are cut off below.
        if out.len() / 4 > skip.saturating_add(most) {
            break;
        }
    }
    Ok(text_window(&out, skip, most, "part \"messages\", "))
}

/// Compares two flows as agents see them, with secrets masked.
pub fn diff_flows(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let (skip, most) = (offset(arguments), number(arguments, "max_chars", 20_000, MAX_TEXT));
    let load = |name| store.get(flow_id(arguments, name)?).map_err(error_text);
    let (a, b) = (load("a")?, load("b")?);
    let heads = FlowDiff::new(&FlowWithBodies::new(masked_heads(&a)), &FlowWithBodies::new(masked_heads(&b)));
    let bodies = FlowDiff::new(&masked_bodies(store, &a)?, &masked_bodies(store, &b)?);
    let diff = FlowDiff { request_body: bodies.request_body, response_body: bodies.response_body, ..heads };
    if diff.is_empty() {
        return Ok("the flows do not differ, apart from times and from secrets, which are not compared".into());
    }
    let mut out = Vec::new();
    diff.write(&mut out, TextStyle { colour: false }).map_err(error_text)?;
    Ok(text_window(&String::from_utf8_lossy(&out), skip, most, ""))
}

fn masked_heads(row: &FlowRecord) -> FlowRecord {
    let mut row = row.clone();
    if let Some(r) = &mut row.request {
        r.path = mask_path(&r.path);
        r.headers = mask_header_values(&r.headers);
    }
    if let Some(r) = &mut row.response {
        r.headers = mask_header_values(&r.headers);
    }
    row
}

/// A flow with masked bodies, without content coding: they were decoded to mask them.
fn masked_bodies(store: &dyn FlowStore, row: &FlowRecord) -> Result<FlowWithBodies, String> {
    let masked = |side: Direction| -> Result<bytes::Bytes, String> {
        let media = row.headers(side).and_then(media_type).unwrap_or_default();
        let (bytes, whole) = decoded(store, row, side)?;
        // What is not text is compared by its bytes, and shown by its size.
        Ok(mask_body(&media, &bytes, whole).map_or(bytes, Into::into))
    };
    let (request_body, response_body) = (masked(Direction::Request)?, masked(Direction::Response)?);
    let mut bare = row.clone();
    bare.request.iter_mut().for_each(|r| r.headers = Headers::new());
    bare.response.iter_mut().for_each(|r| r.headers = Headers::new());
    Ok(FlowWithBodies { request_body, response_body, ..FlowWithBodies::new(bare) })
}

/// What the newest flows of a query add up to.
#[derive(Default)]
struct FlowTotals {
    flows: usize,
    failed: usize,
    sent: u64,
    received: u64,
    hosts: HashMap<String, HostTotals>,
    statuses: BTreeMap<u16, usize>,
    errors: HashMap<String, usize>,
    oldest: Option<Timestamp>,
}

#[derive(Default)]
struct HostTotals {
    failed: usize,
    durations: Vec<u64>,
}

impl FlowTotals {
    fn add(&mut self, row: &FlowRecord) {
        let summary = row.summary(Timestamp::now());
        let failed = row.error.is_some() || summary.status.is_some_and(|s| s >= 400);
        self.flows += 1;
        self.failed += usize::from(failed);
        self.sent += summary.request_size;
        self.received += summary.response_size;
        self.oldest = Some(row.started);
        if let Some(status) = summary.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if let Some(error) = &summary.error {
            *self.errors.entry(error.to_string()).or_default() += 1;
        }
        let host = self.hosts.entry(row.host().into_owned()).or_default();
        host.failed += usize::from(failed);
        host.durations.push(summary.duration);
    }

    fn write(mut self, out: &mut String, top: usize) {
        out.push_str(&format!(
            "{} flows, {} failed (an error, or a status from 400 up), {} sent, {} received\n",
            self.flows,
            self.failed,
            size(self.sent),
            size(self.received)
        ));
        let statuses: Vec<_> = self.statuses.iter().map(|(status, n)| format!("{status}: {n}")).collect();
        out.push_str(&format!("\nstatuses: {}\n", none_if_empty(&statuses.join(", "))));
        let errors: Vec<_> = most_frequent(self.errors, top).iter().map(|(kind, n)| format!("{kind}: {n}")).collect();
        out.push_str(&format!("errors: {}\n", none_if_empty(&errors.join(", "))));
        out.push_str("\nhosts, by number of flows:\n");
        let mut hosts: Vec<_> = self.hosts.drain().collect();
        hosts.sort_by(|a, b| b.1.durations.len().cmp(&a.1.durations.len()).then_with(|| a.0.cmp(&b.0)));
        let more = hosts.len().saturating_sub(top);
        for (host, mut totals) in hosts.into_iter().take(top) {
            totals.durations.sort_unstable();
            let quantile = |part: usize| {
                let last = totals.durations.len().saturating_sub(1);
                totals.durations.get(last * part / 100).copied().unwrap_or_default()
            };
            let (flows, failed) = (totals.durations.len(), totals.failed);
            let (median, slow) = (duration(quantile(50)), duration(quantile(95)));
            out.push_str(&format!("  {host}: {flows} flows, {failed} failed, median {median}, 95 % within {slow}\n"));
        }
        if more > 0 {
            out.push_str(&format!("  [{more} further hosts]\n"));
        }
    }
}

fn none_if_empty(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn most_frequent(counts: HashMap<String, usize>, most: usize) -> Vec<(String, usize)> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.truncate(most);
    counts
}

pub fn stats(store: &dyn FlowStore, arguments: &Value) -> ToolCallResult {
    let (query, top) = (query(arguments)?, number(arguments, "top", TOP, MAX_ROWS));
    let mut totals = FlowTotals::default();
    let mut options = ListOptions { query, limit: PAGE, ..ListOptions::default() };
    let complete = loop {
        let rows = store.list(&options).map_err(error_text)?;
        rows.iter().for_each(|row| totals.add(row));
        options.after = rows.last().map(|row| row.id);
        if rows.len() < PAGE {
            break true;
        }
        if totals.flows >= MAX_COUNTED {
            break false;
        }
    };
    let mut out = String::new();
    if let Some(oldest) = totals.oldest.filter(|_| !complete) {
        let seconds = Timestamp::now().micros().saturating_sub(oldest.micros()) / 1_000_000;
        out.push_str(&format!("[the newest {} flows only, of the last {seconds} seconds]\n", totals.flows));
    }
    totals.write(&mut out, top);
    out.push_str(&model_totals(store, arguments, top)?);
    Ok(out)
}

/// Tokens and cost of all conversations in the time range, by agent and model.
fn model_totals(store: &dyn FlowStore, arguments: &Value, top: usize) -> ToolCallResult {
    let since = moment(arguments, "since")?.unwrap_or(Timestamp::from_micros(0));
    let forever = i64::MAX.unsigned_abs();
    let until = moment(arguments, "until")?.unwrap_or(Timestamp::from_micros(forever));
    // One bucket for the whole range.
    let range = TotalsRange { since, until, span: forever, offset: 0 };
    let mut used = BTreeMap::<(String, String), [f64; 5]>::new();
    for total in store.totals(range).map_err(error_text)? {
        let u = &total.used;
        let sums = used.entry((total.agent, total.model)).or_default();
        let values = [u.exchanges as f64, u.input as f64, u.cache_read as f64, u.output as f64, u.cost];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    if used.is_empty() {
        return Ok("\nno calls of language models\n".into());
    }
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_by(|a, b| b.1[4].total_cmp(&a.1[4]));
    let mut out = "\ncalls of language models in the time range, of all queries, by cost:\n".to_owned();
    for ((agent, model), [exchanges, input, cached, output, cost]) in used.into_iter().take(top) {
        out.push_str(&format!(
            "  {agent} {model}: {exchanges} calls, {input} tokens in ({cached} cached), {output} out, ${cost:.4}\n"
        ));
    }
    Ok(out)
}

/// The newest flow of a query that has ended and began, or ended, after a moment; as a line.
pub fn newest_match(store: &dyn FlowStore, arguments: &Value, after: Timestamp) -> Result<Option<String>, String> {
    let options = ListOptions { query: query(arguments)?, limit: PAGE.min(100), ..ListOptions::default() };
    let rows = store.list(&options).map_err(error_text)?;
    let ended = |row: &&FlowRecord| {
        let end = row.started.micros() + row.duration().unwrap_or_default();
        row.state != FlowState::Open && end >= after.micros()
    };
    Ok(rows.iter().find(ended).map(flow_line))
}
