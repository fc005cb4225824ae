//! The health of a deployment: after consecutive failures, or a `Retry-After`, it is not used for a while, then probed
//! once.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interflow_llm::LlmRefusal;
use interflow_types::StatusCode;

/// The state of one upstream or deployment: closed, open until a time, or after that waiting for a probe. `most`
/// consecutive failures open it for `pause`; 0 disables that. The caller passes the time, so tests need no clock. All
/// state is in atomics, because every request reads it; a race between two results costs at most a probe too many.
#[derive(Debug)]
pub struct CircuitBreaker {
    most: u32,
    pause: Duration,
    /// Times are kept in milliseconds after this, at least 1; 0 stands for none.
    epoch: Instant,
    failures: AtomicU32,
    open_until: AtomicU64,
    /// The provider itself asked for the present pause (`Retry-After`): responses to earlier requests do not end it.
    was_asked: AtomicBool,
    /// When the current probe started: no other request is sent until it ends, so that an upstream that recovers is
    /// not flooded.
    probing: AtomicU64,
}

impl CircuitBreaker {
    pub(super) fn new(most: u32, pause: Duration) -> Self {
        Self {
            most,
            pause,
            epoch: Instant::now(),
            failures: AtomicU32::new(0),
            open_until: AtomicU64::new(0),
            was_asked: AtomicBool::new(false),
            probing: AtomicU64::new(0),
        }
    }

    /// Whether a request may be sent now. After the pause one probe is allowed, and its result decides. A caller that
    /// gets `true` should report the result, or call [`abandon_request`](Self::abandon_request).
    pub fn allows(&self, now: Instant) -> bool {
        if self.open_until.load(Relaxed) == 0 {
            return true;
        }
        let probing = self.probing.load(Relaxed);
        self.may_allow(now) && self.probing.compare_exchange(probing, self.millis(now), Relaxed, Relaxed).is_ok()
    }

    /// What [`allows`](Self::allows) would say, without taking the probe.
    pub fn may_allow(&self, now: Instant) -> bool {
        let (until, now) = (self.open_until.load(Relaxed), self.millis(now));
        // A probe that never ended must not keep the breaker open forever.
        let probe_ends = match self.probing.load(Relaxed) {
            0 => 0,
            since => since + millis(self.pause.max(Duration::from_secs(1))),
        };
        until == 0 || now >= until && now >= probe_ends
    }

    /// Seconds until a request may be tried, at least one, for `Retry-After`.
    pub fn retry_after(&self, now: Instant) -> u64 {
        self.remaining(now).map_or(1, |remaining| remaining.as_secs().max(1))
    }

    /// How long it is still left alone; zero if it waits for a probe, `None` if it is used.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let until = self.open_until.load(Relaxed);
        (until != 0).then(|| Duration::from_millis(until.saturating_sub(self.millis(now))))
    }

    /// Whether requests are held back at present.
    pub fn is_open(&self) -> bool {
        self.open_until.load(Relaxed) != 0
    }

    /// Records the result of a request, and returns whether it opened the breaker. A success closes the breaker, also
    /// one of a request that was sent before it opened.
    pub fn record_result(&self, good: bool, now: Instant) -> bool {
        let until = self.open_until.load(Relaxed);
        if until != 0 {
            self.probing.store(0, Relaxed);
        }
        if good {
            // Written only if something changes: on the way of a healthy request, nothing does.
            if self.failures.load(Relaxed) != 0 {
                self.failures.store(0, Relaxed);
            }
            if until != 0 && (self.millis(now) >= until || !self.was_asked.load(Relaxed)) {
                self.open_until.store(0, Relaxed);
                // The next pause may be one that failures begin.
                self.was_asked.store(false, Relaxed);
            }
            return false;
        }
        // A failed probe opens the breaker for another pause, because the count was not reset.
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if self.most == 0 || failures < self.most {
            return false;
        }
        let is_new = self.open(self.millis(now + self.pause), now);
        if is_new {
            self.was_asked.store(false, Relaxed);
        }
        is_new
    }

    /// Leaves the deployment alone for as long as it asked, and returns whether that is a new pause.
    pub fn leave_alone(&self, wait: Duration, now: Instant) -> bool {
        self.was_asked.store(true, Relaxed);
        self.probing.store(0, Relaxed);
        self.open(self.millis(now + wait), now)
    }

    /// Whether this pause is a new one: there was none, or the earlier one was over, and its probe failed.
    fn open(&self, until: u64, now: Instant) -> bool {
        self.open_until.fetch_max(until, Relaxed) <= self.millis(now)
    }

    /// A request ended for a reason that says nothing about the upstream: if it was the probe, the next one is.
    pub fn abandon_request(&self) {
        self.probing.store(0, Relaxed);
    }

    fn millis(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.epoch)).saturating_add(1)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The error for a request whose upstream is left alone.
pub(super) fn circuit_open(name: &str) -> LlmRefusal {
    let message = format!("the upstream {name} failed several times in a row and is left alone for a while");
    LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "circuit_open", "upstream_unavailable", message)
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
        (0..100).for_each(|_| assert!(!breaker.record_result(false, now)));
        assert!(breaker.allows(now));
    }

    #[test]
    fn a_pause_that_the_provider_asked_for_is_not_ended_by_an_earlier_request() {
        let (breaker, now) = (CircuitBreaker::new(0, Duration::from_secs(5)), Instant::now());
        assert!(breaker.leave_alone(Duration::from_secs(20), now));
        assert!(!breaker.record_result(true, now), "the response to a request that was sent before");
        assert!(!breaker.may_allow(now + Duration::from_secs(19)));
        assert!(breaker.remaining(now).unwrap() > Duration::from_secs(19));
        let later = now + Duration::from_secs(21);
        assert!(breaker.may_allow(later) && breaker.allows(later) && !breaker.may_allow(later), "a single probe");
        breaker.record_result(true, later);
        assert!(!breaker.is_open() && breaker.remaining(later).is_none());
    }

    #[test]
    fn a_pause_of_failures_is_ended_by_a_success_whatever_the_provider_asked_for_before() {
        let start = Instant::now();
        let probe = start + Duration::from_secs(21);
        // The pause that the provider asked for ends with a probe that succeeds, or fails.
        for is_answered in [true, false] {
            let breaker = CircuitBreaker::new(2, Duration::from_secs(10));
            breaker.leave_alone(Duration::from_secs(20), start);
            assert!(breaker.allows(probe));
            breaker.record_result(is_answered, probe);
            let failures = if is_answered { 2 } else { 1 };
            for _ in 0..failures {
                breaker.record_result(false, probe);
            }
            assert!(breaker.is_open(), "{is_answered}");
            breaker.record_result(true, probe + Duration::from_secs(1));
            assert!(!breaker.is_open(), "the response to a request that was sent before: {is_answered}");
        }
    }
}
