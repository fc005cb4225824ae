//! The certificate chains of a flow's TLS connections, as the API shows them.

use std::net::IpAddr;

use axum::Json;
use interflow_types::schema::JsonSchema;
use interflow_types::{CertificateChain, Timestamp};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OidRegistry, asn1_rs::Oid};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::api::blocking::run_query;
use crate::api::input::FlowIdPath;
use crate::error::Result;
use crate::state::SharedState;

/// Maximum number of names shown of a certificate; some of content delivery networks have more.
const MAX_NAMES: usize = 200;

/// The certificates of both sides, leaf first. A list is empty without TLS, for imported flows, and for flows recorded
/// by an earlier version.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowCertificates {
    /// What Interflow presented to the client.
    client: Vec<CertificateView>,
    /// What the origin presented.
    upstream: Vec<CertificateView>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CertificateView {
    subject: String,
    issuer: String,
    /// The names that it is valid for (SAN): DNS names, addresses and others.
    names: Vec<String>,
    /// Names that were left out.
    more_names: usize,
    not_before: Timestamp,
    not_after: Timestamp,
    /// The key's algorithm with its size or curve: `RSA 2048`, `EC P-256`.
    key: String,
    /// The algorithm of the signature: `ecdsa-with-SHA256`.
    signature: String,
    /// The serial number in hex.
    serial: String,
    /// Whether it may issue certificates.
    authority: bool,
    /// Whether subject and issuer are the same: a root, or a self-signed certificate of a server.
    self_signed: bool,
    /// SHA-256 of the certificate, in hex.
    sha256: String,
    /// The certificate in DER, in base64.
    der: String,
}

pub async fn certificates(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<Json<FlowCertificates>> {
    run_query(&state, move |store, _| {
        let [client, upstream] = store.certificates(id)?.map(|chain| chain.as_ref().map(views).unwrap_or_default());
        Ok(Json(FlowCertificates { client, upstream }))
    })
    .await
}

fn views(chain: &CertificateChain) -> Vec<CertificateView> {
    chain.iter().filter_map(CertificateView::parse).collect()
}

impl CertificateView {
    /// `None` for bytes that are not a certificate: what an origin sends without verification can be anything.
    fn parse(der: &[u8]) -> Option<Self> {
        let (_, cert) = X509Certificate::from_der(der).ok()?;
        let alternatives = cert.subject_alternative_name().ok().flatten();
        let mut names: Vec<String> =
            alternatives.iter().flat_map(|a| &a.value.general_names).map(general_name).collect();
        let more_names = names.len().saturating_sub(MAX_NAMES);
        names.truncate(MAX_NAMES);
        Some(Self {
            subject: cert.subject().to_string(),
            issuer: cert.issuer().to_string(),
            names,
            more_names,
            not_before: timestamp(cert.validity().not_before),
            not_after: timestamp(cert.validity().not_after),
            key: key(&cert),
            signature: oid_name(&cert.signature_algorithm.algorithm),
            serial: cert.raw_serial_as_string(),
            authority: cert.is_ca(),
            self_signed: cert.subject().as_raw() == cert.issuer().as_raw(),
            sha256: hex::encode(Sha256::digest(der)),
            der: base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der),
        })
    }
}

/// Times before 1970 are shown as 1970.
fn timestamp(time: ASN1Time) -> Timestamp {
    Timestamp::from_micros(u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1_000_000))
}

fn general_name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => (*name).to_owned(),
        GeneralName::IPAddress(octets) => address(octets).map_or_else(|| hex::encode(octets), |a| a.to_string()),
        GeneralName::DirectoryName(name) => name.to_string(),
        other => other.to_string(),
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

fn key(cert: &X509Certificate<'_>) -> String {
    let info = cert.public_key();
    match info.parsed() {
        Ok(PublicKey::RSA(rsa)) => format!("RSA {}", rsa.key_size()),
        Ok(PublicKey::EC(_)) => {
            let curve = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
            format!("EC {}", curve.map_or_else(|| "unknown curve".to_owned(), |oid| curve_name(&oid)))
        }
        _ => oid_name(&info.algorithm.algorithm),
    }
}

/// NIST's names, which operators know better than SEC's.
fn curve_name(oid: &Oid<'_>) -> String {
    match oid.to_id_string().as_str() {
        "1.2.840.10045.3.1.7" => "P-256".into(),
        "1.3.132.0.34" => "P-384".into(),
        "1.3.132.0.35" => "P-521".into(),
        other => other.into(),
    }
}

fn oid_name(oid: &Oid<'_>) -> String {
    static NAMES: std::sync::LazyLock<OidRegistry<'static>> =
        std::sync::LazyLock::new(|| OidRegistry::default().with_all_crypto());
    match oid.to_id_string().as_str() {
        "1.3.101.112" => "Ed25519".into(),
        "1.3.101.113" => "Ed448".into(),
        other => NAMES.get(oid).map_or_else(|| other.to_owned(), |entry| entry.sn().to_owned()),
    }
}
