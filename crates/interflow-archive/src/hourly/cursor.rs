//! What has been archived: a small file, replaced after every step, from which an interrupted archive continues.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, create_private_dir, owner_only, write_atomic};
use interflow_objects::ObjectUrl;
use interflow_types::{FlowId, Timestamp, random_bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hour::{Hour, id_before};
use super::{ArchiveError, Result};

const VERSION: u32 = 1;

/// The progress of the archive at one place. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCursor {
    version: u32,
    /// Where the files are. Each place has a cursor of its own: back at an earlier one, the archive continues there.
    pub(super) place: String,
    /// The name of this store in the names of files, so that replicas that share a place do not meet.
    pub(super) replica: String,
    /// Flows that began before are archived, but for those that `hours` lists.
    pub(super) archived_to: Option<u64>,
    /// The flow recorded last when the last run began, and its position: what was recorded later, but began before
    /// `archived_to`, is late.
    pub(super) mark: Option<String>,
    #[serde(default)]
    pub(super) mark_position: u64,
    /// Hours with flows in progress, or with several files, which are merged once nothing is awaited.
    pub(super) hours: BTreeMap<u64, HourProgress>,
    /// Files that are being replaced by one.
    pub(super) merge: Option<PendingMerge>,
    pub(super) flows: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
    last_success: Option<u64>,
    last_error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HourProgress {
    pub files: u32,
    pub bytes: u64,
    /// Flows that were in progress when the hour was archived.
    pub open: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingMerge {
    pub hour: u64,
    pub files: u32,
}

impl ArchiveCursor {
    /// The progress of the archive of the store in `dir` at the place with this URL; of none, the beginning.
    ///
    /// # Errors
    /// The file cannot be read, or was written by a newer version.
    pub fn load(dir: &Path, place: &ObjectUrl) -> Result<Self> {
        let place = place.to_string();
        let path = path(dir, &place);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let replica = hex::encode(random_bytes::<4>());
                return Ok(Self { version: VERSION, place, replica, ..Self::default() });
            }
            Err(e) => return Err(ArchiveError::io("cannot read", &path)(e)),
        };
        let wrong = |why: String| ArchiveError::Cursor { path: path.clone(), why };
        let cursor: Self = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if cursor.version > VERSION {
            return Err(wrong("it was written by a newer version of Interflow".into()));
        }
        Ok(cursor)
    }

    pub(super) fn save(&self, dir: &Path) -> Result<()> {
        let path = path(dir, &self.place);
        let text = serde_json::to_vec_pretty(self).map_err(|e| ArchiveError::io("cannot write", &path)(e.into()))?;
        write_atomic(&path, &text, FileAccess::Private).map_err(ArchiveError::io("cannot write", &path))
    }

    pub(super) fn note_result(&mut self, now_millis: u64, error: Option<String>) {
        if error.is_none() {
            self.last_success = Some(now_millis);
        }
        self.last_error = error;
    }

    pub(super) fn hour(&mut self, hour: Hour) -> &mut HourProgress {
        self.hours.entry(hour.0).or_default()
    }

    /// What happened so far.
    pub fn progress(&self) -> ArchiveProgress {
        ArchiveProgress {
            place: self.place.clone(),
            archived_to: self.archived_to.map(timestamp),
            flows: self.flows,
            files: self.files,
            bytes: self.bytes,
            open_flows: self.hours.values().map(|hour| hour.open.len() as u64).sum(),
            last_success: self.last_success.map(timestamp),
            last_error: self.last_error.clone(),
        }
    }

    /// The first flow that retention must not delete yet: everything before it is archived.
    pub fn keep_from(&self) -> FlowId {
        let next = self.archived_to.map_or(FlowId::from_u128(0), id_before);
        let open = self.hours.values().flat_map(|hour| &hour.open).filter_map(|id| id.parse().ok());
        open.fold(next, FlowId::min)
    }
}

const fn timestamp(millis: u64) -> Timestamp {
    Timestamp::from_micros(millis.saturating_mul(1000))
}

/// The state of an archive, for people and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArchiveProgress {
    /// The URL of the place, without secrets.
    pub place: String,
    /// Flows that began before are archived, but for `open_flows`.
    pub archived_to: Option<Timestamp>,
    /// Flows archived so far.
    pub flows: u64,
    pub files: u64,
    /// Bytes written, of files that were merged since as well.
    pub bytes: u64,
    /// Flows of archived hours that were still in progress.
    pub open_flows: u64,
    /// When the last run without an error began.
    pub last_success: Option<Timestamp>,
    /// Why the last run failed, if it did.
    pub last_error: Option<String>,
}

/// The folder of the archive's own files, inside the folder of the store.
pub(super) fn folder(dir: &Path) -> PathBuf {
    dir.join("archive")
}

fn path(dir: &Path, place: &str) -> PathBuf {
    let hash = blake3::hash(place.as_bytes()).to_hex();
    folder(dir).join(format!("cursor-{}.json", &hash[..16]))
}

/// Held while an archive runs: a command and the instance must not write the same files.
pub(super) struct ArchiveLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl ArchiveLock {
    pub fn take(dir: &Path) -> Result<Self> {
        let folder = folder(dir);
        create_private_dir(&folder).map_err(ArchiveError::io("cannot create", &folder))?;
        let path = folder.join("lock");
        let file = owner_only(File::options().create(true).truncate(false).write(true)).open(&path);
        let file = file.map_err(ArchiveError::io("cannot open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(ArchiveError::Busy),
            Err(std::fs::TryLockError::Error(e)) => Err(ArchiveError::io("cannot lock", &path)(e)),
        }
    }
}
