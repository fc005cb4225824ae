//! The ledger: a file of JSON lines for each day (UTC), which is replaced as a whole while its day lasts and never
//! changed after that.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_files::{FileAccess, write_atomic};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{SpendAccount, SpendQuery, SpendReport, SpendSums};

/// Bound on the rows of a day: clients choose tags. Further requests are summed without tags and model.
const MAX_ROWS: usize = 10_000;
/// Bound on the days kept in memory while they cannot be written.
const MAX_UNWRITTEN_DAYS: usize = 3;

#[derive(Serialize, Deserialize)]
struct LedgerLine {
    #[serde(flatten)]
    account: SpendAccount,
    #[serde(flatten)]
    sums: SpendSums,
}

type DayRows = HashMap<SpendAccount, SpendSums>;

#[derive(Default)]
struct Day {
    rows: DayRows,
    is_changed: bool,
}

/// Daily sums by key, user, team, organisation, provider, model and tags.
pub struct SpendLedger {
    folder: PathBuf,
    /// Today, and days that are not written yet.
    days: Mutex<BTreeMap<Date, Day>>,
    keep: Mutex<Duration>,
    /// One writer at a time; it does not hold up requests.
    writing: Mutex<()>,
}

pub(crate) fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

impl SpendLedger {
    /// Continues the ledger in this folder. A file of today that cannot be read is renamed with an error, and the day
    /// begins anew.
    pub fn open(folder: PathBuf, keep: Duration) -> Arc<Self> {
        let today = today();
        let rows = read_day(&folder, today).unwrap_or_else(|e| {
            let aside = day_path(&folder, today).with_extension("broken");
            let _ = fs::rename(day_path(&folder, today), &aside);
            tracing::error!("limits: {e}; it is set aside as {}, and the spend of today begins anew", aside.display());
            DayRows::new()
        });
        let days = BTreeMap::from([(today, Day { rows, is_changed: false })]);
        Arc::new(Self { folder, days: Mutex::new(days), keep: Mutex::new(keep), writing: Mutex::new(()) })
    }

    pub fn set_keep(&self, keep: Duration) {
        *self.keep.lock() = keep;
    }

    /// Adds a request.
    pub(crate) fn record(&self, account: SpendAccount, sums: SpendSums) {
        let mut days = self.days.lock();
        let day = days.entry(today()).or_default();
        let is_full = day.rows.len() >= MAX_ROWS && !day.rows.contains_key(&account);
        let account = match is_full {
            true => SpendAccount { model: Some("other".into()), tags: Arc::default(), ..account },
            false => account,
        };
        day.rows.entry(account).or_default().add(&sums);
        day.is_changed = true;
    }

    /// Writes what changed since the last time. An error is logged, and the next call tries again.
    pub fn write(&self) {
        let _alone = self.writing.lock();
        let changed: Vec<(Date, DayRows)> = {
            let mut days = self.days.lock();
            let changed =
                |(date, day): (&Date, &mut Day)| std::mem::take(&mut day.is_changed).then(|| (*date, day.rows.clone()));
            days.iter_mut().filter_map(changed).collect()
        };
        let (mut failed, today) = (false, today());
        for (date, rows) in changed {
            let is_new = !day_path(&self.folder, date).exists();
            if let Err(e) = self.write_day(date, rows) {
                failed = true;
                tracing::error!("limits: the spend of {date} cannot be kept in {}: {e}", self.folder.display());
                self.days.lock().entry(date).or_default().is_changed = true;
            } else if is_new {
                self.remove_old();
            }
        }
        let mut days = self.days.lock();
        while days.len() > 1 && (!failed || days.len() > MAX_UNWRITTEN_DAYS) {
            // A request may have been added to it since it was written.
            match days.first_entry() {
                Some(first) if *first.key() < today && (!first.get().is_changed || failed) => drop(first.remove()),
                _ => break,
            }
        }
    }

    fn write_day(&self, date: Date, rows: DayRows) -> io::Result<()> {
        // Sorted, so that the file does not depend on the order of a hash map.
        let rows: BTreeMap<_, _> = rows.into_iter().collect();
        let mut text = Vec::new();
        for (account, sums) in rows {
            serde_json::to_writer(&mut text, &LedgerLine { account, sums })?;
            text.push(b'\n');
        }
        fs::create_dir_all(&self.folder)?;
        write_atomic(&day_path(&self.folder, date), &text, FileAccess::Private)
    }

    /// Removes days that are older than `quota.keep_spend`.
    fn remove_old(&self) {
        let keep = SignedDuration::try_from(*self.keep.lock()).unwrap_or(SignedDuration::MAX);
        let Some(first) = today().checked_sub(keep).ok() else { return };
        for (date, path) in day_files(&self.folder).unwrap_or_default() {
            if date < first
                && let Err(e) = fs::remove_file(&path)
            {
                tracing::warn!("limits: {} is older than quota.keep_spend, and cannot be removed: {e}", path.display());
            }
        }
    }

    /// A report that includes everything up to now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn report(&self, query: &SpendQuery) -> Result<SpendReport, String> {
        self.write();
        SpendReport::read(&self.folder, query)
    }
}

fn day_path(folder: &Path, date: Date) -> PathBuf {
    folder.join(format!("{date}.jsonl"))
}

fn day_files(folder: &Path) -> Result<Vec<(Date, PathBuf)>, String> {
    let unread = |e: io::Error| format!("{} cannot be read: {e}", folder.display());
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(unread(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unread)?.path();
        let date = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".jsonl")?.parse().ok());
        files.extend(date.map(|date| (date, path)));
    }
    files.sort();
    Ok(files)
}

fn read_day(folder: &Path, date: Date) -> Result<DayRows, String> {
    let path = day_path(folder, date);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(DayRows::new()),
        Err(e) => return Err(format!("{} cannot be read: {e}", path.display())),
    };
    let mut rows = DayRows::new();
    for (i, line) in text.lines().enumerate() {
        let line: LedgerLine =
            serde_json::from_str(line).map_err(|e| format!("{}, line {}: {e}", path.display(), i + 1))?;
        rows.entry(line.account).or_default().add(&line.sums);
    }
    Ok(rows)
}

/// The rows of these days, in their order.
pub(super) fn read_days(
    folder: &Path,
    since: Date,
    until: Date,
) -> Result<Vec<(Date, SpendAccount, SpendSums)>, String> {
    let mut all = Vec::new();
    for (date, _) in day_files(folder)?.into_iter().filter(|(date, _)| (since..=until).contains(date)) {
        all.extend(read_day(folder, date)?.into_iter().map(|(account, sums)| (date, account, sums)));
    }
    Ok(all)
}
