//! The live tail of other replicas: a notification says that there is something new, and the rows are read by their
//! position. Nothing is missed while the connection is down: reading goes on where it stopped.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use interflow_store::{Result, SqliteStore};
use tokio::sync::mpsc;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::database::connect::notification;
use crate::database::pool::Database;
use crate::database::rows::{self, READ};
use crate::reading::running::{self, CHANGED, IS_UNFINISHED};

/// Flows read per notification; more than these at once are reported as a gap.
const MAX_FLOWS: i64 = 1000;
/// Notifications that may wait to be handled. More are left out: new flows are found by the next one, and changes of others
/// are reported as a gap.
const WAITING: usize = 256;
const RETRY: Duration = Duration::from_secs(1);

/// Hands flows of other replicas to the subscribers of the spool, until that is dropped.
pub(crate) fn start(database: &Database, spool: &Arc<SqliteStore>) {
    let (database, spool) = (database.clone(), Arc::downgrade(spool));
    database.clone().spawn(async move {
        let mut position = None;
        while spool.strong_count() > 0 {
            if let Err(error) = listen(&database, &spool, &mut position).await {
                tracing::debug!(%error, "flows of other replicas are not seen live for now");
            }
            tokio::time::sleep(RETRY).await;
        }
    });
}

/// Follows the notifications of one connection until it ends.
async fn listen(database: &Database, spool: &Weak<SqliteStore>, position: &mut Option<i64>) -> Result<()> {
    let explain = |e: tokio_postgres::Error| database.connector.explain(&e);
    let (client, mut connection) = database.connector.connect().await?;
    let (sender, mut notifications) = mpsc::channel(WAITING);
    let is_incomplete = Arc::new(AtomicBool::new(false));
    let incomplete = Arc::clone(&is_incomplete);
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            let Some(payload) = notification(message) else { continue };
            match sender.try_send(payload) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => incomplete.store(true, SeqCst),
                Err(mpsc::error::TrySendError::Closed(_)) => break,
            }
        }
    });
    client.batch_execute(&format!("LISTEN \"{}\"", database.channel())).await.map_err(explain)?;
    if position.is_none() {
        let newest = client.query_one("SELECT coalesce(max(position), 0) FROM flows", &[]).await.map_err(explain)?;
        *position = Some(newest.get(0));
    } else {
        publish_new(database, spool, &client, position).await.map_err(explain)?;
        publish_running(database, spool, &client, None).await.map_err(explain)?;
    }
    while let Some(payload) = notifications.recv().await {
        if is_incomplete.swap(false, SeqCst)
            && let Some(spool) = spool.upgrade()
        {
            spool.publish(None);
        }
        let Some((replica, what)) = payload.split_once(' ') else { continue };
        if replica == &*database.replica {
            continue;
        }
        if let Some(revision) = what.strip_prefix(CHANGED) {
            match (revision.parse(), spool.upgrade()) {
                (Ok(revision), _) => {
                    let of = Some((replica, revision));
                    publish_running(database, spool, &client, of).await.map_err(explain)?;
                }
                // Rows of a silent replica are gone, and nothing replaces them.
                (Err(_), Some(spool)) => spool.publish(None),
                (Err(_), None) => {}
            }
            continue;
        }
        match what.strip_prefix('=') {
            Some(id) => publish_one(spool, &client, id).await.map_err(explain)?,
            None if has_subscribers(spool) => publish_new(database, spool, &client, position).await.map_err(explain)?,
            // Nobody looks: whoever begins to, begins with what comes then.
            None => *position = what.parse().ok().max(*position),
        }
    }
    Ok(())
}

fn has_subscribers(spool: &Weak<SqliteStore>) -> bool {
    spool.upgrade().is_some_and(|spool| spool.has_subscribers())
}

/// Publishes what other replicas stored since the last call.
async fn publish_new(
    database: &Database,
    spool: &Weak<SqliteStore>,
    client: &Client,
    position: &mut Option<i64>,
) -> Result<(), tokio_postgres::Error> {
    let after = position.unwrap_or(0);
    let sql = format!(
        "SELECT {READ} FROM flows f WHERE f.position > $1 AND f.replica <> $2 ORDER BY f.position LIMIT {MAX_FLOWS}"
    );
    let rows = client.query(&sql, &[&after, &&*database.replica]).await?;
    let read: Vec<_> = rows.iter().filter_map(|row| rows::read(row).ok()).collect();
    *position = read.iter().map(|r| r.position).max().max(*position);
    let Some(spool) = spool.upgrade() else { return Ok(()) };
    let flows: Vec<_> = read.into_iter().map(|r| r.row).collect();
    spool.publish(Some(&flows));
    if rows.len() as i64 == MAX_FLOWS {
        let newest = client.query_one("SELECT coalesce(max(position), 0) FROM flows", &[]).await?;
        *position = Some(newest.get(0));
        spool.publish(None);
    }
    Ok(())
}

/// Publishes a flow whose annotations changed.
async fn publish_one(spool: &Weak<SqliteStore>, client: &Client, id: &str) -> Result<(), tokio_postgres::Error> {
    let Ok(id) = id.parse::<Uuid>() else { return Ok(()) };
    let Some(spool) = spool.upgrade().filter(|s| s.has_subscribers()) else { return Ok(()) };
    let flow_row = client.query_opt(&format!("SELECT {READ} FROM flows f WHERE f.id = $1"), &[&id]).await?;
    if let Some(stored) = flow_row.and_then(|row| rows::read(&row).ok()) {
        spool.publish(Some(&[stored.row]));
    }
    Ok(())
}

/// Publishes flows in progress: those that a revision of a replica wrote, or those of all others.
async fn publish_running(
    database: &Database,
    spool: &Weak<SqliteStore>,
    client: &Client,
    of: Option<(&str, i64)>,
) -> Result<(), tokio_postgres::Error> {
    let Some(spool) = spool.upgrade().filter(|s| s.has_subscribers()) else { return Ok(()) };
    let rows = match of {
        // What a later revision wrote again, that one's notification publishes.
        Some((replica, revision)) => {
            let sql = format!(
                "SELECT {READ} FROM running_flows f WHERE f.replica = $1 AND f.position = $2 AND {IS_UNFINISHED}"
            );
            client.query(&sql, &[&replica, &revision]).await?
        }
        None => {
            let sql =
                format!("SELECT {READ} FROM running_flows f WHERE {} LIMIT {MAX_FLOWS}", running::condition("$1"));
            client.query(&sql, &[&&*database.replica]).await?
        }
    };
    let flows: Vec<_> =
        rows.iter().filter_map(|row| rows::read(row).ok()).map(|read| running::without_bodies(read).row).collect();
    spool.publish(Some(&flows));
    Ok(())
}
