//! Spans that are exported over OTLP/HTTP with JSON: queued within bounds, with their texts written in the background.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use interflow_llm::otlp::{self, attribute};
use interflow_tasks::{HttpPost, HttpSink, PostFormat, PostMessage, PostPolicy, SinkCounts, SinkQueue};
use interflow_types::budget::{MemoryBudget, MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Attempts, ByteStr, Headers, HttpClient, Url};
use serde_json::Value;

use super::content::SpanContent;
use super::otel_env::{Endpoint, ExportSettings, Sampler};
use super::spans::{TraceContext, build_span};
use super::{AttributeSet, CallTelemetry, ContentMode, TelemetryConfig, attempt_spans, span_content};

/// Bound on queued spans.
const MAX_QUEUED_SPANS: usize = 4_096;
/// Size at which a request to the collector is full, about.
const MAX_REQUEST_BYTES: usize = 2 << 20;

const POLICY: PostPolicy = PostPolicy {
    timeout: Duration::from_secs(10),
    attempts: 2,
    first_pause: Duration::from_secs(1),
    // Those of the OTLP specification.
    may_retry: |status| matches!(status.as_u16(), 429 | 502 | 503 | 504),
};

/// Bytes that all spans in the queue may hold of contents.
static QUEUED_CONTENTS: MemoryBudget = MemoryBudget::new(64 << 20);

pub(super) struct SpanExporter {
    queue: Arc<SinkQueue<HttpSink<SpanBatch>>>,
    sampler: Sampler,
    counts: SpanCounts,
}

/// What became of spans, over all exporters.
#[derive(Clone, Default)]
pub(super) struct SpanCounts {
    pub queue: Arc<SinkCounts>,
    /// Spans that were exported without their content.
    pub contents: Arc<AtomicU64>,
}

/// A span whose texts are not written yet.
struct QueuedSpan {
    span: Value,
    content: Option<(SpanContent, MemoryReservation)>,
}

/// Makes requests to the collector of spans.
struct SpanBatch {
    resource: Vec<Value>,
    sets: Vec<AttributeSet>,
    max_content: usize,
}

impl SpanExporter {
    /// # Errors
    /// An invalid address or header.
    pub fn new(
        settings: &ExportSettings,
        config: &TelemetryConfig,
        client: Arc<dyn HttpClient>,
        counts: SpanCounts,
    ) -> Result<Arc<Self>, String> {
        if config.content == ContentMode::Full {
            tracing::warn!(
                "telemetry.content = \"full\": spans hold prompts and responses with personal data and secrets; \"redacted\" exports what providers get"
            );
        }
        let Endpoint { place, url: endpoint, exact } = &settings.endpoint;
        let wrong = |why: &str| format!("{place}: `{endpoint}`: {why}; write it as http://host:4318");
        let (scheme, authority, base) = Url::split_service(endpoint).map_err(|e| wrong(&e.to_string()))?;
        let base = if *exact { base } else { base.trim_end_matches('/') };
        let path = if *exact {
            if base.is_empty() { "/".to_owned() } else { base.to_owned() }
        } else if base.ends_with("/v1/traces") {
            base.to_owned()
        } else {
            format!("{base}/v1/traces")
        };
        let mut headers = Headers::new();
        for (name, value) in &settings.headers {
            headers.append(name, value).map_err(|e| format!("the header {name} for {place}: {e}"))?;
        }
        let url = Url { scheme, authority, path: ByteStr::from(path) };
        let format = SpanBatch {
            resource: settings.resource.iter().map(|(name, value)| attribute(name, value.as_str())).collect(),
            sets: config.attributes.clone(),
            max_content: usize::try_from(config.max_content.0).unwrap_or(usize::MAX),
        };
        let post = HttpPost::new("telemetry", url, headers, POLICY);
        let sink = HttpSink { format: Arc::new(format), post, client, interval: settings.interval };
        Ok(Arc::new(Self::with_sink(sink, settings.sampler, counts)))
    }

    fn with_sink(sink: HttpSink<SpanBatch>, sampler: Sampler, counts: SpanCounts) -> Self {
        Self { queue: SinkQueue::new(sink, MAX_QUEUED_SPANS, Arc::clone(&counts.queue)), sampler, counts }
    }

    pub const fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// Queues a span; a batch is sent after the interval.
    pub fn add(&self, record: &CallTelemetry<'_>, trace: &TraceContext) {
        if trace.is_sampled() {
            let span = build_span(record, trace, &self.queue.sink().format.sets);
            self.enqueue(span, SpanContent::take(record.flow, record.status()));
            if let Some(attempts) = record.flow.extension::<Attempts>() {
                let start = record.flow.clock.started_at().micros();
                let spans = attempt_spans::spans(&attempts.list(), &trace.trace, &trace.span, start);
                spans.into_iter().for_each(|span| self.enqueue(span, None));
            }
        }
    }

    fn enqueue(&self, span: Value, content: Option<SpanContent>) {
        let has_content = content.is_some();
        let content = content.and_then(|content| reserve(content.size()).map(|reservation| (content, reservation)));
        let is_content_dropped = has_content && content.is_none();
        if self.queue.push(QueuedSpan { span, content }) && is_content_dropped {
            self.counts.contents.fetch_add(1, Relaxed);
        }
    }
}

/// `None` if too much waits already.
fn reserve(bytes: usize) -> Option<MemoryReservation> {
    let (bytes, process_limit) = (bytes as u64, PROCESS_BUDGET.limit());
    let fits = process_limit == 0 || QUEUED_CONTENTS.reserved() + bytes <= process_limit / 4;
    fits.then(|| QUEUED_CONTENTS.reserve(bytes).ok()).flatten()
}

impl PostFormat for SpanBatch {
    type Item = QueuedSpan;

    fn message(&self, waiting: &mut VecDeque<QueuedSpan>) -> PostMessage {
        let (mut spans, mut size) = (Vec::new(), 0);
        while size < MAX_REQUEST_BYTES
            && let Some(QueuedSpan { mut span, content }) = waiting.pop_front()
        {
            if let (Some((content, _reservation)), Some(all)) = (content, span["attributes"].as_array_mut()) {
                all.extend(span_content::attributes(content, &self.sets, self.max_content));
                size += span.to_string().len();
            } else {
                size += 1_000;
            }
            spans.push(span);
        }
        let body = otlp::request(self.resource.clone(), "interflow", spans);
        PostMessage { id: String::new(), body: body.to_string().into() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use interflow_types::{Request, Response, ResponseFuture, StatusCode};
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// A collector that does not answer, or answers with these statuses in turn.
    #[derive(Default)]
    struct Collector {
        statuses: Mutex<Vec<u16>>,
        in_progress: AtomicUsize,
        most: AtomicUsize,
        requests: AtomicUsize,
    }

    impl HttpClient for Collector {
        fn send(&self, _: Request) -> ResponseFuture<'_> {
            Box::pin(async move {
                self.requests.fetch_add(1, Relaxed);
                self.most.fetch_max(self.in_progress.fetch_add(1, Relaxed) + 1, Relaxed);
                let next = self.statuses.lock().pop();
                let status = match next {
                    Some(status) => StatusCode::from_u16(status).unwrap(),
                    None => {
                        // Dropped after the time limit.
                        let guard = Leaves(&self.in_progress);
                        std::future::pending::<()>().await;
                        drop(guard);
                        StatusCode::OK
                    }
                };
                self.in_progress.fetch_sub(1, Relaxed);
                Ok(Response::full(status, "application/json", "{}"))
            })
        }
    }

    struct Leaves<'c>(&'c AtomicUsize);

    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    fn exporter(collector: &Arc<Collector>) -> SpanExporter {
        let policy = PostPolicy { timeout: Duration::from_millis(50), first_pause: Duration::from_millis(5), ..POLICY };
        let url = Url::of_service("http://collector.test/v1/traces").unwrap();
        let sink = HttpSink {
            format: Arc::new(SpanBatch { resource: Vec::new(), sets: Vec::new(), max_content: 1_000 }),
            post: HttpPost::new("telemetry", url, Headers::new(), policy),
            client: Arc::<Collector>::clone(collector),
            interval: Duration::from_millis(5),
        };
        SpanExporter::with_sink(sink, Sampler::default(), SpanCounts::default())
    }

    /// Waits until nothing is sent any more.
    async fn settle(exporter: &SpanExporter) {
        while !exporter.queue.is_idle() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn content(bytes: usize) -> Option<SpanContent> {
        let request = Some(bytes::Bytes::from(vec![b'x'; bytes]));
        Some(SpanContent { path: "/v1/chat/completions".into(), status: 200, request, response: None })
    }

    #[tokio::test]
    async fn a_collector_that_hangs_is_asked_once_at_a_time_and_holds_bounded_memory() {
        let collector = Arc::new(Collector::default());
        let exporter = exporter(&collector);
        for _ in 0..2 {
            for _ in 0..80 {
                exporter.enqueue(json!({ "attributes": [] }), content(1 << 20));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            let held = QUEUED_CONTENTS.reserved();
            assert!(held <= 64 << 20, "{held}");
        }
        assert!(exporter.counts.contents.load(Relaxed) > 0);
        // What is in flight is counted until it is given up, and then no longer.
        settle(&exporter).await;
        assert_eq!(collector.most.load(Relaxed), 1);
        assert_eq!(QUEUED_CONTENTS.reserved(), 0);
        assert_eq!(exporter.counts.queue.dropped.load(Relaxed), 160);
    }

    #[tokio::test]
    async fn spans_are_sent_again_once_if_that_may_help() {
        for (statuses, requests, dropped) in [(vec![200, 503], 2, 0), (vec![503, 503], 2, 1), (vec![200, 400], 1, 1)] {
            let collector = Arc::new(Collector { statuses: Mutex::new(statuses), ..Collector::default() });
            let exporter = exporter(&collector);
            exporter.enqueue(json!({}), None);
            settle(&exporter).await;
            let counts = &exporter.counts.queue;
            assert_eq!((collector.requests.load(Relaxed), counts.dropped.load(Relaxed)), (requests, dropped));
        }
    }
}
