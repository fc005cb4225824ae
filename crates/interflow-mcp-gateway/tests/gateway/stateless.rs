//! Clients and servers of the version without sessions, in all combinations with those that have some.

use std::sync::Mutex;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{iter, once, pending, unfold};
use interflow_testkit::{Answer, Origin, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{EventStream, Gate, Log, request, web};

pub const VERSION: &str = "2026-07-28";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A server without sessions. It checks that each request says what it needs.
pub async fn stateless_server() -> Origin {
    let answer = |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        if request.header("mcp-protocol-version") != Some(VERSION) {
            return Reply::status(400).body("an unsupported version");
        }
        assert_eq!((request.header("mcp-method"), request.header("mcp-session-id")), (Some(method), None));
        let name = params["name"].as_str().or(params["uri"].as_str());
        assert!(request.header("mcp-name") == name || name == Some("test://é"), "{method} {name:?}");
        let meta = &params["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], VERSION);
        let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert!(capabilities.is_object() && meta["io.modelcontextprotocol/clientInfo"]["name"] == "interflow");
        let text = |text: String| json!({ "content": [{ "type": "text", "text": text }], "resultType": "complete" });
        let schema =
            json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
        let tools =
            ["echo", "ask", "ask_plain", "busy", "need"].map(|name| json!({ "name": name, "inputSchema": schema }));
        let form = json!({ "message": format!("for {OTHER_MAIL}?"), "requestedSchema": { "type": "object" } });
        let mut asks = json!({ "resultType": "input_required", "requestState": "the server's",
            "inputRequests": { "confirm": { "method": "elicitation/create", "params": form } } });
        let result = match (method, name.unwrap_or_default()) {
            ("server/discover", _) => json!({ "supportedVersions": [VERSION], "instructions": "Be kind.",
                "capabilities": { "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "logging": {} } }),
            ("tools/list", _) => json!({ "tools": tools, "ttlMs": 5000, "cacheScope": "public" }),
            ("resources/list", _) => json!({ "resources": [{ "uri": "test://é", "name": "n" }], "ttlMs": 7000 }),
            ("resources/read", _) => json!({ "contents": [{ "uri": params["uri"], "text": OTHER_MAIL }], "new": 1.50 }),
            ("tools/call", "echo") => {
                let region = request.header("mcp-param-region");
                text(json!([params["arguments"], region, meta["trace"], params["extra"]]).to_string())
            }
            ("tools/call", "ask") if params["inputResponses"].is_null() => asks,
            ("tools/call", "ask_plain") => {
                assert!(params["requestState"].is_null());
                asks.as_object_mut().unwrap().remove("requestState");
                match params["inputResponses"].is_null() {
                    true => asks,
                    false => text(params["inputResponses"].to_string()),
                }
            }
            ("tools/call", "ask") => {
                assert_eq!(params["requestState"], "the server's");
                text(params["inputResponses"].to_string())
            }
            ("tools/call", "busy") if params["requestState"].is_null() => {
                json!({ "resultType": "input_required", "requestState": "later" })
            }
            ("tools/call", "busy") => text("now".to_owned()),
            ("tools/call", "need") => {
                let data = json!({ "requiredCapabilities": { "sampling": {} }, "of": OTHER_MAIL });
                let error = json!({ "code": -32021, "message": "sampling", "data": data });
                let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string();
                return Reply::status(400).header("Content-Type", "application/json").body(body);
            }
            ("subscriptions/listen", _) => {
                let event = |method: &str, params: Value| {
                    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                    Bytes::from(format!("data: {message}\n\n"))
                };
                let uris = params["notifications"]["resourceSubscriptions"].as_array().cloned().unwrap_or_default();
                let updated = |uri: Value| event("notifications/resources/updated", json!({ "uri": uri }));
                let mut events = vec![event("notifications/tools/list_changed", json!({}))];
                events.extend(uris.into_iter().map(updated));
                let events = iter(events).chain(pending());
                return Reply::status(200).header("Content-Type", "text/event-stream").stream(events);
            }
            _ => json!({}),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    };
    Origin::http().answering(answer).start().await
}

/// The header fields of a request, and its body. The client can be asked so much.
pub fn message(id: u64, method: &str, params: &Value, capabilities: &Value) -> (String, String) {
    let mut params = params.clone();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = VERSION.into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    let name = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str()).unwrap_or_default();
    let name = if name.is_ascii() { name } else { "=?base64?dGVzdDovL8Op?=" };
    let fields = format!("MCP-Protocol-Version: {VERSION}\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
    (fields, request(id, method, &params).to_string())
}

pub const ACCEPTS: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

pub async fn ask_with(gate: &Gate, method: &str, params: &Value, capabilities: &Value, more: &str) -> Answer {
    let (fields, body) = message(7, method, params, capabilities);
    gate.send("POST", &format!("{ACCEPTS}{fields}{more}"), &body).await
}

pub async fn ask(gate: &Gate, method: &str, params: Value) -> Value {
    let answer = ask_with(gate, method, &params, &json!({}), "").await;
    let body = answer.json();
    assert_eq!((answer.status, answer.header("mcp-session-id"), &body["id"]), (200, None, &json!(7)), "{body}");
    body["result"].clone()
}

pub fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

pub fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn clients_without_sessions_reach_servers_with_and_without() {
    let (stateless, origin, log) = (stateless_server().await, over_http(100).await, Log::create());
    let new = format!("[mcp.server.new]\nurl = '{}'\n", stateless.url("/mcp"));
    let gate = Gate::start(&format!("{new}{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    let found = ask(&gate, "server/discover", json!({})).await;
    assert_eq!(found["supportedVersions"][0], VERSION);
    assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")), "{found}");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "interflow");
    assert_eq!(found["instructions"], "new: Be kind.");
    let list = ask(&gate, "tools/list", json!({})).await;
    let has = |name: &str| list["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == name);
    assert!(has("new__echo") && has("web__echo") && has("local__echo"), "{list}");
    assert_eq!((&list["ttlMs"], &list["cacheScope"]), (&json!(0), &json!("private")), "two servers give no time");
    for server in ["web", "local"] {
        let result = ask(&gate, "tools/call", call(&format!("{server}__echo"), json!({ "n": 1 }))).await;
        assert_eq!((said(&result), &result["resultType"]), (r#"{"n":1}"#, &json!("complete")));
    }
    let params =
        json!({ "name": "new__echo", "arguments": { "region": "Zürich" }, "extra": 1.50, "_meta": { "trace": "t" } });
    let region = "Mcp-Param-Region: =?base64?WsO8cmljaA==?=\r\n";
    let answer = ask_with(&gate, "tools/call", &params, &json!({}), region).await.json();
    assert_eq!(said(&answer["result"]), r#"[{"region":"Zürich"},"=?base64?WsO8cmljaA==?=","t",1.5]"#);
    // The gateway lists the resource itself.
    let read = ask(&gate, "resources/read", json!({ "uri": "test://é" })).await;
    assert_eq!((&read["ttlMs"], &read["cacheScope"], &read["new"]), (&json!(0), &json!("private"), &json!(1.5)));
    assert!(read["contents"][0]["text"].as_str().unwrap().starts_with("EMAIL_"), "{read}");
    let sessions = origin.requests().iter().filter(|r| r.body.windows(12).any(|w| w == b"\"initialize\"")).count();
    assert!(sessions <= 2, "requests share a session with a server: {sessions}");
}

#[tokio::test]
async fn clients_with_sessions_reach_servers_without() {
    let server = stateless_server().await;
    let config = format!("[mcp.server.new]\nurl = '{}'\n", server.url("/mcp"));
    let gate = Gate::of_client("/mcp/new", &config, json!({ "elicitation": {} })).await;
    assert_eq!(gate.names("tools/list", "tools").await.len(), 5);
    let echoed = gate.call("echo", json!({ "region": "eu" })).await;
    assert_eq!(echoed, r#"[{"region":"eu"},"eu",null,null]"#);
    assert_eq!(gate.call("busy", json!({})).await, "now");
    // It is asked on the stream of its call.
    let mut stream = gate.stream("POST", &request(5, "tools/call", &call("ask", json!({}))).to_string()).await;
    let asked = stream.next().await.unwrap();
    let question = asked["params"]["message"].as_str().unwrap();
    assert!(asked["method"] == "elicitation/create" && question.contains("EMAIL_"), "{asked}");
    let form = json!({ "action": "accept", "content": { "mail": MAIL } });
    gate.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": form }), "").await;
    let done = stream.next().await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(said(&done["result"])).unwrap(), json!({ "confirm": form }));
    // It is told of changes.
    gate.rpc("resources/list", json!({})).await;
    let mut standing = gate.stream("GET", "").await;
    assert_eq!(standing.next().await.unwrap()["method"], "notifications/tools/list_changed");
    gate.rpc("resources/subscribe", json!({ "uri": "test://é" })).await;
    while standing.next().await.unwrap()["params"]["uri"] != "test://é" {}
    let recorded = gate.recorded(7).await;
    assert!(!recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL), "{recorded}");
}

#[tokio::test]
async fn headers_that_disagree_with_the_body_are_refused_and_nothing_is_forwarded() {
    let server = stateless_server().await;
    let gate = Gate::at("/mcp/new", &format!("[mcp.server.new]\nurl = '{}'\n", server.url("/mcp"))).await;
    ask(&gate, "tools/list", json!({})).await;
    let before = server.requests().len();
    let (fields, body) = message(7, "tools/call", &call("echo", json!({ "region": MAIL })), &json!({}));
    let fields = format!("{fields}Mcp-Param-Region: {MAIL}\r\n");
    let no_meta = request(7, "tools/call", &call("echo", json!({}))).to_string();
    let other = |name: &str, value: &str| {
        let lines = fields.lines().map(|line| match line.starts_with(&format!("{name}:")) {
            true if value.is_empty() => String::new(),
            true => format!("{name}: {value}\r\n"),
            false => format!("{line}\r\n"),
        });
        lines.collect::<String>()
    };
    for (fields, body, status, code) in [
        (fields.clone(), no_meta.clone(), 400, -32602),
        (other("Mcp-Method", "tools/list"), no_meta, 400, -32602),
        (other("Mcp-Method", "tools/list"), body.clone(), 400, -32020),
        (other("Mcp-Method", ""), body.clone(), 400, -32020),
        (other("Mcp-Name", "ask"), body.clone(), 400, -32020),
        (other("Mcp-Name", ""), body.clone(), 400, -32020),
        (other("MCP-Protocol-Version", ""), body.clone(), 400, -32020),
        (other("MCP-Protocol-Version", "2025-11-25"), body.clone(), 400, -32020),
        (other("Mcp-Param-Region", "eu"), body.clone(), 400, -32020),
        (other("Mcp-Param-Region", ""), body.clone(), 400, -32020),
        (format!("{fields}mcp-name: echo\r\n"), body.clone(), 400, -32020),
        (format!("{fields}mcp-param-region: {MAIL}\r\n"), body.clone(), 400, -32020),
        (other("MCP-Protocol-Version", "2099-01-01"), body.replace(VERSION, "2099-01-01"), 400, -32022),
        (other("Mcp-Method", "logging/setLevel"), body.replace("tools/call", "logging/setLevel"), 404, -32601),
        (other("Mcp-Method", "initialize"), body.replace("tools/call", "initialize"), 404, -32601),
        (fields.clone(), format!("[{body}]"), 400, -32600),
    ] {
        let answer = gate.send("POST", &format!("{ACCEPTS}{fields}"), &body).await;
        let error = answer.json();
        assert_eq!((answer.status, &error["error"]["code"]), (status, &json!(code)), "{fields}{body}: {error}");
        assert!(code == -32600 || error["id"] == 7, "{error}");
        if code == -32022 {
            assert_eq!(error["error"]["data"]["requested"], "2099-01-01");
            assert_eq!(error["error"]["data"]["supported"][0], VERSION);
        }
    }
    for method in ["GET", "DELETE"] {
        let fields = format!("Accept: text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n");
        assert_eq!(gate.send(method, &fields, "").await.status, 405);
    }
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    let fields = format!("{ACCEPTS}MCP-Protocol-Version: {VERSION}\r\n");
    assert_eq!(gate.send("POST", &fields, &told.to_string()).await.status, 202);
    assert_eq!(server.requests().len(), before, "nothing is forwarded");
    let flows = format!("{:?}", gate.proxy.flows(20).await);
    assert!(!flows.contains(MAIL), "header fields are not recorded either");
}

#[tokio::test]
async fn an_unknown_version_is_refused_with_those_that_are_supported() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let ping = request(9, "ping", &json!({}));
    let answer = gate.post(&ping, "MCP-Protocol-Version: 2099-01-01\r\n").await;
    let error = answer.json();
    assert_eq!((answer.status, &error["id"], &error["error"]["code"]), (400, &json!(9), &json!(-32022)));
    assert_eq!(error["error"]["data"]["supported"].as_array().unwrap().len(), 5, "{error}");
}

/// Calls a tool that asks, and returns what it asks.
async fn round(gate: &Gate, params: &Value) -> Value {
    let answer = ask_with(gate, "tools/call", params, &json!({ "elicitation": {} }), "").await;
    answer.json()
}

#[tokio::test]
async fn a_client_without_a_session_is_asked_by_the_result_and_its_state_is_sealed() {
    let server = stateless_server().await;
    let config = format!("[mcp.server.new]\nurl = '{}'\napprove = ['ask']\n", server.url("/mcp"));
    let gate = Gate::at("/mcp/new", &config).await;
    let params = call("ask", json!({ "to": MAIL }));
    let asked = round(&gate, &params).await["result"].clone();
    assert_eq!(asked["resultType"], "input_required");
    let question = &asked["inputRequests"]["confirm"];
    assert!(question["params"]["message"].as_str().unwrap().contains("EMAIL_"), "{asked}");
    let state = asked["requestState"].as_str().unwrap();
    assert!(!state.contains("server"), "{state}");
    let replica = Gate::at("/mcp/new", &config).await;
    ask(&replica, "server/discover", json!({})).await;
    let before = server.requests().len();
    let mut again = params.clone();
    again["inputResponses"] = json!({ "confirm": { "action": "accept", "content": { "mail": MAIL } } });
    let with = |state: &str, arguments: &Value, tool: &str| {
        let mut again = again.clone();
        (again["requestState"], again["arguments"], again["name"]) = (state.into(), arguments.clone(), tool.into());
        again
    };
    for wrong in [
        with(&format!("{state}-TAMPERED"), &params["arguments"], "ask"),
        with("the server's", &params["arguments"], "ask"),
        with(state, &json!({ "to": OTHER_MAIL }), "ask"),
        with(state, &params["arguments"], "echo"),
    ] {
        let refused = round(&gate, &wrong).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let mut malformed = again.clone();
    malformed["inputResponses"] = json!({ "confirm": 7 });
    assert_eq!(round(&gate, &malformed).await["error"]["code"], -32602);
    assert_eq!(server.requests().len(), before, "nothing is forwarded");
    let done = round(&replica, &with(state, &params["arguments"], "ask")).await;
    let answered: Value = serde_json::from_str(said(&done["result"])).unwrap();
    assert_eq!(answered, again["inputResponses"], "any replica with the same secret answers");
    assert_eq!(gate.asked.lock().unwrap().len(), 1, "the person approved the call once");
    assert!(replica.asked.lock().unwrap().is_empty());
    let arrived = server.requests().pop().unwrap();
    assert!(String::from_utf8_lossy(&arrived.body).contains(MAIL), "the server gets what the client sent");
    for recorded in [gate.recorded(7).await, replica.recorded(3).await] {
        assert!(!recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL), "{recorded}");
    }
}

#[tokio::test]
async fn a_server_with_sessions_asks_a_client_without_one() {
    let (origin, log) = (over_http(100).await, Log::create());
    let own = over_stdio("local", &log.path, "process_per_session = true");
    let gate = Gate::start(&format!("{}{own}", web(&origin, ""))).await;
    for tool in ["web__ask", "local__ask"] {
        let params = call(tool, json!({ "why": "it helps" }));
        let asked = round(&gate, &params).await["result"].clone();
        let requests = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
        let (key, question) = requests.iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let mut again = params.clone();
        again["requestState"] = asked["requestState"].clone();
        // What was not answered is asked again.
        let once_more = round(&gate, &again).await["result"].clone();
        assert_eq!(once_more["inputRequests"], asked["inputRequests"]);
        assert_eq!(round(&gate, &again).await["error"]["code"], -32602, "a state is of use once");
        again["requestState"] = once_more["requestState"].clone();
        let form = json!({ "action": "accept", "content": { "mail": MAIL } });
        again["inputResponses"] = json!({ key: form });
        let done = round(&gate, &again).await;
        let answered: Value = serde_json::from_str(said(&done["result"])).unwrap();
        assert_eq!((&answered, &done["result"]["resultType"]), (&form, &json!("complete")));
    }
    let needed = json!({ "url": "https://login.test/", "elicitationId": "e" });
    let capabilities = json!({ "elicitation": { "url": {} } });
    let answer = ask_with(&gate, "tools/call", &call("web__need_url", needed), &capabilities, "").await.json();
    let url = &answer["result"]["inputRequests"]["url-0"]["params"];
    assert_eq!((&url["url"], &url["elicitationId"]), (&json!("https://login.test/"), &Value::Null), "{answer}");
    let recorded = gate.recorded(10).await;
    assert!(!recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL), "{recorded}");
}

/// A server with sessions that asks on its stream outside of requests.
async fn server_that_asks_on_its_own_stream() -> Origin {
    let (asks, asked) = mpsc::unbounded_channel::<Bytes>();
    let (answers, _) = broadcast::channel::<Value>(4);
    let asked = Mutex::new(Some(asked));
    let answer = move |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let reply = |result: Value| json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        if request.method == "GET" {
            let events = Reply::status(200).header("Content-Type", "text/event-stream");
            // There is one such stream in a session.
            return match asked.lock().unwrap().take() {
                Some(asked) => events.stream(unfold(asked, |mut all| async move { Some((all.recv().await?, all)) })),
                None => Reply::status(409),
            };
        }
        match message["method"].as_str() {
            Some("initialize") => {
                let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
                Reply::json(&reply(hello)).header("Mcp-Session-Id", "s1")
            }
            Some("tools/list") => Reply::json(&reply(json!({ "tools": [{ "name": "ask" }] }))),
            Some("tools/call") => {
                let form = json!({ "message": "well?", "requestedSchema": { "type": "object" } });
                let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form });
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                for message in [changed, question] {
                    asks.send(format!("data: {message}\n\n").into()).unwrap();
                }
                let (mut answered, id) = (answers.subscribe(), message["id"].clone());
                let done = async move {
                    let text = answered.recv().await.unwrap()["result"].to_string();
                    let result = json!({ "content": [{ "type": "text", "text": text }] });
                    let done = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                    Bytes::from(format!("data: {done}\n\n"))
                };
                Reply::status(200).header("Content-Type", "text/event-stream").stream(once(done))
            }
            None if message["id"] == "q" => {
                answers.send(message).unwrap();
                Reply::status(202)
            }
            Some("notifications/initialized") => Reply::status(202),
            _ => Reply::status(400),
        }
    };
    Origin::http().answering(answer).start().await
}

#[tokio::test]
async fn what_a_server_with_sessions_sends_outside_of_requests_reaches_calls_and_listeners() {
    let origin = server_that_asks_on_its_own_stream().await;
    let gate = Gate::at("/mcp/web", &web(&origin, "")).await;
    let capabilities = json!({ "elicitation": {} });
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let (fields, body) = message(7, "subscriptions/listen", &wanted, &capabilities);
    let mut stream = gate.stream_with("POST", &fields, &body).await;
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/subscriptions/acknowledged");
    let mut params = call("ask", json!({}));
    let asked = round(&gate, &params).await["result"].clone();
    let (key, question) = asked["inputRequests"].as_object().and_then(|all| all.iter().next()).unwrap();
    assert_eq!(question["params"]["message"], "well?");
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({ key: { "action": "decline" } });
    assert_eq!(said(&round(&gate, &params).await["result"]), r#"{"action":"decline"}"#);
}

#[tokio::test]
async fn errors_of_a_server_keep_their_codes_and_redacted_data() {
    let server = stateless_server().await;
    let gate = Gate::at("/mcp/new", &format!("[mcp.server.new]\nurl = '{}'\n", server.url("/mcp"))).await;
    let answer = ask_with(&gate, "tools/call", &call("need", json!({})), &json!({}), "").await;
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (400, &json!(-32021)), "{error}");
    assert_eq!(error["data"]["requiredCapabilities"], json!({ "sampling": {} }));
    assert!(error["data"]["of"].as_str().unwrap().starts_with("EMAIL_"), "{error}");
    let answer = ask_with(&gate, "tools/call", &call("nothing", json!({})), &json!({}), "").await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32602)));
}

async fn listen(gate: &Gate, notifications: Value) -> EventStream {
    let (fields, body) = message(7, "subscriptions/listen", &json!({ "notifications": notifications }), &json!({}));
    gate.stream_with("POST", &fields, &body).await
}

#[tokio::test]
async fn a_client_without_a_session_listens_to_what_it_wants_to_know() {
    let (stateless, origin) = (stateless_server().await, over_http(100).await);
    let new = format!("[mcp.server.new]\nurl = '{}'\n", stateless.url("/mcp"));
    let gate = Gate::start(&format!("{new}{}", web(&origin, ""))).await;
    let uris = ["test://é", "file:///anna.berg/notes", "file:///unknown"];
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": uris });
    let mut stream = listen(&gate, wanted).await;
    let first = stream.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["_meta"][SUBSCRIPTION], 7);
    assert_eq!(
        first["params"]["notifications"],
        json!({ "toolsListChanged": true, "resourceSubscriptions": &uris[..2] })
    );
    ask(&gate, "tools/call", call("web__touch", json!({}))).await;
    let mut told = Vec::new();
    while told.len() < 4 || !told.iter().any(|(_, uri)| uri == uris[1]) || !told.iter().any(|(_, uri)| uri == uris[0]) {
        let message = stream.next().await.unwrap();
        assert_eq!(message["params"]["_meta"][SUBSCRIPTION], 7, "{message}");
        let method = message["method"].as_str().unwrap().to_owned();
        assert!(["notifications/tools/list_changed", "notifications/resources/updated"].contains(&method.as_str()));
        assert!(message["params"]["title"].is_null(), "{message}");
        told.push((method, message["params"]["uri"].as_str().unwrap_or_default().to_owned()));
    }
    gate.service.close_streams();
    let last = loop {
        let message = stream.next().await.unwrap();
        if message["method"].is_null() {
            break message;
        }
    };
    assert_eq!((&last["id"], &last["result"]["_meta"][SUBSCRIPTION]), (&json!(7), &json!(7)), "{last}");
    let mut none = listen(&gate, json!({})).await;
    assert_eq!(none.next().await.unwrap()["params"]["notifications"], json!({}));
}

#[tokio::test]
async fn log_messages_reach_the_stream_of_a_request_that_wants_them() {
    let origin = over_http(100).await;
    let gate = Gate::start(&web(&origin, "")).await;
    for (level, is_wanted) in [(Some("info"), true), (Some("emergency"), false), (None, false)] {
        let mut params = call("web__log_inline", json!({ "level": "warning" }));
        if let Some(level) = level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = level.into();
        }
        let (fields, body) = message(7, "tools/call", &params, &json!({}));
        let answer = gate.send("POST", &format!("{ACCEPTS}{fields}"), &body).await;
        assert_eq!(answer.text().contains("notifications/message"), is_wanted, "{level:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn an_approval_is_for_one_call_however_often_its_state_is_sent() {
    let server = stateless_server().await;
    let config = format!("[mcp.server.new]\nurl = '{}'\napprove = ['ask']\n", server.url("/mcp"));
    let gate = Gate::at("/mcp/new", &config).await;
    let mut params = call("ask", json!({ "to": MAIL }));
    params["requestState"] = round(&gate, &params).await["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "confirm": { "action": "accept", "content": {} } });
    for asked in [1, 2] {
        assert!(round(&gate, &params).await["result"].is_object());
        assert_eq!(gate.asked.lock().unwrap().len(), asked);
    }
}

#[tokio::test]
async fn a_call_is_approved_once_though_its_server_gives_no_state() {
    let (stateless, origin) = (stateless_server().await, over_http(100).await);
    let new = format!("[mcp.server.new]\nurl = '{}'\napprove = ['ask_plain']\n", stateless.url("/mcp"));
    let gate = Gate::start(&format!("{new}{}", web(&origin, "approve = ['need_url']"))).await;
    let capabilities = json!({ "elicitation": { "form": {}, "url": {} } });
    let url = json!({ "url": "https://login.test/" });
    for (asked, mut params) in [call("new__ask_plain", json!({})), call("web__need_url", url)].into_iter().enumerate() {
        for _ in 0..2 {
            let answer = ask_with(&gate, "tools/call", &params, &capabilities, "").await.json();
            assert!(answer["result"].is_object(), "{answer}");
            assert_eq!(gate.asked.lock().unwrap().len(), asked + 1);
            params["requestState"] = answer["result"]["requestState"].clone();
            params["inputResponses"] = json!({ "confirm": { "action": "accept", "content": {} } });
        }
    }
}
