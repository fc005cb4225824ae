//! JA3 (Salesforce, 2017) and JA4 (FoxIO, 2023) fingerprints of a ClientHello.

use std::fmt::{Display, Write as _};

use md5::{Digest as _, Md5};
use sha2::Sha256;

use super::{ClientHello, extension, is_grease};

impl ClientHello {
    /// The text below the JA3 hash: version, ciphers, extensions, groups and point formats in decimal, GREASE left out.
    pub fn ja3_text(&self) -> String {
        format!(
            "{},{},{},{},{}",
            self.legacy_version,
            joined(plain(&self.ciphers), "-"),
            joined(plain(&self.extensions), "-"),
            joined(plain(&self.groups), "-"),
            joined(&self.point_formats, "-"),
        )
    }

    /// The JA3 hash: 32 hexadecimal digits. Clients that shuffle their extensions have a new one each time.
    pub fn ja3(&self) -> String {
        hex(&Md5::digest(self.ja3_text()), 16)
    }

    /// The JA4 fingerprint over TCP, `t13d1516h2_8daaf6152771_e5627efa2ab1` for instance.
    pub fn ja4(&self) -> String {
        let sni = if self.has_extension(extension::SERVER_NAME) { 'd' } else { 'i' };
        let ciphers = plain(&self.ciphers).count().min(99);
        let extensions = plain(&self.extensions).count().min(99);
        let (version, alpn) = (self.ja4_version(), self.ja4_alpn());
        let (b, c) = (ja4_hash(&self.ja4_ciphers()), ja4_hash(&self.ja4_extensions()));
        format!("t{version}{sni}{ciphers:02}{extensions:02}{alpn}_{b}_{c}")
    }

    fn ja4_version(&self) -> &'static str {
        match self.highest_version() {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        }
    }

    /// First and last character of the first protocol; of its hexadecimal form when either is no letter or digit.
    fn ja4_alpn(&self) -> String {
        let Some((&first, &last)) = self.alpn.first().and_then(|p| p.first().zip(p.last())) else {
            return "00".to_owned();
        };
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
            return [first, last].map(char::from).iter().collect();
        }
        format!("{:x}{:x}", first >> 4, last & 0xf)
    }

    fn ja4_ciphers(&self) -> String {
        let mut ciphers: Vec<u16> = plain(&self.ciphers).collect();
        ciphers.sort_unstable();
        joined(ciphers.into_iter().map(hex4), ",")
    }

    fn ja4_extensions(&self) -> String {
        let mut kept: Vec<u16> =
            plain(&self.extensions).filter(|&e| e != extension::SERVER_NAME && e != extension::ALPN).collect();
        kept.sort_unstable();
        let mut text = joined(kept.into_iter().map(hex4), ",");
        if plain(&self.signature_algorithms).next().is_some() {
            text.push('_');
            text.push_str(&joined(plain(&self.signature_algorithms).map(hex4), ","));
        }
        text
    }
}

fn plain(list: &[u16]) -> impl Iterator<Item = u16> + '_ {
    list.iter().copied().filter(|&n| !is_grease(n))
}

fn hex4(n: u16) -> String {
    format!("{n:04x}")
}

fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let mut out = String::new();
    for item in items {
        if !out.is_empty() {
            out.push_str(separator);
        }
        write!(out, "{item}").expect("a String takes everything");
    }
    out
}

/// The first twelve digits of SHA-256; zeros stand for an empty list.
fn ja4_hash(text: &str) -> String {
    if text.is_empty() { "0".repeat(12) } else { hex(&Sha256::digest(text), 6) }
}

fn hex(digest: &[u8], bytes: usize) -> String {
    let mut out = String::with_capacity(bytes * 2);
    for b in digest.iter().take(bytes) {
        write!(out, "{b:02x}").expect("a String takes everything");
    }
    out
}
