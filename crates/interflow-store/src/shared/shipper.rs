//! The shipper: moves finished flows from the spool into PostgreSQL, the oldest first, and removes them from the spool
//! once they are committed. While the database does not answer, it waits and tries again; nothing is given up.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::database::Database;
use super::insert::{BatchBodies, InsertError, insert_flows};
use super::objects::{self, UploadedBodies};
use super::pieces::{Pieces, is_apart};
use crate::error::{Result, StoreError};
use crate::store::SqliteStore;
use crate::store::rows::StoredRow;
use crate::store::spool::SpoolTotals;

/// Flows and bytes of bodies per transaction.
const BATCH_FLOWS: usize = 1000;
pub(crate) const BATCH_BYTES: u64 = 16 << 20;
/// How long the shipper sleeps while there is nothing new.
const IDLE: Duration = Duration::from_millis(50);
/// How often it looks even if no flow was recorded: imports are not counted as recorded.
const LOOK: Duration = Duration::from_millis(500);
/// The time limit of one transaction, after which the connection is given up.
const TIMEOUT: Duration = Duration::from_secs(120);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How often bodies of little traffic are uploaded: each object costs a request.
const UPLOAD_INTERVAL: Duration = Duration::from_millis(500);
/// What waits is measured at most once in this time, and seldom enough to cost a twentieth of a core.
const MEASURE: Duration = Duration::from_millis(500);
/// Disk space is given back after this many bytes of bodies were moved.
const COLLECT_BYTES: u64 = 256 << 20;
/// How long the end of the process waits for the last flows.
const DRAIN: Duration = Duration::from_secs(10);

/// Counts of the shipper.
#[derive(Default)]
pub(crate) struct ShipperState {
    pub(crate) shipped_flows: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) waiting: Mutex<SpoolTotals>,
    /// Why the last attempt failed; absent after a success.
    pub(crate) last_error: Mutex<Option<String>>,
    /// Flows that cannot be moved: they cannot be read here, or the database refuses them. They stay in the spool.
    pub(crate) stuck: AtomicU64,
    /// Held while flows are on their way, so that nobody changes them in the spool meanwhile.
    pub(crate) moving: Mutex<()>,
    /// Threads that wait until all is moved.
    draining: AtomicU64,
    stop: AtomicBool,
    asleep: Mutex<()>,
    wake: Condvar,
}

/// The thread of the shipper.
pub(crate) struct Shipper {
    pub(crate) state: Arc<ShipperState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shipper {
    pub(crate) fn start(database: &Database, spool: &Arc<SqliteStore>) -> Result<Self> {
        let state = Arc::new(ShipperState::default());
        let mut task = ShipperTask {
            database: database.clone(),
            spool: Arc::clone(spool),
            state: Arc::clone(&state),
            stuck: HashSet::new(),
            backoff: FIRST_BACKOFF,
            measured: None,
            looked: None,
            uploaded: None,
            moved_bytes: 0,
        };
        let thread = std::thread::Builder::new()
            .name("shipper".into())
            .spawn(move || task.run())
            .map_err(|e| StoreError::Shared(format!("could not start the thread that ships flows: {e}")))?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
    }

    /// Moves what is left, for a limited time, and ends the thread.
    pub(crate) fn stop(&self) {
        {
            let _asleep = self.state.asleep.lock();
            self.state.stop.store(true, SeqCst);
            self.state.wake.notify_all();
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Waits until everything that was in the spool is moved, or an attempt fails.
    pub(crate) fn drain(&self, spool: &SqliteStore) -> Result<()> {
        self.state.draining.fetch_add(1, SeqCst);
        let done = self.wait_until_moved(spool);
        self.state.draining.fetch_sub(1, SeqCst);
        done
    }

    fn wait_until_moved(&self, spool: &SqliteStore) -> Result<()> {
        let failures = self.state.failures.load(SeqCst);
        loop {
            let left = spool.spool_totals()?.flows.saturating_sub(self.state.stuck.load(SeqCst));
            if left == 0 {
                return Ok(());
            }
            if self.state.failures.load(SeqCst) > failures {
                let why = self.state.last_error.lock().clone();
                return Err(StoreError::Shared(why.unwrap_or_else(|| "the shared store refused flows".into())));
            }
            self.state.wake.notify_all();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct ShipperTask {
    database: Database,
    spool: Arc<SqliteStore>,
    state: Arc<ShipperState>,
    /// Rows that cannot be moved.
    stuck: HashSet<i64>,
    backoff: Duration,
    measured: Option<(Instant, Duration)>,
    /// When the spool was read, and how many flows had been recorded then.
    looked: Option<(Instant, u64)>,
    /// When bodies were uploaded last.
    uploaded: Option<Instant>,
    moved_bytes: u64,
}

impl ShipperTask {
    fn run(&mut self) {
        let mut deadline = None;
        loop {
            let stopping = self.state.stop.load(SeqCst);
            if stopping {
                let until = *deadline.get_or_insert_with(|| Instant::now() + DRAIN);
                if Instant::now() >= until {
                    break;
                }
            }
            let moved = self.step();
            self.measure();
            match moved {
                Ok(true) => self.backoff = FIRST_BACKOFF,
                Ok(false) if stopping => break,
                Ok(false) => self.sleep(IDLE),
                Err(error) => self.fail(&error),
            }
        }
        let left = *self.state.waiting.lock();
        if left.flows > 0 {
            tracing::warn!(
                flows = left.flows,
                "flows wait in the spool; they are moved to the shared store at the next start"
            );
        }
    }

    /// Counts a failure and waits, longer every time.
    fn fail(&mut self, error: &StoreError) {
        let text = error.to_string();
        // The first of a series is enough for the log.
        if self.state.last_error.lock().replace(text.clone()).is_none() {
            tracing::warn!("{text}; flows are kept on this machine's disk until it answers");
        }
        self.state.failures.fetch_add(1, SeqCst);
        // With jitter: all replicas would come back at the same moment.
        let wait = self.backoff.mul_f64(0.5 + fastrand::f64());
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.sleep(wait);
    }

    fn sleep(&self, limit: Duration) {
        let mut asleep = self.state.asleep.lock();
        // Under the lock under which it is set, so that its notification is not missed; after it, waits are short.
        let limit = if self.state.stop.load(SeqCst) { limit.min(IDLE * 4) } else { limit };
        self.state.wake.wait_for(&mut asleep, limit);
    }

    /// Moves one batch; returns whether there was one.
    fn step(&mut self) -> Result<bool> {
        let recorded = self.spool.recorded_flows();
        if self.looked.is_some_and(|(at, seen)| seen == recorded && at.elapsed() < LOOK)
            && !self.state.stop.load(SeqCst)
        {
            return Ok(false);
        }
        let batch = self.next_batch()?;
        if batch.is_empty() {
            self.looked = Some((Instant::now(), recorded));
            return Ok(false);
        }
        self.looked = None;
        let bytes: u64 = batch.iter().map(stored_bytes).sum();
        if let Some(wait) = self.before_upload(&batch, bytes) {
            // More flows may have come then.
            self.sleep(wait);
            return Ok(true);
        }
        self.ship(&batch)?;
        self.moved_bytes += bytes;
        if self.moved_bytes >= COLLECT_BYTES {
            self.moved_bytes = 0;
            if let Err(error) = self.spool.collect() {
                tracing::debug!(%error, "the spool's disk space could not be given back");
            }
        }
        Ok(true)
    }

    /// How long a batch waits for more flows whose bodies go into the same object.
    fn before_upload(&self, batch: &[StoredRow], bytes: u64) -> Option<Duration> {
        let is_full = batch.len() >= BATCH_FLOWS || bytes >= BATCH_BYTES;
        let hurry = self.state.stop.load(SeqCst) || self.state.draining.load(SeqCst) > 0;
        let is_long = |flow: &StoredRow| (0..flow.refs.len()).any(|side| is_apart(flow, side));
        if is_full || hurry || self.database.objects.is_none() || !batch.iter().any(is_long) {
            return None;
        }
        UPLOAD_INTERVAL.checked_sub(self.uploaded?.elapsed()).filter(|wait| !wait.is_zero())
    }

    /// The oldest finished flows that fit into one transaction.
    fn next_batch(&self) -> Result<Vec<StoredRow>> {
        let (mut batch, mut bytes, mut after) = (Vec::new(), 0, -1);
        loop {
            let (flows, last) = self.spool.finished_after(after, BATCH_FLOWS)?;
            let Some(last) = last else { return Ok(batch) };
            after = last;
            for flow in flows.into_iter().filter(|flow| !self.stuck.contains(&flow.seq)) {
                bytes += stored_bytes(&flow);
                batch.push(flow);
                if bytes >= BATCH_BYTES || batch.len() >= BATCH_FLOWS {
                    return Ok(batch);
                }
            }
            // Only what is stuck or damaged may be followed by more.
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Stores a batch and removes it from the spool.
    fn ship(&mut self, batch: &[StoredRow]) -> Result<()> {
        let state = Arc::clone(&self.state);
        let uploaded = self.upload(batch);
        // Only now, as uploads take long: nothing else waits for the bucket.
        let moving = state.moving.lock();
        let stored = uploaded.and_then(|uploaded| {
            let Some(uploaded) = uploaded else {
                let pieces = Pieces::new(&self.spool, batch, self.database.config.load().compress);
                self.insert(batch, BatchBodies::Local(pieces))?;
                return Ok(batch.iter().map(|flow| flow.row.id).collect());
            };
            // They may have been annotated or deleted during the upload.
            let batch = self.spool.reread(batch).map_err(|error| Refusal { error, is_about_data: false })?;
            self.insert(&batch, BatchBodies::Uploaded(uploaded))?;
            Ok(batch.iter().map(|flow| flow.row.id).collect::<Vec<_>>())
        });
        match stored {
            Ok(ids) => {
                let moved = ids.len() as u64;
                // If this fails, the flows are sent once more and found to be there.
                self.spool.release(ids)?;
                drop(moving);
                self.state.shipped_flows.fetch_add(moved, Relaxed);
                if self.state.last_error.lock().take().is_some() {
                    tracing::info!("the shared store answers again");
                }
                Ok(())
            }
            Err(refused) if refused.is_about_data && batch.len() > 1 => {
                drop(moving);
                // One flow is the reason: the others go without it.
                let (first, second) = batch.split_at(batch.len() / 2);
                self.ship(first)?;
                self.ship(second)
            }
            Err(refused) if refused.is_about_data => {
                drop(moving);
                let flow = &batch[0];
                tracing::error!(flow = %flow.row.id, "a flow cannot be moved to the shared store and stays on this machine: {}", refused.error);
                self.stuck.insert(flow.seq);
                self.state.stuck.store(self.stuck.len() as u64, SeqCst);
                Ok(())
            }
            Err(refused) => Err(refused.error),
        }
    }

    fn upload(&mut self, batch: &[StoredRow]) -> Result<Option<UploadedBodies>, Refusal> {
        let pieces = Pieces::new(&self.spool, batch, self.database.config.load().compress);
        let uploaded = self.attempt(objects::upload(&self.database, pieces))?;
        if uploaded.is_some() {
            self.uploaded = Some(Instant::now());
        }
        Ok(uploaded)
    }

    fn insert(&self, batch: &[StoredRow], bodies: BatchBodies<'_>) -> Result<(), Refusal> {
        let insert = insert_flows(&self.database, &self.spool, batch, bodies);
        let in_time = async {
            tokio::time::timeout(TIMEOUT, insert).await.unwrap_or_else(|_| {
                let what = format!("the shared store {} did not answer in time", self.database.connector.url);
                Err(InsertError::Unreachable(StoreError::Shared(what)))
            })
        };
        self.attempt(in_time).map(drop)
    }

    /// Runs a part of the work; the end of the process waits for it for a limited time.
    fn attempt<T>(&self, work: impl Future<Output = Result<T, InsertError>>) -> Result<T, Refusal> {
        let ended = async {
            while !self.state.stop.load(SeqCst) {
                tokio::time::sleep(LOOK).await;
            }
            tokio::time::sleep(DRAIN).await;
        };
        let done = self.database.block_on(async {
            tokio::select! {
                done = work => done,
                () = ended => Err(InsertError::Unreachable(StoreError::Closed)),
            }
        });
        done.map_err(|error| match error {
            InsertError::Flow(error) => Refusal { error, is_about_data: true },
            InsertError::Unreachable(error) => Refusal { error, is_about_data: false },
            InsertError::Database(e) => {
                Refusal { error: self.database.connector.explain(&e), is_about_data: is_about_data(&e) }
            }
        })
    }

    /// Measures what waits, and applies the bound of the spool.
    fn measure(&mut self) {
        if self.measured.is_some_and(|(at, cost)| at.elapsed() < MEASURE.max(cost * 20)) {
            return;
        }
        let begun = Instant::now();
        match self.spool.spool_totals() {
            Ok(totals) => {
                *self.state.waiting.lock() = totals;
                let bound = self.database.config.load().spool_max_bytes.0;
                self.spool.set_spool_full(bound > 0 && totals.bytes >= bound);
            }
            Err(error) => tracing::debug!(%error, "the spool could not be measured"),
        }
        self.measured = Some((Instant::now(), begun.elapsed()));
    }
}

struct Refusal {
    error: StoreError,
    /// Whether a flow of the batch is the reason, rather than the database or the way to it.
    is_about_data: bool,
}

/// Whether an error of the database is about a value; everything else ends by itself, or by the operator.
pub(crate) fn is_about_data(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|c| c.code().starts_with("22") || c.code().starts_with("23"))
}

/// Uploads the bodies of a batch if they have a bucket, and stores the flows; returns how many of them were new.
pub(crate) async fn store_batch(
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
    compress: bool,
) -> Result<u64, InsertError> {
    let bodies = match objects::upload(database, Pieces::new(source, flows, compress)).await? {
        Some(uploaded) => BatchBodies::Uploaded(uploaded),
        None => BatchBodies::Local(Pieces::new(source, flows, compress)),
    };
    insert_flows(database, source, flows, bodies).await
}

/// Stores what is left in a spool whose writer has ended, such as flows that were cut off by that. They stay there until
/// the next start, which finds them stored and removes them.
pub(crate) fn ship_rest(database: &Database, spool: &SqliteStore) -> Result<()> {
    let compress = database.config.load().compress;
    let mut after = -1;
    while let (flows, Some(last)) = spool.finished_after(after, BATCH_FLOWS)? {
        let attempt = store_batch(database, spool, &flows, compress);
        match database.block_on(async { tokio::time::timeout(DRAIN, attempt).await }) {
            Ok(Ok(_)) => after = last,
            // The next start tries again, with time.
            _ => return Ok(()),
        }
    }
    Ok(())
}

pub(crate) fn stored_bytes(flow: &StoredRow) -> u64 {
    (0..flow.refs.len()).map(|side| SqliteStore::stored_len(flow, side)).sum::<u64>() + 1024
}
