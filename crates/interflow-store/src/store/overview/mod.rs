//! Overviews: figures of the flows of a span of time, from compact columns of the rows.
//!
//! Nothing is summed up in advance: blocks of columns (see [`columns`]) are small enough to be read for every answer, and
//! unlike rollups by minute they can be divided at any point in time. The first overview of a store makes its blocks
//! from the rows, within a time limit per call, and hands them to the writer to keep; so recording costs nothing more
//! until somebody looks. The writer deletes a block when one of its flows ends or is deleted, and readers make it again.
//! The newest rows are in no stored block and are read each time.

mod accumulate;
pub mod columns;
mod histogram;
mod llm;
mod selection;
mod tally;
pub(crate) mod time_range;

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use interflow_types::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use self::columns::{BLOCK_ROWS, BlockSeal};
use super::rows;
use super::store_state::{StoreState, WriterCommand};
use crate::error::{Result, StoreError};
use crate::model::FlowSummary;
use crate::overview::{Overview, OverviewIndexing, OverviewOptions, PreviousFigures};
use crate::store::recording::writer::StoreWriter;
use crate::store::upkeep::damage::DamagedRows;
use crate::stored_flow::Watch;

pub use accumulate::{Accumulator, Span};
pub use columns::{EncodedBlock, FlowColumns, TextNumbers};
pub use llm::LlmAccumulator;

/// How long one call makes blocks from rows. The next call continues, so that nobody waits for a whole store.
const INDEXING_TIME: Duration = Duration::from_millis(400);
/// Blocks per transaction of the writer, which takes some milliseconds for so many.
const BLOCKS_PER_SAVE: usize = 16;

impl StoreWriter {
    /// A row is new, has ended or goes: the block that holds it is no longer right.
    pub(crate) fn forget_columns(&self, seq: i64) -> Result<()> {
        // Nearly all rows are newer than any block, which costs one comparison.
        if seq >= self.columns_end {
            return Ok(());
        }
        let mut statement = self.db.prepare_cached("DELETE FROM flow_columns WHERE block = ?")?;
        Ok(statement.execute([seq / BLOCK_ROWS]).map(drop)?)
    }

    /// Keeps blocks unless their rows have changed since they were read; returns how many were kept.
    pub(crate) fn save_columns(&mut self, blocks: &[EncodedBlock]) -> Result<usize> {
        let mut retained = 0;
        for made in blocks {
            if BlockSeal::read(&self.db, made.block)? != made.seal {
                continue;
            }
            let sql = "INSERT OR REPLACE INTO flow_columns(block, first, last, data) VALUES(?, ?, ?, ?)";
            let (first, last) = made.span;
            self.db.prepare_cached(sql)?.execute(params![made.block, first as i64, last as i64, made.data])?;
            self.columns_end = self.columns_end.max((made.block + 1) * BLOCK_ROWS);
            self.logged += made.data.len();
            retained += 1;
        }
        Ok(retained)
    }
}

/// Hands blocks to the writer. That it cannot keep them, for lack of disk space for example, costs only their reuse.
pub(crate) fn save(shared: &StoreState, blocks: Vec<EncodedBlock>) {
    let mut blocks = blocks.into_iter().peekable();
    while blocks.peek().is_some() {
        let part: Vec<EncodedBlock> = blocks.by_ref().take(BLOCKS_PER_SAVE).collect();
        if let Err(error) = shared.send_command(|reply| WriterCommand::SaveColumns(part, reply)) {
            tracing::debug!(%error, "columns of flows could not be kept");
            return;
        }
    }
}

/// The figures, and the blocks that were made on the way and are worth keeping.
pub(crate) fn read(
    (db, dir, damages): (&Connection, &Path, &DamagedRows),
    options: &OverviewOptions,
    watch: &mut Watch<'_>,
) -> Result<(Overview, Vec<EncodedBlock>)> {
    // One snapshot for everything: the blocks must agree with the rows.
    let view = db.unchecked_transaction()?;
    let stored = stored_blocks(&view)?;
    let (made, unread) = make_missing(&view, &stored, watch)?;
    let starts = stored.iter().map(|(_, first)| *first).chain(made.iter().map(|b| b.span.0));
    let from = options.from.or_else(|| starts.min()).unwrap_or(options.to);
    let span = Span::new(from, options);
    let selection = match options.query.is_all() {
        true => None,
        false => Some(selection::select((&view, dir, damages), &options.query, span, watch)?),
    };
    let wanted = selection.as_ref().map(|s| &s.rows);
    let mut sums = Accumulator::new(span);
    {
        let sql = "SELECT block, data FROM flow_columns WHERE last >= ? AND first < ? ORDER BY block";
        let mut statement = view.prepare_cached(sql)?;
        let mut rows = statement.query(params![span.compared_from as i64, span.to as i64])?;
        while let Some(row) = rows.next()? {
            check(watch)?;
            let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            sums.add_block(row.get(0)?, data, wanted)?;
        }
    }
    for block in &made {
        sums.add_block(block.block, &block.data, wanted)?;
    }
    let mut calls = LlmAccumulator::new(span);
    match &selection {
        None => calls.add_all(&view)?,
        Some(selected) => calls.add_of(&view, &selected.rows)?,
    }
    let mut overview = finish(&view, sums, calls, span)?;
    if unread > 0 {
        let done = (stored.len() + made.len()) as u64 * BLOCK_ROWS as u64;
        overview.indexing = Some(OverviewIndexing { done, total: done + unread * BLOCK_ROWS as u64 });
    }
    if let Some(sample) = selection.and_then(|s| s.sample) {
        overview.sample = Some(sample);
        // The span before was not examined, or not all of it.
        overview.previous = None;
    }
    let newest: i64 = newest_row(&view)? / BLOCK_ROWS;
    // Flows of the last blocks are still to end, or to be inserted.
    Ok((overview, made.into_iter().filter(|b| b.block + 1 < newest).collect()))
}

/// The stored blocks, and when the first flow of each began.
fn stored_blocks(db: &Connection) -> Result<Vec<(i64, u64)>> {
    let sql = "SELECT block, first FROM flow_columns ORDER BY block";
    rows::query_all(db, sql, [], |r| Ok((r.get(0)?, r.get::<_, i64>(1)?.unsigned_abs())))
}

fn newest_row(db: &Connection) -> Result<i64> {
    Ok(db.query_row("SELECT coalesce(max(seq), 0) FROM flows", [], |r| r.get(0))?)
}

/// Makes the blocks that are not stored, the newest first, until the time is up; returns them and the number of those
/// that are left.
fn make_missing(db: &Connection, stored: &[(i64, u64)], watch: &mut Watch<'_>) -> Result<(Vec<EncodedBlock>, u64)> {
    let oldest: i64 = db.query_row("SELECT coalesce(min(seq), 0) FROM flows", [], |r| r.get(0))?;
    let (first, last) = (oldest / BLOCK_ROWS, newest_row(db)? / BLOCK_ROWS);
    let blocks: HashSet<i64> = stored.iter().map(|(block, _)| *block).collect();
    let begun = Instant::now();
    let (mut made, mut unread) = (Vec::new(), 0);
    for block in (first..=last).rev().filter(|b| !blocks.contains(b)) {
        check(watch)?;
        if begun.elapsed() >= INDEXING_TIME {
            unread += 1;
        } else {
            made.extend(columns::read_rows(db, block)?);
        }
    }
    Ok((made, unread))
}

fn check(watch: &mut Watch<'_>) -> Result<()> {
    if watch().is_break() { Err(StoreError::Cancelled) } else { Ok(()) }
}

fn finish(db: &Connection, sums: Accumulator, calls: LlmAccumulator, span: Span) -> Result<Overview> {
    let [slowest, largest] = sums.outstanding();
    let previous_llm = calls.previous;
    let (mut found, before) = sums.finish();
    calls.finish(&mut found);
    found.slowest = summaries(db, &slowest)?;
    found.largest = summaries(db, &largest)?;
    if span.compared_from < span.from {
        found.previous = Some(PreviousFigures { totals: before, llm: previous_llm });
    }
    Ok(found)
}

/// The summaries of some rows, in their order; damaged ones are left out.
fn summaries(db: &Connection, seqs: &[i64]) -> Result<Vec<FlowSummary>> {
    let now = Timestamp::now();
    let sql = format!("SELECT {} FROM {} WHERE f.seq = ?", rows::COLUMNS, rows::SOURCES);
    let mut statement = db.prepare_cached(&sql)?;
    let mut blocks = Vec::new();
    for seq in seqs {
        let row = statement.query_row([seq], |r| Ok(rows::read(r))).optional()?;
        blocks.extend(row.and_then(Result::ok).map(|stored| stored.row.summary(now)));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::store::{FlowStore, SqliteStore, schema};

    /// The last version without columns.
    const BEFORE_COLUMNS: usize = 3;

    #[test]
    fn a_recording_of_an_earlier_version_is_summarised_and_its_blocks_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let db = schema::create_earlier(dir.path(), BEFORE_COLUMNS);
        db.execute("INSERT INTO hosts(id, name) VALUES(1, 'old.test')", []).unwrap();
        let sql = "INSERT INTO flows(seq, id, state, kind, started, duration, transport, scheme, host, port, method, path, \
                   status, request_size, response_size, messages, stored, kept) \
                   VALUES(?1, ?2, 1, 0, ?3, 5000, 0, 0, 1, 80, 'GET', '/', 404, 10, 20, 0, ?3, 0)";
        db.execute_batch("BEGIN").unwrap();
        for seq in 1..=3000i64 {
            let started = 1_700_000_000_000_000 + seq;
            let id = ((started as u128 / 1000) << 80 | seq as u128).to_be_bytes();
            db.execute(sql, params![seq, id, started]).unwrap();
            db.execute("INSERT INTO details(seq, detail) VALUES(?, x'')", [seq]).unwrap();
        }
        db.execute_batch("COMMIT").unwrap();
        drop(db);
        let store = SqliteStore::open(dir.path(), &crate::RecordConfig::default()).unwrap();
        let (query, to) = (interflow_query::Query::all(), 1_800_000_000_000_000);
        let options = OverviewOptions { query, from: None, to, buckets: 3, step: None, compare: false };
        let found = loop {
            let found = store.overview(&options, &mut || ControlFlow::Continue(())).unwrap();
            if found.indexing.is_none() {
                break found;
            }
        };
        let totals = &found.totals;
        assert_eq!((totals.requests, totals.client_errors, totals.sent, totals.received), (3000, 3000, 30_000, 60_000));
        assert_eq!((found.from, found.hosts[0].name.as_deref()), (1_700_000_000_000_001, Some("old.test")));
        let kept = store.read(|db| Ok(stored_blocks(db)?.len())).unwrap();
        assert_eq!(kept, 1, "the first of three: the last two may still change");
    }
}
