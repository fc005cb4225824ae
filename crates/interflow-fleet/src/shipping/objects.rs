//! Bodies in object storage: one object holds the bodies of one batch of flows, one after the other.
//!
//! An object is announced in the table `objects` before it is uploaded, and counted there by the transaction that stores the
//! flows. So each object that was ever begun is known: those that no row refers to, and those whose upload was cut off,
//! are deleted without listing the bucket.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::poll_fn;
use interflow_store::{Result, SqliteStore, StoreError};
use interflow_types::{FlowId, Timestamp};
use tokio::sync::mpsc;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use crate::database::connect::Connector;
use crate::database::copy_format::CopyWriter;
use crate::database::pool::Database;
use crate::objects::{ObjectError, ObjectStorage};
use crate::shipping::insert_error::InsertError;
use crate::shipping::pieces::{PieceRow, Pieces};
use crate::shipping::spooled_flow::SpooledFlow;

/// Pieces that wait for the upload, each of up to some hundred KiB.
const QUEUED_PIECES: usize = 4;
/// The time limit of an upload: this, and a second for so many bytes.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
const UPLOAD_BYTES_PER_SECOND: u64 = 256 << 10;
/// No upload takes longer. Objects that were announced twice that long ago will not be finished any more.
const MAX_UPLOAD: Duration = Duration::from_secs(12 * 3600);
/// Objects deleted at a time.
const DELETE_STEP: i64 = 1000;
/// How long the start waits for the storage; after that, flows wait for it.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How long a deletion of flows waits for that of their objects, which is made up for later.
const DELETE_PATIENCE: Duration = Duration::from_secs(10);
/// The number of the advisory lock of transactions that count down objects: one after the other, so that they do not wait
/// for one another.
const COUNT_LOCK: i64 = 0x1f10_3707_0004;

/// Counts down the objects of deleted bodies; to stand in a WITH behind `gone_bodies`, which returns the column `object`.
pub(crate) const COUNT_DOWN: &str = "counted AS (UPDATE objects o SET pieces = o.pieces - g.n \
     FROM (SELECT object, count(*) AS n FROM gone_bodies WHERE object IS NOT NULL GROUP BY object) g WHERE o.name = g.object)";

/// Taken by a transaction before it counts down objects.
pub(crate) async fn lock_counts(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&COUNT_LOCK]).await.map(drop)
}

fn failed(error: &ObjectError) -> StoreError {
    StoreError::Shared(format!("record.objects: {error}"))
}

/// Makes sure that bodies are where this process looks for them; a process that writes makes its own place that of all as
/// long as there are no objects.
pub(crate) async fn check_place(connector: &Connector, storage: Option<&ObjectStorage>, writes: bool) -> Result<()> {
    let explain = |e: tokio_postgres::Error| connector.explain(&e);
    let mut client = connector.client().await?;
    let transaction = client.transaction().await.map_err(explain)?;
    lock_counts(&transaction).await.map_err(explain)?;
    let sql = "SELECT url FROM object_place WHERE EXISTS (SELECT 1 FROM objects)";
    let there: Option<String> = transaction.query_opt(sql, &[]).await.map_err(explain)?.map(|row| row.get(0));
    let here = storage.map(|storage| storage.url().to_string());
    match (there, here) {
        (None, Some(here)) if writes => {
            let sql = "INSERT INTO object_place(url) VALUES ($1) ON CONFLICT (one) DO UPDATE SET url = excluded.url";
            transaction.execute(sql, &[&here]).await.map_err(explain)?;
            transaction.commit().await.map_err(explain)
        }
        (None, _) => Ok(()),
        (Some(there), None) => {
            Err(connector.failure(format_args!("its bodies are in {there}: set record.objects = \"{there}\"")))
        }
        (Some(there), Some(here)) if there != here => Err(StoreError::Shared(format!(
            "record.objects is {here}, but the bodies of the shared store {} are in {there}: set it to that, for all replicas. To \
             move them, stop all replicas, copy the objects, and then: UPDATE \"{}\".object_place SET url = '{here}'",
            connector.url, connector.url.schema
        ))),
        (Some(_), Some(_)) => Ok(()),
    }
}

/// Tries the storage at a start.
///
/// # Errors
/// It refuses, with the remedy. A storage that does not answer is waited for, as flows have a place until then.
pub(crate) async fn try_out(storage: &ObjectStorage) -> Result<()> {
    match tokio::time::timeout(START_PATIENCE, storage.check()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) if e.is_transient() => {
            tracing::warn!("record.objects: {e}; flows are kept on this machine's disk until it answers");
            Ok(())
        }
        Ok(Err(e)) => Err(failed(&e)),
        Err(_) => {
            tracing::warn!(
                "record.objects: {} does not answer; flows are kept on this machine's disk until it does",
                storage.url()
            );
            Ok(())
        }
    }
}

/// The bodies of a batch, in the bucket but not in the database yet.
pub(crate) struct UploadedBodies {
    name: String,
    bytes: i64,
    pieces: Vec<(PieceRow, i64)>,
}

/// Uploads the bodies of a batch as one object, if there is a bucket and any for it. Only some pieces are in memory at a
/// time.
pub(crate) async fn upload(
    database: &Database,
    source: &SqliteStore,
    flows: &[SpooledFlow],
    compress: bool,
) -> Result<Option<UploadedBodies>, InsertError> {
    let Some(storage) = database.objects.as_deref() else { return Ok(None) };
    let mut pieces = Pieces::new(source, flows, compress).map_err(InsertError::Unreachable)?;
    let most = pieces.bytes();
    if most == 0 {
        return Ok(None);
    }
    let mut uploaded = UploadedBodies { name: new_name(database), bytes: 0, pieces: Vec::new() };
    announce(database, storage, &uploaded.name).await?;
    let (sender, mut receiver) = mpsc::channel::<std::io::Result<Bytes>>(QUEUED_PIECES);
    let name = uploaded.name.clone();
    let stream = poll_fn(move |cx| receiver.poll_recv(cx));
    let send = async {
        for piece in &mut pieces {
            match piece {
                Ok((row, bytes)) => {
                    uploaded.pieces.push((row, uploaded.bytes));
                    uploaded.bytes += row.stored_size;
                    if sender.send(Ok(bytes)).await.is_err() {
                        // The upload has ended, and says why.
                        break;
                    }
                }
                Err(error) => {
                    let _ = sender.send(Err(std::io::Error::other("a body cannot be read"))).await;
                    return Err(InsertError::Flow(error));
                }
            }
        }
        // The end of the object.
        drop(sender);
        Ok(())
    };
    let limit = UPLOAD_TIMEOUT + Duration::from_secs(most / UPLOAD_BYTES_PER_SECOND);
    let both = async { tokio::join!(send, storage.put_stream(&name, stream, most)) };
    let Ok((sent, stored)) = tokio::time::timeout(limit.min(MAX_UPLOAD), both).await else {
        let what = format!("record.objects: {} did not take an object in time", storage.url());
        return Err(InsertError::Unreachable(StoreError::Shared(what)));
    };
    sent?;
    stored.map_err(|e| InsertError::Unreachable(failed(&e)))?;
    Ok(Some(uploaded))
}

/// `bodies/YEAR/MONTH/DAY/REPLICA-ID`, used once: an upload that was given up may still arrive.
fn new_name(database: &Database) -> String {
    let now = Timestamp::now();
    let day = jiff::Timestamp::from_microsecond(now.micros() as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let day = day.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y/%m/%d");
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let replica: String = database.replica.chars().map(plain).collect();
    format!("bodies/{day}/{replica}-{}", FlowId::new(now))
}

async fn announce(database: &Database, storage: &ObjectStorage, name: &str) -> Result<(), InsertError> {
    let client = database.client().await.map_err(InsertError::Unreachable)?;
    // Only where the others expect it.
    let sql = "INSERT INTO objects(name) SELECT $1 WHERE (SELECT url FROM object_place) = $2";
    match client.execute(sql, &[&name, &storage.url().to_string()]).await? {
        0 => {
            let what = "record.objects: another replica was started with another value; give all the same, and restart this one";
            Err(InsertError::Unreachable(StoreError::Shared(what.into())))
        }
        _ => Ok(()),
    }
}

impl UploadedBodies {
    /// Copies the rows of pieces of these flows into a table; returns their number.
    pub(crate) async fn copy_rows(
        &self,
        transaction: &Transaction<'_>,
        into: &str,
        flows: &HashSet<Uuid>,
    ) -> Result<u64, InsertError> {
        let into = format!("{into}({}, object, object_offset)", PieceRow::COLUMNS);
        let mut writer = CopyWriter::begin(transaction, &into).await?;
        for (row, offset) in self.pieces.iter().filter(|(row, _)| flows.contains(&row.flow)) {
            writer.rows.row(PieceRow::COUNT + 2);
            row.write(&mut writer.rows);
            writer.rows.text(&self.name);
            writer.rows.int8(*offset);
            writer.send_piece().await?;
        }
        Ok(writer.finish().await?)
    }

    /// Counts the rows that were stored; none if all were there already.
    pub(crate) async fn count(&self, transaction: &Transaction<'_>, rows: u64) -> Result<(), InsertError> {
        let sql = "UPDATE objects SET pieces = $2, bytes = $3 WHERE name = $1 AND pieces IS NULL";
        match transaction.execute(sql, &[&self.name, &(rows as i64), &self.bytes]).await? {
            1 => Ok(()),
            _ => Err(InsertError::Unreachable(StoreError::Shared(format!(
                "the object {} was deleted before its flows were stored; they are sent again",
                self.name
            )))),
        }
    }
}

/// Reads the stored bytes of a piece; `None` if the object does not exist.
pub(crate) fn read(database: &Database, object: String, offset: i64, size: i64) -> Result<Option<Bytes>> {
    let Some(storage) = database.objects.clone() else {
        return Err(StoreError::Shared("the body is in object storage: set record.objects".into()));
    };
    let range = offset.unsigned_abs()..offset.unsigned_abs().saturating_add(size.unsigned_abs());
    database.wait_for(async move {
        match storage.get_range(&object, range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    })
}

/// Bytes of the objects that are in use.
pub(crate) async fn taken_bytes(client: &Client) -> Result<u64, tokio_postgres::Error> {
    let sql = "SELECT coalesce(sum(bytes), 0)::bigint FROM objects WHERE pieces > 0";
    Ok(client.query_one(sql, &[]).await?.get::<_, i64>(0).unsigned_abs())
}

/// Gives up objects whose upload was cut off.
pub(crate) async fn give_up_unfinished(client: &Client) -> Result<(), tokio_postgres::Error> {
    let sql = "UPDATE objects SET pieces = 0 WHERE pieces IS NULL AND made < now() - $1 * interval '1 second'";
    let given_up = client.execute(sql, &[&(2.0 * MAX_UPLOAD.as_secs_f64())]).await?;
    if given_up > 0 {
        tracing::info!("{given_up} objects whose upload was cut off are deleted");
    }
    Ok(())
}

/// Deletes the objects that no row refers to, for at most `limit`. What is left is deleted by the next attempt, and deleting
/// twice does no harm.
pub(crate) async fn delete_unneeded(database: &Database, limit: Duration) -> Result<()> {
    let Some(storage) = database.objects.clone() else { return Ok(()) };
    let explain = |e: tokio_postgres::Error| database.connector.explain(&e);
    let delete = async {
        loop {
            let client = database.client().await?;
            let sql = "SELECT name FROM objects WHERE pieces = 0 ORDER BY made LIMIT $1";
            let rows = client.query(sql, &[&DELETE_STEP]).await.map_err(explain)?;
            drop(client);
            let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            if names.is_empty() {
                return Ok(());
            }
            storage.delete_all(names.clone()).await.map_err(|e| failed(&e))?;
            let client = database.client().await?;
            client.execute("DELETE FROM objects WHERE name = ANY($1)", &[&names]).await.map_err(explain)?;
        }
    };
    let late = || StoreError::Shared(format!("record.objects: {} did not delete all objects in time", storage.url()));
    tokio::time::timeout(limit, delete).await.unwrap_or_else(|_| Err(late()))
}

/// Deletes the objects of flows that were just deleted.
pub(crate) fn delete_now(database: &Database) {
    if database.objects.is_none() {
        return;
    }
    let shared = database.clone();
    if let Err(error) = database.wait_for(async move { delete_unneeded(&shared, DELETE_PATIENCE).await }) {
        tracing::warn!(%error, "objects of deleted flows are deleted later");
    }
}
