//! Decoded views of bodies: content codings taken off, within a cap that no small body can blow up.

use std::io::{self, Read};

use bytes::Bytes;
use interflow_flow::Headers;

/// A body without its content codings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The content, at most as much as the cap.
    pub bytes: Bytes,
    /// There is more than the cap.
    pub truncated: bool,
    /// The decoder stopped there: the body is damaged, cut off, or in another coding than it says.
    pub error: Option<String>,
}

/// Most codings that are taken off one after another; more is an attack, not a message.
const MOST_CODINGS: usize = 4;

/// Takes the codings named by `Content-Encoding` off (RFC 9110 8.4): gzip, deflate, br, zstd. A body in an unknown
/// coding is given back as it is, with an error that names the coding. At most `cap` bytes come out, and no more memory
/// than that is taken, however small the body.
pub fn decoded(headers: &Headers, body: Bytes, cap: usize) -> Decoded {
    let codings: Vec<String> = headers
        .tokens("content-encoding")
        .map(|t| String::from_utf8_lossy(t).to_ascii_lowercase())
        .filter(|t| t != "identity")
        .collect();
    if codings.len() > MOST_CODINGS {
        return plain(body, cap, Some(format!("{} content codings on one body", codings.len())));
    }
    if let Some(unknown) = codings.iter().find(|c| !is_known(c)) {
        return plain(body, cap, Some(format!("unknown content coding {unknown}")));
    }
    if codings.is_empty() || body.is_empty() {
        return plain(body, cap, None);
    }
    // The last coding named was put on last.
    let mut reader: Box<dyn Read> = Box::new(io::Cursor::new(body));
    for coding in codings.iter().rev() {
        reader = match layer(coding, reader) {
            Ok(reader) => reader,
            Err(e) => return Decoded { bytes: Bytes::new(), truncated: false, error: Some(format!("{coding}: {e}")) },
        };
    }
    read(reader, cap, &codings.join(", "))
}

fn is_known(coding: &str) -> bool {
    matches!(coding, "gzip" | "x-gzip" | "deflate" | "br" | "zstd")
}

/// Takes one known coding off, as the body is read.
pub(crate) fn layer<'a>(coding: &str, inner: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match coding {
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(inner)),
        "deflate" => deflate(inner)?,
        "br" => Box::new(brotli::Decompressor::new(inner, 4096)),
        _ => {
            let mut zstd = zstd::stream::read::Decoder::new(inner)?;
            // RFC 9659 2.1: a window of 8 MiB is the most that a content coding may ask for.
            zstd.window_log_max(23)?;
            Box::new(zstd)
        }
    })
}

/// `deflate` means zlib (RFC 9110 8.4.1.2), but raw deflate is sent as well: the first two bytes tell.
fn deflate<'a>(mut inner: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::with_capacity(2);
    inner.by_ref().take(2).read_to_end(&mut head)?;
    let is_zlib = matches!(head[..], [a, b] if a & 0x0f == 8 && (u16::from(a) << 8 | u16::from(b)) % 31 == 0);
    let whole = io::Cursor::new(head).chain(inner);
    Ok(if is_zlib {
        Box::new(flate2::read::ZlibDecoder::new(whole))
    } else {
        Box::new(flate2::read::DeflateDecoder::new(whole))
    })
}

fn read(reader: Box<dyn Read>, cap: usize, codings: &str) -> Decoded {
    let mut out = Vec::new();
    let error = reader.take(cap as u64 + 1).read_to_end(&mut out).err().map(|e| format!("{codings}: {e}"));
    let truncated = out.len() > cap;
    out.truncate(cap);
    Decoded { bytes: out.into(), truncated, error }
}

fn plain(mut body: Bytes, cap: usize, error: Option<String>) -> Decoded {
    let truncated = body.len() > cap;
    body.truncate(cap);
    Decoded { bytes: body, truncated, error }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn each_coding_comes_off() {
        let data = b"a body that says something ".repeat(100);
        for (name, made) in [
            ("gzip", "gzip"),
            ("x-gzip", "gzip"),
            ("deflate", "deflate"),
            ("deflate", "raw"),
            ("br", "br"),
            ("ZSTD", "zstd"),
        ] {
            let d = decoded(&headers(name), encode(made, &data).into(), 1 << 20);
            assert_eq!((&d.bytes[..], d.truncated, d.error), (&data[..], false, None), "{name} {made}");
        }
        let twice = encode("br", &encode("gzip", &data));
        assert_eq!(&decoded(&headers("gzip, br"), twice.into(), 1 << 20).bytes[..], &data[..]);
    }

    #[test]
    fn a_bomb_stops_at_the_cap() {
        let bomb = gzip(&vec![0; 50 << 20]);
        assert!(bomb.len() < 1 << 20);
        let d = decoded(&headers("gzip"), bomb.into(), 1 << 16);
        assert_eq!((d.bytes.len(), d.truncated, d.error), (1 << 16, true, None));
    }

    #[test]
    fn damage_keeps_what_was_decoded_and_says_so() {
        let mut half = gzip(&b"0123456789".repeat(10_000));
        half.truncate(half.len() / 2);
        let d = decoded(&headers("gzip"), half.into(), 1 << 20);
        assert!(!d.bytes.is_empty() && d.error.is_some());
        assert!(decoded(&headers("br"), Bytes::from_static(b"not brotli"), 100).error.is_some());
    }

    #[test]
    fn unknown_codings_leave_the_body_as_it_is() {
        let d = decoded(&headers("aes128gcm"), Bytes::from_static(b"xyz"), 100);
        assert_eq!(&d.bytes[..], b"xyz");
        assert_eq!(d.error.as_deref(), Some("unknown content coding aes128gcm"));
        assert!(decoded(&headers("gzip,gzip,gzip,gzip,gzip"), Bytes::from_static(b"x"), 9).error.is_some());
    }
}
