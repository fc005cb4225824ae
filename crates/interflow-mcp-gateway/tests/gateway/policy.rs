//! Rules by tool and arguments, over both transports and in both versions of the protocol.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::stateless::{ask_with, call, stateless_server};
use crate::{Gate, Log, web};

/// For a server of which a client may use files below `/work`, and asks before it writes there.
const RULES: &str = r#"
default_action = "deny"
rules = [
    { name = "secrets", action = "deny", arguments = { path = { path = ["/srv/secret/**"] } } },
    { name = "work", action = "allow", tools = ["echo"], arguments = { path = { path = ["/srv/**"] } } },
    { name = "reviewed", action = "ask", tools = ["lookup"], arguments = { path = { path = ["/srv/**"] } } },
    { name = "mail", action = "allow", tools = ["book"], arguments = { to = { glob = ["*@firm.com"] } } },
    { name = "notes", action = "allow", resources = ["test://*/note"] },
]
"#;

#[tokio::test]
async fn rules_decide_by_tool_and_arguments_over_both_transports() {
    let (origin, log) = (over_http(1000).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, RULES), over_stdio("local", &log.path, RULES))).await;
    let offered = ["local__echo", "local__lookup", "local__book", "web__echo", "web__lookup", "web__book"];
    assert_eq!(gate.names("tools/list", "tools").await, offered);
    assert!(gate.names("prompts/list", "prompts").await.is_empty());
    assert!(gate.names("resources/list", "resources").await.is_empty());
    assert_eq!(gate.names("resources/templates/list", "resourceTemplates").await.len(), 2);
    for server in ["local", "web"] {
        let tool = |name: &str| format!("{server}__{name}");
        assert_eq!(gate.call(&tool("echo"), json!({ "path": "/srv/a" })).await, r#"{"path":"/srv/a"}"#);
        for path in
            ["/srv/../etc/passwd", "/srv/%2e%2e/etc", "/srv/..%5cetc", "/etc/passwd", "/WORK/a", "/srv/\u{0}", "~/a"]
        {
            let refused = gate.call_error(&tool("echo"), json!({ "path": path })).await;
            assert!(
                refused.contains("the tool `echo`") && refused.contains(&format!("mcp.server.{server}.rules")),
                "{refused}"
            );
        }
        for path in ["/srv/Secret/a", "/srv/x/../secret/a", "/srv/s%65cret/a", "/srv/s\u{435}cret/a", "/srv/secret"] {
            let refused = gate.call_error(&tool("echo"), json!({ "path": path })).await;
            assert!(refused.contains("the rule `secrets` denies"), "{path}: {refused}");
        }
        for arguments in [
            json!({}),
            json!({ "path": ["/srv/a"] }),
            json!({ "path": "/srv/a", "Path": "/etc" }),
            json!({ "PATH": "/srv/a" }),
            json!({ "path": { "path": "/srv/a" } }),
            json!({ "path": 7 }),
            json!({ "path": null }),
        ] {
            assert!(gate.call_error(&tool("echo"), arguments.clone()).await.contains("no rule allows"), "{arguments}");
        }
        for hidden in ["delete", "ask"] {
            assert!(gate.call_error(&tool(hidden), json!({ "path": "/srv/a" })).await.contains("no rule allows"));
        }
        // The rule sees what the server gets, and the recording does not.
        let booked = gate.call(&tool("book"), json!({ "to": MAIL })).await;
        assert_eq!(booked, json!({ "to": MAIL }).to_string());
        assert!(gate.call_error(&tool("book"), json!({ "to": OTHER_MAIL })).await.contains("no rule allows"));
        gate.call(&tool("lookup"), json!({ "path": "/srv/a", "of": MAIL })).await;
        let denied = gate.call_error(&tool("lookup"), json!({ "path": "/srv/a", "of": "forbidden" })).await;
        assert!(denied.contains("was not approved"), "{denied}");
        let asked = gate.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
        assert!(
            asked.len() == 2 && asked[0].ends_with(", by the rule reviewed") && !asked[0].contains(MAIL),
            "{asked:?}"
        );
    }
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    for arrived in [arrived.as_str(), &log.text()] {
        assert_eq!(arrived.matches("tools/call").count(), 3, "{arrived}");
        assert!(!arrived.contains("etc") && !arrived.contains(OTHER_MAIL), "{arrived}");
    }
    let flows = gate.proxy.flows(57).await;
    let with_tag = |tag: &str| flows.iter().filter(|flow| flow.tags.iter().any(|own| own == tag)).count();
    // Also those that may be any path.
    assert_eq!((with_tag("mcp-rule:secrets"), with_tag("mcp-rule:reviewed")), (14, 4));
    let recorded = gate.recorded(57).await;
    assert!(!recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL));
}

#[tokio::test]
async fn a_member_that_is_there_twice_is_refused_as_servers_differ_in_which_they_take() {
    let (origin, log) = (over_http(100).await, Log::create());
    let gate = Gate::start(&format!("{}{}", web(&origin, RULES), over_stdio("free", &log.path, ""))).await;
    for (server, arguments, refused) in [
        ("web", r#"{"path":"/srv/a","path":"/etc/passwd"}"#, true),
        ("web", r#"{"path":"/etc/passwd","p\u0061th":"/srv/a"}"#, true),
        ("web", r#"{"path":"/srv/a","o":[{"x":1,"x":2}]}"#, true),
        ("web", r#"{"p\u0061th":"\/work\/a"}"#, false),
        ("free", r#"{"path":1,"path":2}"#, false),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{server}__echo","arguments":{arguments}}}}}"#
        );
        let fields = format!("{}Mcp-Session-Id: {}\r\n", crate::stateless::ACCEPTS, gate.session);
        let answer = gate.send("POST", &fields, &body).await.json();
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("has a member twice"), refused, "{answer}");
    }
    let batch = json!([crate::request(1, "tools/call", &call("web__echo", json!({ "path": "/etc" })))]);
    assert!(gate.post(&batch, "").await.json()["error"]["message"].as_str().unwrap().contains("batches"));
}

#[tokio::test]
async fn calls_that_are_refused_count_nothing_against_limits() {
    let log = Log::create();
    let rules = r#"
        deny_tools = ["delete"]
        rules = [{ action = "deny", tools = ["echo"], arguments = { path = { equals = "/etc" } } }]"#;
    let gate = Gate::start(&over_stdio("local", &log.path, rules)).await;
    for (tool, arguments) in [("delete", json!({})), ("unknown", json!({})), ("echo", json!({ "path": "/etc" }))] {
        gate.call_error(&format!("local__{tool}"), arguments).await;
    }
    assert_eq!(gate.counted.load(Relaxed), 0);
    gate.call("local__echo", json!({ "path": "/srv" })).await;
    assert_eq!(gate.counted.load(Relaxed), 1);
}

#[tokio::test]
async fn rules_hold_for_prompts_resources_and_completions() {
    let log = Log::create();
    let rules = r#"
        results = "off"
        rules = [
            { action = "deny", prompts = ["GREET"], arguments = { name = { equals = "eve" } } },
            { name = "asked", action = "ask", resources = ["test://7/**"] },
            { action = "deny", resources = ["test://**", "file:///anna.berg/**"] },
        ]"#;
    let gate = Gate::start(&over_stdio("local", &log.path, rules)).await;
    assert_eq!(gate.names("prompts/list", "prompts").await, ["local__greet"]);
    let prompt = |name: &str| json!({ "name": "local__greet", "arguments": { "name": name } });
    gate.rpc("prompts/get", prompt("ann")).await;
    assert!(gate.error("prompts/get", prompt("Eve")).await.contains("denies these arguments of the prompt `greet`"));
    let completion = |value: &str| {
        json!({ "ref": { "type": "ref/prompt", "name": "local__greet" },
        "argument": { "name": "name", "value": value }, "context": { "arguments": { "x": "y" } } })
    };
    gate.rpc("completion/complete", completion("an")).await;
    assert!(gate.error("completion/complete", completion("eve")).await.contains("denies"));
    assert!(gate.names("resources/list", "resources").await.is_empty());
    gate.names("resources/templates/list", "resourceTemplates").await;
    let uri = |uri: &str| json!({ "uri": uri });
    gate.rpc("resources/read", uri("test://7/note")).await;
    assert!(gate.asked.lock().unwrap().iter().any(|asked| asked.contains("by the rule asked")));
    for (method, address) in [
        ("resources/read", "test://8/note"),
        ("resources/subscribe", "test://8/note"),
        ("resources/read", "TEST://8/note"),
        ("resources/read", "file:///x/../anna.berg/notes"),
        ("resources/read", "file:///anna.berg/notes"),
    ] {
        let refused = gate.error(method, uri(address)).await;
        assert!(refused.contains("this resource") || refused.contains("list resources first"), "{address}: {refused}");
    }
    assert_eq!(log.text().matches("resources/read").count(), 1, "{}", log.text());
}

#[tokio::test]
async fn rules_hold_for_clients_without_sessions() {
    let (stateless, log) = (stateless_server().await, Log::create());
    let new = format!("[mcp.server.new]\nurl = '{}'\n{RULES}", stateless.url("/mcp"));
    let gate = Gate::start(&format!("{new}{}", over_stdio("local", &log.path, RULES))).await;
    for server in ["new", "local"] {
        let tool = format!("{server}__echo");
        let post =
            async |arguments| ask_with(&gate, "tools/call", &call(&tool, arguments), &json!({}), "").await.json();
        assert!(post(json!({ "path": "/srv/a" })).await["result"].is_object());
        let refused = post(json!({ "path": "/srv/../etc" })).await;
        assert_eq!(refused["error"]["code"], -32010, "{refused}");
        // Servers that ignore the case of names would take these for the arguments.
        let mut disguised = call(&tool, json!({ "path": "/srv/a" }));
        for name in ["Arguments", "argument\u{17f}", "ARGUMENTS"] {
            disguised[name] = json!({ "path": "/etc/passwd" });
        }
        disguised["extra"] = "kept".into();
        let passed = ask_with(&gate, "tools/call", &disguised, &json!({}), "").await.json();
        assert!(passed["result"].is_object(), "{passed}");
    }
    let arrived: String = stateless.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    assert!(arrived.contains("kept") && !arrived.contains("etc"), "{arrived}");
}

#[tokio::test]
async fn names_on_deny_and_approval_lists_are_compared_as_they_look() {
    let log = Log::create();
    let lists = "deny_tools = ['DELETE', 'l\u{43e}okup']\napprove = ['Echo']\nresults = 'off'";
    let gate = Gate::start(&over_stdio("local", &log.path, lists)).await;
    let names = gate.names("tools/list", "tools").await;
    assert!(!names.iter().any(|name| ["local__delete", "local__lookup"].contains(&name.as_str())), "{names:?}");
    assert!(gate.call_error("local__delete", json!({})).await.contains("may not be used"));
    gate.call("local__echo", json!({})).await;
    assert_eq!(gate.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn calls_that_the_configuration_or_a_rule_refuses_are_counted_as_refused() {
    let log = Log::create();
    let denied = "deny_tools = ['delete']\nprompts = false\nrules = [{ action = 'deny', tools = ['lookup'] }]";
    let gate = Gate::start(&over_stdio("local", &log.path, denied)).await;
    let refused = || gate.service.counts().calls.get(&("local".to_owned(), "refused")).copied().unwrap_or_default();
    for (count, tool) in [(1, "delete"), (2, "lookup")] {
        gate.call_error(&format!("local__{tool}"), json!({})).await;
        assert_eq!(refused(), count, "{tool}");
    }
    gate.error("prompts/get", json!({ "name": "local__greet" })).await;
    assert_eq!(refused(), 3);
    gate.call_error("local__nowhere", json!({})).await;
    assert_eq!(refused(), 3, "there is no such tool");
}
