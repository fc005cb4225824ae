//! Upstream proxies: HTTP and SOCKS5, with credentials, in chains, and bypassed.

use std::path::PathBuf;

use interflow_proxy::ProxyServerConfig;
use interflow_proxy::config::{GatewayRoute, InterceptMode, TlsFilePair, UpstreamProxyRule};
use interflow_testkit::{H2Client, Origin, Script, TestCa, Wire, client_trusting};
use interflow_types::ErrorKind;
use interflow_types::units::HumanDuration;

use crate::support::{Proxy, get, inside, until};

fn via(config: &mut ProxyServerConfig, proxies: &[String]) {
    config.upstream.proxy = vec![UpstreamProxyRule { hosts: vec!["*".into()], via: proxies.to_vec() }];
}

/// The sender in the last `Via` entry of the only request.
fn last_via(origin: &Origin) -> String {
    let request = origin.only_request();
    let last = request.headers.get_all("via").last().unwrap_or_default();
    String::from_utf8_lossy(last).into_owned()
}

/// An upstream proxy that requires a password.
async fn far_proxy(name: &str) -> Proxy {
    Proxy::asking(&["ada"], |c| c.proxy.via = name.into()).await
}

/// The same, without interception.
async fn blind_proxy(name: &str) -> Proxy {
    let change = |c: &mut ProxyServerConfig| {
        c.proxy.via = name.into();
        c.intercept.mode = InterceptMode::None;
    };
    Proxy::asking(&["ada"], change).await
}

#[tokio::test]
async fn requests_and_tunnels_use_the_upstream_proxy_with_its_credentials() {
    for scheme in ["http", "socks5"] {
        let far = far_proxy(&format!("far-{scheme}")).await;
        let plain = Origin::http().start().await;
        let secure = Origin::https().start().await;
        let proxy = Proxy::trusting(&[&secure], |c| {
            via(c, &[format!("{scheme}://ada:enigma@{}", far.addr())]);
            c.upstream.danger_insecure = true;
        })
        .await;
        assert_eq!(proxy.get(&plain.url("/bytes/3")).await.body.len(), 3, "{scheme}");
        let mut wire = proxy.tls(&secure.authority(), &["http/1.1"]).await;
        wire.send(inside(&secure.authority(), "/bytes/4")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 502, "{scheme}: the far proxy does not trust the origin");
        assert_eq!(plain.only_request().header("proxy-authorization"), None);
        let first = far.flows(1).await.remove(0);
        assert_eq!(first.user.as_deref(), Some("ada"), "{scheme}");
    }
}

#[tokio::test]
async fn upstream_proxy_chain_is_traversed_in_order() {
    let (one, two) = (far_proxy("one").await, far_proxy("two").await);
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        via(c, &[format!("socks5://ada:enigma@{}", one.addr()), format!("http://ada:enigma@{}", two.addr())]);
    })
    .await;
    let answer = proxy.get(&origin.url("/bytes/5")).await;
    assert_eq!(answer.body.len(), 5, "{}", answer.text());
    assert_eq!(last_via(&origin), "1.1 two");
    until("the first proxy to carry a tunnel", || one.engine.snapshot().connections == 1).await;
    assert_eq!(two.flows(1).await[0].url, Some(format!("GET {}", origin.url("/bytes/5"))));
}

/// An upstream proxy reached over TLS that requires a password, and the file of its CA.
async fn secured_proxy(name: &str) -> (Proxy, PathBuf) {
    let ca = TestCa::new();
    let (chain, key) = ca.leaf_pem(&["localhost", "127.0.0.1"]);
    let far = Proxy::asking(&["ada"], |c| {
        let folder = c.auth.users.as_ref().unwrap().parent().unwrap();
        let files = TlsFilePair { certificate: folder.join("chain"), key: folder.join("key") };
        std::fs::write(&files.certificate, chain).unwrap();
        std::fs::write(&files.key, key).unwrap();
        std::fs::write(folder.join("authority"), ca.pem()).unwrap();
        c.proxy.tls = Some(files);
        c.proxy.via = name.into();
        // Tunnels are not intercepted, so that the near proxy sees the origin's own certificate.
        c.intercept.mode = InterceptMode::None;
    })
    .await;
    let authority = far.home.path().join("authority");
    (far, authority)
}

#[tokio::test]
async fn https_upstream_proxy_carries_requests_and_tunnels_with_credentials() {
    let (far, authority) = secured_proxy("far").await;
    let (plain, secure) = (Origin::http().start().await, Origin::https().start().await);
    let url = format!("https://ada:enigma@localhost:{}", far.addr().port());
    let proxy = Proxy::trusting(&[&secure], |c| {
        via(c, std::slice::from_ref(&url));
        c.upstream.extra_ca.push(authority.clone());
    })
    .await;
    let answer = proxy.get(&plain.url("/bytes/3")).await;
    assert_eq!(answer.body.len(), 3, "{}", answer.text());
    assert_eq!(last_via(&plain), "1.1 far");
    assert_eq!(plain.only_request().header("proxy-authorization"), None);
    // TLS to the origin inside TLS to the proxy.
    for (alpn, path) in [("http/1.1", "/bytes/4"), ("h2", "/bytes/5")] {
        let mut wire = proxy.tls(&secure.authority(), &[alpn]).await;
        let answer = match alpn {
            "h2" => proxy.h2(&secure.authority()).await.get(&secure.url(path)).await.unwrap(),
            _ => {
                wire.send(inside(&secure.authority(), path)).await.unwrap();
                wire.answer().await.unwrap()
            }
        };
        assert_eq!(answer.status, 200, "{alpn}: {}", answer.text());
    }
    assert!(far.flows(1).await.iter().all(|f| f.user.as_deref() == Some("ada")));
}

#[tokio::test]
async fn upstream_proxy_with_an_invalid_certificate_gets_no_credentials() {
    let (far, _) = secured_proxy("far").await;
    let plain = Origin::http().start().await;
    let url = format!("https://ada:enigma@localhost:{}", far.addr().port());
    let proxy = Proxy::start(|c| via(c, &[url])).await;
    let answer = proxy.get(&plain.url("/")).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("localhost") && answer.text().contains("certificate"), "{}", answer.text());
    assert!(!answer.text().contains("enigma"), "{}", answer.text());
    assert_eq!(plain.connections(), 0);
}

#[tokio::test]
async fn a_chain_may_mix_all_kinds_of_proxies() {
    let (secured, authority) = secured_proxy("secured").await;
    let (socks, last) = (blind_proxy("socks").await, blind_proxy("last").await);
    let (plain, secure) = (Origin::http().start().await, Origin::https().start().await);
    let proxy = Proxy::trusting(&[&secure], |c| {
        let hops = [
            format!("socks5://ada:enigma@{}", socks.addr()),
            format!("https://ada:enigma@localhost:{}", secured.addr().port()),
            format!("http://ada:enigma@{}", last.addr()),
        ];
        via(c, &hops);
        c.upstream.extra_ca.push(authority.clone());
    })
    .await;
    let answer = proxy.get(&plain.url("/bytes/6")).await;
    assert_eq!(answer.body.len(), 6, "{}", answer.text());
    assert_eq!(last_via(&plain), "1.1 last");
    let mut wire = proxy.tls(&secure.authority(), &["http/1.1"]).await;
    wire.send(inside(&secure.authority(), "/bytes/7")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 7);
    until("each proxy of the chain to have been passed", || {
        [&socks, &secured, &last].iter().all(|p| p.engine.snapshot().connections >= 1)
    })
    .await;
    assert_eq!(last.flows(1).await[0].user.as_deref(), Some("ada"));
}

#[tokio::test]
async fn upstream_proxy_refusal_is_reported_without_credentials() {
    let far = far_proxy("strict").await;
    let origin = Origin::https().start().await;
    let wrong = format!("http://ada:guess@{}", far.addr());
    let proxy = Proxy::start(|c| via(c, &[wrong])).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("upstream_proxy")));
    assert!(answer.text().contains("407") && !answer.text().contains("guess"), "{}", answer.text());
    // Without TLS too, where the request goes to that proxy in absolute-form.
    let plain = Origin::http().start().await;
    let answer = proxy.get(&plain.url("/")).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("upstream_proxy")));
    assert!(answer.text().contains("it does not accept the credentials"), "{}", answer.text());
    assert_eq!(answer.header("proxy-authenticate"), None);
}

#[tokio::test]
async fn no_proxy_and_proxy_rules_by_host_are_applied() {
    let origin = Origin::http().start().await;
    let unused = Origin::script(Script::new().stall()).await;
    let proxy = Proxy::start(|c| {
        via(c, &[format!("http://{}", unused.addr())]);
        c.upstream.no_proxy = vec!["localhost".into()];
    })
    .await;
    assert_eq!(proxy.get(&origin.url("/")).await.status, 200);
    let proxy = Proxy::start(|c| {
        let rule = |host: &str, via: Vec<String>| UpstreamProxyRule { hosts: vec![host.into()], via };
        c.upstream.proxy = vec![rule("localhost", Vec::new()), rule("*", vec![format!("http://{}", unused.addr())])];
    })
    .await;
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(unused.connections(), 0);
}

#[tokio::test]
async fn private_address_filter_applies_to_targets_of_upstream_proxies() {
    let origin = Origin::http().start().await;
    for scheme in ["http", "socks5"] {
        let far = Proxy::start(|_| ()).await;
        let url = format!("{scheme}://{}", far.addr());
        let proxy = Proxy::start(|c| {
            via(c, &[url]);
            c.access.deny_private = true;
            c.upstream.hosts.insert("inside.test".into(), vec!["10.0.0.7".parse().unwrap()]);
            c.upstream
                .hosts
                .insert("both.test".into(), vec!["192.0.9.1".parse().unwrap(), "10.0.0.7".parse().unwrap()]);
        })
        .await;
        for host in [
            "127.0.0.1",
            "localhost",
            "a.localhost.",
            "10.1.2.3",
            "[::1]",
            "inside.test",
            "both.test",
            "unknown.invalid",
        ] {
            let answer = proxy.get(&format!("http://{host}:{}/", origin.port())).await;
            assert_eq!(answer.header("x-interflow-error"), Some("denied"), "{scheme} {host}: {}", answer.text());
        }
        assert_eq!(far.engine.snapshot().connections_open, 0);
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn own_ports_are_not_reachable_through_an_upstream_proxy() {
    let far = Proxy::start(|_| ()).await;
    let proxy = Proxy::start(|c| via(c, &[format!("http://{}", far.addr())])).await;
    for host in ["127.0.0.1", "localhost"] {
        let own = format!("{host}:{}", proxy.gateway().port());
        assert_eq!(proxy.get(&format!("http://{own}/")).await.status, 508, "{own}");
        let mut wire = proxy.tunnel(&own).await;
        wire.send(inside(&own, "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 508, "{own}");
    }
}

#[tokio::test]
async fn a_name_that_only_the_upstream_proxy_resolves_is_allowed_if_configured() {
    let origin = Origin::http().start().await;
    let far = Proxy::start(|c| {
        c.upstream.hosts.insert("far.invalid".into(), vec!["127.0.0.1".parse().unwrap()]);
    })
    .await;
    for allowed in [false, true] {
        let proxy = Proxy::start(|c| {
            via(c, &[format!("http://{}", far.addr())]);
            c.access.deny_private = true;
            c.access.allow_unresolved = allowed;
        })
        .await;
        let answer = proxy.get(&format!("http://far.invalid:{}/", origin.port())).await;
        assert_eq!(answer.status, if allowed { 200 } else { 403 }, "{}", answer.text());
        assert_eq!(answer.text().contains("access.allow_unresolved"), !allowed);
    }
}

/// Two proxies that use each other as upstream proxy.
async fn circle(scheme: &str, change: impl Fn(&mut ProxyServerConfig)) -> (Proxy, Proxy) {
    let one = Proxy::start(|_| ()).await;
    let other = Proxy::start(|c| {
        change(c);
        via(c, &[format!("{scheme}://{}", one.addr())]);
    })
    .await;
    let mut config = one.engine.config();
    change(&mut config);
    via(&mut config, &[format!("{scheme}://{}", other.addr())]);
    one.engine.reload(config).unwrap();
    (one, other)
}

#[tokio::test]
async fn request_loop_between_proxies_is_detected() {
    let (one, other) = circle("http", |_| ()).await;
    let answer = one.get("http://192.0.2.1/").await;
    assert_eq!(answer.status, 508, "{}", answer.text());
    let (asked, asked_other) = (one.engine.snapshot().requests, other.engine.snapshot().requests);
    assert!(asked <= 2 && asked_other <= 1, "{asked} and {asked_other}");
}

#[tokio::test]
async fn tunnel_loop_between_proxies_is_detected() {
    for mode in [InterceptMode::None, InterceptMode::All] {
        // Neither trusts the other's CA, so interception would fail before the loop closes.
        let (one, other) = circle("http", |c| {
            c.intercept.mode = mode;
            c.upstream.danger_insecure = true;
        })
        .await;
        let mut wire = one.connect().await;
        wire.send("CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\r\n").await.unwrap();
        let answer = wire.answer_to("CONNECT").await.unwrap();
        if mode == InterceptMode::None {
            assert_eq!(answer.status, 508, "{}", answer.text());
        } else {
            let wire = wire.into_tls("192.0.2.1", client_trusting(one.engine.ca().certificate_pem(), &["http/1.1"]));
            let mut wire = wire.await.unwrap();
            wire.send(inside("192.0.2.1", "/")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 508);
        }
        let looped = one.errors(ErrorKind::Loop) + other.errors(ErrorKind::Loop);
        assert!((1..=4).contains(&looped), "{mode:?}: {looped}");
    }
}

#[tokio::test]
async fn request_loop_between_gateways_is_detected() {
    let route = |to: std::net::SocketAddr| GatewayRoute {
        path: "/".into(),
        hosts: Vec::new(),
        to: format!("http://{to}"),
        strip_path: false,
        preserve_host: false,
    };
    let one = Proxy::start(|_| ()).await;
    let other = Proxy::start(|c| c.gateway.route = vec![route(one.gateway())]).await;
    let mut config = one.engine.config();
    config.gateway.route = vec![route(other.gateway())];
    one.engine.reload(config).unwrap();
    let mut wire = Wire::connect(one.gateway()).await.unwrap();
    wire.send(inside("gate", "/x")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 508);
}

#[tokio::test]
async fn silent_upstream_proxy_takes_the_time_to_connect_once() {
    let silent = Origin::raw(|mut wire: Wire, _| async move { wire.to_end().await.map(drop) }).await;
    for (i, scheme) in ["http", "https", "socks5"].into_iter().enumerate() {
        let proxy = Proxy::start(|c| {
            via(c, &[format!("{scheme}://{}", silent.addr())]);
            c.timeouts.connect = HumanDuration::from_millis(300);
        })
        .await;
        let wire = proxy.tls("far.test:443", &["h2", "http/1.1"]).await;
        let answer = H2Client::new(wire).await.unwrap().get("https://far.test/").await.unwrap();
        let text = answer.text();
        assert_eq!(answer.status.to_string().as_bytes()[0], b'5', "{scheme}: {text}");
        assert!(text.contains("within 0."), "{scheme}: {text}");
        assert_eq!(silent.connections(), i + 1, "{scheme}: one attempt");
    }
}

#[tokio::test]
async fn an_origin_behind_socks5_is_not_told_of_the_proxy() {
    let (plain, secure) = (Origin::http().start().await, Origin::https().start().await);
    let far = Proxy::start(|c| c.intercept.mode = InterceptMode::None).await;
    let proxy = Proxy::trusting(&[&secure], |c| via(c, &[format!("socks5://{}", far.addr())])).await;
    assert_eq!(proxy.get(&plain.url("/")).await.status, 200);
    let mut wire = proxy.tls(&secure.authority(), &["http/1.1"]).await;
    wire.send(inside(&secure.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    for origin in [&plain, &secure] {
        assert_eq!(origin.only_request().header("via"), None);
    }
}
