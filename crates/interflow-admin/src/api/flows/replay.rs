//! Replaying recorded requests, and comparing flows.

use std::time::Duration;

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_archive::diff::FlowDiff;
use interflow_archive::replay::{RequestEdits, masked_fields};
use interflow_archive::{BodySource, OriginalBodySource, StoreBodySource, read_flow};
use interflow_store::{FlowRecord, FlowStore, FlowWithBodies};
use interflow_types::schema::JsonSchema;
use interflow_types::{Body, BodyFrame, Direction, FlowId, Request, Response};
use serde::{Deserialize, Serialize};

use crate::api::blocking::run_query;
use crate::api::input::{FlowIdPath, StrictJson, StrictQuery, flow_id};
use crate::error::{ApiError, Result};
use crate::state::{AdminState, SharedState};

/// Maximum bytes of one flow that are loaded into memory.
const MAX_BODY: u64 = 256 << 20;
/// How long the reply waits for the end of the response, which continues in the background.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);

/// A body, as text or bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReplayBody {
    Text(String),
    Bytes { base64: String },
}

impl ReplayBody {
    pub fn bytes(self) -> Result<Bytes> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Bytes { base64 } => {
                let decoded = STANDARD.decode(base64);
                decoded.map(Bytes::from).map_err(|e| ApiError::bad_request(format!("body.base64: {e}")))
            }
        }
    }
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReplayInput {
    method: Option<String>,
    url: Option<String>,
    /// `Name: value` sets a field, `Name:` removes it.
    headers: Vec<String>,
    body: Option<ReplayBody>,
}

/// The outcome of a replay: a response or an error. A failed request is a regular result of the call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplayResult {
    id: String,
    parent: String,
    /// Fields that were masked when recorded and therefore not sent, and `?NAME` for parameters that were sent masked.
    omitted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ReplayedResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ReplayError>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplayError {
    kind: &'static str,
    message: String,
    /// Who caused it: `client`, `upstream`, `config` or `internal`.
    blame: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ReplayedResponse {
    status: u16,
    version: &'static str,
    headers: Vec<(String, String)>,
    /// Bytes of the body; 0 if it did not end in time.
    size: u64,
    /// Whether the response has ended within a minute.
    complete: bool,
}

/// `POST /flows/{id}/replay`: sends the recorded request through the proxy again, so that rules and recording apply
/// to it.
pub async fn replay(
    state: SharedState,
    FlowIdPath(id): FlowIdPath,
    StrictJson(replay): StrictJson<ReplayInput>,
) -> Result<Json<ReplayResult>> {
    let body = replay.body.map(ReplayBody::bytes).transpose()?;
    let edits = RequestEdits::parse(replay.method.as_deref(), replay.url.as_deref(), &replay.headers, body)?;
    let is_new_url = edits.url.is_some();
    let (request, mut omitted) = run_query(&state, move |store, _| prepare(store, id, &edits)).await?;
    omitted.retain(|name| !is_new_url || !name.starts_with('?'));
    let (new, (response, error)) = send(&state, request, Some(id)).await;
    Ok(Json(ReplayResult { id: new.to_string(), parent: id.to_string(), omitted, response, error }))
}

/// A response, or an error.
pub(crate) type ReplayOutcome = (Option<ReplayedResponse>, Option<ReplayError>);

/// Sends a request through the proxy's own client. The new flow is in the store when this returns.
pub(crate) async fn send(state: &AdminState, request: Request, parent: Option<FlowId>) -> (FlowId, ReplayOutcome) {
    let (id, sent) = state.engine.send(request, parent).await;
    (id, summarized(state, sent.map(Some)).await)
}

/// What became of a request; without a response, it goes on. Its flow is in the store when this returns.
pub(crate) async fn summarized(state: &AdminState, sent: interflow_types::Result<Option<Response>>) -> ReplayOutcome {
    let outcome = match sent {
        Ok(None) => (None, None),
        Ok(Some(response)) => (Some(response_summary(response).await), None),
        Err(e) => {
            let blame = format!("{:?}", e.error_source()).to_ascii_lowercase();
            (None, Some(ReplayError { kind: e.kind().as_str(), message: e.to_string(), blame }))
        }
    };
    // The new flow must be visible to the client's next request.
    // A failure to flush does not change the outcome; the flow appears a little later.
    let _ = run_query(state, |store, _| Ok(store.flush()?)).await;
    outcome
}

fn prepare(store: &dyn FlowStore, id: FlowId, edits: &RequestEdits) -> Result<(Request, Vec<String>)> {
    let row = store.get(id)?;
    let stored = row.body(Direction::Request).map_or(0, |b| b.kept);
    // A recorded body is not needed if another one is given.
    if stored > MAX_BODY && edits.body.is_none() {
        return Err(too_long(&row, stored));
    }
    let body = match edits.body {
        Some(_) => Bytes::new(),
        None => store.body(id, Direction::Request, 0..stored)?.read_all(stored as usize)?,
    };
    Ok((edits.apply(&row, body)?, masked_fields(&row)))
}

fn too_long(row: &FlowRecord, kept: u64) -> ApiError {
    let message = format!("a body of flow {} has {kept} bytes; at most {MAX_BODY} are taken", row.id);
    ApiError::unprocessable("too_large", message)
}

/// Reads the response to its end, so that it is recorded completely, and summarises it.
async fn response_summary(response: Response) -> ReplayedResponse {
    let head = response.head;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let mut answered = ReplayedResponse {
        status: head.status.as_u16(),
        version: head.version.as_str(),
        headers: head.headers.iter().map(|(n, v)| (text(n), text(v))).collect(),
        size: 0,
        complete: false,
    };
    // On a task of its own: if the wait ends first, the body is still read and recorded.
    let reading = tokio::spawn(drain_body(response.body));
    if let Ok(Ok(Some(size))) = tokio::time::timeout(REPLAY_TIMEOUT, reading).await {
        (answered.size, answered.complete) = (size, true);
    }
    answered
}

/// The number of bytes; `None` if the body was cut off.
pub(crate) async fn drain_body(mut body: Body) -> Option<u64> {
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        if let BodyFrame::Data(data) = frame.ok()? {
            size += data.len() as u64;
        }
    }
    Some(size)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The id of the first flow.
    a: String,
    /// The id of the second flow.
    b: String,
    /// Use the first flow as received, before it was edited.
    #[serde(default)]
    original: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowComparison {
    a: String,
    b: String,
    equal: bool,
    #[serde(flatten)]
    diff: FlowDiff,
}

/// `GET /diff`: the whole of both flows is loaded into memory, so their bodies are limited.
pub async fn diff(state: SharedState, StrictQuery(params): StrictQuery<DiffParams>) -> Result<Json<FlowComparison>> {
    let (a, b) = (flow_id(&params.a)?, flow_id(&params.b)?);
    run_query(&state, move |store, _| {
        let diff = FlowDiff::new(&load_flow(store, a, params.original)?, &load_flow(store, b, false)?);
        Ok(Json(FlowComparison { a: a.to_string(), b: b.to_string(), equal: diff.is_empty(), diff }))
    })
    .await
}

fn load_flow(store: &dyn FlowStore, id: FlowId, original: bool) -> Result<FlowWithBodies> {
    let row = store.get(id)?;
    let row = if original { row.original_view() } else { row };
    for side in [Direction::Request, Direction::Response] {
        let stored = row.body(side).map_or(0, |b| b.kept);
        if stored > MAX_BODY {
            return Err(too_long(&row, stored));
        }
    }
    let failed = |e: std::io::Error| ApiError::internal(format!("flow {id} could not be read: {e}"));
    // Messages are compared by count, and received versions not at all.
    let messageless = FlowRecord { messages: 0, original: None, ..row.clone() };
    let (sent, came) = (StoreBodySource(store), OriginalBodySource(store));
    let contents: &dyn BodySource = if original { &came } else { &sent };
    let read = read_flow(&messageless, contents).map_err(failed)?;
    Ok(FlowWithBodies { row, ..read })
}
