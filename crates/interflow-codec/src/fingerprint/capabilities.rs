//! What the TLS library of impersonated connections (a patched BoringSSL) can send.

use std::sync::LazyLock;

use interflow_types::data_file;

use super::{SCSV, TlsFingerprint, extension};

type NumberedNames = LazyLock<Vec<(u16, &'static str)>>;

fn numbered(table: &'static str, base: u32) -> Vec<(u16, &'static str)> {
    let number = |number: &str| u16::from_str_radix(number, base).expect("a number of IANA");
    data_file::records(table).map(|[digits, name]| (number(digits), name)).collect()
}

/// Cipher suites that can be sent, with their IANA names; those of TLS 1.3 first.
pub static CIPHERS: NumberedNames = LazyLock::new(|| numbered(include_str!("../../data/ciphers.txt"), 16));

/// Groups that can be negotiated, with their names.
pub static GROUPS: NumberedNames = LazyLock::new(|| numbered(include_str!("../../data/tls_groups.txt"), 10));

static EXTENSIONS: NumberedNames = LazyLock::new(|| numbered(include_str!("../../data/tls_extensions.txt"), 10));

/// Extensions that are sent only to resume a session, which impersonated connections do not do.
const RESUMPTION_ONLY: [u16; 2] = [extension::PRE_SHARED_KEY, extension::EARLY_DATA];
/// Extensions of every ClientHello, of those that offer TLS 1.2, and of those that offer TLS 1.3.
const ALWAYS_SENT: [u16; 2] = [10, 13];
const REQUIRED_BY_TLS12: [u16; 2] = [11, extension::EXTENDED_MASTER_SECRET];
const TLS12_ONLY: [u16; 4] =
    [11, extension::EXTENDED_MASTER_SECRET, extension::SESSION_TICKET, extension::RENEGOTIATION];
const REQUIRED_BY_TLS13: [u16; 2] = [extension::SUPPORTED_VERSIONS, extension::KEY_SHARE];

pub fn cipher_name(number: u16) -> Option<&'static str> {
    CIPHERS.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

impl TlsFingerprint {
    /// The parts of this fingerprint that cannot be sent, one sentence each; empty if it can be sent as a whole.
    pub fn unsupported_parts(&self) -> Vec<String> {
        let mut out = Vec::new();
        unsupported_ciphers(self, &mut out);
        for &e in &self.extensions {
            if RESUMPTION_ONLY.contains(&e) {
                out.push(format!("extension {e} is sent only when a session is resumed, which is not done"));
            } else if !EXTENSIONS.iter().any(|(n, _)| *n == e) {
                out.push(format!("extension {e} is not known to the TLS library"));
            }
        }
        let (tls12, tls13) = (self.lowest_version < 0x0304, self.highest_version >= 0x0304);
        let needed = ALWAYS_SENT
            .iter()
            .chain(REQUIRED_BY_TLS12.iter().filter(|_| tls12))
            .chain(REQUIRED_BY_TLS13.iter().filter(|_| tls13));
        for &e in needed.filter(|e| !self.has_extension(**e)) {
            out.push(format!("extension {e} cannot be left out"));
        }
        for &e in TLS12_ONLY.iter().filter(|e| !tls12 && self.has_extension(**e)) {
            out.push(format!("extension {e} is sent only with ciphers of TLS 1.2"));
        }
        for &g in self.key_shares.iter().filter(|g| !GROUPS.iter().any(|(n, _)| n == *g)) {
            out.push(format!("no key share can be made for group {g}"));
        }
        match self.point_formats.as_slice() {
            [0] | [0, 1, 2] => {}
            [] if !tls12 => {}
            other => out.push(format!("the point formats {other:?} cannot be sent: only [0] and [0, 1, 2] can")),
        }
        out
    }
}

fn unsupported_ciphers(shape: &TlsFingerprint, out: &mut Vec<String>) {
    for &c in shape.ciphers.iter().filter(|&&c| c != SCSV && cipher_name(c).is_none()) {
        out.push(format!("cipher {c} is not known to the TLS library"));
    }
    // Cipher suites of TLS 1.3 are numbered 0x1301 and up.
    let older = |c: &u16| *c >> 8 != 0x13;
    if !shape.ciphers.is_sorted_by_key(older) {
        out.push("the ciphers of TLS 1.3 must come before all others".to_owned());
    }
    if shape.ciphers.iter().rev().skip(1).any(|&c| c == SCSV) {
        out.push(format!("cipher {SCSV} can only be the last"));
    }
    if shape.highest_version >= 0x0304 && shape.ciphers.iter().all(older) {
        out.push("a hello with TLS 1.3 has one of its ciphers, 4865 to 4867".to_owned());
    }
    if shape.lowest_version < 0x0304 && !shape.ciphers.iter().any(|c| older(c) && *c != SCSV) {
        out.push("a hello with TLS 1.2 has one of its ciphers".to_owned());
    }
}
