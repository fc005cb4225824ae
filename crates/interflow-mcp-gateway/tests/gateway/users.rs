//! Access tokens of users: opaque ones of clients, and those that servers are shown for them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interflow_mcp_gateway::{AccessIdentity, AccessRefusal, AccessTokens, McpConfig};
use interflow_testkit::{Answer, Origin, Reply, Request};
use interflow_types::BoxFuture;
use serde_json::{Value, json};

use crate::eras::section;
use crate::stateless::{ACCEPTS, ask_with, call, message, said, stateless_server};
use crate::tasks;
use crate::{Gate, request};

/// Stands for the check of JWTs: `eyJ`, the subject, `.`, the scopes, `.`, and a serial number.
pub struct SignedTokens;

impl AccessTokens for SignedTokens {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AccessIdentity, AccessRefusal>> {
        let parts: Vec<&str> = token.strip_prefix("eyJ").map(|rest| rest.split('.').collect()).unwrap_or_default();
        let identity = match parts[..] {
            [subject, scopes, _] => Ok(AccessIdentity {
                subject: subject.to_owned(),
                scopes: scopes.split('-').map(str::to_owned).collect(),
            }),
            _ => Err(AccessRefusal::InvalidToken("it cannot be read".to_owned())),
        };
        Box::pin(std::future::ready(identity))
    }
}

pub const OAUTH: &str = "[mcp.oauth]\nissuer = 'https://issuer.test'\nresource = 'https://gate.test/mcp'\n";

fn exchange(issuer: &Origin) -> String {
    format!(
        "oauth = {{ token_url = '{}', client_id = 'gate', client_secret = 's', grant = 'token_exchange', \
         audience = 'crm' }}\nresults = 'off'\n",
        issuer.url("/token")
    )
}

/// An issuer that names in each token the one that it was shown, and a server that says which token it got.
async fn issuer_and_server() -> Origin {
    let exchanges = AtomicUsize::new(0);
    let answer = move |request: &Request| {
        if request.path() == "/token" {
            let form = String::from_utf8_lossy(&request.body).into_owned();
            let value = |name: &str| {
                let mut fields = form.split('&').filter_map(|field| field.split_once('='));
                fields.find(|(own, _)| *own == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
            };
            assert_eq!(value("grant_type"), "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange");
            assert_eq!(value("subject_token_type"), "urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token");
            assert_eq!((value("audience").as_str(), value("client_id").as_str()), ("crm", "gate"));
            let shown = value("subject_token");
            if shown.contains("refused") {
                return Reply::status(400).body("secret details");
            }
            let number = exchanges.fetch_add(1, Relaxed);
            let token = if shown.contains("same") { shown } else { format!("crm-{number}-for-{shown}") };
            let kind = if token.contains("bound") { "DPoP" } else { "Bearer" };
            return Reply::json(&json!({ "access_token": token, "token_type": kind, "expires_in": 3600 }));
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let token = request.header("authorization").unwrap_or_default().to_owned();
        if token == "Bearer crm-0-for-eyJcarl.mcp.1" {
            return Reply::status(401);
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [{ "name": "who" }] }),
            // As it is not masked, and as it is.
            "tools/call" => json!({ "content": [
                { "type": "text", "text": token.replace('-', " ") }, { "type": "text", "text": token },
            ] }),
            _ => return Reply::status(400),
        };
        let reply = Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
        reply.header("Mcp-Session-Id", "s")
    };
    Origin::http().answering(answer).start().await
}

/// Which token the server gets for a call with this one.
async fn who(gate: &Gate, token: &str) -> Answer {
    let (fields, body) = message(7, "tools/call", &call("who", json!({})), &json!({}));
    gate.send("POST", &format!("{ACCEPTS}{fields}Authorization: Bearer {token}\r\n"), &body).await
}

#[tokio::test]
async fn a_server_is_shown_a_token_of_the_user_in_place_of_the_one_of_the_client() {
    let origin = issuer_and_server().await;
    let gate =
        Gate::without_session("/mcp/crm", &format!("{OAUTH}{}", section("crm", &origin, &exchange(&origin)))).await;
    let exchanged = || origin.requests().iter().filter(|request| request.path() == "/token").count();
    let (first, second) = tokio::join!(who(&gate, "eyJanna.mcp.1"), who(&gate, "eyJanna.mcp.1"));
    let token = said(&first.json()["result"]).to_owned();
    assert_eq!((token.as_str(), said(&second.json()["result"])), ("Bearer crm 0 for eyJanna.mcp.1", token.as_str()));
    assert_eq!(exchanged(), 1, "one exchange for all requests of the user");
    assert_eq!(said(&who(&gate, "eyJanna.mcp.2").await.json()["result"]), token, "also with a newer token");
    let other = said(&who(&gate, "eyJbob.mcp.1").await.json()["result"]).to_owned();
    assert_eq!(other, "Bearer crm 1 for eyJbob.mcp.1", "each user has another");
    let less = said(&who(&gate, "eyJanna.read.1").await.json()["result"]).to_owned();
    assert_eq!(less, "Bearer crm 2 for eyJanna.read.1", "so has a token of the user that allows something else");
    for (token, why) in [
        ("eyJrefused.mcp.1", "status 400"),
        ("eyJsame.mcp.1", "user's own token"),
        ("eyJbound.mcp.1", "no bearer token"),
    ] {
        let error = who(&gate, token).await.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.contains(why) && error.contains("oauth.token_url") && !error.contains("secret"), "{error}");
    }
    let shown: Vec<_> = origin.requests().iter().filter_map(|r| r.header("authorization").map(str::to_owned)).collect();
    assert!(
        !shown.iter().any(|token| token.starts_with("Bearer eyJ")),
        "a client's token goes to no server: {shown:?}"
    );
    let recorded = format!("{:?}{}", gate.proxy.flows(8).await, gate.recorded(8).await);
    assert!(!recorded.contains("Bearer eyJ") && !recorded.contains("crm-"), "{recorded}");
}

#[tokio::test]
async fn a_session_is_of_one_user_and_its_token_is_renewed_when_a_server_refuses_it() {
    let origin = issuer_and_server().await;
    let config = format!("{OAUTH}{}", section("crm", &origin, &exchange(&origin)));
    let mut gate = Gate::without_session("/mcp/crm", &config).await;
    let carl = "Authorization: Bearer eyJcarl.mcp.1\r\n";
    gate.begin(json!({}), carl).await;
    let who = request(3, "tools/call", &call("who", json!({})));
    let answer = gate.post(&who, carl).await.json();
    assert_eq!(said(&answer["result"]), "Bearer crm 1 for eyJcarl.mcp.1", "the first one was refused");
    for (token, status) in [("eyJdora.mcp.1", 404), ("eyJcarl.other.1", 404), ("eyJcarl.mcp.2", 200), ("unsigned", 401)]
    {
        let answer = gate.post(&who, &format!("Authorization: Bearer {token}\r\n")).await;
        assert_eq!(answer.status, status, "{token}");
    }
}

#[test]
fn a_configuration_that_would_show_secrets_or_has_no_users_is_refused() {
    let oauth = "oauth = { token_url = 'https://issuer.test/token', client_id = 'g', client_secret = 's', grant = 'token_exchange' }";
    let crm = format!("[mcp.server.crm]\nurl = 'https://crm.test/mcp'\n{oauth}\n");
    let introspection = |url: &str, id: &str| {
        format!("{OAUTH}introspection = {{ url = '{url}', client_id = '{id}', client_secret = 's' }}\n{crm}")
    };
    for (text, why) in [
        (crm.clone(), "add [mcp.oauth]"),
        (introspection("http://issuer.test/i", "g"), "mcp.oauth.introspection.url: it is without TLS"),
        (introspection("https://issuer.test/i", ""), "it needs `client_id`, and `client_secret` or `private_key`"),
        (introspection("http://127.0.0.1/i", "g"), ""),
        (format!("{OAUTH}{crm}"), ""),
    ] {
        let config: McpConfig = toml::from_str::<toml::Table>(&text).unwrap()["mcp"].clone().try_into().unwrap();
        let said = config.check().err().unwrap_or_default();
        assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{text}: {said}");
    }
}

/// An issuer that knows some opaque tokens.
async fn introspecting_issuer() -> Origin {
    let revoked = Mutex::new(false);
    let answer = move |request: &Request| {
        let form = String::from_utf8_lossy(&request.body).into_owned();
        assert_eq!(request.header("authorization"), Some("Basic Z2F0ZTpzJTNBdA=="), "gate:s:t, encoded");
        let token = form.split('&').find_map(|field| field.strip_prefix("token=")).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let good = json!({ "active": true, "sub": "anna", "aud": ["x", "https://gate.test/mcp"], "scope": "mcp more",
            "iss": "https://issuer.test", "exp": now + 600 });
        let with = |name: &str, value: Value| {
            let mut answer = good.clone();
            answer[name] = value;
            answer
        };
        Reply::json(&match token {
            "good" => good,
            "revoked-soon" => {
                let was_revoked = std::mem::replace(&mut *revoked.lock().unwrap(), true);
                with("active", (!was_revoked).into())
            }
            "expired" => with("exp", (now - 1).into()),
            "other-audience" => with("aud", "https://other.test".into()),
            "no-audience" => with("aud", Value::Null),
            "other-issuer" => with("iss", "https://evil.test".into()),
            "nobody" => with("sub", "".into()),
            "bound" => with("cnf", json!({ "jkt": "k" })),
            "bound-to-certificate" => with("cnf", json!({ "x5t#S256": "c" })),
            "few-scopes" => with("scope", "more".into()),
            "truthy" => with("active", "true".into()),
            "down" => return Reply::status(500),
            _ => json!({ "active": false }),
        })
    };
    Origin::http().answering(answer).start().await
}

#[tokio::test]
async fn opaque_tokens_are_checked_by_asking_their_issuer() {
    let (issuer, origin) = (introspecting_issuer().await, issuer_and_server().await);
    let introspection = format!(
        "scopes = ['mcp']\nintrospection = {{ url = '{}', client_id = 'gate', client_secret = 's:t', cache = '300ms' }}\n",
        issuer.url("/introspect")
    );
    let config = format!("{OAUTH}{introspection}{}", section("crm", &origin, ""));
    let gate = Gate::without_session("/mcp/crm", &config).await;
    for (token, status, why) in [
        ("good", 200, ""),
        ("expired", 401, "expired"),
        ("unknown", 401, "revoked"),
        ("other-audience", 401, "another service"),
        ("no-audience", 401, "another service"),
        ("other-issuer", 401, "another issuer"),
        ("nobody", 401, "subject"),
        ("bound", 401, "cnf"),
        ("bound-to-certificate", 401, "cnf"),
        ("few-scopes", 403, "scope"),
        ("truthy", 503, "cannot be checked"),
        ("down", 503, "cannot be checked"),
        ("eyJanna.mcp.1", 200, ""),
        ("eyJanna.mcp.1.more", 401, "revoked"),
    ] {
        let answer = who(&gate, token).await;
        assert!(answer.status == status && answer.text().contains(why), "{token}: {} {}", answer.status, answer.text());
    }
    let asked = issuer.requests().len();
    for _ in 0..3 {
        assert_eq!(who(&gate, "good").await.status, 200);
    }
    assert!(issuer.requests().len() <= asked + 1, "answers are kept for a while");
    assert!(!issuer.requests().iter().any(|r| String::from_utf8_lossy(&r.body).contains("eyJanna.mcp.1&")));
    assert_eq!(who(&gate, "revoked-soon").await.status, 200);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(who(&gate, "revoked-soon").await.status, 401, "and no longer");
}

#[tokio::test]
async fn what_a_client_holds_for_one_user_is_of_no_use_to_another() {
    let (running, asking) = (tasks::server().await, stateless_server().await);
    let servers = format!("{}{}", section("run", &running, ""), section("new", &asking, ""));
    let gate = Gate::without_session("/mcp", &format!("{OAUTH}{servers}")).await;
    let of = |user: &'static str, method: &'static str, params: Value| {
        let gate = &gate;
        async move {
            let bearer = format!("Authorization: Bearer eyJ{user}.mcp.1\r\n");
            ask_with(gate, method, &params, &tasks::able(), &bearer).await.json()
        }
    };
    let begun = of("anna", "tools/call", call("run__slow", json!({}))).await;
    let task = json!({ "taskId": begun["result"]["taskId"] });
    let mut again = call("new__ask", json!({ "to": "x" }));
    let asked = of("anna", "tools/call", again.clone()).await;
    again["requestState"] = asked["result"]["requestState"].clone();
    again["inputResponses"] = json!({ "confirm": { "action": "accept" } });
    // What either server is asked to do.
    let work = || {
        let all = [running.requests(), asking.requests()].concat();
        all.iter()
            .filter_map(|r| r.header("mcp-method"))
            .filter(|m| *m == "tools/call" || m.starts_with("tasks/"))
            .count()
    };
    let before = work();
    for (method, params) in [("tasks/get", &task), ("tasks/cancel", &task), ("tools/call", &again)] {
        let refused = of("bob", method, params.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    assert_eq!(work(), before, "nothing is forwarded");
    assert_eq!(of("anna", "tasks/get", task).await["result"]["status"], "input_required");
    assert!(of("anna", "tools/call", again).await["result"]["content"].is_array());
}
