//! When an attempt is repeated: the budget of retries, the pause before one, and what the provider asked for.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use interflow_types::Headers;

/// The retries that are allowed after a quiet time, and the most that are saved up.
const RESERVE: i64 = 10;
/// The balance is kept in thousandths of a retry.
const UNIT: i64 = 1000;

/// Allows retries as a share of requests, as Finagle, Envoy and linkerd do: each request pays in its share, and each
/// retry takes one. An outage then adds at most this share to the load, however many attempts a request may make.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    share: i64,
    balance: AtomicI64,
}

impl RetryBudget {
    /// A share of 1 does not limit, 0 allows no retry.
    pub fn new(share: f64) -> Self {
        let share = (share.clamp(0.0, 1.0) * UNIT as f64) as i64;
        Self { share, balance: AtomicI64::new(if share == 0 { 0 } else { RESERVE * UNIT }) }
    }

    pub fn count_request(&self) {
        let pay = |balance: i64| (balance < RESERVE * UNIT).then(|| (balance + self.share).min(RESERVE * UNIT));
        // A full balance is not written.
        let _ = self.balance.fetch_update(Relaxed, Relaxed, pay);
    }

    /// Takes one retry from the balance, if it has one.
    pub fn take(&self) -> bool {
        let take = |balance: i64| (balance >= UNIT).then(|| balance - UNIT);
        self.share >= UNIT || self.balance.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// The retries that are left; `None` if they are not limited.
    pub fn left(&self) -> Option<u32> {
        (self.share < UNIT).then(|| u32::try_from(self.balance.load(Relaxed) / UNIT).unwrap_or_default())
    }
}

/// Pauses before attempts at a deployment that was tried already, with decorrelated jitter, so that clients that failed
/// together do not return together (Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    const LEAST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(10);

    pub const fn new() -> Self {
        Self(Self::LEAST)
    }

    /// The next pause; `random` is from 0 to 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let most = (self.0 * 3).min(Self::MOST);
        self.0 = Self::LEAST + most.saturating_sub(Self::LEAST).mul_f64(random);
        self.0
    }
}

/// How long a response asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110 10.2.3).
pub(crate) fn retry_after(headers: &Headers) -> Option<Duration> {
    let number = |name| headers.get_str(name).and_then(|v| v.trim().parse::<f64>().ok()).filter(|n| *n >= 0.0);
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"));
    if let Some(seconds) = seconds {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::parse(headers.get_str("retry-after")?).ok()?.timestamp();
    Duration::try_from(at.duration_since(jiff::Timestamp::now())).ok()
}

/// Checks the statuses that are retried.
pub fn check_retry_on(statuses: &[u16]) -> Result<(), String> {
    match statuses.iter().find(|status| !(400..600).contains(*status)) {
        Some(status) => {
            Err(format!("retry_on: {status} is not the status of an error; write statuses from 400 to 599"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_requests_beyond_the_reserve() {
        let budget = RetryBudget::new(0.25);
        let taken = |budget: &RetryBudget| (0..100).filter(|_| budget.take()).count();
        assert_eq!((taken(&budget), budget.left()), (10, Some(0)));
        (0..8).for_each(|_| budget.count_request());
        assert_eq!(taken(&budget), 2);
        (0..1000).for_each(|_| budget.count_request());
        assert_eq!(taken(&budget), 10, "no more is saved up");
        assert_eq!((taken(&RetryBudget::new(0.0)), taken(&RetryBudget::new(1.0))), (0, 100));
    }

    #[test]
    fn pauses_are_random_between_bounds_and_grow_with_the_last() {
        let (mut low, mut high) = (Backoff::new(), Backoff::new());
        assert_eq!((low.next(0.0), low.next(0.0)), (Backoff::LEAST, Backoff::LEAST));
        let pauses: Vec<u128> = (0..5).map(|_| high.next(1.0).as_millis()).collect();
        assert_eq!(pauses, [600, 1800, 5400, 10_000, 10_000]);
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let read = |name: &str, value: &str| retry_after(&[(name, value)].into_iter().collect::<Headers>());
        assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(read("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        for bad in ["", "-1", "soon", "nan", "1e300"] {
            assert_eq!(read("retry-after", bad), None, "{bad}");
        }
        let date = |seconds| {
            let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        };
        let wait = read("retry-after", &date(30)).unwrap();
        assert!((28..=30).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(read("retry-after", &date(-30)), None);
    }
}
