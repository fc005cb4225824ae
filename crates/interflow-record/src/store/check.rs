//! `flows check`: reads everything and says what does not hold.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use rusqlite::Connection;

use super::refs;
use super::rows;
use super::segment::{self, Place};
use crate::error::Result;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Flows looked at.
    pub flows: u64,
    /// Chunks read and verified.
    pub chunks: u64,
    /// Bytes of them on disk.
    pub bytes: u64,
    /// Each thing that does not hold, with its place; at most [`MOST`](Self::MOST) of them.
    pub problems: Vec<String>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl CheckReport {
    /// Problems that are listed one by one.
    pub const MOST: usize = 1000;

    /// Whether everything holds.
    pub const fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < Self::MOST {
            self.problems.push(what);
        }
    }
}

/// Verifies the database, every chunk, and that every chunk a row names is there. `progress` is told how many of how
/// many chunks are done.
pub(crate) fn check(db: &Connection, segments: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    // One view of the database for all that follows, whatever is written meanwhile.
    let db = db.unchecked_transaction()?;
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
    if verdict != "ok" {
        report.problem(format!("database: {verdict}"));
    }
    let bad = check_chunks(&db, segments, &mut report, progress)?;
    check_rows(&db, &bad, &mut report)?;
    check_messages(&db, &bad, &mut report)?;
    Ok(report)
}

/// Reads every chunk. Gives back the ids that are sound.
fn check_chunks(
    db: &Connection,
    segments: &Path,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<HashSet<u64>> {
    let all: u64 = db.query_row("SELECT count(*) FROM chunks", [], |r| r.get(0))?;
    let mut sound = HashSet::new();
    let mut statement = db.prepare("SELECT id, segment, offset, len FROM chunks ORDER BY segment, offset")?;
    let mut rows = statement.query([])?;
    let mut file: Option<(u64, Option<File>)> = None;
    while let Some(row) = rows.next()? {
        let id: u64 = row.get(0)?;
        let place = Place { segment: row.get(1)?, offset: row.get(2)?, len: row.get(3)? };
        if file.as_ref().is_none_or(|(n, _)| *n != place.segment) {
            file = Some((place.segment, File::open(segment::path(segments, place.segment)).ok()));
        }
        report.chunks += 1;
        report.bytes += place.len;
        match file.as_ref().and_then(|(_, f)| f.as_ref()) {
            None => report.problem(format!("chunk {id}: segment {} is not there", place.segment)),
            Some(f) => match segment::read(f, place) {
                Ok(_) => drop(sound.insert(id)),
                // It may have been moved since the view was taken.
                Err(e) => report.problem(format!("chunk {id}: {e}")),
            },
        }
        if report.chunks.is_multiple_of(256) || report.chunks == all {
            progress(report.chunks, all);
        }
    }
    Ok(sound)
}

fn check_rows(db: &Connection, sound: &HashSet<u64>, report: &mut CheckReport) -> Result<()> {
    let columns = rows::COLUMNS;
    let mut statement = db.prepare(&format!(
        "SELECT {columns} FROM flows f LEFT JOIN details d ON d.seq = f.seq LEFT JOIN hosts h ON h.id = f.host ORDER BY f.seq"
    ))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        report.flows += 1;
        match rows::read(row) {
            Err(e) => report.problem(format!("row {}: {e}", row.get::<_, i64>(0)?)),
            Ok(flow) => {
                for r in flow.refs.iter().flatten().filter(|r| !sound.contains(&r.id)) {
                    report.problem(format!(
                        "flow {}: a part of its body (chunk {}) is missing or damaged",
                        flow.row.id, r.id
                    ));
                }
            }
        }
    }
    Ok(())
}

fn check_messages(db: &Connection, sound: &HashSet<u64>, report: &mut CheckReport) -> Result<()> {
    let mut statement = db.prepare("SELECT seq, first, chunks FROM messages WHERE chunks IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (seq, first): (i64, i64) = (row.get(0)?, row.get(1)?);
        match refs::decode(row.get_ref(2)?.as_blob_or_null().map_err(rusqlite::Error::from)?) {
            Err(e) => report.problem(format!("messages of row {seq} from {first}: {e}")),
            Ok(lists) if lists.iter().flatten().any(|r| !sound.contains(&r.id)) => {
                report.problem(format!("messages of row {seq} from {first}: their bytes are missing or damaged"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
