//! Approvals from a user's perspective: a request becomes pending, is listed and decided; rules, sessions.

use std::time::Duration;

use serde_json::json;

use super::*;

/// The URL of a path at the origin under a name other than this machine's.
pub(super) fn named(it: &Instance, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", it.origin.port())
}

/// The first pending request, as soon as there is one.
async fn held(it: &Instance) -> Value {
    for _ in 0..500 {
        let state = it.json("/approvals").await;
        if let Some(first) = state["pending"].as_array().unwrap().first() {
            return first.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is held");
}

async fn status(it: &Instance, url: &str) -> u16 {
    client::get_through(it.engine.proxy_addresses()[0], url).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_until_it_is_decided() {
    let it = Instance::start().await;
    assert_eq!(it.json("/approvals").await["mode"], "observe");
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 200, "nothing is held at first");
    assert_eq!(it.post("/approvals/mode", json!({"mode": "ask"})).await.json()["mode"], "ask");
    for (action, expected) in [("allow", 200), ("deny", 403)] {
        let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/status/200?x=1"));
        let asking = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
        let question = held(&it).await;
        assert_eq!(
            (&question["host"], &question["method"], &question["path"]),
            (&json!("held.test"), &json!("GET"), &json!("/status/200"))
        );
        let answer = it.post(&format!("/approvals/{}", question["id"]), json!({"action": action})).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"flows": 1, "rule": null})));
        assert_eq!(asking.await.unwrap(), expected);
    }
    assert_eq!(it.post("/approvals/99", json!({"action": "allow"})).await.status, 404);
    let history = it.json("/approvals/history").await;
    assert_eq!((&history["answers"][0]["action"], &history["answers"][0]["by"]), (&json!("deny"), &json!("once")));
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_for_a_host_creates_a_rule() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/status/200"));
    let asking = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
    let id = held(&it).await["id"].clone();
    let answer = it.post(&format!("/approvals/{id}"), json!({"action": "allow", "scope": "host", "for": "1h"})).await;
    let rule = answer.json()["rule"].clone();
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

#[tokio::test(flavor = "multi_thread")]
async fn session_has_its_own_rules_and_secrets() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    let session = json!({"id": "s1", "agent": "coder", "client": "127.0.0.1", "ttl": "1m",
        "rules": [{"action": "allow", "hosts": ["held.test"]}]});
    assert_eq!(it.post("/sessions", session).await.status, 200);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 200);
    assert_eq!(status(&it, &named(&it, "other.test", "/status/200")).await, 403);
    assert_eq!(it.post("/sessions/s1/heartbeat", json!({})).await.status, 200);
    assert_eq!(it.json("/sessions").await["sessions"][0]["agent"], "coder");
    assert_eq!(it.call("DELETE", "/sessions/s1", &[], b"").await.status, 204);
    assert_eq!(status(&it, &named(&it, "held.test", "/status/200")).await, 403);
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

#[tokio::test(flavor = "multi_thread")]
async fn pending_request_is_listed_with_query_headers_and_body() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/echo?user=7&access_token=abc"));
    let post = |body: &'static str| {
        let url = url.clone();
        tokio::spawn(async move {
            let mut wire = Wire::connect(proxy).await.unwrap();
            let head = "X-Plan: b\r\nAuthorization: Bearer abcdef\r\n";
            let n = body.len();
            wire.send(format!("POST {url} HTTP/1.1\r\nHost: held.test\r\n{head}Content-Length: {n}\r\n\r\n{body}"))
                .await
                .unwrap();
            wire.answer().await.unwrap()
        })
    };
    let (first, second) = (post("amount=10"), post("amount=10000"));
    let mut shown = Vec::new();
    for _ in 0..500 {
        let all = it.json("/pending").await;
        shown = all["pending"].as_array().unwrap().clone();
        if shown.len() == 2 && shown.iter().all(|p| p["body"].is_string()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(shown.len(), 2, "requests with bodies are judged one by one: {shown:?}");
    let small = shown.iter().find(|p| p["body"] == "amount=10").expect("its body is shown").clone();
    assert_eq!(
        (&small["kind"], &small["what"], &small["method"]),
        (&json!("approval"), &json!("request"), &json!("POST"))
    );
    let at = small["url"].as_str().unwrap();
    assert!(at.contains("user=7") && !at.contains("abc"), "{at}");
    assert!(small["headers"].to_string().contains("X-Plan") && !small["headers"].to_string().contains("abcdef"));
    assert!(
        small["since"].as_u64().unwrap() > 1_700_000_000_000_000 && small["until"].as_u64() > small["since"].as_u64()
    );
    for (item, action) in [(&small, "allow"), (shown.iter().find(|p| p["body"] == "amount=10000").unwrap(), "deny")] {
        let answer = it.post(&format!("/pending/{}", item["id"].as_str().unwrap()), json!({"action": action})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.status, second.status), (200, 403));
    assert_eq!(it.origin.only_request().body, "amount=10", "what was read for a look goes on whole");
    assert_eq!(it.json("/pending").await["pending"], json!([]));
    assert_eq!(it.post("/pending/rule-9", json!({"action": "allow"})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_request_body_can_be_edited_and_both_versions_are_recorded() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let (proxy, url) = (it.engine.proxy_addresses()[0], named(&it, "held.test", "/echo"));
    let post = tokio::spawn(async move {
        let mut wire = Wire::connect(proxy).await.unwrap();
        wire.send(format!("POST {url} HTTP/1.1\r\nHost: held.test\r\nDigest: x\r\nContent-Length: 9\r\n\r\namount=10"))
            .await
            .unwrap();
        wire.answer().await.unwrap()
    });
    let mut shown = Value::Null;
    for _ in 0..500 {
        shown = it.json("/pending").await["pending"][0].clone();
        if shown["body"].is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let path = format!("/pending/{}", shown["id"].as_str().unwrap());
    for wrong in [json!({"action": "deny", "body": "x"}), json!({"action": "allow", "scope": "host", "body": "x"})] {
        assert_eq!(it.post(&path, wrong).await.status, 400);
    }
    let answer = it.post(&path, json!({"action": "allow", "body": "amount=10000"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(post.await.unwrap().status, 200);
    let sent = it.origin.only_request();
    assert_eq!((&sent.body[..], sent.header("content-length")), (&b"amount=10000"[..], Some("12")));
    assert_eq!(sent.header("digest"), None, "it was the other body's");
    let mut flows = Value::Null;
    for _ in 0..500 {
        flows = it.json("/flows?query=tag:edited%20-is:open").await["flows"].clone();
        if flows[0].is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = flows[0]["id"].as_str().unwrap_or_else(|| panic!("{flows}"));
    let body = async |which: &str| it.get(&format!("/flows/{id}/request/body{which}")).await.text();
    assert_eq!((body("").await, body("?original=true").await), ("amount=10000".into(), "amount=10".into()));
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
        assert!(at >= before - 1_000_000 && at <= before + ahead + minute, "{value} is no instant of now");
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
