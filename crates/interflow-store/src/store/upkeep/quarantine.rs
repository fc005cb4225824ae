//! Moves an unreadable database and its segments to a quarantine folder, so that recording can continue in a new one.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::error::{Result, StoreError};
use crate::store::segments::segment;
use crate::store::{rows, schema, segments_dir};

/// The marker file that records that the writer found database damage.
fn marker(dir: &Path) -> PathBuf {
    dir.join("suspect")
}

/// Marks the database as suspect: the next start checks it completely.
pub(crate) fn mark_suspect(dir: &Path) {
    let path = marker(dir);
    if let Err(error) = fs::write(&path, b"") {
        tracing::warn!(%error, "could not write {}", path.display());
    }
}

/// Checks that the database has all tables and columns of this build. If damage was found earlier, the whole database
/// is checked as well.
pub(crate) fn verify(dir: &Path, db: &Connection) -> Result<()> {
    let damaged = |what: String| StoreError::damaged("flows.db", what);
    let flows = format!("SELECT {} FROM {} LIMIT 0", rows::COLUMNS, rows::SOURCES);
    for sql in [
        flows.as_str(),
        "SELECT duration, client, status, request_size, response_size, request_type, response_type, stored, kept FROM flows LIMIT 0",
        "SELECT seq, direction, at, bytes FROM tails LIMIT 0",
        "SELECT seq, first, count, meta, payload, chunks FROM messages LIMIT 0",
        "SELECT id, segment, offset, len, hash FROM chunks LIMIT 0",
    ] {
        // Preparing fails only if a table or column is missing or a page is corrupt.
        if let Err(e) = db.prepare(sql) {
            let e = StoreError::from(e);
            return Err(if e.is_disk() { e } else { damaged(format!("its tables are not those of a store: {e}")) });
        }
    }
    // The full check reads the whole database, hence only after damage was found.
    if marker(dir).exists() {
        // `quick_check` stops after the first problem: one is enough to set the database aside.
        let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
        if verdict != "ok" {
            return Err(damaged(verdict));
        }
        // The database is sound after all; later starts skip the check.
        let _ = fs::remove_file(marker(dir));
    }
    Ok(())
}

/// What is wrong with the database although its segments are there, if it is empty or gone.
pub(crate) fn lost_database(dir: &Path) -> Option<&'static str> {
    let lost = match fs::metadata(schema::file(dir)) {
        Ok(found) if found.len() == 0 => "it is empty, and there are segments",
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "it is gone, and there are segments",
        _ => return None,
    };
    // Segments of up to 1 KiB hold next to nothing: those are of a store that never recorded.
    let has_bodies = segment::list(&segments_dir(dir)).is_ok_and(|files| files.iter().any(|(_, size)| *size > 1 << 10));
    has_bodies.then_some(lost)
}

/// Moves the database and its segments to a folder of their own, and returns its path.
pub(crate) fn quarantine(dir: &Path) -> Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let free = |n: u32| {
        let name = if n == 0 { format!("damaged-{now}") } else { format!("damaged-{now}-{n}") };
        Some(dir.join(name)).filter(|p| !p.exists())
    };
    let aside = (0..100).find_map(free).unwrap_or_else(|| dir.join("damaged"));
    fs::create_dir_all(&aside).map_err(StoreError::io("could not make", &aside))?;
    // The log belongs to its database: left behind, SQLite would apply it to the new one.
    for name in ["flows.db", "flows.db-wal", "flows.db-shm", "segments", "suspect"] {
        match fs::rename(dir.join(name), aside.join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("could not set aside", dir.join(name))(e));
            }
            _ => {}
        }
    }
    let segments = segments_dir(dir);
    fs::create_dir_all(&segments).map_err(StoreError::io("could not make", &segments))?;
    Ok(aside)
}
