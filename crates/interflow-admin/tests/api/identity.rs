//! Roles and rights, API tokens, and the audit trail.

use serde_json::json;

use super::*;

/// Creates an API token with the admin token; returns its id and text.
pub(super) async fn make_token(it: &Instance, role: &str, read_bodies: bool) -> (String, String) {
    let input = json!({"name": format!("test {role}"), "role": role, "read_bodies": read_bodies, "expires": "1h"});
    let made = it.post("/tokens", input).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["token"]["id"]), text(&made["secret"]))
}

/// A request with a bearer token.
pub(super) async fn as_token(it: &Instance, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {token}"));
    let fields = [("Host", host.as_str()), ("Authorization", &bearer), ("Content-Type", "application/json")];
    it.plain(method, path, &fields, body.as_bytes()).await
}

/// Every operation with the rights that the document says it needs.
async fn operations(it: &Instance) -> Vec<(String, String, Vec<String>)> {
    let document = it.json("/openapi.json").await;
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let rights = operation["x-required-rights"].as_array().unwrap_or_else(|| panic!("{method} {path}"));
            let rights = rights.iter().map(|r| r.as_str().unwrap().to_owned()).collect();
            all.push((method.to_uppercase(), path.clone(), rights));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_names_its_rights_and_refuses_who_lacks_them() {
    let it = Instance::start().await;
    let (_, viewer) = make_token(&it, "viewer", false).await;
    let (_, operator) = make_token(&it, "operator", false).await;
    let (_, reader) = make_token(&it, "operator", true).await;
    let all = operations(&it).await;
    assert!(all.len() > 120, "{}", all.len());
    for (method, template, rights) in all {
        assert!(rights.contains(&"view".to_owned()), "{method} {template}: {rights:?}");
        let path = template.replace("{id}", "01JD3V7T2M00000000000000AB").replace("{side}", "request");
        for (token, has) in [
            (&viewer, &["view"][..]),
            (&operator, &["view", "operate"]),
            (&reader, &["view", "operate", "read_bodies"]),
        ] {
            let lacks = rights.iter().any(|r| !has.contains(&r.as_str()));
            // What is allowed is not carried out here: some of it deletes or waits.
            if !lacks {
                continue;
            }
            let answer = as_token(&it, token, &method, &path, "{}").await;
            assert_eq!((answer.status, kind(&answer).as_str()), (403, "missing_right"), "{method} {template} {has:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_flows_but_no_contents_and_cannot_search_in_them() {
    let it = Instance::start().await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "the secret text").await;
    let id = it.ids().await.remove(0);
    let (_, viewer) = make_token(&it, "viewer", false).await;
    let (_, reader) = make_token(&it, "viewer", true).await;
    for (path, seen, read) in [
        (format!("/api/v1/flows/{id}"), 200, 200),
        ("/api/v1/flows?query=host:localhost".into(), 200, 200),
        (format!("/api/v1/flows/{id}/response/body"), 403, 200),
        (format!("/api/v1/flows/{id}/messages"), 403, 200),
        ("/api/v1/export?format=har".into(), 403, 200),
        // A search tells what bodies contain; bare words search in bodies, too.
        ("/api/v1/flows?query=body:secret".into(), 403, 200),
        ("/api/v1/flows/count?query=secret".into(), 403, 200),
        ("/api/v1/flows?query=not%20resp.body:secret".into(), 403, 200),
        ("/api/v1/conversations".into(), 403, 200),
        ("/metrics".into(), 200, 200),
        ("/api/v1/audit".into(), 403, 403),
    ] {
        assert_eq!(as_token(&it, &viewer, "GET", &path, "").await.status, seen, "viewer {path}");
        assert_eq!(as_token(&it, &reader, "GET", &path, "").await.status, read, "reader {path}");
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    it.post_through("/rpc", "Content-Type: application/json\r\n", &call).await;
    let named = it.json("/flows?query=path:/rpc").await["flows"][0]["id"].as_str().unwrap().to_owned();
    for (token, operation) in [(&viewer, Value::Null), (&reader, json!("tools/list"))] {
        let details = as_token(&it, token, "GET", &format!("/api/v1/flows/details?flows={named}"), "").await.json();
        assert_eq!(details["flows"][&named]["operation"], operation, "{details}");
    }
    assert_eq!(as_token(&it, &viewer, "POST", "/mcp", &call).await.status, 403);
    assert_eq!(as_token(&it, &reader, "POST", "/mcp", &call).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_socket_refuses_a_search_in_bodies_and_closes_when_its_token_is_revoked() {
    use futures_util::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let it = Instance::start().await;
    let (id, viewer) = make_token(&it, "viewer", false).await;
    let mut request = format!("ws://{}/api/v1/events", it.admin).into_client_request().unwrap();
    request.headers_mut().insert("Authorization", format!("Bearer {viewer}").parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let next = async |socket: &mut tokio_tungstenite::WebSocketStream<_>| loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str::<Value>(&text).unwrap(),
            Message::Close(frame) => return json!({"type": "close", "reason": frame.unwrap().reason.as_str()}),
            _ => {}
        }
    };
    assert_eq!(next(&mut socket).await["type"], "hello");
    let subscribe = |query: &str| Message::text(json!({"subscribe": {"query": query, "generation": 1}}).to_string());
    socket.send(subscribe("body:secret")).await.unwrap();
    assert_eq!(next(&mut socket).await["error"]["kind"], "missing_right");
    socket.send(subscribe("")).await.unwrap();
    assert_eq!(next(&mut socket).await["type"], "subscribed");
    it.record("/before");
    assert_eq!(next(&mut socket).await["type"], "flows");
    assert_eq!(it.call("DELETE", &format!("/tokens/{id}"), &[], b"").await.status, 204);
    it.record("/after");
    // Events of the first flow may still have been on their way.
    let end = loop {
        let message = next(&mut socket).await;
        if message["type"] != "flows" {
            break message;
        }
        assert!(!message.to_string().contains("/after"), "{message}");
    };
    assert!(end["type"] == "close" && end["reason"].as_str().unwrap().contains("revoked"), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_flow_cannot_be_sent_elsewhere_by_who_may_not_read_it() {
    let it = Instance::start().await;
    let (_, operator) = make_token(&it, "operator", false).await;
    let (_, reader) = make_token(&it, "operator", true).await;
    let change = json!({"action": "change", "url": "http://evil.test/"}).to_string();
    for path in ["/api/v1/pending/rule-1", "/api/v1/rules/held/1"] {
        assert_eq!(kind(&as_token(&it, &operator, "POST", path, &change).await), "missing_right", "{path}");
        // This instance has no rules, so nothing is held.
        let status = as_token(&it, &reader, "POST", path, &change).await.status;
        assert!(matches!(status, 404 | 503), "{path}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_shown_once_limited_to_the_rights_of_their_maker_and_revoked_at_once() {
    let it = Instance::start().await;
    let (id, viewer) = make_token(&it, "viewer", false).await;
    let me = as_token(&it, &viewer, "GET", "/api/v1/me", "").await.json();
    assert_eq!(
        (&me["role"], &me["rights"], &me["kind"]),
        (&json!("viewer"), &json!(["view"]), &json!("service-token"))
    );
    let secret = viewer.rsplit('_').next().unwrap();
    let listed = it.json("/tokens").await;
    assert!(!listed.to_string().contains(secret) && listed["tokens"][0]["id"] == *id, "{listed}");
    // A token that no admin holds cannot make others, nor see or revoke them.
    let more = json!({"name": "x", "role": "viewer", "expires": "1h"}).to_string();
    assert_eq!(kind(&as_token(&it, &viewer, "POST", "/api/v1/tokens", &more).await), "no_token_here");
    assert_eq!(as_token(&it, &viewer, "GET", "/api/v1/tokens", "").await.json(), json!({"tokens": []}));
    let path = format!("/api/v1/tokens/{id}");
    assert_eq!(kind(&as_token(&it, &viewer, "DELETE", &path, "").await), "not_found");
    for (input, why) in [
        (json!({"name": "", "role": "viewer"}), "bad_request"),
        (json!({"name": "x", "role": "root"}), "bad_request"),
        (json!({"name": "x", "role": "viewer", "expires": "soon"}), "bad_request"),
        (json!({"name": "x", "role": "viewer", "expires": "2020-01-01"}), "bad_request"),
    ] {
        assert_eq!(kind(&it.post("/tokens", input.clone()).await), why, "{input}");
    }
    assert_eq!(it.call("DELETE", &format!("/tokens/{id}"), &[], b"").await.status, 204);
    let refused = as_token(&it, &viewer, "GET", "/api/v1/me", "").await;
    assert_eq!((refused.status, kind(&refused).as_str()), (401, "no_token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_trail_says_who_read_bodies_changed_something_or_was_refused() {
    let it = Instance::start().await;
    it.through("/text").await;
    let flow = it.ids().await.remove(0);
    let (id, viewer) = make_token(&it, "viewer", false).await;
    let body = format!("/flows/{flow}/response/body");
    it.get(&body).await;
    as_token(&it, &viewer, "GET", &format!("/api/v1{body}"), "").await;
    it.call("PATCH", &format!("/flows/{flow}"), &[("Content-Type", "application/json")], br#"{"comment":"x"}"#).await;
    let page = it.json("/audit").await;
    let lines: Vec<_> = page["records"].as_array().unwrap().iter().collect();
    let find = |operation: &str, actor: &str| {
        let found = lines.iter().find(|l| l["operation"] == operation && l["actor"] == actor);
        (*found.unwrap_or_else(|| panic!("{operation} {actor} in {page}"))).clone()
    };
    let read = find("GET /flows/{id}/{side}/body", "admin token");
    assert_eq!((&read["status"], &read["client_ip"]), (&json!(200), &json!("127.0.0.1")));
    assert!(read["target"].as_str().unwrap().contains(&flow), "{read}");
    let refused = find("GET /flows/{id}/{side}/body", "test viewer");
    assert_eq!(
        (&refused["status"], &refused["actor_id"], &refused["role"]),
        (&json!(403), &json!(id), &json!("viewer"))
    );
    assert_eq!(find("POST /tokens", "admin token")["detail"]["role"], "viewer");
    find("PATCH /flows/{id}", "admin token");
    it.post("/mcp/accounts/remove", json!({"server": "crm", "user": "anna"})).await;
    let removal = &trail(&it, "accounts").await[0];
    assert_eq!(removal["detail"], json!({"server": "crm", "user": "anna"}), "{removal}");
    assert!(!lines.iter().any(|l| l["operation"] == "GET /flows"), "lists are not written down: {page}");
    let one = it.json("/audit?text=test%20viewer&limit=1").await;
    assert_eq!(one["records"].as_array().unwrap().len(), 1);
}

/// The lines of the audit trail with this text, apart from those of looking at the trail.
pub(super) async fn trail(it: &Instance, text: &str) -> Vec<Value> {
    let mut lines = it.json(&format!("/audit?limit=1000&text={text}")).await["records"].as_array().unwrap().clone();
    lines.retain(|line| line["operation"] != "GET /audit");
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_a_session_can_fill_the_audit_trail() {
    let it = Instance::start().await;
    let (host, origin) = (it.admin.to_string(), format!("http://{}", it.admin));
    for _ in 0..30 {
        assert_eq!(it.plain("POST", "/logout", &[("Host", &host), ("Origin", &origin)], b"").await.status, 303);
    }
    assert_eq!(trail(&it, "logout").await, Vec::<Value>::new());
    let bearer = format!("Bearer {TOKEN}");
    it.plain("POST", "/logout", &[("Host", &host), ("Authorization", &bearer)], b"").await;
    assert_eq!(trail(&it, "logout").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_one_caller_are_limited_and_those_left_out_are_counted() {
    let it = Instance::start().await;
    let (_, viewer) = make_token(&it, "viewer", false).await;
    let (_, operator) = make_token(&it, "operator", false).await;
    for n in 0..60 {
        assert_eq!(as_token(&it, &viewer, "DELETE", &format!("/api/v1/keys/{n}"), "").await.status, 403);
    }
    let lines = trail(&it, "test%20viewer").await;
    assert_eq!(lines.iter().filter(|l| l["status"] == 403).count(), 20);
    // Others are written down as before.
    assert_eq!(as_token(&it, &operator, "DELETE", "/api/v1/keys/1", "").await.status, 403);
    assert_eq!(trail(&it, "test%20operator").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_leaves_its_line() {
    let it = Instance::start().await;
    it.through("/delay/3000").await;
    let flow = it.ids().await.remove(0);
    let (host, body) = (it.admin.to_string(), "{}");
    let mut wire = Wire::connect(it.admin).await.unwrap();
    let head = format!(
        "POST /api/v1/flows/{flow}/replay HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    wire.send(head).await.unwrap();
    it.origin.wait_for_requests(2).await;
    drop(wire);
    for _ in 0..200 {
        if let [line] = &trail(&it, "replay").await[..] {
            assert_eq!((&line["status"], &line["operation"]), (&json!(499), &json!("POST /flows/{id}/replay")));
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no line");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_say_what_was_exported_deleted_and_added_but_no_secret() {
    let it = Instance::start().await;
    it.through("/text").await;
    it.through("/bytes/5").await;
    let ids = it.ids().await;
    it.post("/export", json!({"ids": ids, "format": "har"})).await;
    it.post("/flows/delete", json!({"ids": [ids[0]]})).await;
    it.post("/flows/prune", json!({"query": "host:gone.test"})).await;
    let secret = json!({"label": "github", "value": "ghp_very-secret-value", "hosts": ["api.github.com"]});
    assert_eq!(it.post("/secrets", secret).await.status, 200);
    assert_eq!(it.post("/approvals/rules", json!({"action": "deny", "hosts": ["bad.test"]})).await.status, 200);
    for (operation, part) in [
        ("POST%20%2Fexport", json!({"flows": {"count": 2, "names": ids}, "bodies": false, "originals": false})),
        ("flows%2Fdelete", json!({"flows": {"count": 1, "names": [ids[0]]}})),
        ("flows%2Fprune", json!({"query": "host:gone.test", "older": null, "all": false})),
        ("POST%20%2Fsecrets", json!({"label": "github", "hosts": ["api.github.com"], "plain_http": false})),
        ("approvals%2Frules", json!({"rule": {"action": "deny", "hosts": ["bad.test"]}})),
    ] {
        let lines = trail(&it, operation).await;
        assert_eq!(lines.len(), 1, "{operation}: {lines:?}");
        let detail = lines[0]["detail"].clone();
        let has = |(key, value): (&String, &Value)| {
            detail[key] == *value || (key == "rule" && detail["rule"]["hosts"] == value["hosts"])
        };
        assert!(part.as_object().unwrap().iter().all(has), "{operation}: {detail}");
    }
    assert!(!json!(trail(&it, "").await).to_string().contains("very-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_calls_are_written_down_with_their_outcome() {
    let it = Instance::start().await;
    let (_, viewer) = make_token(&it, "viewer", false).await;
    let call = |name: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}});
    assert_eq!(as_token(&it, &viewer, "POST", "/mcp", &call("search_flows").to_string()).await.status, 403);
    for (name, status) in [("search_flows", 200), ("replay_flow", 400), ("no_such_tool", 400)] {
        assert_eq!(as_token(&it, TOKEN, "POST", "/mcp", &call(name).to_string()).await.status, 200, "{name}");
        let lines = trail(&it, name).await;
        assert!(lines.len() == 1 && lines[0]["status"] == status, "{name}: {lines:?}");
    }
    let refused = trail(&it, "test%20viewer").await;
    assert!(refused.iter().any(|l| l["operation"] == "POST /mcp" && l["status"] == 403), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_secure_and_clients_known_only_behind_a_trusted_proxy_with_tls() {
    for (trusted, is_secure, address) in
        [(vec!["127.0.0.1/32".parse().unwrap()], true, "198.51.100.7"), (vec![], false, "127.0.0.1")]
    {
        let options = AdminConfig { trusted_proxies: trusted, ..AdminConfig::default() };
        let it = Instance::with(Origin::http(), Setup { options: Some(options), ..Setup::default() }).await;
        let (host, origin) = (it.admin.to_string(), format!("https://{}", it.admin));
        let fields = [
            ("Host", host.as_str()),
            ("Origin", &origin),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-For", "198.51.100.7"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let answer = it.plain("POST", "/login", &fields, format!("token={TOKEN}").as_bytes()).await;
        let cookie = answer.header("set-cookie").unwrap();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{cookie}");
        assert_eq!(trail(&it, "login").await[0]["client_ip"], *address);
    }
}
