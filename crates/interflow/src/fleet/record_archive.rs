//! The archive of the record (`record.archive`): a thread that writes each hour to object storage when it is over, and
//! what status, metrics and diagnosis say of it. With `record.store`, one of the replicas archives for all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use interflow_admin::ArchiveProgressFn;
use interflow_admin::metrics::{MetricsSource, table};
use interflow_archive::ArchiveProgress;
use interflow_fleet::hourly::{
    ArchiveCursor, ArchiveError, ArchiveOptions, ArchiveUntil, ArchivedFlows, ArchivedRecord, HourlyArchive,
};
use interflow_fleet::objects::{ObjectStorage, ObjectUrl};
use interflow_fleet::{ArchiveClaim, ArchiveTurn, SharedStore};
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{DoctorFinding, FindingState};
use interflow_store::{FlowStore as _, RecordConfig, SqliteStore};
use interflow_types::{Timestamp, random_bytes};

use crate::components::record_store::RecordStore;
use crate::fleet::access::{open_storage, read_store};
use crate::instance::config::InterflowConfig;

/// How often the archive is brought up to date.
const INTERVAL: Duration = Duration::from_secs(60);
/// How often a replica takes the turn of one that has ended, or renews its own.
const TURN: Duration = Duration::from_secs(2);
/// How soon a failed run is repeated; doubled with every failure, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// How long a start waits for the storage; after that, the archive follows when it answers.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Smaller files would cost query engines more than they hold.
const MIN_FILE_BYTES: u64 = 1 << 20;
/// The archive is late if an hour is not archived this long after it could have been.
const LATE: Duration = Duration::from_secs(2 * 3600);

/// Checks the keys of the archive without a connection.
///
/// # Errors
/// One is wrong; the message begins with it.
pub fn check(config: &RecordConfig) -> Result<(), String> {
    url(config)?;
    if config.archive_file_bytes.0 < MIN_FILE_BYTES {
        return Err("record.archive_file_bytes: at least 1 MiB".into());
    }
    if config.archive_before_delete && config.archive.is_none() {
        return Err("record.archive_before_delete: set record.archive too, or nothing would ever be deleted".into());
    }
    Ok(())
}

fn url(config: &RecordConfig) -> Result<Option<ObjectUrl>, String> {
    config.archive.as_deref().map(|url| url.parse().map_err(|e| format!("record.archive: {e}"))).transpose()
}

pub const fn options(config: &RecordConfig) -> ArchiveOptions {
    ArchiveOptions { bodies: config.archive_bodies, file_bytes: config.archive_file_bytes.0 }
}

pub fn closed_hours(config: &RecordConfig) -> ArchiveUntil {
    ArchiveUntil::ClosedHours { delay_millis: config.archive_delay.0.as_millis() as u64 }
}

/// The store whose record is archived.
enum ArchivedStore {
    Embedded(Arc<SqliteStore>),
    Shared { store: Arc<SharedStore>, turn: Box<ArchiveTurn> },
}

impl ArchivedStore {
    fn new(store: &RecordStore, place: &ObjectUrl) -> Self {
        match store {
            RecordStore::Embedded(store) => Self::Embedded(Arc::clone(store)),
            RecordStore::Shared(store) => {
                Self::Shared { store: Arc::clone(store), turn: Box::new(store.archive_turn(&place.to_string())) }
            }
        }
    }

    /// Reads how far the archive is.
    fn progress(&self, dir: &Path, place: &ObjectUrl) -> Result<(ArchiveCursor, ArchiveProgress), ArchiveError> {
        match self {
            Self::Embedded(_) => {
                let cursor = ArchiveCursor::load(dir, place)?;
                let progress = cursor.progress();
                Ok((cursor, progress))
            }
            Self::Shared { store, .. } => {
                let state = store.archive_state(&place.to_string())?;
                let cursor = ArchiveCursor::from_database(state.cursor.as_deref(), place)?;
                let progress = ArchiveProgress { replica: state.holder, ..cursor.progress() };
                Ok((cursor, progress))
            }
        }
    }

    /// Whether this process archives. In a shared store, that is asked for every few seconds.
    fn take_turn(&self) -> Result<bool, ArchiveError> {
        match self {
            Self::Embedded(_) => Ok(true),
            Self::Shared { turn, .. } => Ok(turn.claim(ArchiveClaim::Free)?),
        }
    }
}

/// What status and metrics say.
#[derive(Clone, Debug, Default)]
struct ArchiveStatus {
    progress: ArchiveProgress,
    /// Whether this process archives.
    is_active: bool,
}

/// Keeps the archive up to date until it is dropped.
pub struct RecordArchiver {
    status: Arc<Mutex<ArchiveStatus>>,
    stopping: Arc<AtomicBool>,
    /// Dropped to wake the thread.
    _wake: mpsc::Sender<()>,
}

impl RecordArchiver {
    /// Tries the storage, and starts the thread; `None` without an archive. A storage that does not answer is waited for.
    ///
    /// # Errors
    /// The storage refuses, with the remedy, or the configuration is wrong.
    pub async fn start(config: &InterflowConfig, home: &DataDir, store: &RecordStore) -> Result<Option<Self>, String> {
        check(&config.record)?;
        let Some(url) = url(&config.record)? else { return Ok(None) };
        let named = |e: String| format!("record.archive: {e}");
        let storage = open_storage(config, &url).map_err(named)?;
        match tokio::time::timeout(START_PATIENCE, storage.check()).await {
            Ok(Ok(())) => tracing::info!("the record is archived to {url}"),
            Ok(Err(e)) if e.is_transient() => tracing::warn!("record.archive: {e}"),
            Ok(Err(e)) => return Err(named(e.to_string())),
            Err(_) => tracing::warn!(%url, "record.archive: the storage timed out; retrying"),
        }
        let dir = home.join(&config.record.dir);
        let store = ArchivedStore::new(store, &url);
        let (cursor, progress) = store.progress(&dir, &url).map_err(|e| named(e.to_string()))?;
        match &store {
            ArchivedStore::Embedded(store) => store.report_archived(cursor.keep_from()),
            ArchivedStore::Shared { store, .. } => store.begin_archiving(&url.to_string()),
        }
        let status = Arc::new(Mutex::new(ArchiveStatus { progress, is_active: false }));
        let stopping = Arc::new(AtomicBool::new(false));
        let (wake, woken) = mpsc::channel();
        let task = ArchiveTask {
            store,
            dir,
            url,
            storage,
            config: config.record.clone(),
            status: Arc::clone(&status),
            stopping: Arc::clone(&stopping),
        };
        let spawned = std::thread::Builder::new().name("archive".into()).spawn(move || task.run(&woken));
        spawned.map_err(|e| format!("cannot start the thread of the archive: {e}"))?;
        Ok(Some(Self { status, stopping, _wake: wake }))
    }

    /// Reads its state.
    fn status(&self) -> impl Fn() -> ArchiveStatus + Send + Sync + use<> {
        let status = Arc::clone(&self.status);
        move || status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its state for the API.
    pub fn progress(&self) -> ArchiveProgressFn {
        let status = self.status();
        Box::new(move || status().progress)
    }

    pub fn metrics(&self) -> MetricsSource {
        let status = self.status();
        Box::new(move |page| {
            let ArchiveStatus { progress: archive, is_active } = status();
            page.value(&table::ARCHIVE_UP, u8::from(archive.last_error.is_none()));
            page.value(&table::ARCHIVE_ACTIVE, u8::from(is_active));
            for (family, value) in [
                (&table::ARCHIVE_ARCHIVED_TO, archive.archived_to),
                (&table::ARCHIVE_LAST_SUCCESS, archive.last_success),
            ] {
                if let Some(at) = value {
                    page.value(family, at.micros() / 1_000_000);
                }
            }
            // Of one replica only, so that sums over all are right.
            if is_active {
                page.value(&table::ARCHIVE_FLOWS, archive.flows);
                page.value(&table::ARCHIVE_BYTES, archive.bytes);
                page.value(&table::ARCHIVE_FILES, archive.files);
                page.value(&table::ARCHIVE_OPEN, archive.open_flows);
            }
        })
    }
}

impl Drop for RecordArchiver {
    fn drop(&mut self) {
        // Not waited for: a run that is cut off is continued by the next start.
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// What the thread works with.
struct ArchiveTask {
    store: ArchivedStore,
    dir: PathBuf,
    url: ObjectUrl,
    storage: ObjectStorage,
    config: RecordConfig,
    status: Arc<Mutex<ArchiveStatus>>,
    stopping: Arc<AtomicBool>,
}

impl ArchiveTask {
    fn run(&self, woken: &mpsc::Receiver<()>) {
        let (mut failed, mut retry, mut due) = (None, FIRST_RETRY, Instant::now());
        while !self.stopping.load(Ordering::Relaxed) {
            let attempt = self.take_turn().and_then(|is_active| match is_active && due <= Instant::now() {
                true => self.archive().map(|()| true),
                false => Ok(false),
            });
            let error = attempt.as_ref().err().map(ToString::to_string);
            // Said once, not at every attempt.
            match (&error, &attempt) {
                (Some(text), _) if failed.as_ref() != Some(text) => {
                    tracing::warn!(error = %text, "cannot archive the record; retrying")
                }
                (None, Ok(true)) if failed.is_some() => tracing::info!("archiving again"),
                _ => {}
            }
            if !matches!(attempt, Ok(false)) {
                // Replicas that failed together do not return together.
                let wait = if error.is_some() { retry } else { INTERVAL };
                due = Instant::now() + wait.mul_f64(1.0 + jitter() / 4.0);
                retry = if error.is_some() { (retry * 2).min(INTERVAL) } else { FIRST_RETRY };
                failed = error;
            }
            let wait = match &self.store {
                ArchivedStore::Embedded(_) => due.saturating_duration_since(Instant::now()),
                ArchivedStore::Shared { .. } => TURN.mul_f64(1.0 - jitter() / 4.0),
            };
            if woken.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Whether this process archives; if another one does, its progress is shown here.
    fn take_turn(&self) -> Result<bool, ArchiveError> {
        let claimed = self.store.take_turn();
        let is_active = *claimed.as_ref().unwrap_or(&false);
        let was_active = std::mem::replace(&mut self.status().is_active, is_active);
        if let ArchivedStore::Shared { turn, .. } = &self.store
            && claimed.is_ok()
        {
            match (was_active, is_active) {
                (false, true) => tracing::info!("this replica, {}, archives the record for all", turn.name()),
                (true, false) => tracing::info!("another replica archives the record now"),
                _ => {}
            }
            if !was_active || !is_active {
                let (_, progress) = self.store.progress(&self.dir, &self.url)?;
                self.status().progress = progress;
            }
        }
        claimed
    }

    fn status(&self) -> std::sync::MutexGuard<'_, ArchiveStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn archive(&self) -> Result<(), ArchiveError> {
        let done = match &self.store {
            ArchivedStore::Embedded(store) => {
                // What is queued belongs to the hours that are over, too. A suspended recorder has nothing more to write.
                let _ = store.flush();
                self.archive_record(ArchivedRecord::Embedded(&**store), None)
            }
            ArchivedStore::Shared { store, turn } => match turn.begin()? {
                Some(lease) => self.archive_record(ArchivedRecord::Shared { store, lease: &lease }, Some(turn.name())),
                None => Err(ArchiveError::TakenOver),
            },
        };
        match done {
            Ok(done) => {
                if done.flows > 0 {
                    tracing::info!("{} flows archived in {} files", done.flows, done.files);
                }
                Ok(())
            }
            // A command, or another replica, does the same work.
            Err(ArchiveError::Busy | ArchiveError::TakenOver) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn archive_record(&self, record: ArchivedRecord<'_>, replica: Option<&str>) -> Result<ArchivedFlows, ArchiveError> {
        let (dir, storage, options) = (&*self.dir, &self.storage, options(&self.config));
        let archive = HourlyArchive { record, dir, storage, options };
        archive.run(Timestamp::now(), closed_hours(&self.config), &mut |cursor| {
            self.status().progress = ArchiveProgress { replica: replica.map(str::to_owned), ..cursor.progress() };
            if let ArchivedStore::Embedded(store) = &self.store {
                store.report_archived(cursor.keep_from());
            }
            !self.stopping.load(Ordering::Relaxed)
        })
    }
}

/// A random number from 0 to 1.
fn jitter() -> f64 {
    f64::from(u16::from_le_bytes(random_bytes())) / f64::from(u16::MAX)
}

/// What `interflow doctor` says of the archive; `None` without one.
pub fn finding(config: &InterflowConfig, home: &DataDir) -> Option<DoctorFinding> {
    let finding = |state, text| Some(DoctorFinding { what: "archive".into(), state, text });
    let url = match url(&config.record) {
        Ok(url) => url?,
        Err(e) => return finding(FindingState::Bad, e),
    };
    let dir = home.join(&config.record.dir);
    let tried = open_storage(config, &url)
        .and_then(|storage| storage.wait(storage.check()).map_err(|e| e.to_string()))
        .and_then(|()| match config.record.store {
            None => ArchiveCursor::load(&dir, &url).map(|cursor| cursor.progress()).map_err(|e| e.to_string()),
            Some(_) => {
                let store = read_store(config, home).map_err(|e| e.to_string())?;
                ArchivedStore::new(&store, &url).progress(&dir, &url).map(|(_, p)| p).map_err(|e| e.to_string())
            }
        });
    let progress = match tried {
        Ok(progress) => progress,
        Err(e) => return finding(FindingState::Bad, e),
    };
    if let Some(error) = progress.last_error {
        return finding(FindingState::Bad, format!("the last run failed: {error}"));
    }
    if config.record.store.is_some() && progress.replica.is_none() {
        let text = format!("no replica archives to {url}; does one run, with this `record.archive`?");
        return finding(FindingState::Notice, text);
    }
    let due = config.record.archive_delay.0 + Duration::from_secs(3600) + LATE;
    let now = Timestamp::now().micros();
    match progress.archived_to {
        None => finding(FindingState::Good, format!("{url} can be written; nothing is archived yet")),
        Some(to) if now.saturating_sub(to.micros()) > due.as_micros() as u64 => {
            let text = "the archive is hours behind; does an instance run, and does its log say why it waits?";
            finding(FindingState::Notice, text.into())
        }
        Some(_) => {
            let by = progress.replica.map_or(String::new(), |name| format!("; {name} archives"));
            let text = format!("{url} has {} flows in {} files{by}", progress.flows, progress.files);
            finding(FindingState::Good, text)
        }
    }
}
