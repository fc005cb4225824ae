//! Fingerprint profiles of well-known clients, from `data/fingerprints.yaml`.

use std::sync::LazyLock;

use bytes::Bytes;
use interflow_types::ByteStr;
use serde::{Deserialize, Deserializer};

use super::{ConnectionFingerprint, Http2Fingerprint, StreamPriority, TlsFingerprint};

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FingerprintProfile {
    pub name: String,
    pub client: String,
    pub source: String,
    /// Its JA3 string; `None` if the client permutes its extensions.
    pub ja3: Option<String>,
    /// Its JA4 fingerprint over TCP with `h2` offered.
    pub ja4: String,
    pub akamai: String,
    tls: TlsFingerprint,
    // Akamai's text leaves out both.
    first_stream: u32,
    headers: Option<StreamPriority>,
    #[serde(default)]
    fields: Vec<String>,
}

impl FingerprintProfile {
    /// What an impersonated connection sends.
    pub fn fingerprint(&self) -> ConnectionFingerprint {
        let (first_stream, headers) = (self.first_stream, self.headers);
        let akamai: Option<Http2Fingerprint> = self.akamai.parse().ok();
        ConnectionFingerprint {
            tls: self.tls.clone(),
            http2: akamai.map(|shape| Http2Fingerprint { first_stream, headers, ..shape }),
            fields: self.fields.iter().map(|name| ByteStr::from(name.as_str())).collect(),
        }
    }
}

/// All profiles, in the order of the documentation.
pub static PROFILES: LazyLock<Vec<FingerprintProfile>> = LazyLock::new(|| {
    crate::document::from_yaml(include_str!("../../data/fingerprints.yaml")).expect("a test reads the file")
});

/// What profiles have in common.
pub(super) fn modern_tls() -> TlsFingerprint {
    TlsFingerprint {
        // Uncompressed points only, as RFC 8422 5.1.1 requires.
        point_formats: vec![0],
        lowest_version: 0x0303,
        highest_version: 0x0304,
        alpn: ["h2", "http/1.1"].map(|p| Bytes::from_static(p.as_bytes())).to_vec(),
        ..TlsFingerprint::default()
    }
}

/// Bytes in hexadecimal, over several lines.
pub(super) fn hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let digits = String::deserialize(from)?.replace(' ', "");
    hex::decode(digits).map(Bytes::from).map_err(serde::de::Error::custom)
}
