//! Selects flows by query: as much as possible in SQL, the rest row by row, bodies last.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use interflow_query::Query;
use interflow_query::sql::{SqlCondition, SqlParam};
use interflow_types::{Direction, FlowId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::rows;
use crate::conversations::ExchangeRow;
use crate::error::{Result, StoreError};
use crate::flow_subject::{FlowContents, FlowSubject, MAX_SEARCHED_BODY};
use crate::model::MessageRecord;
use crate::store::overview::time_range;
use crate::store::segments::body::{BodyReader, ChunkReader, SegmentFiles, StoredBodyParts};
use crate::store::segments::chunk_refs::body_index;
use crate::store::segments::messages;
use crate::store::upkeep::damage::DamagedRows;
use crate::store::{conversation_rows, segments_dir};
use crate::stored_flow::{EachStored, StoredFlow, Watch};
use crate::subject::SqliteTables;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    Newest,
    Oldest,
}

/// Filter, order and paging of a list. At most `limit` flows are returned; `after` is the id of the last flow of the
/// previous page.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub query: Query,
    pub order: ListOrder,
    pub after: Option<FlowId>,
    pub limit: usize,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { query: Query::all(), order: ListOrder::Newest, after: None, limit: 100 }
    }
}

/// Progress of a search: flows examined, matches so far, and how many flows are to be examined in total. The total is
/// an estimate, because flows are recorded and deleted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchProgress {
    pub looked: u64,
    pub found: u64,
    pub total: u64,
}

/// Is told of the progress of a search, and may cancel it.
pub type SearchProgressFn<'a> = dyn Fn(SearchProgress) -> ControlFlow<()> + Sync + 'a;

/// Where rows are read from, and where damaged ones are counted.
type RowSource<'a> = (&'a Connection, &'a std::path::Path, &'a DamagedRows);

/// Calls `each` for every flow that a query selects; `watch` is called for the rows examined and may stop the search.
/// Damaged rows are counted and skipped. Where an index is damaged, the rows are read one by one instead.
pub(crate) fn for_each_match(
    source: RowSource<'_>,
    options: &ListOptions,
    watch: &mut Watch<'_>,
    each: &mut EachStored<'_>,
) -> Result<()> {
    let mut rest = options.clone();
    let mut count = 0;
    let selected = for_each_indexed(source, options, watch, &mut |stored| {
        count += 1;
        rest.after = Some(stored.row.id);
        each(stored)
    });
    match selected {
        Err(e) if e.is_damage() => {
            tracing::warn!(error = %e, "an index of flows.db is damaged; flows are read one by one: see `interflow flows check`");
            rest.limit -= count;
            for_each_row(source, &rest, watch, each)
        }
        done => done,
    }
}

/// Reads every row number between the first and the last one, without an index.
fn for_each_row(
    (db, dir, damages): RowSource<'_>,
    options: &ListOptions,
    watch: &mut Watch<'_>,
    each: &mut EachStored<'_>,
) -> Result<()> {
    let mut one = db.prepare_cached(&format!("SELECT {} FROM {} WHERE f.seq = ?", rows::COLUMNS, rows::SOURCES))?;
    let (first, last) = row_numbers(db)?;
    let numbers: Box<dyn Iterator<Item = i64>> = match options.order {
        ListOrder::Newest => Box::new((first..=last).rev()),
        ListOrder::Oldest => Box::new(first..=last),
    };
    let mut count = 0;
    for seq in numbers {
        if count >= options.limit {
            break;
        }
        if watch().is_break() {
            return Err(StoreError::Cancelled);
        }
        let Some(read) = one.query_row([seq], |r| Ok(rows::read(r))).optional().transpose() else { continue };
        let read = read.map_err(StoreError::from).and_then(|read| read);
        let Some(stored) = damages.skip_damaged(seq, read)? else { continue };
        let is_beyond = options.after.is_none_or(|after| match options.order {
            ListOrder::Newest => stored.row.id < after,
            ListOrder::Oldest => stored.row.id > after,
        });
        if is_beyond && matches(db, dir, &stored, &options.query) {
            count += 1;
            if each(stored).is_break() {
                break;
            }
        }
    }
    Ok(())
}

/// The first and the last row number; from the index by id if the rows themselves cannot tell.
pub(crate) fn row_numbers(db: &Connection) -> Result<(i64, i64)> {
    let number = |by_row: &str, by_id: &str| {
        let ask = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).optional().map(Option::flatten);
        ask(by_row).or_else(|_| ask(by_id))
    };
    let first = number("SELECT min(seq) FROM flows", "SELECT seq FROM flows ORDER BY id LIMIT 1");
    let last = number("SELECT max(seq) FROM flows", "SELECT seq FROM flows ORDER BY id DESC LIMIT 1")?;
    // Row numbers begin at 1.
    Ok((first.ok().flatten().unwrap_or(1), last.unwrap_or(0)))
}

fn for_each_indexed(
    (db, dir, damages): RowSource<'_>,
    options: &ListOptions,
    watch: &mut Watch<'_>,
    each: &mut EachStored<'_>,
) -> Result<()> {
    let SqlCondition { sql, params, residual } = options.query.to_sql(&SqliteTables);
    let values = values(params);
    // On the entries of the index by id, which have the row number, so that other rows are not read. The sign keeps
    // SQLite from choosing the rows by it, and then having to sort them.
    let sql = match time_range::candidate_rows(db, &options.query)? {
        Some(ranges) => format!("{} AND {sql}", time_range::condition("+f.seq", &ranges)),
        None => sql,
    };
    let (order, beyond) = match options.order {
        ListOrder::Newest => ("DESC", "<"),
        ListOrder::Oldest => ("ASC", ">"),
    };
    // Two statements: the first selects row numbers, the second reads one whole row.
    let mut one = db.prepare_cached(&format!("SELECT {} FROM {} WHERE f.seq = ?", rows::COLUMNS, rows::SOURCES))?;
    let mut after = options.after.map(|id| id.to_u128().to_be_bytes().to_vec());
    let mut count = 0;
    loop {
        // The same comparison continues the list after a page, since ids grow with time.
        let mut values = values.clone();
        let cursor = match after.clone() {
            Some(id) => {
                values.push(Value::Blob(id));
                format!(" AND f.id {beyond} ?")
            }
            None => String::new(),
        };
        // A residual predicate may need many rows, so there is no LIMIT; otherwise LIMIT lets SQLite stop sorting
        // early.
        let remaining = options.limit - count;
        let limit = if residual.is_none() { format!(" LIMIT {}", remaining.min(1 << 62)) } else { String::new() };
        // First the row numbers, then the rows: what SQLite may have to sort stays narrow, and often an index alone
        // suffices.
        let text = format!("SELECT f.seq, f.id FROM flows f WHERE {sql}{cursor} ORDER BY f.id {order}{limit}");
        let mut which = db.prepare_cached(&text)?;
        let mut chosen = which.query(params_from_iter(values))?;
        let mut skipped = false;
        while count < options.limit
            && let Some(row) = chosen.next()?
        {
            if watch().is_break() {
                return Err(StoreError::Cancelled);
            }
            let seq = row.get::<_, i64>(0)?;
            let read = one.query_row([seq], |r| Ok(rows::read(r))).map_err(StoreError::from).and_then(|read| read);
            let Some(stored) = damages.skip_damaged(seq, read)? else {
                skipped = true;
                // The page is continued after this row if it turns out to be short.
                after = row.get(1).ok();
                continue;
            };
            let selected = if let Some(query) = &residual { matches(db, dir, &stored, query) } else { true };
            if skipped {
                after = row.get(1).ok();
            }
            if selected {
                count += 1;
                if each(stored).is_break() {
                    return Ok(());
                }
            }
        }
        // Skipped rows used up places of the LIMIT, so the next rows are fetched.
        if !skipped || residual.is_some() || count >= options.limit || after.is_none() {
            return Ok(());
        }
    }
}

/// The number of flows a query selects, if SQL alone can tell.
pub(crate) fn count(db: &Connection, query: &Query) -> Result<(u64, bool)> {
    let SqlCondition { sql, params, residual } = query.to_sql(&SqliteTables);
    let rows = time_range::candidate_rows(db, query)?.map_or("1".to_owned(), |r| time_range::condition("f.seq", &r));
    let text = format!("SELECT count(*) FROM flows f WHERE {rows} AND {sql}");
    let n = db.prepare_cached(&text)?.query_row(params_from_iter(values(params)), |r| r.get(0))?;
    // With a residual predicate the number is an upper bound only.
    Ok((n, residual.is_none()))
}

pub(crate) fn values(params: Vec<SqlParam>) -> Vec<Value> {
    params
        .into_iter()
        .map(|p| match p {
            SqlParam::Text(t) => Value::Text(t),
            SqlParam::Integer(n) => Value::Integer(n),
        })
        .collect()
}

pub(crate) fn matches(db: &Connection, dir: &std::path::Path, stored: &StoredFlow, query: &Query) -> bool {
    query.matches(&FlowSubject { row: &stored.row, contents: RowContents { db, dir, stored } })
}

/// What the database and the segments have of a row.
struct RowContents<'a> {
    db: &'a Connection,
    dir: &'a std::path::Path,
    stored: &'a StoredFlow,
}

impl FlowContents for RowContents<'_> {
    fn calls(&self) -> Result<Vec<ExchangeRow>> {
        conversation_rows::calls(self.db, self.stored.row.id)
    }

    fn body(&self, direction: Direction) -> Result<Bytes> {
        let parts = StoredBodyParts::for_side(self.db, self.stored, body_index(direction))?;
        BodyReader::pieces(self.db, &segments_dir(self.dir), parts, MAX_SEARCHED_BODY)
    }

    fn messages(&self, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        let (segments, mut files) = (segments_dir(self.dir), SegmentFiles::default());
        messages::read(
            self.db,
            &mut ChunkReader { db: self.db, dir: &segments, files: &mut files },
            self.stored.position,
            range,
        )
    }
}
