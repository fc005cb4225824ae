//! The writer thread: takes updates from the queue and writes them in batches, segments first, rows after.
//!
//! The order is what makes a store consistent after a crash. A batch's segment bytes are handed to the file system
//! before the transaction with the rows that name them is committed, and are synced before that transaction's pages
//! leave the write-ahead log. A killed process therefore loses at most the last batch; after a power failure the newest
//! segment may be shorter than the rows say, which recovery detects.
//!
//! All state that a batch changes in memory can be reverted, because any statement may fail on a full disk. While the
//! disk refuses writes, updates are counted and discarded so that the queue drains and traffic goes on.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_types::{FlowId, StreamMessage};
use rusqlite::{Connection, OptionalExtension};

use crate::config::RecordConfig;
use crate::error::Result;
use crate::model::{FlowRecord, FlowState, MissingReason};
use crate::store::overview::columns;
use crate::store::recording::header_masking::MaskRules;
use crate::store::recording::in_flight::{self, InFlightFlow};
use crate::store::recording::pending_flow::{FlowEnd, PendingFlow, PendingUpdates};
use crate::store::recording::write_batch::WriteBatch;
use crate::store::rows::HostIds;
use crate::store::segments::body_assembly::{BodyAssembly, ChunkSink};
use crate::store::segments::chunk_refs::{CERTIFICATES, SIDES};
use crate::store::segments::chunks::ChunkWriter;
use crate::store::segments::segment::SegmentAppender;
use crate::store::segments::{messages, segment};
use crate::store::store_state::{StoreState, WriterCommand};
use crate::store::upkeep::age_clock::AgeClock;
use crate::store::upkeep::checkpoint::CheckpointNeed;
use crate::store::upkeep::disk_reserve::DiskReserve;
use crate::store::upkeep::garbage::GarbageMark;
use crate::store::upkeep::garbage_collector::GarbageCollector;
use crate::store::upkeep::size_shares;
use crate::store::{rows, schema};

/// How long updates are collected before they are written.
const GATHER_INTERVAL: Duration = Duration::from_millis(20);
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// The longest sleep, which is also the interval of retention checks.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
const BATCH_BYTES: usize = 4 << 20;
const BATCH_FLOWS: usize = 512;
/// Rows of ended flows are inserted once a batch has collected this many.
pub(crate) const ROWS_AT_ONCE: usize = 4 * rows::ROWS_PER_INSERT;
/// Log bytes per commit beside its rows: pages are written whole.
const COMMIT_BYTES: usize = 36 << 10;
/// Log bytes per flow beside its details: its columns and its entries in two indexes.
const ROW_BYTES: usize = 224;
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The ends of a flow's bodies that are not part of a chunk.
type InlineTails = [Bytes; SIDES];

/// The state of the writer thread. Nothing here is shared; other threads see `shared` only.
pub(crate) struct StoreWriter {
    pub(crate) dir: PathBuf,
    pub(crate) shared: Arc<StoreState>,
    pub(crate) db: Connection,
    pub(crate) segments: SegmentAppender,
    pub(crate) chunks: ChunkWriter,
    pub(crate) config: RecordConfig,
    /// The configuration that `config` and `mask` were made from.
    pub(crate) applied: Arc<RecordConfig>,
    pub(crate) hosts: HostIds,
    pub(crate) mask: MaskRules,
    pub(crate) open: HashMap<FlowId, Box<InFlightFlow>>,
    next_seq: i64,
    /// Rows from here on are in no stored block of columns: see `overview`.
    pub(crate) columns_end: i64,
    /// Transaction counter: identifies what belongs to the open one.
    pub(crate) generation: u64,
    pub(crate) keeper: GarbageCollector,
    pub(crate) age_clock: AgeClock,
    pub(crate) garbage: GarbageMark,
    swept: Instant,
    checkpointed: Instant,
    /// Whether the log file has not been truncated since the last checkpoint.
    uncut: bool,
    pub(crate) logged: usize,
    pub(crate) refused: Option<Instant>,
    /// Disk space reserved for deletions when the disk is full.
    pub(crate) reserve: DiskReserve,
    /// Deleted segments that chunks in the index still refer to.
    pub(crate) freed: HashSet<u64>,
    /// Bytes of all segment files except the newest.
    pub(crate) closed_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepMode {
    No,
    /// Those that have run for a while.
    Due,
    All,
}

impl StoreWriter {
    pub(crate) fn new(
        dir: PathBuf,
        shared: Arc<StoreState>,
        db: Connection,
        segments: SegmentAppender,
        mut config: RecordConfig,
    ) -> Result<Self> {
        let chunks = ChunkWriter::open(&db, config.compress)?;
        let last: Option<i64> = db.query_row("SELECT max(seq) FROM flows", [], |r| r.get(0))?;
        let columns_end = columns::columns_end(&db)?;
        // Row numbers continue after the highest that is left; they only need to grow.
        let next_seq = last.unwrap_or(0) + 1;
        let applied = Arc::new(config.clone());
        config.segment_bytes.0 = size_shares::segment_bytes(&config);
        size_shares::limit_log(&db, &config)?;
        let files = segment::list(&crate::store::segments_dir(&dir))?;
        let newest_flow = "SELECT stored FROM flows ORDER BY seq DESC LIMIT 1";
        let newest_flow = db.query_row(newest_flow, [], |r| r.get(0)).optional()?;
        let closed_bytes = files.iter().filter(|(n, _)| *n != segments.segment()).map(|(_, size)| size).sum();
        Ok(Self {
            mask: MaskRules::new(&config.mask_headers, &config.mask_query),
            keeper: GarbageCollector::new(),
            age_clock: AgeClock::open(&dir, newest_flow),
            garbage: GarbageMark::read(&db)?,
            hosts: HostIds::default(),
            open: HashMap::new(),
            generation: 1,
            swept: Instant::now(),
            checkpointed: Instant::now(),
            uncut: false,
            logged: 0,
            refused: None,
            reserve: DiskReserve::for_store(&dir),
            freed: HashSet::new(),
            closed_bytes,
            dir,
            shared,
            db,
            segments,
            chunks,
            config,
            applied,
            next_seq,
            columns_end,
        })
    }

    /// Runs until the store is closed, then writes everything recorded before; returns whether that succeeded.
    pub(crate) fn run(mut self) -> bool {
        self.shared.queue.adopt_writer();
        self.resume_collection();
        loop {
            // Read before the round, not after: everything recorded before the store was closed is then drained by this
            // round.
            let closing = self.shared.closing.load(SeqCst);
            if !closing {
                self.wait_for_work();
            }
            self.run_round();
            if closing {
                break;
            }
        }
        self.shared.queue.close();
        // Updates pushed while the queue was being closed.
        self.run_round();
        self.mark_open_as_cut();
        self.shared.fail_commands();
        self.refused.is_none() && self.checkpoint().is_ok()
    }

    /// Sleeps until there is work, then lets updates accumulate.
    fn wait_for_work(&self) {
        let queue = &self.shared.queue;
        // A running collection takes one step per round, without sleeping in between.
        let longest = if self.keeper.is_busy() {
            Duration::ZERO
        } else if !self.open.is_empty() {
            // Running flows may have updates that did not queue them, so they are swept at intervals.
            SWEEP_INTERVAL.saturating_sub(self.swept.elapsed())
        } else if self.refused.is_some() {
            RETRY
        } else {
            IDLE_INTERVAL
        };
        if !longest.is_zero() {
            queue.sleep(longest);
        }
        // A short wait after the first update makes batches: one commit for many short flows.
        if !queue.is_urgent() && !self.keeper.is_busy() {
            std::thread::park_timeout(GATHER_INTERVAL);
        }
    }

    /// Writes pending updates, runs commands, and does one step of maintenance.
    fn run_round(&mut self) {
        // Commands are taken first: updates recorded before a command was sent are then drained after it was taken.
        self.shared.queue.clear_urgent();
        let jobs = self.shared.take_commands();
        let all = self.shared.closing.load(SeqCst) || jobs.iter().any(|j| matches!(j, WriterCommand::Flush(_)));
        let mut slots = self.shared.queue.drain();
        // After the updates were taken: what was recorded under a new configuration is never written under the old one.
        self.apply_config();
        let mut remaining = slots.len();
        let sweep = match all {
            true => SweepMode::All,
            false if self.swept.elapsed() >= SWEEP_INTERVAL => SweepMode::Due,
            false => SweepMode::No,
        };
        if sweep != SweepMode::No {
            self.swept = Instant::now();
        }
        // If flows are waiting for capacity, unqueued updates of running flows must be written too.
        if sweep != SweepMode::No || self.shared.queue.is_behind() {
            self.sweep(&mut slots);
        }
        let mut slots = slots.into_iter().peekable();
        loop {
            let part: Vec<_> = slots.by_ref().take(BATCH_FLOWS).collect();
            let last = slots.peek().is_none();
            let counted = part.len().min(remaining);
            // Flows added by the sweep were never counted by the queue and must not be subtracted from it.
            remaining -= counted;
            // Running flows are saved once per round, with the last part.
            self.batch(part, counted, if last { sweep } else { SweepMode::No });
            if last {
                break;
            }
        }
        // After the updates, so that a flush covers what was recorded before it.
        jobs.into_iter().for_each(|job| self.run_command(job));
        self.upkeep();
        self.shared.note_writer(self.open.len(), self.segments.segment());
    }

    /// Takes the updates of running flows that are not queued.
    fn sweep(&self, slots: &mut Vec<Arc<PendingFlow>>) {
        for flow in self.open.values() {
            let Some(slot) = &flow.slot else { continue };
            let mut updates = slot.updates.lock();
            if !updates.queued && !updates.is_empty() {
                updates.queued = true;
                slots.push(slot.clone());
            }
        }
    }

    /// Writes one batch, or discards it as a whole.
    fn batch(&mut self, slots: Vec<Arc<PendingFlow>>, counted: usize, sweep: SweepMode) {
        let mut batch = WriteBatch { flows: counted, ..WriteBatch::default() };
        if slots.is_empty() && !(sweep != SweepMode::No && self.open.values().any(|f| f.dirty)) {
            return;
        }
        if self.refused.is_some() {
            self.discard(slots, &mut batch);
        } else if let Err(e) = self.write(slots, sweep, &mut batch) {
            self.handle_disk_error(&e, &mut batch);
        }
        // In every case, written or discarded: a charge that stays would block the queue for ever.
        self.shared.queue.release_charge(batch.charge, batch.flows);
        // After the commit, so that a subscriber that reads the store finds what it was notified about.
        self.shared.feeds.notify(batch.told);
    }

    fn write(&mut self, slots: Vec<Arc<PendingFlow>>, sweep: SweepMode, batch: &mut WriteBatch) -> Result<()> {
        let mut slots = slots.into_iter();
        let done = self.write_parts(&mut slots, sweep, batch);
        if done.is_err() {
            // The unprocessed rest is discarded with the batch, so that nothing stays charged.
            self.discard(slots.collect(), batch);
        }
        done
    }

    fn write_parts(
        &mut self,
        slots: &mut std::vec::IntoIter<Arc<PendingFlow>>,
        sweep: SweepMode,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        self.begin()?;
        let mut in_part = 0;
        for slot in slots {
            let before = batch.charge;
            self.take_updates(&slot, batch)?;
            if batch.unwritten >= ROWS_AT_ONCE {
                self.insert_finished(batch)?;
            }
            // A batch of large bodies is committed in parts, which bounds the transaction's log and the segment bytes
            // that a failure would discard.
            in_part += batch.charge - before;
            if in_part >= BATCH_BYTES {
                in_part = 0;
                self.finish_batch(batch)?;
                self.begin()?;
            }
        }
        if sweep != SweepMode::No {
            self.save_open(sweep == SweepMode::All, batch)?;
        }
        self.finish_batch(batch)
    }

    /// Commits, and releases ended flows.
    fn finish_batch(&mut self, batch: &mut WriteBatch) -> Result<()> {
        self.insert_finished(batch)?;
        self.commit()?;
        self.shared.recorded_flows.fetch_add(batch.finished.len() as u64, Relaxed);
        batch.finished.clear();
        batch.withheld.clear();
        batch.written = 0;
        Ok(())
    }

    /// Inserts the rows of a batch's ended flows, several per statement.
    pub(crate) fn insert_finished(&mut self, batch: &mut WriteBatch) -> Result<()> {
        // One INSERT for several rows makes short flows cheap. Running flows have rows, which are updated instead.
        let finished = &mut batch.finished[batch.written..];
        let new: Vec<_> = finished.iter().filter_map(|f| Some(f.as_new(f.ends.as_ref()?))).collect();
        self.logged += rows::insert(&self.db, &mut self.hosts, &new)?;
        // Only flows that were waiting for their row are marked; the others were when they were updated.
        for flow in finished {
            if flow.ends.take().is_some() {
                self.mark_stored(flow);
                self.forget_columns(flow.seq)?;
            }
        }
        (batch.written, batch.unwritten) = (batch.finished.len(), 0);
        Ok(())
    }

    /// Marks the flow's row as written in this transaction.
    fn mark_stored(&mut self, flow: &mut InFlightFlow) {
        flow.touched = self.generation;
        flow.stored.get_or_insert(self.generation);
        flow.dirty = false;
        self.logged += ROW_BYTES;
    }

    pub(crate) fn begin(&self) -> Result<()> {
        // IMMEDIATE takes the write lock now: a lock that is needed later could fail in the middle of a batch.
        Ok(self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)?)
    }

    pub(crate) fn commit(&mut self) -> Result<()> {
        // Before COMMIT: see the module.
        self.segments.flush()?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        self.logged += COMMIT_BYTES;
        // Only now do chunk numbers and the segment's new length count as existing.
        self.segments.commit();
        self.chunks.commit();
        self.generation += 1;
        // Only between transactions, so that no batch is spread over two files.
        if self.segments.len() >= self.config.segment_bytes.0 {
            self.roll()?;
        }
        Ok(())
    }

    /// Closes the newest segment and starts another one.
    pub(crate) fn roll(&mut self) -> Result<()> {
        let closed = self.segments.len();
        self.segments.roll()?;
        self.closed_bytes += closed;
        Ok(())
    }

    fn take_updates(&mut self, slot: &Arc<PendingFlow>, batch: &mut WriteBatch) -> Result<()> {
        let mut updates = {
            let mut updates = slot.updates.lock();
            // Cleared under the lock, so that an update from now on queues the flow again.
            updates.queued = false;
            updates.take()
        };
        batch.charge += updates.charge;
        let mut flow = match (self.open.remove(&slot.id), updates.begin.take()) {
            (Some(flow), _) => flow,
            (None, Some(begin)) => {
                let row = in_flight::row_of(slot, begin, &self.mask);
                let seq = self.seq();
                InFlightFlow::begin(Some(slot.clone()), row, seq)
            }
            // Its start was discarded when the disk refused writes.
            (None, None) => return Ok(()),
        };
        flow.touched = self.generation;
        let over = updates.end.is_some();
        let applied = self.apply_updates(&mut flow, &mut updates).and_then(|()| match &flow.withheld {
            _ if over => self.end(&mut flow),
            Some(_) => self.save_running(&mut flow),
            None => Ok(()),
        });
        // Also if the write failed: the rollback drops what was collected.
        self.shared.feeds.add(&flow.row, &mut batch.told);
        if over && applied.is_ok() {
            batch.unwritten += usize::from(flow.ends.is_some());
            batch.finished.push(flow);
        } else {
            batch.withheld.extend(flow.withheld.take());
            // A failed flow returns to the running ones, where the rollback finds it.
            self.open.insert(slot.id, flow);
        }
        applied
    }

    fn apply_updates(&mut self, flow: &mut InFlightFlow, updates: &mut PendingUpdates) -> Result<()> {
        flow.apply_updates(updates, &self.mask);
        for (side, (chain, stored)) in flow.certificates.iter_mut().enumerate() {
            if let (Some(chain), false) = (chain, *stored) {
                let mut shelf = ChunkSink { db: &self.db, segments: &mut self.segments, chunks: &mut self.chunks };
                flow.bodies[CERTIFICATES + side].replace(&mut shelf, chain.as_bytes())?;
                *stored = true;
            }
        }
        if !updates.messages.is_empty() {
            self.take_messages(flow, &updates.messages)?;
        }
        let mut cut = false;
        let [request, response] = std::mem::take(&mut updates.data);
        let original = updates.original.as_mut().map(|o| (std::mem::take(&mut o.data), o.hashed));
        let ([came, came_back], came_hashed) = original.unwrap_or_default();
        let ([a, b], [c, d]) = (updates.hashed, came_hashed);
        let hashed = [a, b, c, d];
        for (side, pieces) in [request, response, came, came_back].into_iter().enumerate() {
            if !pieces.is_empty() {
                if hashed[side] {
                    flow.bodies[side].hash_from_here();
                }
                let mut shelf = ChunkSink { db: &self.db, segments: &mut self.segments, chunks: &mut self.chunks };
                cut |= flow.bodies[side].push(&mut shelf, flow.seq, side, pieces)?;
            }
        }
        flow.measure_all(updates);
        // Chunks have been cut off the tail: the row must name them in the same transaction.
        if cut && flow.stored.is_some() && flow.row.state == FlowState::Open { self.save_running(flow) } else { Ok(()) }
    }

    /// Writes a running flow: its row, and the ends of its bodies.
    fn save_running(&mut self, flow: &mut InFlightFlow) -> Result<()> {
        for side in 0..SIDES {
            flow.bodies[side].save_tail(&self.db, flow.seq, side)?;
        }
        self.save(flow, InlineTails::default())
    }

    pub(crate) fn take_messages(&mut self, flow: &mut InFlightFlow, block: &[(StreamMessage, u64)]) -> Result<()> {
        let mut shelf = ChunkSink { db: &self.db, segments: &mut self.segments, chunks: &mut self.chunks };
        messages::insert(&mut shelf, flow.seq, flow.row.messages, block)?;
        flow.row.messages += block.len() as u64;
        // Messages without a row for their flow could not be found.
        if flow.stored.is_some() { Ok(()) } else { self.save(flow, InlineTails::default()) }
    }

    pub(crate) fn finish(&mut self, flow: &mut InFlightFlow) -> Result<()> {
        let ends = self.end_bodies(flow)?;
        self.save(flow, ends)
    }

    /// Writes the data of an ended flow; if it has no row yet, that is left to
    /// [`insert_finished`](Self::insert_finished).
    pub(crate) fn end(&mut self, flow: &mut InFlightFlow) -> Result<()> {
        let ends = self.end_bodies(flow)?;
        if flow.stored.is_some() {
            // The INSERT for several rows writes it later in this transaction.
            return self.save(flow, ends);
        }
        flow.ends = Some(ends);
        Ok(())
    }

    fn end_bodies(&mut self, flow: &mut InFlightFlow) -> Result<InlineTails> {
        let mut ends = InlineTails::default();
        for (side, end) in ends.iter_mut().enumerate() {
            let mut shelf = ChunkSink { db: &self.db, segments: &mut self.segments, chunks: &mut self.chunks };
            *end = flow.bodies[side].finish(&mut shelf, flow.seq, side)?;
        }
        Ok(ends)
    }

    fn save(&mut self, flow: &mut InFlightFlow, ends: InlineTails) -> Result<()> {
        flow.touched = self.generation;
        // While a flow runs, nothing changes that columns hold.
        if flow.stored.is_none() || flow.row.state != FlowState::Open {
            self.forget_columns(flow.seq)?;
        }
        let new = flow.as_new(&ends);
        self.logged += match flow.stored {
            Some(_) => rows::update(&self.db, &new)?,
            None => rows::insert(&self.db, &mut self.hosts, &[new])?,
        };
        self.mark_stored(flow);
        Ok(())
    }

    /// Masks the secrets of an imported row.
    pub(crate) fn mask_row(&self, row: &mut FlowRecord) {
        use std::mem::take;
        let mask = |h: &mut interflow_types::Headers| *h = self.mask.mask_headers(take(h));
        if let Some(r) = &mut row.request {
            r.path = self.mask.mask_path(&r.path);
            mask(&mut r.headers);
            mask(&mut r.trailers);
        }
        if let Some(r) = &mut row.response {
            mask(&mut r.headers);
            mask(&mut r.trailers);
        }
        if let Some(original) = &mut row.original {
            if let Some(r) = &mut original.request {
                r.url = self.mask.mask_path(&r.url);
                r.head.path = self.mask.mask_path(&r.head.path);
                mask(&mut r.head.headers);
                mask(&mut r.head.trailers);
            }
            if let Some(r) = &mut original.response {
                mask(&mut r.head.headers);
                mask(&mut r.head.trailers);
            }
        }
        row.interim.iter_mut().for_each(|i| mask(&mut i.headers));
    }

    /// Writes rows and body ends of running flows.
    fn save_open(&mut self, all: bool, batch: &mut WriteBatch) -> Result<()> {
        let ids: Vec<FlowId> = self
            .open
            .iter()
            .filter(|(_, f)| {
                // A flow younger than half an interval is left out: most end before the next sweep, and then need one
                // write instead of two.
                f.dirty
                    && (all
                        || f.stored.is_some()
                        || f.since.elapsed() >= SWEEP_INTERVAL / 2
                        || f.row.state != FlowState::Open)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(mut flow) = self.open.remove(&id) else { continue };
            // An ended flow may have waited here for the disk.
            let over = flow.row.state != FlowState::Open;
            let saved = if over { self.finish(&mut flow) } else { self.save_running(&mut flow) };
            self.shared.feeds.add(&flow.row, &mut batch.told);
            if over && saved.is_ok() {
                batch.finished.push(flow);
            } else {
                self.open.insert(id, flow);
            }
            // Only now, so that the flow is in the map again when the error is handled.
            saved?;
        }
        Ok(())
    }

    pub(crate) const fn seq(&mut self) -> i64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// While the disk refuses writes, updates are counted and dropped.
    fn discard(&mut self, slots: Vec<Arc<PendingFlow>>, batch: &mut WriteBatch) {
        for slot in slots {
            let mut updates = {
                let mut updates = slot.updates.lock();
                // Cleared here as well, or the flow would never be queued again.
                updates.queued = false;
                // Marked before the updates are taken, so that the reason survives in the retained state.
                updates.mark_missing(MissingReason::Dropped);
                updates.take()
            };
            batch.charge += updates.charge;
            let originals = updates.original.iter().flat_map(|o| &o.data);
            let bytes: usize = updates.data.iter().chain(originals).flatten().map(Bytes::len).sum();
            self.shared.queue.dropped_bytes.fetch_add(bytes as u64, Relaxed);
            match self.open.get_mut(&slot.id) {
                // Its row can still be written when space is available again.
                Some(flow) => {
                    // A gap within a body cannot be represented, so nothing after it is recorded.
                    flow.bodies.iter_mut().for_each(BodyAssembly::give_up);
                    flow.apply_updates(&mut updates, &self.mask);
                    flow.measure_all(&updates);
                    batch.withheld.extend(flow.withheld.take());
                }
                // A flow whose start is discarded is lost as a whole, and later updates of it are ignored.
                None => drop(self.shared.lost_flows.fetch_add(u64::from(updates.begin.is_some()), Relaxed)),
            }
        }
    }

    fn upkeep(&mut self) {
        self.probe();
        if self.refused.is_some() {
            if let Err(error) = self.retain_on_full_disk() {
                tracing::debug!(%error, "retention could not delete anything on a full disk");
            }
            // Nothing else is done while the disk refuses: checkpoints and collection write as well.
            return;
        }
        let due = CheckpointNeed::for_log(self.logged, self.log_bytes(), self.uncut, self.checkpointed.elapsed());
        let done = match due {
            CheckpointNeed::Nothing => Ok(()),
            CheckpointNeed::Taking => self.checkpoint(),
            CheckpointNeed::Cutting => self.truncate_log(),
        };
        if let Err(e) = done.and_then(|()| self.run_retention_step()).and_then(|()| self.enforce_size_limit()) {
            self.handle_disk_error(&e, &mut WriteBatch::default());
        }
    }

    /// Checkpoints the log: segments must be durable before rows that refer to them.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.checkpointed = Instant::now();
        self.uncut |= self.logged > 0;
        self.logged = 0;
        // Before the checkpoint, which makes the rows that name these records durable.
        self.segments.sync()?;
        Ok(self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    /// Like [`checkpoint`](Self::checkpoint), and truncates the log file; not possible while it is being read.
    pub(crate) fn truncate_log(&mut self) -> Result<()> {
        self.checkpointed = Instant::now();
        (self.uncut, self.logged) = (true, 0);
        self.segments.sync()?;
        // TRUNCATE waits for readers. The writer must not, because the queue fills meanwhile; it tries again later.
        self.db.busy_timeout(Duration::ZERO)?;
        // The first column is 1 if the checkpoint was blocked.
        let cut = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0).map(|n| n != 0));
        self.db.busy_timeout(schema::BUSY_TIMEOUT)?;
        match cut {
            // `uncut` stays set, so that upkeep tries again.
            Err(rusqlite::Error::SqliteFailure(e, _)) if e.code == rusqlite::ErrorCode::DatabaseBusy => Ok(()),
            Err(e) => Err(e.into()),
            Ok(busy) => {
                self.uncut = busy;
                Ok(())
            }
        }
    }

    /// At shutdown, running flows are kept, marked as cut off.
    fn mark_open_as_cut(&mut self) {
        if self.refused.is_some() || self.open.is_empty() {
            return;
        }
        let written = self.begin().and_then(|()| {
            for (_, mut flow) in std::mem::take(&mut self.open) {
                // Flows that ended but waited for the disk keep their state.
                if flow.row.state == FlowState::Open {
                    flow.end(FlowEnd::cut(None));
                }
                self.finish(&mut flow)?;
            }
            self.commit()
        });
        if let Err(e) = written {
            self.handle_disk_error(&e, &mut WriteBatch::default());
        }
    }
}
