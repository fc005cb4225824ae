//! TLS and ALPN: what is offered, remembered and shared.

use super::*;
use crate::ca::CertificateAuthority;
use crate::tls::{Alpn, accept_tls};
use interflow_types::{ErrorKind, Host};

/// An origin with a certificate for `localhost`, and a route to it that trusts the certificate.
async fn origin(offered: Alpn) -> (Origin, UpstreamRoute) {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::open_or_create(dir.path()).unwrap();
    let tls = ca.server_tls(&Host::parse("localhost").unwrap(), offered);
    let origin = Origin::new(move |_, stream| {
        let tls = tls.clone();
        async move {
            let Ok((mut io, client)) = accept_tls(stream.into(), &tls, Duration::from_secs(5)).await else { return };
            if client.alpn.as_deref() == Some("h2") {
                return super::http2::answer_all(io, "h2").await;
            }
            let mut buf = [0; 4096];
            while io.read(&mut buf).await.is_ok_and(|n| n > 0) {
                io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh1").await.unwrap();
                io.flush().await.unwrap();
            }
        }
    })
    .await;
    let trusting = TlsProfileOptions {
        platform_roots: false,
        extra_ca_pem: vec![ca.certificate_pem().as_bytes().to_vec()],
        ..TlsProfileOptions::default()
    };
    let route = UpstreamRoute {
        scheme: Scheme::Https,
        authority: format!("localhost:{}", origin.addr.port()).parse().unwrap(),
        tls: TlsProfile::new(trusting).unwrap(),
        ..origin.route()
    };
    (origin, route)
}

async fn alpn(egress: &UpstreamClient, route: &UpstreamRoute) -> Result<HttpVersion, Error> {
    let mut probe = UpstreamProbe::new();
    let mut x = UpstreamReport {
        clock: &probe.clock,
        timings: &mut probe.timings,
        upstream: &mut probe.upstream,
        interim: &mut |_| {},
    };
    egress.alpn(route, &mut x).await
}

#[tokio::test]
async fn protocol_is_negotiated_by_alpn_within_the_route_option() {
    use UpstreamProtocol::*;
    for (offered, protocol, expected) in [
        (Alpn::Both, Auto, "h2"),
        (Alpn::Http1, Auto, "h1"),
        (Alpn::None, Auto, "h1"),
        (Alpn::Both, Http1, "h1"),
        (Alpn::Both, Http2, "h2"),
        (Alpn::Both, MatchClient, "h1"),
        (Alpn::None, MatchClient, "h1"),
    ] {
        let (_origin, route) = origin(offered).await;
        let route = UpstreamRoute { protocol, ..route };
        let egress = egress();
        for round in 0..3 {
            let (body, probe) = soon(fetch(&egress, &route)).await;
            assert_eq!((body.as_str(), probe.reused()), (expected, round > 0), "{protocol:?}");
            assert!(probe.upstream.unwrap().tls.is_some() && probe.timings.tls.is_some() == (round == 0));
        }
    }
}

#[tokio::test]
async fn match_client_uses_the_clients_protocol_upstream() {
    let (_origin, route) = origin(Alpn::Both).await;
    let route = UpstreamRoute { protocol: UpstreamProtocol::MatchClient, ..route };
    let egress = egress();
    for (version, expected) in [
        (HttpVersion::Http11, "h1"),
        (HttpVersion::H2, "h2"),
        (HttpVersion::Http10, "h1"),
        (HttpVersion::Http11, "h1"),
        (HttpVersion::H2, "h2"),
    ] {
        let mut request = get(&route);
        request.head.version = version;
        let answer = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap();
        assert_eq!(text(answer.body).await, expected, "{version:?}");
    }
    assert_eq!(
        alpn(&egress, &route).await.unwrap(),
        HttpVersion::H2,
        "the client of another request may be offered it"
    );
}

#[tokio::test]
async fn connection_opened_by_alpn_probe_is_reused_for_the_request() {
    for (offered, version) in [(Alpn::Http1, HttpVersion::Http11), (Alpn::Both, HttpVersion::H2)] {
        let (origin, route) = origin(offered).await;
        let route = UpstreamRoute { protocol: UpstreamProtocol::MatchClient, ..route };
        let egress = egress();
        assert_eq!(alpn(&egress, &route).await.unwrap(), version);
        let mut request = get(&route);
        request.head.version = version;
        soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap();
        assert_eq!(origin.accepted(), 1, "{version:?}");
    }
}

#[tokio::test]
async fn an_http2_only_origin_gets_translated_http1_requests() {
    let (origin, route) = origin(Alpn::Http2).await;
    let route = UpstreamRoute { protocol: UpstreamProtocol::MatchClient, ..route };
    let egress = egress();
    for _ in 0..3 {
        assert_eq!(soon(fetch(&egress, &route)).await.0, "h2");
    }
    assert_eq!(origin.accepted(), 2, "one handshake that came to nothing, one connection");
    let demanding = UpstreamRoute { protocol: UpstreamProtocol::Http1, ..route };
    let error = UpstreamProbe::new().send(&egress, &demanding, get(&demanding)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UpstreamTls | ErrorKind::Unsupported), "{error}");
}

#[tokio::test]
async fn concurrent_first_requests_share_one_http2_connection() {
    let (origin, route) = origin(Alpn::Both).await;
    let egress = egress();
    let all = futures_util::future::join_all((0..20).map(|_| fetch(&egress, &route)));
    assert!(soon(all).await.iter().all(|(body, _)| body == "h2"));
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn concurrent_handshakes_with_an_unresponsive_origin_time_out_in_parallel() {
    let origin = Origin::new(|_, stream| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let options = EgressOptions { tls_timeout: Duration::from_millis(100), ..EgressOptions::default() };
    let egress = egress_with(options, None);
    let route = UpstreamRoute { scheme: Scheme::Https, ..origin.route() };
    let begun = std::time::Instant::now();
    let all = futures_util::future::join_all((0..20).map(|_| async {
        let mut probe = UpstreamProbe::new();
        probe.send(&egress, &route, get(&route)).await.unwrap_err().kind()
    }));
    assert!(soon(all).await.iter().all(|kind| *kind == ErrorKind::ConnectTimeout));
    assert!(begun.elapsed() < Duration::from_millis(1000), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_negotiated_protocol_is_remembered_and_the_connection_kept() {
    for (offered, version) in [(Alpn::Both, HttpVersion::H2), (Alpn::Http1, HttpVersion::Http11)] {
        let (origin, route) = origin(offered).await;
        let shared = EgressShared::new(None);
        let one = UpstreamClient::new(EgressOptions::default(), dialer(), shared.clone());
        assert_eq!(alpn(&one, &route).await.unwrap(), version);
        assert_eq!(alpn(&one, &route).await.unwrap(), version);
        soon(fetch(&one, &route)).await;
        assert_eq!(origin.accepted(), 1);
        let two = UpstreamClient::new(EgressOptions::default(), dialer(), shared);
        assert_eq!(alpn(&two, &route).await.unwrap(), version);
        assert_eq!(origin.accepted(), 1, "another worker knows it without asking");
        assert_eq!(
            alpn(&one, &UpstreamRoute { protocol: UpstreamProtocol::Http1, ..route.clone() }).await.unwrap(),
            HttpVersion::Http11
        );
        assert_eq!(alpn(&one, &UpstreamRoute { scheme: Scheme::Http, ..route }).await.unwrap(), HttpVersion::Http11);
    }
}

#[tokio::test]
async fn an_untrusted_certificate_and_a_missing_protocol_are_reported() {
    let (_origin, route) = origin(Alpn::Http1).await;
    let strict = UpstreamRoute { tls: profile(), ..route.clone() };
    let error = UpstreamProbe::new().send(&egress(), &strict, get(&strict)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpstreamCertificate, "{error}");
    let demanding = UpstreamRoute { protocol: UpstreamProtocol::Http2, ..route };
    let error = UpstreamProbe::new().send(&egress(), &demanding, get(&demanding)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UpstreamTls | ErrorKind::Unsupported), "{error}");
}

#[tokio::test]
async fn an_upgrade_uses_http1_even_where_http2_is_negotiated() {
    let (_origin, route) = origin(Alpn::Both).await;
    let egress = egress();
    assert_eq!(soon(fetch(&egress, &route)).await.0, "h2");
    let mut request = get(&route);
    request.head.protocol = Some("websocket".into());
    let answer = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap();
    assert_eq!((answer.head.version, text(answer.body).await.as_str()), (HttpVersion::Http11, "h1"));
}
