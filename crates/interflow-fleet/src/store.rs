//! The store that replicas share: its database, this replica's spool, and the tasks between both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use interflow_store::{
    FlowStore as _, RecordConfig, Result, SharedIndex as _, SharedStoreStats, SqliteStore, StoreError,
};
use interflow_types::Timestamp;
use interflow_types::units::{ByteSize, HumanDuration};
use parking_lot::Mutex;

use crate::archiving::archive;
use crate::conversations::turn::IndexTurn;
use crate::database::connect::{PooledClient, SharedAccess};
use crate::database::dsn::PostgresUrl;
use crate::database::pool::{ConnectionRuntime, Database};
use crate::partitions;
use crate::reading::live;
use crate::shipping::objects;
use crate::shipping::running_publisher::RunningPublisher;
use crate::shipping::shipper::{Shipper, ship_rest};
use crate::state::instances;

/// Above this estimate, the number of flows is not counted exactly.
const EXACT_COUNT: i64 = 1_000_000;
/// How long the figures of the database are reused.
const FIGURES_AGE: Duration = Duration::from_secs(5);
/// How long a process that records waits for new figures.
const FIGURES_PATIENCE: Duration = Duration::from_millis(500);

/// A store that many replicas share. Dropping it moves what is left and closes it.
pub struct SharedStore {
    pub(crate) database: Database,
    pub(crate) turn: IndexTurn,
    pub(crate) is_closed: AtomicBool,
    /// By how much this machine's clock is ahead of the database's, as last measured, in microseconds.
    pub(crate) clock_ahead: Arc<AtomicI64>,
    /// What was recorded here and is not in the database yet. Absent if only the database is read.
    pub(crate) spool: Option<Arc<SqliteStore>>,
    /// The shipper, if this process writes.
    pub(crate) shipper: Option<Shipper>,
    /// Shows what is in progress here to the other replicas.
    publisher: Option<RunningPublisher>,
    pub(crate) figures: Arc<Mutex<DatabaseFigures>>,
    _runtime: ConnectionRuntime,
}

/// The last figures of the database.
#[derive(Default)]
pub(crate) struct DatabaseFigures {
    /// When they were read.
    pub(crate) read: Option<(Figures, Instant)>,
    is_asked: bool,
}

/// What is in the database and the bucket.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    pub(crate) flows: u64,
    pub(crate) database_bytes: u64,
    pub(crate) object_bytes: u64,
    pub(crate) retention_waits: Option<String>,
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

    pub(crate) fn open_on(
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
        let mut store = Self::reading(database, runtime, Some(spool));
        (store.shipper, store.publisher) = (Some(shipper), Some(publisher));
        Ok(store)
    }

    /// The store without what writes to it.
    fn reading(database: Database, runtime: ConnectionRuntime, spool: Option<Arc<SqliteStore>>) -> Self {
        Self {
            database,
            turn: IndexTurn::default(),
            is_closed: AtomicBool::default(),
            clock_ahead: Arc::default(),
            spool,
            shipper: None,
            publisher: None,
            figures: Arc::default(),
            _runtime: runtime,
        }
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
        Ok(Self::reading(database, runtime, spool))
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
            self.is_closed.store(true, SeqCst);
            instances::remove_report(&self.database);
            // Another replica need not wait until this one's turns to index and to archive end by themselves.
            let _ = self.resign();
            let _ = archive::resign_archives(&self.database);
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
        self.in_spool(|spool| Ok(spool.spool_totals()?.flows))
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

    pub(crate) fn writable(&self) -> Result<(&SqliteStore, &Shipper)> {
        match (&self.spool, &self.shipper) {
            (Some(spool), Some(shipper)) => Ok((spool, shipper)),
            _ => Err(StoreError::ReadOnly),
        }
    }

    /// Flows and bytes in the database, as they were read at some time within the last seconds; or before, while the
    /// database does not answer: figures of this replica must not wait for it.
    pub(crate) fn figures(&self) -> Result<Figures> {
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
                let end = database.no_answer_after(database.statement_limit);
                let done = database.complete(end, read_figures).await;
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
    pub(crate) fn is_cut_off(&self) -> bool {
        self.shipper.as_ref().is_some_and(|shipper| shipper.state.last_error.lock().is_some())
    }

    pub(crate) fn shared_stats(&self) -> SharedStoreStats {
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
