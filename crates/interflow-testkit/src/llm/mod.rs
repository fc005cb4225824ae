//! A fake LLM provider with the APIs of several providers, whole and streamed. The request controls the response, and
//! received data is counted.
//!
//! | path | |
//! |---|---|
//! | `POST /v1/messages` | Anthropic Messages |
//! | `POST /v1/messages/count_tokens` | Anthropic token count |
//! | `POST /v1/chat/completions` | OpenAI Chat Completions |
//! | `POST /v1/responses` | OpenAI Responses |
//! | `GET /v1/responses`, a WebSocket | OpenAI Responses: `response.create` is answered with events |
//! | `GET /v1/realtime`, a WebSocket | OpenAI Realtime in text: the last item is returned as the answer |
//! | `POST /v1beta/models/MODEL:generateContent`, `:streamGenerateContent?alt=sse` | Gemini |
//! | `POST /v1/responses/input_tokens` | OpenAI token count |
//! | `POST /v1beta/models/MODEL:countTokens` | Gemini token count |
//! | `POST …/publishers/anthropic/models/MODEL:rawPredict`, `:streamRawPredict` | Claude on Vertex AI; the model `count-tokens` counts |
//! | `POST /model/MODEL/converse`, `/converse-stream`, `/count-tokens` | Bedrock |
//! | `POST /v2/chat` | Cohere |
//! | `POST /api/chat` | Ollama |
//! | `GET /v1/models` | a list of two models |
//! | `GET /stats` | what it received, as JSON |
//!
//! Each setting is a query parameter `NAME=value`, a header `x-NAME: value`, or part of a first path segment
//! `/~NAME=value&NAME=value`; see [`Knobs`]. Streaming is requested by
//! the body's `stream`, as with the real APIs. Equal requests get identical bytes, unless `stamp` is set.

mod anthropic;
mod bedrock;
mod chat;
mod cohere;
mod gemini;
mod knobs;
mod live;
mod ollama;
mod refusals;
mod responses;
mod strict;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use memchr::memmem;
use serde_json::{Value, json};

pub use knobs::Knobs;
use knobs::Turn;

use crate::message::Request;
use crate::origin::{Origin, OriginBuilder};
use crate::reply::Reply;

/// The thought signature of a call of Gemini's tools.
pub const CALL_SIGNATURE: &str = "CiQB4/+signature/of+a/calg==";

/// Placeholder for a send time: 19 digits of nanoseconds since 1970.
const STAMP: &[u8] = b"STAMP-STAMP-STAMP-1";

/// The counters of a fake provider, shared with its handler.
#[derive(Default)]
pub struct Received {
    requests: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    watched: Mutex<Vec<(String, u64)>>,
}

impl Received {
    /// Number of requests, including errors.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests that a provider would reject (no credentials, not JSON, missing fields).
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Starts counting requests that contain `marker` anywhere in head or body.
    pub fn watch_for(&self, marker: &str) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push((marker.to_owned(), 0));
    }

    /// The watched markers and the number of requests that contained each.
    pub fn sightings(&self) -> Vec<(String, u64)> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asserts that no watched marker ever arrived.
    ///
    /// # Panics
    /// If one did.
    pub fn assert_nothing_leaked(&self) {
        let leaked: Vec<_> = self.sightings().into_iter().filter(|(_, n)| *n > 0).collect();
        assert!(leaked.is_empty(), "the provider received {leaked:?}");
    }

    fn note(&self, request: &Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(request.body.len() as u64, Ordering::Relaxed);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.is_empty() {
            return;
        }
        let mut head = request.target.clone().into_bytes();
        request.headers.write_to(&mut head);
        look(&mut watched, &[&head, &request.body]);
    }

    fn note_message(&self, text: &str) {
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        look(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner), &[text.as_bytes()]);
    }

    fn to_json(&self) -> Value {
        json!({
            "requests": self.requests(),
            "bytes": self.bytes(),
            "refused": self.refused(),
            "sightings": self.sightings().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }
}

/// Counts the markers that occur in the pieces.
fn look(watched: &mut [(String, u64)], pieces: &[&[u8]]) {
    for (marker, seen) in watched.iter_mut() {
        *seen += u64::from(pieces.iter().any(|p| memmem::find(p, marker.as_bytes()).is_some()));
    }
}

/// Turns an [`Origin`] (plain or TLS) into a provider.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use interflow_testkit::{Origin, llm};
/// let (builder, received) = llm::provider(Origin::https());
/// received.watch_for("123-45-6789");
/// let provider = builder.start().await;
/// // ... requests through the proxy to provider.url("/v1/messages?chunks=8&gap=5") ...
/// received.assert_nothing_leaked();
/// # }
/// ```
pub fn provider(origin: OriginBuilder) -> (OriginBuilder, Arc<Received>) {
    let received = Arc::new(Received::default());
    let seen = received.clone();
    (origin.answering(move |request| respond(request, &seen)), received)
}

pub async fn start() -> (Origin, Arc<Received>) {
    let (builder, received) = provider(Origin::http());
    (builder.start().await, received)
}

#[derive(Clone, Copy, PartialEq)]
enum Api {
    Anthropic,
    CountTokens,
    VertexClaude,
    VertexClaudeCount,
    Chat,
    Responses,
    ResponsesCount,
    Gemini,
    GeminiStream,
    GeminiCount,
    Bedrock,
    BedrockStream,
    BedrockCount,
    Cohere,
    Ollama,
}

type Whole = fn(&Turn) -> Value;
type Events = fn(&Turn) -> Vec<String>;

fn respond(request: &Request, received: &Arc<Received>) -> Reply {
    if request.header("upgrade").is_some() || request.method == "CONNECT" {
        received.note(request);
        return live::open(request, Arc::clone(received));
    }
    // Settings may come before the provider's own path.
    let path = match request.path().strip_prefix("/~").and_then(|rest| rest.find('/').map(|at| &rest[at..])) {
        Some(path) => path,
        None => request.path(),
    };
    let api = match (request.method.as_str(), path) {
        ("POST", "/v1/messages") => Api::Anthropic,
        ("POST", "/v1/messages/count_tokens") => Api::CountTokens,
        ("POST", "/v1/chat/completions") => Api::Chat,
        ("POST", "/v1/responses") => Api::Responses,
        ("POST", "/v1/responses/input_tokens") => Api::ResponsesCount,
        ("POST", "/v2/chat") => Api::Cohere,
        ("POST", "/api/chat") => Api::Ollama,
        ("POST", path) if path.ends_with("/publishers/anthropic/models/count-tokens:rawPredict") => {
            Api::VertexClaudeCount
        }
        ("POST", path) if path.ends_with(":rawPredict") || path.ends_with(":streamRawPredict") => Api::VertexClaude,
        ("POST", path) if path.ends_with(":countTokens") => Api::GeminiCount,
        ("POST", path) if path.starts_with("/model/") && path.ends_with("/count-tokens") => Api::BedrockCount,
        ("POST", path) if path.ends_with(":generateContent") => Api::Gemini,
        ("POST", path) if path.ends_with(":streamGenerateContent") => Api::GeminiStream,
        ("POST", path) if path.starts_with("/model/") && path.ends_with("/converse") => Api::Bedrock,
        ("POST", path) if path.starts_with("/model/") && path.ends_with("/converse-stream") => Api::BedrockStream,
        ("GET", "/stats") => return Reply::json(&received.to_json()),
        ("GET", "/v1/models") => return Reply::json(&models()),
        _ => return error(Api::Chat, 404, "not_found_error", "no such path"),
    };
    received.note(request);
    answer(api, request).unwrap_or_else(|refusal| {
        received.refused.fetch_add(1, Ordering::Relaxed);
        *refusal
    })
}

fn answer(api: Api, request: &Request) -> Result<Reply, Box<Reply>> {
    let refuse = |status, kind: &str, why: &str| Box::new(error(api, status, kind, why));
    let credentials = ["x-api-key", "authorization", "x-goog-api-key"];
    if api != Api::Ollama && credentials.iter().all(|name| request.header(name).is_none()) {
        // As providers do: without credentials the body is not even parsed.
        return Err(refuse(401, "authentication_error", "no credentials"));
    }
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|e| refuse(400, "invalid_request_error", &format!("the body is not JSON: {e}")))?;
    let needed = match api {
        Api::Responses | Api::ResponsesCount => "input",
        Api::Gemini | Api::GeminiStream => "contents",
        Api::GeminiCount if body["contents"].is_array() => "contents",
        Api::GeminiCount => "generateContentRequest",
        Api::BedrockCount => "input",
        _ => "messages",
    };
    let in_path = !matches!(
        api,
        Api::Anthropic
            | Api::CountTokens
            | Api::Chat
            | Api::Responses
            | Api::ResponsesCount
            | Api::Cohere
            | Api::Ollama
    );
    if !in_path && body["model"].as_str().is_none() || body[needed].is_null() {
        return Err(refuse(400, "invalid_request_error", &format!("model or {needed} is missing")));
    }
    let knobs = Knobs::of(request);
    let model = body["model"].as_str().map_or_else(|| knobs::model_in_path(request.path()), str::to_owned);
    let refused = || {
        strict::check(api, request, &body, knobs.mistral).and_then(|()| refusals::check(api, request, &model, &body))
    };
    if knobs.strict
        && let Err(why) = refused()
    {
        return Err(refuse(400, "invalid_request_error", &why));
    }
    match knobs.status {
        200 => {}
        429 => return Ok(error(api, 429, "rate_limit_error", "too many requests").header("Retry-After", "1")),
        529 => return Ok(error(api, 529, "overloaded_error", "overloaded")),
        status => return Ok(error(api, status, "api_error", "as asked for")),
    }
    let turn = Turn::new(&knobs, request, &body);
    let (whole, events): (Whole, Events) = match api {
        Api::GeminiCount => return Ok(Reply::json(&json!({ "totalTokens": turn.input_tokens }))),
        Api::BedrockCount => return Ok(Reply::json(&json!({ "inputTokens": turn.input_tokens }))),
        Api::ResponsesCount => {
            return Ok(Reply::json(&json!({ "object": "response.input_tokens", "input_tokens": turn.input_tokens })));
        }
        Api::CountTokens | Api::VertexClaudeCount => {
            return Ok(Reply::json(&json!({ "input_tokens": turn.input_tokens })));
        }
        Api::Anthropic | Api::VertexClaude => (anthropic::whole, anthropic::events),
        Api::Chat => (chat::whole, chat::events),
        Api::Responses => (responses::whole, responses::events),
        Api::Gemini | Api::GeminiStream => (gemini::whole, gemini::events),
        Api::Cohere => (cohere::whole, cohere::events),
        Api::Ollama => (ollama::whole, ollama::events),
        Api::Bedrock => return Ok(Reply::json(&bedrock::whole(&turn)).delay(knobs.delay)),
        Api::BedrockStream => {
            let reply = stream(bedrock::events(&turn), &knobs).delay(knobs.delay);
            return Ok(reply.header("Content-Type", "application/vnd.amazon.eventstream"));
        }
    };
    let streams = match api {
        Api::GeminiStream => true,
        Api::Ollama => body["stream"] != false,
        _ => body["stream"] == true,
    };
    let reply = if streams {
        let pieces = events(&turn).into_iter().map(Bytes::from).collect();
        let media = if api == Api::Ollama { "application/x-ndjson" } else { "text/event-stream; charset=utf-8" };
        stream(pieces, &knobs).header("Content-Type", media).header("Cache-Control", "no-cache")
    } else {
        Reply::json(&whole(&turn))
    };
    Ok(reply.header("request-id", &turn.id).delay(knobs.delay))
}

fn stream(pieces: Vec<Bytes>, knobs: &Knobs) -> Reply {
    let reply = Reply::status(200);
    if !knobs.stamp {
        return reply.pieces(pieces, knobs.gap);
    }
    let (gap, begin) = (knobs.gap, None);
    // Each piece is stamped when it is sent, so the stream is built piece by piece.
    reply.stream(futures_util::stream::unfold((pieces.into_iter(), begin), move |(mut pieces, at)| async move {
        if let Some(at) = at {
            tokio::time::sleep_until(at).await;
        }
        let piece = stamped(&pieces.next()?);
        // Relative to the first piece, so that delays do not add up.
        let next = at.unwrap_or_else(tokio::time::Instant::now) + gap;
        Some((piece, (pieces, (gap > Duration::ZERO).then_some(next))))
    }))
}

fn stamped(piece: &[u8]) -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut piece = piece.to_vec();
    if let Some(at) = memmem::find(&piece, STAMP) {
        piece[at..at + STAMP.len()].copy_from_slice(format!("{now:019}").as_bytes());
    }
    piece.into()
}

fn error(api: Api, status: u16, kind: &str, message: &str) -> Reply {
    let body = match api {
        Api::Anthropic | Api::CountTokens | Api::VertexClaude | Api::VertexClaudeCount => {
            json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_fake" })
        }
        Api::Gemini | Api::GeminiStream | Api::GeminiCount => {
            json!({ "error": { "code": status, "message": message, "status": kind.to_uppercase() } })
        }
        Api::Bedrock | Api::BedrockStream | Api::BedrockCount | Api::Cohere => json!({ "message": message }),
        Api::Ollama => json!({ "error": message }),
        Api::Chat | Api::Responses | Api::ResponsesCount => {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": kind } })
        }
    };
    let reply = Reply::json(&body);
    let reply = match api {
        Api::Bedrock | Api::BedrockStream => {
            reply.header("x-amzn-ErrorType", "ValidationException:http://internal.amazon.com/")
        }
        _ => reply,
    };
    Reply { status, ..reply }
}

fn models() -> Value {
    json!({ "object": "list", "data": [
        { "id": "fake-large", "object": "model", "type": "model", "display_name": "Fake Large", "owned_by": "testkit" },
        { "id": "fake-small", "object": "model", "type": "model", "display_name": "Fake Small", "owned_by": "testkit" },
    ] })
}

fn sse(event: Option<&str>, data: &Value) -> String {
    match event {
        Some(event) => format!("event: {event}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}
