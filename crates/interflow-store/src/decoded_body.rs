//! Decodes content codings with an output cap, so that a small body cannot expand without bound.

use std::convert::Infallible;
use std::io::Read;

use bytes::Bytes;
use interflow_codec::content_coding::{ContentDecoder, DecodeReader};
use interflow_types::Headers;
use interflow_types::budget::MemoryReservation;

/// A body with its content codings removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedBody {
    pub bytes: Bytes,
    /// Whether there is more content than the cap.
    pub truncated: bool,
    /// Where decoding stopped early: the body is damaged, truncated, or not in the declared coding.
    pub error: Option<String>,
}

/// Removes the codings named by `Content-Encoding` (RFC 9110 8.4): gzip, deflate, br, zstd. A body in an unknown coding, or
/// of which nothing can be decoded, is returned as is, with an error that names the coding. Output and memory are bounded by
/// `cap`.
pub fn decode_body(headers: &Headers, body: Bytes, cap: usize) -> DecodedBody {
    match decode(headers, body, cap, |_| Ok::<(), Infallible>(())) {
        Ok(decoded) => decoded,
        Err(never) => match never {},
    }
}

/// Like [`decode_body`], but the output is charged to the `held` budget until it is dropped.
///
/// # Errors
/// The [budget](interflow_types::budget) is exhausted.
pub fn decoded_held(
    headers: &Headers,
    body: Bytes,
    cap: usize,
    held: &mut MemoryReservation,
) -> Result<DecodedBody, interflow_types::Error> {
    let before = held.bytes();
    decode(headers, body, cap, |bytes| held.grow_to(before + bytes as u64))
}

/// Bytes decoded between two checks of the memory budget.
const STEP: u64 = 1 << 20;

fn decode<E>(
    headers: &Headers,
    body: Bytes,
    cap: usize,
    mut grown: impl FnMut(usize) -> Result<(), E>,
) -> Result<DecodedBody, E> {
    // No limit here: `take` below bounds the output, and a body beyond it is cut rather than refused.
    let decoder = match ContentDecoder::new(headers, u64::MAX) {
        Ok(Some(decoder)) if !body.is_empty() => decoder,
        Ok(_) => return Ok(cap_body(body, cap, None)),
        Err(e) => return Ok(cap_body(body, cap, Some(e.to_string()))),
    };
    let mut out = Vec::new();
    // One byte more than the cap tells whether there is more.
    let mut rest = DecodeReader::new(&*body, decoder).take(cap as u64 + 1);
    let failed = loop {
        let read = (&mut rest).take(STEP).read_to_end(&mut out);
        // By capacity, which is what the buffer really takes.
        grown(out.capacity())?;
        match read {
            Ok(0) => break None,
            Ok(_) => {}
            Err(e) => break Some(e),
        }
    };
    let truncated = out.len() > cap;
    out.truncate(cap);
    let named = || headers.get_str("content-encoding").unwrap_or_default().to_ascii_lowercase();
    let error = failed.map(|e| format!("{}: {e}", named()));
    if error.is_some() && out.is_empty() {
        return Ok(cap_body(body, cap, error));
    }
    Ok(DecodedBody { bytes: out.into(), truncated, error })
}

fn cap_body(mut body: Bytes, cap: usize, error: Option<String>) -> DecodedBody {
    let truncated = body.len() > cap;
    body.truncate(cap);
    DecodedBody { bytes: body, truncated, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::budget::MemoryBudget;
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(data).unwrap();
        e.finish().unwrap()
    }

    fn encode(coding: &str, data: &[u8]) -> Vec<u8> {
        match coding {
            "gzip" => gzip(data),
            "deflate" => {
                let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(data).unwrap();
                e.finish().unwrap()
            }
            "raw" => {
                let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(data).unwrap();
                e.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::CompressorWriter::new(&mut out, 4096, 4, 20).write_all(data).unwrap();
                out
            }
            _ => zstd::bulk::compress(data, 1).unwrap(),
        }
    }

    fn headers(coding: &str) -> Headers {
        [("Content-Encoding", coding)].into_iter().collect()
    }

    #[test]
    fn every_content_coding_is_decoded() {
        let data = b"a body that says something ".repeat(100);
        for (name, made) in [
            ("gzip", "gzip"),
            ("x-gzip", "gzip"),
            ("deflate", "deflate"),
            ("deflate", "raw"),
            ("br", "br"),
            ("ZSTD", "zstd"),
        ] {
            let d = decode_body(&headers(name), encode(made, &data).into(), 1 << 20);
            assert_eq!((&d.bytes[..], d.truncated, d.error), (&data[..], false, None), "{name} {made}");
        }
        let twice = encode("br", &encode("gzip", &data));
        assert_eq!(&decode_body(&headers("gzip, br"), twice.into(), 1 << 20).bytes[..], &data[..]);
    }

    #[test]
    fn decompression_bomb_is_truncated_at_the_cap() {
        let bomb = gzip(&vec![0; 50 << 20]);
        assert!(bomb.len() < 1 << 20);
        let d = decode_body(&headers("gzip"), bomb.into(), 1 << 16);
        assert_eq!((d.bytes.len(), d.truncated, d.error), (1 << 16, true, None));
    }

    #[test]
    fn damaged_body_returns_the_decoded_part_and_an_error() {
        let mut half = gzip(&b"0123456789".repeat(10_000));
        half.truncate(half.len() / 2);
        let d = decode_body(&headers("gzip"), half.into(), 1 << 20);
        assert!(!d.bytes.is_empty() && d.error.is_some());
        let other = decode_body(&headers("br"), Bytes::from_static(b"not brotli"), 100);
        assert_eq!((&other.bytes[..], other.error.is_some()), (&b"not brotli"[..], true), "it is in no coding");
    }

    #[test]
    fn unknown_codings_leave_the_body_as_it_is() {
        let d = decode_body(&headers("aes128gcm"), Bytes::from_static(b"xyz"), 100);
        assert_eq!(&d.bytes[..], b"xyz");
        assert_eq!(d.error.as_deref(), Some("unknown content coding aes128gcm"));
        assert!(decode_body(&headers("gzip,gzip,gzip,gzip,gzip"), Bytes::from_static(b"x"), 9).error.is_some());
    }

    #[test]
    fn decoded_bytes_count_against_the_memory_budget() {
        static BUDGET: MemoryBudget = MemoryBudget::new(16 << 20);
        let text = vec![b'x'; 5 << 20];
        let body = Bytes::from(gzip(&text));
        let mut held = BUDGET.reserve(0).unwrap();
        let all = decoded_held(&headers("gzip"), body.clone(), 64 << 20, &mut held).unwrap();
        assert_eq!(all.bytes, text);
        assert!(held.bytes() >= text.len() as u64 && BUDGET.reserved() == held.bytes());
        BUDGET.resize(BUDGET.reserved() + (1 << 20));
        let mut more = BUDGET.reserve(0).unwrap();
        let refused = decoded_held(&headers("gzip"), body, 64 << 20, &mut more).unwrap_err();
        assert_eq!(refused.kind(), interflow_types::ErrorKind::Overloaded);
        drop((held, more));
        assert_eq!(BUDGET.reserved(), 0);
    }
}
