//! TLS interception: leaves, ALPN, origin certificates.

use std::sync::Arc;

use interflow_proxy::config::{AccessAction, ClientCertificateConfig, InterceptMode};
use interflow_testkit::{H2Client, Origin, Script, TestCa, Wire, client_trusting, pattern};
use interflow_types::{ErrorKind, Passthrough};

use crate::access::deny;
use crate::support::{End, Nobody, Proxy, inside};

/// A thousand handshakes at once, or as many as the limit on open files lets this process hold both ends of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_concurrent_handshakes_issue_one_leaf() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|l| l.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    let clients = (files.unwrap_or(1024_usize) / 5).min(1000);
    assert!(clients >= 100, "{files:?} open files are too few for this test");
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Arc::new(Proxy::trusting(&[&origin], |c| c.workers.count = 2).await);
    let before = proxy.engine.ca().leaves_signed();
    let start = Arc::new(tokio::sync::Barrier::new(clients));
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    let mut handshakes = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (proxy, authority) = (Arc::clone(&proxy), origin.authority());
        let (start, ours) = (Arc::clone(&start), Arc::clone(&ours));
        handshakes.spawn(async move {
            let wire = proxy.tunnel(&authority).await.patience(None);
            start.wait().await;
            wire.into_tls("localhost", ours).await.unwrap();
        });
    }
    assert_eq!(handshakes.join_all().await.len(), clients);
    assert_eq!(proxy.engine.ca().leaves_signed() - before, 1);
}

#[tokio::test]
async fn returning_client_resumes_its_tls_session_on_any_worker() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.workers.count = 2).await;
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    for name in ["localhost", "127.0.0.1"] {
        let authority = format!("{name}:{}", origin.port());
        for visit in 0..12 {
            let wire = proxy.tunnel(&authority).await;
            let mut wire = wire.into_tls(name, Arc::clone(&ours)).await.unwrap();
            assert_eq!(wire.resumed(), visit > 0, "{name}, visit {visit}");
            // Session tickets precede the response.
            wire.send(inside(&authority, "/")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
    }
}

#[tokio::test]
async fn ip_addresses_are_intercepted_with_ip_certificates() {
    let v4 = Origin::https().start().await;
    let v6 = Origin::https().bind("[::1]:0".parse().unwrap()).start().await;
    let proxy = Proxy::trusting(&[&v4, &v6], |_| ()).await;
    for authority in [format!("127.0.0.1:{}", v4.port()), format!("[::1]:{}", v6.port())] {
        let mut wire = proxy.tls(&authority, &["http/1.1"]).await;
        wire.send(inside(&authority, "/bytes/7")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().body.len(), 7, "{authority}");
    }
    let flows = proxy.flows(2).await;
    assert_eq!(flows[1].url, Some(format!("GET https://[::1]:{}/bytes/7", v6.port())));
}

#[tokio::test]
async fn negotiated_alpn_is_one_that_the_origin_supports() {
    for (speaks, offers, agreed) in [
        (&["h2", "http/1.1"][..], &["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], &["h2", "http/1.1"], Some("http/1.1")),
        (&["h2", "http/1.1"], &["http/1.1"], Some("http/1.1")),
        (&["http/1.1"], &["h2"], Some("h2")),
        (&["http/1.1"], &["imap"], None),
        (&["http/1.1"], &[], None),
    ] {
        let origin = Origin::https().alpn(speaks).start().await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let wire = proxy.tls(&origin.authority(), offers).await;
        assert_eq!(wire.tls().alpn(), agreed.map(|a| a.as_bytes().to_vec()), "{speaks:?} {offers:?}");
    }
}

#[tokio::test]
async fn the_connection_that_negotiated_alpn_serves_the_first_request() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let mut wire = proxy.tls(&origin.authority(), &["h2", "http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn invalid_upstream_certificate_returns_a_page_with_the_reason() {
    let stranger = Origin::https().start().await;
    let misnamed = Origin::https().names(&["elsewhere.test"]).start().await;
    let proxy = Proxy::trusting(&[&misnamed], |_| ()).await;
    for (origin, reason) in [(&stranger, "issuer"), (&misnamed, "elsewhere.test")] {
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        let ask = format!("GET / HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\n\r\n", origin.authority());
        wire.send(ask).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("upstream_certificate")));
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        let text = answer.text().to_lowercase();
        assert!(text.contains(reason) && text.contains("danger_insecure_hosts"), "{text}");
        assert_eq!(origin.served(), 0);
    }
    assert!(proxy.flows(2).await.iter().all(|f| f.error() == Some(ErrorKind::UpstreamCertificate)));
}

#[tokio::test]
async fn insecure_hosts_are_not_verified_and_others_are() {
    let stranger = Origin::https().start().await;
    let proxy = Proxy::start(|c| c.upstream.danger_insecure_hosts = vec!["localhost".into()]).await;
    let mut wire = proxy.tls(&stranger.authority(), &["http/1.1"]).await;
    wire.send(inside(&stranger.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let by_address = format!("127.0.0.1:{}", stranger.port());
    let mut wire = proxy.tls(&by_address, &["http/1.1"]).await;
    wire.send(inside(&by_address, "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 502);
}

#[tokio::test]
async fn excluded_hosts_present_their_own_certificate() {
    let origin = Origin::https().start().await;
    let theirs = client_trusting(origin.ca().pem(), &["http/1.1"]);
    for listed in [true, false] {
        let proxy = Proxy::start(|c| match listed {
            true => c.intercept.exclude = vec!["localhost".into()],
            false => c.intercept.mode = InterceptMode::Listed,
        })
        .await;
        let wire = proxy.tunnel(&origin.authority()).await;
        let mut wire = wire.into_tls("localhost", theirs.clone()).await.unwrap();
        wire.send(inside(&origin.authority(), "/bytes/3")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().body.len(), 3);
        drop(wire);
        let flow = proxy.flow().await;
        assert!(matches!(flow.end, Some(End::Tunnelled(b)) if b.received > 3), "{flow:#?}");
        assert_eq!(flow.url, None);
        assert_eq!(flow.passthrough, Some(if listed { Passthrough::Excluded } else { Passthrough::NotListed }));
    }
}

#[tokio::test]
async fn sni_names_the_origin_of_a_tunnel_to_an_address() {
    let origin = Origin::https().names(&["hidden.test"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let wire = proxy.tunnel(&format!("127.0.0.1:{}", origin.port())).await;
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    let mut wire = wire.into_tls("hidden.test", ours).await.unwrap();
    wire.send(inside("hidden.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(origin.only_request().sni.as_deref(), Some("hidden.test"));
    assert_eq!(proxy.flow().await.authority, format!("hidden.test:{}", origin.port()));
}

#[tokio::test]
async fn non_http_inside_intercepted_tls_is_relayed_as_a_tunnel() {
    let ca = Arc::new(TestCa::new());
    let config = ca.server(&["localhost"], &[]);
    let origin = Origin::raw(move |wire: Wire, _| {
        let config = config.clone();
        async move {
            let mut wire = wire.accept_tls(config).await?;
            let bytes = wire.exactly(5).await?;
            wire.send([&b"echo "[..], &bytes].concat()).await?;
            wire.to_end().await?;
            wire.finish().await
        }
    })
    .await;
    let proxy = Proxy::start(|c| c.upstream.danger_insecure = true).await;
    let mut wire = proxy.tls(&origin.authority(), &[]).await;
    wire.send([0, 1, 2, 3, 4]).await.unwrap();
    assert_eq!(&wire.exactly(10).await.unwrap()[..], b"echo \0\x01\x02\x03\x04");
    wire.finish().await.unwrap();
    assert!(wire.to_end().await.unwrap().is_empty());
    let flow = proxy.flow().await;
    assert!(matches!(flow.end, Some(End::Tunnelled(b)) if b.received == 10), "{flow:#?}");
}

#[tokio::test]
async fn invalid_tls_in_a_tunnel_is_relayed_as_bytes() {
    let origin = Origin::script(Script::new().exactly(6).send("what?")).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send([22, 9, 9, 1, 1, 1]).await.unwrap();
    assert_eq!(&wire.to_end().await.unwrap()[..], b"what?");
}

#[tokio::test]
async fn configured_client_certificate_is_sent_to_the_origin() {
    let clients = Arc::new(TestCa::new());
    let origin = Origin::https().client_ca(clients.clone()).start().await;
    let (chain, key) = clients.leaf_pem(&["us"]);
    let without = Proxy::trusting(&[&origin], |_| ()).await;
    let folder = without.home.path();
    std::fs::write(folder.join("us.pem"), chain).unwrap();
    std::fs::write(folder.join("us.key"), key).unwrap();
    let with = Proxy::trusting(&[&origin], |c| {
        c.upstream.client_certificate = vec![ClientCertificateConfig {
            hosts: vec!["localhost".into()],
            certificate: folder.join("us.pem"),
            key: Some(folder.join("us.key")),
            password: None,
        }];
    })
    .await;
    for (proxy, status) in [(&with, 200), (&without, 502)] {
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status);
    }
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn upstream_connections_are_shared_only_within_one_identity() {
    let origin = Origin::https().names(&["localhost", "127.0.0.1", "a.test"]).alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.upstream.danger_insecure_hosts = vec!["a.test".into()]).await;
    let ours = || client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    for (tunnel, name) in [("localhost", "localhost"), ("localhost", "localhost"), ("127.0.0.1", "a.test")] {
        let wire = proxy.tunnel(&format!("{tunnel}:{}", origin.port())).await;
        let mut wire = wire.into_tls(name, ours()).await.unwrap();
        wire.send(inside(name, "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    let used: Vec<_> = origin.requests().iter().map(|r| (r.connection, r.sni.clone().unwrap_or_default())).collect();
    assert_eq!(used, [(0, "localhost".into()), (0, "localhost".into()), (1, "a.test".into())]);
}

#[tokio::test]
async fn a_method_rule_of_the_tunnels_host_applies_under_another_server_name() {
    let origin = Origin::https().names(&["localhost", "a.test"]).alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |c| {
        let named = deny(|r| (r.hosts, r.action) = (vec!["a.test".into()], AccessAction::Allow));
        c.access.rule = vec![named, deny(|r| r.methods = vec!["DELETE".into()])];
    })
    .await;
    // An address is not another host, but that of the name.
    for (host, deleted) in [("localhost", 403), ("127.0.0.1", 200)] {
        let wire = proxy.tunnel(&format!("{host}:{}", origin.port())).await;
        let trust = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
        let mut wire = wire.into_tls("a.test", trust).await.unwrap();
        for (method, status) in [("GET", 200), ("DELETE", deleted), ("GET", 200)] {
            wire.send(format!("{method} / HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", origin.port())).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, status, "{host} {method}");
        }
    }
}

#[tokio::test]
async fn early_hints_precede_the_response_inside_tls() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/early-hints")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.informational[0].0, answer.status), (103, 200));
}

#[tokio::test]
async fn close_delimited_body_inside_tls_needs_a_close_notify() {
    for alert in [true, false] {
        let ca = Arc::new(TestCa::new());
        let config = ca.server(&["localhost"], &["http/1.1"]);
        let origin = Origin::raw(move |wire: Wire, _| {
            let config = config.clone();
            async move {
                let mut wire = wire.accept_tls(config).await?;
                wire.head().await?;
                wire.send("HTTP/1.1 200 OK\r\n\r\nall of it").await?;
                if alert { wire.finish().await } else { Ok(()) }
            }
        })
        .await;
        let proxy = Proxy::start(|c| c.upstream.danger_insecure = true).await;
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        let answer = wire.answer().await.map(|a| a.text());
        assert_eq!(answer.is_ok_and(|text| text == "all of it"), alert, "RFC 9112 9.8");
    }
}

#[tokio::test]
async fn large_bodies_pass_through_intercepted_tls_unchanged() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let body = pattern(3 << 20);
    let client: H2Client = proxy.h2(&origin.authority()).await;
    let request = http::Request::post(origin.url("/echo")).body(()).unwrap();
    assert!(client.request(request, body.slice(..500_000)).await.unwrap().body == body.slice(..500_000));
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), &format!("/bytes/{}", body.len()))).await.unwrap();
    assert!(wire.answer().await.unwrap().body == body);
}

#[tokio::test]
async fn upstream_uses_the_clients_http_version() {
    let origin = Origin::https().alpn(&["h2", "http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let client: H2Client = proxy.h2(&origin.authority()).await;
    client.request(http::Request::get(origin.url("/")).body(()).unwrap(), Default::default()).await.unwrap();
    for alpn in [&["http/1.1"][..], &[]] {
        let mut wire = proxy.tls(&origin.authority(), alpn).await;
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    let versions: Vec<_> = origin.requests().into_iter().map(|r| r.version).collect();
    assert_eq!(versions, ["HTTP/2", "HTTP/1.1", "HTTP/1.1"], "nothing is translated");
}

#[tokio::test]
async fn http2_only_origin_serves_an_http1_client() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    for _ in 0..2 {
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    assert!(origin.requests().iter().all(|r| r.version == "HTTP/2"));
}

#[tokio::test]
async fn a_missing_client_certificate_is_named_as_the_cause_over_both_versions() {
    let origin = Origin::https().client_ca(Arc::new(TestCa::new())).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    // Often, because the origin's alert and the request cross each other.
    for _ in 0..10 {
        let client = proxy.h2(&origin.authority()).await;
        let answer = client.get(&origin.url("/")).await.unwrap();
        let text = answer.text();
        assert_eq!(answer.status, 502);
        assert!(text.contains("requires a client certificate"), "{text}");
        assert!(text.contains("[[upstream.client_certificate]]"), "{text}");
    }
    let origin = Origin::https().alpn(&["http/1.1"]).client_ca(Arc::new(TestCa::new())).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    let text = wire.answer().await.unwrap().text();
    assert!(text.contains("[[upstream.client_certificate]]"), "{text}");
}

#[tokio::test]
async fn a_late_client_of_a_dead_origin_is_told_why() {
    let nobody = Nobody::new();
    let proxy = Proxy::start(|_| ()).await;
    for alpn in [&["http/1.1"][..], &["h2"]] {
        let wire = proxy.tunnel(&nobody.addr().to_string()).await;
        // Longer than `sniff_timeout`: the proxy has tried the origin by now.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let ours = client_trusting(proxy.engine.ca().certificate_pem(), alpn);
        let mut wire = wire.into_tls("127.0.0.1", ours).await.unwrap();
        let text = if alpn == ["h2"] {
            let client = H2Client::new(wire).await.unwrap();
            client.get(&format!("https://{}/", nobody.addr())).await.unwrap().text()
        } else {
            wire.send(inside(&nobody.addr().to_string(), "/")).await.unwrap();
            wire.answer().await.unwrap().text()
        };
        assert!(text.contains("refused"), "{text}");
    }
}
