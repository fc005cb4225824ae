//! SSRF protection and client authentication.

use interflow_testkit::{Origin, Reply};

use super::{Gateway, LOCAL};

#[tokio::test]
async fn private_addresses_are_refused_by_address_name_and_redirect() {
    let inside = Origin::http().start().await;
    let gateway = Gateway::start("");
    for destination in [
        inside.url("/"),
        format!("http://127.0.0.1:{}/", inside.port()),
        format!("http://[::ffff:127.0.0.1]:{}/", inside.port()),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://10.0.0.1/".into(),
        "http://[fe80::1]/".into(),
        "http://0.0.0.0/".into(),
    ] {
        let answer = gateway.get(&gateway.path("/proxy/stream", &destination)).await;
        assert_eq!((answer.status, answer.header("x-interflow-error")), (403, Some("denied")), "{destination}");
        assert!(answer.text().contains("media.allow_private"), "{}", answer.text());
    }
    assert_eq!(inside.served(), 0);
}

#[tokio::test]
async fn name_that_resolves_to_a_private_address_is_refused() {
    let inside = Origin::http().start().await;
    let gateway = Gateway::start("[upstream.hosts]\n\"rebound.test\" = [\"127.0.0.1\"]\n");
    let destination = format!("http://rebound.test:{}/", inside.port());
    let answer = gateway.get(&gateway.path("/proxy/stream", &destination)).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (403, Some("denied")));
    assert_eq!(inside.served(), 0);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let outside =
        Origin::http().answering(|_| Reply::status(302).header("Location", "http://10.1.2.3/secret")).start().await;
    let gateway = Gateway::local();
    let answer = gateway.get(&gateway.path("/proxy/stream", &outside.url("/"))).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (403, Some("denied")));
}

#[tokio::test]
async fn own_ports_are_never_fetched() {
    let gateway = Gateway::local();
    let own = format!("http://{}/media/health", gateway.addr);
    assert_eq!(gateway.get(&gateway.path("/proxy/stream", &own)).await.status, 508);
}

#[tokio::test]
async fn without_a_password_only_this_machine_is_served() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream", &origin.url("/"));
    for fields in ["X-Forwarded-For: 1.2.3.4\r\n", "Sec-Fetch-Site: cross-site\r\nOrigin: https://evil.test\r\n"] {
        assert_eq!(gateway.get_with(&path, fields).await.status, 403, "{fields}");
    }
    let mut wire = interflow_testkit::Wire::connect(gateway.addr).await.unwrap();
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: rebound.test\r\n\r\n")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 403);
    assert_eq!(gateway.get(&path).await.status, 200);
}

#[tokio::test]
async fn password_is_required_and_never_forwarded() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!(
        "{LOCAL}api_password = \"hunter22\"\n[[media.user]]\nname = \"ann\"\npassword = \"ann's own\"\n"
    ));
    let path = gateway.path("/proxy/stream", &origin.url("/head"));
    assert_eq!(gateway.get(&path).await.status, 403);
    assert_eq!(gateway.get(&format!("{path}&api_password=hunter2")).await.status, 403);
    for answer in [
        gateway.get(&format!("{path}&api_password=hunter22")).await,
        gateway.get_with(&path, "api_password: hunter22\r\n").await,
        gateway.get(&format!("{path}&api_password=ann%27s+own")).await,
    ] {
        assert!(answer.status == 200 && !answer.text().contains("hunter22"), "{}", answer.text());
    }
}

#[tokio::test]
async fn cors_allows_configured_and_local_origins() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!("{LOCAL}cors = [\"https://player.test\"]\n"));
    let path = gateway.path("/proxy/stream", &origin.url("/"));
    for (page, allowed) in
        [("https://player.test", true), ("http://localhost:3000", true), ("https://evil.test", false)]
    {
        let answer = gateway.get_with(&path, &format!("Origin: {page}\r\n")).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed.then_some(page));
    }
    let preflight = gateway.send("OPTIONS", &path, "Origin: https://player.test\r\n").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("https://player.test")));
}

#[tokio::test]
async fn media_quotas_apply_per_user_and_model_quotas_do_not_apply() {
    let origin = Origin::http().start().await;
    let user = |name: &str| format!("[[media.user]]\nname = \"{name}\"\npassword = \"{name}-pass\"\n");
    let rule = |more: &str| format!("[[quota.rule]]\nname = \"{}\"\ncount_by = \"user\"\n{more}\n", more.len());
    let rules =
        rule("providers = [\"media\"]\nallow = { requests = \"2/m\" }") + &rule("allow = { requests = \"1/m\" }");
    let gateway = Gateway::start(&format!("{LOCAL}{}{}{rules}", user("ann"), user("bob")));
    let path = gateway.path("/proxy/stream", &origin.url("/bytes/9"));
    let mut statuses = Vec::new();
    for name in ["ann", "ann", "ann", "bob"] {
        let answer = gateway.get(&format!("{path}&api_password={name}-pass")).await;
        assert!(answer.status != 429 || answer.header("retry-after").is_some());
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200]);
    let body = serde_json::json!({ "destination_url": origin.url("/bytes/9") });
    let link = gateway.post("/media/generate_url?api_password=ann-pass", &body).await;
    assert_eq!(link.status, 429, "links are made by people who are counted as well");
}
