//! The identity of a gateway client: the name in its certificate, and the address that a trusted reverse proxy names.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use interflow_proxy::config::{ClientAuthMode, GatewayRoute, ProxyServerConfig, TlsFilePair};
use interflow_testkit::{Origin, TestCa, TlsClientConfig, Wire, client_showing, client_trusting};

use crate::access::deny;
use crate::support::{Proxy, config};

fn everything_to(origin: &Origin) -> Vec<GatewayRoute> {
    let to = origin.url("");
    vec![GatewayRoute { path: "/".into(), hosts: Vec::new(), to, strip_path: false, preserve_host: false }]
}

async fn status(wire: &mut Wire, fields: &str) -> u16 {
    wire.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")).await.unwrap();
    wire.answer().await.unwrap().status
}

/// Certificate files of a gateway with mutual TLS.
struct Files {
    folder: tempfile::TempDir,
    servers: TestCa,
    clients: TestCa,
}

impl Files {
    fn new() -> Self {
        let (folder, servers, clients) = (tempfile::tempdir().unwrap(), TestCa::new(), TestCa::new());
        let (chain, key) = servers.leaf_pem(&["localhost"]);
        fs::write(folder.path().join("gate.pem"), chain).unwrap();
        fs::write(folder.path().join("gate.key"), key).unwrap();
        fs::write(folder.path().join("clients.pem"), clients.pem()).unwrap();
        Self { folder, servers, clients }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn configure(&self, config: &mut ProxyServerConfig) {
        let (certificate, key) = (self.path().join("gate.pem"), self.path().join("gate.key"));
        config.gateway.tls = Some(TlsFilePair { certificate, key });
        config.gateway.client_ca = vec![self.path().join("clients.pem")];
    }

    /// A client with a certificate signed by this authority.
    fn client_of(&self, authority: &TestCa) -> Arc<TlsClientConfig> {
        let (chain, key) = authority.leaf_pem(&["ann.test"]);
        client_showing(self.servers.pem(), (&chain, &key), &["http/1.1"])
    }
}

async fn over_tls(gate: SocketAddr, client: Arc<TlsClientConfig>) -> std::io::Result<Wire> {
    Wire::connect(gate).await?.into_tls("localhost", client).await
}

/// The status of a response, if there is one.
async fn try_status(gate: SocketAddr, client: Arc<TlsClientConfig>) -> Option<u16> {
    let mut wire = over_tls(gate, client).await.ok()?;
    wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.ok()?;
    wire.answer().await.ok().map(|answer| answer.status)
}

#[tokio::test]
async fn client_certificate_is_required_and_identifies_the_user() {
    let (origin, files) = (Origin::http().start().await, Files::new());
    let proxy = Proxy::start(|c| {
        files.configure(c);
        c.gateway.route = everything_to(&origin);
    })
    .await;
    let gate = proxy.gateway();
    let without = client_trusting(files.servers.pem(), &["http/1.1"]);
    assert_eq!(try_status(gate, without).await, None);
    assert_eq!(try_status(gate, files.client_of(&TestCa::new())).await, None, "of another authority");
    let mut plain = Wire::connect(gate).await.unwrap();
    assert_eq!(status(&mut plain, "").await, 403, "the port speaks without TLS too");
    assert_eq!(origin.served(), 0);
    // Shared, the configuration would resume its session.
    let ann = files.client_of(&files.clients);
    for _ in 0..2 {
        let mut wire = over_tls(gate, Arc::clone(&ann)).await.unwrap();
        assert_eq!(status(&mut wire, "").await, 200);
        assert!(!wire.resumed(), "each connection shows its certificate");
    }
    let flow = &proxy.flows(2).await[0];
    assert_eq!(flow.user.as_deref(), Some("testkit leaf"));
    assert!(flow.tags.contains(&"certificate:testkit leaf".to_owned()), "{flow:#?}");
}

#[tokio::test]
async fn access_rules_match_the_name_of_a_client_certificate() {
    let (origin, files) = (Origin::http().start().await, Files::new());
    let proxy = Proxy::start(|c| {
        files.configure(c);
        c.gateway.client_auth = Some(ClientAuthMode::Request);
        c.gateway.route = everything_to(&origin);
        c.access.rule = vec![deny(|r| r.users = vec!["testkit leaf".into()])];
    })
    .await;
    let gate = proxy.gateway();
    assert_eq!(try_status(gate, files.client_of(&files.clients)).await, Some(403));
    let without = client_trusting(files.servers.pem(), &["http/1.1"]);
    assert_eq!(try_status(gate, without).await, Some(200), "a certificate is only asked for");
    assert_eq!(try_status(gate, files.client_of(&TestCa::new())).await, None, "but one that is shown must be good");
    assert_eq!(status(&mut Wire::connect(gate).await.unwrap(), "").await, 200);
}

#[tokio::test]
async fn reload_with_client_certificates_applies_to_open_connections() {
    let (origin, files) = (Origin::http().start().await, Files::new());
    let proxy = Proxy::start(|c| c.gateway.route = everything_to(&origin)).await;
    let mut wire = Wire::connect(proxy.gateway()).await.unwrap();
    assert_eq!(status(&mut wire, "").await, 200);
    let mut config = proxy.engine.config();
    files.configure(&mut config);
    proxy.engine.reload(config).unwrap();
    assert_eq!(status(&mut wire, "").await, 403);
}

#[tokio::test]
async fn invalid_client_authorities_are_reported_with_their_key() {
    let files = Files::new();
    fs::write(files.path().join("empty.pem"), "nothing").unwrap();
    type Change<'a> = Box<dyn FnOnce(&mut ProxyServerConfig) + 'a>;
    let cases: Vec<(Change<'_>, &str)> = vec![
        (Box::new(|c| c.gateway.tls = None), "gateway.client_ca: client certificates need TLS"),
        (Box::new(|c| c.gateway.client_ca = vec![files.path().join("gone.pem")]), "gone.pem cannot be read"),
        (Box::new(|c| c.gateway.client_ca = vec![files.path().join("empty.pem")]), "empty.pem"),
        (
            Box::new(|c| {
                c.gateway.client_ca = Vec::new();
                c.gateway.client_auth = Some(ClientAuthMode::Require);
            }),
            "gateway.client_auth: no client certificate authority",
        ),
    ];
    for (change, says) in cases {
        let mut config = config();
        files.configure(&mut config);
        change(&mut config);
        let error = interflow_proxy::check(&config).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn trusted_proxy_sets_the_client_address_per_request() {
    let origin = Origin::http().start().await;
    let rules = || vec![deny(|r| r.clients = vec!["9.9.9.9/32".parse().unwrap()])];
    let trusting = Proxy::start(|c| {
        c.gateway.route = everything_to(&origin);
        c.gateway.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        c.access.rule = rules();
    })
    .await;
    let mut wire = Wire::connect(trusting.gateway()).await.unwrap();
    for (fields, expected) in [
        ("", 200),
        ("X-Forwarded-For: 9.9.9.9\r\n", 403),
        ("X-Forwarded-For: 8.8.8.8\r\n", 200),
        ("X-Forwarded-For: 8.8.8.8, 9.9.9.9\r\n", 403),
        ("X-Forwarded-For: 8.8.8.8, 9.9.9.9, 10.0.0.7\r\n", 403),
        ("X-Forwarded-For: 9.9.9.9, 8.8.8.8\r\n", 200),
        ("X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-For: 9.9.9.9\r\n", 403),
        ("", 200),
    ] {
        assert_eq!(status(&mut wire, fields).await, expected, "{fields:?}");
    }
    let other = Proxy::start(|c| {
        c.gateway.route = everything_to(&origin);
        c.access.rule = rules();
    })
    .await;
    let mut wire = Wire::connect(other.gateway()).await.unwrap();
    assert_eq!(status(&mut wire, "X-Forwarded-For: 9.9.9.9\r\n").await, 200, "nobody is trusted unless named");
}
