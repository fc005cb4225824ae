//! `/metrics` in Prometheus text format.

mod llm;
mod process;
pub mod table;

use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use interflow_codec::prometheus::{self, HistogramSample, MetricFamily, MetricsPage};
use interflow_llm_gateway::redaction::RedactionCounts;
use interflow_proxy::ProxyServer;
use interflow_proxy::observe::stats::{LATENCY_BOUNDS, StatsSnapshot, TUNNEL_BOUNDS};
use interflow_rules::ActiveRules;
use interflow_store::StoreStats;
use interflow_types::budget::PROCESS_BUDGET;

use crate::api::store_stats;
use crate::event_clients::EventClients;
pub use crate::state::MetricsSource;
use crate::state::SharedState;

pub(crate) async fn metrics(State(state): State<SharedState>) -> impl IntoResponse {
    let mut page = MetricsPage::default();
    let build = [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    page.samples(&table::BUILD_INFO, [(build, 1)]);
    process::write(&mut page, state.engine.uptime());
    proxy(&mut page, &state.engine);
    if let Some(parts) = &state.limits {
        llm::write(&mut page, parts).await;
    }
    if let Some(redaction) = &state.redaction {
        redaction_findings(&mut page, &redaction.counts());
    }
    if let Some(approvals) = &state.approvals {
        page.value(&table::APPROVALS_PENDING, approvals.waiting.list().len());
        let outcomes = approvals.waiting.outcomes();
        page.samples(&table::APPROVALS_DECISIONS, outcomes.iter().map(|(outcome, n)| ([*outcome], n)));
    }
    if let Some(active) = &state.rules {
        rules(&mut page, active);
    }
    if let Ok(Some(stats)) = store_stats(&state).await {
        recorder(&mut page, &stats);
    }
    event_clients(&mut page, &state.viewers);
    if let Some(audit) = state.audit.store() {
        page.value(&table::ADMIN_AUDIT_LOST, audit.lost_lines());
        page.value(&table::ADMIN_AUDIT_UNSENT, audit.unsent_lines());
    }
    state.metrics.iter().for_each(|write| write(&mut page));
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], page.into_text())
}

fn rules(page: &mut MetricsPage, active: &ActiveRules) {
    let program = active.program();
    page.samples(&table::RULE_MATCHES, program.rules.iter().map(|rule| ([&*rule.name], rule.matches())));
    page.value(&table::RULES_HELD, active.runtime().holds.list().len());
}

fn proxy(page: &mut MetricsPage, server: &ProxyServer) {
    let s = server.snapshot();
    clients(page, &s);
    page.value(&table::TLS_BYPASSED, server.bypassed_clients().len());
    let ca = server.ca();
    page.value(&table::CA_NOT_AFTER, ca.not_after().micros() / 1_000_000);
    page.value(&table::CA_ISSUED, ca.leaves_signed());
    page.value(&table::CA_CACHED, ca.leaves_cached());
    http(page, &s);
    page.value(&table::HELD_BYTES, PROCESS_BUDGET.reserved());
    page.value(&table::HELD_BYTES_LIMIT, PROCESS_BUDGET.limit());
    page.value(&table::HELD_BYTES_REJECTIONS, PROCESS_BUDGET.refusal_count());
    upstream(page, &s);
}

fn clients(page: &mut MetricsPage, s: &StatsSnapshot) {
    page.value(&table::CLIENT_CONNECTIONS, s.connections_open);
    page.value(&table::CLIENT_CONNECTIONS_ACCEPTED, s.connections);
    page.samples(&table::CLIENT_CONNECTIONS_REJECTED, s.rejected.iter().map(|(reason, n)| ([*reason], n)));
    page.value(&table::TLS_INTERCEPTED, s.intercepted);
    page.value(&table::TLS_REJECTED, s.leaf_refused);
}

fn http(page: &mut MetricsPage, s: &StatsSnapshot) {
    page.value(&table::FLOWS_IN_FLIGHT, s.active.max(0));
    page.samples(&table::HTTP_REQUESTS, s.listeners.iter().map(|l| ([l.listener], l.requests)));
    let class = |n| if n == 0 { "none".to_owned() } else { format!("{n}xx") };
    let responses = s
        .listeners
        .iter()
        .flat_map(|l| l.responses.iter().enumerate().map(move |(n, count)| ([l.listener.to_owned(), class(n)], count)));
    page.samples(&table::HTTP_RESPONSES, responses);
    let by_listener = s.listeners.iter().map(|l| ([l.listener], &*l.latency.counts, l.latency.sum));
    durations(page, &table::HTTP_DURATION, &LATENCY_BOUNDS, by_listener);
    let tunnels = [([""; 0], &*s.tunnel_duration.counts, s.tunnel_duration.sum)];
    durations(page, &table::TUNNEL_DURATION, &TUNNEL_BOUNDS, tunnels);
    page.samples(&table::PASSTHROUGH_TUNNELS, s.passthrough.iter().map(|(reason, n)| ([*reason], n)));
    page.value(&table::MESSAGES, s.messages);
    page.samples(&table::ERRORS, s.errors.iter().map(|(kind, n)| ([kind], n)));
}

fn upstream(page: &mut MetricsPage, s: &StatsSnapshot) {
    page.value(&table::UPSTREAM_SENT, s.bytes_sent);
    page.value(&table::UPSTREAM_RECEIVED, s.bytes_received);
    for (family, histogram) in [
        (&table::UPSTREAM_DNS, &s.upstream.dns),
        (&table::UPSTREAM_CONNECT, &s.upstream.connect),
        (&table::UPSTREAM_TLS, &s.upstream.tls),
        (&table::UPSTREAM_FIRST_BYTE, &s.upstream.first_byte),
    ] {
        durations(page, family, &LATENCY_BOUNDS, [([""; 0], &*histogram.counts, histogram.sum)]);
    }
    page.value(&table::UPSTREAM_IDLE, s.idle_upstream_connections);
    page.value(&table::DNS_CACHED, s.cached_names);
}

/// Writes distributions of microseconds: their labels, counts and sums.
fn durations<'h, L: AsRef<[S]>, S: AsRef<str>>(
    page: &mut MetricsPage,
    family: &MetricFamily,
    bounds: &[u64; 14],
    values: impl IntoIterator<Item = (L, &'h [u64], u64)>,
) {
    let bounds = bounds.map(|bound| bound as f64 / 1e6);
    let sample = |counts: &'h [u64], sum: u64| HistogramSample { bounds: &bounds, counts, sum: sum as f64 / 1e6 };
    page.histogram(family, values.into_iter().map(|(labels, counts, sum)| (labels, sample(counts, sum))));
}

fn redaction_findings(page: &mut MetricsPage, counts: &RedactionCounts) {
    page.value(&table::REDACTION_REQUESTS, counts.requests);
    page.samples(&table::REDACTION_REJECTED, counts.rejected.iter().map(|(code, n)| ([*code], n)));
    let in_responses = |kind: &str| counts.found_in_responses.get(kind).copied().unwrap_or_default();
    let findings = counts.found.iter().flat_map(|(kind, n)| {
        let responses = in_responses(kind);
        [([kind.as_str(), "request"], n - responses), ([kind.as_str(), "response"], responses)]
    });
    page.samples(&table::REDACTION_ENTITIES, findings.filter(|(_, n)| *n > 0));
}

fn recorder(page: &mut MetricsPage, s: &StoreStats) {
    page.value(&table::RECORDER_UP, u8::from(s.suspended.is_none()));
    page.value(&table::RECORDER_RETENTION_WAITING, u8::from(s.retention_waits.is_some()));
    page.value(&table::RECORDER_BACKPRESSURE, s.backpressure_micros as f64 / 1e6);
    for (family, value) in [
        (&table::RECORDER_FLOWS, s.recorded_flows),
        (&table::RECORDER_DROPPED, s.dropped_flows),
        (&table::RECORDER_LOST, s.lost_flows),
        (&table::RECORDER_DROPPED_BYTES, s.dropped_bytes),
        (&table::RECORDER_DAMAGED, s.damaged_flows),
        (&table::RECORDER_EXPIRED, s.expired_flows),
        (&table::RECORDER_STORED, s.flows),
        (&table::RECORDER_OPEN, s.open_flows),
        (&table::RECORDER_QUEUE_BYTES, s.queue_bytes),
        (&table::RECORDER_QUEUE_FLOWS, s.queue_flows),
        (&table::RECORDER_SEGMENTS, s.segments),
        (&table::RECORDER_SEGMENT_BYTES, s.segment_bytes),
        (&table::RECORDER_DATABASE_BYTES, s.database_bytes),
    ] {
        page.value(family, value);
    }
    if let Some(shared) = &s.shared {
        page.value(&table::SHARED_UP, u8::from(shared.error.is_none()));
        page.value(&table::SHARED_CLOCK, shared.clock_ahead_millis as f64 / 1000.0);
        for (family, value) in [
            (&table::SHARED_WAITING_FLOWS, shared.waiting_flows),
            (&table::SHARED_WAITING_BYTES, shared.waiting_bytes),
            (&table::SHARED_WAITING_SECONDS, shared.waiting_seconds),
            (&table::SHARED_SHIPPED, shared.shipped_flows),
            (&table::SHARED_FAILURES, shared.failures),
            (&table::SHARED_STUCK, shared.stuck_flows),
            (&table::SHARED_OBJECT_BYTES, shared.object_bytes),
        ] {
            page.value(family, value);
        }
    }
    if let Some(free) = s.disk_free_bytes {
        page.value(&table::RECORDER_DISK_FREE, free);
    }
}

fn event_clients(page: &mut MetricsPage, viewers: &EventClients) {
    page.value(&table::EVENT_CLIENTS, viewers.open.load(Relaxed));
    page.value(&table::EVENT_CLIENTS_DISCONNECTED, viewers.cut.load(Relaxed));
    page.value(&table::EVENTS_DROPPED, viewers.passed_by.load(Relaxed));
}

#[cfg(test)]
mod tests {
    use interflow_proxy::observe::stats::{Histogram, ListenerStats};

    use super::*;

    #[test]
    fn duration_histogram_is_cumulative_up_to_infinity() {
        let mut page = MetricsPage::default();
        let mut counts = vec![0; LATENCY_BOUNDS.len() + 1];
        (counts[0], counts[LATENCY_BOUNDS.len()]) = (2, 1);
        let latency = Histogram { counts, sum: 1_500_000 };
        let listeners = vec![ListenerStats { listener: "proxy", latency, ..ListenerStats::default() }];
        http(&mut page, &StatsSnapshot { listeners, errors: vec![("dns", 3)], ..StatsSnapshot::default() });
        let page = page.into_text();
        for line in [
            "interflow_http_request_duration_seconds_bucket{listener=\"proxy\",le=\"0.0001\"} 2",
            "interflow_http_request_duration_seconds_bucket{listener=\"proxy\",le=\"+Inf\"} 3",
            "interflow_http_request_duration_seconds_sum{listener=\"proxy\"} 1.5",
            "interflow_errors_total{kind=\"dns\"} 3",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn entities_are_counted_once_per_direction() {
        let mut page = MetricsPage::default();
        let found = |n| [("ssn".to_owned(), n)].into();
        redaction_findings(
            &mut page,
            &RedactionCounts { found: found(5), found_in_responses: found(2), ..RedactionCounts::default() },
        );
        let page = page.into_text();
        for line in ["{type=\"ssn\",direction=\"request\"} 3\n", "{type=\"ssn\",direction=\"response\"} 2\n"] {
            assert!(page.contains(&format!("interflow_redaction_entities_total{line}")), "{page}");
        }
    }
}
