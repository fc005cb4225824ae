//! What is actually sent, captured from the wire, compared with real clients; and certificate verification.

use std::collections::HashSet;

use bytes::BytesMut;
use interflow_codec::ClientHello;
use interflow_codec::fingerprint::{CIPHERS, FingerprintTarget, PROFILES, TlsFingerprint};
use rcgen::date_time_ymd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::tests::{Authority, host, names, trusting};
use super::super::{ClientCertificate, ServerTls, TlsProfileOptions, accept_tls, connect_tls};
use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// Both ends of a connection, or why it failed, and the ClientHello that began it.
struct Greeting {
    hello: ClientHello,
    server: Result<IoStream, Error>,
    client: Result<(IoStream, UpstreamTls), Error>,
}

async fn greet(server: &ServerTls, profile: &TlsProfile, name: &str, alpn: Alpn) -> Greeting {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let accept = async {
        let (mut near, mut read) = (near, BytesMut::new());
        let hello = loop {
            assert!(near.read_buf(&mut read).await.unwrap() > 0, "a hello");
            if let Some(hello) = ClientHello::parse(&read).unwrap() {
                break hello;
            }
        };
        let io = IoStream::other(near).prefixed(read.freeze());
        (hello, accept_tls(io, server, LIMIT).await.map(|(io, _)| io))
    };
    let name = host(name);
    let ((hello, server), client) =
        tokio::join!(accept, connect_tls(IoStream::other(far), &name, profile, alpn, LIMIT));
    Greeting { hello, server, client }
}

fn impersonating(base: &Arc<TlsProfile>, like: &str) -> Arc<TlsProfile> {
    let fingerprint = match like.parse().unwrap() {
        FingerprintTarget::Profile(p) => p.fingerprint(),
        FingerprintTarget::Ja3(tls, _) => ConnectionFingerprint { tls: *tls, ..ConnectionFingerprint::default() },
        FingerprintTarget::Mirror => panic!("of whom?"),
    };
    base.with_fingerprint(like, fingerprint, false).unwrap()
}

fn place() -> (Authority, ServerTls, Arc<TlsProfile>) {
    let ca = Authority::new("Test CA");
    let server = ca.server(&names(&["a.example"])).with_alpn(Alpn::Both);
    let base = TlsProfile::new(trusting(&ca.pem)).unwrap();
    (ca, server, base)
}

#[tokio::test]
async fn each_profile_sends_the_client_hello_of_its_client() {
    assert!(
        context::remove_unsupported(&mut PROFILES[0].fingerprint().tls).is_empty(),
        "built by `make impersonate-test`"
    );
    let (_ca, server, base) = place();
    for profile in PROFILES.iter() {
        let like = impersonating(&base, profile.name);
        let greeting = greet(&server, &like, "a.example", Alpn::Both).await;
        assert_eq!(greeting.hello.ja4(), profile.ja4, "{}: {:?}", profile.name, greeting.hello);
        if let Some(ja3) = profile.ja3 {
            assert_eq!(greeting.hello.ja3_text(), ja3, "{}", profile.name);
        }
        let wanted = profile.fingerprint().tls;
        let mut sent = TlsFingerprint::from_client_hello(&greeting.hello);
        if wanted.permuted {
            sent.extensions.sort_unstable();
        }
        let mut extensions = wanted.extensions.clone();
        if wanted.permuted {
            extensions.sort_unstable();
        }
        assert_eq!(sent, TlsFingerprint { extensions, permuted: false, ..wanted }, "{}", profile.name);
        let (mut near, (mut far, tls)) = (greeting.server.unwrap(), greeting.client.unwrap());
        assert_eq!(tls.fingerprint.as_deref(), Some(profile.name));
        assert_eq!((tls.alpn.as_deref(), tls.version), (Some("h2"), Some("TLSv1.3")));
        assert!(!tls.unverified && !tls.resumed);
        far.write_all(b"over it").await.unwrap();
        far.flush().await.unwrap();
        let mut got = [0; 7];
        near.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"over it");
    }
}

#[tokio::test]
async fn chromium_hello_is_randomized_per_connection() {
    let (_ca, server, base) = place();
    let like = impersonating(&base, "chrome");
    let (mut orders, mut ciphers, mut signatures) = (HashSet::new(), HashSet::new(), HashSet::new());
    for _ in 0..24 {
        let hello = greet(&server, &like, "a.example", Alpn::Both).await.hello;
        orders.insert(hello.extensions.clone());
        ciphers.insert(hello.ciphers[0]);
        signatures.insert(hello.signature_algorithms[0]);
        let first = hello.extensions[0];
        assert!(first & 0x0f0f == 0x0a0a && hello.extensions.last().unwrap() & 0x0f0f == 0x0a0a, "{hello:?}");
    }
    assert!(orders.len() > 20 && ciphers.len() > 4 && signatures.len() > 4, "{ciphers:?} {signatures:?}");
}

#[tokio::test]
async fn a_client_hello_is_mirrored() {
    let (_ca, server, base) = place();
    for profile in PROFILES.iter() {
        let first = greet(&server, &impersonating(&base, profile.name), "a.example", Alpn::Both).await.hello;
        let mirror = base.with_fingerprint("mirror", ConnectionFingerprint::from_client(&first, None), true).unwrap();
        let second = greet(&server, &mirror, "a.example", Alpn::Both).await;
        assert_eq!(second.hello.ja3_text(), first.ja3_text(), "{}: the order too", profile.name);
        assert_eq!(second.hello.ja4(), first.ja4(), "{}", profile.name);
        assert_eq!(second.client.unwrap().1.fingerprint.as_deref(), Some("mirror"), "{}", profile.name);
    }
    // Interflow's own TLS client, rustls.
    let first = greet(&server, &base, "a.example", Alpn::Both).await.hello;
    let mirror = base.with_fingerprint("mirror", ConnectionFingerprint::from_client(&first, None), true).unwrap();
    let second = greet(&server, &mirror, "a.example", Alpn::Both).await;
    let name = second.client.unwrap().1.fingerprint.unwrap();
    assert!(name.starts_with("mirror"), "{name}");
    assert_eq!(second.hello.alpn, first.alpn);
    assert_eq!(second.hello.signature_algorithms, first.signature_algorithms);
}

#[tokio::test]
async fn unsupported_parts_are_left_out_and_reported() {
    let (_ca, server, base) = place();
    let mut seen = greet(&server, &impersonating(&base, "safari"), "a.example", Alpn::Both).await.hello;
    seen.extensions.extend([30031, 41]);
    seen.ciphers.push(0xc0ff);
    let mirror = base.with_fingerprint("mirror", ConnectionFingerprint::from_client(&seen, None), true).unwrap();
    let greeting = greet(&server, &mirror, "a.example", Alpn::Both).await;
    let name = greeting.client.unwrap().1.fingerprint.unwrap();
    for part in ["mirror, but cipher 49407", "extension 30031", "extension 41 is sent only when a session is resumed"] {
        assert!(name.contains(part), "{name}");
    }
    let strict = base.with_fingerprint("x", ConnectionFingerprint::from_client(&seen, None), false).err().unwrap();
    assert!(strict.to_string().contains("cannot be sent by this build: cipher 49407"), "{strict}");
}

#[tokio::test]
async fn a_ja3_string_is_sent_unchanged() {
    let (_ca, server, base) = place();
    for ja3 in [
        "771,4865-4866-4867-49195-49199,0-23-65281-10-11-35-16-5-13-18-51-45-43-27-28-34,29-23-24,0",
        "771,49195-49199-49196,0-10-11-13-16-23,23-24,0",
        "771,4866-4865,0-10-13-51-43-45,29-23,",
    ] {
        let greeting = greet(&server, &impersonating(&base, &format!("ja3:{ja3}")), "a.example", Alpn::Both).await;
        // Padding depends on the length of the ClientHello.
        assert_eq!(greeting.hello.ja3_text().replace("-21,", ","), ja3);
        greeting.client.unwrap();
    }
}

#[tokio::test]
async fn every_cipher_in_the_table_is_sent() {
    let (_ca, server, base) = place();
    let older: Vec<u16> = CIPHERS.iter().map(|(n, _)| *n).filter(|n| n >> 8 != 0x13).collect();
    let mut fingerprint = PROFILES.iter().find(|p| p.name == "curl").unwrap().fingerprint();
    fingerprint.tls.ciphers = [4867, 4865, 4866].into_iter().chain(older).collect();
    let like = base.with_fingerprint("all", fingerprint.clone(), false).unwrap();
    assert_eq!(greet(&server, &like, "a.example", Alpn::Both).await.hello.ciphers, fingerprint.tls.ciphers);
}

#[tokio::test]
async fn impersonated_handshakes_verify_certificates_as_usual() {
    let ca = Authority::new("Test CA");
    let other = Authority::new("Other CA");
    let mut expired = names(&["a.example"]);
    expired.not_before = date_time_ymd(2019, 1, 1);
    expired.not_after = date_time_ymd(2020, 1, 1);
    for (case, server, name, wrong, reported) in [
        ("good", ca.server(&names(&["a.example"])), "a.example", None, ""),
        ("expired", ca.server(&expired), "a.example", Some(CertificateReason::Expired), "expired on 2020-01-01"),
        (
            "wrong host",
            ca.server(&names(&["b.example"])),
            "a.example",
            Some(CertificateReason::WrongHost),
            "is for b.example, not for a.example",
        ),
        (
            "unknown CA",
            other.server(&names(&["a.example"])),
            "a.example",
            Some(CertificateReason::UnknownIssuer),
            "unknown authority",
        ),
        ("address", ca.server(&names(&["127.0.0.1"])), "127.0.0.1", None, ""),
        (
            "wrong address",
            ca.server(&names(&["127.0.0.1"])),
            "127.0.0.2",
            Some(CertificateReason::WrongHost),
            "127.0.0.2",
        ),
    ] {
        for danger in [false, true] {
            let options = TlsProfileOptions { danger_accept_invalid: danger, ..trusting(&ca.pem) };
            let base = TlsProfile::new(options).unwrap();
            for like in ["chrome", "curl"] {
                let greeting = greet(&server, &impersonating(&base, like), name, Alpn::Both).await;
                match (greeting.client, wrong) {
                    (Ok((_, tls)), Some(_)) if danger => {
                        assert!(tls.unverified && tls.problem.unwrap().contains(reported), "{case}");
                    }
                    (Ok((_, tls)), None) => assert!(!tls.unverified && tls.problem.is_none(), "{case}"),
                    (Err(error), Some(reason)) if !danger => {
                        assert_eq!(error.kind(), ErrorKind::UpstreamCertificate, "{case}");
                        assert_eq!(CertificateProblem::from_error(&error).unwrap().reason, reason, "{case}");
                        assert!(error.to_string().contains(reported), "{case}: {error}");
                        assert!(greeting.server.is_err(), "{case}: the origin is notified");
                    }
                    (client, _) => panic!("{case}, danger {danger}: {:?}", client.err()),
                }
            }
        }
    }
}

#[tokio::test]
async fn without_trusted_roots_every_certificate_is_refused() {
    let (_ca, server, _) = place();
    let options = TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() };
    let base = TlsProfile::new(options).unwrap();
    let error = greet(&server, &impersonating(&base, "firefox"), "a.example", Alpn::Both).await.client.err().unwrap();
    assert_eq!(CertificateProblem::from_error(&error).unwrap().reason, CertificateReason::NoRoots);
}

#[tokio::test]
async fn a_client_certificate_is_sent_on_request() {
    let ca = Authority::new("Test CA");
    let (chain, key) = ca.issue(&names(&["client"]));
    let pair = ClientCertificate { chain_pem: chain.into_bytes(), key_pem: key.into_bytes() };
    let base = TlsProfile::new(TlsProfileOptions { client_certificate: Some(pair), ..trusting(&ca.pem) }).unwrap();
    let count = asking(&ca, &impersonating(&base, "safari")).await.unwrap();
    assert_eq!(count, 1);
    let bare = TlsProfile::new(trusting(&ca.pem)).unwrap();
    assert!(asking(&ca, &impersonating(&bare, "safari")).await.is_err());
}

/// A server that requests a client certificate of this authority; returns how many it received.
async fn asking(ca: &Authority, profile: &TlsProfile) -> Result<usize, String> {
    use rustls_pki_types::pem::PemObject;
    let (chain, key) = ca.issue(&names(&["a.example"]));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::super::provider());
    let config = rustls::ServerConfig::builder_with_provider(super::super::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let name = host("a.example");
    let (server, client) =
        tokio::join!(acceptor.accept(near), connect_tls(IoStream::other(far), &name, profile, Alpn::None, LIMIT));
    client.map_err(|e| e.to_string())?;
    let server = server.map_err(|e| e.to_string())?;
    Ok(server.get_ref().1.peer_certificates().map_or(0, <[_]>::len))
}

#[tokio::test]
async fn a_hello_retry_request_is_followed() {
    let ca = Authority::new("Test CA");
    for (group, like) in [
        (rustls::crypto::aws_lc_rs::kx_group::SECP384R1, "chrome"),
        (rustls::crypto::aws_lc_rs::kx_group::SECP256R1, "safari"),
        (rustls::crypto::aws_lc_rs::kx_group::SECP384R1, "curl"),
    ] {
        use rustls_pki_types::pem::PemObject;
        let (chain, key) = ca.issue(&names(&["a.example"]));
        let mut provider = (*impersonate::super::provider()).clone();
        provider.kx_groups = vec![group];
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let base = TlsProfile::new(trusting(&ca.pem)).unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let name = host("a.example");
        let like = impersonating(&base, like);
        let (server, client) =
            tokio::join!(acceptor.accept(near), connect_tls(IoStream::other(far), &name, &like, Alpn::None, LIMIT));
        client.unwrap();
        let kind = server.unwrap().get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
    }
}

#[tokio::test]
async fn the_route_restricts_the_offered_alpn() {
    let (_ca, server, base) = place();
    let like = impersonating(&base, "chrome");
    for (alpn, offered, agreed, settings) in [
        (Alpn::Both, &["h2", "http/1.1"][..], Some("h2"), true),
        (Alpn::Http1, &["http/1.1"], Some("http/1.1"), false),
        (Alpn::Http2, &["h2"], Some("h2"), true),
        (Alpn::None, &[], None, false),
    ] {
        let greeting = greet(&server, &like, "a.example", alpn).await;
        assert_eq!(greeting.hello.alpn, offered, "{alpn:?}");
        assert_eq!(greeting.hello.has_extension(extension::ALPS), settings, "{alpn:?}");
        assert_eq!(greeting.client.unwrap().1.alpn.as_deref(), agreed, "{alpn:?}");
    }
    let http1 = place().1.with_alpn(Alpn::Http1);
    let error = greet(&http1, &like, "a.example", Alpn::Http2).await.client.err().unwrap();
    assert!(TlsImpersonator::is_no_application_protocol(&error), "{error}");
    assert!(error.to_string().contains("none of the protocols offered"), "{error}");
}

#[tokio::test]
async fn handshake_failures_are_described() {
    let (_ca, _, base) = place();
    let like = impersonating(&base, "firefox");
    for (answer, reported) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "not TLS"),
        (b"", "closed the connection during the TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "none of our cipher suites"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "no acceptable TLS version"),
        (b"\x16\x03\x03\x00\x04\x02\x00\x00\x00", "decode error"),
    ] {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let name = host("a.example");
        let serve = async {
            let mut buf = [0; 4096];
            let _ = near.read(&mut buf).await.unwrap();
            near.write_all(answer).await.unwrap();
            near.shutdown().await.unwrap();
            drop(near);
        };
        let ((), client) = tokio::join!(serve, connect_tls(IoStream::other(far), &name, &like, Alpn::Both, LIMIT));
        let error = client.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UpstreamTls);
        assert!(
            error.to_string().to_ascii_lowercase().contains(&reported.to_ascii_lowercase()),
            "{error} ({answer:?})"
        );
    }
    let (_near, far) = tokio::io::duplex(64 * 1024);
    let (name, short) = (host("a.example"), Duration::from_millis(50));
    let error = connect_tls(IoStream::other(far), &name, &like, Alpn::Both, short).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectTimeout);
}
