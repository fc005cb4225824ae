//! Handshakes between Interflow's client and server side, and with other implementations.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::{ClientTls, Error, ErrorKind, Host, TlsVersion, UpstreamTls};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::io::IoStream;

const LIMIT: Duration = Duration::from_secs(20);

/// A certificate authority for a test.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// An intermediate authority: its certificate and key in PEM.
    pub(crate) fn below(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (ca_params(name).signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A certificate and its key in PEM.
    pub(crate) fn issue(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    pub(crate) fn server(&self, params: &CertificateParams) -> ServerTls {
        let (chain, key) = self.issue(params);
        ServerTls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

pub(crate) fn names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn trusting(pem: &str) -> TlsProfileOptions {
    TlsProfileOptions { platform_roots: false, extra_ca_pem: vec![pem.into()], ..TlsProfileOptions::default() }
}

pub(crate) fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

type Made<T> = Result<(IoStream, T), Error>;

/// Interflow's server and client side, connected by a pipe.
pub(crate) async fn handshake(
    server: &ServerTls,
    profile: &TlsProfile,
    name: &str,
    alpn: Alpn,
) -> (Made<ClientTls>, Made<UpstreamTls>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = host(name);
    tokio::join!(
        accept_tls(IoStream::other(near), server, LIMIT),
        connect_tls(IoStream::other(far), &name, profile, alpn, LIMIT)
    )
}

#[tokio::test]
async fn bytes_cross_both_ways_and_both_sides_report_the_session() {
    let ca = Authority::new("Test CA");
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    let (accepted, connected) = handshake(&ca.server(&names(&["a.example"])), &profile, "a.example", Alpn::Both).await;
    let ((mut near, client), (mut far, upstream)) = (accepted.unwrap(), connected.unwrap());
    near.write_all(b"from the server").await.unwrap();
    far.write_all(b"from the client").await.unwrap();
    let mut got = [[0; 15]; 2];
    near.read_exact(&mut got[0]).await.unwrap();
    far.read_exact(&mut got[1]).await.unwrap();
    assert_eq!(got, [*b"from the client", *b"from the server"]);
    assert_eq!(client.sni.as_deref(), Some("a.example"));
    assert_eq!(client.alpn_offered, ["h2", "http/1.1"]);
    assert_eq!((client.version, upstream.version), (Some("TLSv1.3"), Some("TLSv1.3")));
    assert!(client.cipher.as_deref().unwrap().starts_with("TLS_"), "{:?}", client.cipher);
    assert_eq!(client.cipher, upstream.cipher);
    assert_eq!((client.alpn.as_deref(), upstream.alpn.as_deref()), (Some("h2"), Some("h2")));
    assert!(!upstream.unverified && !upstream.resumed);
}

#[tokio::test]
async fn a_half_close_leaves_the_other_direction_open() {
    let ca = Authority::new("Test CA");
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    let (accepted, connected) = handshake(&ca.server(&names(&["a"])), &profile, "a", Alpn::None).await;
    let (mut near, mut far) = (accepted.unwrap().0, connected.unwrap().0);
    far.shutdown().await.unwrap();
    assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
    near.write_all(b"late").await.unwrap();
    near.shutdown().await.unwrap();
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"late");
}

#[tokio::test]
async fn the_application_protocol_is_negotiated() {
    let ca = Authority::new("Test CA");
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    for (presented, offered, agreed) in [
        (Alpn::Both, Alpn::Both, Some("h2")),
        (Alpn::Http1, Alpn::Both, Some("http/1.1")),
        (Alpn::Both, Alpn::Http1, Some("http/1.1")),
        (Alpn::Http2, Alpn::Both, Some("h2")),
        (Alpn::None, Alpn::Both, None),
        (Alpn::Both, Alpn::None, None),
    ] {
        let server = ca.server(&names(&["a"])).with_alpn(presented);
        let (_, connected) = handshake(&server, &profile, "a", offered).await;
        assert_eq!(connected.unwrap().1.alpn.as_deref(), agreed, "{presented:?} {offered:?}");
    }
}

#[tokio::test]
async fn ip_address_is_not_sent_as_sni() {
    let ca = Authority::new("Test CA");
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    for (asked, presented) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
        let (accepted, connected) = handshake(&ca.server(&names(&[presented])), &profile, asked, Alpn::Http1).await;
        connected.unwrap();
        assert_eq!(accepted.unwrap().1.sni, None);
    }
}

#[tokio::test]
async fn an_invalid_certificate_is_refused_with_its_reason() {
    use CertificateReason as R;
    let ca = Authority::new("Test CA");
    let past = |mut p: CertificateParams| {
        p.not_before = rcgen::date_time_ymd(2019, 1, 1);
        p.not_after = rcgen::date_time_ymd(2020, 2, 3);
        p
    };
    let future = |mut p: CertificateParams| {
        p.not_before = rcgen::date_time_ymd(2999, 1, 1);
        p.not_after = rcgen::date_time_ymd(3000, 1, 1);
        p
    };
    let for_clients = |mut p: CertificateParams| {
        p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        p
    };
    let mine = trusting(&ca.pem);
    let other = trusting(&Authority::new("Other CA").pem);
    for (params, options, reason, text) in [
        (past(names(&["a.example"])), &mine, R::Expired, "expired on 2020-02-03 00:00 UTC"),
        (future(names(&["a.example"])), &mine, R::NotYetValid, "is not valid before 2999-01-01"),
        (names(&["b.example", "*.c.example"]), &mine, R::WrongHost, "is for b.example, *.c.example, not for a.example"),
        (names(&["127.0.0.1"]), &mine, R::WrongHost, "is for 127.0.0.1, not for a.example"),
        (names(&["a.example"]), &other, R::UnknownIssuer, "was issued by an unknown authority, \"Test CA\""),
        (for_clients(names(&["a.example"])), &mine, R::WrongPurpose, "was not issued for use by a server"),
    ] {
        let profile = TlsProfile::new(options.clone()).unwrap();
        let (_, connected) = handshake(&ca.server(&params), &profile, "a.example", Alpn::Both).await;
        let error = connected.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UpstreamCertificate);
        assert!(error.message().contains(&format!("the certificate of a.example {text}")), "{}", error.message());
        assert_eq!(CertificateProblem::from_error(&error).map(|p| p.reason), Some(reason));
        // With the override, the handshake succeeds, and the problem is still reported.
        let profile = TlsProfile::new(TlsProfileOptions { danger_accept_invalid: true, ..options.clone() }).unwrap();
        let (_, connected) = handshake(&ca.server(&params), &profile, "a.example", Alpn::Both).await;
        let upstream = connected.unwrap().1;
        assert!(upstream.unverified);
        assert!(upstream.problem.as_deref().unwrap().contains(text), "{:?}", upstream.problem);
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_reported_as_such() {
    let key = KeyPair::generate().unwrap();
    let cert = names(&["a.example"]).self_signed(&key).unwrap();
    let server = ServerTls::from_pem(cert.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let profile = TlsProfile::new(trusting(&Authority::new("CA").pem)).unwrap();
    let error = handshake(&server, &profile, "a.example", Alpn::Both).await.1.unwrap_err();
    assert_eq!(CertificateProblem::from_error(&error).unwrap().reason, CertificateReason::SelfSigned);
    assert!(error.message().contains("is self-signed"), "{}", error.message());
}

#[tokio::test]
async fn a_profile_without_roots_is_reported_as_such() {
    let ca = Authority::new("CA");
    let profile = TlsProfile::new(TlsProfileOptions { platform_roots: false, ..TlsProfileOptions::default() }).unwrap();
    let error = handshake(&ca.server(&names(&["a"])), &profile, "a", Alpn::Both).await.1.unwrap_err();
    assert_eq!(CertificateProblem::from_error(&error).unwrap().reason, CertificateReason::NoRoots);
}

#[tokio::test]
async fn a_valid_certificate_is_never_reported_as_unverified() {
    let ca = Authority::new("CA");
    let options = TlsProfileOptions { danger_accept_invalid: true, ..trusting(&ca.pem) };
    let profile = TlsProfile::new(options).unwrap();
    let upstream = handshake(&ca.server(&names(&["a"])), &profile, "a", Alpn::Both).await.1.unwrap().1;
    assert_eq!((upstream.unverified, upstream.problem), (false, None));
}

/// Sends one byte from the server, so that the tickets after the handshake are read as well.
async fn exchange(accepted: Made<ClientTls>, connected: Made<UpstreamTls>) -> UpstreamTls {
    let ((mut near, _), (mut far, upstream)) = (accepted.unwrap(), connected.unwrap());
    near.write_all(b"x").await.unwrap();
    near.flush().await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'x');
    upstream
}

#[tokio::test]
async fn session_is_resumed_with_any_alpn_of_the_same_profile() {
    let ca = Authority::new("CA");
    let server = ca.server(&names(&["a"]));
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    let mut resumed = Vec::new();
    for alpn in [Alpn::Both, Alpn::Both, Alpn::Http1] {
        let (accepted, connected) = handshake(&server, &profile, "a", alpn).await;
        resumed.push(exchange(accepted, connected).await.resumed);
    }
    assert_eq!(resumed, [false, true, true]);
    let other = TlsProfile::new(trusting(&ca.pem)).unwrap();
    assert_ne!(other.id(), profile.id());
    let (accepted, connected) = handshake(&server, &other, "a", Alpn::Both).await;
    assert!(!exchange(accepted, connected).await.resumed, "profiles share no session");
}

/// A session is resumed only if the server would present the same certificate.
#[tokio::test]
async fn a_session_is_resumed_only_for_the_same_certificate() {
    let ca = Authority::new("CA");
    let profile = TlsProfile::new(trusting(&ca.pem)).unwrap();
    // SNI has no addresses, so only the certificate distinguishes these two.
    for name in ["a", "127.0.0.1"] {
        let (one, other) = (ca.server(&names(&[name])), ca.server(&names(&[name])));
        let mut resumed = Vec::new();
        for server in [&one, &one, &other, &other] {
            let (accepted, connected) = handshake(server, &profile, name, Alpn::Http1).await;
            resumed.push(exchange(accepted, connected).await.resumed);
        }
        assert_eq!(resumed, [false, true, false, true], "{name}");
    }
}

/// A resumed session would skip the client's certificate: neither tickets nor sessions in memory may exist.
#[tokio::test]
async fn no_session_is_resumed_if_client_certificates_are_verified() {
    let ca = Authority::new("CA");
    let mut params = names(&["me"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (chain_pem, key_pem) = ca.issue(&params);
    let client = ClientCertificate { chain_pem: chain_pem.into(), key_pem: key_pem.into() };
    let (chain, key) = ca.issue(&names(&["a"]));
    let verifying = |required: bool| {
        let mut clients = ClientAuth::new(required);
        clients.add(ca.pem.as_bytes()).unwrap();
        ServerTls::with_client_auth(chain.as_bytes(), key.as_bytes(), &clients).unwrap()
    };
    let open = || ServerTls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for (server, shows_certificate, expected) in [
            (open(), true, [false, true]),
            (verifying(true), true, [false, false]),
            (verifying(false), true, [false, false]),
            (verifying(false), false, [false, false]),
            (verifying(true).with_alpn(Alpn::Http1), true, [false, false]),
        ] {
            let client_certificate = shows_certificate.then(|| client.clone());
            let options = TlsProfileOptions { client_certificate, version: Some(version), ..trusting(&ca.pem) };
            let profile = TlsProfile::new(options).unwrap();
            let mut resumed = Vec::new();
            for _ in 0..2 {
                let (accepted, connected) = handshake(&server, &profile, "a", Alpn::Http1).await;
                resumed.push(exchange(accepted, connected).await.resumed);
            }
            assert_eq!(resumed, expected, "{version:?}");
        }
    }
}

#[test]
fn the_hybrid_key_exchange_is_preferred() {
    assert_eq!(crate::tls::provider().kx_groups[0].name(), rustls::NamedGroup::X25519MLKEM768);
}

#[tokio::test]
async fn aes_128_is_preferred_unless_the_client_prefers_chacha() {
    use rustls::CipherSuite as S;
    let ca = Authority::new("CA");
    let server = ca.server(&names(&["a.example"]));
    let (aes256, aes128) = (S::TLS13_AES_256_GCM_SHA384, S::TLS13_AES_128_GCM_SHA256);
    let chacha = S::TLS13_CHACHA20_POLY1305_SHA256;
    for (order, agreed) in [
        (vec![aes256, chacha, aes128], "TLS_AES_128_GCM_SHA256"),
        (vec![chacha, aes128, aes256], "TLS_CHACHA20_POLY1305_SHA256"),
        (vec![aes256], "TLS_AES_256_GCM_SHA384"),
    ] {
        let mut own = rustls::crypto::CryptoProvider::clone(&provider());
        let suites = order.iter().map(|o| *own.cipher_suites.iter().find(|s| s.suite() == *o).unwrap()).collect();
        own.cipher_suites = suites;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(own))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let (accepted, connected) = tokio::join!(
            accept_tls(IoStream::other(near), &server, LIMIT),
            connector.connect(ServerName::try_from("a.example").unwrap(), far)
        );
        connected.unwrap();
        assert_eq!(accepted.unwrap().1.cipher.as_deref(), Some(agreed));
    }
}

fn wanting_client_certificates(ca: &Authority) -> Arc<rustls::ServerConfig> {
    let (chain, key) = ca.issue(&names(&["a"]));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}

#[tokio::test]
async fn a_client_certificate_is_sent_to_an_origin_that_requests_it() {
    let ca = Authority::new("CA");
    let mut params = names(&["me"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (chain_pem, key_pem) = ca.issue(&params);
    let client = ClientCertificate { chain_pem: chain_pem.into(), key_pem: key_pem.into() };
    for (client_certificate, expected) in [(Some(client), true), (None, false)] {
        let profile = TlsProfile::new(TlsProfileOptions { client_certificate, ..trusting(&ca.pem) }).unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let acceptor = tokio_rustls::TlsAcceptor::from(wanting_client_certificates(&ca));
        let name = host("a");
        let (accepted, connected) =
            tokio::join!(acceptor.accept(near), connect_tls(IoStream::other(far), &name, &profile, Alpn::None, LIMIT));
        let mut io = connected.unwrap().0;
        if expected {
            assert_eq!(accepted.unwrap().get_ref().1.peer_certificates().unwrap().len(), 1);
        } else {
            assert!(accepted.is_err());
            // In TLS 1.3 the refusal arrives only now.
            let error = io.read_u8().await.unwrap_err();
            assert_eq!(
                explain(&error),
                Some(
                    "it requires a client certificate: configure one for this host in [[upstream.client_certificate]]"
                )
            );
        }
    }
}

#[test]
fn unusable_credentials_are_refused_with_the_reason() {
    let ca = Authority::new("CA");
    let (chain, key) = ca.issue(&names(&["a"]));
    let (_, other_key) = ca.issue(&names(&["a"]));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (chain, key, text) in [
        (&chain[..], &other_key[..], "the key is not the certificate's"),
        ("", &key, "it contains no certificate"),
        (&chain, "", "the key is not PEM"),
        (&chain, encrypted, "the key is encrypted"),
    ] {
        let client = ClientCertificate { chain_pem: chain.into(), key_pem: key.into() };
        let options = TlsProfileOptions { client_certificate: Some(client), ..TlsProfileOptions::default() };
        let error = TlsProfile::new(options).err().unwrap();
        assert!(error.message().contains(text), "{}", error.message());
        assert_eq!(error.error_source(), interflow_types::ErrorSource::Config);
        let error = ServerTls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(error.message().contains(text), "{}", error.message());
    }
}

#[test]
fn unreadable_extra_ca_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for (file, text) in [(dir.path().join("missing.pem"), "cannot be read"), (empty, "contains no certificate")] {
        let options = TlsProfileOptions { extra_ca_files: vec![file.clone()], ..TlsProfileOptions::default() };
        let error = TlsProfile::new(options).err().unwrap();
        assert!(error.message().contains(text) && error.message().contains(file.to_str().unwrap()), "{error}");
    }
}

/// A rustls client with default settings, which sends the usual alerts.
async fn foreign_client(far: DuplexStream, trusted: &str, alpn: &[&[u8]]) -> std::io::Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let name = ServerName::try_from("a.example").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, far).await.map(drop)
}

#[tokio::test]
async fn a_client_that_rejects_the_leaf_is_distinguished_from_other_failures() {
    let ca = Authority::new("CA");
    let server = ca.server(&names(&["a.example"])).with_alpn(Alpn::Http1);
    let stranger = Authority::new("Stranger");
    let wrong_name = ca.server(&names(&["b.example"]));
    for (server, trusted, alpn, expected) in [
        (&server, &stranger.pem, &[][..], ClientTlsFailure::RefusedLeaf("unknown_ca")),
        (&wrong_name, &ca.pem, &[], ClientTlsFailure::RefusedLeaf("bad_certificate")),
        (&server, &ca.pem, &[&b"h2"[..]], ClientTlsFailure::NothingInCommon),
    ] {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (accepted, _) =
            tokio::join!(accept_tls(IoStream::other(near), server, LIMIT), foreign_client(far, trusted, alpn));
        let error = accepted.unwrap_err();
        assert_eq!(ClientTlsFailure::from_error(&error), Some(expected), "{error}");
        assert_eq!(expected.is_refusal(), matches!(expected, ClientTlsFailure::RefusedLeaf(_)));
    }
}

#[tokio::test]
async fn a_client_that_closes_after_the_leaf_counts_as_refusing() {
    let ca = Authority::new("CA");
    let server = ca.server(&names(&["a.example"]));
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let client = async {
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("a.example").unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        far.write_all(&hello).await.unwrap();
        far.read_u8().await.unwrap();
        drop(far);
    };
    let (accepted, ()) = tokio::join!(accept_tls(IoStream::other(near), &server, LIMIT), client);
    let failure = ClientTlsFailure::from_error(&accepted.unwrap_err()).unwrap();
    assert_eq!(failure, ClientTlsFailure::ClosedAfterLeaf);
    assert!(failure.is_refusal());
}

#[tokio::test]
async fn non_tls_bytes_and_early_close_are_not_a_leaf_refusal() {
    let ca = Authority::new("CA");
    let server = ca.server(&names(&["a"]));
    for (bytes, close, expected, kind) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], true, ClientTlsFailure::NotTls, ErrorKind::ClientTls),
        (b"", true, ClientTlsFailure::ClosedEarly, ErrorKind::ClientGone),
        (b"\x16\x03\x01", true, ClientTlsFailure::ClosedEarly, ErrorKind::ClientGone),
        (b"\x16\x03\x01", false, ClientTlsFailure::Timeout, ErrorKind::ClientTimeout),
    ] {
        let (near, mut far) = tokio::io::duplex(1024);
        far.write_all(bytes).await.unwrap();
        if close {
            far.shutdown().await.unwrap();
        }
        let error = accept_tls(IoStream::other(near), &server, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(ClientTlsFailure::from_error(&error), Some(expected), "{error}");
        assert_eq!(error.kind(), kind);
        assert!(!expected.is_refusal());
    }
}

#[tokio::test]
async fn an_upstream_without_tls_is_reported_as_such() {
    let profile = TlsProfile::new(trusting(&Authority::new("CA").pem)).unwrap();
    for (answer, kind, text) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], ErrorKind::UpstreamTls, "not TLS"),
        (b"", ErrorKind::UpstreamTls, "closed the connection during the TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x46", ErrorKind::UpstreamTls, "no acceptable TLS version"),
    ] {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(answer).await.unwrap();
        far.shutdown().await.unwrap();
        let error = connect_tls(IoStream::other(near), &host("a"), &profile, Alpn::Both, LIMIT).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
    let (near, _far) = tokio::io::duplex(64 * 1024);
    let limit = Duration::from_millis(30);
    let error = connect_tls(IoStream::other(near), &host("a"), &profile, Alpn::Both, limit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectTimeout);
}

#[test]
fn session_secrets_of_both_sides_are_written_to_sslkeylogfile() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("keys");
    // The variable is read once per process, so a separate process is needed.
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::tests::bytes_cross_both_ways_and_both_sides_report_the_session"])
        .env("SSLKEYLOGFILE", &log)
        .output()
        .unwrap();
    assert!(ran.status.success());
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().filter(|l| l.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).count();
    assert_eq!(lines, 2, "one of each side:\n{log}");
}

/// A self-signed certificate, a CA or not, and its key.
fn self_signed(mut params: CertificateParams, is_ca: IsCa) -> (String, ServerTls) {
    params.is_ca = is_ca;
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let server = ServerTls::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    (pem, server)
}

#[tokio::test]
async fn a_listed_self_signed_certificate_is_trusted_for_its_names_and_validity() {
    for is_ca in [IsCa::Ca(BasicConstraints::Unconstrained), IsCa::ExplicitNoCa, IsCa::NoCa] {
        let (pem, server) = self_signed(names(&["a.example"]), is_ca);
        let (_, twin) = self_signed(names(&["a.example"]), is_ca);
        let (old, expired) = {
            let mut params = names(&["a.example"]);
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
            self_signed(params, is_ca)
        };
        let listed = TlsProfile::new(trusting(&(pem + &old))).unwrap();
        for (server, name, reason) in [
            (&server, "a.example", None),
            (&server, "b.example", Some(CertificateReason::WrongHost)),
            (&expired, "a.example", Some(CertificateReason::Expired)),
        ] {
            let (_, connected) = handshake(server, &listed, name, Alpn::Both).await;
            let problem = connected.err().map(|e| CertificateProblem::from_error(&e).unwrap().reason);
            assert_eq!(problem, reason, "{is_ca:?} {name}");
        }
        let (_, connected) = handshake(&twin, &listed, "a.example", Alpn::Both).await;
        assert!(connected.is_err(), "another certificate for the same name: {is_ca:?}");
    }
}

#[tokio::test]
async fn the_key_of_a_listed_server_certificate_cannot_issue_others() {
    let key = KeyPair::generate().unwrap();
    let mut params = names(&["a.example"]);
    params.is_ca = IsCa::ExplicitNoCa;
    let pem = params.self_signed(&key).unwrap().pem();
    let leaf = KeyPair::generate().unwrap();
    let signed = names(&["b.example"]).signed_by(&leaf, &Issuer::new(params, key)).unwrap().pem();
    let server = ServerTls::from_pem(signed.as_bytes(), leaf.serialize_pem().as_bytes()).unwrap();
    let listed = TlsProfile::new(trusting(&pem)).unwrap();
    let (_, connected) = handshake(&server, &listed, "b.example", Alpn::Both).await;
    assert!(connected.is_err());
}

/// Issued with `openssl x509 -req` without extensions.
const VERSION_1: (&str, &str) = (
    "-----BEGIN CERTIFICATE-----\n\
     MIIBFzCBvwIUTW6VHjZDeMFgmFCVZHakoqNIDT8wCgYIKoZIzj0EAwIwDjEMMAoG\n\
     A1UEAwwDb2xkMCAXDTI2MTEyOTE3Mzg1MFoYDzIxMjYxMTA1MTczODUwWjAOMQww\n\
     CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS4yBPcegR+ljLk\n\
     AdHPMboHqSjh4l8ZahkiKsyANKU4vg47BYJDsr2haywaID9QQAMg54+txk9HuE6k\n\
     dQGJ4vIoMAoGCCqGSM49BAMCA0cAMEQCICVe1ZLQT0ABEEhSahUIe3D+RtgyAkmJ\n\
     XORb2lwGnNpDAiBCBuRn3Q1qV99iDprHYAUiG/WE2LkYlHMPzlUxS4zGUA==\n\
     -----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg/3sKjY1nEDW698so\n\
     Pb8rC6K1dRTB7pOpSYEG0da07tKhRANCAAS4yBPcegR+ljLkAdHPMboHqSjh4l8Z\n\
     ahkiKsyANKU4vg47BYJDsr2haywaID9QQAMg54+txk9HuE6kdQGJ4vIo\n\
     -----END PRIVATE KEY-----\n",
);

#[test]
fn a_client_certificate_of_x509_version_1_can_be_presented() {
    let client = ClientCertificate { chain_pem: VERSION_1.0.into(), key_pem: VERSION_1.1.into() };
    client.check().unwrap();
    let options = TlsProfileOptions { client_certificate: Some(client), ..TlsProfileOptions::default() };
    let config = TlsProfile::new(options).map(|profile| profile.base_config(Arc::new(profile.verifier()))).unwrap();
    assert!(config.client_auth_cert_resolver.has_certs());
}
