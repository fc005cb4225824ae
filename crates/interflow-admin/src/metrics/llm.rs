//! Metrics of LLM traffic, quotas and their telemetry.

use interflow_codec::prometheus::MetricsPage;
use interflow_limits::CounterSnapshot;
use interflow_llm_gateway::llm_telemetry::{LlmStats, REDACTION_BOUNDS, REQUEST_BOUNDS};

use super::{durations, table};
use crate::api::edited::limits::current_counters;
use crate::state::LimitDeps;

/// Bound on the subjects whose quotas a scrape reads: each is a command if the counters are in Redis.
const MAX_QUOTA_SUBJECTS: usize = 200;
/// Bound on the series of quotas.
const MAX_QUOTA_SERIES: usize = 200;

pub(super) async fn write(page: &mut MetricsPage, parts: &LimitDeps) {
    requests(page, &parts.accounts.stats());
    let rejections = parts.limits.rejections();
    page.samples(&table::QUOTA_REJECTED, rejections.iter().map(|((rule, counter), n)| ([&**rule, counter], n)));
    if parts.limits.has_rules() || parts.keys.ring().keys().iter().any(|k| k.has_limits()) {
        quotas(page, current_counters(parts, MAX_QUOTA_SUBJECTS).await.0);
    }
    let alerts = parts.limits.alert_stats();
    let outcomes = [("sent", alerts.sent), ("failed", alerts.failed), ("dropped", alerts.dropped)];
    page.samples(&table::BUDGET_ALERTS, outcomes.iter().map(|(outcome, n)| ([*outcome], n)));
    if let Some(redis) = parts.limits.shared_status() {
        page.value(&table::REDIS_UP, u8::from(redis.reachable));
        page.value(&table::REDIS_ERRORS, redis.errors);
        page.value(&table::REDIS_FALLBACKS, redis.fallbacks);
    }
}

fn requests(page: &mut MetricsPage, s: &LlmStats) {
    page.samples(&table::LLM_REQUESTS, &s.requests);
    for (family, bounds, of) in [
        (&table::LLM_DURATION, &REQUEST_BOUNDS, &s.duration),
        (&table::LLM_FIRST_TOKEN, &REQUEST_BOUNDS, &s.first_token),
        (&table::REDACTION_DURATION, &REDACTION_BOUNDS, &s.redaction),
    ] {
        durations(page, family, bounds, of.iter().map(|(labels, h)| (labels, &h.counts[..], h.micros)));
    }
    page.value(&table::LLM_IN_FLIGHT, s.in_flight);
    page.value(&table::LLM_IN_FLIGHT_LIMIT, s.capacity);
    page.samples(&table::LLM_TOKENS, &s.tokens);
    page.samples(&table::LLM_CACHE_SAVED_TOKENS, &s.saved_tokens);
    page.samples(&table::LLM_CACHE_SAVED_COST, s.saved_micros.iter().map(|(labels, n)| (labels, *n as f64 / 1e6)));
    page.samples(&table::LLM_COST, s.cost_micros.iter().map(|(labels, micros)| (labels, *micros as f64 / 1e6)));
    page.samples(&table::LLM_UNPRICED, &s.unpriced_tokens);
    page.samples(&table::LLM_REJECTED, &s.rejected);
    page.samples(&table::LLM_UPSTREAM_ERRORS, &s.upstream_errors);
    page.value(&table::AUDIT_LOST, s.lost_audit_lines);
    page.value(&table::SPANS_DROPPED, s.dropped_spans);
    page.value(&table::CONTENTS_DROPPED, s.dropped_contents);
    let (sent, dropped) = s.webhook_events;
    page.samples(&table::WEBHOOK_EVENTS, [(["sent"], sent), (["dropped"], dropped)]);
}

fn quotas(page: &mut MetricsPage, mut counters: Vec<CounterSnapshot>) {
    // Rules that count by address would show one that no client has.
    counters.retain(|c| !matches!(&*c.who, "0.0.0.0" | "client 0.0.0.0"));
    counters.sort_by(|a, b| (b.used / b.limit).total_cmp(&(a.used / a.limit)));
    counters.truncate(MAX_QUOTA_SERIES);
    let labels = |c: &CounterSnapshot| [c.rule.to_string(), c.who.to_string(), c.counter.to_owned()];
    page.samples(&table::QUOTA_USED, counters.iter().map(|c| (labels(c), c.used)));
    page.samples(&table::QUOTA_LIMIT, counters.iter().map(|c| (labels(c), c.limit)));
    let is_level = |c: &&CounterSnapshot| matches!(&*c.rule, "key" | "team" | "organisation");
    let budgets = counters.iter().filter(|c| is_level(c) && c.counter.contains("_per_") && c.limit > 0.0);
    page.samples(&table::BUDGET_USED_RATIO, budgets.map(|c| (labels(c), c.used / c.limit)));
}
