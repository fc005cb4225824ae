//! Rate-limited log lines: a flood with one cause must not flood the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// At most one line per interval.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    last: Mutex<Option<Instant>>,
    /// Lines suppressed since the last one.
    kept: AtomicU64,
}

impl LogLimiter {
    /// Whether a line may be logged now, and how many were suppressed since the last one.
    pub fn suppressed_if_due(&self) -> Option<u64> {
        self.suppressed_if_due_at(Instant::now())
    }

    fn suppressed_if_due_at(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock();
        if last.is_some_and(|at| now.saturating_duration_since(at) < MIN_INTERVAL) {
            self.kept.fetch_add(1, Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.kept.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_limiter_reports_the_number_of_suppressed_lines() {
        let (limiter, start) = (LogLimiter::default(), Instant::now());
        let at = |seconds| limiter.suppressed_if_due_at(start + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(9), at(10), at(11), at(25)], [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
