//! What is reported of a call, and what is not.

use std::fmt::Debug;

use interflow_limits::{NoRedis, QuotaConfig};
use interflow_llm::ResponseSummary;
use interflow_types::{ClientInfo, EntryKind, ErrorKind, Request, ResponseFuture, Scheme, StatusCode, Timestamp};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span;

use super::audit_fields::AuditLine;
use super::*;

fn flow() -> Flow {
    let (peer, accepted) = (std::net::SocketAddr::from(([127, 0, 0, 1], 1)), Timestamp::now());
    let (process, container) = (None, None);
    let client =
        ClientInfo { connection: 1, peer, local: peer, listener: "gateway".into(), accepted, process, container };
    Flow::begin(client.into(), EntryKind::Gateway, Scheme::Http, "a.test:80".parse().unwrap())
}

fn telemetry<'a>(flow: &'a Flow, exchange: &'a LlmCall, refused: Option<RefusalRecord>) -> CallTelemetry<'a> {
    let (usage, micros, saved, key, found, trace) = Default::default();
    CallTelemetry { flow, exchange, usage, micros, saved, key, found, refused, trace }
}

/// An audit line, a span with the attributes of all sets, and an event.
fn reports(call: &CallTelemetry<'_>) -> [Value; 3] {
    let line = AuditLine::new(call, 1);
    let line = AUDIT_FIELDS.iter().map(|field| (field.name.to_owned(), (field.value)(&line))).collect();
    let mut head = RequestHead {
        method: interflow_types::Method::POST,
        url: interflow_types::Url::of_service("http://a.test/").unwrap(),
        version: interflow_types::HttpVersion::Http11,
        headers: [("session_id", "s".repeat(100_000))].into_iter().collect(),
        protocol: None,
    };
    let trace = TraceContext::from_request(call.flow, &mut head, otel_env::Sampler::default());
    let call = CallTelemetry { trace: Some(&trace), ..*call };
    let sets = [AttributeSet::GenAi, AttributeSet::OpenInference, AttributeSet::Langfuse];
    [Value::Object(line), spans::build_span(&call, &trace, &sets), webhook::describe(&call)]
}

#[test]
fn reports_have_no_words_of_guardrails_and_names_of_bounded_length() {
    let mut flow = flow();
    flow.tag("guardrail-finding:shape/output/flagged/1.00//diagnosis: is not a string");
    (0..50).for_each(|n| flow.tag(format!("tag-{n}")));
    let call = LlmCall { model: Some("é".repeat(1 << 20).into()), ..LlmCall::default() };
    let name = || Some("ü".repeat(1 << 20).into());
    call.merge_summary(&ResponseSummary { model: name(), id: name(), ..ResponseSummary::default() });
    for report in reports(&telemetry(&flow, &call, None)) {
        let text = report.to_string();
        assert!(text.len() < 12_000 && !text.contains("diagnosis") && text.contains(&"é".repeat(128)), "{text}");
        assert!(!text.contains("tag-32"), "{text}");
    }
}

#[test]
fn provider_errors_are_failures_of_the_provider_and_clients_that_leave_are_not() {
    let refusal = RefusalRecord { kind: "forbidden", code: "denied" };
    for (status, kind, refused, error, event, failures) in [
        (200, None, None, None, "request.completed", 0),
        (429, None, None, Some(("provider_error", "429")), "request.failed", 1),
        (200, Some(ErrorKind::ClientGone), None, Some(("invalid_request", "client_gone")), "request.completed", 0),
        (0, Some(ErrorKind::ClientGone), None, Some(("invalid_request", "client_gone")), "request.completed", 0),
        (502, Some(ErrorKind::Connect), None, Some(("provider_error", "connect")), "request.failed", 1),
        (503, Some(ErrorKind::Overloaded), None, Some(("capacity", "overloaded")), "request.completed", 0),
        (403, None, Some(refusal), Some(("forbidden", "denied")), "request.refused", 0),
    ] {
        let mut flow = flow();
        (flow.status, flow.error_kind) = (StatusCode::from_u16(status).ok(), kind);
        let call = LlmCall::default();
        let call = telemetry(&flow, &call, refused);
        assert_eq!(call.error(), error);
        let [line, span, described] = reports(&call);
        let (class, code) = error.unzip();
        let level = if error.is_some() { "warn" } else { "info" };
        assert_eq!([&line["level"], &line["error_type"]], [&Value::from(level), &Value::from(class)]);
        assert_eq!([&line["error_code"], &described["error"]], [&Value::from(code); 2]);
        assert_eq!(
            (&described["type"], &span["status"]["code"]),
            (&event.into(), &(1 + u8::from(code.is_some())).into())
        );
        let attributes = span["attributes"].as_array().unwrap();
        let found = attributes.iter().find(|a| a["key"] == "error.type").map(|a| a["value"]["stringValue"].clone());
        assert_eq!(found, code.map(Value::from));
        let metrics = LlmMetrics::default();
        metrics.count_request(&call);
        assert_eq!(metrics.stats().upstream_errors.values().sum::<u64>(), failures, "{status} {kind:?}");
    }
}

/// Collects what is logged.
#[derive(Default)]
struct Logged(Mutex<String>);

impl Visit for &Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        *self.0.lock() += &format!("{field}={value:?} ");
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn the_log_has_the_code_of_a_refusal_and_not_its_message() {
    let logged = Arc::new(Logged::default());
    tracing::subscriber::with_default(Arc::clone(&logged), || {
        let refusal =
            LlmRefusal::new(StatusCode::BAD_REQUEST, "guardrail", "guardrail_blocked", "/diagnosis: is not a string");
        refusal_response(&mut flow(), &refusal);
    });
    let text = logged.0.lock().clone();
    assert!(text.contains("code=\"guardrail_blocked\"") && !text.contains("diagnosis"), "{text}");
}

struct Nowhere;

impl HttpClient for Nowhere {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn counters_go_on_when_the_configuration_changes() {
    let home = tempfile::tempdir().unwrap();
    let limits = UsageLimiter::with_deps(
        &QuotaConfig::default(),
        home.path(),
        &NoRedis,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    // Each event finds the queue full.
    let config = |url: &str| TelemetryConfig {
        webhook: vec![TelemetryWebhookConfig {
            url: url.to_owned(),
            events: vec![WebhookEvent::Request],
            max_queue: 0,
            ..TelemetryWebhookConfig::default()
        }],
        ..TelemetryConfig::default()
    };
    let audit = AuditConfig::default();
    let first = config("http://a.test/");
    let service = LlmTelemetry::new(&audit, &first, home.path(), limits, Arc::new(Nowhere), 0).unwrap();
    let mut flow = flow();
    *flow.extension_mut() = LlmCall::default();
    service.done(&flow);
    assert_eq!(service.stats().webhook_events, (0, 1));
    service.activate(service.prepare(&audit, &config("http://b.test/"), home.path()).unwrap(), 0);
    service.done(&flow);
    assert_eq!(service.stats().webhook_events, (0, 2));
}
