//! Stops asking a service that fails: each text would otherwise wait for its time limit.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Counts failures in a row. After too many, the service is not asked during a pause; then one text probes it.
#[derive(Debug)]
pub(super) struct ServiceBreaker {
    max_failures: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    failures: u32,
    open_until: Option<Instant>,
}

impl ServiceBreaker {
    /// Opens after this many failures in a row; 0 means never.
    pub fn new(max_failures: u32, pause: Duration) -> Self {
        Self { max_failures, pause, state: Mutex::default() }
    }

    /// Whether the service may be asked now. After a pause, only the first caller may, and others once it has answered.
    pub fn allows(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        match state.open_until {
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = now.checked_add(self.pause);
                true
            }
            None => true,
        }
    }

    pub fn record_success(&self) {
        *self.state.lock() = BreakerState::default();
    }

    /// Records a failure; true if it opens the breaker.
    pub fn record_failure(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let opens = self.max_failures > 0 && state.failures >= self.max_failures;
        let was_open = state.open_until.is_some_and(|until| now < until);
        if opens {
            state.open_until = now.checked_add(self.pause);
        }
        opens && !was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_pause_one_caller_probes_the_service() {
        let (breaker, now) = (ServiceBreaker::new(2, Duration::from_secs(10)), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(!breaker.record_failure(at(0)) && breaker.allows(at(0)));
        assert!(breaker.record_failure(at(0)) && !breaker.allows(at(9)));
        assert!(!breaker.record_failure(at(1)), "of a text that was on its way");
        assert!(breaker.allows(at(11)) && !breaker.allows(at(12)));
        assert!(!breaker.record_failure(at(13)) && !breaker.allows(at(22)));
        assert!(breaker.allows(at(23)));
        breaker.record_success();
        assert!(breaker.allows(at(23)) && breaker.allows(at(23)));
    }
}
