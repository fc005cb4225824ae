//! Metrics of LLM traffic in Prometheus text format, under the names of Philter's proxy, so that its dashboards and
//! alerts keep working, plus Interflow's own.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use interflow_limits::UsageLimiter;

use super::{LabeledCounter, RequestRecord};

/// Upper bounds of the histograms, in milliseconds: Prometheus's defaults.
const BUCKET_BOUNDS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

#[derive(Clone, Copy, Debug, Default)]
struct LatencyHistogram {
    buckets: [u64; 11],
    count: u64,
    micros: u64,
}

impl LatencyHistogram {
    fn add(&mut self, micros: u64) {
        for (bucket, bound) in self.buckets.iter_mut().zip(BUCKET_BOUNDS_MS) {
            *bucket += u64::from(micros <= bound * 1_000);
        }
        self.count += 1;
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

    /// Renders the metrics, including those of limits, audit log and exporter.
    pub fn render(&self, limits: &UsageLimiter, audit_lost: u64, spans_dropped: u64) -> String {
        let mut p = MetricsPage(String::with_capacity(4096));
        let of = |l: &LabeledCounter<LabelValues, u64>| {
            l.sums.lock().iter().map(|(k, v)| (k.clone(), *v as f64)).collect::<Vec<_>>()
        };
        let one = |n: u64| vec![(Vec::new(), n as f64)];
        let active = self.active.load(Relaxed).max(0) as u64;
        p.write_family(
            "philter_proxy_requests_total",
            "counter",
            &["provider", "status_code", "policy"],
            of(&self.requests),
        );
        p.write_histogram("philter_proxy_request_duration_seconds", &["provider"], &self.duration);
        p.write_histogram("philter_proxy_redaction_duration_seconds", &["provider", "policy"], &self.redaction);
        p.write_family(
            "philter_proxy_entities_redacted_total",
            "counter",
            &["entity_type", "provider"],
            of(&self.entities),
        );
        p.write_family("philter_proxy_philter_errors_total", "counter", &[], one(self.backend_errors.load(Relaxed)));
        p.write_family(
            "philter_proxy_upstream_errors_total",
            "counter",
            &["provider", "status_code"],
            of(&self.upstream_errors),
        );
        p.write_family("philter_proxy_active_requests", "gauge", &[], one(active));
        self.write_limits(&mut p, limits);
        p.write_family("interflow_llm_refused_total", "counter", &["code"], of(&self.refused));
        p.write_family("interflow_llm_tokens_total", "counter", &["provider", "model", "direction"], of(&self.tokens));
        let dollars = of(&self.dollars).into_iter().map(|(k, v)| (k, v / 1e6)).collect();
        p.write_family("interflow_llm_dollars_total", "counter", &["provider", "model"], dollars);
        p.write_family("interflow_llm_unpriced_tokens_total", "counter", &["provider", "model"], of(&self.unpriced));
        p.write_family("interflow_audit_lost_total", "counter", &[], one(audit_lost));
        p.write_family("interflow_spans_dropped_total", "counter", &[], one(spans_dropped));
        p.0
    }

    fn write_limits(&self, p: &mut MetricsPage, limits: &UsageLimiter) {
        let shed = self.refused.sums.lock().get(&vec!["concurrency_exceeded".to_owned()]).copied().unwrap_or_default();
        let global = |n: f64| vec![(vec!["global".to_owned()], n)];
        let of_rules = limits.config().rule.iter().filter_map(|r| r.allow.concurrent).map(u64::from).min();
        let most = Some(self.capacity.load(Relaxed)).filter(|max| *max > 0).or(of_rules).unwrap_or_default();
        p.write_family("philter_proxy_concurrency_limit", "gauge", &["scope"], global(most as f64));
        p.write_family("philter_proxy_concurrency_shed_total", "counter", &["scope"], global(shed as f64));
        let refused = vec![(Vec::new(), limits.rejected_count() as f64)];
        p.write_family("interflow_limits_refused_total", "counter", &[], refused);
        if let Some(shared) = limits.shared_status() {
            for (name, kind, n) in [
                ("interflow_limits_shared_reachable", "gauge", u64::from(shared.reachable)),
                ("interflow_limits_shared_errors_total", "counter", shared.errors),
                ("interflow_limits_shared_fallbacks_total", "counter", shared.fallbacks),
            ] {
                p.write_family(name, kind, &[], vec![(Vec::new(), n as f64)]);
            }
        }
    }
}

struct MetricsPage(String);

impl MetricsPage {
    fn write_family(&mut self, name: &str, kind: &str, labels: &[&str], values: Vec<(LabelValues, f64)>) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (key, value) in values {
            let _ = writeln!(self.0, "{name}{} {value}", format_labels(labels, &key, None));
        }
    }

    fn write_histogram(&mut self, name: &str, labels: &[&str], of: &LabeledCounter<LabelValues, LatencyHistogram>) {
        let _ = writeln!(self.0, "# TYPE {name} histogram");
        for (key, h) in of.sums.lock().iter() {
            for (n, bound) in h.buckets.iter().zip(BUCKET_BOUNDS_MS) {
                let le = (bound as f64 / 1e3).to_string();
                let _ = writeln!(self.0, "{name}_bucket{} {n}", format_labels(labels, key, Some(&le)));
            }
            let _ = writeln!(self.0, "{name}_bucket{} {}", format_labels(labels, key, Some("+Inf")), h.count);
            let _ = writeln!(self.0, "{name}_sum{} {}", format_labels(labels, key, None), h.micros as f64 / 1e6);
            let _ = writeln!(self.0, "{name}_count{} {}", format_labels(labels, key, None), h.count);
        }
    }
}

fn format_labels(labels: &[&str], key: &LabelValues, le: Option<&str>) -> String {
    let escaped = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = labels.iter().zip(key).map(|(l, v)| format!("{l}=\"{}\"", escaped(v)));
    let all: Vec<_> = pairs.chain(le.map(|le| format!("le=\"{le}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_add_up() {
        let mut p = MetricsPage(String::new());
        p.write_family("a", "counter", &["x", "y"], vec![(vec!["q\"\n".into(), "\\".into()], 2.0)]);
        let h = LabeledCounter::new(1);
        h.update(vec!["openai".to_owned()], Vec::new, |h: &mut LatencyHistogram| {
            h.add(4_000);
            h.add(400_000);
        });
        h.update(vec!["too many".to_owned()], || vec!["other".into()], |h| h.add(1));
        p.write_histogram("d", &["provider"], &h);
        for line in [
            "a{x=\"q\\\"\\n\",y=\"\\\\\"} 2\n",
            "d_bucket{provider=\"openai\",le=\"0.005\"} 1\n",
            "d_bucket{provider=\"openai\",le=\"0.5\"} 2\n",
            "d_bucket{provider=\"openai\",le=\"+Inf\"} 2\n",
            "d_sum{provider=\"openai\"} 0.404\n",
            "d_count{provider=\"other\"} 1\n",
        ] {
            assert!(p.0.contains(line), "{line}\n{}", p.0);
        }
    }
}
