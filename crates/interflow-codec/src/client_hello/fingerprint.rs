//! JA3 (Salesforce, 2017) and JA4 (FoxIO, 2023) fingerprints of a ClientHello. They are computed for every
//! intercepted connection, so numbers are formatted by hand instead of with `format!`.

use md5::{Digest as _, Md5};
use sha2::Sha256;

use super::{ClientHello, extension, is_grease};

impl ClientHello {
    /// The string that JA3 hashes: version, ciphers, extensions, groups and point formats in decimal, without GREASE.
    pub fn ja3_text(&self) -> String {
        let mut out = Vec::with_capacity(256);
        decimal(&mut out, self.legacy_version);
        for list in [&self.ciphers, &self.extensions, &self.groups] {
            out.push(b',');
            separated(&mut out, b'-', plain(list), decimal);
        }
        out.push(b',');
        separated(&mut out, b'-', self.point_formats.iter().map(|&p| p.into()), decimal);
        text(out)
    }

    /// The JA3 hash: 32 hexadecimal digits. For clients that permute their extensions it differs per connection.
    pub fn ja3(&self) -> String {
        hex::encode(Md5::digest(self.ja3_text()))
    }

    /// The JA4 fingerprint over TCP, such as `t13d1516h2_8daaf6152771_e5627efa2ab1`.
    pub fn ja4(&self) -> String {
        // `d` for a domain name in SNI, `i` for none (FoxIO, "JA4: TLS Client Fingerprinting").
        let sni = if self.has_extension(extension::SERVER_NAME) { 'd' } else { 'i' };
        // Two digits each: larger counts are capped.
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

    /// The first and last character of the first ALPN protocol, or of its hexadecimal form if either is not
    /// alphanumeric.
    fn ja4_alpn(&self) -> String {
        let Some((&first, &last)) = self.alpn.first().and_then(|p| p.first().zip(p.last())) else {
            // No ALPN at all.
            return "00".to_owned();
        };
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
            return [first, last].map(char::from).iter().collect();
        }
        format!("{:x}{:x}", first >> 4, last & 0xf)
    }

    fn ja4_ciphers(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        separated(&mut out, b',', sorted(plain(&self.ciphers)), hex4);
        out
    }

    fn ja4_extensions(&self) -> Vec<u8> {
        // Both vary with the destination, and say nothing about the client.
        let extensions = plain(&self.extensions).filter(|&e| e != extension::SERVER_NAME && e != extension::ALPN);
        let mut out = Vec::with_capacity(256);
        separated(&mut out, b',', sorted(extensions), hex4);
        let mut algorithms = plain(&self.signature_algorithms).peekable();
        if algorithms.peek().is_some() {
            out.push(b'_');
            separated(&mut out, b',', algorithms, hex4);
        }
        out
    }
}

fn plain(list: &[u16]) -> impl Iterator<Item = u16> + '_ {
    list.iter().copied().filter(|&n| !is_grease(n))
}

fn sorted(numbers: impl Iterator<Item = u16>) -> impl Iterator<Item = u16> {
    let mut all: Vec<u16> = numbers.collect();
    all.sort_unstable();
    all.into_iter()
}

fn separated(out: &mut Vec<u8>, by: u8, numbers: impl Iterator<Item = u16>, write: fn(&mut Vec<u8>, u16)) {
    for (i, number) in numbers.enumerate() {
        if i > 0 {
            out.push(by);
        }
        write(out, number);
    }
}

fn decimal(out: &mut Vec<u8>, number: u16) {
    // The largest power of ten that fits 16 bits.
    let mut unit = 10_000;
    while unit > 1 && number < unit {
        unit /= 10;
    }
    while unit > 0 {
        out.push(b'0' + (number / unit % 10) as u8);
        unit /= 10;
    }
}

fn hex4(out: &mut Vec<u8>, number: u16) {
    let mut digits = [0; 4];
    hex::encode_to_slice(number.to_be_bytes(), &mut digits).expect("two bytes are four digits");
    out.extend_from_slice(&digits);
}

fn text(ascii: Vec<u8>) -> String {
    String::from_utf8(ascii).expect("digits and their separators are ASCII")
}

/// The first twelve hex digits of SHA-256; zeros for an empty list.
fn ja4_hash(text: &[u8]) -> String {
    if text.is_empty() { "0".repeat(12) } else { hex::encode(&Sha256::digest(text)[..6]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_by_std_format() {
        for n in 0..=u16::MAX {
            let (mut ten, mut sixteen) = (Vec::new(), Vec::new());
            decimal(&mut ten, n);
            hex4(&mut sixteen, n);
            assert_eq!((text(ten), text(sixteen)), (n.to_string(), format!("{n:04x}")));
        }
    }
}
