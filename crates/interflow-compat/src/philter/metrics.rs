//! Metrics under the names of philter-ai-proxy, so that its dashboards and alerts keep working. They are counted only with
//! `compat.philter_metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interflow_admin::{AdminServer, AdminState};
use interflow_codec::metric_table;
use interflow_codec::prometheus::{HistogramSample, MetricFamily, MetricsPage};
use interflow_llm_gateway::llm_telemetry::{DurationHistogram, LabeledCounter, RequestRecord};

metric_table! { pub TABLE:

"With `compat.philter_metrics`" {
    REQUESTS = counter "philter_proxy_requests_total" ["provider", "status_code", "policy"] "LLM requests ended.";
    REQUEST_DURATION = histogram "philter_proxy_request_duration_seconds" ["provider"] "How long LLM requests took.";
    REDACTION_DURATION = histogram "philter_proxy_redaction_duration_seconds" ["provider", "policy"] "Time that detection took.";
    ENTITIES = counter "philter_proxy_entities_redacted_total" ["entity_type", "provider"] "Entities found.";
    DETECTOR_ERRORS = counter "philter_proxy_philter_errors_total" [] "Requests rejected because an external detector failed.";
    UPSTREAM_ERRORS = counter "philter_proxy_upstream_errors_total" ["provider", "status_code"] "LLM requests that failed at the provider.";
    ACTIVE = gauge "philter_proxy_active_requests" [] "LLM requests in progress.";
    CONCURRENCY_LIMIT = gauge "philter_proxy_concurrency_limit" ["scope"] "The limit on concurrent LLM requests; 0: none.";
    CONCURRENCY_SHED = counter "philter_proxy_concurrency_shed_total" ["scope"] "LLM requests rejected by it.";
    HANDSHAKES_SHED = counter "philter_proxy_tls_handshakes_shed_total" []
        "Client connections closed before their handshake because there were too many.";
}

}

/// Upper bounds of the histograms' buckets, in seconds: the defaults of Prometheus's clients.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

struct PhilterMetrics {
    requests: LabeledCounter<u64>,
    duration: LabeledCounter<DurationHistogram>,
    redaction: LabeledCounter<DurationHistogram>,
    entities: LabeledCounter<u64>,
    upstream_errors: LabeledCounter<u64>,
    detector_errors: AtomicU64,
    shed: AtomicU64,
}

/// Counts LLM requests from now on, and adds these metrics to the page.
pub fn attach(admin: &AdminServer) {
    let state = admin.state();
    let Some(parts) = &state.limits else { return };
    let counted = Arc::new(PhilterMetrics {
        requests: LabeledCounter::new(2_000),
        duration: LabeledCounter::new(200),
        redaction: LabeledCounter::new(500),
        entities: LabeledCounter::new(2_000),
        upstream_errors: LabeledCounter::new(1_000),
        detector_errors: AtomicU64::new(0),
        shed: AtomicU64::new(0),
    });
    let observed = Arc::clone(&counted);
    parts.accounts.set_observer(move |record| observed.count(record));
    // The page belongs to the state: a strong reference would keep both alive.
    let state = Arc::downgrade(&state);
    admin.add_metrics(move |page| {
        if let Some(state) = state.upgrade() {
            counted.write(page, &state);
        }
    });
}

impl PhilterMetrics {
    fn count(&self, f: &RequestRecord<'_>) {
        let (provider, policy, status) = (f.provider(), f.policy(), f.status().to_string());
        self.requests.add(&[provider, &status, policy], 1);
        let done = f.flow.timings.done.unwrap_or_default();
        self.duration.update(&[provider], |h| h.add(&BOUNDS, done));
        if let Some(found) = f.found {
            self.redaction.update(&[provider, policy], |h| h.add(&BOUNDS, found.micros));
            for (kind, n) in found.request.iter().chain(&found.response) {
                self.entities.add(&[kind, provider], *n);
            }
        }
        match f.refused {
            Some(refused) => {
                self.detector_errors.fetch_add(u64::from(refused.kind == "philter_error"), Relaxed);
                self.shed.fetch_add(u64::from(refused.code == "concurrency_exceeded"), Relaxed);
            }
            None if f.flow.error_kind.is_some() || f.status() >= 400 => {
                self.upstream_errors.add(&[provider, &status], 1);
            }
            None => {}
        }
    }

    fn write(&self, page: &mut MetricsPage, state: &AdminState) {
        page.samples(&REQUESTS, self.requests.snapshot());
        durations(page, &REQUEST_DURATION, &self.duration);
        durations(page, &REDACTION_DURATION, &self.redaction);
        page.samples(&ENTITIES, self.entities.snapshot());
        page.value(&DETECTOR_ERRORS, self.detector_errors.load(Relaxed));
        page.samples(&UPSTREAM_ERRORS, self.upstream_errors.snapshot());
        if let Some(parts) = &state.limits {
            let stats = parts.accounts.stats();
            page.value(&ACTIVE, stats.in_flight);
            let by_rules = parts.limits.config().rule.iter().filter_map(|r| r.allow.concurrent).map(u64::from).min();
            let limit = if stats.capacity > 0 { stats.capacity } else { by_rules.unwrap_or_default() };
            page.samples(&CONCURRENCY_LIMIT, [(["global"], limit)]);
        }
        page.samples(&CONCURRENCY_SHED, [(["global"], self.shed.load(Relaxed))]);
        page.value(&HANDSHAKES_SHED, state.engine.snapshot().connections_refused);
    }
}

fn durations(page: &mut MetricsPage, family: &MetricFamily, of: &LabeledCounter<DurationHistogram>) {
    let all = of.snapshot();
    let sum = |h: &DurationHistogram| h.micros as f64 / 1e6;
    let values = all.iter().map(|(of, h)| (of, HistogramSample { bounds: &BOUNDS, counts: &h.counts, sum: sum(h) }));
    page.histogram(family, values);
}
