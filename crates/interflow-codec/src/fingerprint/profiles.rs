//! Fingerprint profiles of well-known clients. Every value was captured from the client or published by someone who
//! did; `source` says where. The published JA3, JA4 and Akamai strings are kept beside the profiles, and tests
//! compare them with what is actually sent.

use bytes::Bytes;
use interflow_types::ByteStr;

use super::{ConnectionFingerprint, GREASE, Http2Fingerprint, SCSV, StreamPriority, TlsFingerprint, extension as ext};

#[derive(Debug)]
pub struct FingerprintProfile {
    pub name: &'static str,
    pub client: &'static str,
    pub source: &'static str,
    /// Its JA3 string; `None` if the client permutes its extensions.
    pub ja3: Option<&'static str>,
    /// Its JA4 fingerprint over TCP with `h2` offered.
    pub ja4: &'static str,
    pub akamai: &'static str,
    shape: fn(&FingerprintProfile) -> ConnectionFingerprint,
}

impl PartialEq for FingerprintProfile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for FingerprintProfile {}

impl FingerprintProfile {
    /// What an impersonated connection sends.
    pub fn fingerprint(&self) -> ConnectionFingerprint {
        (self.shape)(self)
    }

    fn http2(&self, first_stream: u32, headers: Option<StreamPriority>) -> Option<Http2Fingerprint> {
        let read: Option<Http2Fingerprint> = self.akamai.parse().ok();
        // Akamai's text leaves out both.
        read.map(|shape| Http2Fingerprint { first_stream, headers, ..shape })
    }
}

const CHROMIUM_HTTP2: &str = "1:65536;2:0;4:6291456;6:262144|15663105|0|m,a,s,p";
const SAFARI_JA3: &str = "771,4866-4867-4865-49196-49195-52393-49200-49199-52392-49162-49161-49172-49171-157-156-53-47-\
                          49160-49170-10,0-23-65281-10-11-16-5-13-18-51-45-43-27,4588-29-23-24-25,0";
const SAFARI_JA4: &str = "t13d2013h2_a09f3c656075_7f0f34a4126d";
const SAFARI_HTTP2: &str = "2:0;3:100;4:2097152;9:1|10420225|0|m,s,a,p";

/// All profiles, in the order of the documentation.
pub const PROFILES: &[FingerprintProfile] = &[
    FingerprintProfile {
        name: "chrome",
        client: "Chrome 152 to 156, desktop",
        source: "Chromium 156.0.8078.79 of Debian 12, captured by `make impersonate-capture`; JA4 as published for Chrome 152 \
                 to 155 (browserleaks)",
        ja3: None,
        ja4: "t13d1517h2_8daaf6152771_cb7bf5808d99",
        akamai: CHROMIUM_HTTP2,
        shape: |p| chromium(p, true, true),
    },
    FingerprintProfile {
        name: "chrome149",
        client: "Chrome 135 to 149, desktop and Android",
        source: "curl-impersonate, tests/signatures/chrome_149.0.7827.102.yaml (from tls.peet.ws)",
        ja3: None,
        ja4: "t13d1516h2_8daaf6152771_d8a2da3f94cd",
        akamai: CHROMIUM_HTTP2,
        shape: |p| chromium(p, false, false),
    },
    FingerprintProfile {
        name: "edge",
        client: "Edge 150 to 154, desktop",
        source: "JA4 of Edge 151.0.4129.101 on Linux and Edge 152 to 154 (browserleaks); the hello is Chrome 150's of \
                 curl-impersonate, tests/signatures/chrome_150.0.7871.127_macOS.yaml, which has the same JA4",
        ja3: None,
        ja4: "t13d1516h2_8daaf6152771_806a8c22fdea",
        akamai: CHROMIUM_HTTP2,
        shape: |p| chromium(p, true, false),
    },
    FingerprintProfile {
        name: "android",
        client: "Chrome 152 to 154 on Android",
        source: "JA4 and Akamai text of Chrome 152 and 154 on Android 17 (browserleaks); Chromium sends the desktop's hello",
        ja3: None,
        ja4: "t13d1517h2_8daaf6152771_cb7bf5808d99",
        akamai: CHROMIUM_HTTP2,
        shape: |p| chromium(p, true, true),
    },
    FingerprintProfile {
        name: "firefox",
        client: "Firefox 156 and 157, desktop",
        source: "Firefox 156.0.1 and 157.0 on Windows (tls.peet.ws, three launches; browserleaks)",
        ja3: Some(
            "771,4865-4867-4866-49195-49199-52393-52392-49196-49200-49171-49172-156-157-47-53,\
             0-23-65281-10-11-35-16-5-34-18-51-43-13-45-28-27-65037,4588-29-23-24-25,0",
        ),
        ja4: "t13d1517h2_8daaf6152771_3cbfd9057e0d",
        akamai: "1:65536;2:0;4:131072;5:16384|12517377|0|m,p,a,s",
        shape: firefox,
    },
    FingerprintProfile {
        name: "safari",
        client: "Safari 26 and 27 on macOS 26 and 27",
        source: "Safari 26.1 to 27.0 (browserleaks)",
        ja3: Some(SAFARI_JA3),
        ja4: SAFARI_JA4,
        akamai: SAFARI_HTTP2,
        shape: safari,
    },
    FingerprintProfile {
        name: "ios",
        client: "Safari, and all other browsers, on iOS 26",
        source: "Safari 26.5.2 on an iPhone 13 with iOS 26.5.2 (tls.peet.ws)",
        ja3: Some(SAFARI_JA3),
        ja4: SAFARI_JA4,
        akamai: SAFARI_HTTP2,
        shape: safari,
    },
    FingerprintProfile {
        name: "okhttp",
        client: "OkHttp 4.10 to 4.12 on Android 10 to 17",
        source: "OkHttp 4.12.0 on Android 17 (browserleaks); the same in tls-client's profiles for OkHttp 4",
        ja3: Some(
            "771,4865-4866-4867-49195-49196-52393-49199-49200-52392-49171-49172-156-157-47-53,\
             0-23-65281-10-11-35-16-5-13-51-45-43-21,29-23-24,0",
        ),
        ja4: "t13d1513h2_8daaf6152771_eca864cca44a",
        akamai: "4:16777216|16711681|0|m,p,a,s",
        shape: okhttp,
    },
    FingerprintProfile {
        name: "curl",
        client: "curl 7.88.1 with OpenSSL 3.0, Debian 12",
        source: "captured by `make impersonate-capture`",
        ja3: Some(
            "771,4866-4867-4865-49196-49200-159-52393-52392-52394-49195-49199-158-49188-49192-107-49187-49191-103-49162-\
             49172-57-49161-49171-51-157-156-61-60-53-47-255,0-11-10-16-22-23-49-13-43-45-51-21,\
             29-23-30-25-24-256-257-258-259-260,0-1-2",
        ),
        ja4: "t13d3112h2_e8f1e7e78f70_b26ce05bbdd6",
        akamai: "3:100;4:33554432;2:0|33488897|0|m,p,s,a",
        shape: curl,
    },
];

/// The certification authorities that Chromium lists in `trust_anchors`, in the draft's encoding.
const TRUST_ANCHORS: &[u8] = b"\x05\x82\xdf\x13\x02\x01\x05\x82\xdf\x13\x02\x06\x05\x82\xdf\x13\x02\x0d\x05\x82\xdf\x13\
\x02\x0e\x05\x82\xdf\x13\x02\x0f\x05\x82\xdf\x13\x02\x12\x05\x82\xdf\x13\x02\x13\x05\x82\xdf\x13\x02\x14\x08\x83\x9a\x64\
\x8c\x9b\x2d\x01\x07\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x08\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x09\x08\x83\x9a\x64\x8c\x9b\x2d\
\x01\x0a\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x0b\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x0c\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x0d\x08\
\x83\x9a\x64\x8c\x9b\x2d\x01\x12\x08\x83\x9a\x64\x8c\x9b\x2d\x01\x13\x04\xd6\x79\x09\x01\x04\xd6\x79\x09\x04\x04\xd6\x79\
\x09\x05\x04\xd6\x79\x09\x06\x04\xd6\x79\x09\x07\x04\xd6\x79\x09\x08\x04\xd6\x79\x09\x0a\x04\xd6\x79\x09\x0b\x04\xd6\x79\
\x09\x0c\x04\xd6\x79\x09\x0d\x04\xd6\x79\x09\x0f";

const COMMON_SIGNATURES: [u16; 8] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
const ML_DSA: [u16; 3] = [0x0904, 0x0905, 0x0906];
const ZLIB: u16 = 1;
const BROTLI: u16 = 2;
const ZSTD: u16 = 3;

/// Chromium: with ML-DSA since 150, with trust anchors (and GREASE among the signature algorithms) in Chrome since
/// 152.
fn chromium(profile: &FingerprintProfile, ml_dsa: bool, anchors: bool) -> ConnectionFingerprint {
    let grease = anchors.then_some(GREASE);
    let signatures = grease.into_iter().chain(ML_DSA.into_iter().filter(|_| ml_dsa)).chain(COMMON_SIGNATURES);
    let mut extensions =
        vec![0, ext::ALPS, 13, 51, 10, 45, ext::RENEGOTIATION, 11, 27, 5, 23, 43, ext::ECH, 35, 16, 18];
    if anchors {
        extensions.push(ext::TRUST_ANCHORS);
    }
    ConnectionFingerprint {
        tls: TlsFingerprint {
            ciphers: vec![4865, 4866, 4867, 49195, 49199, 49196, 49200, 52393, 52392, 49171, 49172, 156, 157, 47, 53],
            extensions,
            permuted: true,
            grease: true,
            groups: vec![4588, 29, 23, 24],
            key_shares: vec![4588, 29],
            signature_algorithms: signatures.collect(),
            certificate_compression: vec![BROTLI],
            trust_anchors: if anchors { Bytes::from_static(TRUST_ANCHORS) } else { Bytes::new() },
            ..modern_tls()
        },
        http2: profile.http2(1, Some(StreamPriority { stream: 0, exclusive: true, depends_on: 0, weight: 255 })),
        fields: field_names(&[
            "sec-ch-ua",
            "sec-ch-ua-mobile",
            "sec-ch-ua-platform",
            "upgrade-insecure-requests",
            "user-agent",
            "accept",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-user",
            "sec-fetch-dest",
            "accept-encoding",
            "accept-language",
            "priority",
        ]),
    }
}

fn firefox(profile: &FingerprintProfile) -> ConnectionFingerprint {
    ConnectionFingerprint {
        tls: TlsFingerprint {
            ciphers: vec![4865, 4867, 4866, 49195, 49199, 52393, 52392, 49196, 49200, 49171, 49172, 156, 157, 47, 53],
            extensions: vec![0, 23, ext::RENEGOTIATION, 10, 11, 35, 16, 5, 34, 18, 51, 43, 13, 45, 28, 27, ext::ECH],
            groups: vec![4588, 29, 23, 24, 25],
            key_shares: vec![4588, 29, 23],
            signature_algorithms: vec![
                0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201,
            ],
            certificate_compression: vec![ZLIB, BROTLI, ZSTD],
            delegated_credentials: vec![0x0403, 0x0503, 0x0603, 0x0203],
            record_size_limit: 16385,
            ..modern_tls()
        },
        http2: profile.http2(3, Some(StreamPriority { stream: 0, exclusive: false, depends_on: 0, weight: 41 })),
        fields: field_names(&[
            "host",
            "user-agent",
            "accept",
            "accept-language",
            "accept-encoding",
            "connection",
            "upgrade-insecure-requests",
            "sec-fetch-dest",
            "sec-fetch-mode",
            "sec-fetch-site",
            "sec-fetch-user",
            "priority",
            "te",
        ]),
    }
}

fn safari(profile: &FingerprintProfile) -> ConnectionFingerprint {
    ConnectionFingerprint {
        tls: TlsFingerprint {
            ciphers: vec![
                4866, 4867, 4865, 49196, 49195, 52393, 49200, 49199, 52392, 49162, 49161, 49172, 49171, 157, 156, 53,
                47, 49160, 49170, 10,
            ],
            extensions: vec![0, 23, ext::RENEGOTIATION, 10, 11, 16, 5, 13, 18, 51, 45, 43, 27],
            grease: true,
            groups: vec![4588, 29, 23, 24, 25],
            key_shares: vec![4588, 29],
            signature_algorithms: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0805, 0x0501, 0x0806, 0x0601, 0x0201],
            certificate_compression: vec![ZLIB],
            ..modern_tls()
        },
        http2: profile.http2(1, None),
        fields: field_names(&[
            "sec-fetch-dest",
            "user-agent",
            "accept",
            "sec-fetch-site",
            "sec-fetch-mode",
            "accept-language",
            "priority",
            "accept-encoding",
        ]),
    }
}

fn okhttp(profile: &FingerprintProfile) -> ConnectionFingerprint {
    ConnectionFingerprint {
        tls: TlsFingerprint {
            ciphers: vec![4865, 4866, 4867, 49195, 49196, 52393, 49199, 49200, 52392, 49171, 49172, 156, 157, 47, 53],
            extensions: vec![0, 23, ext::RENEGOTIATION, 10, 11, 35, 16, 5, 13, 51, 45, 43, ext::PADDING],
            groups: vec![29, 23, 24],
            key_shares: vec![29],
            signature_algorithms: [&COMMON_SIGNATURES[..], &[0x0201]].concat(),
            ..modern_tls()
        },
        http2: profile.http2(3, None),
        fields: Vec::new(),
    }
}

fn curl(profile: &FingerprintProfile) -> ConnectionFingerprint {
    ConnectionFingerprint {
        tls: TlsFingerprint {
            ciphers: vec![
                4866, 4867, 4865, 49196, 49200, 159, 52393, 52392, 52394, 49195, 49199, 158, 49188, 49192, 107, 49187,
                49191, 103, 49162, 49172, 57, 49161, 49171, 51, 157, 156, 61, 60, 53, 47, SCSV,
            ],
            extensions: vec![
                0,
                11,
                10,
                16,
                ext::ENCRYPT_THEN_MAC,
                23,
                ext::POST_HANDSHAKE_AUTH,
                13,
                43,
                45,
                51,
                ext::PADDING,
            ],
            groups: vec![29, 23, 30, 25, 24, 256, 257, 258, 259, 260],
            key_shares: vec![29],
            point_formats: vec![0, 1, 2],
            signature_algorithms: vec![
                0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0809, 0x080a, 0x080b, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501,
                0x0601, 0x0303, 0x0301, 0x0302, 0x0402, 0x0502, 0x0602,
            ],
            lowest_version: 0x0301,
            ..modern_tls()
        },
        http2: profile.http2(1, None),
        fields: field_names(&["host", "user-agent", "accept"]),
    }
}

fn modern_tls() -> TlsFingerprint {
    TlsFingerprint {
        // Uncompressed points only, as RFC 8422 5.1.1 requires.
        point_formats: vec![0],
        lowest_version: 0x0303,
        highest_version: 0x0304,
        alpn: ["h2", "http/1.1"].map(|p| Bytes::from_static(p.as_bytes())).to_vec(),
        ..TlsFingerprint::default()
    }
}

fn field_names(list: &[&'static str]) -> Vec<ByteStr> {
    list.iter().map(|n| ByteStr::from_static(n)).collect()
}
