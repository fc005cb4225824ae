//! Login of people at a fake OpenID Connect issuer, over real connections: what a browser would send and get.

use interflow_admin::oidc::config::{OidcConfig, OidcRoles};
use interflow_testkit::SigningAlgorithm;
use interflow_testkit::oidc::Issuer;
use serde_json::json;

use super::*;

const CLIENT: &str = "interflow";
const SECRET: &str = "a secret: with/odd+characters";

fn person(groups: &[&str]) -> Value {
    json!({"sub": "u-1", "preferred_username": "anna", "groups": groups})
}

fn config(issuer: &str) -> OidcConfig {
    let list = |name: &str| vec![name.to_owned()];
    OidcConfig {
        issuer: issuer.to_owned(),
        client_id: CLIENT.into(),
        client_secret: Some(SECRET.into()),
        roles: OidcRoles {
            viewer: list("staff"),
            operator: list("ops"),
            admin: list("root"),
            read_bodies: list("privacy"),
        },
        ..OidcConfig::default()
    }
}

async fn instance(oidc: OidcConfig) -> Instance {
    let options = AdminConfig { oidc: Some(oidc), ..AdminConfig::default() };
    Instance::with(Origin::http(), Setup { options: Some(options), ..Setup::default() }).await
}

fn cookie_pair(answer: &Answer, prefix: &str) -> Option<String> {
    let values = answer.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(b"set-cookie"));
    let mut values = values.map(|(_, v)| String::from_utf8_lossy(v).into_owned());
    values.find(|v| v.starts_with(prefix)).map(|v| v.split(';').next().unwrap().to_owned())
}

/// Begins a login; returns the callback that the issuer sends the browser to, and the cookie of the attempt.
async fn begin(it: &Instance, issuer: &Issuer) -> (String, String) {
    let host = it.admin.to_string();
    let start = it.plain("GET", "/login/oidc?next=/settings", &[("Host", &host)], b"").await;
    assert_eq!(start.status, 303, "{}", start.text());
    let cookie = cookie_pair(&start, "interflow_login_").unwrap();
    let location = start.header("location").unwrap();
    let path = location.strip_prefix(&issuer.url()).unwrap();
    let mut wire = Wire::connect(issuer.address()).await.unwrap();
    let authority = issuer.url().trim_start_matches("http://").to_owned();
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 302, "{location}");
    let back = answer.header("location").unwrap();
    (back.strip_prefix(&format!("http://{host}")).unwrap().to_owned(), cookie)
}

async fn finish(it: &Instance, callback: &str, cookie: &str) -> Answer {
    let host = it.admin.to_string();
    // The browser comes from the issuer's site: no `Origin`, and no strict cookie.
    it.plain("GET", callback, &[("Host", &host), ("Cookie", cookie)], b"").await
}

async fn log_in(it: &Instance, issuer: &Issuer) -> Answer {
    let (callback, cookie) = begin(it, issuer).await;
    finish(it, &callback, &cookie).await
}

async fn me(it: &Instance, answer: &Answer) -> Value {
    let session = cookie_pair(answer, "interflow_session_").unwrap_or_else(|| panic!("{}", answer.text()));
    let host = it.admin.to_string();
    it.plain("GET", "/api/v1/me", &[("Host", &host), ("Cookie", &session)], b"").await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_with_the_role_and_rights_of_their_groups() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["ops", "privacy", "other"])).await;
    let it = instance(config(&issuer.url())).await;
    let page = it.plain("GET", "/", &[("Host", &it.admin.to_string())], b"").await;
    assert!(page.text().contains("Log in with localhost") && page.text().contains("/login/oidc?next=%2F"));
    let done = log_in(&it, &issuer).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.text().contains("content=\"0;url=/settings\"") && done.text().contains("anna"), "{}", done.text());
    let cookies: Vec<_> = done.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(b"set-cookie")).collect();
    let cookies = format!("{:?}", cookies.iter().map(|(_, v)| String::from_utf8_lossy(v)).collect::<Vec<_>>());
    assert!(cookies.contains("SameSite=Strict") && cookies.contains("Max-Age=28800"), "{cookies}");
    let me = me(&it, &done).await;
    assert_eq!((&me["name"], &me["role"], &me["kind"]), (&json!("anna"), &json!("operator"), &json!("person")));
    assert_eq!(me["rights"], json!(["view", "read_bodies", "operate"]));
    let line = it.json("/audit?text=login").await["records"][0].clone();
    assert_eq!((&line["actor"], &line["actor_id"], &line["role"]), (&json!("anna"), &json!("u-1"), &json!("operator")));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_over_a_persons_session_need_the_origin_and_the_right() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["staff"])).await;
    let it = instance(config(&issuer.url())).await;
    let session = cookie_pair(&log_in(&it, &issuer).await, "interflow_session_").unwrap();
    let (host, own) = (it.admin.to_string(), format!("http://{}", it.admin));
    let post = async |path: &str, origin: &str, body: &str| {
        let mut fields = vec![("Host", host.as_str()), ("Cookie", &session), ("Content-Type", "application/json")];
        if !origin.is_empty() {
            fields.push(("Origin", origin));
        }
        it.plain("POST", &format!("/api/v1{path}"), &fields, body.as_bytes()).await
    };
    assert_eq!(kind(&post("/flows/flush", "", "{}").await), "no_origin");
    assert_eq!(kind(&post("/flows/flush", "http://evil.test", "{}").await), "wrong_origin");
    assert_eq!(post("/flows/flush", &own, "{}").await.status, 200);
    assert_eq!(kind(&post("/reload", &own, "{}").await), "missing_right");
    // A personal token has at most the person's rights, and expires.
    let too_much = json!({"name": "mine", "role": "viewer", "read_bodies": true, "expires": "1d"}).to_string();
    assert_eq!(kind(&post("/tokens", &own, &too_much).await), "missing_right");
    let for_ever = json!({"name": "mine", "role": "viewer"}).to_string();
    assert_eq!(kind(&post("/tokens", &own, &for_ever).await), "bad_request");
    let mine = json!({"name": "mine", "role": "viewer", "expires": "1d"}).to_string();
    let made = post("/tokens", &own, &mine).await;
    assert_eq!((made.status, &made.json()["token"]["kind"]), (200, &json!("personal")), "{}", made.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_in_no_group_with_a_role_is_refused_with_the_reason() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["privacy"])).await;
    let it = instance(config(&issuer.url())).await;
    let refused = log_in(&it, &issuer).await;
    assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (403, None));
    assert!(refused.text().contains("anna") && refused.text().contains("admin.oidc.roles"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_may_come_from_userinfo_and_keys_may_rotate() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    issuer.put_groups_into_userinfo();
    let it = instance(config(&issuer.url())).await;
    assert_eq!(me(&it, &log_in(&it, &issuer).await).await["role"], "admin");
    assert!(issuer.paths().contains(&"/userinfo".to_owned()));
    issuer.rotate("second", SigningAlgorithm::ES256);
    assert_eq!(me(&it, &log_in(&it, &issuer).await).await["role"], "admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn id_tokens_that_are_not_for_this_login_are_refused_with_the_remedy() {
    type Change = fn(&mut Value);
    let now = || Timestamp::now().secs();
    let wrong: [(Change, &str); 9] = [
        (|c| c["aud"] = json!("other"), "admin.oidc.client_id"),
        (|c| c["aud"] = json!([CLIENT, "other"]), "admin.oidc.client_id"),
        (|c| c["azp"] = json!("other"), "admin.oidc.client_id"),
        (|c| c["iss"] = json!("https://evil.test"), "admin.oidc.issuer"),
        (|c| c["nonce"] = json!("another"), "nonce"),
        (|c| c["exp"] = json!(Timestamp::now().secs() - 120), "clock"),
        (|c| c["nbf"] = json!(Timestamp::now().secs() + 120), "clock"),
        (|c| c["iat"] = json!(Timestamp::now().secs() + 120), "clock"),
        (|c| drop(c.as_object_mut().unwrap().remove("exp")), "`exp`"),
    ];
    for (change, remedy) in wrong {
        let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
        let it = instance(config(&issuer.url())).await;
        issuer.change_token(change);
        let refused = log_in(&it, &issuer).await;
        assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (502, None), "{remedy}");
        assert!(refused.text().contains(remedy), "{remedy}: {}", refused.text());
    }
    // Within the leeway, clocks may differ.
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    issuer.change_token(move |c| (c["exp"], c["azp"]) = (json!(now() - 20), json!(CLIENT)));
    assert_eq!(log_in(&it, &issuer).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_of_another_key_is_refused() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    // The same id, another key: the keys that were fetched do not verify it.
    issuer.rotate("first", SigningAlgorithm::RS256);
    let refused = log_in(&it, &issuer).await;
    assert_eq!(refused.status, 502);
    assert!(refused.text().contains("signature"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_is_bound_to_the_browser_that_began_and_its_code_is_used_once() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    let (callback, cookie) = begin(&it, &issuer).await;
    let (_, other) = begin(&it, &issuer).await;
    for (callback, cookie, why) in [
        (callback.clone(), String::new(), "has not begun a login"),
        (callback.clone(), other, "another login (state)"),
        (callback.replace("state=", "state=0"), cookie.clone(), "another login (state)"),
        (callback.clone(), format!("{}x", cookie), "has not begun a login"),
        (callback.replace("&iss=http", "&iss=https"), cookie.clone(), "another issuer (iss)"),
        (callback.split("&iss=").next().unwrap().to_owned(), cookie.clone(), "another issuer (iss)"),
    ] {
        let refused = finish(&it, &callback, &cookie).await;
        assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (400, None), "{why}");
        assert!(refused.text().contains(why), "{why}: {}", refused.text());
    }
    assert_eq!(finish(&it, &callback, &cookie).await.status, 200);
    let again = finish(&it, &callback, &cookie).await;
    assert_eq!((again.status, again.text().contains("invalid_grant")), (502, true), "{}", again.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_down_or_another_than_configured_is_a_page_with_the_remedy() {
    let down = format!("http://{}", Origin::nobody().await);
    let it = instance(config(&down)).await;
    let host = it.admin.to_string();
    let start = it.plain("GET", "/login/oidc", &[("Host", &host)], b"").await;
    assert_eq!(start.status, 502);
    assert!(start.text().contains("cannot be reached") && start.text().contains("issuer is up"), "{}", start.text());
    // The admin token is another way, not a fallback: nobody is let in without it.
    assert_eq!(it.plain("GET", "/api/v1/me", &[("Host", &host)], b"").await.status, 401);
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&[])).await;
    issuer.change_discovery(|d| d["issuer"] = json!("https://other.test"));
    let it = instance(config(&issuer.url())).await;
    let start = it.plain("GET", "/login/oidc", &[("Host", &it.admin.to_string())], b"").await;
    assert!(start.text().contains("calls itself https://other.test"), "{}", start.text());
    let refused = Issuer::start(CLIENT, Some("another secret"), person(&["root"])).await;
    let it = instance(config(&refused.url())).await;
    assert!(log_in(&it, &refused).await.text().contains("admin.oidc.client_secret"));
}
