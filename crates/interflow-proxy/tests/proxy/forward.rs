//! Plain requests in absolute-form.

use std::net::SocketAddr;

use bytes::Bytes;
use interflow_testkit::{Origin, Reply, Script, Wire};
use interflow_types::ErrorKind;

use crate::support::{End, Proxy, get, request};

#[tokio::test]
async fn the_second_request_of_a_connection_may_go_to_another_host() {
    let (a, b) = (Origin::http().start().await, Origin::http().start().await);
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    for (origin, n) in [(&a, 1), (&b, 2), (&a, 3)] {
        wire.send(get(&origin.url(&format!("/bytes/{n}")))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().body.len(), n);
    }
    assert_eq!((a.served(), b.served()), (2, 1));
    assert_eq!(a.connections(), 1, "the connection to the first origin is used again");
    let flows = proxy.flows(3).await;
    assert!(flows.iter().all(|f| f.end == Some(End::Complete) && f.status == Some(200)));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let slow_first = [get(&origin.url("/delay/50")), get(&origin.url("/bytes/2")), get(&origin.url("/bytes/3"))];
    wire.send(slow_first.concat()).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "hello\n");
    assert_eq!(wire.answer().await.unwrap().body.len(), 2);
    assert_eq!(wire.answer().await.unwrap().body.len(), 3);
}

#[tokio::test]
async fn end_to_end_headers_keep_order_and_case_and_hop_by_hop_ones_are_removed() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let fields = "x-B: 1\r\nConnection: X-Hop, keep-alive\r\nX-Hop: no\r\nx-b: 2\r\nProxy-Connection: keep-alive\r\n\
                  TE: gzip\r\nx-A:\r\n";
    wire.send(request("GET", &origin.url("/"), fields)).await.unwrap();
    wire.answer().await.unwrap();
    let head = String::from_utf8(origin.only_request().raw_head.to_vec()).unwrap();
    let expected = format!("GET / HTTP/1.1\r\nHost: {}\r\nx-B: 1\r\nx-b: 2\r\nx-A:", origin.authority());
    assert!(head.starts_with(&expected), "{head}");
    assert!(!head.to_ascii_lowercase().contains("hop") && !head.contains("TE:"), "{head}");
}

#[tokio::test]
async fn expectation_is_answered_with_a_single_100_continue() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let fields = "Expect: 100-continue\r\nContent-Length: 4\r\n";
    wire.send(request("POST", &origin.url("/echo"), fields)).await.unwrap();
    let interim = wire.head().await.unwrap().unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100 "), "{interim:?}");
    wire.send("body").await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "body"));
    assert!(answer.informational.is_empty(), "only one 100 is sent");
}

#[tokio::test]
async fn refused_expectation_returns_417_without_the_body() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        wire.head().await?;
        wire.send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n").await?;
        wire.to_end().await.map(drop)
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let fields = "Expect: 100-continue\r\nContent-Length: 1000000\r\n";
    wire.send(request("POST", &format!("http://{}/", origin.addr()), fields)).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 417);
}

#[tokio::test]
async fn early_hints_precede_the_response() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let answer = proxy.get(&origin.url("/early-hints")).await;
    let (status, hints) = &answer.informational[0];
    assert_eq!((*status, hints.get_str("link")), (103, Some("</style.css>; rel=preload")));
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello\n"));
    assert_eq!(proxy.flow().await.interim, [103]);
}

#[tokio::test]
async fn trailers_are_forwarded_in_both_directions() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let fields = "Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: X-Check\r\n";
    let chunks = "4\r\nbody\r\n0\r\nX-Check: yes\r\n\r\n";
    wire.send(request("POST", &origin.url("/trailers"), fields) + chunks).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.text().as_str(), answer.trailers.get_str("x-sum")), ("fourfive!", Some("9")));
    let seen = origin.only_request();
    assert_eq!((&seen.body[..], seen.trailers.get_str("x-check")), (&b"body"[..], Some("yes")));
}

#[tokio::test]
async fn responses_to_head_and_304_keep_their_header_fields() {
    let origin = Origin::http()
        .answering(|r| match r.method.as_str() {
            "HEAD" => Reply::ok("0123456789"),
            _ => Reply::status(304).header("ETag", "\"x\""),
        })
        .start()
        .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(request("HEAD", &origin.url("/"), "")).await.unwrap();
    let answer = wire.answer_to("HEAD").await.unwrap();
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("10")));
    wire.send(request("GET", &origin.url("/"), "If-None-Match: \"x\"\r\n")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("etag")), (304, Some("\"x\"")));
}

#[tokio::test]
async fn options_without_a_path_is_forwarded_with_an_asterisk() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(request("OPTIONS", &format!("http://{}", origin.authority()), "")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(origin.only_request().target, "*");
}

#[tokio::test]
async fn alt_svc_is_forwarded_unchanged() {
    let origin = Origin::http().answering(|_| Reply::ok("x").header("Alt-Svc", "h3=\":443\"; ma=60")).start().await;
    let proxy = Proxy::start(|_| ()).await;
    assert_eq!(proxy.get(&origin.url("/")).await.header("alt-svc"), Some("h3=\":443\"; ma=60"));
}

#[tokio::test]
async fn non_proxy_request_gets_400_with_instructions() {
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.addr())).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains(&format!("curl -x http://{}", proxy.addr())), "{}", answer.text());
}

#[tokio::test]
async fn requests_to_own_listeners_are_refused_as_loops() {
    let proxy = Proxy::start(|c| {
        c.upstream.hosts.insert("self.test".into(), vec!["127.0.0.1".parse().unwrap()]);
    })
    .await;
    for port in [proxy.addr().port(), proxy.gateway().port()] {
        for host in ["127.0.0.1", "self.test", "0.0.0.0", "[::ffff:127.0.0.1]"] {
            let answer = proxy.get(&format!("http://{host}:{port}/")).await;
            assert_eq!((answer.status, answer.header("x-interflow-error")), (508, Some("loop")), "{host}");
        }
    }
    assert_eq!(proxy.errors(ErrorKind::Loop), 8);
}

#[tokio::test]
async fn wildcard_listener_is_refused_under_every_local_address() {
    let proxy = Proxy::start(|c| c.proxy.listen = vec![SocketAddr::from(([0, 0, 0, 0], 0))]).await;
    let port = proxy.addr().port();
    for host in ["127.0.0.1", "127.0.0.2", "0.0.0.0"] {
        let mut wire = Wire::connect(("127.0.0.1", port)).await.unwrap();
        wire.send(get(&format!("http://{host}:{port}/"))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 508, "{host}");
    }
}

#[tokio::test]
async fn builtin_pages_serve_the_ca_certificate() {
    let proxy = Proxy::start(|_| ()).await;
    assert_eq!(proxy.get("http://interflow.local/ca.pem").await.text(), proxy.engine.ca().certificate_pem());
    assert_eq!(proxy.get("http://interflow.local/nothing").await.status, 404);
    let mut wire = proxy.tls("interflow.local:443", &["http/1.1"]).await;
    wire.send("GET / HTTP/1.1\r\nHost: interflow.local\r\n\r\n").await.unwrap();
    assert!(wire.answer().await.unwrap().text().contains(&proxy.engine.ca().fingerprint_sha256()));
    // The name that users of mitmproxy know, and only through the proxy.
    let page = async |agent: &str| {
        let mut wire = proxy.connect().await;
        let head = format!("GET http://mitm.it/ HTTP/1.1\r\nHost: mitm.it\r\nUser-Agent: {agent}\r\n\r\n");
        wire.send(head).await.unwrap();
        wire.answer().await.unwrap().text()
    };
    let first = |page: String| page.split("<h2>").nth(1).unwrap_or_default().split('<').next().unwrap().to_owned();
    assert_eq!(first(page("Mozilla/5.0 (Linux; Android 15)").await), "Android");
    assert_eq!(first(page("Mozilla/5.0 (Windows NT 10.0)").await), "Windows");
    assert_eq!(proxy.get("http://mitm.it/cert/pem").await.text(), proxy.engine.ca().certificate_pem());
}

#[tokio::test]
async fn the_page_for_phones_needs_no_proxy_settings() {
    let proxy = Proxy::start(|_| ()).await;
    let ca = proxy.engine.ca();
    let direct = async |path: &str| {
        let mut wire = proxy.connect().await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.addr())).await.unwrap();
        wire.answer().await.unwrap()
    };
    let page = direct("/setup").await;
    let port = proxy.addr().port().to_string();
    assert!(page.status == 200 && page.text().contains(&port) && page.text().contains(&ca.fingerprint_sha256()));
    let profile = direct("/ca.mobileconfig").await;
    assert_eq!(profile.header("content-type"), Some("application/x-apple-aspen-config"));
    let base64 = ca.certificate_pem().lines().filter(|l| !l.starts_with("--")).collect::<String>();
    assert!(profile.text().contains(&format!("<data>{base64}</data>")), "{}", profile.text());
    assert_eq!(direct("/ca.pem").await.text(), ca.certificate_pem());
    assert_eq!(direct("/").await.status, 400, "it is a proxy otherwise");
    assert_eq!(proxy.get("http://interflow.local/ca.mobileconfig").await.text(), profile.text());
}

#[tokio::test]
async fn via_is_added_only_when_it_is_configured() {
    let origin = Origin::http().start().await;
    let plain = Proxy::start(|_| ()).await;
    assert_eq!(plain.get(&origin.url("/")).await.header("via"), None);
    let named = Proxy::start(|c| c.proxy.via = "edge".into()).await;
    assert_eq!(named.get(&origin.url("/")).await.header("via"), Some("1.1 edge"));
    let seen: Vec<_> = origin.requests().iter().map(|r| r.header("via").map(str::to_owned)).collect();
    assert_eq!(seen, [None, Some("1.1 edge".into())]);
}

#[tokio::test]
async fn http10_client_gets_a_close_delimited_response() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(format!("GET {} HTTP/1.0\r\n\r\n", origin.url("/chunked/5000"))).await.unwrap();
    let all = wire.to_end().await.unwrap();
    let body = all.windows(4).position(|w| w == b"\r\n\r\n").map(|at| all.slice(at + 4..)).unwrap();
    assert_eq!(body, interflow_testkit::pattern(5000));
}

#[tokio::test]
async fn a_truncated_body_is_never_delivered_as_complete() {
    for answer in ["Content-Length: 100\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"] {
        let origin = Origin::script(Script::answer(Bytes::from(format!("HTTP/1.1 200 OK\r\n{answer}"))).finish()).await;
        let proxy = Proxy::start(|_| ()).await;
        let mut wire = proxy.connect().await;
        wire.send(get(&format!("http://{}/", origin.addr()))).await.unwrap();
        assert!(wire.answer().await.is_err());
        assert_eq!(proxy.flow().await.error(), Some(ErrorKind::UpstreamClosed));
    }
}

#[tokio::test]
async fn connection_bound_credentials_are_not_shared_with_other_clients() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut one = proxy.connect().await;
    for _ in 0..2 {
        one.send(request("GET", &origin.url("/"), "Authorization: NTLM TlRMTVNTUAAB\r\n")).await.unwrap();
        one.answer().await.unwrap();
    }
    one.send(get(&origin.url("/"))).await.unwrap();
    one.answer().await.unwrap();
    proxy.get(&origin.url("/")).await;
    let connections: Vec<_> = origin.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 0, 0, 1]);
}

#[tokio::test]
async fn a_higher_minor_version_is_served_and_another_major_one_is_not_supported() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    for (version, status) in [("1.2", 200), ("2.0", 505), ("0.9", 505)] {
        let mut wire = proxy.connect().await;
        wire.send(get(&origin.url("/")).replace("HTTP/1.1", &format!("HTTP/{version}"))).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, status, "{version}");
        assert_eq!(answer.text().contains("505 HTTP Version Not Supported"), status == 505, "{}", answer.text());
    }
}
