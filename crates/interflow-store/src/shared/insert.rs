//! Moves flows into PostgreSQL: one transaction per batch, by binary COPY into temporary tables and from there, without
//! those that exist already. A batch may therefore be repeated after any failure.

use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Transaction};

use super::connect::PooledClient;
use super::database::Database;
use super::rows::{TYPES, WRITTEN, WrittenRow, uuid_of};
use crate::error::StoreError;
use crate::serde_repr;
use crate::store::SqliteStore;
use crate::store::chunk_refs::{self, CERTIFICATES, SIDES};
use crate::store::rows::StoredRow;

/// Bodies up to this length are part of their flow's row; lists read them along.
const MAX_INLINE: u64 = 4096;
/// Longer bodies are stored in pieces of about this length.
const PIECE: usize = 512 << 10;
/// Messages read at a time.
const MESSAGE_STEP: u64 = 500;
/// Pieces up to this length are not compressed.
const MIN_COMPRESSED: usize = 512;

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
    /// No connection.
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

/// How bodies are stored.
#[derive(Clone, Copy)]
pub(crate) struct InsertOptions<'a> {
    pub(crate) compress: bool,
    progress: &'a InsertProgress,
}

/// Stores flows of an embedded store; returns how many of them were new. There is no limit for the whole, which depends on
/// what there is to store, but one for the time without any progress.
pub(crate) async fn insert_flows(
    database: &Database,
    source: &SqliteStore,
    flows: &[StoredRow],
    compress: bool,
) -> Result<u64, InsertError> {
    let client = database.writer().await.map_err(InsertError::Unreachable)?;
    let (abandoned, token) = (client.abandoned(), client.cancel_token());
    let progress = InsertProgress::default();
    let bytes: u64 = flows.iter().flat_map(|flow| (0..SIDES).map(|side| SqliteStore::stored_len(flow, side))).sum();
    let limit = database.stall_limit + Duration::from_secs(bytes / MOVED_BYTES_PER_SECOND);
    let mut work = pin!(insert_on(client, database, source, flows, InsertOptions { compress, progress: &progress }));
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
    options: InsertOptions<'_>,
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
    options.progress.advance();
    copy_bodies(&transaction, source, flows, options).await?;
    options.progress.advance();
    copy_messages(&transaction, source, flows, options).await?;
    for (table, columns) in MOVED {
        options.progress.advance();
        let sql = format!("INSERT INTO {table}({columns}) SELECT {columns} FROM new_{table} ON CONFLICT DO NOTHING");
        transaction.execute(&sql, &[]).await?;
    }
    options.progress.advance();
    // Last, and one replica after the other, so that positions become visible in their order.
    transaction.batch_execute(&format!("{BEGIN_COMMIT}; SELECT pg_advisory_xact_lock({COMMIT_LOCK})")).await?;
    options.progress.advance();
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

/// Whether a body is part of its flow's row. Certificate chains never are: they are read rarely.
fn is_inline(flow: &StoredRow, side: usize) -> bool {
    side < CERTIFICATES && SqliteStore::stored_len(flow, side) <= MAX_INLINE
}

async fn copy_bodies(
    transaction: &Transaction<'_>,
    source: &SqliteStore,
    flows: &[StoredRow],
    options: InsertOptions<'_>,
) -> Result<(), InsertError> {
    let long = |flow: &StoredRow, side: usize| SqliteStore::stored_len(flow, side) > 0 && !is_inline(flow, side);
    if !flows.iter().any(|flow| (0..SIDES).any(|side| long(flow, side))) {
        return Ok(());
    }
    let sql = "COPY new_bodies(flow, side, at, size, coding, bytes, stored_size) FROM STDIN (FORMAT binary)";
    let types = [Type::UUID, Type::INT2, Type::INT8, Type::INT8, Type::INT2, Type::BYTEA, Type::INT8];
    let mut writer = pin!(BinaryCopyInWriter::new(transaction.copy_in(sql).await?, &types));
    let mut buffer: Vec<u8> = Vec::new();
    for flow in flows {
        for side in (0..SIDES).filter(|side| long(flow, *side)) {
            let failed = |e| InsertError::Flow(e);
            let mut body = source.stored_body(flow, side).map_err(failed)?;
            let mut at = 0i64;
            loop {
                // Chunks are collected into pieces: a row per chunk would cost more than it holds.
                let piece = body.next_piece().map_err(failed)?;
                let is_last = piece.is_none();
                buffer.extend_from_slice(&piece.unwrap_or_default());
                if buffer.len() >= PIECE || (is_last && !buffer.is_empty()) {
                    let size = buffer.len() as i64;
                    let (coding, stored) = encode_piece(&buffer, options.compress);
                    let bytes: &[u8] = stored.as_deref().unwrap_or(&buffer);
                    let stored_size = bytes.len() as i64;
                    let row: [&(dyn ToSql + Sync); 7] =
                        [&uuid_of(flow.row.id), &(side as i16), &at, &size, &coding, &bytes, &stored_size];
                    writer.as_mut().write(&row).await?;
                    options.progress.advance();
                    at += size;
                    buffer.clear();
                }
                if is_last {
                    break;
                }
            }
        }
    }
    writer.finish().await?;
    Ok(())
}

/// The coding of a piece, and its bytes if they are not stored as they are.
fn encode_piece(bytes: &[u8], compress: bool) -> (i16, Option<Vec<u8>>) {
    if !compress || bytes.len() <= MIN_COMPRESSED {
        return (0, None);
    }
    // A body that is compressed already gets no shorter.
    match zstd::bulk::compress(bytes, 1) {
        Ok(short) if short.len() < bytes.len() / 10 * 9 => (1, Some(short)),
        _ => (0, None),
    }
}

async fn copy_messages(
    transaction: &Transaction<'_>,
    source: &SqliteStore,
    flows: &[StoredRow],
    options: InsertOptions<'_>,
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
            options.progress.advance();
            first += MESSAGE_STEP;
        }
    }
    writer.finish().await?;
    Ok(())
}
