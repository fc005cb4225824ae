//! Selects flows in PostgreSQL: as much of a query as possible in SQL, the rest row by row, bodies last.

use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use interflow_query::sql::{SqlColumn, SqlColumns, SqlCondition, SqlDialect, SqlParam};
use interflow_query::{Flag, Key, Query};
use interflow_store::stored_form::chunk_refs::body_index;
use interflow_store::stored_form::{FlowContents, FlowSubject, MAX_SEARCHED_BODY, flow_column, flow_flag, is_of_row};
use interflow_store::{
    ConversationStore, EachStored, ExchangeRow, ListOptions, ListOrder, MessageRecord, Result, StoreError, StoredFlow,
    Watch,
};
use interflow_types::{Direction, FlowId};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::database::pool::Database;
use crate::database::rows::{self, READ, READ_COLUMNS, uuid_of};
use crate::reading::{bodies, running};

/// Rows read at a time.
const PAGE: usize = 500;
/// For a count that is given up when it takes long.
const SHORT_STATEMENT: &str = "SET statement_timeout = '300ms'";

/// The table `flows f` of PostgreSQL.
pub(crate) struct PostgresTables;

impl SqlColumns for PostgresTables {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Postgres
    }

    fn column(&self, key: Key) -> Option<SqlColumn> {
        Some(match key {
            // A URL contains the host as it is in its column.
            Key::Host => SqlColumn::IndexedText { text: "f.host", beginning: None, within: Some("f.url") },
            Key::Url => SqlColumn::Text(&["f.url"]),
            Key::Method => {
                SqlColumn::IndexedText { text: "f.method", beginning: Some("left(lower(f.method), 512)"), within: None }
            }
            Key::User => SqlColumn::IndexedText {
                text: "f.username",
                beginning: Some("left(lower(f.username), 512)"),
                within: None,
            },
            // The first part is for the index of flows with tags.
            Key::Tag => SqlColumn::Rows {
                exists: "(cardinality(f.tags) > 0 AND EXISTS (SELECT 1 FROM unnest(f.tags) AS t(tag) WHERE {}))",
                value: "t.tag",
            },
            // Facts about model calls are in a table of their own.
            Key::Model => call_column("e.model"),
            Key::Provider => call_column("e.provider"),
            Key::Agent => call_column("e.agent"),
            Key::Tokens => SqlColumn::Integer(
                "(SELECT least(sum(e.input::numeric + e.output), 9223372036854775807)::bigint \
                 FROM conversation_exchanges e WHERE e.flow = f.id)",
            ),
            _ => return flow_column(key),
        })
    }

    fn implied(&self, key: Key, low: i64, high: Option<i64>) -> Option<String> {
        (key == Key::Time).then(|| id_range(low, high))
    }

    fn flag(&self, flag: Flag) -> Option<&'static str> {
        Some(match flag {
            Flag::Redacted => "(cardinality(f.tags) > 0 AND f.tags @> ARRAY['redacted'])",
            Flag::Held => "(cardinality(f.tags) > 0 AND f.tags @> ARRAY['held'])",
            _ => return flow_flag(flag),
        })
    }
}

const fn call_column(value: &'static str) -> SqlColumn {
    SqlColumn::Rows { exists: "f.id IN (SELECT e.flow FROM conversation_exchanges e WHERE {})", value }
}

/// The ids of flows that began in a range of time, in microseconds, so that only its partitions are read. Ids begin with the
/// milliseconds of the start; those of imported flows may be some minutes off.
pub(crate) fn id_range(low: i64, high: Option<i64>) -> String {
    const SLACK_MILLIS: i64 = 86_400_000;
    let bound = |micros: i64, slack: i64| {
        let millis = (micros / 1000).saturating_add(slack).clamp(0, (1 << 48) - 1);
        uuid::Uuid::from_u128((millis.unsigned_abs() as u128) << 80)
    };
    let from = format!("f.id >= '{}'", bound(low, -SLACK_MILLIS));
    if let Some(high) = high { format!("{from} AND f.id < '{}'", bound(high, SLACK_MILLIS)) } else { from }
}

/// A condition with its parameters in the form in which the client sends them.
#[derive(Default)]
pub(crate) struct Condition {
    pub(crate) sql: String,
    pub(crate) params: Vec<Box<dyn ToSql + Sync + Send>>,
    pub(crate) residual: Option<Query>,
}

impl Condition {
    pub(crate) fn new(query: &Query) -> Self {
        let SqlCondition { sql, params, residual } = query.to_sql(&PostgresTables);
        let params = params
            .into_iter()
            .map(|p| -> Box<dyn ToSql + Sync + Send> {
                match p {
                    SqlParam::Text(text) => Box::new(text),
                    SqlParam::Integer(number) => Box::new(number),
                }
            })
            .collect();
        Self { sql, params, residual }
    }

    /// Adds a parameter; returns its placeholder.
    pub(crate) fn push(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.params.push(Box::new(value));
        format!("${}", self.params.len())
    }
}

pub(crate) fn borrowed(params: &[Box<dyn ToSql + Sync + Send>]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|p| &**p as &(dyn ToSql + Sync)).collect()
}

/// The calls of models that a flow carried, for queries by model.
pub(crate) type CallsOf<'a> = &'a dyn Fn(FlowId) -> Vec<ExchangeRow>;

/// The calls as a store of conversations knows them.
pub(crate) fn calls_in(store: Option<&dyn ConversationStore>, flow: FlowId) -> Vec<ExchangeRow> {
    // An index that cannot be read means no match, not a failed search.
    store.and_then(|s| s.exchanges_in(flow).ok()).unwrap_or_default()
}

/// Where flows are selected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowTable {
    /// Those that have ended, of all replicas.
    Finished,
    /// Those in progress, of other replicas; without bodies and messages.
    Running,
}

/// Calls `each` for every flow of a table that a query selects, in the order of `options`, at most `options.limit` of them;
/// `watch` is called for the rows examined and may stop the search. Damaged rows are skipped.
pub(crate) fn for_each_match(
    table: FlowTable,
    database: &Database,
    calls: CallsOf<'_>,
    options: &ListOptions,
    watch: &mut Watch<'_>,
    each: &mut EachStored<'_>,
) -> Result<()> {
    let residual = Condition::new(&options.query).residual;
    let (mut after, mut found) = (options.after, 0);
    while found < options.limit {
        let wanted = if residual.is_some() { PAGE } else { PAGE.min(options.limit - found) };
        let page = page(table, database, options, after, wanted)?;
        let read = page.len();
        for row in &page {
            after = Some(FlowId::from_u128(row.get::<_, uuid::Uuid>(0).as_u128()));
            if watch().is_break() {
                return Err(StoreError::Cancelled);
            }
            let stored = match rows::read(row) {
                Err(error) if is_of_row(&error) => {
                    database.add_damaged();
                    tracing::warn!(%error, "a damaged flow of the shared store is left out");
                    continue;
                }
                stored if table == FlowTable::Running => running::without_bodies(stored?),
                stored => stored?,
            };
            let unread = RefCell::default();
            let has_bodies = table == FlowTable::Finished;
            let contents = RowContents { database, calls, stored: &stored, has_bodies, unread: &unread };
            let subject = FlowSubject { row: &stored.row, contents };
            let selected = residual.as_ref().is_none_or(|query| query.matches(&subject));
            // What does not answer must not look as if it held nothing.
            match unread.take() {
                Some(error @ StoreError::Shared(_)) => return Err(error),
                Some(error) => tracing::debug!(%error, "a body is not searched"),
                None => {}
            }
            if selected {
                found += 1;
                if each(stored).is_break() || found == options.limit {
                    return Ok(());
                }
            }
        }
        if read < wanted {
            break;
        }
    }
    Ok(())
}

/// Rows that satisfy the condition, after a flow.
fn page(
    table: FlowTable,
    database: &Database,
    options: &ListOptions,
    after: Option<FlowId>,
    limit: usize,
) -> Result<Vec<tokio_postgres::Row>> {
    let (order, beyond) = match options.order {
        ListOrder::Newest => ("DESC", "<"),
        ListOrder::Oldest => ("ASC", ">"),
    };
    let mut condition = Condition::new(&options.query);
    let cursor = after.map(|id| format!(" AND f.id {beyond} {}", condition.push(uuid_of(id)))).unwrap_or_default();
    let from = match table {
        FlowTable::Finished => "flows f WHERE".to_owned(),
        FlowTable::Running => {
            let own = condition.push(database.replica.to_string());
            format!("running_flows f WHERE {} AND", running::condition(&own))
        }
    };
    let sql = format!("SELECT {READ} FROM {from} ({}){cursor} ORDER BY f.id {order} LIMIT {limit}", condition.sql);
    database.run(move |client| async move { client.query(&sql, &borrowed(&condition.params)).await })
}

/// The number of flows that a query selects in the database, those in progress at other replicas included, beside those
/// with these ids, if SQL alone can tell; otherwise an upper bound.
pub(crate) fn count(
    database: &Database,
    query: &Query,
    beside: &[FlowId],
    watch: &mut Watch<'_>,
) -> Result<(u64, bool)> {
    let mut condition = Condition::new(query);
    let is_exact = condition.residual.is_none();
    let own = database.has_unlogged_tables().then(|| condition.push(database.replica.to_string()));
    let beside = (!beside.is_empty()).then(|| {
        let ids: Vec<uuid::Uuid> = beside.iter().map(|id| uuid_of(*id)).collect();
        condition.push(ids)
    });
    let selected = &condition.sql;
    // In one statement, so that what ends or moves meanwhile is counted once.
    let mut sql = format!("SELECT (SELECT count(*) FROM flows f WHERE {selected})");
    if let Some(ids) = &beside {
        sql += &format!(" - (SELECT count(*) FROM flows f WHERE ({selected}) AND f.id = ANY({ids}))");
    }
    if let Some(own) = own {
        let is_other = beside.map(|ids| format!(" AND f.id <> ALL({ids})")).unwrap_or_default();
        let counts = running::condition(&own);
        sql += &format!(" + (SELECT count(*) FROM running_flows f WHERE {counts} AND ({selected}){is_other})");
    }
    let row = database.run_while(watch, move |client| async move {
        // It ends when nobody waits any more.
        client.batch_execute("SET statement_timeout = 0").await?;
        let counted = client.query_one(&sql, &borrowed(&condition.params)).await;
        client.batch_execute("RESET statement_timeout").await?;
        counted
    })?;
    Ok((row.get::<_, i64>(0).unsigned_abs(), is_exact))
}

/// How many flows are to be examined for a query, or about how many if it takes longer to count them than somebody waits for
/// the first of them.
pub(crate) fn estimate(database: &Database, query: &Query) -> Result<u64> {
    let condition = Condition::new(query);
    let rows = database.run(move |client| async move {
        let (selected, params) = (&condition.sql, borrowed(&condition.params));
        client.batch_execute(SHORT_STATEMENT).await?;
        let counted = client.query_one(&format!("SELECT count(*) FROM flows f WHERE {selected}"), &params).await;
        client.batch_execute("RESET statement_timeout").await?;
        match counted {
            Err(e) if e.code() == Some(&SqlState::QUERY_CANCELED) => {}
            counted => return Ok(counted?.get(0)),
        }
        // What the planner expects, in the first line.
        let plan = client.query(&format!("EXPLAIN SELECT 1 FROM flows f WHERE {selected}"), &params).await?;
        let whole: &str = plan.first().map_or("", |row| row.get(0));
        Ok(whole.split_once(" rows=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(0_i64))
    })?;
    Ok(rows.unsigned_abs())
}

/// A flow in the database, and the replica at which it is in progress; `None` if there is none with this id.
pub(crate) fn get(database: &Database, id: FlowId) -> Result<Option<(StoredFlow, Option<String>)>> {
    let own = database.has_unlogged_tables().then(|| database.replica.to_string());
    let rows = database.run(move |client| async move {
        let mut sql = format!("SELECT {READ}, NULL::text FROM flows f WHERE f.id = $1");
        let mut params: Vec<&(dyn ToSql + Sync)> = Vec::new();
        let id = uuid_of(id);
        params.push(&id);
        if let Some(own) = &own {
            // In one statement, so that a flow that ends meanwhile is found.
            sql += &format!(
                " UNION ALL SELECT {READ}, f.replica FROM running_flows f WHERE f.id = $1 AND {}",
                running::condition("$2")
            );
            params.push(own);
        }
        let statement = client.prepare_cached(&sql).await?;
        client.query_opt(&statement, &params).await
    })?;
    let Some(row) = rows else { return Ok(None) };
    let stored = rows::read(&row)?;
    let replica: Option<String> = row.try_get(READ_COLUMNS).ok().flatten();
    let stored = if replica.is_some() { running::without_bodies(stored) } else { stored };
    Ok(Some((stored, replica)))
}

/// What the database has of a row.
struct RowContents<'a> {
    database: &'a Database,
    calls: CallsOf<'a>,
    stored: &'a StoredFlow,
    has_bodies: bool,
    /// Why a body or messages could not be read.
    unread: &'a RefCell<Option<StoreError>>,
}

impl FlowContents for RowContents<'_> {
    fn calls(&self) -> Result<Vec<ExchangeRow>> {
        Ok((self.calls)(self.stored.row.id))
    }

    fn body(&self, direction: Direction) -> Result<Bytes> {
        let side = body_index(direction);
        let inline = self.stored.inline[side].clone();
        bodies::reader(self.database, self.stored.row.id, side, inline, 0..u64::MAX).read_all(MAX_SEARCHED_BODY)
    }

    fn messages(&self, range: Range<u64>) -> Result<Vec<MessageRecord>> {
        bodies::messages(self.database, self.stored.row.id, range)
    }

    fn has_bodies(&self) -> bool {
        self.has_bodies
    }

    fn note_unread(&self, error: StoreError) {
        self.unread.replace(Some(error));
    }
}
