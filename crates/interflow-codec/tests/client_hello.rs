//! ClientHello parsing: RFC 8448's example, generated ones, truncated and fragmented; JA3 and JA4 against published
//! values.

use interflow_codec::client_hello::{ClientHello, ClientHelloError, MAX_BYTES, looks_like_tls};
use proptest::prelude::*;

/// The ClientHello of RFC 8448 section 3, without its record header.
const RFC_8448: &str = "\
    010000c00303cb34ecb1e78163ba1c38c6dacb196a6dffa21a8d9912ec18a2ef6283024dece7000006130113031302010000\
    910000000b0009000006736572766572ff01000100000a00140012001d001700180019010001010102010301040023000000\
    3300260024001d002099381de560e4bd43d23d8e435a7dbafeb3c06e51c13cae4d5413691e529aaf2c002b0003020304000d\
    0020001e040305030603020308040805080604010501060102010402050206020202002d00020101001c00024001";

fn rfc_8448() -> Vec<u8> {
    (0..RFC_8448.len() / 2).map(|i| u8::from_str_radix(&RFC_8448[i * 2..i * 2 + 2], 16).unwrap()).collect()
}

fn counted16(parts: &[u8]) -> Vec<u8> {
    [&u16::try_from(parts.len()).unwrap().to_be_bytes()[..], parts].concat()
}

fn numbers(list: &[u16]) -> Vec<u8> {
    list.iter().flat_map(|n| n.to_be_bytes()).collect()
}

/// A handshake message with these ciphers and extensions.
fn hello(ciphers: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let extensions: Vec<u8> =
        extensions.iter().flat_map(|(n, data)| [n.to_be_bytes().to_vec(), counted16(data)].concat()).collect();
    let body = [&[3, 3][..], &[7; 32], &[0], &counted16(&numbers(ciphers)), &[1, 0], &counted16(&extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

fn records(handshake: &[u8], size: usize) -> Vec<u8> {
    handshake.chunks(size).flat_map(|part| [vec![22, 3, 1], counted16(part)].concat()).collect()
}

fn sni(name: &[u8]) -> (u16, Vec<u8>) {
    (0, counted16(&[&[0], &counted16(name)[..]].concat()))
}

fn alpn(protocols: &[&[u8]]) -> (u16, Vec<u8>) {
    let list: Vec<u8> = protocols.iter().flat_map(|p| [&[u8::try_from(p.len()).unwrap()], *p].concat()).collect();
    (16, counted16(&list))
}

fn parsed(handshake: &[u8]) -> ClientHello {
    ClientHello::parse(&records(handshake, 16_000)).unwrap().unwrap()
}

/// The extensions of the browser in the example of the JA4 specification.
fn example() -> Vec<(u16, Vec<u8>)> {
    let algorithms = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
    let empty = |n| (n, Vec::new());
    vec![
        empty(0x2a2a),
        empty(0x001b),
        sni(b"example.com"),
        empty(0x0033),
        alpn(&[b"h2", b"http/1.1"]),
        empty(0x4469),
        empty(0x0017),
        empty(0x002d),
        (0x000d, counted16(&numbers(&algorithms))),
        empty(0x0005),
        empty(0x0023),
        empty(0x0012),
        (0x002b, vec![6, 0x5a, 0x5a, 3, 4, 3, 3]),
        empty(0xff01),
        (0x000b, vec![1, 0]),
        (0x000a, counted16(&numbers(&[0x8a8a, 29, 23, 24]))),
        empty(0x0015),
    ]
}

const EXAMPLE_CIPHERS: [u16; 16] = [
    0xaaaa, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d,
    0x002f, 0x0035,
];

#[test]
fn the_client_hello_of_rfc_8448_is_parsed() {
    let h = parsed(&rfc_8448());
    assert_eq!(h.legacy_version, 0x0303);
    assert_eq!(h.ciphers, [0x1301, 0x1303, 0x1302]);
    assert_eq!(h.extensions, [0, 0xff01, 10, 35, 51, 43, 13, 45, 28]);
    assert_eq!(h.server_name.as_deref(), Some("server"));
    assert_eq!((h.versions.as_slice(), h.highest_version()), (&[0x0304][..], 0x0304));
    assert_eq!(h.groups, [0x1d, 0x17, 0x18, 0x19, 0x100, 0x101, 0x102, 0x103, 0x104]);
    assert_eq!(h.signature_algorithms.len(), 15);
    assert!(h.alpn.is_empty());
    assert_eq!(h.ja3_text(), "771,4865-4867-4866,0-65281-10-35-51-43-13-45-28,29-23-24-25-256-257-258-259-260,");
}

/// The fingerprint explained in FoxIO's "JA4 technical details".
#[test]
fn ja4_agrees_with_its_specification() {
    let h = parsed(&hello(&EXAMPLE_CIPHERS, &example()));
    assert_eq!(h.ja4(), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    let mut shuffled = example();
    shuffled.reverse();
    let other = parsed(&hello(&EXAMPLE_CIPHERS, &shuffled));
    assert_eq!(other.ja4(), h.ja4());
    assert_ne!(other.ja3(), h.ja3());
}

#[test]
fn ja4_encodes_an_absent_sni_and_empty_lists() {
    let h = parsed(&hello(&[], &[]));
    assert_eq!(h.ja4(), "t12i000000_000000000000_000000000000");
    let no_algorithms = parsed(&hello(&[0x1301], &[sni(b"a"), (23, Vec::new())]));
    assert!(no_algorithms.ja4().starts_with("t12d010200_"));
}

/// The specification's own list of first ALPN values.
#[test]
fn ja4_uses_first_and_last_character_of_the_first_alpn_value() {
    for (protocol, ends) in [
        (&b"h2"[..], "h2"),
        (b"http/1.1", "h1"),
        (b"x", "xx"),
        (b"\xab", "ab"),
        (b"\xab\xcd", "ad"),
        (b"\x30\xab", "3b"),
        (b"\x30\x31\xab\xcd", "3d"),
        (b"\x30\xab\xcd\x31", "01"),
        (b"", "00"),
    ] {
        let h = parsed(&hello(&[], &[alpn(&[protocol, b"h2"])]));
        assert_eq!(&h.ja4()[8..10], ends, "{}", protocol.escape_ascii());
    }
}

/// The two examples in the README of Salesforce's ja3.
#[test]
fn ja3_agrees_with_its_published_examples() {
    let full = ClientHello {
        legacy_version: 769,
        ciphers: vec![47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4],
        extensions: vec![0, 10, 11],
        groups: vec![23, 24, 25],
        point_formats: vec![0],
        ..ClientHello::default()
    };
    assert_eq!(full.ja3(), "ada70206e40642a3e4461f35503241d5");
    let bare = ClientHello {
        legacy_version: 769,
        ciphers: vec![4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99],
        ..ClientHello::default()
    };
    assert_eq!(bare.ja3_text(), "769,4-5-10-9-100-98-3-6-19-18-99,,,");
    assert_eq!(bare.ja3(), "de350869b8c85de67a350c8d186f11e6");
}

#[test]
fn hello_is_reassembled_from_records_and_partial_reads() {
    let handshake = hello(&EXAMPLE_CIPHERS, &example());
    let whole = parsed(&handshake);
    for size in [1, 3, 4, 5, 40, handshake.len() - 1] {
        let raw = records(&handshake, size);
        for end in (0..raw.len()).step_by(if size == 1 { 7 } else { 1 }) {
            assert_eq!(ClientHello::parse(&raw[..end]), Ok(None), "{size} {end}");
        }
        assert_eq!(ClientHello::parse(&raw), Ok(Some(whole.clone())));
    }
    let more = [records(&handshake, 16_000), b"\x14\x03\x03\x00\x01\x01".to_vec()].concat();
    assert_eq!(ClientHello::parse(&more), Ok(Some(whole)));
}

#[test]
fn other_bytes_are_refused_as_early_as_possible() {
    use ClientHelloError::*;
    for (raw, error) in [
        (&b"GET"[..], NotTls),
        (b"\x16\x02", NotTls),
        (b"\x15\x03\x01\x00\x02\x01\x00", NotTls),
        (b"\x16\x03\x01\x00\x00", NotTls),
        (b"\x16\x03\x01\x40\x01", NotTls),
        (b"\x16\x03\x01\x00\x01\x02", NotClientHello),
        (b"\x16\x03\x01\x00\x04\x01\x01\x00\x00", TooLong),
        (b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", Malformed),
    ] {
        assert_eq!(ClientHello::parse(raw), Err(error), "{raw:?}");
    }
    let slow = records(&[&[1, 0, 0x70, 0][..], &[0; 0x6000]].concat(), 1);
    assert!(slow.len() > MAX_BYTES);
    assert_eq!(ClientHello::parse(&slow), Err(TooLong));
}

#[test]
fn inconsistent_lengths_are_refused() {
    let bad = |extension: (u16, Vec<u8>)| {
        let raw = records(&hello(&[0x1301], &[extension]), 16_000);
        assert_eq!(ClientHello::parse(&raw), Err(ClientHelloError::Malformed), "{raw:?}");
    };
    bad((0, vec![0, 9, 0, 0, 1, b'a']));
    bad((0, Vec::new()));
    bad((16, vec![0, 3, 9, b'h', b'2']));
    bad((43, vec![3, 3, 4, 3]));
    bad((10, vec![0, 1, 0]));
}

#[test]
fn server_name_must_be_visible_ascii() {
    let name = |raw: &[u8]| parsed(&hello(&[], &[sni(raw)])).server_name.map(|n| n.to_string());
    assert_eq!(name(b"Example.COM").as_deref(), Some("Example.COM"));
    assert_eq!(name(b""), None);
    assert_eq!(name(b"a b"), None);
    assert_eq!(name(b"a\0b"), None);
    assert_eq!(name(b"\xff"), None);
}

#[test]
fn first_of_duplicate_extensions_is_used() {
    let h = parsed(&hello(&[], &[sni(b"first"), sni(b"second")]));
    assert_eq!((h.server_name.as_deref(), h.extensions.len()), (Some("first"), 2));
}

#[test]
fn tls_is_recognised_by_three_bytes() {
    for (raw, expected) in [
        (&b""[..], None),
        (b"\x16", None),
        (b"\x16\x03", None),
        (b"\x16\x03\x01", Some(true)),
        (b"\x16\x03\x07", Some(false)),
        (b"G", Some(false)),
        (b"\x05", Some(false)),
    ] {
        assert_eq!(looks_like_tls(raw), expected);
    }
}

proptest! {
    #[test]
    fn no_input_panics(noise in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), byte: u8) {
        let _ = ClientHello::parse(&noise);
        let _ = ClientHello::parse(&records(&[&[1, 0, 0][..], &noise].concat(), 50));
        let mut raw = records(&hello(&EXAMPLE_CIPHERS, &example()), 60);
        let at = at.index(raw.len());
        raw[at] = byte;
        if let Ok(Some(h)) = ClientHello::parse(&raw) {
            prop_assert_eq!(h.ja3().len(), 32);
            prop_assert_eq!(h.ja4().len(), 36);
        }
    }
}
