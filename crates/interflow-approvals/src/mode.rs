//! The mode that is set while the program runs: for a while, or until it is set back. With a file, it holds at all replicas
//! that share the file, and after a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interflow_files::{EditTurn, EditedFile, FileAccess};
use interflow_types::Timestamp;
use serde::{Deserialize, Serialize};

use super::config::ApprovalMode;
use super::optional_file::read_optional;
use super::stored::file_error;
use super::{Approvals, ApprovalsError, Result};

/// A mode, and its expiry by the monotonic clock, so that a correction of the wall clock does not change the duration.
pub(super) type TemporaryMode = Option<(ApprovalMode, Option<Timestamp>)>;

/// The file: without a mode, the configured one holds.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMode {
    mode: Option<ApprovalMode>,
    /// In microseconds since the Unix epoch; absent if it does not end by itself.
    until: Option<u64>,
}

impl Approvals {
    /// Keeps the mode in a file, from which a reload takes it over.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn with_mode_file(mut self, path: PathBuf) -> Result<Self, String> {
        self.mode_file = Some(path);
        let mode = self.read_mode()?;
        self.temporary_mode.store(Arc::new(mode));
        self.publish(&mut self.state.lock());
        Ok(self)
    }

    pub fn mode(&self) -> ApprovalMode {
        self.temporary_mode().map_or_else(|| self.settings.load().mode, |(mode, _)| mode)
    }

    /// The temporary mode and its expiry; without one it lasts until it is set back, or without a file until the process
    /// ends.
    pub fn temporary_mode(&self) -> Option<(ApprovalMode, Option<Timestamp>)> {
        let meanwhile = (**self.temporary_mode.load())
            .filter(|(_, until)| until.is_none_or(|until| until > Timestamp::monotonic()));
        meanwhile.map(|(mode, until)| (mode, until.map(Timestamp::to_wall)))
    }

    /// Sets a temporary mode, for a while or until it is set back; `None` returns to the configured one.
    ///
    /// # Errors
    /// Its file cannot be written; the mode is what it was.
    pub fn change_mode(&self, turn: &EditTurn, mode: Option<(ApprovalMode, Option<Duration>)>) -> Result<()> {
        let Some(path) = &self.mode_file else {
            let until = |lasting: Option<Duration>| lasting.map(|d| Timestamp::monotonic().after(d));
            self.activate_mode(mode.map(|(mode, lasting)| (mode, until(lasting))));
            return Ok(());
        };
        let until = mode.and_then(|(_, lasting)| Some(Timestamp::now().after(lasting?).micros()));
        let stored = StoredMode { mode: mode.map(|(mode, _)| mode), until };
        let text = serde_json::to_string(&stored).map_err(|e| ApprovalsError::Io(e.to_string()))?;
        let check = |text: &str| parse_mode(text).map_err(ApprovalsError::Io);
        let activate = |mode| {
            self.activate_mode(mode);
            Ok(())
        };
        let file = EditedFile::new(path, FileAccess::Private, check, activate);
        file.replace(turn, text, |_| true).map_err(|e| file_error(path, e))
    }

    fn activate_mode(&self, mode: TemporaryMode) {
        self.temporary_mode.store(Arc::new(mode));
        // The interest of the stage depends on the mode.
        self.publish(&mut self.state.lock());
        self.resolve_decided();
        self.notify_interest_change();
        self.waiting.notify_watchers();
    }

    /// The mode in the file; none without one.
    pub(super) fn read_mode(&self) -> Result<TemporaryMode, String> {
        let Some(path) = &self.mode_file else { return Ok(**self.temporary_mode.load()) };
        let mode = read_optional(path)?.map(|text| parse_mode(&text)).transpose();
        mode.map(Option::flatten).map_err(|why| format!("{}: {why}", path.display()))
    }
}

fn parse_mode(text: &str) -> Result<TemporaryMode, String> {
    let stored: StoredMode = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let remaining = |until: u64| Duration::from_micros(until.saturating_sub(Timestamp::now().micros()));
    Ok(stored.mode.map(|mode| (mode, stored.until.map(|until| Timestamp::monotonic().after(remaining(until))))))
}
