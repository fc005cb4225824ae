//! `flows check`: reads the whole store and reports damage.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::error::Result;
use crate::store::rows;
use crate::store::segments::body::{CHUNK_PLACE, chunk_place};
use crate::store::segments::segment::RecordLocation;
use crate::store::segments::{chunk_refs, segment};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Flows checked.
    pub flows: u64,
    /// Chunks read and verified.
    pub chunks: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// The problems with their locations; at most [`MAX_PROBLEMS`](Self::MAX_PROBLEMS).
    pub problems: Vec<String>,
    /// The total number of problems.
    pub problem_count: u64,
}

impl CheckReport {
    /// Problems that are listed individually.
    pub const MAX_PROBLEMS: usize = 1000;

    /// Whether no problem was found.
    pub const fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    pub fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < Self::MAX_PROBLEMS {
            self.problems.push(what);
        }
    }
}

/// Rows and chunks read from the database at a time.
const STEP: i64 = 1000;
/// How often a chunk that moves while it is read is looked up again.
const MAX_TRIES: usize = 8;

/// Verifies the database, every chunk, and that every chunk named by a row exists. `progress` is called with the number
/// of chunks done and in total.
///
/// The store may be written and retention may run concurrently. No locks are held; a discrepancy counts as a problem
/// only if the database still shows it when queried again.
pub(crate) fn check(db: &Connection, segments: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    let mut check = StoreCheck { db, segments, report: CheckReport::default(), sound: HashSet::new(), file: None };
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
    if verdict != "ok" {
        // Continues after a problem: the other parts of the store may still be sound.
        check.report.problem(format!("database: {verdict}"));
    }
    check.chunks(progress)?;
    check.rows()?;
    check.messages()?;
    Ok(check.report)
}

struct StoreCheck<'a> {
    db: &'a Connection,
    segments: &'a Path,
    report: CheckReport,
    sound: HashSet<u64>,
    file: Option<(u64, Option<File>)>,
}

enum ChunkVerdict {
    Sound,
    /// It is no longer in the index.
    Gone,
    Bad(String),
}

impl StoreCheck<'_> {
    fn chunks(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let all: u64 = self.db.query_row("SELECT count(*) FROM chunks", [], |r| r.get(0))?;
        let mut after = -1;
        loop {
            let sql = "SELECT id, segment, offset, len FROM chunks WHERE id > ? ORDER BY id LIMIT ?";
            let page: Vec<(u64, RecordLocation)> = rows::query_all(self.db, sql, [after, STEP], |r| {
                Ok((r.get(0)?, RecordLocation { segment: r.get(1)?, offset: r.get(2)?, len: r.get(3)? }))
            })?;
            for (id, place) in &page {
                self.report.chunks += 1;
                match self.verify(*id, *place)? {
                    ChunkVerdict::Sound => self.report.bytes += place.len,
                    // Retention deleted it after the page was read.
                    ChunkVerdict::Gone => self.report.chunks -= 1,
                    ChunkVerdict::Bad(why) => {
                        self.report.bytes += place.len;
                        self.report.problem(format!("chunk {id}: {why}"));
                    }
                }
                if self.report.chunks.is_multiple_of(256) {
                    // Chunks may be added during the check; the total must not be less than what is done.
                    progress(self.report.chunks, all.max(self.report.chunks));
                }
            }
            let Some((last, _)) = page.last() else { break };
            after = *last as i64;
        }
        progress(self.report.chunks, self.report.chunks);
        Ok(())
    }

    /// Reads a chunk; if that fails and the index has a new location for it, reads it there.
    fn verify(&mut self, id: u64, mut place: RecordLocation) -> Result<ChunkVerdict> {
        let mut why = String::new();
        for _ in 0..MAX_TRIES {
            match self.read(place) {
                Ok(()) => {
                    self.sound.insert(id);
                    return Ok(ChunkVerdict::Sound);
                }
                Err(e) => why = e,
            }
            // The open file may be one that was deleted meanwhile.
            self.file = None;
            match self.chunk_location(id)? {
                None => return Ok(ChunkVerdict::Gone),
                // The same location twice: the data itself is bad.
                Some(now) if now == place => break,
                Some(now) => place = now,
            }
        }
        Ok(ChunkVerdict::Bad(why))
    }

    fn read(&mut self, place: RecordLocation) -> Result<(), String> {
        // Chunks of a page mostly follow each other in one segment, so one open file suffices.
        if self.file.as_ref().is_none_or(|(n, _)| *n != place.segment) {
            self.file = Some((place.segment, File::open(segment::path(self.segments, place.segment)).ok()));
        }
        match self.file.as_ref().and_then(|(_, f)| f.as_ref()) {
            None => Err(format!("segment {} is not there", place.segment)),
            Some(f) => segment::read(f, place).map(drop).map_err(|e| e.to_string()),
        }
    }

    fn chunk_location(&self, id: u64) -> Result<Option<RecordLocation>> {
        Ok(self.db.prepare_cached(CHUNK_PLACE)?.query_row([id], chunk_place).optional()?)
    }

    /// Whether a chunk named by a row is intact; one created after the chunks were read is read now.
    fn is_chunk_sound(&mut self, id: u64) -> Result<bool> {
        // Kept in memory: many rows name the same chunk.
        if self.sound.contains(&id) {
            return Ok(true);
        }
        let Some(place) = self.chunk_location(id)? else { return Ok(false) };
        Ok(matches!(self.verify(id, place)?, ChunkVerdict::Sound))
    }

    fn rows(&mut self) -> Result<()> {
        let columns = rows::COLUMNS;
        // Outer joins, unlike for lists: a row without details or host is a problem to report, not to leave out.
        let sql = format!(
            "SELECT {columns} FROM flows f LEFT JOIN details d ON d.seq = f.seq LEFT JOIN hosts h ON h.id = f.host \
             WHERE f.seq > ? ORDER BY f.seq LIMIT ?"
        );
        let mut after = i64::MIN;
        loop {
            let page = rows::query_all(self.db, &sql, [after, STEP], |row| {
                Ok((row.get::<_, i64>(0)?, rows::read(row).map_err(|e| e.to_string())))
            })?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            for (seq, read) in page {
                self.report.flows += 1;
                match read {
                    Err(e) => self.report.problem(format!("row {seq}: {e}")),
                    Ok(flow) => {
                        for r in flow.refs.iter().flatten() {
                            // Queried again, because the row may have been deleted or rewritten since the page was
                            // read.
                            if !self.is_chunk_sound(r.id)?
                                && self.references_chunk("SELECT chunks FROM flows WHERE seq = ?1", seq, 0, r.id)?
                            {
                                self.report.problem(format!(
                                    "flow {}: a part of its body (chunk {}) is missing or damaged",
                                    flow.row.id, r.id
                                ));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether a row still names a chunk: it may have been deleted or rewritten.
    fn references_chunk(&self, sql: &str, seq: i64, first: i64, chunk: u64) -> Result<bool> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows =
            if statement.parameter_count() == 1 { statement.query([seq])? } else { statement.query([seq, first])? };
        let Some(row) = rows.next()? else { return Ok(false) };
        let lists = chunk_refs::decode(row.get_ref(0)?.as_blob_or_null().map_err(rusqlite::Error::from)?);
        Ok(lists.is_ok_and(|lists| lists.iter().flatten().any(|r| r.id == chunk)))
    }

    fn messages(&mut self) -> Result<()> {
        let sql = "SELECT seq, first, chunks FROM messages WHERE chunks IS NOT NULL AND (seq, first) > (?1, ?2) \
                   ORDER BY seq, first LIMIT ?3";
        let again = "SELECT chunks FROM messages WHERE seq = ?1 AND first = ?2";
        let mut after = (i64::MIN, i64::MIN);
        loop {
            let page = rows::query_all(self.db, sql, [after.0, after.1, STEP], |row| {
                let lists = chunk_refs::decode(row.get_ref(2)?.as_blob_or_null().map_err(rusqlite::Error::from)?);
                Ok((row.get(0)?, row.get(1)?, lists))
            })?;
            let Some((seq, first, _)) = page.last() else { return Ok(()) };
            after = (*seq, *first);
            for (seq, first, lists) in page {
                match lists {
                    Err(e) => self.report.problem(format!("messages of row {seq} from {first}: {e}")),
                    Ok(lists) => {
                        for r in lists.iter().flatten() {
                            if !self.is_chunk_sound(r.id)? && self.references_chunk(again, seq, first, r.id)? {
                                self.report.problem(format!(
                                    "messages of row {seq} from {first}: their bytes are missing or damaged"
                                ));
                                // One problem per block is enough.
                                break;
                            }
                        }
                    }
                }
            }
        }
    }
}
