//! What was taken from the counters for one request, until it is settled or given back.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::counter_store::{CounterRejection, CounterRequest, CounterStore, CounterStoreError, Spent};

/// Amounts and slots taken for one request. If dropped without [`settle`](Self::settle), all of them are given back: the
/// request was cancelled before it was admitted.
pub(crate) struct TakenCounters {
    store: Arc<dyn CounterStore>,
    asks: Arc<[CounterRequest]>,
    lease: Arc<str>,
    since: Instant,
    is_settled: bool,
}

impl TakenCounters {
    /// Takes from all counters, or from none. The inner error is the counter that rejects.
    ///
    /// # Cancellation
    /// A store that has to be waited for is asked by a task of its own: what it takes for a request that was cancelled
    /// meanwhile is given back when it was taken, since doing so earlier might overtake the taking.
    pub async fn take(
        store: Arc<dyn CounterStore>,
        asks: Arc<[CounterRequest]>,
        lease: Arc<str>,
    ) -> Result<Result<Self, CounterRejection>, CounterStoreError> {
        let (tell, told) = oneshot::channel();
        let mut work = Box::pin(async move {
            let since = Instant::now();
            let answer = store.take(&asks, &lease).await;
            // Dropped with the channel if the request was cancelled.
            let _ =
                tell.send(answer.map(|taken| taken.map(|()| Self { store, asks, lease, since, is_settled: false })));
        });
        // The memory store is ready at once, and then nothing is spawned.
        if std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(work);
        }
        let ended = || CounterStoreError("the counters were not asked, because the process is ending".into());
        told.await.unwrap_or_else(|_| Err(ended()))
    }

    pub const fn asks(&self) -> &Arc<[CounterRequest]> {
        &self.asks
    }

    /// Puts what was used in place of what was taken, and frees the slots.
    ///
    /// # Errors
    /// The store is unreachable; what was taken stays.
    pub async fn settle(mut self, used: &[u64]) -> Result<(), CounterStoreError> {
        self.is_settled = true;
        self.store.commit(&self.asks, &self.lease, Spent { used, age: self.since.elapsed() }).await
    }
}

impl Drop for TakenCounters {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (store, since) = (Arc::clone(&self.store), self.since);
        let (asks, lease) = (Arc::clone(&self.asks), Arc::clone(&self.lease));
        run_commit(async move {
            let nothing = vec![0; asks.len()];
            if let Err(e) = store.commit(&asks, &lease, Spent { used: &nothing, age: since.elapsed() }).await {
                tracing::warn!("limits: the estimate of a cancelled request cannot be given back: {e}");
            }
        });
    }
}

/// Completes a commit: inline if it does not have to wait, otherwise in a background task. `Drop` cannot await, so
/// the last step of a reservation has to be detached.
pub(crate) fn run_commit(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    // The memory store is ready at once, and then nothing is spawned. A pending future is polled again by its task, so the
    // waker of this poll does not matter.
    let is_pending = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    // Without a runtime, as at shutdown, only the memory store can be settled; a shared one lets the slots expire.
    if let Ok(runtime) = tokio::runtime::Handle::try_current()
        && is_pending
    {
        runtime.spawn(work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use crate::counter_store::CounterFuture;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::counter_store::{BudgetPeriod, CounterLimit, CounterValue, MemoryCounterStore};

    /// A store whose answers can be held back, as those of a server can be.
    struct SlowStore {
        counters: MemoryCounterStore,
        answers: Semaphore,
        commits: AtomicUsize,
    }

    impl CounterStore for SlowStore {
        fn take<'a>(
            &'a self,
            asks: &'a [CounterRequest],
            lease: &'a str,
        ) -> CounterFuture<'a, Result<(), CounterRejection>> {
            Box::pin(async move {
                let answer = self.counters.take(asks, lease).await;
                self.answers.acquire().await.unwrap().forget();
                answer
            })
        }

        fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()> {
            self.commits.fetch_add(1, SeqCst);
            self.counters.commit(asks, lease, spent)
        }

        fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
            self.counters.read(asks)
        }
    }

    fn asks() -> Arc<[CounterRequest]> {
        let ask = |counter, cost| CounterRequest { rule: "r".into(), who: "w".into(), counter, cost, least: cost };
        let (day, month) = (BudgetPeriod::Day, BudgetPeriod::Month);
        [
            ask(CounterLimit::Slots { max: 1 }, 1),
            ask(CounterLimit::MoneyBudget { max: 100, period: day }, 60),
            ask(CounterLimit::TokenBudget { max: 100, period: month }, 70),
            ask(CounterLimit::Requests { per_second: 1e-9, burst: 3.0 }, 1),
        ]
        .into()
    }

    #[tokio::test]
    async fn a_cancelled_take_is_given_back_wherever_it_is_dropped() {
        // Polls, then the answer, then polls again before the drop: the take is cancelled before and after its answer.
        for (before, after) in [(1, 0), (2, 0), (0, 0), (1, 1)] {
            let counters = MemoryCounterStore::new(Duration::from_secs(60));
            let store = Arc::new(SlowStore { counters, answers: Semaphore::new(0), commits: AtomicUsize::new(0) });
            let mut take = Box::pin(TakenCounters::take(Arc::clone(&store) as _, asks(), "lease".into()));
            let mut poll = |n| (0..n).for_each(|_| drop(take.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
            poll(before);
            if after > 0 {
                store.answers.add_permits(1);
                tokio::task::yield_now().await;
            }
            drop(take);
            store.answers.add_permits(1);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let levels = store.read(&asks()).await.unwrap();
            assert!(levels.iter().all(|level| level.level < 1e-6), "{before} {after}: {levels:?}");
            assert_eq!(store.commits.load(SeqCst), usize::from(before > 0), "{before} {after}");
        }
    }

    #[tokio::test]
    async fn a_settled_take_is_not_given_back() {
        let store: Arc<dyn CounterStore> = Arc::new(MemoryCounterStore::new(Duration::from_secs(60)));
        let taken = TakenCounters::take(Arc::clone(&store), asks(), "lease".into()).await.unwrap().unwrap();
        taken.settle(&[1, 50, 40, 1]).await.unwrap();
        let levels: Vec<f64> = store.read(&asks()).await.unwrap().iter().map(|level| level.level.round()).collect();
        assert_eq!(levels, [0.0, 50.0, 40.0, 1.0]);
    }
}
