//! Content codings: decoded for display and archives, re-encoded for imported flows whose archive stores decoded
//! bodies.

use std::io::{self, Read, Write};

use interflow_codec::content_coding::{ContentCoding, ContentDecoder, DecodeReader, parse_codings};
use interflow_types::Headers;

/// Maximum size of a decoded body, in bytes: a few kilobytes may decode to terabytes.
pub const MAX_DECODED: u64 = 1 << 30;

fn encode_as(coding: ContentCoding, body: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        ContentCoding::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(body)?;
            out.finish()
        }
        ContentCoding::Deflate => {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(body)?;
            out.finish()
        }
        ContentCoding::Brotli => {
            let mut out = Vec::new();
            // Quality 5 instead of the default 11, which is slower by orders of magnitude.
            let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
            brotli::BrotliCompress(&mut &*body, &mut out, &params)?;
            Ok(out)
        }
        ContentCoding::Zstd => zstd::stream::encode_all(body, 3),
    }
}

/// A body with its content coding decoded. More than [`MAX_DECODED`] bytes are an error while reading.
///
/// # Errors
/// An unknown coding, or invalid data (the latter while reading).
pub fn decoder<'a>(headers: &Headers, body: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match ContentDecoder::new(headers, MAX_DECODED)? {
        Some(decoder) => Box::new(DecodeReader::new(body, decoder)),
        None => body,
    })
}

/// The complete decoded body; the body itself if it cannot be decoded.
pub fn decode(headers: &Headers, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let decoded = decoder(headers, Box::new(body)).and_then(|mut d| d.read_to_end(&mut plain));
    // A body that cannot be decoded is shown as it was sent.
    if decoded.is_ok() { plain } else { body.to_vec() }
}

/// Encodes a decoded body with the coding named by its head, so that head and body match again. An unknown coding
/// leaves it unchanged; a body that is still encoded is not encoded twice.
pub fn encode(headers: &Headers, body: Vec<u8>) -> Vec<u8> {
    let codings = parse_codings(headers).unwrap_or_default();
    // The coding that was applied last is the one whose magic number the body would begin with.
    if body.is_empty() || codings.is_empty() || is_coded(codings[codings.len() - 1], &body) {
        return body;
    }
    let mut coded = body.clone();
    // In the order of the field: the first coding is applied first (RFC 9110 section 8.4).
    for coding in codings {
        let Ok(next) = encode_as(coding, &coded) else { return body };
        coded = next;
    }
    coded
}

fn is_coded(coding: ContentCoding, body: &[u8]) -> bool {
    // Deflate and Brotli have no magic number, so their bodies are assumed to be decoded.
    match coding {
        ContentCoding::Gzip => body.starts_with(b"\x1f\x8b\x08"),
        ContentCoding::Zstd => body.starts_with(b"\x28\xb5\x2f\xfd"),
        ContentCoding::Deflate | ContentCoding::Brotli => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(coding: &str) -> Headers {
        [("Content-Encoding", coding)].into_iter().collect()
    }

    #[test]
    fn every_content_coding_is_decoded() {
        let body = b"a body that repeats itself, a body that repeats itself".repeat(50);
        for coding in ["gzip", "X-GZIP", "deflate", "br", "zstd", "gzip, br", "identity", ""] {
            let coded = encode(&headers(coding), body.clone());
            let plain = matches!(coding, "identity" | "");
            assert_eq!(coded == body, plain, "{coding}");
            assert_eq!(decode(&headers(coding), &coded), body, "{coding}");
        }
    }

    #[test]
    fn raw_deflate_is_decoded() {
        let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(b"hello hello hello").unwrap();
        assert_eq!(decode(&headers("deflate"), &out.finish().unwrap()), b"hello hello hello");
    }

    #[test]
    fn undecodable_body_is_returned_unchanged() {
        for coding in ["gzip", "zstd", "br", "unknown", "gzip, aws-chunked"] {
            assert_eq!(decode(&headers(coding), b"\xff plain"), b"\xff plain", "{coding}");
        }
    }

    #[test]
    fn encoded_body_is_not_encoded_again() {
        let once = encode(&headers("gzip"), b"x".to_vec());
        assert_eq!(encode(&headers("gzip"), once.clone()), once);
        assert_eq!(encode(&headers("br"), Vec::new()), b"");
    }
}
