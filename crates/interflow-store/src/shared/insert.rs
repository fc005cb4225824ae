//! Moves flows into PostgreSQL: one transaction per batch, by binary COPY into temporary tables and from there, without
//! those that exist already. A batch may therefore be repeated after any failure.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

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
pub(super) const COMMIT_LOCK: i64 = 0x1f10_3707_0002;

/// Taken together, in one message to the server. All replicas wait for whoever holds the lock: one that is frozen then loses
/// its transaction soon.
pub(super) const BEGIN_COMMIT: &str = "SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// The columns of [`TEMPORARY`], as they are moved to the tables.
const MOVED: [(&str, &str); 2] = [
    ("bodies", "flow, side, at, size, coding, bytes, object, object_offset, stored_size"),
    ("messages", "flow, index, direction, kind, at, size, payload"),
];

/// The statements that move what was copied say nothing until they are done: as much longer for each byte.
const MOVED_BYTES_PER_SECOND: u64 = 1 << 20;

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
    /// Nothing happened for too long.
    Stalled,
}

impl From<Error> for InsertError {
    fn from(e: Error) -> Self {
        Self::Database(e)
    }
}

/// What was done so far, for whoever waits for it.
#[derive(Default)]
pub(crate) struct InsertProgress(AtomicU64);

impl InsertProgress {
    /// Notes that something was done.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Where the bodies of a batch are.
pub(crate) enum BatchBodies<'a> {
    /// In the embedded store, from which they are copied into the database.
    Local(Pieces<'a>),
    Uploaded(UploadedBodies),
}

/// Stores flows of an embedded store; returns how many of them were new. There is no limit for the whole, which depends on
/// what there is to store, but one for the time without any progress.
pub(crate) async fn insert_flows(
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
    bodies: BatchBodies<'_>,
) -> Result<u64, InsertError> {
    let client = database.writer().await.map_err(InsertError::Unreachable)?;
    let (abandoned, token) = (client.abandoned(), client.cancel_token());
    let progress = InsertProgress::default();
    let bytes: u64 = flows.iter().flat_map(|flow| (0..SIDES).map(|side| SqliteStore::stored_len(flow, side))).sum();
    let limit = database.stall_limit + Duration::from_secs(bytes / MOVED_BYTES_PER_SECOND);
    let mut work = pin!(insert_on(client, database, source, flows, bodies, &progress));
    loop {
        let before = progress.0.load(Relaxed);
        match tokio::time::timeout(limit, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) if progress.0.load(Relaxed) != before => {}
            Err(_) => {
                // A connection on which a statement runs must not be used by others.
                abandoned.store(true, SeqCst);
                database.connector.cancel(token);
                return Err(InsertError::Stalled);
            }
        }
    }
}

async fn insert_on(
    mut client: PooledClient,
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
    bodies: BatchBodies<'_>,
    progress: &InsertProgress,
) -> Result<u64, InsertError> {
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
    progress.advance();
    let uploaded = match bodies {
        BatchBodies::Local(pieces) => {
            copy_pieces(&transaction, pieces, progress).await?;
            None
        }
        BatchBodies::Uploaded(uploaded) => {
            let flows: HashSet<_> = flows.iter().map(|flow| uuid_of(flow.row.id)).collect();
            uploaded.copy_rows(&transaction, &flows).await?;
            Some(uploaded)
        }
    };
    progress.advance();
    copy_messages(&transaction, source, flows, progress).await?;
    for (table, columns) in MOVED {
        progress.advance();
        let sql = format!("INSERT INTO {table}({columns}) SELECT {columns} FROM new_{table} ON CONFLICT DO NOTHING");
        let stored = transaction.execute(&sql, &[]).await?;
        if let Some(uploaded) = uploaded.as_ref().filter(|_| table == "bodies") {
            uploaded.count(&transaction, stored).await?;
        }
    }
    progress.advance();
    // Last, and one replica after the other, so that positions become visible in their order.
    transaction.batch_execute(&format!("{BEGIN_COMMIT}; SELECT pg_advisory_xact_lock({COMMIT_LOCK})")).await?;
    progress.advance();
    let sql = format!(
        "WITH new AS (INSERT INTO flows({WRITTEN}) SELECT {WRITTEN} FROM new_flows ON CONFLICT (id) DO NOTHING \
         RETURNING position) SELECT count(*), max(position) FROM new"
    );
    let new = transaction.query_one(&sql, &[]).await?;
    if let Some(last) = new.get::<_, Option<i64>>(1) {
        notify(&transaction, database, &last.to_string()).await?;
    }
    transaction.commit().await?;
    Ok(new.get::<_, i64>(0).unsigned_abs())
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

async fn copy_pieces(
    transaction: &Transaction<'_>,
    pieces: Pieces<'_>,
    progress: &InsertProgress,
) -> Result<(), InsertError> {
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
        progress.advance();
    }
    writer.finish().await?;
    Ok(())
}

async fn copy_messages(
    transaction: &Transaction<'_>,
    source: &SqliteStore,
    flows: &[StoredRow],
    progress: &InsertProgress,
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
            progress.advance();
            first += MESSAGE_STEP;
        }
    }
    writer.finish().await?;
    Ok(())
}
