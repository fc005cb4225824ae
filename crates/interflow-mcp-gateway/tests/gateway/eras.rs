//! What versions with and without sessions do not have in common, and sessions that another replica began.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{once, unfold};
use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::server::over_http;
use crate::stateless::{VERSION, ask, ask_with, call, said};
use crate::{Gate, request, web};

/// A server without sessions, with this result or error of each method.
pub async fn modern(answer: impl Fn(&str, &Value, &Request) -> Value + Send + Sync + 'static) -> Origin {
    Origin::http()
        .answering(move |request: &Request| {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
            let answered = answer(method, params, request);
            let member = if answered["code"].is_number() { "error" } else { "result" };
            let mut body = json!({ "jsonrpc": "2.0", "id": message["id"] });
            body[member] = answered;
            Reply::json(&body)
        })
        .start()
        .await
}

pub fn section(name: &str, origin: &Origin, more: &str) -> String {
    format!("[mcp.server.{name}]\nurl = '{}'\n{more}\n", origin.url("/mcp"))
}

#[tokio::test]
async fn a_result_has_the_members_of_the_clients_version_whatever_the_server_speaks() {
    let info = json!({ "io.modelcontextprotocol/serverInfo": { "name": "theirs" }, "trace": 1.50 });
    let asked = AtomicBool::new(false);
    let server = modern(move |method, params, _| {
        let hints = json!({ "resultType": "complete", "ttlMs": 9, "cacheScope": "public", "_meta": info.clone() });
        let with = |name: &str, value: Value| {
            let mut result = hints.clone();
            result[name] = value;
            result
        };
        match (method, params["name"].as_str().unwrap_or_default()) {
            ("server/discover", _) if !asked.swap(true, Relaxed) => {
                let data = json!({ "supported": [VERSION], "requested": VERSION });
                json!({ "code": -32022, "message": "try again", "data": data })
            }
            ("server/discover", _) => {
                json!({ "supportedVersions": [VERSION], "capabilities": { "tools": {}, "resources": {}, "prompts": {} } })
            }
            ("tools/list", _) => {
                let annotated = json!({ "properties": { "a": { "type": "number", "x-mcp-header": "A" } } });
                let invalid = json!({ "name": "invalid", "inputSchema": annotated });
                json!({ "tools": [{ "name": "echo" }, invalid, { "name": "mismatch" }, { "name": "need" }] })
            }
            ("tools/call", "mismatch") => json!({ "code": -32020, "message": "the header fields differ" }),
            ("tools/call", "need") => json!({ "code": -32021, "message": "sampling" }),
            ("tools/call", _) => with("content", json!([{ "type": "text", "text": "x", "ttlMs": 1 }])),
            ("resources/read", _) => with("contents", json!([{ "uri": params["uri"], "text": "t" }])),
            ("prompts/list", _) => json!({ "prompts": [{ "name": "greet" }] }),
            _ => with("messages", json!([])),
        }
    })
    .await;
    let gate = Gate::at("/mcp/new", &section("new", &server, "")).await;
    // A client leaves out a tool whose annotations are invalid, and so does the gateway.
    assert_eq!(gate.names("tools/list", "tools").await, ["echo", "mismatch", "need"]);
    assert!(gate.call_error("invalid", json!({})).await.contains("lists no tool"));
    let content = json!([{ "type": "text", "text": "x", "ttlMs": 1 }]);
    let meta = json!({ "trace": 1.5 });
    let called = gate.rpc("tools/call", call("echo", json!({}))).await;
    assert_eq!(called, json!({ "content": content, "_meta": meta }), "of a version with sessions");
    let read = gate.rpc("resources/read", json!({ "uri": "test://a" })).await;
    assert_eq!(read, json!({ "contents": [{ "uri": "test://a", "text": "t" }], "_meta": meta }));
    let prompt = gate.rpc("prompts/get", json!({ "name": "greet" })).await;
    assert_eq!(prompt, json!({ "messages": [], "_meta": meta }));
    // The same on a stream.
    let mut params = call("echo", json!({}));
    params["_meta"] = json!({ "progressToken": "p" });
    let mut stream = gate.stream("POST", &request(5, "tools/call", &params).to_string()).await;
    assert_eq!(stream.next().await.unwrap()["result"], called);
    let own = ask(&gate, "tools/call", call("echo", json!({}))).await;
    let name = &own["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(
        (&own["resultType"], name, &own["_meta"]["trace"]),
        (&json!("complete"), &json!("interflow"), &json!(1.5))
    );
    // A mistake of the gateway's own request is none of the client's.
    for (tool, without_session, with_session) in [("mismatch", -32000, -32000), ("need", -32021, -32000)] {
        let answer = ask_with(&gate, "tools/call", &call(tool, json!({})), &json!({}), "").await.json();
        assert_eq!(answer["error"]["code"], without_session, "{answer}");
        let answer = gate.post(&request(3, "tools/call", &call(tool, json!({}))), "").await.json();
        assert_eq!(answer["error"]["code"], with_session, "{answer}");
    }
}

#[tokio::test]
async fn tasks_of_versions_with_sessions_are_not_offered_to_clients_without() {
    let server = Origin::http()
        .answering(|request: &Request| {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let result = match message["method"].as_str().unwrap_or_default() {
                "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
                "tools/list" => json!({ "tools": [{ "name": "t", "execution": { "taskSupport": "optional" } }] }),
                _ => return Reply::status(400),
            };
            Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
        })
        .start()
        .await;
    let gate = Gate::at("/mcp/old", &section("old", &server, "")).await;
    assert_eq!(ask(&gate, "tools/list", json!({})).await["tools"], json!([{ "name": "t" }]));
    let listed = gate.rpc("tools/list", json!({})).await;
    assert_eq!(listed["tools"][0]["execution"]["taskSupport"], "optional");
}

/// A server with sessions, each with a stream of its own, on which it asks what the tool is called with.
async fn server_that_asks_on_streams() -> Origin {
    let streams = Arc::new(Mutex::new(Vec::<mpsc::UnboundedSender<Bytes>>::new()));
    let waiting = Arc::new(Mutex::new(Vec::<mpsc::UnboundedSender<Value>>::new()));
    let sessions = AtomicUsize::new(0);
    Origin::http()
        .answering(move |request: &Request| {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let session: usize = request.header("mcp-session-id").and_then(|id| id.parse().ok()).unwrap_or_default();
            let reply = |result: Value| json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            let events = || Reply::status(200).header("Content-Type", "text/event-stream");
            if request.method == "GET" {
                let (stream, received) = mpsc::unbounded_channel();
                streams.lock().unwrap()[session] = stream;
                return events().stream(unfold(received, |mut all| async move { Some((all.recv().await?, all)) }));
            }
            match message["method"].as_str() {
                Some("initialize") => {
                    streams.lock().unwrap().push(mpsc::unbounded_channel().0);
                    waiting.lock().unwrap().push(mpsc::unbounded_channel().0);
                    let number = sessions.fetch_add(1, Relaxed);
                    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
                    Reply::json(&reply(hello)).header("Mcp-Session-Id", number.to_string())
                }
                Some("tools/list") => Reply::json(&reply(json!({ "tools": [{ "name": "ask" }] }))),
                Some("tools/call") => {
                    let (answer, mut answered) = mpsc::unbounded_channel();
                    waiting.lock().unwrap()[session] = answer;
                    let form = json!({ "message": message["params"]["arguments"]["of"], "requestedSchema": {} });
                    let question =
                        json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form });
                    streams.lock().unwrap()[session].send(format!("data: {question}\n\n").into()).unwrap();
                    let id = message["id"].clone();
                    let done = async move {
                        let text = answered.recv().await.unwrap()["result"]["content"].to_string();
                        let result = json!({ "content": [{ "type": "text", "text": text }] });
                        Bytes::from(format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })))
                    };
                    events().stream(once(done).chain(futures_util::stream::empty()))
                }
                None if message["id"] == "q" => {
                    waiting.lock().unwrap()[session].send(message).unwrap();
                    Reply::status(202)
                }
                Some("notifications/initialized") => Reply::status(202),
                _ => Reply::status(400),
            }
        })
        .start()
        .await
}

#[tokio::test]
async fn what_a_server_asks_on_its_own_stream_reaches_the_call_that_caused_it() {
    let origin = server_that_asks_on_streams().await;
    let gate = Gate::at("/mcp/web", &web(&origin, "")).await;
    let capabilities = json!({ "elicitation": {} });
    let begin = |of: &'static str| {
        let (gate, capabilities) = (&gate, &capabilities);
        async move { ask_with(gate, "tools/call", &call("ask", json!({ "of": of })), capabilities, "").await.json() }
    };
    let (first, second, third) = tokio::join!(begin("first"), begin("second"), begin("third"));
    for (of, asked) in [("second", second), ("first", first), ("third", third)] {
        let requests = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{of}: {asked}"));
        let (key, question) = requests.iter().next().unwrap();
        assert_eq!((requests.len(), &question["params"]["message"]), (1, &json!(of)));
        let mut again = call("ask", json!({ "of": of }));
        again["requestState"] = asked["result"]["requestState"].clone();
        again["inputResponses"] = json!({ key: { "action": "accept", "content": { "for": of } } });
        let done = ask_with(&gate, "tools/call", &again, &capabilities, "").await.json();
        assert_eq!(said(&done["result"]), json!({ "for": of }).to_string());
    }
    let begun = |origin: &Origin| {
        origin.requests().iter().filter(|r| r.body.windows(12).any(|w| w == b"\"initialize\"")).count()
    };
    let before = begun(&origin);
    begin("again").await;
    assert_eq!(begun(&origin), before, "sessions with the server are used again");
}

#[tokio::test]
async fn a_session_goes_on_at_another_replica_for_its_client_until_it_ends() {
    let origin = over_http(100).await;
    let config = web(&origin, "");
    let first = Gate::of_client("/mcp", &config, json!({ "elicitation": {} })).await;
    first.rpc("resources/list", json!({})).await;
    let mut second = Gate::at("/mcp", &config).await;
    let own = std::mem::replace(&mut second.session, first.session.clone());
    assert_eq!(second.call("web__echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
    let read = second.rpc("resources/read", json!({ "uri": "file:///anna.berg/notes" })).await;
    assert!(
        read["contents"][0]["text"].as_str().unwrap().contains("by "),
        "it lists what the first one listed: {read}"
    );
    assert_eq!(second.service.counts().sessions, 2);
    // What the client can be asked is known there, too.
    let mut stream = second.stream("POST", &request(5, "tools/call", &call("web__ask", json!({}))).to_string()).await;
    let asked = stream.next().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    second.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } }), "").await;
    assert_eq!(said(&stream.next().await.unwrap()["result"]), r#"{"action":"decline"}"#);
    // It is of its endpoint alone, and nobody makes one up.
    let ping = request(1, "ping", &json!({}));
    let elsewhere = Gate::without_session("/mcp/web", &config).await;
    let fields = |id: &str| format!("Content-Type: application/json\r\nMcp-Session-Id: {id}\r\n");
    assert_eq!(elsewhere.send("POST", &fields(&first.session), &ping.to_string()).await.status, 404);
    let altered = format!("{}A", &first.session[..first.session.len() - 1]);
    for id in [altered.as_str(), "AAAA", &"x".repeat(2000)] {
        assert!(id == first.session || second.send("POST", &fields(id), &ping.to_string()).await.status == 404, "{id}");
    }
    assert_eq!(second.send("DELETE", &format!("Mcp-Session-Id: {}\r\n", first.session), "").await.status, 204);
    assert_eq!(second.post(&ping, "").await.status, 404, "it ended");
    second.session = own;
    assert_eq!(second.post(&ping, "").await.status, 200);
}
