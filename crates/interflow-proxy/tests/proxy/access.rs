//! Access rules: which destinations may be reached, and by whom.

use interflow_proxy::config::{AccessAction, AccessRule, GatewayRoute};
use interflow_testkit::{H2Client, Origin, Wire, client};
use interflow_types::ErrorKind;

use crate::support::{Proxy, inside, request};

pub fn deny(change: impl FnOnce(&mut AccessRule)) -> AccessRule {
    let mut rule = AccessRule {
        action: AccessAction::Deny,
        users: Vec::new(),
        clients: Vec::new(),
        hosts: Vec::new(),
        ports: Vec::new(),
        methods: Vec::new(),
    };
    change(&mut rule);
    rule
}

#[tokio::test]
async fn denied_host_is_denied_for_http_connect_and_socks5() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.access.rule = vec![deny(|r| r.hosts = vec!["localhost".into()])]).await;
    let answer = proxy.get(&origin.url("/")).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (403, Some("denied")));
    assert!(answer.text().contains("access.rule[0]"), "{}", answer.text());
    let refused = client::connect_tunnel(proxy.addr(), &origin.authority(), None).await;
    assert!(refused.is_err_and(|e| e.to_string().contains("403")));
    let refused = client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), None).await;
    assert!(refused.is_err_and(|e| e.to_string().contains("reply 2")));
    assert_eq!(origin.connections(), 0);
    let flows = proxy.flows(3).await;
    assert!(flows.iter().all(|f| f.error() == Some(ErrorKind::Denied)), "{flows:#?}");
}

#[tokio::test]
async fn a_method_is_denied_inside_a_tunnel_as_well() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| {
        c.access.rule = vec![deny(|r| r.methods = vec!["DELETE".into()])];
    })
    .await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    for (method, status) in [("GET", 200), ("DELETE", 403), ("GET", 200)] {
        wire.send(format!("{method} / HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority())).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn host_rule_applies_to_the_host_header_inside_a_tunnel() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.access.rule = vec![deny(|r| r.hosts = vec!["hidden.test".into()])]).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(inside("hidden.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 403);
    wire.send(inside("other.test", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(origin.only_request().authority, "other.test");
    assert!(proxy.flows(2).await.iter().all(|f| f.tags == ["host_mismatch"]));
}

#[tokio::test]
async fn private_addresses_are_denied_after_dns() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        c.access.deny_private = true;
        c.upstream.hosts.insert("rebound.test".into(), vec!["127.0.0.1".parse().unwrap()]);
    })
    .await;
    for host in ["rebound.test", "127.0.0.1", "localhost", "169.254.169.254", "[::1]", "0x7f.1"] {
        let answer = proxy.get(&format!("http://{host}:{}/", origin.port())).await;
        assert!(matches!(answer.status, 403 | 502), "{host}: {}", answer.status);
    }
    assert_eq!(origin.connections(), 0);
    assert!(proxy.errors(ErrorKind::Denied) >= 5);
}

#[tokio::test]
async fn allow_private_exempts_an_address() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        c.access.deny_private = true;
        c.access.allow_private = vec!["127.0.0.1/32".parse().unwrap()];
    })
    .await;
    assert_eq!(proxy.get(&format!("http://127.0.0.1:{}/", origin.port())).await.status, 200);
}

fn route(path: &str, to: &Origin) -> GatewayRoute {
    GatewayRoute { path: path.into(), hosts: Vec::new(), to: to.url("/v2"), strip_path: true, preserve_host: false }
}

#[tokio::test]
async fn gateway_routes_requests_by_path() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.gateway.route = vec![route("/api", &origin)]).await;
    let mut wire = Wire::connect(proxy.gateway()).await.unwrap();
    wire.send("GET /api/x?y=1 HTTP/1.1\r\nHost: gate\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let seen = origin.only_request();
    assert_eq!((seen.target.as_str(), seen.authority), ("/v2/x?y=1", origin.authority()));
    wire.send("GET /apix HTTP/1.1\r\nHost: gate\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 404);
    let connect = client::connect_on(&mut wire, "localhost:1", None).await.unwrap();
    assert_eq!(connect.status, 501);
}

#[tokio::test]
async fn gateway_serves_http2_with_prior_knowledge() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.gateway.route = vec![route("/", &origin)]).await;
    let client = H2Client::new(Wire::connect(proxy.gateway()).await.unwrap()).await.unwrap();
    let answer = client.get(&format!("http://{}/a", proxy.gateway())).await.unwrap();
    assert_eq!(answer.status, 200);
    let seen = origin.only_request();
    assert_eq!((seen.target.as_str(), seen.version.as_str()), ("/v2/a", "HTTP/2"));
}

#[tokio::test]
async fn users_do_not_share_connections_to_origins() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::asking(&["ada", "bob"], |_| ()).await;
    let mut wire = proxy.connect().await;
    for user in ["ada", "bob", "ada"] {
        let login = interflow_testkit::ProxyLogin { user, password: "enigma" };
        let field = format!("Proxy-Authorization: {}\r\n", login.basic());
        wire.send(request("GET", &origin.url("/"), &field)).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    let connections: Vec<_> = origin.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 1, 0]);
}

#[tokio::test]
async fn address_rules_see_every_spelling_of_an_address() {
    let origin = Origin::http().start().await;
    let networks = ["127.0.0.0/8", "::1/128"].map(String::from).to_vec();
    let proxy = Proxy::start(|c| c.access.rule = vec![deny(|r| r.hosts = networks)]).await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7F.0.0.1",
        "017700000001",
        "0177.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "0x0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
    ] {
        let authority = format!("{host}:{}", origin.port());
        let answer = proxy.get(&format!("http://{authority}/")).await;
        assert_eq!((answer.status, answer.header("x-interflow-error")), (403, Some("denied")), "{host}");
        let refused = client::connect_tunnel(proxy.addr(), &authority, None).await;
        assert!(refused.is_err_and(|e| e.to_string().contains("403")), "{host}");
        if !host.starts_with('[') {
            let refused = client::socks5_tunnel(proxy.addr(), host, origin.port(), None).await;
            assert!(refused.is_err_and(|e| e.to_string().contains("reply 2")), "{host}");
        }
    }
    // Inside a tunnel that is allowed, `Host` may not name it either.
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send(inside("2130706433", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 403);
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn a_method_in_lower_case_does_not_pass_by_its_rule() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.access.rule = vec![deny(|r| r.methods = vec!["POST".into(), "get".into()])]).await;
    for (method, status) in [("POST", 403), ("post", 403), ("PoSt", 403), ("GET", 403), ("PUT", 200)] {
        let mut wire = proxy.connect().await;
        wire.send(request(method, &origin.url("/"), "")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status, "{method}");
    }
}
