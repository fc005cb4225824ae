//! Approvals from a user's perspective: a request becomes pending, is listed and decided; rules, sessions.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

/// The URL of a path at the origin under a name other than this machine's.
pub(super) fn named(it: &Instance, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", it.origin.port())
}

/// The first pending request, as soon as there is one.
async fn held(it: &Instance) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = it.json("/approvals").await;
        if let Some(first) = state["pending"].as_array().unwrap().first() {
            return first.clone();
        }
        assert!(Instant::now() < deadline, "nothing is held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn status(it: &Instance, url: &str) -> u16 {
    client::get_through(it.engine.proxy_addresses()[0], url).await.unwrap().status
}

/// An instance that holds requests, and a GET that is held; with the listed question.
async fn asking() -> (Instance, tokio::task::JoinHandle<u16>, Value) {
    let it = Instance::start().await;
    assert_eq!(it.post("/approvals/mode", json!({"mode": "ask"})).await.json()["mode"], "ask");
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/status/200?x=1"));
    let asking = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
    let question = held(&it).await;
    (it, asking, question)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_held_in_the_default_mode() {
    let it = Instance::start().await;
    assert_eq!(it.json("/approvals").await["mode"], "observe");
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_request_is_listed_and_continues_as_decided() {
    for (action, expected) in [("allow", 200), ("deny", 403)] {
        let (it, asking, question) = asking().await;
        assert_eq!(
            (&question["host"], &question["method"], &question["path"]),
            (&json!("held.test"), &json!("GET"), &json!("/status/200"))
        );
        let answer = it.post(&format!("/approvals/{}", question["id"]), json!({"action": action})).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"flows": 1, "rule": null})));
        assert_eq!(asking.await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_in_the_history_with_its_extent() {
    let (it, asking, question) = asking().await;
    it.post(&format!("/approvals/{}", question["id"]), json!({"action": "deny"})).await;
    asking.await.unwrap();
    let history = it.json("/approvals/history").await;
    assert_eq!((&history["answers"][0]["action"], &history["answers"][0]["by"]), (&json!("deny"), &json!("once")));
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_about_unknown_requests_are_not_found() {
    let it = Instance::start().await;
    assert_eq!(it.post("/approvals/99", json!({"action": "allow"})).await.status, 404);
    for id in ["rule-9", "9", "rule-9@8c2f01aa", "rule-x"] {
        let answer = it.post(&format!("/pending/{id}"), json!({"action": "allow"})).await;
        assert_eq!((answer.status, kind(&answer)), (404, "not_found".to_owned()), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_for_a_host_creates_a_rule_that_can_be_deleted() {
    let (it, asking, question) = asking().await;
    let decision = json!({"action": "allow", "scope": "host", "for": "1h"});
    let rule = it.post(&format!("/approvals/{}", question["id"]), decision).await.json()["rule"].clone();
    assert_eq!(asking.await.unwrap(), 200);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/204")).await, 204, "no question any more");
    let rules = it.json("/approvals/rules").await;
    assert!(rules["rules"].as_array().unwrap().iter().any(|r| r["id"] == rule["id"] && r["used"].as_u64() > Some(0)));
    let path = format!("/approvals/rules/{}", rule["id"].as_str().unwrap());
    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 204);
    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_rules_match_method_and_path() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 403);
    let rule = json!({"action": "allow", "hosts": ["*.test"], "methods": ["GET"], "paths": ["/status/*"]});
    assert_eq!(it.post("/approvals/rules", rule).await.status, 200);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 200);
    assert_eq!(status(&it, &named(&it, "held.test", "/echo")).await, 403);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/../echo")).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_approval_rules_are_refused() {
    let it = Instance::start().await;
    for wrong in [
        json!({"action": "maybe"}),
        json!({"action": "allow", "ports": ["x"]}),
        json!({"action": "allow", "host": "a"}),
    ] {
        assert_eq!(it.post("/approvals/rules", wrong.clone()).await.status, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_disconnect_removes_its_pending_approval() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let url = named(&it, "held.test", "/status/200");
    wire.send(format!("GET {url} HTTP/1.1\r\nHost: held.test\r\n\r\n")).await.unwrap();
    let version = {
        held(&it).await;
        it.json("/approvals").await["version"].clone()
    };
    // Closing only the sending side would not suffice: the client may still read.
    wire.reset();
    let state = it.json(&format!("/approvals?after={version}&wait=20s")).await;
    assert_eq!(state["pending"], json!([]));
    assert_eq!(it.json("/approvals/history").await["answers"][0]["by"], "gone");
}

/// A session `s1` in which this machine may reach `held.test`, at an instance that denies everything else.
async fn with_session() -> Instance {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    let session = json!({"id": "s1", "agent": "coder", "client": "127.0.0.1", "ttl": "1m",
        "rules": [{"action": "allow", "hosts": ["held.test"]}]});
    assert_eq!(it.post("/sessions", session).await.status, 200);
    it
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_session_apply_until_it_is_deleted() {
    let it = with_session().await;
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 200);
    assert_eq!(status(&it, &named(&it, "other.test", "/status/200")).await, 403);
    assert_eq!(it.call("DELETE", "/sessions/s1", &[], b"").await.status, 204);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_listed_and_prolonged_while_it_exists() {
    let it = with_session().await;
    assert_eq!(it.json("/sessions").await["sessions"][0]["agent"], "coder");
    assert_eq!(it.post("/sessions/s1/heartbeat", json!({})).await.status, 200);
    it.call("DELETE", "/sessions/s1", &[], b"").await;
    assert_eq!(it.post("/sessions/s1/heartbeat", json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_suggestions_are_derived_from_recorded_flows() {
    let it = Instance::start().await;
    for host in ["held.test", "held.test", "other.test"] {
        status(&it, &named(&it, host, "/status/200")).await;
    }
    it.settle().await;
    let found = it.json("/approvals/suggestions").await;
    assert_eq!(found["flows_examined"], 3);
    let first = &found["suggestions"][0];
    assert_eq!((&first["flows"], &first["rule"]["hosts"]), (&json!(2), &json!(["held.test"])));
    assert_eq!(it.post("/approvals/rules", first["rule"].clone()).await.status, 200, "what is suggested can be made");
}

/// A POST through the proxy with this body, which is held.
fn post_held(it: &Instance, body: &'static str) -> tokio::task::JoinHandle<Answer> {
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(it, "held.test", "/echo?user=7&access_token=abc"));
    tokio::spawn(async move {
        let mut wire = Wire::connect(proxy).await.unwrap();
        let head = "X-Plan: b\r\nAuthorization: Bearer abcdef\r\nDigest: x\r\n";
        let n = body.len();
        wire.send(format!("POST {url} HTTP/1.1\r\nHost: held.test\r\n{head}Content-Length: {n}\r\n\r\n{body}"))
            .await
            .unwrap();
        wire.answer().await.unwrap()
    })
}

/// An instance that holds requests.
async fn holding() -> Instance {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    it
}

/// The pending requests, once so many are listed with their bodies.
async fn listed_with_bodies(it: &Instance, n: usize) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let all = it.json("/pending").await["pending"].as_array().unwrap().clone();
        if all.len() == n && all.iter().all(|p| p["body"].is_string()) {
            return all;
        }
        assert!(Instant::now() < deadline, "requests with bodies are judged one by one: {all:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn decide(it: &Instance, item: &Value, decision: Value) -> Answer {
    it.post(&format!("/pending/{}", item["id"].as_str().unwrap()), decision).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_request_is_listed_with_its_body_and_times() {
    let it = holding().await;
    let _post = post_held(&it, "amount=10");
    let shown = listed_with_bodies(&it, 1).await.remove(0);
    assert_eq!(shown["body"], "amount=10");
    assert_eq!(
        (&shown["kind"], &shown["what"], &shown["method"]),
        (&json!("approval"), &json!("request"), &json!("POST"))
    );
    let since = shown["since"].as_u64().unwrap();
    assert!(since > 1_700_000_000_000_000 && shown["until"].as_u64().unwrap() > since, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_pending_request_are_masked_in_its_url_and_headers() {
    let it = holding().await;
    let _post = post_held(&it, "amount=10");
    let shown = listed_with_bodies(&it, 1).await.remove(0);
    let url = shown["url"].as_str().unwrap();
    assert!(url.contains("user=7") && !url.contains("abc"), "{url}");
    let headers = shown["headers"].to_string();
    assert!(headers.contains("X-Plan") && !headers.contains("abcdef"), "{headers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_differ_in_their_bodies_are_decided_one_by_one() {
    let it = holding().await;
    let (first, second) = (post_held(&it, "amount=10"), post_held(&it, "amount=10000"));
    let shown = listed_with_bodies(&it, 2).await;
    for (body, action) in [("amount=10", "allow"), ("amount=10000", "deny")] {
        let item = shown.iter().find(|p| p["body"] == body).expect("its body is shown");
        let answer = decide(&it, item, json!({"action": action})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!((first.await.unwrap().status, second.await.unwrap().status), (200, 403));
    assert_eq!(it.origin.only_request().body, "amount=10", "what was read for a look goes on whole");
    assert_eq!(it.json("/pending").await["pending"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_body_of_a_pending_request_is_sent_with_its_own_length_and_no_digest() {
    let it = holding().await;
    let post = post_held(&it, "amount=10");
    let item = listed_with_bodies(&it, 1).await.remove(0);
    let answer = decide(&it, &item, json!({"action": "allow", "body": "amount=10000"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(post.await.unwrap().status, 200);
    let sent = it.origin.only_request();
    assert_eq!((&sent.body[..], sent.header("content-length")), (&b"amount=10000"[..], Some("12")));
    assert_eq!(sent.header("digest"), None, "it was the other body's");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_an_edited_body_are_recorded() {
    let it = holding().await;
    let post = post_held(&it, "amount=10");
    let item = listed_with_bodies(&it, 1).await.remove(0);
    decide(&it, &item, json!({"action": "allow", "body": "amount=10000"})).await;
    post.await.unwrap();
    it.settle().await;
    let flows = it.json("/flows?query=tag:edited").await["flows"].clone();
    let id = flows[0]["id"].as_str().unwrap_or_else(|| panic!("{flows}"));
    let body = async |which: &str| it.get(&format!("/flows/{id}/request/body{which}")).await.text();
    assert_eq!((body("").await, body("?original=true").await), ("amount=10000".into(), "amount=10".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_and_a_decision_for_a_host_take_no_edited_body() {
    let it = holding().await;
    let _post = post_held(&it, "amount=10");
    let item = listed_with_bodies(&it, 1).await.remove(0);
    for wrong in [json!({"action": "deny", "body": "x"}), json!({"action": "allow", "scope": "host", "body": "x"})] {
        assert_eq!(decide(&it, &item, wrong).await.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_request_without_a_preview_cannot_be_given_a_body() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/echo"));
    let get = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
    let id = held(&it).await["id"].clone();
    let answer = it.post(&format!("/pending/approval-{id}"), json!({"action": "allow", "body": "x"})).await;
    assert!(answer.status == 400 && answer.text().contains("cannot be edited"), "{}", answer.text());
    assert_eq!(
        it.post(&format!("/pending/approval-{id}"), json!({"action": "allow"})).await.status,
        200,
        "it waits still"
    );
    assert_eq!(get.await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_timestamp_is_reported_in_microseconds() {
    let it = Instance::start().await;
    let before = interflow_types::Timestamp::now().micros();
    let minute = 60_000_000;
    let is_soon = |value: &Value, ahead: u64| {
        let at = value.as_u64().unwrap_or_default();
        assert!(at >= before - 1_000_000 && at <= before + ahead + minute, "{value} is not an instant of now");
    };
    let set = it.post("/approvals/mode", json!({"mode": "ask", "for": "15m"})).await.json();
    is_soon(&set["mode_until"], 15 * minute);
    let state = it.json("/approvals").await;
    is_soon(&state["mode_until"], 15 * minute);
    assert_eq!(state["timeout"], 30_000_000);
    it.post("/approvals/rules", json!({"action": "allow", "hosts": ["a.test"]})).await;
    let rules = it.json("/approvals/rules").await;
    rules["rules"].as_array().unwrap().iter().for_each(|r| is_soon(&r["created"], 0));
    it.post("/secrets", json!({"label": "s", "value": "12345678", "hosts": ["a.test"]})).await;
    is_soon(&it.json("/secrets").await["secrets"][0]["added"], 0);
    let session = it.post("/sessions", json!({"client": "127.0.0.1", "ttl": "1m"})).await.json();
    is_soon(&session["started"], 0);
    is_soon(&session["until"], minute);
    let uptime = it.json("/stats").await["uptime"].as_u64().unwrap();
    assert!((1..minute).contains(&uptime), "{uptime}");
}
