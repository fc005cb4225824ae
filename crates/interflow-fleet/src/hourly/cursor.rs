//! What has been archived: a small text, replaced after every step, from which an interrupted archive continues. It is a
//! file, or in the database of a shared store.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use interflow_archive::ArchiveProgress;
use interflow_files::{FileAccess, FileLock, create_private_dir, optional, owner_only, write_atomic};
use interflow_types::{FlowId, Timestamp, random_bytes};
use serde::{Deserialize, Serialize};

use super::hour::{Hour, first_id, parse_file};
use super::{ArchiveError, Result};

use crate::objects::ObjectUrl;

const VERSION: u32 = 2;

/// The progress of the archive at one place. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCursor {
    version: u32,
    /// Where the files are. Each place has a cursor of its own: back at an earlier one, the archive continues there.
    pub(super) place: String,
    /// The name of this store in the names of files, so that stores that share a place do not meet.
    pub(super) store: String,
    /// Flows that began before are archived, but for those that `hours` lists.
    pub(super) archived_to: Option<u64>,
    /// The flow recorded last when the last run began: what was recorded later, but began before `archived_to`, is late.
    pub(super) mark: RecordMark,
    /// Hours with flows in progress, or with several files, which are merged once nothing is awaited.
    pub(super) hours: BTreeMap<u64, HourProgress>,
    pub(super) flows: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
    last_success: Option<u64>,
    last_error: Option<String>,
}

/// A place in the order of recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordMark {
    pub position: u64,
    /// The flow there, in an embedded store.
    pub flow: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HourProgress {
    /// The files that count; what else the folder has of this store is left of an interrupted run.
    pub files: Vec<ArchivedFile>,
    /// Flows that were in progress when the hour was archived.
    pub open: Vec<String>,
    /// When late flows were added last.
    #[serde(default)]
    pub changed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ArchivedFile {
    /// Below the place.
    pub name: String,
    pub bytes: u64,
}

impl HourProgress {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The number of the hour's next file.
    pub fn next_number(&self, store: &str) -> u32 {
        let numbers = self.files.iter().filter_map(|file| Some(parse_file(&file.name, store)?.1));
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }
}

impl ArchiveCursor {
    /// The progress of the archive of the store in `dir` at the place with this URL; of none, the beginning.
    ///
    /// # Errors
    /// The file cannot be read, or was written by a newer version.
    pub fn load(dir: &Path, place: &ObjectUrl) -> Result<Self> {
        let place = place.to_string();
        let path = path(dir, &place);
        let text = optional(std::fs::read_to_string(&path)).map_err(ArchiveError::io("cannot read", &path))?;
        let Some(text) = text else { return Ok(Self::new(place)) };
        Self::parse(&text).map_err(|why| ArchiveError::Cursor { path, why })
    }

    /// As [`load`](Self::load), from the database of a shared store.
    ///
    /// # Errors
    /// The text was written by a newer version.
    pub fn from_database(text: Option<&str>, place: &ObjectUrl) -> Result<Self> {
        let place = place.to_string();
        let Some(text) = text else { return Ok(Self::new(place)) };
        Self::parse(text).map_err(|why| ArchiveError::SharedCursor { place, why })
    }

    fn new(place: String) -> Self {
        let store = hex::encode(random_bytes::<4>());
        Self { version: VERSION, place, store, ..Self::default() }
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let cursor: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if cursor.version > VERSION {
            return Err("it was written by a newer version of Interflow".into());
        }
        Ok(cursor)
    }

    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|e| ArchiveError::io("cannot write", Path::new("the progress"))(e.into()))
    }

    pub(super) fn save(&self, dir: &Path) -> Result<()> {
        let path = path(dir, &self.place);
        write_atomic(&path, self.to_text()?.as_bytes(), FileAccess::Private)
            .map_err(ArchiveError::io("cannot write", &path))
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
            replica: None,
        }
    }

    /// The first flow that retention must not delete yet: everything before it is archived.
    pub fn keep_from(&self) -> FlowId {
        let next = self.archived_to.map_or(FlowId::from_u128(0), first_id);
        let open = self.hours.values().flat_map(|hour| &hour.open).filter_map(|id| id.parse().ok());
        open.fold(next, FlowId::min)
    }
}

const fn timestamp(millis: u64) -> Timestamp {
    Timestamp::from_micros(millis.saturating_mul(1000))
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
pub(super) struct ArchiveLock(#[expect(dead_code, reason = "the lock lasts as long as it is held")] FileLock);

impl ArchiveLock {
    pub fn take(dir: &Path) -> Result<Self> {
        let folder = folder(dir);
        create_private_dir(&folder).map_err(ArchiveError::io("cannot create", &folder))?;
        let path = folder.join("lock");
        let file = owner_only(File::options().create(true).truncate(false).write(true)).open(&path);
        let file = file.map_err(ArchiveError::io("cannot open", &path))?;
        let lock = FileLock::take(file).map_err(ArchiveError::io("cannot lock", &path))?;
        lock.map(Self).ok_or(ArchiveError::Busy)
    }
}
