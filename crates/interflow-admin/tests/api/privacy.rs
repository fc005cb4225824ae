//! Redaction seen from the admin side.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_text_can_be_tried_with_the_policy_in_force_or_another() {
    let it = Instance::start().await;
    let tried = it.post("/privacy/try", json!({"text": "Écrivez à anna@firm.com, merci."})).await.json();
    assert_eq!(tried["output"], "Écrivez à {{{REDACTED-email-address}}}, merci.");
    assert_eq!((&tried["spans"][0]["type"], &tried["spans"][0]["start"]), (&json!("email-address"), &json!(12)));
    let policy = "[[terms]]\nname = \"project\"\nterms = [\"Bluebird\"]\n";
    let other = it.post("/privacy/try", json!({"text": "Bluebird is late", "policy": policy})).await;
    assert_eq!(other.status, 200, "{}", other.text());
    let bad = it.post("/privacy/try", json!({"text": "x", "policy": "[[nonsense]]\n"})).await;
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("nonsense"), "{}", bad.text());
    let long = it.post("/privacy/try", json!({"text": "a".repeat((1 << 20) + 1)})).await;
    assert_eq!(long.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_is_counted_in_metrics_too() {
    let it = Instance::start().await;
    assert_eq!(it.json("/privacy").await, json!({"requests": 0, "refused": 0, "found": {}}));
    let host = it.admin.to_string();
    let bearer = format!("Bearer {TOKEN}");
    let page = it.plain("GET", "/metrics", &[("Host", &host), ("Authorization", &bearer)], b"").await.text();
    assert!(page.contains("interflow_redact_requests_total 0"), "{page}");
}
