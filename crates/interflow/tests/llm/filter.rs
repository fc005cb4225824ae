//! Redaction of texts at `/api/filter` and `/api/explain` of the gateway, and external PII detectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use interflow_testkit::{Origin, Reply};
use serde_json::Value;

use crate::instance::Home;
use crate::{CHAT, code};

const TEXT: &str = "\u{1F600} mail anna.smith@firm.test please";

#[tokio::test]
async fn a_text_is_redacted_and_explained_at_the_gateway() {
    let home = Home::new().await;
    let running = home.start("[llm.provider.openai]\nurl = \"http://127.0.0.1:9\"\n");
    let plain = "Content-Type: text/plain\r\n";
    let filtered = running.ask("POST", "/api/filter?c=none&p=default", plain, TEXT).await;
    assert_eq!(filtered.status, 200, "{filtered:?}");
    assert_eq!(filtered.text(), "\u{1F600} mail {{{REDACTED-email-address}}} please");
    assert!(filtered.header("x-document-id").is_some() && filtered.header("x-interflow-policy") == Some("default"));
    let explained = running.ask("POST", "/api/explain?c=none&p=default", plain, TEXT).await.json();
    let span = &explained["explanation"]["appliedSpans"][0];
    assert_eq!(span["filterType"], "email-address");
    // Offsets in UTF-16 units: the emoji counts as two.
    assert_eq!((span["characterStart"].as_u64(), span["characterEnd"].as_u64()), (Some(8), Some(28)));
    assert_eq!((span["text"].as_str(), span["applied"].as_bool()), (Some("anna.smith@firm.test"), Some(true)));
    for (path, fields, status) in [
        ("/api/filter?p=nobody", plain, 404),
        ("/api/filter", "Content-Type: application/pdf\r\n", 415),
        ("/api/filter", "Content-Type: text/plain\r\nX-Api-Key: ifk_wrong\r\n", 401),
    ] {
        let answer = running.ask("POST", path, fields, "x").await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    for path in ["/api/status", "/api/health", "/livez", "/readyz", "/health"] {
        assert_eq!(running.ask("GET", path, "", "").await.json()["status"], "ok", "{path}");
    }
    running.stop();
    let recorded = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    assert!(!recorded.contains("/api/filter") && !recorded.contains("anna"), "{recorded}");
}

#[tokio::test]
async fn the_redaction_of_texts_needs_a_virtual_key_where_keys_are_required() {
    let home = Home::new().await;
    let header = |id: &str, provider: &str| {
        format!("X-Interflow-Key: {}\r\n", home.keys(&["add", "--id", id, "--provider", provider]).ok().trim())
    };
    let (allowed, other) = (header("texts", "filter"), header("chats", "openai"));
    let provider = "[llm.provider.openai]\nurl = \"http://127.0.0.1:9\"\n";
    let running = home.start(&format!("[keys]\nrequire_virtual_key = true\n{provider}"));
    for (fields, status, error) in
        [("", 401, "missing_api_key"), (other.as_str(), 403, "scope_denied_provider"), (allowed.as_str(), 200, "")]
    {
        for (method, path) in [("POST", "/api/filter"), ("POST", "/api/explain"), ("GET", "/api/status")] {
            let answer = running.ask(method, path, fields, "Mail anna.smith@firm.test").await;
            assert_eq!(answer.status, status, "{path}: {answer:?}");
            assert!(error.is_empty() || code(&answer) == error, "{path}: {answer:?}");
        }
    }
    running.stop();
    let open = home.start(provider);
    assert_eq!(open.ask("POST", "/api/filter", "", "Mail anna.smith@firm.test").await.status, 200);
    open.stop();
}

#[tokio::test]
async fn external_detector_is_queried_before_a_request_is_forwarded() {
    let home = Home::new().await;
    let broken = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&broken);
    let analyzer = Origin::http()
        .answering(move |request| {
            if state.load(Ordering::Relaxed) {
                return Reply::status(500).body("the text was qwvzyx");
            }
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let text = body["text"].as_str().unwrap();
            let found = text
                .find("qwvzyx")
                .map(|at| serde_json::json!({"entity_type": "PERSON", "start": at, "end": at + 6, "score": 0.9}));
            Reply::json(&Value::Array(found.into_iter().collect()))
        })
        .start()
        .await;
    let config = format!(
        "[[redact.backend]]\nkind = \"presidio\"\nurl = \"{}\"\n[llm.provider.openai]\nurl = \"{}\"\n",
        analyzer.url(""),
        home.provider.url("")
    );
    let running = home.start(&config);
    let ask = CHAT.replace("hello", "say hello to qwvzyx");
    assert_eq!(running.post("/v1/chat/completions", "Authorization: Bearer sk\r\n", &ask).await.status, 200);
    let seen = String::from_utf8_lossy(&home.provider.only_request().body).into_owned();
    assert!(seen.contains("say hello to") && !seen.contains("qwvzyx"), "{seen}");
    broken.store(true, Ordering::Relaxed);
    let refused =
        running.post("/v1/chat/completions", "Authorization: Bearer sk\r\n", &ask.replace("say", "tell")).await;
    assert_eq!((refused.status, code(&refused).as_str()), (502, "request_failed"));
    assert!(!refused.text().contains("qwvzyx"));
    assert_eq!(home.provider.requests().len(), 1, "nothing goes on unredacted");
    running.stop();
    let recorded = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    assert!(!recorded.contains("/analyze"), "calls with what is not redacted yet are not recorded");
}
