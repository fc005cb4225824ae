//! Which rows may hold the flows of a span of time, by the blocks of columns that say when their flows began.
//!
//! Rows are not indexed by time: an index would cost every recorded flow, and the blocks know enough. Without them the
//! whole table is examined, as for any other condition without an index.

use interflow_query::{Expr, Key, Query, Term, TermTest};
use interflow_types::Timestamp;
use rusqlite::Connection;

use super::columns::BLOCK_ROWS;
use crate::error::Result;

/// Ranges of rows in a condition; with more of them the test costs more than it saves.
const MAX_RANGES: usize = 16;

/// The ranges of row numbers, both ends included, that can hold flows of a query; `None` if any row can.
pub(crate) fn candidate_rows(db: &Connection, query: &Query) -> Result<Option<Vec<(i64, i64)>>> {
    let Some((low, high)) = time_bounds(query) else { return Ok(None) };
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    let mut statement = db.prepare_cached("SELECT block, first, last FROM flow_columns ORDER BY block")?;
    let mut rows = statement.query([])?;
    // Rows before the first block, between blocks and after the last one are in no block: they may hold anything.
    let mut unknown_from = 0;
    while let Some(row) = rows.next()? {
        let block: i64 = row.get(0)?;
        let (first, last) = (row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs());
        let start = block * BLOCK_ROWS;
        if start > unknown_from {
            add(&mut ranges, unknown_from, start - 1);
        }
        if last >= low && first <= high {
            add(&mut ranges, start, start + BLOCK_ROWS - 1);
        }
        unknown_from = start + BLOCK_ROWS;
    }
    add(&mut ranges, unknown_from, i64::MAX);
    Ok((unknown_from > 0 && ranges.len() <= MAX_RANGES).then_some(ranges))
}

/// Appends a range, joined to the one before if nothing is between them.
fn add(ranges: &mut Vec<(i64, i64)>, from: i64, to: i64) {
    match ranges.last_mut() {
        Some(last) if last.1 + 1 == from => last.1 = to,
        _ => ranges.push((from, to)),
    }
}

/// The first and the last microsecond in which flows of a query can have begun; `None` if it does not say.
fn time_bounds(query: &Query) -> Option<(u64, u64)> {
    let now = Timestamp::now().micros();
    let of = |expr: &Expr| match expr {
        Expr::Term(Term { key: Key::Time, test: TermTest::Time(time), .. }) => time.bounds(now),
        _ => None,
    };
    match query.expr() {
        Expr::And(parts) => {
            let bounds: Vec<_> = parts.iter().filter_map(of).collect();
            Some((bounds.iter().map(|b| b.0).max()?, bounds.iter().map(|b| b.1).min()?))
        }
        expr => of(expr),
    }
}

/// The condition that a row is in one of the ranges, on a column with its number.
pub(crate) fn condition(column: &str, ranges: &[(i64, i64)]) -> String {
    let parts: Vec<String> = ranges.iter().map(|(from, to)| format!("{column} BETWEEN {from} AND {to}")).collect();
    format!("({})", parts.join(" OR "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_query_is_what_all_its_parts_allow() {
        let bounds = |text: &str| time_bounds(&Query::parse(text).unwrap());
        assert_eq!(bounds("host:a"), None);
        assert_eq!(bounds("time:>2026-01-01 OR host:a"), None);
        assert_eq!(bounds("-time:>2026-01-01"), None);
        let (low, high) = bounds("host:a time:2026-01-01..2026-01-03 time:<2026-01-02").unwrap();
        assert_eq!(high - low + 1, 86_400_000_000);
    }

    #[test]
    fn adjoining_ranges_are_joined() {
        let mut ranges = Vec::new();
        for (from, to) in [(0, 9), (10, 19), (30, 39)] {
            add(&mut ranges, from, to);
        }
        assert_eq!(ranges, [(0, 19), (30, 39)]);
        assert_eq!(condition("seq", &ranges), "(seq BETWEEN 0 AND 19 OR seq BETWEEN 30 AND 39)");
    }
}
