//! Applies a TLS fingerprint to BoringSSL's settings.

use btls::error::ErrorStack;
use btls::pkey::PKey;
use btls::ssl::{
    ExtensionType, KeyShare, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode,
    SslSignatureAlgorithm, SslVersion,
};
use btls::x509::X509;
use interflow_codec::fingerprint::{GREASE, GROUPS, SCSV, TlsFingerprint, cipher_name, extension};
use interflow_types::{TlsVersion, random_bytes};

use super::super::{Alpn, TlsProfile, key_log};
use super::{compression, trust_anchors};

/// Options that `boringssl/offers.patch` adds to BoringSSL: values that are offered but never negotiated.
mod option {
    pub(super) const SCSV: u32 = 1;
    pub(super) const POINT_FORMATS: u32 = 2;
    pub(super) const ENCRYPT_THEN_MAC: u32 = 4;
    pub(super) const POST_HANDSHAKE_AUTH: u32 = 8;
    pub(super) const NO_PSK_MODES: u32 = 0x4000_0000;
    pub(super) const NO_RENEGOTIATION_INFO: u32 = 0x8000_0000;
}

/// Every extension whose position BoringSSL controls. Those that a fingerprint leaves out are appended in this order,
/// because unlisted ones would be shuffled.
const ORDERED_EXTENSIONS: [u16; 31] = [
    0, 0xfe0d, 23, 0xff01, 10, 11, 35, 16, 5, 13, 13172, 18, 30032, 14, 51, 45, 42, 43, 44, 57, 0xffa5, 27, 34, 17613,
    17513, 47, 0x8a3b, 0xca34, 22, 49, 28,
];

/// Removes from a fingerprint what cannot be sent, and returns a description of what was removed.
pub(super) fn remove_unsupported(shape: &mut TlsFingerprint) -> Vec<String> {
    let mut missing = shape.unsupported_parts();
    shape.ciphers.retain(|&c| c == SCSV || cipher_name(c).is_some());
    shape.key_shares.retain(|s| GROUPS.iter().any(|(n, _)| n == s));
    if !has_extended_signatures() {
        let unknown: Vec<u16> =
            shape.signature_algorithms.iter().copied().filter(|s| !SIGNATURES.contains(s)).collect();
        if !unknown.is_empty() {
            // These values are offered only; unpatched BoringSSL would refuse to be configured with them.
            missing.push(format!("signature algorithms {unknown:04x?} need BoringSSL as `make` builds it"));
            shape.signature_algorithms.retain(|s| SIGNATURES.contains(s));
        }
        let unknown: Vec<u16> = shape.groups.iter().copied().filter(|g| !GROUPS.iter().any(|(n, _)| n == g)).collect();
        if !unknown.is_empty() {
            missing.push(format!("groups {unknown:?} need BoringSSL as `make` builds it"));
            shape.groups.retain(|g| GROUPS.iter().any(|(n, _)| n == g));
        }
        let only_extended = [extension::ENCRYPT_THEN_MAC, extension::POST_HANDSHAKE_AUTH];
        let only_extended = only_extended.into_iter().filter(|e| shape.has_extension(*e));
        missing.extend(only_extended.map(|e| format!("extension {e} needs BoringSSL as `make` builds it")));
    }
    missing
}

/// The signature algorithms that unpatched BoringSSL supports.
const SIGNATURES: [u16; 12] =
    [0x0201, 0x0203, 0x0401, 0x0403, 0x0501, 0x0503, 0x0601, 0x0603, 0x0804, 0x0805, 0x0806, 0x0807];

/// Whether BoringSSL was built with `boringssl/offers.patch`, so that it can offer algorithms it does not support.
fn has_extended_signatures() -> bool {
    static EXTENDED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        let builder = SslContext::builder(SslMethod::tls());
        // 0x0904 (ML-DSA-44) is known only to the patched build.
        builder.is_ok_and(|mut b| b.set_verify_algorithm_prefs(&[SslSignatureAlgorithm::from(0x0904)]).is_ok())
    });
    *EXTENDED
}

/// The settings that connections with this fingerprint share.
pub(super) fn build_context(shape: &TlsFingerprint, base: &TlsProfile) -> Result<SslContext, ErrorStack> {
    let mut builder = SslContext::builder(SslMethod::tls())?;
    // A resumed session changes the ClientHello, and with it the fingerprint.
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    set_hello(&mut builder, shape)?;
    // A rule's version narrows the fingerprint's range.
    match base.version {
        Some(TlsVersion::Tls12) => builder.set_max_proto_version(Some(SslVersion::TLS1_2))?,
        Some(TlsVersion::Tls13) => builder.set_min_proto_version(Some(SslVersion::TLS1_3))?,
        None => {}
    }
    if let Some((chain, key)) = &base.client {
        for (i, certificate) in chain.iter().enumerate() {
            let certificate = X509::from_der(certificate)?;
            if i == 0 { builder.set_certificate(&certificate)? } else { builder.add_extra_chain_cert(certificate)? }
        }
        let key = PKey::private_key_from_der(key.secret_der())?;
        builder.set_private_key(&key)?;
    }
    let log = key_log();
    // A line of the NSS key log format: label, client random, secret, both in hex.
    builder.set_keylog_callback(move |_, line| {
        let mut words = line.split(' ');
        let decoded = |digits: &str| hex::decode(digits).ok();
        let (label, random, secret) = (words.next(), words.next().and_then(decoded), words.next().and_then(decoded));
        if let (Some(label), Some(random), Some(secret)) = (label, random, secret) {
            log.log(label, &random, &secret);
        }
    });
    Ok(builder.build())
}

fn set_hello(builder: &mut SslContextBuilder, shape: &TlsFingerprint) -> Result<(), ErrorStack> {
    builder.set_min_proto_version(Some(version(shape.lowest_version)))?;
    builder.set_max_proto_version(Some(version(shape.highest_version)))?;
    builder.set_grease_enabled(shape.grease);
    builder.set_aes_hw_override(true);
    builder.set_preserve_tls13_cipher_list(true);
    let mut names: Vec<&str> = shape.ciphers.iter().filter_map(|&c| cipher_name(c)).collect();
    if shape.lowest_version >= 0x0304 {
        // A list without TLS 1.2 ciphers is refused; this one is not sent.
        names.push("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    }
    builder.set_cipher_list(&names.join(":"))?;
    let groups: Vec<String> = shape.groups.iter().map(|&g| group_name(g)).collect();
    builder.set_curves_list(&groups.join(":"))?;
    let grease = grease();
    let signatures: Vec<_> = shape
        .signature_algorithms
        .iter()
        // The fingerprint has a placeholder; the value differs per connection, as in browsers.
        .map(|&s| SslSignatureAlgorithm::from(if s == GREASE { grease } else { s }))
        .collect();
    builder.set_verify_algorithm_prefs(&signatures)?;
    set_extensions(builder, shape)
}

fn set_extensions(builder: &mut SslContextBuilder, shape: &TlsFingerprint) -> Result<(), ErrorStack> {
    if shape.has_extension(extension::STATUS_REQUEST) {
        builder.enable_ocsp_stapling();
    }
    if shape.has_extension(extension::SCT) {
        builder.enable_signed_cert_timestamps();
    }
    if shape.record_size_limit > 0 {
        builder.set_record_size_limit(shape.record_size_limit);
    }
    if !shape.delegated_credentials.is_empty() {
        let names: Vec<&str> = shape.delegated_credentials.iter().filter_map(|&s| signature_name(s)).collect();
        builder.set_delegated_credentials(&names.join(":"))?;
    }
    if !shape.trust_anchors.is_empty() {
        trust_anchors::request_trust_anchors(builder, &shape.trust_anchors)?;
    }
    for algorithm in &shape.certificate_compression {
        match algorithm {
            1 => builder.add_certificate_compression_algorithm(compression::Zlib)?,
            2 => builder.add_certificate_compression_algorithm(compression::Brotli)?,
            3 => builder.add_certificate_compression_algorithm(compression::Zstd)?,
            _ => {}
        }
    }
    let mut options = SslOptions::empty();
    if !shape.has_extension(extension::SESSION_TICKET) {
        options |= SslOptions::NO_TICKET;
    }
    let offers = [
        (shape.ciphers.contains(&SCSV), option::SCSV),
        (shape.point_formats.len() > 1, option::POINT_FORMATS),
        (shape.has_extension(extension::ENCRYPT_THEN_MAC), option::ENCRYPT_THEN_MAC),
        (shape.has_extension(extension::POST_HANDSHAKE_AUTH), option::POST_HANDSHAKE_AUTH),
        (!shape.has_extension(extension::PSK_MODES), option::NO_PSK_MODES),
        (!shape.has_extension(extension::RENEGOTIATION), option::NO_RENEGOTIATION_INFO),
    ];
    for (_, bit) in offers.into_iter().filter(|(wanted, _)| *wanted) {
        options |= SslOptions::from_bits_retain(bit);
    }
    builder.set_options(options);
    // Permuted extensions (Chrome since version 110) have no order to imitate.
    if !shape.permuted {
        let rest = ORDERED_EXTENSIONS.into_iter().filter(|e| !shape.has_extension(*e));
        let order: Vec<_> = shape.extensions.iter().copied().chain(rest).map(ExtensionType::from).collect();
        builder.set_extension_permutation(&order)?;
    }
    Ok(())
}

/// The ALPN extension: the fingerprint's protocols that the route allows.
pub(super) fn alpn(shape: &TlsFingerprint, alpn: Alpn) -> Vec<u8> {
    let wanted = |protocol: &[u8]| match alpn {
        Alpn::Http1 => protocol != b"h2",
        Alpn::Http2 => protocol == b"h2",
        Alpn::Both => true,
        Alpn::None => false,
    };
    let mut protocols: Vec<&[u8]> = shape.alpn.iter().map(|p| &p[..]).filter(|p| wanted(p)).collect();
    // The route demands HTTP/2, although the imitated client would not offer it.
    if protocols.is_empty() && alpn == Alpn::Http2 {
        protocols.push(b"h2");
    }
    // Each protocol is preceded by its length (RFC 7301 3.1).
    protocols.into_iter().flat_map(|p| u8::try_from(p.len()).into_iter().chain(p.iter().copied())).collect()
}

/// The groups for which a key share is sent.
pub(super) fn key_shares(shape: &TlsFingerprint) -> Vec<KeyShare> {
    let known = |group: &u16| {
        Some(match group {
            23 => KeyShare::P256,
            24 => KeyShare::P384,
            25 => KeyShare::P521,
            29 => KeyShare::X25519,
            256 => KeyShare::FFDHE2048,
            257 => KeyShare::FFDHE3072,
            4588 => KeyShare::X25519_MLKEM768,
            25497 => KeyShare::X25519_KYBER768_DRAFT00,
            _ => return None,
        })
    };
    shape.key_shares.iter().filter_map(known).collect()
}

/// A group by its name, or by its number if it is only offered.
fn group_name(group: u16) -> String {
    let named_group = GROUPS.iter().find(|(n, _)| *n == group);
    named_group.map_or_else(|| format!("0x{group:04x}"), |(_, name)| (*name).to_owned())
}

fn signature_name(signature: u16) -> Option<&'static str> {
    Some(match signature {
        0x0201 => "rsa_pkcs1_sha1",
        0x0203 => "ecdsa_sha1",
        0x0401 => "rsa_pkcs1_sha256",
        0x0403 => "ecdsa_secp256r1_sha256",
        0x0501 => "rsa_pkcs1_sha384",
        0x0503 => "ecdsa_secp384r1_sha384",
        0x0601 => "rsa_pkcs1_sha512",
        0x0603 => "ecdsa_secp521r1_sha512",
        0x0804 => "rsa_pss_rsae_sha256",
        0x0805 => "rsa_pss_rsae_sha384",
        0x0806 => "rsa_pss_rsae_sha512",
        0x0807 => "ed25519",
        _ => return None,
    })
}

fn version(number: u16) -> SslVersion {
    match number {
        ..=0x0301 => SslVersion::TLS1,
        0x0302 => SslVersion::TLS1_1,
        0x0303 => SslVersion::TLS1_2,
        0x0304.. => SslVersion::TLS1_3,
    }
}

/// One of the sixteen values of RFC 8701.
fn grease() -> u16 {
    let [byte] = random_bytes();
    // Two equal bytes of the form 0x?a.
    u16::from_be_bytes([byte & 0xf0 | 0x0a; 2])
}
