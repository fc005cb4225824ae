//! Tasks of servers without sessions.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interflow_testkit::Origin;
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
    assert!(gate.error("tasks/get", json!({ "taskId": id })).await.contains("no method"));
}
