//! Reads SAZ.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use interflow_types::{Authority, Direction, EntryKind, FlowTimings, Scheme, Timestamp, percent};

use super::flag;
use super::session::SazSession;
use crate::import_support::{self, ImportSink, clean_text, shorten};
use crate::zip::{ZipEntry, ZipReader};
use crate::{FlowSink, FlowWithBodies, ImportReport, Result, frames, har};
use interflow_store::{ErrorRecord, FlowKind, FlowRecord, MessageRecord, UpstreamRecord};

/// Maximum number of messages imported per WebSocket.
const MAX_MESSAGES: usize = 1_000_000;

/// Imports the flows of a SAZ.
///
/// # Errors
/// A truncated file, after its complete entries.
pub(crate) fn import<R: Read + Seek>(mut zip: ZipReader<R>, sink: FlowSink<'_>) -> Result<ImportReport> {
    // The parts of a session may be in any order in the zip.
    let mut sessions: BTreeMap<u64, BTreeMap<&str, ZipEntry>> = BTreeMap::new();
    for entry in &zip.entries {
        if let Some((number, part)) = part_of(&entry.name) {
            sessions.entry(number).or_default().insert(part, entry.clone());
        }
    }
    let mut intake = ImportSink::new(sink);
    for (number, parts) in sessions {
        let mut notes = Vec::new();
        let flow = session(&mut zip, number, &parts, &mut notes);
        intake.push(&format!("session {number}"), flow, notes)?;
    }
    intake.finish_zip(zip.cut.take())
}

/// Number and part of `raw/12_c.txt`.
fn part_of(name: &str) -> Option<(u64, &'static str)> {
    let file = name.strip_prefix("raw/")?;
    let (number, part) = file.split_once('_')?;
    let part = ["c.txt", "s.txt", "m.xml", "w.txt"].into_iter().find(|p| part.eq_ignore_ascii_case(p))?;
    Some((number.parse().ok()?, part))
}

fn session<R: Read + Seek>(
    zip: &mut ZipReader<R>,
    number: u64,
    parts: &BTreeMap<&str, ZipEntry>,
    notes: &mut Vec<String>,
) -> Result<FlowWithBodies, String> {
    let mut part = |name: &str| parts.get(name).map(|entry| zip.read(entry)).transpose();
    let client = part("c.txt")?.ok_or("has no request")?;
    // Without metadata the flow has no times and addresses, but is complete otherwise.
    let facts = SazSession::parse(&part("m.xml")?.unwrap_or_default());
    let mut flow = request(&client, &facts, number, notes)?;
    if let Some(server) = part("s.txt")?.filter(|s| !s.is_empty() && flow.row.kind != FlowKind::Tunnel) {
        response(&server, &mut flow, notes)?;
    }
    if let Some(frames) = part("w.txt")? {
        messages(&frames, &mut flow, notes);
    }
    import_support::set_complete(&mut flow);
    Ok(flow)
}

fn request(client: &[u8], facts: &SazSession, number: u64, notes: &mut Vec<String>) -> Result<FlowWithBodies, String> {
    let message = import_support::message(client, notes).map_err(|why| format!("the request {why}"))?;
    let [method, target, version] = message.line.map(|w| String::from_utf8_lossy(w).into_owned());
    let https = if facts.flags & flag::HTTPS != 0 { Scheme::Https } else { Scheme::Http };
    let tunnel = method == "CONNECT";
    let (scheme, authority, path) = if tunnel {
        let authority = Authority::parse(&target, Some(443)).map_err(|e| format!("'{}': {e}", shorten(&target)))?;
        (Scheme::Https, authority, String::new())
    // Fiddler writes the absolute form; other tools may write only the path.
    } else if target.contains("://") {
        har::parse_url(&target).map_err(|why| format!("{why}: {}", shorten(&target)))?
    } else {
        let host = message.headers.get_str("host").ok_or("the request names no host")?;
        let authority =
            Authority::parse(host, Some(https.default_port())).map_err(|e| format!("{e}: {}", shorten(host)))?;
        (https, authority, target)
    };
    let started = start_time(facts);
    let transport = if scheme == Scheme::Https { EntryKind::Connect } else { EntryKind::Absolute };
    // Interflow writes its own id, tags and error as flags, so that an import of its own archive is lossless.
    let ours = facts.named.get("x-interflow-id").and_then(|id| id.parse().ok());
    let id = ours.unwrap_or_else(|| import_support::stable_id(started, number, &[b"saz", client]));
    let mut row = FlowRecord::new(id, started, transport, scheme, authority);
    row.timings = timings(facts, started);
    addresses(facts, &mut row);
    row.comment = facts.named.get("ui-comments").map(|c| clean_text(c)).filter(|c| !c.is_empty());
    let tags = facts.named.get("x-interflow-tags");
    let tags = tags.iter().flat_map(|t| t.split_whitespace());
    row.tags = tags.map(|tag| clean_text(&percent::decoded(tag))).collect();
    row.error = facts.named.get("x-interflow-error").map(|text| {
        let (kind, message) = text.split_once(": ").unwrap_or(("imported", text));
        ErrorRecord { kind: clean_text(kind).into(), blame: "upstream".into(), message: clean_text(message) }
    });
    let mut flow = FlowWithBodies::new(row);
    if tunnel {
        flow.row.kind = FlowKind::Tunnel;
        return Ok(flow);
    }
    let mut request = import_support::request(&method, &path, &version, message.headers, &message.body);
    request.trailers = message.trailers;
    flow.row.request = Some(request);
    flow.request_body = Bytes::from(message.body.into_owned());
    Ok(flow)
}

fn response(server: &[u8], flow: &mut FlowWithBodies, notes: &mut Vec<String>) -> Result<(), String> {
    let message = import_support::message(server, notes).map_err(|why| format!("the response {why}"))?;
    let [version, status, reason] = message.line;
    let status = std::str::from_utf8(status).ok().and_then(|s| s.parse().ok()).ok_or("the response has no status")?;
    let version = String::from_utf8_lossy(version);
    let mut response = import_support::response(status, reason, &version, message.headers, &message.body);
    response.trailers = message.trailers;
    flow.row.response = Some(response);
    flow.response_body = Bytes::from(message.body.into_owned());
    Ok(())
}

fn start_time(facts: &SazSession) -> Timestamp {
    // The earliest time that is known.
    let named = ["ClientBeginRequest", "GotRequestHeaders", "ClientConnected", "ClientDoneRequest"];
    named.iter().find_map(|n| facts.times.get(*n)).copied().unwrap_or_default()
}

fn timings(facts: &SazSession, started: Timestamp) -> FlowTimings {
    let at = |name: &str| Some(facts.times.get(name)?.micros().saturating_sub(started.micros()));
    // Fiddler gives durations in milliseconds; 0 stands for none.
    let length = |name: &str| facts.durations.get(name).filter(|n| **n > 0).map(|n| n.saturating_mul(1000));
    FlowTimings {
        request_head: at("GotRequestHeaders"),
        request_body: at("ClientDoneRequest"),
        blocked: None,
        dns: length("DNSTime"),
        connect: length("TCPConnectTime"),
        tls: length("HTTPSHandshakeTime"),
        request_sent: at("ServerGotRequest"),
        first_byte: at("ServerBeginResponse"),
        last_byte: at("ServerDoneResponse"),
        done: at("ClientDoneResponse").or(at("ServerDoneResponse")),
    }
}

fn addresses(facts: &SazSession, row: &mut FlowRecord) {
    let ip = |name: &str| facts.named.get(name).and_then(|a| a.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical());
    let port = |name: &str| facts.named.get(name).and_then(|p| p.parse().ok()).unwrap_or(0);
    row.client.peer = ip("x-clientip").map(|ip| SocketAddr::new(ip, port("x-clientport")));
    row.upstream = ip("x-hostip").map(|ip| UpstreamRecord {
        peer: Some(SocketAddr::new(ip, row.authority.port)),
        version: "HTTP/1.1".into(),
        ..UpstreamRecord::default()
    });
}

/// Heads of `Name: value` lines, each followed by a frame. Frames of one message are joined.
fn messages(mut rest: &[u8], flow: &mut FlowWithBodies, notes: &mut Vec<String>) {
    flow.row.kind = FlowKind::WebSocket;
    // One unfinished message per direction: fragments of both directions may alternate.
    let mut open: [Option<(MessageRecord, Vec<u8>)>; 2] = [None, None];
    while !rest.trim_ascii_start().is_empty() && flow.messages.len() < MAX_MESSAGES {
        let Some((direction, at, frame, behind)) = split_message(rest.trim_ascii_start(), flow.row.started) else {
            notes.push(format!("the WebSocket's messages break off after {}", flow.messages.len()));
            return;
        };
        rest = behind;
        let Some((last, opcode, payload)) = frames::decode(frame) else { continue };
        let side = &mut open[usize::from(direction == Direction::Response)];
        if opcode == 0 {
            if let Some((_, joined)) = side {
                joined.extend_from_slice(&payload);
            }
        } else if let Some(kind) = frames::kind(opcode) {
            let size = payload.len() as u64;
            let message = MessageRecord { index: 0, direction, kind, at, size, payload: payload.clone() };
            if last {
                push(flow, message);
            } else {
                *side = Some((message, payload.to_vec()));
            }
            continue;
        }
        if last && let Some((message, joined)) = side.take() {
            push(flow, MessageRecord { size: joined.len() as u64, payload: joined.into(), ..message });
        }
    }
}

fn push(flow: &mut FlowWithBodies, message: MessageRecord) {
    let index = flow.messages.len() as u64;
    flow.messages.push(MessageRecord { index, ..message });
}

/// One head and its frame.
fn split_message(bytes: &[u8], started: Timestamp) -> Option<(Direction, Timestamp, &[u8], &[u8])> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n")?;
    let (mut direction, mut len, mut at) = (Direction::Request, None, started);
    for line in std::str::from_utf8(&bytes[..end]).ok()?.lines() {
        let (name, value) = line.split_once(": ")?;
        match name {
            "Request-Length" => len = value.trim().parse::<usize>().ok(),
            "Response-Length" => (direction, len) = (Direction::Response, value.trim().parse().ok()),
            "DoneRead" => at = har::from_iso(value.trim()).unwrap_or(started),
            _ => {}
        }
    }
    let begin = end + 4;
    let end = begin.checked_add(len?)?;
    Some((direction, at, bytes.get(begin..end)?, bytes.get(end..)?))
}
