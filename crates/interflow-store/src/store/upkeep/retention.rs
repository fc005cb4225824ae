//! Retention and garbage collection: old flows are deleted, and unused disk space is freed.
//!
//! Chunks have no reference counters that could drift. Garbage is found by mark and sweep: every chunk named by a flow
//! or a message block is live (one bit each), every other one of the same age is garbage. Segments without live chunks
//! are deleted; sparse ones have their live chunks copied to the newest segment first. All of this happens on the
//! writer thread in steps of a few milliseconds, between batches.
//!
//! Because writing continues between the steps, a chunk that was unreferenced when it was marked may be found again by
//! deduplication. Such chunks are collected in `revived` and marked before anything is swept; chunks created since have
//! higher numbers than the bitmap and count as live.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension as _, params};

use crate::error::{Result, StoreError};
use crate::store::recording::write_batch::WriteBatch;
use crate::store::recording::writer::StoreWriter;
use crate::store::rows;
use crate::store::segments::segment::RecordLocation;
use crate::store::segments::{chunk_refs, segment};
use crate::store::store_state::ReplySender;
use crate::store::upkeep::garbage;
use crate::store::upkeep::garbage_collector::{CHECK_INTERVAL_WHEN_FULL, ChunkBitmap, CollectionPhase};
use crate::store::upkeep::size_shares::EARLY_PERCENT;

/// Interval of the age and size checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const EXPIRE_STEP: usize = 1000;
/// Rows examined per step of marking and sweeping.
const ROW_STEP: i64 = 5000;
const MOVE_STEP: i64 = 200;
/// Assumed size of a flow beside its bodies, when the oldest ones are selected by size.
const ROW_WEIGHT: u64 = 1500;
/// Free database pages that are worth releasing, and how many are released at a time.
const FREE_PAGES: i64 = 256;
/// A store over its size limit is reduced to this percentage of it.
const TARGET_PERCENT: u64 = 85;

impl StoreWriter {
    /// Starts freeing disk space regardless of the limits.
    pub(crate) fn collect_now(&mut self, reply: ReplySender<u64>) {
        self.keeper.replies.push(reply);
        // The phases run in the rounds of the writer; only the first one is prepared here.
        if !self.keeper.is_busy()
            && let Err(e) = self.start_marking()
        {
            self.handle_disk_error(&e, &mut WriteBatch::default());
        }
    }

    /// Continues what an earlier process left: the flows were deleted, and their space was not given back.
    pub(crate) fn resume_collection(&mut self) {
        let resumed = match garbage::is_left(&self.db) {
            Ok(false) => return,
            Ok(true) if self.is_disk_refusing() => self.collect_on_full_disk().map(drop),
            Ok(true) => self.start_marking(),
            Err(e) => Err(e),
        };
        if let Err(error) = resumed {
            tracing::warn!(%error, "disk space of deleted flows could not be given back");
        }
    }

    /// Runs one step of retention or collection.
    pub(crate) fn run_retention_step(&mut self) -> Result<()> {
        // Left idle if the step fails: the caller then handles the disk error and the next check starts again.
        let phase = std::mem::replace(&mut self.keeper.phase, CollectionPhase::Idle);
        self.keeper.phase = match phase {
            CollectionPhase::Idle => return self.check_retention(),
            CollectionPhase::Expire { up_to } => self.expire(up_to)?,
            CollectionPhase::MarkFlows { live, after } => self.mark_flows(live, after)?,
            CollectionPhase::MarkMessages { live, after } => self.mark_messages(live, after)?,
            CollectionPhase::Sweep { live, after, used } => self.sweep_chunks(live, after, used)?,
            CollectionPhase::Move { sparse, after } => self.move_chunks(sparse, after)?,
            CollectionPhase::Shrink => self.shrink()?,
        };
        if let CollectionPhase::Idle = self.keeper.phase {
            self.keeper.reply_waiters();
        }
        Ok(())
    }

    /// Compares the store with its limits, rate-limited.
    fn check_retention(&mut self) -> Result<()> {
        if self.keeper.looked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL) {
            return Ok(());
        }
        // The reserve is restored here once space is available again.
        if self.reserve.ensure().is_err() {
            tracing::debug!("not enough disk space for the store's reserve");
        }
        self.start_if_due().map(drop)
    }

    /// Compares the store with its limits; returns whether flows must be deleted.
    pub(crate) fn start_if_due(&mut self) -> Result<bool> {
        self.keeper.expired = self.shared.expired_flows.load(Relaxed);
        self.keeper.looked = Some(Instant::now());
        // Both limits are expressed as the last row to delete, so that one phase covers both.
        let by_age = self.expired_by_age()?;
        // The larger of the two limits covers the smaller: rows are deleted in the order in which they were stored.
        let up_to = self.archived_up_to(by_age.max(self.expired_by_size()?))?;
        if up_to > 0 {
            self.keeper.phase = CollectionPhase::Expire { up_to };
        }
        Ok(up_to > 0)
    }

    /// The last row that must be deleted, checked at intervals while the disk is full; `None` if there is none.
    pub(crate) fn check_when_full(&mut self) -> Result<Option<i64>> {
        if self.keeper.looked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL_WHEN_FULL) {
            return Ok(None);
        }
        self.keeper.looked = Some(Instant::now());
        let by_age = self.expired_by_age()?;
        let up_to = self.archived_up_to(by_age.max(self.expired_by_size()?))?;
        Ok((up_to > 0).then_some(up_to))
    }

    /// The last row up to this one that may be deleted: nothing from the first flow on that waits for the archive.
    fn archived_up_to(&self, up_to: i64) -> Result<i64> {
        let Some(keep_from) = *self.shared.keep_from.lock() else { return Ok(up_to) };
        let sql = "SELECT seq FROM flows WHERE seq <= ? AND id >= ? ORDER BY seq LIMIT 1";
        let first = self.db.query_row(sql, params![up_to, keep_from.to_u128().to_be_bytes()], |r| r.get::<_, i64>(0));
        Ok(first.optional()?.map_or(up_to, |waiting| up_to.min(waiting - 1)))
    }

    /// The last row that exceeds the maximum age; 0 if there is none.
    fn expired_by_age(&mut self) -> Result<i64> {
        // An age of 0 switches the age limit off.
        let age = self.config.retention_age.0;
        if age.is_zero() {
            *self.shared.retention_waits.lock() = None;
            return Ok(0);
        }
        let limit = self.age_clock.look(age).saturating_sub(age.as_micros() as u64);
        *self.shared.retention_waits.lock() = self.age_clock.waits_because();
        // `stored` grows with `seq`: the search may stop at the first row that is young enough.
        let sql = "SELECT seq FROM flows WHERE stored >= ? ORDER BY seq LIMIT 1";
        let oldest = self.db.query_row("SELECT stored FROM flows ORDER BY seq LIMIT 1", [], |r| r.get::<_, i64>(0));
        match oldest.optional()? {
            // The oldest row decides alone in the usual case that nothing has expired.
            Some(stored) if (stored as u64) < limit => {
                let first_young: Option<i64> = self.db.query_row(sql, [limit as i64], |r| r.get(0)).optional()?;
                let last: i64 = self.db.query_row("SELECT max(seq) FROM flows", [], |r| r.get(0))?;
                Ok(first_young.map_or(last, |s| s - 1))
            }
            _ => Ok(0),
        }
    }

    /// The last row to delete to bring the store within its size limit; 0 if there is none.
    fn expired_by_size(&self) -> Result<i64> {
        let bound = self.config.retention_bytes.0;
        let size = self.taken_bytes()?;
        if bound == 0 || size <= bound / 100 * EARLY_PERCENT {
            return Ok(0);
        }
        let weigh = format!("SELECT coalesce(sum(kept + {ROW_WEIGHT}), 0) FROM flows");
        let all: i64 = self.db.query_row(&weigh, [], |r| r.get(0))?;
        // Reducing to less than the limit leaves time until the next run.
        let excess = size.saturating_sub(bound / 100 * TARGET_PERCENT);
        // Weights do not add up to the size on disk, because equal chunks are stored once. The share of the weight that
        // has to go is estimated from the share of the size.
        let excess_flows = (all as u128 * u128::from(excess) / u128::from(size)) as u64;
        let mut statement = self.db.prepare_cached("SELECT seq, kept FROM flows ORDER BY seq")?;
        let mut rows = statement.query([])?;
        let (mut weight, mut last) = (0, 0);
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            weight += row.get::<_, i64>(1)? as u64 + ROW_WEIGHT;
            if weight >= excess_flows {
                break;
            }
        }
        Ok(last)
    }

    /// Deletes the oldest flows up to a row; running flows are not deleted.
    fn expire(&mut self, up_to: i64) -> Result<CollectionPhase> {
        // Running flows are left out afterwards; without the addition they could fill a whole step.
        let seqs = self.ended_up_to(up_to, (EXPIRE_STEP + self.open.len()) as i64)?;
        if seqs.is_empty() {
            self.start_marking()?;
            return Ok(std::mem::replace(&mut self.keeper.phase, CollectionPhase::Idle));
        }
        self.begin()?;
        self.delete_rows(&seqs)?;
        self.commit()?;
        self.shared.expired_flows.fetch_add(seqs.len() as u64, Relaxed);
        Ok(CollectionPhase::Expire { up_to })
    }

    /// Those of the first rows up to this one whose flows do not run: the row of one that does is written again when the flow
    /// goes on.
    pub(crate) fn ended_up_to(&self, up_to: i64, limit: i64) -> Result<Vec<i64>> {
        let running: HashSet<i64> = self.open.values().map(|f| f.seq).collect();
        let sql = "SELECT seq FROM flows WHERE seq <= ? ORDER BY seq LIMIT ?";
        let mut seqs = rows::query_all(&self.db, sql, [up_to, limit], |r| Ok(r.get(0)?))?;
        seqs.retain(|seq| !running.contains(seq));
        Ok(seqs)
    }

    /// Deletes these rows and their data, except for chunks.
    pub(crate) fn delete_rows(&mut self, seqs: &[i64]) -> Result<()> {
        // The conversation index loses its references in the same transaction.
        self.detach_flows(seqs)?;
        self.remove_rows(seqs)
    }

    /// Deletes these rows as [`delete_rows`](Self::delete_rows) does, except for what conversations know of them: the
    /// flows are in the shared store now.
    pub(crate) fn remove_rows(&mut self, seqs: &[i64]) -> Result<()> {
        self.garbage.add(&self.db)?;
        seqs.iter().try_for_each(|seq| self.forget_columns(*seq))?;
        for table in ["flows", "details", "tails", "messages"] {
            let sql = format!("DELETE FROM {table} WHERE seq >= ? AND seq <= ?");
            let mut statement = self.db.prepare_cached(&sql)?;
            // Rows in succession with one statement.
            for run in seqs.chunk_by(|before, seq| before + 1 == *seq) {
                statement.execute([run.first(), run.last()])?;
            }
        }
        // An estimate of what the deletion adds to the log, which decides when the next checkpoint is due.
        self.logged += seqs.len() * 2048;
        Ok(())
    }

    pub(crate) fn start_marking(&mut self) -> Result<()> {
        // The newest segment cannot be deleted, so it must not be the one that holds the garbage.
        if self.segments.has_records() {
            self.roll()?;
        }
        let live = self.running_chunks();
        self.garbage.has_more = false;
        // From here on, chunks that deduplication finds again are collected; it must begin before the first row is
        // read.
        self.chunks.revived = Some(Vec::new());
        self.keeper.freed = 0;
        self.keeper.phase = CollectionPhase::MarkFlows { live, after: 0 };
        Ok(())
    }

    /// The chunks of running flows, which may not be in any row yet.
    pub(crate) fn running_chunks(&self) -> ChunkBitmap {
        let mut live = ChunkBitmap::new(self.chunks.next);
        let bodies = self.open.values().flat_map(|flow| &flow.bodies);
        bodies.flat_map(|body| &body.refs).for_each(|r| live.set(r.id));
        live
    }

    fn mark_flows(&mut self, mut live: ChunkBitmap, mut after: i64) -> Result<CollectionPhase> {
        // Continues after the last row instead of at an offset, because rows may be deleted between the steps.
        let sql = "SELECT seq, chunks FROM flows WHERE seq > ? ORDER BY seq LIMIT ?";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params![after, ROW_STEP])?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            seen += 1;
            after = row.get(0)?;
            mark(&mut live, row.get_ref(1)?);
        }
        Ok(if seen < ROW_STEP {
            CollectionPhase::MarkMessages { live, after: (0, -1) }
        } else {
            CollectionPhase::MarkFlows { live, after }
        })
    }

    fn mark_messages(&mut self, mut live: ChunkBitmap, mut after: (i64, i64)) -> Result<CollectionPhase> {
        let sql = "SELECT seq, first, chunks FROM messages WHERE (seq, first) > (?, ?) ORDER BY seq, first LIMIT ?";
        let mut seen = 0;
        {
            let mut statement = self.db.prepare_cached(sql)?;
            let mut rows = statement.query(params![after.0, after.1, ROW_STEP])?;
            while let Some(row) = rows.next()? {
                seen += 1;
                after = (row.get(0)?, row.get(1)?);
                mark(&mut live, row.get_ref(2)?);
            }
        }
        if seen == ROW_STEP {
            return Ok(CollectionPhase::MarkMessages { live, after });
        }
        // Hashes of garbage are forgotten before it is deleted, so that no new body refers to it.
        live.revive(&mut self.chunks);
        self.chunks.forget(|id| !live.has(id));
        Ok(CollectionPhase::Sweep { live, after: 0, used: HashMap::new() })
    }

    /// Deletes the rows of dead chunks, and adds up the live bytes of each segment.
    fn sweep_chunks(
        &mut self,
        mut live: ChunkBitmap,
        mut after: i64,
        mut used: HashMap<u64, u64>,
    ) -> Result<CollectionPhase> {
        // Every step, since batches between the steps may have reused chunks by their row in the index.
        live.revive(&mut self.chunks);
        let (mut dead, mut seen) = (Vec::new(), 0);
        {
            let sql = "SELECT id, segment, len FROM chunks WHERE id > ? ORDER BY id LIMIT ?";
            let mut statement = self.db.prepare_cached(sql)?;
            let mut rows = statement.query(params![after, ROW_STEP])?;
            while let Some(row) = rows.next()? {
                seen += 1;
                after = row.get(0)?;
                if live.has(after as u64) {
                    *used.entry(row.get(1)?).or_default() += row.get::<_, u64>(2)?;
                } else {
                    dead.push(after);
                }
            }
        }
        if !dead.is_empty() {
            self.begin()?;
            {
                let mut statement = self.db.prepare_cached("DELETE FROM chunks WHERE id = ?")?;
                for id in &dead {
                    statement.execute([id])?;
                }
            }
            self.commit()?;
            self.logged += dead.len() * 128;
        }
        if seen == ROW_STEP {
            return Ok(CollectionPhase::Sweep { live, after, used });
        }
        self.chunks.revived = None;
        self.sort_segments(&used)
    }

    /// Deletes empty segments and finds sparse ones.
    fn sort_segments(&mut self, used: &HashMap<u64, u64>) -> Result<CollectionPhase> {
        // The deletion of rows that name a segment must be durable before the segment is deleted.
        self.checkpoint()?;
        let mut sparse = HashSet::new();
        for (number, size) in segment::list(&self.dir_segments())? {
            // The newest segment is still appended to.
            if number >= self.segments.segment() {
                continue;
            }
            match used.get(&number) {
                None | Some(0) => self.delete_segment(number, size)?,
                // Less than three quarters live: copying pays off.
                Some(live) if live * 4 < size * 3 => drop(sparse.insert(number)),
                Some(_) => {}
            }
        }
        Ok(if sparse.is_empty() { CollectionPhase::Shrink } else { CollectionPhase::Move { sparse, after: 0 } })
    }

    /// Copies live chunks out of sparse segments.
    fn move_chunks(&mut self, mut sparse: HashSet<u64>, mut after: i64) -> Result<CollectionPhase> {
        let mut records: Vec<(u64, RecordLocation)> = Vec::new();
        let mut count = 0;
        {
            let sql = "SELECT id, segment, offset, len FROM chunks WHERE id > ? ORDER BY id LIMIT ?";
            let mut statement = self.db.prepare_cached(sql)?;
            let mut rows = statement.query(params![after, ROW_STEP])?;
            // Both bounds limit the time of a step: the rows examined and the chunks to copy.
            while let Some(row) = rows.next()?
                && records.len() < MOVE_STEP as usize
            {
                count += 1;
                after = row.get(0)?;
                let location = RecordLocation { segment: row.get(1)?, offset: row.get(2)?, len: row.get(3)? };
                if sparse.contains(&location.segment) {
                    records.push((after as u64, location));
                }
            }
        }
        self.begin()?;
        for (id, place) in &records {
            if let Err(e) = self.move_chunk(*id, *place) {
                let StoreError::Damaged { .. } = e else { return Err(e) };
                // Its segment is kept for a later repair, and the collection continues.
                tracing::warn!(error = %e, "a damaged chunk stays where it is");
                sparse.remove(&place.segment);
            }
        }
        self.commit()?;
        if count == ROW_STEP || records.len() == MOVE_STEP as usize {
            return Ok(CollectionPhase::Move { sparse, after });
        }
        // The new locations must be durable before the old copies are deleted.
        self.checkpoint()?;
        for (number, size) in segment::list(&self.dir_segments())? {
            if sparse.contains(&number) {
                self.delete_segment(number, size)?;
            }
        }
        Ok(CollectionPhase::Shrink)
    }

    fn move_chunk(&mut self, id: u64, from: RecordLocation) -> Result<()> {
        let path = segment::path(&self.dir_segments(), from.segment);
        let file = File::open(&path).map_err(StoreError::io("could not open", path))?;
        let (raw, hash) = segment::read(&file, from)?;
        let to = self.chunks.rewrite(&mut self.segments, &raw, &hash)?;
        self.db
            .prepare_cached("UPDATE chunks SET segment = ?, offset = ?, len = ? WHERE id = ?")?
            .execute(params![to.segment, to.offset, to.len, id])?;
        Ok(())
    }

    pub(crate) fn delete_segment(&mut self, number: u64, size: u64) -> Result<()> {
        let path = segment::path(&self.dir_segments(), number);
        std::fs::remove_file(&path).map_err(StoreError::io("could not delete", path))?;
        self.closed_bytes = self.closed_bytes.saturating_sub(size);
        self.keeper.freed += size;
        Ok(())
    }

    /// Releases free pages of the database incrementally.
    fn shrink(&mut self) -> Result<CollectionPhase> {
        let free: i64 = self.db.query_row("PRAGMA freelist_count", [], |r| r.get(0))?;
        // Fewer pages are not worth the log entries that releasing them costs.
        if free < FREE_PAGES {
            self.garbage.end_collection(&self.db)?;
            self.checkpoint()?;
            return Ok(CollectionPhase::Idle);
        }
        self.db.execute_batch(&format!("PRAGMA incremental_vacuum({})", FREE_PAGES * 8))?;
        self.logged += (FREE_PAGES * 8 * 4096) as usize;
        let rest: i64 = self.db.query_row("PRAGMA freelist_count", [], |r| r.get(0))?;
        if rest < free {
            return Ok(CollectionPhase::Shrink);
        }
        // If nothing could be released, for example because of a reader, the next collection tries again.
        self.garbage.end_collection(&self.db)?;
        Ok(CollectionPhase::Idle)
    }

    pub(crate) fn dir_segments(&self) -> std::path::PathBuf {
        crate::store::segments_dir(&self.dir)
    }
}

/// A damaged list is skipped: its chunks could not be found again anyway.
pub(crate) fn mark(live: &mut ChunkBitmap, blob: rusqlite::types::ValueRef<'_>) {
    if let Ok(blob) = blob.as_blob_or_null()
        && let Ok(lists) = chunk_refs::decode(blob)
    {
        lists.iter().flatten().for_each(|r| live.set(r.id));
    }
}
