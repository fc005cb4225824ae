//! What is counted of a deployment: requests in progress, errors, and how fast it begins to respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interflow_types::{Body, BodyFrame};

/// How long a measurement weighs: after this time, about a third of it is left.
const DECAY: Duration = Duration::from_secs(60);

/// Counters of one deployment, in atomics, because every request writes them. They outlive a reload.
#[derive(Debug)]
pub(crate) struct DeploymentStats {
    epoch: Instant,
    busy: AtomicU32,
    pub requests: AtomicU64,
    pub errors: AtomicU64,
    pub cooldowns: AtomicU64,
    pub timeouts: AtomicU64,
    /// The average in milliseconds (`f32`, upper half) and when it was last changed (milliseconds after `epoch`),
    /// together, so that both change at once; 0 before the first measurement.
    latency: AtomicU64,
}

impl DeploymentStats {
    pub fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            epoch: Instant::now(),
            busy: AtomicU32::new(0),
            requests: zero(),
            errors: zero(),
            cooldowns: zero(),
            timeouts: zero(),
            latency: zero(),
        })
    }

    /// Requests in progress: until the last byte of their response.
    pub fn busy(&self) -> u32 {
        self.busy.load(Relaxed)
    }

    /// The average time to the first data of a response, in milliseconds; `None` before the first.
    pub fn latency(&self) -> Option<f32> {
        let (average, _) = unpack(self.latency.load(Relaxed))?;
        Some(average)
    }

    /// The expected cost of one more request, to be compared between deployments: the average, which fades while no
    /// request measures it, so that one that was slow is tried again, times the requests that would be in progress.
    pub fn load(&self, now: Instant) -> f64 {
        let Some((average, at)) = unpack(self.latency.load(Relaxed)) else { return 0.0 };
        f64::from(average) * self.fade(at, now) * f64::from(self.busy() + 1)
    }

    /// Adds a measurement: the peak EWMA of Finagle and linkerd ("Beyond Round Robin: Load Balancing for Latency",
    /// linkerd.io, 2016). A slower response counts at once, a faster one by and by.
    pub fn record_latency(&self, took: Duration, now: Instant) {
        let took = took.as_secs_f64() * 1000.0;
        let stamp = self.stamp(now);
        let change = |packed| {
            let average = match unpack(packed) {
                Some((average, at)) if took < f64::from(average) => {
                    // Requests that end together must count as well.
                    let fade = self.fade(at, now).min(0.9);
                    f64::from(average).mul_add(fade, took * (1.0 - fade))
                }
                _ => took,
            };
            Some(pack(average as f32, stamp))
        };
        let _ = self.latency.fetch_update(Relaxed, Relaxed, change);
    }

    fn fade(&self, at: u32, now: Instant) -> f64 {
        let elapsed = self.stamp(now).saturating_sub(at);
        (-f64::from(elapsed) / (DECAY.as_secs_f64() * 1000.0)).exp()
    }

    /// Wraps after 49 days, when one measurement counts fully.
    fn stamp(&self, now: Instant) -> u32 {
        (now.saturating_duration_since(self.epoch).as_millis() & u128::from(u32::MAX)) as u32
    }
}

fn pack(average: f32, stamp: u32) -> u64 {
    u64::from(average.max(f32::MIN_POSITIVE).to_bits()) << 32 | u64::from(stamp)
}

fn unpack(packed: u64) -> Option<(f32, u32)> {
    (packed != 0).then(|| (f32::from_bits((packed >> 32) as u32), packed as u32))
}

/// A request in progress at a deployment; it ends with the drop, also when a hedged request is cancelled.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    stats: Arc<DeploymentStats>,
    started: Instant,
    is_measured: bool,
}

impl ActiveRequest {
    pub fn begin(stats: &Arc<DeploymentStats>) -> Self {
        stats.requests.fetch_add(1, Relaxed);
        stats.busy.fetch_add(1, Relaxed);
        Self { stats: Arc::clone(stats), started: Instant::now(), is_measured: false }
    }

    fn measure(&mut self) {
        if !self.is_measured {
            self.is_measured = true;
            let now = Instant::now();
            self.stats.record_latency(now.saturating_duration_since(self.started), now);
        }
    }

    /// The body of a good response: its first data is measured, and the request is in progress until its end.
    pub fn follow(mut self, body: Body) -> Body {
        match body {
            body @ Body::Stream(_) => body.inspect(move |frame| {
                if matches!(frame, Some(Ok(BodyFrame::Data(_)))) {
                    self.measure();
                }
            }),
            body => {
                self.measure();
                body
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.stats.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_response_counts_at_once_and_fades_with_time() {
        let (stats, now) = (DeploymentStats::new(), Instant::now());
        assert_eq!((stats.latency(), stats.load(now)), (None, 0.0));
        stats.record_latency(Duration::from_millis(100), now);
        stats.record_latency(Duration::from_millis(900), now);
        assert_eq!(stats.latency(), Some(900.0));
        stats.record_latency(Duration::from_millis(100), now);
        assert!((stats.latency().unwrap() - 820.0).abs() < 1.0, "{:?}", stats.latency());
        assert!(stats.load(now + 3 * DECAY) < stats.load(now) / 10.0);
    }

    #[test]
    fn load_grows_with_the_requests_in_progress_and_shrinks_with_their_end() {
        let (stats, now) = (DeploymentStats::new(), Instant::now());
        stats.record_latency(Duration::from_millis(100), now);
        let alone = stats.load(now);
        let request = ActiveRequest::begin(&stats);
        assert_eq!((stats.busy(), stats.requests.load(Relaxed), stats.load(now)), (1, 1, 2.0 * alone));
        drop(request);
        assert_eq!((stats.busy(), stats.requests.load(Relaxed)), (0, 1));
    }
}
