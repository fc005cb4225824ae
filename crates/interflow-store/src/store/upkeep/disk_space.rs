//! Disk space handling of the writer: deletes flows although the disk is full, and enforces the size limit while
//! traffic is being written.
//!
//! On a full disk SQLite cannot even delete rows, because that takes pages for its log. Therefore whole segment files
//! that contain only bodies of flows to be deleted are removed first, then the reserve is released, and only then are
//! rows deleted, a few at a time.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rusqlite::params;

use crate::error::{Result, StoreError};
use crate::store::recording::write_batch::WriteBatch;
use crate::store::recording::writer::{RETRY, StoreWriter};
use crate::store::schema;
use crate::store::segments::segment;
use crate::store::store_state::ReplySender;
use crate::store::subscriptions::Notification;
use crate::store::upkeep::retention::mark;
use crate::store::upkeep::size_shares::EARLY_PERCENT;
use crate::store::upkeep::{quarantine, size_shares};

/// Flows deleted per transaction while the disk is full: its log must fit into the reserve.
const STEP: usize = 32;

impl StoreWriter {
    /// Deletes flows even if the disk is full; returns how many. `delete` removes their rows.
    fn delete_on_full_disk(&mut self, seqs: &[i64], delete: fn(&mut Self, &[i64]) -> Result<()>) -> Result<u64> {
        let doomed: HashSet<i64> = seqs.iter().copied().collect();
        // In this order: deleting files needs no free page and frees space for the rest.
        self.free_segments(&doomed)?;
        self.reserve.release();
        self.forget_freed()?;
        for part in seqs.chunks(STEP) {
            self.step(|w| delete(w, part))?;
        }
        Ok(seqs.len() as u64)
    }

    /// Runs a full collection while recording is suspended, and tests whether the disk accepts writes again.
    pub(crate) fn collect_on_full_disk(&mut self) -> Result<u64> {
        self.reserve.release();
        let freed = self.collect_fully();
        if freed.is_err() {
            self.roll_back();
            self.keeper.stop();
            self.chunks.revived = None;
        }
        self.probe_now();
        freed
    }

    fn collect_fully(&mut self) -> Result<u64> {
        self.start_marking()?;
        while self.keeper.is_busy() {
            self.run_retention_step()?;
        }
        Ok(std::mem::take(&mut self.keeper.freed))
    }

    /// Retention while the disk is full. Rate-limited by [`check_when_full`](Self::check_when_full), because each
    /// check sums up the table and each deletion is followed by a full collection.
    pub(crate) fn retain_on_full_disk(&mut self) -> Result<()> {
        let Some(up_to) = self.check_when_full()? else { return Ok(()) };
        let seqs = self.ended_up_to(up_to, i64::MAX)?;
        if !seqs.is_empty() {
            let gone = self.delete_on_full_disk(&seqs, Self::delete_rows)?;
            self.shared.expired_flows.fetch_add(gone, Relaxed);
            self.collect_on_full_disk()?;
        }
        Ok(())
    }

    /// Deletes segment files in which every chunk belongs only to flows being deleted, or to none. Needs no free
    /// database page.
    fn free_segments(&mut self, doomed: &HashSet<i64>) -> Result<()> {
        let mut live = self.running_chunks();
        for sql in ["SELECT seq, chunks FROM flows", "SELECT seq, chunks FROM messages"] {
            let mut statement = self.db.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if !doomed.contains(&row.get(0)?) {
                    mark(&mut live, row.get_ref(1)?);
                }
            }
        }
        let mut used: HashMap<u64, bool> = HashMap::new();
        {
            let mut statement = self.db.prepare("SELECT id, segment FROM chunks")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                *used.entry(row.get(1)?).or_default() |= live.has(row.get(0)?);
            }
        }
        for (number, size) in segment::list(&self.dir_segments())? {
            // The newest segment is still appended to, so it is never deleted here.
            if number < self.segments.segment() && !used.get(&number).copied().unwrap_or_default() {
                // Recorded before the file is deleted: after a failure in between, chunks of a deleted file must not be
                // found.
                self.freed.insert(number);
                self.delete_segment(number, size)?;
            }
        }
        Ok(())
    }

    /// Removes the chunks of deleted segments from the index, so that equal bytes are not deduplicated against them.
    pub(crate) fn forget_freed(&mut self) -> Result<()> {
        let freed: Vec<u64> = self.freed.iter().copied().collect();
        for number in freed {
            // The numbers of the chunks in this file are not known in memory, so all hashes are forgotten; later
            // bodies are stored again instead of being deduplicated.
            self.chunks.forget(|_| true);
            loop {
                // A limit per transaction: its log must fit into the space that the reserve gave back.
                let mut gone = 0;
                self.step(|w| {
                    let sql = "DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE segment = ? LIMIT 2000)";
                    gone = w.db.prepare_cached(sql)?.execute(params![number])?;
                    Ok(())
                })?;
                if gone == 0 {
                    break;
                }
            }
            self.freed.remove(&number);
        }
        Ok(())
    }

    /// A small transaction that is checkpointed at once.
    fn step(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let done = self.begin().and_then(|()| change(self)).and_then(|()| self.commit());
        match done {
            // The log's space is what the next step needs.
            Ok(()) => self.truncate_log(),
            Err(e) => {
                self.roll_back();
                Err(e)
            }
        }
    }

    /// Enforces the size limit: starts retention before it is reached, and stops writing while it is exceeded, so that
    /// traffic waits or is dropped according to `record.overflow`.
    pub(crate) fn enforce_size_limit(&mut self) -> Result<()> {
        let bound = self.config.retention_bytes.0;
        // A limit of 0 switches the size limit off.
        if bound == 0 || self.taken_bytes()? <= bound / 100 * EARLY_PERCENT {
            return Ok(());
        }
        let expired = |w: &Self| w.shared.expired_flows.load(Relaxed);
        if !self.keeper.is_busy() && self.keeper.is_check_due(expired(self)) {
            self.start_if_due()?;
        }
        // Counts the retention runs in a row that deleted nothing.
        let (mut before, mut fruitless) = (expired(self), 0);
        while self.taken_bytes()? > bound {
            if !self.keeper.is_busy() {
                let now = expired(self);
                fruitless = if now == before { fruitless + 1 } else { 0 };
                before = now;
                // Only running flows are left.
                if fruitless > 2 || !self.start_if_due()? {
                    self.end_running_bodies();
                    return Ok(());
                }
            }
            self.run_retention_step()?;
            // Deletions grow the log, which counts towards the size: without a checkpoint the loop would chase its
            // own writes.
            if self.logged >= self.log_bytes() {
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Disk usage of the store: segments, used database pages, and the log.
    pub(crate) fn taken_bytes(&self) -> Result<u64> {
        let pragma = |text: &str| -> Result<u64> { Ok(self.db.prepare_cached(text)?.query_row([], |r| r.get(0))?) };
        // Free pages count as unused although they are part of the file: new rows use them first.
        let pages = pragma("PRAGMA page_count")?.saturating_sub(pragma("PRAGMA freelist_count")?);
        let log = std::fs::metadata(self.dir.join("flows.db-wal")).map_or(0, |m| m.len());
        Ok(self.closed_bytes + self.segments.len() + pages * pragma("PRAGMA page_size")? + log)
    }

    /// Stops recording bodies of running flows: they alone exceed the limit.
    fn end_running_bodies(&mut self) {
        let mut ended = 0;
        for flow in self.open.values_mut().filter(|f| f.bodies.iter().any(|b| b.stored_bytes() > 0)) {
            ended += 1;
            flow.end_bodies();
        }
        if ended > 0 {
            tracing::warn!(
                flows = ended,
                "running flows alone exceed record.retention_bytes: no more of their bodies is recorded"
            );
        }
    }

    pub(crate) fn run_delete(&mut self, ids: &[interflow_types::FlowId]) -> Result<u64> {
        let seqs = self.seqs_of(ids)?;
        self.delete_anyway(&seqs, Self::delete_rows)
    }

    /// Removes flows that are in the shared store now: this is what frees the disk of a spool.
    pub(crate) fn run_release(&mut self, seqs: &[i64]) -> Result<u64> {
        let released = self.delete_anyway(seqs, Self::remove_rows)?;
        self.probe_now();
        if self.is_disk_refusing() {
            // The newest segment has the bytes of these flows and of others: only a collection frees them.
            if let Err(error) = self.collect_on_full_disk() {
                tracing::debug!(%error, "disk space of flows that were moved could not be given back yet");
            }
        }
        Ok(released)
    }

    /// Deletes flows in one transaction, or as on a full disk if that is not possible.
    fn delete_anyway(&mut self, seqs: &[i64], delete: fn(&mut Self, &[i64]) -> Result<()>) -> Result<u64> {
        if self.is_disk_refusing() {
            // SQLite could not even begin the transaction for this, so the order of `delete_on_full_disk` is used at
            // once.
            return self.delete_on_full_disk(seqs, delete);
        }
        match self.in_batch(|w| delete(w, seqs)) {
            Err(e) if e.is_disk() => self.delete_on_full_disk(seqs, delete),
            done => done.map(|()| seqs.len() as u64),
        }
    }

    pub(crate) fn run_collect(&mut self, reply: ReplySender<u64>) {
        if self.is_disk_refusing() {
            let _ = reply.send(self.collect_on_full_disk().map_err(|e| StoreError::Suspended(e.to_string())));
        } else {
            self.collect_now(reply);
        }
    }

    pub(crate) fn roll_back(&mut self) {
        // SQLite may have rolled the transaction back itself; then this statement fails, which does not matter.
        let _ = self.db.execute_batch("ROLLBACK");
        self.segments.rollback();
        self.chunks.rollback();
        self.garbage.roll_back();
        // Host numbers assigned by the transaction no longer exist.
        self.hosts.clear();
    }

    pub(crate) const fn is_disk_refusing(&self) -> bool {
        self.refused.is_some()
    }

    /// Handles a failed batch: all state is reverted, and recording is suspended until the disk accepts writes again.
    pub(crate) fn handle_disk_error(&mut self, error: &StoreError, batch: &mut WriteBatch) {
        let first_chunk = self.chunks.committed;
        self.roll_back();
        // Ended flows return to the running ones and are written again when the disk accepts it.
        for mut flow in std::mem::take(&mut batch.finished) {
            // Traffic goes on without the disk; sent with the batch, when recording counts as suspended.
            batch.withheld.extend(flow.withheld.take());
            self.open.insert(flow.row.id, flow);
        }
        let generation = self.generation;
        // Flows that this transaction did not touch have nothing to revert.
        for flow in self.open.values_mut().filter(|f| f.touched == generation) {
            flow.undo(generation, first_chunk);
        }
        batch.told = Notification::default();
        // Its marks may rest on rows that were rolled back.
        self.keeper.stop();
        self.chunks.revived = None;
        if error.is_damage() {
            quarantine::mark_suspect(&self.dir);
        }
        self.suspend(error);
    }

    /// Suspends recording until the disk accepts writes again.
    pub(crate) fn suspend(&mut self, error: &StoreError) {
        self.refused = Some(Instant::now());
        let remedy = match (error.is_damage(), error.is_disk()) {
            (true, _) => "; restart Interflow: it sets a damaged database aside and begins another one",
            (_, true) => {
                "; free disk space or delete flows with `interflow flows prune`, and recording goes on by itself"
            }
            _ => "",
        };
        self.shared.suspend(Some(format!("{error}{remedy}")));
        tracing::error!(%error, "recording is suspended: the store cannot be written{remedy}; traffic goes on");
    }

    /// Tests at intervals whether the disk accepts writes again.
    pub(crate) fn probe(&mut self) {
        if self.refused.is_some_and(|at| at.elapsed() >= RETRY) {
            self.probe_now();
        }
    }

    /// Resumes recording if the disk accepts writes in addition to the reserve.
    fn probe_now(&mut self) {
        if self.refused.is_none() {
            return;
        }
        // Also after a failed test, so that the next one waits for the interval again.
        self.refused = Some(Instant::now());
        if self.try_write().is_ok() {
            self.refused = None;
            self.shared.suspend(None);
            tracing::info!("recording goes on: the store can be written again");
        }
    }

    fn try_write(&mut self) -> Result<()> {
        if !self.freed.is_empty() {
            self.forget_freed()?;
        }
        // Segments and the database must accept a write with the reserve in place again; otherwise recording would fail
        // at once.
        self.segments.probe()?;
        self.reserve.ensure().map_err(StoreError::io("could not write the reserve in", &self.dir))?;
        schema::touch(&self.db)
    }

    /// Maximum size of the database's log before a checkpoint.
    pub(crate) fn log_bytes(&self) -> usize {
        size_shares::log_bytes(&self.config)
    }
}
