//! `/metrics` in Prometheus text format.

use interflow_types::budget::PROCESS_BUDGET;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use interflow_llm_gateway::redaction::RedactionCounts;
use interflow_proxy::observe::stats::{LATENCY_BOUNDS, StatsSnapshot};
use interflow_rules::ActiveRules;
use interflow_store::StoreStats;

use crate::api::{EventClients, run_query};
use crate::server::AdminState;

pub(crate) async fn metrics(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    let mut page = String::with_capacity(4096);
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
        page.push_str(&parts.accounts.prometheus());
    }
    gauge(&mut page, "interflow_uptime_seconds", "Time since the start.", state.engine.uptime().as_secs_f64());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

fn rules(page: &mut String, in_force: &ActiveRules) {
    let program = in_force.program();
    if !program.rules.is_empty() {
        head(
            page,
            "interflow_rule_matches_total",
            "Times that a rule matched, by rule and phase taken together.",
            "counter",
        );
    }
    for rule in &program.rules {
        // Backslash, quote and line feed must be escaped in a label value.
        let name = rule.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(page, "interflow_rule_matches_total{{rule=\"{name}\"}} {}", rule.matches());
    }
    gauge(
        page,
        "interflow_rule_held_flows",
        "Flows that wait for a decision.",
        in_force.runtime().holds.list().len() as f64,
    );
}

fn engine(page: &mut String, s: &StatsSnapshot) {
    counter(page, "interflow_connections_total", "Client connections accepted.", s.connections);
    counter(
        page,
        "interflow_connections_refused_total",
        "Client connections refused by a limit.",
        s.connections_refused,
    );
    // Named like the metric of Philter's proxy: connections closed before their handshake.
    counter(
        page,
        "philter_proxy_tls_handshakes_shed_total",
        "Client connections closed before their handshake, since there were too many.",
        s.connections_refused,
    );
    gauge(page, "interflow_connections_open", "Client connections open now.", s.connections_open as f64);
    counter(page, "interflow_requests_total", "Requests that began.", s.requests);
    gauge(page, "interflow_flows_active", "Flows under way.", s.active as f64);
    gauge(
        page,
        "interflow_held_bytes",
        "Bytes of requests and responses held in memory.",
        PROCESS_BUDGET.reserved() as f64,
    );
    gauge(
        page,
        "interflow_held_bytes_limit",
        "The most bytes that may be held; 0 for no limit.",
        PROCESS_BUDGET.limit() as f64,
    );
    counter(
        page,
        "interflow_held_bytes_refused_total",
        "Times the memory for held bytes was spent.",
        PROCESS_BUDGET.refusal_count(),
    );
    counter(page, "interflow_tunnels_total", "Tunnels passed through as bytes.", s.tunnels);
    counter(page, "interflow_tls_intercepted_total", "Client TLS handshakes answered with a leaf.", s.intercepted);
    counter(page, "interflow_tls_leaf_refused_total", "Times a client refused our leaf.", s.leaf_refused);
    counter(page, "interflow_sent_bytes_total", "Bytes towards origins.", s.bytes_sent);
    counter(page, "interflow_received_bytes_total", "Bytes from origins.", s.bytes_received);
    counter(page, "interflow_messages_total", "WebSocket, event stream and gRPC messages seen.", s.messages);
    head(page, "interflow_responses_total", "Responses by the class of their status.", "counter");
    for (class, n) in s.responses.iter().enumerate() {
        let class = if class == 0 { "none".to_owned() } else { format!("{class}xx") };
        let _ = writeln!(page, "interflow_responses_total{{class=\"{class}\"}} {n}");
    }
    head(page, "interflow_errors_total", "Errors by kind.", "counter");
    for (kind, n) in &s.errors {
        let _ = writeln!(page, "interflow_errors_total{{kind=\"{kind}\"}} {n}");
    }
    latency(page, s);
}

fn redaction_findings(page: &mut String, counts: &RedactionCounts) {
    counter(page, "interflow_redact_requests_total", "Requests that redaction inspected.", counts.requests);
    counter(page, "interflow_redact_refused_total", "Requests and answers refused for privacy's sake.", counts.refused);
    head(page, "interflow_redact_found_total", "Findings by kind.", "counter");
    for (kind, n) in &counts.found {
        let kind = kind.replace(['\\', '"', '\n'], "_");
        let _ = writeln!(page, "interflow_redact_found_total{{kind=\"{kind}\"}} {n}");
    }
}

fn recorder(page: &mut String, s: &StoreStats) {
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
        counter(page, &format!("interflow_record_{name}"), help, value);
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
        gauge(page, &format!("interflow_record_{name}"), help, value as f64);
    }
}

fn event_clients(page: &mut String, viewers: &EventClients) {
    gauge(page, "interflow_event_clients", "Clients of the event socket.", viewers.count() as f64);
    counter(
        page,
        "interflow_event_clients_cut_total",
        "Clients of the event socket cut because they took nothing.",
        viewers.disconnected_count(),
    );
    counter(
        page,
        "interflow_event_passed_by_total",
        "Summaries or batches that a client was too slow for.",
        viewers.skipped_count(),
    );
}

fn latency(page: &mut String, s: &StatsSnapshot) {
    head(page, "interflow_flow_duration_seconds", "How long flows took.", "histogram");
    let mut sum = 0;
    for (bound, n) in LATENCY_BOUNDS.iter().zip(&s.latency) {
        sum += n;
        let _ = writeln!(page, "interflow_flow_duration_seconds_bucket{{le=\"{}\"}} {sum}", *bound as f64 / 1e6);
    }
    sum += s.latency.last().copied().unwrap_or_default();
    let _ = writeln!(page, "interflow_flow_duration_seconds_bucket{{le=\"+Inf\"}} {sum}");
    let _ = writeln!(page, "interflow_flow_duration_seconds_sum {}", s.latency_sum as f64 / 1e6);
    let _ = writeln!(page, "interflow_flow_duration_seconds_count {sum}");
}

fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

pub(crate) fn counter(page: &mut String, name: &str, help: &str, value: u64) {
    head(page, name, help, "counter");
    let _ = writeln!(page, "{name} {value}");
}

pub(crate) fn gauge(page: &mut String, name: &str, help: &str, value: f64) {
    head(page, name, help, "gauge");
    let _ = writeln!(page, "{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_counts_up_and_closes() {
        let mut page = String::new();
        let mut latency = vec![0; LATENCY_BOUNDS.len() + 1];
        (latency[0], latency[LATENCY_BOUNDS.len()]) = (2, 1);
        engine(
            &mut page,
            &StatsSnapshot { latency, latency_sum: 1_500_000, errors: vec![("dns", 3)], ..StatsSnapshot::default() },
        );
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
