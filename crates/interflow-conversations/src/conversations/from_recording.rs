//! Parses LLM calls from recorded flows.

use std::collections::BTreeSet;

use crate::assembly::{ParsedCall, RawCall};
use bytes::Bytes;
use interflow_llm::message::parse::ReplyAssembly;
use interflow_llm::message::{ApiFormat, ModelReply, ModelRequest, Outline, ReplyEvent, parse};
use interflow_llm::{SERVICE_TIER_HEADER, detect_call};
use interflow_store::{
    FlowKind, FlowRecord, FlowState, FlowStore, FlowSummary, LoadedFlow, MessageRecord, Result, StoreError,
    decoded_body, media_type,
};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{AttemptState, CallUsage, Direction, EntryKind, FlowId, Headers, Timestamp};
use serde_json::{Value, json};

use super::endpoints::EndpointOverrides;
use super::weight;

/// Maximum length of a body that is parsed, in bytes, subject to the memory budget; calls with longer ones are
/// skipped.
const MAX_BODY_BYTES: u64 = 256 << 20;
/// The shortest JSON that may be an LLM request.
const MIN_REQUEST_BYTES: u64 = 24;
/// Maximum length of a body that is parsed if the path does not suggest an LLM call.
const MAX_UNKNOWN_BODY_BYTES: u64 = 16 << 20;
/// Messages of a WebSocket read per query.
const MESSAGES_PER_READ: u64 = 256;

/// Whether a flow may contain an LLM call, by its metadata.
pub fn may_hold(flow: &FlowSummary, endpoints: &EndpointOverrides) -> bool {
    let Some(path) = flow.path.as_deref() else { return false };
    let named_format = endpoints.format_for(flow);
    // An override says that this is a call, so neither method nor media type matters.
    if named_format.is_some() && flow.kind == FlowKind::Http {
        return flow.request_size >= MIN_REQUEST_BYTES;
    }
    let by_path = named_format.or_else(|| ApiFormat::from_path(path));
    match flow.kind {
        FlowKind::WebSocket => matches!(by_path, Some(ApiFormat::Responses | ApiFormat::Interactions)),
        FlowKind::Tunnel => false,
        FlowKind::Http if flow.method.as_deref() != Some("POST") || flow.request_size < MIN_REQUEST_BYTES => false,
        FlowKind::Http if by_path.is_some() => true,
        // Unknown path: only JSON in both directions, or a stream as a response, and not too large.
        FlowKind::Http => {
            let json = |t: &Option<String>| t.as_deref().is_some_and(|t| t.contains("json"));
            let stream = flow.response_type.as_deref().is_some_and(|t| t.ends_with("stream"));
            json(&flow.request_type)
                && (json(&flow.response_type) || stream)
                && flow.request_size <= MAX_UNKNOWN_BODY_BYTES
        }
    }
}

/// As [`may_hold`], by a flow's record.
pub fn record_may_hold(row: &FlowRecord, endpoints: &EndpointOverrides) -> bool {
    may_hold(&row.summary(Timestamp::now()), endpoints)
}

/// The LLM call of an HTTP flow; `None` if there is none, or its request was not fully recorded. Its memory counts
/// towards the process's budget while the returned reservation is alive.
///
/// # Errors
/// The store failed, or the memory budget is exhausted.
pub fn read_call(
    store: &dyn FlowStore,
    flow: &LoadedFlow,
    endpoints: &EndpointOverrides,
) -> Result<Option<(ParsedCall, MemoryReservation)>> {
    let row = &flow.row;
    // A copy for a shadow, or an attempt at a call as it was recorded once: the call itself has a flow of its own.
    if row.transport == EntryKind::Internal && row.tags.iter().any(|tag| tag.starts_with("deployment:")) {
        return Ok(None);
    }
    let mut held = MemoryReservation::default();
    let Some((shape, body)) = request_json(store, flow, endpoints.format_for_row(row), &mut held)? else {
        return Ok(None);
    };
    let answer = decoded_body(store, flow, Direction::Response, &mut held)?.bytes;
    let media = row.response.as_ref().and_then(|r| media_type(&r.headers)).unwrap_or_default();
    let mut recorded = with_raw_call(row, |seen| ParsedCall::parse_as(shape, seen, body, &media, &answer));
    recorded.complete_tier(row.response.as_ref().and_then(|head| head.headers.get_str(SERVICE_TIER_HEADER)));
    if row.tags.iter().any(|tag| tag == "cache:hit") {
        recorded.make_free();
    }
    if let Some((input, output)) = row.tags.iter().find_map(|tag| parse_estimate(tag)) {
        recorded.set_estimate(input, output);
    }
    let served = row.attempts.iter().find(|attempt| attempt.state == AttemptState::Served);
    if let Some(attempt) = served
        && let (Some(input), Some(output)) = (attempt.input_tokens, attempt.output_tokens)
    {
        recorded.complete_usage(input, output, attempt.estimated);
    }
    Ok(Some((recorded, held)))
}

/// The tokens of input and output in the tag by which the gateway says that it estimated them.
fn parse_estimate(tag: &str) -> Option<(u64, u64)> {
    let (input, output) = tag.strip_prefix("estimated:")?.split_once('+')?;
    Some((input.parse().ok()?, output.parse().ok()?))
}

/// The parsed request of an HTTP flow; `None` if it is not an LLM call, or was not fully recorded.
pub fn read_request(store: &dyn FlowStore, flow: &LoadedFlow) -> Result<Option<ModelRequest>> {
    let mut held = MemoryReservation::default();
    let named_format = EndpointOverrides::load(store)?.format_for_row(&flow.row);
    let path = flow.row.request.as_ref().map_or("", |r| &r.path);
    Ok(request_json(store, flow, named_format, &mut held)?.map(|(shape, body)| parse::request(shape, path, body)))
}

/// An LLM request and its format. One that needs more than half of the memory budget is skipped, because traffic
/// needs the rest.
fn request_json(
    store: &dyn FlowStore,
    flow: &LoadedFlow,
    named_format: Option<ApiFormat>,
    held: &mut MemoryReservation,
) -> Result<Option<(ApiFormat, Value)>> {
    let row = &flow.row;
    let body = decoded_body(store, flow, Direction::Request, held)?;
    if body.truncated {
        left_out(row);
        return Ok(None);
    }
    let path = row.request.as_ref().map_or("", |r| &r.path);
    // The outline needs little memory, so the format is known before the body is parsed as a whole.
    let outline = Outline::read(&body.bytes);
    let Some(shape) = outline.and_then(|outline| ApiFormat::detect_with_override(named_format, path, &outline)) else {
        return Ok(None);
    };
    let takes = weight::of_tree(&body.bytes);
    if takes > share(2) {
        left_out(row);
        return Ok(None);
    }
    // Reserved before parsing, which is when the memory is needed.
    held.grow_to(held.bytes() + takes).map_err(StoreError::Overloaded)?;
    Ok(interflow_codec::json::parse(&body.bytes).ok().map(|value| (shape, value)))
}

fn left_out(row: &FlowRecord) {
    tracing::warn!(
        flow = %row.id,
        "an LLM request needs too much memory to be added to a conversation (limits.held_bytes); its flow is recorded"
    );
}

/// One of `parts` equal shares of the memory budget; unlimited without a budget.
fn share(parts: u64) -> u64 {
    match PROCESS_BUDGET.limit() {
        0 => u64::MAX,
        limit => limit / parts,
    }
}

/// A body without its content coding, as far as it was recorded.
fn decoded_body(
    store: &dyn FlowStore,
    flow: &LoadedFlow,
    side: Direction,
    held: &mut MemoryReservation,
) -> Result<decoded_body::DecodedBody> {
    let row = &flow.row;
    // An eighth: request, response, their decoded forms and the parsed tree may exist at once.
    let most = MAX_BODY_BYTES.min(share(8));
    let Some(kept) = row.body(side).map(|b| b.kept).filter(|k| *k > 0) else {
        return Ok(decoded_body::DecodedBody { bytes: Bytes::new(), truncated: false, error: None });
    };
    if kept > most {
        return Ok(decoded_body::DecodedBody { bytes: Bytes::new(), truncated: true, error: None });
    }
    held.grow_to(held.bytes() + kept).map_err(StoreError::Overloaded)?;
    let bytes = match flow.body(side) {
        Some(bytes) if bytes.len() as u64 == kept => bytes.clone(),
        // Long, or damaged, which only reading tells.
        _ => store.body(row.id, side, 0..kept)?.read_all(most as usize)?,
    };
    let empty = Headers::new();
    let headers = row.headers(side).unwrap_or(&empty);
    decoded_body::decoded_held(headers, bytes, most as usize, held).map_err(StoreError::Overloaded)
}

/// Calls `f` with the flow's metadata, which borrows from temporary values.
fn with_raw_call<T>(row: &FlowRecord, f: impl FnOnce(&RawCall<'_>) -> T) -> T {
    let empty = Headers::new();
    let headers = row.request.as_ref().map_or(&empty, |r| &r.headers);
    let path = row.request.as_ref().map_or("", |r| &r.path);
    let host = row.host();
    let method = row.request.as_ref().and_then(|r| interflow_types::Method::from_bytes(r.method.as_bytes()).ok());
    let call = method.and_then(|m| detect_call(&row.authority.host, row.authority.port, &m, path, headers));
    let provider = call.map_or("", |c| c.provider.as_str());
    let cut = (row.state == FlowState::Cut).then_some("the recording was truncated");
    let fault = row.error.as_ref().map(|e| e.message.as_str()).or(cut);
    f(&RawCall {
        flow: row.id,
        part: 0,
        lane: "",
        started: row.started,
        first_byte: row.timings.first_byte,
        duration: row.duration().unwrap_or_default(),
        host: &host,
        path,
        provider,
        user: row.user.as_deref().unwrap_or_default(),
        peer: &row.client.peer.map(|p| p.ip().to_string()).unwrap_or_default(),
        headers,
        status: row.response.as_ref().map_or(0, |r| r.status),
        fault,
    })
}

/// Parses the LLM calls of a WebSocket incrementally. A call's number is the index of its request, plus one, so that 0
/// remains for the call of an HTTP flow.
#[derive(Default)]
pub struct WebSocketCallReader {
    next: u64,
    /// The numbers of the calls that were read before. The last one does not say which: lanes end in any order.
    known: BTreeSet<u64>,
    live: LiveInteraction,
    /// One for each lane of the connection (`stream_id`).
    under_way: Vec<OpenWebSocketCall>,
}

pub(super) struct OpenWebSocketCall {
    format: ApiFormat,
    /// Empty if the client names none.
    lane: String,
    /// The id of the response, which a client steers by.
    response: String,
    /// What the client sent meanwhile to steer it: the request of the response that follows.
    steer: Option<(u64, ModelRequest)>,
    part: u64,
    began: Timestamp,
    pub first: Option<Timestamp>,
    request: ModelRequest,
    pub answer: ReplyAssembly,
}

impl WebSocketCallReader {
    /// Leaves out the calls with these numbers. Their messages are read, too: they have what calls share, and calls that
    /// have not ended may have begun before them.
    pub fn leaving_out(known: BTreeSet<u64>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Continues reading; `over`: no more messages will follow.
    pub fn read(&mut self, store: &dyn FlowStore, row: &FlowRecord, over: bool) -> Result<Vec<ParsedCall>> {
        let mut calls = Vec::new();
        let is_live = row_format(row) == Some(ApiFormat::Interactions);
        // Read in pages, and continued from the last message that was read.
        while self.next < row.messages {
            let end = (self.next + MESSAGES_PER_READ).min(row.messages);
            let messages = match store.messages(row.id, self.next..end) {
                Ok(messages) => messages,
                // The calls before and after a damaged page are found all the same.
                Err(e) => {
                    skip_damaged(row.id, e)?;
                    self.next = end;
                    continue;
                }
            };
            let Some(last) = messages.last() else { break };
            self.next = last.index + 1;
            for message in &messages {
                self.on_message(row, is_live, message, &mut calls);
            }
        }
        if over {
            let end = Timestamp::from_micros(row.ended());
            calls.extend(self.under_way.drain(..).map(|call| call.finish(row, end)));
            calls.extend(self.live.end(row, end, "completed"));
        }
        calls.retain(|call| !self.known.contains(&call.part()));
        Ok(calls)
    }

    fn on_message(&mut self, row: &FlowRecord, is_live: bool, message: &MessageRecord, calls: &mut Vec<ParsedCall>) {
        // Messages that are no JSON belong to no call.
        let Ok(value) = interflow_codec::json::parse::<Value>(&message.payload) else { return };
        if is_live {
            return self.live.on_message(row, message, value, calls);
        }
        match message.direction {
            // A lane carries one response at a time: a new request ends the call before it.
            Direction::Request if value["type"] == "response.create" => {
                let lane = value["stream_id"].as_str().unwrap_or_default().to_owned();
                let before = self.under_way.iter().position(|call| call.lane == lane);
                calls.extend(before.map(|at| self.under_way.remove(at).finish(row, message.at)));
                let (part, request) = (message.index + 1, websocket_request(row, value));
                self.under_way.push(OpenWebSocketCall::new(ApiFormat::Responses, lane, part, message.at, request));
            }
            Direction::Request if value["type"] == "response.steer" => {
                let steered = value["previous_response_id"].as_str().unwrap_or_default();
                let Some(call) = self.under_way.iter_mut().find(|call| call.response == steered) else { return };
                let model = call.request.model.clone();
                call.steer = Some((message.index + 1, ModelRequest { model, ..websocket_request(row, value) }));
            }
            Direction::Request => {}
            Direction::Response => {
                let lane = value["stream_id"].as_str().unwrap_or_default();
                let is_alone = self.under_way.len() == 1;
                let Some(at) = self.under_way.iter().position(|call| call.lane == lane || is_alone) else { return };
                let call = &mut self.under_way[at];
                call.first.get_or_insert(message.at);
                match value["type"].as_str() {
                    Some("response.created") => {
                        call.response = value["response"]["id"].as_str().unwrap_or_default().to_owned();
                    }
                    Some("response.steer.failed") => call.steer = None,
                    _ => {}
                }
                if !call.answer.event(ReplyEvent { name: String::new(), data: value, done: false }) {
                    return;
                }
                let mut call = self.under_way.remove(at);
                // The response that was steered ends, and another one follows unasked.
                if let Some((part, request)) = call.steer.take() {
                    let lane = call.lane.clone();
                    let follows = OpenWebSocketCall::new(ApiFormat::Responses, lane, part, message.at, request);
                    self.under_way.push(follows);
                }
                calls.push(call.finish(row, message.at));
            }
        }
    }

    /// The request that a WebSocket message began, by the call's number.
    pub fn read_request(store: &dyn FlowStore, row: &FlowRecord, part: u64) -> Result<Option<ModelRequest>> {
        if row_format(row) != Some(ApiFormat::Interactions) {
            let index = part.saturating_sub(1);
            let message = store.messages(row.id, index..index + 1)?.into_iter().next();
            let value = message.and_then(|m| interflow_codec::json::parse::<Value>(&m.payload).ok());
            return Ok(value.map(|value| websocket_request(row, value)));
        }
        let calls = Self::default().read(store, row, true)?;
        Ok(calls.into_iter().find(|call| call.part() == part).map(ParsedCall::into_request))
    }
}

/// A damaged record stays damaged: to stop there would stop all conversations.
pub(super) fn skip_damaged(flow: FlowId, error: StoreError) -> Result<()> {
    if !matches!(error, StoreError::Damaged { .. }) {
        return Err(error);
    }
    tracing::warn!(%flow, %error, "cannot read an LLM call: it is skipped");
    Ok(())
}

fn row_format(row: &FlowRecord) -> Option<ApiFormat> {
    ApiFormat::from_path(&row.request.as_ref()?.path)
}

/// The request in a client's event; some clients wrap it in `response`.
fn websocket_request(row: &FlowRecord, mut value: Value) -> ModelRequest {
    let path = row.request.as_ref().map_or("", |r| &r.path);
    let inner = if value["response"].is_object() { value["response"].take() } else { value };
    parse::request(ApiFormat::Responses, path, inner)
}

impl OpenWebSocketCall {
    pub fn new(format: ApiFormat, lane: String, part: u64, began: Timestamp, request: ModelRequest) -> Self {
        let (response, answer) = (String::new(), ReplyAssembly::new(format));
        Self { format, lane, response, steer: None, part, began, first: None, request, answer }
    }

    /// Completes the call, as far as its reply has come.
    fn finish(self, row: &FlowRecord, at: Timestamp) -> ParsedCall {
        self.finish_with(row, at, |_| {})
    }

    /// As [`finish`](Self::finish), with a change of the reply.
    pub fn finish_with(self, row: &FlowRecord, at: Timestamp, change: impl FnOnce(&mut ModelReply)) -> ParsedCall {
        let mut reply = self.answer.end();
        change(&mut reply);
        let after = |t: Timestamp| t.micros().saturating_sub(self.began.micros());
        with_raw_call(row, |call| {
            let call = RawCall {
                part: self.part,
                lane: &self.lane,
                started: self.began,
                first_byte: self.first.map(after),
                duration: after(at),
                // The handshake had a status, the call has none of its own.
                status: 200,
                ..call.clone()
            };
            ParsedCall::from_parts(&call, self.request, reply, self.format)
        })
    }
}

/// The interaction of a connection of Google's, which may have several in turn: the client adds input whenever it has
/// some, and the model answers it in steps.
#[derive(Default)]
pub(super) struct LiveInteraction {
    id: String,
    /// The event that began it: the model and what all of its calls share.
    settings: Value,
    /// What the client has said and the model has not begun to answer.
    input: Vec<Value>,
    /// The number of the call that this begins, and the time.
    asked: Option<(u64, Timestamp)>,
    call: Option<OpenWebSocketCall>,
    /// Steps of the model that have begun and not ended.
    open_steps: usize,
    /// Usage before the call: reports are totals of the interaction.
    used: CallUsage,
}

impl LiveInteraction {
    /// Reads a message, which may be a batch of events.
    fn on_message(&mut self, row: &FlowRecord, message: &MessageRecord, mut value: Value, calls: &mut Vec<ParsedCall>) {
        let batch = value["events"].as_array_mut().map(std::mem::take);
        for event in batch.unwrap_or_else(|| vec![value]) {
            match message.direction {
                Direction::Request => self.on_input(row, message, event, calls),
                Direction::Response => self.on_output(row, message.at, event, calls),
            }
        }
    }

    fn on_input(&mut self, row: &FlowRecord, message: &MessageRecord, mut event: Value, calls: &mut Vec<ParsedCall>) {
        match event["event_type"].as_str() {
            Some("interaction.create") => {
                calls.extend(self.end(row, message.at, "completed"));
                let is_wrapped = event["interaction"].is_object();
                let settings = if is_wrapped { event["interaction"].take() } else { event };
                *self = Self { settings, ..Self::default() };
            }
            Some("input") => {
                self.asked.get_or_insert((message.index + 1, message.at));
                self.input.extend(event["content"].as_array_mut().map(std::mem::take).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn on_output(&mut self, row: &FlowRecord, at: Timestamp, event: Value, calls: &mut Vec<ParsedCall>) {
        let mut end = None;
        match event["event_type"].as_str().unwrap_or_default() {
            "interaction.created" => self.id = event["interaction_id"].as_str().unwrap_or_default().to_owned(),
            "step.start" => {
                // What the client says while the model answers belongs to the next call.
                if self.open_steps == 0 && self.asked.is_some() {
                    calls.extend(self.finish_call(row, at, Some("completed")));
                    self.begin_call(row);
                }
                self.open_steps += 1;
            }
            "step.stop" => self.open_steps = self.open_steps.saturating_sub(1),
            "interaction.completed" => end = Some("completed"),
            "interaction.cancelled" | "interaction.canceled" => end = Some("cancelled"),
            "error" => end = Some("failed"),
            _ => {}
        }
        if end.is_some() && self.call.is_none() {
            self.begin_call(row);
        }
        if let Some(call) = &mut self.call {
            call.first.get_or_insert(at);
            call.answer.event(ReplyEvent { name: String::new(), data: event, done: false });
        }
        if let Some(status) = end {
            calls.extend(self.end(row, at, status));
        }
    }

    /// Ends the interaction; input without an answer is a call of its own.
    pub fn end(&mut self, row: &FlowRecord, at: Timestamp, status: &str) -> Vec<ParsedCall> {
        let answered = self.finish_call(row, at, Some(status));
        self.begin_call(row);
        answered.into_iter().chain(self.finish_call(row, at, None)).collect()
    }

    fn begin_call(&mut self, row: &FlowRecord) {
        let Some((part, at)) = self.asked.take() else { return };
        let mut body = self.settings.clone();
        body["input"] = std::mem::take(&mut self.input).into();
        // The first call continues another interaction, the others continue this one.
        self.settings["previous_interaction_id"] = Value::Null;
        let path = row.request.as_ref().map_or("", |r| &r.path);
        let request = parse::request(ApiFormat::Interactions, path, body);
        self.call = Some(OpenWebSocketCall::new(ApiFormat::Interactions, String::new(), part, at, request));
    }

    fn finish_call(&mut self, row: &FlowRecord, at: Timestamp, status: Option<&str>) -> Option<ParsedCall> {
        let mut call = self.call.take()?;
        if let Some(status) = status.filter(|_| self.open_steps == 0) {
            let data = json!({ "interaction": { "id": self.id, "status": status } });
            call.answer.event(ReplyEvent { name: String::new(), data, done: false });
        }
        let used = self.used;
        Some(call.finish_with(row, at, |reply| {
            if let Some(total) = reply.usage {
                reply.usage = Some(total.since(used));
                self.used = used.max(total);
            }
        }))
    }
}
