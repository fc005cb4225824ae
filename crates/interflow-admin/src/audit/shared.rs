//! The audit trail of all replicas, in the database that they share. A line goes into this replica's file first, and from
//! there to the database: it was cancelled, and nothing is missing when it answers again.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_files::{FileAccess, write_atomic};
use interflow_llm_gateway::llm_telemetry::rfc3339;
use interflow_store::shared_state::{IdentityStore, SharedAuditLine};
use interflow_types::Timestamp;
use parking_lot::{Condvar, Mutex};

use crate::audit::trail::{AuditFiles, AuditFilter, AuditRecord, AuditStore};

/// The time of the last line that is in the database, in microseconds: lines after it are still only in the file.
const CURSOR_FILE: &str = "admin-audit.sent";
/// Bound on lines that wait in memory; what exceeds it is read from the file again.
const MAX_QUEUED: usize = 1000;
/// Lines per statement.
const BATCH: usize = 500;
/// Lines that are read from the file at once.
const MAX_CATCH_UP: usize = 20_000;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How long the thread sleeps while nothing is written.
const IDLE: Duration = Duration::from_secs(1);
/// How long a reader waits for the lines of this replica.
const READ_YOUR_WRITES: Duration = Duration::from_secs(2);
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// The trail of a replica and of all.
pub struct SharedAudit(Arc<Trail>);

struct Trail {
    files: AuditFiles,
    store: Arc<dyn IdentityStore>,
    replica: String,
    max_age: Duration,
    cursor_file: PathBuf,
    queue: Mutex<Queue>,
    changed: Condvar,
    unsent: AtomicU64,
}

struct Queue {
    lines: VecDeque<AuditRecord>,
    /// Whether lines that are not in memory wait in the file.
    is_behind: bool,
    /// Whether lines are on their way.
    is_sending: bool,
}

impl SharedAudit {
    /// Begins to send lines, with those that an earlier process left.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        files: AuditFiles,
        store: Arc<dyn IdentityStore>,
        replica: String,
        max_age: Duration,
        data_dir: &Path,
    ) -> Result<Self, String> {
        let trail = Arc::new(Trail {
            files,
            store,
            replica,
            max_age,
            cursor_file: data_dir.join(CURSOR_FILE),
            queue: Mutex::new(Queue { lines: VecDeque::new(), is_behind: true, is_sending: false }),
            changed: Condvar::new(),
            unsent: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&trail);
        std::thread::Builder::new()
            .name("audit-shipper".into())
            .spawn(move || send_lines(&weak))
            .map_err(|e| format!("the audit trail: cannot start its thread: {e}"))?;
        Ok(Self(trail))
    }
}

impl AuditStore for SharedAudit {
    fn append(&self, record: &AuditRecord) {
        let mut record = record.clone();
        record.replica = Some(self.0.replica.clone());
        // The file first: what does not fit into the queue is read from it.
        self.0.files.append(&record);
        self.0.unsent.fetch_add(1, Relaxed);
        let mut queue = self.0.queue.lock();
        if queue.lines.len() < MAX_QUEUED {
            queue.lines.push_back(record);
        } else {
            queue.is_behind = true;
        }
        self.0.changed.notify_all();
    }

    fn newest(&self, filter: &AuditFilter) -> io::Result<Vec<AuditRecord>> {
        if filter.only_local {
            return self.0.files.newest(filter);
        }
        self.0.wait_until_sent();
        newest_of_all(&*self.0.store, filter)
    }

    fn lost_lines(&self) -> u64 {
        self.0.files.lost_lines()
    }

    fn unsent_lines(&self) -> u64 {
        self.0.unsent.load(Relaxed)
    }
}

/// The newest lines of all replicas.
///
/// # Errors
/// The database does not answer.
pub fn newest_of_all(store: &dyn IdentityStore, filter: &AuditFilter) -> io::Result<Vec<AuditRecord>> {
    let lines = store.newest_audit(&filter.text.to_lowercase(), filter.before, filter.limit);
    let lines = lines.map_err(|e| io::Error::other(e.to_string()))?;
    let parse = |line: SharedAuditLine| {
        let mut record: AuditRecord = serde_json::from_str(&line.line).ok()?;
        record.time = rfc3339(record.at);
        Some(record)
    };
    Ok(lines.into_iter().filter_map(parse).collect())
}

fn send_lines(trail: &Weak<Trail>) {
    let (mut backoff, mut is_failing, mut pruned) = (FIRST_BACKOFF, false, None::<Instant>);
    let mut cursor = trail.upgrade().map_or(0, |trail| trail.read_cursor());
    while let Some(trail) = trail.upgrade() {
        match trail.send_next(&mut cursor) {
            Ok(()) => {
                if is_failing {
                    tracing::info!("admin: the audit trail is complete in the database again");
                }
                (backoff, is_failing) = (FIRST_BACKOFF, false);
                if pruned.is_none_or(|at| at.elapsed() >= PRUNE_EVERY) {
                    trail.prune();
                    pruned = Some(Instant::now());
                }
                trail.sleep();
            }
            Err(e) => {
                if !is_failing {
                    tracing::warn!(file = %trail.files.path().display(), error = %e, "admin: cannot send the audit trail to the database");
                }
                is_failing = true;
                drop(trail);
                std::thread::sleep(backoff);
                backoff = (backoff * 2).min(MAX_BACKOFF);
            }
        }
    }
}

impl Trail {
    /// Sends what waits, from memory or from the file.
    fn send_next(&self, cursor: &mut u64) -> io::Result<()> {
        let (lines, is_behind) = {
            let mut queue = self.queue.lock();
            queue.is_sending = true;
            // The lines in memory are in the file, too.
            (std::mem::take(&mut queue.lines), std::mem::take(&mut queue.is_behind))
        };
        let sent = self.send(lines.into(), is_behind, cursor);
        let mut queue = self.queue.lock();
        queue.is_sending = false;
        if !matches!(sent, Ok(true)) {
            queue.is_behind = true;
        }
        self.changed.notify_all();
        sent.map(drop)
    }

    /// Sends lines; returns whether these were all.
    fn send(&self, mut lines: Vec<AuditRecord>, is_behind: bool, cursor: &mut u64) -> io::Result<bool> {
        let mut are_all = true;
        if is_behind {
            lines = self.files.after(*cursor, MAX_CATCH_UP)?;
            are_all = lines.len() < MAX_CATCH_UP;
        }
        for batch in lines.chunks(BATCH) {
            let shared = batch.iter().filter_map(|record| self.shared_line(record)).collect();
            self.store.append_audit(shared).map_err(|e| io::Error::other(e.to_string()))?;
            *cursor = batch.last().map_or(*cursor, |record| record.at.max(*cursor));
            write_atomic(&self.cursor_file, cursor.to_string().as_bytes(), FileAccess::Private)?;
            let sent = batch.len() as u64;
            let _ = self.unsent.fetch_update(Relaxed, Relaxed, |unsent| Some(unsent.saturating_sub(sent)));
        }
        Ok(are_all)
    }

    fn shared_line(&self, record: &AuditRecord) -> Option<SharedAuditLine> {
        // Equal for a line from memory and from the file, where it has a time: it is stored once.
        let replica = record.replica.clone().unwrap_or_else(|| self.replica.clone());
        let record = AuditRecord { time: String::new(), replica: Some(replica.clone()), ..record.clone() };
        let line = serde_json::to_string(&record).ok()?;
        Some(SharedAuditLine { replica, at: record.at, search: record.searched().to_lowercase(), line })
    }

    fn read_cursor(&self) -> u64 {
        // Without it, lines are sent once more and found to be there.
        std::fs::read_to_string(&self.cursor_file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn prune(&self) {
        let age = u64::try_from(self.max_age.as_micros()).unwrap_or(u64::MAX);
        if let Err(e) = self.store.prune_audit(Timestamp::now().micros().saturating_sub(age)) {
            tracing::debug!("admin: old lines stay in the audit trail for now: {e}");
        }
    }

    fn sleep(&self) {
        let mut queue = self.queue.lock();
        if queue.lines.is_empty() && !queue.is_behind {
            self.changed.wait_for(&mut queue, IDLE);
        }
    }

    fn wait_until_sent(&self) {
        let deadline = Instant::now() + READ_YOUR_WRITES;
        let mut queue = self.queue.lock();
        while !queue.lines.is_empty() || queue.is_behind || queue.is_sending {
            if self.changed.wait_until(&mut queue, deadline).timed_out() {
                return;
            }
        }
    }
}
