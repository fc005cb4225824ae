//! Describes what is wrong with an origin's certificate, with a remedy.

use std::fmt;
use std::sync::Arc;

use interflow_types::{Error, Host};
use rustls::{CertificateError, OtherError};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

interflow_types::labelled_enum! {
    /// Why an origin's certificate is invalid. The first problem found is reported, in the order of the verifier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CertificateReason {
        Expired "tls_cert_expired",
        NotYetValid "tls_cert_not_yet_valid",
        WrongHost "tls_cert_hostname_mismatch",
        /// It does not chain to a trusted root.
        UnknownIssuer "tls_cert_untrusted",
        SelfSigned "tls_cert_self_signed",
        Revoked "tls_cert_revoked",
        BadSignature "tls_cert_bad_signature",
        /// Its signature algorithm is too weak or not supported.
        UnsupportedAlgorithm "tls_cert_unsupported_algorithm",
        /// It was not issued for use by a server.
        WrongPurpose "tls_cert_wrong_purpose",
        Malformed "tls_cert_malformed",
        /// This system has no trusted roots at all.
        NoRoots "tls_no_trusted_roots",
        Other "tls_cert_invalid",
    }
}

/// A certificate problem: the source of an error of kind `UpstreamCertificate`, whose message is complete. On its own
/// it is displayed as its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    pub reason: CertificateReason,
    /// A predicate without its subject, such as `expired on 2026-01-01 00:00 UTC`.
    pub text: String,
}

impl CertificateProblem {
    /// The certificate problem among the sources of an error.
    pub fn from_error(error: &Error) -> Option<&Self> {
        // The problem may be below several layers of errors.
        let mut below = std::error::Error::source(error);
        while let Some(error) = below {
            if let Some(problem) = error.downcast_ref() {
                return Some(problem);
            }
            below = error.source();
        }
        None
    }

    pub(super) fn new(reason: CertificateReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }

    /// Wraps the problem to pass it through the TLS library.
    pub(super) fn into_rustls(self) -> rustls::Error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(self))))
    }

    /// The problem that was passed through the TLS library.
    pub(super) fn from_rustls(error: &rustls::Error) -> Option<Self> {
        let rustls::Error::InvalidCertificate(error) = error else { return None };
        // The verifier's own problem, unwrapped.
        if let CertificateError::Other(OtherError(inner)) = error
            && let Some(problem) = inner.downcast_ref::<Self>()
        {
            return Some(problem.clone());
        }
        // Found by rustls itself, outside of the verifier.
        Some(Self::new(CertificateReason::Other, format!("is not acceptable: {error}")))
    }

    /// What the operator can do about it.
    pub(super) fn remedy(&self, host: &Host) -> String {
        match self.reason {
            CertificateReason::Expired | CertificateReason::NotYetValid => {
                format!("check this machine's clock, or ask the operator of {host} for a valid certificate")
            }
            CertificateReason::WrongHost => "check the name you asked for".to_owned(),
            CertificateReason::UnknownIssuer | CertificateReason::SelfSigned => {
                format!("if {host} is yours to trust, add its issuer's certificate to the extra CA files")
            }
            CertificateReason::NoRoots => "install this system's CA certificates".to_owned(),
            _ => format!("ask the operator of {host} for a valid certificate"),
        }
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())
    }
}

impl std::error::Error for CertificateProblem {}

/// Describes the verifier's error on a certificate chain.
pub(super) fn describe(error: &rustls::Error, chain: &[CertificateDer<'_>]) -> CertificateProblem {
    use CertificateReason as R;
    let rustls::Error::InvalidCertificate(error) = error else {
        return CertificateProblem::new(R::Other, format!("is not acceptable: {error}"));
    };
    // Only to describe it; an unreadable leaf is described without its names.
    let leaf = chain.first().and_then(|der| X509Certificate::from_der(der).ok()).map(|(_, leaf)| leaf);
    let (reason, text) = match error {
        CertificateError::ExpiredContext { not_after, .. } => (R::Expired, format!("expired on {}", date(*not_after))),
        CertificateError::Expired => (R::Expired, "expired".to_owned()),
        CertificateError::NotValidYetContext { not_before, .. } => {
            (R::NotYetValid, format!("is not valid before {}", date(*not_before)))
        }
        CertificateError::NotValidYet => (R::NotYetValid, "is not valid yet".to_owned()),
        CertificateError::NotValidForNameContext { expected, presented } => {
            (R::WrongHost, wrong_host(&expected.to_str(), presented))
        }
        CertificateError::NotValidForName => (R::WrongHost, "is for another host".to_owned()),
        CertificateError::UnknownIssuer => unknown_issuer(leaf.as_ref(), chain.len()),
        CertificateError::Revoked => (R::Revoked, "was revoked by its issuer".to_owned()),
        CertificateError::BadSignature => (R::BadSignature, "has a signature that is not its issuer's".to_owned()),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            (R::UnsupportedAlgorithm, "is signed with an algorithm that is too weak or not supported".to_owned())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            (R::WrongPurpose, "was not issued for use by a server".to_owned())
        }
        CertificateError::BadEncoding | CertificateError::UnhandledCriticalExtension => {
            (R::Malformed, format!("cannot be read: {error}"))
        }
        CertificateError::Other(inner) => other(&inner.to_string()),
        error => (R::Other, format!("is not acceptable: {error}")),
    };
    CertificateProblem { reason, text }
}

/// The verifier reports version 1 certificates, and CAs presented as servers, only as text.
fn other(inner: &str) -> (CertificateReason, String) {
    if inner.contains("CaUsedAsEndEntity") {
        let text = "is a CA's own certificate, which no server may show".to_owned();
        (CertificateReason::WrongPurpose, text)
    } else if inner.contains("UnsupportedCertVersion") {
        (CertificateReason::Malformed, "is of an X.509 version from before 1996".to_owned())
    } else {
        (CertificateReason::Other, format!("is not acceptable: {inner}"))
    }
}

fn wrong_host(expected: &str, presented: &[String]) -> String {
    const MAX_LISTED_NAMES: usize = 4;
    // Certificates of wildcard hosters name hundreds of hosts.
    if presented.is_empty() {
        return format!("names no host at all, so it is not for {expected}");
    }
    let names: Vec<_> = presented.iter().take(MAX_LISTED_NAMES).map(|name| plain_name(name)).collect();
    let more = presented.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("is for {}{more}, not for {expected}", names.join(", "))
}

/// The verifier formats names as `DnsName("a.example")` or `IpAddress(127.0.0.1)`.
fn plain_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

fn unknown_issuer(leaf: Option<&X509Certificate<'_>>, chain: usize) -> (CertificateReason, String) {
    let Some(leaf) = leaf else {
        return (CertificateReason::UnknownIssuer, "was issued by an unknown authority".to_owned());
    };
    // Issued by itself: installing the issuer means trusting exactly this certificate.
    if leaf.subject() == leaf.issuer() {
        return (CertificateReason::SelfSigned, "is self-signed".to_owned());
    }
    let mut text = format!("was issued by an unknown authority, {}", common_name(leaf.issuer()));
    // Browsers fetch a missing intermediate, so the site may work there.
    if chain == 1 {
        text.push_str(" (the server sent no intermediate certificate, which it perhaps should)");
    }
    (CertificateReason::UnknownIssuer, text)
}

/// The name by which people know an authority.
fn common_name(name: &X509Name<'_>) -> String {
    let first = name.iter_common_name().chain(name.iter_organization()).find_map(|a| a.as_str().ok());
    match first {
        // The text is the peer's: bounded, and without control characters in the log.
        Some(cn) => format!("\"{}\"", cn.chars().filter(|c| !c.is_control()).take(80).collect::<String>()),
        None => format!("\"{name}\""),
    }
}

/// Formats to the minute, which is precise enough for certificates.
fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let date = jiff::Timestamp::from_second(seconds).map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    date.unwrap_or_else(|_| format!("second {seconds} of the Unix epoch"))
}
