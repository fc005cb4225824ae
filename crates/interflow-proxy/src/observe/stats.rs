//! Counters, one set per worker, so that no two processors write to the same cache line.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use interflow_limits::ConnectionRejection;
use interflow_types::schema::JsonSchema;
use interflow_types::{EntryKind, Error, ErrorKind, FlowTimings, Passthrough};
use tokio::sync::Notify;

/// Upper bounds of the latency histograms' buckets, in microseconds; a last bucket counts the rest.
pub const LATENCY_BOUNDS: [u64; 14] =
    // One per worker and bucket: counting a response is an atomic addition without contention.
    [
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000,
    ];

/// Upper bounds of the buckets of tunnels' durations, in microseconds; a last bucket counts the rest.
pub const TUNNEL_BOUNDS: [u64; 14] = [
    10_000,
    100_000,
    1_000_000,
    5_000_000,
    15_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    900_000_000,
    1_800_000_000,
    3_600_000_000,
    14_400_000_000,
    86_400_000_000,
];

const BUCKETS: usize = LATENCY_BOUNDS.len() + 1;
const ERROR_KIND_COUNT: usize = ErrorKind::Internal as usize + 1;

/// The listeners by which HTTP requests are counted; `internal` is Interflow itself.
const LISTENERS: [&str; 5] = ["proxy", "gateway", "transparent", "reverse", "internal"];

const fn listener_index(entry: EntryKind) -> usize {
    match entry {
        EntryKind::Absolute | EntryKind::Connect | EntryKind::Socks5 => 0,
        EntryKind::Gateway => 1,
        EntryKind::Transparent => 2,
        EntryKind::Reverse => 3,
        EntryKind::Internal => 4,
    }
}

/// Why connections are rejected, for metrics.
const REJECTIONS: [&str; 4] = ["total", "per_client", "rate", "no_descriptors"];

#[derive(Debug, Default)]
struct HistogramCounter {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl HistogramCounter {
    fn add(&self, bounds: &[u64; BUCKETS - 1], micros: u64) {
        self.buckets[bounds.partition_point(|&bound| bound < micros)].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    fn add_to(&self, sums: &mut Histogram) {
        add_counters(&mut sums.counts, &self.buckets);
        sums.sum += self.sum.load(Relaxed);
    }
}

/// HTTP requests of one listener.
#[derive(Debug, Default)]
struct ListenerCounters {
    requests: AtomicU64,
    responses: [AtomicU64; 6],
    latency: HistogramCounter,
}

/// One worker's counters. The fields mean what those of [`StatsSnapshot`] do. All use relaxed ordering, so a snapshot
/// may count a request whose response it does not count yet.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    pub connections: AtomicU64,
    pub active: AtomicI64,
    /// Flows whose end waits for work of a stage.
    pub ending: AtomicI64,
    /// Ends these without their work, at shutdown.
    pub end_now: Notify,
    pub intercepted: AtomicU64,
    pub leaf_refused: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub bytes_received: AtomicU64,
    pub messages: AtomicU64,
    rejected: [AtomicU64; REJECTIONS.len()],
    listeners: [ListenerCounters; LISTENERS.len()],
    /// By the reason; the last has none.
    tunnels: [AtomicU64; Passthrough::ALL.len() + 1],
    tunnel_duration: HistogramCounter,
    upstream: [HistogramCounter; UPSTREAM_STEPS],
    errors: [AtomicU64; ERROR_KIND_COUNT],
}

/// Name resolution, connection, TLS handshake, first byte.
const UPSTREAM_STEPS: usize = 4;

impl WorkerCounters {
    pub fn error(&self, error: &Error) {
        self.errors[error.kind() as usize].fetch_add(1, Relaxed);
    }

    /// Counts a connection that was not accepted; `None`: no file descriptor is left.
    pub fn connection_rejected(&self, why: Option<ConnectionRejection>) {
        let at = match why {
            Some(ConnectionRejection::Total) => 0,
            Some(ConnectionRejection::PerClient) => 1,
            Some(ConnectionRejection::Rate) => 2,
            None => 3,
        };
        self.rejected[at].fetch_add(1, Relaxed);
    }

    pub fn request_started(&self, entry: EntryKind) {
        self.listeners[listener_index(entry)].requests.fetch_add(1, Relaxed);
    }

    pub fn tunnel_passed_through(&self, why: Option<Passthrough>) {
        self.tunnels[why.map_or(Passthrough::ALL.len(), |why| why as usize)].fetch_add(1, Relaxed);
    }

    /// Counts the end of an HTTP request: its status, 0 if there was no response, and its duration in microseconds.
    pub fn request_ended(&self, entry: EntryKind, status: u16, micros: u64) {
        let listener = &self.listeners[listener_index(entry)];
        listener.responses[usize::from(status / 100).min(5)].fetch_add(1, Relaxed);
        listener.latency.add(&LATENCY_BOUNDS, micros);
    }

    /// Counts the end of a tunnel, or of a connection that was upgraded.
    pub fn tunnel_ended(&self, micros: u64) {
        self.tunnel_duration.add(&TUNNEL_BOUNDS, micros);
    }

    /// Counts what the upstream took. Only the first byte is counted if the connection was reused.
    pub fn upstream_times(&self, t: &FlowTimings) {
        let first_byte = t.first_byte.zip(t.request_sent).map(|(at, sent)| at.saturating_sub(sent));
        for (histogram, micros) in self.upstream.iter().zip([t.dns, t.connect, t.tls, first_byte]) {
            if let Some(micros) = micros {
                histogram.add(&LATENCY_BOUNDS, micros);
            }
        }
    }
}

/// A distribution of durations: counts for the bounds and one for the rest, and the sum in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    fn empty() -> Self {
        Self { counts: vec![0; BUCKETS], sum: 0 }
    }
}

/// HTTP requests of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerStats {
    pub listener: &'static str,
    pub requests: u64,
    /// By the first digit of the status; index 0: no response.
    pub responses: [u64; 6],
    /// For `LATENCY_BOUNDS`.
    pub latency: Histogram,
}

/// Where the time of upstream connections and requests went; for `LATENCY_BOUNDS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamStats {
    pub dns: Histogram,
    pub connect: Histogram,
    pub tls: Histogram,
    pub first_byte: Histogram,
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
    /// HTTP requests by duration: counts for `latency_bounds`, and one for the rest.
    pub latency: Vec<u64>,
    /// Sum of all durations, in microseconds.
    pub latency_sum: u64,
    /// Refused connections by the reason.
    #[serde(skip)]
    pub rejected: Vec<(&'static str, u64)>,
    /// Tunnels by the reason.
    #[serde(skip)]
    pub passthrough: Vec<(&'static str, u64)>,
    #[serde(skip)]
    pub listeners: Vec<ListenerStats>,
    #[serde(skip)]
    pub upstream: UpstreamStats,
    /// For `TUNNEL_BOUNDS`.
    #[serde(skip)]
    pub tunnel_duration: Histogram,
    /// Idle upstream HTTP/1 connections in the pools of all workers.
    #[serde(skip)]
    pub idle_upstream_connections: u64,
    /// Names in the DNS cache.
    #[serde(skip)]
    pub cached_names: u64,
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
        let mut s = StatsSnapshot { tunnel_duration: Histogram::empty(), ..StatsSnapshot::default() };
        let (mut errors, mut rejected) = ([0; ERROR_KIND_COUNT], [0; REJECTIONS.len()]);
        let mut tunnels = [0; Passthrough::ALL.len() + 1];
        let mut upstream: [Histogram; UPSTREAM_STEPS] = std::array::from_fn(|_| Histogram::empty());
        let mut listeners =
            LISTENERS.map(|listener| ListenerStats { listener, latency: Histogram::empty(), ..Default::default() });
        for w in &self.workers {
            s.connections += w.connections.load(Relaxed);
            s.active += w.active.load(Relaxed);
            s.intercepted += w.intercepted.load(Relaxed);
            s.leaf_refused += w.leaf_refused.load(Relaxed);
            s.bytes_sent += w.bytes_sent.load(Relaxed);
            s.bytes_received += w.bytes_received.load(Relaxed);
            s.messages += w.messages.load(Relaxed);
            add_counters(&mut errors, &w.errors);
            add_counters(&mut rejected, &w.rejected);
            add_counters(&mut tunnels, &w.tunnels);
            w.tunnel_duration.add_to(&mut s.tunnel_duration);
            upstream.iter_mut().zip(&w.upstream).for_each(|(sums, counter)| counter.add_to(sums));
            for (sums, counters) in listeners.iter_mut().zip(&w.listeners) {
                sums.requests += counters.requests.load(Relaxed);
                add_counters(&mut sums.responses, &counters.responses);
                counters.latency.add_to(&mut sums.latency);
            }
        }
        s.errors = ErrorKind::ALL.iter().map(|k| (k.as_str(), errors[*k as usize])).filter(|(_, n)| *n > 0).collect();
        s.connections_refused = rejected.iter().sum();
        s.rejected = REJECTIONS.into_iter().zip(rejected).collect();
        s.tunnels = tunnels.iter().sum();
        s.passthrough = Passthrough::ALL.iter().map(|p| p.as_str()).chain(["other"]).zip(tunnels).collect();
        let [dns, connect, tls, first_byte] = upstream;
        s.upstream = UpstreamStats { dns, connect, tls, first_byte };
        s.sum_listeners(listeners);
        s
    }
}

impl StatsSnapshot {
    fn sum_listeners(&mut self, listeners: [ListenerStats; LISTENERS.len()]) {
        let mut latency = Histogram::empty();
        for of in &listeners {
            // A request of Interflow itself is not one that a client began.
            self.requests += if of.listener == "internal" { 0 } else { of.requests };
            add(&mut self.responses, &of.responses);
            add(&mut latency.counts, &of.latency.counts);
            latency.sum += of.latency.sum;
        }
        (self.latency, self.latency_sum) = (latency.counts, latency.sum);
        self.listeners = listeners.into();
    }
}

fn add(sums: &mut [u64], counts: &[u64]) {
    sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
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
        stats.worker(0).request_ended(EntryKind::Connect, 204, 100);
        stats.worker(1).request_ended(EntryKind::Gateway, 599, 101);
        stats.worker(1).error(&Error::new(ErrorKind::Internal, "x"));
        stats.worker(1).tunnel_ended(20_000);
        stats.worker(0).tunnel_passed_through(Some(Passthrough::NestedProxy));
        stats.worker(0).connection_rejected(None);
        let s = stats.snapshot();
        assert_eq!(s.responses, [0, 0, 1, 0, 0, 1]);
        assert_eq!((s.latency[0], s.latency[1], s.latency_sum), (1, 1, 201));
        assert_eq!(s.errors, [("internal", 1)]);
        let gateway = &s.listeners[1];
        assert_eq!((gateway.listener, gateway.responses[5], gateway.latency.sum), ("gateway", 1, 101));
        assert_eq!(
            (s.tunnel_duration.counts[1], s.tunnel_duration.sum),
            (1, 20_000),
            "a tunnel is not an HTTP request"
        );
        assert!(s.passthrough.contains(&("nested_proxy", 1)) && s.tunnels == 1);
        assert!(s.rejected.contains(&("no_descriptors", 1)) && s.connections_refused == 1);
    }

    #[test]
    fn every_reason_to_pass_a_tunnel_through_has_its_own_counter() {
        for why in Passthrough::ALL {
            let stats = ServerStats::new(1);
            stats.worker(0).tunnel_passed_through(Some(why));
            assert!(stats.snapshot().passthrough.contains(&(why.as_str(), 1)), "{why:?}");
        }
    }

    #[test]
    fn a_reused_connection_adds_only_to_the_time_to_the_first_byte() {
        let stats = ServerStats::new(1);
        let reused = FlowTimings { request_sent: Some(50), first_byte: Some(250), ..FlowTimings::default() };
        stats.worker(0).upstream_times(&reused);
        stats.worker(0).upstream_times(&FlowTimings { connect: Some(3), tls: Some(4), ..reused });
        let UpstreamStats { dns, connect, tls, first_byte } = stats.snapshot().upstream;
        assert_eq!((dns.sum, connect.sum, tls.sum, first_byte.sum), (0, 3, 4, 400));
    }
}
