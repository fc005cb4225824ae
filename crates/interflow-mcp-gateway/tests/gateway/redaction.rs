//! What servers, clients and the recorder see of personal data.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::server::{LISTED_MAIL, MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{Gate, Log, web};

#[tokio::test]
async fn a_server_gets_arguments_as_they_are_and_the_recording_does_not() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    // Numbers stay numbers, and names of members are restored too.
    let arguments =
        json!({ "to": MAIL, MAIL: "x", "card": 4_111_111_111_111_111_u64, "inner": format!("{{\"a\":\"{MAIL}\"}}") });
    for tool in ["web__echo", "local__echo"] {
        let echoed = gate.call(tool, arguments.clone()).await;
        assert_eq!(echoed.matches(MAIL).count(), 3, "{echoed}");
    }
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    for arrived in [arrived, log.text()] {
        assert!(arrived.contains(&arguments.to_string()) && !arrived.contains("EMAIL"), "{arrived}");
    }
    let recorded = gate.recorded(3).await;
    assert!(recorded.contains("EMAIL") && !recorded.contains(MAIL) && !recorded.contains("4111"), "{recorded}");
    let tags = &gate.proxy.flows(3).await[1].tags;
    assert!(tags.contains(&"redacted".to_owned()) && tags.iter().any(|t| t.starts_with("found:")), "{tags:?}");
    // So with prompts and resources.
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    gate.rpc("prompts/get", json!({ "name": "local__greet", "arguments": { "name": MAIL } })).await;
    gate.rpc("resources/read", json!({ "uri": format!("users://{MAIL}") })).await;
    assert!(log.text().contains(&format!(r#""name":"{MAIL}""#)) && log.text().contains(&format!("users://{MAIL}")));
    assert!(!gate.recorded(3).await.contains(MAIL));
}

#[tokio::test]
async fn arguments_are_redacted_for_a_server_on_request_and_restored_for_the_client() {
    let (origin, log) = (over_http(100).await, Log::create());
    let redact = "arguments = 'redact'";
    let gate = Gate::start(&format!("{}{}", web(&origin, redact), over_stdio("local", &log.path, redact))).await;
    for tool in ["web__echo", "local__echo"] {
        let echoed = gate.call(tool, json!({ "to": MAIL, "text": format!("write to {MAIL}") })).await;
        assert_eq!(echoed.matches(MAIL).count(), 2, "{echoed}");
    }
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    let arrived = arrived + &log.text();
    assert!(arrived.contains("tools/call") && arrived.contains("EMAIL") && !arrived.contains(MAIL), "{arrived}");
    let recorded = gate.recorded(3).await;
    assert!(recorded.contains("write to") && !recorded.contains(MAIL), "{recorded}");
}

#[tokio::test]
async fn values_that_the_schema_of_a_tool_names_are_not_redacted() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "arguments = 'redact'")).await;
    let booked = json!({ "city": "New York", "to": LISTED_MAIL, "all": ["San Francisco"], "note": "x" });
    gate.call("local__book", booked.clone()).await;
    assert!(log.text().contains(&booked.to_string()), "{}", log.text());
    let tags = &gate.proxy.flows(2).await[1].tags;
    assert!(!tags.contains(&"redacted".to_owned()), "{tags:?}");
    // What is not such a value by itself is text as any other, and so is everything for another tool.
    gate.call("local__book", json!({ "note": format!("to {LISTED_MAIL}") })).await;
    gate.call("local__echo", json!({ "to": LISTED_MAIL })).await;
    assert_eq!(log.text().matches(LISTED_MAIL).count(), 1, "{}", log.text());
}

#[tokio::test]
async fn prompts_and_unlisted_resources_are_redacted_as_tools_are() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "arguments = 'redact'")).await;
    let got = gate.rpc("prompts/get", json!({ "name": "local__greet", "arguments": { "name": MAIL } })).await;
    assert_eq!(got["messages"][0]["content"]["text"], MAIL);
    let read = gate.rpc("resources/read", json!({ "uri": format!("users://{MAIL}") })).await;
    assert_eq!(read["contents"][0]["uri"], format!("users://{MAIL}"));
    let text = read["contents"][0]["text"].as_str().unwrap();
    assert!(!text.contains(OTHER_MAIL) && text.contains("EMAIL"), "{text}");
    assert!(!log.text().contains(MAIL), "{}", log.text());
}

#[tokio::test]
async fn placeholders_of_results_are_restored_in_later_arguments_unless_a_server_may_not_have_them() {
    let (log, trusted) = (Log::create(), Log::create());
    let gate = Gate::start(&format!(
        "{}{}",
        over_stdio("local", &log.path, "restore_arguments = false"),
        over_stdio("mail", &trusted.path, "")
    ))
    .await;
    let found = gate.call("local__lookup", json!({})).await;
    let placeholder = found.rsplit(' ').next().unwrap().to_owned();
    assert!(!found.contains(OTHER_MAIL) && placeholder.contains("EMAIL"), "{found}");
    // The client did not send it, so the client does not get it back.
    for server in ["local", "mail"] {
        assert_eq!(
            gate.call(&format!("{server}__echo"), json!({ "to": placeholder, "of": MAIL })).await,
            json!({ "to": placeholder, "of": MAIL }).to_string()
        );
    }
    assert!(trusted.text().contains(OTHER_MAIL), "{}", trusted.text());
    assert!(!log.text().contains(OTHER_MAIL) && log.text().contains(MAIL), "{}", log.text());
    assert!(!gate.recorded(4).await.contains(OTHER_MAIL));
}

#[tokio::test]
async fn placeholders_of_one_session_mean_nothing_in_another() {
    let (log, second) = (Log::create(), Log::create());
    let config = over_stdio("local", &log.path, "");
    let gate = Gate::start(&config).await;
    let found = gate.call("local__lookup", json!({})).await;
    let placeholder = found.rsplit(' ').next().unwrap().to_owned();
    let other = Gate::start(&over_stdio("local", &second.path, "")).await;
    assert_ne!(other.call("local__lookup", json!({})).await, found, "placeholders are of a session");
    assert!(other.call("local__echo", json!({ "to": placeholder })).await.contains(&placeholder));
}

#[tokio::test]
async fn modes_decide_what_is_replaced() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "arguments = 'off'\nresults = 'flag'")).await;
    assert!(gate.call("local__lookup", json!({ "q": MAIL })).await.contains(OTHER_MAIL));
    assert!(log.text().contains(MAIL));
    let tags = &gate.proxy.flows(2).await[1].tags;
    assert!(tags.iter().any(|t| t.starts_with("answer:")) && !tags.contains(&"redacted".to_owned()), "{tags:?}");
}

#[tokio::test]
async fn what_cannot_be_inspected_is_refused() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let long = "x ".repeat(6_000);
    let error = gate.call_error("local__echo", json!({ "text": long })).await;
    assert!(error.contains("cannot be inspected") && error.contains("redact.max_body"), "{error}");
    assert!(!log.text().contains("tools/call"), "{}", log.text());
    let error = gate.call_error("local__picture", json!({})).await;
    assert!(error.contains("mcp.server.local.media"), "{error}");
}

#[tokio::test]
async fn media_in_results_are_removed_or_passed_on_as_configured() {
    for (rule, is_text, data) in [("drop", true, json!(null)), ("pass", false, json!("AAAA"))] {
        let log = Log::create();
        let gate = Gate::start(&over_stdio("local", &log.path, &format!("media = '{rule}'"))).await;
        let result = gate.rpc("tools/call", json!({ "name": "local__picture" })).await;
        let content = &result["content"][0];
        assert_eq!((content["type"] == "text", &content["data"]), (is_text, &data), "{result}");
    }
}

#[tokio::test]
async fn progress_is_streamed_and_redacted_until_the_response() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    for server in ["web", "local"] {
        let params = json!({ "name": format!("{server}__steps"), "arguments": { "to": MAIL }, "_meta": { "progressToken": "p" } });
        let answer = gate.post(&crate::request(3, "tools/call", &params), "").await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        let text = answer.text();
        let events: Vec<serde_json::Value> =
            text.lines().filter_map(|l| serde_json::from_str(l.strip_prefix("data: ")?).ok()).collect();
        assert_eq!(events.len(), 3, "{text}");
        assert_eq!((&events[1]["params"]["progressToken"], &events[1]["params"]["progress"]), (&json!("p"), &json!(2)));
        assert_eq!(events[2]["id"], 3);
        assert!(text.contains(MAIL) && !text.contains(OTHER_MAIL), "{text}");
        assert!(!gate.recorded(2).await.contains(MAIL));
    }
}

#[tokio::test]
async fn a_message_of_progress_that_a_guardrail_refuses_is_left_out() {
    let log = Log::create();
    let servers = ["guarded", "local"].map(|name| over_stdio(name, &log.path, ""));
    let gate = Gate::start(&servers.concat()).await;
    for (server, messages) in [("guarded", 0), ("local", 2)] {
        let params = json!({ "name": format!("{server}__steps"), "arguments": {}, "_meta": { "progressToken": "p" } });
        let text = gate.post(&crate::request(3, "tools/call", &params), "").await.text();
        assert_eq!(text.matches("asks EMAIL").count(), messages, "{text}");
        assert_eq!(text.matches("progressToken").count(), 2, "{text}");
    }
}

#[tokio::test]
async fn errors_of_lists_are_redacted_as_those_of_calls_are() {
    let origin = Origin::http().answering(|request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let answer = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {}, "resources": {}, "prompts": {} } }),
            "notifications/initialized" => return Reply::status(202),
            method => {
                let error =
                    json!({ "code": -32603, "message": format!("{method} is not for {OTHER_MAIL}"), "data": MAIL });
                return Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
            }
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer }))
    });
    let origin = origin.start().await;
    let crash = format!(
        "[mcp.server.crash]\ncommand = '/bin/sh'\nargs = ['-c', 'echo no login for {OTHER_MAIL} >&2; exit 3']\n"
    );
    for (server, config) in [("web", web(&origin, "")), ("crash", crash)] {
        let gate = Gate::at(&format!("/mcp/{server}"), &config).await;
        for method in ["tools/list", "resources/list", "prompts/list", "resources/templates/list"] {
            let error = gate.error(method, json!({})).await;
            assert!(error.contains("EMAIL") && !error.contains(OTHER_MAIL), "{server} {method}: {error}");
        }
        let search = gate.post(&crate::request(7, "tools/call", &json!({ "name": "x" })), "").await.text();
        assert!(!search.contains(OTHER_MAIL), "{search}");
        let recorded = gate.recorded(6).await;
        assert!(!recorded.contains(OTHER_MAIL) && !recorded.contains(MAIL), "{recorded}");
    }
}

#[tokio::test]
async fn secrets_that_a_server_repeats_do_not_reach_the_client() {
    let (origin, log) = (over_http(100).await, Log::create());
    let ended = "[mcp.server.ended]\ncommand = '/bin/sh'\nargs = ['-c', 'echo \"no $API_KEY\" >&2; exit 3']\n\
                 env = { API_KEY = 'key-of-the-process' }\n";
    let local =
        over_stdio("local", &log.path, "results = 'off'").replace("env = {", "env = { API_KEY = 'local-secret',");
    let config = format!("{}{local}{ended}", web(&origin, "results = 'off'"));
    let gate = Gate::of_client("/mcp", &config, json!({})).await;
    let mut said = gate.call_error("ended__x", json!({})).await;
    assert!(said.contains("no ******************"), "{said}");
    for secret in ["upstream-secret", "local-secret"] {
        // As JSON, in a stream, and as a line.
        for tool in ["web__echo", "web__steps", "local__echo"] {
            said += &gate.call(tool, json!({ "a": secret })).await;
        }
    }
    assert_eq!(said.matches("upstream-secret").count(), 1, "the process does not know it: {said}");
    assert_eq!(said.matches("local-secret").count(), 2, "{said}");
}

#[tokio::test]
async fn what_a_client_calls_itself_and_its_requests_is_recorded_redacted() {
    let log = Log::create();
    let mut gate = Gate::without_session("/mcp", &over_stdio("local", &log.path, "")).await;
    let client = json!({ "name": format!("client of {MAIL}"), "version": MAIL });
    let hello = json!({ "protocolVersion": format!("2 {MAIL}"), "capabilities": {}, "clientInfo": client });
    let begun = gate.post(&json!({ "jsonrpc": "2.0", "id": MAIL, "method": "initialize", "params": hello }), "").await;
    assert_eq!((begun.json()["id"].as_str(), begun.status), (Some(MAIL), 200), "{}", begun.text());
    gate.begin(json!({}), "").await;
    let call = json!({ "name": "local__steps", "arguments": {}, "_meta": { "progressToken": MAIL } });
    for (method, params) in [("tools/call", call), ("ping", json!({})), (&format!("mails/{MAIL}"), json!({}))] {
        let message = json!({ "jsonrpc": "2.0", "id": MAIL, "method": method, "params": params });
        let text = gate.post(&message, "").await.text();
        assert!(text.contains(&format!(r#""id":"{MAIL}""#)), "{text}");
        assert_eq!(text.contains("progressToken"), text.contains(&format!(r#""progressToken":"{MAIL}""#)), "{text}");
        assert!(!text.contains("no method") || text.contains(&format!("`mails/{MAIL}`")), "{text}");
    }
    gate.post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": MAIL } }), "")
        .await;
    let recorded = gate.recorded(6).await;
    assert!(!recorded.contains(MAIL) && recorded.contains("EMAIL_"), "{recorded}");
}
