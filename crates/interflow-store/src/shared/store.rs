//! The shared store as the rest of the program sees it: the flows of all replicas, merged with those that wait in this
//! replica's spool.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_query::Query;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{CertificateChain, Direction, FlowId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;

use crate::config::RecordConfig;
use crate::conversations::SharedIndex as _;
use crate::error::{Result, StoreError};
use crate::instances::{InstanceReport, InstanceRow};
use crate::model::{FlowRecord, MessageRecord};
use crate::overview::{Overview, OverviewOptions};
use crate::shared::conversations::index::IndexTurn;
use crate::shared::database::connect::{PooledClient, SharedAccess};
use crate::shared::database::dsn::PostgresUrl;
use crate::shared::database::pool::{ConnectionRuntime, Database};
use crate::shared::reading::running::RunningPublisher;
use crate::shared::reading::select;
use crate::shared::reading::select::calls_in;
use crate::shared::reading::{bodies, live, overview, verify};
use crate::shared::shipping::objects;
use crate::shared::shipping::shipper::{Shipper, ship_rest};
use crate::shared::state::instances;
use crate::shared::{change, partitions};
use crate::store::segments::chunk_refs::{CERTIFICATES, body_index, original_body_index};
use crate::store::{
    BodyReader, CheckReport, FlowAnnotation, FlowFilterFn, FlowStore, ListOptions, ListOrder, RecordingState,
    SearchProgress, SharedStoreStats, SqliteStore, StoreStats, Subscription,
};
use crate::stored_flow::FlowWithBodies;

/// Flows that are deleted at a time by a query that SQL alone cannot decide.
const PRUNE_STEP: usize = 1000;
/// Above this estimate, the number of flows is not counted exactly.
const EXACT_COUNT: i64 = 1_000_000;
/// How long the figures of the database are reused.
const FIGURES_AGE: Duration = Duration::from_secs(5);
/// How long a process that records waits for new figures.
const FIGURES_PATIENCE: Duration = Duration::from_millis(500);
/// How long a change of a flow waits until none is on its way to the database.
const HOLD_LIMIT: Duration = Duration::from_secs(15);

/// A store that many replicas share. Dropping it moves what is left and closes it.
pub struct SharedStore {
    pub(super) database: Database,
    pub(super) turn: IndexTurn,
    pub(super) is_closed: AtomicBool,
    /// By how much this machine's clock is ahead of the database's, as last measured, in microseconds.
    pub(super) clock_ahead: Arc<AtomicI64>,
    /// What was recorded here and is not in the database yet. Absent if only the database is read.
    spool: Option<Arc<SqliteStore>>,
    /// The shipper, if this process writes.
    shipper: Option<Shipper>,
    /// Shows what is in progress here to the other replicas.
    publisher: Option<RunningPublisher>,
    figures: Arc<Mutex<DatabaseFigures>>,
    _runtime: ConnectionRuntime,
}

/// The last figures of the database.
#[derive(Default)]
struct DatabaseFigures {
    /// When they were read.
    read: Option<(Figures, Instant)>,
    is_asked: bool,
}

/// What is in the database and the bucket.
#[derive(Clone, Default)]
struct Figures {
    flows: u64,
    database_bytes: u64,
    object_bytes: u64,
    retention_waits: Option<String>,
}

/// The configuration of a spool: nothing is deleted before it was moved, and nothing is compressed twice.
fn spool_config(config: &RecordConfig) -> RecordConfig {
    RecordConfig {
        retention_age: HumanDuration(Duration::ZERO),
        retention_bytes: ByteSize(0),
        compress: false,
        ..config.clone()
    }
}

impl SharedStore {
    /// Opens the shared store for recording, with its spool in `dir`. Makes or migrates its tables.
    ///
    /// # Errors
    /// The database cannot be reached or refuses the user; its schema is newer than this build; the place of bodies refuses,
    /// or is not the one that they are in; the spool is used by another process or cannot be written.
    pub fn open(url: &PostgresUrl, access: SharedAccess, dir: &Path, config: &RecordConfig) -> Result<Self> {
        // The database first: a store that cannot be reached must not be taken for an empty one.
        Self::open_as(url, access, dir, config, None)
    }

    /// As [`open`](Self::open), under the name of this replica, which need not be unique.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_as(
        url: &PostgresUrl,
        access: SharedAccess,
        dir: &Path,
        config: &RecordConfig,
        name: Option<&str>,
    ) -> Result<Self> {
        let (database, runtime) = Database::new(url, access, config, name)?;
        Self::open_on(database, runtime, dir, config)
    }

    pub(super) fn open_on(
        database: Database,
        runtime: ConnectionRuntime,
        dir: &Path,
        config: &RecordConfig,
    ) -> Result<Self> {
        database.prepare()?;
        let spool = Arc::new(SqliteStore::open(dir, &spool_config(config))?);
        let counter = Arc::downgrade(&spool);
        partitions::start(&database, move |expired| {
            if let Some(spool) = counter.upgrade() {
                spool.add_expired(expired);
            }
        })?;
        live::start(&database, &spool);
        let shipper = Shipper::start(&database, &spool)?;
        let publisher = RunningPublisher::start(&database, &spool);
        Ok(Self {
            database,
            turn: IndexTurn::default(),
            is_closed: AtomicBool::default(),
            clock_ahead: Arc::default(),
            spool: Some(spool),
            shipper: Some(shipper),
            publisher: Some(publisher),
            figures: Arc::default(),
            _runtime: runtime,
        })
    }

    /// Opens the shared store for reading, with what waits in the spool in `dir`, if there is one.
    ///
    /// # Errors
    /// As for [`open`](Self::open); the tables do not exist yet, or are of an earlier version.
    pub fn open_read(url: &PostgresUrl, access: SharedAccess, dir: &Path) -> Result<Self> {
        let (database, runtime) = Database::new(url, access, &RecordConfig::default(), None)?;
        database.require_prepared()?;
        let spool = match SqliteStore::open_read(dir) {
            Ok(spool) => Some(Arc::new(spool)),
            Err(StoreError::Absent(_)) => None,
            Err(e) => return Err(e),
        };
        Ok(Self {
            database,
            turn: IndexTurn::default(),
            is_closed: AtomicBool::default(),
            clock_ahead: Arc::default(),
            spool,
            shipper: None,
            publisher: None,
            figures: Arc::default(),
            _runtime: runtime,
        })
    }

    /// The spool, which records.
    pub fn spool(&self) -> Option<&Arc<SqliteStore>> {
        self.spool.as_ref()
    }

    /// Applies a changed configuration; where the store is stays as it was.
    pub fn configure(&self, config: &RecordConfig) {
        self.database.config.store(Arc::new(config.clone()));
        if let Some(spool) = &self.spool {
            spool.configure(&spool_config(config));
        }
        self.database.retention_due.notify_one();
    }

    /// Moves what was recorded so far, for a limited time, and ends recording. What could not be moved stays in the
    /// spool.
    pub fn close(&self) {
        let (Some(spool), Some(shipper)) = (&self.spool, &self.shipper) else { return };
        // Refused by a full disk, it is refused again by the writer's own end, which reports it.
        let _ = spool.flush();
        shipper.stop();
        spool.close();
        // While it does not answer, there is nothing to wait for.
        if shipper.state.last_error.lock().is_some() {
            return;
        }
        if let Err(error) = ship_rest(&self.database, spool) {
            tracing::warn!(%error, "the last flows are moved to the shared store at the next start");
        }
        if !self.is_closed.load(SeqCst) {
            // What ran is recorded now.
            self.publisher.iter().for_each(RunningPublisher::stop);
            self.remove_report();
            // Another replica need not wait until this one's turns to index and to archive end by themselves.
            let _ = self.resign();
            let _ = self.resign_archives();
        }
    }

    /// Waits until everything recorded before is in the database.
    ///
    /// # Errors
    /// As for [`FlowStore::flush`]; the database refused the flows or did not answer.
    pub fn flush_to_database(&self) -> Result<()> {
        let (Some(spool), Some(shipper)) = (&self.spool, &self.shipper) else { return Err(StoreError::ReadOnly) };
        spool.flush()?;
        shipper.drain(spool)
    }

    /// Finished flows in the spool.
    ///
    /// # Errors
    /// A database error.
    pub fn waiting_flows(&self) -> Result<u64> {
        self.spool.as_ref().map_or(Ok(0), |spool| Ok(spool.spool_totals()?.flows))
    }

    /// Whether parts of URLs are found by an index, rather than by reading all rows.
    ///
    /// # Errors
    /// A database error.
    pub fn has_text_index(&self) -> Result<bool> {
        let row = self.database.run(|client| async move {
            client.query_one("SELECT to_regclass('flows_url_trigrams') IS NOT NULL", &[]).await
        })?;
        Ok(row.get(0))
    }

    /// By how much this machine's clock is ahead of the database's, in microseconds.
    ///
    /// # Errors
    /// A database error.
    pub fn clock_ahead(&self) -> Result<i64> {
        self.database.run(async |client| instances::clock_ahead(&client).await)
    }

    pub(super) fn writable(&self) -> Result<(&SqliteStore, &Shipper)> {
        match (&self.spool, &self.shipper) {
            (Some(spool), Some(shipper)) => Ok((spool, shipper)),
            _ => Err(StoreError::ReadOnly),
        }
    }

    pub(super) fn calls(&self) -> impl Fn(FlowId) -> Vec<crate::ExchangeRow> + '_ {
        |flow| calls_in(Some(self), flow)
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
    fn present(&self, ids: Vec<FlowId>) -> Result<u64> {
        let ids: Vec<_> = ids.into_iter().map(crate::shared::database::rows::uuid_of).collect();
        let row = self.database.run(move |client| async move {
            client.query_one("SELECT count(*) FROM flows WHERE id = ANY($1)", &[&ids]).await
        })?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    /// Flows and bytes in the database, as they were read at some time within the last seconds; or before, while the
    /// database does not answer: figures of this replica must not wait for it.
    fn figures(&self) -> Result<Figures> {
        let last = {
            let figures = self.figures.lock();
            match &figures.read {
                Some((found, at)) if at.elapsed() < FIGURES_AGE => return Ok(found.clone()),
                last => last.as_ref().map(|(found, _)| found.clone()),
            }
        };
        if self.is_cut_off() {
            // The error is in the figures of the shipper.
            return Ok(last.unwrap_or_default());
        }
        let (sender, receiver) = sync_channel(1);
        let is_asked = std::mem::replace(&mut self.figures.lock().is_asked, true);
        if !is_asked {
            let (database, figures) = (self.database.clone(), Arc::clone(&self.figures));
            self.database.spawn(async move {
                let done = database.complete(database.too_late(), read_figures).await;
                let done = done.and_then(|done| done.map_err(|e| database.connector.explain(&e)));
                let mut figures = figures.lock();
                figures.is_asked = false;
                if let Ok(found) = &done {
                    figures.read = Some((found.clone(), Instant::now()));
                }
                let _ = sender.try_send(done);
            });
        }
        // A process that only reads has nothing else to say.
        let patience = if self.shipper.is_some() { FIGURES_PATIENCE } else { self.database.statement_limit };
        match (receiver.recv_timeout(patience), last) {
            (Ok(done), _) => done,
            (Err(_), Some(found)) => Ok(found),
            (Err(_), None) if is_asked => Ok(Default::default()),
            (Err(_), None) => Err(self.database.connector.no_answer()),
        }
    }

    /// Whether finished flows cannot be moved to the database now.
    fn is_cut_off(&self) -> bool {
        self.shipper.as_ref().is_some_and(|shipper| shipper.state.last_error.lock().is_some())
    }

    fn shared_stats(&self) -> SharedStoreStats {
        let mut stats = SharedStoreStats {
            address: self.database.connector.url.to_string(),
            objects: self.database.objects.as_ref().map(|storage| storage.url().to_string()),
            ..Default::default()
        };
        stats.clock_ahead_millis = self.clock_ahead.load(Relaxed) / 1000;
        if let Some(shipper) = &self.shipper {
            let state = &shipper.state;
            let waiting = *state.waiting.lock();
            let now = Timestamp::now().micros();
            stats.waiting_flows = waiting.flows;
            stats.waiting_bytes = waiting.bytes;
            stats.waiting_seconds = waiting.oldest.map_or(0, |at| now.saturating_sub(at) / 1_000_000);
            stats.shipped_flows = state.shipped_flows.load(Relaxed);
            stats.failures = state.failures.load(SeqCst);
            stats.stuck_flows = state.stuck.load(SeqCst);
            stats.error = state.last_error.lock().clone();
        }
        stats
    }
}

async fn read_figures(client: PooledClient) -> Result<Figures, tokio_postgres::Error> {
    let sql = "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_inherits i \
               JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'flows'::regclass";
    let estimate: i64 = client.query_one(sql, &[]).await?.get(0);
    let flows = match estimate > EXACT_COUNT {
        true => estimate,
        false => client.query_one("SELECT count(*) FROM flows", &[]).await?.get(0),
    };
    Ok(Figures {
        flows: flows.unsigned_abs(),
        database_bytes: partitions::taken_bytes(&client).await?,
        object_bytes: objects::taken_bytes(&client).await?,
        retention_waits: partitions::retention_waits(&client).await?,
    })
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.close();
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
    fn list_while(&self, options: &ListOptions, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Vec<FlowRecord>> {
        // The spool first: a flow that leaves it meanwhile is in the database by then.
        let local = match &self.spool {
            Some(spool) => spool.list_while(options, watch)?,
            None => Vec::new(),
        };
        // Then what runs elsewhere, for the same reason.
        let mut running = Vec::new();
        self.for_each_running(options, watch, &mut |row| {
            running.push(row);
            ControlFlow::Continue(())
        })?;
        let mut shared = Vec::new();
        select::for_each_match(&self.database, &self.calls(), options, watch, &mut |stored| {
            shared.push(stored.row);
            ControlFlow::Continue(())
        })?;
        Ok(merge([local, shared, running], options))
    }

    fn search(
        &self,
        query: &Query,
        progress: &(dyn Fn(SearchProgress) -> ControlFlow<()> + Sync),
        each: &mut (dyn FnMut(FlowRecord) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let nothing = SearchProgress { looked: 0, found: 0, total: 0 };
        // To count them would take longer than to find the first.
        let total = select::estimate(&self.database, query)?;
        let mut ids = HashSet::new();
        let mut stopped = false;
        if let Some(spool) = &self.spool {
            spool.search(query, progress, &mut |row| {
                ids.insert(row.id);
                let next = each(row);
                stopped = next.is_break();
                next
            })?;
        }
        if stopped {
            return Ok(());
        }
        let options = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        self.for_each_running(&options, &mut || progress(nothing), &mut |row| {
            if !ids.insert(row.id) {
                return ControlFlow::Continue(());
            }
            let next = each(row);
            stopped = next.is_break();
            next
        })?;
        if stopped {
            return Ok(());
        }
        let (looked, mut found) = (std::cell::Cell::new(0), ids.len() as u64);
        let count = std::cell::Cell::new(found);
        select::for_each_match(
            &self.database,
            &self.calls(),
            &options,
            &mut || {
                looked.set(looked.get() + 1);
                let total = total.max(looked.get());
                progress(SearchProgress { looked: looked.get(), found: count.get(), total })
            },
            &mut |stored| {
                if ids.contains(&stored.row.id) {
                    return ControlFlow::Continue(());
                }
                found += 1;
                count.set(found);
                each(stored.row)
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
            || {
                self.shared_body(id, range.clone(), |row| {
                    match row.original.as_deref().and_then(|o| o.edited_body(direction)) {
                        Some(_) => original_body_index(direction),
                        None => body_index(direction),
                    }
                })
            },
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

    fn count_while(&self, query: &Query, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<u64> {
        // The spool first, as for lists, and its ids alone. But not if the database does not answer, since then the spool
        // may be large.
        self.database.run(|client| async move { client.simple_query("SELECT 1").await.map(drop) })?;
        let mut local = Vec::new();
        if let Some(spool) = &self.spool {
            spool.for_each_selected(query, watch, &mut |row| {
                local.push(row.id);
                ControlFlow::Continue(())
            })?;
        }
        if let (shared, true) = select::count(&self.database, query, &local, watch)? {
            return Ok(local.len() as u64 + shared);
        }
        let mut ids: HashSet<FlowId> = local.into_iter().collect();
        let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        self.for_each_running(&all, watch, &mut |row| {
            ids.insert(row.id);
            ControlFlow::Continue(())
        })?;
        let mut matches = ids.len() as u64;
        select::for_each_match(&self.database, &self.calls(), &all, watch, &mut |stored| {
            matches += u64::from(!ids.contains(&stored.row.id));
            ControlFlow::Continue(())
        })?;
        Ok(matches)
    }

    fn insert(&self, flow: FlowWithBodies) -> Result<bool> {
        let (spool, _) = self.writable()?;
        if self.present(vec![flow.row.id])? > 0 {
            return Ok(false);
        }
        // From there it is moved as all others are.
        spool.insert(flow)
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
            select::for_each_match(
                &self.database,
                &self.calls(),
                &page,
                &mut || ControlFlow::Continue(()),
                &mut |stored| {
                    ids.push(stored.row.id);
                    ControlFlow::Continue(())
                },
            )?;
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
        let mut report = match &self.spool {
            Some(spool) => spool.check(progress)?,
            None => CheckReport::default(),
        };
        verify::check(&self.database, &mut report, progress)?;
        Ok(report)
    }

    fn damaged_flows(&self) -> u64 {
        let local = self.spool.as_ref().map_or(0, |spool| spool.damaged_flows());
        local + self.database.damaged.load(Relaxed)
    }

    fn overview(&self, options: &OverviewOptions, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Overview> {
        overview::read(&self.database, self.spool.as_deref(), &self.calls(), options, watch)
    }

    fn stats(&self) -> Result<StoreStats> {
        let mut stats = match &self.spool {
            Some(spool) => spool.stats()?,
            None => StoreStats::default(),
        };
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
        self.read_reports()
    }

    fn report_instance(&self, report: InstanceReport) -> Result<()> {
        self.write_report(report)
    }

    fn subscribe(&self) -> Subscription {
        match &self.spool {
            Some(spool) => spool.subscribe(),
            None => Subscription(broadcast::channel(1).1),
        }
    }

    fn subscribe_to(&self, wanted: FlowFilterFn) -> Subscription {
        match &self.spool {
            Some(spool) => spool.subscribe_to(wanted),
            None => self.subscribe(),
        }
    }
}
