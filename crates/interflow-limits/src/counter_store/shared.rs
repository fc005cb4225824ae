//! The shared counter store with a fallback for when it is unreachable.
//!
//! A request is settled where it was admitted, even if the shared store has returned in the meantime; otherwise one
//! side would keep an estimate for ever, and the other would be corrected by an amount that it never took.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::Serialize;

use super::{
    CounterFuture, CounterRequest, CounterStore, CounterStoreError, CounterValue, MemoryCounterStore, Spent, TakeResult,
};
use crate::config::SharedFailureMode;

pub struct SharedCounterStore {
    shared: Box<dyn CounterStore>,
    local: MemoryCounterStore,
    failure: SharedFailureMode,
    /// Requests in flight that were not taken from the shared store, and settle by the failure mode instead.
    elsewhere: Mutex<HashSet<String>>,
    down: AtomicBool,
    errors: AtomicU64,
    fallbacks: AtomicU64,
}

/// Health of the shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SharedStoreStatus {
    /// Whether the last command succeeded.
    pub reachable: bool,
    /// Number of failed commands.
    pub errors: u64,
    /// Requests admitted, or counted in this process, in its place.
    pub fallbacks: u64,
}

impl SharedCounterStore {
    /// `local` is the store used when the failure mode is `local`. It starts empty with each process, so limits are
    /// looser while Redis is down.
    pub fn new(shared: Box<dyn CounterStore>, local: MemoryCounterStore, failure: SharedFailureMode) -> Self {
        Self {
            shared,
            local,
            failure,
            elsewhere: Mutex::default(),
            down: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
        }
    }

    pub fn status(&self) -> SharedStoreStatus {
        SharedStoreStatus {
            reachable: !self.down.load(Relaxed),
            errors: self.errors.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
        }
    }

    fn record_result<T>(&self, answer: Result<T, CounterStoreError>) -> Result<T, CounterStoreError> {
        match &answer {
            // The transitions are logged, not each failure.
            Ok(_) if self.down.swap(false, Relaxed) => tracing::info!("limits: the shared counts are reachable again"),
            Ok(_) => {}
            Err(e) => {
                self.errors.fetch_add(1, Relaxed);
                if !self.down.swap(true, Relaxed) {
                    let then = match self.failure {
                        SharedFailureMode::Closed => "requests are refused",
                        SharedFailureMode::Open => "requests pass UNCOUNTED",
                        SharedFailureMode::Local => "requests are counted in this process alone",
                    };
                    tracing::error!("limits: {e}; until it is back, {then}");
                }
            }
        }
        answer
    }
}

impl CounterStore for SharedCounterStore {
    fn take<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str) -> CounterFuture<'a, TakeResult> {
        Box::pin(async move {
            let error = match self.record_result(self.shared.take(asks, lease).await) {
                Ok(answer) => return Ok(answer),
                Err(e) => e,
            };
            if self.failure == SharedFailureMode::Closed {
                return Err(error);
            }
            self.fallbacks.fetch_add(1, Relaxed);
            if self.failure == SharedFailureMode::Local
                && let Err(refusal) = self.local.take(asks, lease).await?
            {
                return Ok(Err(refusal));
            }
            self.elsewhere.lock().insert(lease.to_owned());
            Ok(Ok(()))
        })
    }

    fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()> {
        Box::pin(async move {
            let is_elsewhere = self.elsewhere.lock().remove(lease);
            match self.failure {
                _ if !is_elsewhere => self.record_result(self.shared.commit(asks, lease, spent).await),
                SharedFailureMode::Local => self.local.commit(asks, lease, spent).await,
                SharedFailureMode::Open | SharedFailureMode::Closed => Ok(()),
            }
        })
    }

    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
        Box::pin(async move { self.record_result(self.shared.read(asks).await) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counter_store::CounterLimit;

    const ONE: Spent<'_> = Spent { used: &[1], age: Duration::ZERO };

    /// A store that is always unreachable.
    struct Gone;

    impl CounterStore for Gone {
        fn take<'a>(&'a self, _: &'a [CounterRequest], _: &'a str) -> CounterFuture<'a, TakeResult> {
            Box::pin(std::future::ready(Err(CounterStoreError("gone".into()))))
        }

        fn commit<'a>(&'a self, _: &'a [CounterRequest], _: &'a str, _: Spent<'a>) -> CounterFuture<'a, ()> {
            panic!("what the server does not know is not settled there")
        }

        fn read<'a>(&'a self, _: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
            Box::pin(std::future::ready(Err(CounterStoreError("gone".into()))))
        }
    }

    fn ledger(failure: SharedFailureMode) -> SharedCounterStore {
        SharedCounterStore::new(Box::new(Gone), MemoryCounterStore::new(Duration::from_secs(60)), failure)
    }

    fn slot() -> [CounterRequest; 1] {
        [CounterRequest {
            rule: "r".into(),
            who: "w".into(),
            counter: CounterLimit::Slots { max: 1 },
            cost: 1,
            least: 1,
        }]
    }

    #[tokio::test]
    async fn failure_mode_applies_when_the_redis_server_is_unreachable() {
        let closed = ledger(SharedFailureMode::Closed);
        assert!(closed.take(&slot(), "a").await.is_err());
        let open = ledger(SharedFailureMode::Open);
        for lease in ["a", "b", "c"] {
            assert_eq!(open.take(&slot(), lease).await, Ok(Ok(())));
        }
        open.commit(&slot(), "a", ONE).await.unwrap();
        assert_eq!(open.status(), SharedStoreStatus { reachable: false, errors: 3, fallbacks: 3 });
        let local = ledger(SharedFailureMode::Local);
        assert_eq!(local.take(&slot(), "a").await, Ok(Ok(())));
        assert!(local.take(&slot(), "b").await.unwrap().is_err());
        local.commit(&slot(), "a", ONE).await.unwrap();
        assert_eq!(local.take(&slot(), "b").await, Ok(Ok(())));
    }
}
