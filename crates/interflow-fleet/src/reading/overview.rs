//! Overviews of a shared store, from the columns of the rows in the span, the newest first. Over more rows than are read
//! within the time limit, the figures are of a sample, which the answer says.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use interflow_query::Query;
use interflow_store::stored_form::{Accumulator, FlowColumns, LlmAccumulator, Span, TextNumbers};
use interflow_store::{
    FlowKind, FlowRecord, FlowState, FlowStore, FlowSummary, ListOptions, Overview, OverviewOptions, OverviewSample,
    PreviousFigures, Result, SqliteStore, StoreError, Watch,
};
use interflow_types::{FlowId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::database::pool::Database;
use crate::database::rows::{READ, signed, uuid_of};
use crate::reading::overview_models::add_calls;
use crate::reading::select::{self, CallsOf, Condition, FlowTable, borrowed};

/// Rows read at a time.
const PAGE: usize = 20_000;
/// How long rows are read.
const TIME: Duration = Duration::from_secs(3);

const COLUMNS: &str = "f.id, f.started, f.kind, f.state, f.status, f.duration, f.request_size, f.response_size, f.error, f.host, \
     f.username, f.process";

/// Sums up rows, and remembers which flows they were.
struct RowSums<'a> {
    database: &'a Database,
    query: &'a Query,
    span: Span,
    sums: Accumulator,
    ids: Vec<FlowId>,
    /// Those that wait in the spool.
    local: HashSet<FlowId>,
    texts: TextNumbers,
    block: Vec<FlowColumns>,
}

impl<'a> RowSums<'a> {
    fn new(database: &'a Database, query: &'a Query, span: Span) -> Self {
        let sums = Accumulator::new(span);
        let (ids, local, texts, block) = Default::default();
        Self { database, query, span, sums, ids, local, texts, block }
    }

    /// What was examined, if that was not everything.
    fn sample(&self, since: u64) -> OverviewSample {
        OverviewSample { flows: self.ids.len() as u64, since }
    }

    /// Adds a flow of the database, unless the spool has it.
    fn add_shared(&mut self, id: FlowId, make: impl FnOnce(i64, &mut TextNumbers) -> FlowColumns) {
        if !self.local.contains(&id) {
            self.add(id, make);
        }
    }

    fn add(&mut self, id: FlowId, make: impl FnOnce(i64, &mut TextNumbers) -> FlowColumns) {
        let seq = self.ids.len() as i64;
        self.ids.push(id);
        self.block.push(make(seq, &mut self.texts));
        if self.block.len() >= 1024 {
            self.finish_block();
        }
    }

    fn finish_block(&mut self) {
        self.sums.add_flows(&self.block, &self.texts);
        self.block.clear();
        self.texts = TextNumbers::default();
    }

    /// Adds the flows that wait in the spool, the newest first, for a limited time; returns what was examined if not everything.
    fn add_waiting(&mut self, spool: &SqliteStore, watch: &mut Watch<'_>) -> Result<Option<OverviewSample>> {
        let (begun, mut sample) = (Instant::now(), None);
        spool.for_each_selected(self.query, watch, &mut |row| {
            let started = row.started.micros();
            if started >= self.span.compared_from && started < self.span.to {
                self.local.insert(row.id);
                self.add(row.id, |seq, texts| columns_of(&row, seq, texts));
            }
            if begun.elapsed() < TIME {
                return ControlFlow::Continue(());
            }
            sample = Some(self.sample(started));
            ControlFlow::Break(())
        })?;
        Ok(sample)
    }

    /// Adds the rows of the spans that SQL alone selects; returns what was examined, if not everything.
    fn add_pages(&mut self, watch: &mut Watch<'_>) -> Result<Option<OverviewSample>> {
        let (begun, span) = (Instant::now(), self.span);
        let (mut after, mut since) = (Uuid::max(), span.to);
        loop {
            if watch().is_break() {
                return Err(StoreError::Cancelled);
            }
            let mut condition = Condition::new(self.query);
            let from = condition.push(span.compared_from as i64);
            let to = condition.push(signed(span.to));
            let cursor = condition.push(after);
            let sql = format!(
                "SELECT {COLUMNS} FROM flows f WHERE {} AND f.started >= {from} AND f.started < {to} AND f.id < {cursor} \
                 AND {} ORDER BY f.id DESC LIMIT {PAGE}",
                condition.sql,
                select::id_range(span.compared_from as i64, i64::try_from(span.to).ok())
            );
            let page = self
                .database
                .run(move |client| async move { client.query(&sql, &borrowed(&condition.params)).await })?;
            for row in &page {
                after = row.get(0);
                let id = FlowId::from_u128(after.as_u128());
                since = row.get::<_, i64>(1).unsigned_abs();
                self.add_shared(id, |seq, texts| columns_of_row(row, seq, texts));
            }
            if page.len() < PAGE {
                return Ok(None);
            }
            if begun.elapsed() >= TIME {
                return Ok(Some(self.sample(since)));
            }
        }
    }

    /// Adds the rows that must be read whole, or their bodies.
    fn add_matches(&mut self, calls: CallsOf<'_>, watch: &mut Watch<'_>) -> Result<Option<OverviewSample>> {
        let (begun, mut since) = (Instant::now(), self.span.to);
        let options = ListOptions { query: self.query.clone(), limit: usize::MAX, ..ListOptions::default() };
        let done = select::for_each_match(
            FlowTable::Finished,
            self.database,
            calls,
            &options,
            &mut || if begun.elapsed() >= TIME { ControlFlow::Break(()) } else { watch() },
            &mut |stored| {
                since = stored.row.started.micros();
                self.add_shared(stored.row.id, |seq, texts| columns_of(&stored.row, seq, texts));
                ControlFlow::Continue(())
            },
        );
        match done {
            Err(StoreError::Cancelled) if begun.elapsed() >= TIME => Ok(Some(self.sample(since))),
            done => done.map(|()| None),
        }
    }
}

pub(crate) fn read(
    database: &Database,
    spool: Option<&SqliteStore>,
    calls: CallsOf<'_>,
    options: &OverviewOptions,
    watch: &mut Watch<'_>,
) -> Result<Overview> {
    // Asked first, since without it there is no overview, and the spool may be large then.
    let oldest = oldest(database)?;
    let from = match (options.from, spool) {
        (Some(from), _) => from,
        (None, Some(spool)) => oldest.into_iter().chain(spool.oldest_start()?).min().unwrap_or(options.to),
        (None, None) => oldest.unwrap_or(options.to),
    };
    let span = Span::new(from, options);
    let mut sums = RowSums::new(database, &options.query, span);
    // The rows of the spool before those of the database: see `SharedStore::list_while`.
    let waiting = spool.map(|spool| sums.add_waiting(spool, watch)).transpose()?.flatten();
    let sample = match Condition::new(&options.query).residual {
        None => sums.add_pages(watch)?,
        Some(_) => sums.add_matches(calls, watch)?,
    };
    let sample = sample.or(waiting);
    sums.finish_block();
    let [slowest, largest] = sums.sums.outstanding();
    let RowSums { sums, ids, .. } = sums;
    let mut models = LlmAccumulator::new(span);
    add_calls(database, span, Some(&ids[..]).filter(|_| !options.query.is_all()), &mut models)?;
    let previous_llm = models.previous;
    let (mut found, before) = sums.finish();
    models.finish(&mut found);
    found.slowest = summaries(database, spool, &ids, &slowest)?;
    found.largest = summaries(database, spool, &ids, &largest)?;
    if span.compared_from < span.from && sample.is_none() {
        found.previous = Some(PreviousFigures { totals: before, llm: previous_llm });
    }
    found.sample = sample;
    Ok(found)
}

/// When the first flow began.
fn oldest(database: &Database) -> Result<Option<u64>> {
    let row = database.run(|client| async move { client.query_one("SELECT min(started) FROM flows", &[]).await })?;
    Ok(row.get::<_, Option<i64>>(0).map(i64::unsigned_abs))
}

fn columns_of_row(row: &Row, seq: i64, texts: &mut TextNumbers) -> FlowColumns {
    let number = |i: usize| row.get::<_, i64>(i).unsigned_abs();
    let state: i16 = row.get(3);
    let error: Option<String> = row.get(8);
    FlowColumns {
        seq,
        started: number(1),
        is_http: row.get::<_, i16>(2) == 0,
        is_open: state == 0,
        has_failed: state == 2 || error.is_some(),
        status: row.get::<_, Option<i64>>(4).and_then(|s| u16::try_from(s).ok()).unwrap_or_default(),
        duration: row.get::<_, Option<i64>>(5).map(i64::unsigned_abs),
        sent: number(6),
        received: number(7),
        host: texts.number(Some(row.get(9))),
        user: texts.number(row.get(10)),
        process: texts.number(row.get(11)),
        error: texts.number(error),
    }
}

fn columns_of(row: &FlowRecord, seq: i64, texts: &mut TextNumbers) -> FlowColumns {
    let mut columns = FlowColumns {
        seq,
        started: row.started.micros(),
        is_http: row.kind == FlowKind::Http,
        is_open: row.state == FlowState::Open,
        host: texts.number(Some(row.host().into_owned())),
        user: texts.number(row.user.as_deref().map(str::to_owned)),
        process: texts.number(row.client.process.as_ref().map(|p| p.name.clone())),
        ..FlowColumns::default()
    };
    // The rest may change until the flow ends.
    if !columns.is_open {
        columns.has_failed = row.state == FlowState::Failed || row.error.is_some();
        columns.status = row.response.as_ref().map_or(0, |r| r.status);
        columns.duration = row.duration();
        (columns.sent, columns.received) = row.sizes();
        columns.error = texts.number(row.error.as_ref().map(|e| e.kind.to_string()));
    }
    columns
}

/// The summaries of some flows, in their order; those that are gone meanwhile are left out.
fn summaries(
    database: &Database,
    spool: Option<&SqliteStore>,
    ids: &[FlowId],
    chosen: &[i64],
) -> Result<Vec<FlowSummary>> {
    let sample: Vec<FlowId> = chosen.iter().filter_map(|seq| ids.get(usize::try_from(*seq).ok()?)).copied().collect();
    let uuids: Vec<Uuid> = sample.iter().map(|id| uuid_of(*id)).collect();
    let sql = format!("SELECT {READ} FROM flows f WHERE f.id = ANY($1)");
    let rows = database.run(move |client| async move { client.query(&sql, &[&uuids]).await })?;
    let stored: Vec<FlowRecord> =
        rows.iter().filter_map(|row| crate::database::rows::read(row).ok()).map(|stored| stored.row).collect();
    let now = Timestamp::now();
    let find = |id: &FlowId| {
        let row = stored.iter().find(|row| row.id == *id).cloned();
        row.or_else(|| spool.and_then(|s| s.get(*id).ok())).map(|row| row.summary(now))
    };
    Ok(sample.iter().filter_map(find).collect())
}
