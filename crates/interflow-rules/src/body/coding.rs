//! Content codings undone while a body streams (RFC 9110 8.4.1, RFC 7932, RFC 8878).

use std::io::{self, Write};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_flow::{Body, BodyStream, Error, Frame, Headers, Kind, Result};

/// The most that one piece of a body may grow to at once: what grows more is a bomb.
const LARGEST_GROWTH: usize = 64 << 20;

/// A coding.
enum Decoder {
    Gzip(Box<flate2::write::MultiGzDecoder<Sink>>),
    Zlib(Box<flate2::write::ZlibDecoder<Sink>>),
    Raw(Box<flate2::write::DeflateDecoder<Sink>>),
    /// `deflate` before its first byte tells which of the two it is.
    Deflate,
    Brotli(Box<brotli::DecompressorWriter<Sink>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Sink>>),
}

/// Takes decoded bytes, up to a bound.
#[derive(Default)]
struct Sink(Vec<u8>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST_GROWTH {
            return Err(io::Error::other("it grows beyond 64 MiB at once when its content coding is undone"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decoder {
    fn new(name: &[u8]) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Self::Gzip(Box::new(flate2::write::MultiGzDecoder::new(Sink::default()))),
            b"deflate" => Self::Deflate,
            b"br" => Self::Brotli(Box::new(brotli::DecompressorWriter::new(Sink::default(), 8 << 10))),
            b"zstd" => Self::Zstd(Box::new(zstd::stream::write::Decoder::new(Sink::default()).ok()?)),
            _ => return None,
        })
    }

    fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        if let (Self::Deflate, Some(first)) = (&*self, bytes.first()) {
            // RFC 1950: the low nibble of a zlib stream is 8. Many senders leave its frame away.
            *self = if first & 0x0f == 8 {
                Self::Zlib(Box::new(flate2::write::ZlibDecoder::new(Sink::default())))
            } else {
                Self::Raw(Box::new(flate2::write::DeflateDecoder::new(Sink::default())))
            };
        }
        let out = match self {
            Self::Deflate => return Ok(Vec::new()),
            Self::Gzip(d) => {
                d.write_all(bytes)?;
                d.flush()?;
                d.get_mut()
            }
            Self::Zlib(d) => {
                d.write_all(bytes)?;
                d.flush()?;
                d.get_mut()
            }
            Self::Raw(d) => {
                d.write_all(bytes)?;
                d.flush()?;
                d.get_mut()
            }
            Self::Brotli(d) => {
                d.write_all(bytes)?;
                d.flush()?;
                d.get_mut()
            }
            Self::Zstd(d) => {
                d.write_all(bytes)?;
                d.flush()?;
                d.get_mut()
            }
        };
        Ok(std::mem::take(&mut out.0))
    }
}

/// Whether a head names a content coding, and whether each of them is known.
pub(crate) fn coded(headers: &Headers) -> Option<bool> {
    let mut any = false;
    for token in headers.tokens("content-encoding") {
        if !token.eq_ignore_ascii_case(b"identity") {
            any = true;
            Decoder::new(token)?;
        }
    }
    Some(any)
}

fn decoders(headers: &Headers) -> Vec<Decoder> {
    let mut all: Vec<Decoder> = headers.tokens("content-encoding").filter_map(Decoder::new).collect();
    all.reverse();
    all
}

fn broken(e: io::Error) -> Error {
    Error::new(Kind::BadResponse, "the body is not in the content coding that its head names").because(e)
}

/// The whole body without its codings.
///
/// # Errors
/// Bytes that are not of their coding, or that grow beyond all bounds.
pub(crate) fn decode(headers: &Headers, body: &Bytes) -> Result<Bytes> {
    let mut plain = body.clone();
    for mut decoder in decoders(headers) {
        let mut out = Vec::new();
        // In pieces, so that the bound on growth holds for each of them.
        for piece in plain.chunks(64 << 10) {
            out.extend(decoder.feed(piece).map_err(broken)?);
            if out.len() > LARGEST_GROWTH {
                return Err(broken(io::Error::other("it grows beyond 64 MiB")));
            }
        }
        plain = out.into();
    }
    Ok(plain)
}

/// The body without its codings, decoded as it passes.
pub(crate) fn decoding(headers: &Headers, body: Body) -> Body {
    let decoders = decoders(headers);
    if decoders.is_empty() { body } else { Body::stream(Decoding { body, decoders }) }
}

struct Decoding {
    body: Body,
    decoders: Vec<Decoder>,
}

impl BodyStream for Decoding {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            let frame = ready!(self.body.poll_frame(cx));
            let Some(Ok(Frame::Data(data))) = frame else { return Poll::Ready(frame) };
            let mut plain = data;
            for decoder in &mut self.decoders {
                match decoder.feed(&plain) {
                    Ok(out) => plain = out.into(),
                    Err(e) => return Poll::Ready(Some(Err(broken(e)))),
                }
            }
            if !plain.is_empty() {
                return Poll::Ready(Some(Ok(Frame::Data(plain))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
        match coding {
            "gzip" => {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                e.write_all(body).unwrap();
                e.finish().unwrap()
            }
            "deflate" => {
                let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                e.write_all(body).unwrap();
                e.finish().unwrap()
            }
            "raw" => {
                let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                e.write_all(body).unwrap();
                e.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::BrotliCompress(&mut &*body, &mut out, &Default::default()).unwrap();
                out
            }
            "zstd" => zstd::stream::encode_all(body, 3).unwrap(),
            _ => body.to_vec(),
        }
    }

    #[test]
    fn every_coding_is_undone_in_pieces_of_any_size() {
        let body = b"a body that repeats itself, a body that repeats itself; ".repeat(40);
        for (coding, by) in [
            ("gzip", "gzip"),
            ("X-GZip", "gzip"),
            ("deflate", "deflate"),
            ("deflate", "raw"),
            ("br", "br"),
            ("zstd", "zstd"),
            ("identity", ""),
        ] {
            let headers: Headers = [("Content-Encoding", coding)].into_iter().collect();
            assert_eq!(coded(&headers), Some(coding != "identity"));
            let wire = encode(by, &body);
            assert_eq!(decode(&headers, &wire.clone().into()).unwrap(), body, "{coding} by {by}");
            for size in [1, 7, 1000] {
                let mut all = decoders(&headers);
                let mut plain = Vec::new();
                for piece in wire.chunks(size) {
                    let mut piece = piece.to_vec();
                    for d in &mut all {
                        piece = d.feed(&piece).unwrap();
                    }
                    plain.extend(piece);
                }
                assert_eq!(plain, body, "{coding} by {by} in {size}");
            }
        }
    }

    #[test]
    fn codings_come_off_from_the_last_to_the_first() {
        let headers: Headers = [("Content-Encoding", "gzip, br")].into_iter().collect();
        let wire = encode("br", &encode("gzip", b"hello"));
        assert_eq!(&decode(&headers, &wire.into()).unwrap()[..], b"hello");
    }

    #[test]
    fn unknown_codings_and_broken_bytes_are_errors() {
        let unknown: Headers = [("Content-Encoding", "aws-chunked")].into_iter().collect();
        assert_eq!(coded(&unknown), None);
        let gzip: Headers = [("Content-Encoding", "gzip")].into_iter().collect();
        assert!(decode(&gzip, &Bytes::from_static(b"\xff\xff plain text")).is_err());
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = encode("gzip", &vec![0; LARGEST_GROWTH + 1]);
        let gzip: Headers = [("Content-Encoding", "gzip")].into_iter().collect();
        assert!(decode(&gzip, &bomb.into()).is_err());
    }
}
