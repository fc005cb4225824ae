//! The server side of TLS, for clients, and detection of clients that reject Interflow's certificate.

use std::fmt;
use std::io;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use interflow_types::{ByteStr, CertificateChain, ClientTls, Error, ErrorKind, ErrorSource, data_file};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{Acceptor, NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CipherSuite, ServerConfig};
use sha2::{Digest, Sha256};
use tokio_rustls::LazyConfigAcceptor;

use super::client_auth::{ClientAuth, certificate_name};
use super::upstream::read_chain_and_key;
use super::{Alpn, alpn_name, cipher_name, key_log, provider, version_name};
use crate::io::IoStream;

/// What is presented to a client: a certificate with its key, and the ALPN protocols.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certified: Arc<CertifiedKey>,
    by_client: OnceLock<Arc<ServerConfig>>,
}

impl ServerTls {
    /// For TLS to the proxy itself: a chain (leaf first) and its key in PEM. Offers `h2` and `http/1.1`.
    ///
    /// # Errors
    /// Files that cannot be parsed or do not belong together; attributed to the configuration.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, Error> {
        Ok(Self::new(certified(chain_pem, key_pem)?, Alpn::Both))
    }

    /// As [`from_pem`](Self::from_pem), with client certificates.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem), or if there is no client authority.
    pub fn with_client_auth(chain_pem: &[u8], key_pem: &[u8], clients: &ClientAuth) -> Result<Self, Error> {
        let verifier = clients.verifier().map_err(|e| {
            Error::new(ErrorKind::ClientTls, format!("the authorities of clients: {e}"))
                .with_error_source(ErrorSource::Config)
        })?;
        Ok(Self::build(certified(chain_pem, key_pem)?.into(), Alpn::Both, Some(verifier)))
    }

    pub fn with_alpn(self, alpn: Alpn) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = alpn.protocols();
        Self::from_config(config, self.certified)
    }

    fn from_config(config: ServerConfig, certified: Arc<CertifiedKey>) -> Self {
        Self { config: Arc::new(config), certified, by_client: OnceLock::new() }
    }

    pub(crate) fn new(certified: impl Into<Arc<CertifiedKey>>, alpn: Alpn) -> Self {
        Self::build(certified.into(), alpn, None)
    }

    fn build(certified: Arc<CertifiedKey>, alpn: Alpn, clients: Option<Arc<dyn ClientCertVerifier>>) -> Self {
        // The ticket carries the certificate, so that it resumes only sessions with the same one.
        let tickets = SessionTickets::for_certificate(&certified);
        let resolver = SingleCertAndKey::from(Arc::clone(&certified));
        let verifies_clients = clients.is_some();
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(super::VERSIONS)
            .expect("the provider has suites for TLS 1.2 and 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = alpn.protocols();
        config.key_log = key_log();
        // Tickets contain the sessions; a store in each of ten thousand configurations would only use memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Clients list AES-256 first although it costs both ends more.
        config.ignore_client_order = true;
        if verifies_clients {
            // No tickets: a resumed session would skip the client certificate, and with it a revocation or an expiry
            // since.
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = Arc::new(tickets);
        }
        Self::from_config(config, certified)
    }

    fn config_for(&self, suites: &[CipherSuite]) -> Arc<ServerConfig> {
        if !prefers_chacha(suites) {
            return self.config.clone();
        }
        // The second configuration exists only once such a client has come.
        let made = self.by_client.get_or_init(|| {
            let mut config = ServerConfig::clone(&self.config);
            config.ignore_client_order = false;
            Arc::new(config)
        });
        made.clone()
    }
}

fn certified(chain_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, Error> {
    let (chain, key) = read_chain_and_key(chain_pem, key_pem).map_err(|e| {
        Error::new(ErrorKind::ClientTls, format!("the listener's certificate: {e}"))
            .with_error_source(ErrorSource::Config)
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|e| {
        Error::new(ErrorKind::ClientTls, "the listener's certificate cannot be used")
            .with_source(e)
            .with_error_source(ErrorSource::Config)
    })
}

/// Whether the client prefers ChaCha20, because its CPU has no AES instructions.
fn prefers_chacha(suites: &[CipherSuite]) -> bool {
    let first =
        // The first suite that is of either kind: GREASE values and others are skipped.
        suites.iter().find_map(|s| s.as_str().filter(|name| name.contains("AES_") || name.contains("CHACHA20")));
    first.is_some_and(|name| name.contains("CHACHA20"))
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("alpn", &self.config.alpn_protocols).finish_non_exhaustive()
    }
}

/// One ticket key for all leaves and workers, rotated every six hours. A ticket contains the certificate of its
/// session, and is rejected if another would be presented, so a session cannot be resumed for another host or with a
/// replaced leaf.
#[derive(Debug)]
struct SessionTickets {
    certificate: [u8; 16],
}

impl SessionTickets {
    fn for_certificate(certified: &CertifiedKey) -> Self {
        let leaf = certified.cert.first().map_or(&[][..], |leaf| leaf.as_ref());
        let mut certificate = [0; 16];
        // 16 of 32 bytes suffice to tell certificates apart.
        certificate.copy_from_slice(&Sha256::digest(leaf)[..16]);
        Self { certificate }
    }

    fn ticket_keys() -> &'static dyn ProducesTickets {
        // Rotated by rustls, which keeps the previous key for tickets that are still in use.
        static KEYS: LazyLock<Arc<dyn ProducesTickets>> =
            LazyLock::new(|| rustls::crypto::aws_lc_rs::Ticketer::new().expect("the system gives random bytes"));
        &**KEYS
    }
}

impl ProducesTickets for SessionTickets {
    fn enabled(&self) -> bool {
        Self::ticket_keys().enabled()
    }

    fn lifetime(&self) -> u32 {
        Self::ticket_keys().lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        Self::ticket_keys().encrypt(&[&self.certificate[..], plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = Self::ticket_keys().decrypt(cipher)?;
        // Not an error: the client simply makes a full handshake.
        if !plain.starts_with(&self.certificate) {
            return None;
        }
        plain.drain(..self.certificate.len());
        Some(plain)
    }
}

/// How a client's TLS handshake failed: the source of an error of kind `ClientTls` or `ClientTimeout`, whose message is
/// complete. On its own it is displayed as its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientTlsFailure {
    /// The client rejected the leaf with this alert (`unknown_ca` or similar): it does not trust the CA, or pins.
    RefusedLeaf(&'static str),
    /// The client closed or reset right after it received the leaf, without an alert: probably a rejection too.
    ClosedAfterLeaf,
    /// The client disconnected before it received the leaf.
    ClosedEarly,
    /// The client did not finish in time.
    Timeout,
    /// No common protocol version, cipher suite or application protocol.
    NothingInCommon,
    /// A client certificate was required, and the client sent none.
    NoCertificate,
    BadCertificate,
    NotTls,
    Broken,
}

impl ClientTlsFailure {
    /// How TLS failed, if the error is about that: from the handshake, or an alert received after it.
    pub fn from_error(error: &Error) -> Option<Self> {
        let source = std::error::Error::source(error)?;
        if let Some(failure) = source.downcast_ref() {
            return Some(*failure);
        }
        // An alert after the handshake reaches the reader of the stream as an I/O error.
        match source.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()? {
            rustls::Error::AlertReceived(alert) => Some(Self::from_alert(*alert, true)),
            _ => None,
        }
    }

    /// Whether the client rejected the leaf, as far as can be determined; counted to detect certificate pinning.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::RefusedLeaf(_) | Self::ClosedAfterLeaf)
    }

    /// The label in records, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RefusedLeaf(_) => "refused_leaf",
            Self::ClosedAfterLeaf => "closed_after_leaf",
            Self::ClosedEarly => "closed_early",
            Self::Timeout => "timeout",
            Self::NothingInCommon => "nothing_in_common",
            Self::NoCertificate => "no_certificate",
            Self::BadCertificate => "bad_certificate",
            Self::NotTls => "not_tls",
            Self::Broken => "broken",
        }
    }

    /// Converts to an error with a complete message.
    pub fn into_error(self) -> Error {
        let kind = match self {
            Self::ClosedEarly => ErrorKind::ClientGone,
            Self::Timeout => ErrorKind::ClientTimeout,
            _ => ErrorKind::ClientTls,
        };
        let mut messages = data_file::records(include_str!("../../data/client_tls_failures.txt"));
        let [_, message] = messages.find(|[label, _]| *label == self.as_str()).expect("every failure has a message");
        let alert = if let Self::RefusedLeaf(alert) = self { alert } else { "" };
        Error::new(kind, message.replace("ALERT", alert)).with_source(self)
    }

    fn from_io(error: &io::Error, leaf_was_sent: bool) -> Self {
        let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) else {
            // Without an alert, only the moment tells a rejection from a disconnect.
            return if leaf_was_sent { Self::ClosedAfterLeaf } else { Self::ClosedEarly };
        };
        match tls {
            rustls::Error::AlertReceived(alert) => Self::from_alert(*alert, leaf_was_sent),
            rustls::Error::NoApplicationProtocol | rustls::Error::PeerIncompatible(_) => Self::NothingInCommon,
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::InvalidCertificate(_) => Self::BadCertificate,
            // Before the first flight, this is another protocol on the port.
            rustls::Error::InvalidMessage(_) if !leaf_was_sent => Self::NotTls,
            _ => Self::Broken,
        }
    }

    fn from_alert(alert: AlertDescription, leaf_was_sent: bool) -> Self {
        Self::RefusedLeaf(match alert {
            AlertDescription::UnknownCA => "unknown_ca",
            AlertDescription::BadCertificate => "bad_certificate",
            AlertDescription::CertificateUnknown => "certificate_unknown",
            AlertDescription::UnsupportedCertificate => "unsupported_certificate",
            AlertDescription::CertificateExpired => "certificate_expired",
            AlertDescription::CertificateRevoked => "certificate_revoked",
            AlertDescription::AccessDenied => "access_denied",
            AlertDescription::BadCertificateStatusResponse => "bad_certificate_status_response",
            // Some clients close in an orderly way when they distrust the certificate.
            AlertDescription::CloseNotify | AlertDescription::UserCanceled if leaf_was_sent => {
                return Self::ClosedAfterLeaf;
            }
            AlertDescription::CloseNotify | AlertDescription::UserCanceled => return Self::ClosedEarly,
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::NoApplicationProtocol => return Self::NothingInCommon,
            _ => return Self::Broken,
        })
    }
}

impl fmt::Display for ClientTlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for ClientTlsFailure {}

/// Performs a TLS handshake with a client, within `limit`.
///
/// # Errors
/// [`ErrorKind::ClientTls`], [`ErrorKind::ClientGone`] or [`ErrorKind::ClientTimeout`], each with a
/// [`ClientTlsFailure`] as its source.
pub async fn accept_tls(io: IoStream, tls: &ServerTls, limit: Duration) -> Result<(IoStream, ClientTls), Error> {
    match tokio::time::timeout(limit, handshake(io, tls)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(failure)) => Err(failure.into_error()),
        Err(_) => Err(ClientTlsFailure::Timeout.into_error()),
    }
}

async fn handshake(io: IoStream, tls: &ServerTls) -> Result<(IoStream, ClientTls), ClientTlsFailure> {
    // The configuration depends on the ClientHello, so it is read first.
    let start = LazyConfigAcceptor::new(Acceptor::default(), io.read_ahead())
        .await
        .map_err(|e| ClientTlsFailure::from_io(&e, false))?;
    let hello = start.client_hello();
    let mut client_tls = ClientTls {
        sni: hello.server_name().map(ByteStr::from),
        alpn_offered: hello.alpn().into_iter().flatten().map(alpn_name).collect(),
        ..ClientTls::default()
    };
    let config = tls.config_for(hello.cipher_suites());
    // The leaf is part of the server's first flight, so any failure from here on follows its receipt.
    let stream = start.into_stream(config).await.map_err(|e| ClientTlsFailure::from_io(&e, true))?;
    let connection = stream.get_ref().1;
    client_tls.version = version_name(connection.protocol_version());
    client_tls.cipher = connection.negotiated_cipher_suite().and_then(|s| cipher_name(s.suite()));
    client_tls.alpn = connection.alpn_protocol().map(alpn_name);
    client_tls.certificates = CertificateChain::from_der(tls.certified.cert.iter().map(AsRef::as_ref));
    client_tls.client_name = connection.peer_certificates().and_then(|chain| chain.first()).map(certificate_name);
    Ok((IoStream::server_tls(stream), client_tls))
}
