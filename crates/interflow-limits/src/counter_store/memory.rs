//! The in-memory counter store of one process.

use std::time::Duration;

use interflow_types::Timestamp;
use parking_lot::Mutex;

use super::counters::CounterTime;
use super::{CounterFuture, CounterRequest, CounterStore, CounterTable, CounterValue, Spent, TakeResult};

/// Maximum number of counters: about 20 MB. Counters are per party, and a party may be any client address.
const MAX_COUNTERS: usize = 100_000;

#[derive(Debug)]
pub struct MemoryCounterStore(Mutex<CounterTable>);

impl MemoryCounterStore {
    /// An empty store; slots are held for at most `lease`.
    pub fn new(lease: Duration) -> Self {
        Self(Mutex::new(CounterTable::new(MAX_COUNTERS, lease)))
    }

    /// Runs `f` on the counters under the lock; `f` must not block.
    pub fn with_counters<T>(&self, f: impl FnOnce(&mut CounterTable) -> T) -> T {
        f(&mut self.0.lock())
    }
}

/// Buckets and slots are timed by the monotonic clock, budgets by the calendar.
fn counter_time() -> CounterTime {
    CounterTime { steady: Timestamp::monotonic().micros(), wall: Timestamp::now().micros() }
}

impl CounterStore for MemoryCounterStore {
    fn take<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str) -> CounterFuture<'a, TakeResult> {
        // Taken when the function is called, not when the future is polled: the future is ready at once.
        let outcome = self.0.lock().take(asks, lease, counter_time());
        Box::pin(std::future::ready(Ok(outcome)))
    }

    fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()> {
        self.0.lock().commit(asks, lease, spent.used, spent.age, counter_time());
        Box::pin(std::future::ready(Ok(())))
    }

    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
        let levels = self.0.lock().read(asks, counter_time());
        Box::pin(std::future::ready(Ok(levels)))
    }
}
