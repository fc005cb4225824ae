//! The MCP gateway of the binary: virtual keys, approvals and the recording. The server is an origin.

use interflow_testkit::{Answer, Origin, Reply, Request};
use serde_json::{Value, json};

use crate::instance::{Home, Running};

/// A server with three tools, which return their arguments.
async fn server() -> Origin {
    let answer = |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} })
            }
            "tools/list" => json!({ "tools": [{ "name": "get" }, { "name": "list" }, { "name": "delete" }] }),
            "tools/call" => {
                json!({ "content": [{ "type": "text", "text": message["params"]["arguments"].to_string() }] })
            }
            _ => return Reply::status(202),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    };
    Origin::http().answering(answer).start().await
}

fn config(origin: &Origin, more: &str) -> String {
    // A provider, because without one the operator's route to another covers every path.
    let url = origin.url("");
    format!(
        "[keys]\nrequire_virtual_key = true\n[llm.provider.openai]\nurl = \"{url}\"\n\
         [mcp.server.notes]\nurl = \"{url}/mcp\"\n{more}\n"
    )
}

struct Client<'r> {
    running: &'r Running,
    fields: String,
}

impl<'r> Client<'r> {
    async fn new(running: &'r Running, key: &str) -> Self {
        let mut client = Self { running, fields: format!("Authorization: Bearer {key}\r\n") };
        let begun = client.post("initialize", json!({ "protocolVersion": "2025-06-18" })).await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        client.fields += &format!("Mcp-Session-Id: {}\r\n", begun.header("mcp-session-id").unwrap());
        client
    }

    async fn post(&self, method: &str, params: Value) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.running.post("/mcp", &self.fields, &body).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.post("tools/call", json!({ "name": format!("notes__{tool}"), "arguments": arguments })).await.json()
    }
}

#[tokio::test]
async fn keys_decide_which_tools_are_listed_and_called() {
    let (home, origin) = (Home::new().await, server().await);
    let reader = home.keys(&["add", "--id", "reader", "--mcp", "notes/get", "--mcp", "notes/li*"]).ok();
    let elsewhere = home.keys(&["add", "--id", "elsewhere", "--mcp", "other"]).ok();
    home.keys(&["team", "add", "readers", "--mcp", "*/get"]).ok();
    let member = home.keys(&["add", "--id", "member", "--team", "readers"]).ok();
    let running = home.start(&config(&origin, ""));
    for (key, names) in
        [(&reader, vec!["notes__get", "notes__list"]), (&elsewhere, vec![]), (&member, vec!["notes__get"])]
    {
        let client = Client::new(&running, key.trim()).await;
        let listed = client.post("tools/list", json!({})).await.json();
        let found: Vec<&str> =
            listed["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(found, names);
        let refused = client.call("delete", json!({ "mail": "anna.berg@firm.com" })).await;
        assert!(
            refused["error"]["message"].as_str().unwrap().contains("does not allow the tool `delete`"),
            "{refused}"
        );
    }
    let client = Client::new(&running, reader.trim()).await;
    assert_eq!(client.call("get", json!({ "n": 1 })).await["result"]["content"][0]["text"], r#"{"n":1}"#);
    // A session is of the key that began it.
    let stolen = Client { running: &running, fields: client.fields.replace(reader.trim(), member.trim()) };
    assert_eq!(stolen.post("ping", json!({})).await.status, 404);
    for key in ["", "Authorization: Bearer ifk_wrong\r\n"] {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        assert_eq!(running.post("/mcp", key, body).await.status, 401, "{key}");
    }
    let upstream = format!("{:?}", origin.requests());
    assert!(!upstream.contains("ifk_") && !upstream.contains("anna.berg"), "{upstream}");
    running.stop();
}

#[tokio::test]
async fn calls_wait_for_the_operator_and_are_recorded_redacted() {
    let (home, origin) = (Home::new().await, server().await);
    let key = home.keys(&["add", "--id", "agent"]).ok();
    let running = home.start(&config(&origin, "approve = [\"delete\"]"));
    let client = Client::new(&running, key.trim()).await;
    for action in ["allow", "deny"] {
        let decide = async {
            let mut id = String::new();
            running
                .until(async || {
                    let pending = running.admin("GET", "/api/v1/pending", "").await.json();
                    let first = &pending["pending"][0];
                    id = first["id"].as_str().unwrap_or_default().to_owned();
                    first["note"].as_str().is_some_and(|n| n.contains("tool delete") && !n.contains("anna.berg"))
                })
                .await;
            home.say(&["pending", action, &id]).ok();
        };
        let (answer, ()) = tokio::join!(client.call("delete", json!({ "of": "anna.berg@firm.com" })), decide);
        if action == "allow" {
            assert_eq!(answer["result"]["content"][0]["text"], r#"{"of":"anna.berg@firm.com"}"#);
        } else {
            assert!(answer["error"]["message"].as_str().unwrap().contains("was not approved"), "{answer}");
        }
    }
    let flows = || home.say(&["flows", "list", "tag:mcp-tool:delete tag:held tag:redacted", "--format", "jsonl"]).ok();
    running.until(async || flows().lines().count() == 2).await;
    let id: Value = serde_json::from_str(flows().lines().next().unwrap()).unwrap();
    let shown = home.say(&["flows", "show", id["id"].as_str().unwrap()]).ok();
    assert!(shown.contains("notes__delete") && shown.contains("EMAIL") && !shown.contains("anna.berg"), "{shown}");
    assert!(
        running
            .admin("GET", "/metrics", "")
            .await
            .text()
            .contains(r#"interflow_mcp_calls_total{server="notes",result="refused"} 1"#)
    );
    running.stop();
}
