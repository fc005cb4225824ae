//! Requests that wait for a decision, shared by replicas over one database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_fleet::{PostgresPending, SharedStore};
use interflow_store::RecordConfig;
use interflow_store::shared_state::{
    CarryOutFn, MAX_PENDING_ITEM_BYTES, RemoteOutcome, RemotePendingItem, SharedPending,
};
use interflow_testkit::{PostgresDatabase, PostgresServer};
use parking_lot::Mutex;

use crate::fixture::access;

const PATIENCE: Duration = Duration::from_secs(60);

/// A replica with what it was asked to carry out.
struct Replica {
    pending: Option<PostgresPending>,
    decisions: Arc<Mutex<Vec<(String, String, String)>>>,
    _store: SharedStore,
    _dir: tempfile::TempDir,
}

impl Replica {
    /// Carries out decisions after this time.
    fn new(name: &str, database: &PostgresDatabase, delay: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = database.url().parse().unwrap();
        let store = SharedStore::open(&url, access(None), dir.path(), &RecordConfig::default()).unwrap();
        let decisions: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = Arc::clone(&decisions);
        let carry_out: CarryOutFn = Arc::new(move |decision| {
            std::thread::sleep(delay);
            let reply = format!("{} did {}", decision.item, decision.decision);
            noted.lock().push((decision.item, decision.decision, decision.actor));
            reply
        });
        let pending = Some(store.share_pending(name, carry_out));
        Self { pending, decisions, _store: store, _dir: dir }
    }

    fn pending(&self) -> &PostgresPending {
        self.pending.as_ref().unwrap()
    }

    fn publish(&self, items: &[(&str, &str)]) {
        let texts = items.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned()));
        self.pending().publish(texts.collect());
    }

    /// What others hold, once it is this: ids and texts.
    async fn others(&self, expected: &[(&str, &str)]) -> Vec<RemotePendingItem> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let others = self.pending().others();
                let seen: Vec<_> = others.items.iter().map(|item| (&*item.id, &*item.item)).collect();
                if seen == expected {
                    return others.items.to_vec();
                }
                self.pending().changed_since(others.version).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{:?} instead of {expected:?}", self.pending().others().items))
    }

    async fn decide(&self, item: &RemotePendingItem, decision: &str) -> RemoteOutcome {
        self.pending().decide(item, decision.to_owned(), "ann".to_owned()).await.unwrap()
    }
}

fn database() -> Option<PostgresDatabase> {
    Some(PostgresServer::shared()?.database())
}

fn count(database: &PostgresDatabase, table: &str) -> String {
    database.sql(&format!("SELECT count(*) FROM interflow.{table}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_what_a_replica_holds_and_decide_about_it() {
    let Some(database) = database() else { return };
    let [a, b] = ["a", "b"].map(|name| Replica::new(name, &database, Duration::ZERO));
    a.publish(&[("rule-1", "one")]);
    b.others(&[("rule-1", "one")]).await;
    // A change of one, and another one.
    a.publish(&[("rule-1", "one, changed"), ("rule-2", "two")]);
    let items = b.others(&[("rule-1", "one, changed"), ("rule-2", "two")]).await;
    assert_eq!((&*items[0].replica, &*items[0].instance), ("a", a.pending().instance()));
    a.others(&[]).await;
    assert_eq!(b.decide(&items[1], "allow").await, RemoteOutcome::Decided("rule-2 did allow".to_owned()));
    assert_eq!(*a.decisions.lock(), [("rule-2".to_owned(), "allow".to_owned(), "ann".to_owned())]);
    assert_eq!(count(&database, "pending_decisions"), "0");
    a.publish(&[("rule-1", "one, changed")]);
    b.others(&[("rule-1", "one, changed")]).await;
    assert_eq!(b.decide(&items[1], "allow").await, RemoteOutcome::Gone);
    // A text that nobody could read is not shared.
    let long = "x".repeat(MAX_PENDING_ITEM_BYTES + 1);
    a.publish(&[("rule-3", &long), ("rule-4", &long[2..])]);
    b.others(&[("rule-4", &long[2..])]).await;
    a.publish(&[]);
    b.others(&[]).await;
    assert_eq!(count(&database, "pending_items"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_made_while_the_holder_connects_again_is_carried_out() {
    let Some(database) = database() else { return };
    let [a, b] = ["a", "b"].map(|name| Replica::new(name, &database, Duration::ZERO));
    a.publish(&[("rule-1", "one"), ("rule-2", "two")]);
    b.others(&[("rule-1", "one"), ("rule-2", "two")]).await;
    // Both at once: the holder hears of the decision only when it is connected again.
    database.sql(
        "INSERT INTO interflow.pending_decisions(id, instance, item, decision, actor, expires) \
         SELECT gen_random_uuid(), instance, id, 'allow', 'ann', now() + interval '90 s' \
         FROM interflow.pending_items WHERE id = 'rule-1'; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    a.publish(&[("rule-1", "one")]);
    tokio::time::timeout(PATIENCE, async {
        while a.decisions.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("it is carried out");
    b.others(&[("rule-1", "one")]).await;
    assert_eq!(count(&database, "pending_items"), "1", "what waits no more is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_was_not_taken_on_in_time_is_taken_back() {
    let Some(database) = database() else { return };
    let [mut a, b] = ["a", "b"].map(|name| Replica::new(name, &database, Duration::ZERO));
    a.publish(&[("rule-1", "one")]);
    let items = b.others(&[("rule-1", "one")]).await;
    // As after a crash: it has not said that it ends.
    a.pending = None;
    let began = Instant::now();
    assert_eq!(b.decide(&items[0], "allow").await, RemoteOutcome::Unanswered);
    assert!(began.elapsed() >= Duration::from_secs(5), "it waits for an answer: {:?}", began.elapsed());
    assert_eq!(count(&database, "pending_decisions"), "0", "nobody can carry it out any more");
    b.others(&[]).await;
    assert_eq!(b.decide(&items[0], "allow").await, RemoteOutcome::Gone);
    assert!(a.decisions.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_was_taken_on_and_has_no_outcome_is_unknown() {
    let Some(database) = database() else { return };
    let (a, b) = (Replica::new("a", &database, Duration::from_secs(13)), Replica::new("b", &database, Duration::ZERO));
    a.publish(&[("rule-1", "one")]);
    let items = b.others(&[("rule-1", "one")]).await;
    assert_eq!(b.decide(&items[0], "allow").await, RemoteOutcome::Unknown);
    tokio::time::timeout(PATIENCE, async {
        while a.decisions.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("it is carried out all the same");
}
