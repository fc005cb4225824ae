//! Sealed links: creation, use, expiry, tampering, and use by another client.

use interflow_testkit::Origin;
use serde_json::json;

use super::{Gateway, LOCAL};

#[tokio::test]
async fn generated_link_reveals_no_secrets() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let request = json!({
        "endpoint": "/proxy/stream", "destination_url": origin.url("/head"), "filename": "a b.mp4",
        "request_headers": { "x-secret": "s3cret" }, "api_password": "hunter22",
    });
    let mut wrong = request.clone();
    wrong["api_password"] = "hunter2".into();
    assert_eq!(gateway.post("/media/generate_url", &wrong).await.status, 403);
    assert_eq!(gateway.post("/media/generate_url", &request).await.status, 200, "the body shows the password");
    let made = gateway.post("/media/generate_url?api_password=hunter22", &request).await.json();
    let url = made["url"].as_str().unwrap();
    assert!(url.contains("/media/_token_i1.") && url.ends_with("/proxy/stream/a%20b.mp4"), "{url}");
    let answer = gateway.follow(url).await;
    assert_eq!(answer.status, 200);
    assert_eq!(origin.only_request().header("x-secret"), Some("s3cret"));
    let two = json!({ "mediaflow_proxy_url": "http://x.test", "urls": [
        { "destination_url": "http://a.test/1" }, { "endpoint": "/proxy/hls/manifest.m3u8", "destination_url": "http://a.test/2" }
    ] });
    let made = gateway.post("/media/generate_urls?api_password=hunter22", &two).await.json();
    assert!(made["urls"][1].as_str().unwrap().starts_with("http://x.test/_token_"), "{made}");
}

#[tokio::test]
async fn links_are_bound_to_expiry_client_path_and_host() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    let link = async |more: serde_json::Value| {
        let mut request = json!({ "destination_url": origin.url("/"), "sealed": true });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = gateway.post("/media/generate_url", &request).await.json();
        made["url"].as_str().unwrap().to_owned()
    };
    let good =
        link(json!({ "expiration": 60, "ip": "127.0.0.1", "path": "/proxy/stream", "hosts": ["localhost"] })).await;
    assert_eq!(gateway.follow(&good).await.status, 200);
    for (request, says) in [
        (json!({ "expiration": 0 }), "expired"),
        (json!({ "ip": "10.0.0.1" }), "another client"),
        (json!({ "path": "/proxy/hls" }), "this path"),
        (json!({ "hosts": ["cdn.test"] }), "cannot be served (denied)"),
    ] {
        let answer = gateway.follow(&link(request).await).await;
        assert!(answer.status == 403 && answer.text().contains(says), "{}", answer.text());
    }
    let changed = good.replacen("_token_i1.0.", "_token_i1.0.A", 1);
    assert_eq!(gateway.follow(&changed).await.status, 403);
    let foreign = Gateway::local();
    let path = good.split_once("/media").unwrap().1;
    assert_eq!(foreign.get(&format!("/media{path}")).await.status, 403);
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn forwarded_addresses_are_accepted_only_from_trusted_proxies() {
    let origin = Origin::http().start().await;
    let trusting =
        Gateway::start(&format!("{LOCAL}trusted_proxies = [\"127.0.0.1/32\"]\napi_password = \"hunter22\"\n"));
    let request = json!({ "destination_url": origin.url("/"), "ip": "9.9.9.9" });
    let made = trusting.post("/media/generate_url?api_password=hunter22", &request).await.json();
    let path = made["url"].as_str().unwrap().split_once("/media").unwrap().1.to_owned();
    let path = format!("/media{path}");
    for (from, status) in [("9.9.9.9", 200), ("1.1.1.1, 9.9.9.9", 200), ("9.9.9.9, 1.1.1.1", 403)] {
        assert_eq!(trusting.get_with(&path, &format!("X-Forwarded-For: {from}\r\n")).await.status, status, "{from}");
    }
}

#[tokio::test]
async fn gateway_trusted_proxies_apply_to_media() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!(
        "{LOCAL}api_password = \"hunter22\"\n[gateway]\ntrusted_proxies = [\"127.0.0.1/32\"]\n"
    ));
    let request = json!({ "destination_url": origin.url("/"), "ip": "9.9.9.9" });
    let made = gateway.post("/media/generate_url?api_password=hunter22", &request).await.json();
    let path = made["url"].as_str().unwrap().split_once("/media").unwrap().1.to_owned();
    let path = format!("/media{path}");
    for (from, status) in [("9.9.9.9", 200), ("1.1.1.1, 9.9.9.9", 200), ("9.9.9.9, 1.1.1.1", 403)] {
        assert_eq!(gateway.get_with(&path, &format!("X-Forwarded-For: {from}\r\n")).await.status, status, "{from}");
    }
    let named = "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: tv.test\r\n";
    let body = request.to_string();
    let fields = format!("{named}Content-Length: {}\r\n\r\n{body}", body.len());
    let made = gateway.send("POST", "/media/generate_url?api_password=hunter22", &fields).await.json();
    assert!(made["url"].as_str().unwrap().starts_with("https://tv.test/media/"), "{made}");
}

#[tokio::test]
async fn viewer_link_cannot_write_or_reach_other_endpoints() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::start(&format!("{LOCAL}api_password = \"hunter22\"\n"));
    let request = json!({
        "endpoint": "/proxy/stream", "destination_url": origin.url("/items/1"),
        "request_headers": { "authorization": "Bearer operator" },
    });
    let made = gateway.post("/media/generate_url?api_password=hunter22", &request).await.json();
    let link = made["url"].as_str().unwrap().to_owned();
    for (method, endpoint) in [
        ("DELETE", "/proxy/forward"),
        ("PUT", "/proxy/forward"),
        ("POST", "/proxy/forward"),
        ("GET", "/proxy/forward"),
        ("GET", "/proxy/hls/manifest.m3u8"),
        ("POST", "/generate_url"),
        ("DELETE", "/proxy/stream"),
        ("POST", "/proxy/stream"),
    ] {
        let url = link.replace("/proxy/stream", endpoint);
        let path = url.split_once("/media").unwrap().1;
        let answer = gateway.send(method, &format!("/media{path}"), "Content-Length: 0\r\n").await;
        assert_eq!(answer.status, 403, "{method} {endpoint}: {}", answer.text());
    }
    assert_eq!(origin.served(), 0, "the origin saw none of them");
    assert_eq!(gateway.follow(&link).await.status, 200);
}

#[tokio::test]
async fn errors_of_sealed_links_name_neither_the_origin_nor_its_tokens() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    for (endpoint, destination) in [
        ("/playlist/builder", origin.url("/status/404?token=s3cret")),
        ("/proxy/stream", "http://10.255.255.1:9/x?token=s3cret".to_owned()),
        ("/proxy/hls/manifest.m3u8", "http://127.0.0.1:1/x.m3u8?token=s3cret".to_owned()),
        // Without the times that the player appends.
        ("/proxy/stream", "http://127.0.0.1:1/{utc}?token=s3cret".to_owned()),
    ] {
        let mut request = json!({ "endpoint": endpoint, "destination_url": destination, "sealed": true });
        if destination.contains("{utc}") {
            request["query_params"] = json!({ "catchup": "true" });
        }
        let made = gateway.post("/media/generate_url", &request).await.json();
        let answer = gateway.follow(made["url"].as_str().unwrap()).await;
        let text = format!("{}{}", answer.text(), answer.header("x-interflow-error").unwrap_or_default());
        assert!(answer.status >= 400, "{endpoint}: {text}");
        assert!(!["s3cret", "127.0.0.1", "10.255", "localhost"].iter().any(|secret| text.contains(secret)), "{text}");
    }
}
