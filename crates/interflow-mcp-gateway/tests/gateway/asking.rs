//! What servers ask and tell clients beside their responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{once, pending};
use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{Gate, Log, request, web};

fn ask(tool: &str, arguments: &Value) -> String {
    request(5, "tools/call", &json!({ "name": tool, "arguments": arguments })).to_string()
}

fn client() -> Value {
    json!({ "elicitation": {}, "roots": { "listChanged": true } })
}

#[tokio::test]
async fn a_server_asks_the_client_during_a_call_and_gets_the_answer() {
    let (origin, log) = (over_http(100).await, Log::create());
    let own = over_stdio("local", &log.path, "process_per_session = true\narguments = 'redact'");
    let gate = Gate::of_client("/mcp", &format!("{}{own}", web(&origin, "")), client()).await;
    for tool in ["web__ask", "local__ask"] {
        let mut stream = gate.stream("POST", &ask(tool, &json!({ "why": "it helps" }))).await;
        let asked = stream.next().await.unwrap();
        assert_eq!(asked["method"], "elicitation/create");
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("it helps") && message.contains("EMAIL") && !message.contains(OTHER_MAIL),
            "{message}"
        );
        assert_eq!(asked["params"]["requestedSchema"]["properties"]["mail"]["type"], "string");
        let form = json!({ "action": "accept", "content": { "mail": MAIL } });
        let answer = gate.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": form }), "").await;
        assert_eq!((answer.status, answer.body.len()), (202, 0));
        // What the client sent is its own again in the result.
        let done = stream.next().await.unwrap();
        let said: Value = serde_json::from_str(done["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!((&done["id"], &said), (&json!(5), &form));
        assert!(stream.next().await.is_none(), "nothing follows the response");
    }
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    for (arrived, declared) in [(arrived, "web"), (log.text(), "local")] {
        // Answers are arguments: the server gets what the client sent, unless they are redacted for it.
        assert!(arrived.contains("\"accept\""), "{arrived}");
        assert_eq!((arrived.contains(MAIL), declared), (declared == "web", declared), "{arrived}");
        assert!(arrived.contains(r#""capabilities":{"elicitation":{},"roots":{}}"#), "{declared}: {arrived}");
    }
    let recorded = gate.recorded(5).await;
    assert!(
        recorded.contains("\"accept\"") && !recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL),
        "{recorded}"
    );
}

#[tokio::test]
async fn nothing_is_asked_that_client_operator_or_gateway_do_not_know() {
    let (origin, log, shared) = (over_http(100).await, Log::create(), Log::create());
    let own = over_stdio("local", &log.path, "process_per_session = true\nclient_requests = ['sampling']");
    let config = format!("{}{own}{}", web(&origin, ""), over_stdio("shared", &shared.path, ""));
    let gate = Gate::of_client("/mcp", &config, client()).await;
    for (tool, method) in [
        // The client did not offer it.
        ("web__ask", "sampling/createMessage"),
        // The gateway does not know it.
        ("web__ask", "tasks/list"),
        // The operator does not allow it.
        ("local__ask", "elicitation/create"),
        // Nobody knows whom a process that all share asks.
        ("shared__ask", "elicitation/create"),
    ] {
        let said = gate.call(tool, json!({ "method": method })).await;
        assert!(said.contains("-32601"), "{tool} {method}: {said}");
    }
    assert!(log.text().contains(r#""capabilities":{}"#) && shared.text().contains(r#""capabilities":{}"#));
    // An answer that nobody waits for is not recorded.
    let stray = json!({ "jsonrpc": "2.0", "id": 77, "result": { "mail": MAIL } });
    assert_eq!(gate.post(&stray, "").await.status, 202);
    assert!(!gate.recorded(6).await.contains(MAIL));
}

#[tokio::test]
async fn a_person_may_have_to_approve_what_a_server_asks() {
    let origin = over_http(100).await;
    let gate = Gate::of_client("/mcp", &web(&origin, "approve = ['elicitation/*']"), client()).await;
    let said = gate.call("web__ask", json!({ "why": "forbidden" })).await;
    assert!(said.contains("was not approved"), "{said}");
    let shown = gate.asked.lock().unwrap().pop().unwrap();
    assert!(shown.contains("elicitation/create") && shown.contains("web") && !shown.contains(OTHER_MAIL), "{shown}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_inspected_is_an_error_for_the_server() {
    let origin = over_http(100).await;
    let gate = Gate::of_client("/mcp", &web(&origin, ""), client()).await;
    let mut stream = gate.stream("POST", &ask("web__ask", &json!({}))).await;
    let asked = stream.next().await.unwrap();
    let form = json!({ "action": "accept", "content": { "mail": format!("{MAIL} ").repeat(1000) } });
    gate.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": form }), "").await;
    let done = stream.next().await.unwrap();
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("-32011"), "{done}");
}

#[tokio::test]
async fn a_server_asks_on_the_stream_of_the_session_too() {
    let log = Log::create();
    let config = over_stdio("local", &log.path, "process_per_session = true\narguments = 'redact'");
    let gate = Gate::of_client("/mcp", &config, client()).await;
    let mut stream = gate.stream("GET", "").await;
    let call = async { gate.call("local__ask", json!({})).await };
    let answer = async {
        let asked = stream.next().await.unwrap();
        assert_eq!(asked["method"], "elicitation/create");
        let refused = json!({ "code": -1, "message": format!("not for {MAIL}") });
        gate.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refused }), "").await;
    };
    let (said, ()) = tokio::join!(call, answer);
    assert!(said.contains("not for") && said.contains(MAIL), "{said}");
    assert!(!log.text().contains(MAIL), "{}", log.text());
}

#[tokio::test]
async fn changes_reach_the_stream_of_a_session() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    let mut stream = gate.stream("GET", "").await;
    gate.rpc("resources/list", json!({})).await;
    // The stream outside of requests begins with the session at the server.
    while !origin.requests().iter().any(|r| r.method == "GET") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {} });
    for server in ["web", "local"] {
        gate.call(&format!("{server}__touch"), json!({})).await;
        assert_eq!(stream.next().await.unwrap(), changed, "{server}: nothing was subscribed to");
    }
    // Of the two servers that have it, the one that listed it last.
    let resource = json!({ "uri": "file:///anna.berg/notes" });
    gate.rpc("resources/subscribe", resource.clone()).await;
    let owner = if log.text().contains("resources/subscribe") { "local" } else { "web" };
    gate.call(&format!("{owner}__touch"), json!({})).await;
    let updated = stream.next().await.unwrap();
    assert_eq!((&updated["method"], &updated["params"]), (&"notifications/resources/updated".into(), &resource));
    assert_eq!(stream.next().await.unwrap(), changed);
    gate.rpc("resources/unsubscribe", resource).await;
    gate.call(&format!("{owner}__touch"), json!({})).await;
    assert_eq!(stream.next().await.unwrap(), changed, "and to nothing any more");
    // Another stream takes its place, and ends with the session.
    let mut other = gate.stream("GET", "").await;
    assert!(stream.next().await.is_none());
    gate.send("DELETE", &format!("Mcp-Session-Id: {}\r\n", gate.session), "").await;
    assert!(other.next().await.is_none());
}

#[tokio::test]
async fn a_response_whose_stream_ended_is_resumed() {
    let origin = over_http(100).await;
    let gate = Gate::start(&web(&origin, "")).await;
    assert_eq!(gate.call("web__resumed", json!({})).await, "the rest");
    let resumed = origin.requests().pop().unwrap();
    assert_eq!((resumed.method.as_str(), resumed.header("last-event-id")), ("GET", Some("7")));
}

#[tokio::test]
async fn a_call_is_sent_when_its_session_can_hear_the_server() {
    let is_open = Arc::new(AtomicBool::new(false));
    let answer = {
        let is_open = Arc::clone(&is_open);
        move |request: &Request| {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let is_open = Arc::clone(&is_open);
            if request.method == "GET" {
                let opened = once(async move {
                    is_open.store(true, Relaxed);
                    Bytes::from_static(b": open\n\n")
                });
                let events = Reply::status(200).header("Content-Type", "text/event-stream");
                // A server without a store of events drops what it sends before.
                return events.delay(Duration::from_millis(300)).stream(opened.chain(pending()));
            }
            let result = match message["method"].as_str() {
                Some("tools/call") => {
                    let text = if is_open.load(Relaxed) { "heard" } else { "lost" };
                    json!({ "content": [{ "type": "text", "text": text }] })
                }
                Some("initialize") => {
                    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
                    let hello = json!({ "jsonrpc": "2.0", "id": message["id"], "result": hello });
                    return Reply::json(&hello).header("Mcp-Session-Id", "s1");
                }
                Some("tools/list") => json!({ "tools": [{ "name": "ask" }] }),
                _ => return Reply::status(202),
            };
            Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
        }
    };
    let origin = Origin::http().answering(answer).start().await;
    let gate = Gate::of_client("/mcp", &web(&origin, ""), client()).await;
    gate.rpc("tools/list", json!({})).await;
    let _stream = gate.stream("GET", "").await;
    assert_eq!(gate.call("web__ask", json!({})).await, "heard");
}
