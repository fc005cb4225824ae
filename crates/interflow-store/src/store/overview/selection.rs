//! The rows that a query selects, as bits. Their figures then come from the columns, as for all flows.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use interflow_query::sql::SqlCondition;
use interflow_query::{Expr, Key, Query, TermTest, TimePoint, TimeTest};
use rusqlite::{Connection, params_from_iter};

use super::accumulate::Span;
use super::time_range;
use crate::error::{Result, StoreError};
use crate::overview::OverviewSample;
use crate::store::select::{self, ListOptions};
use crate::store::upkeep::damage::DamagedRows;
use crate::stored_flow::Watch;
use crate::subject::SqliteTables;

/// How long rows are selected.
const QUERY_TIME: Duration = Duration::from_secs(2);
/// Rows selected at most by a query that has to read them whole, or their bodies.
const MAX_READ: usize = 50_000;

/// A set of rows, one bit each up to the highest.
#[derive(Default)]
pub(crate) struct RowSet(Vec<u64>);

impl RowSet {
    fn set(&mut self, seq: i64) {
        let Ok(seq) = usize::try_from(seq) else { return };
        if self.0.len() <= seq / 64 {
            self.0.resize(seq / 64 + 1, 0);
        }
        self.0[seq / 64] |= 1 << (seq % 64);
    }

    pub(crate) fn has(&self, seq: i64) -> bool {
        let word = usize::try_from(seq / 64).ok().and_then(|i| self.0.get(i));
        word.is_some_and(|w| w >> (seq % 64) & 1 == 1)
    }
}

pub(crate) struct Selection {
    pub(crate) rows: RowSet,
    /// What was examined, if not everything.
    pub(crate) sample: Option<OverviewSample>,
}

/// Selects the flows of a query in the spans of time, the newest first.
pub(crate) fn select(
    (db, dir, damages): (&Connection, &Path, &DamagedRows),
    query: &Query,
    span: Span,
    watch: &mut Watch<'_>,
) -> Result<Selection> {
    let point = |start: u64| TimePoint::At { start, lasts: 1 };
    let within = TermTest::Time(TimeTest::Range(point(span.compared_from), point(span.to - 1)));
    let query = query.clone().and(Query::from(Expr::term(Key::Time, within)));
    let condition = query.to_sql(&SqliteTables);
    let mut selection = Selection { rows: RowSet::default(), sample: None };
    let (begun, mut n, mut since) = (Instant::now(), 0u64, span.to);
    let mut take = |seq: i64, started: u64| {
        n += 1;
        since = since.min(started);
        selection.rows.set(seq);
    };
    let partial = match condition.residual {
        None => select_by_sql(db, &query, condition, &mut take, &mut || late(begun, watch))?,
        Some(_) => {
            let list = ListOptions { query, limit: MAX_READ, ..ListOptions::default() };
            let (mut is_late, mut read) = (false, 0);
            let done = select::for_each_match(
                (db, dir, damages),
                &list,
                &mut || match late(begun, watch) {
                    Ok(false) => ControlFlow::Continue(()),
                    Ok(true) => {
                        is_late = true;
                        ControlFlow::Break(())
                    }
                    Err(_) => ControlFlow::Break(()),
                },
                &mut |stored| {
                    read += 1;
                    take(stored.position, stored.row.started.micros());
                    ControlFlow::Continue(())
                },
            );
            match done {
                Err(StoreError::Cancelled) if is_late => {}
                done => done?,
            }
            is_late || read == MAX_READ
        }
    };
    selection.sample = partial.then_some(OverviewSample { flows: n, since });
    Ok(selection)
}

/// Whether the time is up; an error if the caller has gone away.
fn late(begun: Instant, watch: &mut Watch<'_>) -> Result<bool> {
    super::check(watch)?;
    Ok(begun.elapsed() >= QUERY_TIME)
}

/// Selects rows that SQL alone can tell; returns whether it had to stop before the last one.
fn select_by_sql(
    db: &Connection,
    query: &Query,
    condition: SqlCondition,
    take: &mut dyn FnMut(i64, u64),
    late: &mut dyn FnMut() -> Result<bool>,
) -> Result<bool> {
    let SqlCondition { sql, params, .. } = condition;
    let rows = time_range::candidate_rows(db, query)?.map_or("1".to_owned(), |r| time_range::condition("+f.seq", &r));
    let sql = format!("SELECT f.seq, f.started FROM flows f WHERE {rows} AND {sql} ORDER BY f.id DESC");
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(select::values(params)))?;
    while let Some(row) = rows.next()? {
        if late()? {
            return Ok(true);
        }
        take(row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs());
    }
    Ok(false)
}
