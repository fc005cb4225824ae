//! TLS to origins with another client's fingerprint, through BoringSSL. Certificates are verified by the same
//! verifier as everywhere else; BoringSSL verifies that the origin holds its certificate's key.

mod compression;
mod context;
mod trust_anchors;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use btls::ssl::{Ssl, SslAlert, SslContext, SslRef, SslVerifyError, SslVerifyMode, SslVersion};
use interflow_codec::fingerprint::{ConnectionFingerprint, GREASE, extension};
use interflow_types::{ByteStr, CertificateChain, Error, ErrorKind, Host, UpstreamTls};
use parking_lot::Mutex;
use rustls::AlertDescription;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_btls::SslStream;

use super::upstream::{UpstreamVerifier, certificate_error, explain_alert, handshake_cut_off, handshake_timeout};
use super::verify_error::CertificateReason;
use super::{Alpn, CertificateProblem, TlsProfile, alpn_name};
use crate::io::IoStream;

/// Opens TLS connections with one fingerprint. The base profile provides trust, verification and the client
/// certificate.
pub(super) struct TlsImpersonator {
    fingerprint: ConnectionFingerprint,
    name: ByteStr,
    base: Arc<TlsProfile>,
    /// The shared settings; `None` if they must be built per connection, because the ClientHello has random values.
    context: Option<SslContext>,
}

/// The result of verifying one connection's certificate.
type VerifyOutcome = Arc<Mutex<Option<CertificateProblem>>>;

impl TlsImpersonator {
    pub(super) fn new(
        base: &Arc<TlsProfile>,
        name: &str,
        mut fingerprint: ConnectionFingerprint,
        leniently: bool,
    ) -> Result<Self, String> {
        let missing = context::remove_unsupported(&mut fingerprint.tls);
        if !missing.is_empty() && !leniently {
            return Err(format!("the fingerprint `{name}` cannot be sent by this build: {}", missing.join("; ")));
        }
        let context = context::build_context(&fingerprint.tls, base)
            .map_err(|e| format!("the fingerprint `{name}` was refused by the TLS library: {e}"))?;
        // GREASE among the signature algorithms is part of the context, so it cannot be shared.
        let changes = fingerprint.tls.signature_algorithms.contains(&GREASE);
        let name = if missing.is_empty() { name.to_owned() } else { format!("{name}, but {}", missing.join("; ")) };
        Ok(Self { fingerprint, name: name.into(), base: Arc::clone(base), context: (!changes).then_some(context) })
    }

    pub(super) fn fingerprint(&self) -> &ConnectionFingerprint {
        &self.fingerprint
    }

    pub(super) async fn connect(
        &self,
        io: IoStream,
        host: &Host,
        name: ServerName<'static>,
        alpn: Alpn,
        limit: Duration,
    ) -> Result<(IoStream, UpstreamTls), Error> {
        let verifier = self.base.verify_with();
        let found = VerifyOutcome::default();
        let ssl = self.ssl(host, name, alpn, Arc::clone(&verifier), Arc::clone(&found));
        let made = ssl.and_then(|ssl| SslStream::new(ssl, io));
        let mut stream = made.map_err(|e| {
            let text = format!("TLS with {host} could not be started with the fingerprint `{}`", self.name);
            Error::new(ErrorKind::UpstreamTls, text).with_source(e.to_string())
        })?;
        match tokio::time::timeout(limit, Pin::new(&mut stream).connect()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(host, error, found.lock().take())),
            Err(_) => return Err(handshake_timeout(host, limit)),
        }
        let ssl = stream.ssl();
        let version = ssl.version2().and_then(version_name).ok_or_else(|| {
            let text = format!("TLS with {host} failed: it speaks neither TLS 1.2 nor TLS 1.3");
            Error::new(ErrorKind::UpstreamTls, text)
        })?;
        // Without `danger`, a problem has ended the handshake already.
        let problem = found.lock().take().filter(|_| verifier.danger);
        let tls = UpstreamTls {
            version: Some(version),
            cipher: ssl.current_cipher().and_then(|c| c.standard_name()).map(ByteStr::from_static),
            alpn: ssl.selected_alpn_protocol().map(alpn_name),
            unverified: problem.is_some(),
            problem: problem.map(|p| ByteStr::from(format!("the certificate of {host} {}", p.text))),
            resumed: ssl.session_reused(),
            fingerprint: Some(self.name.clone()),
            certificates: presented(ssl).and_then(|c| CertificateChain::from_der(c.iter().map(AsRef::as_ref))),
        };
        Ok((IoStream::impersonated(stream), tls))
    }

    fn ssl(
        &self,
        host: &Host,
        name: ServerName<'static>,
        alpn: Alpn,
        verifier: Arc<UpstreamVerifier>,
        found: VerifyOutcome,
    ) -> Result<Ssl, btls::error::ErrorStack> {
        let shape = &self.fingerprint.tls;
        let mut ssl = match &self.context {
            Some(context) => Ssl::new(context)?,
            None => {
                let context = context::build_context(shape, &self.base)?;
                Ssl::new(&context)?
            }
        };
        // SNI must not contain an address (RFC 6066 3).
        if let Host::Name(name) = host {
            ssl.set_hostname(name)?;
        }
        let offered = context::alpn(shape, alpn);
        if !offered.is_empty() {
            ssl.set_alpn_protos(&offered)?;
        }
        let old = shape.has_extension(extension::ALPS_OLD);
        // ALPS concerns HTTP/2 only.
        if (old || shape.has_extension(extension::ALPS)) && offered.starts_with(b"\x02h2") {
            ssl.add_application_settings(b"h2")?;
            ssl.set_alps_use_new_codepoint(!old);
        }
        ssl.set_enable_ech_grease(shape.has_extension(extension::ECH));
        ssl.set_permute_extensions(shape.permuted);
        if !shape.key_shares.is_empty() {
            ssl.set_client_key_shares(&context::key_shares(shape))?;
        }
        // BoringSSL's own verification is replaced by the verifier that all other connections use.
        ssl.set_custom_verify_callback(SslVerifyMode::PEER, move |ssl| verify(ssl, &name, &verifier, &found));
        Ok(ssl)
    }

    pub(super) fn is_no_application_protocol(error: &Error) -> bool {
        let below = std::error::Error::source(error).and_then(|s| s.downcast_ref::<HandshakeFailure>());
        below.is_some_and(|f| f.alert == Some(AlertDescription::NoApplicationProtocol))
    }
}

/// The chain that the origin presented.
fn presented(ssl: &SslRef) -> Option<Vec<CertificateDer<'static>>> {
    ssl.peer_cert_chain()?.iter().map(|c| c.to_der().ok().map(CertificateDer::from)).collect()
}

/// Verifies the origin's chain. If invalid certificates are accepted, the problem is stored to be reported.
fn verify(
    ssl: &mut SslRef,
    name: &ServerName<'static>,
    verifier: &UpstreamVerifier,
    found: &VerifyOutcome,
) -> Result<(), SslVerifyError> {
    let chain = presented(ssl);
    let checked = match chain.as_deref().and_then(<[_]>::split_first) {
        Some((leaf, rest)) => verifier.check(leaf, rest, name, UnixTime::now()),
        None => Err(CertificateProblem::new(CertificateReason::Malformed, "cannot be read")),
    };
    let Err(problem) = checked else { return Ok(()) };
    // The alert that the origin sees; the operator sees the description.
    let alert = match problem.reason {
        CertificateReason::Expired | CertificateReason::NotYetValid => SslAlert::CERTIFICATE_EXPIRED,
        CertificateReason::UnknownIssuer | CertificateReason::SelfSigned | CertificateReason::NoRoots => {
            SslAlert::UNKNOWN_CA
        }
        _ => SslAlert::BAD_CERTIFICATE,
    };
    // BoringSSL only passes the alert on; the description reaches the caller through `found`.
    *found.lock() = Some(problem);
    if verifier.danger { Ok(()) } else { Err(SslVerifyError::Invalid(alert)) }
}

/// Why a handshake failed, from BoringSSL's error.
#[derive(Debug)]
struct HandshakeFailure {
    text: String,
    alert: Option<AlertDescription>,
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for HandshakeFailure {}

fn failed(host: &Host, error: btls::ssl::Error, found: Option<CertificateProblem>) -> Error {
    if let Some(problem) = found {
        return certificate_error(host, problem);
    }
    let Some(stack) = error.ssl_error() else {
        let how = error.io_error().map_or(io::ErrorKind::UnexpectedEof, io::Error::kind);
        return match error.into_io_error() {
            Ok(io) => handshake_cut_off(host, how).with_source(io),
            Err(_) => handshake_cut_off(host, how),
        };
    };
    let alert = stack.errors().iter().find_map(|e| alert_of(e.reason()?));
    let reason = stack.errors().first().and_then(|e| e.reason()).unwrap_or("no reason given");
    let explanation = match (alert, reason) {
        // The peer's own reason says more than BoringSSL's.
        (Some(alert), _) => explain_alert(alert).to_owned(),
        (None, "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "HTTPS_PROXY_REQUEST") => {
            "it answered with something that is not TLS; perhaps this port speaks cleartext".to_owned()
        }
        (None, "UNSUPPORTED_PROTOCOL") => "it speaks neither TLS 1.2 nor TLS 1.3".to_owned(),
        (None, reason) => reason.to_ascii_lowercase().replace('_', " "),
    };
    let text = format!("TLS with {host} failed: {explanation}");
    Error::new(ErrorKind::UpstreamTls, text).with_source(HandshakeFailure { text: reason.to_owned(), alert })
}

/// The alert with this name in BoringSSL.
fn alert_of(reason: &str) -> Option<AlertDescription> {
    let name = reason.strip_prefix("SSLV3_ALERT_").or_else(|| reason.strip_prefix("TLSV1_ALERT_"))?;
    Some(match name {
        "HANDSHAKE_FAILURE" => AlertDescription::HandshakeFailure,
        "INSUFFICIENT_SECURITY" => AlertDescription::InsufficientSecurity,
        "PROTOCOL_VERSION" => AlertDescription::ProtocolVersion,
        "UNRECOGNIZED_NAME" => AlertDescription::UnrecognisedName,
        "CERTIFICATE_REQUIRED" => AlertDescription::CertificateRequired,
        "BAD_CERTIFICATE" => AlertDescription::BadCertificate,
        "CERTIFICATE_UNKNOWN" => AlertDescription::CertificateUnknown,
        "UNKNOWN_CA" => AlertDescription::UnknownCA,
        "ACCESS_DENIED" => AlertDescription::AccessDenied,
        "NO_APPLICATION_PROTOCOL" => AlertDescription::NoApplicationProtocol,
        "INTERNAL_ERROR" => AlertDescription::InternalError,
        _ => AlertDescription::Unknown(0),
    })
}

/// The version's usual name; `None` for versions that are never negotiated.
fn version_name(version: SslVersion) -> Option<&'static str> {
    match version {
        SslVersion::TLS1_2 => Some("TLSv1.2"),
        SslVersion::TLS1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
