//! The archive of the record (`record.archive`): a thread that writes each hour to object storage when it is over, and
//! what status, metrics and diagnosis say of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interflow_admin::AdminServer;
use interflow_admin::metrics::table;
use interflow_archive::hourly::{
    ArchiveCursor, ArchiveError, ArchiveOptions, ArchiveProgress, ArchiveUntil, HourlyArchive,
};
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{DoctorFinding, FindingState};
use interflow_net::egress::{StandaloneClient, StandaloneOptions};
use interflow_objects::{ObjectAccess, ObjectStorage, ObjectUrl};
use interflow_store::{FlowStore as _, RecordConfig, RecordStore, SqliteStore};
use interflow_types::{Timestamp, random_bytes};

use crate::instance::config::InterflowConfig;

/// How often the archive is brought up to date.
const INTERVAL: Duration = Duration::from_secs(60);
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

/// Sets up a client of the place; nothing is sent.
///
/// # Errors
/// A setting cannot be used.
pub fn open_storage(config: &InterflowConfig, home: &DataDir, url: &ObjectUrl) -> Result<ObjectStorage, String> {
    let extra_ca = config.upstream.extra_ca.iter().map(|path| home.join(path)).collect();
    let client = StandaloneClient::new(StandaloneOptions { extra_ca, ..StandaloneOptions::default() });
    let client = client.map_err(|e| format!("upstream.extra_ca: {e}"))?;
    ObjectStorage::open(url, &ObjectAccess::from_env(Arc::new(client))).map_err(|e| e.to_string())
}

pub const fn options(config: &RecordConfig) -> ArchiveOptions {
    ArchiveOptions { bodies: config.archive_bodies, file_bytes: config.archive_file_bytes.0 }
}

pub fn closed_hours(config: &RecordConfig) -> ArchiveUntil {
    ArchiveUntil::ClosedHours { delay_millis: config.archive_delay.0.as_millis() as u64 }
}

/// Keeps the archive up to date until it is dropped.
pub struct RecordArchiver {
    progress: Arc<Mutex<ArchiveProgress>>,
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
        // Every replica would archive the flows of all.
        let store = store.embedded().ok_or(
            "record.archive: replicas with record.store do not archive; run `interflow record archive --to URL` regularly \
             on one machine, which continues where it ended",
        )?;
        let named = |e: String| format!("record.archive: {e}");
        let storage = open_storage(config, home, &url).map_err(named)?;
        match tokio::time::timeout(START_PATIENCE, storage.check()).await {
            Ok(Ok(())) => tracing::info!("the record is archived to {url}"),
            Ok(Err(e)) if e.is_transient() => tracing::warn!("record.archive: {e}"),
            Ok(Err(e)) => return Err(named(e.to_string())),
            Err(_) => tracing::warn!("record.archive: {url} does not answer; the archive follows when it does"),
        }
        let dir = home.join(&config.record.dir);
        let cursor = ArchiveCursor::load(&dir, &url).map_err(|e| named(e.to_string()))?;
        store.set_archived(cursor.keep_from());
        let progress = Arc::new(Mutex::new(cursor.progress()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (wake, woken) = mpsc::channel();
        let task = ArchiveTask {
            store: Arc::clone(store),
            dir,
            storage,
            config: config.record.clone(),
            progress: Arc::clone(&progress),
            stopping: Arc::clone(&stopping),
        };
        let spawned = std::thread::Builder::new().name("archive".into()).spawn(move || task.run(&woken));
        spawned.map_err(|e| format!("cannot start the thread of the archive: {e}"))?;
        Ok(Some(Self { progress, stopping, _wake: wake }))
    }

    /// Adds its state to the API and to the metrics.
    pub fn attach_admin(&self, admin: &AdminServer) {
        let progress = Arc::clone(&self.progress);
        let current = move || progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        admin.set_archive(current.clone());
        admin.add_metrics(move |page| {
            let archive = current();
            page.value(&table::ARCHIVE_UP, u8::from(archive.last_error.is_none()));
            for (family, value) in [
                (&table::ARCHIVE_ARCHIVED_TO, archive.archived_to),
                (&table::ARCHIVE_LAST_SUCCESS, archive.last_success),
            ] {
                if let Some(at) = value {
                    page.value(family, at.micros() / 1_000_000);
                }
            }
            page.value(&table::ARCHIVE_FLOWS, archive.flows);
            page.value(&table::ARCHIVE_BYTES, archive.bytes);
            page.value(&table::ARCHIVE_FILES, archive.files);
            page.value(&table::ARCHIVE_OPEN, archive.open_flows);
        });
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
    store: Arc<SqliteStore>,
    dir: std::path::PathBuf,
    storage: ObjectStorage,
    config: RecordConfig,
    progress: Arc<Mutex<ArchiveProgress>>,
    stopping: Arc<AtomicBool>,
}

impl ArchiveTask {
    fn run(&self, woken: &mpsc::Receiver<()>) {
        let (mut failed, mut retry) = (None, FIRST_RETRY);
        while !self.stopping.load(Ordering::Relaxed) {
            let error = self.archive().err().map(|e| e.to_string());
            // Said once, not at every attempt.
            match &error {
                Some(text) if failed.as_ref() != error.as_ref() => tracing::warn!("the archive waits: {text}"),
                None if failed.is_some() => tracing::info!("the archive goes on"),
                _ => {}
            }
            let wait = if error.is_some() { retry } else { INTERVAL };
            retry = if error.is_some() { (retry * 2).min(INTERVAL) } else { FIRST_RETRY };
            failed = error;
            // Replicas that failed together do not return together.
            let jitter = wait.mul_f64(f64::from(u16::from_le_bytes(random_bytes())) / f64::from(u16::MAX) / 4.0);
            if woken.recv_timeout(wait + jitter) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn archive(&self) -> Result<(), ArchiveError> {
        // What is queued belongs to the hours that are over, too. A suspended recorder has nothing more to write.
        let _ = self.store.flush();
        let (dir, storage, options) = (&*self.dir, &self.storage, options(&self.config));
        let archive = HourlyArchive { store: &*self.store, dir, storage, options };
        let mut each = |cursor: &ArchiveCursor| {
            *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = cursor.progress();
            self.store.set_archived(cursor.keep_from());
            !self.stopping.load(Ordering::Relaxed)
        };
        match archive.run(Timestamp::now(), closed_hours(&self.config), &mut each) {
            Ok(done) => {
                if done.flows > 0 {
                    tracing::info!("{} flows archived in {} files", done.flows, done.files);
                }
                Ok(())
            }
            // A command does the same work.
            Err(ArchiveError::Busy) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// What `interflow doctor` says of the archive; `None` without one.
pub fn finding(config: &InterflowConfig, home: &DataDir) -> Option<DoctorFinding> {
    let found = |state, text| Some(DoctorFinding { what: "archive".into(), state, text });
    let url = match url(&config.record) {
        Ok(url) => url?,
        Err(e) => return found(FindingState::Bad, e),
    };
    let cursor = ArchiveCursor::load(&home.join(&config.record.dir), &url).map_err(|e| e.to_string());
    let tried = open_storage(config, home, &url)
        .and_then(|storage| storage.wait(storage.check()).map_err(|e| e.to_string()))
        .and(cursor);
    let progress = match tried {
        Ok(cursor) => cursor.progress(),
        Err(e) => return found(FindingState::Bad, e),
    };
    if let Some(error) = progress.last_error {
        return found(FindingState::Bad, format!("the last run failed: {error}"));
    }
    let due = config.record.archive_delay.0 + Duration::from_secs(3600) + LATE;
    let now = Timestamp::now().micros();
    match progress.archived_to {
        None => found(FindingState::Good, format!("{url} can be written; nothing is archived yet")),
        Some(to) if now.saturating_sub(to.micros()) > due.as_micros() as u64 => {
            let text = "the archive is hours behind; does an instance run, and does its log say why it waits?";
            found(FindingState::Notice, text.into())
        }
        Some(_) => found(FindingState::Good, format!("{url} has {} flows in {} files", progress.flows, progress.files)),
    }
}
