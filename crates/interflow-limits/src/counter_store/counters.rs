//! Counter arithmetic without a clock: the caller passes the time in microseconds.
//!
//! Two clocks are needed. Buckets and slots measure durations, which must not jump when the system's time is corrected;
//! budgets follow the calendar.

use std::collections::HashMap;

use std::time::Duration;

use super::{CounterLimit, CounterRejection, CounterRequest, TakeResult};

/// A point in time by two clocks, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterTime {
    /// Monotonic clock; used for bucket refill and slot expiry.
    pub steady: u64,
    /// Unix time; used for day and month boundaries.
    pub wall: u64,
}

impl From<u64> for CounterTime {
    fn from(at: u64) -> Self {
        Self { steady: at, wall: at }
    }
}

/// Current value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterValue {
    /// Tokens missing from a bucket, slots taken, or the sum of a budget.
    pub level: f64,
    /// The part of a budget's sum that requests in progress have reserved.
    pub reserved: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum CounterState {
    /// Tokens in the bucket at time `at` of the steady clock. Negative while overdrawn.
    Bucket { held: f64, at: u64 },
    /// Lease and expiry (steady clock, microseconds) of each slot taken.
    Slots(Vec<(String, u64)>),
    /// The sum of the period with this number, and the part of it that is not settled yet; sums of earlier periods are
    /// not kept.
    Budget { period: u64, sum: u64, reserved: u64 },
}

/// Counters by name, at most `most` of them, for a single process. Redis runs the same arithmetic in its Lua scripts.
#[derive(Debug)]
pub struct CounterTable {
    states: HashMap<String, CounterState>,
    most: usize,
    /// Maximum time a slot is held, in microseconds.
    lease: u64,
}

impl CounterTable {
    pub fn new(most: usize, lease: Duration) -> Self {
        Self { states: HashMap::new(), most: most.max(1), lease: lease.as_micros() as u64 }
    }

    /// Takes from all counters, or from none.
    ///
    /// # Errors
    /// The first counter that rejects, and how long until it may admit.
    pub fn take(&mut self, asks: &[CounterRequest], lease: &str, now: impl Into<CounterTime>) -> TakeResult {
        let now = now.into();
        self.evict(asks.len(), now);
        // Two passes: the first only asks, so that a rejection by the last counter has taken nothing from the others.
        for (index, ask) in asks.iter().enumerate() {
            let state = self.current_state(ask, now);
            if let Some((wait, is_reserved)) = retry_after(state, ask, now) {
                return Err(CounterRejection { index, wait, is_reserved });
            }
        }
        let until = now.steady.saturating_add(self.lease);
        for ask in asks {
            match self.current_state(ask, now) {
                CounterState::Bucket { held, .. } => *held -= ask.cost as f64,
                CounterState::Slots(held) => held.push((lease.to_owned(), until)),
                CounterState::Budget { sum, reserved, .. } => {
                    (*sum, *reserved) = (sum.saturating_add(ask.cost), reserved.saturating_add(ask.cost));
                }
            }
        }
        Ok(())
    }

    /// Frees slots and replaces the amounts taken `age` ago with the amounts used. A counter that was evicted in the
    /// meantime is created anew, so what was used beyond the estimate is still owed.
    pub fn commit(
        &mut self,
        asks: &[CounterRequest],
        lease: &str,
        used: &[u64],
        age: Duration,
        now: impl Into<CounterTime>,
    ) {
        let now = now.into();
        let taken_at = now.wall.saturating_sub(age.as_micros() as u64) / 1_000_000;
        for (ask, used) in asks.iter().zip(used) {
            match self.current_state(ask, now) {
                // May become negative, if more was used than estimated.
                CounterState::Bucket { held, .. } => *held += ask.cost as f64 - *used as f64,
                CounterState::Slots(held) => held.retain(|(who, _)| who != lease),
                // A budget whose period began after the request was admitted does not contain its estimate.
                CounterState::Budget { period, sum, reserved } => {
                    // Added before it is subtracted, so that the sum cannot saturate at zero in between.
                    if ask.counter.period().is_some_and(|p| p.period_at(taken_at).0 == *period) {
                        *sum = sum.saturating_add(*used).saturating_sub(ask.cost);
                        *reserved = reserved.saturating_sub(ask.cost);
                    }
                }
            }
        }
    }

    /// Current values for display, in the order of `asks`. Creates counters that do not exist yet.
    pub fn read(&mut self, asks: &[CounterRequest], now: impl Into<CounterTime>) -> Vec<CounterValue> {
        let now = now.into();
        asks.iter()
            .map(|ask| {
                let (level, reserved) = match self.current_state(ask, now) {
                    CounterState::Bucket { held, .. } => ((ask.counter.capacity() - *held).max(0.0), 0.0),
                    CounterState::Slots(held) => (held.len() as f64, 0.0),
                    CounterState::Budget { sum, reserved, .. } => (*sum as f64, *reserved as f64),
                };
                CounterValue { level, reserved }
            })
            .collect()
    }

    /// The counter as of `now`: a bucket refilled, expired slots removed, a budget of an earlier period reset.
    fn current_state(&mut self, ask: &CounterRequest, now: CounterTime) -> &mut CounterState {
        let state = self.states.entry(ask.name()).or_insert_with(|| new_state(ask, now));
        match (&mut *state, ask.counter) {
            (
                CounterState::Bucket { held, at },
                CounterLimit::Requests { per_second, burst } | CounterLimit::Tokens { per_second, burst },
            ) => {
                let passed = now.steady.saturating_sub(*at) as f64 / 1e6;
                *held = (*held + passed * per_second).min(burst);
                // Never backwards: a bucket must not be refilled twice for the same time.
                *at = (*at).max(now.steady);
            }
            (CounterState::Slots(held), CounterLimit::Slots { .. }) => held.retain(|(_, until)| *until > now.steady),
            (
                CounterState::Budget { period, sum, reserved },
                CounterLimit::TokenBudget { period: p, .. } | CounterLimit::MoneyBudget { period: p, .. },
            ) => {
                let (number, _) = p.period_at(now.wall / 1_000_000);
                if number != *period {
                    (*period, *sum, *reserved) = (number, 0, 0);
                }
            }
            // The name includes the counter's kind, so this is unreachable unless the name is malformed.
            (other, _) => *other = new_state(ask, now),
        }
        state
    }

    /// Evicts counters that carry no information; if that is not enough, buckets, which refill by themselves. Budgets
    /// and slots in use are never evicted, so the table can exceed its limit by their number.
    fn evict(&mut self, wanted: usize, now: CounterTime) {
        if self.states.len() + wanted <= self.most {
            return;
        }
        // No rate has a period of more than a day, so a bucket that was not used for a day is full: the same as a new
        // one.
        const MAX_FILL_MICROS: u64 = 86_400_000_000;
        self.states.retain(|_, s| match s {
            CounterState::Bucket { at, .. } => now.steady.saturating_sub(*at) < MAX_FILL_MICROS,
            CounterState::Slots(held) => held.iter().any(|(_, until)| *until > now.steady),
            CounterState::Budget { sum, .. } => *sum > 0,
        });
        if self.states.len() + wanted > self.most {
            self.states.retain(|_, s| !matches!(s, CounterState::Bucket { .. }));
        }
    }

    /// The sums of all budgets in use: counter name, period number, sum.
    pub fn budgets(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.states.iter().filter_map(|(name, s)| match s {
            CounterState::Budget { period, sum, .. } if *sum > 0 => Some((name.as_str(), *period, *sum)),
            _ => None,
        })
    }

    /// Restores a budget saved by an earlier process. What its requests had reserved counts as used. A period that has
    /// ended since is reset by the first request.
    pub fn restore(&mut self, name: String, period: u64, sum: u64) {
        self.states.insert(name, CounterState::Budget { period, sum, reserved: 0 });
    }
}

fn new_state(ask: &CounterRequest, now: CounterTime) -> CounterState {
    match ask.counter {
        CounterLimit::Requests { burst, .. } | CounterLimit::Tokens { burst, .. } => {
            CounterState::Bucket { held: burst, at: now.steady }
        }
        CounterLimit::Slots { .. } => CounterState::Slots(Vec::new()),
        CounterLimit::TokenBudget { period, .. } | CounterLimit::MoneyBudget { period, .. } => {
            CounterState::Budget { period: period.period_at(now.wall / 1_000_000).0, sum: 0, reserved: 0 }
        }
    }
}

/// Time until a slot or a reservation is given back, which is unknown.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// Time until the counter may admit the request, and whether only the reservations of requests in progress prevent it;
/// `None` if it admits it now.
fn retry_after(state: &CounterState, ask: &CounterRequest, now: CounterTime) -> Option<(Duration, bool)> {
    match (state, ask.counter) {
        (
            CounterState::Bucket { held, .. },
            CounterLimit::Requests { per_second, burst } | CounterLimit::Tokens { per_second, burst },
        ) => {
            // A request larger than the bucket is admitted when the bucket is full; otherwise it never would be.
            let needed = (ask.cost as f64).min(burst);
            // A tolerance for rounding: a client that waits exactly as long as advised must be admitted.
            let wait = || Duration::from_secs_f64(((needed - held) / per_second).min(1e9));
            (*held + 1e-9 < needed).then(|| (wait(), false))
        }
        (CounterState::Slots(held), CounterLimit::Slots { max }) => {
            (held.len() >= max as usize).then_some((GIVEN_BACK, false))
        }
        (
            CounterState::Budget { sum, reserved, .. },
            CounterLimit::TokenBudget { max, period } | CounterLimit::MoneyBudget { max, period },
        ) => {
            let used = sum.saturating_sub(*reserved);
            let (_, next) = period.period_at(now.wall / 1_000_000);
            if used >= max || ask.least > max - used {
                return Some((Duration::from_micros((next * 1_000_000).saturating_sub(now.wall)), false));
            }
            // A request that takes nothing does not wait for others.
            (ask.least > 0 && ask.least > max.saturating_sub(*sum)).then_some((GIVEN_BACK, true))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
