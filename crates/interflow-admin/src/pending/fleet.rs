//! What waits for a decision at all replicas that share a recording: this one shows its own to the others, and carries
//! out what people decide about it there.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use interflow_approvals::Approvals;
use interflow_files::EditTurn;
use interflow_rules::ActiveRules;
use interflow_store::shared_state::{
    CarryOutFn, MAX_PENDING_ITEM_BYTES, RemoteDecision, RemoteOutcome, RemotePending, RemotePendingItem, SharedPending,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::item::{PendingId, PendingItem};
use super::queue::{DecidedItem, PendingAction, PendingQueue, not_found};
use crate::error::{ApiError, RemoteError, Result};

/// Changes within this span are shown to others together.
const GATHER_INTERVAL: Duration = Duration::from_millis(50);
/// While something waits: its body may arrive without a change of the queue.
const BODY_POLL: Duration = Duration::from_secs(1);
/// Bodies beyond this are not shown at other replicas, from the oldest request on.
const MAX_SHARED_BODIES: usize = 4 << 20;

/// The requests of all replicas. Ends when dropped.
pub struct FleetPending {
    shared: Arc<dyn SharedPending>,
    replica: String,
    task: AbortHandle,
}

impl Drop for FleetPending {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the replica that holds a request says about a decision.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Decided(DecidedItem),
    Refused(RemoteError),
}

impl FleetPending {
    /// Begins to share what waits here, under the name of this replica. `share` begins it in the store.
    pub fn start(
        share: impl FnOnce(&str, CarryOutFn) -> Arc<dyn SharedPending>,
        replica: String,
        approvals: Arc<Approvals>,
        rules: Arc<ActiveRules>,
    ) -> Arc<Self> {
        let queue = PendingQueue::new(Some(approvals), Some(rules));
        let decided = queue.clone();
        let carry_out = move |decision: RemoteDecision| {
            let reply = carry_out(&decided, &decision).map_or_else(|e| Reply::Refused(e.into()), Reply::Decided);
            serde_json::to_string(&reply).expect("a reply is plain data")
        };
        let shared = share(&replica, Arc::new(carry_out));
        let task = tokio::spawn(publish(queue, Arc::clone(&shared))).abort_handle();
        Arc::new(Self { shared, replica, task })
    }

    /// Names this process in the ids of what it holds.
    pub(crate) fn place(&self) -> &str {
        place_of(self.shared.instance())
    }

    pub(crate) fn version(&self) -> u64 {
        self.shared.others().version
    }

    pub(crate) async fn changed_since(&self, version: u64) {
        self.shared.changed_since(version).await;
    }

    /// Names this replica in its own requests, and adds those of the others.
    pub(crate) fn add_others(&self, items: &mut Vec<PendingItem>) {
        for item in items.iter_mut() {
            (item.id, item.replica) = (with_place(&item.id, self.place()), Some(self.replica.clone()));
        }
        items.extend(self.shared.others().items.iter().filter_map(read_item));
        items.sort_by_key(|item| item.since);
    }

    /// Has the replica that holds a request carry out a decision; returns what it said, and its name.
    ///
    /// # Errors
    /// As for [`PendingQueue::decide`]; the replica or the shared store does not answer.
    pub(crate) async fn decide(&self, id: &PendingId, said: &Value, actor: &str) -> Result<DecidedItem> {
        let id_text = id.to_string();
        let item = find(&self.shared.others(), id)?;
        let actor = format!("{actor} at {}", self.replica);
        let replica = &item.replica;
        match self.shared.decide(&item, said.to_string(), actor).await? {
            RemoteOutcome::Gone => Err(not_found(&id_text)),
            RemoteOutcome::Unanswered => {
                let text =
                    format!("the replica {replica}, which holds {id_text}, does not answer: nothing was decided");
                Err(ApiError::unavailable("replica_silent", text))
            }
            RemoteOutcome::Unknown => {
                let text = format!("the replica {replica} did not say what came of the decision about {id_text}");
                Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", text))
            }
            RemoteOutcome::Decided(reply) => match serde_json::from_str(&reply) {
                Ok(Reply::Decided(done)) => Ok(DecidedItem { id: id_text, ..done }),
                Ok(Reply::Refused(error)) => Err(error.into()),
                Err(e) => Err(ApiError::internal(format!("the reply of the replica {replica} cannot be read: {e}"))),
            },
        }
    }
}

/// Shows what waits here to the others, whenever it changes.
async fn publish(queue: PendingQueue, shared: Arc<dyn SharedPending>) {
    loop {
        // Read before the list: a change in between is shown twice rather than never.
        let versions = queue.versions();
        let items = shared_items(queue.items(&shared.header_masker()));
        let is_empty = items.is_empty();
        shared.publish(items);
        let changed = queue.changed_since(versions);
        match is_empty {
            true => changed.await,
            false => drop(timeout(BODY_POLL, changed).await),
        }
        sleep(GATHER_INTERVAL).await;
    }
}

/// The ids and texts of items, within the limits.
fn shared_items(items: Vec<PendingItem>) -> Vec<(String, String)> {
    let text = |item: &PendingItem| serde_json::to_string(item).expect("an item is plain data");
    let mut bodies = 0;
    items
        .into_iter()
        .map(|mut item| {
            bodies += item.body.as_ref().map_or(0, String::len);
            if bodies > MAX_SHARED_BODIES {
                item.body = None;
            }
            let mut json = text(&item);
            // Control characters take six bytes each.
            if json.len() > MAX_PENDING_ITEM_BYTES && item.body.take().is_some() {
                json = text(&item);
            }
            (item.id, json)
        })
        .collect()
}

/// Carries out what somebody decided at another replica, who had the right to.
fn carry_out(queue: &PendingQueue, decision: &RemoteDecision) -> Result<DecidedItem> {
    let id: PendingId = decision.item.parse().map_err(|()| not_found(&decision.item))?;
    let input = serde_json::from_str(&decision.decision).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let done = queue.decide(&EditTurn::unlimited(), &id, PendingAction::parse(id.kind, input)?)?;
    tracing::info!(id = done.id, actor = decision.actor, "decided at another replica");
    Ok(done)
}

fn read_item(remote: &RemotePendingItem) -> Option<PendingItem> {
    match serde_json::from_str::<PendingItem>(&remote.item) {
        Ok(item) => Some(PendingItem {
            id: with_place(&remote.id, place_of(&remote.instance)),
            replica: Some(remote.replica.to_string()),
            ..item
        }),
        // A replica of another version may hold what this one does not know.
        Err(error) => {
            tracing::debug!(%error, replica = &*remote.replica, "a request of another replica cannot be shown");
            None
        }
    }
}

/// The item of another replica with this id.
fn find(others: &RemotePending, id: &PendingId) -> Result<RemotePendingItem> {
    let local = PendingId::local(id.kind, id.number).to_string();
    let is_named =
        |item: &&RemotePendingItem| *item.id == *local && id.place.as_deref() == Some(place_of(&item.instance));
    let mut named = others.items.iter().filter(is_named);
    match (named.next(), named.next()) {
        (Some(item), None) => Ok(item.clone()),
        (None, _) if !others.is_connected => {
            let text = format!("{id} is held by another replica, and the shared store does not answer");
            Err(ApiError::unavailable("shared_store", text))
        }
        // Two processes with one name in their ids: neither is guessed.
        _ => Err(not_found(&id.to_string())),
    }
}

/// What distinguishes a process from all others: the last part of its name, which is random.
fn place_of(instance: &str) -> &str {
    instance.rsplit('-').next().unwrap_or(instance)
}

fn with_place(id: &str, place: &str) -> String {
    id.parse::<PendingId>()
        .map_or_else(|()| id.to_owned(), |id| PendingId { place: Some(place.to_owned()), ..id }.to_string())
}
