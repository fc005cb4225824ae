//! Composed requests, their code, and collections.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn composed_request_is_sent_recorded_and_remembered() {
    let it = Instance::start().await;
    let url = it.origin.url("/echo?x=1");
    let saved =
        json!({"name": "", "method": "PUT", "url": "{{base}}/echo?x=1", "headers": [], "body": "", "assertions": []});
    let sent = it
        .post(
            "/compose",
            json!({"method": "PUT", "url": url, "headers": [["X-A", "1"], ["X-A", "2"], ["Content-Length", "99"]], "body": "hello", "saved": saved}),
        )
        .await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    let sent = sent.json();
    assert_eq!((&sent["response"]["status"], &sent["response"]["size"]), (&json!(200), &json!(5)));
    let request = it.origin.requests().pop().unwrap();
    assert_eq!(
        (request.method.as_str(), request.target.as_str(), &request.body[..]),
        ("PUT", "/echo?x=1", &b"hello"[..])
    );
    assert_eq!(
        (request.header("host"), request.header("content-length")),
        (Some(it.origin.authority().as_str()), Some("5"))
    );
    let flow = it.json(&format!("/flows/{}", sent["id"].as_str().unwrap())).await;
    assert_eq!(
        (&flow["parent"], &flow["transport"], &flow["tags"]),
        (&Value::Null, &json!("internal"), &json!(["composed"]))
    );
    // The history has the request as written, with its variables.
    assert_eq!(it.json("/compose/history").await["requests"], json!([saved]));
    assert_eq!(it.call("DELETE", "/compose/history", &[], b"").await.status, 204);
    assert_eq!(it.json("/compose/history").await["requests"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_composed_requests_are_refused() {
    let it = Instance::start().await;
    for wrong in [
        json!({"method": "TWO WORDS", "url": "http://a.test/"}),
        json!({"method": "GET", "url": "/path"}),
        json!({"method": "GET", "url": "file:///etc/passwd"}),
        json!({"method": "GET", "url": "http://a.test/ x"}),
        json!({"method": "GET", "url": "http://a.test/", "headers": [["X", "a\r\nY: b"]]}),
        json!({"method": "GET", "url": "http://a.test/", "headers": [["a b", "c"]]}),
        json!({"method": "GET"}),
    ] {
        let refused = it.post("/compose", wrong.clone()).await;
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.text());
    }
    assert_eq!(it.ids().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_request_is_denied_where_a_replay_is() {
    let it = Instance::start().await;
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    let url = super::approvals::named(&it, "held.test", "/status/200");
    let denied = it.post("/compose", json!({"method": "GET", "url": url})).await.json();
    assert!(denied["error"]["kind"].is_string() && denied["response"].is_null(), "{denied}");
    assert!(it.origin.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_request_is_shown_as_code() {
    let it = Instance::start().await;
    let request = json!({"method": "POST", "url": "http://a.test/x", "headers": [["X-A", "it's"]], "body": "b"});
    for (format, start) in
        [("curl", "curl --http1.1 "), ("go", "package main"), ("rust", "// [dependencies]"), ("php", "<?php")]
    {
        let code = it.post(&format!("/compose/code?format={format}"), request.clone()).await.json();
        assert!(code["code"].as_str().is_some_and(|c| c.starts_with(start)), "{format}: {code}");
    }
    assert_eq!(it.post("/compose/code?format=har", request).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_files_and_changes_need_the_revision() {
    let it = Instance::start().await;
    assert_eq!(it.json("/collections").await["collections"], json!([]));
    let collection = json!({
        "variables": [{"name": "base", "value": "http://a.test"}],
        "requests": [{"name": "one", "method": "GET", "url": "{{base}}/", "headers": [["A", "b"]], "body": "",
            "assertions": [{"kind": "status", "at": "", "expected": "200"}]}],
    });
    let put = |name: &'static str, body: Value| put_json(&it, name, body);
    let made = put("/collections/My%20API", json!({"collection": collection})).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let read = it.json("/collections/My%20API").await;
    assert_eq!((&read["collection"], &read["revision"]), (&collection, &made.json()["revision"]));
    assert_eq!(it.json("/collections").await["collections"][0]["name"], "My API");
    let again = put("/collections/My%20API", json!({"collection": {}})).await;
    assert_eq!((again.status, kind(&again).as_str()), (409, "changed_meanwhile"));
    let stale = put("/collections/My%20API", json!({"collection": {}, "revision": "0"})).await;
    assert_eq!(stale.status, 409);
    let changed = put("/collections/My%20API", json!({"collection": {}, "revision": read["revision"]})).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let file = it._dir.path().join("collections/My API.json");
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for name in ["..%2Fadmin", ".history", "a%2Fb", "%2e%2e"] {
        let refused = put_json(&it, &format!("/collections/{name}"), json!({"collection": {}})).await;
        assert!(matches!(refused.status, 400 | 404), "{name}: {}", refused.status);
    }
    assert_eq!(it.call("DELETE", "/collections/My%20API", &[], b"").await.status, 204);
    assert_eq!(it.call("DELETE", "/collections/My%20API", &[], b"").await.status, 404);
}

async fn put_json(it: &Instance, path: &str, body: Value) -> Answer {
    it.call("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
}
