//! A circuit breaker: after consecutive failures an upstream is not used for a while, then probed once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of one upstream: closed (`open_until` is `None`), open until then, or after that waiting for a probe.
/// `most` consecutive failures open it for `pause`; 0 disables it. The caller passes the time, so tests need no
/// clock.
#[derive(Debug)]
pub struct CircuitBreaker {
    most: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    failures: u32,
    open_until: Option<Instant>,
    /// When the current probe started: no other request is sent until it ends, so that an upstream that recovers is
    /// not flooded.
    probing: Option<Instant>,
}

impl CircuitBreaker {
    pub(super) fn new(most: u32, pause: Duration) -> Self {
        Self { most, pause, state: Mutex::default() }
    }

    /// Whether a request may be sent now. After the pause one probe is allowed, and its result decides. A caller that
    /// gets `true` should report the result, or call [`abandon_request`](Self::abandon_request).
    pub fn allows(&self, now: Instant) -> bool {
        let mut state = self.lock();
        match state.open_until {
            None => true,
            Some(until) if now < until => false,
            // A probe that never ended must not keep the breaker open forever.
            Some(_) if state.probing.is_some_and(|since| now < since + self.pause.max(Duration::from_secs(1))) => false,
            Some(_) => {
                state.probing = Some(now);
                true
            }
        }
    }

    /// Seconds until a request may be tried, at least one, for `Retry-After`.
    pub fn retry_after(&self, now: Instant) -> u64 {
        self.lock().open_until.map_or(1, |until| until.saturating_duration_since(now).as_secs().max(1))
    }

    /// Whether requests are held back at present.
    pub fn is_open(&self) -> bool {
        self.lock().open_until.is_some()
    }

    /// Records the result of a request. Any success closes the breaker, also one that was sent before it opened.
    pub fn record_result(&self, good: bool, now: Instant) {
        if self.most == 0 {
            return;
        }
        let mut state = self.lock();
        state.probing = None;
        if good {
            *state = BreakerState::default();
            return;
        }
        state.failures += 1;
        // A failed probe opens the breaker for another pause, because the count was not reset.
        if state.failures >= self.most {
            state.open_until = Some(now + self.pause);
        }
    }

    /// A request ended for a reason that says nothing about the upstream: if it was the probe, the next one is.
    pub fn abandon_request(&self) {
        self.lock().probing = None;
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuit_opens_after_consecutive_failures_and_allows_one_probe() {
        let (breaker, now) = (CircuitBreaker::new(3, Duration::from_secs(10)), Instant::now());
        breaker.record_result(false, now);
        breaker.record_result(false, now);
        breaker.record_result(true, now);
        breaker.record_result(false, now);
        breaker.record_result(false, now);
        assert!(breaker.allows(now));
        breaker.record_result(false, now);
        assert!(breaker.is_open() && !breaker.allows(now + Duration::from_secs(9)));
        assert_eq!(breaker.retry_after(now), 10);
        let later = now + Duration::from_secs(10);
        assert!(breaker.allows(later) && !breaker.allows(later), "a single probe");
        breaker.record_result(false, later);
        assert!(!breaker.allows(later + Duration::from_secs(1)));
        let again = later + Duration::from_secs(10);
        assert!(breaker.allows(again));
        breaker.record_result(true, again);
        assert!(breaker.allows(again) && breaker.allows(again));
    }

    #[test]
    fn lost_probe_does_not_keep_the_circuit_open() {
        let (breaker, now) = (CircuitBreaker::new(1, Duration::from_secs(5)), Instant::now());
        breaker.record_result(false, now);
        assert!(breaker.allows(now + Duration::from_secs(5)));
        assert!(breaker.allows(now + Duration::from_secs(10)));
    }

    #[test]
    fn an_abandoned_request_is_neither_success_nor_failure() {
        let (breaker, now) = (CircuitBreaker::new(2, Duration::from_secs(5)), Instant::now());
        breaker.record_result(false, now);
        breaker.abandon_request();
        assert!(breaker.allows(now));
        breaker.record_result(false, now);
        assert!(!breaker.allows(now), "the first failure still counts");
        let later = now + Duration::from_secs(5);
        assert!(breaker.allows(later));
        breaker.abandon_request();
        assert!(breaker.allows(later), "another probe");
    }

    #[test]
    fn zero_threshold_disables_the_circuit_breaker() {
        let (breaker, now) = (CircuitBreaker::new(0, Duration::from_secs(5)), Instant::now());
        (0..100).for_each(|_| breaker.record_result(false, now));
        assert!(breaker.allows(now));
    }
}
