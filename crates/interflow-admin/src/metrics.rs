//! `/metrics` in Prometheus text format.

use interflow_types::budget::PROCESS_BUDGET;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use interflow_codec::prometheus::{self, HistogramSample, MetricsPage};
use interflow_llm_gateway::redaction::RedactionCounts;
use interflow_proxy::observe::stats::{LATENCY_BOUNDS, StatsSnapshot};
use interflow_rules::ActiveRules;
use interflow_store::StoreStats;

use crate::api::run_query;
use crate::event_clients::EventClients;
use crate::state::AdminState;

pub(crate) async fn metrics(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    let mut page = MetricsPage::default();
    engine(&mut page, &state.engine.snapshot());
    if state.store.is_some()
        && let Ok(stats) = run_query(&state, |store, _| Ok(store.stats()?)).await
    {
        recorder(&mut page, &stats);
    }
    if let Some(in_force) = &state.rules {
        rules(&mut page, in_force);
    }
    if let Some(redaction) = &state.redaction {
        redaction_findings(&mut page, &redaction.counts());
    }
    event_clients(&mut page, &state.viewers);
    if let Some(parts) = &state.limits {
        parts.accounts.write_metrics(&mut page);
    }
    page.gauge("interflow_uptime_seconds", "Time since the start.", state.engine.uptime().as_secs_f64());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], page.into_text())
}

fn rules(page: &mut MetricsPage, in_force: &ActiveRules) {
    let program = in_force.program();
    if !program.rules.is_empty() {
        let help = "Times that a rule matched, by rule and phase taken together.";
        let values = program.rules.iter().map(|rule| ([&*rule.name], rule.matches()));
        page.family("counter", "interflow_rule_matches_total", help, &["rule"], values);
    }
    page.gauge(
        "interflow_rule_held_flows",
        "Flows that wait for a decision.",
        in_force.runtime().holds.list().len() as f64,
    );
}

fn engine(page: &mut MetricsPage, s: &StatsSnapshot) {
    page.counter("interflow_connections_total", "Client connections accepted.", s.connections);
    page.counter(
        "interflow_connections_refused_total",
        "Client connections refused by a limit.",
        s.connections_refused,
    );
    // Named like the metric of Philter's proxy: connections closed before their handshake.
    page.counter(
        "philter_proxy_tls_handshakes_shed_total",
        "Client connections closed before their handshake, since there were too many.",
        s.connections_refused,
    );
    page.gauge("interflow_connections_open", "Client connections open now.", s.connections_open as f64);
    page.counter("interflow_requests_total", "Requests that began.", s.requests);
    page.gauge("interflow_flows_active", "Flows under way.", s.active as f64);
    page.gauge(
        "interflow_held_bytes",
        "Bytes of requests and responses held in memory.",
        PROCESS_BUDGET.reserved() as f64,
    );
    page.gauge(
        "interflow_held_bytes_limit",
        "The most bytes that may be held; 0 for no limit.",
        PROCESS_BUDGET.limit() as f64,
    );
    page.counter(
        "interflow_held_bytes_refused_total",
        "Times the memory for held bytes was spent.",
        PROCESS_BUDGET.refusal_count(),
    );
    page.counter("interflow_tunnels_total", "Tunnels passed through as bytes.", s.tunnels);
    page.counter("interflow_tls_intercepted_total", "Client TLS handshakes answered with a leaf.", s.intercepted);
    page.counter("interflow_tls_leaf_refused_total", "Times a client refused our leaf.", s.leaf_refused);
    page.counter("interflow_sent_bytes_total", "Bytes towards origins.", s.bytes_sent);
    page.counter("interflow_received_bytes_total", "Bytes from origins.", s.bytes_received);
    page.counter("interflow_messages_total", "WebSocket, event stream and gRPC messages seen.", s.messages);
    let class = |class| if class == 0 { "none".to_owned() } else { format!("{class}xx") };
    let responses = s.responses.iter().enumerate().map(|(n, count)| ([class(n)], count));
    let help = "Responses by the class of their status.";
    page.family("counter", "interflow_responses_total", help, &["class"], responses);
    let errors = s.errors.iter().map(|(kind, n)| ([kind], n));
    page.family("counter", "interflow_errors_total", "Errors by kind.", &["kind"], errors);
    latency(page, s);
}

fn redaction_findings(page: &mut MetricsPage, counts: &RedactionCounts) {
    page.counter("interflow_redact_requests_total", "Requests that redaction inspected.", counts.requests);
    page.counter("interflow_redact_refused_total", "Requests and answers refused for privacy's sake.", counts.refused);
    let found = counts.found.iter().map(|(kind, n)| ([kind], n));
    page.family("counter", "interflow_redact_found_total", "Findings by kind.", &["kind"], found);
}

fn recorder(page: &mut MetricsPage, s: &StoreStats) {
    for (name, help, value) in [
        ("recorded_flows_total", "Flows recorded to their end since the start.", s.recorded_flows),
        (
            "dropped_flows_total",
            "Flows not recorded: the recorder was behind and set to drop, or suspended.",
            s.dropped_flows,
        ),
        ("lost_flows_total", "Flows that could not be written, since the disk refused.", s.lost_flows),
        ("dropped_bytes_total", "Bytes of bodies and messages not recorded for these reasons.", s.dropped_bytes),
        ("waits_total", "Times that a flow waited for the recorder.", s.waits),
        ("damaged_flows_total", "Damaged flows that were left out of lists and exports.", s.damaged_flows),
        ("expired_flows_total", "Flows dropped by age or size.", s.expired_flows),
    ] {
        page.counter(&format!("interflow_record_{name}"), help, value);
    }
    for (name, help, value) in [
        ("flows", "Flows in the store.", s.flows),
        ("open_flows", "Flows under way that are being recorded.", s.open_flows),
        ("queue_bytes", "Bytes that wait for the disk.", s.queue_bytes),
        ("queue_flows", "Flows that wait for the disk.", s.queue_flows),
        ("segments", "Segment files.", s.segments),
        ("segment_bytes", "Bytes of the segment files.", s.segment_bytes),
        ("database_bytes", "Bytes of the database and its log.", s.database_bytes),
        ("suspended", "1 while nothing is recorded because the disk refuses.", u64::from(s.suspended.is_some())),
    ] {
        page.gauge(&format!("interflow_record_{name}"), help, value as f64);
    }
}

fn event_clients(page: &mut MetricsPage, viewers: &EventClients) {
    page.gauge("interflow_event_clients", "Clients of the event socket.", viewers.count() as f64);
    page.counter(
        "interflow_event_clients_cut_total",
        "Clients of the event socket cut because they took nothing.",
        viewers.disconnected_count(),
    );
    page.counter(
        "interflow_event_passed_by_total",
        "Summaries or batches that a client was too slow for.",
        viewers.skipped_count(),
    );
}

fn latency(page: &mut MetricsPage, s: &StatsSnapshot) {
    let bounds = LATENCY_BOUNDS.map(|bound| bound as f64 / 1e6);
    let latency = HistogramSample { bounds: &bounds, counts: &s.latency, sum: s.latency_sum as f64 / 1e6 };
    page.histogram("interflow_flow_duration_seconds", "How long flows took.", &[], [([""; 0], latency)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_histogram_is_cumulative_up_to_infinity() {
        let mut page = MetricsPage::default();
        let mut latency = vec![0; LATENCY_BOUNDS.len() + 1];
        (latency[0], latency[LATENCY_BOUNDS.len()]) = (2, 1);
        engine(
            &mut page,
            &StatsSnapshot { latency, latency_sum: 1_500_000, errors: vec![("dns", 3)], ..StatsSnapshot::default() },
        );
        let page = page.into_text();
        for line in [
            "interflow_flow_duration_seconds_bucket{le=\"0.0001\"} 2",
            "interflow_flow_duration_seconds_bucket{le=\"+Inf\"} 3",
            "interflow_flow_duration_seconds_sum 1.5",
            "interflow_errors_total{kind=\"dns\"} 3",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
    }
}
