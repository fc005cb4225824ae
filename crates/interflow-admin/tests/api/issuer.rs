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
async fn a_key_that_was_replaced_is_fetched_once_and_another_signature_is_refused() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    let fetched = || issuer.paths().iter().filter(|path| *path == "/jwks").count();
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    assert_eq!(fetched(), 1);
    // Another key under the same id, then one without an id.
    issuer.rotate("first", SigningAlgorithm::RS256);
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    issuer.rotate("second", SigningAlgorithm::RS256);
    issuer.leave_key_ids_out();
    let without_id = log_in(&it, &issuer).await;
    assert_eq!(without_id.status, 200, "{}", without_id.text());
    assert_eq!(fetched(), 3);
    // A key that the issuer does not publish: keys are fetched again, but not for every attempt.
    issuer.sign_with_unpublished_key("first", SigningAlgorithm::RS256);
    issuer.leave_key_ids_out();
    for _ in 0..8 {
        let refused = log_in(&it, &issuer).await;
        assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (502, None));
        assert!(refused.text().contains("signature"), "{}", refused.text());
    }
    assert!(fetched() <= 6, "{}", fetched());
}

/// Makes a token of a header and claims that must be refused.
type Forgery = Box<dyn Fn(&Value, &Value) -> String + Send>;

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_tokens_and_those_signed_with_the_public_key_as_a_secret_are_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = move |algorithm: &str, claims: &Value| {
        format!("{}.{}.", part(&json!({"alg": algorithm, "typ": "JWT", "kid": "first"})), part(claims))
    };
    let shared = |claims: &Value, secret: &[u8]| {
        let header = Header { kid: Some("first".into()), ..Header::new(Algorithm::HS256) };
        encode(&header, claims, &EncodingKey::from_secret(secret)).unwrap()
    };
    let forgeries: [Forgery; 5] = [
        Box::new(move |claims, _| unsigned("none", claims)),
        Box::new(move |claims, _| unsigned("None", claims)),
        Box::new(move |claims, _| unsigned("RS256", claims)),
        Box::new(move |claims, key| shared(claims, key["n"].as_str().unwrap().as_bytes())),
        Box::new(move |claims, key| shared(claims, key.to_string().as_bytes())),
    ];
    for forge in forgeries {
        issuer.forge_tokens(forge);
        let refused = log_in(&it, &issuer).await;
        assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (502, None), "{}", refused.text());
        assert!(refused.text().contains("the token is refused"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_extensions_that_have_to_be_understood_is_refused() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let it = instance(config(&issuer.url())).await;
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    for extensions in [&["exp"][..], &["https://issuer.test/bound"], &[]] {
        issuer.set_critical(extensions);
        let refused = log_in(&it, &issuer).await;
        assert_eq!((refused.status, cookie_pair(&refused, "interflow_session_")), (502, None), "{extensions:?}");
        assert!(refused.text().contains("crit"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_logged_out_is_logged_out() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["ops"])).await;
    let it = instance(config(&issuer.url())).await;
    let session = async || cookie_pair(&log_in(&it, &issuer).await, "interflow_session_").unwrap();
    let (ended, other) = (session().await, session().await);
    let (host, own) = (it.admin.to_string(), format!("http://{}", it.admin));
    let status =
        async |cookie: &str| it.plain("GET", "/api/v1/me", &[("Host", &host), ("Cookie", cookie)], b"").await.status;
    assert_eq!((status(&ended).await, status(&other).await), (200, 200));
    let fields = [("Host", host.as_str()), ("Cookie", &ended), ("Origin", &own)];
    assert_eq!(it.plain("POST", "/logout", &fields, b"").await.status, 303);
    assert_eq!((status(&ended).await, status(&other).await), (401, 200));
    let line = it.json("/audit?text=logout").await["records"][0].clone();
    assert_eq!(line["actor"], "anna", "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_a_public_address_accept_each_others_logins_whatever_their_ports() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["ops"])).await;
    let public =
        OidcConfig { redirect_url: Some("http://interflow.test:8080/login/callback".into()), ..config(&issuer.url()) };
    let (a, b) = (instance(public.clone()).await, instance(public).await);
    assert_ne!(a.admin.port(), b.admin.port());
    let host = "interflow.test:8080";
    let start = a.plain("GET", "/login/oidc", &[("Host", host)], b"").await;
    let attempt = cookie_pair(&start, "interflow_login_").unwrap();
    let path = start.header("location").unwrap().strip_prefix(&issuer.url()).unwrap().to_owned();
    let mut wire = Wire::connect(issuer.address()).await.unwrap();
    let authority = issuer.url().trim_start_matches("http://").to_owned();
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await.unwrap();
    let back = wire.answer().await.unwrap().header("location").unwrap().to_owned();
    let callback = back.strip_prefix(&format!("http://{host}")).unwrap();
    // The balancer sends the way back to the other replica.
    let done = b.plain("GET", callback, &[("Host", host), ("Cookie", &attempt)], b"").await;
    assert_eq!(done.status, 200, "{}", done.text());
    let session = cookie_pair(&done, "interflow_session_interflow.test-8080=").unwrap();
    for it in [&a, &b] {
        let me = it.plain("GET", "/api/v1/me", &[("Host", host), ("Cookie", &session)], b"").await;
        assert_eq!((me.status, &me.json()["name"]), (200, &json!("anna")));
    }
    // An instance of its own does not.
    let alone = instance(config(&issuer.url())).await;
    let own = format!("interflow_session_{}={}", alone.admin.port(), session.split_once('=').unwrap().1);
    let me = alone.plain("GET", "/api/v1/me", &[("Host", &alone.admin.to_string()), ("Cookie", &own)], b"").await;
    assert_eq!(me.status, 401);
}

/// Makes a personal token with a session; returns its text.
async fn personal_token(it: &Instance, login: &Answer, input: Value) -> Answer {
    let session = cookie_pair(login, "interflow_session_").unwrap();
    let (host, origin) = (it.admin.to_string(), format!("http://{}", it.admin));
    let fields =
        [("Host", host.as_str()), ("Cookie", &session), ("Origin", &origin), ("Content-Type", "application/json")];
    it.plain("POST", "/api/v1/tokens", &fields, input.to_string().as_bytes()).await
}

async fn status_of(it: &Instance, token: &str) -> u16 {
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {token}"));
    it.plain("GET", "/api/v1/me", &[("Host", &host), ("Authorization", &bearer)], b"").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn personal_tokens_end_with_the_rights_of_their_person_at_the_next_login() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["ops", "privacy"])).await;
    let it = instance(config(&issuer.url())).await;
    let login = log_in(&it, &issuer).await;
    let mut tokens = Vec::new();
    for (role, read_bodies) in [("viewer", false), ("operator", false), ("viewer", true)] {
        let input = json!({"name": role, "role": role, "read_bodies": read_bodies, "expires": "30d"});
        let made = personal_token(&it, &login, input).await;
        assert_eq!((made.status, &made.json()["token"]["kind"]), (200, &json!("personal")), "{}", made.text());
        tokens.push(made.json()["secret"].as_str().unwrap().to_owned());
    }
    let statuses =
        async || [status_of(&it, &tokens[0]).await, status_of(&it, &tokens[1]).await, status_of(&it, &tokens[2]).await];
    log_in(&it, &issuer).await;
    assert_eq!(statuses().await, [200, 200, 200]);
    // Another person's login changes nothing.
    issuer.set_person(json!({"sub": "u-2", "preferred_username": "ben", "groups": []}));
    assert_eq!(log_in(&it, &issuer).await.status, 403);
    assert_eq!(statuses().await, [200, 200, 200]);
    issuer.set_person(person(&["staff"]));
    assert_eq!(log_in(&it, &issuer).await.status, 200);
    assert_eq!(statuses().await, [200, 401, 401]);
    issuer.set_person(person(&["other"]));
    let refused = log_in(&it, &issuer).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("none of your groups"), "{}", refused.text());
    assert_eq!(statuses().await, [401, 401, 401]);
    let trail = it.json("/audit?text=login").await;
    let lines = trail["records"].as_array().unwrap();
    assert!(lines.iter().any(|l| l["actor"] == "anna" && l["detail"]["revoked_tokens"].is_array()), "{trail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_have_an_owner_and_a_longest_life() {
    let issuer = Issuer::start(CLIENT, Some(SECRET), person(&["root"])).await;
    let options = AdminConfig {
        oidc: Some(config(&issuer.url())),
        personal_token_lifetime: "10d".parse().unwrap(),
        service_token_lifetime: Some("100d".parse().unwrap()),
        ..AdminConfig::default()
    };
    let it = Instance::with(Origin::http(), Setup { options: Some(options), ..Setup::default() }).await;
    let login = log_in(&it, &issuer).await;
    for (kind, expires, status) in [
        ("service", Some("100d"), 200),
        ("service", Some("101d"), 400),
        ("service", None, 400),
        ("personal", Some("10d"), 200),
        ("personal", Some("11d"), 400),
    ] {
        let input = json!({"name": "x", "kind": kind, "role": "viewer", "expires": expires});
        let made = personal_token(&it, &login, input).await;
        assert_eq!(made.status, status, "{kind} {expires:?}: {}", made.text());
        match status {
            200 => {
                let token = made.json()["token"].clone();
                assert_eq!(
                    (&token["kind"], &token["subject"], &token["created_by"]),
                    (&json!(kind), &json!("u-1"), &json!("anna"))
                );
            }
            _ => assert!(made.text().contains(&format!("admin.{kind}_token_lifetime")), "{}", made.text()),
        }
    }
    // Without a person, a token is for a service.
    let refused = it.post("/tokens", json!({"name": "x", "kind": "personal", "role": "viewer", "expires": "1d"})).await;
    assert_eq!((refused.status, kind(&refused).as_str()), (400, "bad_request"));
    // Who may not administer makes none for services.
    issuer.set_person(json!({"sub": "u-3", "preferred_username": "cleo", "groups": ["ops"]}));
    let login = log_in(&it, &issuer).await;
    let refused =
        personal_token(&it, &login, json!({"name": "x", "kind": "service", "role": "viewer", "expires": "1d"})).await;
    assert_eq!((refused.status, kind(&refused).as_str()), (403, "missing_right"));
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

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_hangs_keeps_logins_waiting_at_the_same_time() {
    let silent = Origin::raw(|wire, _| async move {
        let _open = wire;
        std::future::pending::<std::io::Result<()>>().await
    })
    .await;
    let hanging = OidcConfig { timeout: "2s".parse().unwrap(), ..config(&silent.url("")) };
    let it = instance(hanging).await;
    let host = it.admin.to_string();
    let begun = std::time::Instant::now();
    let start = async || it.plain("GET", "/login/oidc", &[("Host", &host)], b"").await;
    let (a, b, c, d) = tokio::join!(start(), start(), start(), start());
    assert_eq!([a.status, b.status, c.status, d.status], [502; 4]);
    // One after the other, they would take eight seconds.
    assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
}
