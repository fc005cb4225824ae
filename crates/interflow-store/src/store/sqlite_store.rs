//! The embedded store: opening, closing and all reads.

use std::fs::{self, OpenOptions};
use std::ops::{ControlFlow, Range};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::JoinHandle;

use interflow_files::{FileLock, create_private_dir};
use interflow_query::Query;
use interflow_types::{CertificateChain, Direction, FlowId};
use parking_lot::Mutex;
use rusqlite::Connection;

use super::connection_pool::{PooledConnection, ReadPool};
use super::select::{self, ListOptions, ListOrder, SearchProgressFn};
use super::store_state::{FlowAnnotation, StoreState, WriterCommand};
use crate::config::RecordConfig;
use crate::error::{Result, StoreError};
use crate::model::{FlowRecord, MessageRecord};
use crate::overview::{Overview, OverviewOptions};
use crate::recorder::StoreRecorder;
use crate::store::segments::body::{BodyReader, ChunkReader, SegmentFiles, StoredBodyParts};
use crate::store::segments::chunk_refs::body_index;
use crate::store::segments::{chunk_refs, messages, segment};
use crate::store::upkeep::age_clock::AgeClock;
use crate::store::upkeep::damage::DamagedRows;
use crate::store::upkeep::disk_reserve::DiskReserve;
use crate::store::upkeep::recover::StoreRecovery;
use crate::store::upkeep::{recover, verify};
use crate::store::{
    CheckReport, FlowFilterFn, FlowStore, RecordingState, StoreStats, Subscription, loading, overview, rows, schema,
    search, segments_dir, startup,
};
use crate::stored_flow::{EachFlow, FlowParts, FlowWithBodies, LoadedFlow, Watch};

/// Flows that [`FlowStore::prune`] deletes at a time.
const PRUNE_STEP: usize = 1000;

/// A store in a folder: SQLite, segment files, and one writer thread. Dropping it writes pending data and closes it.
pub struct SqliteStore {
    dir: PathBuf,
    readers: ReadPool,
    writing: Option<WriterHandle>,
    recovery: StoreRecovery,
    damages: Arc<DamagedRows>,
}

/// The writer side of a store that was opened for writing.
struct WriterHandle {
    shared: Arc<StoreState>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// On the file `lock`.
    _lock: FileLock,
}

impl SqliteStore {
    /// Whether a process is currently recording in this folder.
    pub fn has_writer(dir: &Path) -> bool {
        // Taking the lock is the test; it is released at once when the file is dropped.
        dir.join("lock").exists() && matches!(lock(dir), Err(StoreError::Busy(_)))
    }

    /// Opens the store in `dir` for recording, creating it if necessary, and starts its writer. `config.dir` is
    /// ignored.
    ///
    /// # Errors
    /// [`Busy`](StoreError::Busy) if another process records there; the folder is not writable; the store was created
    /// by a newer version.
    pub fn open(dir: &Path, config: &RecordConfig) -> Result<Self> {
        let segments = segments_dir(dir);
        make_private(&segments)?;
        // Locked before anything is opened: recovery changes files.
        let lock = lock(dir)?;
        let shared = Arc::new(StoreState::new(config));
        let (start, recovery) = startup::open(dir, &shared, config)?;
        let marker = recover::marker(dir);
        let watched = shared.clone();
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || match std::panic::catch_unwind(AssertUnwindSafe(|| start.run())) {
                // Only now is a start without recovery safe.
                Ok(true) => drop(fs::remove_file(marker)),
                Ok(false) => {}
                // Callers must not wait for a writer that has panicked.
                Err(_) => watched.end_with_error("the thread that writes the store has panicked"),
            })
            .map_err(StoreError::io("could not start the thread that writes", dir))?;
        let writing = WriterHandle { shared, thread: Mutex::new(Some(thread)), _lock: lock };
        Ok(Self {
            dir: dir.to_owned(),
            readers: ReadPool::default(),
            writing: Some(writing),
            recovery,
            damages: Arc::default(),
        })
    }

    /// Opens the store in `dir` for reading, also while another process records there.
    ///
    /// # Errors
    /// [`Absent`](StoreError::Absent) if there is none.
    pub fn open_read(dir: &Path) -> Result<Self> {
        let first = schema::open_reader(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            readers: ReadPool::with_connection(first),
            writing: None,
            recovery: StoreRecovery::default(),
            damages: Arc::default(),
        })
    }

    /// Releases the disk space held in reserve; returns false if there is none. It is reserved again once space is
    /// available.
    pub fn release_reserve(&self) -> bool {
        self.writing.is_some() && DiskReserve::for_store(&self.dir).release()
    }

    /// What recovery found when the store was opened.
    pub const fn recovery(&self) -> StoreRecovery {
        self.recovery
    }

    /// The recorder for the request pipeline; `None` if the store was opened read-only.
    pub fn recorder(&self) -> Option<StoreRecorder> {
        let shared = self.writing.as_ref().map(|w| &w.shared);
        shared.map(|s| StoreRecorder { queue: s.queue.clone(), config: s.config.clone() })
    }

    /// Applies a changed configuration: whether flows are recorded, how much of their bodies, masks and retention. Where
    /// the store is, the bounds of its queue, and compression stay as they were when it was opened.
    pub fn configure(&self, config: &RecordConfig) {
        let Some(w) = &self.writing else { return };
        w.shared.config.store(Arc::new(config.clone()));
        // Retention may have something to do now.
        w.shared.queue.request_urgent_batch();
    }

    /// Reports how far the archive is: with `archive_before_delete`, retention deletes no flow from this one on.
    pub fn report_archived(&self, keep_from: FlowId) {
        let Some(w) = &self.writing else { return };
        let mut kept = w.shared.keep_from.lock();
        if kept.is_some() {
            *kept = Some(keep_from);
        }
    }

    /// Writes everything recorded so far and stops the writer; running flows are kept, marked as cut off. Existing
    /// recorders drop everything from here on.
    pub fn close(&self) {
        let Some(w) = &self.writing else { return };
        // Urgent, so that the writer does not sleep to the end of its interval first.
        w.shared.closing.store(true, SeqCst);
        w.shared.queue.request_urgent_batch();
        // Taken, so that a second call and the drop have nothing to join.
        if let Some(thread) = w.thread.lock().take() {
            let _ = thread.join();
        }
    }

    pub(super) fn shared(&self) -> Result<&StoreState> {
        self.writing.as_ref().map(|w| &*w.shared).ok_or(StoreError::ReadOnly)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs `f` with a pooled read connection.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let db = self.connection()?;
        f(&db)
    }

    /// Opens one of a flow's bodies; `place` selects it by the row.
    fn body_at(&self, id: FlowId, range: Range<u64>, place: impl FnOnce(&FlowRecord) -> usize) -> Result<BodyReader> {
        let db = self.connection()?;
        // One snapshot for row and tails: the writer may cut chunks of a running stream concurrently.
        let parts = {
            let view = db.unchecked_transaction()?;
            let stored = rows::get(&view, id)?;
            let place = place(&stored.row);
            StoredBodyParts::for_side(&view, &stored, place)?
        };
        Ok(BodyReader::new(db, segments_dir(&self.dir), parts, range))
    }

    pub(super) fn damages(&self) -> &DamagedRows {
        &self.damages
    }

    pub(super) fn connection(&self) -> Result<PooledConnection> {
        self.readers.acquire(&self.dir)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl FlowStore for SqliteStore {
    fn list_while(&self, options: &ListOptions, watch: &mut Watch<'_>) -> Result<Vec<FlowRecord>> {
        self.read(|db| {
            let mut rows = Vec::new();
            select::for_each_match((db, &self.dir, &self.damages), options, watch, &mut |stored| {
                rows.push(stored.row);
                ControlFlow::Continue(())
            })?;
            Ok(rows)
        })
    }

    fn list_loaded(&self, options: &ListOptions, parts: FlowParts, watch: &mut Watch<'_>) -> Result<Vec<LoadedFlow>> {
        self.read(|db| {
            // One snapshot for rows and bodies: the writer may cut chunks of a running stream meanwhile.
            let view = db.unchecked_transaction()?;
            let mut flows = Vec::new();
            select::for_each_match((&view, &self.dir, &self.damages), options, watch, &mut |stored| {
                flows.push(stored);
                ControlFlow::Continue(())
            })?;
            loading::load(&view, &segments_dir(&self.dir), flows, parts)
        })
    }

    fn search(&self, query: &Query, progress: &SearchProgressFn<'_>, each: &mut EachFlow<'_>) -> Result<()> {
        search::search((&self.dir, &self.damages), query, progress, each)
    }

    fn get(&self, id: FlowId) -> Result<FlowRecord> {
        self.read(|db| rows::get(db, id).map(|s| s.row))
    }

    fn get_loaded(&self, id: FlowId, parts: FlowParts) -> Result<LoadedFlow> {
        self.read(|db| {
            let view = db.unchecked_transaction()?;
            let flow = loading::load(&view, &segments_dir(&self.dir), vec![rows::get(&view, id)?], parts)?.pop();
            flow.ok_or(StoreError::NotFound(id))
        })
    }

    fn body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader> {
        self.body_at(id, range, |_| body_index(direction))
    }

    fn original_body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader> {
        self.body_at(id, range, |row| chunk_refs::received_body_index(row, direction))
    }

    fn certificates(&self, id: FlowId) -> Result<[Option<CertificateChain>; 2]> {
        let read = |side: usize| -> Result<Option<CertificateChain>> {
            let bytes = self
                .body_at(id, 0..u64::MAX, |_| chunk_refs::CERTIFICATES + side)?
                .read_all(CertificateChain::MAX_LEN)?;
            Ok(CertificateChain::from_bytes(bytes))
        };
        Ok([read(0)?, read(1)?])
    }

    fn messages(&self, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        self.read(|db| {
            let stored = rows::get(db, id)?;
            let (dir, mut files) = (segments_dir(&self.dir), SegmentFiles::default());
            messages::read(db, &mut ChunkReader { db, dir: &dir, files: &mut files }, stored.position, range)
        })
    }

    fn count_while(&self, query: &Query, watch: &mut Watch<'_>) -> Result<u64> {
        self.read(|db| {
            let (candidates, exact) = select::count(db, query)?;
            if exact {
                return Ok(candidates);
            }
            let mut n = 0;
            // Without a limit all rows are examined, because SQL alone cannot decide.
            let all = ListOptions { query: query.clone(), limit: usize::MAX, ..ListOptions::default() };
            select::for_each_match((db, &self.dir, &self.damages), &all, watch, &mut |_| {
                n += 1;
                ControlFlow::Continue(())
            })?;
            Ok(n)
        })
    }

    fn insert_all(&self, flows: Vec<FlowWithBodies>) -> Result<u64> {
        self.shared()?.send_command(|reply| WriterCommand::Insert(flows, reply))
    }

    fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<()> {
        self.shared()?.send_command(|reply| WriterCommand::Annotate(id, change, reply))
    }

    fn delete(&self, ids: &[FlowId]) -> Result<u64> {
        self.shared()?.send_command(|reply| WriterCommand::Delete(ids.to_vec(), reply))
    }

    fn prune(&self, query: &Query) -> Result<u64> {
        let shared = self.shared()?;
        match shared.send_command(WriterCommand::Flush) {
            // The disk is full: pruning is what frees space.
            Err(StoreError::Suspended(_)) => {}
            flushed => flushed?,
        }
        let (mut pruned, mut after) = (0, None);
        let mut all = Vec::new();
        loop {
            let page = ListOptions { query: query.clone(), order: ListOrder::Oldest, after, limit: PRUNE_STEP };
            // The next page continues after the last id, because running flows are selected again but never deleted.
            let ids: Vec<FlowId> = self.list(&page)?.into_iter().map(|row| row.id).collect();
            let Some(last) = ids.last().copied() else { break };
            after = Some(last);
            // With all flows known, whole segments can be deleted before the database needs space.
            match shared.suspended() {
                Some(_) => all.extend(ids),
                None => pruned += self.delete(&ids)?,
            }
        }
        if !all.is_empty() {
            pruned += self.delete(&all)?;
        }
        if pruned > 0 {
            match shared.send_command(WriterCommand::Collect) {
                // The disk has no space for that. Now that the store knows, it frees some first.
                Err(e) if e.is_disk() => shared.send_command(WriterCommand::Collect)?,
                freed => freed?,
            };
        }
        Ok(pruned)
    }

    fn flush(&self) -> Result<()> {
        self.shared()?.send_command(WriterCommand::Flush)
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        verify::check(&*self.connection()?, &segments_dir(&self.dir), progress)
    }

    fn damaged_flows(&self) -> u64 {
        self.damages.count()
    }

    fn overview(&self, options: &OverviewOptions, watch: &mut Watch<'_>) -> Result<Overview> {
        let (found, made) = self.read(|db| overview::read((db, &self.dir, &self.damages), options, watch))?;
        if let Some(w) = &self.writing {
            overview::save(&w.shared, made);
        }
        Ok(found)
    }

    fn recording_state(&self) -> RecordingState {
        match &self.writing {
            Some(w) if w.shared.suspended().is_some() => RecordingState::Suspended { shared: false },
            Some(w) if w.shared.queue.is_stalled() => RecordingState::Stalled,
            _ => RecordingState::Recording,
        }
    }

    fn stats(&self) -> Result<StoreStats> {
        let files = segment::list(&segments_dir(&self.dir))?;
        let size = |name: &str| fs::metadata(self.dir.join(name)).map_or(0, |m| m.len());
        let mut stats = StoreStats {
            flows: self.read(|db| Ok(db.query_row("SELECT count(*) FROM flows", [], |r| r.get(0))?))?,
            segments: files.len() as u64,
            segment_bytes: files.iter().map(|(_, size)| size).sum(),
            database_bytes: size("flows.db") + size("flows.db-wal"),
            damaged_flows: self.damages.count(),
            disk_free_bytes: fs4::available_space(&self.dir).ok(),
            ..StoreStats::default()
        };
        if let Some(w) = &self.writing {
            let (s, queue) = (&w.shared, &w.shared.queue);
            let (bytes, flows) = queue.depth();
            stats.recording = s.config.load().enabled;
            stats.open_flows = s.open_flows.load(SeqCst) as u64;
            stats.queue_bytes = bytes as u64;
            stats.queue_flows = flows as u64;
            stats.recorded_flows = s.recorded_flows.load(Relaxed);
            stats.dropped_flows = queue.dropped_flows.load(Relaxed);
            stats.dropped_bytes = queue.dropped_bytes.load(Relaxed);
            stats.lost_flows = s.lost_flows.load(Relaxed);
            stats.waits = queue.waits.load(Relaxed);
            stats.backpressure_micros = queue.backpressure().as_micros() as u64;
            stats.expired_flows = s.expired_flows.load(Relaxed);
            stats.suspended = s.suspended();
            stats.retention_waits = s.retention_waits.lock().clone();
        } else {
            stats.retention_waits = AgeClock::open(&self.dir, None).waits_because();
        }
        Ok(stats)
    }

    fn subscribe(&self) -> Subscription {
        self.writing.as_ref().map_or_else(Subscription::ended, |w| Subscription(w.shared.feeds.subscribe()))
    }

    fn subscribe_to(&self, wanted: FlowFilterFn) -> Subscription {
        let subscribe = |w: &WriterHandle| Subscription(w.shared.feeds.subscribe_to(wanted));
        self.writing.as_ref().map_or_else(Subscription::ended, subscribe)
    }
}

/// Only one process may write a store at a time.
fn lock(dir: &Path) -> Result<FileLock> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(StoreError::io("could not open", &path))?;
    let lock = FileLock::take(file).map_err(StoreError::io("could not lock", path))?;
    lock.ok_or_else(|| StoreError::Busy(dir.to_owned()))
}

/// Creates a folder accessible by its owner only, because recordings are private. An existing folder keeps its mode.
fn make_private(dir: &Path) -> Result<()> {
    create_private_dir(dir).map_err(StoreError::io("could not make", dir))
}
