//! `/proxy/stream`: forwarded headers and bodies, and misbehaving origins.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use interflow_testkit::{Ending, Origin, Reply, Request, pattern};

use super::{Gateway, encoded};

/// A file of `n` bytes with validators and ranges.
fn file(request: &Request, n: usize) -> Reply {
    let all = pattern(n);
    let reply =
        |r: Reply| r.header("ETag", "\"v1\"").header("Accept-Ranges", "bytes").header("Content-Type", "video/mp4");
    if request.header("if-none-match") == Some("\"v1\"") {
        return reply(Reply::status(304));
    }
    let Some(range) = request.header("range").and_then(|r| r.strip_prefix("bytes=")) else {
        return reply(Reply::ok(all));
    };
    let (first, last) = range.split_once('-').unwrap();
    let first: usize = first.parse().unwrap();
    let last = last.parse().map_or(n - 1, |l: usize| l.min(n - 1));
    if first >= n {
        return Reply::status(416).header("Content-Range", format!("bytes */{n}"));
    }
    let part = all.slice(first..=last);
    reply(Reply::status(206).body(part).header("Content-Range", format!("bytes {first}-{last}/{n}")))
}

#[tokio::test]
async fn bodies_ranges_and_validators_are_relayed_unchanged() {
    let origin = Origin::http().answering(|r| file(r, 10_000)).start().await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream", &origin.url("/v.mp4?a=b&c"));
    let whole = gateway.get(&path).await;
    assert_eq!((whole.status, whole.body.len(), whole.header("etag")), (200, 10_000, Some("\"v1\"")));
    assert_eq!((whole.header("content-length"), whole.header("content-type")), (Some("10000"), Some("video/mp4")));
    assert_eq!(whole.body, pattern(10_000));
    let part = gateway.get_with(&path, "Range: bytes=100-199\r\nIf-Range: \"v1\"\r\n").await;
    assert_eq!((part.status, part.header("content-range")), (206, Some("bytes 100-199/10000")));
    assert_eq!(part.body, pattern(10_000).slice(100..200));
    assert_eq!(gateway.get_with(&path, "Range: bytes=10000-\r\n").await.status, 416);
    assert_eq!(gateway.get_with(&path, "If-None-Match: \"v1\"\r\n").await.status, 304);
    let head = gateway.send("HEAD", &path, "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("10000"), 0));
    let last = origin.requests().pop().unwrap();
    assert_eq!((last.method.as_str(), last.target.as_str()), ("HEAD", "/v.mp4?a=b&c"));
    assert_eq!(gateway.send("DELETE", &path, "").await.status, 405);
}

#[tokio::test]
async fn link_parameters_set_request_and_response_headers() {
    let origin = Origin::http()
        .answering(|_| {
            Reply::ok("x").header("ETag", "\"e\"").header("Set-Cookie", "a=b").header("Content-Type", "text/html")
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream/my%20film.mp4", &origin.url("/"));
    let more =
        "&h_referrer=http://r.test/&h_X-Mine=1&h_host=evil&r_content-type=video/mp4&r_set-cookie=c&x_headers=etag";
    let answer = gateway.get_with(&format!("{path}{more}"), "Cookie: own=1\r\nUser-Agent: player\r\n").await;
    assert_eq!(answer.header("content-type"), Some("video/mp4"));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"my film.mp4\""));
    assert!(answer.header("set-cookie").is_none() && answer.header("etag").is_none());
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let seen = origin.only_request();
    assert_eq!((seen.header("referer"), seen.header("x-mine")), (Some("http://r.test/"), Some("1")));
    assert_eq!((seen.header("user-agent"), seen.header("cookie")), (Some("Interflow"), None));
    assert_eq!(seen.header("host"), Some(origin.authority().as_str()));
}

#[tokio::test]
async fn origin_statuses_are_relayed() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    for status in [403, 404, 429, 500, 503] {
        let path = gateway.path("/proxy/stream", &origin.url(&format!("/status/{status}")));
        assert_eq!(gateway.get(&path).await.status, status);
    }
    let nobody = format!("http://{}/", Origin::nobody().await);
    assert_eq!(gateway.get(&gateway.path("/proxy/stream", &nobody)).await.status, 502);
    for (query, says) in [("", "`d` is missing"), ("?d=ftp%3A%2F%2Fa%2F", "only http and https")] {
        let answer = gateway.get(&format!("/media/proxy/stream{query}")).await;
        assert!(answer.status == 400 && answer.text().contains(says), "{}", answer.text());
    }
    assert_eq!(gateway.get("/media/proxy/nothing").await.status, 404);
}

#[tokio::test]
async fn body_is_resumed_after_the_origin_disconnects() {
    let tries = AtomicUsize::new(0);
    let origin = Origin::http()
        .answering(move |r| {
            let n = 300_000;
            let reply = file(r, n);
            if tries.fetch_add(1, SeqCst) < 2 {
                let first = r.header("range").and_then(|r| r[6..].split('-').next()?.parse().ok()).unwrap_or(0_usize);
                let piece = pattern(n).slice(first..first + 100_000);
                return reply.claim_length((n - first) as u64).body(piece).ending(Ending::Cut);
            }
            reply
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let answer = gateway.get(&gateway.path("/proxy/stream", &origin.url("/f"))).await;
    assert_eq!((answer.status, answer.body.len()), (200, 300_000));
    assert_eq!(answer.body, pattern(300_000));
    let asked: Vec<_> = origin.requests().iter().map(|r| r.header("range").map(str::to_owned)).collect();
    assert_eq!(asked, [None, Some("bytes=100000-299999".into()), Some("bytes=200000-299999".into())]);
    assert_eq!(origin.requests()[1].header("if-range"), Some("\"v1\""));
}

#[tokio::test]
async fn changed_resource_is_never_appended_on_resume() {
    let tries = AtomicUsize::new(0);
    let origin = Origin::http()
        .answering(move |r| {
            let changed = tries.fetch_add(1, SeqCst) > 0;
            let reply = if changed { Reply::ok(pattern(5000)).header("ETag", "\"v2\"") } else { file(r, 5000) };
            if changed { reply } else { reply.claim_length(5000).body(pattern(1000)).ending(Ending::Cut) }
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let mut wire = interflow_testkit::Wire::connect(gateway.addr).await.unwrap();
    let path = gateway.path("/proxy/stream", &origin.url("/f"));
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.addr)).await.unwrap();
    let head = wire.answer_head().await.unwrap();
    assert_eq!(head.header("content-length"), Some("5000"));
    assert_eq!(wire.to_end().await.unwrap_or_default().len(), 1000, "the connection is cut where the bytes end");
}

#[tokio::test]
async fn redirects_are_followed_without_credentials() {
    let other = Origin::http().answering(|_| Reply::ok("there")).start().await;
    let target = other.url("/x?y");
    let origin = Origin::http()
        .answering(move |r| match r.path() {
            "/loop" => Reply::status(302).header("Location", "/loop"),
            "/near" => Reply::status(307).header("Location", "../far"),
            "/far" => Reply::status(301).header("Location", &target),
            _ => Reply::status(302).header("Location", "gopher://x/"),
        })
        .start()
        .await;
    let gateway = Gateway::local();
    let path = gateway.path("/proxy/stream", &origin.url("/near"));
    let answer = gateway.get(&format!("{path}&h_authorization=Bearer%20x&h_x-keep=1")).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "there"));
    assert_eq!(origin.requests()[1].header("authorization"), Some("Bearer x"));
    let seen = other.only_request();
    assert_eq!((seen.header("authorization"), seen.header("x-keep")), (None, Some("1")));
    for path in ["/loop", "/gopher"] {
        let answer = gateway.get(&gateway.path("/proxy/stream", &origin.url(path))).await;
        assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("bad_response")), "{path}");
    }
}

#[tokio::test]
async fn slow_stream_is_not_cut_off_and_client_disconnect_ends_it() {
    let origin = Origin::http().start().await;
    let gateway = Gateway::local();
    let answer = gateway.get(&gateway.path("/proxy/stream", &origin.url("/slow/5000?piece=500&gap=60"))).await;
    assert_eq!(answer.body, pattern(5000));
    let origin = Origin::http().start().await;
    let mut wire = interflow_testkit::Wire::connect(gateway.addr).await.unwrap();
    let path = gateway.path("/proxy/stream", &origin.url("/slow/100000000?piece=65536&gap=1"));
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.addr)).await.unwrap();
    wire.answer_head().await.unwrap();
    wire.reset();
    tokio::time::timeout(Duration::from_secs(20), origin.wait_until_idle()).await.unwrap();
}

#[tokio::test]
async fn fake_image_prefix_is_stripped_from_a_transport_stream() {
    let mut body = b"\x89PNG\r\n\x1a\n".to_vec();
    body.extend([0xff; 900]);
    let packets: Vec<u8> = (0..20_u8).flat_map(|n| std::iter::once(0x47).chain(std::iter::repeat_n(n, 187))).collect();
    body.extend(&packets);
    let origin =
        Origin::http().answering(move |_| Reply::ok(body.clone()).header("Content-Type", "image/png")).start().await;
    let gateway = Gateway::local();
    let path = format!("{}&transformer=ts_stream", gateway.path("/proxy/stream", &origin.url("/1.png")));
    let answer = gateway.get(&path).await;
    assert_eq!((answer.header("content-type"), &answer.body[..]), (Some("video/mp2t"), &packets[..]));
}

#[tokio::test]
async fn health_and_base64_endpoints_respond() {
    let gateway = Gateway::local();
    assert_eq!(gateway.get("/media/health").await.json()["status"], "healthy");
    let url = "https://a.test/x?y=1";
    let code = gateway.get(&format!("/media/base64/encode?url={}", encoded(url))).await.json();
    let code = code["encoded_url"].as_str().unwrap();
    let decoded = gateway.get(&format!("/media/base64/decode?encoded_url={code}")).await.json();
    assert_eq!(decoded["decoded_url"], url);
    assert_eq!(gateway.get("/media/base64/check?url=hello").await.json()["is_base64"], false);
    let asked = serde_json::json!({ "encoded_url": code });
    assert_eq!(gateway.post("/media/base64/decode", &asked).await.json()["decoded_url"], url, "as both documents say");
}
