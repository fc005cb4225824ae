//! The search for tools, in both versions of the protocol.

use serde_json::{Value, json};

use crate::server::{MAIL, all_tools, over_http, over_stdio};
use crate::stateless::{ask, call, message, said, stateless_server};
use crate::{EventStream, Gate, Log, web};

const SEARCH: &str = "interflow_search_tools";

fn names(result: &Value) -> Vec<&str> {
    result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn listen(gate: &Gate) -> EventStream {
    let (fields, body) =
        message(9, "subscriptions/listen", &json!({ "notifications": { "toolsListChanged": true } }), &json!({}));
    gate.stream_with("POST", &fields.replace("Mcp-Name: \r\n", ""), &body).await
}

#[tokio::test]
async fn a_client_with_many_tools_sees_a_search_and_what_it_found() {
    let (origin, log) = (over_http(1000).await, Log::create());
    let config = format!(
        "[mcp]\nsearch_tools_above = 20\n{}{}",
        web(&origin, ""),
        over_stdio("local", &log.path, "deny_tools = ['lookup']")
    );
    let gate = Gate::start(&config).await;
    assert_eq!(gate.names("tools/list", "tools").await, [SEARCH]);
    let mut standing = gate.stream("GET", "").await;
    let result =
        gate.rpc("tools/call", call(SEARCH, json!({ "query": format!("lookups of {MAIL}"), "limit": 1 }))).await;
    let tools = &result["structuredContent"];
    assert_eq!(names(tools)[0], "web__lookup");
    assert!(!names(tools).contains(&"local__lookup"), "what may not be used is not found");
    assert!(tools["tools"][0]["inputSchema"].is_object());
    assert_eq!(serde_json::from_str::<Value>(said(&result)).unwrap(), *tools);
    assert_eq!(standing.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(gate.names("tools/list", "tools").await, [SEARCH, "web__lookup"]);
    gate.call("web__lookup", json!({})).await;
    // What was not found can be called, too, as far as it may be used.
    gate.call("web__echo", json!({})).await;
    assert!(gate.call_error("local__lookup", json!({})).await.contains("may not be used"));
    let none = gate.rpc("tools/call", call(SEARCH, json!({ "query": "zebra" }))).await;
    assert_eq!(said(&none), "no tool matches; use other words");
    assert!(gate.call_error(SEARCH, json!({ "query": 7 })).await.contains("`query` is not a string"));
    assert!(!gate.recorded(9).await.contains(MAIL), "a query is redacted");
    let other = Gate::at("/mcp/web", &config).await;
    assert_eq!(other.names("tools/list", "tools").await.len(), all_tools().count(), "it has not more than 20");
}

#[tokio::test]
async fn a_server_has_a_limit_of_its_own_and_rules_hold_for_what_is_found() {
    let (origin, log) = (over_http(1000).await, Log::create());
    let rules = "search_tools_above = 0\nrules = [{ action = 'deny', tools = ['ask*'] }]";
    let gate = Gate::start(&format!("{}{}", web(&origin, rules), over_stdio("local", &log.path, ""))).await;
    let listed = gate.names("tools/list", "tools").await;
    assert_eq!((listed[0].as_str(), listed.len()), (SEARCH, 1 + all_tools().count()));
    assert!(listed[1..].iter().all(|name| name.starts_with("local__")), "{listed:?}");
    // What is listed anyway is not found.
    for (query, found) in [("ask", &[][..]), ("lookups", &["web__lookup"])] {
        let result = gate.rpc("tools/call", call(SEARCH, json!({ "query": query }))).await;
        assert_eq!(names(&result["structuredContent"]), found, "{query}");
    }
}

#[tokio::test]
async fn clients_without_sessions_search_too() {
    let (stateless, log) = (stateless_server().await, Log::create());
    let new = format!("[mcp]\nsearch_tools_above = 5\n[mcp.server.new]\nurl = '{}'\n", stateless.url("/mcp"));
    let gate = Gate::start(&format!("{new}{}", over_stdio("local", &log.path, ""))).await;
    let list = ask(&gate, "tools/list", json!({})).await;
    assert_eq!((names(&list), &list["ttlMs"], &list["resultType"]), (vec![SEARCH], &json!(0), &json!("complete")));
    let mut events = listen(&gate).await;
    assert_eq!(events.next().await.unwrap()["method"], "notifications/subscriptions/acknowledged");
    let result = ask(&gate, "tools/call", call(SEARCH, json!({ "query": "busy" }))).await;
    assert_eq!((names(&result["structuredContent"]), &result["resultType"]), (vec!["new__busy"], &json!("complete")));
    loop {
        let event = events.next().await.unwrap();
        assert_eq!(event["method"], "notifications/tools/list_changed");
        assert_eq!(event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);
        if names(&ask(&gate, "tools/list", json!({})).await).len() == 2 {
            break;
        }
    }
    assert_eq!(ask(&gate, "tools/call", call("new__busy", json!({}))).await["resultType"], "input_required");
}
