//! Reads and writes flow rows in the database.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use interflow_types::{Authority, Direction, EntryKind, FlowId, Host, Scheme, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row, Statement, ToSql, params};

use super::details_blob;
use crate::error::{Result, StoreError};
use crate::model::*;
use crate::originals::*;
use crate::store::segments::chunk_refs::{self, ChunkRef, SIDES};
use crate::stored_flow::{BODIES, StoredFlow};

impl StoredFlow {
    /// The recorded length of a body; unknown of certificates.
    pub(crate) fn stored_bytes(&self, side: usize) -> u64 {
        let body = |(direction, received)| self.row.recorded_body(direction, received).map_or(0, |body| body.kept);
        BODIES.get(side).copied().map_or(u64::MAX, body)
    }

    /// The flow in the form needed to write it again.
    pub(crate) fn as_new(&self) -> NewRow<'_> {
        NewRow {
            seq: self.position,
            row: &self.row,
            refs: self.refs.each_ref().map(Vec::as_slice),
            inline: self.inline.each_ref().map(|b| &b[..]),
        }
    }
}

/// Columns in the order expected by [`read`]; `details.detail` is the last.
pub(crate) const COLUMNS: &str = "f.seq, f.id, f.state, f.kind, f.started, f.transport, f.scheme, h.name, f.port, f.method, \
     f.path, f.version, f.user, f.listener, f.messages, f.error, f.tags, f.chunks, d.detail";
pub(crate) const SOURCES: &str = "flows f JOIN details d ON d.seq = f.seq JOIN hosts h ON h.id = f.host";

/// Caches host numbers, so that a row refers to its host in a few bytes. Bounded: on a miss the database is queried.
#[derive(Default)]
pub(crate) struct HostIds {
    numbers: HashMap<String, i64>,
    /// The most recently used host: flows of one host tend to arrive together.
    last: (String, i64),
    client: Option<(IpAddr, String)>,
}

impl HostIds {
    /// The number of a host, assigned on first use.
    fn number(&mut self, db: &Connection, name: Cow<'_, str>) -> Result<i64> {
        if self.last.0 == *name && !name.is_empty() {
            return Ok(self.last.1);
        }
        let number = if let Some(n) = self.numbers.get(&*name) { *n } else { self.look_up(db, &name)? };
        self.last.0.clear();
        self.last.0.push_str(&name);
        self.last.1 = number;
        Ok(number)
    }

    fn look_up(&mut self, db: &Connection, name: &str) -> Result<i64> {
        let mut select = db.prepare_cached("SELECT id FROM hosts WHERE name = ?")?;
        let number = match select.query_row([name], |r| r.get(0)).optional()? {
            Some(n) => n,
            None => db.prepare_cached("INSERT INTO hosts(name) VALUES(?)")?.insert([name])?,
        };
        // Cleared at once instead of evicting: a miss costs one query on an index.
        if self.numbers.len() >= 4096 {
            self.numbers.clear();
        }
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn client(&mut self, peer: Option<SocketAddr>) -> Option<&str> {
        // Formatting an address costs more than comparing it, and flows of one client tend to arrive together.
        let ip = peer?.ip();
        if self.client.as_ref().is_none_or(|(known, _)| *known != ip) {
            self.client = Some((ip, ip.to_string()));
        }
        self.client.as_ref().map(|(_, text)| text.as_str())
    }

    /// Clears the cache after a failed transaction.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

const INSERT: &str = "INSERT INTO flows(seq, id, state, kind, started, duration, transport, scheme, host, port, method, path, \
     status, version, user, client, listener, request_size, response_size, request_type, response_type, messages, error, \
     tags, stored, kept, chunks) VALUES";
const INSERT_DETAILS: &str = "INSERT INTO details(seq, detail) VALUES";
const COLUMN_COUNT: usize = 27;
/// Flows per INSERT statement. One statement for several rows amortizes its overhead and keeps the cursors in place;
/// with more rows its parameters would exceed SQLite's per-connection lookaside memory.
pub(crate) const ROWS_PER_INSERT: usize = 16;

/// An INSERT of `rows` rows with `width` columns each.
fn insertion(into: &str, width: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; width].join(","));
    format!("{into}{}", vec![row; rows].join(","))
}

/// Updates the columns that may change while a flow runs.
const UPDATE: &str = "UPDATE flows SET state=?2, kind=?3, duration=?4, status=?5, request_size=?6, response_size=?7, \
     request_type=?8, response_type=?9, messages=?10, error=?11, tags=?12, kept=?13, chunks=?14, user=?15 WHERE seq=?1";

/// A flow in the form in which it is written.
pub(crate) struct NewRow<'a> {
    pub(crate) seq: i64,
    pub(crate) row: &'a FlowRecord,
    pub(crate) refs: [&'a [ChunkRef]; SIDES],
    pub(crate) inline: [&'a [u8]; SIDES],
}

/// Inserts flows: as many at once as one statement takes, the rest one by one. Returns the size of their details blobs.
pub(crate) fn insert(db: &Connection, hosts: &mut HostIds, flows: &[NewRow<'_>]) -> Result<usize> {
    static TEXTS: LazyLock<[[String; 2]; 2]> = LazyLock::new(|| {
        [1, ROWS_PER_INSERT].map(|rows| [insertion(INSERT, COLUMN_COUNT, rows), insertion(INSERT_DETAILS, 2, rows)])
    });
    let mut written = 0;
    // Full groups use the long statement; what is left uses the one for a single row, so only two texts are prepared.
    let whole = flows.len() / ROWS_PER_INSERT * ROWS_PER_INSERT;
    let (many, few) = flows.split_at(whole);
    for (texts, flows, size) in [(&TEXTS[1], many, ROWS_PER_INSERT), (&TEXTS[0], few, 1)] {
        if flows.is_empty() {
            continue;
        }
        // Before the statements are bound: a new host runs an INSERT of its own.
        let numbers = flows.iter().map(|f| hosts.number(db, f.row.host())).collect::<Result<Vec<_>>>()?;
        let (mut rows, mut details) = (db.prepare_cached(&texts[0])?, db.prepare_cached(&texts[1])?);
        // The time at which the row is stored, not the start of the flow: retention by age relies on it to grow with
        // `seq`.
        let now = Timestamp::now().micros() as i64;
        for (flows, numbers) in flows.chunks(size).zip(numbers.chunks(size)) {
            for (i, (flow, host)) in flows.iter().zip(numbers).enumerate() {
                let client = hosts.client(flow.row.client.peer);
                bind(&mut rows, i * COLUMN_COUNT, flow, (*host, client), now)?;
                details.raw_bind_parameter(i * 2 + 1, flow.seq)?;
                let detail = details_blob::encode(flow.row, flow.inline);
                written += detail.len();
                details.raw_bind_parameter(i * 2 + 2, detail)?;
            }
            rows.raw_execute()?;
            details.raw_execute()?;
        }
    }
    Ok(written)
}

/// Binds the columns of a flow, after the first `before` parameters.
fn bind(
    to: &mut Statement<'_>,
    before: usize,
    flow: &NewRow<'_>,
    (host, client): (i64, Option<&str>),
    now: i64,
) -> Result<()> {
    let NewRow { seq, row, refs, .. } = flow;
    let c = DerivedColumns::from_row(row);
    let request = row.request.as_ref();
    let id = row.id.to_u128().to_be_bytes();
    let chunks = chunk_refs::encode(*refs);
    let columns: [&dyn ToSql; COLUMN_COUNT] = [
        seq,
        &id,
        &(row.state as i64),
        &(row.kind as i64),
        &(row.started.micros() as i64),
        &c.duration,
        &number_of(&EntryKind::ALL, row.transport),
        &number_of(&Scheme::ALL, row.scheme),
        &host,
        &row.authority.port,
        &request.map(|r| r.method.as_str()),
        &request.map(|r| r.path.as_str()),
        &c.status,
        &request.map(|r| &*r.version),
        &row.user.as_deref(),
        &client,
        &&*row.client.listener,
        &c.request_size,
        &c.response_size,
        &c.request_type,
        &c.response_type,
        &(row.messages as i64),
        &row.error.as_ref().map(|e| &*e.kind),
        &c.tags,
        &now,
        &c.kept,
        &chunks,
    ];
    for (i, column) in columns.into_iter().enumerate() {
        to.raw_bind_parameter(before + i + 1, column)?;
    }
    Ok(())
}

/// Updates a flow's row. Returns the size of its details blob.
pub(crate) fn update(db: &Connection, flow: &NewRow<'_>) -> Result<usize> {
    let NewRow { seq, row, refs, inline } = flow;
    let c = DerivedColumns::from_row(row);
    db.prepare_cached(UPDATE)?.execute(params![
        seq,
        row.state as i64,
        row.kind as i64,
        c.duration,
        c.status,
        c.request_size,
        c.response_size,
        c.request_type,
        c.response_type,
        row.messages as i64,
        row.error.as_ref().map(|e| &*e.kind),
        c.tags,
        c.kept,
        chunk_refs::encode(*refs),
        row.user.as_deref(),
    ])?;
    let detail = details_blob::encode(row, *inline);
    db.prepare_cached("UPDATE details SET detail = ?2 WHERE seq = ?1")?.execute(params![seq, detail])?;
    Ok(detail.len())
}

/// The columns that are derived from several parts of a row.
pub(crate) struct DerivedColumns<'a> {
    pub(crate) duration: Option<i64>,
    pub(crate) status: Option<u16>,
    pub(crate) request_size: i64,
    pub(crate) response_size: i64,
    pub(crate) request_type: Option<Cow<'a, str>>,
    pub(crate) response_type: Option<Cow<'a, str>>,
    tags: Option<String>,
    pub(crate) kept: i64,
}

impl<'a> DerivedColumns<'a> {
    pub(crate) fn from_row(row: &'a FlowRecord) -> Self {
        let bodies: u64 = Direction::ALL.into_iter().filter_map(|d| row.body(d)).map(|body| body.kept).sum();
        let (sent, received) = row.sizes();
        Self {
            duration: row.duration().map(|d| d as i64),
            status: row.response.as_ref().map(|r| r.status),
            request_size: sent as i64,
            response_size: received as i64,
            request_type: row.request.as_ref().and_then(|r| media_essence(&r.headers)),
            response_type: row.response.as_ref().and_then(|r| media_essence(&r.headers)),
            // Each tag is enclosed by line ends, so that SQL can search for a whole tag.
            tags: (!row.tags.is_empty()).then(|| format!("\n{}\n", row.tags.join("\n"))),
            kept: (bodies + row.original.as_deref().map_or(0, OriginalRecord::stored_bytes)) as i64,
        }
    }
}

/// Reads the columns of [`COLUMNS`]. An error names the row, so that lists can skip it and count it.
pub(crate) fn read(r: &Row<'_>) -> Result<StoredFlow> {
    let text = |i: usize| -> Result<Option<String>> {
        Ok(match r.get_ref(i)? {
            // Text that is not UTF-8 is shown with replacement characters instead of making the row unreadable.
            ValueRef::Text(t) | ValueRef::Blob(t) => Some(String::from_utf8_lossy(t).into_owned()),
            _ => None,
        })
    };
    let seq: i64 = r.get(0)?;
    let damaged = |what: &str| StoreError::damaged(format!("row {seq}"), what);
    let id = FlowId::from_u128(u128::from_be_bytes(r.get(1)?));
    let started = Timestamp::from_micros(r.get::<_, i64>(4)? as u64);
    let transport = *EntryKind::ALL.get(r.get::<_, usize>(5)?).ok_or_else(|| damaged("unknown transport"))?;
    let scheme = *Scheme::ALL.get(r.get::<_, usize>(6)?).ok_or_else(|| damaged("unknown scheme"))?;
    let host = host(&text(7)?.unwrap_or_default()).ok_or_else(|| damaged("its host is none"))?;
    let mut row = FlowRecord::new(id, started, transport, scheme, Authority::new(host, r.get(8)?));
    row.state = state_of(r.get(2)?);
    row.kind = kind_of(r.get(3)?);
    row.request = text(9)?
        .map(|method| -> Result<RequestRecord> {
            Ok(RequestRecord {
                method,
                path: text(10)?.unwrap_or_default(),
                version: version(text(11)?.unwrap_or_default()),
                ..RequestRecord::default()
            })
        })
        .transpose()?;
    row.user = text(12)?.map(Into::into);
    row.client.listener = text(13)?.unwrap_or_default().into();
    row.messages = r.get::<_, i64>(14)? as u64;
    row.error = text(15)?.map(|kind| ErrorRecord { kind: kind.into(), ..ErrorRecord::default() });
    row.tags =
        text(16)?.map(|t| t.split('\n').filter(|t| !t.is_empty()).map(str::to_owned).collect()).unwrap_or_default();
    let refs = chunk_refs::decode(r.get_ref(17)?.as_blob_or_null().map_err(rusqlite::Error::from)?)?;
    let inline = details_blob::decode(r.get_ref(18)?.as_blob().map_err(rusqlite::Error::from)?, &mut row)?;
    Ok(StoredFlow { row, position: seq, refs, inline })
}

/// All rows that a statement finds.
pub(crate) fn query_all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    db.prepare_cached(sql)?.query_and_then(params, read)?.collect()
}

/// A flow by its id; without the index by id where that is damaged.
pub(crate) fn get(db: &Connection, id: FlowId) -> Result<StoredFlow> {
    let get = |condition: &str| {
        let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {SOURCES} WHERE {condition}"))?;
        let mut rows = statement.query([id.to_u128().to_be_bytes()])?;
        if let Some(r) = rows.next()? { read(r) } else { Err(StoreError::NotFound(id)) }
    };
    match get("f.id = ?") {
        Err(e) if e.is_damage() => get("f.seq = (SELECT seq FROM flows NOT INDEXED WHERE id = ?)"),
        found => found,
    }
}

/// A host as stored in `hosts`: IPv6 addresses without brackets.
pub fn host(name: &str) -> Option<Host> {
    if let Ok(ip) = name.parse() { Some(Host::Ip(ip)) } else { Host::parse(name).ok() }
}

pub fn version(text: String) -> StaticLabel {
    // The usual versions need no allocation.
    let usual = ["HTTP/1.1", "HTTP/2", "HTTP/1.0"].into_iter().find(|usual| text == *usual);
    usual.map_or(Cow::Owned(text), Cow::Borrowed)
}

pub const fn state_of(number: i64) -> FlowState {
    match number {
        0 => FlowState::Open,
        1 => FlowState::Complete,
        2 => FlowState::Failed,
        // Unknown numbers are read as the state that claims least.
        _ => FlowState::Cut,
    }
}

pub const fn kind_of(number: i64) -> FlowKind {
    match number {
        0 => FlowKind::Http,
        1 => FlowKind::WebSocket,
        _ => FlowKind::Tunnel,
    }
}

/// Enums are stored as their index in the published list.
pub(crate) fn number_of<T: PartialEq>(all: &[T], value: T) -> i64 {
    all.iter().position(|v| *v == value).unwrap_or_default() as i64
}
