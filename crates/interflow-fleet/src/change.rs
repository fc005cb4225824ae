//! Changes of flows that are in PostgreSQL: annotations and deletions.

use interflow_store::stored_form::details_blob;
use interflow_store::{FlowAnnotation, FlowRecord, Result};
use interflow_types::FlowId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};
use uuid::Uuid;

use crate::conversations::write::detach_flows;
use crate::database::connect::PooledClient;
use crate::database::pool::{Database, Failure};
use crate::database::rows::{self, READ, clean, uuid_of};
use crate::shipping::insert::notify;
use crate::shipping::objects::{self, COUNT_DOWN};

/// Changes tags and comment; `None` if there is no such flow.
pub(crate) fn annotate(database: &Database, id: FlowId, change: FlowAnnotation) -> Result<Option<FlowRecord>> {
    let shared = database.clone();
    database.transact(async move |client| annotate_stored(client, &shared, id, change).await)
}

async fn annotate_stored(
    mut client: PooledClient,
    database: &Database,
    id: FlowId,
    change: FlowAnnotation,
) -> Result<Option<FlowRecord>, Failure> {
    let transaction = client.transaction().await?;
    let sql = format!("SELECT {READ} FROM flows f WHERE f.id = $1 FOR UPDATE");
    let Some(found) = transaction.query_opt(&sql, &[&uuid_of(id)]).await? else { return Ok(None) };
    let mut stored = rows::read(&found)?;
    change.apply(&mut stored.row.tags, &mut stored.row.comment);
    let tags: Vec<String> = stored.row.tags.iter().map(|t| clean(t)).collect();
    let detail = details_blob::encode(&stored.row, stored.inline.each_ref().map(|b| &b[..]));
    let sql = "UPDATE flows SET tags = $2, detail = $3 WHERE id = $1";
    transaction.execute(sql, &[&uuid_of(id), &tags, &detail]).await?;
    notify(&transaction, database, &format!("={}", uuid_of(id))).await?;
    transaction.commit().await?;
    Ok(Some(stored.row))
}

/// Deletes these flows; returns how many there were.
pub(crate) fn delete(database: &Database, ids: &[FlowId]) -> Result<u64> {
    let ids: Vec<Uuid> = ids.iter().map(|id| uuid_of(*id)).collect();
    database.run(move |mut client| async move {
        let transaction = client.transaction().await?;
        let deleted = delete_where(&transaction, "flows", "id = ANY($1)", &[&ids]).await?;
        transaction.commit().await?;
        Ok(deleted)
    })
}

/// Deletes flows of a table together with their bodies, messages, and what conversations have of them; returns how many
/// there were.
pub(crate) async fn delete_where(
    transaction: &Transaction<'_>,
    table: &str,
    condition: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<u64, Error> {
    detach_flows(transaction, &format!("flow IN (SELECT id FROM {table} WHERE {condition})"), params).await?;
    objects::lock_counts(transaction).await?;
    let sql = format!(
        "WITH gone AS (DELETE FROM {table} WHERE {condition} RETURNING id), \
         gone_bodies AS (DELETE FROM bodies WHERE flow IN (SELECT id FROM gone) RETURNING object), \
         gone_messages AS (DELETE FROM messages WHERE flow IN (SELECT id FROM gone)), {COUNT_DOWN} \
         SELECT count(*) FROM gone"
    );
    Ok(transaction.query_one(&sql, params).await?.get::<_, i64>(0).unsigned_abs())
}
