//! Conversations in PostgreSQL: writing. Every change of what the indexer builds locks the row of `conversation_index`
//! first, so that it is one after the other, and no update builds on messages that are deleted meanwhile.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Transaction;
use interflow_store::stored_form::compress_text;
use interflow_store::{
    ConversationNote, ConversationRow, ConversationUpdate, ExchangeRow, FlowAnnotation, MessageNodeRow, StoreError,
};
use interflow_types::FlowId;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::conversations::columns::{SESSION, micros};
use crate::database::connect::PooledClient;
use crate::database::pool::Failure;
use crate::database::rows::{clean, signed, uuid_of};

/// Taken at the start of a transaction that changes conversations.
const LOCK: &str = "SELECT FROM conversation_index FOR UPDATE";

/// Stores rows of the indexer. The caller holds the lock.
pub(crate) async fn save(transaction: &Transaction<'_>, found: &ConversationUpdate) -> Result<(), Failure> {
    // First, since an update that builds on deleted messages would leave them unreachable.
    check_parents(transaction, &found.nodes).await?;
    save_conversations(transaction, &found.conversations).await?;
    save_nodes(transaction, &found.nodes).await?;
    save_exchanges(transaction, &found.exchanges).await?;
    if let Some(cursor) = found.cursor {
        let cursor = uuid_of(cursor);
        execute(transaction, "UPDATE conversation_index SET flow = $1", &[&cursor]).await?;
    }
    Ok(())
}

async fn execute(transaction: &Transaction<'_>, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Error> {
    let statement = transaction.prepare_cached(sql).await?;
    transaction.execute(&statement, params).await
}

/// Checks that the messages which new ones build on still exist: they may have been deleted with their flows.
async fn check_parents(transaction: &Transaction<'_>, nodes: &[MessageNodeRow]) -> Result<(), Failure> {
    // Parents within the same update are written with it.
    let new: HashSet<(&str, u128)> = nodes.iter().map(|n| (n.conversation.as_str(), n.key)).collect();
    let (mut of, mut keys) = (Vec::new(), Vec::new());
    for node in nodes {
        if let Some(parent) = node.parent.filter(|p| !new.contains(&(node.conversation.as_str(), *p))) {
            of.push(clean(&node.conversation));
            keys.push(Uuid::from_u128(parent));
        }
    }
    if of.is_empty() {
        return Ok(());
    }
    let sql = "SELECT p.conversation FROM unnest($1::text[], $2::uuid[]) AS p(conversation, key) WHERE NOT EXISTS \
         (SELECT 1 FROM conversation_nodes n WHERE n.conversation = p.conversation AND n.key = p.key) LIMIT 1";
    let statement = transaction.prepare_cached(sql).await?;
    let stale = transaction.query_opt(&statement, &[&of, &keys]).await?;
    stale.map_or(Ok(()), |row| Err(StoreError::Stale(row.get(0)).into()))
}

async fn save_conversations(transaction: &Transaction<'_>, rows: &[ConversationRow]) -> Result<(), Failure> {
    let sql = "INSERT INTO conversations VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
         ON CONFLICT (id) DO UPDATE SET parent = excluded.parent, started = excluded.started, \
         updated = excluded.updated, agent = excluded.agent, model = excluded.model, provider = excluded.provider, \
         host = excluded.host, username = excluded.username, title = excluded.title, turns = excluded.turns, \
         facts = excluded.facts";
    for c in rows {
        let [id, session, agent, model, provider, host, user, title, facts] =
            [&c.id, &c.session, &c.agent, &c.model, &c.provider, &c.host, &c.user, &c.title, &c.facts]
                .map(|t| clean(t));
        let parent = c.parent.as_deref().map(clean);
        let (started, updated, turns) = (micros(c.started), micros(c.updated), signed(c.turns));
        let params: [&(dyn ToSql + Sync); 13] = [
            &id, &session, &parent, &started, &updated, &agent, &model, &provider, &host, &user, &title, &turns, &facts,
        ];
        execute(transaction, sql, &params).await?;
    }
    Ok(())
}

async fn save_nodes(transaction: &Transaction<'_>, nodes: &[MessageNodeRow]) -> Result<(), Failure> {
    if nodes.is_empty() {
        return Ok(());
    }
    // Existing messages are kept: their key is a hash of their content and history.
    let sql = "INSERT INTO conversation_nodes(conversation, key, parent, at, facts, body) \
         SELECT conversation, key, parent, at, facts, body FROM unnest($1::text[], $2::uuid[], $3::uuid[], \
         $4::bigint[], $5::text[], $6::bytea[]) WITH ORDINALITY AS new(conversation, key, parent, at, facts, body, nth) \
         ORDER BY nth ON CONFLICT DO NOTHING";
    let of: Vec<String> = nodes.iter().map(|n| clean(&n.conversation)).collect();
    let keys: Vec<Uuid> = nodes.iter().map(|n| Uuid::from_u128(n.key)).collect();
    let parents: Vec<Option<Uuid>> = nodes.iter().map(|n| n.parent.map(Uuid::from_u128)).collect();
    let times: Vec<i64> = nodes.iter().map(|n| micros(n.at)).collect();
    let facts: Vec<String> = nodes.iter().map(|n| clean(&n.facts)).collect();
    let bodies: Vec<Vec<u8>> = nodes.iter().map(|n| compress_text(&n.body)).collect();
    execute(transaction, sql, &[&of, &keys, &parents, &times, &facts, &bodies]).await?;
    Ok(())
}

async fn save_exchanges(transaction: &Transaction<'_>, exchanges: &[ExchangeRow]) -> Result<(), Failure> {
    // A call may be indexed again when its flow grows: the last state counts.
    let last: HashMap<(FlowId, u64), &ExchangeRow> = exchanges.iter().map(|e| ((e.flow, e.part), e)).collect();
    let rows: Vec<&ExchangeRow> = last.into_values().collect();
    if rows.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO conversation_exchanges SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], \
         $4::bigint[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], \
         $12::bigint[], $13::bigint[], $14::float8[], $15::text[], $16::bool[]) ON CONFLICT (flow, part) DO UPDATE SET \
         conversation = excluded.conversation, started = excluded.started, leaf = excluded.leaf, \
         agent = excluded.agent, model = excluded.model, provider = excluded.provider, input = excluded.input, \
         output = excluded.output, cache_read = excluded.cache_read, cache_write = excluded.cache_write, \
         reasoning = excluded.reasoning, cost = excluded.cost, facts = excluded.facts, failed = excluded.failed";
    let text = |field: fn(&ExchangeRow) -> &str| rows.iter().map(|e| clean(field(e))).collect::<Vec<_>>();
    let count = |field: fn(&ExchangeRow) -> u64| rows.iter().map(|e| signed(field(e))).collect::<Vec<_>>();
    let flows: Vec<Uuid> = rows.iter().map(|e| uuid_of(e.flow)).collect();
    let leaves: Vec<Option<Uuid>> = rows.iter().map(|e| e.leaf.map(Uuid::from_u128)).collect();
    let costs: Vec<Option<f64>> = rows.iter().map(|e| (e.used.unpriced == 0).then_some(e.used.cost)).collect();
    let failed: Vec<bool> = rows.iter().map(|e| e.failed).collect();
    let params: [&(dyn ToSql + Sync); 16] = [
        &flows,
        &count(|e| e.part),
        &text(|e| &e.conversation),
        &count(|e| e.started.micros()),
        &leaves,
        &text(|e| &e.agent),
        &text(|e| &e.model),
        &text(|e| &e.provider),
        &count(|e| e.used.input),
        &count(|e| e.used.output),
        &count(|e| e.used.cache_read),
        &count(|e| e.used.cache_write),
        &count(|e| e.used.reasoning),
        &costs,
        &text(|e| &e.facts),
        &failed,
    ];
    execute(transaction, sql, &params).await?;
    Ok(())
}

/// Deletes all conversations but not what the operator noted on them: built again, they have the same ids. Whoever
/// indexes notices by the number of the epoch.
pub(crate) async fn forget_all(client: &mut PooledClient) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute(
            "UPDATE conversation_index SET position = 0, flow = NULL, epoch = epoch + 1; DELETE FROM conversations; \
             DELETE FROM conversation_nodes; DELETE FROM conversation_exchanges; DELETE FROM late_sessions",
        )
        .await?;
    Ok(transaction.commit().await?)
}

/// Deletes the conversations of these sessions, which are built again in the same transaction. Notes stay.
pub(crate) async fn forget_sessions(transaction: &Transaction<'_>, sessions: &[String]) -> Result<(), Failure> {
    if sessions.is_empty() {
        return Ok(());
    }
    let sessions: Vec<String> = sessions.iter().map(|s| clean(s)).collect();
    let sql = format!("DELETE FROM conversations WHERE {SESSION} RETURNING id");
    let mut gone: Vec<String> = Vec::new();
    for session in &sessions {
        gone.extend(transaction.query(&sql, &[session]).await?.iter().map(|row| row.get::<_, String>(0)));
    }
    for table in ["conversation_nodes", "conversation_exchanges"] {
        execute(transaction, &format!("DELETE FROM {table} WHERE conversation = ANY($1)"), &[&gone]).await?;
    }
    Ok(())
}

/// Notes sessions that have calls out of order, and those that do not any more.
pub(crate) async fn mark_late(
    transaction: &Transaction<'_>,
    late: &[String],
    in_order: &[String],
) -> Result<(), Failure> {
    let digests = |sessions: &[String]| -> Vec<Vec<u8>> {
        sessions.iter().map(|session| blake3::hash(clean(session).as_bytes()).as_bytes().to_vec()).collect()
    };
    if !late.is_empty() {
        let sessions: Vec<String> = late.iter().map(|session| clean(session)).collect();
        let sql = "INSERT INTO late_sessions SELECT * FROM unnest($1::bytea[], $2::text[]) ON CONFLICT DO NOTHING";
        execute(transaction, sql, &[&digests(late), &sessions]).await?;
    }
    if !in_order.is_empty() {
        let sql = "DELETE FROM late_sessions WHERE digest = ANY($1)";
        execute(transaction, sql, &[&digests(in_order)]).await?;
    }
    Ok(())
}

/// Removes the exchanges of flows that are being deleted, messages that no other exchange needs, and conversations
/// without exchanges. `flows` is a condition on `conversation_exchanges`, such as `flow = ANY($1)`. Part of the transaction
/// that deletes the flows.
pub(crate) async fn detach_flows(
    transaction: &tokio_postgres::Transaction<'_>,
    flows: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<(), Error> {
    // Most flows are in no conversation: the lock is for the rest.
    let any = format!("SELECT EXISTS (SELECT 1 FROM conversation_exchanges WHERE {flows})");
    if !transaction.query_one(&any, params).await?.get::<_, bool>(0) {
        return Ok(());
    }
    transaction.query(LOCK, &[]).await?;
    let sql = format!("DELETE FROM conversation_exchanges WHERE {flows} RETURNING conversation");
    let touched: HashSet<String> = transaction.query(&sql, params).await?.iter().map(|row| row.get(0)).collect();
    let touched: Vec<String> = touched.into_iter().collect();
    // What leads to an exchange that is left stays.
    let unreachable = "WITH RECURSIVE live(conversation, key) AS (\
         SELECT conversation, leaf FROM conversation_exchanges WHERE conversation = ANY($1) AND leaf IS NOT NULL \
         UNION SELECT n.conversation, n.parent FROM conversation_nodes n JOIN live USING (conversation, key) \
         WHERE n.parent IS NOT NULL) \
         DELETE FROM conversation_nodes n WHERE n.conversation = ANY($1) AND NOT EXISTS \
         (SELECT 1 FROM live WHERE live.conversation = n.conversation AND live.key = n.key)";
    transaction.execute(unreachable, &[&touched]).await?;
    let without_exchanges = "DELETE FROM conversations c WHERE c.id = ANY($1) AND NOT EXISTS \
         (SELECT 1 FROM conversation_exchanges e WHERE e.conversation = c.id)";
    transaction.execute(without_exchanges, &[&touched]).await?;
    let without_subject = "DELETE FROM conversation_notes o WHERE o.conversation = ANY($1) AND NOT EXISTS \
         (SELECT 1 FROM conversations c WHERE c.id = o.conversation) OR o.conversation = ANY($1) AND o.message IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM conversation_nodes n WHERE n.conversation = o.conversation AND n.key = o.message)";
    transaction.execute(without_subject, &[&touched]).await.map(drop)
}

/// Changes the note on a conversation, or on one of its messages, if it exists.
pub(crate) async fn annotate(
    client: &mut PooledClient,
    id: &str,
    message: Option<Uuid>,
    change: &FlowAnnotation,
) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    transaction.query(LOCK, &[]).await?;
    let exists = match message {
        None => transaction.query_opt("SELECT FROM conversations WHERE id = $1", &[&id]).await?,
        Some(key) => {
            let sql = "SELECT FROM conversation_nodes WHERE conversation = $1 AND key = $2";
            transaction.query_opt(sql, &[&id, &key]).await?
        }
    };
    if exists.is_none() {
        return Ok(());
    }
    let sql = "DELETE FROM conversation_notes WHERE conversation = $1 AND message IS NOT DISTINCT FROM $2 \
         RETURNING tags, comment";
    let mut note = ConversationNote::default();
    if let Some(row) = transaction.query_opt(sql, &[&id, &message]).await? {
        (note.tags, note.comment) = (row.get(0), row.get(1));
    }
    change.apply(&mut note.tags, &mut note.comment);
    if !note.is_empty() {
        let tags: Vec<String> = note.tags.iter().map(|t| clean(t)).collect();
        let comment = note.comment.as_deref().map(clean);
        let sql = "INSERT INTO conversation_notes VALUES ($1, $2, $3, $4)";
        transaction.execute(sql, &[&id, &message, &tags, &comment]).await?;
    }
    Ok(transaction.commit().await?)
}
