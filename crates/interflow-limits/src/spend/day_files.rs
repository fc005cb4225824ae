//! The files of the ledger: JSON lines, a file for each day (UTC), and of sums that wait for the database also for each
//! writer.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, optional, write_atomic};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::{SpendAccount, SpendQuery, UsageSums};

#[derive(Serialize, Deserialize)]
struct LedgerLine {
    #[serde(flatten)]
    account: SpendAccount,
    #[serde(flatten)]
    sums: UsageSums,
}

pub(super) type DayRows = HashMap<SpendAccount, UsageSums>;

/// The file of a day: of the sums of a writer if they wait for the database, else the writer is empty.
pub(super) fn day_path(folder: &Path, date: Date, writer: &str) -> PathBuf {
    let dot = if writer.is_empty() { "" } else { "." };
    folder.join(format!("{date}{dot}{writer}.jsonl"))
}

/// Files of a ledger on this machine alone.
pub(super) fn day_files(folder: &Path) -> Result<Vec<(Date, PathBuf)>, String> {
    let dated = |path: PathBuf| Some((file_name(&path)?.strip_suffix(".jsonl")?.parse().ok()?, path));
    list(folder, dated)
}

/// Files that wait for the database, also those that were being stored when a process ended.
pub(super) fn waiting_files(folder: &Path) -> Result<Vec<(Date, String, PathBuf)>, String> {
    let named = |path: PathBuf| {
        let name = file_name(&path)?;
        let name = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".claimed"))?;
        let (date, writer) = name.split_once('.')?;
        Some((date.parse().ok()?, writer.to_owned(), path))
    };
    list(folder, named)
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

fn list<T: Ord>(folder: &Path, parse: impl Fn(PathBuf) -> Option<T>) -> Result<Vec<T>, String> {
    let unread = |e: io::Error| format!("{} cannot be read: {e}", folder.display());
    let mut files = Vec::new();
    let Some(entries) = optional(fs::read_dir(folder)).map_err(unread)? else { return Ok(files) };
    for entry in entries {
        files.extend(parse(entry.map_err(unread)?.path()));
    }
    files.sort();
    Ok(files)
}

/// The rows of a file; none if there is no such file.
pub(super) fn read_rows(path: &Path) -> Result<DayRows, String> {
    parse_rows(path, &read_file(path)?)
}

/// A file's content, which is empty if there is no such file.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let content = optional(fs::read(path)).map(Option::unwrap_or_default);
    content.map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

/// The rows in the content of a file.
pub(super) fn parse_rows(path: &Path, content: &[u8]) -> Result<DayRows, String> {
    let text = std::str::from_utf8(content).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rows = DayRows::new();
    for (i, line) in text.lines().enumerate() {
        let line: LedgerLine =
            serde_json::from_str(line).map_err(|e| format!("{}, line {}: {e}", path.display(), i + 1))?;
        rows.entry(line.account).or_default().add(&line.sums);
    }
    Ok(rows)
}

pub(super) fn write_rows(path: &Path, rows: DayRows) -> io::Result<()> {
    // Sorted, so that the file does not depend on the order of a hash map.
    let rows: BTreeMap<_, _> = rows.into_iter().collect();
    let mut text = Vec::new();
    for (account, sums) in rows {
        serde_json::to_writer(&mut text, &LedgerLine { account, sums })?;
        text.push(b'\n');
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    write_atomic(path, &text, FileAccess::Private)
}

/// Renames a file that cannot be read, so that it is left to the operator and what comes next has its place.
pub(super) fn set_aside(path: &Path) -> PathBuf {
    let aside = path.with_extension("broken");
    let _ = fs::rename(path, &aside);
    aside
}

/// Removes a file that is older than `quota.keep_spend`.
pub(super) fn remove_old_file(path: &Path) {
    if let Err(e) = fs::remove_file(path) {
        tracing::warn!("limits: {} is older than quota.keep_spend, and cannot be removed: {e}", path.display());
    }
}

/// The rows of these days, in their order.
pub(super) fn read_days(folder: &Path, query: &SpendQuery) -> Result<Vec<(Date, SpendAccount, UsageSums)>, String> {
    let mut all = Vec::new();
    for (date, path) in day_files(folder)?.into_iter().filter(|(date, _)| (query.since..=query.until).contains(date)) {
        all.extend(read_rows(&path)?.into_iter().map(|(account, sums)| (date, account, sums)));
    }
    Ok(all)
}
