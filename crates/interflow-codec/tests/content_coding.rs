//! Content codings are decoded within the same bounds by every interface.

use std::io::{Read, Write};

use bytes::Bytes;
use interflow_codec::content_coding::{ContentDecoder, DecodeReader, decode, decode_off_thread, has_content_coding};
use interflow_types::Headers;

const ALL: [(&str, &str); 6] =
    [("gzip", "gzip"), ("x-gzip", "gzip"), ("deflate", "zlib"), ("deflate", "raw"), ("br", "br"), ("ZSTD", "zstd")];

fn headers(codings: &str) -> Headers {
    [("Content-Encoding", codings)].into_iter().collect()
}

fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding {
        "gzip" => {
            let mut w = flate2::write::GzEncoder::new(Vec::new(), level);
            w.write_all(body).unwrap();
            w.finish().unwrap()
        }
        "zlib" => {
            let mut w = flate2::write::ZlibEncoder::new(Vec::new(), level);
            w.write_all(body).unwrap();
            w.finish().unwrap()
        }
        "raw" => {
            let mut w = flate2::write::DeflateEncoder::new(Vec::new(), level);
            w.write_all(body).unwrap();
            w.finish().unwrap()
        }
        "br" => {
            let mut out = Vec::new();
            let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
            brotli::BrotliCompress(&mut &*body, &mut out, &params).unwrap();
            out
        }
        _ => zstd::stream::encode_all(body, 3).unwrap(),
    }
}

fn text() -> Vec<u8> {
    (0..3000).flat_map(|i| format!("line {i} of a body that repeats itself, more or less\n").into_bytes()).collect()
}

#[test]
fn every_coding_is_decoded_at_any_segmentation() {
    let body = text();
    for (coding, by) in ALL {
        let wire = encode(by, &body);
        for step in [1, 7, wire.len()] {
            let mut decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap();
            let mut out = Vec::new();
            wire.chunks(step).for_each(|piece| out.extend(decoder.push(piece).unwrap()));
            out.extend(decoder.finish().unwrap());
            assert!(out == body, "{by} by {step}");
        }
        let decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap();
        let mut out = Vec::new();
        DecodeReader::new(&*wire, decoder).read_to_end(&mut out).unwrap();
        assert!(out == body, "{by} read");
        let nothing = encode(by, b"");
        assert_eq!(decode(&headers(coding), &nothing, 0).unwrap().unwrap(), &b""[..], "{by}");
    }
    assert_eq!(decode(&headers("gzip"), b"", 9).unwrap().unwrap(), &b""[..], "no bytes at all");
    assert!(decode(&headers("identity"), b"x", 9).unwrap().is_none());
    assert!(has_content_coding(&headers("identity, aes128gcm")) && !has_content_coding(&headers("Identity")));
}

#[test]
fn up_to_four_codings_are_decoded_last_to_first() {
    let body = text();
    let wire = encode("gzip", &encode("zstd", &encode("br", &encode("zlib", &body))));
    assert_eq!(decode(&headers("deflate, br, identity, zstd, gzip"), &wire, 1 << 20).unwrap().unwrap(), body);
    for codings in [["gzip"; 5].join(", "), vec!["br"; 20_000].join(",")] {
        let error = decode(&headers(&codings), &wire, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("more than four"), "{error}");
    }
    let error = decode(&headers("aws-chunked"), &wire, 1 << 20).unwrap_err();
    assert_eq!(error.to_string(), "unknown content coding aws-chunked");
}

#[test]
fn truncated_or_invalid_bodies_are_errors() {
    for (coding, by) in ALL {
        let wire = encode(by, &text());
        for cut in [1, 2, wire.len() / 2, wire.len() - 1] {
            assert!(decode(&headers(coding), &wire[..cut], 1 << 20).is_err(), "{by} up to {cut}");
        }
        assert!(decode(&headers(coding), b"{\"plain\": \"json, which is nothing else\"}", 1 << 20).is_err(), "{by}");
        let behind = [&wire[..], b"hidden behind the end"].concat();
        assert!(decode(&headers(coding), &behind, 1 << 20).is_err(), "{by} with trailing bytes");
    }
}

#[test]
fn trailing_data_is_dropped_on_request() {
    for (coding, by) in ALL {
        let wire = encode(by, &text());
        for (suffix, found) in [(&b""[..], false), (b"junk behind the end", true), (&[0; 100], true)] {
            let whole = [&wire[..], suffix].concat();
            for step in [1, 7, whole.len()] {
                let decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap();
                let mut decoder = decoder.ignoring_trailing_data();
                let mut out = Vec::new();
                whole.chunks(step).for_each(|piece| out.extend(decoder.push(piece).unwrap()));
                out.extend(decoder.finish().unwrap());
                assert!(out == text(), "{by} by {step}");
                assert_eq!(decoder.has_trailing_data(), found, "{by} by {step}, {suffix:?}");
            }
        }
        let mut decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap().ignoring_trailing_data();
        assert!(decoder.push(b"{\"plain\": \"json\"}").and_then(|_| decoder.finish()).is_err(), "{by}");
    }
    // Members and frames that follow one another are content, also behind padding.
    for (coding, between) in [("gzip", &[0; 9][..]), ("gzip", b""), ("zstd", b"")] {
        let member = encode(coding, b"one ");
        let whole = [&member[..], between, &member].concat();
        for step in [1, 3, whole.len()] {
            let decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap();
            let mut decoder = decoder.ignoring_trailing_data();
            let out: Vec<u8> = whole.chunks(step).flat_map(|piece| decoder.push(piece).unwrap()).collect();
            assert_eq!(String::from_utf8_lossy(&out), "one one ", "{coding} by {step}");
        }
    }
}

#[test]
fn output_before_a_failure_is_returned_first() {
    // More than one zstd block.
    let body: Vec<u8> = (0..200_000_u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    for (coding, by) in ALL {
        let wire = encode(by, &body);
        let decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap().unwrap();
        let mut out = Vec::new();
        let error = DecodeReader::new(&wire[..wire.len() * 2 / 3], decoder).read_to_end(&mut out);
        assert!(error.is_err() && !out.is_empty() && body.starts_with(&out), "{by}: {}", out.len());
    }
}

#[test]
fn expansion_is_limited_by_size_and_by_ratio() {
    let zeros = vec![0; 32 << 20];
    for (coding, by) in ALL {
        let bomb = encode(by, &zeros);
        for max in [1 << 20, u64::MAX] {
            let mut decoder = ContentDecoder::new(&headers(coding), max).unwrap().unwrap();
            let mut out = Vec::new();
            assert!(decoder.push_into(&bomb, &mut out).is_err(), "{by} of {} bytes", bomb.len());
            let most = max.min((4 << 20) + 200 * bomb.len() as u64);
            assert!(out.len() as u64 <= most, "{by}: {}", out.len());
        }
    }
    let twice = encode("gzip", &encode("gzip", &zeros));
    assert!(decode(&headers("gzip, gzip"), &twice, u64::MAX).is_err(), "the ratio applies to all codings together");
}

#[test]
fn a_zstd_window_beyond_8_mib_is_refused() {
    let mut w = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    w.window_log(24).unwrap();
    w.include_contentsize(false).unwrap();
    w.write_all(&text()).unwrap();
    let wire = w.finish().unwrap();
    assert!(decode(&headers("zstd"), &wire, 1 << 20).is_err());
}

#[tokio::test]
async fn a_large_body_is_decoded_off_the_worker() {
    let body: Vec<u8> = (0..200_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let wire = Bytes::from(encode("gzip", &body));
    assert_eq!(decode_off_thread(&headers("gzip"), &wire, 1 << 20).await.unwrap().unwrap(), body);
    assert!(decode_off_thread(&headers("gzip"), &wire.slice(..wire.len() - 9), 1 << 20).await.is_err());
    assert!(decode_off_thread(&headers("identity"), &wire, 1 << 20).await.unwrap().is_none());
}
