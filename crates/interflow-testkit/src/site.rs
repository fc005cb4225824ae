//! The default site of an origin, by path.
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes of [`pattern`] with `Content-Length` |
//! | `/chunked/N?piece=P` | the same in pieces of P bytes (default 4096) without a length |
//! | `/slow/N?piece=P&gap=MS` | the same, a gap between the pieces (default 10 ms) |
//! | `/echo` | the request's body and `Content-Type` |
//! | `/head` | the request's method, target, version and fields as JSON |
//! | `/status/N` | status N with a short text |
//! | `/sse?count=N&gap=MS` | N events (default 3), `id: i`, `data: {"n":i}`; a gap between them (default 0) |
//! | `/early-hints` | 103 with `Link`, then 200 |
//! | `/trailers` | pieces, then the trailer `X-Sum: 9` |
//! | `/grpc` | the request's gRPC frames back, trailer `grpc-status: 0` |
//! | `/ws` | a WebSocket that echoes |
//! | `/page` | a page for browsers: its script fetches, listens to events, talks over a WebSocket, and writes down what came |
//! | `/delay/MS` | 200 after a wait |
//! | `/stall`, `/stall-body` | nothing at all; or a head and half a body, then nothing |
//! | `/reset`, `/hangup` | a reset, or a plain close, in place of a response |
//! | `/reset-body` | a reset in the middle of the body |
//! | `/short` | claims 100 bytes, sends 10 and closes |
//! | `/cut` | a chunked body without its last chunk, closed |
//! | anything else | 200 `hello` |

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value, json};

use crate::message::Request;
use crate::reply::{Ending, Reply};

/// `n` bytes that vary, so that a lost, duplicated or swapped piece is detected.
pub fn pattern(n: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = BytesMut::with_capacity(n + 8);
    while out.len() < n {
        // Xorshift: no period that a piece could hide in.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(n);
    out.freeze()
}

/// The image delays the page's load event until the script has finished.
const PAGE: &str = r#"<!doctype html><title>page</title><img src="/delay/4000"><pre id="said"></pre><script>
const said = { protocol: null, fetched: 0, events: 0, echoed: null };
const say = (name, value) => {
  said[name] = value;
  document.getElementById("said").textContent = JSON.stringify(said);
};
say("protocol", performance.getEntriesByType("navigation")[0].nextHopProtocol);
fetch("/echo", { method: "POST", body: "x".repeat(100000) }).then((r) => r.text()).then((t) => say("fetched", t.length));
const events = new EventSource("/sse?count=3&gap=100");
let heard = 0;
events.onmessage = () => say("events", ++heard);
events.onerror = () => events.close();
const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws");
socket.onopen = () => socket.send("hello");
socket.onmessage = (m) => say("echoed", m.data);
</script>
"#;

/// One server-sent event in the format of `/sse`.
pub fn event(i: u64) -> Bytes {
    format!("id: {i}\ndata: {{\"n\":{i}}}\n\n").into()
}

pub(crate) fn respond(request: &Request) -> Reply {
    let path = request.path();
    let mut segments = path.trim_start_matches('/').split('/');
    let name = segments.next().unwrap_or_default();
    let number = segments.next().and_then(|s| s.parse::<usize>().ok()).unwrap_or_default();
    let gap = |default| Duration::from_millis(request.number("gap").unwrap_or(default));
    match name {
        "bytes" => Reply::ok(pattern(number)).header("Content-Type", "application/octet-stream"),
        "chunked" => Reply::status(200).pieces(cut(&pattern(number), request), Duration::ZERO),
        "slow" => Reply::status(200).pieces(cut(&pattern(number), request), gap(10)),
        "echo" => echo(request),
        "head" => Reply::json(&describe(request)),
        "status" => Reply::status(number as u16).body(format!("status {number}\n")),
        "sse" => {
            let events = (0..request.number("count").unwrap_or(3)).map(event).collect();
            Reply::status(200).header("Content-Type", "text/event-stream").pieces(events, gap(0))
        }
        "early-hints" => Reply::ok("hello\n").informational(103, &[("Link", "</style.css>; rel=preload")]),
        "trailers" => Reply::status(200)
            .header("Trailer", "X-Sum")
            .pieces(vec![Bytes::from_static(b"four"), Bytes::from_static(b"five!")], Duration::ZERO)
            .trailer("X-Sum", "9"),
        "grpc" => Reply::status(200)
            .header("Content-Type", "application/grpc")
            .pieces(vec![request.body.clone()], Duration::ZERO)
            .trailer("grpc-status", "0")
            .trailer("grpc-message", "OK"),
        "ws" => Reply::websocket_echo(),
        "page" => Reply::ok(PAGE).header("Content-Type", "text/html; charset=utf-8"),
        "delay" => Reply::ok("hello\n").delay(Duration::from_millis(number as u64)),
        "stall" => Reply::nothing(Ending::Stall),
        "stall-body" => Reply::ok(pattern(50)).claim_length(100).ending(Ending::Stall),
        "reset" => Reply::nothing(Ending::Reset),
        "hangup" => Reply::nothing(Ending::Cut),
        "reset-body" => Reply::ok(pattern(50)).claim_length(100).ending(Ending::Reset),
        "short" => Reply::ok(pattern(10)).claim_length(100).ending(Ending::Cut),
        "cut" => Reply::status(200).pieces(vec![pattern(10)], Duration::ZERO).ending(Ending::Cut),
        _ => Reply::ok("hello\n").header("Content-Type", "text/plain"),
    }
}

fn echo(request: &Request) -> Reply {
    let kind = request.header("content-type").unwrap_or("application/octet-stream");
    Reply::ok(request.body.clone()).header("Content-Type", kind)
}

fn cut(body: &Bytes, request: &Request) -> Vec<Bytes> {
    let size = request.number("piece").unwrap_or(4096).max(1) as usize;
    (0..body.len()).step_by(size).map(|at| body.slice(at..body.len().min(at + size))).collect()
}

fn describe(request: &Request) -> Value {
    let fields: Vec<Value> =
        request.headers.iter().map(|(n, v)| json!([String::from_utf8_lossy(n), String::from_utf8_lossy(v)])).collect();
    let mut all = Map::new();
    all.insert("method".into(), json!(request.method));
    all.insert("target".into(), json!(request.target));
    all.insert("version".into(), json!(request.version));
    all.insert("authority".into(), json!(request.authority));
    all.insert("headers".into(), Value::Array(fields));
    all.insert("body_length".into(), json!(request.body.len()));
    Value::Object(all)
}
