//! Searches that must examine rows or bodies: on several threads, with progress and cancellation.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};

use interflow_query::Query;
use interflow_query::sql::SqlCondition;
use rusqlite::{OptionalExtension, params_from_iter};

use super::select::{self, SearchProgress, SearchProgressFn};
use super::{rows, schema};
use crate::error::{Result, StoreError};
use crate::model::FlowRecord;
use crate::store::upkeep::damage::DamagedRows;
use crate::stored_flow::EachFlow;
use crate::subject::SqliteTables;

/// Flows that a thread takes at a time.
const STEP: usize = 32;
const THREADS: usize = 8;

struct SearchJob<'a> {
    dir: &'a Path,
    damages: &'a DamagedRows,
    residual: Option<Query>,
    rows: Vec<i64>,
    next: AtomicUsize,
    looked: AtomicU64,
    found: AtomicU64,
    stop: AtomicBool,
}

pub(crate) fn search(
    (dir, damages): (&Path, &DamagedRows),
    query: &Query,
    progress: &SearchProgressFn<'_>,
    each: &mut EachFlow<'_>,
) -> Result<()> {
    // Selected before the threads start, so that they share one list and need no common cursor.
    let (rows, residual) = match candidates(dir, query) {
        // Every row, as a list does.
        Err(e) if e.is_damage() => {
            let (first, last) = select::row_numbers(&schema::open_reader(dir)?)?;
            ((first..=last).rev().collect(), Some(query.clone()))
        }
        chosen => chosen?,
    };
    let hunt = SearchJob {
        dir,
        damages,
        residual,
        rows,
        next: AtomicUsize::new(0),
        looked: AtomicU64::new(0),
        found: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    // Bounded, so that the threads wait for a slow consumer instead of collecting all matches in memory.
    let (found, results) = sync_channel(THREADS * STEP);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (hunt, found) = (&hunt, found.clone());
                scope.spawn(move || hunt.run(&found, progress))
            })
            .collect();
        // Otherwise the loop below would never end.
        drop(found);
        let mut over = false;
        // Drained to the end after a break too: a thread that is blocked on a full channel could not be joined.
        for row in &results {
            if !over && each(row).is_break() {
                over = true;
                hunt.stop.store(true, Relaxed);
            }
        }
        for worker in workers {
            match worker.join() {
                Ok(Err(StoreError::Cancelled)) if over => {}
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}

/// The rows that SQL cannot rule out, latest first, and the rest of the query to be evaluated on them.
fn candidates(dir: &Path, query: &Query) -> Result<(Vec<i64>, Option<Query>)> {
    let db = schema::open_reader(dir)?;
    let SqlCondition { sql, params, residual } = query.to_sql(&SqliteTables);
    let mut statement = db.prepare(&format!("SELECT f.seq FROM flows f WHERE {sql} ORDER BY f.seq DESC"))?;
    let rows = statement.query_map(params_from_iter(select::values(params)), |r| r.get(0))?;
    Ok((rows.collect::<Result<_, _>>()?, residual))
}

impl SearchJob<'_> {
    fn run(&self, found: &SyncSender<FlowRecord>, progress: &SearchProgressFn<'_>) -> Result<()> {
        let db = schema::open_reader(self.dir)?;
        let text = format!("SELECT {} FROM {} WHERE f.seq = ?", rows::COLUMNS, rows::SOURCES);
        loop {
            // Small portions, because rows differ in cost by orders of magnitude.
            let from = self.next.fetch_add(STEP, Relaxed);
            let Some(part) = self.rows.get(from..).filter(|r| !r.is_empty()) else { return Ok(()) };
            for seq in part.iter().take(STEP) {
                if self.stop.load(Relaxed) {
                    return Err(StoreError::Cancelled);
                }
                let mut statement = db.prepare_cached(&text)?;
                // The flow may have been deleted in the meantime.
                let Some(read) = statement.query_row([seq], |row| Ok(rows::read(row))).optional().transpose() else {
                    continue;
                };
                self.looked.fetch_add(1, Relaxed);
                let read = read.map_err(StoreError::from).and_then(|read| read);
                let Some(stored) = self.damages.skip_damaged(*seq, read)? else { continue };
                let fits = self.residual.as_ref().is_none_or(|q| select::matches(&db, self.dir, &stored, q));
                if fits {
                    self.found.fetch_add(1, Relaxed);
                    // The receiver is gone, so nobody waits for the rest.
                    if found.send(stored.row).is_err() {
                        return Ok(());
                    }
                }
            }
            let now = SearchProgress {
                looked: self.looked.load(Relaxed),
                found: self.found.load(Relaxed),
                total: self.rows.len() as u64,
            };
            // The other threads see the flag at their next row.
            if progress(now).is_break() {
                self.stop.store(true, Relaxed);
                return Err(StoreError::Cancelled);
            }
        }
    }
}
