//! Completion of arguments of prompts and templates of resources.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{Gate, Log, web};

fn complete(reference: &Value, value: &str) -> Value {
    let context = json!({ "arguments": { "to": MAIL } });
    json!({ "ref": reference, "argument": { "name": "name", "value": value }, "context": context })
}

#[tokio::test]
async fn arguments_are_completed_by_the_server_of_their_prompt_or_template() {
    let (origin, log) = (over_http(100).await, Log::create());
    let redacted = web(&origin, "arguments = 'redact'");
    let gate = Gate::start(&format!("{redacted}{}", over_stdio("local", &log.path, "prompts = false"))).await;
    assert!(gate.capabilities["completions"].is_object(), "{}", gate.capabilities);
    let prompt = json!({ "type": "ref/prompt", "name": "web__greet" });
    let done = gate.rpc("completion/complete", complete(&prompt, "an")).await;
    let values = done["completion"]["values"].as_array().unwrap();
    // The name is that at the server; what the client sent is its own again, and what the server knows is not shown.
    let said = values[0].as_str().unwrap();
    assert!(said.contains(r#""name":"greet""#) && said.contains("\"an\"") && said.contains(MAIL), "{said}");
    assert!(values[1].as_str().unwrap().starts_with("EMAIL_"), "{values:?}");
    assert_eq!(done["completion"]["total"], 2);
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    assert!(arrived.contains("completion/complete") && !arrived.contains(MAIL), "{arrived}");
    // Of a server whose prompts may not be used, and of none.
    for (name, says) in [("local__greet", "may not be used"), ("other__greet", "no prompt"), ("greet", "no prompt")] {
        let refused =
            gate.error("completion/complete", complete(&json!({ "type": "ref/prompt", "name": name }), "")).await;
        assert!(refused.contains(says), "{name}: {refused}");
    }
    let template = json!({ "type": "ref/resource", "uri": "test://{id}/note" });
    let unlisted = gate.error("completion/complete", complete(&template, "1")).await;
    assert!(unlisted.contains("list resources first"), "{unlisted}");
    let recorded = gate.recorded(6).await;
    assert!(
        recorded.contains("ref/prompt") && !recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL),
        "{recorded}"
    );
}

#[tokio::test]
async fn a_template_belongs_to_the_server_that_listed_it() {
    let (origin, log) = (over_http(100).await, Log::create());
    let hidden = over_stdio("local", &log.path, "resources = false");
    let gate = Gate::start(&format!("{}{hidden}", web(&origin, ""))).await;
    gate.rpc("resources/templates/list", json!({})).await;
    let template = json!({ "type": "ref/resource", "uri": "test://{id}/note" });
    let done = gate.rpc("completion/complete", complete(&template, "1")).await;
    let said = done["completion"]["values"][0].as_str().unwrap().to_owned();
    assert!(said.contains("test://{id}/note"), "{said}");
    assert!(!log.text().contains("completion/complete"));
}

#[tokio::test]
async fn completion_is_declared_only_if_a_server_has_it_that_may_be_used() {
    let answer = |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "prompts": {} }, "serverInfo": {} });
        match message["method"].as_str() {
            Some("initialize") => Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": hello })),
            Some("prompts/list") => {
                let prompts = json!({ "prompts": [{ "name": "greet" }] });
                Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": prompts }))
            }
            _ => Reply::status(202),
        }
    };
    let plain = Origin::http().answering(answer).start().await;
    let gate = Gate::start(&web(&plain, "")).await;
    assert!(gate.capabilities["prompts"].is_object() && gate.capabilities["completions"].is_null());
    let prompt = json!({ "type": "ref/prompt", "name": "web__greet" });
    let refused = gate.error("completion/complete", complete(&prompt, "")).await;
    assert!(refused.contains("completes no arguments"), "{refused}");
    // One that completes, but of which nothing may be used that has completion.
    let log = Log::create();
    let hidden = over_stdio("local", &log.path, "prompts = false\nresources = false");
    let gate = Gate::start(&hidden).await;
    assert!(gate.capabilities["completions"].is_null(), "{}", gate.capabilities);
    // One that cannot be reached has nothing, and holds nobody up.
    let gate = Gate::start("[mcp.server.gone]\nurl = 'http://127.0.0.1:9/mcp'").await;
    assert!(gate.capabilities["completions"].is_null(), "{}", gate.capabilities);
}
