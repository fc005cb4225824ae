//! Reverse-proxy listeners: the client's SNI or `Host` names the origin.

use interflow_proxy::ProxyServerConfig;
use interflow_proxy::config::ReverseListener;
use interflow_testkit::{H2Client, Origin, Wire, client_trusting};
use interflow_types::ErrorKind;

use crate::access::deny;
use crate::support::{Proxy, inside};

fn reverse(config: &mut ProxyServerConfig, port: Option<u16>) {
    config.proxy.reverse = vec![ReverseListener { listen: "127.0.0.1:0".parse().unwrap(), port }];
}

async fn connect(proxy: &Proxy) -> Wire {
    Wire::connect(proxy.engine.reverse_addresses()[0]).await.unwrap()
}

#[tokio::test]
async fn reverse_listener_routes_plain_requests_by_host() {
    let (one, two) = (Origin::http().start().await, Origin::http().start().await);
    let proxy = Proxy::start(|c| reverse(c, None)).await;
    let mut wire = connect(&proxy).await;
    for origin in [&one, &two, &one] {
        wire.send(inside(&origin.authority(), "/bytes/7")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().body.len(), 7);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (2, 1));
    let flow = &proxy.flows(3).await[1];
    assert_eq!((flow.authority.clone(), flow.transport.as_str()), (two.authority(), "reverse"));
}

#[tokio::test]
async fn the_origins_port_may_be_configured() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| reverse(c, Some(origin.port()))).await;
    let mut wire = connect(&proxy).await;
    wire.send(inside("localhost:9", "/a")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(origin.only_request().target, "/a");
}

#[tokio::test]
async fn reverse_listener_routes_tls_by_sni() {
    let origin = Origin::https().start().await;
    let port = origin.port();
    let proxy = Proxy::trusting(&[&origin], |c| reverse(c, Some(port))).await;
    for alpn in ["http/1.1", "h2"] {
        let config = client_trusting(proxy.engine.ca().certificate_pem(), &[alpn]);
        let wire = connect(&proxy).await.into_tls("localhost", config).await.unwrap();
        if alpn == "h2" {
            let client = H2Client::new(wire).await.unwrap();
            assert_eq!(client.get(&format!("https://localhost:{port}/h2")).await.unwrap().status, 200);
        } else {
            let mut wire = wire;
            wire.send(inside(&origin.authority(), "/h1")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
    }
    let seen: Vec<_> = origin.requests().into_iter().map(|r| r.target).collect();
    assert_eq!(seen, ["/h1", "/h2"]);
}

#[tokio::test]
async fn reverse_request_without_an_origin_name_is_refused() {
    let proxy = Proxy::start(|c| reverse(c, None)).await;
    let own = proxy.engine.reverse_addresses()[0].to_string();
    let mut wire = connect(&proxy).await;
    wire.send(inside(&own, "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 508);
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Loop));
    let config = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    assert!(connect(&proxy).await.into_tls("127.0.0.1", config).await.is_err(), "an address is not a name for SNI");
    crate::support::until("the error to be counted", || proxy.errors(ErrorKind::UnknownProtocol) == 1).await;
}

#[tokio::test]
async fn access_rules_apply_to_reverse_listeners() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        reverse(c, None);
        c.access.rule = vec![deny(|r| r.hosts = vec!["localhost".into()])];
    })
    .await;
    let mut wire = connect(&proxy).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 403);
}
