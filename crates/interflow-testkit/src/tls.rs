//! A throwaway certificate authority, and TLS configurations made from it or from any PEM.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    /// Makes a new key (ECDSA P-256) and a self-signed certificate for it.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("the system has entropy");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "testkit CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).expect("the parameters are valid");
        Self { pem: cert.pem(), der: cert.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// The CA certificate in PEM, to be trusted by the proxy under test.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// A leaf for these names and addresses: certificate chain and key, both PEM.
    ///
    /// # Panics
    /// If a name is not valid in a certificate.
    pub fn leaf_pem(&self, names: &[&str]) -> (String, String) {
        let (cert, key) = self.leaf(names);
        (format!("{}{}", cert.pem(), self.pem), key.serialize_pem())
    }

    /// A server's configuration with a leaf for these names; `alpn` in order of preference, such as `["h2", "http/1.1"]`.
    pub fn server(&self, names: &[&str], alpn: &[&str]) -> Arc<ServerConfig> {
        self.server_with(names, alpn, None)
    }

    /// As [`server`](Self::server), but requires a client certificate from `clients`.
    pub fn server_with(&self, names: &[&str], alpn: &[&str], clients: Option<&TestCa>) -> Arc<ServerConfig> {
        let (cert, key) = self.leaf(names);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has TLS 1.2 and 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots([ca.der.clone()]));
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.expect("one root is enough"))
            }
        };
        let chain = vec![cert.der().clone(), self.der.clone()];
        let mut config = builder.with_single_cert(chain, pkcs8(&key)).expect("the key belongs to the certificate");
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }

    /// A client configuration that trusts only this CA.
    pub fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        client_trusting_roots(roots([self.der.clone()]), alpn)
    }

    fn leaf(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("the system has entropy");
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, "testkit leaf");
        let cert = params.signed_by(&key, &self.issuer).expect("the CA can sign");
        (cert, key)
    }
}

/// A client configuration that trusts only the certificates in a PEM text (for instance the proxy's CA).
///
/// # Panics
/// If the text contains no certificate.
pub fn client_trusting(pem: &str, alpn: &[&str]) -> Arc<ClientConfig> {
    let certs: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|c| c.expect("PEM")).collect();
    assert!(!certs.is_empty(), "no certificate in the PEM text");
    client_trusting_roots(roots(certs), alpn)
}

/// The same, with a client certificate: its chain and key in PEM.
///
/// # Panics
/// If a text contains no certificate or no key.
pub fn client_showing(trusted: &str, (chain, key): (&str, &str), alpn: &[&str]) -> Arc<ClientConfig> {
    let certs = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).map(|c| c.expect("PEM")).collect::<Vec<_>>();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key in PEM");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3")
        .with_root_certificates(roots(certs(trusted)))
        .with_client_auth_cert(certs(chain), key)
        .expect("the key belongs to the certificate");
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

/// A client configuration that accepts any certificate: for benches, where only the proxy's work counts.
pub fn danger_client(alpn: &[&str]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider())))
        .with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    config
}

fn client_trusting_roots(roots: RootCertStore, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(certs: impl IntoIterator<Item = CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for cert in certs {
        roots.add(cert).expect("a CA certificate");
    }
    roots
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|p| p.as_bytes().to_vec()).collect()
}

fn pkcs8(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
