//! Upstream proxies: HTTP and SOCKS5, with credentials, in chains, and around them.

use interflow_engine::EngineConfig;
use interflow_engine::config::UpstreamProxyRule;
use interflow_testkit::{Origin, Script};

use crate::support::{Proxy, get, inside, until};

fn via(config: &mut EngineConfig, proxies: &[String]) {
    config.upstream.proxy = vec![UpstreamProxyRule { hosts: vec!["*".into()], via: proxies.to_vec() }];
}

/// Another proxy, which asks for a password.
async fn far_proxy(name: &str) -> Proxy {
    Proxy::asking(&["ada"], |c| c.proxy.via = name.into()).await
}

#[tokio::test]
async fn requests_and_tunnels_go_through_an_upstream_proxy_with_its_password() {
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
async fn a_chain_is_passed_in_its_order() {
    let (one, two) = (far_proxy("one").await, far_proxy("two").await);
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        via(c, &[format!("socks5://ada:enigma@{}", one.addr()), format!("http://ada:enigma@{}", two.addr())]);
    })
    .await;
    let answer = proxy.get(&origin.url("/bytes/5")).await;
    assert_eq!(answer.body.len(), 5, "{}", answer.text());
    assert_eq!(origin.only_request().header("via"), Some("1.1 two"));
    until("the first proxy to carry a tunnel", || one.engine.snapshot().connections == 1).await;
    assert_eq!(two.flows(1).await[0].url, Some(format!("GET {}", origin.url("/bytes/5"))));
}

#[tokio::test]
async fn a_refusing_upstream_proxy_is_named() {
    let far = far_proxy("strict").await;
    let origin = Origin::https().start().await;
    let wrong = format!("http://ada:guess@{}", far.addr());
    let proxy = Proxy::start(|c| via(c, &[wrong])).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("upstream_proxy")));
    assert!(answer.text().contains("407") && !answer.text().contains("guess"), "{}", answer.text());
}

#[tokio::test]
async fn hosts_without_a_proxy_and_rules_by_host_are_obeyed() {
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
