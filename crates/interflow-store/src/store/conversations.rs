//! The `ConversationStore` of the embedded store.

use std::collections::{HashMap, HashSet};

use interflow_files::{FileAccess, write_atomic};
use interflow_types::FlowId;
use rusqlite::{Connection, OptionalExtension, params};

use super::conversation_rows::{
    CONVERSATION, EXCHANGE, USAGE_SUMS, calls, compress_text, conversation, decompress_text, exchange, flow_of, key_of,
    read_usage, time,
};
use super::sqlite_store::SqliteStore;
use super::store_state::{FlowAnnotation, WriterCommand};
use super::{conversation_notes, rows};
use crate::conversations::{
    ConversationOptions, ConversationRow, ConversationStore, ConversationSummary, ConversationTotal,
    ConversationUpdate, ExchangeRow, MessageNodeRow, TotalsRange,
};
use crate::error::{Result, StoreError};
use crate::store::recording::writer::StoreWriter;

/// The file, next to the database, with the operator's endpoint overrides.
const ENDPOINTS: &str = "endpoints.json";
/// Conversations examined per step of a list.
const STEP: usize = 200;

impl StoreWriter {
    /// Stores an update of the conversation indexer.
    pub(crate) fn save_conversation_update(&mut self, found: &ConversationUpdate) -> Result<()> {
        let db = &self.db;
        // First, since an update that builds on deleted messages would leave them unreachable.
        check_parents(db, found)?;
        let mut insert = db.prepare_cached(
            "INSERT INTO conversations VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET \
             parent = excluded.parent, started = excluded.started, updated = excluded.updated, agent = excluded.agent, \
             model = excluded.model, provider = excluded.provider, host = excluded.host, user = excluded.user, \
             title = excluded.title, turns = excluded.turns, facts = excluded.facts",
        )?;
        for c in &found.conversations {
            let times = [c.started, c.updated].map(|t| t.micros() as i64);
            insert.execute(params![
                c.id, c.session, c.parent, times[0], times[1], c.agent, c.model, c.provider, c.host, c.user, c.title,
                c.turns, c.facts
            ])?;
        }
        let mut insert = db.prepare_cached(
            // Existing messages are kept: their key is a hash of their content and history.
            "INSERT OR IGNORE INTO conversation_nodes(conversation, key, parent, at, facts, body) VALUES(?,?,?,?,?,?)",
        )?;
        let mut bytes = 0;
        for n in &found.nodes {
            let body = compress_text(&n.body);
            bytes += body.len();
            let parent = n.parent.map(u128::to_be_bytes);
            insert.execute(params![
                n.conversation,
                n.key.to_be_bytes(),
                parent,
                n.at.micros() as i64,
                n.facts,
                body
            ])?;
        }
        let mut insert =
            // A call may be indexed again when its flow grows.
            db.prepare_cached("INSERT OR REPLACE INTO conversation_exchanges VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")?;
        for e in &found.exchanges {
            let u = &e.used;
            let cost = (u.unpriced == 0).then_some(u.cost);
            // SQLite integers are signed.
            let counts = [u.input, u.output, u.cache_read, u.cache_write, u.reasoning].map(|n| n.min(i64::MAX as u64));
            insert.execute(params![
                e.flow.to_u128().to_be_bytes(),
                e.part,
                e.conversation,
                e.started.micros() as i64,
                e.leaf.map(u128::to_be_bytes),
                e.agent,
                e.model,
                e.provider,
                counts[0],
                counts[1],
                counts[2],
                counts[3],
                counts[4],
                cost,
                e.facts,
                e.failed
            ])?;
        }
        if let Some(cursor) = found.cursor {
            db.prepare_cached("INSERT OR REPLACE INTO conversation_cursor VALUES(1, ?)")?
                .execute([cursor.to_u128().to_be_bytes()])?;
        }
        // An estimate of what the transaction adds to the write-ahead log.
        self.logged += bytes + 1024 * (found.conversations.len() + found.nodes.len() + found.exchanges.len());
        Ok(())
    }

    /// Deletes all conversations but not what the operator noted on them: built again, they have the same ids.
    pub(crate) fn forget_conversations(&mut self) -> Result<()> {
        for table in ["conversations", "conversation_nodes", "conversation_exchanges", "conversation_cursor"] {
            self.db.execute(&format!("DELETE FROM {table}"), [])?;
        }
        Ok(())
    }

    /// Removes the exchanges of these flows from their conversations, and messages that no other exchange needs. Must
    /// be called while the flows' rows still exist.
    pub(crate) fn detach_flows(&mut self, seqs: &[i64]) -> Result<()> {
        let db = &self.db;
        let mut touched = HashSet::new();
        let mut find = db.prepare_cached(
            // By the flow's row, which still exists.
            "SELECT DISTINCT conversation FROM conversation_exchanges WHERE flow = (SELECT id FROM flows WHERE seq = ?)",
        )?;
        let mut leave =
            db.prepare_cached("DELETE FROM conversation_exchanges WHERE flow = (SELECT id FROM flows WHERE seq = ?)")?;
        for seq in seqs {
            let sessions = find.query_map([seq], |r| r.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
            if !sessions.is_empty() {
                touched.extend(sessions);
                leave.execute([seq])?;
            }
        }
        // Once per conversation, however many of its exchanges go.
        touched.iter().try_for_each(|id| prune_conversation(db, id))
    }
}

/// Checks that the messages which new ones build on still exist: they may have been deleted with their flows.
fn check_parents(db: &Connection, found: &ConversationUpdate) -> Result<()> {
    // Parents within the same update are written with it.
    let new: HashSet<(&str, u128)> = found.nodes.iter().map(|n| (n.conversation.as_str(), n.key)).collect();
    let mut statement = db.prepare_cached("SELECT 1 FROM conversation_nodes WHERE conversation = ? AND key = ?")?;
    for n in &found.nodes {
        if let Some(parent) = n.parent.filter(|p| !new.contains(&(n.conversation.as_str(), *p)))
            && !statement.exists(params![n.conversation, parent.to_be_bytes()])?
        {
            return Err(StoreError::Stale(n.conversation.clone()));
        }
    }
    Ok(())
}

/// Deletes the messages of a conversation that lead to none of its exchanges, and the conversation if it has no
/// exchanges.
fn prune_conversation(db: &Connection, id: &str) -> Result<()> {
    let sql = "SELECT key, parent FROM conversation_nodes WHERE conversation = ?";
    let nodes = rows::query_all(db, sql, [id], |r| Ok((key_of(r.get_ref(0)?)?, key_of(r.get_ref(1)?)?)))?;
    let parents: HashMap<_, _> = nodes.into_iter().filter_map(|(key, parent)| Some((key?, parent))).collect();
    let sql = "SELECT leaf FROM conversation_exchanges WHERE conversation = ?";
    let leaves = rows::query_all(db, sql, [id], |r| key_of(r.get_ref(0)?))?;
    let mut live = HashSet::new();
    for leaf in &leaves {
        let mut at = *leaf;
        // Stops at a message that another exchange has marked already, so each is visited once.
        while let Some(key) = at.filter(|k| live.insert(*k)) {
            at = parents.get(&key).copied().flatten();
        }
    }
    let mut delete = db.prepare_cached("DELETE FROM conversation_nodes WHERE conversation = ? AND key = ?")?;
    for key in parents.keys().filter(|k| !live.contains(k)) {
        delete.execute(params![id, key.to_be_bytes()])?;
        conversation_notes::delete(db, id, Some(*key))?;
    }
    // The last exchange has gone, and with it the reason to keep the conversation.
    if leaves.is_empty() {
        db.prepare_cached("DELETE FROM conversations WHERE id = ?")?.execute([id])?;
        conversation_notes::delete(db, id, None)?;
    }
    Ok(())
}

impl ConversationStore for SqliteStore {
    fn save_update(&self, findings: ConversationUpdate) -> Result<()> {
        // Through the writer thread, which owns the only writing connection.
        self.shared()?.send_command(|reply| WriterCommand::Keep(Box::new(findings), reply))
    }

    fn forget_conversations(&self) -> Result<()> {
        self.shared()?.send_command(WriterCommand::ForgetConversations)
    }

    fn cursor(&self) -> Result<Option<FlowId>> {
        self.read(|db| {
            let cursor = db.query_row("SELECT flow FROM conversation_cursor", [], |r| r.get::<_, [u8; 16]>(0));
            Ok(cursor.optional()?.map(flow_of))
        })
    }

    fn rewind_cursor(&self, cursor: FlowId, most: usize) -> Result<Vec<FlowId>> {
        self.read(|db| {
            // Ids follow the clock and `seq` the order of recording; they differ only after the clock was set back.
            let sql = "SELECT id FROM flows WHERE id <= ?1 AND seq > \
                (SELECT seq FROM flows WHERE id <= ?1 ORDER BY id DESC LIMIT 1) ORDER BY seq DESC LIMIT ?2";
            let bytes = cursor.to_u128().to_be_bytes();
            let mut flows = rows::query_all(db, sql, params![bytes, most as i64], |r| Ok(flow_of(r.get(0)?)))?;
            flows.reverse();
            Ok(flows)
        })
    }

    fn recorded_position(&self, flow: FlowId) -> Result<Option<u64>> {
        self.read(|db| {
            let mut statement = db.prepare_cached("SELECT seq FROM flows WHERE id = ?")?;
            let seq = statement.query_row([flow.to_u128().to_be_bytes()], |r| r.get::<_, i64>(0)).optional()?;
            Ok(seq.map(i64::unsigned_abs))
        })
    }

    fn endpoints(&self) -> Result<String> {
        let path = self.dir().join(ENDPOINTS);
        let text = interflow_files::optional(std::fs::read_to_string(&path));
        Ok(text.map_err(StoreError::io("could not read", &path))?.unwrap_or_default())
    }

    fn write_endpoints(&self, text: &str) -> Result<()> {
        // Fails for a store that is open for reading only.
        self.shared()?;
        let path = self.dir().join(ENDPOINTS);
        // Replaced by renaming: a reader never sees half a file.
        write_atomic(&path, text.as_bytes(), FileAccess::Private).map_err(StoreError::io("could not write", &path))
    }

    fn conversations(&self, options: &ConversationOptions) -> Result<Vec<ConversationSummary>> {
        self.read(|db| list(db, options))
    }

    fn conversation(&self, id: &str) -> Result<Option<ConversationSummary>> {
        self.read(|db| {
            let sql = format!("SELECT {CONVERSATION} FROM conversations c WHERE id = ?");
            let row = rows::query_all(db, &sql, [id], conversation)?.pop();
            row.map(|row| with_usage(db, row)).transpose()
        })
    }

    fn session(&self, session: &str, limit: usize) -> Result<Vec<ConversationRow>> {
        self.read(|db| {
            let sql = format!(
                "SELECT {CONVERSATION} FROM conversations c WHERE session = ? ORDER BY updated DESC, id DESC LIMIT ?"
            );
            let mut rows = rows::query_all(db, &sql, params![session, limit as i64], conversation)?;
            rows.reverse();
            Ok(rows)
        })
    }

    fn nodes(&self, id: &str, bodies: bool) -> Result<Vec<MessageNodeRow>> {
        self.read(|db| {
            // An empty blob in its place, so that the columns stay the same.
            let body = if bodies { "body" } else { "x''" };
            let sql = format!(
                "SELECT key, parent, at, facts, {body} FROM conversation_nodes WHERE conversation = ? ORDER BY n"
            );
            rows::query_all(db, &sql, [id], |row| {
                Ok(MessageNodeRow {
                    conversation: id.to_owned(),
                    key: key_of(row.get_ref(0)?)?.unwrap_or_default(),
                    parent: key_of(row.get_ref(1)?)?,
                    at: time(row, 2)?,
                    facts: row.get(3)?,
                    body: decompress_text(row.get_ref(4)?.as_blob().unwrap_or_default())?,
                })
            })
        })
    }

    fn exchanges(&self, id: &str) -> Result<Vec<ExchangeRow>> {
        self.read(|db| {
            let sql = format!(
                "SELECT {EXCHANGE} FROM conversation_exchanges WHERE conversation = ? ORDER BY started, flow, part"
            );
            rows::query_all(db, &sql, [id], exchange)
        })
    }

    fn exchanges_in(&self, flow: FlowId) -> Result<Vec<ExchangeRow>> {
        self.read(|db| calls(db, flow))
    }

    fn totals(&self, range: TotalsRange) -> Result<Vec<ConversationTotal>> {
        self.read(|db| {
            let sql = format!(
                // Integer division rounds the start down to its bucket.
                "SELECT {USAGE_SUMS}, (e.started + ?4) / ?1 * ?1 - ?4 AS span, e.agent, e.model, coalesce(c.user, '') AS user, \
                 sum(e.failed) FROM conversation_exchanges e LEFT JOIN conversations c ON c.id = e.conversation \
                 WHERE e.started >= ?2 AND e.started < ?3 GROUP BY span, e.agent, e.model, c.user \
                 ORDER BY span, e.agent, e.model, c.user"
            );
            let [since, until] = [range.since, range.until].map(|t| t.micros() as i64);
            rows::query_all(db, &sql, params![range.span.max(1) as i64, since, until, range.offset], |r| {
                Ok(ConversationTotal {
                    used: read_usage(r, 0)?,
                    // A bucket may begin before the epoch.
                    from: r.get::<_, i64>(8)?.max(0).unsigned_abs(),
                    agent: r.get(9)?,
                    model: r.get(10)?,
                    user: r.get(11)?,
                    failed: r.get::<_, i64>(12)?.unsigned_abs(),
                })
            })
        })
    }

    fn annotate_conversation(&self, id: &str, message: Option<u128>, change: FlowAnnotation) -> Result<()> {
        self.shared()?.send_command(|reply| WriterCommand::Note(id.to_owned(), message, change, reply))
    }
}

fn list(db: &Connection, options: &ConversationOptions) -> Result<Vec<ConversationSummary>> {
    let condition = match (&options.parent, options.all) {
        (Some(_), _) => "parent = ?1",
        (None, true) => "?1 IS NULL",
        (None, false) => "?1 IS NULL AND parent IS NULL AND turns > 0",
    };
    let sql = format!(
        // A row value comparison continues after the last row of the previous page, also among equal times.
        "SELECT {CONVERSATION} FROM conversations c WHERE {condition} AND (updated, id) < (?2, ?3) \
         AND (?4 IS NULL OR EXISTS(SELECT 1 FROM conversation_exchanges e WHERE e.conversation = c.id \
         AND e.started >= ?4 AND e.started < ?5)) ORDER BY updated DESC, id DESC LIMIT {STEP}"
    );
    let (from, to) = options.during.map(|(from, to)| (from.micros() as i64, to.micros() as i64)).unzip();
    let (updated, id) = options.start();
    let mut at = (updated, id.to_owned());
    let mut totals = Vec::new();
    loop {
        let rows = rows::query_all(db, &sql, params![options.parent, at.0, at.1, from, to], conversation)?;
        let Some(last) = rows.last() else { return Ok(totals) };
        at = (last.updated.micros() as i64, last.id.clone());
        // Filtered here and not in SQL: a query may refer to sums over the exchanges.
        for row in rows {
            let listed = with_usage(db, row)?;
            if options.query.matches(&listed) {
                totals.push(listed);
                if totals.len() >= options.limit {
                    return Ok(totals);
                }
            }
        }
    }
}

fn with_usage(db: &Connection, row: ConversationRow) -> Result<ConversationSummary> {
    let sql = format!("SELECT {USAGE_SUMS} FROM conversation_exchanges WHERE conversation = ?");
    let used = db.prepare_cached(&sql)?.query_row([&row.id], |r| read_usage(r, 0))?;
    // By the tags of the flows, which a background scan may add after the exchange was indexed.
    let unredacted = db
        .prepare_cached(
            "SELECT count(*) FROM conversation_exchanges e JOIN flows f ON f.id = e.flow WHERE e.conversation = ? AND \
             instr(f.tags, char(10) || 'redact:flagged' || char(10)) AND NOT instr(f.tags, char(10) || 'refused:')",
        )?
        .query_row([&row.id], |r| r.get::<_, i64>(0))?
        .unsigned_abs();
    let notes = conversation_notes::of(db, &row.id)?;
    Ok(ConversationSummary { row, used, unredacted, notes })
}
