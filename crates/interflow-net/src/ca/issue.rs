//! Issues leaf certificates, and the CA's own certificate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interflow_types::{Error, ErrorKind, ErrorSource, Host, random_bytes};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::keys::LeafKey;

const DAY_SECS: u64 = 86_400;
/// Tolerance for clients whose clock is slow.
const BACKDATE_SECS: u64 = DAY_SECS;
/// The X.520 limit on a CN; clients use the SAN anyway.
const MAX_COMMON_NAME_LEN: usize = 64;

pub(super) struct IssuedLeaf {
    /// The leaf, followed by the intermediate CAs, if any.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

/// The CA's key and what is needed to sign with it.
pub(super) struct LeafIssuer {
    issuer: Issuer<'static, KeyPair>,
    pub(super) name: String,
    pub(super) spki_sha256: [u8; 32],
    /// The intermediate certificates to send to clients; empty if the CA is a root.
    tail: Vec<CertificateDer<'static>>,
    not_after: u64,
    lifetime: u64,
    pub(super) signed: AtomicU64,
}

impl LeafIssuer {
    /// Checks that the first certificate of the chain is a CA, is valid now, and belongs to the key. Also returns the
    /// CA's certificate and its expiry.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: KeyPair,
        leaf_days: u32,
        dir: &Path,
    ) -> Result<(Self, CertificateDer<'static>, u64), Error> {
        let broken = |what: String| {
            let message = format!(
                "the CA in {} cannot be used: {what}. Put the right files there, or make a new CA with `interflow ca \
                 rotate`",
                dir.display()
            );
            Error::new(ErrorKind::Internal, message).with_error_source(ErrorSource::Config)
        };
        // The first certificate signs the leaves; those after it are its own issuers.
        let ca = chain.first().cloned().ok_or_else(|| broken("ca.pem contains no certificate".to_owned()))?;
        let (_, parsed) = X509Certificate::from_der(&ca).map_err(|e| broken(format!("ca.pem cannot be read: {e}")))?;
        if !parsed.is_ca() {
            return Err(broken("the certificate in ca.pem is not a CA's".to_owned()));
        }
        // Otherwise every handshake would fail with a signature error that names no cause.
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(broken("ca.key is not the key of ca.pem".to_owned()));
        }
        let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        if not_after <= super::now() {
            return Err(broken(format!("it expired on {}", parsed.validity().not_after)));
        }
        let spki_sha256 = Sha256::digest(parsed.public_key().raw).into();
        let name = parsed.subject().iter_common_name().find_map(|cn| cn.as_str().ok());
        let name = name.map_or_else(|| parsed.subject().to_string(), str::to_owned);
        // A root is never sent: clients that trust it have it already (RFC 8446 4.4.2).
        // By subject equal to issuer: a CA that is itself an intermediate is kept and sent.
        let tail = chain.iter().filter(|der| !is_self_issued(der)).cloned().collect();
        let issuer = Issuer::from_ca_cert_der(&ca, key).map_err(|e| broken(e.to_string()))?;
        // The configuration checks the same bounds; other callers are held to them here.
        let lifetime = u64::from(leaf_days.clamp(2, 90)) * DAY_SECS;
        Ok((Self { issuer, name, spki_sha256, tail, not_after, lifetime, signed: AtomicU64::new(0) }, ca, not_after))
    }

    /// Signs a leaf for a host. It is valid from a day ago for its lifetime, but not longer than the CA.
    pub(super) fn issue(&self, host: &Host, key: &LeafKey, now: u64) -> IssuedLeaf {
        let not_before = now.saturating_sub(BACKDATE_SECS);
        // RFC 5280 does not require it, but many verifiers reject a leaf that outlives its issuer.
        let not_after = (not_before + self.lifetime).min(self.not_after);
        let leaf = leaf_params(host, not_before, not_after)
            .signed_by(&key.pair, &self.issuer)
            .expect("a CA key that was read or made signs, and every name here is ASCII");
        self.signed.fetch_add(1, Ordering::Relaxed);
        // The leaf first, then each certificate's issuer (RFC 8446 4.4.2).
        let mut chain = Vec::with_capacity(1 + self.tail.len());
        chain.push(leaf.der().clone());
        chain.extend(self.tail.iter().cloned());
        IssuedLeaf { chain, not_before, not_after }
    }
}

fn is_self_issued(der: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, cert)| cert.subject() == cert.issuer())
}

fn leaf_params(host: &Host, not_before: u64, not_after: u64) -> CertificateParams {
    let san = match host {
        Host::Ip(ip) => SanType::IpAddress(*ip),
        Host::Name(name) => SanType::DnsName(dns_name(name)),
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let cn = match &san {
        SanType::DnsName(name) => name.as_str().to_owned(),
        _ => host.ip().map(|ip| ip.to_string()).unwrap_or_default(),
    };
    // A longer name is left out rather than cut: it would be a different name.
    if cn.len() <= MAX_COMMON_NAME_LEN {
        params.distinguished_name.push(DnType::CommonName, cn);
    }
    params.subject_alt_names = vec![san];
    params.serial_number = Some(random_serial());
    set_validity(&mut params, not_before, not_after);
    // With the extension present and `CA:FALSE`, so that the leaf cannot be misused as a CA.
    params.is_ca = IsCa::ExplicitNoCa;
    // Of an ECDSA key, TLS uses signatures only; key encipherment is for RSA key exchange.
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

/// The name without the trailing dot, which is not allowed in a SAN (RFC 5280 4.2.1.6). Names that are not ASCII
/// cannot occur on the wire; they get a name that matches nothing.
fn dns_name(name: &str) -> Ia5String {
    let name = name.strip_suffix('.').unwrap_or(name);
    Ia5String::try_from(name).unwrap_or_else(|_| Ia5String::try_from("invalid").expect("it is ASCII"))
}

fn set_validity(params: &mut CertificateParams, not_before: u64, not_after: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(not_before);
    params.not_after = epoch + Duration::from_secs(not_after);
}

/// A positive serial number of constant length: 127 bits, of which the highest is set (RFC 5280 4.1.2.2 allows up to 20
/// octets). It is random, because a client that sees two certificates with the same issuer and serial number refuses
/// both.
fn random_serial() -> SerialNumber {
    let mut bytes = random_bytes::<16>();
    // The top bit stays clear, because DER integers are signed; the next one is set, so that the length is constant.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// A self-signed CA certificate, valid for ten years.
pub(super) fn root(key: &KeyPair, machine: &str) -> Result<rcgen::Certificate, rcgen::Error> {
    let now = super::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, root_name(machine, now));
    params.distinguished_name.push(DnType::OrganizationName, "Interflow");
    params.serial_number = Some(random_serial());
    // Ten years, including two or three leap days.
    set_validity(&mut params, now.saturating_sub(BACKDATE_SECS), now + 3652 * DAY_SECS);
    // A path length of zero: the CA may sign leaves only, not further CAs.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.self_signed(key)
}

/// The CA's common name: it must be recognisable in a trust store years later.
fn root_name(machine: &str, now: u64) -> String {
    let date = jiff::Timestamp::from_second(now.min(i64::MAX as u64) as i64)
        .map_or_else(|_| "undated".to_owned(), |at| at.strftime("%Y-%m-%d").to_string());
    let rest = "Interflow CA () ".len() + date.len();
    // The punctuation and the date have to fit into the same 64 characters.
    let printable: String = machine.chars().filter(char::is_ascii_graphic).take(MAX_COMMON_NAME_LEN - rest).collect();
    format!("Interflow CA ({printable}) {date}")
}

/// The SHA-256 of the bytes in lower-case hex.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A server certificate with its key, in rustls's form.
pub(super) fn certified_key(chain: Vec<CertificateDer<'static>>, key: &LeafKey) -> Arc<rustls::sign::CertifiedKey> {
    Arc::new(rustls::sign::CertifiedKey::new(chain, key.signer.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_name_is_truncated_to_the_common_name_limit() {
        let long = "m".repeat(300);
        let names: Vec<_> = ["box", &long, "", "bö\nx"].map(|m| root_name(m, 1_790_000_000)).into();
        assert_eq!(names[0], "Interflow CA (box) 2026-09-21");
        assert_eq!(names[1].len(), MAX_COMMON_NAME_LEN);
        assert_eq!(names[3], "Interflow CA (bx) 2026-09-21");
    }

    #[test]
    fn serials_are_positive_full_length_and_never_the_same() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let bytes = random_serial().to_bytes();
            assert!(bytes.len() == 16 && bytes[0] & 0x80 == 0);
            assert!(seen.insert(bytes));
        }
    }
}
