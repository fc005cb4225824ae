//! Actions that affect upstream and downstream connections, verified on the wire.

use interflow_testkit::{Origin, Reply, Request, TestCa};
use serde_json::Value;

use crate::default_rules_file::{Home, until};

/// A configuration that trusts this CA for upstream TLS.
fn trusting(home: &Home, ca: &TestCa, more: &str) -> String {
    let pem = home.write("origins.pem", ca.pem());
    home.write("interflow.toml", &format!("[upstream]\nextra_ca = ['{pem}']\n{more}\n"))
}

fn own_ca(home: &Home) -> String {
    std::fs::read_to_string(home.path("ca/ca.pem")).unwrap()
}

/// A DNS server that answers every A query with 127.0.0.1 and has no other records (RFC 1035 section 4.1).
fn names(request: &Request) -> Reply {
    let question = &request.body[12..];
    let end = question.iter().position(|b| *b == 0).unwrap() + 5;
    let is_v4 = question[end - 3] == 1;
    let mut message = request.body[..2].to_vec();
    message.extend([0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
    message.extend(&question[..end]);
    if is_v4 {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Reply::ok(message).header("Content-Type", "application/dns-message")
}

async fn name_server() -> Origin {
    Origin::https().names(&["localhost"]).answering(names).start().await
}

#[tokio::test]
async fn dns_over_https_is_used_by_rule_and_by_configuration() {
    let server = name_server().await;
    let url = format!("https://localhost:{}/dns-query", server.port());
    for by_rule in [true, false] {
        let home = Home::new().await;
        let more = if by_rule { String::new() } else { format!("dns_over_https = '{url}'") };
        let config = trusting(&home, server.ca(), &more);
        let rules = if by_rule {
            format!("rules: [{{name: doh, when: 'host:shop.test', then: {{dns_over_https: '{url}'}}}}]")
        } else {
            "rules: []".to_owned()
        };
        let rules = home.write("r.yaml", &rules);
        let running = home.start_with(&["--rules", &rules, "--config", &config]);
        let before = server.served();
        let answer = running.get(&format!("http://shop.test:{}/bytes/5", home.origin.port())).await;
        assert_eq!((answer.status, answer.body.len()), (200, 5), "{}", answer.text());
        assert_eq!(server.served() - before, 2, "one question for each family");
        assert_eq!(home.origin.only_request().header("host"), Some(&*format!("shop.test:{}", home.origin.port())));
        if by_rule {
            let other = running.get(&format!("http://elsewhere.invalid:{}/", home.origin.port())).await;
            assert_eq!((other.status, server.served() - before), (502, 2), "other hosts are none of its business");
        }
    }
}

#[tokio::test]
async fn unverified_doh_server_is_not_queried() {
    let home = Home::new().await;
    let server = name_server().await;
    let url = format!("https://localhost:{}/dns-query", server.port());
    let rules = home.write("r.yaml", &format!("rules: [{{then: {{dns_over_https: '{url}'}}}}]"));
    let running = home.start(&rules);
    let answer = running.get(&format!("http://shop.test:{}/", home.origin.port())).await;
    assert!(answer.status == 502 && answer.text().contains("certificate"), "{} {}", answer.status, answer.text());
    assert_eq!(server.served(), 0);
}

#[tokio::test]
async fn tls_version_rule_restricts_the_upstream_version() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost"]).start().await;
    let config = trusting(&home, origin.ca(), "");
    let rules = home.write(
        "r.yaml",
        "rules: [{when: 'path:/old', then: {tls_version: 1.2}}, {when: 'path:/new', then: {tls_version: 1.3}}]",
    );
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    for (path, version) in [("/old", "TLSv1.2"), ("/new", "TLSv1.3"), ("/other", "TLSv1.3")] {
        let authority = format!("localhost:{}", origin.port());
        let mut wire = running.tls(&authority, "localhost", &own_ca(&home), &["http/1.1"]).await.unwrap();
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")).await.unwrap();
        wire.answer().await.unwrap();
        until("the flow", async || recorded(&home, path).is_some()).await;
        assert_eq!(recorded(&home, path).unwrap()["upstream"]["tls"]["version"], version, "{path}");
    }
}

fn recorded(home: &Home, path: &str) -> Option<Value> {
    let listed = home.run(&["flows", "list", &format!("path:{path}"), "-is:open", "--format", "jsonl"]).out;
    serde_json::from_str(listed.lines().next()?).ok()
}

#[tokio::test]
async fn serve_http1_rule_offers_clients_only_http1() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost", "127.0.0.1"]).start().await;
    let config = trusting(&home, origin.ca(), "");
    let rules = home.write("r.yaml", "rules: [{when: 'host:localhost', then: serve_http1}]");
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    for (host, agreed) in [("localhost", "http/1.1"), ("127.0.0.1", "h2")] {
        let authority = format!("{host}:{}", origin.port());
        let wire = running.tls(&authority, host, &own_ca(&home), &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(wire.tls().alpn().as_deref(), Some(agreed.as_bytes()), "{host}");
    }
}

#[tokio::test]
async fn show_certificate_rule_presents_the_given_certificate() {
    let home = Home::new().await;
    let corporate = TestCa::new();
    let (chain, key) = corporate.leaf_pem(&["localhost"]);
    std::fs::write(home.own_file("shown.crt"), &chain).unwrap();
    std::fs::write(home.own_file("shown.key"), &key).unwrap();
    let rules = home.write(
        "r.yaml",
        "rules: [{when: 'host:localhost', then: {show_certificate: {certificate: own/shown.crt, key: own/shown.key}}}]",
    );
    let running = home.start(&rules);
    let authority = format!("localhost:{}", home.origin.port());
    assert!(running.tls(&authority, "localhost", corporate.pem(), &["http/1.1"]).await.is_ok());
    assert!(
        running.tls(&authority, "localhost", &own_ca(&home), &["http/1.1"]).await.is_err(),
        "it is not a leaf of ours"
    );
}

#[tokio::test]
async fn no_origin_is_probed_before_a_rule_selects_the_route() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["shop.test"]).start().await;
    let trap = Origin::https().names(&["shop.test"]).start().await;
    // DNS resolves the host to the trap; the rule overrides the address.
    let config = trusting(&home, origin.ca(), "[upstream.hosts]\n'shop.test' = ['127.0.0.1']");
    let rules = home.write(
        "r.yaml",
        &format!("rules: [{{when: 'host:shop.test', then: {{connect_to: '127.0.0.1:{}'}}}}]", origin.port()),
    );
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    let authority = format!("shop.test:{}", trap.port());
    let mut wire = running.tls(&authority, "shop.test", &own_ca(&home), &["http/1.1"]).await.unwrap();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let wire = running.tls(&authority, "shop.test", &own_ca(&home), &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(wire.tls().alpn().as_deref(), Some(&b"h2"[..]));
    assert_eq!((trap.connections(), origin.served()), (0, 1));
}

#[tokio::test]
async fn tags_and_variables_of_a_tunnel_apply_to_its_requests() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost"]).start().await;
    let config = trusting(&home, origin.ca(), "");
    let rules = home.write(
        "r.yaml",
        "rules: [{when: 'host:localhost', then: [{tag: shop}, {set_variable: {x: '${host}'}}]}, {then: {set_request_header: {X-Var: '${var.x}'}}}]",
    );
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    let authority = format!("localhost:{}", origin.port());
    let mut wire = running.tls(&authority, "localhost", &own_ca(&home), &["http/1.1"]).await.unwrap();
    wire.send(format!("GET /inside HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")).await.unwrap();
    wire.answer().await.unwrap();
    assert_eq!(origin.only_request().header("x-var"), Some("localhost"));
    until("the flow", async || recorded(&home, "/inside").is_some()).await;
    let tags = recorded(&home, "/inside").unwrap()["tags"].clone();
    assert!(tags.as_array().unwrap().contains(&"shop".into()), "{tags}");
}

#[tokio::test]
async fn unloadable_import_fails_with_the_option_name() {
    let home = Home::new().await;
    let config = home.write("config.yaml", "mode: [socks5]\nssl_insecure: true\nblock_list: ['/!jpg/418']\n");
    let said = home.run(&["import", "mitmproxy", &config]);
    assert!(
        said.out.contains("block:") && said.err.contains("ssl_insecure") && said.err.contains("mode"),
        "{} {}",
        said.out,
        said.err
    );
    let said = home.run(&["import", "mitmproxy", "--set", "stickycookie=~b secret"]);
    assert!(said.err.contains("stickycookie cannot be imported") && said.out.is_empty(), "{} {}", said.out, said.err);
    assert_ne!(said.code, 0);
}
