//! Converts a JA3 string to a [`TlsFingerprint`]. What JA3 leaves out is filled in with Chromium's values.

use bytes::Bytes;

use super::{TlsFingerprint, extension};

/// A ClientHello parameter that JA3 leaves out.
const SIGNATURE_ALGORITHMS: [u16; 8] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
const DELEGATED_CREDENTIALS: [u16; 4] = [0x0403, 0x0503, 0x0603, 0x0203];
const RECORD_SIZE_LIMIT: u16 = 16385;
const BROTLI: u16 = 2;
/// Post-quantum groups, whose key shares exceed a kilobyte: a share is sent for one of these and one classic group.
const POST_QUANTUM: [u16; 2] = [4588, 25497];

/// Parses `771,4865-4866,0-23-65281,29-23-24,0`: version, ciphers, extensions, groups, point formats.
///
/// # Errors
/// Names the part that is not a list of numbers, or that the TLS library cannot send.
pub(super) fn parse(text: &str) -> Result<TlsFingerprint, String> {
    let parts: Vec<&str> = text.trim().split(',').collect();
    let [version, ciphers, extensions, groups, formats] = parts.as_slice() else {
        return Err(format!("JA3 has five parts between commas, this has {}", parts.len()));
    };
    // JA3 gives `legacy_version`, which is 0x0303 (771) for TLS 1.2 and 1.3.
    if *version != "771" {
        return Err(format!("the JA3 version is {version}; only 771 (TLS 1.2, and 1.3 by its extension) can be sent"));
    }
    let extensions = numbers("extensions", extensions)?;
    let has = |e| extensions.contains(&e);
    let list = |e, numbers: &[u16]| if has(e) { numbers.to_vec() } else { Vec::new() };
    let ciphers = numbers("ciphers", ciphers)?;
    let groups = numbers("groups", groups)?;
    let shape = TlsFingerprint {
        ciphers: ciphers.clone(),
        key_shares: if has(extension::KEY_SHARE) { key_shares(&groups) } else { Vec::new() },
        groups,
        point_formats: numbers("point formats", formats)?
            .into_iter()
            .map(|n| u8::try_from(n).map_err(|_| format!("JA3, point formats: {n} is none")))
            .collect::<Result<_, _>>()?,
        signature_algorithms: SIGNATURE_ALGORITHMS.to_vec(),
        // Without any cipher of TLS 1.2, the client offers TLS 1.3 alone.
        lowest_version: if ciphers.iter().all(|c| c >> 8 == 0x13) { 0x0304 } else { 0x0303 },
        highest_version: if has(extension::SUPPORTED_VERSIONS) { 0x0304 } else { 0x0303 },
        alpn: if has(extension::ALPN) { ["h2", "http/1.1"].map(Bytes::from).to_vec() } else { Vec::new() },
        certificate_compression: list(extension::COMPRESS_CERTIFICATE, &[BROTLI]),
        delegated_credentials: list(extension::DELEGATED_CREDENTIAL, &DELEGATED_CREDENTIALS),
        record_size_limit: if has(extension::RECORD_SIZE_LIMIT) { RECORD_SIZE_LIMIT } else { 0 },
        extensions,
        ..TlsFingerprint::default()
    };
    // Checked at parsing, so that a configuration that cannot work is refused at start.
    let missing = shape.unsupported_parts();
    if missing.is_empty() { Ok(shape) } else { Err(format!("this JA3 cannot be sent: {}", missing.join("; "))) }
}

fn numbers(part: &str, text: &str) -> Result<Vec<u16>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = |n: &str| format!("JA3, {part}: `{n}` is not a number from 0 to 65535");
    let list: Vec<u16> = text.split('-').map(|n| n.parse().map_err(|_| wrong(n))).collect::<Result<_, String>>()?;
    let mut sorted = list.clone();
    sorted.sort_unstable();
    // A list with a repetition was not captured from any client, since servers refuse it.
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("JA3, {part}: {} occurs twice", pair[0])),
        None => Ok(list),
    }
}

fn key_shares(groups: &[u16]) -> Vec<u16> {
    // Clients send a share of a post-quantum group only if it is their first choice.
    let heavy = groups.iter().take(1).filter(|g| POST_QUANTUM.contains(g));
    let light = groups.iter().find(|g| !POST_QUANTUM.contains(g));
    heavy.chain(light).copied().collect()
}
