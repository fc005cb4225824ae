//! The ledger that is shared, and what happens while it cannot be reached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use interflow_flow::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;

use super::{Ask, Ledger, LedgerError, Level, MemoryLedger, Refusal};
use crate::config::Failure;

/// A shared ledger with a plan for its failure.
pub struct SharedLedger {
    shared: Box<dyn Ledger>,
    local: MemoryLedger,
    failure: Failure,
    /// Requests under way that the shared ledger knows nothing of.
    elsewhere: Mutex<HashMap<String, Elsewhere>>,
    down: AtomicBool,
    errors: AtomicU64,
    fallbacks: AtomicU64,
}

#[derive(Clone, Copy)]
enum Elsewhere {
    Local,
    Uncounted,
}

/// How the shared ledger is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SharedState {
    /// Whether the last question was answered.
    pub reachable: bool,
    /// Questions without an answer.
    pub errors: u64,
    /// Requests that were let pass, or counted in this process, in its place.
    pub fallbacks: u64,
}

impl SharedLedger {
    /// This ledger, with `local` to count in when the plan says so.
    pub fn new(shared: Box<dyn Ledger>, local: MemoryLedger, failure: Failure) -> Self {
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

    /// How it is doing.
    pub fn state(&self) -> SharedState {
        SharedState {
            reachable: !self.down.load(Relaxed),
            errors: self.errors.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
        }
    }

    fn note<T>(&self, answer: Result<T, LedgerError>) -> Result<T, LedgerError> {
        match &answer {
            Ok(_) if self.down.swap(false, Relaxed) => tracing::info!("limits: the shared counts are reachable again"),
            Ok(_) => {}
            Err(e) => {
                self.errors.fetch_add(1, Relaxed);
                if !self.down.swap(true, Relaxed) {
                    let then = match self.failure {
                        Failure::Closed => "requests are refused",
                        Failure::Open => "requests pass UNCOUNTED",
                        Failure::Local => "requests are counted in this process alone",
                    };
                    tracing::error!("limits: {e}; until it is back, {then}");
                }
            }
        }
        answer
    }
}

impl Ledger for SharedLedger {
    fn take<'a>(&'a self, asks: &'a [Ask], lease: &'a str) -> BoxFuture<'a, Result<Result<(), Refusal>, LedgerError>> {
        Box::pin(async move {
            let error = match self.note(self.shared.take(asks, lease).await) {
                Ok(answer) => return Ok(answer),
                Err(e) => e,
            };
            let place = match self.failure {
                Failure::Closed => return Err(error),
                Failure::Open => Elsewhere::Uncounted,
                Failure::Local => Elsewhere::Local,
            };
            self.fallbacks.fetch_add(1, Relaxed);
            if matches!(place, Elsewhere::Local)
                && let Err(refusal) = self.local.take(asks, lease).await?
            {
                return Ok(Err(refusal));
            }
            self.elsewhere.lock().insert(lease.to_owned(), place);
            Ok(Ok(()))
        })
    }

    fn settle<'a>(
        &'a self,
        asks: &'a [Ask],
        lease: &'a str,
        used: &'a [u64],
        age: Duration,
    ) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            let elsewhere = self.elsewhere.lock().remove(lease);
            match elsewhere {
                None => self.note(self.shared.settle(asks, lease, used, age).await),
                Some(Elsewhere::Local) => self.local.settle(asks, lease, used, age).await,
                Some(Elsewhere::Uncounted) => Ok(()),
            }
        })
    }

    fn read<'a>(&'a self, asks: &'a [Ask]) -> BoxFuture<'a, Result<Vec<Level>, LedgerError>> {
        Box::pin(async move { self.note(self.shared.read(asks).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Counter;

    /// A server that is gone.
    struct Gone;

    impl Ledger for Gone {
        fn take<'a>(&'a self, _: &'a [Ask], _: &'a str) -> BoxFuture<'a, Result<Result<(), Refusal>, LedgerError>> {
            Box::pin(std::future::ready(Err(LedgerError("gone".into()))))
        }

        fn settle<'a>(
            &'a self,
            _: &'a [Ask],
            _: &'a str,
            _: &'a [u64],
            _: Duration,
        ) -> BoxFuture<'a, Result<(), LedgerError>> {
            panic!("what the server does not know is not settled there")
        }

        fn read<'a>(&'a self, _: &'a [Ask]) -> BoxFuture<'a, Result<Vec<Level>, LedgerError>> {
            Box::pin(std::future::ready(Err(LedgerError("gone".into()))))
        }
    }

    fn ledger(failure: Failure) -> SharedLedger {
        SharedLedger::new(Box::new(Gone), MemoryLedger::new(Duration::from_secs(60)), failure)
    }

    fn slot() -> [Ask; 1] {
        [Ask { rule: "r".into(), who: "w".into(), counter: Counter::Slots { max: 1 }, cost: 1 }]
    }

    #[tokio::test]
    async fn without_the_server_each_plan_does_what_it_says() {
        let closed = ledger(Failure::Closed);
        assert!(closed.take(&slot(), "a").await.is_err());
        let open = ledger(Failure::Open);
        for lease in ["a", "b", "c"] {
            assert_eq!(open.take(&slot(), lease).await, Ok(Ok(())));
        }
        open.settle(&slot(), "a", &[1], Duration::ZERO).await.unwrap();
        assert_eq!(open.state(), SharedState { reachable: false, errors: 3, fallbacks: 3 });
        let local = ledger(Failure::Local);
        assert_eq!(local.take(&slot(), "a").await, Ok(Ok(())));
        assert!(local.take(&slot(), "b").await.unwrap().is_err());
        local.settle(&slot(), "a", &[1], Duration::ZERO).await.unwrap();
        assert_eq!(local.take(&slot(), "b").await, Ok(Ok(())));
    }
}
