//! Moves flows into PostgreSQL: one transaction per batch, by binary COPY into temporary tables and from there, without
//! those that exist already. A batch may therefore be repeated after any failure.

use std::collections::HashSet;
use std::pin::pin;

use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Transaction};

use super::connect::PooledClient;
use super::database::Database;
use super::objects::UploadedBodies;
use super::pieces::{MAX_INLINE, Pieces, is_inline};
use super::rows::{TYPES, WRITTEN, WrittenRow, uuid_of};
use crate::error::StoreError;
use crate::serde_repr;
use crate::store::SqliteStore;
use crate::store::chunk_refs::{self, CERTIFICATES, SIDES};
use crate::store::rows::StoredRow;

/// Messages read at a time.
const MESSAGE_STEP: u64 = 500;

/// The number of the advisory lock under which rows become visible: see the column `position`.
const COMMIT_LOCK: i64 = 0x1f10_3707_0002;

/// Temporary tables of a connection, made once.
const TEMPORARY: &str = "
CREATE TEMPORARY TABLE IF NOT EXISTS new_bodies(LIKE bodies INCLUDING STORAGE) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS new_messages(LIKE messages) ON COMMIT DELETE ROWS;
";

/// Why a batch was not stored.
pub(crate) enum InsertError {
    /// A flow of the batch cannot be read where it is now.
    Flow(StoreError),
    Database(Error),
    /// No connection, or the bucket does not take bodies.
    Unreachable(StoreError),
}

impl From<Error> for InsertError {
    fn from(e: Error) -> Self {
        Self::Database(e)
    }
}

/// Where the bodies of a batch are.
pub(crate) enum BatchBodies<'a> {
    /// In the embedded store, from which they are copied into the database.
    Local(Pieces<'a>),
    Uploaded(UploadedBodies),
}

/// Stores flows of an embedded store; returns how many of them were new.
pub(crate) async fn insert_flows(
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
    bodies: BatchBodies<'_>,
) -> Result<u64, InsertError> {
    let mut client: PooledClient = database.client().await.map_err(InsertError::Unreachable)?;
    let made = client.query_one("SELECT to_regclass('pg_temp.new_flows') IS NOT NULL", &[]).await?;
    if !made.get::<_, bool>(0) {
        client
            .batch_execute(&format!(
                "CREATE TEMPORARY TABLE new_flows ON COMMIT DELETE ROWS AS SELECT {WRITTEN} FROM flows WITH NO DATA;\
                 {TEMPORARY}"
            ))
            .await?;
    }
    let transaction = client.transaction().await?;
    copy_flows(&transaction, database, source, flows).await?;
    let uploaded = match bodies {
        BatchBodies::Local(pieces) => {
            copy_pieces(&transaction, pieces).await?;
            None
        }
        BatchBodies::Uploaded(uploaded) => {
            let flows: HashSet<_> = flows.iter().map(|flow| uuid_of(flow.row.id)).collect();
            uploaded.copy_rows(&transaction, &flows).await?;
            Some(uploaded)
        }
    };
    copy_messages(&transaction, source, flows).await?;
    for table in ["bodies", "messages"] {
        let sql = format!("INSERT INTO {table} SELECT * FROM new_{table} ON CONFLICT DO NOTHING");
        let stored = transaction.execute(&sql, &[]).await?;
        if let Some(uploaded) = uploaded.as_ref().filter(|_| table == "bodies") {
            uploaded.count(&transaction, stored).await?;
        }
    }
    // Last, and one replica after the other, so that positions become visible in their order.
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&COMMIT_LOCK]).await?;
    let sql = format!(
        "INSERT INTO flows({WRITTEN}) SELECT {WRITTEN} FROM new_flows ON CONFLICT (id) DO NOTHING RETURNING position"
    );
    let new = transaction.query(&sql, &[]).await?;
    if let Some(last) = new.iter().map(|row| row.get::<_, i64>(0)).max() {
        notify(&transaction, database, &last.to_string()).await?;
    }
    transaction.commit().await?;
    Ok(new.len() as u64)
}

/// Tells the other replicas, once the transaction is committed.
pub(crate) async fn notify(transaction: &Transaction<'_>, database: &Database, what: &str) -> Result<(), Error> {
    let payload = format!("{} {what}", database.replica);
    transaction.execute("SELECT pg_notify($1, $2)", &[&database.channel(), &payload]).await.map(drop)
}

async fn copy_flows(
    transaction: &Transaction<'_>,
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
) -> Result<(), InsertError> {
    let sink = transaction.copy_in(&format!("COPY new_flows({WRITTEN}) FROM STDIN (FORMAT binary)")).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES));
    for flow in flows {
        let mut inline = [const { bytes::Bytes::new() }; SIDES];
        for (side, bytes) in inline.iter_mut().enumerate().take(CERTIFICATES) {
            if is_inline(flow, side) {
                let read = source.stored_body(flow, side).and_then(|body| body.read_all(MAX_INLINE as usize));
                *bytes = read.map_err(InsertError::Flow)?;
            }
        }
        let row = WrittenRow::new(&flow.row, inline.each_ref().map(|b| &b[..]), &database.replica);
        writer.as_mut().write(&row.values()).await?;
    }
    writer.finish().await?;
    Ok(())
}

async fn copy_pieces(transaction: &Transaction<'_>, pieces: Pieces<'_>) -> Result<(), InsertError> {
    if pieces.bytes() == 0 {
        return Ok(());
    }
    let sql = "COPY new_bodies(flow, side, at, size, coding, stored_size, bytes) FROM STDIN (FORMAT binary)";
    let types = [Type::UUID, Type::INT2, Type::INT8, Type::INT8, Type::INT2, Type::INT8, Type::BYTEA];
    let mut writer = pin!(BinaryCopyInWriter::new(transaction.copy_in(sql).await?, &types));
    for piece in pieces {
        let (row, bytes) = piece.map_err(InsertError::Flow)?;
        let [flow, side, at, size, coding, stored_size] = row.values();
        writer.as_mut().write(&[flow, side, at, size, coding, stored_size, &&bytes[..]]).await?;
    }
    writer.finish().await?;
    Ok(())
}

async fn copy_messages(
    transaction: &Transaction<'_>,
    source: &SqliteStore,
    flows: &[StoredRow],
) -> Result<(), InsertError> {
    if flows.iter().all(|flow| flow.row.messages == 0) {
        return Ok(());
    }
    let sql = "COPY new_messages(flow, index, direction, kind, at, size, payload) FROM STDIN (FORMAT binary)";
    let types = [Type::UUID, Type::INT8, Type::INT2, Type::INT2, Type::INT8, Type::INT8, Type::BYTEA];
    let mut writer = pin!(BinaryCopyInWriter::new(transaction.copy_in(sql).await?, &types));
    for flow in flows {
        let mut first = 0;
        while first < flow.row.messages {
            let block = source.stored_messages(flow, first..first + MESSAGE_STEP).map_err(InsertError::Flow)?;
            for m in block {
                let kind = serde_repr::message_kind::ALL.iter().position(|k| *k == m.kind).unwrap_or_default() as i16;
                let row: [&(dyn ToSql + Sync); 7] = [
                    &uuid_of(flow.row.id),
                    &(m.index as i64),
                    &(chunk_refs::body_index(m.direction) as i16),
                    &kind,
                    &(m.at.micros() as i64),
                    &(m.size as i64),
                    &&m.payload[..],
                ];
                writer.as_mut().write(&row).await?;
            }
            first += MESSAGE_STEP;
        }
    }
    writer.finish().await?;
    Ok(())
}
