//! Conversations in PostgreSQL: reading. Writes are in `write.rs`, the indexer's turn in `index.rs`.

use std::collections::HashMap;

use interflow_store::stored_form::{EXCHANGE, decompress_text};
use interflow_store::{
    ConversationNote, ConversationOptions, ConversationRow, ConversationStore, ConversationSummary, ConversationTotal,
    ConversationUpdate, ExchangeRow, FlowAnnotation, IndexProgress, MessageNodeRow, Result, SharedIndex, TokenUsage,
    TotalsRange,
};
use interflow_types::FlowId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::conversations::columns::{SESSION, USAGE_SUMS, flow_of, micros, number, time, usage};
use crate::conversations::write as writes;
use crate::database::connect::PooledClient;
use crate::database::pool::Failure;
use crate::database::rows::{clean, uuid_of};
use crate::store::SharedStore;

const CONVERSATION: &str = "c.id, c.session, c.parent, c.started, c.updated, c.agent, c.model, c.provider, c.host, \
     c.username, c.title, c.turns, c.facts";
/// Notes read per conversation; the rest of them is stored, but not shown.
const MAX_NOTES: i64 = 1000;
/// Conversations examined per step of a list.
const STEP: i64 = 200;

impl ConversationStore for SharedStore {
    fn save_update(&self, findings: ConversationUpdate) -> Result<()> {
        self.save_progress(findings, IndexProgress::default())
    }

    fn forget_conversations(&self) -> Result<()> {
        self.writable()?;
        self.database.transact(async |mut client| writes::forget_all(&mut client).await)
    }

    fn cursor(&self) -> Result<Option<FlowId>> {
        self.database.transact(async |client| {
            let row = client.query_one("SELECT flow FROM conversation_index", &[]).await?;
            Ok(row.get::<_, Option<Uuid>>(0).map(flow_of))
        })
    }

    /// Positions do not follow the clock, so there is nothing to go back to.
    fn rewind_cursor(&self, _: FlowId, _: usize) -> Result<Vec<FlowId>> {
        Ok(Vec::new())
    }

    fn recorded_position(&self, flow: FlowId) -> Result<Option<u64>> {
        let id = uuid_of(flow);
        self.database.transact(async move |client| {
            let position_row = client.query_opt("SELECT position FROM flows WHERE id = $1", &[&id]).await?;
            Ok(position_row.map(|row| number(&row, 0)))
        })
    }

    fn endpoints(&self) -> Result<String> {
        self.database.transact(async |client| {
            Ok(client.query_one("SELECT endpoints FROM conversation_index", &[]).await?.get(0))
        })
    }

    fn write_endpoints(&self, text: &str) -> Result<()> {
        self.writable()?;
        let text = clean(text);
        self.database.transact(async move |client| {
            client.execute("UPDATE conversation_index SET endpoints = $1", &[&text]).await?;
            Ok(())
        })
    }

    fn conversations(&self, options: &ConversationOptions) -> Result<Vec<ConversationSummary>> {
        let options = options.clone();
        self.database.transact(async move |client| list(&client, &options).await)
    }

    fn conversation(&self, id: &str) -> Result<Option<ConversationSummary>> {
        let id = clean(id);
        self.database.transact(async move |client| {
            let sql = format!("SELECT {CONVERSATION} FROM conversations c WHERE id = $1");
            let rows = query(&client, &sql, &[&id]).await?;
            Ok(summaries(&client, rows.iter().map(conversation).collect()).await?.pop())
        })
    }

    fn session(&self, session: &str, limit: usize) -> Result<Vec<ConversationRow>> {
        let (session, limit) = (clean(session), limit as i64);
        self.database.transact(async move |client| {
            let sql = format!(
                "SELECT {CONVERSATION} FROM conversations c WHERE {SESSION} ORDER BY updated DESC, id DESC LIMIT $2"
            );
            let rows = query(&client, &sql, &[&session, &limit]).await?;
            Ok(rows.iter().rev().map(conversation).collect())
        })
    }

    fn nodes(&self, id: &str, bodies: bool) -> Result<Vec<MessageNodeRow>> {
        let id = clean(id);
        self.database.transact(async move |client| {
            // An empty text in its place, so that the columns stay the same.
            let body = if bodies { "body" } else { "''::bytea" };
            let sql = format!(
                "SELECT key, parent, at, facts, {body} FROM conversation_nodes WHERE conversation = $1 ORDER BY n"
            );
            let rows = query(&client, &sql, &[&id]).await?;
            let node = |row: &Row| {
                Ok(MessageNodeRow {
                    conversation: id.clone(),
                    key: row.get::<_, Uuid>(0).as_u128(),
                    parent: row.get::<_, Option<Uuid>>(1).map(|key| key.as_u128()),
                    at: time(row, 2),
                    facts: row.get(3),
                    body: decompress_text(row.get(4))?,
                })
            };
            rows.iter().map(node).collect()
        })
    }

    fn exchanges(&self, id: &str) -> Result<Vec<ExchangeRow>> {
        let id = clean(id);
        self.database.transact(async move |client| {
            let sql = format!(
                "SELECT {EXCHANGE} FROM conversation_exchanges WHERE conversation = $1 ORDER BY started, flow, part"
            );
            Ok(query(&client, &sql, &[&id]).await?.iter().map(exchange).collect())
        })
    }

    fn exchanges_in(&self, flow: FlowId) -> Result<Vec<ExchangeRow>> {
        let flow = uuid_of(flow);
        self.database.transact(async move |client| {
            let sql = format!("SELECT {EXCHANGE} FROM conversation_exchanges WHERE flow = $1 ORDER BY part");
            Ok(query(&client, &sql, &[&flow]).await?.iter().map(exchange).collect())
        })
    }

    fn totals(&self, range: TotalsRange) -> Result<Vec<ConversationTotal>> {
        let (span, offset) = (range.span.max(1).min(i64::MAX as u64) as i64, range.offset);
        let [since, until] = [range.since, range.until].map(micros);
        self.database.transact(async move |client| {
            // Integer division rounds the start down to its bucket.
            let sql = format!(
                "SELECT {USAGE_SUMS}, (e.started + $4) / $1 * $1 - $4 AS span, e.agent, e.model, \
                 coalesce(c.username, ''), count(*) FILTER (WHERE e.failed) \
                 FROM conversation_exchanges e LEFT JOIN conversations c ON c.id = e.conversation \
                 WHERE e.started >= $2 AND e.started < $3 GROUP BY span, e.agent, e.model, c.username \
                 ORDER BY span, e.agent, e.model, c.username NULLS FIRST"
            );
            let rows = query(&client, &sql, &[&span, &since, &until, &offset]).await?;
            let total = |row: &Row| ConversationTotal {
                used: usage(row, 0),
                // A bucket may begin before the epoch.
                from: row.get::<_, i64>(8).max(0).unsigned_abs(),
                agent: row.get(9),
                model: row.get(10),
                user: row.get(11),
                failed: number(row, 12),
            };
            Ok(rows.iter().map(total).collect())
        })
    }

    fn annotate_conversation(&self, id: &str, message: Option<u128>, change: FlowAnnotation) -> Result<()> {
        self.writable()?;
        let (id, message) = (clean(id), message.map(Uuid::from_u128));
        self.database.transact(async move |mut client| writes::annotate(&mut client, &id, message, &change).await)
    }

    fn shared_index(&self) -> Option<&dyn SharedIndex> {
        Some(self)
    }
}

async fn list(client: &PooledClient, options: &ConversationOptions) -> Result<Vec<ConversationSummary>, Failure> {
    let condition = match (&options.parent, options.all) {
        (Some(_), _) => "parent = $1",
        (None, true) => "$1::text IS NULL",
        (None, false) => "$1::text IS NULL AND parent IS NULL AND turns > 0",
    };
    let sql = format!(
        // A row value comparison continues after the last row of the previous page, also among equal times.
        "SELECT {CONVERSATION} FROM conversations c WHERE {condition} AND (updated, id) < ($2, $3) \
         AND ($4::bigint IS NULL OR EXISTS (SELECT 1 FROM conversation_exchanges e WHERE e.conversation = c.id \
         AND e.started >= $4 AND e.started < $5)) ORDER BY updated DESC, id DESC LIMIT {STEP}"
    );
    let parent = options.parent.as_deref().map(clean);
    let (from, to) = options.during.map(|(from, to)| (micros(from), micros(to))).unzip();
    let (updated, id) = options.start();
    let mut at = (updated, clean(id));
    let mut selected = Vec::new();
    loop {
        let rows = query(client, &sql, &[&parent, &at.0, &at.1, &from, &to]).await?;
        let rows: Vec<_> = rows.iter().map(conversation).collect();
        let Some(last) = rows.last() else { return Ok(selected) };
        at = (micros(last.updated), last.id.clone());
        // Filtered here and not in SQL: a query may refer to sums over the exchanges.
        for summary in summaries(client, rows).await? {
            if options.query.matches(&summary) {
                selected.push(summary);
                if selected.len() >= options.limit {
                    return Ok(selected);
                }
            }
        }
    }
}

/// Adds usage and notes, of all rows with one query each.
async fn summaries(client: &PooledClient, rows: Vec<ConversationRow>) -> Result<Vec<ConversationSummary>, Failure> {
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let used = format!(
        "SELECT {USAGE_SUMS}, conversation FROM conversation_exchanges WHERE conversation = ANY($1) GROUP BY conversation"
    );
    // By the tags of the flows, which a background scan may add after the exchange was indexed.
    let unredacted = "SELECT e.conversation, count(*) FROM conversation_exchanges e JOIN flows f ON f.id = e.flow \
         WHERE e.conversation = ANY($1) AND f.tags @> ARRAY['redact:flagged'] \
         AND NOT EXISTS (SELECT 1 FROM unnest(f.tags) t(tag) WHERE t.tag LIKE 'refused:%') GROUP BY e.conversation";
    let notes = "SELECT conversation, message, tags, comment FROM (SELECT *, row_number() OVER \
         (PARTITION BY conversation ORDER BY message NULLS FIRST) AS nth FROM conversation_notes \
         WHERE conversation = ANY($1)) n WHERE nth <= $2 ORDER BY conversation, nth";
    let mut used: HashMap<String, TokenUsage> =
        query(client, &used, &[&ids]).await?.iter().map(|row| (row.get(8), usage(row, 0))).collect();
    let unredacted: HashMap<String, u64> =
        query(client, unredacted, &[&ids]).await?.iter().map(|row| (row.get(0), number(row, 1))).collect();
    let mut noted: HashMap<String, Vec<ConversationNote>> = HashMap::new();
    for row in query(client, notes, &[&ids, &MAX_NOTES]).await? {
        noted.entry(row.get(0)).or_default().push(ConversationNote {
            message: row.get::<_, Option<Uuid>>(1).map(|key| key.as_u128()),
            tags: row.get(2),
            comment: row.get(3),
        });
    }
    let summary = |row: ConversationRow| ConversationSummary {
        used: used.remove(&row.id).unwrap_or_default(),
        unredacted: unredacted.get(&row.id).copied().unwrap_or_default(),
        notes: noted.remove(&row.id).unwrap_or_default(),
        row,
    };
    Ok(rows.into_iter().map(summary).collect())
}

async fn query(client: &PooledClient, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    client.query(&statement, params).await
}

fn conversation(row: &Row) -> ConversationRow {
    ConversationRow {
        id: row.get(0),
        session: row.get(1),
        parent: row.get(2),
        started: time(row, 3),
        updated: time(row, 4),
        agent: row.get(5),
        model: row.get(6),
        provider: row.get(7),
        host: row.get(8),
        user: row.get(9),
        title: row.get(10),
        turns: number(row, 11),
        facts: row.get(12),
    }
}

fn exchange(row: &Row) -> ExchangeRow {
    let cost: Option<f64> = row.get(13);
    ExchangeRow {
        flow: flow_of(row.get(0)),
        part: number(row, 1),
        conversation: row.get(2),
        started: time(row, 3),
        leaf: row.get::<_, Option<Uuid>>(4).map(|key| key.as_u128()),
        agent: row.get(5),
        model: row.get(6),
        provider: row.get(7),
        used: TokenUsage {
            exchanges: 1,
            input: number(row, 8),
            output: number(row, 9),
            cache_read: number(row, 10),
            cache_write: number(row, 11),
            reasoning: number(row, 12),
            cost: cost.unwrap_or_default(),
            // A missing cost is counted rather than taken for zero.
            unpriced: u64::from(cost.is_none()),
        },
        facts: row.get(14),
        failed: row.get(15),
    }
}
