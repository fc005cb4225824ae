//! Tunnels by CONNECT and SOCKS5: every byte, both ways, until both sides have closed.

use std::time::{Duration, Instant};

use interflow_proxy::config::InterceptMode;
use interflow_testkit::{Origin, Script, Wire, client, pattern};
use interflow_types::ErrorKind;
use interflow_types::units::HumanDuration;

use crate::access::deny;
use crate::support::{End, Nobody, Proxy, until};

async fn echo() -> Origin {
    Origin::raw(|mut wire: Wire, _| async move {
        loop {
            let bytes = wire.some().await?;
            if bytes.is_empty() {
                return wire.finish().await;
            }
            wire.send(bytes).await?;
        }
    })
    .await
}

#[tokio::test]
async fn bytes_sent_with_connect_reach_the_origin() {
    let origin = echo().await;
    for mode in [InterceptMode::All, InterceptMode::None] {
        let proxy = Proxy::start(|c| c.intercept.mode = mode).await;
        let mut wire = proxy.connect().await;
        let authority = origin.authority();
        wire.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\nearly bytes")).await.unwrap();
        assert_eq!(wire.answer_to("CONNECT").await.unwrap().status, 200);
        assert_eq!(&wire.exactly(11).await.unwrap()[..], b"early bytes", "{mode:?}");
    }
}

#[tokio::test]
async fn unknown_protocol_bytes_are_relayed_without_delay() {
    let origin = echo().await;
    let proxy = Proxy::start(|c| c.intercept.sniff_timeout = HumanDuration::from_secs(60)).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send("ping").await.unwrap();
    assert_eq!(&wire.exactly(4).await.unwrap()[..], b"ping");
}

#[tokio::test]
async fn tunnel_half_close_works_in_either_direction() {
    let after_the_end = Script::new().to_end().send("so be it");
    let origin = Origin::script(after_the_end).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send("my last words").await.unwrap();
    wire.finish().await.unwrap();
    assert_eq!(&wire.to_end().await.unwrap()[..], b"so be it");
    assert_eq!(origin.received(), [b"my last words"]);

    let origin = Origin::script(Script::new().exactly(2).send("bye").finish().to_end()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send("hi").await.unwrap();
    assert_eq!(&wire.to_end().await.unwrap()[..], b"bye");
    wire.send(" and on I go").await.unwrap();
    wire.finish().await.unwrap();
    origin.wait_until_idle().await;
    assert_eq!(origin.received(), [b"hi and on I go"]);
}

#[tokio::test]
async fn a_server_first_protocol_works_with_interception_on() {
    let origin = Origin::script(Script::new().send("220 ready\r\n").exactly(6).send("221 bye\r\n")).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    assert_eq!(wire.line().await.unwrap(), "220 ready");
    wire.send("QUIT\r\n").await.unwrap();
    assert_eq!(wire.line().await.unwrap(), "221 bye");
    assert!(wire.to_end().await.unwrap().is_empty());
    drop(wire);
    let flow = proxy.flow().await;
    let Some(End::Tunnelled(bytes)) = flow.end else { panic!("{flow:#?}") };
    assert_eq!((bytes.sent, bytes.received), (6, 20));
}

#[tokio::test]
async fn a_client_that_is_slow_to_start_is_still_intercepted() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.intercept.sniff_timeout = HumanDuration::from_millis(10)).await;
    let wire = proxy.tunnel(&origin.authority()).await;
    // Whoever sends first decides, once the proxy has waited for the client in vain.
    until("the proxy dials the origin", || origin.connections() == 1).await;
    let tls = interflow_testkit::client_trusting(proxy.engine.ca().certificate_pem(), &["http/1.1"]);
    let mut wire = wire.into_tls("localhost", tls).await.unwrap();
    wire.send(crate::support::inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_reset_by_the_origin_reaches_the_client() {
    let origin = Origin::script(Script::new().exactly(2).reset()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send("hi").await.unwrap();
    let end = wire.some().await;
    assert!(end.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "{end:?}");
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::UpstreamClosed));
}

#[tokio::test]
async fn a_reset_by_the_client_ends_the_tunnel() {
    let origin = Origin::script(Script::new().send("hello").to_end()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.exactly(5).await.unwrap();
    wire.reset();
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientGone));
    origin.wait_until_idle().await;
}

#[tokio::test]
async fn many_slow_readers_get_their_own_bytes_and_block_no_others() {
    const TUNNELS: usize = 256;
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        let name = wire.exactly(4).await?;
        for _ in 0..2_000 {
            wire.send(&name).await?;
        }
        wire.finish().await
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wires = Vec::new();
    for i in 0..TUNNELS {
        let mut wire = proxy.tunnel(&origin.authority()).await;
        wire.send(format!("#{i:03x}").to_ascii_lowercase()).await.unwrap();
        wires.push(wire);
    }
    // While all of those wait to be read, another is served.
    let begun = Instant::now();
    let mut quick = proxy.tunnel(&origin.authority()).await;
    quick.send("#qck").await.unwrap();
    assert_eq!(quick.to_end().await.unwrap().len(), 8_000);
    assert!(begun.elapsed() < Duration::from_secs(5));
    for (i, wire) in wires.iter_mut().enumerate() {
        let all = wire.to_end().await.unwrap();
        assert_eq!(all.len(), 8_000);
        let name = format!("#{i:03x}");
        assert!(all.chunks(4).all(|c| c == name.as_bytes()), "tunnel {i} holds another's bytes");
    }
    drop((wires, quick));
    assert!(
        proxy.flows(TUNNELS + 1).await.iter().all(|f| matches!(f.end, Some(End::Tunnelled(b)) if b.received == 8_000))
    );
}

#[tokio::test]
async fn socks5_takes_names_and_addresses() {
    let origin = echo().await;
    let v6 = Origin::http().bind("[::1]:0".parse().unwrap()).start().await;
    let proxy = Proxy::start(|_| ()).await;
    for host in ["localhost", "127.0.0.1"] {
        let mut wire = client::socks5_tunnel(proxy.addr(), host, origin.port(), None).await.unwrap();
        wire.send(pattern(100_000)).await.unwrap();
        assert_eq!(wire.exactly(100_000).await.unwrap(), pattern(100_000), "{host}");
    }
    let mut wire = client::socks5_tunnel(proxy.addr(), "::1", v6.port(), None).await.unwrap();
    wire.send(crate::support::inside("[::1]", "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    drop(wire);
    let flow = &proxy.flows(3).await[2];
    assert_eq!((flow.transport.as_str(), flow.authority.clone()), ("socks5", format!("[::1]:{}", v6.port())));
}

#[tokio::test]
async fn socks4_is_refused_in_its_own_format() {
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send([&[4, 1, 0, 80, 127, 0, 0, 1][..], b"user\0"].concat()).await.unwrap();
    assert_eq!(&wire.to_end().await.unwrap()[..], [0, 91, 0, 0, 0, 0, 0, 0], "rejected, without a page of HTTP");
}

#[tokio::test]
async fn a_tunnel_to_an_unreachable_origin_fails_with_its_protocols_error() {
    let nobody = Nobody::new();
    let proxy = Proxy::start(|c| c.intercept.mode = InterceptMode::None).await;
    let refused = client::connect_tunnel(proxy.addr(), &nobody.addr().to_string(), None).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("502"), "{refused}");
    let refused =
        client::socks5_tunnel(proxy.addr(), "127.0.0.1", nobody.addr().port(), None).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("reply 5"), "{refused}");
    assert!(proxy.flows(2).await.iter().all(|f| f.error() == Some(ErrorKind::Connect)));
}

#[tokio::test]
async fn idle_tunnel_times_out() {
    let origin = echo().await;
    let proxy = Proxy::start(|c| c.timeouts.tunnel_idle = HumanDuration::from_millis(80)).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    wire.send("ping").await.unwrap();
    wire.exactly(4).await.unwrap();
    let ended = wire.some().await.unwrap_or_default();
    assert!(ended.is_empty());
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientTimeout));
}

#[tokio::test]
async fn proxy_requests_inside_a_tunnel_are_relayed_unchanged() {
    let far = Proxy::start(|_| ()).await;
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&far.addr().to_string()).await;
    wire.send(crate::support::get(&origin.url("/bytes/3"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 3);
    let mut wire = proxy.tunnel(&far.addr().to_string()).await;
    assert_eq!(client::connect_on(&mut wire, &origin.authority(), None).await.unwrap().status, 200);
    wire.send(crate::support::inside(&origin.authority(), "/bytes/4")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 4);
    assert_eq!(far.flows(2).await[1].url, Some(format!("GET {}", origin.url("/bytes/4"))));
}

#[tokio::test]
async fn a_request_to_a_proxy_in_a_tunnel_is_subject_to_rules_for_both_hosts() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let plain = Origin::http().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| {
        c.access.rule =
            vec![deny(|r| r.hosts = vec!["hidden.test".into()]), deny(|r| r.methods = vec!["DELETE".into()])];
    })
    .await;
    for tls in [false, true] {
        let asks = [
            ("GET", "http://open.test/a", 200),
            ("GET", "http://hidden.test/b", 403),
            ("DELETE", "http://open.test/c", 403),
        ];
        for (method, url, status) in asks {
            let mut wire = match tls {
                true => proxy.tls(&origin.authority(), &["http/1.1"]).await,
                false => proxy.tunnel(&plain.authority()).await,
            };
            wire.send(crate::support::request(method, url, "Proxy-Authorization: Basic eDp5\r\n")).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, status, "{method} {url}");
        }
        let seen = if tls { origin.only_request() } else { plain.only_request() };
        assert_eq!((seen.target.as_str(), seen.authority.as_str()), ("http://open.test/a", "open.test"));
        assert_eq!(seen.header("proxy-authorization"), Some("Basic eDp5"), "it is that proxy's");
    }
    let flows = proxy.flows(6).await;
    assert_eq!(flows[1].url.as_deref(), Some("GET http://hidden.test/b"));
    assert_eq!((flows[1].error(), flows[0].passthrough), (Some(ErrorKind::Denied), None));
    let mut wire = proxy.tunnel(&plain.authority()).await;
    assert_eq!(client::connect_on(&mut wire, "hidden.test:443", None).await.unwrap().status, 501);
    // A rule for methods could not be enforced in the inner tunnel.
    let mut wire = proxy.tunnel(&plain.authority()).await;
    assert_eq!(client::connect_on(&mut wire, "open.test:443", None).await.unwrap().status, 501);
    assert_eq!(plain.served(), 1);
}

#[tokio::test]
async fn plain_http_in_a_tunnel_is_recorded_per_request() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.authority()).await;
    for n in 1..=2 {
        wire.send(crate::support::inside(&origin.authority(), &format!("/bytes/{n}"))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().body.len(), n);
    }
    let flows = proxy.flows(2).await;
    assert_eq!(flows.len(), 2, "the tunnel itself leaves no flow");
    assert_eq!(flows[1].url, Some(format!("GET http://{}/bytes/2", origin.authority())));
}
