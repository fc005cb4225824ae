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

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_is_told_over_time_by_kind_and_host() {
    let it = Instance::start().await;
    it.through("/private").await;
    it.through("/plain").await;
    let id = it.json("/flows?query=path:/private").await["flows"][0]["id"].as_str().unwrap().to_owned();
    let tags = json!({"add_tags": ["redacted", "found:ssn", "found:person"]}).to_string();
    it.call("PATCH", &format!("/flows/{id}"), &[("Content-Type", "application/json")], tags.as_bytes()).await;
    let told = it.json("/privacy/history?since=1h&span=10m").await;
    let found: Vec<_> =
        told["found"].as_array().unwrap().iter().map(|f| (&f["kind"], &f["host"], &f["flows"])).collect();
    let host = json!("localhost");
    assert_eq!(found, [(&json!("person"), &host, &json!(1)), (&json!("ssn"), &host, &json!(1))]);
    assert_eq!(told["span"], 600_000_000);
    assert_eq!(it.json("/doctor").await["findings"][0]["state"], "good");
}
