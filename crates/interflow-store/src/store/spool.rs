//! The embedded store as the spool of the shared one: what waits to be moved, and its removal afterwards.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use interflow_query::Query;
use interflow_types::{FlowId, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::rows::{self, COLUMNS, SOURCES};
use super::select::{self, ListOptions};
use super::sqlite_store::SqliteStore;
use super::store_state::WriterCommand;
use crate::error::Result;
use crate::model::{FlowRecord, FlowState, MessageRecord, signed};
use crate::store::segments::batch_chunks::BatchChunks;
use crate::store::segments::body::{ChunkReader, SegmentFiles, StoredBodyParts};
use crate::store::segments::chunk_refs::{ChunkRef, SIDES};
use crate::store::segments::{chunk_refs, messages};
use crate::store::{details_blob, segments_dir};
use crate::stored_flow::Watch;

/// Bytes that a flow takes beside its bodies, for the bound of the spool.
const ROW_WEIGHT: i64 = 1024;

/// With less space than this, the bound counts as reached: a disk that is full records nothing at all.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Finished flows that wait for the shared store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolTotals {
    pub flows: u64,
    pub bytes: u64,
    /// When the oldest of them was stored, in microseconds since the Unix epoch.
    pub oldest: Option<u64>,
}

/// The columns of [`SpooledRow`], after [`rows::COLUMNS`].
const MORE_COLUMNS: &str =
    "f.duration, f.status, f.client, f.request_size, f.response_size, f.request_type, f.response_type, f.kept";

/// A flow in the spool, column by column, for another store to take over. Its details are handed over as they are, without
/// being read: both stores have the same encoding of them.
pub struct SpooledRow<'r> {
    pub seq: i64,
    pub id: FlowId,
    pub state: i16,
    pub kind: i16,
    pub started: i64,
    pub duration: Option<i64>,
    pub transport: i16,
    pub scheme: i16,
    pub host: Cow<'r, str>,
    pub port: u16,
    pub method: Option<Cow<'r, str>>,
    pub path: Option<Cow<'r, str>>,
    pub version: Option<Cow<'r, str>>,
    pub status: Option<i64>,
    pub user: Option<Cow<'r, str>>,
    pub client: Option<Cow<'r, str>>,
    pub listener: Cow<'r, str>,
    pub request_size: i64,
    pub response_size: i64,
    pub request_type: Option<Cow<'r, str>>,
    pub response_type: Option<Cow<'r, str>>,
    pub messages: u64,
    pub error: Option<Cow<'r, str>>,
    /// One per line.
    pub tags: Cow<'r, str>,
    /// Bytes of its bodies that are stored.
    pub stored_bytes: i64,
    pub chunks: [Vec<ChunkRef>; SIDES],
    /// As `details_blob` encodes them.
    pub detail: Vec<u8>,
}

/// Makes of a row what the other store needs.
pub type ReadSpooledFn<'a, T> = &'a dyn Fn(SpooledRow<'_>) -> Result<T>;

impl<'r> SpooledRow<'r> {
    fn read(db: &Connection, r: &'r Row<'_>) -> Result<Self> {
        let blob = |i: usize| r.get_ref(i)?.as_blob_or_null().map_err(rusqlite::Error::from);
        let mut detail = blob(18)?.unwrap_or_default().to_vec();
        if r.get::<_, i64>(2)? == FlowState::Cut as i64 {
            let cut = rows::read(r)?;
            // What a running flow saved is still in its place if the process was killed.
            let sides: [_; SIDES] = std::array::from_fn(|side| StoredBodyParts::for_side(db, &cut, side));
            let mut ends: [Bytes; SIDES] = Default::default();
            for (end, side) in ends.iter_mut().zip(sides) {
                *end = side?.tail;
            }
            detail = details_blob::encode(&cut.row, ends.each_ref().map(|end| &end[..]));
        }
        Ok(Self {
            seq: r.get(0)?,
            id: FlowId::from_u128(u128::from_be_bytes(r.get(1)?)),
            state: r.get(2)?,
            kind: r.get(3)?,
            started: r.get(4)?,
            duration: r.get(19)?,
            transport: r.get(5)?,
            scheme: r.get(6)?,
            host: text(r, 7)?.unwrap_or_default(),
            port: r.get(8)?,
            method: text(r, 9)?,
            path: text(r, 10)?,
            version: text(r, 11)?,
            status: r.get(20)?,
            user: text(r, 12)?,
            client: text(r, 21)?,
            listener: text(r, 13)?.unwrap_or_default(),
            request_size: r.get(22)?,
            response_size: r.get(23)?,
            request_type: text(r, 24)?,
            response_type: text(r, 25)?,
            messages: r.get(14)?,
            error: text(r, 15)?,
            tags: text(r, 16)?.unwrap_or_default(),
            stored_bytes: r.get(26)?,
            chunks: chunk_refs::decode(blob(17)?)?,
            detail,
        })
    }
}

/// A text of a row. Bytes that are no UTF-8 become replacement characters, as wherever the row is read.
fn text<'r>(r: &'r Row<'_>, column: usize) -> Result<Option<Cow<'r, str>>> {
    Ok(match r.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes)),
        _ => None,
    })
}

impl SqliteStore {
    /// Finished flows with higher row numbers, in the order of recording, and the last row number read. Damaged ones are left
    /// out.
    ///
    /// # Errors
    /// A database error, here and below.
    pub fn finished_after<T>(
        &self,
        after: i64,
        limit: usize,
        read: ReadSpooledFn<'_, T>,
    ) -> Result<(Vec<T>, Option<i64>)> {
        let mut last = None;
        let mut every = |seq| {
            last = Some(seq);
            true
        };
        let flows = self.finished_between((after, i64::MAX), limit, &mut every, read)?;
        Ok((flows, last))
    }

    /// Reads finished flows again by their row numbers, without those that were deleted meanwhile.
    pub fn finished_of<T>(&self, seqs: &BTreeSet<i64>, read: ReadSpooledFn<'_, T>) -> Result<Vec<T>> {
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { return Ok(Vec::new()) };
        self.finished_between((first - 1, *last), usize::MAX, &mut |seq| seqs.contains(&seq), read)
    }

    fn finished_between<T>(
        &self,
        (after, last): (i64, i64),
        limit: usize,
        selects: &mut dyn FnMut(i64) -> bool,
        read: ReadSpooledFn<'_, T>,
    ) -> Result<Vec<T>> {
        self.read(|db| {
            // The plus sign keeps SQLite from using the index of open flows for the opposite.
            let sql = format!(
                "SELECT {COLUMNS}, {MORE_COLUMNS} FROM {SOURCES} WHERE f.seq > ? AND f.seq <= ? AND +f.state <> 0 \
                 ORDER BY f.seq LIMIT ?"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params![after, last, signed(limit)])?;
            let mut flows = Vec::new();
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                if selects(seq) {
                    flows.extend(self.damages().skip_damaged(seq, SpooledRow::read(db, row).and_then(read))?);
                }
            }
            Ok(flows)
        })
    }

    /// Flows in progress that began before a time, those that have run for longest first; and those of `published`, by their
    /// rows, that have ended and are still here.
    pub fn running_flows<T>(
        &self,
        before: Timestamp,
        published: &[i64],
        limit: usize,
        read: ReadSpooledFn<'_, T>,
    ) -> Result<(Vec<T>, HashSet<i64>)> {
        self.read(|db| {
            let sql = format!(
                "SELECT {COLUMNS}, {MORE_COLUMNS} FROM {SOURCES} WHERE f.state = 0 AND f.started <= ? ORDER BY f.seq LIMIT ?"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params![signed(before.micros()), signed(limit)])?;
            let (mut running, mut open) = (Vec::new(), HashSet::new());
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                if let Some(flow) = self.damages().skip_damaged(seq, SpooledRow::read(db, row).and_then(read))? {
                    running.push(flow);
                    open.insert(seq);
                }
            }
            // Afterwards, so that one that ends meanwhile is in either.
            let mut is_ended = db.prepare_cached("SELECT 1 FROM flows WHERE seq = ? AND +state <> 0")?;
            let mut ended = HashSet::new();
            for seq in published.iter().filter(|seq| !open.contains(seq)) {
                if is_ended.exists([seq])? {
                    ended.insert(*seq);
                }
            }
            Ok((running, ended))
        })
    }

    /// Whether any flow is in progress.
    pub fn has_open_flows(&self) -> bool {
        self.shared().is_ok_and(|s| s.open_flows.load(SeqCst) > 0)
    }

    /// Calls `each` for every flow that a query selects, the newest first, without collecting them.
    pub fn for_each_selected(
        &self,
        query: &Query,
        watch: &mut Watch<'_>,
        each: &mut dyn FnMut(FlowRecord) -> ControlFlow<()>,
    ) -> Result<()> {
        let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        self.read(|db| {
            select::for_each_match((db, self.dir(), self.damages()), &all, watch, &mut |stored| each(stored.row))
        })
    }

    /// When the first of its flows began.
    pub fn oldest_start(&self) -> Result<Option<u64>> {
        let oldest: Option<i64> =
            self.read(|db| Ok(db.query_row("SELECT min(started) FROM flows", [], |r| r.get(0))?))?;
        Ok(oldest.map(i64::unsigned_abs))
    }

    /// The highest row number of a finished flow.
    pub fn newest_finished(&self) -> Result<Option<i64>> {
        self.read(|db| Ok(db.query_row("SELECT max(seq) FROM flows WHERE +state <> 0", [], |r| r.get(0))?))
    }

    /// The highest row number of any flow.
    pub fn newest_row(&self) -> Result<Option<i64>> {
        self.read(|db| Ok(db.query_row("SELECT max(seq) FROM flows", [], |r| r.get(0))?))
    }

    /// Reads chunks of many bodies; `chunks` has each as often as it is read.
    pub fn batch_chunks<'a>(&self, chunks: impl Iterator<Item = &'a ChunkRef>) -> Result<BatchChunks> {
        BatchChunks::new(self.connection()?, segments_dir(self.dir()), chunks.map(|chunk| chunk.id))
    }

    /// Messages of the flow in a row.
    pub fn stored_messages(&self, seq: i64, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        self.read(|db| {
            let (dir, mut files) = (segments_dir(self.dir()), SegmentFiles::default());
            messages::read(db, &mut ChunkReader { db, dir: &dir, files: &mut files }, seq, range)
        })
    }

    /// Begins to remove flows that are in the shared store now, by their rows in ascending order. What conversations know
    /// of them stays.
    pub fn start_release(&self, rows: Vec<i64>) -> Result<Receiver<Result<u64>>> {
        self.shared()?.start_command(|reply| WriterCommand::Release(rows, reply))
    }

    /// Begins to free the disk space of what was removed.
    pub fn start_collection(&self) -> Result<()> {
        self.shared()?.start_command(WriterCommand::Collect).map(drop)
    }

    pub fn spool_totals(&self) -> Result<SpoolTotals> {
        self.read(|db| {
            let sql = "SELECT count(*), coalesce(sum(kept + ?), 0), min(stored) FROM flows WHERE state <> 0";
            let number = |n: i64| n.unsigned_abs();
            Ok(db.query_row(sql, [ROW_WEIGHT], |r| {
                Ok(SpoolTotals {
                    flows: number(r.get(0)?),
                    bytes: number(r.get(1)?),
                    oldest: r.get::<_, Option<i64>>(2)?.map(number),
                })
            })?)
        })
    }

    /// Whether the disk is nearly full, and would not be if it were not for this many bytes that wait.
    pub fn is_disk_nearly_full(&self, waiting: u64) -> bool {
        waiting > MIN_FREE_BYTES && fs4::available_space(self.dir()).is_ok_and(|free| free < MIN_FREE_BYTES)
    }

    /// Applies the policy for overflow to new flows, or ends that.
    pub fn apply_spool_full(&self, on: bool) {
        if let Ok(shared) = self.shared() {
            shared.queue.apply_spool_full(on);
        }
    }

    /// Flows recorded to their end since the start: tells whether there may be something new.
    pub fn recorded_flows(&self) -> u64 {
        self.shared().map_or(0, |s| s.recorded_flows.load(Relaxed))
    }

    /// Counts flows that retention deleted from the shared store.
    pub fn add_expired(&self, flows: u64) {
        if let Ok(shared) = self.shared() {
            shared.expired_flows.fetch_add(flows, Relaxed);
        }
    }

    pub fn has_subscribers(&self) -> bool {
        self.shared().is_ok_and(|s| s.feeds.has_subscribers())
    }

    /// Sends flows of other replicas to the subscribers; `None` says that some were left out.
    pub fn publish(&self, rows: Option<&[FlowRecord]>) {
        let Ok(shared) = self.shared() else { return };
        if let Some(rows) = rows { shared.feeds.publish(rows) } else { shared.feeds.publish_gap() }
    }
}
