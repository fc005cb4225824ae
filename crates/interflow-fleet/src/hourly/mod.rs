//! The archive of a store: its flows as Parquet files in object storage, partitioned by the hour in which they began, for
//! query engines that know nothing of Interflow. The schema is that of [`parquet`](interflow_archive::parquet).
//!
//! An hour is archived once it is over. Flows that were in progress then, or are recorded later with an earlier beginning,
//! follow in further files of their hour, which are merged when nothing more is awaited. Every file is read back before
//! it counts; a [`cursor`](ArchiveCursor) says which files count and how far the archive is, so that a run that was
//! interrupted is continued, by another process where several share a store.

mod cursor;
mod hour;
mod merge;
mod part_writer;
mod place;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use interflow_store::StoreError;
use interflow_types::{FlowId, Timestamp};

pub use self::cursor::ArchiveCursor;
use self::cursor::{ArchiveLock, ArchivedFile, RecordMark};
use self::hour::{FileWriter, Hour, parse_file};
use self::part_writer::{PartWriter, WrittenParts};
use self::place::ArchivePlace;

pub use self::record::ArchivedRecord;
use crate::objects::{ObjectError, ObjectStorage};

/// While late flows still come, an hour of more bytes than this is not merged with every run.
const CHEAP_MERGE_BYTES: u64 = 16 << 20;
/// How long no late flow must have come then.
const SETTLED_MILLIS: u64 = 600_000;
/// When the running hour is archived, too: flows of the last second may not have reached the store.
pub const NOW_SLACK: Duration = Duration::from_secs(1);

pub type Result<T> = std::result::Result<T, ArchiveError>;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Objects(#[from] ObjectError),
    #[error("the record: {0}")]
    Store(#[from] StoreError),
    #[error("{what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {why}; move the file away to archive everything again", path.display())]
    Cursor { path: PathBuf, why: String },
    #[error(
        "the progress of the archive at {place} in the shared store: {why}; delete its row of the table `archives` to archive everything again"
    )]
    SharedCursor { place: String, why: String },
    #[error("{name}: {why}; it is written again at the next run")]
    Differs { name: String, why: String },
    #[error("the record is being archived already, by the running instance or another command: try again later")]
    Busy,
    #[error("another instance archives now")]
    TakenOver,
}

impl ArchiveError {
    fn io(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// Whether a later attempt may succeed without anybody's help.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Objects(e) => e.is_transient(),
            Self::Differs { .. } | Self::Busy | Self::TakenOver => true,
            Self::Store(_) | Self::Io { .. } | Self::Cursor { .. } | Self::SharedCursor { .. } => false,
        }
    }
}

/// Up to when flows are archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveUntil {
    /// The end of the last hour that was over this many milliseconds ago.
    ClosedHours { delay_millis: u64 },
    /// Now; the rest of the running hour follows in further files.
    Now,
}

/// How an archive is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Whether the bytes of bodies are in it.
    pub bodies: bool,
    /// Size at which a file is closed and the next begun.
    pub file_bytes: u64,
}

/// What a run has archived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivedFlows {
    pub flows: u64,
    pub files: u64,
    pub bytes: u64,
}

/// Archives a record to a place. `dir` is the folder of the embedded store, or of the spool: files on their way are in it.
pub struct HourlyArchive<'a> {
    pub record: ArchivedRecord<'a>,
    pub dir: &'a Path,
    pub storage: &'a ObjectStorage,
    pub options: ArchiveOptions,
}

/// Called after every step; false ends the run.
type EachStep<'s> = &'s mut dyn FnMut(&ArchiveCursor) -> bool;

/// The run in progress.
struct ArchiveRun<'a> {
    place: ArchivePlace<'a>,
    options: ArchiveOptions,
    cursor: ArchiveCursor,
    /// The progress that was stored last.
    saved: ArchiveCursor,
    now_millis: u64,
    /// The flow recorded last when the run began: what comes after it is the next run's.
    newest: RecordMark,
    done: ArchivedFlows,
}

impl HourlyArchive<'_> {
    /// Archives what has not been, up to `until`; `each` is called after every step, and ends the run
    /// before the next one if it returns false.
    ///
    /// # Errors
    /// What failed; the files that were written before it count, and the next run continues.
    pub fn run(
        &self,
        now: Timestamp,
        until: ArchiveUntil,
        each: &mut dyn FnMut(&ArchiveCursor) -> bool,
    ) -> Result<ArchivedFlows> {
        let HourlyArchive { record, dir, storage, options } = *self;
        let _lock = ArchiveLock::take(dir)?;
        let cursor = record.load(dir, storage.url())?;
        let now_millis = now.micros() / 1000;
        let place = ArchivePlace { storage, dir, record };
        let (newest, done) = Default::default();
        let saved = cursor.clone();
        let mut run = ArchiveRun { place, options, cursor, saved, now_millis, newest, done };
        let result = run.run(until, each);
        if result.is_err() {
            // What was written since does not count: it would be written once more.
            run.cursor = run.saved.clone();
        }
        run.cursor.note_result(now_millis, result.as_ref().err().map(ToString::to_string));
        run.save()?;
        each(&run.cursor);
        result.map(|()| run.done)
    }
}

impl ArchiveRun<'_> {
    fn run(&mut self, until: ArchiveUntil, each: EachStep<'_>) -> Result<()> {
        // Before anything else: the name of the store must survive the first file that has it.
        self.save()?;
        let limit = match until {
            ArchiveUntil::ClosedHours { delay_millis } => {
                Hour::of_millis(self.now_millis.saturating_sub(delay_millis)).start_millis()
            }
            ArchiveUntil::Now => self.now_millis.saturating_sub(NOW_SLACK.as_millis() as u64),
        };
        let Some(newest) = self.place.record.newest()? else { return Ok(()) };
        self.newest = newest;
        if !self.archive_late_flows(each)? {
            return Ok(());
        }
        while let Some((hour, from, to)) = self.next_slice(limit)? {
            self.archive_slice(hour, from, to)?;
            if !each(&self.cursor) {
                return Ok(());
            }
        }
        self.merge_small_files(each)
    }

    fn save(&mut self) -> Result<()> {
        self.place.record.save(self.place.dir, &self.cursor)?;
        self.saved = self.cursor.clone();
        Ok(())
    }

    /// The next part of an hour before `limit` in which flows began; `None` if there is none, and everything is archived.
    fn next_slice(&mut self, limit: u64) -> Result<Option<(Hour, u64, u64)>> {
        let from = self.cursor.archived_to.unwrap_or(0);
        let first = self.place.record.first_since(from, &self.newest)?;
        let Some(first) = first.filter(|at| *at < limit) else {
            if from < limit {
                self.cursor.archived_to = Some(limit);
            }
            return Ok(None);
        };
        let hour = Hour::of_millis(first);
        Ok(Some((hour, from.max(hour.start_millis()), hour.end_millis().min(limit))))
    }

    fn archive_slice(&mut self, hour: Hour, from: u64, to: u64) -> Result<()> {
        let mut open = Vec::new();
        let mut parts = self.parts(hour);
        self.place.record.write_span((from, to), &self.newest, &mut parts, &mut open)?;
        let written = parts.finish()?;
        self.note_parts(hour, written);
        self.cursor.hour(hour).open.extend(open);
        // A run that was interrupted may have written more files than this one.
        self.delete_leftovers(hour)?;
        let progress = self.cursor.hour(hour);
        if progress.open.is_empty() && progress.files.len() <= 1 && to == hour.end_millis() {
            self.cursor.hours.remove(&hour.0);
        }
        self.cursor.archived_to = Some(to);
        self.save()
    }

    /// Flows that began in hours that are archived already: those that were in progress, and those recorded since. Returns
    /// false if the run shall end.
    fn archive_late_flows(&mut self, each: EachStep<'_>) -> Result<bool> {
        let hours = self.cursor.hours.values();
        let mut waiting: Vec<FlowId> = hours.flat_map(|hour| &hour.open).filter_map(|id| id.parse().ok()).collect();
        let Some(archived_to) = self.cursor.archived_to else {
            // The first run finds all by their time.
            self.cursor.mark = self.newest.clone();
            return Ok(true);
        };
        loop {
            let late = self.place.record.late(&self.cursor.mark, &self.newest, archived_to)?;
            self.write_late_flows(waiting.drain(..).chain(late.ids), each)?;
            let is_last = late.through == self.newest;
            self.cursor.mark = late.through;
            self.save()?;
            if !each(&self.cursor) {
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
        }
    }

    fn write_late_flows(&mut self, ids: impl Iterator<Item = FlowId>, each: EachStep<'_>) -> Result<()> {
        let mut late: BTreeMap<Hour, BTreeSet<FlowId>> = BTreeMap::new();
        for id in ids {
            late.entry(Hour::of_millis(id.unix_millis())).or_default().insert(id);
        }
        // The files that count are settled before the first is written, so that an interrupted run is repeated.
        for hour in late.keys().filter(|hour| !self.cursor.hours.contains_key(&hour.0)).copied().collect::<Vec<_>>() {
            self.adopt_files(hour)?;
        }
        self.save()?;
        each(&self.cursor);
        for (hour, ids) in late {
            let ids: Vec<FlowId> = ids.into_iter().collect();
            let (mut open, mut parts) = (Vec::new(), self.parts(hour));
            self.place.record.write_flows(&ids, &mut parts, &mut open)?;
            let written = parts.finish()?;
            self.note_parts(hour, written);
            let now = self.now_millis;
            let progress = self.cursor.hour(hour);
            (progress.open, progress.changed) = (open, now);
            self.delete_leftovers(hour)?;
        }
        Ok(())
    }

    /// Merges the small files of every hour that is over and awaits nothing.
    fn merge_small_files(&mut self, each: EachStep<'_>) -> Result<()> {
        let now = self.now_millis;
        let is_settled = |of: &cursor::HourProgress| {
            of.bytes() <= CHEAP_MERGE_BYTES || of.changed.saturating_add(SETTLED_MILLIS) <= now
        };
        let done = self.cursor.hours.iter().filter(|(hour, of)| {
            of.open.is_empty() && Hour(**hour).end_millis() < now && (of.files.len() < 2 || is_settled(of))
        });
        for hour in done.map(|(hour, _)| Hour(*hour)).collect::<Vec<_>>() {
            while let Some(small) = merge::mergeable(&self.cursor.hour(hour).files, self.options.file_bytes) {
                let store = self.cursor.store.clone();
                let number = self.cursor.hour(hour).next_number(&store);
                let Some(merged) = merge::merge(self.place, &small, hour.file(&self.writer(), number))? else { break };
                self.cursor.files = self.cursor.files.saturating_sub(small.len() as u64 - 1);
                let files = &mut self.cursor.hour(hour).files;
                files.retain(|file| !small.contains(file));
                files.push(merged);
                self.save()?;
                if !each(&self.cursor) {
                    return Ok(());
                }
            }
            self.delete_leftovers(hour)?;
            self.cursor.hours.remove(&hour.0);
            self.save()?;
        }
        Ok(())
    }

    /// The files of an hour that was complete: all that are there count.
    fn adopt_files(&mut self, hour: Hour) -> Result<()> {
        let files = self.place.list(&hour.folder())?.into_iter();
        let own = files.filter(|entry| parse_file(&entry.name, &self.cursor.store).is_some());
        let files = own.map(|entry| ArchivedFile { name: entry.name, bytes: entry.bytes }).collect();
        self.cursor.hour(hour).files = files;
        Ok(())
    }

    /// Deletes what an interrupted run has left in the folder of an hour, and what was merged. Files of a process that took
    /// over are none of this one's business.
    fn delete_leftovers(&mut self, hour: Hour) -> Result<()> {
        let epoch = self.place.record.epoch();
        let names = self.place.list(&hour.folder())?.into_iter().map(|entry| entry.name);
        let store = self.cursor.store.clone();
        let counted = &self.cursor.hour(hour).files;
        let stale = names.filter(|name| {
            parse_file(name, &store).is_some_and(|(of, _)| of <= epoch)
                && !counted.iter().any(|file| file.name == *name)
        });
        self.place.delete_all(stale.collect())
    }

    fn writer(&self) -> FileWriter<'_> {
        FileWriter { store: &self.cursor.store, epoch: self.place.record.epoch() }
    }

    fn parts(&self, hour: Hour) -> PartWriter<'_> {
        let first = self.cursor.hours.get(&hour.0).map_or(0, |progress| progress.next_number(&self.cursor.store));
        PartWriter::new(self.place, (hour, self.writer(), first), self.options.bodies, self.options.file_bytes)
    }

    fn note_parts(&mut self, hour: Hour, written: WrittenParts) {
        let WrittenParts { files, flows } = written;
        let (count, bytes) = (files.len() as u64, files.iter().map(|file| file.bytes).sum());
        self.cursor.hour(hour).files.extend(files);
        for (total, more) in [
            (&mut self.cursor.flows, flows),
            (&mut self.cursor.files, count),
            (&mut self.cursor.bytes, bytes),
            (&mut self.done.flows, flows),
            (&mut self.done.files, count),
            (&mut self.done.bytes, bytes),
        ] {
            *total += more;
        }
    }
}
