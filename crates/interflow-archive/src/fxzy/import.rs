//! Reads `.fxzy`.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use interflow_types::{Authority, Direction, EntryKind, FlowTimings, Headers, Scheme, Timestamp};
use rmpv::Value;

use super::value::{latin, member, parse, text, time};
use crate::import_support::{self, ImportSink, clean_text, shorten};
use crate::zip::{ZipEntry, ZipReader};
use crate::{FlowSink, FlowWithBodies, ImportReport, Result, frames, har};
use interflow_store::{ErrorRecord, FlowKind, FlowRecord, MessageRecord, UpstreamRecord};

/// Imports the flows of an archive.
///
/// # Errors
/// A truncated file, after its complete entries.
pub(crate) fn import<R: Read + Seek>(zip: ZipReader<R>, sink: FlowSink<'_>) -> Result<ImportReport> {
    // Ordered by number, because entries of a zip may be in any order.
    let mut exchanges = BTreeMap::new();
    let mut files = HashMap::new();
    for entry in &zip.entries {
        let file = entry.name.rsplit('/').next().unwrap_or_default();
        if let Some(number) =
            file.strip_prefix("ex-").and_then(|f| f.strip_suffix(".mpack")).and_then(|n| n.parse().ok())
        {
            exchanges.insert(number, entry.clone());
        } else if file.ends_with(".data") || file.starts_with("con-") {
            files.insert(file.to_owned(), entry.clone());
        }
    }
    let mut intake = ImportSink::new(sink);
    let mut archive = FxzyArchive { zip, files };
    for (number, entry) in exchanges {
        let mut notes = Vec::new();
        let flow = archive.exchange(number, &entry, &mut notes);
        intake.push(&format!("exchange {number}"), flow, notes)?;
    }
    // The exchanges that are complete have been imported already.
    intake.finish_zip(archive.zip.cut.take())
}

struct FxzyArchive<R> {
    zip: ZipReader<R>,
    /// Bodies and connections by the names of their files.
    files: HashMap<String, ZipEntry>,
}

impl<R: Read + Seek> FxzyArchive<R> {
    fn exchange(&mut self, number: u64, entry: &ZipEntry, notes: &mut Vec<String>) -> Result<FlowWithBodies, String> {
        let facts = parse(&self.zip.read(entry)?)?;
        let connection = member(&facts, 0, "connectionId").and_then(Value::as_u64).unwrap_or(0);
        let connection = self.connection(connection, notes);
        let mut flow = exchange(&facts, connection.as_ref(), number, notes)?;
        for (side, name) in [(Direction::Request, "req"), (Direction::Response, "res")] {
            if let Some(body) = self.file(&format!("{name}-{number}.data"), notes) {
                set_body(&mut flow, side, body);
            }
        }
        if member(&facts, 13, "isWebSocket").and_then(Value::as_bool) == Some(true) {
            flow.row.kind = FlowKind::WebSocket;
            for message in list(member(&facts, 14, "webSocketMessages")) {
                self.message(message, number, &mut flow, notes);
            }
        }
        import_support::set_complete(&mut flow);
        Ok(flow)
    }

    fn connection(&mut self, number: u64, notes: &mut Vec<String>) -> Option<Value> {
        let bytes = self.file(&format!("con-{number}.mpack"), notes)?;
        parse(&bytes).map_err(|why| notes.push(format!("connection {number}: {why}"))).ok()
    }

    fn file(&mut self, name: &str, notes: &mut Vec<String>) -> Option<Vec<u8>> {
        let entry = self.files.get(name)?;
        self.zip.read(entry).map_err(|why| notes.push(why)).ok()
    }

    fn message(&mut self, message: &Value, number: u64, flow: &mut FlowWithBodies, notes: &mut Vec<String>) {
        let int = |place, name| member(message, place, name).and_then(Value::as_u64);
        let sent = int(1, "direction") == Some(1);
        let Some(kind) = int(2, "opCode").and_then(|o| u8::try_from(o).ok()).and_then(frames::kind) else { return };
        let inside = match member(message, 5, "data") {
            Some(Value::Binary(data)) => Some(data.clone()),
            _ => member(message, 7, "dataString").and_then(text).map(String::into_bytes),
        };
        let side = if sent { "req" } else { "res" };
        let id = int(0, "id").unwrap_or(0);
        let payload = inside.or_else(|| self.file(&format!("{side}-{number}-ws-{id}.data"), notes)).unwrap_or_default();
        let at = member(message, 9, "messageEnd").and_then(time).unwrap_or(flow.row.started);
        flow.messages.push(MessageRecord {
            index: flow.messages.len() as u64,
            direction: if sent { Direction::Request } else { Direction::Response },
            kind,
            at,
            size: int(3, "length").unwrap_or(0).max(payload.len() as u64),
            payload: payload.into(),
        });
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn set_body(flow: &mut FlowWithBodies, side: Direction, body: Vec<u8>) {
    let body_row = import_support::whole_body_row(&body);
    let (row, bytes) = match side {
        Direction::Request => (flow.row.request.as_mut().map(|r| &mut r.body), &mut flow.request_body),
        Direction::Response => (flow.row.response.as_mut().map(|r| &mut r.body), &mut flow.response_body),
    };
    if let Some(row) = row {
        (*row, *bytes) = (body_row, Bytes::from(body));
    }
}

fn exchange(
    facts: &Value,
    connection: Option<&Value>,
    number: u64,
    notes: &mut Vec<String>,
) -> Result<FlowWithBodies, String> {
    let request = member(facts, 2, "requestHeader").ok_or("the request is missing")?;
    let part = |place, name| member(request, place, name).and_then(text).unwrap_or_default();
    let (method, path) = (part(0, "method"), part(2, "path"));
    let (scheme, authority, path) = target(facts, &part(1, "scheme"), &part(3, "authority"), path)?;
    let metrics = member(facts, 4, "metrics");
    // By name, or in the order of declaration in Fluxzy.
    let moment = |place, name: &str| metrics.and_then(|m| member(m, place, name)).and_then(time);
    let started = moment(1, "ReceivedFromProxy").unwrap_or_default();
    // The archive does not say how the request reached the proxy; this is what a browser would have used.
    let transport = if scheme == Scheme::Https { EntryKind::Connect } else { EntryKind::Absolute };
    let place = authority.to_string();
    let id = import_support::stable_id(started, number, &[b"fxzy", place.as_bytes(), path.as_bytes()]);
    let mut row = FlowRecord::new(id, started, transport, scheme, authority);
    let since = |at: Option<Timestamp>| at.map(|at| at.micros().saturating_sub(started.micros()));
    row.timings = FlowTimings {
        request_head: since(moment(2, "RetrievingPool")).or(Some(0)),
        request_body: since(moment(5, "RequestBodySent")),
        request_sent: since(moment(4, "RequestHeaderSent")),
        first_byte: since(moment(6, "ResponseHeaderStart")),
        last_byte: since(moment(9, "ResponseBodyEnd")),
        done: since(moment(9, "ResponseBodyEnd").or(moment(13, "ErrorInstant"))),
        ..durations(connection)
    };
    row.client.peer = metrics.and_then(|m| socket(m, (19, "DownStreamClientAddress"), (18, "DownStreamClientPort")));
    row.client.local = metrics.and_then(|m| socket(m, (21, "DownStreamLocalAddress"), (20, "DownStreamLocalPort")));
    row.upstream = upstream(facts, connection, &row);
    row.comment = member(facts, 11, "comment").and_then(text).filter(|c| !c.is_empty());
    row.tags = list(member(facts, 12, "tags")).iter().filter_map(|t| member(t, 1, "value").and_then(text)).collect();
    row.error = error(facts);
    let version = member(facts, 6, "httpVersion").and_then(text).unwrap_or_default();
    let mut flow = FlowWithBodies::new(row);
    if method == "CONNECT" {
        flow.row.kind = FlowKind::Tunnel;
        return Ok(flow);
    }
    let mut made = import_support::request(&method, &path, &version, fields(member(request, 4, "headers"), notes), b"");
    made.trailers = fields(member(facts, 18, "requestTrailers"), notes);
    flow.row.request = Some(made);
    if let Some(response) = member(facts, 3, "responseHeader") {
        let status = member(response, 0, "statusCode").and_then(Value::as_u64).and_then(|s| u16::try_from(s).ok());
        // 0 stands for a missing response.
        if let Some(status) = status.filter(|s| *s > 0) {
            let mut made =
                import_support::response(status, b"", &version, fields(member(response, 1, "headers"), notes), b"");
            made.trailers = fields(member(facts, 19, "responseTrailers"), notes);
            flow.row.response = Some(made);
        }
    }
    Ok(flow)
}

/// The path of a plain-HTTP request may be an absolute URL.
fn target(facts: &Value, scheme: &str, authority: &str, path: String) -> Result<(Scheme, Authority, String), String> {
    if path.starts_with("http://") || path.starts_with("https://") {
        return har::parse_url(&path).map_err(|why| format!("{why}: {}", shorten(&path)));
    }
    let secure = member(facts, 9, "secure").and_then(Value::as_bool);
    let scheme = Scheme::parse(scheme).unwrap_or(if secure == Some(true) { Scheme::Https } else { Scheme::Http });
    let known_authority = member(facts, 7, "knownAuthority").and_then(text).unwrap_or_default();
    let port = member(facts, 8, "knownPort").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
    // Fluxzy keeps the port apart from the host.
    let port = port.filter(|p| *p > 0).unwrap_or(scheme.default_port());
    let name = if authority.is_empty() { &known_authority } else { authority };
    let read = Authority::parse(name, Some(port)).map_err(|e| format!("the host '{}': {e}", shorten(name)))?;
    Ok((scheme, read, path))
}

fn durations(connection: Option<&Value>) -> FlowTimings {
    let length = |from: (u64, &str), to: (u64, &str)| {
        let at = |(place, name)| connection.and_then(|c| member(c, place, name)).and_then(time);
        Some(at(to)?.micros().saturating_sub(at(from)?.micros()))
    };
    FlowTimings {
        dns: length((5, "dnsSolveStart"), (6, "dnsSolveEnd")),
        connect: length((7, "tcpConnectionOpening"), (8, "tcpConnectionOpened")),
        tls: length((9, "sslNegotiationStart"), (10, "sslNegotiationEnd")),
        ..FlowTimings::default()
    }
}

fn socket(object: &Value, address: (u64, &str), port: (u64, &str)) -> Option<SocketAddr> {
    let ip: IpAddr = text(member(object, address.0, address.1)?)?.parse().ok()?;
    let port = member(object, port.0, port.1).and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
    Some(SocketAddr::new(ip.to_canonical(), port.unwrap_or(0)))
}

fn upstream(facts: &Value, connection: Option<&Value>, row: &FlowRecord) -> Option<UpstreamRecord> {
    let ip: Option<IpAddr> = member(facts, 10, "egressIp").and_then(text).and_then(|ip| ip.parse().ok());
    let remote = || connection.and_then(|c| member(c, 13, "remoteAddress")).and_then(text).and_then(|a| a.parse().ok());
    Some(UpstreamRecord {
        peer: Some(SocketAddr::new(ip.or_else(remote)?.to_canonical(), row.authority.port)),
        local: connection.and_then(|c| socket(c, (12, "localAddress"), (11, "localPort"))),
        version: har::version(&connection.and_then(|c| member(c, 1, "httpVersion")).and_then(text).unwrap_or_default()),
        connection: member(facts, 0, "connectionId").and_then(Value::as_u64).unwrap_or(0),
        ..UpstreamRecord::default()
    })
}

fn fields(value: Option<&Value>, notes: &mut Vec<String>) -> Headers {
    let mut headers = Headers::new();
    for field in list(value) {
        let part = |place, name| member(field, place, name).and_then(latin).unwrap_or_default();
        import_support::field(&mut headers, &part(0, "name"), &part(1, "value"), notes);
    }
    headers
}

/// The first of the errors: its number and its message.
fn error(facts: &Value) -> Option<ErrorRecord> {
    let first = list(member(facts, 16, "clientErrors")).first()?;
    let message = member(first, 1, "message").and_then(text).unwrap_or_default();
    Some(ErrorRecord { kind: "imported".into(), blame: "upstream".into(), message: clean_text(&message) })
}
