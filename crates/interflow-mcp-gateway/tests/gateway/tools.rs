//! Tools of several servers: their names, what a client may use, and what waits for a person.

use serde_json::json;

use crate::server::{MAIL, OTHER_MAIL, all_tools, over_http, over_stdio};
use crate::stateless::ACCEPTS;
use crate::{Gate, Log, request, web};

#[tokio::test]
async fn tools_of_all_servers_are_listed_with_the_names_of_their_servers() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    let of = |server: &str| all_tools().map(|name| format!("{server}__{name}")).collect::<Vec<_>>();
    assert_eq!(gate.names("tools/list", "tools").await, [of("local"), of("web")].concat());
    assert_eq!(gate.names("prompts/list", "prompts").await, ["local__greet", "web__greet"]);
    for server in ["local", "web"] {
        assert_eq!(gate.call(&format!("{server}__echo"), json!({ "n": 1 })).await, r#"{"n":1}"#);
    }
    assert!(gate.call_error("echo", json!({})).await.contains("there is no tool `echo`"));
    assert_eq!(gate.service.counts().calls.len(), 2);
    let flows = gate.proxy.flows(6).await;
    let call = flows.iter().find(|flow| flow.tags.contains(&"mcp:web".to_owned())).unwrap();
    assert!(["mcp", "mcp-tool:echo"].iter().all(|tag| call.tags.iter().any(|t| t == tag)), "{:?}", call.tags);
}

#[tokio::test]
async fn the_endpoint_of_one_server_has_its_own_names() {
    let (origin, log) = (over_http(100).await, Log::create());
    let config = format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""));
    let gate = Gate::at("/mcp/web", &config).await;
    assert_eq!(gate.names("tools/list", "tools").await, all_tools().collect::<Vec<_>>());
    assert_eq!(gate.call("echo", json!({ "n": 1.50 })).await, r#"{"n":1.5}"#);
    assert_eq!(log.text(), "", "the other server was not started");
}

#[tokio::test]
async fn tools_that_the_configuration_leaves_out_are_neither_listed_nor_called() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio(
        "local",
        &log.path,
        "tools = ['*e*']\ndeny_tools = ['del*', '*s*', '*n*']\nresources = false\nprompts = false",
    ))
    .await;
    assert_eq!(gate.names("tools/list", "tools").await, ["local__echo", "local__picture"]);
    for tool in ["local__delete", "local__lookup"] {
        assert!(gate.call_error(tool, json!({ "mail": "x" })).await.contains("may not be used (mcp.server.local)"));
    }
    assert!(gate.names("prompts/list", "prompts").await.is_empty());
    assert!(gate.error("prompts/get", json!({ "name": "local__greet" })).await.contains("may not be used"));
    assert!(gate.error("resources/read", json!({ "uri": "file:///x" })).await.contains("may not be used"));
    assert!(!log.text().contains("tools/call") && !log.text().contains("prompts/"), "{}", log.text());
}

#[tokio::test]
async fn only_names_that_the_server_listed_reach_it() {
    let (origin, log) = (over_http(1000).await, Log::create());
    let denies = "deny_tools = ['delete']";
    let gate = Gate::start(&format!("{}{}", web(&origin, denies), over_stdio("local", &log.path, denies))).await;
    let names =
        ["delete ", " delete", "delete\0", "delete\n", "Delete", "d\u{435}lete", "delete\u{200b}", MAIL, "unknown", ""];
    for (server, name) in names.iter().flat_map(|name| [("web", name), ("local", name)]) {
        let answer = gate.call_error(&format!("{server}__{name}"), json!({ "of": OTHER_MAIL })).await;
        // What looks like a tool that is denied is denied.
        let denied = format!("the tool `{name}` of the MCP server {server} may not be used (mcp.server.{server})");
        assert!(answer == denied || answer == format!("the MCP server {server} lists no tool `{name}`"), "{answer}");
        let prompt = gate.error("prompts/get", json!({ "name": format!("{server}__{name}") })).await;
        assert_eq!(prompt, format!("the MCP server {server} lists no prompt `{name}`"));
    }
    assert!(gate.call_error("web__delete", json!({})).await.contains("may not be used"));
    gate.call("web__echo", json!({})).await;
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    for arrived in [arrived.as_str(), &log.text()] {
        assert!(arrived.contains("tools/list") && !arrived.contains("prompts/get"), "{arrived}");
        assert_eq!(arrived.matches("tools/call").count(), usize::from(arrived.contains("echo")), "{arrived}");
    }
    let recorded = gate.recorded(43).await;
    assert!(recorded.contains("web__unknown") && !recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL));
}

#[tokio::test]
async fn line_breaks_in_a_request_make_no_further_messages_for_a_process() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "deny_tools = ['delete']")).await;
    let hidden = r#"{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"delete","arguments":{}}}"#;
    let fields = format!("{ACCEPTS}Mcp-Session-Id: {}\r\n", gate.session);
    for line_break in ["\n", "\r\n"] {
        let call = json!({ "name": "local__echo", "arguments": { "x": "HIDDEN" } });
        let hidden = format!("{line_break}{hidden}{line_break}");
        let body = request(7, "tools/call", &call).to_string().replace("\"HIDDEN\"", &hidden);
        let answer = gate.send("POST", &fields, &body).await.json();
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("delete"), "{answer}");
    }
    assert!(log.text().contains("delete") && !log.text().lines().any(|line| line == hidden), "{}", log.text());
}

#[tokio::test]
async fn a_person_decides_on_the_tools_that_need_it() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "approve = ['de*', 'lookup']\nresults = 'off'")).await;
    gate.call("local__echo", json!({ "what": "forbidden" })).await;
    assert!(gate.asked.lock().unwrap().is_empty());
    gate.call("local__lookup", json!({ "q": "x" })).await;
    let refused = gate.call_error("local__delete", json!({ "what": "forbidden" })).await;
    assert!(refused.contains("was not approved: the operator denied it"), "{refused}");
    let asked = gate.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    assert!(
        asked[1].contains("the tool delete of the MCP server local") && asked[1].contains("forbidden"),
        "{asked:?}"
    );
    assert!(!log.text().contains("delete"), "{}", log.text());
    assert_eq!(gate.service.counts().calls[&("local".to_owned(), "refused")], 1);
}

#[tokio::test]
async fn resources_are_read_from_the_server_that_listed_them() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!(
        "{}{}",
        web(&origin, "resources = false"),
        over_stdio("local", &log.path, "results = 'off'")
    ))
    .await;
    let uri = json!({ "uri": "file:///anna.berg/notes" });
    assert!(gate.error("resources/read", uri.clone()).await.contains("list resources first"));
    assert_eq!(gate.names("resources/list", "resources").await, ["notes"]);
    let read = gate.rpc("resources/read", uri).await;
    assert_eq!(read["contents"][0]["uri"], "file:///anna.berg/notes", "what the server listed is not redacted");
}

#[tokio::test]
async fn resources_of_a_template_are_read_from_the_server_that_listed_it() {
    let (origin, log) = (over_http(100).await, Log::create());
    let config = format!("{}{}", web(&origin, "resources = false"), over_stdio("local", &log.path, "results = 'off'"));
    let gate = Gate::start(&config).await;
    let uri = json!({ "uri": "test://7/note" });
    assert!(gate.error("resources/read", uri.clone()).await.contains("a template of it"));
    assert_eq!(gate.names("resources/templates/list", "resourceTemplates").await, ["note"]);
    assert_eq!(gate.rpc("resources/read", uri).await["contents"][0]["uri"], "test://7/note");
    assert!(gate.error("resources/read", json!({ "uri": "test://7/photo" })).await.contains("list resources first"));
}

#[tokio::test]
async fn a_server_that_fails_is_missing_in_lists_and_named_in_errors() {
    let (origin, log) = (over_http(100).await, Log::create());
    let nowhere = format!("[mcp.server.gone]\ncommand = '{}'\n", log.path.display());
    let moved = format!("[mcp.server.moved]\nurl = '{}'\n", origin.url("/old"));
    let unknown = format!("[mcp.server.unknown]\nurl = '{}'\n", origin.url("/mcp"));
    let gate = Gate::start(&format!("{nowhere}{moved}{unknown}{}", web(&origin, "tools = ['echo']"))).await;
    assert_eq!(gate.names("tools/list", "tools").await, ["web__echo"]);
    for (tool, says) in [
        ("gone__x", "cannot be started"),
        ("moved__x", "redirects are not followed"),
        ("unknown__x", "status 401: it refuses the gateway's credentials"),
    ] {
        let error = gate.call_error(tool, json!({})).await;
        assert!(error.contains(says) && error.contains(tool.split("__").next().unwrap()), "{error}");
    }
    let listed = &gate.proxy.flows(5).await[1];
    let missing = listed.tags.iter().filter(|tag| tag.starts_with("mcp-unavailable:")).count();
    assert_eq!(missing, 3, "{:?}", listed.tags);
}

#[tokio::test]
async fn a_response_that_is_not_json_is_an_error_at_once() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, ""))).await;
    for server in ["local", "web"] {
        let broken = gate.call_error(&format!("{server}__broken"), json!({})).await;
        assert!(broken.contains("it sent invalid JSON"), "{broken}");
        // Others go on.
        gate.call(&format!("{server}__echo"), json!({})).await;
    }
}

#[tokio::test]
async fn a_process_that_ends_is_explained_and_started_again_later() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    let ended = gate.call_error("local__crash", json!({})).await;
    assert!(ended.contains("exit status: 3") && ended.contains("boom"), "{ended}");
    for _ in 0..100 {
        let call = request(1, "tools/call", &json!({ "name": "local__echo", "arguments": {} }));
        let answer = gate.post(&call, "").await.json();
        if answer["error"].is_null() {
            return;
        }
        let soon = answer["error"]["message"].as_str().unwrap();
        assert!(soon.contains("boom; it is started again in"), "{soon}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("it was not started again");
}

#[tokio::test]
async fn processes_end_with_the_service_and_with_their_configuration() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("local", &log.path, "")).await;
    gate.call("local__echo", json!({})).await;
    let none = toml::from_str("").unwrap();
    let settings = gate.service.compile(&none).unwrap();
    gate.service.activate(settings);
    log.wait_for("the end").await;
    assert_eq!(gate.send("POST", "", "").await.status, 404, "without servers there is no endpoint");
}
