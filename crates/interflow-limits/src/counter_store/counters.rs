//! The arithmetic of counters, without a clock of its own: time is handed in, in microseconds.

use std::collections::HashMap;

use std::time::Duration;

use super::{CounterLimit, CounterRejection, CounterRequest};

/// A moment, in microseconds by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterTime {
    /// By a clock that never jumps: buckets fill and slots end by it.
    pub steady: u64,
    /// After 1970, by which days and months begin.
    pub wall: u64,
}

impl From<u64> for CounterTime {
    fn from(at: u64) -> Self {
        Self { steady: at, wall: at }
    }
}

/// What one counter stands at: of a bucket what is missing, of slots those taken, of a budget the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterValue(pub f64);

/// What is kept of one counter.
#[derive(Clone, Debug, PartialEq)]
enum CounterState {
    /// What is in the bucket, and when that was so.
    Bucket { held: f64, at: u64 },
    /// Who holds a slot, and until when at the most.
    Slots(Vec<(String, u64)>),
    /// The period's number and its sum.
    Budget { period: u64, sum: u64 },
}

/// Counters by name, at most so many.
#[derive(Debug)]
pub struct CounterTable {
    states: HashMap<String, CounterState>,
    /// Most counters that are kept.
    most: usize,
    /// Microseconds that a slot is held at the most.
    lease: u64,
}

impl CounterTable {
    /// No counters yet.
    pub fn new(most: usize, lease: Duration) -> Self {
        Self { states: HashMap::new(), most: most.max(1), lease: lease.as_micros() as u64 }
    }

    /// Takes from all of them, or from none.
    ///
    /// # Errors
    /// The first counter that says no, and how long it will.
    pub fn take(
        &mut self,
        asks: &[CounterRequest],
        lease: &str,
        now: impl Into<CounterTime>,
    ) -> Result<(), CounterRejection> {
        let now = now.into();
        self.evict(asks.len(), now);
        for (index, ask) in asks.iter().enumerate() {
            let state = self.current_state(ask, now);
            if let Some(wait) = retry_after(state, ask, now) {
                return Err(CounterRejection { index, wait });
            }
        }
        let until = now.steady.saturating_add(self.lease);
        for ask in asks {
            match self.current_state(ask, now) {
                CounterState::Bucket { held, .. } => *held -= ask.cost as f64,
                CounterState::Slots(held) => held.push((lease.to_owned(), until)),
                CounterState::Budget { sum, .. } => *sum = sum.saturating_add(ask.cost),
            }
        }
        Ok(())
    }

    /// Gives slots back and puts what was used in place of what was taken, `age` ago.
    pub fn commit(
        &mut self,
        asks: &[CounterRequest],
        lease: &str,
        used: &[u64],
        age: Duration,
        now: impl Into<CounterTime>,
    ) {
        let now = now.into();
        let taken = now.wall.saturating_sub(age.as_micros() as u64) / 1_000_000;
        for (ask, used) in asks.iter().zip(used) {
            match self.current_state(ask, now) {
                CounterState::Bucket { held, .. } => *held += ask.cost as f64 - *used as f64,
                CounterState::Slots(held) => held.retain(|(who, _)| who != lease),
                // A sum that began with a new day meanwhile never held what yesterday's was raised by.
                CounterState::Budget { period, sum } => {
                    if ask.counter.period().is_some_and(|p| p.period_at(taken).0 == *period) {
                        *sum = sum.saturating_add(*used).saturating_sub(ask.cost);
                    }
                }
            }
        }
    }

    /// What they stand at.
    pub fn read(&mut self, asks: &[CounterRequest], now: impl Into<CounterTime>) -> Vec<CounterValue> {
        let now = now.into();
        asks.iter()
            .map(|ask| match self.current_state(ask, now) {
                CounterState::Bucket { held, .. } => CounterValue((capacity(ask) - *held).max(0.0)),
                CounterState::Slots(held) => CounterValue(held.len() as f64),
                CounterState::Budget { sum, .. } => CounterValue(*sum as f64),
            })
            .collect()
    }

    /// The counter brought up to this moment.
    fn current_state(&mut self, ask: &CounterRequest, now: CounterTime) -> &mut CounterState {
        let state = self.states.entry(ask.name()).or_insert_with(|| new_state(ask, now));
        match (&mut *state, ask.counter) {
            (
                CounterState::Bucket { held, at },
                CounterLimit::Requests { per_second, burst } | CounterLimit::Tokens { per_second, burst },
            ) => {
                let passed = now.steady.saturating_sub(*at) as f64 / 1e6;
                *held = (*held + passed * per_second).min(burst);
                *at = (*at).max(now.steady);
            }
            (CounterState::Slots(held), CounterLimit::Slots { .. }) => held.retain(|(_, until)| *until > now.steady),
            (
                CounterState::Budget { period, sum },
                CounterLimit::TokenBudget { period: p, .. } | CounterLimit::MoneyBudget { period: p, .. },
            ) => {
                let (number, _) = p.period_at(now.wall / 1_000_000);
                if number != *period {
                    (*period, *sum) = (number, 0);
                }
            }
            // The name holds the counter's kind, so another kind cannot stand under it.
            (other, _) => *other = new_state(ask, now),
        }
        state
    }

    /// Forgets counters that say nothing any more; when that is not enough, buckets, which fill again by themselves.
    fn evict(&mut self, wanted: usize, now: CounterTime) {
        if self.states.len() + wanted <= self.most {
            return;
        }
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

    /// Budgets that hold something, for a file that outlives the process.
    pub fn budgets(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.states.iter().filter_map(|(name, s)| match s {
            CounterState::Budget { period, sum } if *sum > 0 => Some((name.as_str(), *period, *sum)),
            _ => None,
        })
    }

    /// Puts a budget back that an earlier process had counted.
    pub fn restore(&mut self, name: String, period: u64, sum: u64) {
        self.states.insert(name, CounterState::Budget { period, sum });
    }
}

fn new_state(ask: &CounterRequest, now: CounterTime) -> CounterState {
    match ask.counter {
        CounterLimit::Requests { burst, .. } | CounterLimit::Tokens { burst, .. } => {
            CounterState::Bucket { held: burst, at: now.steady }
        }
        CounterLimit::Slots { .. } => CounterState::Slots(Vec::new()),
        CounterLimit::TokenBudget { period, .. } | CounterLimit::MoneyBudget { period, .. } => {
            CounterState::Budget { period: period.period_at(now.wall / 1_000_000).0, sum: 0 }
        }
    }
}

fn capacity(ask: &CounterRequest) -> f64 {
    match ask.counter {
        CounterLimit::Requests { burst, .. } | CounterLimit::Tokens { burst, .. } => burst,
        CounterLimit::Slots { max } => f64::from(max),
        CounterLimit::TokenBudget { max, .. } | CounterLimit::MoneyBudget { max, .. } => max as f64,
    }
}

/// How long the counter says no; nothing when it says yes.
fn retry_after(state: &CounterState, ask: &CounterRequest, now: CounterTime) -> Option<Duration> {
    match (state, ask.counter) {
        (
            CounterState::Bucket { held, .. },
            CounterLimit::Requests { per_second, burst } | CounterLimit::Tokens { per_second, burst },
        ) => {
            // A request larger than the whole bucket passes when the bucket is full, or it never would.
            let needed = (ask.cost as f64).min(burst);
            (*held + 1e-9 < needed).then(|| Duration::from_secs_f64(((needed - held) / per_second).min(1e9)))
        }
        (CounterState::Slots(held), CounterLimit::Slots { max }) => {
            (held.len() >= max as usize).then(|| Duration::from_secs(1))
        }
        (
            CounterState::Budget { sum, .. },
            CounterLimit::TokenBudget { max, period } | CounterLimit::MoneyBudget { max, period },
        ) => {
            let over = *sum >= max || ask.cost > max.saturating_sub(*sum);
            let (_, next) = period.period_at(now.wall / 1_000_000);
            over.then(|| Duration::from_micros((next * 1_000_000).saturating_sub(now.wall)))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
