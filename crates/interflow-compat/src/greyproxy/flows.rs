//! Imports Greyproxy's `http_transactions` and `request_logs` as flows.

use std::collections::HashMap;

use bytes::Bytes;
use interflow_types::{Authority, Direction, EntryKind, Headers, Host, MessageKind, Scheme, Timestamp};
use rusqlite::Row;
use serde_json::Value;

use super::database::{GreyproxyDb, bytes, parse_timestamp, text};
use interflow_archive::import_support::{self, ImportSink, clean_text, set_complete};
use interflow_archive::{FlowSink, FlowWithBodies, ImportError, ImportReport};
use interflow_store::{ErrorRow, FlowKind, FlowRow, MessageRow, MissingReason, TunnelRow};

/// Maximum gap within one WebSocket, in microseconds: frames after a longer one belong to another.
const MAX_FRAME_GAP: u64 = 15 * 60 * 1_000_000;
/// Maximum number of WebSockets assembled concurrently.
const MAX_SOCKETS: usize = 1000;
/// Messages of one WebSocket.
const MAX_MESSAGES: usize = 100_000;

/// A row of `http_transactions`.
struct TransactionRow {
    id: i64,
    at: Timestamp,
    container: String,
    host: String,
    port: i64,
    method: String,
    url: String,
    request: TransactionSide,
    status: Option<u16>,
    response: TransactionSide,
    duration: u64,
    result: String,
    tags: Vec<String>,
}

/// One direction of a transaction.
struct TransactionSide {
    headers: Option<String>,
    body: Vec<u8>,
    size: u64,
    media: Option<String>,
}

pub(super) fn import(db: &GreyproxyDb, sink: FlowSink<'_>) -> Result<ImportReport, ImportError> {
    let mut intake = ImportSink::new(sink);
    let read = transactions(db, &mut intake).and_then(|()| connections(db, &mut intake));
    match read {
        Ok(()) => Ok(intake.report),
        Err(GreyproxyReadError::Sink(e)) => Err(*e),
        Err(GreyproxyReadError::Db(e)) => Err(intake.malformed("the database", e.to_string())),
    }
}

enum GreyproxyReadError {
    Db(rusqlite::Error),
    Sink(Box<ImportError>),
}

impl From<rusqlite::Error> for GreyproxyReadError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Db(e)
    }
}

impl From<ImportError> for GreyproxyReadError {
    fn from(e: ImportError) -> Self {
        Self::Sink(Box::new(e))
    }
}

fn transactions(db: &GreyproxyDb, intake: &mut ImportSink<'_>) -> Result<(), GreyproxyReadError> {
    let columns = db.columns("http_transactions")?;
    let (credentials, session) =
        (GreyproxyDb::column(&columns, "substituted_credentials"), GreyproxyDb::column(&columns, "session_id"));
    let sql = format!(
        "SELECT id, timestamp, container_name, destination_host, destination_port, method, url, request_headers, \
         request_body, request_body_size, request_content_type, status_code, response_headers, response_body, \
         response_body_size, response_content_type, duration_ms, result, {credentials}, {session} \
         FROM http_transactions ORDER BY id"
    );
    let mut statement = db.connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut sockets = OpenWebSockets::default();
    while let Some(row) = rows.next()? {
        let transaction = match TransactionRow::read(row) {
            Ok(transaction) => transaction,
            Err(e) => {
                intake.push("http_transactions", Err(e.to_string()), Vec::new())?;
                continue;
            }
        };
        if matches!(transaction.method.as_str(), "WS_REQ" | "WS_RESP") {
            sockets.frame(transaction, intake)?;
        } else {
            let place = format!("http_transactions {}", transaction.id);
            let mut notes = Vec::new();
            let flow = transaction.flow(&mut notes);
            match flow {
                // Its frames follow.
                Ok(flow) if flow.row.kind == FlowKind::WebSocket => sockets.open(transaction.key(), flow, intake)?,
                flow => intake.push(&place, flow, notes)?,
            }
        }
    }
    sockets.finish(intake)
}

impl TransactionRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = |at| row.get::<_, Option<i64>>(at).map(|n| n.and_then(|n| u64::try_from(n).ok()));
        let side = |at| -> rusqlite::Result<TransactionSide> {
            let body = bytes(row, at + 1)?;
            let size = number(at + 2)?.unwrap_or(0).max(body.len() as u64);
            Ok(TransactionSide { headers: text(row, at)?, size, body, media: text(row, at + 3)? })
        };
        let credentials: Vec<String> = text(row, 18)?.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        let mut tags: Vec<String> = credentials.iter().map(|c| format!("secret:{}", clean_text(c))).collect();
        tags.extend(text(row, 19)?.map(|s| format!("session:{}", clean_text(&s))));
        Ok(Self {
            id: row.get(0)?,
            at: text(row, 1)?.as_deref().and_then(parse_timestamp).unwrap_or(Timestamp::from_micros(0)),
            container: text(row, 2)?.unwrap_or_default(),
            host: row.get(3)?,
            port: row.get(4)?,
            method: row.get(5)?,
            url: row.get(6)?,
            request: side(7)?,
            status: number(11)?.and_then(|n| u16::try_from(n).ok()),
            response: side(12)?,
            duration: number(16)?.unwrap_or(0).saturating_mul(1000),
            result: text(row, 17)?.unwrap_or_default(),
            tags,
        })
    }

    /// The identity that the frames of one WebSocket share.
    fn key(&self) -> String {
        format!("{}\n{}\n{}\n{}", self.container, self.host, self.port, self.path())
    }

    fn path(&self) -> String {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let path = if self.url.contains("://") { rest.find(['/', '?']).map_or("/", |at| &rest[at..]) } else { rest };
        let path = path.split('#').next().unwrap_or("/");
        if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
    }

    fn row(&self, kind: FlowKind) -> Result<FlowRow, String> {
        let secure = self.url.starts_with("https") || self.url.starts_with("wss");
        let scheme = if secure || !self.url.contains("://") { Scheme::Https } else { Scheme::Http };
        let mut row = base_row(self.id, "transaction", self.at, &self.container, (&self.host, self.port), scheme)?;
        row.kind = kind;
        row.tags.extend(self.tags.iter().cloned());
        // The timestamp of a transaction is the time at which it was stored: its end.
        row.started = Timestamp::from_micros(self.at.micros().saturating_sub(self.duration));
        row.timings.done = Some(self.duration);
        if self.result == "blocked" {
            row.error = Some(denied());
        }
        Ok(row)
    }

    fn flow(&self, notes: &mut Vec<String>) -> Result<FlowWithBodies, String> {
        let socket = self.status == Some(101);
        let mut flow = FlowWithBodies::new(self.row(if socket { FlowKind::WebSocket } else { FlowKind::Http })?);
        let (headers, body) = self.request.parts(notes);
        let mut request = import_support::request(&self.method, &self.path(), "HTTP/1.1", headers, &body);
        self.request.mark_truncated(&mut request.body);
        request.protocol = socket.then(|| "websocket".to_owned());
        (flow.row.request, flow.request_body) = (Some(request), body);
        if let Some(status) = self.status {
            let (headers, body) = self.response.parts(notes);
            let mut response = import_support::response(status, b"", "HTTP/1.1", headers, &body);
            self.response.mark_truncated(&mut response.body);
            (flow.row.response, flow.response_body) = (Some(response), body);
        }
        set_complete(&mut flow);
        Ok(flow)
    }
}

impl TransactionSide {
    /// Fields and body. Bodies were stored decoded, so the `Content-Encoding` field is removed.
    fn parts(&self, notes: &mut Vec<String>) -> (Headers, Bytes) {
        let mut headers = Headers::new();
        let given: Value = self.headers.as_deref().and_then(|h| serde_json::from_str(h).ok()).unwrap_or_default();
        for (name, values) in given.as_object().into_iter().flatten() {
            if !self.body.is_empty() && name.eq_ignore_ascii_case("content-encoding") {
                continue;
            }
            let list = values.as_array().map_or_else(|| vec![values], |list| list.iter().collect());
            for value in list.into_iter().filter_map(Value::as_str) {
                import_support::field(&mut headers, name.as_bytes(), value.as_bytes(), notes);
            }
        }
        if headers.get("content-type").is_none()
            && let Some(media) = &self.media
        {
            import_support::field(&mut headers, b"Content-Type", media.as_bytes(), notes);
        }
        (headers, Bytes::copy_from_slice(&self.body))
    }

    /// Marks a body that was stored truncated.
    fn mark_truncated(&self, body: &mut interflow_store::BodyRow) {
        if self.size > body.kept {
            body.size = self.size;
            body.missing = Some(MissingReason::Capped);
        }
    }
}

/// WebSockets being assembled from their frames.
#[derive(Default)]
struct OpenWebSockets {
    open: HashMap<String, (FlowWithBodies, i64)>,
}

impl OpenWebSockets {
    fn open(
        &mut self,
        key: String,
        flow: FlowWithBodies,
        intake: &mut ImportSink<'_>,
    ) -> Result<(), GreyproxyReadError> {
        match self.open.insert(key, (flow, 0)) {
            Some((before, id)) => emit(before, id, intake),
            None => Ok(()),
        }
    }

    fn frame(&mut self, frame: TransactionRow, intake: &mut ImportSink<'_>) -> Result<(), GreyproxyReadError> {
        let key = frame.key();
        let late = |flow: &FlowWithBodies| {
            let last = flow.messages.last().map_or(flow.row.started, |m| m.at);
            frame.at.micros().saturating_sub(last.micros()) > MAX_FRAME_GAP || flow.messages.len() >= MAX_MESSAGES
        };
        let full = self.open.len() >= MAX_SOCKETS;
        let over: Vec<String> = match self.open.get(&key) {
            _ if full => self.open.iter().filter(|(_, (flow, _))| late(flow)).map(|(k, _)| k.clone()).collect(),
            Some((flow, _)) if late(flow) => vec![key.clone()],
            _ => Vec::new(),
        };
        for key in over {
            if let Some((flow, id)) = self.open.remove(&key) {
                emit(flow, id, intake)?;
            }
        }
        if !self.open.contains_key(&key) {
            match socket_flow(&frame) {
                Ok(flow) => drop(self.open.insert(key.clone(), (flow, frame.id))),
                Err(why) => {
                    return Ok(intake.push(&format!("http_transactions {}", frame.id), Err(why), Vec::new())?);
                }
            }
        }
        let Some((flow, _)) = self.open.get_mut(&key) else { return Ok(()) };
        let direction = if frame.method == "WS_REQ" { Direction::Request } else { Direction::Response };
        let payload = if frame.request.body.is_empty() { frame.response.body } else { frame.request.body };
        let kind = if std::str::from_utf8(&payload).is_ok() { MessageKind::Text } else { MessageKind::Binary };
        flow.messages.push(MessageRow {
            index: flow.messages.len() as u64,
            direction,
            kind,
            at: frame.at,
            size: payload.len() as u64,
            payload: payload.into(),
        });
        let end = frame.at.micros().saturating_sub(flow.row.started.micros());
        flow.row.timings.done = flow.row.timings.done.max(Some(end));
        Ok(())
    }

    fn finish(self, intake: &mut ImportSink<'_>) -> Result<(), GreyproxyReadError> {
        let mut left: Vec<_> = self.open.into_values().collect();
        left.sort_by_key(|(flow, _)| flow.row.id);
        left.into_iter().try_for_each(|(flow, id)| emit(flow, id, intake))
    }
}

fn emit(mut flow: FlowWithBodies, id: i64, intake: &mut ImportSink<'_>) -> Result<(), GreyproxyReadError> {
    set_complete(&mut flow);
    Ok(intake.push(&format!("http_transactions {id}"), Ok(flow), Vec::new())?)
}

/// A WebSocket whose handshake is missing.
fn socket_flow(frame: &TransactionRow) -> Result<FlowWithBodies, String> {
    let mut flow = FlowWithBodies::new(frame.row(FlowKind::WebSocket)?);
    flow.row.started = frame.at;
    let mut request = import_support::request("GET", &frame.path(), "HTTP/1.1", Headers::new(), b"");
    request.protocol = Some("websocket".to_owned());
    flow.row.request = Some(request);
    flow.row.response = Some(import_support::response(101, b"", "HTTP/1.1", Headers::new(), b""));
    Ok(flow)
}

/// Blocked connections, and tunnels passed through without inspection.
fn connections(db: &GreyproxyDb, intake: &mut ImportSink<'_>) -> Result<(), GreyproxyReadError> {
    if !db.has("request_logs")? {
        return Ok(());
    }
    let skipped = GreyproxyDb::column(&db.columns("request_logs")?, "mitm_skip_reason");
    let sql = format!(
        "SELECT id, timestamp, container_name, destination_host, destination_port, resolved_hostname, result, \
         response_time_ms, {skipped} FROM request_logs WHERE result = 'blocked' OR {skipped} IS NOT NULL ORDER BY id"
    );
    let mut statement = db.connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        intake.push(&format!("request_logs {id}"), connection(row, id), Vec::new())?;
    }
    Ok(())
}

fn connection(row: &Row<'_>, id: i64) -> Result<FlowWithBodies, String> {
    let word = |at| text(row, at).map_err(|e| e.to_string());
    let at = word(1)?.as_deref().and_then(parse_timestamp).unwrap_or(Timestamp::from_micros(0));
    let port = row.get::<_, Option<i64>>(4).map_err(|e| e.to_string())?.unwrap_or(443);
    let host = word(3)?.unwrap_or_default();
    let mut flow = base_row(id, "connection", at, &word(2)?.unwrap_or_default(), (&host, port), Scheme::Https)?;
    flow.kind = FlowKind::Tunnel;
    flow.timings.done = word(7)?.and_then(|t| t.parse::<u64>().ok()).map(|ms| ms.saturating_mul(1000)).or(Some(0));
    flow.tunnel = Some(TunnelRow::default());
    flow.tags.extend(word(5)?.filter(|n| !n.is_empty()).map(|n| format!("dns:{}", clean_text(&n))));
    flow.tags.extend(word(8)?.filter(|n| !n.is_empty()).map(|n| format!("unseen:{}", clean_text(&n))));
    if word(6)?.as_deref() == Some("blocked") {
        flow.error = Some(denied());
    }
    let mut flow = FlowWithBodies::new(flow);
    set_complete(&mut flow);
    Ok(flow)
}

fn denied() -> ErrorRow {
    ErrorRow { kind: "denied".into(), blame: "config".into(), message: "Greyproxy blocked it".to_owned() }
}

/// A row with the fields common to both tables.
fn base_row(
    id: i64,
    table: &str,
    at: Timestamp,
    container: &str,
    (host, port): (&str, i64),
    scheme: Scheme,
) -> Result<FlowRow, String> {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let bracketed = if plain.contains(':') { format!("[{plain}]") } else { plain.to_owned() };
    let parsed = Host::parse(&bracketed).map_err(|_| format!("`{}` is no host", import_support::shorten(host)))?;
    let port = u16::try_from(port).map_err(|_| format!("{port} is no port"))?;
    let name = import_support::stable_id(at, &[b"greyproxy", table.as_bytes(), &id.to_le_bytes(), host.as_bytes()]);
    let mut row = FlowRow::new(name, at, EntryKind::Connect, scheme, Authority::new(parsed, port));
    row.user = Some(container).filter(|c| !c.is_empty()).map(|c| clean_text(c).into());
    row.tags.push("greyproxy".to_owned());
    row.client.accepted = at;
    Ok(row)
}
