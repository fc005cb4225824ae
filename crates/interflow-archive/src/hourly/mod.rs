//! The archive of a store: its flows as Parquet files in object storage, partitioned by the hour in which they began, for
//! query engines that know nothing of Interflow. The schema is that of [`parquet`](crate::parquet).
//!
//! An hour is archived once it is over. Flows that were in progress then, or are recorded later with an earlier beginning,
//! follow in further files of their hour, which are merged when nothing more is awaited. Every file is read back before
//! it counts; a file [`cursor`](ArchiveCursor) says how far the archive is, so that a run that was interrupted writes the
//! same names again.

mod cursor;
mod hour;
mod merge;
mod part_writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use interflow_objects::{ObjectError, ObjectStorage};
use interflow_query::Query;
use interflow_store::{FlowRow, FlowState, FlowStore, ListOptions, ListOrder, StoreError};
use interflow_types::{FlowId, Timestamp};

use self::cursor::ArchiveLock;
pub use self::cursor::{ArchiveCursor, ArchiveProgress};
use self::hour::{Hour, file_number, id_before};
use self::part_writer::{PartWriter, WrittenParts};
use crate::readable_bodies::ReadableBodySource;

/// Flows read from the store at a time.
const PAGE: usize = 200;
/// Late flows considered in one run.
const MAX_LATE: usize = 1_000_000;
/// When the running hour is archived, too: flows of the last second may not have reached the store.
const NOW_SLACK_MILLIS: u64 = 1_000;

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
    #[error("{name}: {why}; it is written again at the next run")]
    Differs { name: String, why: String },
    #[error("the record is being archived already, by the running instance or another command: try again later")]
    Busy,
}

impl ArchiveError {
    fn io(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    /// Whether a later attempt may succeed without anybody's help.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Objects(e) => e.is_transient(),
            Self::Differs { .. } | Self::Busy => true,
            Self::Store(_) | Self::Io { .. } | Self::Cursor { .. } => false,
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

/// Archives a store, whose folder is `dir`, to a place.
pub struct HourlyArchive<'a> {
    pub store: &'a dyn FlowStore,
    pub dir: &'a Path,
    pub storage: &'a ObjectStorage,
    pub options: ArchiveOptions,
}

/// The run in progress.
struct ArchiveRun<'a> {
    archive: &'a HourlyArchive<'a>,
    cursor: ArchiveCursor,
    now_millis: u64,
    /// The position of the flow recorded last when the run began: what comes after it is the next run's.
    newest: Option<u64>,
    done: ArchivedFlows,
}

impl HourlyArchive<'_> {
    /// Archives what has not been, up to `until`; `each` is called after every step, and ends the run
    /// before the next hour if it returns false.
    ///
    /// # Errors
    /// What failed; the files that were written before it count, and the next run continues.
    pub fn run(
        &self,
        now: Timestamp,
        until: ArchiveUntil,
        each: &mut dyn FnMut(&ArchiveCursor) -> bool,
    ) -> Result<ArchivedFlows> {
        let _lock = ArchiveLock::take(self.dir)?;
        let cursor = ArchiveCursor::load(self.dir, self.storage.url())?;
        let now_millis = now.micros() / 1000;
        let mut run = ArchiveRun { archive: self, cursor, now_millis, newest: None, done: ArchivedFlows::default() };
        let result = run.run(until, each);
        run.cursor.note_result(now_millis, result.as_ref().err().map(ToString::to_string));
        run.cursor.save(self.dir)?;
        each(&run.cursor);
        result.map(|()| run.done)
    }
}

impl ArchiveRun<'_> {
    fn run(&mut self, until: ArchiveUntil, each: &mut dyn FnMut(&ArchiveCursor) -> bool) -> Result<()> {
        // Before anything else: the name of the replica must survive the first file that has it.
        self.cursor.save(self.archive.dir)?;
        let limit = match until {
            ArchiveUntil::ClosedHours { delay_millis } => {
                Hour::of_millis(self.now_millis.saturating_sub(delay_millis)).start_millis()
            }
            ArchiveUntil::Now => self.now_millis.saturating_sub(NOW_SLACK_MILLIS),
        };
        let Some((mark, position)) = self.recorded_last()? else { return Ok(()) };
        self.newest = Some(position);
        self.archive_late_flows(each)?;
        (self.cursor.mark, self.cursor.mark_position) = (Some(mark.to_string()), position);
        self.cursor.save(self.archive.dir)?;
        if !each(&self.cursor) {
            return Ok(());
        }
        while let Some((hour, from, to)) = self.next_slice(limit)? {
            self.archive_slice(hour, from, to)?;
            if !each(&self.cursor) {
                return Ok(());
            }
        }
        let (storage, dir, now) = (self.archive.storage, self.archive.dir, self.now_millis);
        let max_bytes = self.archive.options.file_bytes;
        merge::merge_small_files((storage, dir), &mut self.cursor, max_bytes, now, each)
    }

    /// The next part of an hour before `limit` in which flows began; `None` if there is none, and everything is archived.
    fn next_slice(&mut self, limit: u64) -> Result<Option<(Hour, u64, u64)>> {
        let from = self.cursor.archived_to.unwrap_or(0);
        let after = Some(id_before(from));
        let first = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: 1 };
        let first = self.archive.store.list(&first)?.pop().map(|row| row.id.unix_millis());
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
        let bodies = ReadableBodySource::new(self.archive.store);
        let mut parts = self.parts(hour);
        let mut after = Some(id_before(from));
        'pages: loop {
            let page = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: PAGE };
            let page = self.archive.store.list(&page)?;
            for row in &page {
                if row.id.unix_millis() >= to {
                    break 'pages;
                }
                if self.is_of_next_run(row)? {
                    continue;
                }
                if row.state == FlowState::Open {
                    open.push(row.id.to_string());
                } else {
                    parts.add(&*bodies.row(row)?, &bodies)?;
                }
            }
            after = page.last().map(|row| row.id);
            if page.len() < PAGE {
                break;
            }
        }
        let written = parts.finish()?;
        self.note_parts(hour, written);
        let progress = self.cursor.hour(hour);
        progress.open.extend(open);
        // A run that was interrupted may have written more files than this one.
        let (folder, files) = (hour.folder(), progress.files);
        if progress.open.is_empty() && progress.files <= 1 && to == hour.end_millis() {
            self.cursor.hours.remove(&hour.0);
        }
        self.delete_leftovers(&folder, files)?;
        self.cursor.archived_to = Some(to);
        self.cursor.save(self.archive.dir)
    }

    /// The flow with the greatest position among the newest. Flows are recorded about in the order in which they begin, but
    /// one that was held is recorded after others that began later.
    fn recorded_last(&self) -> Result<Option<(FlowId, u64)>> {
        let mut last = None;
        for row in self.archive.store.list(&ListOptions { limit: PAGE, ..ListOptions::default() })? {
            let position = self.archive.store.recorded_position(row.id)?;
            last = last.max(position.map(|position| (position, row.id)));
        }
        Ok(last.map(|(position, id)| (id, position)))
    }

    /// Whether a flow was recorded after this run began: the next run will find it by its position.
    fn is_of_next_run(&self, row: &FlowRow) -> Result<bool> {
        Ok(self.archive.store.recorded_position(row.id)? > self.newest)
    }

    /// Flows that began in hours that are archived already: those that were in progress, and those recorded since.
    fn archive_late_flows(&mut self, each: &mut dyn FnMut(&ArchiveCursor) -> bool) -> Result<()> {
        let mut late: BTreeMap<Hour, Vec<FlowRow>> = BTreeMap::new();
        let mut open: BTreeMap<Hour, Vec<String>> = BTreeMap::new();
        let waiting: Vec<FlowId> =
            self.cursor.hours.values().flat_map(|hour| &hour.open).filter_map(|id| id.parse().ok()).collect();
        for id in waiting.into_iter().chain(self.recorded_late()?) {
            let hour = Hour::of_millis(id.unix_millis());
            match self.archive.store.get(id) {
                Ok(row) if row.state == FlowState::Open => open.entry(hour).or_default().push(id.to_string()),
                Ok(row) => late.entry(hour).or_default().push(row),
                // Deleted by the operator or by retention.
                Err(StoreError::NotFound(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // The numbers of their files are settled before the first is written, so that an interrupted run repeats them.
        for hour in late.keys().filter(|hour| !self.cursor.hours.contains_key(&hour.0)).copied().collect::<Vec<_>>() {
            self.adopt_files(hour)?;
        }
        self.cursor.save(self.archive.dir)?;
        each(&self.cursor);
        for progress in self.cursor.hours.values_mut() {
            progress.open.clear();
        }
        for (hour, open) in open {
            self.cursor.hour(hour).open = open;
        }
        for (hour, mut rows) in late {
            rows.sort_by_key(|row| row.id);
            let bodies = ReadableBodySource::new(self.archive.store);
            let mut parts = self.parts(hour);
            for row in &rows {
                parts.add(&*bodies.row(row)?, &bodies)?;
            }
            let written = parts.finish()?;
            self.note_parts(hour, written);
        }
        Ok(())
    }

    /// Flows recorded since the last run, before this one, that began in what the last one had archived.
    fn recorded_late(&self) -> Result<Vec<FlowId>> {
        let (Some(mark), Some(archived_to)) = (&self.cursor.mark, self.cursor.archived_to) else {
            return Ok(Vec::new());
        };
        let Ok(mark) = mark.parse::<FlowId>() else { return Ok(Vec::new()) };
        let store = self.archive.store;
        let seen = store.recorded_position(mark)?.unwrap_or(self.cursor.mark_position);
        // Those that began before the mark, and those that began between it and the end of what is archived.
        let mut late = store.rewind_cursor(mark, MAX_LATE)?;
        let mut after = Some(mark);
        loop {
            let page = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: PAGE };
            let page = store.list(&page)?;
            late.extend(page.iter().map(|row| row.id));
            after = page.last().map(|row| row.id);
            if page.len() < PAGE || after.is_some_and(|id| id.unix_millis() >= archived_to) {
                break;
            }
        }
        let mut found = Vec::new();
        for id in late.into_iter().filter(|id| id.unix_millis() < archived_to) {
            let position = store.recorded_position(id)?;
            if position > Some(seen) && position <= self.newest {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Continues the numbers of an hour that was complete: its files are counted where they are.
    fn adopt_files(&mut self, hour: Hour) -> Result<()> {
        let storage = self.archive.storage;
        let found = storage.wait(storage.list(&hour.folder()))?;
        let own = found.iter().filter_map(|e| Some((file_number(&e.name, &self.cursor.replica)?, e.bytes)));
        let (files, bytes) = own.fold((0, 0), |(files, all), (number, bytes)| (files.max(number + 1), all + bytes));
        let progress = self.cursor.hour(hour);
        (progress.files, progress.bytes) = (files, bytes);
        Ok(())
    }

    fn delete_leftovers(&self, folder: &str, files: u32) -> Result<()> {
        let storage = self.archive.storage;
        let found = storage.wait(storage.list(folder))?.into_iter().map(|entry| entry.name);
        let left: Vec<String> =
            found.filter(|name| file_number(name, &self.cursor.replica).is_some_and(|n| n >= files)).collect();
        if left.is_empty() { Ok(()) } else { Ok(storage.wait(storage.delete_all(left))?) }
    }

    fn parts(&self, hour: Hour) -> PartWriter<'_> {
        let HourlyArchive { storage, dir, options, .. } = *self.archive;
        let first = self.cursor.hours.get(&hour.0).map_or(0, |progress| progress.files);
        PartWriter::new((storage, dir), (hour, &self.cursor.replica, first), options.bodies, options.file_bytes)
    }

    fn note_parts(&mut self, hour: Hour, written: WrittenParts) {
        let WrittenParts { files, bytes, flows } = written;
        let progress = self.cursor.hour(hour);
        progress.files += files;
        progress.bytes += bytes;
        for (total, more) in [
            (&mut self.cursor.flows, flows),
            (&mut self.cursor.files, u64::from(files)),
            (&mut self.cursor.bytes, bytes),
            (&mut self.done.flows, flows),
            (&mut self.done.files, u64::from(files)),
            (&mut self.done.bytes, bytes),
        ] {
            *total += more;
        }
    }
}
