//! Sessions of clients and with servers, and the rules of the transport.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::server::{over_http, over_stdio};
use crate::{Gate, Log, request, web};

#[tokio::test]
async fn requests_need_a_session_that_exists() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let ping = request(1, "ping", &json!({})).to_string();
    let json_type = "Content-Type: application/json\r\n";
    for (method, fields, body, status, says) in [
        ("POST", json_type.to_owned(), ping.as_str(), 400, "begin a session"),
        ("POST", format!("{json_type}Mcp-Session-Id: made-up\r\n"), &ping, 404, "no such session"),
        ("POST", format!("{json_type}MCP-Protocol-Version: 1999-01-01\r\n"), &ping, 400, "2025-06-18"),
        ("POST", "Content-Type: text/plain\r\n".to_owned(), &ping, 415, "application/json"),
        ("POST", json_type.to_owned(), "{", 400, "invalid JSON"),
        ("GET", "Accept: text/event-stream\r\n".to_owned(), "", 400, "begin a session"),
        ("PUT", "Accept: text/event-stream\r\n".to_owned(), "", 405, "POST"),
        ("DELETE", "Mcp-Session-Id: made-up\r\n".to_owned(), "", 404, "no such session"),
    ] {
        let answer = gate.send(method, &fields, body).await;
        assert_eq!(answer.status, status, "{method} {fields} {}", answer.text());
        assert!(answer.text().contains(says), "{}", answer.text());
    }
    assert_eq!(gate.rpc("ping", json!({})).await, json!({}));
    assert!(gate.error("sampling/createMessage", json!({})).await.contains("no method"));
    let methods: Vec<_> =
        log.text().lines().map(|m| serde_json::from_str::<Value>(m).unwrap()["method"].clone()).collect();
    assert_eq!(
        methods,
        ["server/discover", "initialize", "notifications/initialized"],
        "the server was asked what it has, and nothing else"
    );
}

#[tokio::test]
async fn an_unknown_server_has_no_endpoint() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let mut wire = interflow_testkit::Wire::connect(gate.proxy.gateway()).await.unwrap();
    let body = request(1, "initialize", &json!({})).to_string();
    let length = body.len();
    let head = "POST /mcp/other HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json";
    wire.send(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.text().contains("no MCP server other")), (404, true), "{}", answer.text());
}

#[tokio::test]
async fn a_session_ends_with_delete_here_and_at_the_server() {
    let origin = over_http(100).await;
    let gate = Gate::start(&web(&origin, "")).await;
    gate.call("web__echo", json!({})).await;
    let fields = format!("Mcp-Session-Id: {}\r\n", gate.session);
    assert_eq!(gate.send("DELETE", &fields, "").await.status, 204);
    assert_eq!(gate.post(&request(1, "ping", &json!({})), "").await.status, 404);
    let last = origin.requests().pop().unwrap();
    assert_eq!((last.method.as_str(), last.header("mcp-session-id")), ("DELETE", Some("s0")));
}

#[tokio::test]
async fn a_session_that_expires_ends_at_the_server_too() {
    let origin = over_http(100).await;
    let gate = Gate::start(&format!("[mcp]\nsession_timeout = '200ms'\n{}", web(&origin, ""))).await;
    gate.call("web__echo", json!({})).await;
    assert_eq!(gate.service.counts().sessions, 1);
    let ended = async {
        while !origin.requests().iter().any(|r| r.method == "DELETE" && r.header("mcp-session-id") == Some("s0")) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("the server is told");
    assert_eq!((gate.service.counts().sessions, gate.post(&request(1, "ping", &json!({})), "").await.status), (0, 404));
}

#[tokio::test]
async fn a_session_that_begins_while_the_last_one_is_being_ended_expires_too() {
    let answer = |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        match message["method"].as_str() {
            Some("initialize") => Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": hello }))
                .header("Mcp-Session-Id", "s1"),
            // The server takes its time to end a session.
            _ if request.method == "DELETE" => Reply::status(200).delay(std::time::Duration::from_secs(1)),
            _ => Reply::status(202),
        }
    };
    let origin = Origin::http().answering(answer).start().await;
    let gate = Gate::start(&format!("[mcp]\nsession_timeout = '200ms'\n{}", web(&origin, ""))).await;
    while !origin.requests().iter().any(|r| r.method == "DELETE") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    gate.post(&request(0, "initialize", &json!({ "protocolVersion": "2025-11-25" })), "").await;
    assert_eq!(gate.service.counts().sessions, 1);
    let ended = async {
        while gate.service.counts().sessions > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("it ends as the first did");
}

#[tokio::test]
async fn a_session_that_makes_room_for_another_ends_at_the_server_too() {
    let origin = over_http(100).await;
    let gate = Gate::start(&format!("[mcp]\nmax_sessions = 1\n{}", web(&origin, ""))).await;
    gate.call("web__echo", json!({})).await;
    gate.post(&request(0, "initialize", &json!({ "protocolVersion": "2025-06-18" })), "").await;
    let ended = async {
        while !origin.requests().iter().any(|r| r.method == "DELETE") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("the server is told");
}

#[tokio::test]
async fn a_session_that_the_server_forgot_begins_anew() {
    // One request is the notification after the beginning.
    let origin = over_http(2).await;
    let gate = Gate::start(&web(&origin, "")).await;
    for _ in 0..3 {
        assert_eq!(gate.call("web__echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
    }
    let begun = origin.requests().iter().filter(|r| r.body.windows(10).any(|w| w == b"initialize")).count();
    assert!(begun >= 2, "{begun}");
}

#[tokio::test]
async fn notifications_are_accepted_without_a_response() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = gate.post(&initialized, "").await;
    assert_eq!((answer.status, answer.body.len()), (202, 0));
}

#[tokio::test]
async fn a_cancelled_call_ends_for_client_and_server() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let call = request(5, "tools/call", &json!({ "name": "local__slow", "arguments": {} }));
    let cancel = async {
        log.wait_for("\"slow\"").await;
        let other = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 6 } });
        gate.post(&other, "").await;
        let this = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
        gate.post(&this, "").await;
    };
    let (answer, ()) = tokio::join!(gate.post(&call, ""), cancel);
    assert_eq!(answer.json()["error"]["code"], json!(-32800), "{}", answer.text());
    log.wait_for("notifications/cancelled").await;
}

#[tokio::test]
async fn a_call_without_a_response_ends_at_its_time_limit() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "timeout = '50ms'")).await;
    let error = gate.call_error("local__slow", json!({})).await;
    assert!(error.contains("no response within 50ms"), "{error}");
    log.wait_for("notifications/cancelled").await;
}

#[tokio::test]
async fn versions_are_negotiated() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    for (asked, given) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let result: Value = gate.rpc("initialize", json!({ "protocolVersion": asked })).await;
        assert_eq!(result["protocolVersion"], given);
    }
}

#[tokio::test]
async fn the_gateway_gets_access_tokens_for_a_server_with_its_client_credentials() {
    let origin = over_http(100).await;
    let (url, token_url) = (origin.url("/mcp"), origin.url("/token"));
    let oauth =
        format!("{{ token_url = '{token_url}', client_id = 'gate', client_secret = 's&t', scopes = ['a', 'b'] }}");
    let gate = Gate::start(&format!("[mcp.server.web]\nurl = '{url}'\noauth = {oauth}")).await;
    for _ in 0..2 {
        assert_eq!(gate.call("web__echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
    }
    let fetched = origin.requests().iter().filter(|r| r.path() == "/token").count();
    assert_eq!(fetched, 1, "it is kept");
}
