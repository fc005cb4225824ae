//! The server's lifecycle: limits, timeouts, listeners, reload and shutdown.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use interflow_proxy::config::TlsFilePair;
use interflow_testkit::{H2Client, Origin, TestCa, Wire, client_trusting};
use interflow_types::ErrorKind;
use interflow_types::units::HumanDuration;

use crate::support::{Proxy, config, get, until};

#[tokio::test]
async fn clients_beyond_a_limit_get_an_error_and_others_are_served() {
    let origin = Origin::http().start().await;
    for per_client in [false, true] {
        let proxy = Proxy::start(|c| match per_client {
            true => c.limits.connections_per_client = 1,
            false => c.limits.connections = 1,
        })
        .await;
        let mut first = proxy.connect().await;
        first.send(get(&origin.url("/"))).await.unwrap();
        assert_eq!(first.answer().await.unwrap().status, 200);
        let mut second = proxy.connect().await;
        let answer = second.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-interflow-error")), (503, Some("limited")));
        assert!(answer.text().contains("limits.connections"), "{}", answer.text());
        first.send(get(&origin.url("/"))).await.unwrap();
        assert_eq!(first.answer().await.unwrap().status, 200);
        drop(first);
        until("the connection to be given back", || proxy.engine.snapshot().connections_open == 0).await;
        assert_eq!(proxy.get(&origin.url("/")).await.status, 200);
        assert_eq!(proxy.engine.snapshot().connections_refused, 1);
    }
}

#[tokio::test]
async fn new_connections_per_second_are_limited() {
    let proxy = Proxy::start(|c| c.limits.accept_rate = 2).await;
    let mut refused = 0;
    for _ in 0..5 {
        let mut wire = proxy.connect().await;
        wire.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        refused += usize::from(wire.answer().await.unwrap().status == 503);
    }
    assert!((1..=3).contains(&refused), "{refused} of 5");
}

#[tokio::test]
async fn slow_heads_and_idle_connections_time_out() {
    let proxy = Proxy::start(|c| {
        c.timeouts.header_timeout = HumanDuration::from_millis(80);
        c.timeouts.idle = HumanDuration::from_millis(160);
    })
    .await;
    let begun = Instant::now();
    let mut slow = proxy.connect().await;
    slow.send("GET http://a/ HTTP/1.1\r\nHost").await.unwrap();
    assert_eq!(slow.answer().await.unwrap().status, 408);
    let mut idle = proxy.connect().await;
    assert!(idle.to_end().await.unwrap().is_empty(), "closed without a word");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn stalled_client_handshake_times_out() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.timeouts.handshake = HumanDuration::from_millis(80)).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    let hello = hello_of(&origin).await;
    wire.send(&hello).await.unwrap();
    // The server's handshake flight arrives, then the end: it is never answered.
    assert!(!wire.to_end().await.unwrap_or_default().is_empty());
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientTimeout));
}

/// A ClientHello.
pub(crate) async fn hello_of(origin: &Origin) -> Vec<u8> {
    let (sink, taken) = tokio::sync::oneshot::channel();
    let sink = std::sync::Mutex::new(Some(sink));
    let catcher = Origin::raw(move |mut wire: Wire, _| {
        let sink = sink.lock().unwrap().take();
        async move {
            let bytes = wire.some().await?;
            if let Some(sink) = sink {
                let _ = sink.send(bytes.to_vec());
            }
            Ok(())
        }
    })
    .await;
    let wire = Wire::connect(catcher.addr()).await.unwrap();
    let _ = wire.into_tls("localhost", origin.ca().client(&["http/1.1"])).await;
    taken.await.unwrap()
}

#[tokio::test]
async fn stalled_upstream_handshake_times_out() {
    let origin = Origin::raw(|mut wire: Wire, _| async move { wire.to_end().await.map(drop) }).await;
    let proxy = Proxy::start(|c| c.timeouts.handshake = HumanDuration::from_millis(80)).await;
    let mut wire = proxy.tls(&format!("localhost:{}", origin.port()), &["http/1.1"]).await;
    wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert!(matches!(answer.status, 502 | 504), "{}", answer.text());
}

#[tokio::test]
async fn unresponsive_address_times_out_on_connect() {
    // A full backlog: the kernel drops new connections.
    let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    let mut fill = Vec::new();
    for _ in 0..5000 {
        match tokio::time::timeout(Duration::from_millis(30), tokio::net::TcpStream::connect(addr)).await {
            Ok(Ok(stream)) => fill.push(stream),
            _ => break,
        }
    }
    let proxy = Proxy::start(|c| c.timeouts.connect = HumanDuration::from_millis(80)).await;
    let answer = proxy.get(&format!("http://{addr}/")).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (504, Some("connect_timeout")));
}

#[tokio::test]
async fn proxy_protocol_header_sets_the_client_address() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| {
        c.proxy.proxy_protocol_trusted = vec!["127.0.0.0/8".parse().unwrap()];
        c.access.rule = vec![interflow_proxy::config::AccessRule {
            action: interflow_proxy::config::AccessAction::Deny,
            users: Vec::new(),
            clients: vec!["192.0.2.0/24".parse().unwrap()],
            hosts: Vec::new(),
            ports: Vec::new(),
            methods: Vec::new(),
        }];
    })
    .await;
    for (client, status) in [("192.0.2.7", 403), ("198.51.100.7", 200)] {
        let mut wire = proxy.connect().await;
        wire.send(format!("PROXY TCP4 {client} 203.0.113.1 4711 80\r\n{}", get(&origin.url("/")))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, status, "{client}");
    }
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/"))).await.unwrap();
    assert!(wire.answer().await.is_err(), "a connection without the header is refused");
}

#[tokio::test]
async fn proxy_port_can_serve_tls() {
    let ca = TestCa::new();
    let (chain, key) = ca.leaf_pem(&["proxy.test"]);
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFilePair { certificate: folder.path().join("chain"), key: folder.path().join("key") };
    std::fs::write(&files.certificate, chain).unwrap();
    std::fs::write(&files.key, key).unwrap();
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.proxy.tls = Some(files)).await;
    let open = |alpn: &'static [&'static str]| {
        let (config, addr) = (ca.client(alpn), proxy.addr());
        async move { Wire::connect(addr).await.unwrap().into_tls("proxy.test", config).await.unwrap() }
    };
    let plain = Origin::http().start().await;
    let mut wire = open(&["http/1.1"]).await;
    wire.send(get(&plain.url("/bytes/2"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 2);
    // TLS in TLS: a tunnel through the TLS proxy port, intercepted.
    let answer = interflow_testkit::client::connect_on(&mut wire, &origin.authority(), None).await.unwrap();
    assert_eq!(answer.status, 200);
    let ours = client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    let mut inner = wire.into_tls("localhost", ours).await.unwrap();
    inner.send(crate::support::inside(&origin.authority(), "/bytes/3")).await.unwrap();
    assert_eq!(inner.answer().await.unwrap().body.len(), 3);
    let client = H2Client::new(open(&["h2"]).await).await.unwrap();
    assert_eq!(client.get(&plain.url("/bytes/4")).await.unwrap().body.len(), 4);
    let mut wire = Wire::connect(proxy.addr()).await.unwrap();
    wire.send(get(&plain.url("/bytes/5"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 5, "cleartext is served beside it");
}

#[tokio::test]
async fn invalid_config_is_refused_on_reload_and_the_active_one_remains() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut bad = proxy.engine.config();
    bad.proxy.via = "new".into();
    bad.auth.users = Some("/nowhere/users".into());
    let refused = proxy.engine.reload(bad).unwrap_err();
    assert!(refused.to_string().starts_with("auth.users: "), "{refused}");
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().header("via"), None);
    let mut good = proxy.engine.config();
    good.proxy.via = "new".into();
    proxy.engine.reload(good).unwrap();
    wire.send(get(&origin.url("/"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().header("via"), Some("1.1 new"), "active on open connections too");
}

#[test]
fn a_timeout_that_leaves_no_time_is_refused() {
    let mut config = config();
    config.timeouts.handshake = HumanDuration::default();
    let error = interflow_proxy::check(&config).unwrap_err().to_string();
    assert!(error.starts_with("timeouts.handshake: 0 leaves no time"), "{error}");
}

#[test]
fn missing_file_in_the_config_is_reported_with_its_key() {
    let missing = std::path::PathBuf::from("/nonexistent/file");
    let files = || TlsFilePair { certificate: missing.clone(), key: missing.clone() };
    let with = |change: &dyn Fn(&mut interflow_proxy::ProxyServerConfig)| {
        let mut config = config();
        change(&mut config);
        interflow_proxy::check(&config).unwrap_err().to_string()
    };
    for (error, place) in [
        (with(&|c| c.upstream.extra_ca = vec![missing.clone()]), "upstream.extra_ca"),
        (with(&|c| c.auth.users = Some(missing.clone())), "auth.users"),
        (with(&|c| c.proxy.tls = Some(files())), "proxy.tls"),
    ] {
        assert!(error.starts_with(place) && error.contains("/nonexistent/file"), "{error}");
    }
}

#[tokio::test]
async fn port_in_use_is_reported_with_its_address() {
    let taken = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let addr = taken.local_addr().unwrap();
    let home = tempfile::tempdir().unwrap();
    let parts = interflow_proxy::ServerDeps {
        ca: std::sync::Arc::new(interflow_net::ca::CertificateAuthority::open_or_create(home.path()).unwrap()),
        recorder: None,
        stages: Vec::new(),
        mounts: Vec::new(),
        own: Vec::new(),
        local: Default::default(),
        sockets: Default::default(),
    };
    let mut config = config();
    config.proxy.listen = vec![addr];
    let refused = interflow_proxy::ProxyServer::start(config, parts).err().expect("the port is taken").to_string();
    assert!(refused.contains(&addr.to_string()), "{refused}");
}

#[tokio::test]
async fn shutdown_finishes_active_requests_and_accepts_no_new_ones() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.proxy.drain_timeout = HumanDuration::from_secs(5)).await;
    let mut wire = proxy.connect().await;
    let mut idle = proxy.connect().await;
    idle.send(get(&origin.url("/"))).await.unwrap();
    idle.answer().await.unwrap();
    wire.send(get(&origin.url("/delay/150"))).await.unwrap();
    origin.wait_for_requests(2).await;
    let begun = Instant::now();
    let (answer, ()) = tokio::join!(wire.answer(), proxy.engine.stop());
    assert_eq!(answer.unwrap().status, 200);
    assert!(begun.elapsed() < Duration::from_secs(4), "it does not wait for idle connections");
    assert!(idle.to_end().await.unwrap().is_empty(), "idle connections are closed");
    assert!(
        Wire::connect(proxy.addr()).await.is_err() || {
            let mut late = proxy.connect().await;
            late.send(get(&origin.url("/"))).await.is_err() || late.answer().await.is_err()
        }
    );
    assert!(proxy.engine.is_draining());
}

#[tokio::test]
async fn shutdown_is_bounded_by_the_drain_timeout() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.proxy.drain_timeout = HumanDuration::from_millis(100)).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/stall"))).await.unwrap();
    origin.wait_for_requests(1).await;
    let begun = Instant::now();
    proxy.engine.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2));
}
