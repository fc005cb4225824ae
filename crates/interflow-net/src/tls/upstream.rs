//! The client side of TLS, for origins and upstream proxies: verification and error messages.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interflow_codec::fingerprint::ConnectionFingerprint;
use interflow_types::{ByteStr, CertificateChain, Error, ErrorKind, Host, Retryable, TlsVersion, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, HandshakeKind, InvalidMessage,
    PeerIncompatible, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use super::impersonate::TlsImpersonator;
use super::verify_error::{CertificateProblem, CertificateReason, describe};
use super::{Alpn, alpn_name, cipher_name, key_log, provider, trust_roots, version_name};
use crate::io::IoStream;

/// Sessions cached per profile. Each server may have several; one takes about 2 KiB.
const MAX_SESSIONS: usize = 2048;

/// A certificate with its key, to present to origins that request one, or to clients.
#[derive(Clone)]
pub struct ClientCertificate {
    /// PEM, leaf first.
    pub chain_pem: Vec<u8>,
    /// The private key in PEM: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key_pem: Vec<u8>,
}

options! {
    /// How origins are verified, and what is presented to them. By default only the platform's roots are trusted. With
    /// `danger_accept_invalid`, an invalid certificate is accepted, and the problem is reported all the same.
    #[derive(Clone)]
    pub struct TlsProfileOptions {
        pub platform_roots: bool = true,
        pub extra_ca_files: Vec<PathBuf>,
        pub extra_ca_pem: Vec<Vec<u8>>,
        pub danger_accept_invalid: bool,
        /// Whether a certificate for another name is accepted, if it is valid otherwise.
        pub any_name: bool,
        /// The certificate with its key for origins that request one.
        pub client_certificate: Option<ClientCertificate>,
        /// The only TLS version to use; `None` for both.
        pub version: Option<TlsVersion>,
    }
}

/// TLS settings for origins. Connections with different profiles never share a pool or a session.
pub struct TlsProfile {
    id: u64,
    danger: bool,
    any_name: bool,
    platform_roots: bool,
    extra: Vec<CertificateDer<'static>>,
    pub(super) version: Option<TlsVersion>,
    pub(super) client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ready: OnceLock<TlsConfigs>,
    impersonator: Option<TlsImpersonator>,
}

/// Built at the first handshake, because reading the platform's roots takes milliseconds.
struct TlsConfigs {
    verifier: Arc<UpstreamVerifier>,
    configs: [Arc<ClientConfig>; Alpn::COUNT],
}

impl TlsProfile {
    /// Validates the options; the platform's roots are read at the first handshake.
    ///
    /// # Errors
    /// A CA or key that cannot be read, with the file's name; attributed to the configuration.
    pub fn new(options: TlsProfileOptions) -> Result<Arc<Self>, Error> {
        let mut extra = Vec::new();
        for path in &options.extra_ca_files {
            let pem = std::fs::read(path).map_err(|e| {
                config_error(format!("the extra CA file {} cannot be read", path.display())).with_source(e)
            })?;
            extra.extend(read_cas(&pem, &format!("the extra CA file {}", path.display()))?);
        }
        for pem in &options.extra_ca_pem {
            extra.extend(read_cas(pem, "an extra CA")?);
        }
        // A key that does not fit is reported now, not at the first handshake.
        let client = options.client_certificate.as_ref().map(read_client_certificate).transpose()?;
        Ok(Arc::new(Self {
            // A new number for each profile: pools never mix connections of different trust.
            id: next_id(),
            danger: options.danger_accept_invalid,
            any_name: options.any_name,
            platform_roots: options.platform_roots,
            extra,
            version: options.version,
            client,
            ready: OnceLock::new(),
            impersonator: None,
        }))
    }

    /// The same trust, client certificate and verification, with the fingerprint of another client. `name` is
    /// recorded on flows. If `leniently`, parts that cannot be sent are left out, which the recorded name says.
    ///
    /// # Errors
    /// The parts that cannot be sent, or that this build does not support impersonation.
    pub fn with_fingerprint(
        self: &Arc<Self>,
        name: &str,
        fingerprint: ConnectionFingerprint,
        leniently: bool,
    ) -> Result<Arc<Self>, Error> {
        let impersonator = TlsImpersonator::new(self, name, fingerprint, leniently).map_err(config_error)?;
        Ok(Arc::new(Self {
            id: next_id(),
            danger: self.danger,
            any_name: self.any_name,
            platform_roots: self.platform_roots,
            // Trust is the base profile's, see below.
            extra: Vec::new(),
            version: self.version,
            // The impersonator keeps the base profile, and takes trust and the client certificate from it.
            client: None,
            ready: OnceLock::new(),
            impersonator: Some(impersonator),
        }))
    }

    /// The fingerprint of connections, if it is not Interflow's own.
    pub fn fingerprint(&self) -> Option<&ConnectionFingerprint> {
        self.impersonator.as_ref().map(TlsImpersonator::fingerprint)
    }

    /// A number unique within this process; part of the key of every connection pool.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Reads the platform's roots now, so that the first handshake need not wait for it.
    pub fn preload(&self) {
        self.configs();
    }

    #[cfg(feature = "impersonate")]
    pub(super) fn verify_with(&self) -> Arc<UpstreamVerifier> {
        Arc::clone(&self.configs().verifier)
    }

    fn configs(&self) -> &TlsConfigs {
        self.ready.get_or_init(|| {
            let verifier = Arc::new(self.verifier());
            let base = self.base_config(verifier.clone());
            let config = |alpn: Alpn| {
                let mut config = base.clone();
                config.alpn_protocols = alpn.protocols();
                Arc::new(config)
            };
            // In the order of `Alpn::index`. Clones share the session cache; a session is valid with all of them.
            let configs = [Alpn::Http1, Alpn::Http2, Alpn::Both, Alpn::None].map(config);
            TlsConfigs { verifier, configs }
        })
    }

    pub(super) fn verifier(&self) -> UpstreamVerifier {
        // A server's own certificate is trusted only for that server, not as an issuer.
        let authorities: Vec<_> = self.extra.iter().filter(|der| !is_server_only(der)).cloned().collect();
        let roots = if self.platform_roots {
            trust_roots::platform_roots_with(&authorities)
        } else {
            Arc::new(trust_roots::root_store(authorities).0)
            // The platform's roots are not needed by profiles that trust only listed authorities.
        };
        let webpki = if roots.is_empty() {
            Err(trust_roots::platform_roots()
                .trouble
                .clone()
                .unwrap_or_else(|| "no CA is trusted by this profile".to_owned()))
        } else {
            WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(|e| e.to_string())
        };
        let listed = self.extra.clone();
        UpstreamVerifier {
            webpki,
            listed,
            danger: self.danger,
            any_name: self.any_name,
            algorithms: provider().signature_verification_algorithms,
        }
    }

    pub(super) fn base_config(&self, verifier: Arc<UpstreamVerifier>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(super::versions(self.version))
            .expect("the provider has suites for TLS 1.2 and 1.3")
            // rustls calls every verifier of one's own dangerous; this one delegates to webpki.
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
                certified_key(chain, key).expect("the key was read when the profile was made"),
            ))),
        };
        // Shared by all ALPN variants of the profile, see `configs`.
        config.resumption = Resumption::in_memory_sessions(MAX_SESSIONS);
        config.key_log = key_log();
        config
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn config_error(message: String) -> Error {
    Error::new(ErrorKind::UpstreamTls, message).with_error_source(interflow_types::ErrorSource::Config)
}

pub(super) fn read_cas(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certs = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| config_error(format!("{what} is not PEM: {e}")))?;
    if certs.is_empty() {
        return Err(config_error(format!("{what} contains no certificate in PEM (-----BEGIN CERTIFICATE-----)")));
    }
    // Parsed now, so that a bad file is reported with its name.
    let (_, refused) = trust_roots::root_store(certs.iter().cloned());
    if refused > 0 {
        return Err(config_error(format!("{what} contains a certificate that cannot be read")));
    }
    Ok(certs)
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a chain and a key in PEM and checks that they belong together.
pub(super) fn read_chain_and_key(chain_pem: &[u8], key_pem: &[u8]) -> Result<ChainAndKey, String> {
    let chain = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("the certificate is not PEM: {e}"))?;
    if chain.is_empty() {
        return Err("it contains no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|e| {
        // A common mistake, whose parse error would not explain it.
        if key_pem.windows(21).any(|w| w == b"ENCRYPTED PRIVATE KEY") {
            "the key is encrypted: decrypt it with `openssl pkey -in KEY -out PLAIN_KEY`".to_owned()
        } else {
            format!("the key is not PEM: {e}")
        }
    })?;
    certified_key(&chain, &key).map_err(|e| match e {
        rustls::Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
        e => format!("the certificate or its key cannot be used: {e}"),
    })?;
    Ok((chain, key))
}

/// A certificate of X.509 version 1 is only presented: whether it is the key's, rustls cannot tell.
fn certified_key(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    match CertifiedKey::from_der(chain.to_vec(), key.clone_key(), &provider()) {
        Err(_) if chain.first().is_some_and(is_version_1) => {
            Ok(CertifiedKey::new(chain.to_vec(), provider().key_provider.load_private_key(key.clone_key())?))
        }
        read => read,
    }
}

fn is_version_1(der: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, cert)| cert.version() == X509Version::V1)
}

impl ClientCertificate {
    /// Whether both can be read, and belong together.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        read_chain_and_key(&self.chain_pem, &self.key_pem).map(drop)
    }
}

fn read_client_certificate(client: &ClientCertificate) -> Result<ChainAndKey, Error> {
    read_chain_and_key(&client.chain_pem, &client.key_pem)
        .map_err(|e| config_error(format!("the client certificate cannot be used: {e}")))
}

/// Verifies certificates like a browser, and describes failures.
#[derive(Debug)]
pub(super) struct UpstreamVerifier {
    webpki: Result<Arc<WebPkiServerVerifier>, String>,
    /// The additional certificates: a server that presents exactly one of these is trusted for its names.
    listed: Vec<CertificateDer<'static>>,
    pub(super) danger: bool,
    any_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl UpstreamVerifier {
    pub(super) fn check(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateProblem> {
        // By the whole certificate, not by its key: a renewed one has to be listed again.
        if self.listed.iter().any(|listed| listed == leaf) {
            return check_listed(leaf, name, now)
                .map_err(|error| describe(&error, std::slice::from_ref(&leaf.clone().into_owned())));
        }
        let webpki = self.webpki.as_ref().map_err(|trouble| {
            CertificateProblem::new(CertificateReason::NoRoots, format!("was not verified: {trouble}"))
        })?;
        // Without an OCSP response: revocation is not checked.
        webpki.verify_server_cert(leaf, intermediates, name, &[], now).map(|_| ()).map_err(|error| {
            let chain: Vec<_> = std::iter::once(leaf).chain(intermediates).cloned().collect();
            describe(&error, &chain)
        })
    }
}

/// Whether a certificate is explicitly not a CA.
fn is_server_only(der: &CertificateDer<'_>) -> bool {
    let parsed = X509Certificate::from_der(der).ok();
    let constraints = parsed.as_ref().and_then(|(_, cert)| cert.basic_constraints().ok().flatten());
    constraints.is_some_and(|c| !c.value.ca)
}

/// Verifies a certificate that the operator listed: its issuer does not matter, but its names and validity do.
fn check_listed(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let (_, cert) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::BadEncoding)?;
    let time = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    let not_before = time(cert.validity().not_before.timestamp());
    let not_after = time(cert.validity().not_after.timestamp());
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
}

impl ServerCertVerifier for UpstreamVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // If invalid certificates are accepted, the check is made after the handshake, where its result can be
        // reported.
        if !self.danger {
            match self.check(leaf, intermediates, name, now) {
                // The name is compared last, after everything else was found right.
                Err(problem) if self.any_name && problem.reason == CertificateReason::WrongHost => {}
                checked => checked.map_err(CertificateProblem::into_rustls)?,
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.danger {
            return Ok(HandshakeSignatureValid::assertion());
        }
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.danger {
            return Ok(HandshakeSignatureValid::assertion());
        }
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Performs a TLS handshake with the peer of `io`, which must be `host`, within `limit`.
///
/// # Errors
/// [`ErrorKind::UpstreamCertificate`] with a [`CertificateProblem`] as its source, [`ErrorKind::UpstreamTls`], or
/// [`ErrorKind::ConnectTimeout`].
pub async fn connect_tls(
    io: IoStream,
    host: &Host,
    profile: &TlsProfile,
    alpn: Alpn,
    limit: Duration,
) -> Result<(IoStream, UpstreamTls), Error> {
    // Before the handshake: a name that no certificate can have is an error of its own.
    let name = server_name(host)?;
    if let Some(impersonator) = &profile.impersonator {
        return impersonator.connect(io, host, name, alpn, limit).await;
    }
    let ready = profile.configs();
    let connector = TlsConnector::from(ready.configs[alpn.index()].clone());
    let stream = match tokio::time::timeout(limit, connector.connect(name.clone(), io.read_ahead())).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let failed = handshake_error(host, &error);
            // A certificate's problem is already the source of its error.
            let is_explained = std::error::Error::source(&failed).is_some();
            return Err(if is_explained { failed } else { failed.with_source(error) });
        }
        Err(_) => return Err(handshake_timeout(host, limit)),
    };
    let connection = stream.get_ref().1;
    // The chain is checked once more, only to say what is wrong with it.
    let problem = if profile.danger {
        connection.peer_certificates().and_then(|chain| {
            let (leaf, rest) = chain.split_first()?;
            ready.verifier.check(leaf, rest, &name, UnixTime::now()).err()
        })
    } else {
        None
    };
    let tls = UpstreamTls {
        version: version_name(connection.protocol_version()),
        cipher: connection.negotiated_cipher_suite().and_then(|s| cipher_name(s.suite())),
        alpn: connection.alpn_protocol().map(alpn_name),
        unverified: problem.is_some(),
        problem: problem.map(|p| ByteStr::from(format!("the certificate of {host} {}", p.text))),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        fingerprint: None,
        certificates: connection
            .peer_certificates()
            .and_then(|chain| CertificateChain::from_der(chain.iter().map(AsRef::as_ref))),
    };
    Ok((IoStream::client_tls(stream), tls))
}

pub(super) fn handshake_timeout(host: &Host, limit: Duration) -> Error {
    let message = format!("the TLS handshake with {host} was not done within {} s", limit.as_secs_f32());
    // Retryable: nothing of the request was sent.
    Error::new(ErrorKind::ConnectTimeout, message).with_retryable(Retryable::Yes)
}

fn server_name(host: &Host) -> Result<ServerName<'static>, Error> {
    match host {
        Host::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
        Host::Name(name) => ServerName::try_from(name.to_string())
            .map_err(|_| Error::new(ErrorKind::UpstreamTls, format!("{host} is not a valid name in a certificate"))),
    }
}

fn handshake_error(host: &Host, error: &io::Error) -> Error {
    // Not an error of TLS: the connection was lost.
    let Some(tls) = rustls_error(error) else { return handshake_cut_off(host, error.kind()) };
    if let Some(problem) = CertificateProblem::from_rustls(tls) {
        return certificate_error(host, problem);
    }
    let message = match explain(error) {
        Some(text) => format!("TLS with {host} failed: {text}"),
        None => format!("TLS with {host} failed"),
    };
    Error::new(ErrorKind::UpstreamTls, message)
}

pub(super) fn handshake_cut_off(host: &Host, how: io::ErrorKind) -> Error {
    let message = match how {
        io::ErrorKind::UnexpectedEof => format!("{host} closed the connection during the TLS handshake"),
        io::ErrorKind::ConnectionReset => format!("{host} reset the connection during the TLS handshake"),
        _ => format!("the TLS handshake with {host} failed"),
    };
    // Nothing of the request was sent within an unfinished handshake.
    Error::new(ErrorKind::UpstreamTls, message).with_retryable(Retryable::Yes)
}

pub(super) fn certificate_error(host: &Host, problem: CertificateProblem) -> Error {
    let remedy = problem.remedy(host);
    let message = format!("the certificate of {host} {}; {remedy}", problem.text);
    Error::new(ErrorKind::UpstreamCertificate, message).with_source(problem)
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Whether a handshake failed because the server supports none of the offered ALPN protocols (RFC 7301 3.2).
pub(crate) fn is_no_application_protocol(error: &Error) -> bool {
    if TlsImpersonator::is_no_application_protocol(error) {
        return true;
    }
    // With rustls, the alert is inside an I/O error.
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<io::Error>());
    matches!(
        source.and_then(rustls_error),
        Some(
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
                | rustls::Error::NoApplicationProtocol
        )
    )
}

/// Describes an I/O error of an upstream connection, if it is a TLS failure. A server that requires a client
/// certificate refuses its absence only after the handshake, so this is used for reads and writes too.
pub fn explain(error: &io::Error) -> Option<&'static str> {
    Some(match rustls_error(error)? {
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it answered with something that is not TLS; perhaps this port speaks cleartext"
        }
        rustls::Error::InvalidMessage(_) => "it sent a TLS message that cannot be read",
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "it supports no acceptable TLS version: 1.2 and 1.3, or the one that a rule requires",
        rustls::Error::PeerIncompatible(_) => "its TLS has no secure parameters in common with Interflow's",
        rustls::Error::NoCertificatesPresented => "it sent no certificate",
        rustls::Error::NoApplicationProtocol => "it speaks none of the protocols offered (ALPN)",
        rustls::Error::PeerMisbehaved(_) | rustls::Error::InappropriateHandshakeMessage { .. } => {
            "it violated the TLS protocol"
        }
        rustls::Error::DecryptError => "a record could not be decrypted: something on the way changes bytes",
        _ => return None,
    })
}

/// The error of a connection whose origin ended TLS after the handshake, as [explained](explain).
pub(crate) fn ended_error(why: &str) -> Error {
    Error::new(ErrorKind::UpstreamTls, format!("the origin ended TLS: {why}"))
}

pub(super) fn explain_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::ProtocolVersion => {
            "it supports no acceptable TLS version: 1.2 and 1.3, or the one that a rule requires"
        }
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it accepts none of our cipher suites, or requires a client certificate, see [[upstream.client_certificate]] (alert \
             handshake_failure)"
        }
        AlertDescription::UnrecognisedName => "it does not know this host name (alert unrecognized_name)",
        AlertDescription::CertificateRequired => {
            "it requires a client certificate: configure one for this host in [[upstream.client_certificate]]"
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            "it does not accept our client certificate, or requires one: see [[upstream.client_certificate]]"
        }
        AlertDescription::NoApplicationProtocol => "it speaks none of the protocols offered (ALPN)",
        AlertDescription::InternalError => "it has an internal error",
        _ => "it ended the handshake with an alert",
    }
}
