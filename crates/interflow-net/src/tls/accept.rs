//! TLS towards clients: the accepting side, and telling a client that refuses our leaf from other failures.

use std::fmt;
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use interflow_flow::{Blame, ByteStr, ClientTls, Error, Kind};
use rustls::server::{Acceptor, NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, ServerConfig};
use tokio_rustls::LazyConfigAcceptor;

use super::upstream::read_chain_and_key;
use super::{Alpn, alpn_name, cipher_name, key_log, provider, version_name};
use crate::io::Io;

/// What is shown to a client: a certificate with its key, and the protocols offered.
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// For TLS to the proxy itself: a chain (leaf first) and its key in PEM. Offers `h2` and `http/1.1`.
    ///
    /// # Errors
    /// What cannot be read, or does not belong together; blamed on the configuration.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, Error> {
        let (chain, key) = read_chain_and_key(chain_pem, key_pem).map_err(|e| {
            Error::new(Kind::ClientTls, format!("the listener's certificate: {e}")).blame_on(Blame::Config)
        })?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|e| {
            Error::new(Kind::ClientTls, "the listener's certificate cannot be used").because(e).blame_on(Blame::Config)
        })?;
        Ok(Self::new(certified, Alpn::Both))
    }

    /// The same with other protocols offered.
    #[must_use]
    pub fn with_alpn(self, alpn: Alpn) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = alpn.protocols();
        Self { config: Arc::new(config) }
    }

    pub(crate) fn new(certified: impl Into<Arc<CertifiedKey>>, alpn: Alpn) -> Self {
        let resolver = SingleCertAndKey::from(certified.into());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(super::VERSIONS)
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = alpn.protocols();
        config.key_log = key_log();
        config.ticketer = ticketer();
        // Tickets carry the sessions; a store in each of ten thousand configurations would only cost memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Self { config: Arc::new(config) }
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("alpn", &self.config.alpn_protocols).finish_non_exhaustive()
    }
}

/// One ticket key for all leaves: a ticket names its server, and is not taken for another.
fn ticketer() -> Arc<dyn ProducesTickets> {
    static TICKETER: LazyLock<Arc<dyn ProducesTickets>> =
        LazyLock::new(|| rustls::crypto::aws_lc_rs::Ticketer::new().expect("the system gives random bytes"));
    TICKETER.clone()
}

/// How a client's TLS failed. It stands below an error of kind `ClientTls` or `ClientTimeout`, whose message already
/// says everything; alone it shows its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientTlsFailure {
    /// The client refused our leaf with this alert (`unknown_ca` and the like): it does not trust our CA, or pins.
    RefusedLeaf(&'static str),
    /// The client closed or reset right after it saw our leaf, without a word: probably a refusal as well.
    ClosedAfterLeaf,
    /// The client went away before it saw our leaf.
    ClosedEarly,
    /// The client did not finish in time.
    Timeout,
    /// The client has no protocol version, cipher suite or application protocol in common with us.
    NothingInCommon,
    /// The client's bytes are no TLS.
    NotTls,
    /// Anything else that breaks the protocol.
    Broken,
}

impl ClientTlsFailure {
    /// How the TLS failed, when an error is about that.
    pub fn of(error: &Error) -> Option<Self> {
        std::error::Error::source(error)?.downcast_ref().copied()
    }

    /// Whether the client refused our leaf, as far as can be told from here: what a count of pinning clients counts.
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
            Self::NotTls => "not_tls",
            Self::Broken => "broken",
        }
    }

    fn into_error(self) -> Error {
        let (kind, message) = match self {
            Self::RefusedLeaf(alert) => (
                Kind::ClientTls,
                format!(
                    "the client refused our certificate (alert {alert}): it does not trust Interflow's CA, or pins"
                ),
            ),
            Self::ClosedAfterLeaf => (
                Kind::ClientTls,
                "the client closed when it saw our certificate: perhaps it does not trust Interflow's CA, or pins"
                    .into(),
            ),
            Self::ClosedEarly => (Kind::ClientGone, "the client closed during the TLS handshake".into()),
            Self::Timeout => (Kind::ClientTimeout, "the client did not finish the TLS handshake in time".into()),
            Self::NothingInCommon => (
                Kind::ClientTls,
                "the client's TLS has nothing in common with ours: no version (1.2, 1.3), suite or protocol (ALPN)"
                    .into(),
            ),
            Self::NotTls => (Kind::ClientTls, "the client's bytes are not TLS".into()),
            Self::Broken => (Kind::ClientTls, "the client broke the rules of the TLS handshake".into()),
        };
        Error::new(kind, message).because(self)
    }

    fn from_io(error: &io::Error, leaf_was_sent: bool) -> Self {
        let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) else {
            return if leaf_was_sent { Self::ClosedAfterLeaf } else { Self::ClosedEarly };
        };
        match tls {
            rustls::Error::AlertReceived(alert) => Self::from_alert(*alert, leaf_was_sent),
            rustls::Error::NoApplicationProtocol | rustls::Error::PeerIncompatible(_) => Self::NothingInCommon,
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

/// Makes TLS with a client. The whole handshake may take `limit`.
///
/// # Errors
/// [`Kind::ClientTls`], [`Kind::ClientGone`] or [`Kind::ClientTimeout`], each with a [`ClientTlsFailure`] below it.
pub async fn accept_tls(io: Io, tls: &ServerTls, limit: Duration) -> Result<(Io, ClientTls), Error> {
    match tokio::time::timeout(limit, handshake(io, tls)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(failure)) => Err(failure.into_error()),
        Err(_) => Err(ClientTlsFailure::Timeout.into_error()),
    }
}

async fn handshake(io: Io, tls: &ServerTls) -> Result<(Io, ClientTls), ClientTlsFailure> {
    let start =
        LazyConfigAcceptor::new(Acceptor::default(), io).await.map_err(|e| ClientTlsFailure::from_io(&e, false))?;
    let hello = start.client_hello();
    let mut seen = ClientTls {
        sni: hello.server_name().map(ByteStr::from),
        alpn_offered: hello.alpn().into_iter().flatten().map(alpn_name).collect(),
        ..ClientTls::default()
    };
    // The leaf goes out with our first flight, so whatever fails from here on fails in sight of it.
    let stream = start.into_stream(tls.config.clone()).await.map_err(|e| ClientTlsFailure::from_io(&e, true))?;
    let connection = stream.get_ref().1;
    seen.version = version_name(connection.protocol_version());
    seen.cipher = connection.negotiated_cipher_suite().and_then(|s| cipher_name(s.suite()));
    seen.alpn = connection.alpn_protocol().map(alpn_name);
    Ok((Io::server_tls(stream), seen))
}
