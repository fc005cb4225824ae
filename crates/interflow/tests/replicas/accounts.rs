//! The accounts of users of the MCP gateway, which replicas share through the database of their store.

use interflow_limits::hash_key;
use interflow_testkit::{Origin, PostgresServer, Reply, Request};
use interflow_types::percent::{decoded_form, encoded};
use serde_json::{Value, json};

use crate::replica::{Replica, named};

/// A server, which is its own authorization server and grants everything.
async fn server() -> Origin {
    let answer = |request: &Request| {
        let origin = format!("http://{}", request.header("host").unwrap());
        let value = |name: &str| decoded_form(request.query(name).unwrap_or_default());
        match request.path() {
            "/.well-known/oauth-authorization-server" => Reply::json(&json!({
                "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
            })),
            "/register" => Reply::json(&json!({ "client_id": "gate" })),
            "/authorize" => {
                let back = format!("{}?code=c&state={}", value("redirect_uri"), value("state"));
                Reply::status(302).header("Location", back)
            }
            "/token" => Reply::json(&json!({ "access_token": "granted", "token_type": "Bearer" })),
            "/mcp" if request.header("authorization") != Some("Bearer granted") => Reply::status(401),
            "/mcp" => {
                let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let result = match message["method"].as_str().unwrap_or_default() {
                    "server/discover" => {
                        json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
                    }
                    "tools/list" => json!({ "tools": [{ "name": "who" }] }),
                    _ => json!({ "content": [{ "type": "text", "text": "served" }] }),
                };
                Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
            }
            _ => Reply::status(404),
        }
    };
    Origin::http().answering(answer).start().await
}

/// The text of a call of a client that shows no URLs.
async fn call(replica: &Replica) -> String {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let params = json!({ "name": "who", "arguments": {}, "_meta": meta });
    let head = "POST /mcp/crm HTTP/1.1\r\nAuthorization: Bearer ifk_anna\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
                Mcp-Name: who\r\n";
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    replica.send(replica.gateway, head, &body).await.text()
}

fn between(text: &str, before: &str, after: char) -> String {
    text.split_once(before).unwrap_or_else(|| panic!("{text}")).1.split(after).next().unwrap().replace("&amp;", "&")
}

/// Opens a page of a replica: its text, and its cookie.
async fn page(replica: &Replica, line: &str, fields: &str, body: &str) -> (String, String) {
    let answer = replica.send(replica.gateway, &format!("{line} HTTP/1.1\r\n{fields}"), body).await;
    let cookie = answer.header("set-cookie").unwrap_or_default().split(';').next().unwrap().to_owned();
    (answer.text(), format!("Cookie: {cookie}\r\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_connected_at_one_replica_is_used_and_forgotten_at_all() {
    let Some(database) = PostgresServer::shared().map(|server| server.database()) else { return };
    let server = server().await;
    let start = |name: &str| {
        let home = tempfile::tempdir().unwrap();
        let key = format!("[[key]]\nid = \"anna\"\nhash = \"{}\"\n", hash_key("ifk_anna"));
        std::fs::write(home.path().join("keys.toml"), key).unwrap();
        let mcp = format!(
            "[redact]\nsecret = \"the same at all replicas\"\n[mcp.server.crm]\nurl = \"{}\"\n\
             oauth = {{ grant = \"authorization_code\" }}\n",
            server.url("/mcp")
        );
        Replica::start_in(home, &format!("{}{mcp}", named(name, &database)), Vec::new())
    };
    let (a, b) = (start("a"), start("b"));
    let answer = call(&a).await;
    let base = format!("http://{}", a.gateway);
    let link = between(&answer, &format!("have them open {base}"), '"');
    let (form, cookie) = page(&a, &format!("GET {link}"), "", "").await;
    let body = format!("action=connect&token={}", encoded(&between(&form, "name=\"token\" value=\"", '"')));
    let (leaving, cookie) = page(&a, "POST /mcp-accounts/link", &format!("{cookie}Origin: {base}\r\n"), &body).await;
    let there = between(&leaving, &format!("content=\"0;url={}", server.url("")), '"');
    let asked = a.send(server.addr(), &format!("GET {there} HTTP/1.1\r\n"), "").await;
    let back = asked.header("location").unwrap().strip_prefix(&base).unwrap().to_owned();
    let (done, _) = page(&a, &format!("GET {back}"), &cookie, "").await;
    assert!(done.contains("Your account is connected"), "{done}");
    assert!(call(&b).await.contains("served"));
    let listed = b.cli(&["mcp", "--accounts"]);
    assert!(listed.contains("crm") && listed.contains("key:anna") && !listed.contains("granted"), "{listed}");
    b.cli(&["mcp", "--disconnect", "crm", "key:anna"]);
    assert!(!a.cli(&["mcp", "--accounts"]).contains("key:anna"));
    assert!(call(&a).await.contains("/mcp-accounts/link?token="));
}
