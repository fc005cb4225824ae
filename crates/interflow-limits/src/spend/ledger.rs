//! The ledger: the sums of a day are kept in memory, and written every few seconds to a file that is replaced as a whole
//! while its day lasts. Replicas with a database add theirs up there: see `shared_sums.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::Date;
use parking_lot::Mutex;

use super::day::{Day, Row, today};
use super::day_files::{DayRows, day_files, day_path, read_days, read_rows, remove_old_file, set_aside, write_rows};
use super::shared_sums::{SharedSums, SpendDatabase, new_writer};
use super::{SpendAccount, SpendError, SpendQuery, SpendReport, UsageSums};

/// Bound on the rows of a day: clients choose tags. Further requests are summed without tags and model.
const MAX_ROWS: usize = 10_000;
/// Bound on the days kept in memory while they cannot be written.
const MAX_UNWRITTEN_DAYS: usize = 3;
/// How often new sums go to the database.
const SEND_INTERVAL: Duration = Duration::from_secs(5);

/// Daily sums by key, user, team, organisation, provider, model and tags.
pub struct SpendLedger {
    folder: PathBuf,
    /// Today, yesterday, and days that are not written yet.
    days: Mutex<BTreeMap<Date, Day>>,
    keep: Mutex<Duration>,
    /// One writer at a time; it does not hold up requests.
    writing: Mutex<()>,
    shared: Option<SharedSums>,
}

impl SpendLedger {
    /// Continues the ledger in this folder. A file of today that cannot be read is renamed with an error, and the day
    /// begins again.
    pub fn open(folder: PathBuf, keep: Duration) -> Arc<Self> {
        let (ledger, today) = (Self::new(folder, keep, None), today());
        let day = ledger.begun_day(today);
        ledger.days.lock().insert(today, day);
        ledger
    }

    /// Begins a ledger whose sums go to a database that replicas share. What was in this folder before goes there too.
    pub fn open_shared(folder: &Path, keep: Duration, database: Arc<dyn SpendDatabase>) -> Arc<Self> {
        let shared = SharedSums::new(folder, database);
        Self::new(shared.folder().to_owned(), keep, Some(shared))
    }

    fn new(folder: PathBuf, keep: Duration, shared: Option<SharedSums>) -> Arc<Self> {
        Arc::new(Self { folder, days: Mutex::default(), keep: Mutex::new(keep), writing: Mutex::default(), shared })
    }

    /// A day that is not in memory. It may have begun before: a clock that was set ahead and back returns to it.
    fn begun_day(&self, date: Date) -> Day {
        if self.shared.is_some() {
            // The database keeps the largest sums of a writer, so what comes now is another one's.
            return Day { writer: new_writer(), ..Day::default() };
        }
        let path = day_path(&self.folder, date, "");
        let rows = read_rows(&path).unwrap_or_else(|e| {
            let aside = set_aside(&path);
            tracing::error!("limits: {e}; it is set aside as {}, and the spend of {date} starts at 0", aside.display());
            DayRows::new()
        });
        let rows = rows.into_iter().map(|(account, sums)| (account, Row { sums, is_sent: false })).collect();
        Day { rows, ..Day::default() }
    }

    /// Sends new sums to the database from now on, on a thread of its own, until the ledger is dropped. Without a
    /// database there is nothing to do.
    pub fn keep_sending(self: &Arc<Self>) {
        if self.shared.is_none() {
            return;
        }
        let ledger = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("spend".into()).spawn(move || send_periodically(&ledger));
        if let Err(e) = thread {
            tracing::error!("limits: no thread to send the spend to the database ({e}); reports send it");
        }
    }

    /// Keeps days for so long from now on.
    pub fn retain(&self, keep: Duration) {
        *self.keep.lock() = keep;
    }

    /// The first day that `quota.keep_spend` keeps; `None` if it keeps all.
    fn first_kept(&self) -> Option<Date> {
        let keep = SignedDuration::try_from(*self.keep.lock()).unwrap_or(SignedDuration::MAX);
        today().checked_sub(keep).ok()
    }

    /// Adds a request.
    pub(crate) fn record(&self, account: SpendAccount, sums: UsageSums) {
        let (mut days, today) = (self.days.lock(), today());
        let day = days.entry(today).or_insert_with(|| self.begun_day(today));
        let is_full = day.rows.len() >= MAX_ROWS && !day.rows.contains_key(&account);
        let account = match is_full {
            true => SpendAccount { model: Some("other".into()), tags: Arc::default(), ..account },
            false => account,
        };
        let row = day.rows.entry(account).or_default();
        row.sums.add(&sums);
        row.is_sent = false;
        day.is_changed = true;
    }

    /// Writes what changed since the last time to this machine's files. An error is logged, and the next call tries again.
    pub fn write(&self) {
        let _alone = self.writing.lock();
        let changed: Vec<(Date, PathBuf, DayRows)> = {
            let mut days = self.days.lock();
            let changed = |(date, day): (&Date, &mut Day)| {
                let path = day_path(&self.folder, *date, &day.writer);
                let rows = || day.rows.iter().map(|(account, row)| (account.clone(), row.sums)).collect();
                std::mem::take(&mut day.is_changed).then(|| (*date, path, rows()))
            };
            days.iter_mut().filter_map(changed).collect()
        };
        let mut failed = false;
        for (date, path, rows) in changed {
            let is_new = !path.exists();
            if let Err(e) = write_rows(&path, rows) {
                failed = true;
                tracing::error!("limits: the spend of {date} cannot be kept in {}: {e}", self.folder.display());
                self.days.lock().get_mut(&date).into_iter().for_each(|day| day.is_changed = true);
            } else if is_new && self.shared.is_none() {
                self.remove_old();
            }
        }
        self.forget_past_days(failed);
    }

    /// Removes days from memory that are in their files. Yesterday stays: a clock that is set back may return to it.
    fn forget_past_days(&self, failed: bool) {
        let yesterday = today().yesterday().unwrap_or(Date::MIN);
        let mut days = self.days.lock();
        while days.len() > 1 && (!failed || days.len() > MAX_UNWRITTEN_DAYS) {
            // A request may have been added to it since it was written.
            match days.first_entry() {
                Some(first) if *first.key() < yesterday && (!first.get().is_changed || failed) => drop(first.remove()),
                _ => break,
            }
        }
    }

    /// Removes days that are older than `quota.keep_spend`.
    fn remove_old(&self) {
        let Some(first) = self.first_kept() else { return };
        let files = day_files(&self.folder).unwrap_or_default();
        files.iter().filter(|(date, _)| *date < first).for_each(|(_, path)| remove_old_file(path));
    }

    /// Sends what the database does not have yet; waits for it no longer than its time limit. Without a database there
    /// is nothing to do.
    ///
    /// # Errors
    /// The database does not answer; what was not sent waits.
    pub fn send(&self) -> Result<(), String> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.send(&self.days, self.first_kept()))
    }

    /// A report that includes everything up to now: of all replicas, if they share a database.
    ///
    /// # Errors
    /// A file cannot be read, or the database does not answer.
    pub fn report(&self, query: &SpendQuery) -> Result<SpendReport, SpendError> {
        self.write();
        let Some(shared) = &self.shared else {
            let rows = read_days(&self.folder, query).map_err(SpendError::File)?;
            return Ok(SpendReport::new(query, rows, false));
        };
        let rows = self.send().and_then(|()| shared.rows(query)).map_err(|e| {
            SpendError::Database(format!(
                "the spend of all replicas cannot be read: {e}; nothing is lost: what this replica has not sent yet waits \
                 in {}",
                self.folder.display()
            ))
        })?;
        Ok(SpendReport::new(query, rows, true))
    }
}

fn send_periodically(ledger: &Weak<SpendLedger>) {
    while let Some(current) = ledger.upgrade() {
        // Logged where it is noticed.
        let _ = current.send();
        drop(current);
        std::thread::sleep(SEND_INTERVAL);
    }
}

#[cfg(test)]
impl SpendLedger {
    /// Forgets all days, as after a time at which the clock was set ahead.
    pub(super) fn forget_days(&self) {
        self.write();
        self.days.lock().clear();
    }
}
