//! External detectors against fakes with the real services' response formats.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interflow_testkit::StallingService;
use interflow_types::units::HumanDuration;
use interflow_types::{BoxFuture, Request, Response, ResponseFuture, StatusCode};

use super::*;
use crate::{Kind, RedactionSession, Redactor};

type Answering = Box<dyn Fn(&str, &str) -> (u16, String) + Send + Sync>;

/// A client that replies like a service.
struct Fake {
    asked: AtomicUsize,
    delay: Duration,
    answer: Answering,
}

impl Fake {
    fn new(answer: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self { asked: AtomicUsize::new(0), delay: Duration::ZERO, answer: Box::new(answer) }
    }
}

impl HttpClient for Fake {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        let work = async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.delay).await;
            let url = request.head.url.to_string();
            let (body, _) = request.body.collect(1 << 20).await.unwrap();
            let auth = request.head.headers.get_str("authorization").unwrap_or_default().to_owned();
            let (status, text) = (self.answer)(&format!("{url} {auth}"), std::str::from_utf8(&body).unwrap());
            Ok(Response::full(StatusCode::from_u16(status).unwrap(), "application/json", text))
        };
        Box::pin(work) as BoxFuture<'_, _>
    }
}

fn config(kind: BackendKind) -> BackendConfig {
    BackendConfig { kind, url: "http://127.0.0.1:1".into(), ..BackendConfig::default() }
}

async fn spans(config: BackendConfig, fake: Fake, texts: &[&str]) -> Result<ExternalFindings, RedactError> {
    ExternalDetectors::new(&[config], Arc::new(fake)).unwrap().find_all(texts).await
}

fn found<'t>(opinion: &ExternalFindings, text: &'t str) -> Vec<(Kind, &'t str)> {
    opinion.findings_in(text).iter().map(|f| (f.kind, &text[f.start..f.end])).collect()
}

#[tokio::test]
async fn philter_is_queried_with_bearer_token_and_utf16_offsets() {
    let text = "\u{1F600} Zyx Qwv called";
    let fake = Fake::new(|url, body| {
        assert_eq!(url, "http://127.0.0.1:1/api/explain?c=my%20ctx&p=strict Bearer sk_1");
        assert!(body.contains("Zyx"));
        let span = r#"{"characterStart":3,"characterEnd":10,"filterType":"person","confidence":0.9,"text":"x"}"#;
        (200, format!(r#"{{"filteredText":"","explanation":{{"appliedSpans":[{span}],"identifiedSpans":[]}}}}"#))
    });
    let c = BackendConfig {
        token: Some("sk_1".into()),
        policy: "strict".into(),
        context: "my ctx".into(),
        ..config(BackendKind::Philter)
    };
    assert_eq!(found(&spans(c, fake, &[text]).await.unwrap(), text), [(Kind::Person, "Zyx Qwv")]);
}

#[tokio::test]
async fn presidio_entities_map_to_kinds_and_low_scores_are_ignored() {
    let text = "h\u{e9} Zyx zyx@example.test";
    let fake = Fake::new(|url, body| {
        assert!(url.starts_with("http://127.0.0.1:1/analyze ") && body.contains("score_threshold"), "{url} {body}");
        (
            200,
            r#"[{"entity_type":"PERSON","start":3,"end":6,"score":0.85},
                {"entity_type":"EMAIL_ADDRESS","start":7,"end":23,"score":1.0},
                {"entity_type":"US_SSN","start":0,"end":2,"score":0.05}]"#
                .into(),
        )
    });
    let opinion = spans(config(BackendKind::Presidio), fake, &[text]).await.unwrap();
    assert_eq!(found(&opinion, text), [(Kind::Person, "Zyx"), (Kind::Email, "zyx@example.test")]);
}

#[tokio::test]
async fn name_in_a_late_window_is_found() {
    let text = format!("{} Zyx Qwv said so", "filler words go on ".repeat(200));
    let fake = Fake::new(|_, body| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let piece = body["text"].as_str().unwrap();
        assert!(piece.chars().count() <= 300);
        let spans = piece.find("Zyx Qwv").map(|at| format!(r#"{{"start":{at},"end":{},"label":"person"}}"#, at + 7));
        (200, format!("[{}]", spans.unwrap_or_default()))
    });
    let c = BackendConfig { window: 300, overlap: 40, ..config(BackendKind::Gliner) };
    let opinion = spans(c, fake, &[&text]).await.unwrap();
    assert!(found(&opinion, &text).contains(&(Kind::Person, "Zyx Qwv")));
}

#[tokio::test]
async fn windows_of_one_text_are_queried_concurrently() {
    let text = "filler words go on ".repeat(200);
    let fake = Arc::new(Fake { delay: Duration::from_millis(100), ..Fake::new(|_, _| (200, "[]".into())) });
    let c = BackendConfig {
        window: 300,
        overlap: 40,
        timeout: HumanDuration::from_millis(1_000),
        ..config(BackendKind::Gliner)
    };
    ExternalDetectors::new(&[c], Arc::clone(&fake) as _).unwrap().find_all(&[&text]).await.unwrap();
    assert!(fake.asked.load(Ordering::Relaxed) > 10, "one after the other they take longer than the time limit");
}

#[tokio::test]
async fn failing_detector_service_is_an_error_unless_optional() {
    for (answer, says) in [
        ((500, "Zyx is secret"), "answered 500"),
        ((200, "<html>"), "not JSON"),
        ((200, "{}"), "no explanation.appliedSpans"),
        ((200, r#"{"explanation":{"appliedSpans":[5]}}"#), "list of spans"),
        ((200, r#"{"explanation":{"appliedSpans":[{"characterStart":7,"characterEnd":9,"confidence":1}]}}"#), "span"),
        ((200, r#"{"explanation":{"appliedSpans":[{"characterStart":2,"characterEnd":1,"confidence":1}]}}"#), "span"),
    ] {
        let closed = spans(config(BackendKind::Philter), Fake::new(move |_, _| (answer.0, answer.1.into())), &["Zyx"]);
        let e = closed.await.unwrap_err().to_string();
        assert!(e.contains(says) && !e.contains("secret"), "{e}");
        let c = BackendConfig { failure: BackendFailure::Open, ..config(BackendKind::Philter) };
        let open = spans(c, Fake::new(move |_, _| (answer.0, answer.1.into())), &["Zyx"]).await.unwrap();
        assert!(open.is_empty());
    }
}

#[tokio::test]
async fn slow_detector_service_is_aborted_at_its_timeout() {
    let slow = Fake { delay: Duration::from_secs(60), ..Fake::new(|_, _| (200, "[]".into())) };
    let c = BackendConfig { timeout: HumanDuration::from_millis(30), ..config(BackendKind::Presidio) };
    let asked = std::time::Instant::now();
    let e = spans(c, slow, &["Zyx"]).await.unwrap_err().to_string();
    assert!(e.contains("no answer within 30ms") && asked.elapsed() < Duration::from_secs(5), "{e}");
}

#[tokio::test]
async fn an_error_of_a_detector_service_counts_without_its_body() {
    let stalling = Arc::new(StallingService(StatusCode::SERVICE_UNAVAILABLE));
    let services = ExternalDetectors::new(&[config(BackendKind::Presidio)], stalling).unwrap();
    let e = services.find_all(&["Zyx"]).await.unwrap_err().to_string();
    assert!(e.contains("answered 503"), "{e}");
}

#[tokio::test]
async fn repeated_texts_are_queried_once_and_concurrently() {
    let fake = Arc::new(Fake { delay: Duration::from_millis(100), ..Fake::new(|_, _| (200, "[]".into())) });
    let backends = ExternalDetectors::new(&[config(BackendKind::Presidio)], Arc::clone(&fake) as _).unwrap();
    let texts: Vec<String> = (0..12).map(|i| format!("text {}", i % 6)).collect();
    let asked = std::time::Instant::now();
    backends.find_all(&texts).await.unwrap();
    backends.find_all(&texts).await.unwrap();
    assert_eq!(fake.asked.load(Ordering::Relaxed), 6);
    assert!(asked.elapsed() < Duration::from_millis(500), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn external_findings_are_redacted_together_with_built_in_ones() {
    let body = br#"{"content":"qwvzyx wrote to anna@firm.com","args":"{\"who\":\"qwvzyx\"}"}"#;
    let spans = crate::text::json::string_values(body).unwrap();
    let mut listening = RedactionSession::collecting();
    Redactor::default().redact_spans(body, spans.clone(), &mut listening).unwrap();
    let texts = listening.collected_texts();
    assert_eq!(texts, ["qwvzyx wrote to anna@firm.com", "qwvzyx"]);
    let fake = Fake::new(|_, _| (200, r#"[{"entity_type":"PERSON","start":0,"end":6,"score":0.9}]"#.into()));
    let backends = ExternalDetectors::new(&[config(BackendKind::Presidio)], Arc::new(fake)).unwrap();
    let mut session = RedactionSession::one_way();
    session.external = backends.find_all(&texts).await.unwrap();
    let out = Redactor::default().redact_spans(body, spans, &mut session).unwrap().output.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(!out.contains("qwvzyx") && !out.contains("anna"), "{out}");
}

#[test]
fn invalid_detector_service_is_reported_with_the_cause() {
    for (change, says) in [
        (BackendConfig { url: "host:1".into(), ..BackendConfig::default() }, "no scheme"),
        (BackendConfig { url: "ftp://host".into(), ..BackendConfig::default() }, "neither http nor https"),
        (BackendConfig { token: Some("env:NOT_SET_HERE".into()), ..config(BackendKind::Philter) }, "NOT_SET_HERE"),
    ] {
        let e = ExternalDetectors::new(&[change], Arc::new(Fake::new(|_, _| (200, String::new())))).err().unwrap();
        assert!(e.to_string().contains("redact.backend[0]") && e.to_string().contains(says), "{e}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_service_does_not_hold_up_every_text_of_a_request() {
    let hung = || Arc::new(Fake { delay: Duration::from_secs(3_600), ..Fake::new(|_, _| (200, "[]".into())) });
    let texts: Vec<String> = (0..500).map(|i| format!("text {i}")).collect();
    let open = BackendConfig { failure: BackendFailure::Open, ..config(BackendKind::Presidio) };
    let (fake, begun) = (hung(), tokio::time::Instant::now());
    let detectors = ExternalDetectors::new(std::slice::from_ref(&open), Arc::clone(&fake) as _).unwrap();
    assert!(detectors.find_all(&texts).await.unwrap().is_empty());
    assert_eq!(begun.elapsed().as_secs(), 5, "the texts in flight fail together, the others are not sent");
    assert_eq!(fake.asked.load(Ordering::Relaxed), MAX_CONCURRENT_TEXTS);
    let (fake, begun) = (hung(), tokio::time::Instant::now());
    let without_breaker = BackendConfig { breaker_failures: 0, ..open };
    let detectors = ExternalDetectors::new(std::slice::from_ref(&without_breaker), Arc::clone(&fake) as _).unwrap();
    assert!(detectors.find_all(&texts).await.unwrap().is_empty());
    assert_eq!(begun.elapsed().as_secs(), 30);
    let closed =
        BackendConfig { failure: BackendFailure::Closed, timeout: HumanDuration::from_secs(60), ..without_breaker };
    let detectors = ExternalDetectors::new(&[closed], hung()).unwrap();
    let e = detectors.find_all(&texts).await.unwrap_err().to_string();
    assert!(e.contains("within 30s (request_timeout)"), "{e}");
}
