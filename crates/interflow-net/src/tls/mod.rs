//! TLS on both sides: certificates presented to clients, and verification of origins.

mod accept;
mod client_auth;
#[cfg(feature = "impersonate")]
mod impersonate;
#[cfg(not(feature = "impersonate"))]
#[path = "impersonate/unsupported.rs"]
mod impersonate;
mod pkcs12;
mod trust_roots;
mod upstream;
mod verify_error;

use std::sync::{Arc, LazyLock};

use interflow_types::{ByteStr, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, KeyLog, KeyLogFile, NoKeyLog, ProtocolVersion, SupportedProtocolVersion};

pub use accept::{ClientTlsFailure, ServerTls, accept_tls};
pub use client_auth::ClientAuth;
pub use pkcs12::{pem, pkcs12_to_pem};
pub use upstream::{ClientCertificate, TlsProfile, TlsProfileOptions, connect_tls, explain};
pub(crate) use upstream::{ended_error, is_no_application_protocol};
pub use verify_error::{CertificateProblem, CertificateReason};

/// Whether this build can send other clients' fingerprints.
pub const SUPPORTS_IMPERSONATION: bool = cfg!(feature = "impersonate");

/// The ALPN protocols to offer, in order of preference (RFC 7301). With `None` the extension is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    Http1,
    Http2,
    Both,
    None,
}

impl Alpn {
    pub(crate) const COUNT: usize = 4;

    /// The index in a table of [`Self::COUNT`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::Http2 => vec![b"h2".to_vec()],
            Self::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::None => Vec::new(),
        }
    }
}

/// The TLS versions supported on both sides.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// Both versions, or only the given one.
pub(crate) fn versions(only: Option<TlsVersion>) -> &'static [&'static SupportedProtocolVersion] {
    match only {
        None => VERSIONS,
        // `VERSIONS` lists TLS 1.3 first.
        Some(TlsVersion::Tls12) => &VERSIONS[1..],
        Some(TlsVersion::Tls13) => &VERSIONS[..1],
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        sort_ciphers(&mut provider.cipher_suites);
        Arc::new(provider)
    });
    PROVIDER.clone()
}

/// Moves each AES-128 suite before its AES-256 counterpart, as browsers do: a third less work per byte, and
/// handshakes over SHA-256, for which CPUs have instructions, instead of SHA-384.
fn sort_ciphers(suites: &mut [rustls::SupportedCipherSuite]) {
    let has = |suite: &rustls::SupportedCipherSuite, cipher| suite.suite().as_str().is_some_and(|n| n.contains(cipher));
    for at in 1..suites.len() {
        if has(&suites[at - 1], "AES_256") && has(&suites[at], "AES_128") {
            suites.swap(at - 1, at);
        }
    }
}

/// Logs session secrets to the file in `SSLKEYLOGFILE`, if set.
pub(crate) fn key_log() -> Arc<dyn KeyLog> {
    static KEY_LOG: LazyLock<Arc<dyn KeyLog>> = LazyLock::new(|| match std::env::var_os("SSLKEYLOGFILE") {
        Some(path) if !path.is_empty() => {
            tracing::warn!(path = %path.display(), "TLS session secrets are written to SSLKEYLOGFILE");
            Arc::new(KeyLogFile::new())
        }
        _ => Arc::new(NoKeyLog {}),
    });
    KEY_LOG.clone()
}

/// The version's usual name.
pub(crate) fn version_name(version: Option<ProtocolVersion>) -> Option<&'static str> {
    match version? {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// The IANA name of the cipher suite; rustls writes `TLS13_` instead of `TLS_`.
pub(crate) fn cipher_name(suite: CipherSuite) -> Option<ByteStr> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => ByteStr::from_static("TLS_AES_128_GCM_SHA256"),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => ByteStr::from_static("TLS_AES_256_GCM_SHA384"),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => ByteStr::from_static("TLS_CHACHA20_POLY1305_SHA256"),
        other => ByteStr::from_static(other.as_str()?),
    })
}

pub(crate) fn alpn_name(protocol: &[u8]) -> ByteStr {
    match protocol {
        b"h2" => ByteStr::from_static("h2"),
        b"http/1.1" => ByteStr::from_static("http/1.1"),
        other => ByteStr::from(String::from_utf8_lossy(other).into_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
