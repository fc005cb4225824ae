//! Spans by OpenTelemetry's GenAI conventions, exported over OTLP/HTTP with JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use interflow_llm::{Operation, Provider};
use interflow_types::{Body, ByteStr, Flow, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::content::{SpanContent, may_queue};
use super::otel_env::{Endpoint, ExportSettings, Sampler};
use super::{AttributeSet, CallTelemetry, ContentMode, TelemetryConfig, span_content};
use crate::redaction::SESSION_HEADERS;
use interflow_llm::otlp::{self, boolean, list, name, number, real, text};

/// Bound on queued spans.
const MAX_QUEUED_SPANS: usize = 4_096;
/// Size at which a request to the collector is full, about.
const MAX_REQUEST_BYTES: usize = 2 << 20;

/// A flow's trace context.
#[derive(Clone, Debug)]
pub struct TraceContext {
    trace: String,
    span: String,
    parent: Option<String>,
    sampled: bool,
    /// The client's id of the conversation, if its header has one.
    session: Option<String>,
}

impl TraceContext {
    /// Continues the client's trace or begins one, and propagates it to the provider (W3C Trace Context).
    pub(super) fn from_request(flow: &Flow, head: &mut RequestHead, sampler: Sampler) -> Self {
        let id = flow.id.to_u128();
        let span = format!("{:016x}", (id as u64) ^ (id >> 64) as u64);
        let (trace, parent, decided) = match head.headers.get_str("traceparent").and_then(parse_traceparent) {
            Some((trace, parent, sampled)) => (trace, Some(parent), Some(sampled)),
            None => (format!("{id:032x}"), None, None),
        };
        let sampled = sampler.samples(&trace, decided);
        let session = SESSION_HEADERS.iter().find_map(|name| head.headers.get_str(name)).map(str::to_owned);
        let told = format!("00-{trace}-{span}-{:02x}", u8::from(sampled));
        // Hexadecimal digits and dashes are valid in a header.
        let _ = head.headers.set("traceparent", told);
        Self { trace, span, parent, sampled, session }
    }

    pub(super) const fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub(super) fn id(&self) -> &str {
        &self.trace
    }
}

/// Trace id, parent span id, and whether the parent is sampled.
fn parse_traceparent(text: &str) -> Option<(String, String, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |s: &str, n: usize| {
        s.len() == n
            && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            && s.bytes().any(|b| b != b'0')
    };
    let fits = version.len() == 2 && version != "ff" && hex(trace, 32) && hex(parent, 16);
    let flags = parts.next().and_then(|f| u8::from_str_radix(f, 16).ok()).unwrap_or_default();
    fits.then(|| (trace.to_owned(), parent.to_owned(), flags & 1 == 1))
}

pub(super) struct SpanExporter {
    url: Url,
    headers: Headers,
    resource: Vec<Value>,
    sampler: Sampler,
    interval: Duration,
    egress: Arc<dyn HttpClient>,
    waiting: Mutex<SpanQueue>,
    dropped: AtomicU64,
    dropped_contents: AtomicU64,
    sets: Vec<AttributeSet>,
    max_content: usize,
    failing: AtomicBool,
    /// How long an answer is awaited, and the pause before the only retry.
    timeout: Duration,
    retry_pause: Duration,
}

/// Spans that wait, and a count of those and of the ones that are being sent: a collector that does not answer must not
/// take more memory than one that was never asked.
#[derive(Default)]
struct SpanQueue {
    spans: Vec<(Value, Option<SpanContent>)>,
    count: usize,
    /// Of their contents.
    bytes: usize,
    /// Whether a task sends them. There is one at most.
    has_sender: bool,
}

/// The task that sends. If it is dropped, with the runtime of its worker, the next span begins another.
struct SenderTask {
    exporter: Arc<SpanExporter>,
    is_over: bool,
}

impl SenderTask {
    /// Sends until nothing waits.
    async fn run(mut self) {
        while !self.is_over {
            tokio::time::sleep(self.exporter.interval).await;
            self.exporter.send().await;
            // Under one lock, so that no span is left without a sender.
            let mut waiting = self.exporter.waiting.lock();
            self.is_over = waiting.spans.is_empty();
            waiting.has_sender = !self.is_over;
        }
    }
}

impl Drop for SenderTask {
    fn drop(&mut self) {
        if !self.is_over {
            self.exporter.waiting.lock().has_sender = false;
        }
    }
}

/// Spans that are counted in the queue until they are sent, or dropped.
struct InFlightSpans<'e> {
    exporter: &'e SpanExporter,
    count: usize,
    bytes: usize,
}

impl Drop for InFlightSpans<'_> {
    fn drop(&mut self) {
        let mut waiting = self.exporter.waiting.lock();
        waiting.count = waiting.count.saturating_sub(self.count);
        waiting.bytes = waiting.bytes.saturating_sub(self.bytes);
    }
}

/// How long an answer of the collector is awaited.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before the only retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl SpanExporter {
    /// # Errors
    /// An invalid address or header.
    pub fn new(
        settings: &ExportSettings,
        config: &TelemetryConfig,
        egress: Arc<dyn HttpClient>,
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
        headers.append_unchecked(b"Content-Type", b"application/json");
        for (name, value) in &settings.headers {
            headers.append(name, value).map_err(|e| format!("the header {name} for {place}: {e}"))?;
        }
        Ok(Arc::new(Self {
            url: Url { scheme, authority, path: ByteStr::from(path) },
            headers,
            resource: settings.resource.iter().map(|(name, value)| text(name, value)).collect(),
            sampler: settings.sampler,
            interval: settings.interval,
            egress,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
            dropped_contents: AtomicU64::new(0),
            sets: config.attributes.clone(),
            max_content: usize::try_from(config.max_content.0).unwrap_or(usize::MAX),
            failing: AtomicBool::new(false),
            timeout: COLLECTOR_TIMEOUT,
            retry_pause: RETRY_PAUSE,
        }))
    }

    pub fn sampler(&self) -> Sampler {
        self.sampler
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub fn dropped_contents(&self) -> u64 {
        self.dropped_contents.load(Relaxed)
    }

    /// Queues a span; a batch is sent after the interval.
    pub fn add(self: &Arc<Self>, facts: &CallTelemetry<'_>, trace: &TraceContext) {
        if !trace.sampled {
            return;
        }
        let span = build_span(facts, trace, &self.sets);
        self.enqueue(span, SpanContent::take(facts.flow, facts.status()));
    }

    fn enqueue(self: &Arc<Self>, span: Value, mut content: Option<SpanContent>) {
        let runtime = tokio::runtime::Handle::try_current();
        let needs_sender = {
            let mut waiting = self.waiting.lock();
            if waiting.count >= MAX_QUEUED_SPANS {
                self.dropped.fetch_add(1, Relaxed);
                return;
            }
            let size = content.as_ref().map_or(0, SpanContent::size);
            match may_queue(waiting.bytes, size) {
                true => waiting.bytes += size,
                false => {
                    content = None;
                    self.dropped_contents.fetch_add(1, Relaxed);
                }
            }
            waiting.spans.push((span, content));
            waiting.count += 1;
            runtime.is_ok() && !std::mem::replace(&mut waiting.has_sender, runtime.is_ok())
        };
        if needs_sender && let Ok(runtime) = runtime {
            runtime.spawn(SenderTask { exporter: Arc::clone(self), is_over: false }.run());
        }
    }

    /// Sends what waits, in requests of a bounded size. Texts are made of contents here, and not on a worker.
    async fn send(&self) {
        let left = std::mem::take(&mut self.waiting.lock().spans);
        // What is left is counted, too, if this future is dropped.
        let bytes_of = |content: &Option<SpanContent>| content.as_ref().map_or(0, SpanContent::size);
        let mut left: std::collections::VecDeque<_> = left
            .into_iter()
            .map(|(span, content)| {
                let counted = InFlightSpans { exporter: self, count: 1, bytes: bytes_of(&content) };
                (span, content, counted)
            })
            .collect();
        while !left.is_empty() {
            let (mut spans, mut size, mut in_flight) = (Vec::new(), 0, Vec::new());
            while size < MAX_REQUEST_BYTES
                && let Some((span, content, counted)) = left.pop_front()
            {
                in_flight.push(counted);
                let (sets, max) = (self.sets.clone(), self.max_content);
                let written = match content {
                    None => Ok((span, 1_000)),
                    Some(content) => tokio::task::spawn_blocking(move || with_content(span, content, &sets, max)).await,
                };
                let Ok((span, bytes)) = written else {
                    self.dropped.fetch_add(1, Relaxed);
                    continue;
                };
                size += bytes;
                spans.push(span);
            }
            self.post(spans).await;
        }
    }

    async fn post(&self, spans: Vec<Value>) {
        let count = spans.len() as u64;
        let body = otlp::request(self.resource.clone(), "interflow", spans);
        let head = RequestHead {
            method: Method::POST,
            url: self.url.clone(),
            version: HttpVersion::Http11,
            headers: self.headers.clone(),
            protocol: None,
        };
        let body = bytes::Bytes::from(body.to_string());
        let mut result = self.post_once(&head, &body).await;
        if let Err((_, true)) = result {
            tokio::time::sleep(self.retry_pause).await;
            result = self.post_once(&head, &body).await;
        }
        if let Err((why, _)) = result {
            self.dropped.fetch_add(count, Relaxed);
            if !self.failing.swap(true, Relaxed) {
                tracing::warn!("telemetry: the collector {} does not accept spans: {why}", self.url);
            }
        } else if self.failing.swap(false, Relaxed) {
            tracing::info!("telemetry: the collector accepts spans again");
        }
    }
}

impl SpanExporter {
    /// The error says what is wrong, and whether another attempt may succeed.
    async fn post_once(&self, head: &RequestHead, body: &bytes::Bytes) -> Result<(), (String, bool)> {
        let request = Request { head: head.clone(), body: Body::from(body.clone()) };
        match tokio::time::timeout(self.timeout, self.egress.send(request)).await {
            Ok(Ok(answer)) if answer.head.status.is_success() => Ok(()),
            Ok(Ok(answer)) => {
                // Those of the OTLP specification.
                let may_retry = matches!(answer.head.status.as_u16(), 429 | 502 | 503 | 504);
                Err((format!("it answered {}", answer.head.status), may_retry))
            }
            Ok(Err(e)) => Err((e.to_string(), true)),
            Err(_) => Err((format!("no response within {} s", self.timeout.as_secs()), true)),
        }
    }
}

/// A span with the attributes of its content, and its size, about.
fn with_content(mut span: Value, content: SpanContent, sets: &[AttributeSet], max: usize) -> (Value, usize) {
    let attributes = span_content::attributes(content, sets, max);
    if let Some(all) = span["attributes"].as_array_mut() {
        all.extend(attributes);
    }
    let size = span.to_string().len();
    (span, size)
}

fn build_span(f: &CallTelemetry<'_>, trace: &TraceContext, sets: &[AttributeSet]) -> Value {
    let operation = operation_name(f.exchange.operation, f.exchange.provider);
    let includes = |of: AttributeSet| of == AttributeSet::GenAi || sets.contains(&of);
    let attributes: Vec<Value> = SPAN_ATTRIBUTES
        .iter()
        .filter(|attribute| includes(attribute.set))
        .filter_map(|attribute| match (attribute.value)(f)? {
            AttributeValue::Text(value) => Some(text(attribute.name, &value)),
            AttributeValue::Number(value) => Some(number(attribute.name, value)),
            AttributeValue::Real(value) => Some(real(attribute.name, value)),
            AttributeValue::Flag(value) => Some(boolean(attribute.name, value)),
            AttributeValue::List(values) => Some(list(attribute.name, &values)),
        })
        .collect();
    let start = f.flow.clock.started_at().micros();
    let end = start + f.flow.timings.done.unwrap_or_default();
    let failed = f.error().is_some() || f.status() >= 400;
    json!({
        "traceId": trace.trace,
        "spanId": trace.span,
        "parentSpanId": trace.parent.as_deref().unwrap_or_default(),
        "name": format!("{operation} {}", f.exchange.model.as_deref().unwrap_or_default()).trim_end(),
        "kind": 3,
        "startTimeUnixNano": format!("{start}000"),
        "endTimeUnixNano": format!("{end}000"),
        "attributes": attributes,
        "status": { "code": if failed { 2 } else { 1 } }
    })
}

/// An attribute of the span of a call.
pub struct SpanAttribute {
    pub name: &'static str,
    /// What it is, as a phrase in Markdown.
    pub doc: &'static str,
    /// Spans have those of `gen_ai` always, and others if `telemetry.attributes` names their set.
    pub set: AttributeSet,
    value: fn(&CallTelemetry<'_>) -> Option<AttributeValue>,
}

impl std::fmt::Debug for SpanAttribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

enum AttributeValue {
    Text(String),
    Number(u64),
    Real(f64),
    Flag(bool),
    List(Vec<String>),
}

const fn attribute(
    name: &'static str,
    doc: &'static str,
    value: fn(&CallTelemetry<'_>) -> Option<AttributeValue>,
) -> SpanAttribute {
    SpanAttribute { name, doc, set: AttributeSet::GenAi, value }
}

impl SpanAttribute {
    const fn of(self, set: AttributeSet) -> Self {
        Self { set, ..self }
    }
}

fn tags(f: &CallTelemetry<'_>) -> Option<AttributeValue> {
    let tags: Vec<String> = f.flow.tags.iter().take(32).map(|tag| str::to_owned(tag)).collect();
    (!tags.is_empty()).then_some(AttributeValue::List(tags))
}

fn session(f: &CallTelemetry<'_>) -> Option<AttributeValue> {
    f.trace?.session.as_deref().map(as_text)
}

fn dollars(f: &CallTelemetry<'_>) -> Option<f64> {
    f.micros.map(|micros| micros as f64 / 1e6)
}

fn total(f: &CallTelemetry<'_>) -> Option<AttributeValue> {
    f.usage.map(|u| AttributeValue::Number(u.total()))
}

/// Usage with the names of Langfuse, in which no token is counted twice.
fn usage_details(f: &CallTelemetry<'_>) -> Option<AttributeValue> {
    let u = f.usage?;
    let details = json!({
        "input": u.input.saturating_sub(u.cache_read).saturating_sub(u.cache_write),
        "input_cache_read": u.cache_read,
        "input_cache_creation": u.cache_write,
        "output": u.output.saturating_sub(u.reasoning),
        "output_reasoning": u.reasoning,
        "total": u.total(),
    });
    Some(as_text(details.to_string()))
}

const fn span_kind(operation: Operation) -> &'static str {
    match operation {
        Operation::Embeddings => "EMBEDDING",
        Operation::Rerank => "RERANKER",
        _ => "LLM",
    }
}

fn as_text(value: impl AsRef<str>) -> AttributeValue {
    AttributeValue::Text(value.as_ref().to_owned())
}

/// The attributes of a span; those without a value are left out.
#[rustfmt::skip]
pub const SPAN_ATTRIBUTES: &[SpanAttribute] = &[
    attribute(name::OPERATION, "operation, such as `chat`", |f| Some(as_text(operation_name(f.exchange.operation, f.exchange.provider)))),
    attribute(name::PROVIDER, "provider, by the conventions' names", |f| Some(as_text(provider_name(f.exchange.provider)))),
    attribute("server.address", "host of the provider", |f| Some(as_text(f.flow.authority.host.to_string()))),
    attribute("server.port", "port of the provider", |f| Some(AttributeValue::Number(f.flow.authority.port.into()))),
    attribute("interflow.flow", "id of the flow", |f| Some(as_text(f.flow.id.to_string()))),
    attribute(name::REQUEST_MODEL, "model that the client asked for", |f| f.exchange.model.as_deref().map(as_text)),
    attribute(name::RESPONSE_MODEL, "model that answered", |f| f.exchange.summary().model.as_deref().map(as_text)),
    attribute(name::RESPONSE_ID, "id of the response", |f| f.exchange.summary().id.as_deref().map(as_text)),
    attribute("interflow.key", "id of the virtual key", |f| f.key.map(as_text)),
    attribute("error.type", "[code or kind](errors.md) of the error or refusal", |f| f.error().map(|e| as_text(e.1))),
    attribute(name::MAX_TOKENS, "limit of output tokens in the request", |f| f.exchange.max_output.map(AttributeValue::Number)),
    attribute(name::INPUT, "tokens of the prompt", |f| f.usage.map(|u| AttributeValue::Number(u.input))),
    attribute(name::OUTPUT, "tokens of the answer", |f| f.usage.map(|u| AttributeValue::Number(u.output))),
    attribute(name::CACHE_READ, "tokens read from the provider's cache", |f| f.usage.map(|u| AttributeValue::Number(u.cache_read))),
    attribute(name::CACHE_WRITE, "tokens written to the provider's cache", |f| f.usage.map(|u| AttributeValue::Number(u.cache_write))),
    attribute(name::REASONING, "tokens of the answer that are reasoning", |f| f.usage.filter(|u| u.reasoning > 0).map(|u| AttributeValue::Number(u.reasoning))),
    attribute(name::STREAM, "whether the client asked for a stream", |f| f.exchange.stream.then_some(AttributeValue::Flag(true))),
    attribute(name::FIRST_CHUNK, "seconds until the first text of a stream", |f| f.exchange.first_token.get().map(|us| AttributeValue::Real(*us as f64 / 1e6))),
    attribute(name::CONVERSATION, "the client's id of the conversation, from its session header", session),
    attribute("user.id", "the authenticated user", |f| f.flow.user.as_deref().map(as_text)),
    attribute("interflow.cost_usd", "cost in US dollars, if the price is known", |f| dollars(f).map(AttributeValue::Real)),
    attribute("interflow.tags", "tags of the flow, such as `cache:hit`", tags),
    attribute("interflow.entities", "findings in request and response", |f| f.found.map(|found| AttributeValue::Number(found.request.values().chain(found.response.values()).sum()))),
    attribute("http.response.status_code", "status of the response", |f| f.flow.status.map(|s| AttributeValue::Number(s.as_u16().into()))),
    attribute("openinference.span.kind", "`LLM`, `EMBEDDING` or `RERANKER`", |f| Some(as_text(span_kind(f.exchange.operation)))).of(AttributeSet::OpenInference),
    attribute("llm.system", "API of the provider", |f| Some(as_text(f.exchange.provider.as_str()))).of(AttributeSet::OpenInference),
    attribute("llm.provider", "the gateway's name of the provider", |f| Some(as_text(f.provider()))).of(AttributeSet::OpenInference),
    attribute("llm.model_name", "model that answered, else the one asked for", |f| f.exchange.summary().model.or_else(|| f.exchange.model.clone()).as_deref().map(as_text)).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt", "tokens of the prompt", |f| f.usage.map(|u| AttributeValue::Number(u.input))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.completion", "tokens of the answer", |f| f.usage.map(|u| AttributeValue::Number(u.output))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.total", "both", total).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt_details.cache_read", "tokens read from the provider's cache", |f| f.usage.map(|u| AttributeValue::Number(u.cache_read))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt_details.cache_write", "tokens written to it", |f| f.usage.map(|u| AttributeValue::Number(u.cache_write))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.completion_details.reasoning", "tokens of the answer that are reasoning", |f| f.usage.map(|u| AttributeValue::Number(u.reasoning))).of(AttributeSet::OpenInference),
    attribute("llm.cost.total", "cost in US dollars", |f| dollars(f).map(AttributeValue::Real)).of(AttributeSet::OpenInference),
    attribute("session.id", "the client's id of the conversation", session).of(AttributeSet::OpenInference),
    attribute("tag.tags", "tags of the flow", tags).of(AttributeSet::OpenInference),
    attribute("langfuse.observation.type", "`generation` or `embedding`", |f| Some(as_text(if f.exchange.operation == Operation::Embeddings { "embedding" } else { "generation" }))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.model.name", "model that answered, else the one asked for", |f| f.exchange.summary().model.or_else(|| f.exchange.model.clone()).as_deref().map(as_text)).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.usage_details", "tokens, as JSON", usage_details).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.cost_details", "cost in US dollars, as JSON", |f| dollars(f).map(|cost| as_text(json!({"total": cost}).to_string()))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.level", "`ERROR` if it failed", |f| f.error().map(|_| as_text("ERROR"))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.status_message", "[code or kind](errors.md) of the error", |f| f.error().map(|e| as_text(e.1))).of(AttributeSet::Langfuse),
    attribute("langfuse.session.id", "the client's id of the conversation", session).of(AttributeSet::Langfuse),
    attribute("langfuse.user.id", "the authenticated user", |f| f.flow.user.as_deref().map(as_text)).of(AttributeSet::Langfuse),
    attribute("langfuse.trace.tags", "tags of the flow", tags).of(AttributeSet::Langfuse),
];

const fn operation_name(operation: Operation, provider: Provider) -> &'static str {
    match (operation, provider) {
        (Operation::Chat, Provider::Gemini | Provider::Vertex) => "generate_content",
        (Operation::Chat | Operation::Responses | Operation::Realtime, _) => "chat",
        (Operation::Completions, _) => "text_completion",
        (other, _) => other.as_str(),
    }
}

const fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::Azure => "azure.ai.openai",
        Provider::Gemini => "gcp.gemini",
        Provider::Vertex => "gcp.vertex_ai",
        Provider::Bedrock => "aws.bedrock",
        Provider::Mistral => "mistral_ai",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use interflow_types::{Response, ResponseFuture, StatusCode};

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

    fn exporter(collector: &Arc<Collector>) -> Arc<SpanExporter> {
        let url = Url::of_service("http://collector.test/v1/traces").unwrap();
        Arc::new(SpanExporter {
            url,
            headers: Headers::new(),
            resource: Vec::new(),
            sampler: Sampler::default(),
            interval: Duration::from_millis(5),
            egress: Arc::<Collector>::clone(collector),
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
            dropped_contents: AtomicU64::new(0),
            sets: Vec::new(),
            max_content: 1_000,
            failing: AtomicBool::new(false),
            timeout: Duration::from_millis(50),
            retry_pause: Duration::from_millis(5),
        })
    }

    /// Waits until nothing is sent any more.
    async fn settle(exporter: &SpanExporter) {
        while exporter.waiting.lock().has_sender {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn content(bytes: usize) -> Option<SpanContent> {
        let body = Some((Headers::new(), bytes::Bytes::from(vec![b'x'; bytes])));
        Some(SpanContent {
            path: "/v1/chat/completions".into(),
            status: 200,
            request: body.map(|(_, body)| body),
            response: None,
        })
    }

    #[tokio::test]
    async fn a_collector_that_hangs_is_asked_once_at_a_time_and_holds_bounded_memory() {
        let collector = Arc::new(Collector::default());
        let exporter = exporter(&collector);
        for _ in 0..10 {
            for _ in 0..16 {
                exporter.enqueue(json!({ "attributes": [] }), content(1 << 20));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            let held = exporter.waiting.lock().bytes;
            assert!(held <= 64 << 20, "{held}");
        }
        assert_eq!(collector.most.load(Relaxed), 1);
        assert!(exporter.dropped_contents() > 0);
        // What is in flight is counted until it is given up, and then no longer.
        settle(&exporter).await;
        let waiting = exporter.waiting.lock();
        assert_eq!((waiting.count, waiting.bytes, waiting.has_sender), (0, 0, false));
        assert_eq!(exporter.dropped(), 160);
    }

    #[tokio::test]
    async fn spans_are_sent_again_once_if_that_may_help() {
        for (statuses, requests, dropped) in [(vec![200, 503], 2, 0), (vec![503, 503], 2, 1), (vec![200, 400], 1, 1)] {
            let collector = Arc::new(Collector { statuses: Mutex::new(statuses), ..Collector::default() });
            let exporter = exporter(&collector);
            exporter.enqueue(json!({}), None);
            settle(&exporter).await;
            assert_eq!((collector.requests.load(Relaxed), exporter.dropped()), (requests, dropped));
        }
    }

    #[test]
    fn well_formed_client_trace_context_is_continued() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, sampled) = parse_traceparent(good).unwrap();
        assert_eq!((trace.as_str(), parent.as_str()), ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"));
        assert!(sampled && !parse_traceparent(&good.replace("-01", "-00")).unwrap().2);
        for bad in [
            "",
            "00-4bf92f-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }
}
