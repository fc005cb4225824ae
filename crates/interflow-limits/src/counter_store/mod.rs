//! Ledgers: where counters are kept. One answers for a request's counters all at once, so that a request which one
//! counter refuses has taken nothing from the others.

mod calendar;
mod counters;
mod memory;
mod redis;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use interflow_types::BoxFuture;
use serde::Serialize;

pub use calendar::BudgetPeriod;
pub use counters::{CounterTable, CounterValue};
pub use memory::MemoryCounterStore;
pub use redis::{RedisCounterStore, RedisOptions};
pub use shared::{SharedCounterStore, SharedStoreStatus};

/// What a counter allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterLimit {
    /// A bucket of requests.
    Requests {
        /// How fast it fills.
        per_second: f64,
        /// How much it holds.
        burst: f64,
    },
    /// A bucket of tokens. It may be overdrawn by the difference between estimate and use.
    Tokens {
        /// How fast it fills.
        per_second: f64,
        /// How much it holds.
        burst: f64,
    },
    /// Requests under way.
    Slots {
        /// How many there may be.
        max: u32,
    },
    /// Tokens in a period.
    TokenBudget {
        /// How many.
        max: u64,
        /// Day or month.
        period: BudgetPeriod,
    },
    /// Millionths of a dollar in a period.
    MoneyBudget {
        /// How many.
        max: u64,
        /// Day or month.
        period: BudgetPeriod,
    },
}

impl CounterLimit {
    /// The name in answers, metrics and stored keys.
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

    /// The period of a budget; nothing for rates and slots.
    pub const fn period(&self) -> Option<BudgetPeriod> {
        match self {
            Self::TokenBudget { period, .. } | Self::MoneyBudget { period, .. } => Some(*period),
            _ => None,
        }
    }
}

/// One counter that a request must pass, and what it takes from it.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterRequest {
    /// The rule's name.
    pub rule: Arc<str>,
    /// Who is counted.
    pub who: Arc<str>,
    /// What is allowed.
    pub counter: CounterLimit,
    /// What is taken.
    pub cost: u64,
}

impl CounterRequest {
    /// The name under which the counter is kept.
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.rule, self.counter.as_str(), self.who)
    }
}

/// A counter said no.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterRejection {
    /// The place of the counter among those asked.
    pub index: usize,
    /// How long until it may say yes.
    pub wait: Duration,
}

/// What is known of a counter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterSnapshot {
    /// The rule's name.
    pub rule: Arc<str>,
    /// Who is counted.
    pub who: Arc<str>,
    /// `requests`, `tokens`, `concurrent`, `tokens_per_day`, …
    pub counter: &'static str,
    /// What is used: of a bucket what is missing, of slots those taken, of a budget the sum.
    pub used: f64,
    /// What is allowed; dollars for money.
    pub limit: f64,
}

/// Why a ledger cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CounterStoreError(pub String);

/// Where counters are kept.
pub trait CounterStore: Send + Sync {
    /// Takes from all counters, or from none. `lease` names the slots that are taken.
    fn take<'a>(
        &'a self,
        asks: &'a [CounterRequest],
        lease: &'a str,
    ) -> BoxFuture<'a, Result<Result<(), CounterRejection>, CounterStoreError>>;

    /// Gives the slots of a lease back and corrects what was taken: `used[i]` in place of `asks[i].cost`. A budget whose
    /// period ended since it was taken from, `age` ago, is left as it is.
    fn commit<'a>(
        &'a self,
        asks: &'a [CounterRequest],
        lease: &'a str,
        used: &'a [u64],
        age: Duration,
    ) -> BoxFuture<'a, Result<(), CounterStoreError>>;

    /// What the counters stand at.
    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> BoxFuture<'a, Result<Vec<CounterValue>, CounterStoreError>>;
}
