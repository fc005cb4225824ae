//! Counters of LLM traffic, bounded by their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::CallTelemetry;

/// Upper bounds of the buckets of requests' durations and of the time to the first token, in microseconds.
#[rustfmt::skip]
pub const REQUEST_BOUNDS: [u64; 14] = [
    50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000,
    120_000_000, 300_000_000, 600_000_000,
];
/// Upper bounds of the buckets of the time that detection takes, in microseconds.
pub const REDACTION_BOUNDS: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000];

/// Bound on the models that are counted by name; the rest is `other`.
const MAX_MODELS: usize = 100;
/// Maximum length of a model's name in bytes: the client chooses it.
const MAX_MODEL_NAME: usize = 100;

/// A distribution of durations over at most 14 bounds; the bucket after the last bound counts the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct DurationHistogram {
    pub counts: [u64; 15],
    pub micros: u64,
}

impl DurationHistogram {
    pub fn add(&mut self, bounds: &[u64; 14], micros: u64) {
        self.counts[bounds.partition_point(|bound| *bound < micros)] += 1;
        self.micros += micros;
    }
}

/// Label values, in the order of the label names.
pub type LabelValues = Vec<String>;

/// Values by their labels.
pub type LabeledValues<V> = BTreeMap<LabelValues, V>;

/// Bound on the labels of most sums.
const MAX_LABELS: usize = 200;
/// As [`MAX_LABELS`], of sums by status or type as well.
const MAX_DETAILED_LABELS: usize = 1_000;

/// The sum of these labels. Beyond the bound, further labels are counted as `other`.
fn bounded<'s, V: Default>(sums: &'s mut LabeledValues<V>, most: usize, labels: &[&str]) -> &'s mut V {
    let key: LabelValues = labels.iter().map(|&label| label.to_owned()).collect();
    let is_full = sums.len() >= most && !sums.contains_key(&key);
    sums.entry(if is_full { vec!["other".to_owned(); labels.len()] } else { key }).or_default()
}

fn add(sums: &mut LabeledValues<u64>, most: usize, labels: &[&str], n: u64) {
    let sum = bounded(sums, most, labels);
    *sum = sum.saturating_add(n);
}

/// The models that are counted by name. Clients choose the names, so half of them are kept for those that a provider has
/// answered a request with.
#[derive(Debug, Default)]
struct KnownModels(Mutex<BTreeSet<(String, String)>>);

impl KnownModels {
    fn label<'m>(&self, provider: &str, model: &'m str, good: bool) -> &'m str {
        if model.len() > MAX_MODEL_NAME {
            return "other";
        }
        let mut series = self.0.lock();
        let name = (provider.to_owned(), model.to_owned());
        let most = if good { MAX_MODELS } else { MAX_MODELS / 2 };
        if series.contains(&name) || series.len() < most && series.insert(name) { model } else { "other" }
    }
}

#[derive(Default)]
pub(super) struct LlmMetrics {
    active: AtomicI64,
    models: KnownModels,
    sums: Mutex<LlmStats>,
}

/// What was counted since the start. The comments name the labels.
#[derive(Clone, Debug, Default)]
pub struct LlmStats {
    pub in_flight: u64,
    /// The gateway's limit on concurrent requests; 0: none.
    pub capacity: u64,
    /// Provider, model, status.
    pub requests: LabeledValues<u64>,
    /// Provider, model; for `REQUEST_BOUNDS`.
    pub duration: LabeledValues<DurationHistogram>,
    /// Provider, model; for `REQUEST_BOUNDS`. Streamed responses only.
    pub first_token: LabeledValues<DurationHistogram>,
    /// Provider, model, type.
    pub tokens: LabeledValues<u64>,
    /// Provider, model; millionths of a dollar.
    pub cost_micros: LabeledValues<u64>,
    /// Provider, model; tokens without a known price.
    pub unpriced_tokens: LabeledValues<u64>,
    /// Provider, model; tokens of responses from the response cache.
    pub saved_tokens: LabeledValues<u64>,
    /// Provider, model; what those responses would have cost, in millionths of a dollar.
    pub saved_micros: LabeledValues<u64>,
    /// Error code.
    pub rejected: LabeledValues<u64>,
    /// Provider, status.
    pub upstream_errors: LabeledValues<u64>,
    /// Policy; for `REDACTION_BOUNDS`.
    pub redaction: LabeledValues<DurationHistogram>,
    pub lost_audit_lines: u64,
    pub dropped_spans: u64,
    /// Spans that were exported without the content that they should have had.
    pub dropped_contents: u64,
    /// Events that webhooks delivered, and dropped.
    pub webhook_events: (u64, u64),
}

impl LlmMetrics {
    pub fn record_capacity(&self, max: u64) {
        self.sums.lock().capacity = max;
    }

    pub fn request_started(&self) {
        self.active.fetch_add(1, Relaxed);
    }

    pub fn request_ended(&self) {
        self.active.fetch_sub(1, Relaxed);
    }

    pub fn count_request(&self, f: &CallTelemetry<'_>) {
        let (provider, status) = (f.provider(), f.status());
        let good = (200..400).contains(&status) && f.refused.is_none();
        let model = self.models.label(provider, f.model().unwrap_or("unknown"), good);
        let by_model = [provider, model];
        let code = if status == 0 { "none".to_owned() } else { status.to_string() };
        let sums = &mut *self.sums.lock();
        add(&mut sums.requests, 2 * MAX_DETAILED_LABELS, &[provider, model, &code], 1);
        let done = f.flow.timings.done.unwrap_or_default();
        bounded(&mut sums.duration, MAX_LABELS, &by_model).add(&REQUEST_BOUNDS, done);
        if let Some(&micros) = f.exchange.first_token.get() {
            bounded(&mut sums.first_token, MAX_LABELS, &by_model).add(&REQUEST_BOUNDS, micros);
        }
        if let Some(found) = f.found {
            bounded(&mut sums.redaction, MAX_LABELS, &[&found.policy]).add(&REDACTION_BOUNDS, found.micros);
        }
        match f.refused {
            Some(refused) => add(&mut sums.rejected, MAX_LABELS, &[refused.code], 1),
            None if f.failed_at_provider() => {
                add(&mut sums.upstream_errors, MAX_DETAILED_LABELS, &[provider, &code], 1);
            }
            None => {}
        }
        let usage = f.usage.unwrap_or_default();
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        for (of, n) in [
            ("input", usage.input.saturating_sub(cached)),
            ("output", usage.output.saturating_sub(usage.reasoning)),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
            ("reasoning", usage.reasoning),
        ] {
            if n > 0 {
                add(&mut sums.tokens, MAX_DETAILED_LABELS, &[provider, model, of], n);
            }
        }
        match f.micros {
            Some(micros) => add(&mut sums.cost_micros, MAX_LABELS, &by_model, micros),
            None if usage.total() > 0 => add(&mut sums.unpriced_tokens, MAX_LABELS, &by_model, usage.total()),
            None => {}
        }
        if let Some((usage, micros)) = f.saved {
            add(&mut sums.saved_tokens, MAX_LABELS, &by_model, usage.total());
            add(&mut sums.saved_micros, MAX_LABELS, &by_model, micros.unwrap_or_default());
        }
    }

    pub fn stats(&self) -> LlmStats {
        let in_flight = u64::try_from(self.active.load(Relaxed)).unwrap_or_default();
        LlmStats { in_flight, ..self.sums.lock().clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_their_bucket_up_to_a_limit_of_labels() {
        let mut all = LabeledValues::<DurationHistogram>::new();
        for micros in [50_000, 400_000, 700_000_000] {
            bounded(&mut all, 1, &["openai"]).add(&REQUEST_BOUNDS, micros);
        }
        bounded(&mut all, 1, &["too many"]).add(&REQUEST_BOUNDS, 1);
        let openai = all[&vec!["openai".to_owned()]];
        assert_eq!((openai.counts[0], openai.counts[3], openai.counts[14], openai.micros), (1, 1, 1, 700_450_000));
        assert_eq!(all[&vec!["other".to_owned()]].counts[0], 1);
    }

    #[test]
    fn sums_stay_at_their_maximum() {
        let mut sums = LabeledValues::new();
        for n in [u64::MAX - 1, 1, 5] {
            add(&mut sums, 1, &["openai"], n);
        }
        assert_eq!(sums[&vec!["openai".to_owned()]], u64::MAX);
    }

    #[test]
    fn so_many_models_are_counted_by_name_and_made_up_ones_leave_room() {
        let models = KnownModels::default();
        let named = |good: bool| {
            let labels = (0..MAX_MODELS * 2).map(|i| format!("{good}-{i}"));
            labels.filter(|name| models.label("openai", name, good) != "other").count()
        };
        assert_eq!(named(false), MAX_MODELS / 2);
        assert_eq!(named(true), MAX_MODELS / 2);
        assert_eq!(models.label("openai", "true-0", false), "true-0", "a failure of a known model");
        assert_eq!(KnownModels::default().label("openai", &"m".repeat(MAX_MODEL_NAME + 1), true), "other");
    }
}
