//! Keeps what a replica holds and what it knows of others equal to the database, over one connection.
//!
//! Each process has a row that it renews; the requests of one that does not are not shown any more. After a connection
//! is lost, everything is written and read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use interflow_store::shared_state::{CarryOutFn, RemoteDecision, RemotePending, RemotePendingItem};
use interflow_store::{Result, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_postgres::{Client, Error, Row, Transaction};
use uuid::Uuid;

use crate::database::connect::notification;
use crate::database::pool::{Database, STATEMENT_PATIENCE};

/// Announces changes, with a word of what changed. Schemas of one database share it, which costs them a look.
pub(crate) const CHANNEL: &str = "interflow_pending";
/// The requests of a process that has gone without a word are shown for this long, in seconds.
const LEASE_SECONDS: f64 = 10.0;
/// How often a process renews its row, and looks without an announcement.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(1);
/// Announcements within this span are followed by one look.
const GATHER_INTERVAL: Duration = Duration::from_millis(50);
/// Requests of other replicas that are shown: the oldest of all, up to a number and a size.
const MAX_OTHERS: i64 = 10_000;
const MAX_OTHERS_BYTES: i64 = 16 << 20;
/// Decisions claimed at a time.
const MAX_CLAIMED: i64 = 64;
/// Rows of processes and decisions that ended without a word are deleted.
const FORGOTTEN: &str = "1 minute";

/// The texts of a replica's requests, by id.
pub(crate) type ItemTexts = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// The rest of a replica's life with the database: see [`run`](Self::run).
pub(crate) struct PendingSync {
    pub(super) database: Database,
    pub(super) replica: String,
    pub(super) carry_out: CarryOutFn,
    pub(super) own: watch::Receiver<ItemTexts>,
    /// What of it is in the database.
    pub(super) written: ItemTexts,
    pub(super) others: watch::Sender<RemotePending>,
    /// What was read of others, with its revision.
    pub(super) read: BTreeMap<(Arc<str>, Arc<str>), (i64, RemotePendingItem)>,
    pub(super) outcomes: watch::Sender<u64>,
    pub(super) revision: i64,
}

/// What the announcements of one connection ask for.
#[derive(Default)]
struct Announced {
    items: Notify,
    decisions: Notify,
}

impl PendingSync {
    /// Follows changes on both sides until the task is ended.
    pub(crate) async fn run(mut self) {
        let mut is_warned = false;
        loop {
            let error = match self.connect().await {
                Ok((mut client, announced, mut driver)) => {
                    if is_warned {
                        tracing::info!("requests that wait for a decision are shared again");
                    }
                    is_warned = false;
                    self.others.send_modify(|others| {
                        others.version += 1;
                        others.is_connected = true;
                    });
                    let ended = self.follow(&mut client, &announced, &mut driver).await;
                    driver.abort();
                    ended
                }
                Err(e) => e,
            };
            match is_warned {
                false => {
                    tracing::warn!("requests that wait for a decision are seen at their own replica only: {error}")
                }
                true => tracing::debug!(%error, "requests that wait for a decision are not shared"),
            }
            is_warned = true;
            self.read.clear();
            self.others.send_if_modified(|others| {
                let was_connected = others.is_connected || !others.items.is_empty();
                if was_connected {
                    *others = RemotePending { version: others.version + 1, ..RemotePending::default() };
                }
                was_connected
            });
            sleep(RETRY).await;
        }
    }

    /// Connects, and makes what is there of this replica equal to what it holds.
    async fn connect(&mut self) -> Result<(Client, Arc<Announced>, JoinHandle<()>)> {
        let connecting = self.database.connector.connect();
        let (mut client, mut connection) = bounded(&self.database, async { Ok(connecting.await) }).await??;
        let announced = Arc::new(Announced::default());
        let (heard, outcomes, instance) =
            (Arc::clone(&announced), self.outcomes.clone(), Arc::clone(&self.database.replica));
        let driver = tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                let Some(payload) = notification(message) else { continue };
                match payload.split_once(' ') {
                    Some(("items", of)) if of != &*instance => heard.items.notify_one(),
                    Some(("decide", of)) if of == &*instance => heard.decisions.notify_one(),
                    Some(("outcome", _)) => outcomes.send_modify(|n| *n = n.wrapping_add(1)),
                    _ => {}
                }
            }
        });
        let database = self.database.clone();
        bounded(&database, async {
            client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
            let transaction = client.transaction().await?;
            self.register(&transaction).await?;
            transaction.commit().await
        })
        .await?;
        Ok((client, announced, driver))
    }

    async fn register(&mut self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let instance = &*self.database.replica;
        let sql = "INSERT INTO pending_holders(instance, replica, expires) \
                   VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3)) \
                   ON CONFLICT (instance) DO UPDATE SET replica = excluded.replica, expires = excluded.expires";
        transaction.execute(sql, &[&instance, &self.replica, &LEASE_SECONDS]).await?;
        // What is there from before stays with what was decided about it, unless it waits no more.
        let rows = transaction.query("SELECT id FROM pending_items WHERE instance = $1", &[&instance]).await?;
        self.written = Arc::new(rows.iter().map(|row| (row.get::<_, &str>(0).into(), "".into())).collect());
        self.write_own(transaction).await
    }

    /// Follows one connection until it ends; returns why.
    async fn follow(&mut self, client: &mut Client, announced: &Announced, driver: &mut JoinHandle<()>) -> StoreError {
        let mut renew = interval(RENEW_INTERVAL);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = Some(Instant::now());
        let ended = self.database.connector.failure("the connection ended");
        let database = self.database.clone();
        loop {
            let done = tokio::select! {
                _ = &mut *driver => return ended,
                changed = self.own.changed() => {
                    if changed.is_err() {
                        return StoreError::Closed;
                    }
                    bounded(&database, self.write_own(&*client)).await
                }
                () = announced.decisions.notified() => self.carry_out_decisions(client).await,
                () = announced.items.notified(), if look.is_none() => {
                    look = Some(Instant::now() + GATHER_INTERVAL);
                    Ok(())
                }
                () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => {
                    look = None;
                    bounded(&database, self.read_others(client)).await
                }
                _ = renew.tick() => {
                    look = Some(Instant::now());
                    match bounded(&database, renew_lease(client, &database.replica)).await {
                        Ok(true) => self.carry_out_decisions(client).await,
                        // Forgotten by others: as after a new connection.
                        Ok(false) => return ended,
                        Err(e) => Err(e),
                    }
                }
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Makes the rows of this replica equal to what it holds.
    async fn write_own(&mut self, client: &impl tokio_postgres::GenericClient) -> Result<(), Error> {
        let own_items = Arc::clone(&self.own.borrow_and_update());
        let instance = &*self.database.replica;
        let gone: Vec<&str> = self.written.keys().filter(|id| !own_items.contains_key(*id)).map(|id| &**id).collect();
        let (ids, texts): (Vec<&str>, Vec<&str>) = own_items
            .iter()
            .filter(|(id, text)| self.written.get(*id) != Some(text))
            .map(|(id, text)| (&**id, &**text))
            .unzip();
        if gone.is_empty() && ids.is_empty() {
            return Ok(());
        }
        if !gone.is_empty() {
            let sql = "DELETE FROM pending_items WHERE instance = $1 AND id = ANY($2)";
            client.execute(sql, &[&instance, &gone]).await?;
        }
        if !ids.is_empty() {
            self.revision += 1;
            let sql = "INSERT INTO pending_items(instance, id, revision, item) \
                       SELECT $1, t.id, $2, t.item FROM unnest($3::text[], $4::text[]) AS t(id, item) \
                       ON CONFLICT (instance, id) DO UPDATE SET revision = excluded.revision, item = excluded.item";
            client.execute(sql, &[&instance, &self.revision, &ids, &texts]).await?;
        }
        client.execute("SELECT pg_notify($1, 'items ' || $2)", &[&CHANNEL, &instance]).await?;
        self.written = own_items;
        Ok(())
    }

    /// Reads what other replicas hold, as far as it is not known yet.
    async fn read_others(&mut self, client: &Client) -> Result<(), Error> {
        let own = &*self.database.replica;
        let sql = "SELECT instance, id, revision FROM ( \
                     SELECT i.instance, i.id, i.revision, i.at, sum(octet_length(i.item)) OVER (ORDER BY i.at, i.instance, i.id) AS bytes \
                     FROM pending_items i JOIN pending_holders h USING (instance) \
                     WHERE i.instance <> $1 AND h.expires > clock_timestamp()) listed \
                   WHERE bytes <= $2 ORDER BY at, instance, id LIMIT $3";
        let listed = client.query(sql, &[&own, &MAX_OTHERS_BYTES, &MAX_OTHERS]).await?;
        let key = |row: &Row| (Arc::<str>::from(row.get::<_, &str>(0)), Arc::<str>::from(row.get::<_, &str>(1)));
        let listed: Vec<_> = listed.iter().map(|row| (key(row), row.get::<_, i64>(2))).collect();
        let is_known = |(key, revision): &&_| self.read.get(key).is_some_and(|(known, _)| known == revision);
        let missing: Vec<_> = listed.iter().filter(|entry| !is_known(entry)).collect();
        let is_changed = !missing.is_empty() || listed.len() != self.read.len();
        if !missing.is_empty() {
            let (instances, ids): (Vec<&str>, Vec<&str>) = missing.iter().map(|((i, id), _)| (&**i, &**id)).unzip();
            let sql = "SELECT i.instance, i.id, i.revision, h.replica, i.item FROM pending_items i \
                       JOIN pending_holders h USING (instance) \
                       JOIN unnest($1::text[], $2::text[]) AS t(instance, id) ON i.instance = t.instance AND i.id = t.id";
            for row in client.query(sql, &[&instances, &ids]).await? {
                let (instance, id) = key(&row);
                let (replica, item) = (row.get::<_, &str>(3).into(), row.get::<_, &str>(4).into());
                let item = RemotePendingItem { instance: Arc::clone(&instance), replica, id: Arc::clone(&id), item };
                self.read.insert((instance, id), (row.get(2), item));
            }
        }
        if !is_changed {
            return Ok(());
        }
        let listed: Vec<_> = listed.into_iter().map(|(key, _)| key).collect();
        // Of those that ended between the two queries there is nothing to show.
        self.read = listed.iter().filter_map(|key| self.read.remove_entry(key)).collect();
        let items = listed.iter().filter_map(|key| self.read.get(key)).map(|(_, item)| item.clone()).collect();
        self.others.send_modify(|others| {
            *others = RemotePending { version: others.version + 1, is_connected: true, items: Arc::new(items) };
        });
        Ok(())
    }

    /// Claims decisions about requests of this replica, carries them out, and says what came of it.
    async fn carry_out_decisions(&self, client: &Client) -> Result<()> {
        loop {
            let claimed = bounded(&self.database, claim(client, &self.database.replica)).await?;
            let is_last = (claimed.len() as i64) < MAX_CLAIMED;
            for (id, decision) in claimed {
                let carry_out = Arc::clone(&self.carry_out);
                let Ok(outcome) = tokio::task::spawn_blocking(move || carry_out(decision)).await else { continue };
                let sql = "WITH written AS (UPDATE pending_decisions SET outcome = $2 WHERE id = $1 RETURNING id) \
                           SELECT pg_notify($3, 'outcome ' || id) FROM written";
                bounded(&self.database, client.query(sql, &[&id, &outcome, &CHANNEL])).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

async fn claim(client: &Client, instance: &str) -> Result<Vec<(Uuid, RemoteDecision)>, Error> {
    let sql = "WITH claimed AS (UPDATE pending_decisions SET claimed = true WHERE id IN (SELECT id FROM pending_decisions \
                 WHERE instance = $1 AND NOT claimed AND expires > clock_timestamp() ORDER BY at LIMIT $2 FOR UPDATE) \
                 RETURNING id, item, decision, actor, at) \
               SELECT id, item, decision, actor FROM claimed ORDER BY at";
    let rows = client.query(sql, &[&instance, &MAX_CLAIMED]).await?;
    let decision = |row: &Row| RemoteDecision { item: row.get(1), decision: row.get(2), actor: row.get(3) };
    Ok(rows.iter().map(|row| (row.get(0), decision(row))).collect())
}

/// Renews the row of a process; false if it is not there any more.
async fn renew_lease(client: &Client, instance: &str) -> Result<bool, Error> {
    let sql = "UPDATE pending_holders SET expires = clock_timestamp() + make_interval(secs => $2) WHERE instance = $1";
    let renewed = client.execute(sql, &[&instance, &LEASE_SECONDS]).await?;
    for table in ["pending_holders", "pending_decisions"] {
        let sql = format!("DELETE FROM {table} WHERE expires < clock_timestamp() - interval '{FORGOTTEN}'");
        client.execute(&sql, &[]).await?;
    }
    Ok(renewed > 0)
}

/// Statements, for as long as a database that answers needs.
async fn bounded<T>(database: &Database, statements: impl Future<Output = Result<T, Error>>) -> Result<T> {
    match timeout(STATEMENT_PATIENCE, statements).await {
        Ok(done) => done.map_err(|e| database.connector.explain(&e)),
        Err(_) => Err(database.connector.failure(format_args!("no answer within {STATEMENT_PATIENCE:?}"))),
    }
}
