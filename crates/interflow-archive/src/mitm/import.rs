//! Reads flows of all format versions. Names changed over time; each fact is looked up under all of them.

use std::io::{self, BufRead};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use interflow_types::{
    Authority, Direction, EntryKind, FlowId, FlowTimings, Headers, Host, MessageKind, Scheme, Timestamp,
};

use super::tnetstring::{self, TnetValue};
use super::{VERSION, extra_fields};
use crate::import_support::{self, ImportSink, clean_text, shorten};
use crate::{FlowSink, FlowWithBodies, ImportReport, Result};
use interflow_store::{
    ClientTlsRecord, ErrorRecord, FlowKind, FlowRecord, MessageRecord, MissingReason, TunnelRecord, UpstreamRecord,
    UpstreamTlsRecord,
};

/// Imports the flows of a file.
///
/// # Errors
/// A truncated or invalid file, after its complete flows.
pub(crate) fn import(mut file: impl BufRead, sink: FlowSink<'_>) -> Result<ImportReport> {
    let mut intake = ImportSink::new(sink);
    let mut handshakes = PendingHandshakes::default();
    let mut at: u64 = 0;
    for number in 1u64.. {
        let location = format!("flow {number}");
        let whole = match tnetstring::read_value(&mut file) {
            Ok(Some(whole)) => whole,
            Ok(None) => break,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(intake.malformed(format!("{location}, byte {at}"), "the file breaks off inside of it"));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(intake.malformed(format!("{location}, byte {at}"), format!("not a flow of mitmproxy: {e}")));
            }
            Err(e) => return Err(intake.failed(e)),
        };
        let mut notes = Vec::new();
        let flow = tnetstring::parse(&whole).and_then(|state| handshakes.join(&state, flow(&state, &mut notes)?));
        if let Some(flow) = flow.transpose() {
            intake.push(&location, flow, notes)?;
        }
        // The length's digits and the colon belong to the position in the file.
        at += whole.len() as u64 + (whole.len() as u64 - 1).to_string().len() as u64 + 1;
    }
    // Handshakes whose messages never came are still requests.
    for (id, flow) in handshakes.waiting {
        intake.push(&format!("flow {id}"), Ok(flow), Vec::new())?;
    }
    Ok(intake.report)
}

/// WebSocket handshakes whose messages are in a separate flow, as in format versions up to 11.
#[derive(Default)]
struct PendingHandshakes {
    waiting: Vec<(String, FlowWithBodies)>,
}

impl PendingHandshakes {
    /// Maximum number of handshakes waiting for their messages.
    const MAX_PENDING: usize = 1000;

    /// Passes a flow on; one that only opens a WebSocket is held until its messages arrive, and merged with them.
    fn join(&mut self, state: &TnetValue<'_>, mut flow: FlowWithBodies) -> Result<Option<FlowWithBodies>, String> {
        let metadata = |name: &str| state.get("metadata").and_then(|m| m.get(name));
        if state.get("type").and_then(TnetValue::text).as_deref() == Some("websocket") {
            let handshake = metadata("websocket_handshake").and_then(TnetValue::text).unwrap_or_default();
            if let Some(at) = self.waiting.iter().position(|(id, _)| *id == handshake) {
                let (_, mut whole) = self.waiting.remove(at);
                whole.row.kind = FlowKind::WebSocket;
                whole.row.messages = flow.messages.len() as u64;
                whole.row.error = whole.row.error.or(flow.row.error);
                whole.messages = std::mem::take(&mut flow.messages);
                return Ok(Some(whole));
            }
            // The handshake is not in the file.
            return Ok(Some(flow));
        }
        // Newer versions keep the messages with the request.
        if metadata("websocket").is_some() && state.get("websocket").is_none() && self.waiting.len() < Self::MAX_PENDING
        {
            self.waiting.push((state.get("id").and_then(TnetValue::text).unwrap_or_default(), flow));
            return Ok(None);
        }
        Ok(Some(flow))
    }
}

fn flow(state: &TnetValue<'_>, notes: &mut Vec<String>) -> Result<FlowWithBodies, String> {
    check_version(state.get("version"))?;
    let kind = state.get("type").and_then(TnetValue::text).unwrap_or_else(|| "http".to_owned());
    let mut flow = match kind.as_str() {
        "http" => http(state, notes)?,
        "tcp" => tcp(state)?,
        "websocket" => old_web_socket(state)?,
        other => return Err(format!("a flow of type '{}' has no place here", shorten(other))),
    };
    let row = &mut flow.row;
    row.comment = state.get("comment").and_then(TnetValue::text).filter(|c| !c.is_empty());
    row.tags = tags(state);
    row.user = state.get("metadata").and_then(|m| m.get("user")).and_then(TnetValue::text).map(Into::into);
    row.error = state
        .get("error")
        .and_then(|e| e.get("msg"))
        .and_then(TnetValue::text)
        // Written by Interflow's own export for a flow that was cut off.
        .filter(|m| !m.starts_with("cut: "))
        .map(|m| {
            let named = m.split_once(": ").filter(|(k, _)| k.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            let (kind, message) = named.unwrap_or(("imported", &m));
            ErrorRecord { kind: kind.to_owned().into(), blame: "upstream".into(), message: message.to_owned() }
        });
    extra_fields::save_extras(state, row, notes);
    import_support::set_complete(&mut flow);
    Ok(flow)
}

/// Numbers since version 4; before that the release as a list.
fn check_version(version: Option<&TnetValue<'_>>) -> Result<(), String> {
    match version {
        Some(TnetValue::Int(n)) if *n > VERSION => {
            Err(format!("version {n} of the format is newer than {VERSION}, the last that is known: update Interflow"))
        }
        Some(TnetValue::Int(_) | TnetValue::List(_)) => Ok(()),
        _ => Err("no flow of mitmproxy: the version is missing".to_owned()),
    }
}

fn tags(state: &TnetValue<'_>) -> Vec<String> {
    let ours = state.get("metadata").into_iter().flat_map(|m| m.items("tags"));
    let mut tags: Vec<String> = ours.filter_map(TnetValue::text).collect();
    match state.get("marked") {
        // In older versions a mark was a flag.
        Some(TnetValue::Bool(true)) => tags.push("starred".to_owned()),
        // Interflow's own tags take precedence over the mark that it derived from them.
        Some(TnetValue::Bytes(mark)) if !mark.is_empty() && tags.is_empty() => {
            let mark = clean_text(String::from_utf8_lossy(mark).trim_matches(':'));
            tags.push(if mark == "default" { "starred".to_owned() } else { mark });
        }
        _ => {}
    }
    tags
}

/// A new row with the fields common to both kinds of flows.
fn row(state: &TnetValue<'_>, started: Timestamp, scheme: Scheme, authority: Authority) -> FlowRecord {
    let (client, server) = (state.get("client_conn"), state.get("server_conn"));
    let mode = client.and_then(|c| c.get("proxy_mode")).and_then(TnetValue::text).unwrap_or_default();
    let transport = match (mode.as_str(), scheme) {
        ("socks5", _) => EntryKind::Socks5,
        (m, _) if m.starts_with("reverse") => EntryKind::Gateway,
        (_, Scheme::Https) => EntryKind::Connect,
        (_, Scheme::Http) => EntryKind::Absolute,
    };
    let mut row = FlowRecord::new(id(state, started), started, transport, scheme, authority);
    row.client.peer = client.and_then(|c| c.any(&["peername", "address"])).and_then(socket);
    row.client.local = client.and_then(|c| c.get("sockname")).and_then(socket);
    let time = |conn: Option<&TnetValue<'_>>, names: &[&str]| conn?.any(names)?.micros();
    row.client.accepted = Timestamp::from_micros(time(client, &["timestamp_start"]).unwrap_or(0));
    row.client.tls = client.filter(|client| is_secured(client)).map(client_tls);
    let peer = server.and_then(|s| s.any(&["peername", "ip_address", "peer_address"])).and_then(socket);
    row.upstream = server.filter(|_| peer.is_some()).map(|server| UpstreamRecord {
        peer,
        local: server.any(&["sockname", "source_address"]).and_then(socket),
        version: "HTTP/1.1".into(),
        tls: is_secured(server).then(|| upstream_tls(server)),
        ..UpstreamRecord::default()
    });
    let begun = time(server, &["timestamp_start"]);
    let tcp = time(server, &["timestamp_tcp_setup"]);
    let secured = time(server, &["timestamp_tls_setup", "timestamp_ssl_setup"]);
    // A connection that existed before the request has no part in its timing.
    if begun.is_some_and(|b| b >= started.micros()) {
        row.timings.connect = tcp.zip(begun).map(|(t, b)| t.saturating_sub(b));
        row.timings.tls = secured.zip(tcp).map(|(s, t)| s.saturating_sub(t));
    }
    row
}

/// Interflow's own id, if the UUID is one: its first part is the time of the flow.
fn id(state: &TnetValue<'_>, started: Timestamp) -> FlowId {
    let text = state.get("id").and_then(TnetValue::text).unwrap_or_default();
    let ours = u128::from_str_radix(&text.replace('-', ""), 16).ok().map(FlowId::from_u128);
    let ours = ours.filter(|id| id.unix_millis() == started.micros() / 1000);
    ours.unwrap_or_else(|| import_support::stable_id(started, 0, &[b"mitmproxy", text.as_bytes()]))
}

/// Whether a connection uses TLS.
fn is_secured(conn: &TnetValue<'_>) -> bool {
    conn.any(&["tls", "tls_established", "ssl_established"]).is_some_and(TnetValue::is_true)
}

fn client_tls(conn: &TnetValue<'_>) -> ClientTlsRecord {
    let text = |names: &[&str]| conn.any(names).and_then(TnetValue::text);
    ClientTlsRecord {
        sni: text(&["sni"]),
        version: text(&["tls_version"]).map(Into::into),
        cipher: text(&["cipher", "cipher_name"]),
        alpn_offered: conn.items("alpn_offers").filter_map(TnetValue::text).collect(),
        alpn: text(&["alpn", "alpn_proto_negotiated"]),
        ..ClientTlsRecord::default()
    }
}

fn upstream_tls(conn: &TnetValue<'_>) -> UpstreamTlsRecord {
    let text = |names: &[&str]| conn.any(names).and_then(TnetValue::text);
    UpstreamTlsRecord {
        version: text(&["tls_version"]).map(Into::into),
        cipher: text(&["cipher", "cipher_name"]),
        alpn: text(&["alpn", "alpn_proto_negotiated"]),
        ..UpstreamTlsRecord::default()
    }
}

/// `[host, port, …]`; in a dictionary until version 1.
fn socket(value: &TnetValue<'_>) -> Option<SocketAddr> {
    let list = value.get("address").unwrap_or(value).list();
    let ip: IpAddr = list.first()?.text()?.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), list.get(1)?.short()?))
}

fn http(state: &TnetValue<'_>, notes: &mut Vec<String>) -> Result<FlowWithBodies, String> {
    let request = state.get("request").ok_or("the request is missing")?;
    let text = |name: &str| request.get(name).and_then(TnetValue::text).unwrap_or_default();
    let (scheme, authority, path) = target(request, &text)?;
    let time = |message: &TnetValue<'_>, name: &str| message.get(name).and_then(TnetValue::micros);
    let started = time(request, "timestamp_start").or_else(|| state.get("timestamp_created")?.micros()).unwrap_or(0);
    let mut flow = FlowWithBodies::new(row(state, Timestamp::from_micros(started), scheme, authority));
    let since = |at: Option<u64>| at.map(|at| at.saturating_sub(started));
    let headers = headers(request.get("headers"), notes);
    let body = content(request);
    let mut made = import_support::request(&text("method"), &path, &version(request), headers, body);
    made.trailers = self::headers(request.get("trailers"), notes);
    made.body = body_row(state, "request_size", body);
    flow.row.request = Some(made);
    flow.request_body = Bytes::copy_from_slice(body);
    let sent = since(time(request, "timestamp_end"));
    flow.row.timings =
        FlowTimings { request_head: Some(0), request_body: sent, request_sent: sent, ..flow.row.timings };
    let mut last = sent;
    if let Some(response) = state.get("response") {
        let status = response.any(&["status_code", "code"]).and_then(TnetValue::short);
        let reason = response.any(&["reason", "msg"]).and_then(TnetValue::bytes).unwrap_or_default();
        let (fields, body) = (self::headers(response.get("headers"), notes), content(response));
        let status = status.ok_or("the response has no status")?;
        let mut made = import_support::response(status, reason, &version(response), fields, body);
        made.trailers = self::headers(response.get("trailers"), notes);
        made.body = body_row(state, "response_size", body);
        flow.row.response = Some(made);
        flow.response_body = Bytes::copy_from_slice(body);
        flow.row.timings.first_byte = since(time(response, "timestamp_start"));
        last = since(time(response, "timestamp_end"));
        flow.row.timings.last_byte = last;
    }
    flow.row.timings.done = since(state.get("error").and_then(|e| time(e, "timestamp"))).or(last);
    // mitmproxy does not record the version towards the server.
    if let Some(version) = flow.row.response.as_ref().map(|r| r.version.clone())
        && let Some(upstream) = &mut flow.row.upstream
    {
        upstream.version = version;
    }
    web_socket(state, &mut flow);
    Ok(flow)
}

/// Scheme, authority and path. A CONNECT that mitmproxy stored as a request is skipped.
fn target(request: &TnetValue<'_>, text: &dyn Fn(&str) -> String) -> Result<(Scheme, Authority, String), String> {
    let host = text("host");
    let port = request.get("port").and_then(TnetValue::short).filter(|p| *p > 0);
    let scheme = Scheme::parse(&text("scheme")).unwrap_or(if port == Some(443) { Scheme::Https } else { Scheme::Http });
    if text("method") == "CONNECT" {
        return Err("a CONNECT request, which is kept with the flows inside of it, is left out".to_owned());
    }
    let plain = host.trim_matches(['[', ']']);
    let parsed = plain.parse::<IpAddr>().map(Host::Ip).or_else(|_| Host::parse(plain));
    let parsed = parsed.map_err(|e| format!("the host '{}': {e}", shorten(&host)))?;
    Ok((scheme, Authority::new(parsed, port.unwrap_or(scheme.default_port())), text("path")))
}

/// `HTTP/1.1`; two numbers until release 0.13.
fn version(message: &TnetValue<'_>) -> String {
    if let Some(text) = message.get("http_version").and_then(TnetValue::text) {
        return text;
    }
    let numbers: Vec<String> = message.items("httpversion").filter_map(TnetValue::int).map(|n| n.to_string()).collect();
    format!("HTTP/{}", numbers.join("."))
}

fn content<'a>(message: &TnetValue<'a>) -> &'a [u8] {
    message.any(&["content", "body"]).and_then(TnetValue::bytes).unwrap_or_default()
}

/// A body whose original size was noted on export is incomplete.
fn body_row(state: &TnetValue<'_>, name: &str, body: &[u8]) -> interflow_store::BodyRecord {
    let recorded_size = state.get("metadata").and_then(|m| m.get(name)).and_then(TnetValue::int);
    let mut row = import_support::whole_body_row(body);
    if let Some(size) = recorded_size.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > row.kept) {
        row.size = size;
        row.missing = Some(MissingReason::Capped);
    }
    row
}

fn headers(list: Option<&TnetValue<'_>>, notes: &mut Vec<String>) -> Headers {
    let mut headers = Headers::new();
    for pair in list.map(TnetValue::list).unwrap_or_default() {
        if let [name, value] = pair.list() {
            let [name, value] = [name, value].map(|part| part.bytes().unwrap_or_default());
            import_support::field(&mut headers, name, value, notes);
        }
    }
    headers
}

fn web_socket(state: &TnetValue<'_>, flow: &mut FlowWithBodies) {
    let Some(socket) = state.get("websocket") else { return };
    flow.row.kind = FlowKind::WebSocket;
    messages_of(socket, flow);
    let by_client = socket.get("closed_by_client").is_some_and(TnetValue::is_true);
    close_of(socket, flow, by_client, socket.get("timestamp_end").and_then(TnetValue::micros));
}

/// The messages of a WebSocket in a flow of their own, up to version 11. Its request is another flow; if that is not in
/// the file, only the server's address is known.
fn old_web_socket(state: &TnetValue<'_>) -> Result<FlowWithBodies, String> {
    let mut flow = tcp(state)?;
    let secured = state.get("server_conn").is_some_and(is_secured);
    flow.row.kind = FlowKind::WebSocket;
    flow.row.tunnel = None;
    flow.row.scheme = if secured { Scheme::Https } else { Scheme::Http };
    flow.row.request = Some(import_support::request("GET", "/", "HTTP/1.1", Headers::new(), b""));
    flow.messages.clear();
    messages_of(state, &mut flow);
    let by_client = state.get("close_sender").and_then(TnetValue::text).as_deref() == Some("client");
    let at = flow.messages.last().map(|m| m.at.micros());
    close_of(state, &mut flow, by_client, at);
    Ok(flow)
}

fn messages_of(socket: &TnetValue<'_>, flow: &mut FlowWithBodies) {
    for message in socket.items("messages") {
        let [opcode, sent, payload, at, ..] = message.list() else { continue };
        let kind = match opcode.int() {
            Some(1) => MessageKind::Text,
            Some(9) => MessageKind::Ping,
            Some(10) => MessageKind::Pong,
            _ => MessageKind::Binary,
        };
        push(flow, sent.is_true(), kind, payload.bytes().unwrap_or_default(), at.micros());
    }
}

fn close_of(socket: &TnetValue<'_>, flow: &mut FlowWithBodies, by_client: bool, at: Option<u64>) {
    let Some(code) = socket.get("close_code").and_then(TnetValue::short) else { return };
    let reason = socket.get("close_reason").and_then(TnetValue::bytes).unwrap_or_default();
    push(flow, by_client, MessageKind::Close, &[&code.to_be_bytes()[..], reason].concat(), at);
}

fn push(flow: &mut FlowWithBodies, sent: bool, kind: MessageKind, payload: &[u8], at: Option<u64>) {
    flow.messages.push(MessageRecord {
        index: flow.messages.len() as u64,
        direction: if sent { Direction::Request } else { Direction::Response },
        kind,
        at: at.map_or(flow.row.started, Timestamp::from_micros),
        size: payload.len() as u64,
        payload: Bytes::copy_from_slice(payload),
    });
}

/// Tunnelled bytes that were not inspected, kept as messages.
fn tcp(state: &TnetValue<'_>) -> Result<FlowWithBodies, String> {
    let server = state.get("server_conn").ok_or("the server's connection is missing")?;
    let address = server.any(&["address", "peername", "ip_address"]).ok_or("the server's address is missing")?;
    let list = address.get("address").unwrap_or(address).list();
    let host = list.first().and_then(TnetValue::text).unwrap_or_default();
    let port = list.get(1).and_then(TnetValue::short).filter(|p| *p > 0);
    let host = host.parse::<IpAddr>().map(Host::Ip).or_else(|_| Host::parse(&host));
    let host = host.map_err(|e| format!("the server's address: {e}"))?;
    let authority = Authority::new(host, port.ok_or("the server's port is missing")?);
    let begun = |conn: &str| state.get(conn).and_then(|c| c.get("timestamp_start")).and_then(TnetValue::micros);
    let created = state.get("timestamp_created").and_then(TnetValue::micros);
    let started = Timestamp::from_micros(created.or_else(|| begun("client_conn")).unwrap_or(0));
    let mut flow = FlowWithBodies::new(row(state, started, Scheme::Https, authority));
    flow.row.kind = FlowKind::Tunnel;
    let mut tunnel = TunnelRecord::default();
    for message in state.items("messages") {
        let [sent, payload, at, ..] = message.list() else { continue };
        let payload = payload.bytes().unwrap_or_default();
        *(if sent.is_true() { &mut tunnel.sent } else { &mut tunnel.received }) += payload.len() as u64;
        push(&mut flow, sent.is_true(), MessageKind::Binary, payload, at.micros());
    }
    flow.row.tunnel = Some(tunnel);
    Ok(flow)
}
