//! Approvals as a person meets them: a request is held, shown, answered; rules, sessions, secrets.

use std::time::Duration;

use serde_json::json;

use super::*;

/// The URL of a path at the origin under a name that is not this machine's.
fn named(it: &Instance, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", it.origin.port())
}

/// The first open question, once there is one.
async fn held(it: &Instance) -> Value {
    for _ in 0..500 {
        let state = it.json("/approvals").await;
        if let Some(first) = state["held"].as_array().unwrap().first() {
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
async fn a_request_waits_until_somebody_answers() {
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
async fn an_answer_for_a_host_is_a_rule_from_then_on() {
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
async fn rules_look_at_method_and_path() {
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
async fn a_client_that_goes_away_is_asked_about_no_more() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "ask"})).await;
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let url = named(&it, "held.test", "/status/200");
    wire.send(format!("GET {url} HTTP/1.1\r\nHost: held.test\r\n\r\n")).await.unwrap();
    let version = {
        held(&it).await;
        it.json("/approvals").await["version"].clone()
    };
    // The end of its sending side alone would not tell: it may still read.
    wire.reset();
    let state = it.json(&format!("/approvals?after={version}&wait=20s")).await;
    assert_eq!(state["held"], json!([]));
    assert_eq!(it.json("/approvals/history").await["answers"][0]["by"], "gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_to_its_host_and_is_seen_nowhere_else() {
    const REAL: &str = "the-real-secret";
    let it = Instance::start().await;
    let secret = json!({"label": "api", "value": REAL, "hosts": ["held.test"], "plain_http": true});
    let made = it.post("/secrets", secret.clone()).await.json();
    let placeholder = made["placeholder"].as_str().unwrap().to_owned();
    assert_eq!(it.post("/secrets", secret).await.status, 400, "the label is taken");
    let send = async |host: &str| {
        let url = named(&it, host, &format!("/echo?key={placeholder}"));
        let body = format!("{{\"key\": \"{placeholder}\"}}");
        let basic = base64(&format!("user:{placeholder}"));
        let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
        let (n, head) = (body.len(), format!("X-Key: Bearer {placeholder}\r\nAuthorization: Basic {basic}\r\n"));
        wire.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {n}\r\n{head}\r\n{body}"))
            .await
            .unwrap();
        let answer = wire.answer().await.unwrap();
        it.settle().await;
        (answer, it.origin.requests().pop().unwrap())
    };
    let (answer, sent) = send("held.test").await;
    assert_eq!(sent.target, format!("/echo?key={REAL}"));
    assert_eq!(sent.header("x-key"), Some(format!("Bearer {REAL}").as_str()));
    assert_eq!(sent.header("authorization"), Some(format!("Basic {}", base64(&format!("user:{REAL}"))).as_str()));
    assert_eq!(sent.body, format!("{{\"key\": \"{REAL}\"}}").as_bytes());
    assert!(
        !answer.text().contains(REAL) && answer.text().contains(&placeholder),
        "the echo is given back: {}",
        answer.text()
    );
    let exported = it.get("/export?format=jsonl").await.text();
    assert!(!exported.contains(REAL) && exported.contains(&placeholder), "{exported}");
    assert!(exported.contains("secret:api"));
    let (_, other) = send("other.test").await;
    assert!(!other.target.contains(REAL) && other.header("x-key").unwrap().contains(&placeholder));
    let all = it.json("/secrets").await;
    assert_eq!((&all["secrets"][0]["used"], all.to_string().contains(REAL)), (&json!(4), false));
    assert_eq!(it.call("DELETE", "/secrets/api", &[], b"").await.status, 204);
    assert!(send("held.test").await.1.target.contains(&placeholder));
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_rules_and_secrets_of_its_own() {
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
async fn the_recording_suggests_a_policy() {
    let it = Instance::start().await;
    for host in ["held.test", "held.test", "other.test"] {
        status(&it, &named(&it, host, "/status/200")).await;
    }
    it.settle().await;
    let found = it.json("/approvals/suggestions").await;
    assert_eq!(found["flows_looked_at"], 3);
    let first = &found["suggestions"][0];
    assert_eq!((&first["flows"], &first["rule"]["hosts"]), (&json!(2), &json!(["held.test"])));
    assert_eq!(it.post("/approvals/rules", first["rule"].clone()).await.status, 200, "what is suggested can be made");
}
