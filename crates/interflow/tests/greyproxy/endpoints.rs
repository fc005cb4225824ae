//! Endpoint overrides: the operator sets the wire format of an endpoint, and the setting persists.

use interflow_testkit::{Origin, Reply};
use serde_json::{Value, json};

use super::{Running, said, spoken, until};

/// A request without a model, on an unknown path and without a JSON media type: not recognised as an LLM request by
/// default.
fn ask(it: &Running, host: &str, port: u16, words: &str) {
    let body = json!({"messages": [{"role": "user", "content": words}]}).to_string();
    let head = format!(
        "PUT http://{host}:{port}/ask/anything HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = spoken(it.proxy(), head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn ids(it: &Running) -> Vec<Value> {
    let listed = it.get("/api/endpoint-rules");
    listed["items"].as_array().unwrap().iter().map(|e| e["id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_endpoint_rule_are_redacted_as_prompts() {
    let origin = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    let config = "[upstream.hosts]\n'llm.corp.test' = ['127.0.0.1']\n[redact]\nproxied = \"redact\"\n";
    let it = Running::start(config, &[]);
    let arrives = |words: &str| {
        ask(&it, "llm.corp.test", origin.port(), words);
        let last = origin.requests().pop().unwrap();
        String::from_utf8_lossy(&last.body).into_owned()
    };
    assert!(arrives("my SSN is 123-45-6789").contains("123-45-6789"), "nothing says that it is a question");
    let rule =
        json!({"host_pattern": "llm.*.test", "path_pattern": "/ask/*", "method": "PUT", "decoder_name": "openai-chat"});
    let (_, made) = it.call("POST", "/api/endpoint-rules", rule);
    let there = arrives("my SSN is 123-45-6789, again");
    assert!(!there.contains("123-45-6789") && there.contains("again"), "{there}");
    it.call("DELETE", &format!("/api/endpoint-rules/{}", made["id"]), Value::Null);
    assert!(arrives("my SSN is 123-45-6789").contains("123-45-6789"), "the rule was taken back");
}

/// An instance, and an origin known as `llm.corp.test`, whose responses are those of a model.
async fn model() -> (Origin, Running) {
    let reply =
        json!({"choices": [{"message": {"role": "assistant", "content": "by the rule"}, "finish_reason": "stop"}]});
    let origin = Origin::http().answering(move |_| Reply::json(&reply)).start().await;
    let it = Running::start("[upstream.hosts]\n'llm.corp.test' = ['127.0.0.1']\n", &[]);
    (origin, it)
}

/// Creates a rule for the endpoint of the origin; returns it with its path.
fn endpoint_rule(it: &Running) -> (Value, String) {
    let rule = json!({"host_pattern": "llm.*.test", "path_pattern": "/ask/*", "method": "PUT",
        "decoder_name": "openai-chat", "priority": 10});
    let (status, made) = it.call("POST", "/api/endpoint-rules", rule);
    assert_eq!(status, 201, "{made}");
    let path = format!("/api/endpoint-rules/{}", made["id"]);
    (made, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_rule_applies_to_requests_after_it() {
    let (origin, it) = model().await;
    ask(&it, "llm.corp.test", origin.port(), "before the rule");
    it.ended("status:200");
    assert!(said(it.command(&["conversations", "rebuild"])).contains("0 exchanges"));
    endpoint_rule(&it);
    ask(&it, "llm.corp.test", origin.port(), "under the rule");
    let list = || said(it.command(&["conversations", "list", "--format", "jsonl"]));
    let listed = until("the conversation", || Some(list()).filter(|l| !l.is_empty()));
    assert!(listed.contains("under the rule") && !listed.contains("before the rule"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_applies_endpoint_rules_to_earlier_requests() {
    let (origin, it) = model().await;
    ask(&it, "llm.corp.test", origin.port(), "before the rule");
    it.ended("status:200");
    endpoint_rule(&it);
    let rebuilt = said(it.command(&["conversations", "rebuild"]));
    assert!(rebuilt.contains("1 exchange"), "{rebuilt}");
}

#[test]
fn a_new_endpoint_rule_comes_first_by_its_priority() {
    let it = Running::start("", &[]);
    let (made, _) = endpoint_rule(&it);
    assert_eq!((&made["enabled"], &made["user_defined"]), (&json!(true), &json!(true)), "{made}");
    assert_eq!(it.get("/api/endpoint-rules")["items"][0], made);
}

#[test]
fn an_endpoint_rule_is_changed_in_part() {
    let it = Running::start("", &[]);
    let (made, path) = endpoint_rule(&it);
    let (status, changed) = it.call("PUT", &path, json!({"enabled": false, "priority": 3}));
    assert_eq!(
        (status, &changed["id"], &changed["enabled"], &changed["priority"]),
        (200, &made["id"], &json!(false), &json!(3))
    );
    assert_eq!(changed["host_pattern"], "llm.*.test", "what is not given stays");
    assert_eq!(it.call("PUT", &path, json!({"enabled": true})).0, 200);
}

#[test]
fn an_endpoint_rule_is_deleted_once() {
    let it = Running::start("", &[]);
    let built_in = ids(&it);
    let (_, path) = endpoint_rule(&it);
    assert_eq!(it.call("DELETE", &path, Value::Null).1["deleted"], true);
    assert_eq!(it.call("DELETE", &path, Value::Null).0, 404);
    assert_eq!(ids(&it), built_in);
}

#[test]
fn incomplete_and_oversized_endpoint_rules_are_refused() {
    let it = Running::start("", &[]);
    for wrong in [
        json!({"host_pattern": "a.test"}),
        json!({"decoder_name": "anthropic"}),
        json!({"host_pattern": "a.test", "decoder_name": "cobol"}),
        json!({"host_pattern": "a".repeat(5000), "decoder_name": "anthropic"}),
    ] {
        assert_eq!(it.call("POST", "/api/endpoint-rules", wrong.clone()).0, 400, "{wrong}");
    }
}

#[test]
fn built_in_endpoint_rules_are_neither_changed_nor_deleted() {
    let it = Running::start("", &[]);
    let built_in = ids(&it);
    assert!(built_in.len() > 6);
    assert_eq!(it.call("PUT", &format!("/api/endpoint-rules/{}", built_in[0]), json!({"enabled": false})).0, 400);
    assert_eq!(it.call("DELETE", "/api/endpoint-rules/1", Value::Null).0, 400);
    assert_eq!(it.call("PUT", "/api/endpoint-rules/77777", json!({"enabled": false})).0, 404);
}

fn is_recent(value: &Value) -> bool {
    let this_year = jiff::Timestamp::now().strftime("%Y-").to_string();
    value.as_str().is_some_and(|t| t.starts_with(&this_year))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_report_their_creation_and_last_use() {
    let origin = Origin::http().start().await;
    let it = Running::start("[approvals]\nmode = 'ask'\n[upstream.hosts]\n'shop.test' = ['127.0.0.1']\n", &[]);
    let (_, made) = it.call("POST", "/api/rules", json!({"destination_pattern": "shop.test"}));
    assert!(is_recent(&made["created_at"]) && made["last_used_at"].is_null(), "{made}");
    super::through(it.proxy(), "shop.test", origin.port(), "/status/200", "");
    let all = it.get("/api/rules");
    for rule in all["items"].as_array().unwrap() {
        assert!(is_recent(&rule["created_at"]), "{rule}");
    }
    let used = all["items"].as_array().unwrap().iter().find(|r| r["id"] == made["id"]).unwrap();
    assert!(is_recent(&used["last_used_at"]), "{used}");
}

#[test]
fn a_changed_rule_keeps_its_id_and_creation() {
    let it = Running::start("", &[]);
    let (_, made) = it.call("POST", "/api/rules", json!({"destination_pattern": "shop.test"}));
    let (status, changed) = it.call("PUT", &format!("/api/rules/{}", made["id"]), json!({"notes": "the shop"}));
    assert_eq!((status, &changed["id"], &changed["created_at"]), (200, &made["id"], &made["created_at"]));
}

#[test]
fn a_rule_is_not_changed_into_another_that_exists() {
    let it = Running::start("", &[]);
    it.call("POST", "/api/rules", json!({"destination_pattern": "shop.test", "notes": "the shop"}));
    let (_, other) = it.call("POST", "/api/rules", json!({"destination_pattern": "other.test"}));
    let same = json!({"destination_pattern": "shop.test", "notes": "the shop"});
    assert_eq!(it.call("PUT", &format!("/api/rules/{}", other["id"]), same).0, 400);
}

#[test]
fn a_credential_reports_its_creation() {
    let it = Running::start("", &[]);
    let kept = it.call("POST", "/api/credentials", json!({"label": "GITHUB_TOKEN", "value": "ghp_x"})).1;
    assert!(is_recent(&kept["created_at"]), "{kept}");
}
