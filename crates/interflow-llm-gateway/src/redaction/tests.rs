//! Properties: what is not found stays byte for byte, and what was redacted in a request is restored in any response,
//! however it is fragmented.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::SpanKind;
use interflow_redact::{
    ModelConfig, OutboundMode, PlaceholderVault, RedactConfig, RedactMode, RedactionSession, Redactor, SharedSession,
    VaultKey,
};
use interflow_types::{
    ByteStr, ClientInfo, EntryKind, Error, ErrorKind, Flow, HttpClient, Request, ResponseFuture, Scheme, Timestamp,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::llm_telemetry::ResponseFindings;

use super::RedactionService;
use super::effective_policy::EffectivePolicy;
use super::request_body::json_spans;
use super::rewriters::{RestoreRewriter, ScanRewriter};
use crate::exchange::response::event_rewriter::{EventRewriter, TextRewriter};
use crate::exchange::response::rewrite_step::rewrite_whole;

const VALUES: [&str; 4] = ["anna.berg@firm.com", "123-45-6789", "4111 1111 1111 1111", "bob@example.org"];

fn session() -> SharedSession {
    let vault = PlaceholderVault::new(&VaultKey::for_conversation(&[3; 32], b"t"));
    Arc::new(Mutex::new(RedactionSession::reversible(vault)))
}

/// The redacted form of a text, with its originals in the session.
fn redacted(session: &SharedSession, text: &str) -> String {
    let body = json!({ "messages": [{ "role": "user", "content": text }] }).to_string();
    let marked = interflow_llm::spans::mark_body(body.as_bytes(), true).unwrap();
    let spans = json_spans(body.as_bytes(), &marked);
    let redaction = Redactor::default().redact_spans(body.as_bytes(), spans, &mut session.lock()).unwrap();
    let out: Value = serde_json::from_slice(redaction.output.as_deref().unwrap_or(body.as_bytes())).unwrap();
    out["messages"][0]["content"].as_str().unwrap().to_owned()
}

/// Fragments of a text, split at these indices.
fn pieces<'t>(text: &'t str, cuts: &[prop::sample::Index]) -> Vec<&'t str> {
    let mut at: Vec<usize> = cuts.iter().map(|c| text.floor_char_boundary(c.index(text.len() + 1))).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

/// Framing of deltas, how a delta is built from a fragment, and the path of the text in it.
type Shape = (StreamFraming, fn(&str) -> Value, &'static str);

fn shapes() -> [Shape; 6] {
    [
        (
            StreamFraming::Sse,
            |t| json!({"choices": [{"index": 0, "delta": {"content": t}}]}),
            "/choices/0/delta/content",
        ),
        (
            StreamFraming::Sse,
            |t| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}),
            "/delta/text",
        ),
        (
            StreamFraming::Sse,
            |t| json!({"delta": t, "output_index": 0, "type": "response.output_text.delta"}),
            "/delta",
        ),
        (
            StreamFraming::Sse,
            |t| json!({"candidates": [{"content": {"parts": [{"text": t}]}}]}),
            "/candidates/0/content/parts/0/text",
        ),
        (StreamFraming::Lines, |t| json!({"message": {"content": t}, "done": false}), "/message/content"),
        (
            StreamFraming::Array,
            |t| json!({"candidates": [{"content": {"parts": [{"text": t}]}}]}),
            "/candidates/0/content/parts/0/text",
        ),
    ]
}

fn stream(framing: StreamFraming, events: &[Value]) -> Vec<u8> {
    match framing {
        StreamFraming::Sse => {
            events.iter().map(|e| format!("event: x\r\ndata: {e}\r\n\r\n")).collect::<String>().into_bytes()
        }
        StreamFraming::Lines => events.iter().map(|e| format!("{e}\n")).collect::<String>().into_bytes(),
        _ => format!("[{}]", events.iter().map(Value::to_string).collect::<Vec<_>>().join("\n,\r\n")).into_bytes(),
    }
}

fn texts(framing: StreamFraming, body: &[u8], pointer: &str) -> String {
    let body = std::str::from_utf8(body).unwrap();
    let events: Vec<Value> = match framing {
        StreamFraming::Sse => body
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .map(|d| serde_json::from_str(d).unwrap_or_else(|e| panic!("{e}: {d}")))
            .collect(),
        StreamFraming::Lines => body.lines().map(|l| serde_json::from_str(l).unwrap()).collect(),
        _ => serde_json::from_str(body).unwrap(),
    };
    events.iter().map(|e| e.pointer(pointer).and_then(Value::as_str).unwrap_or_default()).collect()
}

fn edited(framing: StreamFraming, body: &[u8], step: usize, session: &SharedSession) -> Vec<u8> {
    rewrite_whole(framing, body.chunks(step), restoring(Arc::clone(session))).unwrap()
}

fn restoring(session: SharedSession) -> RestoreRewriter {
    RestoreRewriter::new(session, true, ResponseFindings::default())
}

pub(super) fn scanning(mode: OutboundMode) -> ScanRewriter {
    ScanRewriter::new(service(), &choice(mode), true, ResponseFindings::default())
}

fn service() -> Arc<RedactionService> {
    let nowhere: Arc<dyn HttpClient> = Arc::new(Nowhere);
    RedactionService::new(&RedactConfig::default(), Path::new("/"), [7; 32], nowhere).unwrap()
}

fn choice(outbound: OutboundMode) -> EffectivePolicy {
    EffectivePolicy {
        mode: RedactMode::Redact,
        redactor: Arc::new(Redactor::default()),
        context: String::new(),
        restore: true,
        outbound,
        route: "gateway".into(),
    }
}

/// A client that cannot send.
struct Nowhere;

impl HttpClient for Nowhere {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async { Err(Error::new(ErrorKind::Internal, "nowhere")) })
    }
}

fn flow() -> Flow {
    let (peer, accepted) = (std::net::SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::now());
    let (process, container) = (None, None);
    let client =
        ClientInfo { connection: 1, peer, local: peer, listener: "gateway".into(), accepted, process, container };
    Flow::begin(client.into(), EntryKind::Gateway, Scheme::Http, "a.test:80".parse().unwrap())
}

/// A stream of InvokeModel whose only event has this payload, with the model's JSON in base64 for `*`.
fn invoke_stream(payload: &str, text: &str) -> Vec<u8> {
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let payload = payload.replace('*', &STANDARD.encode(delta.to_string()));
    let name = (ByteStr::from(":event-type"), HeaderValue::String("chunk".into()));
    let mut body = Vec::new();
    aws_event_stream::write_message(&mut body, &[name], payload.as_bytes()).unwrap();
    body
}

#[test]
fn chunks_of_invoke_model_are_restored_and_scanned_however_their_payload_is_written() {
    let session = session();
    let said = format!("{} is mine.", VALUES[0]);
    let placeholder = redacted(&session, &said);
    for payload in [r#"{"bytes":"*"}"#, r#"{"bytes": "*"}"#, r#"{"p": "abc", "bytes": "*"}"#, r#"{"b\u0079tes":"*"}"#] {
        let restored = edited(StreamFraming::EventStream, &invoke_stream(payload, &placeholder), 9, &session);
        assert_eq!(restored, invoke_stream(payload, &said), "{payload}");
        let body = invoke_stream(payload, &said);
        let blocked = rewrite_whole(StreamFraming::EventStream, [&body[..]], scanning(OutboundMode::Block));
        assert_eq!(blocked.unwrap_err().code, "outbound_blocked", "{payload}");
    }
    for payload in [r#"{"bytes":"*","bytes":"*"}"#, r#"{"bytes":"*="}"#, r#"{"text":"*"}"#, r#"{"bytes":["*"]}"#] {
        let body = invoke_stream(payload, &placeholder);
        let blocked = rewrite_whole(StreamFraming::EventStream, [&body[..]], scanning(OutboundMode::Block));
        assert_eq!(blocked.unwrap_err().code, "response_unreadable", "{payload}");
        let mut flow = flow();
        let passing = flow.extension_mut::<ResponseFindings>().clone();
        let rewriter = RestoreRewriter::new(Arc::clone(&session), true, passing);
        assert_eq!(rewrite_whole(StreamFraming::EventStream, [&body[..]], rewriter).unwrap(), body, "{payload}");
        ResponseFindings::merge_into_flow(&mut flow);
        assert!(flow.tags.iter().any(|tag| *tag == "restore:unread"), "{payload}: {:?}", flow.tags);
    }
}

#[test]
fn a_model_that_cannot_be_loaded_prevents_the_start_and_a_reload() {
    let with_model = RedactConfig {
        model: Some(ModelConfig { path: "nowhere".into(), ..ModelConfig::default() }),
        ..RedactConfig::default()
    };
    let start = |config: &RedactConfig| RedactionService::new(config, Path::new("/"), [1; 32], Arc::new(Nowhere));
    assert!(start(&with_model).err().is_some_and(|e| e.contains("redact.model.sha256")));
    let running = start(&RedactConfig::default()).expect("the built-in detectors need no files");
    assert!(running.compile(&with_model, Path::new("/")).err().is_some_and(|e| e.contains("redact.model.sha256")));
}

/// The mark of a fragment in a stream's event template.
const MARK: &str = "@@";

/// A provider's stream format: framing, an event template, and the path of the text in it.
type Wire = (StreamFraming, Value, &'static str);

/// Every provider's text deltas, followed by those of tool call arguments.
fn wires() -> [Vec<Wire>; 2] {
    let chat = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let call = json!({"tool_calls": [{"index": 0, "function": {"arguments": MARK}}]});
    let input =
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": MARK}});
    let parts = json!({"candidates": [{"content": {"parts": [{"text": MARK}]}}]});
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "delta": MARK});
    let spoken = json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": MARK});
    let arguments = json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": MARK});
    let texts = vec![
        (StreamFraming::Sse, chat(json!({"content": MARK})), "/choices/0/delta/content"),
        (StreamFraming::Sse, chat(json!({"reasoning_content": MARK})), "/choices/0/delta/reasoning_content"),
        (StreamFraming::Sse, json!({"choices": [{"index": 0, "text": MARK}]}), "/choices/0/text"),
        (
            StreamFraming::Sse,
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": MARK}}),
            "/delta/text",
        ),
        (StreamFraming::Sse, text.clone(), "/delta"),
        (StreamFraming::Sse, parts.clone(), "/candidates/0/content/parts/0/text"),
        (StreamFraming::Array, parts, "/candidates/0/content/parts/0/text"),
        (StreamFraming::Lines, json!({"model": "m", "message": {"content": MARK}, "done": false}), "/message/content"),
        (StreamFraming::Lines, json!({"model": "m", "response": MARK, "done": false}), "/response"),
        (StreamFraming::Messages, text, "/delta"),
        (StreamFraming::Messages, spoken, "/delta"),
        (StreamFraming::EventStream, json!({"contentBlockIndex": 0, "delta": {"text": MARK}}), "/delta/text"),
    ];
    let calls = vec![
        (StreamFraming::Sse, chat(call), "/choices/0/delta/tool_calls/0/function/arguments"),
        (StreamFraming::Sse, input, "/delta/partial_json"),
        (StreamFraming::Sse, arguments.clone(), "/delta"),
        (StreamFraming::Messages, arguments, "/delta"),
        (
            StreamFraming::EventStream,
            json!({"contentBlockIndex": 1, "delta": {"toolUse": {"input": MARK}}}),
            "/delta/toolUse/input",
        ),
    ];
    [texts, calls]
}

/// Events with these raw fragments.
fn raw_events(event: &Value, pieces: &[String]) -> Vec<String> {
    let event = event.to_string();
    pieces.iter().map(|p| event.replace(MARK, p)).collect()
}

/// The events of the restored stream.
fn through(framing: StreamFraming, events: &[String], step: usize, session: &SharedSession) -> Vec<String> {
    let rewriter = restoring(Arc::clone(session));
    let string = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    if framing == StreamFraming::Messages {
        let mut editor = EventRewriter::new(framing, rewriter);
        let mut out = Vec::new();
        for event in events {
            let (before, own) = editor.rewrite_message(event.clone().into_bytes().into());
            out.extend(before.iter().map(|b| string(b)));
            out.push(string(&own.unwrap()));
        }
        let (rest, closed) = editor.finish_messages();
        closed.unwrap();
        out.extend(rest.iter().map(|b| string(b)));
        return out;
    }
    let body = match framing {
        StreamFraming::Sse => {
            events.iter().map(|e| format!("event: x\ndata: {e}\n\n")).collect::<String>().into_bytes()
        }
        StreamFraming::Lines => events.iter().map(|e| format!("{e}\n")).collect::<String>().into_bytes(),
        StreamFraming::Array => format!("[{}]", events.join(",\n")).into_bytes(),
        _ => {
            let mut body = Vec::new();
            let name = |kind: &str| (ByteStr::from(":event-type"), HeaderValue::String(kind.into()));
            for event in events {
                aws_event_stream::write_message(&mut body, &[name("contentBlockDelta")], event.as_bytes()).unwrap();
            }
            body
        }
    };
    let out = edited(framing, &body, step, session);
    let mut reader = interflow_llm::event_stream::EventReader::new(framing, 1 << 20);
    reader.push(&out);
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        all.push(string(&event.data));
    }
    all.retain(|e| !e.is_empty());
    all
}

/// A text in fragments split between UTF-16 units, with or without escapes.
fn spelt(text: &str, cuts: &[prop::sample::Index], escapes: bool) -> Vec<String> {
    if !escapes {
        return pieces(text, cuts)
            .into_iter()
            .map(|p| {
                let json = Value::from(p).to_string();
                json[1..json.len() - 1].to_owned()
            })
            .collect();
    }
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut at: Vec<usize> = cuts.iter().map(|c| c.index(units.len() + 1)).collect();
    at.extend([0, units.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| units[w[0]..w[1]].iter().map(|u| format!("\\u{u:04x}")).collect()).collect()
}

/// Any response text, with placeholders for the values in it.
fn any_answer() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => any::<String>(),
        3 => "[\\x00-\\x1f\"\\\\/{}\\[\\],:😀é>EPSNnu0-9]{0,8}",
        2 => prop::sample::select(VALUES.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["EMAIL_", "E", "EMAIL\\", "NATIONAL", "N", "{\"a\":\"", "\\u00"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(word, 0..7).prop_map(|words| words.concat())
}

/// A session with a placeholder for each value, and for a word that is a prefix of others.
fn stocked() -> (SharedSession, Vec<(&'static str, String)>) {
    let session = session();
    let values = VALUES.into_iter().chain(["Norwegian"]);
    let made = values.map(|v| (v, redacted(&session, v))).collect();
    (session, made)
}

fn text_with_values() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        3 => "[a-z ,.\"\\\\\n{é😀]{0,12}",
        1 => prop::sample::select(VALUES.to_vec()).prop_map(|v| format!(" {v} ")),
        1 => prop::sample::select(vec!["E", "EM", "EMAI", "S", "SS", "P"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(word, 0..8).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn redacted_values_are_restored_in_every_stream_format(
        text in text_with_values(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        step in 1usize..200,
    ) {
        let session = session();
        let told = redacted(&session, &text);
        prop_assert!(VALUES.iter().all(|v| !told.contains(v)), "{}", told);
        for (framing, event, pointer) in shapes() {
            let events: Vec<Value> = pieces(&told, &cuts).into_iter().map(event).collect();
            let body = stream(framing, &events);
            let out = edited(framing, &body, step, &session);
            prop_assert_eq!(&texts(framing, &out, pointer), &text, "{:?} {}", framing, pointer);
        }
    }

    #[test]
    fn rewritten_events_stay_valid_json_with_correct_text_at_any_segmentation(
        wanted in any_answer(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        step in 1usize..60,
        escapes: bool,
    ) {
        let (session, made) = stocked();
        // JSON is escaped as JSON requires, which has its own test.
        let wanted = format!("~{wanted}.");
        let told = made.iter().fold(wanted.clone(), |t, (value, placeholder)| t.replace(value, placeholder));
        let [texts, calls] = wires();
        for (framing, event, pointer) in texts {
            let events = raw_events(&event, &spelt(&told, &cuts, escapes));
            let out = through(framing, &events, step, &session);
            let mut got = String::new();
            for event in &out {
                let value: Value = serde_json::from_str(event).map_err(|e| TestCaseError::fail(format!("{e}: {event}")))?;
                got.push_str(value.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
            }
            prop_assert_eq!(&got, &wanted, "{:?} {}", framing, pointer);
        }
        let told = json!({"a b": [1, true, told.clone()], "in": json!({"deeper": told}).to_string()}).to_string();
        for (framing, event, pointer) in calls {
            let events = raw_events(&event, &spelt(&told, &cuts, escapes));
            let mut got = String::new();
            for event in through(framing, &events, step, &session) {
                let value: Value = serde_json::from_str(&event).map_err(|e| TestCaseError::fail(format!("{e}: {event}")))?;
                got.push_str(value.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
            }
            let got: Value = serde_json::from_str(&got).map_err(|e| TestCaseError::fail(format!("{e}: {got}")))?;
            prop_assert_eq!(got["a b"][2].as_str(), Some(wanted.as_str()));
            let inner = got["in"].as_str().unwrap_or_default();
            let deeper: Value = serde_json::from_str(inner).map_err(|e| TestCaseError::fail(format!("{e}: {inner}")))?;
            // "~" is not valid JSON, so its text is the innermost.
            prop_assert_eq!(deeper["deeper"].as_str(), Some(wanted.as_str()));
        }
    }

    #[test]
    fn redacted_values_are_restored_in_tool_arguments(
        text in text_with_values(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        step in 1usize..200,
    ) {
        let session = session();
        let arguments = json!({ "text": redacted(&session, &text) }).to_string();
        let event = |t: &str| json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": t}}]}}]});
        let events: Vec<Value> = pieces(&arguments, &cuts).into_iter().map(event).collect();
        let out = edited(StreamFraming::Sse, &stream(StreamFraming::Sse, &events), step, &session);
        let got = texts(StreamFraming::Sse, &out, "/choices/0/delta/tool_calls/0/function/arguments");
        let got: Value = serde_json::from_str(&got).map_err(|e| TestCaseError::fail(format!("{e}: {got}")))?;
        prop_assert_eq!(got["text"].as_str().unwrap(), text);
    }

    #[test]
    fn redacted_values_are_restored_in_whole_texts(text in text_with_values()) {
        let session = session();
        let told = json!(redacted(&session, &text)).to_string();
        let raw = &told[1..told.len() - 1];
        let restored = restoring(session).rewrite_whole(raw, &SpanKind::Text).unwrap();
        let json = format!("\"{}\"", restored.as_deref().unwrap_or(raw));
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn stream_without_placeholders_is_unchanged(
        text in "[a-df-oq-rt-z ,.\"\\\\\n{é😀]{0,60}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        step in 1usize..100,
    ) {
        let session = session();
        redacted(&session, VALUES[0]);
        for (framing, event, pointer) in shapes() {
            let events: Vec<Value> = pieces(&text, &cuts).into_iter().map(event).collect();
            let body = stream(framing, &events);
            let out = edited(framing, &body, step, &session);
            // A backslash at the end of a fragment may begin an escape of JSON within the text: it waits for the next.
            if text.contains('\\') {
                prop_assert_eq!(&texts(framing, &out, pointer), &text, "{:?} {}", framing, pointer);
            } else {
                prop_assert_eq!(out, body);
            }
        }
    }

    #[test]
    fn scanned_stream_contains_no_found_values(
        text in text_with_values(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        step in 1usize..200,
    ) {
        for (framing, event, pointer) in shapes() {
            let events: Vec<Value> = pieces(&text, &cuts).into_iter().map(event).collect();
            let body = stream(framing, &events);
            let out = rewrite_whole(framing, body.chunks(step), scanning(OutboundMode::Redact)).unwrap();
            let got = texts(framing, &out, pointer);
            prop_assert!(VALUES.iter().all(|v| !got.contains(v)), "{:?}: {}", framing, got);
            // Random letters may form a name: then both ways of scanning find it.
            let told = redacted(&session(), &text);
            prop_assert_eq!(got.contains("{{{REDACTED"), told != text, "{} {}", got, told);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_event_rewriter(bytes in prop::collection::vec(any::<u8>(), 0..400), step in 1usize..50) {
        let session = session();
        redacted(&session, VALUES[0]);
        for framing in [StreamFraming::Sse, StreamFraming::Lines, StreamFraming::Array, StreamFraming::EventStream] {
            let _ = rewrite_whole(framing, bytes.chunks(step), restoring(Arc::clone(&session)));
        }
    }
}

#[test]
fn delta_ending_in_an_escape_stays_valid_json() {
    let (session, _) = stocked();
    let [texts, calls] = wires();
    for (framing, event, pointer) in texts.into_iter().chain(calls) {
        for (first, text) in
            [("Hello,\\n", "Hello,\nok"), ("a \\u003e", "a >ok"), ("\\t", "\tok"), ("N\\u0041", "NAok")]
        {
            let events = raw_events(&event, &[first.to_owned(), "ok".to_owned()]);
            let out = through(framing, &events, 7, &session);
            let got: String = out
                .iter()
                .map(|e| {
                    serde_json::from_str::<Value>(e).unwrap_or_else(|e| panic!("{framing:?} {pointer}: {e}: {out:?}"))
                })
                .map(|v| v.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned())
                .collect();
            assert_eq!(got, text, "{framing:?} {pointer}");
        }
    }
}

#[test]
fn interleaved_choices_do_not_end_one_another() {
    let session = session();
    let told = redacted(&session, VALUES[0]);
    let (a, b) = told.split_at(9);
    let chunk = |choice: u32, text: &str, end: Option<&str>| json!({"choices": [{"index": choice, "delta": {"content": text}, "finish_reason": end}]});
    let events = [
        chunk(0, a, None),
        chunk(1, a, None),
        chunk(0, b, None),
        chunk(0, " E", Some("stop")),
        chunk(1, b, None),
        chunk(1, "", Some("stop")),
    ];
    let out = edited(StreamFraming::Sse, &stream(StreamFraming::Sse, &events), 7, &session);
    let out = String::from_utf8(out).unwrap();
    let of = |choice: u64| -> String {
        let events = out.lines().filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok());
        let own = events.filter(|e| e["choices"][0]["index"] == choice);
        own.map(|e| e["choices"][0]["delta"]["content"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((of(0), of(1)), (format!("{} E", VALUES[0]), VALUES[0].to_owned()));
    assert_eq!(
        out.matches("event: x").count(),
        events.len(),
        "the text that ended with its choice needs no event of its own"
    );
}

#[test]
fn two_texts_in_one_event_are_kept_apart() {
    let session = session();
    let told = redacted(&session, VALUES[0]);
    let (a, b) = told.split_at(9);
    let event = |x: &str, y: &str| json!({"choices": [{"index": 0, "delta": {"content": x}}, {"index": 1, "delta": {"content": y}}]});
    let out = edited(StreamFraming::Sse, &stream(StreamFraming::Sse, &[event(a, "E"), event(b, "")]), 1000, &session);
    assert_eq!(texts(StreamFraming::Sse, &out, "/choices/0/delta/content"), VALUES[0]);
    assert_eq!(texts(StreamFraming::Sse, &out, "/choices/1/delta/content"), "E");
}

#[tokio::test]
async fn dropped_future_cancels_its_background_work() {
    let (begins, begun) = tokio::sync::oneshot::channel();
    let (ended, end) = std::sync::mpsc::channel();
    let work = move || {
        begins.send(()).ok();
        let redactor = interflow_redact::Redactor::default();
        let again = || {
            redactor.redact_text("Anna Berg, 415-555-0132", &mut interflow_redact::RedactionSession::one_way()).is_ok()
        };
        while again() {}
        ended.send(()).ok();
    };
    let waiting = tokio::spawn(crate::exchange::off_worker(1 << 20, work));
    begun.await.unwrap();
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_eq!(end.recv_timeout(std::time::Duration::from_secs(60)), Ok(()));
}

#[test]
fn unterminated_last_event_is_processed_and_a_truncated_one_is_an_error() {
    let session = session();
    let told = redacted(&session, VALUES[0]);
    let event = json!({"choices": [{"index": 0, "delta": {"content": told}}], "usage": {"n": 1}}).to_string();
    for (framing, before) in [
        (StreamFraming::Sse, "data: "),
        (StreamFraming::Lines, ""),
        (StreamFraming::Array, ""),
        (StreamFraming::Array, "["),
    ] {
        let whole = format!("{before}{event}");
        let out = String::from_utf8(edited(framing, whole.as_bytes(), 5, &session)).unwrap();
        assert!(out.contains(VALUES[0]) && !out.contains(&told), "{framing:?}: {out}");
        let (cut, rewriter) = (&whole.as_bytes()[..whole.len() - 3], restoring(Arc::clone(&session)));
        let halt = rewrite_whole(framing, [cut], rewriter).unwrap_err();
        assert_eq!(halt.code, "response_cut", "{framing:?}");
    }
}

#[test]
fn pieces_of_the_arguments_of_a_call_are_restored_argument_by_argument() {
    let session = session();
    let told = redacted(&session, VALUES[0]);
    let (a, b) = told.split_at(9);
    let event = |pieces: &[(&str, &str, bool)]| {
        let piece = |(path, text, goes_on): &(&str, &str, bool)| json!({"jsonPath": path, "stringValue": text, "willContinue": goes_on});
        let arguments: Vec<Value> = pieces.iter().map(piece).collect();
        let call = json!({"functionCall": {"partialArgs": arguments, "willContinue": true}});
        json!({"candidates": [{"content": {"parts": [call]}}]})
    };
    let events = [
        event(&[("$.to", a, true), ("$.cc", a, true)]),
        event(&[("$.cc", b, false)]),
        event(&[("$.to", b, true)]),
        event(&[("$.to", " E", false)]),
        // Of another call.
        event(&[("$.to", "E", false)]),
    ];
    let out = edited(StreamFraming::Sse, &stream(StreamFraming::Sse, &events), 1000, &session);
    let out = String::from_utf8(out).unwrap();
    let events: Vec<Value> =
        out.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let of = |path: &str, events: &[Value]| -> String {
        let pieces = events
            .iter()
            .filter_map(|event| event.pointer("/candidates/0/content/parts/0/functionCall/partialArgs")?.as_array());
        let own = pieces.flatten().filter(|piece| piece["jsonPath"] == path);
        own.map(|piece| piece["stringValue"].as_str().unwrap()).collect()
    };
    assert_eq!(events.len(), 5, "{out}");
    assert_eq!((of("$.to", &events[..4]), of("$.to", &events[4..])), (format!("{} E", VALUES[0]), "E".to_owned()));
    assert_eq!(of("$.cc", &events), VALUES[0]);
}
