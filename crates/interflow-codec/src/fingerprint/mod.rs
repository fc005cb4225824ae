//! Client fingerprints: the contents of a ClientHello and of an HTTP/2 connection preface, in a form that can be
//! parsed from JA3 or Akamai text, taken from a client, and sent.

mod capabilities;
mod http2;
mod ja3;
mod profiles;
mod target;

use bytes::Bytes;
use interflow_types::{ByteStr, Headers};
use serde::Deserialize;

pub use capabilities::{CIPHERS, GROUPS, cipher_name};
pub use http2::{Http2Fingerprint, PseudoHeader, StreamPriority};
pub use profiles::{FingerprintProfile, PROFILES};
pub use target::FingerprintTarget;

use crate::ClientHello;
pub use crate::client_hello::extension;
use crate::client_hello::is_grease;

/// Placeholder for a GREASE value (RFC 8701), drawn anew for each connection.
pub const GREASE: u16 = 0x0a0a;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionFingerprint {
    pub tls: TlsFingerprint,
    /// The HTTP/2 preface; `None` to send Interflow's own.
    pub http2: Option<Http2Fingerprint>,
    /// Names of request fields in the order to send them, in lower case; others keep their positions.
    pub fields: Vec<ByteStr>,
}

/// The contents of a ClientHello (RFC 8446 4.1.2), except values that are random per connection. Lists are in order;
/// `ciphers`, `extensions` and `groups` are without GREASE, and `signature_algorithms` may contain [`GREASE`]. A list
/// is empty, and `record_size_limit` is 0, if the extension is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default = "profiles::modern_tls", deny_unknown_fields)]
pub struct TlsFingerprint {
    pub ciphers: Vec<u16>,
    /// Padding (21) is listed here too, but sent only if the ClientHello's length requires it.
    pub extensions: Vec<u16>,
    /// Whether the order of extensions is random per connection.
    pub permuted: bool,
    /// Whether GREASE values are inserted among ciphers, extensions, groups, key shares and versions, at Chromium's
    /// positions.
    pub grease: bool,
    pub groups: Vec<u16>,
    /// Groups for which a key share is sent: a subset of `groups` in the same order.
    pub key_shares: Vec<u16>,
    pub point_formats: Vec<u8>,
    pub signature_algorithms: Vec<u16>,
    pub lowest_version: u16,
    pub highest_version: u16,
    #[serde(skip)]
    pub alpn: Vec<Bytes>,
    pub certificate_compression: Vec<u16>,
    pub delegated_credentials: Vec<u16>,
    pub record_size_limit: u16,
    #[serde(deserialize_with = "profiles::hexadecimal")]
    pub trust_anchors: Bytes,
}

/// The cipher suite that signals an empty `renegotiation_info` (RFC 5746 3.3).
pub const SCSV: u16 = 0x00ff;

impl TlsFingerprint {
    /// The fingerprint of this client's ClientHello, with its extensions in the order received.
    pub fn from_client_hello(hello: &ClientHello) -> Self {
        // GREASE values are random per connection; where they go is known from `grease`.
        let plain = |list: &[u16]| list.iter().copied().filter(|&n| !is_grease(n)).collect::<Vec<_>>();
        let versions = plain(&hello.versions);
        Self {
            ciphers: plain(&hello.ciphers),
            extensions: plain(&hello.extensions),
            permuted: false,
            grease: hello.extensions.iter().any(|&e| is_grease(e)),
            groups: plain(&hello.groups),
            key_shares: plain(&hello.key_shares),
            point_formats: hello.point_formats.clone(),
            signature_algorithms: hello
                .signature_algorithms
                .iter()
                .map(|&s| if is_grease(s) { GREASE } else { s })
                .collect(),
            // Without `supported_versions`, a client offers versions up to `legacy_version`.
            lowest_version: versions.iter().copied().min().unwrap_or(0x0303),
            highest_version: versions.iter().copied().max().unwrap_or(hello.legacy_version),
            alpn: hello.alpn.clone(),
            certificate_compression: hello.certificate_compression.clone(),
            delegated_credentials: hello.delegated_credentials.clone(),
            record_size_limit: hello.record_size_limit,
            trust_anchors: hello.trust_anchors.clone(),
        }
    }

    pub fn has_extension(&self, extension: u16) -> bool {
        self.extensions.contains(&extension)
    }
}

impl ConnectionFingerprint {
    /// The fingerprint of a client: its ClientHello, and the Akamai string of its HTTP/2 preface.
    pub fn from_client(hello: &ClientHello, opening: Option<&str>) -> Self {
        Self {
            tls: TlsFingerprint::from_client_hello(hello),
            http2: opening.and_then(|text| text.parse().ok()),
            fields: Vec::new(),
        }
    }

    /// Sorts the fields that this fingerprint has an order for. They occupy the same positions as before; all other
    /// fields keep theirs.
    pub fn reorder_fields(&self, headers: &mut Headers) {
        let rank = |name: &[u8]| self.fields.iter().position(|f| f.as_bytes().eq_ignore_ascii_case(name));
        let mut ranked: Vec<(usize, usize)> =
            headers.iter().enumerate().filter_map(|(i, (name, _))| Some((rank(name)?, i))).collect();
        // The usual case: the client's order is the profile's already.
        if ranked.is_sorted() {
            return;
        }
        // The positions that ranked fields occupy are refilled with the same fields in the profile's order.
        let places: Vec<usize> = ranked.iter().map(|&(_, i)| i).collect();
        ranked.sort_unstable();
        let mut order: Vec<usize> = (0..headers.len()).collect();
        for (&place, &(_, from)) in places.iter().zip(&ranked) {
            if let Some(slot) = order.get_mut(place) {
                *slot = from;
            }
        }
        let all: Vec<(&[u8], &[u8])> = headers.iter().collect();
        let mut ordered = Headers::with_capacity(headers.len(), headers.size());
        for (name, value) in order.iter().filter_map(|&i| all.get(i)) {
            ordered.append_unchecked(name, value);
        }
        *headers = ordered;
    }
}

#[cfg(test)]
mod tests;
