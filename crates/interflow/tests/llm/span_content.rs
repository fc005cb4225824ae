//! Spans with content by choice, in the attribute sets that were chosen, and webhooks.

use interflow_testkit::{Origin, Reply};
use serde_json::Value;

use crate::CHAT;
use crate::instance::{Home, Running};

const PATH: &str = "/openai/v1/chat/completions?echo=1";
const SECRET: &str = "planted.marker@firm.test";

fn config(home: &Home, collector: &Origin, telemetry: &str) -> String {
    let (url, endpoint) = (home.provider.url(""), collector.url(""));
    format!(
        "[llm.provider.openai]\nurl = \"{url}\"\n[telemetry]\nendpoint = \"{endpoint}\"\ninterval = \"50ms\"\n{telemetry}\n"
    )
}

async fn ask(running: &Running) {
    let body = CHAT.replace("hello", &format!("write to {SECRET}"));
    let answer = running.post(PATH, "Authorization: Bearer k\r\nx-session-id: s-7\r\n", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text().contains(SECRET), "the client's own data are restored: {}", answer.text());
}

/// The first span that the collector gets.
async fn span(collector: &Origin) -> Value {
    let sent = collector.wait_for_requests(1).await;
    let export: Value = serde_json::from_slice(&sent[0].body).unwrap();
    export["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone()
}

fn attribute(span: &Value, name: &str) -> Option<Value> {
    let found = span["attributes"].as_array().unwrap().iter().find(|a| a["key"] == name)?;
    found["value"].as_object().unwrap().values().next().cloned()
}

#[tokio::test]
async fn spans_have_content_only_if_asked_and_redacted_unless_asked_for_all() {
    for (mode, has_content, has_secret) in [("none", false, false), ("redacted", true, false), ("full", true, true)] {
        let (home, collector) = (Home::new().await, Origin::http().answering(|_| Reply::ok("{}")).start().await);
        let running = home.start(&config(&home, &collector, &format!("content = \"{mode}\"")));
        ask(&running).await;
        let span = span(&collector).await;
        let text = span.to_string();
        assert_eq!(attribute(&span, "gen_ai.input.messages").is_some(), has_content, "{mode}: {span}");
        assert_eq!(attribute(&span, "gen_ai.output.messages").is_some(), has_content, "{mode}: {span}");
        assert_eq!(text.contains(SECRET), has_secret, "{mode}: {span}");
        assert_eq!(text.contains("EMAIL_"), mode == "redacted", "{mode}: {span}");
        assert_eq!(attribute(&span, "gen_ai.conversation.id"), Some("s-7".into()));
        assert!(attribute(&span, "interflow.cost_usd").is_some(), "{span}");
        assert_eq!(attribute(&span, "openinference.span.kind"), None);
        running.stop();
    }
}

#[tokio::test]
async fn without_redaction_there_is_no_redacted_content() {
    let (home, collector) = (Home::new().await, Origin::http().answering(|_| Reply::ok("{}")).start().await);
    let telemetry = "content = \"redacted\"\n[redact]\ngateway = \"flag\"";
    let running = home.start(&config(&home, &collector, telemetry));
    ask(&running).await;
    let span = span(&collector).await;
    assert!(attribute(&span, "gen_ai.input.messages").is_none() && !span.to_string().contains(SECRET), "{span}");
    running.stop();
}

#[tokio::test]
async fn openinference_and_langfuse_attributes_stand_beside_those_of_opentelemetry() {
    let (home, collector) = (Home::new().await, Origin::http().answering(|_| Reply::ok("{}")).start().await);
    let telemetry = "content = \"redacted\"\nattributes = [\"gen_ai\", \"openinference\", \"langfuse\"]";
    let running = home.start(&config(&home, &collector, telemetry));
    ask(&running).await;
    let span = span(&collector).await;
    for (name, expected) in [
        ("gen_ai.operation.name", "chat"),
        ("openinference.span.kind", "LLM"),
        ("session.id", "s-7"),
        ("llm.input_messages.0.message.role", "user"),
        ("llm.output_messages.0.message.role", "assistant"),
        ("langfuse.observation.type", "generation"),
        ("session.id", "s-7"),
    ] {
        assert_eq!(attribute(&span, name), Some(expected.into()), "{name}: {span}");
    }
    let usage = attribute(&span, "langfuse.observation.usage_details").unwrap();
    let usage: Value = serde_json::from_str(usage.as_str().unwrap()).unwrap();
    assert_eq!(
        Some(usage["total"].to_string()),
        attribute(&span, "llm.token_count.total").map(|n| n.as_str().unwrap().into())
    );
    let input = attribute(&span, "langfuse.observation.input").unwrap();
    assert!(input.as_str().unwrap().contains("EMAIL_"), "{input}");
    running.stop();
}

#[tokio::test]
async fn spans_have_the_names_of_today_and_former_ones_by_choice() {
    for (sets, has_former) in [("\"gen_ai\"", false), ("\"gen_ai\", \"gen_ai_legacy\"", true)] {
        let (home, collector) = (Home::new().await, Origin::http().answering(|_| Reply::ok("{}")).start().await);
        let running = home.start(&config(&home, &collector, &format!("attributes = [{sets}]")));
        let body = r#"{"model": "m", "input": "hello", "previous_response_id": "resp_1", "reasoning": {"effort": "high"}, "service_tier": "flex"}"#;
        let answer = running.post("/openai/v1/responses", "Authorization: Bearer k\r\n", body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let span = span(&collector).await;
        for (name, expected) in [
            ("gen_ai.request.reasoning.level", "high"),
            ("gen_ai.response.status", "completed"),
            ("gen_ai.request.previous_response.id", "resp_1"),
            ("openai.request.service_tier", "flex"),
        ] {
            assert_eq!(attribute(&span, name), Some(expected.into()), "{name}: {span}");
        }
        assert!(attribute(&span, "gen_ai.usage.cache_write.input_tokens").is_some(), "{span}");
        let former = attribute(&span, "gen_ai.usage.cache_creation.input_tokens");
        assert_eq!(former.is_some(), has_former, "{span}");
        running.stop();
    }
}

#[tokio::test]
async fn a_collector_that_hangs_holds_no_request_up() {
    let (home, collector) =
        (Home::new().await, Origin::raw(|_, _| std::future::pending::<std::io::Result<()>>()).await);
    let running = home.start(&config(&home, &collector, "content = \"full\""));
    for _ in 0..3 {
        ask(&running).await;
    }
    running.stop();
}

#[tokio::test]
async fn webhooks_get_signed_events_and_are_asked_again_after_a_failure() {
    let home = Home::new().await;
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let receiver = Origin::http().answering(move |_| {
        let first = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if first { Reply::status(503) } else { Reply::ok("") }
    });
    let receiver = receiver.start().await;
    let key = home.keys(&["add", "--id", "k1", "--model", "gpt-4o"]).ok().trim().to_owned();
    let running = home.start(&format!(
        "[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-real\"\n[[telemetry.webhook]]\nurl = \"{}\"\nsecret = \"a shared secret\"\n\
         events = [\"request\"]\ninterval = \"200ms\"\n",
        home.provider.url(""),
        receiver.url("/hook"),
    ));
    let fields = format!("Authorization: Bearer {key}\r\n");
    let body = CHAT.replace("hello", &format!("write to {SECRET}"));
    assert_eq!(running.post("/openai/v1/chat/completions", &fields, &body).await.status, 200);
    assert_eq!(running.post("/openai/v1/chat/completions", &fields, &body.replace("gpt-4o", "o3")).await.status, 403);
    let sent = receiver.wait_for_requests(2).await;
    assert_eq!(sent[0].body, sent[1].body, "the same batch again");
    assert_eq!(sent[0].header("webhook-id"), sent[1].header("webhook-id"));
    for request in &sent[..2] {
        let part = |name: &str| request.header(name).unwrap().to_owned();
        let signed =
            format!("{}.{}.{}", part("webhook-id"), part("webhook-timestamp"), String::from_utf8_lossy(&request.body));
        assert_eq!(part("webhook-signature"), signature("a shared secret", &signed));
    }
    let batch: Value = serde_json::from_slice(&sent[0].body).unwrap();
    let events = batch["events"].as_array().unwrap();
    let types: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(types, ["request.completed", "request.refused"], "{batch}");
    assert_eq!((&events[0]["key"], &events[1]["error"]), (&"k1".into(), &"scope_denied_model".into()), "{batch}");
    assert!(!batch.to_string().contains(SECRET) && !batch.to_string().contains(&key), "{batch}");
    running.stop();
}

/// HMAC-SHA256 (RFC 2104) of a text, as Standard Webhooks write it.
fn signature(secret: &str, signed: &str) -> String {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};
    let pad = |byte: u8| (0..64).map(|i| secret.as_bytes().get(i).unwrap_or(&0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([&pad(0x36)[..], signed.as_bytes()].concat());
    let mac = Sha256::digest([&pad(0x5c)[..], &inner[..]].concat());
    format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(mac))
}

#[tokio::test]
async fn a_webhook_that_cannot_work_is_reported_at_startup() {
    let home = Home::new().await;
    for (webhook, says) in [
        ("url = \"nowhere\"", "telemetry.webhook[0].url"),
        ("url = \"https://a.test/x\"\nevents = []", "telemetry.webhook[0].events"),
        ("url = \"https://a.test/x\"\nsecret = \"env:NOT_SET_ANYWHERE\"", "telemetry.webhook[0].secret"),
    ] {
        let said = home.refuses_to_start(&format!("[[telemetry.webhook]]\n{webhook}\n"));
        assert!(said.contains(says), "{says}: {said}");
    }
}
