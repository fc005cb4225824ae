//! Who is let in, and what a browser is told about our pages.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_gets_in_with_the_token_once_and_the_cookie_from_then_on() {
    let it = Instance::start().await;
    let host = it.admin.to_string();
    let locked = it.plain("GET", "/", &[("Host", &host)], b"").await;
    assert_eq!((locked.status, locked.header("content-type")), (401, Some("text/html; charset=utf-8")));
    let wrong = it.plain("GET", "/?token=no", &[("Host", &host)], b"").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));

    let entered = it.plain("GET", &format!("/?token={TOKEN}"), &[("Host", &host)], b"").await;
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
    let cookie = entered.header("set-cookie").unwrap();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();

    let page = it.plain("GET", "/", &[("Host", &host), ("Cookie", pair)], b"").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("Interflow"));
    let flows = it.plain("GET", "/api/v1/flows", &[("Host", &host), ("Cookie", pair)], b"").await;
    assert_eq!(flows.status, 200);

    let prune = |origin: Option<String>| {
        let (host, pair, it) = (host.clone(), pair.to_owned(), &it);
        async move {
            let mut fields = vec![("Host", host.as_str()), ("Cookie", pair.as_str())];
            fields.push(("Content-Type", "application/json"));
            if let Some(origin) = &origin {
                fields.push(("Origin", origin));
            }
            it.plain("POST", "/api/v1/flows/prune", &fields, br#"{"all":true}"#).await
        }
    };
    assert_eq!(kind(&prune(None).await), "no_origin");
    assert_eq!(kind(&prune(Some("http://evil.test".into())).await), "wrong_origin");
    assert_eq!(kind(&prune(Some("http://127.0.0.1:1".into())).await), "wrong_origin");
    assert_eq!(prune(Some(format!("http://{host}"))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_refuses_strangers_in_json() {
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
async fn every_answer_tells_browsers_to_be_careful() {
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
async fn what_is_not_there_is_said_in_json() {
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
        ("GET", "/diff?a=x", 400, "bad_request"),
        ("GET", "/events", 426, "websocket"),
    ] {
        let answer = it.call(method, path, &[], b"").await;
        assert_eq!((answer.status, kind(&answer).as_str()), (status, why), "{method} {path}");
    }
    let form = it.call("POST", "/flows/prune", &[("Content-Type", "text/plain")], br#"{"all":true}"#).await;
    assert_eq!((form.status, kind(&form).as_str()), (415, "media_type"));
    let odd = it.post("/flows/prune", serde_json::json!({"al": true})).await;
    assert_eq!((odd.status, kind(&odd).as_str()), (400, "bad_request"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_record_says_so() {
    let it = Instance::with(Origin::http(), Setup { unrecorded: true, ..Setup::default() }).await;
    for path in ["/flows", "/flows/count", "/export", "/search"] {
        let answer = it.get(path).await;
        assert_eq!((answer.status, kind(&answer).as_str()), (503, "not_recording"), "{path}");
    }
    assert_eq!(it.json("/stats").await["store"], Value::Null);
}
