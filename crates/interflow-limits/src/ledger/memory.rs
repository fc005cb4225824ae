//! The ledger of one process.

use std::time::Duration;

use interflow_flow::{BoxFuture, Timestamp};
use parking_lot::Mutex;

use super::counters::Now;
use super::{Ask, Counters, Ledger, LedgerError, Level, Refusal};

/// Most counters that are kept: some 20 MB.
const MOST: usize = 100_000;

/// Counters in this process's memory.
#[derive(Debug)]
pub struct MemoryLedger(Mutex<Counters>);

impl MemoryLedger {
    /// An empty one; slots are held for `lease` at the most.
    pub fn new(lease: Duration) -> Self {
        Self(Mutex::new(Counters::new(MOST, lease)))
    }

    /// Runs over the counters themselves.
    pub fn with<T>(&self, f: impl FnOnce(&mut Counters) -> T) -> T {
        f(&mut self.0.lock())
    }
}

fn now() -> Now {
    Now { steady: Timestamp::steady().micros(), wall: Timestamp::now().micros() }
}

impl Ledger for MemoryLedger {
    fn take<'a>(&'a self, asks: &'a [Ask], lease: &'a str) -> BoxFuture<'a, Result<Result<(), Refusal>, LedgerError>> {
        let taken = self.0.lock().take(asks, lease, now());
        Box::pin(std::future::ready(Ok(taken)))
    }

    fn settle<'a>(
        &'a self,
        asks: &'a [Ask],
        lease: &'a str,
        used: &'a [u64],
        age: Duration,
    ) -> BoxFuture<'a, Result<(), LedgerError>> {
        self.0.lock().settle(asks, lease, used, age, now());
        Box::pin(std::future::ready(Ok(())))
    }

    fn read<'a>(&'a self, asks: &'a [Ask]) -> BoxFuture<'a, Result<Vec<Level>, LedgerError>> {
        let levels = self.0.lock().read(asks, now());
        Box::pin(std::future::ready(Ok(levels)))
    }
}
