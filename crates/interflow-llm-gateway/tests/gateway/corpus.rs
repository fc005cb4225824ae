//! What every API of the gateway does to a request and its answer, byte for byte: compared with the files of `corpus/`, which
//! `UPDATE_CORPUS=1` writes anew. The table of cases is in `corpus_cases.rs`.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::BytesMut;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_llm::LlmUpstreamConfig;
use interflow_redact::{RedactConfig, RedactMode};
use interflow_testkit::{Answer, Origin, Reply, Request};
use interflow_types::Headers;
use serde_json::Value;

use super::corpus_cases::cases;
use super::key_scopes::key;
use super::{Gate, MAIL, SSN};

/// The text of every request.
pub const PROMPT: &str = "I am Anna Berg, anna.berg@firm.com, SSN 123-45-6789.";

/// What the provider must get, and nobody else.
const OPERATOR_KEY: &str = "sk-operator-0123456789";

/// How a provider writes its answer. In its JSON, `$1` and `$2` are the halves of the mail address as it arrived.
pub enum Framing {
    Json(Value),
    Sse(Vec<Value>),
    /// Events with their names.
    NamedSse(Vec<(&'static str, Value)>),
    Lines(Vec<Value>),
    /// A growing JSON array.
    Growing(Vec<Value>),
    /// Messages of AWS with the names of their events.
    Aws(Vec<(&'static str, Value)>),
    Bytes(&'static str, &'static [u8]),
}

pub struct Case {
    pub name: &'static str,
    pub path: &'static str,
    pub body: Vec<u8>,
    pub content_type: &'static str,
    pub status: u16,
    pub answer: Framing,
    pub mode: RedactMode,
    /// Whether request and answer are compressed.
    pub gzip: bool,
    /// Further fields of the client's request, each with its CRLF.
    pub fields: &'static str,
}

impl Case {
    pub fn new(name: &'static str, path: &'static str, body: &Value, answer: Framing) -> Self {
        let (content_type, mode, body) = ("application/json", RedactMode::Redact, body.to_string().into_bytes());
        Self { name, path, body, content_type, status: 200, answer, mode, gzip: false, fields: "" }
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// The body without its coding, as text: messages of AWS are decoded, one a line.
fn shown(headers: &Headers, body: &[u8]) -> String {
    let mut plain = body.to_vec();
    if headers.get_str("content-encoding") == Some("gzip") {
        plain.clear();
        GzDecoder::new(body).read_to_end(&mut plain).unwrap();
    }
    if headers.get_str("content-type") != Some("application/vnd.amazon.eventstream") {
        return plain.escape_ascii().to_string().replace("\\n", "\n").replace("\\\"", "\"").replace("\\'", "'");
    }
    let (mut rest, mut text) = (BytesMut::from(&plain[..]), String::new());
    while let Some(message) = aws_event_stream::next_message(&mut rest, 1 << 20).expect("checksums hold") {
        let name = message.header_str(":event-type").unwrap_or_default().to_owned();
        writeln!(text, "{name}: {}", String::from_utf8_lossy(&message.payload)).unwrap();
    }
    assert!(rest.is_empty());
    text
}

/// The header fields that do not differ from one run to the next.
fn fields(headers: &Headers, out: &mut String) {
    for (name, value) in headers.iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let value = match &*name {
            "date" | "via" => continue,
            "content-length" if headers.get_str("content-encoding").is_some() => continue,
            "host" => "provider".to_owned(),
            "x-request-id" | "request-id" => "…".to_owned(),
            _ => String::from_utf8_lossy(value).into_owned(),
        };
        writeln!(out, "{name}: {value}").unwrap();
    }
}

impl Framing {
    fn reply(&self, status: u16, request: &Request) -> Reply {
        let arrived = shown(&request.headers, &request.body);
        let mark = |text: &str| arrived.find(text).map(|at| &arrived[at..]);
        let mail = mark("EMAIL_").or_else(|| mark(MAIL)).unwrap_or("none");
        let is_mail = |c: char| c.is_ascii_alphanumeric() || "_@.".contains(c);
        let mail = mail.split(|c| !is_mail(c)).next().unwrap_or_default().trim_end_matches('.');
        let (first, second) = mail.split_at(mail.len() / 2);
        let text = |value: &Value| value.to_string().replace("$1", first).replace("$2", second);
        let (media_type, body) = match self {
            Self::Json(value) => ("application/json", text(value).into_bytes()),
            Self::Sse(events) => {
                let end = "data: [DONE]\n\n".to_owned();
                let events: String = events.iter().map(|e| format!("data: {}\n\n", text(e))).chain([end]).collect();
                ("text/event-stream", events.into_bytes())
            }
            Self::NamedSse(events) => {
                let event = |(name, e): &(&str, Value)| format!("event: {name}\ndata: {}\n\n", text(e));
                ("text/event-stream", events.iter().map(event).collect::<String>().into_bytes())
            }
            Self::Lines(lines) => {
                let lines: String = lines.iter().map(|line| format!("{}\n", text(line))).collect();
                ("application/x-ndjson", lines.into_bytes())
            }
            Self::Growing(items) => {
                let items: Vec<String> = items.iter().map(text).collect();
                ("application/json", format!("[{}]", items.join("\n,\r\n")).into_bytes())
            }
            Self::Aws(messages) => {
                let mut out = Vec::new();
                for (name, payload) in messages {
                    let headers = [(":event-type", *name), (":message-type", "event")];
                    let headers = headers.map(|(n, v)| (n.into(), HeaderValue::String(v.into())));
                    aws_event_stream::write_message(&mut out, &headers, text(payload).as_bytes()).unwrap();
                }
                ("application/vnd.amazon.eventstream", out)
            }
            Self::Bytes(media_type, body) => (*media_type, body.to_vec()),
        };
        let reply = Reply::status(status).header("Content-Type", media_type);
        match request.header("content-encoding") == Some("gzip") || request.header("x-want-gzip").is_some() {
            true => reply.header("Content-Encoding", "gzip").body(gzip(&body)),
            false => reply.body(body),
        }
    }
}

/// Runs a case on a gateway of its own. The result has everything that a rebuild must not change.
async fn run(case: Case) -> String {
    let Case { name, path, body, content_type, status, answer, mode, gzip: is_gzip, fields: more } = case;
    let origin = Origin::http().answering(move |request| answer.reply(status, request)).start().await;
    let prices = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(prices.path(), r#"{"prices": {"m": {"input": 1, "output": 10}}}"#).unwrap();
    let gate = Gate::with(&origin, |parts| {
        parts.redact = RedactConfig { gateway: mode, ..RedactConfig::default() };
        parts.keys = key("k", "");
        parts.quota.prices = Some(prices.path().into());
        parts.llm.provider.values_mut().for_each(|at| at.api_key = Some(OPERATOR_KEY.into()));
        let at = LlmUpstreamConfig { project: Some("p".into()), ..parts.llm.provider["vertex"].clone() };
        parts.llm.provider.insert("vertex".into(), at);
    })
    .await;
    let coding = if is_gzip { "Content-Encoding: gzip\r\nX-Want-Gzip: 1\r\n" } else { "" };
    let head = format!("Authorization: Bearer ifk_k\r\nContent-Type: {content_type}\r\n{coding}{more}");
    let sent = if is_gzip { gzip(&body) } else { body.clone() };
    let answer = gate.send("POST", path, &head, &sent).await.unwrap();
    let flows = gate.proxy.flows(1).await;
    check(name, mode, &origin, &answer, &flows);

    let mut out = format!("== request of the client\nPOST {path}\n{head}").replace("\r\n", "\n");
    writeln!(out, "\n{}", shown(&Headers::new(), &body)).unwrap();
    for request in origin.requests() {
        writeln!(out, "== request at the provider\n{} {}", request.method, request.target).unwrap();
        fields(&request.headers, &mut out);
        writeln!(out, "\n{}", shown(&request.headers, &request.body)).unwrap();
    }
    writeln!(out, "== answer at the client\n{}", answer.status).unwrap();
    let (mut head, body) = (String::new(), shown(&answer.headers, &answer.body));
    fields(&answer.headers, &mut head);
    if body.contains("latencyMs") {
        // The time that an answer of Converse took has more or fewer digits.
        head =
            head.lines().filter(|line| !line.starts_with("content-length")).map(|line| format!("{line}\n")).collect();
    }
    writeln!(out, "{head}\n{body}").unwrap();
    for flow in &flows {
        writeln!(out, "== flow of the {}\n{}", flow.transport, flow.tags.join("\n")).unwrap();
    }
    for row in gate.limits.usage().rows() {
        let (s, model) = (&row, row.model.as_deref().unwrap_or("-"));
        writeln!(
            out,
            "== usage\nprovider {} model {model}\nrequests {} input {} cached {} output {} dollars {:.6} unpriced {}",
            row.provider, s.requests, s.input_tokens, s.cached_tokens, s.output_tokens, s.dollars, s.unpriced
        )
        .unwrap();
    }
    stable(&out)
}

/// The text without what differs from one run to the next: times and ids.
fn stable(text: &str) -> String {
    let time = regex::Regex::new(r#""(created|created_at|updated|latencyMs)":("[^"]*"|\d+)"#).unwrap();
    let id = regex::Regex::new(r"(?i)01[0-9a-hjkmnp-tv-z]{24}|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b").unwrap();
    id.replace_all(&time.replace_all(text, "\"$1\":0"), "ID").into_owned()
}

/// What holds of every case.
fn check(name: &str, mode: RedactMode, origin: &Origin, answer: &Answer, flows: &[super::support::Kept]) {
    let answered = shown(&answer.headers, &answer.body);
    let stays = answered.contains("EMAIL_") || answered.contains("SSN_");
    assert!(!stays, "{name}: placeholders stay: {answered}");
    assert!(!answered.contains(OPERATOR_KEY), "{name}: the operator's key: {answered}");
    for request in origin.requests() {
        let arrived = shown(&request.headers, &request.body);
        let has_originals = arrived.contains(MAIL) || arrived.contains(SSN);
        let is_tagged = |tag: &str| flows.iter().any(|flow| flow.tags.iter().any(|t| t == tag));
        let is_unread = is_tagged("redact:unknown") || is_tagged("redact:unread");
        assert!(!has_originals || mode != RedactMode::Redact || is_unread, "{name}: originals left: {arrived}");
        assert!(!format!("{request:?}").contains("ifk_k"), "{name}: the virtual key left");
    }
    if mode == RedactMode::Redact {
        for flow in flows {
            let recorded = [&flow.sent, &flow.received].map(|side| String::from_utf8_lossy(side).into_owned()).concat();
            assert!(!recorded.contains(MAIL) && !recorded.contains(SSN), "{name}: originals recorded: {recorded}");
        }
    }
}

#[tokio::test]
async fn requests_answers_tags_and_usage_of_every_api_are_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/corpus");
    let is_update = std::env::var_os("UPDATE_CORPUS").is_some();
    let (mut differing, mut names) = (Vec::new(), Vec::new());
    for case in cases() {
        let name = case.name;
        names.push(name.to_owned());
        let (path, text) = (folder.join(format!("{name}.txt")), run(case).await);
        let recorded = std::fs::read_to_string(&path).unwrap_or_default();
        if is_update {
            std::fs::write(&path, &text).unwrap();
        } else if recorded != text {
            let line = recorded.lines().zip(text.lines()).find(|(a, b)| a != b);
            differing.push(format!("{name}: recorded and now: {line:#?}"));
        }
    }
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let stems = files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned());
    differing.extend(stems.filter(|stem| !names.contains(stem)).map(|stem| format!("{stem}: there is no such case")));
    assert!(differing.is_empty(), "UPDATE_CORPUS=1 writes it anew:\n{}", differing.join("\n"));
}
