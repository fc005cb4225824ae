//! Converts a HAR entry to a flow. Known errors of browsers and proxies are tolerated; what is dropped is noted.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use interflow_types::data_file;
use interflow_types::percent::{self, AsciiSet, COMPONENT, CONTROLS};
use interflow_types::{Authority, Direction, EntryKind, FlowId, FlowTimings, Headers, MessageKind, Scheme, Timestamp};
use serde_json::{Map, Value, json};

use super::parts::{HarTimings, from_iso};
use crate::import_support::shorten;
use crate::view::body_text::charset;
use crate::{FlowWithBodies, content_coding, frames, import_support};
use interflow_store::{
    BodyRecord, ErrorRecord, FlowKind, FlowRecord, FlowState, MessageRecord, MissingReason, RequestRecord,
    ResponseRecord, TunnelRecord, UpstreamRecord,
};

/// Base64 with optional padding.
pub(crate) const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Maximum size of unmapped fields kept per entry, in bytes.
const MAX_KEPT: usize = 256 * 1024;

/// The pages of an archive, by id.
pub(super) type HarPages = HashMap<String, Value>;

/// The key of an entry's page among the archive facts kept with a flow.
pub(super) const PAGE: &str = "_page";
/// The key of the negative status that tools write for a blocked request.
pub(super) const NO_RESPONSE: &str = "_noResponse";

/// The members that have a place in a flow.
const OWN_MEMBERS: &str =
    "_id _tags _transport _user _clientAddress _clientTls _error _tunnel _resourceType _webSocketMessages _noResponse";

/// A problem with a part of an entry, prefixed by its path.
pub(super) type EntryProblem = String;

/// The flow of entry `number`, with notes on dropped parts. `pages` are those of the archive.
///
/// # Errors
/// Why the entry cannot be converted.
pub(super) fn flow(
    number: u64,
    entry: &Value,
    pages: &HarPages,
    notes: &mut Vec<EntryProblem>,
) -> Result<FlowWithBodies, EntryProblem> {
    let request = entry.get("request").and_then(Value::as_object).ok_or("request: missing, or no object")?;
    let url = request.get("url").and_then(Value::as_str).ok_or("request.url: missing, or no string")?;
    let (scheme, authority, mut path) =
        parse_url(url).map_err(|why| format!("request.url: {why}: {}", shorten(url)))?;
    // The server itself, in the absolute form (RFC 9112 3.2.4).
    if text_of(request.get("method")) == "OPTIONS" && url.split("://").nth(1).is_some_and(|u| !u.contains(['/', '?'])) {
        path = "*".to_owned();
    }
    let started = match entry.get("startedDateTime").and_then(Value::as_str) {
        Some(text) => {
            from_iso(text).ok_or_else(|| format!("startedDateTime: '{}' is not an ISO 8601 time", shorten(text)))?
        }
        // Without a time it has that of its page, or none: the time of the import would give it another id each time.
        None => page_start(entry, pages).unwrap_or_default(),
    };
    let transport = transport(entry, scheme);
    let mut row = FlowRecord::new(id(number, entry, url, started), started, transport, scheme, authority);
    row.imported = true;
    row.comment = string(entry.get("comment")).filter(|c| !c.is_empty());
    row.user = string(entry.get("_user")).map(Into::into);
    row.tags = entry["_tags"].as_array().into_iter().flatten().filter_map(|t| string(Some(t))).collect();
    row.client.peer = string(entry.get("_clientAddress")).and_then(|a| a.parse().ok());
    row.timings = timings(entry);
    row.upstream = upstream(entry, &row);
    let mut whole = FlowWithBodies::new(row);
    if entry.get("_resourceType").and_then(Value::as_str) == Some("tunnel") {
        whole.row.kind = FlowKind::Tunnel;
        let count = |name| entry.get("_tunnel").and_then(|t| t.get(name)).and_then(Value::as_u64).unwrap_or(0);
        whole.row.tunnel = Some(TunnelRecord { sent: count("sent"), received: count("received") });
    } else {
        read_request(request, path, &mut whole, notes)?;
    }
    let response = entry.get("response").and_then(Value::as_object);
    if let Some(response) = response {
        read_response(response, &mut whole, notes)?;
    }
    read_messages(entry, &mut whole);
    set_outcome(entry, response, &mut whole.row);
    whole.row.archive = unmapped_members(entry, pages, notes);
    Ok(whole)
}

/// Interflow's own id; else one that is stable across imports of the same file.
fn id(number: u64, entry: &Value, url: &str, started: Timestamp) -> FlowId {
    let ours = entry.get("_id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    let json = |part: Option<&Value>| part.map(Value::to_string).unwrap_or_default();
    let (method, took) = (json(entry.pointer("/request/method")), json(entry.get("time")));
    // The number distinguishes equal requests of the same time; the file's order is stable.
    ours.unwrap_or_else(|| {
        import_support::stable_id(started, number, &[b"har", url.as_bytes(), method.as_bytes(), took.as_bytes()])
    })
}

fn page_start(entry: &Value, pages: &HarPages) -> Option<Timestamp> {
    from_iso(pages.get(entry.get("pageref")?.as_str()?)?.get("startedDateTime")?.as_str()?)
}

/// Browser-specific members without a column of their own, bounded in size.
fn unmapped_members(entry: &Value, pages: &HarPages, notes: &mut Vec<EntryProblem>) -> Option<Arc<Map<String, Value>>> {
    let web = |value: &Value| matches!(value.as_str(), Some("websocket" | "tunnel"));
    let mut members = Map::new();
    let mut size = 0;
    for (name, value) in entry.as_object()?.iter().filter(|(n, _)| n.starts_with('_')) {
        if data_file::has_word(OWN_MEMBERS, name) && (name != "_resourceType" || web(value)) {
            continue;
        }
        size += value.to_string().len();
        if size > MAX_KEPT {
            notes.push(format!("{name}: longer than {MAX_KEPT} bytes and left out"));
            break;
        }
        members.insert(name.clone(), value.clone());
    }
    if let Some(id) = string(entry.get("pageref")) {
        let page = || pages.get(&id).cloned().unwrap_or_else(|| json!({"id": id}));
        members.entry(PAGE).or_insert_with(page);
    }
    if let Some(response) = entry.get("response")
        // Negative statuses are kept as they are, so that an export writes them again.
        && let Some(status) = status_of(response).filter(|s| *s < 0.0)
    {
        let text = string(response.get("statusText")).unwrap_or_default();
        members.insert(NO_RESPONSE.to_owned(), json!({"status": status as i64, "statusText": text}));
    }
    (!members.is_empty()).then(|| Arc::new(members))
}

/// Scheme, authority and path of a URL.
pub(crate) fn parse_url(url: &str) -> Result<(Scheme, Authority, String), &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or("no http or https URL")?;
    let scheme = Scheme::parse(scheme).ok_or("no http or https URL")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // User and password in the URL are dropped: they were never part of the request.
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let authority = Authority::parse(authority, Some(scheme.default_port())).map_err(|_| "the host cannot be read")?;
    // A fragment is not sent either.
    let path = path.split_once('#').map_or(path, |(p, _)| p);
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((scheme, authority, format!("{slash}{}", percent::encoded_as(path, TARGET))))
}

fn transport(entry: &Value, scheme: Scheme) -> EntryKind {
    use EntryKind::{Absolute, Connect, Gateway, Internal, Reverse, Socks5, Transparent};
    let all = [Absolute, Connect, Socks5, Transparent, Reverse, Gateway, Internal];
    let named = entry.get("_transport").and_then(Value::as_str);
    let usual = if scheme == Scheme::Https { EntryKind::Connect } else { EntryKind::Absolute };
    all.into_iter().find(|t| Some(t.as_str()) == named).unwrap_or(usual)
}

fn timings(entry: &Value) -> FlowTimings {
    let of = |time: &Value| time.as_f64().unwrap_or(-1.0);
    let [blocked, dns, connect, send, wait, receive, ssl] =
        ["blocked", "dns", "connect", "send", "wait", "receive", "ssl"].map(|name| of(&entry["timings"][name]));
    HarTimings { blocked, dns, connect, send, wait, receive, ssl }.timings(of(&entry["time"]))
}

fn upstream(entry: &Value, row: &FlowRecord) -> Option<UpstreamRecord> {
    let address = string(entry.get("serverIPAddress"));
    let ip: Option<IpAddr> = address.and_then(|a| a.trim_matches(['[', ']']).parse().ok());
    let connection = entry.get("connection").and_then(|c| c.as_u64().or_else(|| c.as_str()?.parse().ok()));
    if ip.is_none() && connection.is_none() {
        return None;
    }
    Some(UpstreamRecord {
        peer: ip.map(|ip| SocketAddr::new(ip, row.authority.port)),
        connection: connection.unwrap_or(0),
        ..UpstreamRecord::default()
    })
}

fn read_request(
    request: &Map<String, Value>,
    path: String,
    whole: &mut FlowWithBodies,
    notes: &mut Vec<EntryProblem>,
) -> Result<(), EntryProblem> {
    let method = string(request.get("method")).filter(|m| !m.is_empty()).unwrap_or_else(|| "GET".to_owned());
    if interflow_types::Method::from_bytes(method.as_bytes()).is_err() {
        return Err(format!("request.method: '{}' is not a method", shorten(&method)));
    }
    let mut headers = headers(request.get("headers"), "request", notes);
    if let Some(post) = request.get("postData") {
        keep_content_type(&mut headers, post);
    }
    let protocol =
        headers.get_str("upgrade").filter(|u| u.eq_ignore_ascii_case("websocket")).map(str::to_ascii_lowercase);
    let text = posted_body(request, &headers, notes);
    let (body, bytes) = body(text, request.get("bodySize"), request.get("postData"), &headers);
    whole.request_body = bytes;
    whole.row.request = Some(RequestRecord {
        method,
        path,
        version: version(text_of(request.get("httpVersion"))),
        protocol,
        headers,
        trailers: self::headers(request.get("_trailers"), "request", notes),
        body,
    });
    Ok(())
}

/// The posted body: from `_content` if not text, from `text`, or from the form fields.
fn posted_body(request: &Map<String, Value>, headers: &Headers, notes: &mut Vec<EntryProblem>) -> Option<Vec<u8>> {
    if let Some(content) = request.get("_content").filter(|c| c.get("text").is_some()) {
        return content_bytes(content, headers, "request._content", notes);
    }
    let post = request.get("postData")?;
    let text = post.get("text").and_then(Value::as_str).unwrap_or_default();
    if !text.is_empty() {
        return content_bytes(post, headers, "request.postData", notes);
    }
    let params = post.get("params").and_then(Value::as_array).filter(|p| !p.is_empty())?;
    let mime = post.get("mimeType").and_then(Value::as_str).unwrap_or_default();
    if !mime.starts_with("application/x-www-form-urlencoded") {
        // A multipart form cannot be rebuilt: its boundary and the order of its headers are unknown.
        notes.push("request.postData.params: a form without its text is left out".to_owned());
        return None;
    }
    let pairs = params.iter().map(|p| {
        let of = |name| percent::encoded_as(text_of(p.get(name)), FORM).replace("%20", "+");
        format!("{}={}", of("name"), of("value"))
    });
    Some(pairs.collect::<Vec<_>>().join("&").into_bytes())
}

/// What `application/x-www-form-urlencoded` encodes; a space becomes `+`.
const FORM: &AsciiSet = &COMPONENT.remove(b'*').add(b'~');
/// What a request target does not allow.
const TARGET: &AsciiSet = &CONTROLS.add(b' ');

fn read_response(
    response: &Map<String, Value>,
    whole: &mut FlowWithBodies,
    notes: &mut Vec<EntryProblem>,
) -> Result<(), EntryProblem> {
    let status = response.get("status").and_then(number_of).unwrap_or(0.0);
    // 0 and below mean no response: the request failed or was blocked.
    if status <= 0.0 || whole.row.kind == FlowKind::Tunnel {
        return Ok(());
    }
    if !(100.0..1000.0).contains(&status) {
        return Err(format!("response.status: {status} is not a status code"));
    }
    let mut headers = headers(response.get("headers"), "response", notes);
    let empty = Value::Null;
    let content = response.get("content").unwrap_or(&empty);
    keep_content_type(&mut headers, content);
    let bytes = content_bytes(content, &headers, "response.content", notes);
    let declared_size = response.get("bodySize").filter(|s| s.as_i64().is_some_and(|n| n >= 0)).or(content.get("size"));
    // Negative sizes stand for unknown.
    let (body, bytes) = body(bytes, declared_size, Some(content), &headers);
    whole.response_body = bytes;
    whole.row.response = Some(ResponseRecord {
        status: status as u16,
        reason: string(response.get("statusText")).unwrap_or_default().replace(char::is_control, " ").into(),
        version: version(text_of(response.get("httpVersion"))),
        headers,
        trailers: self::headers(response.get("_trailers"), "response", notes),
        body,
    });
    Ok(())
}

/// Archives without header fields still give a body's type, which becomes a `Content-Type` field.
fn keep_content_type(headers: &mut Headers, content: &Value) {
    let named = content.get("mimeType").and_then(Value::as_str).unwrap_or_default().trim();
    let plain =
        !named.is_empty() && named.len() < 1024 && !named.eq_ignore_ascii_case("x-unknown") && named.contains('/');
    if plain && !headers.contains("content-type") {
        let _ = headers.append("Content-Type", named);
    }
}

fn status_of(response: &Value) -> Option<f64> {
    response.get("status").and_then(number_of)
}

/// A number, or a string containing one.
fn number_of(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// The bytes of `text`, decoded according to `encoding`, in the charset named by the head.
fn content_bytes(content: &Value, headers: &Headers, path: &str, notes: &mut Vec<EntryProblem>) -> Option<Vec<u8>> {
    let text = content.get("text").and_then(Value::as_str)?;
    let encoding = content.get("encoding").or(content.get("_encoding")).and_then(Value::as_str).unwrap_or_default();
    if !encoding.eq_ignore_ascii_case("base64") {
        return Some(in_charset(text, headers));
    }
    let packed: String = text.split_ascii_whitespace().collect();
    let decoded = LENIENT_BASE64.decode(packed);
    if decoded.is_err() {
        notes.push(format!("{path}.text: no base64; the body is left out"));
    }
    decoded.ok()
}

/// Browsers convert Latin-1 to Unicode; reverts that if the head declares Latin-1.
fn in_charset(text: &str, headers: &Headers) -> Vec<u8> {
    let named = headers.get_str("content-type").and_then(charset);
    let latin = named.is_some_and(|c| matches!(c.as_str(), "iso-8859-1" | "latin1" | "windows-1252" | "us-ascii"));
    let single = |c: char| c.is_ascii() || ('\u{a0}'..='\u{ff}').contains(&c);
    // Windows-1252 has other characters between 0x80 and 0x9f; text with them is kept as UTF-8.
    if latin && text.chars().all(single) { text.chars().map(|c| c as u8).collect() } else { text.as_bytes().to_vec() }
}

/// A body re-encoded with the content coding of its head, and its row. `content` says what Interflow did not keep of it.
fn body(
    plain: Option<Vec<u8>>,
    declared_size: Option<&Value>,
    content: Option<&Value>,
    headers: &Headers,
) -> (BodyRecord, Bytes) {
    let size = declared_size.and_then(Value::as_f64).filter(|n| *n > 0.0).unwrap_or(0.0) as u64;
    let noted = |name| content.and_then(|c| c.get(name)).cloned().unwrap_or_default();
    let missing: Option<MissingReason> = serde_json::from_value(noted("_missing")).ok();
    match plain {
        // The beginning of a compressed body cannot be decoded, and is in the archive as it is.
        Some(head) if missing.is_some() && (head.len() as u64) < size => {
            let head_sha256 = serde_json::from_value(noted("_headSha256")).ok();
            (BodyRecord { size, kept: head.len() as u64, missing, head_sha256 }, head.into())
        }
        Some(plain) => {
            let bytes = Bytes::from(content_coding::encode(headers, plain));
            let size = bytes.len() as u64;
            (BodyRecord::whole(size), bytes)
        }
        // The size may be known although the content is not in the archive.
        None => {
            let missing = missing.or(Some(MissingReason::Capped)).filter(|_| size > 0);
            (BodyRecord::partial(size, 0, missing), Bytes::new())
        }
    }
}

/// Header fields. HTTP/2 pseudo-header fields, which Chromium includes, are skipped; a multi-line value stands for
/// several fields.
fn headers(list: Option<&Value>, side: &str, notes: &mut Vec<EntryProblem>) -> Headers {
    let mut headers = Headers::new();
    if list.is_some_and(|l| !l.is_array() && !l.is_null()) {
        notes.push(format!("{side}.headers: not a list of name and value, and left out"));
    }
    for field in list.and_then(Value::as_array).into_iter().flatten() {
        let name = field.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.starts_with(':') {
            continue;
        }
        if matches!(field.get("value"), Some(Value::Object(_) | Value::Array(_))) {
            notes.push(format!("{side}.headers: the value of '{}' is not a text and is left out", shorten(name)));
            continue;
        }
        let value = string(field.get("value")).unwrap_or_default();
        let mut lines = value.split('\n').map(|l| l.trim_matches(['\r', ' ', '\t']));
        if lines.any(|line| headers.append(name, line).is_err()) {
            notes.push(format!("{side}.headers: '{}' is not a valid header field and is left out", shorten(name)));
        }
    }
    headers
}

/// Normalizes protocol versions, which tools spell differently.
pub(crate) fn version(text: &str) -> Cow<'static, str> {
    match text.to_ascii_lowercase().as_str() {
        "http/1.0" => "HTTP/1.0".into(),
        "" | "unknown" | "http/1.1" | "http/1" => "HTTP/1.1".into(),
        "http/2" | "http/2.0" | "h2" => "HTTP/2".into(),
        "http/3" | "http/3.0" | "h3" => "HTTP/3".into(),
        _ => Cow::Owned(text.chars().filter(|c| !c.is_control()).take(32).collect()),
    }
}

fn read_messages(entry: &Value, whole: &mut FlowWithBodies) {
    let list = entry.get("_webSocketMessages").and_then(Value::as_array);
    let row = &mut whole.row;
    let web_socket = list.is_some() || entry.get("_resourceType").and_then(Value::as_str) == Some("websocket");
    if !web_socket || row.kind == FlowKind::Tunnel {
        return;
    }
    row.kind = FlowKind::WebSocket;
    let messages = list.into_iter().flatten().enumerate().filter_map(|(i, m)| message(i, m, row.started));
    whole.messages = messages.collect();
    row.messages = whole.messages.len() as u64;
}

fn message(index: usize, message: &Value, started: Timestamp) -> Option<MessageRecord> {
    let data = message.get("data")?.as_str()?;
    let opcode = message.get("opcode").and_then(Value::as_u64).unwrap_or(1);
    let kind = frames::kind(u8::try_from(opcode).ok()?)?;
    let payload = match kind {
        // Chromium writes the payloads of all other kinds as Base64.
        MessageKind::Text => data.as_bytes().to_vec(),
        _ => LENIENT_BASE64.decode(data).unwrap_or_else(|_| data.as_bytes().to_vec()),
    };
    let sent = message.get("type").and_then(Value::as_str) == Some("send");
    let at = message.get("time").and_then(Value::as_f64).filter(|t| *t > 0.0);
    Some(MessageRecord {
        index: index as u64,
        direction: if sent { Direction::Request } else { Direction::Response },
        kind,
        // Seconds since the Unix epoch, with fractions.
        at: at.map_or(started, |t| Timestamp::from_micros((t * 1e6).round() as u64)),
        size: payload.len() as u64,
        payload: payload.into(),
    })
}

fn set_outcome(entry: &Value, response: Option<&Map<String, Value>>, row: &mut FlowRecord) {
    let error = entry.get("_error").or_else(|| response?.get("_error"));
    // These are written by Interflow's own export for flows that had not ended.
    let unfinished = |text: &str| text.starts_with("open: ") || text.starts_with("cut: ");
    let cut = error.and_then(Value::as_str).is_some_and(unfinished);
    row.error = if cut { None } else { error.and_then(error_row) };
    row.state = match &row.error {
        Some(_) => FlowState::Failed,
        None if cut || (row.response.is_none() && row.kind != FlowKind::Tunnel) => FlowState::Cut,
        None => FlowState::Complete,
    };
    if row.response.is_none() {
        // The phases of an archive say nothing about a response that never came.
        row.timings = FlowTimings { first_byte: None, last_byte: None, ..row.timings };
    }
}

/// Interflow writes an object with the kind, Chromium a string.
fn error_row(told: &Value) -> Option<ErrorRecord> {
    if let Some(error) = told.as_object() {
        let of = |name, usual: &str| string(error.get(name)).unwrap_or_else(|| usual.to_owned());
        let (kind, blame) = (of("kind", "imported").into(), of("blame", "upstream").into());
        return Some(ErrorRecord { kind, blame, message: of("message", "") });
    }
    let text = told.as_str().filter(|t| !t.is_empty())?;
    let named = text.split_once(": ").filter(|(k, _)| k.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    let (kind, message) = named.unwrap_or(("imported", text));
    Some(ErrorRecord { kind: kind.to_owned().into(), blame: "upstream".into(), message: message.to_owned() })
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// A string, or a number as string; without NUL characters, which the store rejects.
fn string(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.replace('\0', "\u{fffd}")),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}
