//! Moves flows into PostgreSQL: one transaction per batch, by binary COPY. A batch may be repeated after any failure: what
//! may be there already is copied into temporary tables, and from there without what exists. A first attempt does without
//! them, as far as it can.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use interflow_store::stored_form::chunk_refs::{self, SIDES};
use interflow_store::{SqliteStore, StoreError};
use interflow_types::{MessageKind, Timestamp};
use tokio_postgres::{Error, Transaction};

use crate::database::connect::PooledClient;
use crate::database::copy_format::CopyWriter;
use crate::database::pool::Database;
use crate::shipping::insert_error::InsertError;
use crate::shipping::objects::UploadedBodies;
use crate::shipping::pieces::{PieceRow, Pieces};
use crate::shipping::spooled_flow::{MAX_INLINE, SpooledFlow, WRITTEN};

/// Messages read at a time.
const MESSAGE_STEP: u64 = 500;

/// The number of the advisory lock under which rows become visible: see the column `position`.
pub(crate) const COMMIT_LOCK: i64 = 0x1f10_3707_0002;

/// Taken together, in one message to the server. All replicas wait for whoever holds the lock: one that is frozen then loses
/// its transaction soon.
pub(crate) const BEGIN_COMMIT: &str = "SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// The columns of [`TEMPORARY`], as they are moved to the tables.
const MOVED: [(&str, &str); 2] = [
    ("bodies", "flow, side, at, size, coding, bytes, object, object_offset, stored_size"),
    ("messages", "flow, index, direction, kind, at, size, payload"),
];

/// The statements that move what was copied say nothing until they are done: as much longer for each byte.
const MOVED_BYTES_PER_SECOND: u64 = 1 << 20;

/// The temporary table of a connection for rows of flows, made once. What does not fit beside the others of its page is not
/// set aside in it.
const NEW_FLOWS: &str = "CREATE TEMPORARY TABLE new_flows WITH (toast_tuple_target = 8160) ON COMMIT DELETE ROWS \
    AS SELECT {columns} FROM flows WITH NO DATA";

/// Those of attempts that are repeated.
const TEMPORARY: &str = "
CREATE TEMPORARY TABLE IF NOT EXISTS new_bodies(LIKE bodies INCLUDING STORAGE) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS new_messages(LIKE messages) ON COMMIT DELETE ROWS;
";

/// Whether flows of a batch may be in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// None should be; one that is fails the attempt with a unique violation.
    First,
    /// Those that are there are left as they are.
    Repeated,
}

impl Attempt {
    /// The table into which rows are copied. Those of flows are copied into a temporary one in any case: they become visible
    /// under a lock, which must not wait for a client that sends them.
    fn target(self, table: &str) -> String {
        match self {
            Self::First => table.into(),
            Self::Repeated => format!("new_{table}"),
        }
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
    Local(Box<Pieces<'a>>),
    Uploaded(&'a UploadedBodies),
}

impl<'a> BatchBodies<'a> {
    /// The object that was uploaded for the batch, or else its bodies in the embedded store.
    ///
    /// # Errors
    /// The embedded store cannot be read.
    pub(crate) fn new(
        uploaded: Option<&'a UploadedBodies>,
        source: &SqliteStore,
        flows: &'a [SpooledFlow],
        compress: bool,
    ) -> Result<Self, StoreError> {
        match uploaded {
            Some(uploaded) => Ok(Self::Uploaded(uploaded)),
            None => Pieces::new(source, flows, compress).map(|pieces| Self::Local(Box::new(pieces))),
        }
    }
}

/// Stores flows of an embedded store; returns how many of them were new. There is no limit for the whole, which depends on
/// what there is to store, but one for the time without any progress.
pub(crate) async fn insert_flows(
    database: &Database,
    source: &SqliteStore,
    flows: &[SpooledFlow],
    bodies: BatchBodies<'_>,
    attempt: Attempt,
) -> Result<u64, InsertError> {
    let client = database.writer().await.map_err(InsertError::Unreachable)?;
    let (abandoned, token) = (client.abandoned(), client.cancel_token());
    let progress = InsertProgress::default();
    let bytes: u64 = flows.iter().map(SpooledFlow::body_bytes).sum();
    let limit = database.stall_limit + Duration::from_secs(bytes / MOVED_BYTES_PER_SECOND);
    let mut work = pin!(insert_on(client, database, source, flows, bodies, attempt, &progress));
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
    flows: &[SpooledFlow],
    bodies: BatchBodies<'_>,
    attempt: Attempt,
    progress: &InsertProgress,
) -> Result<u64, InsertError> {
    make_temporary(&client, "new_flows", NEW_FLOWS).await?;
    if attempt == Attempt::Repeated {
        make_temporary(&client, "new_bodies", TEMPORARY).await?;
    }
    let transaction = client.transaction().await?;
    let batch = BatchCopy { transaction: &transaction, database, source, flows, progress };
    batch.copy_flows().await?;
    progress.advance();
    let target = attempt.target("bodies");
    let uploaded = match bodies {
        BatchBodies::Local(pieces) => {
            batch.copy_pieces(&target, *pieces).await?;
            None
        }
        BatchBodies::Uploaded(uploaded) => {
            let flows: HashSet<_> = flows.iter().map(SpooledFlow::uuid).collect();
            let copied = uploaded.copy_rows(&transaction, &target, &flows).await?;
            Some((uploaded, copied))
        }
    };
    progress.advance();
    batch.copy_messages(&attempt.target("messages")).await?;
    let mut moved = [0; MOVED.len()];
    if attempt == Attempt::Repeated {
        for (moved, (table, columns)) in moved.iter_mut().zip(MOVED) {
            progress.advance();
            let sql =
                format!("INSERT INTO {table}({columns}) SELECT {columns} FROM new_{table} ON CONFLICT DO NOTHING");
            *moved = transaction.execute(&sql, &[]).await?;
        }
    }
    if let Some((uploaded, copied)) = uploaded {
        uploaded.count(&transaction, if attempt == Attempt::First { copied } else { moved[0] }).await?;
    }
    progress.advance();
    // Last, and one replica after the other, so that positions become visible in their order.
    transaction.batch_execute(&format!("{BEGIN_COMMIT}; SELECT pg_advisory_xact_lock({COMMIT_LOCK})")).await?;
    progress.advance();
    let present = if attempt == Attempt::First { "" } else { "ON CONFLICT (id) DO NOTHING" };
    let sql = format!(
        "WITH new AS (INSERT INTO flows({WRITTEN}) SELECT {WRITTEN} FROM new_flows {present} \
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

pub(crate) async fn make_temporary(client: &PooledClient, table: &str, sql: &str) -> Result<(), Error> {
    let made = client.query_one("SELECT to_regclass('pg_temp.' || $1::text) IS NOT NULL", &[&table]).await?;
    if !made.get::<_, bool>(0) {
        client.batch_execute(&sql.replace("{columns}", WRITTEN)).await?;
    }
    Ok(())
}

/// What a transaction copies, and where it comes from.
struct BatchCopy<'a> {
    transaction: &'a Transaction<'a>,
    database: &'a Database,
    source: &'a SqliteStore,
    flows: &'a [SpooledFlow],
    progress: &'a InsertProgress,
}

impl BatchCopy<'_> {
    async fn copy_flows(&self) -> Result<(), InsertError> {
        let Self { transaction, database, source, flows, progress } = *self;
        let sides = || flows.iter().flat_map(|flow| (0..SIDES).map(move |side| (flow, side)));
        let collected = sides().filter(|(flow, side)| flow.is_collected(*side));
        let mut chunks = source
            .batch_chunks(collected.flat_map(|(flow, side)| &flow.refs[side]))
            .map_err(InsertError::Unreachable)?;
        let mut writer = CopyWriter::begin(transaction, &format!("new_flows({WRITTEN})")).await?;
        let now = Timestamp::now().micros() as i64;
        for flow in flows {
            let mut bodies = [const { None }; SIDES];
            for (side, body) in bodies.iter_mut().enumerate().filter(|(side, _)| flow.is_collected(*side)) {
                let mut bytes = Vec::with_capacity(MAX_INLINE as usize);
                for chunk in &flow.refs[side] {
                    bytes.extend_from_slice(&chunks.read(*chunk).map_err(InsertError::Flow)?);
                }
                bytes.extend_from_slice(flow.end(side));
                *body = Some(bytes.into());
            }
            flow.write(&mut writer.rows, &bodies, &database.replica, now).map_err(InsertError::Flow)?;
            if writer.send_piece().await? {
                progress.advance();
            }
        }
        writer.finish().await?;
        Ok(())
    }

    async fn copy_pieces(&self, into: &str, pieces: Pieces<'_>) -> Result<(), InsertError> {
        if pieces.bytes() == 0 {
            return Ok(());
        }
        let mut writer = CopyWriter::begin(self.transaction, &format!("{into}({}, bytes)", PieceRow::COLUMNS)).await?;
        for piece in pieces {
            let (row, bytes) = piece.map_err(InsertError::Flow)?;
            writer.rows.row(PieceRow::COUNT + 1);
            row.write(&mut writer.rows);
            writer.rows.bytes(&bytes);
            if writer.send_piece().await? {
                self.progress.advance();
            }
        }
        writer.finish().await?;
        Ok(())
    }

    async fn copy_messages(&self, into: &str) -> Result<(), InsertError> {
        let Self { transaction, source, flows, progress, .. } = *self;
        if flows.iter().all(|flow| flow.messages == 0) {
            return Ok(());
        }
        let mut writer =
            CopyWriter::begin(transaction, &format!("{into}(flow, index, direction, kind, at, size, payload)")).await?;
        for flow in flows {
            let mut first = 0;
            while first < flow.messages {
                let block = source.stored_messages(flow.seq, first..first + MESSAGE_STEP).map_err(InsertError::Flow)?;
                for m in block {
                    let kind = MessageKind::ALL.iter().position(|k| *k == m.kind).unwrap_or_default();
                    let rows = &mut writer.rows;
                    rows.row(7);
                    rows.uuid(flow.uuid());
                    rows.int8(m.index as i64);
                    rows.int2(chunk_refs::body_index(m.direction) as i16);
                    rows.int2(kind as i16);
                    rows.int8(m.at.micros() as i64);
                    rows.int8(m.size as i64);
                    rows.bytes(&m.payload);
                    writer.send_piece().await?;
                }
                progress.advance();
                first += MESSAGE_STEP;
            }
        }
        writer.finish().await?;
        Ok(())
    }
}
