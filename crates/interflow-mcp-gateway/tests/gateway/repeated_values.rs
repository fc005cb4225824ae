//! What servers repeat: access tokens of the gateway, and values that were redacted before.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::eras::section;
use crate::server::{PASSWORD, over_stdio};
use crate::{Gate, Log, request};

/// An issuer that numbers its tokens, and a server that repeats the one that it was sent, and the first one, which it refuses.
async fn issuer_and_server() -> Origin {
    let issued = AtomicUsize::new(0);
    let answer = move |request: &Request| {
        if request.path() == "/token" {
            let token = format!("fetched/token-{}", issued.fetch_add(1, Relaxed));
            return Reply::json(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 }));
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let token = request.header("authorization").unwrap_or_default().to_owned();
        if token == "Bearer fetched/token-0" {
            return Reply::status(401);
        }
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let said = format!(
            "{token}, before fetched/token-0, at user:secret-word or secret-word, key/of-the-url, ordinary-page"
        );
        let result = match (method, message["params"]["name"].as_str().unwrap_or_default()) {
            ("initialize", _) => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "resources": {}, "logging": {} } })
            }
            ("tools/list", _) => {
                let tools = ["who", "escaped", "fail", "status", "log"].map(|name| json!({ "name": name }));
                json!({ "tools": tools })
            }
            ("resources/list", _) => json!({ "resources": [{ "uri": format!("a://{said}"), "name": said }] }),
            ("resources/read", _) => json!({ "contents": [{ "uri": message["params"]["uri"], "text": said }] }),
            ("tools/call", "fail") => {
                let error = json!({ "code": -32000, "message": said, "data": said });
                return Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            ("tools/call", "status") => {
                return Reply::status(500).body(json!({ "error": { "code": -32000, "message": said } }).to_string());
            }
            ("tools/call", "log") => {
                let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "error", "data": said } });
                let done =
                    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": said }] } });
                let events = format!("data: {log}\n\ndata: {done}\n\n");
                return Reply::status(200).header("Content-Type", "text/event-stream").body(events);
            }
            ("tools/call", "escaped") => {
                let text = said.replace('/', "\\/").replace('f', "\\u0066");
                let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
                return Reply::status(200)
                    .header("Content-Type", "application/json")
                    .body(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
            }
            ("tools/call", _) => json!({ "content": [{ "type": "text", "text": said }] }),
            ("server/discover", _) => return Reply::status(400),
            _ => return Reply::status(202),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).header("Mcp-Session-Id", "s")
    };
    Origin::http().answering(answer).start().await
}

fn client_of(origin: &Origin, more: &str) -> String {
    let token_url = origin.url("/token");
    let oauth = format!("oauth = {{ token_url = '{token_url}', client_id = 'gate', client_secret = 'gate-secret' }}");
    section("crm", origin, &format!("{oauth}\n{more}"))
}

#[tokio::test]
async fn access_tokens_that_a_server_repeats_do_not_reach_the_client() {
    let origin = issuer_and_server().await;
    let gate = Gate::at("/mcp/crm", &client_of(&origin, "results = 'off'")).await;
    gate.rpc("logging/setLevel", json!({ "level": "debug" })).await;
    let mut said = String::new();
    for tool in ["who", "escaped", "fail", "status", "log"] {
        let params = json!({ "name": tool, "_meta": { "progressToken": "p" } });
        said += &gate.post(&request(7, "tools/call", &params), "").await.text();
    }
    let listed = gate.rpc("resources/list", json!({})).await;
    said += &listed.to_string();
    said += &gate.rpc("resources/read", json!({ "uri": listed["resources"][0]["uri"] })).await.to_string();
    assert!(!said.contains("token-") && !said.contains("oken-0"), "{said}");
    assert!(said.contains("Bearer ***************, before ***************, at"), "{said}");
    let recorded = gate.recorded(9).await;
    assert!(!recorded.contains("token-"), "{recorded}");
}

#[tokio::test]
async fn an_access_token_that_a_server_repeats_reaches_no_other_server() {
    let (origin, log) = (issuer_and_server().await, Log::create());
    let gate = Gate::start(&format!("{}{}", client_of(&origin, ""), over_stdio("local", &log.path, ""))).await;
    let said = gate.call("crm__who", json!({})).await;
    let echoed = gate.call("local__echo", json!({ "text": said })).await;
    assert!(!echoed.contains("token-1") && !log.text().contains("token-1"), "{said} {echoed} {}", log.text());
}

#[tokio::test]
async fn credentials_in_basic_authorization_and_in_urls_are_masked_in_their_parts() {
    let origin = issuer_and_server().await;
    let url = format!("{}?api_key=key%2Fof-the-url&page=ordinary-page", origin.url("/mcp"));
    let config = format!(
        "[mcp.server.crm]\nurl = '{url}'\nresults = 'off'\n\
         headers = {{ Authorization = 'Basic dXNlcjpzZWNyZXQtd29yZA==' }}\n"
    );
    let gate = Gate::at("/mcp/crm", &config).await;
    let said = gate.call("who", json!({})).await;
    for secret in ["dXNlcjpzZWNyZXQtd29yZA", "secret-word", "of-the-url"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    assert!(said.ends_with("at **************** or ***********, **************, ordinary-page"), "{said}");
}

#[tokio::test]
async fn what_was_redacted_in_a_result_stays_so_when_a_tool_repeats_it() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let said = gate.call("local__lookup", json!({ "what": "login" })).await;
    let placeholder = said.split(' ').find(|word| word.starts_with("PASSWORD_")).unwrap_or_else(|| panic!("{said}"));
    for (tool, arguments) in [
        ("local__echo", json!({ "text": format!("set {placeholder}"), placeholder: 1 })),
        ("local__echo", json!({ "inner": format!("{{\"a\":\"set {placeholder}\"}}") })),
        ("local__lookup", json!({ "what": "note" })),
    ] {
        let echoed = gate.call(tool, arguments).await;
        assert!(echoed.contains(placeholder) && !echoed.contains(PASSWORD), "{echoed}");
    }
    let failed = gate.call_error("local__lookup", json!({ "fail": placeholder })).await;
    assert!(failed.contains(placeholder) && !failed.contains(PASSWORD), "{failed}");
    assert!(log.text().contains(&format!("set {PASSWORD}")), "the server got it: {}", log.text());
    let recorded = gate.recorded(6).await;
    assert!(!recorded.contains(PASSWORD), "{recorded}");
}

#[tokio::test]
async fn what_was_redacted_in_arguments_is_not_recorded_when_a_tool_repeats_it() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let said = gate.call("local__lookup", json!({ "what": "note", "password": "hunter2x-of-anna" })).await;
    assert_eq!(said, "set hunter2x-of-anna.");
    let recorded = gate.recorded(2).await;
    assert!(!recorded.contains("hunter2x") && recorded.contains("PASSWORD_"), "{recorded}");
}
