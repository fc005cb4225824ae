//! Logins of users at the issuer of their access tokens, before they connect accounts.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_testkit::{Origin, Reply, Request};
use interflow_types::percent::{decoded_form, encoded};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Gate;
use crate::accounts::{Browser, between, config, form, gate, no_keys, start, who};
use crate::client_keys::{check_assertion, es256};
use crate::stateless::said;

const OAUTH: &str = "resource = 'http://RESOURCE/mcp'\nlogin = { client_id = 'login' }\n";

#[tokio::test]
async fn a_user_logs_in_at_the_issuer_before_their_account_is_connected() {
    log_in("", Value::Null).await;
}

#[tokio::test]
async fn the_gateway_authenticates_itself_by_an_assertion_where_a_user_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let (key, jwks) = es256(folder.path()).await;
    let (gate, link, _origins) = log_in(&format!(", private_key = '{key}'"), jwks).await;
    let path = folder.path().to_str().unwrap().to_owned();
    drop(folder);
    let page = Browser::new(&gate).send("GET", &link, "", "").await.text();
    assert!(
        page.contains("mcp.oauth.login") && !page.contains(&path),
        "where the key is, is for the log alone: {page}"
    );
}

/// Has users log in at an issuer, which knows the gateway by these keys. Returns the link of one who has not.
async fn log_in(login: &str, jwks: Value) -> (Gate, String, impl Sized + use<>) {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let person = Arc::new(Mutex::new("anna"));
    let logged_in = Arc::clone(&person);
    let nonce = Mutex::new(String::new());
    let answer = move |request: &Request| {
        let own = format!("http://{}", request.header("host").unwrap());
        let value = |name: &str| decoded_form(request.query(name).unwrap_or_default());
        match request.path() {
            "/.well-known/oauth-authorization-server" => Reply::status(404),
            "/.well-known/openid-configuration" => Reply::json(&json!({
                "issuer": own, "authorization_endpoint": format!("{own}/authorize"), "token_endpoint": format!("{own}/token"),
                "code_challenge_methods_supported": ["S256"],
            })),
            "/authorize" => {
                assert_eq!((value("client_id").as_str(), value("scope").as_str()), ("login", "openid"));
                *nonce.lock() = value("nonce");
                Reply::status(302)
                    .header("Location", format!("{}?code=c&state={}", value("redirect_uri"), value("state")))
            }
            _ => {
                let form = form(std::str::from_utf8(&request.body).unwrap());
                match jwks.is_null() {
                    true => assert_eq!((&*form["client_id"], form.get("client_assertion")), ("login", None)),
                    false => check_assertion(&form, &jwks, "login", &own),
                }
                let claims = json!({ "iss": own, "aud": "login", "sub": *logged_in.lock(), "nonce": *nonce.lock(), "exp": 99_999_999_999_u64 });
                let token = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
                Reply::json(&json!({ "access_token": "t", "id_token": token }))
            }
        }
    };
    let issuer = Origin::http().answering(answer).start().await;
    let oauth = |base: &str| {
        let oauth = OAUTH.replace("RESOURCE", base).replace(" }", &format!("{login} }}"));
        format!("[mcp.oauth]\nissuer = '{}'\n{oauth}", issuer.url(""))
    };
    let file = folder.path().join("accounts.json");
    // The port of the gateway is not known before it has started: links lead where the client went.
    let gate = gate(&config(&origin, &oauth("127.0.0.1")), &file, &no_keys()).await;
    let link = link_with(&who(&gate, "eyJanna.mcp.1").await, &gate);
    let open = async |link: &str| {
        let mut browser = Browser::new(&gate);
        let page = browser.send("GET", link, "", "").await;
        let back =
            browser.follow(&page).await.replace("http://127.0.0.1/", &format!("http://{}/", gate.proxy.gateway()));
        let page = browser.send("GET", &back, "", "").await;
        (browser, page)
    };
    *person.lock() = "bob";
    let (_, page) = open(&link).await;
    assert!(page.status == 403 && page.text().contains("another user"), "{}", page.text());
    *person.lock() = "anna";
    let (mut browser, page) = open(&link).await;
    assert!(page.status == 200 && page.text().contains("the user anna"), "{}", page.text());
    let token = between(&page.text(), "name=\"token\" value=\"", "\"");
    let post = format!("http://{}/mcp-accounts/link", gate.proxy.gateway());
    let page = browser
        .send("POST", &post, "Origin: http://127.0.0.1\r\n", &format!("token={}&action=connect", encoded(&token)))
        .await;
    let back = browser.follow(&page).await.replace("http://127.0.0.1/", &format!("http://{}/", gate.proxy.gateway()));
    assert!(browser.send("GET", &back, "", "").await.text().contains("is connected"));
    assert_eq!(said(&who(&gate, "eyJanna.mcp.2").await), "access 2");
    let link = link_with(&who(&gate, "eyJbob.mcp.1").await, &gate);
    assert!(
        !origin
            .requests()
            .iter()
            .any(|request| request.header("authorization").is_some_and(|field| field.contains("eyJ")))
    );
    assert_eq!(rules.lock().codes.len(), 0);
    (gate, link, (origin, issuer))
}

/// A link, at the address of the gateway.
fn link_with(result: &Value, gate: &Gate) -> String {
    let url = result["inputRequests"]["account"]["params"]["url"].as_str().unwrap_or_else(|| panic!("{result}"));
    url.replace("http://127.0.0.1/", &format!("http://{}/", gate.proxy.gateway()))
}
