//! The counter store interface. All counters of a request are taken in one atomic step, so a rejected request takes
//! nothing.
//!
//! Three kinds of counters exist. Buckets refill continuously, slots are held until they are released or their lease
//! expires, and budgets are sums within a calendar period. Each has one implementation in memory and one as Lua scripts
//! in Redis (the fleet's), which must agree.

mod calendar;
mod counters;
mod memory;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use interflow_types::BoxFuture;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

pub use calendar::BudgetPeriod;
pub use counters::{CounterTable, CounterValue};
pub use memory::MemoryCounterStore;
pub use shared::{SharedCounterStore, SharedStoreStatus};

/// The limit that a counter enforces. A bucket refills at `per_second` up to `burst`; a bucket of LLM tokens may be
/// overdrawn by the difference between estimate and use. Budgets of money are in millionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterLimit {
    Requests { per_second: f64, burst: f64 },
    Tokens { per_second: f64, burst: f64 },
    Slots { max: u32 },
    TokenBudget { max: u64, period: BudgetPeriod },
    MoneyBudget { max: u64, period: BudgetPeriod },
}

impl CounterLimit {
    /// The name in responses, metrics and stored keys. Changing one loses the counts that are stored under it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests",
            Self::Tokens { .. } => "tokens",
            Self::Slots { .. } => "concurrent",
            Self::TokenBudget { period: BudgetPeriod::Day, .. } => "tokens_per_day",
            Self::TokenBudget { period: BudgetPeriod::Month, .. } => "tokens_per_month",
            Self::MoneyBudget { period: BudgetPeriod::Day, .. } => "money_per_day",
            Self::MoneyBudget { period: BudgetPeriod::Month, .. } => "money_per_month",
        }
    }

    /// The most that can be taken from it at once.
    pub(crate) fn capacity(&self) -> f64 {
        match *self {
            Self::Requests { burst, .. } | Self::Tokens { burst, .. } => burst,
            Self::Slots { max } => f64::from(max),
            Self::TokenBudget { max, .. } | Self::MoneyBudget { max, .. } => max as f64,
        }
    }

    /// The period of a budget; `None` for rates and slots.
    pub const fn period(&self) -> Option<BudgetPeriod> {
        match self {
            Self::TokenBudget { period, .. } | Self::MoneyBudget { period, .. } => Some(*period),
            _ => None,
        }
    }
}

/// One counter that applies to a request, the party counted (`who`), and the amount to take from it.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterRequest {
    pub rule: Arc<str>,
    pub who: Arc<str>,
    pub counter: CounterLimit,
    /// Tokens or millionths of a dollar for budgets and token rates; 1 for requests and slots.
    pub cost: u64,
    /// What a budget must have left to admit the request, at most `cost`, which is taken in full all the same. Other
    /// counters need the cost.
    pub least: u64,
}

impl CounterRequest {
    /// The name under which the counter is stored. Rule names contain no `:` (checked when the rules are compiled),
    /// so the parts cannot be confused.
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.rule, self.counter.as_str(), self.who)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CounterRejection {
    /// Index of the counter in the request list.
    pub index: usize,
    /// Earliest time at which it may admit the request (`Retry-After`, RFC 9110 10.2.3).
    pub wait: Duration,
    /// Whether it is a budget that would admit the request, were it not for the reservations of requests in progress.
    pub is_reserved: bool,
}

/// Current value of a counter, for display in the UI and the API.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CounterSnapshot {
    pub rule: Arc<str>,
    /// The party counted.
    pub who: Arc<str>,
    /// `requests`, `tokens`, `concurrent`, `tokens_per_day`, …
    pub counter: &'static str,
    /// Used amount: tokens missing from a bucket, slots taken, or the sum of a budget.
    pub used: f64,
    /// The limit; in dollars for money.
    pub limit: f64,
}

/// Why the store could not be queried. What happens to the request is decided by `quota.shared.failure`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CounterStoreError(pub String);

/// Whether all counters that a request asks for admit it.
pub type TakeResult = Result<(), CounterRejection>;

/// What a request used, in the order of what it asked for, and how long ago it asked.
#[derive(Clone, Copy)]
pub struct Spent<'a> {
    pub used: &'a [u64],
    pub age: Duration,
}

/// What a store is asked for.
pub type CounterFuture<'a, T> = BoxFuture<'a, Result<T, CounterStoreError>>;

/// A store of counters, in this process or shared. A future that is dropped may have taken effect all the same: a caller
/// that may be cancelled lets another task finish it.
///
/// An implementation must make each operation atomic over all its counters, and must admit a request larger than a
/// bucket when the bucket is full. A budget admits a request if `least` is left, and takes `cost`: so at most one request
/// in progress exceeds it. [`CounterTable`] has the reference arithmetic:
///
/// ```
/// use std::time::Duration;
/// use interflow_limits::{CounterLimit, CounterRequest, CounterTable};
///
/// let ask = |who: &str| CounterRequest {
///     rule: "team".into(),
///     who: who.into(),
///     counter: CounterLimit::Slots { max: 1 },
///     cost: 1,
///     least: 1,
/// };
/// let mut table = CounterTable::new(100, Duration::from_secs(60));
/// assert!(table.take(&[ask("a")], "lease-1", 0u64).is_ok());
/// // `b` is free, but `a` is taken: the rejection names `a`, and nothing is taken from `b`.
/// let rejection = table.take(&[ask("b"), ask("a")], "lease-2", 0u64).unwrap_err();
/// assert_eq!(rejection.index, 1);
/// assert!(table.take(&[ask("b")], "lease-3", 0u64).is_ok());
/// ```
pub trait CounterStore: Send + Sync {
    /// Takes from all counters, or from none. `lease` identifies the request: a store that repeats a call whose answer was
    /// lost must not take twice, nor refuse because of what it took. The outer result is the store's health, the inner one
    /// the decision.
    fn take<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str) -> CounterFuture<'a, TakeResult>;

    /// Frees the slots of a lease and corrects the amounts taken: `spent.used[i]` in place of `asks[i].cost`. A budget
    /// whose period has ended since, `spent.age` ago, is not changed. Called at most once for each successful `take`.
    fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()>;

    /// Current values of the counters, in the order of `asks`, without changing them.
    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>>;
}
