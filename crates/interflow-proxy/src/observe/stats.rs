//! Counters, one set per worker, so that no two processors write to the same cache line.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use interflow_types::{Error, ErrorKind};
use schemars::JsonSchema;

/// Upper bounds of the latency histogram's buckets, in microseconds; a last bucket counts the rest.
pub const LATENCY_BOUNDS: [u64; 14] =
    // One per worker and bucket: counting a response is an atomic addition without contention.
    [
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000,
    ];

// `Internal` is the last kind, so its number plus one is the length.
const ERROR_KIND_COUNT: usize = ErrorKind::Internal as usize + 1;

/// One worker's counters. The fields mean what those of [`StatsSnapshot`] do. All use relaxed ordering, so a snapshot
/// may count a request whose response it does not count yet.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    pub connections: AtomicU64,
    pub connections_refused: AtomicU64,
    pub requests: AtomicU64,
    pub active: AtomicI64,
    pub responses: [AtomicU64; 6],
    pub tunnels: AtomicU64,
    pub intercepted: AtomicU64,
    pub leaf_refused: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub bytes_received: AtomicU64,
    pub messages: AtomicU64,
    errors: [AtomicU64; ERROR_KIND_COUNT],
    latency: [AtomicU64; LATENCY_BOUNDS.len() + 1],
    latency_sum: AtomicU64,
}

impl WorkerCounters {
    pub fn error(&self, error: &Error) {
        self.errors[error.kind() as usize].fetch_add(1, Relaxed);
    }

    /// Counts a response and the flow's duration in microseconds.
    pub fn response(&self, status: u16, micros: u64) {
        // Statuses of 600 and above, which are invalid, count with 5xx.
        let class = usize::from(status / 100).min(5);
        self.responses[class].fetch_add(1, Relaxed);
        // The first bound that is not below the duration; `LATENCY_BOUNDS.len()` if all are.
        let bucket = LATENCY_BOUNDS.partition_point(|&bound| bound < micros);
        self.latency[bucket].fetch_add(1, Relaxed);
        self.latency_sum.fetch_add(micros, Relaxed);
    }
}

/// Sums over all workers. The workers go on counting meanwhile, so related figures may differ by the requests in
/// progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[schemars(rename = "ProxyStats")]
pub struct StatsSnapshot {
    /// Client connections accepted.
    pub connections: u64,
    /// Client connections refused by a limit.
    pub connections_refused: u64,
    /// Client connections that are open.
    pub connections_open: u64,
    /// Requests started.
    pub requests: u64,
    /// Flows in progress.
    pub active: i64,
    /// Responses by the first digit of their status; index 0 counts flows that ended without one.
    pub responses: [u64; 6],
    /// Tunnels that were passed through without inspection or were not HTTP.
    pub tunnels: u64,
    /// Client TLS handshakes completed with an issued leaf.
    pub intercepted: u64,
    /// Leaves refused by clients.
    pub leaf_refused: u64,
    /// Bytes of request bodies and tunnels towards origins.
    pub bytes_sent: u64,
    /// Bytes of response bodies and tunnels from origins.
    pub bytes_received: u64,
    /// WebSocket, server-sent event and gRPC messages.
    pub messages: u64,
    /// Errors by kind, without zero counts.
    pub errors: Vec<(&'static str, u64)>,
    /// Flows by duration: counts for `latency_bounds`, and one for the rest.
    pub latency: Vec<u64>,
    /// Sum of all durations, in microseconds.
    pub latency_sum: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    workers: Vec<Arc<WorkerCounters>>,
}

impl ServerStats {
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Arc::default()).collect() }
    }

    pub fn worker(&self, index: usize) -> Arc<WorkerCounters> {
        Arc::clone(&self.workers[index])
    }

    pub fn snapshot(&self) -> StatsSnapshot {
        let mut s = StatsSnapshot { latency: vec![0; LATENCY_BOUNDS.len() + 1], ..StatsSnapshot::default() };
        let mut errors = [0; ERROR_KIND_COUNT];
        for w in &self.workers {
            s.connections += w.connections.load(Relaxed);
            s.connections_refused += w.connections_refused.load(Relaxed);
            s.requests += w.requests.load(Relaxed);
            s.active += w.active.load(Relaxed);
            s.tunnels += w.tunnels.load(Relaxed);
            s.intercepted += w.intercepted.load(Relaxed);
            s.leaf_refused += w.leaf_refused.load(Relaxed);
            s.bytes_sent += w.bytes_sent.load(Relaxed);
            s.bytes_received += w.bytes_received.load(Relaxed);
            s.messages += w.messages.load(Relaxed);
            s.latency_sum += w.latency_sum.load(Relaxed);
            add_counters(&mut s.responses, &w.responses);
            add_counters(&mut errors, &w.errors);
            add_counters(&mut s.latency, &w.latency);
        }
        s.errors = ErrorKind::ALL.iter().map(|k| (k.as_str(), errors[*k as usize])).filter(|(_, n)| *n > 0).collect();
        s
    }
}

fn add_counters(sums: &mut [u64], counters: &[AtomicU64]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_sum_workers_and_label_errors() {
        let stats = ServerStats::new(2);
        stats.worker(0).response(204, 100);
        stats.worker(1).response(599, 101);
        stats.worker(1).error(&Error::new(ErrorKind::Internal, "x"));
        let s = stats.snapshot();
        assert_eq!(s.responses, [0, 0, 1, 0, 0, 1]);
        assert_eq!((s.latency[0], s.latency[1], s.latency_sum), (1, 1, 201));
        assert_eq!(s.errors, [("internal", 1)]);
    }
}
