//! Accounts of users at servers: connected in a browser, used, renewed, and of no use to anybody else.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_limits::{KeyContext, KeyStore, hash_key};
use interflow_mcp_gateway::McpConfig;
use interflow_testkit::{Answer, Origin, Reply, Request, Wire};
use interflow_types::percent::{decoded_form, encoded};
use interflow_types::{EntryKind, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, Stage};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client_keys::check_assertion;
use crate::dpop::check_proof;
use crate::stateless::{ask_with, call, said};
use crate::{Gate, request};

/// Stands for the check of virtual keys.
pub struct KeyStage(pub Arc<KeyStore>);

pub fn shown_key(head: &RequestHead) -> Option<&str> {
    head.headers.get_str("authorization")?.strip_prefix("Bearer key-")
}

pub fn no_keys() -> Arc<KeyStore> {
    Arc::new(KeyStore::open("/nowhere/keys.toml").unwrap())
}

impl Stage for KeyStage {
    fn name(&self) -> &'static str {
        "test-keys"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if scope.transport == EntryKind::Gateway { PhaseSet::from_phase(Phase::RequestHead) } else { PhaseSet::NONE }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        if let Some(name) = shown_key(head) {
            flow.extension_mut::<KeyContext>().key = self.0.ring().find_now(&format!("key-{name}")).ok();
        }
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

/// What the authorization server does, and what it has granted.
pub struct Rules {
    /// Members of its metadata in place of the usual ones.
    pub metadata: Value,
    /// The `resource` in the metadata of the server, in place of its URL.
    pub resource: Option<String>,
    /// What it appends to the redirect URI.
    pub iss: Option<String>,
    /// The scope that calls need.
    pub scope: &'static str,
    pub redirects_token_requests: bool,
    /// Refresh tokens are of no use any more.
    pub is_revoked: bool,
    /// The code with which it refuses the gateway as a client.
    pub refusal: Option<&'static str>,
    pub lifetime: u64,
    /// How long the token endpoint takes.
    pub pause: Duration,
    /// Codes, with the challenge and the scopes of the request.
    pub codes: HashMap<String, (String, String)>,
    /// Access tokens, and refresh tokens that were not used yet, with their scopes.
    pub tokens: HashMap<String, String>,
    pub count: usize,
    /// How the gateway registered itself.
    pub registration: Value,
    /// Its tokens are bound to keys, and the server takes no others.
    pub binds: bool,
    /// The keys of proofs.
    pub keys: Vec<String>,
}

pub type Shared = Arc<Mutex<Rules>>;

/// A server, which is its own authorization server.
pub async fn start() -> (Origin, Shared) {
    let rules = Arc::new(Mutex::new(Rules {
        metadata: json!({}),
        resource: None,
        iss: None,
        scope: "read",
        redirects_token_requests: false,
        is_revoked: false,
        refusal: None,
        lifetime: 3600,
        pause: Duration::ZERO,
        codes: HashMap::new(),
        tokens: HashMap::new(),
        count: 0,
        registration: Value::Null,
        binds: false,
        keys: Vec::new(),
    }));
    let state = Arc::clone(&rules);
    let answer = move |request: &Request| {
        let origin = format!("http://{}", request.header("host").unwrap());
        let mut rules = state.lock();
        match request.path() {
            "/.well-known/oauth-protected-resource/mcp" => {
                let resource = rules.resource.clone().unwrap_or_else(|| format!("{origin}/mcp"));
                Reply::json(&json!({ "resource": resource, "authorization_servers": [origin] }))
            }
            "/.well-known/oauth-authorization-server" => {
                let mut metadata = json!({
                    "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                    "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                    "code_challenge_methods_supported": ["S256"], "scopes_supported": ["read", "write", "offline_access"],
                    "authorization_response_iss_parameter_supported": true,
                });
                for (name, value) in rules.metadata.as_object().unwrap() {
                    metadata[name] = value.clone();
                }
                Reply::json(&metadata)
            }
            "/register" => {
                let asked: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(asked["application_type"], "native");
                rules.registration = asked;
                let mut client = json!({ "client_id": "gate" });
                if rules.registration["jwks"].is_null() {
                    client["client_secret"] = "registered-secret".into();
                }
                Reply::status(201).body(client.to_string())
            }
            "/authorize" => {
                let value = |name: &str| decoded_form(request.query(name).unwrap_or_default());
                assert_eq!((value("client_id").as_str(), value("code_challenge_method").as_str()), ("gate", "S256"));
                assert_eq!(value("resource"), format!("{origin}/mcp"));
                rules.count += 1;
                let code = format!("code-{}", rules.count);
                rules.codes.insert(code.clone(), (value("code_challenge"), value("scope")));
                let iss = rules.iss.clone().unwrap_or(origin);
                let back =
                    format!("{}?code={code}&state={}&iss={}", value("redirect_uri"), value("state"), encoded(&iss));
                Reply::status(302).header("Location", back)
            }
            "/token" if rules.redirects_token_requests => Reply::status(307).header("Location", "/elsewhere"),
            "/token" => grant(&mut rules, request, &origin).delay(rules.pause),
            "/mcp" => serve(&mut rules, request, &origin),
            _ => Reply::status(404),
        }
    };
    (Origin::http().answering(answer).start().await, rules)
}

pub fn form(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|field| field.split_once('='));
    pairs.map(|(name, value)| (decoded_form(name), decoded_form(value))).collect()
}

fn grant(rules: &mut Rules, request: &Request, origin: &str) -> Reply {
    let form = form(std::str::from_utf8(&request.body).unwrap());
    match rules.registration["jwks"].is_null() {
        true => assert_eq!(request.header("authorization"), Some("Basic Z2F0ZTpyZWdpc3RlcmVkLXNlY3JldA==")),
        false => check_assertion(&form, &rules.registration["jwks"], "gate", origin),
    }
    assert_eq!(form["resource"], format!("{origin}/mcp"));
    if let Some(code) = rules.refusal {
        return Reply::status(401).body(json!({ "error": code }).to_string());
    }
    let refused = || Reply::status(400).body(r#"{"error":"invalid_grant","error_description":"secret details"}"#);
    let scopes = match form["grant_type"].as_str() {
        "refresh_token" => match rules.tokens.remove(&form["refresh_token"]) {
            Some(scopes) if !rules.is_revoked => scopes,
            _ => return refused(),
        },
        _ => match rules.codes.remove(&form["code"]) {
            Some((challenge, scopes)) => {
                let verified = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
                assert_eq!(verified, challenge, "PKCE");
                scopes
            }
            None => return refused(),
        },
    };
    if rules.binds {
        rules.keys.push(check_proof(request, &format!("{origin}/token"), None, None));
    }
    let kind = if rules.binds { "DPoP" } else { "Bearer" };
    rules.count += 1;
    let (access, refresh) = (format!("access-{}", rules.count), format!("refresh-{}", rules.count));
    rules.tokens.insert(access.clone(), scopes.clone());
    rules.tokens.insert(refresh.clone(), scopes);
    Reply::json(
        &json!({ "access_token": access, "refresh_token": refresh, "token_type": kind, "expires_in": rules.lifetime }),
    )
}

fn serve(rules: &mut Rules, request: &Request, origin: &str) -> Reply {
    let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let scheme = if rules.binds { "DPoP" } else { "Bearer" };
    let token = request.header("authorization").and_then(|field| field.strip_prefix(scheme)).map(str::trim);
    let metadata = format!("resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\"");
    let Some(scopes) = token.and_then(|token| rules.tokens.get(token).cloned()) else {
        let other = Reply::status(401).header("WWW-Authenticate", "Basic realm=\"crm\"");
        return other.header("WWW-Authenticate", format!("{scheme} scope=\"read\", {metadata}"));
    };
    if rules.binds {
        rules.keys.push(check_proof(request, &format!("{origin}/mcp"), token, None));
    }
    let method = message["method"].as_str().unwrap_or_default();
    if method == "tools/call" && !scopes.split(' ').any(|own| own == rules.scope) {
        let challenge = format!("{scheme} error=\"insufficient_scope\", scope=\"{}\", {metadata}", rules.scope);
        return Reply::status(403).header("WWW-Authenticate", challenge);
    }
    let result = match method {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
        "tools/list" => json!({ "tools": [{ "name": "who" }, { "name": "connect_account" }] }),
        // As it is not masked, and as it is.
        "tools/call" => json!({ "content": [
            { "type": "text", "text": token.unwrap_or_default().replace('-', " ") },
            { "type": "text", "text": format!("{token:?} {:?} registered-secret", token.map(|own| own.replace("access", "refresh"))) },
        ] }),
        "server/discover" => return Reply::status(400),
        _ => return Reply::status(202),
    };
    Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

/// A browser, which follows what pages and the authorization server say.
pub struct Browser {
    pub gateway: SocketAddr,
    pub cookie: String,
}

impl Browser {
    pub fn new(gate: &Gate) -> Self {
        Self { gateway: gate.proxy.gateway(), cookie: String::new() }
    }

    pub async fn send(&mut self, method: &str, url: &str, fields: &str, body: &str) -> Answer {
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let to: SocketAddr = authority.replace("localhost", "127.0.0.1").parse().unwrap();
        let cookie = if to == self.gateway { format!("Cookie: other=1; {}\r\n", self.cookie) } else { String::new() };
        let mut wire = Wire::connect(to).await.unwrap();
        let length = body.len();
        // As browsers say it: links lead here from other sites, and the authorization server is one.
        let site = if method == "GET" { "cross-site" } else { "same-origin" };
        let fields =
            format!("{fields}Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n");
        wire.send(format!(
            "{method} /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {length}\r\n{cookie}{fields}\r\n{body}"
        ))
        .await
        .unwrap();
        let answer = wire.answer_to(method).await.unwrap();
        if let Some(cookie) = answer.header("set-cookie") {
            assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
            self.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        answer
    }

    /// Opens a link, and sends its form.
    pub async fn fill_in(&mut self, link: &str, more: &str, origin: &str) -> Answer {
        let page = self.send("GET", link, "", "").await;
        if page.status != 200 {
            return page;
        }
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        let token = between(&page.text(), "name=\"token\" value=\"", "\"");
        let form = format!("token={}&{more}", encoded(&token));
        self.send("POST", link.split('?').next().unwrap(), &format!("Origin: {origin}\r\n"), &form).await
    }

    /// Where the authorization server sends the browser back to.
    pub async fn allow(&mut self, link: &str) -> String {
        let base = link.split("/mcp-accounts").next().unwrap();
        let page = self.fill_in(link, "action=connect", base).await;
        self.follow(&page).await
    }

    pub async fn follow(&mut self, page: &Answer) -> String {
        assert_eq!(page.status, 200, "{}", page.text());
        let there = between(&page.text(), "content=\"0;url=", "\"").replace("&amp;", "&");
        self.send("GET", &there, "", "").await.header("location").unwrap().to_owned()
    }

    /// Connects an account; the text of the last page.
    pub async fn connect(&mut self, link: &str) -> String {
        let back = self.allow(link).await;
        self.send("GET", &back, "", "").await.text()
    }
}

pub fn between(text: &str, before: &str, after: &str) -> String {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before} is not in {text}"));
    rest.split(after).next().unwrap().to_owned()
}

pub fn config(origin: &Origin, more: &str) -> String {
    let url = origin.url("/mcp");
    format!("{more}\n[mcp.server.crm]\nurl = '{url}'\noauth = {{ grant = 'authorization_code' }}\nresults = 'off'\n")
}

/// A call with this key, by a client that shows URLs.
pub async fn who(gate: &Gate, key: &str) -> Value {
    let fields = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
    let can = json!({ "elicitation": { "url": {} } });
    ask_with(gate, "tools/call", &call("who", json!({})), &can, &fields).await.json()["result"].clone()
}

pub fn link_of(gate: &Gate, result: &Value) -> String {
    let params = &result["inputRequests"]["account"]["params"];
    assert_eq!((&result["resultType"], &params["mode"]), (&json!("input_required"), &json!("url")), "{result}");
    let url = params["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("http://{}/mcp-accounts/link?token=", gate.proxy.gateway())), "{url}");
    url.to_owned()
}

pub async fn gate(config: &str, accounts: &Path, keys: &Arc<KeyStore>) -> Gate {
    Gate::with_accounts("/mcp/crm", config, accounts, keys).await
}

pub fn keys(folder: &Path, text: &str) -> Arc<KeyStore> {
    let file = folder.join("keys.toml");
    std::fs::write(&file, text).unwrap();
    Arc::new(KeyStore::open(file).unwrap())
}

pub fn key(name: &str, more: &str) -> String {
    format!("[[key]]\nid = '{name}'\nhash = '{}'\n{more}\n", hash_key(&format!("key-{name}")))
}

#[tokio::test]
async fn a_user_connects_an_account_and_only_the_gateway_has_its_tokens() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let (file, keys) = (folder.path().join("accounts.json"), no_keys());
    let first = gate(&config(&origin, ""), &file, &keys).await;
    let link = link_of(&first, &who(&first, "").await);
    let mut browser = Browser::new(&first);
    assert!(browser.connect(&link).await.contains("Your account is connected"));
    assert_eq!(said(&who(&first, "").await), "access 2");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"local\"") && !text.contains("access-") && !text.contains("refresh-"), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // After a restart, and at a replica with the same file.
    let second = gate(&config(&origin, ""), &file, &keys).await;
    assert_eq!(said(&who(&second, "").await), "access 2");
    // It expires; the refresh token is of use once.
    rules.lock().lifetime = 1;
    rules.lock().tokens.remove("access-2");
    assert_eq!(said(&who(&second, "").await), "access 3");
    rules.lock().lifetime = 3600;
    let (a, b) = tokio::join!(who(&second, ""), who(&second, ""));
    let repeated = r#"Some("********") Some("*********") *****************"#;
    assert_eq!((a["content"][1]["text"].as_str(), b["content"][1]["text"].as_str()), (Some(repeated), Some(repeated)));
    assert_eq!((said(&a), said(&b)), ("access 4", "access 4"), "one renewal for all requests");
    assert_eq!(said(&who(&first, "").await), "access 4");
    // Nothing secret was recorded, and the pages were not recorded at all.
    let recorded = format!("{:?}{}", first.proxy.flows(3).await, first.recorded(3).await);
    assert!(
        !recorded.contains("code-1") && !recorded.contains("refresh-") && !recorded.contains("Connect an account at")
    );
    // It is revoked at the authorization server, and then here.
    rules.lock().is_revoked = true;
    rules.lock().tokens.clear();
    link_of(&second, &who(&second, "").await);
    assert!(second.service.accounts().await.unwrap().is_empty());
    rules.lock().is_revoked = false;
    let link = link_of(&second, &who(&second, "").await);
    assert!(Browser::new(&second).connect(&link).await.contains("is connected"));
    assert!(!second.service.remove_account("local", "other").await.unwrap());
    assert!(first.service.remove_account("local", "crm").await.unwrap());
    link_of(&second, &who(&second, "").await);
}

/// A call whose token is renewed, once the authorization server has renewed it and before the gateway knows.
async fn renewing<'g>(gate: &'g Gate, rules: &Shared) -> impl Future<Output = Value> + 'g {
    let count = rules.lock().count;
    rules.lock().tokens.remove(&format!("access-{count}"));
    rules.lock().pause = Duration::from_millis(500);
    let mut call = Box::pin(who(gate, ""));
    while rules.lock().count == count {
        tokio::select! {
            result = &mut call => panic!("{result}"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    call
}

#[tokio::test]
async fn a_renewal_outlives_its_client_and_does_not_undo_what_the_user_did_meanwhile() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let link = link_of(&gate, &who(&gate, "").await);
    Browser::new(&gate).connect(&link).await;
    // The client gives up when the refresh token is used.
    drop(renewing(&gate, &rules).await);
    assert_eq!(said(&who(&gate, "").await), "access 3");
    let call = renewing(&gate, &rules).await;
    assert!(gate.service.remove_account("local", "crm").await.unwrap());
    link_of(&gate, &call.await);
    assert!(gate.service.accounts().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_gateway_that_the_authorization_server_has_forgotten_registers_again() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let link = link_of(&gate, &who(&gate, "").await);
    Browser::new(&gate).connect(&link).await;
    rules.lock().tokens.clear();
    // Another refusal, whose name begins like it, forgets nothing.
    rules.lock().refusal = Some("invalid_client_metadata");
    assert_eq!(who(&gate, "").await["resultType"], Value::Null);
    assert_eq!(gate.service.accounts().await.unwrap().len(), 1);
    rules.lock().refusal = Some("invalid_client");
    let link = link_of(&gate, &who(&gate, "").await);
    assert!(gate.service.accounts().await.unwrap().is_empty());
    rules.lock().refusal = None;
    assert!(Browser::new(&gate).connect(&link).await.contains("is connected"));
    assert_eq!(origin.requests().iter().filter(|request| request.path() == "/register").count(), 2);
}

#[tokio::test]
async fn where_accounts_are_kept_is_for_the_log_alone() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let file = folder.path().join("accounts.json");
    let gate = gate(&config(&origin, ""), &file, &no_keys()).await;
    let link = link_of(&gate, &who(&gate, "").await);
    std::fs::write(&file, "damaged").unwrap();
    let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), "").await;
    for text in [answer.text(), Browser::new(&gate).send("GET", &link, "", "").await.text()] {
        let has_path = text.contains(folder.path().to_str().unwrap());
        assert!(text.contains("the accounts of users cannot be read or written") && !has_path, "{text}");
    }
}

#[tokio::test]
async fn a_call_that_needs_more_asks_for_all_scopes_once() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let link = link_of(&gate, &who(&gate, "").await);
    Browser::new(&gate).connect(&link).await;
    rules.lock().scope = "write";
    let link = link_of(&gate, &who(&gate, "").await);
    let mut browser = Browser::new(&gate);
    let back = browser.allow(&link).await;
    assert_eq!(rules.lock().codes.values().next().unwrap().1, "write read offline_access");
    browser.send("GET", &back, "", "").await;
    assert!(said(&who(&gate, "").await).starts_with("access "));
    // What was asked for already, and not granted, is not asked for again.
    rules.lock().tokens.values_mut().for_each(|scopes| *scopes = "read".to_owned());
    let answer =
        ask_with(&gate, "tools/call", &call("who", json!({})), &json!({ "elicitation": { "url": {} } }), "").await;
    let error = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("not granted the scopes"), "{error}");
}

#[tokio::test]
async fn clients_of_each_version_get_the_link_and_a_tool_for_it() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let mut gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    gate.begin(json!({ "elicitation": { "url": {} } }), "").await;
    assert_eq!(gate.names("tools/list", "tools").await, ["connect_account"]);
    let body = gate.post(&request(7, "tools/call", &call("connect_account", json!({}))), "").await.json();
    let elicitation = &body["error"]["data"]["elicitations"][0];
    assert_eq!((&body["error"]["code"], &elicitation["mode"]), (&json!(-32042), &json!("url")), "{body}");
    let link = elicitation["url"].as_str().unwrap().to_owned();
    let mut events = gate.stream("GET", "").await;
    assert!(Browser::new(&gate).connect(&link).await.contains("is connected"));
    assert_eq!(events.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(gate.names("tools/list", "tools").await, ["connect_account", "who"]);
    assert_eq!(gate.call("who", json!({})).await, "access 2");
    // The same tool leads to the page on which the account is disconnected.
    let text = gate.call("connect_account", json!({})).await;
    let link = text.split_whitespace().last().unwrap();
    let base = link.split("/mcp-accounts").next().unwrap();
    let page = Browser::new(&gate).fill_in(link, "action=disconnect", base).await.text();
    assert!(page.contains("Disconnected"), "{page}");
    // A client that shows no URLs gets the link as a text.
    gate.begin(json!({}), "").await;
    assert!(gate.call("connect_account", json!({})).await.contains("/mcp-accounts/link?token="));
    let error = gate.call_error("who", json!({})).await;
    assert!(error.contains("have them open http://"), "{error}");
}

#[tokio::test]
async fn each_key_has_accounts_of_its_own_which_go_with_it() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let all = key("anna", "") + &key("bob", "") + &key("carl", "created = '2026-01-01T00:00:00Z'");
    let store = keys(folder.path(), &all);
    let file = folder.path().join("accounts.json");
    let gate = gate(&config(&origin, ""), &file, &store).await;
    let [anna, bob] = ["key-anna", "key-bob"].map(|key| who(&gate, key));
    let [anna, bob] = [link_of(&gate, &anna.await), link_of(&gate, &bob.await)];
    let mut browser = Browser::new(&gate);
    let page = browser.send("GET", &anna, "", "").await.text();
    assert!(page.contains("the virtual key anna") && page.contains("<b>crm</b>"), "{page}");
    browser.connect(&anna).await;
    link_of(&gate, &who(&gate, "key-bob").await);
    Browser::new(&gate).connect(&bob).await;
    let [first, second] = [who(&gate, "key-anna").await, who(&gate, "key-bob").await];
    assert_eq!((said(&first), said(&second)), ("access 2", "access 4"));
    let link = link_of(&gate, &who(&gate, "key-carl").await);
    Browser::new(&gate).connect(&link).await;
    let users = |accounts: Vec<interflow_mcp_gateway::McpAccount>| {
        accounts.into_iter().map(|account| (account.user, account.server)).collect::<Vec<_>>()
    };
    let crm = |user: &str| (user.to_owned(), "crm".to_owned());
    assert_eq!(users(gate.service.accounts().await.unwrap()), [crm("key:anna"), crm("key:bob"), crm("key:carl")]);
    // One key is removed, and another one has the id of an old one.
    let newer = key("bob", "") + &key("carl", "created = '2999-01-01T00:00:00Z'");
    store.set(folder.path().join("keys.toml"), interflow_limits::VirtualKeyRing::parse(&newer).unwrap());
    link_of(&gate, &who(&gate, "key-carl").await);
    gate.service.forget_accounts_of_lost_keys().await;
    assert!(!std::fs::read_to_string(&file).unwrap().contains("key:anna"));
    assert_eq!(users(gate.service.accounts().await.unwrap()), [crm("key:bob")]);
}

#[tokio::test]
async fn another_browser_and_a_repeated_response_connect_nothing() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let link = link_of(&gate, &who(&gate, "").await);
    let base = link.split("/mcp-accounts").next().unwrap().to_owned();
    let mut browser = Browser::new(&gate);
    // The form of another site, and that of a browser which has not seen the page.
    let page = browser.fill_in(&link, "action=connect", "http://evil.test").await;
    assert_eq!(page.status, 403, "{}", page.text());
    let token = link.split("token=").nth(1).unwrap();
    let form = format!("token={token}&action=connect");
    let post = format!("{base}/mcp-accounts/link");
    let page = Browser::new(&gate).send("POST", &post, &format!("Origin: {base}\r\n"), &form).await;
    assert_eq!(page.status, 400, "{}", page.text());
    assert_eq!(browser.send("POST", &post, "", &form).await.status, 400, "no page of a browser");
    let back = browser.allow(&link).await;
    // Somebody else's browser comes with the response: with another attempt, or with none.
    let other_link = link_of(&gate, &who(&gate, "").await);
    let mut other = Browser::new(&gate);
    let page = other.send("GET", &back, "", "").await;
    assert!(page.status == 400 && page.text().contains("has not begun"), "{}", page.text());
    other.allow(&other_link).await;
    let page = other.send("GET", &back, "", "").await;
    assert!(page.status == 502 && page.text().contains("(state)"), "{}", page.text());
    assert!(gate.service.accounts().await.unwrap().is_empty());
    let cookie = browser.cookie.clone();
    assert_eq!(browser.send("GET", &back, "", "").await.status, 200);
    browser.cookie = cookie;
    let page = browser.send("GET", &back, "", "").await;
    assert!(page.status == 400 && page.text().contains("was used"), "{}", page.text());
    let page = browser.send("GET", &link, "", "").await;
    assert!(page.status == 410 && page.text().contains("was used"), "{}", page.text());
    for wrong in ["", "x", &format!("{token}A"), &token[..token.len() - 2]] {
        let page = browser.send("GET", &format!("{base}/mcp-accounts/link?token={wrong}"), "", "").await;
        assert_eq!(page.status, 410, "{wrong}");
    }
}

#[tokio::test]
async fn an_authorization_server_that_cannot_be_trusted_gets_no_code_and_gives_no_token() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let exchanged = || origin.requests().iter().filter(|request| request.path() == "/token").count();
    let try_with = async |why: &str, change: &dyn Fn(&mut Rules)| {
        change(&mut rules.lock());
        let link = link_of(&gate, &who(&gate, "").await);
        let base = link.split("/mcp-accounts").next().unwrap();
        let mut browser = Browser::new(&gate);
        let mut page = browser.fill_in(&link, "action=connect", base).await;
        if page.status == 200 {
            let back = browser.follow(&page).await;
            page = browser.send("GET", &back, "", "").await;
        }
        let text = page.text();
        assert!(page.status == 502 && text.contains(why) && !text.contains("secret details"), "{why}: {text}");
    };
    try_with("not of the authorization server that was asked (iss)", &|rules| {
        rules.iss = Some("https://evil.test".into())
    })
    .await;
    try_with("does not support PKCE", &|rules| {
        (rules.iss, rules.metadata) = (None, json!({ "code_challenge_methods_supported": ["plain"] }));
    })
    .await;
    try_with("of another issuer", &|rules| rules.metadata = json!({ "issuer": "https://evil.test" })).await;
    try_with("without TLS", &|rules| rules.metadata = json!({ "token_endpoint": "http://10.0.0.1/token" })).await;
    try_with("authorization_endpoint", &|rules| {
        rules.metadata = json!({ "authorization_endpoint": "javascript:alert(1)" })
    })
    .await;
    try_with("of another resource", &|rules| {
        (rules.metadata, rules.resource) = (json!({}), Some("https://evil.test/mcp".into()));
    })
    .await;
    assert_eq!(exchanged(), 0);
    try_with("status 307", &|rules| (rules.resource, rules.redirects_token_requests) = (None, true)).await;
    assert!(!origin.requests().iter().any(|request| request.path() == "/elsewhere"));
    // What is in a private network, and was not named by the operator, is not even asked.
    try_with("gave no access token", &|rules| {
        rules.redirects_token_requests = false;
        rules.metadata = json!({ "token_endpoint": "https://10.255.255.1/token" });
    })
    .await;
    assert!(gate.service.accounts().await.unwrap().is_empty());
}

#[test]
fn a_configuration_that_would_give_secrets_away_is_refused() {
    let server = |oauth: &str| {
        format!("[mcp.server.crm]\nurl = 'https://crm.test/mcp'\noauth = {{ grant = 'authorization_code'{oauth} }}\n")
    };
    let users = "[mcp.oauth]\nissuer = 'https://issuer.test'\nresource = 'https://gate.test/mcp'\n";
    for (text, why) in [
        (server(""), ""),
        (server(", client_id = 'a', scopes = ['x']"), ""),
        (server(", client_id = 'a', client_secret = 's', issuer = 'https://as.test'"), ""),
        (server(", client_id = 'a', client_secret = 's'"), "mcp.server.crm.oauth.client_secret: it needs"),
        (server(", issuer = 'http://as.test'"), "mcp.server.crm.oauth.issuer: it is without TLS"),
        (server(", token_url = 'https://as.test/token'"), "are discovered"),
        (format!("{users}{}", server("")), "add [mcp.oauth.login]"),
        (format!("{users}login = {{ client_id = 'a' }}\n{}", server("")), ""),
        (
            format!("{users}login = {{ client_id = 'a', client_secret = 's', private_key = 'k' }}\n{}", server("")),
            "mcp.oauth.login: a client has either `client_secret` or `private_key`",
        ),
        (server(", workload_token = 't'"), "mcp.server.crm.oauth.workload_token: it is for"),
        (format!("[mcp]\npublic_url = 'http://gate.test'\n{}", server("")), "mcp.public_url: it is without TLS"),
        (format!("[mcp]\npublic_url = 'https://gate.test/x'\n{}", server("")), "mcp.public_url: it has a path"),
    ] {
        let config: McpConfig = toml::from_str::<toml::Table>(&text).unwrap()["mcp"].clone().try_into().unwrap();
        let said = config.check().err().unwrap_or_default();
        assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{text}: {said}");
    }
}
