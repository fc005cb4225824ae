//! Which replica indexes conversations, and from where.
//!
//! One process at a time indexes for all that share the store: the one whose name is in the row of `conversation_index`,
//! until the time that it renews. Each of its transactions checks under the lock of that row that this is still so, and
//! that the epoch is the one in which it began: it changes with the process that indexes, and when everything is deleted
//! to be built again. Otherwise nothing is changed, and the process reads again what it had in memory.
//! Flows are read in the order of their positions, and the position is stored with what was found up to it.

use interflow_store::{
    ConversationUpdate, IndexLag, IndexProgress, RecordedFlow, Result, SharedIndex, StoreError, UnindexedFlows,
};
use interflow_types::FlowId;
use uuid::Uuid;

use crate::conversations::columns::{SESSION, flow_of, number};
use crate::conversations::write as writes;
use crate::database::pool::Failure;
use crate::database::rows::{clean, signed};
use crate::store::SharedStore;

/// How long the fleet waits for a process that indexes and has gone without a word, in seconds.
const LEASE_SECONDS: f64 = 10.0;

impl SharedStore {
    pub(crate) fn save_progress(&self, found: ConversationUpdate, progress: IndexProgress) -> Result<()> {
        self.writable()?;
        let (holder, known) = (self.turn.holder, *self.turn.epoch.lock());
        let saved = self.database.transact(async move |mut client| {
            let transaction = client.transaction().await?;
            let sql = "SELECT holder, expires > clock_timestamp(), epoch FROM conversation_index FOR UPDATE";
            let row = transaction.query_one(sql, &[]).await?;
            let (other, is_valid, epoch): (Option<Uuid>, bool, i64) = (row.get(0), row.get(1), row.get(2));
            match known {
                // Still its own, even if it is late: nobody took over.
                Some(known) if other == Some(holder) && epoch == known => {}
                Some(_) => return Err(StoreError::Stale("all: another replica indexes now".into()).into()),
                None if is_valid && other != Some(holder) => {
                    return Err(StoreError::Shared("another replica indexes conversations".into()).into());
                }
                None => {}
            }
            writes::forget_sessions(&transaction, &progress.reassembled).await?;
            writes::save(&transaction, &found).await?;
            writes::mark_late(&transaction, &progress.late, &progress.in_order).await?;
            if let Some(position) = progress.position {
                let position = signed(position);
                transaction.execute("UPDATE conversation_index SET position = $1", &[&position]).await?;
            }
            Ok::<_, Failure>(transaction.commit().await?)
        });
        if matches!(saved, Err(StoreError::Stale(_))) {
            // Asked for again, with the new epoch.
            *self.turn.epoch.lock() = None;
        }
        saved
    }
}

impl SharedIndex for SharedStore {
    fn lead(&self) -> Result<Option<u64>> {
        self.writable()?;
        let holder = self.turn.holder;
        let epoch: Option<i64> = self.database.transact(async move |client| {
            let sql = "UPDATE conversation_index SET holder = $1, epoch = CASE WHEN holder = $1 THEN epoch ELSE epoch + 1 END, \
                 expires = clock_timestamp() + make_interval(secs => $2) \
                 WHERE holder = $1 OR expires < clock_timestamp() RETURNING epoch";
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query_opt(&statement, &[&holder, &LEASE_SECONDS]).await?.map(|row| row.get(0)))
        })?;
        *self.turn.epoch.lock() = epoch;
        Ok(epoch.map(i64::unsigned_abs))
    }

    fn resign(&self) -> Result<()> {
        let holder = self.turn.holder;
        *self.turn.epoch.lock() = None;
        self.database.transact(async move |client| {
            let sql = "UPDATE conversation_index SET holder = NULL, expires = '-infinity' WHERE holder = $1";
            client.execute(sql, &[&holder]).await?;
            Ok(())
        })
    }

    fn flush_recorded(&self) -> Result<()> {
        self.flush_to_database()
    }

    fn unindexed(&self, limit: usize) -> Result<UnindexedFlows> {
        let limit = limit as i64;
        self.database.transact(async move |mut client| {
            // One view of the flows: with the highest position go all flows below it.
            let transaction =
                client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await?;
            let newest: i64 =
                transaction.query_one("SELECT coalesce(max(position), 0) FROM flows", &[]).await?.get(0);
            // No other flow can contain a call.
            let sql = "SELECT id, position, started, coalesce(duration, 0) FROM flows WHERE position > \
                 (SELECT position FROM conversation_index) AND (kind = 1 OR request_size > 0) ORDER BY position LIMIT $1";
            let rows = transaction.query(sql, &[&limit]).await?;
            transaction.commit().await?;
            let flows: Vec<RecordedFlow> = rows
                .iter()
                .map(|row| RecordedFlow { id: flow_of(row.get(0)), ended: number(row, 2).saturating_add(number(row, 3)) })
                .collect();
            let is_last = (rows.len() as i64) < limit;
            let through = rows.last().filter(|_| !is_last).map_or(newest, |row| row.get(1));
            Ok(UnindexedFlows { flows, through: through.unsigned_abs(), is_last })
        })
    }

    fn save(&self, found: ConversationUpdate, progress: IndexProgress) -> Result<()> {
        self.save_progress(found, progress)
    }

    fn flows_of_session(&self, session: &str, limit: usize) -> Result<Vec<FlowId>> {
        let (session, limit) = (clean(session), limit as i64);
        self.database.transact(async move |client| {
            let sql = format!(
                "SELECT DISTINCT e.flow FROM conversations c JOIN conversation_exchanges e ON e.conversation = c.id \
                 WHERE {SESSION} LIMIT $2"
            );
            Ok(client.query(&sql, &[&session, &limit]).await?.iter().map(|row| flow_of(row.get(0))).collect())
        })
    }

    fn late_sessions(&self) -> Result<Vec<String>> {
        self.database.transact(async move |client| {
            let rows = client.query("SELECT session FROM late_sessions", &[]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn lag(&self) -> Result<IndexLag> {
        self.database.transact(async move |client| {
            let sql = "SELECT position, (SELECT coalesce(max(position), 0) FROM flows) FROM conversation_index";
            let row = client.query_one(sql, &[]).await?;
            Ok(IndexLag { indexed: number(&row, 0), newest: number(&row, 1) })
        })
    }
}
