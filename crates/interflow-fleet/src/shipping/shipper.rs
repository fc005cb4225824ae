//! The shipper: moves finished flows from the spool into PostgreSQL, the oldest first, and removes them from the spool
//! once they are committed. While the database does not answer, it waits and tries again; nothing is given up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interflow_store::stored_form::SpoolTotals;
use interflow_store::{Result, SqliteStore, StoreError};
use parking_lot::{Condvar, Mutex};
use tokio_postgres::error::SqlState;

use crate::database::connect::is_about_data;
use crate::database::pool::Database;
use crate::shipping::insert::{Attempt, BatchBodies, insert_flows};
use crate::shipping::insert_error::InsertError;
use crate::shipping::objects;
use crate::shipping::spooled_flow::SpooledFlow;

/// Flows and bytes of bodies per transaction.
const BATCH_FLOWS: usize = 2000;
pub(crate) const BATCH_BYTES: u64 = 16 << 20;
/// Flows that are read at a time.
const READ_FLOWS: usize = 500;
/// How long batches are moved one after the other before changes of flows that wait here are let through.
const TURN: Duration = Duration::from_millis(500);
/// After a batch of fewer flows than these, the shipper waits for more: each transaction has costs of its own.
const SMALL_BATCH: usize = 500;
/// How long the shipper sleeps while there is nothing new, or little.
const IDLE: Duration = Duration::from_millis(50);
/// How often it looks even if no flow was recorded: imports are not counted as recorded.
const LOOK: Duration = Duration::from_millis(500);
/// After an attempt in which nothing happened for too long, the next one is with this part of its flows.
const STALLED_PART: usize = 8;
/// A flow is left where it is once this many attempts with it alone came to nothing while the server answered otherwise.
const MAX_STALLS: u32 = 3;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How often bodies of little traffic are uploaded: each object costs a request.
const UPLOAD_INTERVAL: Duration = Duration::from_millis(500);
/// What waits is measured at most once in this time, and rarely enough to cost a twentieth of a core.
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
    stop: AtomicBool,
    has_ended: AtomicBool,
    /// When the thread ends, whatever is left.
    stop_at: Mutex<Option<Instant>>,
    asleep: Mutex<()>,
    wake: Condvar,
    /// Somebody waits for what is in the spool.
    is_awaited: AtomicBool,
    handled: Mutex<HandledRows>,
    handled_more: Condvar,
}

/// How far the spool was emptied.
#[derive(Clone, Copy, Default)]
struct HandledRows {
    /// Counts how often it was begun to read the spool from its beginning.
    begun: u64,
    /// The last of these readings that has ended.
    reading: u64,
    /// All finished flows up to this row number, at the time of that reading, are moved or stuck.
    through: i64,
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
            // What an earlier process left may have been sent by it.
            sent_through: spool.newest_row()?.unwrap_or_default(),
            stalls: HashMap::new(),
            batch_flows: BATCH_FLOWS,
            backoff: FIRST_BACKOFF,
            measured: None,
            looked: None,
            uploaded: None,
            was_small: false,
            moved_bytes: 0,
            releasing: None,
            unreleased: Vec::new(),
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
            self.state.stop_at.lock().get_or_insert_with(|| Instant::now() + DRAIN);
            self.state.stop.store(true, SeqCst);
            self.state.wake.notify_all();
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Waits until everything that is in the spool now is moved, or an attempt fails. What comes meanwhile is not waited for.
    pub(crate) fn drain(&self, spool: &SqliteStore) -> Result<()> {
        let state = &self.state;
        let failures = state.failures.load(SeqCst);
        let Some(newest) = spool.newest_finished()? else { return Ok(()) };
        let mut handled = state.handled.lock();
        // A reading that has begun may have missed flows that ended since.
        let reading = handled.begun;
        loop {
            if handled.reading > reading && handled.through >= newest {
                return Ok(());
            }
            if state.failures.load(SeqCst) > failures {
                let why = state.last_error.lock().clone();
                return Err(StoreError::Shared(why.unwrap_or_else(|| "the shared store refused flows".into())));
            }
            if state.has_ended.load(SeqCst) {
                return Err(StoreError::Closed);
            }
            state.is_awaited.store(true, SeqCst);
            state.wake.notify_all();
            state.handled_more.wait_for(&mut handled, IDLE);
        }
    }
}

impl ShipperState {
    fn report_handled(&self, reading: u64, through: i64) {
        let mut handled = self.handled.lock();
        (handled.reading, handled.through) = (reading, through);
        drop(handled);
        self.handled_more.notify_all();
    }

    /// Until the thread must have ended.
    async fn must_end(&self) {
        loop {
            match *self.stop_at.lock() {
                Some(at) if at <= Instant::now() => return,
                _ => {}
            }
            tokio::time::sleep(IDLE).await;
        }
    }
}

struct ShipperTask {
    database: Database,
    spool: Arc<SqliteStore>,
    state: Arc<ShipperState>,
    /// Rows that cannot be moved.
    stuck: HashSet<i64>,
    /// Rows up to this one may be in the database: they were sent, and what came of it is not known.
    sent_through: i64,
    /// Attempts with single flows in which nothing happened for too long.
    stalls: HashMap<i64, u32>,
    /// Flows per transaction, for now.
    batch_flows: usize,
    backoff: Duration,
    measured: Option<(Instant, Duration)>,
    /// When the spool was read, and how many flows had been recorded then.
    looked: Option<(Instant, u64)>,
    /// When bodies were uploaded last.
    uploaded: Option<Instant>,
    /// Whether the last batch had few flows.
    was_small: bool,
    moved_bytes: u64,
    /// The removal of flows that were moved, by their rows, until it is waited for.
    releasing: Option<(Vec<i64>, Receiver<Result<u64>>)>,
    /// Rows of flows that were moved and could not be removed.
    unreleased: Vec<i64>,
}

impl ShipperTask {
    fn run(&mut self) {
        loop {
            let stopping = self.state.stop.load(SeqCst);
            if stopping && self.state.stop_at.lock().is_some_and(|at| Instant::now() >= at) {
                break;
            }
            let moved = self.step();
            self.measure();
            match moved {
                Ok(true) => {
                    self.backoff = FIRST_BACKOFF;
                    if self.was_small && !stopping {
                        self.sleep(IDLE);
                    }
                }
                Ok(false) if stopping => break,
                Ok(false) => self.sleep(IDLE),
                Err(error) => self.fail(&error),
            }
        }
        self.state.has_ended.store(true, SeqCst);
        self.state.handled_more.notify_all();
        let waiting = *self.state.waiting.lock();
        if waiting.flows > 0 {
            tracing::warn!(
                flows = waiting.flows,
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
        self.state.handled_more.notify_all();
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
        let is_awaited = self.state.is_awaited.swap(false, SeqCst);
        if self.looked.is_some_and(|(at, seen)| seen == recorded && at.elapsed() < LOOK)
            && !is_awaited
            && !self.state.stop.load(SeqCst)
        {
            return Ok(false);
        }
        let state = Arc::clone(&self.state);
        // From reading them to their removal: what is deleted here meanwhile must not come back. An upload takes long: with
        // a bucket, it is taken after that, and they are read again.
        let moving = self.database.objects.is_none().then(|| state.moving.lock());
        // What ends from here on may be missed by this reading.
        let reading = {
            let mut handled = state.handled.lock();
            handled.begun += 1;
            handled.begun
        };
        let moved = self.release_again().and_then(|()| self.move_batches(is_awaited));
        let released = self.finish_release();
        drop(moving);
        let (through, any) = moved?;
        released?;
        state.report_handled(reading, through);
        self.looked = (!any).then(|| (Instant::now(), recorded));
        if self.moved_bytes >= COLLECT_BYTES {
            self.moved_bytes = 0;
            if let Err(error) = self.spool.start_collection() {
                tracing::debug!(%error, "the spool's disk space could not be given back");
            }
        }
        Ok(any)
    }

    /// Moves some batches, each while the one before is removed from the spool. Returns the row number up to which all is
    /// moved, and whether there was anything.
    fn move_batches(&mut self, is_awaited: bool) -> Result<(i64, bool)> {
        // An upload takes long, and the others do not wait for it.
        let turn = if self.database.objects.is_some() { Duration::ZERO } else { TURN };
        let (begun, mut through, mut any) = (Instant::now(), -1, false);
        loop {
            let (batch, last) = self.next_batch(through)?;
            if batch.is_empty() {
                return Ok((last, any));
            }
            any = true;
            let bytes: u64 = batch.iter().map(stored_bytes).sum();
            if let Some(wait) = self.before_upload(&batch, bytes).filter(|_| !is_awaited) {
                // More flows may have come then.
                self.sleep(wait);
                break;
            }
            self.ship(&batch)?;
            self.moved_bytes += bytes;
            through = last;
            self.was_small = batch.len() < SMALL_BATCH && bytes < BATCH_BYTES;
            if self.was_small || through == i64::MAX || begun.elapsed() >= turn || self.state.stop.load(SeqCst) {
                break;
            }
        }
        Ok((through, any))
    }

    /// How long a batch waits for more flows whose bodies go into the same object.
    fn before_upload(&self, batch: &[SpooledFlow], bytes: u64) -> Option<Duration> {
        let is_full = batch.len() >= self.batch_flows || bytes >= BATCH_BYTES;
        let is_long = |flow: &SpooledFlow| (0..flow.refs.len()).any(|side| flow.is_apart(side));
        let hurry = is_full || self.state.stop.load(SeqCst);
        if hurry || self.database.objects.is_none() || !batch.iter().any(is_long) {
            return None;
        }
        UPLOAD_INTERVAL.checked_sub(self.uploaded?.elapsed()).filter(|wait| !wait.is_zero())
    }

    /// The oldest finished flows after a row that fit into one transaction, and the row number up to which they are all
    /// there are.
    fn next_batch(&self, mut after: i64) -> Result<(Vec<SpooledFlow>, i64)> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let (flows, last) = self.spool.finished_after(after, READ_FLOWS, &SpooledFlow::read)?;
            let Some(last) = last else { return Ok((batch, i64::MAX)) };
            after = last;
            for flow in flows.into_iter().filter(|flow| !self.stuck.contains(&flow.seq)) {
                let seq = flow.seq;
                bytes += stored_bytes(&flow);
                batch.push(flow);
                if bytes >= BATCH_BYTES || batch.len() >= self.batch_flows {
                    return Ok((batch, seq));
                }
            }
        }
    }

    /// Stores a batch and removes it from the spool.
    fn ship(&mut self, batch: &[SpooledFlow]) -> Result<()> {
        let refused = match self.move_batch(batch) {
            Ok(moved) => {
                self.state.shipped_flows.fetch_add(moved as u64, Relaxed);
                self.batch_flows = (self.batch_flows * 2).min(BATCH_FLOWS);
                if self.state.last_error.lock().take().is_some() {
                    tracing::info!("the shared store answers again");
                }
                return Ok(());
            }
            Err(refused) => refused,
        };
        // These were sent, and may be in the database.
        self.sent_through = batch.last().map_or(self.sent_through, |flow| self.sent_through.max(flow.seq));
        let is_stalled = matches!(refused.reason, RefusalReason::Stall);
        let answers = is_stalled && self.database.block_on(self.database.answers());
        match (refused.reason, batch) {
            (RefusalReason::Data, [flow]) => self.set_stuck(flow, &refused.error),
            (RefusalReason::Data, _) => {
                // One flow is the reason: the others go without it.
                let (first, second) = batch.split_at(batch.len() / 2);
                self.ship(first)?;
                return self.ship(second);
            }
            (RefusalReason::Stall, [flow]) if answers => {
                let stalls = self.stalls.entry(flow.seq).or_default();
                *stalls += 1;
                if *stalls < MAX_STALLS {
                    return Err(refused.error);
                }
                self.stalls.remove(&flow.seq);
                self.set_stuck(flow, &refused.error);
            }
            (RefusalReason::Stall, _) => {
                self.batch_flows = (batch.len() / STALLED_PART).max(1);
                return Err(refused.error);
            }
            (RefusalReason::Database | RefusalReason::Present, _) => return Err(refused.error),
        }
        Ok(())
    }

    fn set_stuck(&mut self, flow: &SpooledFlow, error: &StoreError) {
        tracing::error!(flow = %flow.id, "a flow cannot be moved to the shared store and stays on this machine: {error}");
        self.stuck.insert(flow.seq);
        self.state.stuck.store(self.stuck.len() as u64, SeqCst);
    }

    /// Stores a batch and removes it from the spool; returns how many flows that were.
    fn move_batch(&mut self, batch: &[SpooledFlow]) -> Result<usize, Refusal> {
        let local = |error| Refusal { error, reason: RefusalReason::Database };
        let compress = self.database.config.load().compress;
        let uploaded = self.attempt(objects::upload(&self.database, &self.spool, batch, compress))?;
        if uploaded.is_some() {
            self.uploaded = Some(Instant::now());
        }
        let state = Arc::clone(&self.state);
        let _moving = self.database.objects.is_some().then(|| state.moving.lock());
        // They may have been annotated or deleted during the upload.
        let reread = self.database.objects.is_some().then(|| {
            let numbers = batch.iter().map(|flow| flow.seq).collect();
            self.spool.finished_of(&numbers, &SpooledFlow::read).map_err(local)
        });
        let reread = reread.transpose()?;
        let batch = reread.as_deref().unwrap_or(batch);
        let store = |attempt| -> Result<(), Refusal> {
            let bodies = BatchBodies::new(uploaded.as_ref(), &self.spool, batch, compress).map_err(local)?;
            self.attempt(insert_flows(&self.database, &self.spool, batch, bodies, attempt)).map(drop)
        };
        let is_first = batch.first().is_none_or(|flow| flow.seq > self.sent_through);
        match store(if is_first { Attempt::First } else { Attempt::Repeated }) {
            // Imported by another replica, for example.
            Err(refused) if is_first && matches!(refused.reason, RefusalReason::Present) => store(Attempt::Repeated)?,
            stored => stored?,
        }
        // If this fails, or the answer to the commit is lost, the flows are sent once more and found to be there; unless
        // another replica has deleted them in between, which is then undone.
        let rows = batch.iter().map(|flow| flow.seq);
        if let Err(error) = self.finish_release() {
            self.unreleased.extend(rows);
            return Err(local(error));
        }
        self.start_release(rows.collect()).map_err(local)?;
        if self.database.objects.is_some() {
            self.finish_release().map_err(local)?;
        }
        Ok(batch.len())
    }

    /// Waits until what was moved is removed from the spool.
    fn finish_release(&mut self) -> Result<()> {
        let Some((rows, releasing)) = self.releasing.take() else { return Ok(()) };
        let released = releasing.recv().map_err(|_| StoreError::Closed)?;
        if released.is_err() {
            self.unreleased = rows;
        }
        released.map(drop)
    }

    fn start_release(&mut self, rows: Vec<i64>) -> Result<()> {
        self.releasing = Some((rows.clone(), self.spool.start_release(rows)?));
        Ok(())
    }

    /// Removes what was moved and could not be removed: a disk that refuses that must not make flows be sent again.
    fn release_again(&mut self) -> Result<()> {
        if self.unreleased.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.unreleased);
        self.start_release(rows)?;
        self.finish_release()
    }

    /// Runs a part of the work; the end of the process waits for it for a limited time.
    fn attempt<T>(&self, work: impl Future<Output = Result<T, InsertError>>) -> Result<T, Refusal> {
        let done = self.database.block_on(async {
            tokio::select! {
                done = work => done,
                () = self.state.must_end() => Err(InsertError::Unreachable(StoreError::Closed)),
            }
        });
        done.map_err(|error| match error {
            InsertError::Flow(error) => Refusal { error, reason: RefusalReason::Data },
            InsertError::Unreachable(error) => Refusal { error, reason: RefusalReason::Database },
            InsertError::Database(e) => {
                let reason = match e.code() {
                    Some(code) if *code == SqlState::UNIQUE_VIOLATION => RefusalReason::Present,
                    _ if is_about_data(&e) => RefusalReason::Data,
                    _ => RefusalReason::Database,
                };
                Refusal { error: self.database.connector.explain(&e), reason }
            }
            InsertError::Stalled => {
                Refusal { error: self.database.connector.no_answer(), reason: RefusalReason::Stall }
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
                let is_full = bound > 0 && totals.bytes >= bound || self.spool.is_disk_nearly_full(totals.bytes);
                self.spool.apply_spool_full(is_full);
            }
            Err(error) => tracing::debug!(%error, "the spool could not be measured"),
        }
        self.measured = Some((Instant::now(), begun.elapsed()));
    }
}

struct Refusal {
    error: StoreError,
    reason: RefusalReason,
}

#[derive(Clone, Copy)]
enum RefusalReason {
    /// A flow of the batch.
    Data,
    /// Something of the batch is in the database already.
    Present,
    /// Nothing happened for too long: a flow that is too large for the way to the database, or the database itself.
    Stall,
    /// The database or the way to it; it ends by itself, or by the operator.
    Database,
}

/// Uploads the bodies of a batch if they have a bucket, and stores the flows; returns how many of them were new.
pub(crate) async fn store_batch(
    database: &Database,
    source: &SqliteStore,
    flows: &[SpooledFlow],
    compress: bool,
) -> Result<u64, InsertError> {
    let uploaded = objects::upload(database, source, flows, compress).await?;
    let bodies = BatchBodies::new(uploaded.as_ref(), source, flows, compress).map_err(InsertError::Unreachable)?;
    insert_flows(database, source, flows, bodies, Attempt::Repeated).await
}

/// Stores what is left in a spool whose writer has ended, such as flows that were cut off by that. They stay there until
/// the next start, which finds them stored and removes them.
pub(crate) fn ship_rest(database: &Database, spool: &SqliteStore) -> Result<()> {
    let compress = database.config.load().compress;
    let mut after = -1;
    while let (flows, Some(last)) = spool.finished_after(after, BATCH_FLOWS, &SpooledFlow::read)? {
        let attempt = store_batch(database, spool, &flows, compress);
        match database.block_on(async { tokio::time::timeout(DRAIN, attempt).await }) {
            Ok(Ok(_)) => after = last,
            // The next start tries again, with time.
            _ => return Ok(()),
        }
    }
    Ok(())
}

pub(crate) fn stored_bytes(flow: &SpooledFlow) -> u64 {
    flow.body_bytes() + 1024
}
