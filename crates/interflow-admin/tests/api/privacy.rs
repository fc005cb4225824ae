//! Redaction over the admin API.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn redaction_can_be_tried_with_the_active_policy() {
    let it = Instance::start().await;
    let tried = it.post("/privacy/try", json!({"text": "Écrivez à anna@firm.com, merci."})).await.json();
    // A placeholder as in a conversation, under a key of its own.
    let output = tried["output"].as_str().unwrap();
    assert!(output.starts_with("Écrivez à EMAIL_") && output.ends_with(", merci."), "{output}");
    assert_eq!((&tried["spans"][0]["type"], &tried["spans"][0]["start"]), (&json!("email-address"), &json!(12)));
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_can_be_tried_with_another_policy() {
    let it = Instance::start().await;
    let policy = "[[terms]]\nname = \"project\"\nterms = [\"Bluebird\"]\n";
    let tried = it.post("/privacy/try", json!({"text": "Bluebird is late", "policy": policy})).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    assert!(!tried.json()["output"].as_str().unwrap().contains("Bluebird"), "{}", tried.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_is_not_tried_with_an_invalid_policy_or_too_long_a_text() {
    let it = Instance::start().await;
    let bad = it.post("/privacy/try", json!({"text": "x", "policy": "[[nonsense]]\n"})).await;
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("nonsense"), "{}", bad.text());
    let long = it.post("/privacy/try", json!({"text": "a".repeat((1 << 20) + 1)})).await;
    assert_eq!(long.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_requests_are_counted_in_metrics() {
    let it = Instance::start().await;
    assert_eq!(it.json("/privacy").await, json!({"requests": 0, "refused": 0, "found": {}}));
    let host = it.admin.to_string();
    let bearer = format!("Bearer {TOKEN}");
    let page = it.plain("GET", "/metrics", &[("Host", &host), ("Authorization", &bearer)], b"").await.text();
    assert!(page.contains("interflow_redaction_requests_total 0"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_are_reported_over_time_by_kind_and_host() {
    let it = Instance::start().await;
    it.through("/private").await;
    it.through("/plain").await;
    let id = it.json("/flows?query=path:/private").await["flows"][0]["id"].as_str().unwrap().to_owned();
    let tags = json!({"add_tags": ["redacted", "found:ssn", "found:person", "redact:route:support"]}).to_string();
    it.call("PATCH", &format!("/flows/{id}"), &[("Content-Type", "application/json")], tags.as_bytes()).await;
    let told = it.json("/privacy/history?since=1h&span=10m").await;
    let found: Vec<_> = told["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{} {} {} {}", f["kind"], f["host"], f["route"], f["flows"]))
        .collect();
    let line = |kind: &str| format!("\"{kind}\" \"localhost\" \"support\" 1");
    assert_eq!(found, [line("person"), line("ssn")]);
    assert_eq!(told["span"], 600_000_000);
    assert_eq!(it.json("/doctor").await["findings"][0]["state"], "good");
}

const POLICY: &str = "name = \"ours\"\nalways = [\"Bluebird\"]\nstrategy = { use = \"replace\", with = \"[gone]\" }\n";

/// The file of the policy, and the path of its source in the API.
async fn policy_file(it: &Instance) -> (String, String) {
    let known = it.json("/privacy/policies").await;
    let file = known["policies"][0]["file"].as_str().unwrap().to_owned();
    let source = format!("/privacy/policies/source?file={file}");
    (file, source)
}

async fn put_policy(it: &Instance, source: &str, text: &str) -> Answer {
    let body = json!({ "text": text }).to_string();
    it.call("PUT", source, &[("Content-Type", "application/json")], body.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_another_process_is_changing_is_not_overwritten() {
    let it = Instance::start().await;
    let (file, source) = policy_file(&it).await;
    assert_eq!(put_policy(&it, &source, POLICY).await.status, 200);
    let other = interflow_files::FileLock::for_edit(file.as_ref()).unwrap();
    let body = json!({ "text": POLICY.replace("ours", "mine"), "base": POLICY }).to_string();
    let json = [("Content-Type", "application/json")];
    let mut saving = std::pin::pin!(it.call("PUT", &source, &json, body.as_bytes()));
    let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut saving).await;
    assert!(early.is_err(), "{early:?}");
    let theirs = POLICY.replace("ours", "theirs");
    std::fs::write(&file, &theirs).unwrap();
    drop(other);
    assert_eq!(kind(&saving.await), "changed_meanwhile");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_beside_a_file_that_is_no_policy() {
    let it = Instance::start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let source = format!("/privacy/policies/source?file={}", elsewhere.path().join("policy.toml").display());
    assert_eq!(kind(&put_policy(&it, &source, POLICY).await), "no_file");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_listed_with_their_files_and_routes() {
    let it = Instance::start().await;
    let known = it.json("/privacy/policies").await;
    let file = known["policies"][0]["file"].as_str().unwrap();
    assert!(file.ends_with("policy.toml"), "{file}");
    assert_eq!(known["policies"][0]["exists"], false);
    assert_eq!(known["policies"][0]["routes"], json!(["gateway", "intercepted"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_a_file_begins_with_a_valid_text() {
    let it = Instance::start().await;
    let (_, source) = policy_file(&it).await;
    let begin = it.json(&source).await["text"].as_str().unwrap().to_owned();
    assert!(begin.contains("except ="), "{begin}");
    assert_eq!(it.post("/privacy/check", json!({"text": begin})).await.json()["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_policy_is_written_and_takes_effect_at_once() {
    let it = Instance::start().await;
    let (file, source) = policy_file(&it).await;
    let done = put_policy(&it, &source, POLICY).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json()["policies"][0]["name"], "ours");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), POLICY);
    let tried = it.post("/privacy/try", json!({"text": "Bluebird is late"})).await.json();
    assert_eq!(tried["output"], "[gone] is late");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_policy_is_refused_with_its_line_and_the_saved_one_stays() {
    let it = Instance::start().await;
    let (file, source) = policy_file(&it).await;
    put_policy(&it, &source, POLICY).await;
    let bad = put_policy(&it, &source, "name = \"ours\"\nexept = [\"date\"]\n").await;
    assert_eq!(bad.status, 422, "{}", bad.text());
    let error = &bad.json()["error"];
    assert_eq!((&error["kind"], &error["problems"][0]["line"]), (&json!("bad_policy"), &json!(2)));
    assert!(error["message"].as_str().unwrap().contains("did you mean `except`?"), "{error}");
    assert!(error["remedy"].as_str().unwrap().contains("still active"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), POLICY, "nothing has changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_policy_are_neither_read_nor_written() {
    let it = Instance::start().await;
    let elsewhere = "/privacy/policies/source?file=/etc/passwd";
    assert_eq!(put_policy(&it, elsewhere, "").await.status, 404);
    assert_eq!(it.get(elsewhere).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_responses_match_their_documentation() {
    let it = Instance::start().await;
    let (_, source) = policy_file(&it).await;
    for path in ["/privacy/policies", "/privacy/schema", &source] {
        documented::assert_documented(&it, path, None).await;
    }
    documented::assert_documented(&it, "/privacy/check", Some(json!({"text": "nonsense = 1"}))).await;
}
