//! Composed requests, their code, and collections.

use interflow_testkit::Script;
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
async fn composed_web_socket_carries_messages_until_it_is_closed() {
    let it = Instance::start().await;
    let url = it.origin.url("/ws").replace("http://", "ws://");
    let fields = json!([["X-A", "1"], ["Sec-WebSocket-Extensions", "permessage-deflate"], ["Sec-WebSocket-Key", "x"]]);
    let opened = it.post("/compose/websocket", json!({"url": url, "headers": fields})).await.json();
    assert_eq!(opened["response"]["status"], 101, "{opened}");
    let request = it.origin.requests().pop().unwrap();
    assert_eq!((request.header("x-a"), request.header("sec-websocket-extensions")), (Some("1"), None));
    let path = format!("/compose/websocket/{}", opened["id"].as_str().unwrap());
    let flow = format!("/flows/{}", opened["id"].as_str().unwrap());
    for message in [json!("hello"), json!({"base64": "AP8="})] {
        assert_eq!(it.post(&path, json!({"message": message})).await.status, 204);
    }
    let messages = settled(&it, &format!("{flow}/messages"), |page| page["total"] == 4).await["messages"].clone();
    let sent = |direction: &str| -> Vec<Value> {
        let of = messages.as_array().unwrap().iter().filter(|m| m["direction"] == direction);
        of.map(|m| json!([m["kind"], m["payload"]])).collect()
    };
    let expected = vec![json!(["text", "hello"]), json!(["binary", {"base64": "AP8="}])];
    assert_eq!((sent("request"), sent("response")), (expected.clone(), expected));
    let open = it.json(&flow).await;
    assert_eq!(
        (&open["state"], &open["kind"], &open["tags"]),
        (&json!("open"), &json!("websocket"), &json!(["composed"]))
    );

    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 204);
    let ended = settled(&it, &flow, |flow| flow["state"] != "open").await;
    assert_eq!((&ended["state"], &ended["error"]), (&json!("complete"), &Value::Null), "{ended}");
    // Both sides sent Close.
    assert_eq!(ended["messages"], 6);
    let late = it.post(&path, json!({"message": "late"})).await;
    assert_eq!((late.status, kind(&late).as_str()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_web_socket_with_a_wrong_answer_to_its_key_is_not_opened() {
    let it = Instance::start().await;
    // The last is the answer to the key of RFC 6455 1.3, which is not that of this handshake.
    for accept in ["", "Sec-WebSocket-Accept: x\r\n", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"] {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        let script = Script::new().head().send(format!("{head}{accept}\r\n")).stall();
        let origin = Origin::script(script).await;
        let key = json!([["Sec-WebSocket-Key", "x"]]);
        let url = format!("ws://{}/", origin.addr());
        let opened = it.post("/compose/websocket", json!({"url": url, "headers": key})).await.json();
        assert_eq!(opened["response"], Value::Null, "{opened}");
        let message = opened["error"]["message"].as_str().unwrap();
        assert!(message.contains("Sec-WebSocket-Accept is wrong"), "{message}");
        let path = format!("/compose/websocket/{}", opened["id"].as_str().unwrap());
        assert_eq!(it.post(&path, json!({"message": "x"})).await.status, 404);
        let flow = it.json(&format!("/flows/{}", opened["id"].as_str().unwrap())).await;
        assert_eq!(flow["state"], "failed", "{flow}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_web_socket_that_is_refused_has_the_response() {
    let it = Instance::start().await;
    let refused = it.post("/compose/websocket", json!({"url": it.origin.url("/status/403")})).await.json();
    assert_eq!(refused["response"]["status"], 403, "{refused}");
    let path = format!("/compose/websocket/{}", refused["id"].as_str().unwrap());
    assert_eq!(it.post(&path, json!({"message": "x"})).await.status, 404);
    for wrong in ["ftp://a.test/", "ws://a b/", "/path"] {
        assert_eq!(it.post("/compose/websocket", json!({"url": wrong})).await.status, 400, "{wrong}");
    }
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    let url = super::approvals::named(&it, "held.test", "/socket");
    let denied = it.post("/compose/websocket", json!({"url": url})).await.json();
    assert!(denied["error"]["kind"].is_string() && denied["response"].is_null(), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_grpc_call_is_written_to_until_it_is_half_closed() {
    let it = Instance::start().await;
    let fields = json!([["X-A", "1"], ["content-type", "text/plain"]]);
    let opened = it.post("/compose/grpc", json!({"url": it.origin.url("/grpc"), "headers": fields})).await.json();
    assert_eq!((&opened["response"], &opened["error"]), (&Value::Null, &Value::Null), "{opened}");
    let path = format!("/compose/grpc/{}", opened["id"].as_str().unwrap());
    let flow = format!("/flows/{}", opened["id"].as_str().unwrap());
    // The flow is known before anything was sent.
    let open = it.json(&flow).await;
    assert_eq!((&open["state"], &open["tags"]), (&json!("open"), &json!(["composed"])));
    for messages in [json!([{"base64": "CAE="}, {"base64": "CAI="}]), json!([{"base64": "CAM="}])] {
        assert_eq!(it.post(&path, json!({"messages": messages})).await.status, 204);
    }
    // They are sent as they are written; this server answers once it has all of them.
    let sent = settled(&it, &format!("{flow}/messages"), |page| page["total"] == 3).await;
    assert_eq!(sent["messages"][2]["payload"], json!("\u{8}\u{3}"));
    assert_eq!(it.json(&flow).await["state"], "open");
    assert_eq!(it.post(&path, json!({"end": true})).await.status, 204);
    let ended = settled(&it, &flow, |flow| flow["state"] != "open").await;
    assert_eq!((&ended["state"], &ended["messages"]), (&json!("complete"), &json!(6)), "{ended}");
    let request = it.origin.requests().pop().unwrap();
    assert_eq!(
        (request.header("x-a"), request.header("content-type"), request.header("te")),
        (Some("1"), Some("application/grpc"), Some("trailers"))
    );
    assert_eq!(request.body, b"\0\0\0\0\x02\x08\x01\0\0\0\0\x02\x08\x02\0\0\0\0\x02\x08\x03"[..]);
    let late = it.post(&path, json!({"messages": []})).await;
    assert_eq!((late.status, kind(&late).as_str()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_grpc_call_that_is_cancelled_or_fails_ends_its_flow() {
    let it = Instance::start().await;
    let opened = it.post("/compose/grpc", json!({"url": it.origin.url("/grpc")})).await.json();
    let path = format!("/compose/grpc/{}", opened["id"].as_str().unwrap());
    assert_eq!(it.post(&path, json!({"messages": ["text"]})).await.status, 204);
    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 204);
    let flow = format!("/flows/{}", opened["id"].as_str().unwrap());
    let ended = settled(&it, &flow, |flow| flow["state"] != "open").await;
    assert_eq!(ended["error"]["kind"], "client_gone", "{ended}");
    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 404);

    // A server that does not answer what it got completely.
    let opened = it.post("/compose/grpc", json!({"url": it.origin.url("/stall")})).await.json();
    let path = format!("/compose/grpc/{}", opened["id"].as_str().unwrap());
    assert_eq!(it.post(&path, json!({"messages": ["text"], "end": true})).await.status, 204);
    assert_eq!(it.call("DELETE", &path, &[], b"").await.status, 204);
    let flow = format!("/flows/{}", opened["id"].as_str().unwrap());
    let ended = settled(&it, &flow, |flow| flow["state"] != "open").await;
    assert_eq!(ended["error"]["kind"], "client_gone", "{ended}");

    let wrong = it.post("/compose/grpc", json!({"url": "file:///a"})).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    it.post("/approvals/mode", json!({"mode": "enforce"})).await;
    let url = super::approvals::named(&it, "held.test", "/grpc");
    let denied = it.post("/compose/grpc", json!({"url": url})).await.json();
    let flow = format!("/flows/{}", denied["id"].as_str().unwrap());
    let denied = settled(&it, &flow, |flow| flow["state"] != "open").await;
    assert!(denied["error"]["kind"].is_string() && denied["response"].is_null(), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn composed_grpc_call_whose_client_leaves_before_it_is_opened_is_cancelled() {
    let it = Instance::start().await;
    let mut connections = Vec::new();
    // More than may be open at once.
    for _ in 0..40 {
        // It accepts connections and answers no TLS handshake.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/grpc", silent.local_addr().unwrap());
        connections.push(tokio::select! {
            opened = it.post("/compose/grpc", json!({"url": url})) => panic!("{}", opened.text()),
            accepted = silent.accept() => accepted.unwrap(),
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proto_files_are_compiled_for_composed_calls() {
    let it = Instance::start().await;
    assert_eq!(it.json("/compose/schemas").await["descriptor_sets"], json!([]));
    let file = json!(["a.proto", "syntax = \"proto3\"; package p; message M { string name = 1; }"]);
    let compiled = it.post("/compose/schemas", json!({"files": [file]})).await;
    let set = compiled.json()["descriptor_sets"][0].as_str().map(str::to_owned);
    assert!(compiled.status == 200 && set.is_some_and(|s| s.len() > 20), "{}", compiled.text());
    let wrong = it.post("/compose/schemas", json!({"files": [["b.proto", "message {"]]})).await;
    assert!(wrong.status == 400 && wrong.text().contains("b.proto"), "{}", wrong.text());
    // The bounds of a checked text hold for all files together.
    let large = it.post(
        "/compose/schemas",
        json!({"files": [["c.proto", "/".repeat(3 << 20)], ["d.proto", "/".repeat(2 << 20)]]}),
    );
    let large = large.await;
    assert_eq!((large.status, kind(&large).as_str()), (413, "too_large"));
    let deep = it.post("/compose/schemas", json!({"files": [["e.proto", "{".repeat(201)]]})).await;
    assert_eq!((deep.status, kind(&deep).as_str()), (422, "too_deep"));
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

/// Asks until the answer is as it will be.
async fn settled(it: &Instance, path: &str, is_settled: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..500 {
        let answer = it.json(path).await;
        if is_settled(&answer) {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{path} does not settle: {}", it.json(path).await);
}

async fn put_json(it: &Instance, path: &str, body: Value) -> Answer {
    it.call("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
}
