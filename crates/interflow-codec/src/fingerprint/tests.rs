//! Fingerprints, their text forms, and the published values of real clients.

use super::*;

/// A ClientHello with this fingerprint, as the parser would return it.
fn hello(shape: &TlsFingerprint) -> ClientHello {
    ClientHello {
        legacy_version: 0x0303,
        ciphers: shape.ciphers.clone(),
        extensions: shape.extensions.clone(),
        alpn: shape.alpn.clone(),
        versions: vec![shape.highest_version, shape.lowest_version],
        groups: shape.groups.clone(),
        point_formats: shape.point_formats.clone(),
        signature_algorithms: shape.signature_algorithms.clone(),
        ..ClientHello::default()
    }
}

#[test]
fn every_profile_has_the_fingerprints_that_were_published_and_can_be_sent() {
    for profile in PROFILES.iter() {
        let fingerprint = profile.fingerprint();
        let hello = hello(&fingerprint.tls);
        assert_eq!(hello.ja4(), profile.ja4, "{}", profile.name);
        if let Some(ja3) = &profile.ja3 {
            assert_eq!(&hello.ja3_text(), ja3, "{}", profile.name);
        }
        assert_eq!(fingerprint.http2.unwrap().to_string(), profile.akamai, "{}", profile.name);
        assert_eq!(fingerprint.tls.unsupported_parts(), [""; 0], "{}", profile.name);
        assert_eq!(profile.name.parse(), Ok(FingerprintTarget::Profile(profile)));
    }
}

#[test]
fn published_hashes_are_those_of_the_texts() {
    for (name, md5) in [
        ("firefox", "9d42e90b0225e779f03141ddcd699df2"),
        ("safari", "ecdf4f49dd59effc439639da29186671"),
        ("ios", "ecdf4f49dd59effc439639da29186671"),
        ("okhttp", "f79b6bad2ad0641e1921aef10262856b"),
    ] {
        let profile = PROFILES.iter().find(|p| p.name == name).unwrap();
        assert_eq!(hello(&profile.fingerprint().tls).ja3(), md5, "{name}");
    }
}

#[test]
fn client_hello_yields_the_fingerprint_of_its_profile() {
    let chromium = PROFILES[0].fingerprint().tls;
    let mut seen = hello(&chromium);
    seen.ciphers.insert(0, 0x4a4a);
    seen.extensions.insert(0, 0xdada);
    seen.groups.insert(0, 0x1a1a);
    seen.key_shares = vec![0x1a1a, 4588, 29];
    seen.versions.insert(0, 0xfafa);
    seen.signature_algorithms[0] = 0xbaba;
    seen.certificate_compression = vec![2];
    seen.trust_anchors = chromium.trust_anchors.clone();
    assert_eq!(TlsFingerprint::from_client_hello(&seen), TlsFingerprint { permuted: false, ..chromium });
}

#[test]
fn ja3_text_round_trips_through_a_client_hello() {
    for text in [
        "771,4865-4866-4867-49195-49199,0-23-65281-10-11-35-16-5-13-18-51-45-43-27-21,29-23-24,0",
        "771,49195-49199-156,0-10-11-13-16-23,29-23-24,0",
        "771,4866-4865,0-10-13-51-43-45,29-23,",
        PROFILES[4].ja3.as_deref().unwrap(),
        PROFILES[8].ja3.as_deref().unwrap(),
    ] {
        let Ok(FingerprintTarget::Ja3(shape, kept)) = format!("ja3:{text}").parse() else { panic!("{text}") };
        assert_eq!(hello(&shape).ja3_text(), text);
        assert_eq!(kept, text);
        assert_eq!(text.parse::<FingerprintTarget>().unwrap().to_string(), format!("ja3:{text}"));
    }
    let Ok(FingerprintTarget::Ja3(shape, _)) = "771,4865-49195,10-11-13-23-43-51,4588-29-23,0".parse() else {
        panic!()
    };
    assert_eq!((shape.key_shares, shape.alpn.len()), (vec![4588, 29], 0));
}

#[test]
fn unsupported_parts_are_reported() {
    for (text, reported) in [
        ("ja3:771,4865,0", "five parts between commas, this has 3"),
        ("ja3:769,47,0-10-11,23,0", "version is 769"),
        ("ja3:771,4865-x,0,29,0", "ciphers: `x` is not a number"),
        ("ja3:771,4865-4865,0,29,0", "ciphers: 4865 occurs twice"),
        ("ja3:771,4868-49195,10-11-13-23-43-51,29,0", "cipher 4868 is not known"),
        ("ja3:771,49195-4865,10-11-13-23-43-51,29,0", "before all others"),
        ("ja3:771,255-49195,10-11-13-23,29,0", "cipher 255 can only be the last"),
        ("ja3:771,49195,10-11-13-23-43-51,29,0", "one of its ciphers"),
        ("ja3:771,4865-49195,10-11-13-23-43-51-30031,29,0", "extension 30031 is not known"),
        ("ja3:771,4865-49195,10-11-13-23-43-51-41,29,0", "only when a session is resumed"),
        ("ja3:771,4865-49195,10-11-13-43-51,29,0", "extension 23 cannot be left out"),
        ("ja3:771,4865-49195,10-11-13-23-43-51,30,0", "no key share can be made for group 30"),
        ("ja3:771,4865-49195,10-11-13-23-43-51,29,1", "point formats [1]"),
        ("ja3:771,4865-49195,10-11-13-23-43-51,29,300", "point formats: 300"),
        ("ja3:771,4865,10-11-13-23-43-51,29,0", "extension 11 is sent only with ciphers of TLS 1.2"),
        ("netscape", "mirror, chrome, chrome149"),
    ] {
        let error = text.parse::<FingerprintTarget>().unwrap_err();
        assert!(error.contains(reported), "{text}: {error}");
    }
}

#[test]
fn akamai_text_round_trips_and_invalid_text_is_reported() {
    for text in [
        "1:65536;2:0;4:6291456;6:262144|15663105|0|m,a,s,p",
        "3:100|00|3:0:0:201,5:1:3:1|m,p,s,a",
        "4:16777216|16711681|0|m,p,a,s",
        "|00|0|",
    ] {
        assert_eq!(text.parse::<Http2Fingerprint>().unwrap().to_string(), text);
    }
    for (text, reported) in [
        ("1:1|0|0", "four parts"),
        ("1=1|0|0|m", "`1=1` is not a setting"),
        ("1:1|x|0|m", "`x` is not a window"),
        ("1:1|0|3:0|m", "`3:0` is not a priority"),
        ("1:1|0|3:0:0:0|m", "not a priority"),
        ("1:1|0|0|m,x", "`x` is not a pseudo"),
    ] {
        let error = text.parse::<Http2Fingerprint>().unwrap_err();
        assert!(error.contains(reported), "{text}: {error}");
    }
}

#[test]
fn fields_take_the_order_of_the_profile_and_others_keep_their_positions() {
    let chrome = PROFILES[0].fingerprint();
    let order = |given: &[&str]| {
        let mut headers: Headers = given.iter().map(|n| (*n, "x")).collect();
        chrome.reorder_fields(&mut headers);
        headers.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(&["Host", "Accept", "X-Mine", "User-Agent"]), ["Host", "User-Agent", "X-Mine", "Accept"]);
    assert_eq!(
        order(&["accept-language", "cookie", "accept-encoding", "cookie", "sec-ch-ua"]),
        ["sec-ch-ua", "cookie", "accept-encoding", "cookie", "accept-language"]
    );
    assert_eq!(order(&["accept", "accept", "a"]), ["accept", "accept", "a"]);
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "(ja3:)?[0-9,|:;a-z-]{0,60}") {
        let _ = text.parse::<FingerprintTarget>();
        let _ = text.parse::<Http2Fingerprint>();
    }
}
