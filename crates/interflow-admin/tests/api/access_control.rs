//! Access control, and the security headers of responses.

use super::*;

/// The response to the URL with the token that `interflow open` opens.
async fn log_in(it: &Instance) -> Answer {
    it.plain("GET", &format!("/?token={TOKEN}"), &[("Host", &it.admin.to_string())], b"").await
}

/// The name and value of a session cookie.
fn cookie_pair(answer: &Answer) -> String {
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_the_token_or_with_a_wrong_one_asks_for_it() {
    let it = Instance::start().await;
    let host = it.admin.to_string();
    let locked = it.plain("GET", "/", &[("Host", &host)], b"").await;
    assert_eq!((locked.status, locked.header("content-type")), (401, Some("text/html; charset=utf-8")));
    let wrong = it.plain("GET", "/?token=no", &[("Host", &host)], b"").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_exchanged_for_a_strict_cookie_without_it() {
    let it = Instance::start().await;
    let entered = log_in(&it).await;
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
    let cookie = entered.header("set-cookie").unwrap();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000", &format!("_{}=", it.admin.port())] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert!(!cookie.contains("Domain") && !cookie.contains(TOKEN), "{cookie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_gives_access_to_pages_and_the_api() {
    let it = Instance::start().await;
    let (host, pair) = (it.admin.to_string(), cookie_pair(&log_in(&it).await));
    let page = it.plain("GET", "/", &[("Host", &host), ("Cookie", &pair)], b"").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("Interflow"));
    let flows = it.plain("GET", "/api/v1/flows", &[("Host", &host), ("Cookie", &pair)], b"").await;
    assert_eq!(flows.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_changes_nothing_for_another_origin() {
    let it = Instance::start().await;
    let (host, pair) = (it.admin.to_string(), cookie_pair(&log_in(&it).await));
    let prune = async |origin: Option<&str>| {
        let mut fields = vec![("Host", host.as_str()), ("Cookie", &pair), ("Content-Type", "application/json")];
        fields.extend(origin.map(|origin| ("Origin", origin)));
        it.plain("POST", "/api/v1/flows/prune", &fields, br#"{"all":true}"#).await
    };
    assert_eq!(kind(&prune(None).await), "no_origin");
    assert_eq!(kind(&prune(Some("http://evil.test")).await), "wrong_origin");
    assert_eq!(kind(&prune(Some("http://127.0.0.1:1")).await), "wrong_origin");
    assert_eq!(prune(Some(&format!("http://{host}"))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_refuses_unauthenticated_and_foreign_requests_in_json() {
    let it = Instance::start().await;
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {TOKEN}"));
    for (fields, status, why) in [
        (vec![("Host", host.as_str())], 401, "no_token"),
        (vec![("Host", &host), ("Authorization", "Bearer nearly")], 401, "no_token"),
        (vec![("Host", "evil.test"), ("Authorization", &bearer)], 421, "wrong_host"),
        (vec![("Host", &host), ("Authorization", &bearer), ("Origin", "http://evil.test")], 403, "wrong_origin"),
    ] {
        let answer = it.plain("GET", "/api/v1/flows", &fields, b"").await;
        assert_eq!((answer.status, kind(&answer).as_str()), (status, why), "{fields:?}");
    }
    let through = client::get_through(it.engine.proxy_addresses()[0], &format!("http://{host}/api/v1/flows")).await;
    assert!(through.unwrap().status >= 400, "our own proxy is no way in");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_browser_security_headers() {
    let it = Instance::start().await;
    for path in ["/flows", "/nowhere", "/stats"] {
        let answer = it.get(path).await;
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'self'"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_ids_and_parameters_are_errors_in_json() {
    let it = Instance::start().await;
    for (method, path, status, why) in [
        ("GET", "/nowhere", 404, "no_route"),
        ("PUT", "/flows", 405, "wrong_method"),
        ("GET", "/flows/abc", 400, "bad_request"),
        ("GET", "/flows/01JD3V7T2M00000000000000AB", 404, "not_found"),
        ("GET", "/flows/01JD3V7T2M00000000000000AB/sideways/body", 404, "not_found"),
        ("GET", "/flows?limits=3", 400, "bad_request"),
        ("GET", "/flows?limit=many", 400, "bad_request"),
        ("GET", "/flows?query=stats:4", 400, "bad_query"),
        ("GET", "/export?format=pdf", 400, "bad_request"),
        ("GET", "/export?query=host:a.test%20or%20host:b.test", 400, "bad_query"),
        ("GET", "/approvals/suggestions?query=host:a.test%20or%20host:b.test", 400, "bad_query"),
        ("GET", "/diff?a=x", 400, "bad_request"),
        ("GET", "/events", 426, "websocket"),
    ] {
        let answer = it.call(method, path, &[], b"").await;
        assert_eq!((answer.status, kind(&answer).as_str()), (status, why), "{method} {path}");
    }
    let form = it.call("POST", "/flows/prune", &[("Content-Type", "text/plain")], br#"{"all":true}"#).await;
    assert_eq!((form.status, kind(&form).as_str()), (415, "media_type"));
    let lowercase = it.post("/flows/prune", serde_json::json!({"query": "host:a.test or host:b.test"})).await;
    assert_eq!((lowercase.status, kind(&lowercase).as_str()), (400, "bad_query"), "an operator in lower case");
    for path in ["/flows", "/flows/count", "/conversations"] {
        let warned = it.get(&format!("{path}?query=host:a.test%20or%20host:b.test")).await.json();
        let warning = warned["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.contains("column 13: `or` is searched as a word: write OR"), "{path}: {warned}");
        assert!(it.get(path).await.json()["warnings"].is_null(), "{path}");
    }
    let odd = it.post("/flows/prune", serde_json::json!({"al": true})).await;
    assert_eq!((odd.status, kind(&odd).as_str()), (400, "bad_request"));
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_without_recording_returns_not_recording() {
    let it = Instance::with(Origin::http(), Setup { unrecorded: true, ..Setup::default() }).await;
    for path in ["/flows", "/flows/count", "/export", "/search"] {
        let answer = it.get(path).await;
        assert_eq!((answer.status, kind(&answer).as_str()), (503, "not_recording"), "{path}");
    }
    assert_eq!(it.json("/stats").await["store"], Value::Null);
}

/// Sends the form of the login page.
async fn submit(it: &Instance, token: &str, next: &str, origin: &str) -> Answer {
    let host = it.admin.to_string();
    let fields = [("Host", host.as_str()), ("Origin", origin), ("Content-Type", "application/x-www-form-urlencoded")];
    it.plain("POST", "/login", &fields, format!("token={token}&next={next}").as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn login_page_prompts_for_the_token_and_remembers_the_requested_page() {
    let it = Instance::start().await;
    let page = it.plain("GET", "/settings?tab=ca", &[("Host", &it.admin.to_string())], b"").await;
    assert_eq!(page.status, 401);
    let html = page.text();
    for part in [
        "<form method=\"post\" action=\"/login\"",
        "value=\"/settings?tab=ca\"",
        "interflow --data-dir /d open",
        "admin.token",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn login_page_runs_no_scripts_and_sends_its_form_to_this_instance_only() {
    let it = Instance::start().await;
    let page = it.plain("GET", "/", &[("Host", &it.admin.to_string())], b"").await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("style-src 'sha256-"), "{policy}");
    assert!(policy.contains("form-action 'self'") && !page.text().contains("<script"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn login_refuses_a_wrong_token_and_a_foreign_form() {
    let it = Instance::start().await;
    let wrong = submit(&it, "guess", "%2F", &format!("http://{}", it.admin)).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert!(wrong.text().contains("not the token"));
    assert_eq!(submit(&it, TOKEN, "%2F", "http://evil.test").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn login_redirects_to_the_requested_page_of_this_instance() {
    let it = Instance::start().await;
    let host = it.admin.to_string();
    for (next, goes) in [("%2Fsettings%3Ftab%3Dca", "/settings?tab=ca"), ("%2F%2Fevil.test", "/"), ("x", "/")] {
        let right = submit(&it, TOKEN, next, &format!("http://{host}")).await;
        assert_eq!((right.status, right.header("location")), (303, Some(goes)), "{next}");
        let pair = cookie_pair(&right);
        let flows = it.plain("GET", "/api/v1/flows", &[("Host", &host), ("Cookie", &pair)], b"").await;
        assert_eq!(flows.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_token_attempts_are_limited_and_the_correct_token_still_works() {
    let it = Instance::start().await;
    let host = it.admin.to_string();
    let fields = [("Host", host.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let mut seen = Vec::new();
    for _ in 0..25 {
        seen.push(it.plain("POST", "/login", &fields, b"token=guess").await.status);
    }
    assert_eq!((seen[0], seen[24]), (401, 429));
    assert_eq!(it.plain("POST", "/login", &fields, format!("token={TOKEN}").as_bytes()).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn login_link_is_valid_once() {
    let it = Instance::start().await;
    let host = it.admin.to_string();
    let link = it.post("/login-links", serde_json::json!({})).await;
    let body: Value = serde_json::from_slice(&link.body).unwrap();
    let path = body["path"].as_str().unwrap().to_owned();
    assert!(!path.contains(TOKEN), "{path}");
    // A preview of the link, or of a page with the token in its address, only looks.
    for looked_at in [path.as_str(), &format!("/?token={TOKEN}")] {
        let looked = it.plain("HEAD", looked_at, &[("Host", &host)], b"").await;
        assert_eq!((looked.status, looked.header("set-cookie")), (401, None), "{looked_at}");
    }
    let first = it.plain("GET", &path, &[("Host", &host)], b"").await;
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    assert!(first.header("set-cookie").is_some());
    let again = it.plain("GET", &path, &[("Host", &host)], b"").await;
    assert_eq!((again.status, again.header("set-cookie")), (401, None));
    let stranger = it.plain("POST", "/api/v1/login-links", &[("Host", &host)], b"").await;
    assert_eq!(stranger.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_ends_the_session_and_no_other() {
    let it = Instance::start().await;
    let (host, own) = (it.admin.to_string(), format!("http://{}", it.admin));
    let (ended, other) = (cookie_pair(&log_in(&it).await), cookie_pair(&log_in(&it).await));
    let status =
        async |cookie: &str| it.plain("GET", "/api/v1/me", &[("Host", &host), ("Cookie", cookie)], b"").await.status;
    let log_out = async |fields: &[(&str, &str)]| {
        let answer = it.plain("POST", "/logout", &[&[("Host", host.as_str())], fields].concat(), b"").await;
        assert!(answer.header("set-cookie").unwrap().contains("Max-Age=0"), "{answer:?}");
    };
    // A page of another site cannot log anybody out.
    log_out(&[("Cookie", &ended)]).await;
    assert_eq!(status(&ended).await, 200);
    log_out(&[("Cookie", &ended), ("Origin", &own)]).await;
    assert_eq!((status(&ended).await, status(&other).await), (401, 200));
    let page = it.plain("GET", "/", &[("Host", &host), ("Cookie", &ended)], b"").await;
    assert_eq!(page.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_two_hosts_is_refused() {
    let it = Instance::start().await;
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {TOKEN}"));
    let fields = [("Host", host.as_str()), ("Host", host.as_str()), ("Authorization", bearer.as_str())];
    assert_eq!(it.plain("GET", "/api/v1/flows", &fields, b"").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_time_out_and_yield_their_connection_to_others() {
    let options =
        AdminConfig { header_timeout: HumanDuration::from_millis(300), max_connections: 4, ..AdminConfig::default() };
    let it = Instance::with(Origin::http(), Setup { options: Some(options), ..Setup::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::connect(it.admin).await.unwrap();
        wire.send("GET /livez HTTP/1.1\r\nHost: ").await.unwrap();
        slow.push(wire);
    }
    // A fifth connection replaces the oldest of them and is served.
    let host = it.admin.to_string();
    assert_eq!(it.plain("GET", "/livez", &[("Host", &host)], b"").await.status, 200);
    for wire in &mut slow {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), wire.answer()).await;
        assert!(ended.expect("the connection is ended").map_or(true, |answer| answer.status == 408));
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while it.plain("GET", "/livez", &[("Host", &host)], b"").await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "a connection slot is free again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn excessively_nested_text_is_refused_immediately() {
    let it = Instance::start().await;
    for path in ["/privacy/check", "/privacy/try"] {
        let deep = "[".repeat(100_000);
        let asked = match path {
            "/privacy/check" => serde_json::json!({"text": deep}),
            _ => serde_json::json!({"text": "x", "policy": deep}),
        };
        let answer = it.post(path, asked).await;
        assert_eq!((answer.status, kind(&answer).as_str()), (422, "too_deep"), "{path}");
    }
}
