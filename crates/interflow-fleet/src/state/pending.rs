//! Requests that wait for a decision, of all replicas: each shows its own in the database, and carries out what people
//! decide about them at others. The texts of requests and decisions are opaque here.
//!
//! Nothing that waits for a decision waits for the database: what a replica holds is handed over in memory, and a task
//! keeps the database equal to it (`pending_sync.rs`). While the database does not answer, each replica has its own
//! requests only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_store::shared_state::{
    CarryOutFn, MAX_PENDING_ITEM_BYTES, RemoteOutcome, RemotePending, RemotePendingItem, SharedPending,
};
use interflow_store::{HeaderMasker, Result, StoreError};
use interflow_tasks::AbortOnDrop;
use tokio::sync::{Semaphore, watch};
use tokio_postgres::Error;
use uuid::Uuid;

use interflow_types::BoxFuture;

use crate::database::connect::PooledClient;
use crate::database::pool::{Database, STATEMENT_PATIENCE};
use crate::database::rows::clean;
use crate::state::pending_sync::{CHANNEL, ItemTexts, PendingSync};
use crate::store::SharedStore;

/// What a replica shares: the oldest requests of all.
const MAX_OWN_ITEMS: usize = 2000;
const MAX_OWN_BYTES: usize = 8 << 20;
/// How long a person waits for the replica that holds the request, and again for what it says once it acts.
const DECISION_PATIENCE: Duration = Duration::from_secs(5);
/// How often the outcome of a decision is looked for without an announcement.
const OUTCOME_POLL: Duration = Duration::from_millis(500);
/// Decisions about requests of other replicas that may be under way.
const MAX_DECISIONS: usize = 64;

/// The requests of all replicas. Ends when dropped.
pub struct PostgresPending {
    database: Database,
    own: watch::Sender<ItemTexts>,
    others: watch::Receiver<RemotePending>,
    /// Changes when any decision has an outcome.
    outcomes: watch::Receiver<u64>,
    places: Semaphore,
    _sync: AbortOnDrop<()>,
}

impl SharedStore {
    /// Begins to share requests that wait for a decision, under the name of this replica.
    pub fn share_pending(&self, replica: &str, carry_out: CarryOutFn) -> PostgresPending {
        let (own, published) = watch::channel(ItemTexts::default());
        let (found, others) = watch::channel(RemotePending::default());
        let (outcome, outcomes) = watch::channel(0);
        let sync = PendingSync {
            database: self.database.clone(),
            replica: clean(replica),
            carry_out,
            own: published,
            written: ItemTexts::default(),
            others: found,
            read: BTreeMap::new(),
            outcomes: outcome,
            revision: 0,
        };
        let _sync = self.database.spawn_abortable(sync.run());
        let places = Semaphore::new(MAX_DECISIONS);
        PostgresPending { database: self.database.clone(), own, others, outcomes, places, _sync }
    }
}

impl SharedPending for PostgresPending {
    fn instance(&self) -> &str {
        &self.database.replica
    }

    fn header_masker(&self) -> HeaderMasker {
        HeaderMasker::new(&self.database.config.load())
    }

    fn publish(&self, items: Vec<(String, String)>) {
        let (mut texts, mut bytes) = (BTreeMap::new(), 0);
        for (id, text) in items.into_iter().filter(|(_, text)| text.len() <= MAX_PENDING_ITEM_BYTES) {
            bytes += text.len();
            if texts.len() >= MAX_OWN_ITEMS || bytes > MAX_OWN_BYTES {
                tracing::debug!("requests beyond the limits are decided at this replica only");
                break;
            }
            texts.insert(Arc::from(id), Arc::from(text));
        }
        self.own.send_if_modified(|own| {
            let is_new = **own != texts;
            if is_new {
                *own = Arc::new(texts);
            }
            is_new
        });
    }

    fn others(&self) -> RemotePending {
        self.others.borrow().clone()
    }

    fn changed_since(&self, version: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.others.clone().wait_for(|others| others.version != version).await.is_err() {
                // The task has ended: nothing changes any more.
                std::future::pending::<()>().await;
            }
        })
    }

    fn decide<'a>(
        &'a self,
        item: &'a RemotePendingItem,
        decision: String,
        actor: String,
    ) -> BoxFuture<'a, Result<RemoteOutcome>> {
        Box::pin(async move {
            let Ok(_place) = self.places.try_acquire() else {
                return Err(StoreError::Shared(format!(
                    "{MAX_DECISIONS} decisions about requests of other replicas are under way already; try again"
                )));
            };
            let (database, item, outcomes) = (self.database.clone(), item.clone(), self.outcomes.clone());
            let deciding = self.database.run_async(async move {
                let client = database.client().await?;
                decide(&client, outcomes, &item, decision, actor).await.map_err(|e| database.connector.explain(&e))
            });
            // Connecting may take longer than a person waits.
            match tokio::time::timeout(2 * DECISION_PATIENCE + STATEMENT_PATIENCE, deciding).await {
                Ok(decided) => decided,
                Err(_) => {
                    Err(StoreError::Shared("the shared store does not answer; look whether it is decided".into()))
                }
            }
        })
    }
}

async fn decide(
    client: &PooledClient,
    mut outcomes: watch::Receiver<u64>,
    item: &RemotePendingItem,
    decision: String,
    actor: String,
) -> Result<RemoteOutcome, Error> {
    let id = Uuid::from_u128(fastrand::u128(..));
    let deadline = Instant::now() + DECISION_PATIENCE;
    let patience = DECISION_PATIENCE.as_secs_f64();
    let sql = "WITH given AS (INSERT INTO pending_decisions(id, instance, item, decision, actor, expires) \
               SELECT $1, i.instance, i.id, $4, $5, clock_timestamp() + make_interval(secs => $6) \
               FROM pending_items i JOIN pending_holders h USING (instance) \
               WHERE i.instance = $2 AND i.id = $3 AND h.expires > clock_timestamp() RETURNING instance) \
               SELECT pg_notify($7, 'decide ' || instance) FROM given";
    let decided =
        client.query(sql, &[&id, &&*item.instance, &&*item.id, &decision, &actor, &patience, &CHANNEL]).await?;
    if decided.is_empty() {
        return Ok(RemoteOutcome::Gone);
    }
    if let Some(outcome) = outcome_before(client, &mut outcomes, id, deadline).await? {
        return Ok(RemoteOutcome::Decided(outcome));
    }
    // Taken back, unless the holder has claimed it: then it acts on it, and says so in a moment.
    let sql = "DELETE FROM pending_decisions WHERE id = $1 AND NOT claimed";
    if client.execute(sql, &[&id]).await? > 0 {
        return Ok(RemoteOutcome::Unanswered);
    }
    let outcome = outcome_before(client, &mut outcomes, id, deadline + DECISION_PATIENCE).await?;
    Ok(outcome.map_or(RemoteOutcome::Unknown, RemoteOutcome::Decided))
}

/// The outcome of a decision, if there is one by then.
async fn outcome_before(
    client: &PooledClient,
    outcomes: &mut watch::Receiver<u64>,
    id: Uuid,
    deadline: Instant,
) -> Result<Option<String>, Error> {
    let sql = "DELETE FROM pending_decisions WHERE id = $1 AND outcome IS NOT NULL RETURNING outcome";
    loop {
        if let Some(row) = client.query_opt(sql, &[&id]).await? {
            return Ok(row.get(0));
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(None);
        }
        // An announcement is only sooner than the next look.
        let wait = remaining.min(OUTCOME_POLL);
        if let Ok(Err(_)) = tokio::time::timeout(wait, outcomes.changed()).await {
            tokio::time::sleep(wait).await;
        }
    }
}
