//! The retention clock of an embedded store: kept in a file, so that a jump between two starts is noticed too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use interflow_files::{FileAccess, write_atomic};
use interflow_types::Timestamp;

use crate::retention_clock::RetentionClock;

/// How far the file may be behind, in microseconds.
const SAVE_INTERVAL: u64 = 10 * 60_000_000;

pub(crate) struct AgeClock {
    path: PathBuf,
    clock: RetentionClock,
    saved: Option<RetentionClock>,
}

impl AgeClock {
    /// Without a file, the time is that at which the newest flow was stored.
    pub(crate) fn open(dir: &Path, newest_flow: Option<u64>) -> Self {
        let path = dir.join("retention-clock.json");
        // A damaged file is like none.
        let saved = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let clock = saved.unwrap_or_else(|| RetentionClock::at(newest_flow.unwrap_or_else(now)));
        Self { path, clock, saved }
    }

    /// The time by which flows that are kept for `age` are too old or not.
    pub(crate) fn look(&mut self, age: Duration) -> u64 {
        self.clock.look(now(), age);
        let is_due = self.saved.is_none_or(|saved| {
            saved.is_waiting() != self.clock.is_waiting() || saved.seen.abs_diff(self.clock.seen) >= SAVE_INTERVAL
        });
        if is_due {
            self.save();
        }
        self.clock.time
    }

    pub(crate) fn waits_because(&self) -> Option<String> {
        self.clock.waits_because()
    }

    fn save(&mut self) {
        // Also after a failure: it is not tried again at every look.
        self.saved = Some(self.clock);
        let text = serde_json::to_vec(&self.clock).unwrap_or_default();
        if let Err(error) = write_atomic(&self.path, &text, FileAccess::Private) {
            tracing::debug!(%error, "could not write {}", self.path.display());
        }
    }
}

fn now() -> u64 {
    Timestamp::now().micros()
}
