//! The embedded store as the spool of the shared one: what waits to be moved, and its removal afterwards.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use interflow_query::Query;
use interflow_types::Timestamp;

use super::rows;
use super::select::{self, ListOptions};
use super::sqlite_store::SqliteStore;
use super::store_state::{ReplyReceiver, WriterCommand};
use crate::error::Result;
use crate::model::{FlowRecord, MessageRecord};
use crate::shared::database::copy_format::CopyRows;
use crate::shared::reading::running::RunningFlow;
use crate::shared::shipping::spooled_flow::{MORE_COLUMNS, SpooledFlow};
use crate::store::segments::batch_chunks::BatchChunks;
use crate::store::segments::body::{ChunkReader, SegmentFiles};
use crate::store::segments::chunk_refs::ChunkRef;
use crate::store::segments::messages;
use crate::store::segments_dir;

/// Bytes that a flow takes beside its bodies, for the bound of the spool.
const ROW_WEIGHT: i64 = 1024;

/// With less space than this, the bound counts as reached: a disk that is full records nothing at all.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Finished flows that wait for the shared store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpoolTotals {
    pub(crate) flows: u64,
    pub(crate) bytes: u64,
    /// When the oldest of them was stored, in microseconds since the Unix epoch.
    pub(crate) oldest: Option<u64>,
}

impl SqliteStore {
    /// Finished flows with higher row numbers, in the order of recording, and the last row number read.
    pub(crate) fn finished_after(&self, after: i64, limit: usize) -> Result<(Vec<SpooledFlow>, Option<i64>)> {
        self.finished_between(after, i64::MAX, limit)
    }

    /// Reads a batch of finished flows again, without those that were deleted meanwhile.
    pub(crate) fn reread(&self, batch: &[SpooledFlow]) -> Result<Vec<SpooledFlow>> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(Vec::new()) };
        let (mut flows, _) = self.finished_between(first.seq - 1, last.seq, usize::MAX)?;
        let seqs: HashSet<i64> = batch.iter().map(|flow| flow.seq).collect();
        flows.retain(|flow| seqs.contains(&flow.seq));
        Ok(flows)
    }

    fn finished_between(&self, after: i64, last: i64, limit: usize) -> Result<(Vec<SpooledFlow>, Option<i64>)> {
        self.read(|db| {
            // The plus sign keeps SQLite from using the index of open flows for the opposite.
            let sql = format!(
                "SELECT {}, {MORE_COLUMNS} FROM {} WHERE f.seq > ? AND f.seq <= ? AND +f.state <> 0 ORDER BY f.seq LIMIT ?",
                rows::COLUMNS,
                rows::SOURCES
            );
            let mut statement = db.prepare_cached(&sql)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = statement.query(rusqlite::params![after, last, limit])?;
            let (mut flows, mut last) = (Vec::new(), None);
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                last = Some(seq);
                flows.extend(self.damages().skip_damaged(seq, SpooledFlow::read(db, row))?);
            }
            Ok((flows, last))
        })
    }

    /// Flows in progress that began before a time, those that have run for longest first, as they are published for other
    /// replicas under the name `replica`; and those of `published`, by their rows, that have ended and are still here.
    pub(crate) fn running_flows(
        &self,
        before: Timestamp,
        published: &[i64],
        limit: usize,
        replica: &str,
    ) -> Result<(Vec<RunningFlow>, HashSet<i64>)> {
        self.read(|db| {
            let sql = format!(
                "SELECT {}, {MORE_COLUMNS} FROM {} WHERE f.state = 0 AND f.started <= ? ORDER BY f.seq LIMIT ?",
                rows::COLUMNS,
                rows::SOURCES
            );
            let mut statement = db.prepare_cached(&sql)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let before = i64::try_from(before.micros()).unwrap_or(i64::MAX);
            let mut rows = statement.query(rusqlite::params![before, limit])?;
            let mut running = Vec::new();
            while let Some(row) = rows.next()? {
                let seq = row.get(0)?;
                if let Some(flow) = self.damages().skip_damaged(seq, SpooledFlow::read(db, row))? {
                    let mut row = CopyRows::with_capacity(1024);
                    flow.write_head(&mut row, replica)?;
                    running.push(RunningFlow { id: flow.uuid(), seq, row });
                }
            }
            // Afterwards, so that one that ends meanwhile is in either.
            let mut is_ended = db.prepare_cached("SELECT 1 FROM flows WHERE seq = ? AND +state <> 0")?;
            let open: HashSet<i64> = running.iter().map(|flow| flow.seq).collect();
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
    pub(crate) fn has_open_flows(&self) -> bool {
        self.shared().is_ok_and(|s| s.open_flows.load(SeqCst) > 0)
    }

    /// Calls `each` for every flow that a query selects, the newest first, without collecting them.
    pub(crate) fn for_each_selected(
        &self,
        query: &Query,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(FlowRecord) -> ControlFlow<()>,
    ) -> Result<()> {
        let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        self.read(|db| {
            select::for_each_match((db, self.dir(), self.damages()), &all, watch, &mut |stored| each(stored.row))
        })
    }

    /// When the first of its flows began.
    pub(crate) fn oldest_start(&self) -> Result<Option<u64>> {
        let oldest: Option<i64> =
            self.read(|db| Ok(db.query_row("SELECT min(started) FROM flows", [], |r| r.get(0))?))?;
        Ok(oldest.map(i64::unsigned_abs))
    }

    /// The highest row number of a finished flow.
    pub(crate) fn newest_finished(&self) -> Result<Option<i64>> {
        self.read(|db| Ok(db.query_row("SELECT max(seq) FROM flows WHERE +state <> 0", [], |r| r.get(0))?))
    }

    /// The highest row number of any flow.
    pub(crate) fn newest_row(&self) -> Result<Option<i64>> {
        self.read(|db| Ok(db.query_row("SELECT max(seq) FROM flows", [], |r| r.get(0))?))
    }

    /// Reads chunks of many bodies; `chunks` has each as often as it is read.
    pub(crate) fn batch_chunks<'a>(&self, chunks: impl Iterator<Item = &'a ChunkRef>) -> Result<BatchChunks> {
        BatchChunks::new(self.connection()?, segments_dir(self.dir()), chunks.map(|chunk| chunk.id))
    }

    /// Messages of the flow in a row.
    pub(crate) fn stored_messages(&self, seq: i64, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        self.read(|db| {
            let (dir, mut files) = (segments_dir(self.dir()), SegmentFiles::default());
            messages::read(db, &mut ChunkReader::new(db, &dir, &mut files), seq, range)
        })
    }

    /// Begins to remove flows that are in the shared store now, by their rows in ascending order. What conversations know
    /// of them stays.
    pub(crate) fn start_release(&self, rows: Vec<i64>) -> Result<ReplyReceiver<u64>> {
        self.shared()?.start_command(|reply| WriterCommand::Release(rows, reply))
    }

    /// Begins to free the disk space of what was removed.
    pub(crate) fn start_collection(&self) -> Result<()> {
        self.shared()?.start_command(WriterCommand::Collect).map(drop)
    }

    pub(crate) fn spool_totals(&self) -> Result<SpoolTotals> {
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

    /// Whether the disk has next to no room, and would have some if it were not for this many bytes that wait.
    pub(crate) fn is_disk_nearly_full(&self, waiting: u64) -> bool {
        waiting > MIN_FREE_BYTES && fs4::available_space(self.dir()).is_ok_and(|free| free < MIN_FREE_BYTES)
    }

    /// Applies the policy for overflow to new flows, or ends that.
    pub(crate) fn apply_spool_full(&self, on: bool) {
        if let Ok(shared) = self.shared() {
            shared.queue.apply_spool_full(on);
        }
    }

    /// Flows recorded to their end since the start: tells whether there may be something new.
    pub(crate) fn recorded_flows(&self) -> u64 {
        self.shared().map_or(0, |s| s.recorded_flows.load(Relaxed))
    }

    /// Counts flows that retention deleted from the shared store.
    pub(crate) fn add_expired(&self, flows: u64) {
        if let Ok(shared) = self.shared() {
            shared.expired_flows.fetch_add(flows, Relaxed);
        }
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        self.shared().is_ok_and(|s| s.feeds.has_subscribers())
    }

    /// Sends flows of other replicas to the subscribers; `None` says that some were left out.
    pub(crate) fn publish(&self, rows: Option<&[FlowRecord]>) {
        let Ok(shared) = self.shared() else { return };
        match rows {
            Some(rows) => shared.feeds.publish(rows),
            None => shared.feeds.publish_gap(),
        }
    }
}
