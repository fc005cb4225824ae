//! Metrics of LLM traffic in Prometheus text format, under the names of Philter's proxy, so that its dashboards and
//! alerts keep working, plus Interflow's own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use interflow_codec::prometheus::{HistogramSample, MetricsPage};
use interflow_limits::UsageLimiter;

use super::{LabeledCounter, RequestRecord};

/// Upper bounds of the histograms, in seconds: Prometheus's defaults.
const BUCKET_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Copy, Debug, Default)]
struct LatencyHistogram {
    buckets: [u64; 12],
    micros: u64,
}

impl LatencyHistogram {
    fn add(&mut self, micros: u64) {
        let seconds = micros as f64 / 1e6;
        self.buckets[BUCKET_BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.micros += micros;
    }
}

/// Label values, in the order of the label names.
type LabelValues = Vec<String>;

pub(super) struct LlmMetrics {
    active: AtomicI64,
    requests: LabeledCounter<LabelValues, u64>,
    duration: LabeledCounter<LabelValues, LatencyHistogram>,
    redaction: LabeledCounter<LabelValues, LatencyHistogram>,
    entities: LabeledCounter<LabelValues, u64>,
    upstream_errors: LabeledCounter<LabelValues, u64>,
    refused: LabeledCounter<LabelValues, u64>,
    tokens: LabeledCounter<LabelValues, u64>,
    dollars: LabeledCounter<LabelValues, u64>,
    /// Tokens of models whose price is unknown.
    unpriced: LabeledCounter<LabelValues, u64>,
    backend_errors: AtomicU64,
    /// The gateway's limit on concurrent requests; 0: none.
    capacity: AtomicU64,
}

impl Default for LlmMetrics {
    fn default() -> Self {
        Self {
            active: AtomicI64::new(0),
            requests: LabeledCounter::new(2_000),
            duration: LabeledCounter::new(200),
            redaction: LabeledCounter::new(500),
            entities: LabeledCounter::new(2_000),
            upstream_errors: LabeledCounter::new(1_000),
            refused: LabeledCounter::new(200),
            tokens: LabeledCounter::new(1_000),
            dollars: LabeledCounter::new(500),
            unpriced: LabeledCounter::new(500),
            backend_errors: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
        }
    }
}

impl LlmMetrics {
    pub fn set_capacity(&self, max: u64) {
        self.capacity.store(max, Relaxed);
    }

    pub fn request_started(&self) {
        self.active.fetch_add(1, Relaxed);
    }

    pub fn request_ended(&self) {
        self.active.fetch_sub(1, Relaxed);
    }

    pub fn count_request(&self, f: &RequestRecord<'_>) {
        let provider = || f.provider().to_owned();
        let policy = || f.policy().to_owned();
        let add = |sums: &LabeledCounter<LabelValues, u64>, key: LabelValues, n: u64| {
            let others = vec!["other".to_owned(); key.len()];
            sums.update(key, || others, |v| *v += n);
        };
        let status = f.status().to_string();
        add(&self.requests, vec![provider(), status.clone(), policy()], 1);
        let micros = f.flow.timings.done.unwrap_or_default();
        self.duration.update(vec![provider()], || vec!["other".into()], |h| h.add(micros));
        if let Some(found) = f.found {
            let other = || vec!["other".into(), "other".into()];
            self.redaction.update(vec![provider(), policy()], other, |h| h.add(found.micros));
            for (kind, n) in found.request.iter().chain(&found.response) {
                add(&self.entities, vec![kind.clone(), provider()], *n);
            }
        }
        match f.refused {
            Some(refused) => {
                add(&self.refused, vec![refused.code.to_owned()], 1);
                self.backend_errors.fetch_add(u64::from(refused.kind == "philter_error"), Relaxed);
            }
            None if f.flow.error_kind.is_some() || f.status() >= 400 => {
                add(&self.upstream_errors, vec![provider(), status], 1);
            }
            None => {}
        }
        let model = f.exchange.model.as_deref().unwrap_or("unknown").to_owned();
        if let Some(usage) = f.usage {
            for (direction, n) in [("input", usage.input), ("output", usage.output), ("cached", usage.cache_read)] {
                add(&self.tokens, vec![provider(), model.clone(), direction.to_owned()], n);
            }
        }
        match f.micros {
            Some(micros) => add(&self.dollars, vec![provider(), model], micros),
            None => {
                let tokens = f.usage.map_or(0, |u| u.total());
                if tokens > 0 {
                    add(&self.unpriced, vec![provider(), model], tokens);
                }
            }
        }
    }

    /// Writes the metrics, including those of limits, audit log and exporter.
    pub fn write(&self, page: &mut MetricsPage, limits: &UsageLimiter, audit_lost: u64, spans_dropped: u64) {
        let by_status = &["provider", "status_code", "policy"];
        write_counter(page, "philter_proxy_requests_total", by_status, &self.requests);
        write_histogram(page, "philter_proxy_request_duration_seconds", &["provider"], &self.duration);
        write_histogram(page, "philter_proxy_redaction_duration_seconds", &["provider", "policy"], &self.redaction);
        write_counter(page, "philter_proxy_entities_redacted_total", &["entity_type", "provider"], &self.entities);
        page.counter("philter_proxy_philter_errors_total", "", self.backend_errors.load(Relaxed));
        write_counter(page, "philter_proxy_upstream_errors_total", &by_status[..2], &self.upstream_errors);
        page.gauge("philter_proxy_active_requests", "", self.active.load(Relaxed).max(0) as f64);
        self.write_limits(page, limits);
        write_counter(page, "interflow_llm_refused_total", &["code"], &self.refused);
        write_counter(page, "interflow_llm_tokens_total", &["provider", "model", "direction"], &self.tokens);
        let model = &["provider", "model"];
        let dollars: Vec<_> = self.dollars.sums.lock().iter().map(|(k, v)| (k.clone(), *v as f64 / 1e6)).collect();
        page.family("counter", "interflow_llm_dollars_total", "", model, dollars);
        write_counter(page, "interflow_llm_unpriced_tokens_total", model, &self.unpriced);
        page.counter("interflow_audit_lost_total", "", audit_lost);
        page.counter("interflow_spans_dropped_total", "", spans_dropped);
    }

    fn write_limits(&self, page: &mut MetricsPage, limits: &UsageLimiter) {
        let shed = self.refused.sums.lock().get(&vec!["concurrency_exceeded".to_owned()]).copied().unwrap_or_default();
        let of_rules = limits.config().rule.iter().filter_map(|r| r.allow.concurrent).map(u64::from).min();
        let most = Some(self.capacity.load(Relaxed)).filter(|max| *max > 0).or(of_rules).unwrap_or_default();
        for (kind, name, value) in [
            ("gauge", "philter_proxy_concurrency_limit", most),
            ("counter", "philter_proxy_concurrency_shed_total", shed),
        ] {
            page.family(kind, name, "", &["scope"], [(["global"], value)]);
        }
        page.counter("interflow_limits_refused_total", "", limits.rejected_count());
        if let Some(shared) = limits.shared_status() {
            page.gauge("interflow_limits_shared_reachable", "", f64::from(u8::from(shared.reachable)));
            page.counter("interflow_limits_shared_errors_total", "", shared.errors);
            page.counter("interflow_limits_shared_fallbacks_total", "", shared.fallbacks);
        }
    }
}

fn write_counter(page: &mut MetricsPage, name: &str, labels: &[&str], of: &LabeledCounter<LabelValues, u64>) {
    page.family("counter", name, "", labels, of.sums.lock().iter());
}

fn write_histogram(
    page: &mut MetricsPage,
    name: &str,
    labels: &[&str],
    of: &LabeledCounter<LabelValues, LatencyHistogram>,
) {
    let sums = of.sums.lock();
    let values = sums.iter().map(|(key, h)| {
        (key, HistogramSample { bounds: &BUCKET_BOUNDS, counts: &h.buckets, sum: h.micros as f64 / 1e6 })
    });
    page.histogram(name, "", labels, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_histograms_are_labeled_up_to_a_limit() {
        let mut page = MetricsPage::default();
        let h = LabeledCounter::new(1);
        h.update(vec!["openai".to_owned()], Vec::new, |h: &mut LatencyHistogram| {
            h.add(5_000);
            h.add(400_000);
            h.add(20_000_000);
        });
        h.update(vec!["too many".to_owned()], || vec!["other".into()], |h| h.add(1));
        write_histogram(&mut page, "d", &["provider"], &h);
        let page = page.into_text();
        for line in [
            "d_bucket{provider=\"openai\",le=\"0.005\"} 1\n",
            "d_bucket{provider=\"openai\",le=\"0.5\"} 2\n",
            "d_bucket{provider=\"openai\",le=\"10\"} 2\n",
            "d_bucket{provider=\"openai\",le=\"+Inf\"} 3\n",
            "d_sum{provider=\"openai\"} 20.405\n",
            "d_count{provider=\"other\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
