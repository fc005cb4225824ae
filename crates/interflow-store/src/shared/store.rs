//! The shared store as the rest of the program sees it: the flows of all replicas, merged with those that wait in this
//! replica's spool.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_query::Query;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{CertificateChain, Direction, FlowId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::connect::SharedAccess;
use super::database::{ConnectionRuntime, Database};
use super::dsn::PostgresUrl;
use super::index::IndexTurn;
use super::rows::SharedRow;
use super::select::{self, calls_in};
use super::shipper::{Shipper, ship_rest};
use super::{bodies, change, live, objects, overview, partitions};
use crate::config::RecordConfig;
use crate::conversations::SharedIndex as _;
use crate::error::{Result, StoreError};
use crate::instances::{InstanceReport, InstanceRow};
use crate::model::{FlowRow, MessageRow};
use crate::overview::{Overview, OverviewOptions};
use crate::store::chunk_refs::{CERTIFICATES, body_index, original_body_index};
use crate::store::{
    BodyReader, CheckReport, FlowAnnotation, FlowFilterFn, FlowStore, ListOptions, ListOrder, NewFlow, SearchProgress,
    SharedStoreStats, SqliteStore, StoreStats, Subscription,
};

/// Flows that are deleted at a time by a query that SQL alone cannot decide.
const PRUNE_STEP: usize = 1000;
/// Above this estimate, the number of flows is not counted exactly.
const EXACT_COUNT: i64 = 1_000_000;
/// How long the figures of the database are reused.
const FIGURES_AGE: Duration = Duration::from_secs(5);

/// A store that many replicas share. Dropping it moves what is left and closes it.
pub struct SharedStore {
    pub(super) database: Database,
    pub(super) turn: IndexTurn,
    pub(super) is_closed: AtomicBool,
    /// What was recorded here and is not in the database yet. Absent if only the database is read.
    spool: Option<Arc<SqliteStore>>,
    spool_dir: PathBuf,
    /// The shipper, if this process writes.
    shipper: Option<Shipper>,
    /// The last figures of the database, and when they were read.
    figures: Mutex<Option<(Figures, Instant)>>,
    _runtime: ConnectionRuntime,
}

/// What is in the database and the bucket.
#[derive(Clone, Copy)]
struct Figures {
    flows: u64,
    database_bytes: u64,
    object_bytes: u64,
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
        let (database, runtime) = Database::new(url, access, config)?;
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
        Ok(Self {
            database,
            turn: IndexTurn::default(),
            is_closed: AtomicBool::default(),
            spool: Some(spool),
            spool_dir: dir.to_owned(),
            shipper: Some(shipper),
            figures: Mutex::default(),
            _runtime: runtime,
        })
    }

    /// Opens the shared store for reading, with what waits in the spool in `dir`, if there is one.
    ///
    /// # Errors
    /// As for [`open`](Self::open); the tables do not exist yet, or are of an earlier version.
    pub fn open_read(url: &PostgresUrl, access: SharedAccess, dir: &Path) -> Result<Self> {
        let (database, runtime) = Database::new(url, access, &RecordConfig::default())?;
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
            spool,
            spool_dir: dir.to_owned(),
            shipper: None,
            figures: Mutex::default(),
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
            self.remove_report();
            // Another replica need not wait until this one's turn to index ends by itself.
            let _ = self.resign();
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

    /// The local half of the store: only open flows, and those that are waiting.
    pub(super) fn local(&self) -> Result<&SqliteStore> {
        self.spool.as_deref().ok_or_else(|| StoreError::Absent(self.spool_dir.clone()))
    }

    pub(super) fn writable(&self) -> Result<(&SqliteStore, &Shipper)> {
        match (&self.spool, &self.shipper) {
            (Some(spool), Some(shipper)) => Ok((spool, shipper)),
            _ => Err(StoreError::ReadOnly),
        }
    }

    fn calls(&self) -> impl Fn(FlowId) -> Vec<crate::ExchangeRow> + '_ {
        |flow| calls_in(Some(self), flow)
    }

    fn stored(&self, id: FlowId) -> Result<SharedRow> {
        select::get(&self.database, id)?.ok_or(StoreError::NotFound(id))
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
    fn shared_body(&self, id: FlowId, range: Range<u64>, place: impl FnOnce(&FlowRow) -> usize) -> Result<BodyReader> {
        let stored = self.stored(id)?;
        let side = place(&stored.row);
        Ok(bodies::reader(&self.database, id, side, stored.inline[side].clone(), range))
    }

    /// Those of these flows that are in the database.
    fn present(&self, ids: Vec<FlowId>) -> Result<u64> {
        let ids: Vec<_> = ids.into_iter().map(super::rows::uuid_of).collect();
        let row = self.database.run(move |client| async move {
            client.query_one("SELECT count(*) FROM flows WHERE id = ANY($1)", &[&ids]).await
        })?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }

    fn figures(&self) -> Result<Figures> {
        if let Some((figures, at)) = *self.figures.lock()
            && at.elapsed() < FIGURES_AGE
        {
            return Ok(figures);
        }
        let found = self.database.run(|client| async move {
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
            })
        })?;
        *self.figures.lock() = Some((found, Instant::now()));
        Ok(found)
    }

    fn shared_stats(&self) -> SharedStoreStats {
        let mut stats = SharedStoreStats {
            address: self.database.connector.url.to_string(),
            objects: self.database.objects.as_ref().map(|storage| storage.url().to_string()),
            ..Default::default()
        };
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

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Two lists in one order, without what is in both.
fn merge(local: Vec<FlowRow>, shared: Vec<FlowRow>, options: &ListOptions) -> Vec<FlowRow> {
    let mut all = local;
    all.extend(shared);
    // Stable: of a flow in both, the local row comes first, which was read first.
    match options.order {
        ListOrder::Newest => all.sort_by_key(|row| std::cmp::Reverse(row.id)),
        ListOrder::Oldest => all.sort_by_key(|row| row.id),
    }
    all.dedup_by_key(|row| row.id);
    all.truncate(options.limit);
    all
}

impl FlowStore for SharedStore {
    fn list_while(&self, options: &ListOptions, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Vec<FlowRow>> {
        // The spool first: a flow that leaves it meanwhile is in the database by then.
        let local = match &self.spool {
            Some(spool) => spool.list_while(options, watch)?,
            None => Vec::new(),
        };
        let mut shared = Vec::new();
        select::for_each_match(&self.database, &self.calls(), options, watch, &mut |stored| {
            shared.push(stored.row);
            ControlFlow::Continue(())
        })?;
        Ok(merge(local, shared, options))
    }

    fn search(
        &self,
        query: &Query,
        progress: &(dyn Fn(SearchProgress) -> ControlFlow<()> + Sync),
        each: &mut (dyn FnMut(FlowRow) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let (total, _) = select::count(&self.database, query)?;
        let mut seen = std::collections::HashSet::new();
        let mut stopped = false;
        if let Some(spool) = &self.spool {
            spool.search(query, progress, &mut |row| {
                seen.insert(row.id);
                let next = each(row);
                stopped = next.is_break();
                next
            })?;
        }
        if stopped {
            return Ok(());
        }
        let options = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        let (looked, mut found) = (std::cell::Cell::new(0), seen.len() as u64);
        let count = std::cell::Cell::new(found);
        select::for_each_match(
            &self.database,
            &self.calls(),
            &options,
            &mut || {
                looked.set(looked.get() + 1);
                progress(SearchProgress { looked: looked.get(), found: count.get(), total })
            },
            &mut |stored| {
                if seen.contains(&stored.row.id) {
                    return ControlFlow::Continue(());
                }
                found += 1;
                count.set(found);
                each(stored.row)
            },
        )
    }

    fn get(&self, id: FlowId) -> Result<FlowRow> {
        self.local_or(|spool| spool.get(id), || self.stored(id).map(|stored| stored.row))
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

    fn messages(&self, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRow>> {
        let shared = || {
            self.stored(id)?;
            bodies::messages(&self.database, id, range.clone())
        };
        self.local_or(|spool| spool.messages(id, range.clone()), shared)
    }

    fn count(&self, query: &Query) -> Result<u64> {
        // Nothing leaves the spool meanwhile, so that nothing is counted twice or not at all.
        let _still = self.shipper.as_ref().map(|s| s.state.moving.lock());
        let (shared, is_exact) = select::count(&self.database, query)?;
        let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
        let shared = match is_exact {
            true => shared,
            false => {
                let mut n = 0;
                let watch = &mut || ControlFlow::Continue(());
                select::for_each_match(&self.database, &self.calls(), &all, watch, &mut |_| {
                    n += 1;
                    ControlFlow::Continue(())
                })?;
                n
            }
        };
        let Some(spool) = &self.spool else { return Ok(shared) };
        let local = spool.list(&all)?;
        let both = if local.is_empty() { 0 } else { self.present(local.iter().map(|row| row.id).collect())? };
        Ok(shared + local.len() as u64 - both)
    }

    fn insert(&self, flow: NewFlow) -> Result<bool> {
        let (spool, _) = self.writable()?;
        if self.present(vec![flow.row.id])? > 0 {
            return Ok(false);
        }
        // From there it is moved as all others are.
        spool.insert(flow)
    }

    fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<()> {
        let (spool, shipper) = self.writable()?;
        let _still = shipper.state.moving.lock();
        match spool.annotate(id, change.clone()) {
            Err(StoreError::NotFound(_)) => {
                let row = change::annotate(&self.database, id, change)?.ok_or(StoreError::NotFound(id))?;
                spool.publish(Some(&[row]));
                Ok(())
            }
            done => done,
        }
    }

    fn delete(&self, ids: &[FlowId]) -> Result<u64> {
        let (spool, shipper) = self.writable()?;
        let deleted = {
            let _still = shipper.state.moving.lock();
            spool.delete(ids)? + change::delete(&self.database, ids)?
        };
        objects::delete_now(&self.database);
        Ok(deleted)
    }

    fn prune(&self, query: &Query) -> Result<u64> {
        let (spool, shipper) = self.writable()?;
        let (local, shared) = {
            let _still = shipper.state.moving.lock();
            let shared = change::delete_selected(&self.database, query)?;
            let local = spool.prune(query)?;
            *self.figures.lock() = None;
            (local, shared)
        };
        let (mut pruned, mut after) = (local, None);
        if let Some(shared) = shared {
            objects::delete_now(&self.database);
            return Ok(pruned + shared);
        }
        loop {
            let page = ListOptions { query: query.clone(), order: ListOrder::Oldest, after, limit: PRUNE_STEP };
            let ids: Vec<FlowId> = self.list(&page)?.into_iter().map(|row| row.id).collect();
            let Some(last) = ids.last().copied() else { return Ok(pruned) };
            after = Some(last);
            pruned += self.delete(&ids)?;
        }
    }

    /// What is recorded is on this machine's disk then, or in the database already.
    fn flush(&self) -> Result<()> {
        self.writable()?.0.flush()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.local()?.check(progress)
    }

    fn damaged_flows(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.damaged_flows())
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
            }
            // The figures of this replica are worth having without those of the database.
            Err(e) => drop(shared.error.get_or_insert_with(|| e.to_string())),
        }
        stats.shared = Some(shared);
        Ok(stats)
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
