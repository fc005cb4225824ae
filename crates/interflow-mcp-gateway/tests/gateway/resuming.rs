//! Streams of sessions that are resumed with `Last-Event-ID`.

use serde_json::{Value, json};

use crate::server::{MAIL, over_http, over_stdio};
use crate::{EventStream, Gate, Log, request, web};

/// The stream of a session, resumed after an event.
async fn resume(gate: &Gate, id: &str) -> EventStream {
    gate.stream_with("GET", &format!("Last-Event-ID: {id}\r\n"), "").await
}

/// Has the server tell of a change with this level.
async fn log(gate: &Gate, note: &str) {
    gate.call("local__note", json!({ "note": note, "mail": MAIL })).await;
}

async fn next(stream: &mut EventStream) -> (String, Value) {
    let told = stream.next().await.unwrap();
    (stream.last_id.clone(), told["params"]["data"]["note"].clone())
}

fn event(id: &str, note: &str) -> (String, Value) {
    (id.to_owned(), json!(note))
}

#[tokio::test]
async fn a_stream_that_broke_off_goes_on_after_the_event_that_the_client_has() {
    let own = Log::create();
    let gate = Gate::start(&over_stdio("local", &own.path, "process_per_session = true")).await;
    let mut first = gate.stream("GET", "").await;
    log(&gate, "a").await;
    log(&gate, "b").await;
    assert_eq!(next(&mut first).await, event("1", "a"));
    assert_eq!(next(&mut first).await, event("2", "b"));
    drop(first);
    // The servers are listened to while the client is away.
    log(&gate, "c").await;
    let mut resumed = resume(&gate, "1").await;
    assert_eq!(next(&mut resumed).await, event("2", "b"));
    assert_eq!(next(&mut resumed).await, event("3", "c"));
    log(&gate, "d").await;
    let told = resumed.next().await.unwrap();
    // What the client sent is its own also here.
    assert_eq!((resumed.last_id.as_str(), &told["params"]["data"]["mail"]), ("4", &json!(MAIL)));
    // Ids that are unknown, and none.
    for (id, note, number) in [("77", "e", "5"), ("x", "f", "6"), ("", "g", "7")] {
        let mut stream = if id.is_empty() { gate.stream("GET", "").await } else { resume(&gate, id).await };
        log(&gate, note).await;
        assert_eq!(next(&mut stream).await, event(number, note), "{id}");
    }
    // Bounded: the first are gone.
    for _ in 0..300 {
        log(&gate, "many").await;
    }
    let mut stream = resume(&gate, "7").await;
    log(&gate, "last").await;
    assert_eq!(next(&mut stream).await, event("308", "last"));
    assert!(!gate.recorded(20).await.contains(MAIL));
}

#[tokio::test]
async fn a_request_that_waits_for_the_client_is_sent_again_and_others_are_not() {
    let own = Log::create();
    let config = over_stdio("local", &own.path, "process_per_session = true");
    let gate = Gate::of_client("/mcp", &config, json!({ "elicitation": {} })).await;
    let mut first = gate.stream("GET", "").await;
    let call = async { gate.call("local__ask", json!({})).await };
    let answer = async {
        let asked = first.next().await.unwrap();
        drop(first);
        let mut second = resume(&gate, "0").await;
        assert_eq!(second.next().await.unwrap(), asked, "it still waits");
        let refused = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -1, "message": "no" } });
        gate.post(&refused, "").await;
    };
    let (said, ()) = tokio::join!(call, answer);
    assert!(said.contains("no"), "{said}");
    let mut third = resume(&gate, "0").await;
    gate.call("local__touch", json!({})).await;
    assert_eq!(third.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(third.last_id, "2");
}

#[tokio::test]
async fn a_client_that_left_its_stream_is_asked_on_that_of_its_call() {
    let own = Log::create();
    let config = over_stdio("local", &own.path, "process_per_session = true");
    let gate = Gate::of_client("/mcp", &config, json!({ "elicitation": {} })).await;
    drop(gate.stream("GET", "").await);
    // The gateway knows.
    gate.proxy.flows(2).await;
    let call = request(5, "tools/call", &json!({ "name": "local__ask", "arguments": {} })).to_string();
    let mut stream = gate.stream("POST", &call).await;
    assert_eq!(stream.next().await.unwrap()["method"], "elicitation/create");
}

#[tokio::test]
async fn a_stream_begins_with_an_id_for_clients_that_know_events_without_data() {
    let origin = over_http(100).await;
    let gate = Gate::start(&web(&origin, "")).await;
    let mut stream = gate.stream_with("GET", "MCP-Protocol-Version: 2025-11-25\r\n", "").await;
    gate.rpc("tools/list", json!({})).await;
    while !origin.requests().iter().any(|r| r.method == "GET") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(stream.first_event().await, "id: 0\ndata:");
    drop(stream);
    gate.call("web__touch", json!({})).await;
    let mut resumed = resume(&gate, "0").await;
    assert_eq!(resumed.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(resumed.last_id, "1");
}
