//! Tasks of servers without sessions, and with them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::Gate;
use crate::eras::{modern, section};
use crate::server::{MAIL, OTHER_MAIL};
use crate::stateless::{ACCEPTS, VERSION, ask_with, call, message};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A server whose only tool begins a task, which asks something and then has a result.
pub async fn server() -> Origin {
    let answers = AtomicUsize::new(0);
    modern(move |method, params, request| {
        let declared = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"];
        let task = |kind: &str, status: &str, more: (&str, Value)| {
            let mut task = json!({ "resultType": kind, "taskId": "7f3a-anna.berg@firm.com", "status": status,
                "statusMessage": format!("for {OTHER_MAIL}"), "ttlMs": null, "createdAt": "2026-11-29T05:00:00Z" });
            task[more.0] = more.1;
            task
        };
        if method.starts_with("tasks/") {
            assert_eq!((&params["taskId"], request.header("mcp-name")), (&json!("7f3a-anna.berg@firm.com"), params["taskId"].as_str()));
        }
        match method {
            "server/discover" => {
                json!({ "supportedVersions": [VERSION], "capabilities": { "tools": {}, "extensions": { EXTENSION: {} } } })
            }
            "tools/list" => json!({ "tools": [{ "name": "slow" }, { "name": "late" }] }),
            "tools/call" if !declared[EXTENSION].is_object() && params["name"] == "slow" => {
                json!({ "content": [{ "type": "text", "text": "at once" }], "resultType": "complete" })
            }
            "tools/call" => task("task", "working", ("pollIntervalMs", json!(50))),
            "tasks/update" => {
                assert_eq!(params["inputResponses"]["ok"]["content"]["mail"], MAIL);
                answers.fetch_add(1, Relaxed);
                json!({ "resultType": "complete" })
            }
            "tasks/get" if answers.load(Relaxed) == 0 => {
                let form = json!({ "message": format!("mail {OTHER_MAIL}?"), "requestedSchema": { "type": "object" } });
                let asked = json!({ "ok": { "method": "elicitation/create", "params": form } });
                task("complete", "input_required", ("inputRequests", asked))
            }
            "tasks/get" => {
                let content = json!({ "content": [{ "type": "text", "text": format!("sent to {OTHER_MAIL}") }] });
                task("complete", "completed", ("result", content))
            }
            _ => json!({ "resultType": "complete" }),
        }
    })
    .await
}

pub fn able() -> Value {
    json!({ "elicitation": {}, "extensions": { EXTENSION: {} } })
}

async fn of_task(gate: &Gate, method: &str, id: &str, more: Value) -> Value {
    let mut params = json!({ "taskId": id });
    params.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    ask_with(gate, method, &params, &able(), "").await.json()
}

#[tokio::test]
async fn a_task_is_passed_on_redacted_and_belongs_to_its_client() {
    let server = server().await;
    let config = section("new", &server, "approve = ['elicitation/create']");
    let gate = Gate::at("/mcp", &config).await;
    let found = ask_with(&gate, "server/discover", &json!({}), &able(), "").await.json();
    assert!(found["result"]["capabilities"]["extensions"][EXTENSION].is_object(), "{found}");
    let begun = ask_with(&gate, "tools/call", &call("new__slow", json!({ "to": MAIL })), &able(), "").await.json();
    let task = &begun["result"];
    assert_eq!(
        (&task["resultType"], &task["status"], &task["ttlMs"]),
        (&json!("task"), &json!("working"), &Value::Null)
    );
    assert!(task["statusMessage"].as_str().unwrap().contains("EMAIL_"), "{task}");
    let id = task["taskId"].as_str().unwrap();
    assert!(!id.contains("7f3a"), "{id}");
    // Another replica with the same secret knows it.
    let replica = Gate::at("/mcp", &config).await;
    for gate in [&gate, &gate, &replica] {
        let asked = of_task(gate, "tasks/get", id, json!({})).await["result"].clone();
        assert_eq!((&asked["status"], &asked["taskId"]), (&json!("input_required"), &json!(id)), "{asked}");
        let question = &asked["inputRequests"]["ok"];
        assert_eq!(question["method"], "elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("EMAIL_"), "{question}");
    }
    assert_eq!((gate.asked.lock().unwrap().len(), replica.asked.lock().unwrap().len()), (1, 1), "approved once");
    let form = json!({ "inputResponses": { "ok": { "action": "accept", "content": { "mail": MAIL } } } });
    let updated = of_task(&gate, "tasks/update", id, form).await;
    assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    let done = of_task(&gate, "tasks/get", id, json!({})).await["result"].clone();
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(done["status"] == "completed" && text.starts_with("sent to EMAIL_"), "{done}");
    assert_eq!(of_task(&gate, "tasks/cancel", id, json!({})).await["result"]["resultType"], "complete");
    for recorded in [gate.recorded(8).await, replica.recorded(2).await] {
        assert!(
            !recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL) && recorded.contains("tasks/get"),
            "{recorded}"
        );
    }
}

#[tokio::test]
async fn a_task_of_another_client_or_server_is_refused_and_nothing_is_forwarded() {
    let server = server().await;
    let config = format!("{}{}", section("new", &server, "deny_tools = ['late']"), section("other", &server, ""));
    let gate = Gate::at("/mcp", &config).await;
    let begun = ask_with(&gate, "tools/call", &call("new__slow", json!({})), &able(), "").await.json();
    let id = begun["result"]["taskId"].as_str().unwrap().to_owned();
    let of_other = ask_with(&gate, "tools/call", &call("other__late", json!({})), &able(), "").await.json();
    let of_other = of_other["result"]["taskId"].as_str().unwrap();
    let (elsewhere, strict) = (Gate::at("/mcp/new", &config).await, section("other", &server, "deny_tools = ['late']"));
    let strict = Gate::at("/mcp", &strict).await;
    let before =
        server.requests().iter().filter(|r| r.header("mcp-method").is_some_and(|m| m.starts_with("tasks/"))).count();
    for (gate, id) in [
        (&gate, format!("{id}A").as_str()),
        (&gate, "7f3a"),
        (&elsewhere, of_other),
        (&strict, of_other),
        (&strict, &id),
    ] {
        let refused = of_task(gate, "tasks/get", id, json!({})).await;
        assert!([-32602, -32010].contains(&refused["error"]["code"].as_i64().unwrap()), "{refused}");
    }
    // The header field has to name it.
    let (fields, body) = message(7, "tasks/get", &json!({ "taskId": id }), &able());
    let refused = gate.send("POST", &format!("{ACCEPTS}{}", fields.replace(&id, "other")), &body).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].clone()), (400, json!(-32020)));
    let after =
        server.requests().iter().filter(|r| r.header("mcp-method").is_some_and(|m| m.starts_with("tasks/"))).count();
    assert_eq!(before, after, "nothing is forwarded");
    // Without the extension, and with a session, there are none.
    let plain = ask_with(&gate, "tools/call", &call("new__slow", json!({})), &json!({}), "").await.json();
    assert_eq!(plain["result"]["content"][0]["text"], "at once", "{plain}");
    assert_eq!(gate.call("new__slow", json!({})).await, "at once");
    assert!(gate.call_error("other__late", json!({})).await.contains("did not declare"));
    assert!(gate.error("tasks/get", json!({ "taskId": id })).await.contains("no such task"));
    assert!(gate.error("tasks/update", json!({ "taskId": id })).await.contains("no method"));
}

/// A server with sessions whose tool goes on as a task if the client wants that, and says how it is before an answer.
async fn server_with_sessions() -> Origin {
    let answer = |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (params, id) = (&message["params"], &message["id"]);
        let task = |status: &str| {
            json!({ "taskId": "t-anna.berg@firm.com", "status": status, "statusMessage": format!("for {OTHER_MAIL}"),
                "createdAt": "2026-11-29T05:00:00Z", "lastUpdatedAt": "2026-11-29T05:00:00Z", "ttl": 60000 })
        };
        let method = message["method"].as_str().unwrap_or_default();
        if method.starts_with("tasks/") {
            assert_eq!(params["taskId"], "t-anna.berg@firm.com");
        }
        let said = format!("{OTHER_MAIL} {}", params["task"]);
        let result = match method {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {},
                "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } } } }),
            "tools/list" => json!({ "tools": [{ "name": "slow", "execution": { "taskSupport": "optional" } }] }),
            "tools/call" if params["task"].is_object() => json!({ "task": task("working"), "said": said }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": said }] }),
            "tasks/get" => {
                let told =
                    json!({ "jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task("completed") });
                let other = json!({ "jsonrpc": "2.0", "method": "notifications/tasks/status", "params": { "taskId": "other" } });
                let done = json!({ "jsonrpc": "2.0", "id": id, "result": task("completed") });
                let events: String = [other, told, done].iter().map(|m| format!("data: {m}\n\n")).collect();
                return Reply::ok(events).header("Content-Type", "text/event-stream");
            }
            "tasks/result" => {
                let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": "t-anna.berg@firm.com" } });
                json!({ "content": [{ "type": "text", "text": said }], "_meta": related })
            }
            "tasks/cancel" => task("cancelled"),
            _ => return Reply::status(400),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).header("Mcp-Session-Id", "s")
    };
    Origin::http().answering(answer).start().await
}

#[tokio::test]
async fn a_client_with_a_session_has_tasks_of_its_version() {
    let server = server_with_sessions().await;
    let config = section("old", &server, "");
    let gate = Gate::start(&config).await;
    assert!(gate.capabilities["tasks"]["requests"]["tools"]["call"].is_object(), "{}", gate.capabilities);
    let listed = gate.rpc("tools/list", json!({})).await;
    assert_eq!(listed["tools"][0]["execution"]["taskSupport"], "optional");
    assert_eq!(gate.rpc("tasks/list", json!({})).await, json!({ "tasks": [] }));
    let mut stream = gate.stream("GET", "").await;
    let mut params = call("old__slow", json!({}));
    params["task"] = json!({ "ttl": 60000, "more": OTHER_MAIL });
    let begun = gate.rpc("tools/call", params).await;
    let id = begun["task"]["taskId"].as_str().unwrap().to_owned();
    assert!(!id.contains("anna") && begun["task"]["status"] == "working", "{begun}");
    assert!(begun["task"]["statusMessage"].as_str().unwrap().contains("EMAIL_"), "{begun}");
    assert!(begun["said"].as_str().unwrap().ends_with(r#"{"ttl":60000}"#), "{begun}");
    let named = json!({ "taskId": id });
    let now = gate.rpc("tasks/get", named.clone()).await;
    assert_eq!((&now["taskId"], &now["status"], &now["ttl"]), (&json!(id), &json!("completed"), &json!(60000)));
    let told = stream.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks/status"), &json!(id)));
    assert!(told["params"]["statusMessage"].as_str().unwrap().contains("EMAIL_"), "{told}");
    let result = gate.rpc("tasks/result", named.clone()).await;
    assert!(result["content"][0]["text"].as_str().unwrap().starts_with("EMAIL_"), "{result}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], id);
    assert_eq!(gate.rpc("tasks/list", json!({})).await["tasks"][0]["taskId"], id);
    assert_eq!(gate.rpc("tasks/cancel", named.clone()).await["status"], "cancelled");
    // A call that the client does not want as a task is none, and a task of another session is none of this one.
    assert!(gate.call("old__slow", json!({})).await.starts_with("EMAIL_"));
    let other = Gate::start(&config).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert!(other.error(method, named.clone()).await.contains("no such task"), "{method}");
    }
    assert!(gate.error("tasks/update", named).await.contains("no method"));
    gate.send("DELETE", &format!("Mcp-Session-Id: {}\r\n", gate.session), "").await;
    assert!(stream.next().await.is_none());
    let recorded = gate.recorded(12).await;
    assert!(recorded.contains("tasks/result") && !recorded.contains(OTHER_MAIL) && !recorded.contains("t-anna"));
}

#[tokio::test]
async fn a_client_without_a_session_is_told_of_the_tasks_that_it_names() {
    let (tell, told) = tokio::sync::watch::channel(());
    let server = Origin::http().answering(move |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (params, id) = (&message["params"], &message["id"]);
        let task = json!({ "taskId": "7f3a", "status": "working", "statusMessage": format!("for {OTHER_MAIL}"), "result": { "x": OTHER_MAIL } });
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                json!({ "supportedVersions": [VERSION], "capabilities": { "tools": {}, "extensions": { EXTENSION: {} } } })
            }
            "tools/list" => json!({ "tools": [{ "name": "slow" }] }),
            "tools/call" => {
                let mut begun = task;
                begun["resultType"] = "task".into();
                begun
            }
            _ if params["notifications"]["taskIds"] == json!(["7f3a"]) => {
                let changed = ["other", "7f3a"].map(|id| {
                    let params = if id == "7f3a" { task.clone() } else { json!({ "taskId": id, "status": "working" }) };
                    json!({ "jsonrpc": "2.0", "method": "notifications/tasks", "params": params })
                });
                tell.send_replace(());
                let events: String = changed.iter().map(|m| format!("data: {m}\n\n")).collect();
                return Reply::ok(events).header("Content-Type", "text/event-stream");
            }
            _ => return Reply::ok("").header("Content-Type", "text/event-stream"),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    });
    let server = server.start().await;
    let gate = Gate::at("/mcp", &section("new", &server, "")).await;
    let begun = ask_with(&gate, "tools/call", &call("new__slow", json!({})), &able(), "").await.json();
    let id = begun["result"]["taskId"].as_str().unwrap().to_owned();
    let wanted = json!({ "notifications": { "taskIds": [id, "made-up"] } });
    let (fields, body) = message(9, "subscriptions/listen", &wanted, &able());
    let mut events = gate.stream_with("POST", &fields.replace("Mcp-Name: \r\n", ""), &body).await;
    let accepted = events.next().await.unwrap();
    assert_eq!(accepted["params"]["notifications"], json!({ "taskIds": [id] }), "{accepted}");
    let changed = events.next().await.unwrap();
    assert_eq!((&changed["method"], &changed["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
    let params = &changed["params"];
    assert!(params["statusMessage"].as_str().unwrap().contains("EMAIL_") && params["result"].is_null(), "{changed}");
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);
    assert!(told.has_changed().unwrap());
}
