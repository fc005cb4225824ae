//! The shared store as a store of flows: the flows of all replicas, merged with those that wait in this replica's spool.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use bytes::Bytes;
use interflow_query::Query;
use interflow_store::stored_form::chunk_refs::{CERTIFICATES, body_index, received_body_index};
use interflow_store::{
    BodyReader, CheckReport, EachFlow, ExchangeRow, FlowAnnotation, FlowFilterFn, FlowRecord, FlowStore,
    FlowWithBodies, InstanceReport, InstanceRow, ListOptions, ListOrder, MessageRecord, Overview, OverviewOptions,
    RecordingState, Result, SearchProgress, SearchProgressFn, SqliteStore, StoreError, StoreStats, StoredFlow,
    Subscription, Watch,
};
use interflow_types::{CertificateChain, Direction, FlowId};
use parking_lot::MutexGuard;

use crate::change;
use crate::conversations::columns::flow_of;
use crate::database::rows::uuid_of;
use crate::reading::select::{self, FlowTable, calls_in};
use crate::reading::{bodies, overview, verify};
use crate::shipping::objects;
use crate::shipping::shipper::Shipper;
use crate::state::instances::{self, OwnReport};
use crate::store::SharedStore;

/// Flows that are deleted at a time by a query that SQL alone cannot decide.
const PRUNE_STEP: usize = 1000;
/// How long a change of a flow waits until none is on its way to the database.
const HOLD_LIMIT: Duration = Duration::from_secs(15);

impl SharedStore {
    /// A finished flow in the database.
    fn stored(&self, id: FlowId) -> Result<StoredFlow> {
        match select::get(&self.database, id)? {
            Some((stored, None)) => Ok(stored),
            Some((_, Some(replica))) => Err(StoreError::Elsewhere { id, replica }),
            None => Err(StoreError::NotFound(id)),
        }
    }

    /// The row of a flow in the database, which may be in progress at another replica.
    fn found_row(&self, id: FlowId) -> Result<FlowRecord> {
        select::get(&self.database, id)?.map(|(stored, _)| stored.row).ok_or(StoreError::NotFound(id))
    }

    /// Calls `each` with the flows of a table that match.
    fn for_each(
        &self,
        table: FlowTable,
        options: &ListOptions,
        watch: &mut Watch<'_>,
        each: &mut dyn FnMut(FlowRecord) -> ControlFlow<()>,
    ) -> Result<()> {
        if matches!(table, FlowTable::Running) && !self.database.has_unlogged_tables() {
            return Ok(());
        }
        select::for_each_match(table, &self.database, &self.calls(), options, watch, &mut |stored| each(stored.row))
    }

    /// What the spool has; nothing without one.
    pub(crate) fn in_spool<T: Default>(&self, read: impl FnOnce(&SqliteStore) -> Result<T>) -> Result<T> {
        self.spool.as_deref().map_or_else(|| Ok(T::default()), read)
    }

    /// Asks the spool first, then the database.
    fn local_or<T>(
        &self,
        read: impl FnOnce(&SqliteStore) -> Result<T>,
        stored: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.spool.as_deref().map(read) {
            Some(Err(StoreError::NotFound(_))) | None => stored(),
            Some(done) => done,
        }
    }

    /// Opens one of a flow's bodies in the database; `place` selects it by the row.
    fn shared_body(
        &self,
        id: FlowId,
        range: Range<u64>,
        place: impl FnOnce(&FlowRecord) -> usize,
    ) -> Result<BodyReader> {
        let stored = self.stored(id)?;
        let side = place(&stored.row);
        Ok(bodies::reader(&self.database, id, side, stored.inline[side].clone(), range))
    }

    /// Keeps flows from moving while one is changed, which may be here or there.
    fn hold<'s>(&self, shipper: &'s Shipper) -> Result<MutexGuard<'s, ()>> {
        shipper.state.moving.try_lock_for(HOLD_LIMIT).ok_or_else(|| self.database.connector.no_answer())
    }

    /// Those of these flows that are in the database.
    fn present(&self, ids: Vec<FlowId>) -> Result<HashSet<FlowId>> {
        let ids: Vec<_> = ids.into_iter().map(uuid_of).collect();
        let rows = self
            .database
            .run(move |client| async move { client.query("SELECT id FROM flows WHERE id = ANY($1)", &[&ids]).await })?;
        Ok(rows.iter().map(|row| flow_of(row.get(0))).collect())
    }

    fn calls(&self) -> impl Fn(FlowId) -> Vec<ExchangeRow> + '_ {
        |flow| calls_in(Some(self), flow)
    }
}

/// A visitor of all flows.
fn every(mut visit: impl FnMut(FlowRecord)) -> impl FnMut(FlowRecord) -> ControlFlow<()> {
    move |row| {
        visit(row);
        ControlFlow::Continue(())
    }
}

/// Lists in one order, with each flow once: as it is in the first list that has it.
fn merge(lists: [Vec<FlowRecord>; 3], options: &ListOptions) -> Vec<FlowRecord> {
    let mut all = lists.concat();
    // Stable, so that rows of one flow stay in the order of the lists.
    match options.order {
        ListOrder::Newest => all.sort_by_key(|row| std::cmp::Reverse(row.id)),
        ListOrder::Oldest => all.sort_by_key(|row| row.id),
    }
    all.dedup_by_key(|row| row.id);
    all.truncate(options.limit);
    all
}

impl FlowStore for SharedStore {
    fn list_while(&self, options: &ListOptions, watch: &mut Watch<'_>) -> Result<Vec<FlowRecord>> {
        // The spool first: a flow that leaves it meanwhile is in the database by then.
        let local = self.in_spool(|spool| spool.list_while(options, watch))?;
        // Then what runs elsewhere, for the same reason.
        let mut running = Vec::new();
        self.for_each(FlowTable::Running, options, watch, &mut every(|row| running.push(row)))?;
        let mut shared = Vec::new();
        self.for_each(FlowTable::Finished, options, watch, &mut every(|row| shared.push(row)))?;
        Ok(merge([local, shared, running], options))
    }

    fn search(&self, query: &Query, progress: &SearchProgressFn<'_>, each: &mut EachFlow<'_>) -> Result<()> {
        let nothing = SearchProgress { looked: 0, found: 0, total: 0 };
        // To count them would take longer than to find the first.
        let total = select::estimate(&self.database, query)?;
        let mut ids = HashSet::new();
        let stopped = AtomicBool::new(false);
        let mut each_once = |row: FlowRecord| {
            if !ids.insert(row.id) {
                return ControlFlow::Continue(());
            }
            let next = each(row);
            stopped.store(next.is_break(), Relaxed);
            next
        };
        if let Some(spool) = &self.spool {
            spool.search(query, progress, &mut each_once)?;
        }
        let options = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        if !stopped.load(Relaxed) {
            self.for_each(FlowTable::Running, &options, &mut || progress(nothing), &mut each_once)?;
        }
        if stopped.load(Relaxed) {
            return Ok(());
        }
        let (looked, mut found) = (Cell::new(0), ids.len() as u64);
        let count = Cell::new(found);
        self.for_each(
            FlowTable::Finished,
            &options,
            &mut || {
                looked.set(looked.get() + 1);
                let total = total.max(looked.get());
                progress(SearchProgress { looked: looked.get(), found: count.get(), total })
            },
            &mut |row| {
                if ids.contains(&row.id) {
                    return ControlFlow::Continue(());
                }
                found += 1;
                count.set(found);
                each(row)
            },
        )
    }

    fn get(&self, id: FlowId) -> Result<FlowRecord> {
        self.local_or(|spool| spool.get(id), || self.found_row(id))
    }

    fn body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader> {
        self.local_or(
            |spool| spool.body(id, direction, range.clone()),
            || self.shared_body(id, range.clone(), |_| body_index(direction)),
        )
    }

    fn original_body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader> {
        self.local_or(
            |spool| spool.original_body(id, direction, range.clone()),
            || self.shared_body(id, range.clone(), |row| received_body_index(row, direction)),
        )
    }

    fn certificates(&self, id: FlowId) -> Result<[Option<CertificateChain>; 2]> {
        let shared = || {
            self.stored(id)?;
            let read = |side: usize| -> Result<Option<CertificateChain>> {
                let body = bodies::reader(&self.database, id, CERTIFICATES + side, Bytes::new(), 0..u64::MAX);
                Ok(CertificateChain::from_bytes(body.read_all(CertificateChain::MAX_LEN)?))
            };
            Ok([read(0)?, read(1)?])
        };
        self.local_or(|spool| spool.certificates(id), shared)
    }

    fn messages(&self, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        let shared = || {
            self.stored(id)?;
            bodies::messages(&self.database, id, range.clone())
        };
        self.local_or(|spool| spool.messages(id, range.clone()), shared)
    }

    fn count_while(&self, query: &Query, watch: &mut Watch<'_>) -> Result<u64> {
        // The spool first, as for lists, and its ids alone. But not if the database does not answer, since then the spool
        // may be large.
        self.database.run(|client| async move { client.simple_query("SELECT 1").await.map(drop) })?;
        let mut local = Vec::new();
        if let Some(spool) = &self.spool {
            spool.for_each_selected(query, watch, &mut every(|row| local.push(row.id)))?;
        }
        if let (shared, true) = select::count(&self.database, query, &local, watch)? {
            return Ok(local.len() as u64 + shared);
        }
        let mut ids: HashSet<FlowId> = local.into_iter().collect();
        let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        self.for_each(FlowTable::Running, &all, watch, &mut every(|row| _ = ids.insert(row.id)))?;
        let mut matches = ids.len() as u64;
        self.for_each(
            FlowTable::Finished,
            &all,
            watch,
            &mut every(|row| matches += u64::from(!ids.contains(&row.id))),
        )?;
        Ok(matches)
    }

    fn insert_all(&self, mut flows: Vec<FlowWithBodies>) -> Result<u64> {
        let (spool, _) = self.writable()?;
        let present = self.present(flows.iter().map(|flow| flow.row.id).collect())?;
        flows.retain(|flow| !present.contains(&flow.row.id));
        // From there they are moved as all others are.
        spool.insert_all(flows)
    }

    fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<()> {
        let (spool, shipper) = self.writable()?;
        let _still = self.hold(shipper)?;
        match spool.annotate(id, change.clone()) {
            Err(StoreError::NotFound(_)) => {
                let Some(row) = change::annotate(&self.database, id, change)? else {
                    return Err(self.stored(id).err().unwrap_or(StoreError::NotFound(id)));
                };
                spool.publish(Some(&[row]));
                Ok(())
            }
            done => done,
        }
    }

    fn delete(&self, ids: &[FlowId]) -> Result<u64> {
        let (spool, shipper) = self.writable()?;
        let deleted = {
            let _still = self.hold(shipper)?;
            spool.delete(ids)? + change::delete(&self.database, ids)?
        };
        objects::delete_now(&self.database);
        Ok(deleted)
    }

    fn prune(&self, query: &Query) -> Result<u64> {
        let (spool, shipper) = self.writable()?;
        let mut pruned = {
            let _still = self.hold(shipper)?;
            spool.prune(query)?
        };
        // What is left of what was recorded before is in the database then, and nothing waits for its deletion, which may
        // take long.
        let mut after = None;
        loop {
            let page = ListOptions { query: query.clone(), order: ListOrder::Oldest, after, limit: PRUNE_STEP };
            let mut ids = Vec::new();
            let unwatched = &mut || ControlFlow::Continue(());
            self.for_each(FlowTable::Finished, &page, unwatched, &mut every(|row| ids.push(row.id)))?;
            let Some(last) = ids.last().copied() else { break };
            after = Some(last);
            pruned += change::delete(&self.database, &ids)?;
        }
        self.figures.lock().read = None;
        objects::delete_now(&self.database);
        Ok(pruned)
    }

    /// What is recorded is on this machine's disk then, or in the database already.
    fn flush(&self) -> Result<()> {
        self.writable()?.0.flush()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = self.in_spool(|spool| spool.check(progress))?;
        verify::check(&self.database, &mut report, progress)?;
        Ok(report)
    }

    fn damaged_flows(&self) -> u64 {
        let local = self.spool.as_ref().map_or(0, |spool| spool.damaged_flows());
        local + self.database.damaged.load(Relaxed)
    }

    fn overview(&self, options: &OverviewOptions, watch: &mut Watch<'_>) -> Result<Overview> {
        overview::read(&self.database, self.spool.as_deref(), &self.calls(), options, watch)
    }

    fn stats(&self) -> Result<StoreStats> {
        let mut stats = self.in_spool(|spool| spool.stats())?;
        let mut shared = self.shared_stats();
        match self.figures() {
            Ok(figures) => {
                stats.flows += figures.flows;
                stats.database_bytes = figures.database_bytes;
                shared.object_bytes = figures.object_bytes;
                stats.retention_waits = figures.retention_waits;
            }
            // The figures of this replica are worth having without those of the database.
            Err(e) => drop(shared.error.get_or_insert_with(|| e.to_string())),
        }
        stats.damaged_flows += self.database.damaged.load(Relaxed);
        stats.shared = Some(shared);
        Ok(stats)
    }

    fn recording_state(&self) -> RecordingState {
        match self.spool.as_ref().map_or(RecordingState::Recording, |spool| spool.recording_state()) {
            RecordingState::Suspended { .. } => RecordingState::Suspended { shared: true },
            RecordingState::Recording if self.is_cut_off() => RecordingState::CutOff,
            state => state,
        }
    }

    fn instances(&self) -> Result<Vec<InstanceRow>> {
        instances::read_reports(&self.database)
    }

    fn report_instance(&self, report: InstanceReport) -> Result<()> {
        let (spool, shipper) = self.writable()?;
        if self.is_closed.load(SeqCst) {
            return Ok(());
        }
        let waiting_flows = shipper.state.waiting.lock().flows;
        let own = OwnReport { report, waiting_flows, holder: self.turn.holder };
        let (ahead, is_any_silent) = instances::write_report(&self.database, own)?;
        self.clock_ahead.store(ahead, Relaxed);
        if is_any_silent {
            spool.publish(None);
        }
        Ok(())
    }

    fn subscribe(&self) -> Subscription {
        self.spool.as_ref().map_or_else(Subscription::ended, |spool| spool.subscribe())
    }

    fn subscribe_to(&self, wanted: FlowFilterFn) -> Subscription {
        self.spool.as_ref().map_or_else(Subscription::ended, |spool| spool.subscribe_to(wanted))
    }
}
