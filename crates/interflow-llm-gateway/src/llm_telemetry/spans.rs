//! Spans by OpenTelemetry's GenAI conventions, exported over OTLP/HTTP with JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use interflow_llm::{Operation, Provider};
use interflow_types::{
    Authority, Body, ByteStr, Flow, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Scheme, Url,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::RequestRecord;
use super::otel_env::{Endpoint, ExportSettings, Sampler};
use interflow_llm::otlp::{self, name, number, text};

/// Bound on queued spans.
const MAX_QUEUED_SPANS: usize = 4_096;

/// A flow's trace context.
#[derive(Clone, Debug)]
pub struct TraceContext {
    trace: String,
    span: String,
    parent: Option<String>,
    sampled: bool,
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
        let told = format!("00-{trace}-{span}-{:02x}", u8::from(sampled));
        // Hexadecimal digits and dashes are valid in a header.
        let _ = head.headers.set("traceparent", told);
        Self { trace, span, parent, sampled }
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
    waiting: Mutex<Vec<Value>>,
    dropped: AtomicU64,
    failing: AtomicBool,
}

impl SpanExporter {
    /// # Errors
    /// An invalid address or header.
    pub fn new(settings: &ExportSettings, egress: Arc<dyn HttpClient>) -> Result<Arc<Self>, String> {
        let Endpoint { place, url: endpoint, exact } = &settings.endpoint;
        let wrong = |why: &str| format!("{place}: `{endpoint}`: {why}; write it as http://host:4318");
        let (scheme, rest) = endpoint.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let scheme = Scheme::parse(scheme).ok_or_else(|| wrong("its scheme is neither http nor https"))?;
        let (authority, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let authority = Authority::parse(authority, Some(scheme.default_port())).map_err(|e| wrong(&e.to_string()))?;
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
            failing: AtomicBool::new(false),
        }))
    }

    pub fn sampler(&self) -> Sampler {
        self.sampler
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Queues a span; a batch is sent after the interval.
    pub fn add(self: &Arc<Self>, facts: &RequestRecord<'_>, trace: &TraceContext) {
        if !trace.sampled {
            return;
        }
        let span = build_span(facts, trace);
        let first = {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= MAX_QUEUED_SPANS {
                self.dropped.fetch_add(1, Relaxed);
                return;
            }
            waiting.push(span);
            waiting.len() == 1
        };
        if first && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let exporter = Arc::clone(self);
            runtime.spawn(async move {
                tokio::time::sleep(exporter.interval).await;
                exporter.send().await;
            });
        }
    }

    async fn send(&self) {
        let spans = std::mem::take(&mut *self.waiting.lock());
        let count = spans.len() as u64;
        let body = otlp::request(self.resource.clone(), "interflow", spans);
        let head = RequestHead {
            method: Method::POST,
            url: self.url.clone(),
            version: HttpVersion::Http11,
            headers: self.headers.clone(),
            protocol: None,
        };
        let request = Request { head, body: Body::from(bytes::Bytes::from(body.to_string())) };
        let sent = tokio::time::timeout(Duration::from_secs(10), self.egress.send(request)).await;
        let failed = match sent {
            Ok(Ok(answer)) if answer.head.status.is_success() => None,
            Ok(Ok(answer)) => Some(format!("it answered {}", answer.head.status)),
            Ok(Err(e)) => Some(e.to_string()),
            Err(_) => Some("no response within 10s".into()),
        };
        if let Some(why) = failed {
            self.dropped.fetch_add(count, Relaxed);
            if !self.failing.swap(true, Relaxed) {
                tracing::warn!("telemetry: the collector {} does not accept spans: {why}", self.url);
            }
        } else if self.failing.swap(false, Relaxed) {
            tracing::info!("telemetry: the collector accepts spans again");
        }
    }
}

fn build_span(f: &RequestRecord<'_>, trace: &TraceContext) -> Value {
    let operation = operation_name(f.exchange.operation, f.exchange.provider);
    let attributes: Vec<Value> = SPAN_ATTRIBUTES
        .iter()
        .filter_map(|attribute| match (attribute.value)(f)? {
            AttributeValue::Text(value) => Some(text(attribute.name, &value)),
            AttributeValue::Number(value) => Some(number(attribute.name, value)),
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
    value: fn(&RequestRecord<'_>) -> Option<AttributeValue>,
}

impl std::fmt::Debug for SpanAttribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

enum AttributeValue {
    Text(String),
    Number(u64),
}

const fn attribute(
    name: &'static str,
    doc: &'static str,
    value: fn(&RequestRecord<'_>) -> Option<AttributeValue>,
) -> SpanAttribute {
    SpanAttribute { name, doc, value }
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
    attribute("interflow.entities", "findings in request and response", |f| f.found.map(|found| AttributeValue::Number(found.request.values().chain(found.response.values()).sum()))),
    attribute("http.response.status_code", "status of the response", |f| f.flow.status.map(|s| AttributeValue::Number(s.as_u16().into()))),
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
    use super::*;

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
