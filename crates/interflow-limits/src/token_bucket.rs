//! A token bucket; the caller passes the time, so tests need no clock.

use std::time::Instant;

/// Refills at `rate` tokens per second up to `burst`. Time that goes backwards refills nothing.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket. `rate` in tokens per second, `burst` in tokens; both above 0.
    pub fn new(rate: f64, burst: f64, now: Instant) -> Self {
        Self { rate, burst, tokens: burst, filled: now }
    }

    /// Takes `n` tokens if available; returns whether it did.
    pub fn take(&mut self, n: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        if self.tokens < n {
            return false;
        }
        self.tokens -= n;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bucket_admits_its_burst_then_its_rate() {
        let t = Instant::now();
        let mut b = TokenBucket::new(10.0, 3.0, t);
        assert_eq!((0..5).filter(|_| b.take(1.0, t)).count(), 3);
        assert!(!b.take(1.0, t + Duration::from_millis(99)));
        assert!(b.take(1.0, t + Duration::from_millis(101)));
        assert!(!b.take(1.0, t + Duration::from_millis(102)));
    }

    #[test]
    fn bucket_is_capped_at_its_burst_and_ignores_time_going_back() {
        let t = Instant::now() + Duration::from_secs(10);
        let mut b = TokenBucket::new(1000.0, 2.0, t);
        let later = t + Duration::from_secs(60);
        assert!(b.take(2.0, later) && !b.take(1.0, later));
        assert!(!b.take(1.0, t));
    }
}
