//! Sums of replicas in a database that they share. Every process is a writer with a name of its own for each day, and
//! stores its sums of a day and an account in place of those that it stored before: a call that is repeated counts once,
//! and reports add the writers up. Until the database has them, sums wait in files, also those of processes that ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_files::optional;
use jiff::civil::Date;
use parking_lot::Mutex;

use super::day::{Day, today};
use super::day_files::{day_files, day_path, parse_rows, read_file, remove_old_file, set_aside, waiting_files};
use super::{SpendAccount, SpendBy, SpendQuery, UsageSums};

/// The folder of files that wait for the database, in that of the ledger.
const WAITING: &str = "waiting";
/// Rows of a call.
const BATCH: usize = 500;
/// A database that did not answer is not asked again so soon: whoever waits for a report gets the same error.
const RETRY: Duration = Duration::from_secs(2);

/// The table of daily sums that replicas share. Calls may block, for no longer than a time limit of their own.
pub trait SpendDatabase: Send + Sync {
    /// Stores sums of a writer by account, in place of smaller ones that it stored before.
    ///
    /// # Errors
    /// Why the database did not take them, here and below.
    fn put(&self, day: Date, writer: &str, rows: &[(String, UsageSums)]) -> Result<(), String>;

    /// The sums of all writers by account for these days, both included; with `by_day` for each day, else under the
    /// first.
    fn sums(&self, since: Date, until: Date, by_day: bool) -> Result<Vec<(Date, String, UsageSums)>, String>;

    /// Removes some sums of days before this one; returns whether all are removed.
    fn remove_before(&self, day: Date) -> Result<bool, String>;
}

/// What a ledger does with a database.
pub(super) struct SharedSums {
    database: Arc<dyn SpendDatabase>,
    folder: PathBuf,
    sending: Mutex<SendState>,
}

#[derive(Default)]
struct SendState {
    failed: Option<(Instant, String)>,
    /// The day on which old sums were last removed.
    removed_old: Option<Date>,
}

impl SharedSums {
    pub fn new(ledger: &Path, database: Arc<dyn SpendDatabase>) -> Self {
        let folder = ledger.join(WAITING);
        import(ledger, &folder);
        Self { database, folder, sending: Mutex::default() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn send(&self, days: &Mutex<BTreeMap<Date, Day>>, first_kept: Option<Date>) -> Result<(), String> {
        let mut state = self.sending.lock();
        if let Some((at, error)) = &state.failed
            && at.elapsed() < RETRY
        {
            return Err(error.clone());
        }
        let sent = self.send_memory(days).and_then(|()| self.send_files(days, first_kept));
        match &sent {
            Ok(()) => {
                if state.failed.take().is_some() {
                    tracing::info!("limits: the spend of this replica is complete in the database again");
                }
                if let Some(first) = first_kept.filter(|_| state.removed_old != Some(today())) {
                    match self.database.remove_before(first) {
                        Ok(true) => state.removed_old = Some(today()),
                        // More with the next sums.
                        Ok(false) => {}
                        Err(e) => {
                            tracing::warn!("limits: spend that is older than quota.keep_spend stays for now: {e}")
                        }
                    }
                }
            }
            Err(e) => {
                if state.failed.is_none() {
                    tracing::warn!("limits: the spend of this replica waits in {}: {e}", self.folder.display());
                }
                state.failed = Some((Instant::now(), e.clone()));
            }
        }
        sent
    }

    /// Sends rows that changed since they were sent.
    fn send_memory(&self, days: &Mutex<BTreeMap<Date, Day>>) -> Result<(), String> {
        let unsent: Vec<(Date, String, Vec<_>)> = {
            let days = days.lock();
            let unsent = |day: &Day| {
                let rows = day.rows.iter().filter(|(_, row)| !row.is_sent);
                rows.map(|(account, row)| (account.clone(), row.sums)).collect()
            };
            days.iter().map(|(date, day)| (*date, day.writer.clone(), unsent(day))).collect()
        };
        for (date, writer, rows) in unsent {
            for batch in rows.chunks(BATCH) {
                self.put(date, &writer, batch)?;
                let mut days = days.lock();
                let Some(day) = days.get_mut(&date).filter(|day| day.writer == writer) else { continue };
                for (account, sums) in batch {
                    if let Some(row) = day.rows.get_mut(account) {
                        row.is_sent = row.sums == *sums;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends files of earlier processes and days, and removes them.
    fn send_files(&self, days: &Mutex<BTreeMap<Date, Day>>, first_kept: Option<Date>) -> Result<(), String> {
        for (date, writer, path) in waiting_files(&self.folder)? {
            if days.lock().get(&date).is_some_and(|day| day.writer == writer) {
                continue;
            }
            if first_kept.is_some_and(|first| date < first) {
                remove_old_file(&path);
                continue;
            }
            // Its writer may be running yet, and replace the file meanwhile: what is removed is what was sent.
            let claimed = path.with_extension("claimed");
            // Another process with this data directory, such as a command, may have sent the file.
            if claimed != path {
                optional(fs::rename(&path, &claimed)).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            match parse_rows(&claimed, &read_file(&claimed)?) {
                Ok(rows) => {
                    let rows: Vec<_> = rows.into_iter().collect();
                    rows.chunks(BATCH).try_for_each(|batch| self.put(date, &writer, batch))?;
                    optional(fs::remove_file(&claimed)).map_err(|e| format!("{}: {e}", claimed.display()))?;
                }
                Err(e) => {
                    let aside = set_aside(&claimed);
                    tracing::error!("limits: {e}; it is set aside as {}", aside.display());
                }
            }
        }
        Ok(())
    }

    fn put(&self, date: Date, writer: &str, rows: &[(SpendAccount, UsageSums)]) -> Result<(), String> {
        let text = |account| serde_json::to_string(account).map_err(|e| e.to_string());
        let rows: Vec<_> =
            rows.iter().map(|(account, sums)| Ok((text(account)?, *sums))).collect::<Result<_, String>>()?;
        self.database.put(date, writer, &rows)
    }

    /// The rows of all replicas that a report adds up.
    pub fn rows(&self, query: &SpendQuery) -> Result<Vec<(Date, SpendAccount, UsageSums)>, String> {
        let by_day = query.by.iter().any(|by| matches!(by, SpendBy::Day | SpendBy::Month));
        let rows = self.database.sums(query.since, query.until, by_day)?;
        let parse = |(date, account, sums): (Date, String, UsageSums)| {
            let account = serde_json::from_str(&account).map_err(|e| format!("an account of {date}: {e}"))?;
            Ok((date, account, sums))
        };
        rows.into_iter().map(parse).collect()
    }
}

/// A name that no other process has, and that is not derived from the machine's: data directories are copied.
pub(super) fn new_writer() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Moves files of the time before the database to those that wait for it, each once. A name for all of them is chosen
/// anew, since the files of two replicas may be equal.
fn import(ledger: &Path, waiting: &Path) {
    let files = day_files(ledger).unwrap_or_else(|e| {
        tracing::error!("limits: the spend before the shared store is not in reports: {e}");
        Vec::new()
    });
    if files.is_empty() {
        return;
    }
    let writer = new_writer();
    let moved = fs::create_dir_all(waiting)
        .and_then(|()| files.iter().try_for_each(|(date, path)| fs::rename(path, day_path(waiting, *date, &writer))));
    match moved {
        Ok(()) => tracing::info!(
            "limits: the spend of {} days in {} moves to the database of record.store",
            files.len(),
            ledger.display()
        ),
        Err(e) => tracing::error!(
            "limits: the spend before the shared store in {} cannot be moved, and is not in reports: {e}",
            ledger.display()
        ),
    }
}
