//! Servers that have the user of a client open a URL.

use serde_json::{Value, json};

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{Gate, Log, request, web};

fn opens() -> Value {
    json!({ "elicitation": { "url": {} } })
}

fn call(tool: &str, url: &str, id: &str) -> Value {
    let arguments = json!({ "url": url, "elicitationId": id });
    request(5, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

#[tokio::test]
async fn urls_reach_clients_that_declared_to_open_them() {
    let (origin, log) = (over_http(100).await, Log::create());
    let config = format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, "process_per_session = true"));
    let gate = Gate::of_client("/mcp", &config, opens()).await;
    let mut standing = gate.stream("GET", "").await;
    gate.rpc("tools/list", json!({})).await;
    while !origin.requests().iter().any(|r| r.method == "GET") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let url = "https://login.test/start?for=web";
    // During a call, over HTTP.
    let mut stream = gate.stream("POST", &call("web__ask_url", url, "e1").to_string()).await;
    let asked = stream.next().await.unwrap();
    let params = &asked["params"];
    assert_eq!((&params["mode"], &params["url"], &params["elicitationId"]), (&"url".into(), &url.into(), &"e1".into()));
    assert!(params["message"].as_str().unwrap().contains("EMAIL_") && params["secret"].is_null(), "{params}");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } });
    gate.post(&answer, "").await;
    assert!(stream.next().await.unwrap()["result"]["content"][0]["text"].as_str().unwrap().contains("accept"));
    // By an error, with the client's own address in the URL.
    let own = format!("https://login.test/start?for={MAIL}");
    let error = gate.post(&call("local__need_url", &own, "e2"), "").await.json()["error"].clone();
    let needed = &error["data"]["elicitations"][0];
    assert_eq!((&error["code"], &needed["url"], &needed["elicitationId"]), (&json!(-32042), &own.into(), &"e2".into()));
    assert!(error["data"]["more"].is_null() && !error.to_string().contains(OTHER_MAIL), "{error}");
    // The user is done, as the server that asked says.
    let told = |id: &str| {
        let params = json!({ "elicitationId": id });
        json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params })
    };
    for (tool, id) in [("local__opened", "e2"), ("web__opened", "e1")] {
        gate.post(&call("local__opened", url, "e1"), "").await;
        gate.post(&call(tool, url, id), "").await;
        assert_eq!(standing.next().await.unwrap(), told(id));
    }
    let arrived: String = origin.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    for arrived in [arrived, log.text()] {
        assert!(arrived.contains(r#""capabilities":{"elicitation":{"url":{}}}"#), "{arrived}");
    }
    let recorded = gate.recorded(9).await;
    assert!(recorded.contains("e2") && !recorded.contains(MAIL) && !recorded.contains(OTHER_MAIL), "{recorded}");
}

#[tokio::test]
async fn urls_are_refused_for_clients_that_did_not_declare_it_and_if_the_operator_does_not_allow_it() {
    let url = "https://login.test/";
    for (client, more) in [
        (json!({ "elicitation": {} }), ""),
        (json!({ "elicitation": { "form": {} } }), ""),
        (json!({}), ""),
        (opens(), "client_requests = ['roots']"),
    ] {
        let origin = over_http(100).await;
        let gate = Gate::of_client("/mcp", &web(&origin, more), client.clone()).await;
        let said = gate.post(&call("web__ask_url", url, "e1"), "").await.json()["result"].to_string();
        assert!(said.contains("-3260") && !said.contains("accept"), "{client}: {said}");
        let error = gate.post(&call("web__need_url", url, "e1"), "").await.json()["error"].clone();
        assert_eq!((&error["code"], &error["data"]), (&json!(-32010), &Value::Null), "{client}: {error}");
        assert!(error["message"].as_str().unwrap().contains("elicitation.url"), "{error}");
    }
}

#[tokio::test]
async fn urls_that_are_redacted_or_no_web_addresses_are_refused() {
    let origin = over_http(100).await;
    // What the client sends is not redacted, so that the server's URL is not the client's own.
    let gate = Gate::of_client("/mcp", &web(&origin, "arguments = 'off'"), opens()).await;
    for (url, code) in [
        (format!("https://login.test/?for={OTHER_MAIL}"), "-32011"),
        ("javascript:x".into(), "-32602"),
        ("https://login.test/\r\nX: y".into(), "-32602"),
    ] {
        let said = gate.post(&call("web__ask_url", &url, "e1"), "").await.json()["result"].to_string();
        assert!(said.contains(code), "{url}: {said}");
        let error = gate.post(&call("web__need_url", &url, "e1"), "").await.json()["error"].clone();
        assert!(error["code"] != -32042 && error["data"].is_null(), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_person_may_have_to_approve_a_url() {
    let origin = over_http(100).await;
    let gate = Gate::of_client("/mcp", &web(&origin, "approve = ['elicitation/*']"), opens()).await;
    let error =
        gate.post(&call("web__need_url", "https://login.test/forbidden", "e1"), "").await.json()["error"].clone();
    assert!(error["data"].is_null() && error["message"].as_str().unwrap().contains("not approved"), "{error}");
    let error = gate.post(&call("web__need_url", "https://login.test/", "e1"), "").await.json()["error"].clone();
    assert_eq!(error["data"]["elicitations"][0]["url"], "https://login.test/");
    assert_eq!(gate.asked.lock().unwrap().len(), 2);
}
