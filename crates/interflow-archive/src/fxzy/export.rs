//! Writes `.fxzy`.

use std::collections::HashMap;
use std::io::{self, Write};

use interflow_types::{Direction, Headers, Scheme, Timestamp};
use rmpv::Value;
use serde_json::json;

use super::bucket;
use super::value::{from_time, text_or_null, units, wide};
use crate::zip::ZipWriter;
use crate::{BodySource, FlowExporter, frames, har};
use interflow_store::{FlowKind, FlowRecord};

/// Maximum number of distinct connections; further ones share the number 0.
const MAX_CONNECTIONS: usize = 1_000_000;
/// WebSocket messages above this size, in bytes, become separate files.
const MAX_INLINE_BODY: usize = 64 << 10;

/// Writes flows as one `.fxzy`; a tunnel is an exchange with the method CONNECT.
pub struct FxzyWriter<W: Write> {
    zip: ZipWriter<W>,
    exchanges: u64,
    connections: HashMap<u64, u64>,
}

impl<W: Write> FxzyWriter<W> {
    /// Begins the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self { zip: ZipWriter::new(out), exchanges: 0, connections: HashMap::new() })
    }

    /// The number of a flow's connection, which is written with its first flow.
    fn connection(&mut self, row: &FlowRecord) -> io::Result<u64> {
        let Some(upstream) = &row.upstream else { return Ok(0) };
        // Imported flows name no connection; each gets its own.
        let key = if upstream.connection == 0 { u64::MAX - self.exchanges } else { upstream.connection };
        if let Some(known) = self.connections.get(&key) {
            return Ok(*known);
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            return Ok(0);
        }
        let number = self.connections.len() as u64 + 1;
        self.connections.insert(key, number);
        let facts = connection(row, number);
        self.zip.entry(&format!("connections/{}/con-{number}.mpack", bucket(number)), |out| write(out, &facts))?;
        Ok(number)
    }
}

impl<W: Write> FlowExporter for FxzyWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        let row = &*crate::as_upgrade(row);
        self.exchanges += 1;
        let id = self.exchanges;
        // The connection's file precedes the exchange that refers to it.
        let connection = self.connection(row)?;
        let messages = if row.kind == FlowKind::WebSocket { self.messages(row, contents, id)? } else { Value::Nil };
        let facts = exchange(row, id, connection, messages);
        self.zip.entry(&format!("exchanges/{}/ex-{id}.mpack", bucket(id)), |out| write(out, &facts))?;
        for (side, name) in [(Direction::Request, "req"), (Direction::Response, "res")] {
            // Bodies are copied from the store into the archive in pieces.
            if row.body(side).is_some_and(|b| b.kept > 0) {
                self.zip.entry(&format!("contents/{name}-{id}.data"), |out| {
                    io::copy(&mut contents.body(row, side)?, out).map(drop)
                })?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let meta = json!({
            "captureDate": har::iso(Timestamp::now()),
            "tags": [],
            "viewFilters": [],
            "archiveVersion": "0.3.0",
            "fluxzyVersion": concat!("Interflow ", env!("CARGO_PKG_VERSION")),
        });
        self.zip.entry("meta.json", |out| write!(out, "{meta:#}"))?;
        self.zip.finish()
    }
}

impl<W: Write> FxzyWriter<W> {
    fn messages(&mut self, row: &FlowRecord, contents: &dyn BodySource, id: u64) -> io::Result<Value> {
        let mut all = Vec::new();
        for message in contents.messages(row)? {
            let message = message?;
            // The format is for frames of WebSockets only.
            let Some(opcode) = frames::opcode(message.kind) else { continue };
            let sent = message.direction == Direction::Request;
            let number = all.len() as u64 + 1;
            let inside = message.payload.len() <= MAX_INLINE_BODY;
            if !inside {
                let name = format!("contents/{}-{id}-ws-{number}.data", if sent { "req" } else { "res" });
                self.zip.entry(&name, |out| out.write_all(&message.payload))?;
            }
            let at = from_time(Some(message.at));
            all.push(Value::Array(vec![
                number.into(),
                (if sent { 1 } else { 2 }).into(),
                opcode.into(),
                message.size.into(),
                message.payload.len().into(),
                if inside { Value::Binary(message.payload.to_vec()) } else { Value::Nil },
                Value::Nil,
                Value::Nil,
                at.clone(),
                at,
                1.into(),
            ]));
        }
        Ok(Value::Array(all))
    }
}

fn write(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).map_err(io::Error::other)?;
    out.write_all(&bytes)
}

/// The members of an exchange, by position. Their order is that of Fluxzy's own types.
fn exchange(row: &FlowRecord, id: u64, connection: u64, messages: Value) -> Value {
    let version = row.request.as_ref().map_or("HTTP/1.1", |r| &*r.version);
    let peer = row.upstream.as_ref().and_then(|u| u.peer).map(|p| p.ip().to_canonical().to_string());
    let tags = row.tags.iter().map(|tag| Value::Array(vec![identifier(tag), tag.as_str().into()]));
    Value::Array(vec![
        connection.into(),
        id.into(),
        request(row),
        response(row),
        metrics(row),
        row.response.is_none().into(),
        version.into(),
        row.host().into_owned().into(),
        row.authority.port.into(),
        (row.scheme == Scheme::Https).into(),
        text_or_null(peer),
        text_or_null(row.comment.as_deref()),
        Value::Array(tags.collect()),
        (row.kind == FlowKind::WebSocket).into(),
        messages,
        Value::Nil,
        Value::Array(Vec::new()),
        Value::Nil,
    ])
}

/// A stable UUID for a tag: equal tags of different flows get the same one.
fn identifier(tag: &str) -> Value {
    let hex = blake3::hash(tag.as_bytes()).to_hex();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-").into()
}

fn request(row: &FlowRecord) -> Value {
    // A tunnel is shown as its CONNECT request.
    let Some(request) = &row.request else {
        let authority = row.authority.to_string();
        return Value::Array(vec![
            units("CONNECT"),
            units("https"),
            units("/"),
            units(&authority),
            fields(&[(":method", "CONNECT"), (":authority", &authority)], &Headers::new()),
        ]);
    };
    // Fluxzy stores heads in the form of HTTP/2, with pseudo-header fields, for every version.
    let authority = row.authority.to_host_header(row.scheme);
    let pseudo = [
        (":method", request.method.as_str()),
        (":authority", authority.as_str()),
        (":path", request.path.as_str()),
        (":scheme", row.scheme.as_str()),
    ];
    Value::Array(vec![
        units(&request.method),
        units(row.scheme.as_str()),
        units(&request.path),
        units(&authority),
        fields(&pseudo, &request.headers),
    ])
}

fn response(row: &FlowRecord) -> Value {
    let Some(response) = &row.response else { return Value::Nil };
    let status = response.status.to_string();
    Value::Array(vec![response.status.into(), fields(&[(":status", &status)], &response.headers)])
}

/// Name, value, and whether the proxy forwarded it.
fn fields(pseudo: &[(&str, &str)], headers: &Headers) -> Value {
    let field = |name: &[u8], value: &[u8]| Value::Array(vec![wide(name), wide(value), true.into()]);
    let pseudo = pseudo.iter().map(|(n, v)| field(n.as_bytes(), v.as_bytes()));
    Value::Array(pseudo.chain(headers.iter().map(|(n, v)| field(n, v))).collect())
}

/// Times and sizes by name. Times that are unknown are those of the step before, where there is one.
fn metrics(row: &FlowRecord) -> Value {
    let t = &row.timings;
    let at =
        |micros: Option<u64>| from_time(micros.map(|n| Timestamp::from_micros(row.started.micros().saturating_add(n))));
    let size = |side| row.body(side).map_or(0, |b| b.size);
    // Four bytes for each field: the colon, a space and the line end.
    let length = |side| row.headers(side).map_or(0, |h| h.size() + 4 * h.len());
    let address = |socket: Option<std::net::SocketAddr>| {
        let ip = socket.map(|s| s.ip().to_canonical().to_string()).unwrap_or_default();
        (Value::from(ip), Value::from(socket.map_or(0, |s| s.port())))
    };
    let ((peer, peer_port), (local, local_port)) = (address(row.client.peer), address(row.client.local));
    let last = t.last_byte.or(t.done);
    let members = [
        ("ReusingConnection", row.upstream.as_ref().is_some_and(|u| u.reused).into()),
        ("ReceivedFromProxy", at(Some(0))),
        ("RetrievingPool", at(t.request_head.or(Some(0)))),
        ("RequestHeaderSending", at(t.request_sent.or(t.request_head))),
        ("RequestHeaderSent", at(t.request_sent)),
        ("RequestBodySent", at(t.request_body.or(t.request_sent))),
        ("ResponseHeaderStart", at(t.first_byte)),
        ("ResponseHeaderEnd", at(t.first_byte)),
        ("ResponseBodyStart", at(t.first_byte)),
        ("ResponseBodyEnd", at(row.response.as_ref().and(last))),
        ("RemoteClosed", at(None)),
        ("CreateCertStart", at(None)),
        ("CreateCertEnd", at(None)),
        ("ErrorInstant", at(row.error.as_ref().and(t.done))),
        ("TotalSent", size(Direction::Request).into()),
        ("TotalReceived", size(Direction::Response).into()),
        ("RequestHeaderLength", length(Direction::Request).into()),
        ("ResponseHeaderLength", length(Direction::Response).into()),
        ("DownStreamClientPort", peer_port),
        ("DownStreamClientAddress", peer),
        ("DownStreamLocalPort", local_port),
        ("DownStreamLocalAddress", local),
    ];
    Value::Map(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

/// The members of a connection, by position. Phases follow each other without a gap from the end of the request head.
fn connection(row: &FlowRecord, number: u64) -> Value {
    let upstream = row.upstream.as_ref();
    let t = &row.timings;
    let begun = row.started.micros().saturating_add(t.request_head.unwrap_or(0));
    let steps = [t.blocked, t.dns, t.connect, t.tls].into_iter().scan(begun, |at, length| {
        let from = *at;
        *at = at.saturating_add(length.unwrap_or(0));
        Some(length.map(|_| (Timestamp::from_micros(from), Timestamp::from_micros(*at))))
    });
    let steps: Vec<_> = steps.collect();
    let span = |i: usize| {
        let span = steps.get(i).copied().flatten();
        [from_time(span.map(|s| s.0)), from_time(span.map(|s| s.1))]
    };
    let secure = row.scheme == Scheme::Https;
    let authority = vec![row.host().into_owned().into(), row.authority.port.into(), secure.into()];
    let local = upstream.and_then(|u| u.local);
    let mut members = vec![
        number.into(),
        upstream.map_or(Value::Nil, |u| Value::from(&*u.version)),
        Value::Array(authority),
        Value::Nil,
        1.into(),
    ];
    // The time of blocking has no place in the format.
    members.extend([1, 2, 3].into_iter().flat_map(span));
    members.extend([
        local.map_or(0, |l| l.port()).into(),
        text_or_null(local.map(|l| l.ip().to_canonical().to_string())),
        text_or_null(upstream.and_then(|u| u.peer).map(|p| p.ip().to_canonical().to_string())),
        from_time(None),
        from_time(None),
    ]);
    Value::Array(members)
}
