//! Writes HAR 1.2, entry by entry; bodies are copied in pieces.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use interflow_types::{Direction, Headers};
use serde_json::{Map, Value, json};

use super::body::{HarBody, content_type};
use super::entry::{NO_RESPONSE, PAGE};
use super::parts::{self, HarTimings, fields};
use crate::{BodySource, FlowExporter, frames};
use interflow_store::{BodyRecord, FlowKind, FlowRecord, FlowState, MessageRecord, RequestRecord, ResponseRecord};

/// Posted forms above this size, in bytes, are not parsed.
const MAX_FORM: u64 = 1 << 20;

pub struct HarWriter<W: Write> {
    out: W,
    entries: u64,
    ended: bool,
    /// The pages of the entries so far, with their original ids.
    pages: Vec<(Value, String)>,
}

impl<W: Write> HarWriter<W> {
    /// Begins the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        let creator = json!({"name": "Interflow", "version": env!("CARGO_PKG_VERSION")});
        write!(out, "{{\"log\":{{\"version\":\"1.2\",\"creator\":{creator},\"entries\":[")?;
        Ok(Self { out, entries: 0, ended: false, pages: Vec::new() })
    }

    /// The id of the page that an imported entry belongs to. Pages of several archives may share an id: the later one
    /// is renamed.
    fn page(&mut self, row: &FlowRecord) -> Option<String> {
        let mut page = row.archive.as_ref()?.get(PAGE)?.as_object()?.clone();
        let id = page.get("id")?.as_str()?.to_owned();
        // The mandatory members, if only the id is known.
        let usual =
            [("startedDateTime", parts::iso(row.started).into()), ("title", "".into()), ("pageTimings", json!({}))];
        let complete = page.contains_key("startedDateTime");
        for (name, value) in usual {
            page.entry(name).or_insert(value);
        }
        let identity = |page: &Map<String, Value>| ["startedDateTime", "title"].map(|name| page.get(name).cloned());
        let same =
            |known: &Value| !complete || known.as_object().is_some_and(|known| identity(known) == identity(&page));
        // Members that are only known by id match any page of that id.
        if let Some((known, _)) = self.pages.iter().find(|(known, had)| *had == id && same(known)) {
            return known.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        let is_taken =
            |id: &str| self.pages.iter().any(|(known, _)| known.get("id").and_then(Value::as_str) == Some(id));
        let renamed = (2..).map(|n| format!("{id}-{n}"));
        let written = std::iter::once(id.clone()).chain(renamed).find(|id| !is_taken(id))?;
        // The page keeps its original id for the comparison, and the one it is written with as a member.
        page.insert("id".into(), written.clone().into());
        self.pages.push((Value::Object(page), id));
        Some(written)
    }
}

impl<W: Write> FlowExporter for HarWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        self.out.write_all(if self.entries == 0 { b"\n" } else { b",\n" })?;
        self.entries += 1;
        let page = self.page(row);
        entry(&mut self.out, row, page, contents)
    }

    fn finish(&mut self) -> io::Result<()> {
        // A second call must not write the end twice.
        if !self.ended {
            self.ended = true;
            self.out.write_all(b"\n]")?;
            if !self.pages.is_empty() {
                // Pages are written last, because they are known only when all entries were written.
                let pages: Vec<&Value> = self.pages.iter().map(|(page, _)| page).collect();
                write!(self.out, ",\"pages\":{}", json!(pages))?;
            }
            self.out.write_all(b"}}\n")?;
        }
        self.out.flush()
    }
}

fn entry(out: &mut dyn Write, row: &FlowRecord, page: Option<String>, contents: &dyn BodySource) -> io::Result<()> {
    let timings = HarTimings::from_timings(&row.timings);
    let mut entry = json!({});
    put(&mut entry, "pageref", page);
    entry["startedDateTime"] = parts::iso(row.started).into();
    entry["time"] = timings.sum().into();
    // Everything before the bodies is small and built in memory; bodies are copied between.
    open(out, &entry)?;
    out.write_all(b",\"request\":")?;
    request(out, row, contents)?;
    out.write_all(b",\"response\":")?;
    response(out, row, contents)?;
    let mut rest = json!({"cache": {}, "timings": timings});
    let peer = row.upstream.as_ref().and_then(|u| u.peer);
    put(&mut rest, "serverIPAddress", peer.map(|p| p.ip().to_canonical().to_string()));
    put(&mut rest, "connection", row.upstream.as_ref().map(|u| u.connection.to_string()));
    put(&mut rest, "comment", row.comment.as_deref());
    extras(row, &mut rest);
    out.write_all(b",")?;
    members(out, &rest)?;
    if row.kind == FlowKind::WebSocket {
        out.write_all(b",\"_webSocketMessages\":")?;
        messages(out, row, contents)?;
    }
    out.write_all(b"}")
}

/// Facts without a place in HAR.
fn extras(row: &FlowRecord, entry: &mut Value) {
    // Members that an import kept come first, so that Interflow's own win.
    for (name, value) in row.archive.iter().flat_map(|a| a.iter()).filter(|(name, _)| *name != NO_RESPONSE) {
        entry[name] = value.clone();
    }
    entry["_id"] = row.id.to_string().into();
    let kind = match row.kind {
        FlowKind::WebSocket => Some("websocket"),
        FlowKind::Tunnel => Some("tunnel"),
        FlowKind::Http => None,
    };
    put(entry, "_resourceType", kind);
    put(entry, "_tags", (!row.tags.is_empty()).then(|| json!(row.tags)));
    put(entry, "_transport", Some(row.transport.as_str()));
    put(entry, "_user", row.user.as_deref());
    put(entry, "_clientAddress", row.client.peer.map(|peer| peer.to_string()));
    let error = row.error.as_ref();
    put(entry, "_error", error.map(|e| json!({"kind": e.kind, "blame": e.blame, "message": e.message})));
    put(entry, "_tunnel", row.tunnel.map(|t| json!({"sent": t.sent, "received": t.received})));
    let tls = row.client.tls.as_ref();
    put(entry, "_clientTls", tls.map(|t| json!({"version": t.version, "ja3": t.ja3, "ja4": t.ja4, "sni": t.sni})));
}

/// Sets a member that has a value.
fn put(object: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

fn request(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    // A tunnel has no request; its CONNECT stands for one.
    let Some(request) = &row.request else {
        // -1 means unknown in HAR.
        let connect = json!({
            "method": "CONNECT", "url": format!("https://{}", row.authority), "httpVersion": "HTTP/1.1",
            "cookies": [], "headers": [], "queryString": [], "headersSize": -1, "bodySize": -1,
        });
        return write!(out, "{connect}");
    };
    // Two spaces and the line end.
    let line = request.method.len() + request.path.len() + request.version.len() + 4;
    let mut head = json!({
        "method": request.method, "url": row.url(), "httpVersion": request.version,
        "cookies": parts::request_cookies(&request.headers), "headers": fields(&request.headers),
        "queryString": parts::query(&request.path),
        "headersSize": head_size(&request.version, line, &request.headers), "bodySize": request.body.size,
    });
    trailers(&request.trailers, &mut head);
    open(out, &head)?;
    if request.body.size > 0 {
        post_data(out, row, request, contents)?;
    }
    out.write_all(b"}")
}

fn post_data(
    out: &mut dyn Write,
    row: &FlowRecord,
    request: &RequestRecord,
    contents: &dyn BodySource,
) -> io::Result<()> {
    let mime = content_type(&request.headers);
    let body = HarBody { row, contents, direction: Direction::Request, headers: &request.headers };
    let probe = body.probe()?;
    let form = probe.plain_size <= MAX_FORM && mime.contains("form");
    let params = if form { parts::params(&mime, &body.bytes(&probe)?) } else { Vec::new() };
    let mut post = json!({"mimeType": mime, "params": params});
    note_missing(&request.body, &mut post);
    out.write_all(b",\"postData\":")?;
    open(out, &post)?;
    if probe.is_text {
        out.write_all(b",\"text\":")?;
        body.write(out, &probe)?;
        return out.write_all(b"}");
    }
    // The format has no encoding for posted data; readers that do not know `_content` find an empty text.
    write!(out, ",\"text\":\"\"}},\"_content\":{{\"size\":{},\"encoding\":\"base64\",\"text\":", probe.plain_size)?;
    body.write(out, &probe)?;
    out.write_all(b"}")
}

fn response(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    let Some(response) = &row.response else { return no_response(out, row) };
    let location = response.headers.get("location").map(parts::text).unwrap_or_default();
    // Two spaces, three digits of the status, and the line end.
    let line = response.version.len() + response.reason.len() + 7;
    let mut head = json!({
        "status": response.status, "statusText": parts::text(&response.reason), "httpVersion": response.version,
        "cookies": parts::response_cookies(&response.headers), "headers": fields(&response.headers),
        "redirectURL": location,
        "headersSize": head_size(&response.version, line, &response.headers), "bodySize": response.body.size,
    });
    trailers(&response.trailers, &mut head);
    put(&mut head, "_error", row.error.as_ref().map(|e| format!("{}: {}", e.kind, e.message)));
    open(out, &head)?;
    out.write_all(b",\"content\":")?;
    content(out, row, response, contents)?;
    out.write_all(b"}")
}

/// A flow that ended without a response has one with status 0, as browsers write it.
fn no_response(out: &mut dyn Write, row: &FlowRecord) -> io::Result<()> {
    let tunnelled = row.kind == FlowKind::Tunnel && row.error.is_none();
    let no_response = row.archive.as_ref().and_then(|a| a.get(NO_RESPONSE));
    let status = no_response.and_then(|t| t.get("status")).and_then(Value::as_i64).filter(|s| *s < 0).unwrap_or(0);
    let text = no_response.and_then(|t| t.get("statusText")).and_then(Value::as_str).unwrap_or_default();
    // A tunnel without an error was established, which a reader expects as status 200.
    let mut head = json!({
        "status": if tunnelled { 200 } else { status }, "statusText": text,
        "httpVersion": if tunnelled { "HTTP/1.1" } else { "" }, "cookies": [], "headers": [], "redirectURL": "",
        "headersSize": -1, "bodySize": -1, "content": {"size": 0, "mimeType": "x-unknown"},
    });
    let error = match (&row.error, row.state) {
        (Some(error), _) => Some(format!("{}: {}", error.kind, error.message)),
        (None, FlowState::Cut) => Some("cut: the recording ended before the flow did".to_owned()),
        (None, FlowState::Open) => Some("open: the flow is still going on".to_owned()),
        _ => None,
    };
    if let Some(error) = error {
        head["_error"] = error.into();
    }
    write!(out, "{head}")
}

fn content(
    out: &mut dyn Write,
    row: &FlowRecord,
    response: &ResponseRecord,
    contents: &dyn BodySource,
) -> io::Result<()> {
    let body = HarBody { row, contents, direction: Direction::Response, headers: &response.headers };
    let probe = body.probe()?;
    let mut content = json!({"size": probe.plain_size});
    if probe.decoded {
        // Negative if the coding made the body larger.
        content["compression"] = (probe.plain_size as i64 - response.body.size as i64).into();
    }
    let mime = content_type(&response.headers);
    content["mimeType"] = if mime.is_empty() { "x-unknown".into() } else { mime.into() };
    note_missing(&response.body, &mut content);
    open(out, &content)?;
    if probe.plain_size > 0 {
        if !probe.is_text {
            out.write_all(b",\"encoding\":\"base64\"")?;
        }
        out.write_all(b",\"text\":")?;
        body.write(out, &probe)?;
    }
    out.write_all(b"}")
}

fn messages(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    out.write_all(b"[")?;
    let mut first = true;
    for message in contents.messages(row)? {
        let message = message?;
        let Some(opcode) = frames::opcode(message.kind) else { continue };
        if !std::mem::take(&mut first) {
            out.write_all(b",")?;
        }
        write!(out, "{}", web_socket_message(&message, opcode))?;
    }
    out.write_all(b"]")
}

fn web_socket_message(message: &MessageRecord, opcode: u8) -> Value {
    use base64::Engine as _;
    let data = match std::str::from_utf8(&message.payload) {
        Ok(text) if opcode == 1 => text.to_owned(),
        _ => STANDARD.encode(&message.payload),
    };
    json!({
        "type": if message.direction == Direction::Request { "send" } else { "receive" },
        "time": message.at.micros() as f64 / 1e6,
        "opcode": opcode,
        "data": data,
    })
}

/// Explains in a comment why a body is incomplete.
fn note_missing(body: &BodyRecord, object: &mut Value) {
    let why = body.missing_explanation();
    put(object, "comment", why.map(|why| format!("{} of {} bytes were kept ({why})", body.kept, body.size)));
    put(object, "_missing", body.missing.map(|m| m.as_str()));
    put(object, "_headSha256", body.head_sha256.map(|digest| digest.to_string()));
}

fn trailers(trailers: &Headers, head: &mut Value) {
    put(head, "_trailers", (!trailers.is_empty()).then(|| json!(fields(trailers))));
}

/// Size of the head including the empty line; -1 for HTTP/2, where it was compressed.
fn head_size(version: &str, line: usize, headers: &Headers) -> i64 {
    if version.starts_with("HTTP/1.") { (line + headers.size() + headers.len() * 4 + 2) as i64 } else { -1 }
}

/// Writes an object without its closing brace.
fn open(out: &mut dyn Write, object: &Value) -> io::Result<()> {
    out.write_all(b"{")?;
    members(out, object)
}

fn members(out: &mut dyn Write, object: &Value) -> io::Result<()> {
    for (i, (name, value)) in object.as_object().into_iter().flatten().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(out, "{comma}{}:{value}", Value::from(name.as_str()))?;
    }
    Ok(())
}
