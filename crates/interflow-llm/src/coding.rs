//! Content codings undone as the bytes come (RFC 9110 8.4): gzip, deflate, br, zstd, one on top of another if need be.

use std::io::{self, Write};

use interflow_flow::Headers;

/// Most codings that are taken off one after another; more is an attack, not a message.
const MOST: usize = 4;

/// Takes the codings of one body off. No more than its bound comes out of it.
pub struct Decoder {
    /// The coding put on last is undone first.
    layers: Vec<Layer>,
    left: u64,
    begun: bool,
}

enum Layer {
    Gzip(flate2::write::MultiGzDecoder<Sink>),
    /// The first bytes tell whether it is zlib or, as many senders have it, raw deflate.
    Deflate(Vec<u8>),
    Zlib(flate2::write::ZlibDecoder<Sink>),
    Raw(flate2::write::DeflateDecoder<Sink>),
    Brotli(Box<brotli::DecompressorWriter<Sink>>),
    Zstd(zstd::stream::write::Decoder<'static, Sink>),
}

/// Takes what a decoder gives, as far as it may.
struct Sink {
    bytes: Vec<u8>,
    left: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the body grows beyond its bound when its content coding is undone")
}

/// Whether the body has a content coding.
pub fn is_coded(headers: &Headers) -> bool {
    headers.tokens("content-encoding").any(|t| !t.eq_ignore_ascii_case(b"identity"))
}

impl Decoder {
    /// A decoder for the body behind this head that gives at most `max` bytes; `None` when there is nothing to undo.
    ///
    /// # Errors
    /// A coding that is not known, or more than four.
    pub fn of(headers: &Headers, max: u64) -> io::Result<Option<Self>> {
        let mut layers = Vec::new();
        let sink = || Sink { bytes: Vec::new(), left: max };
        for token in headers.tokens("content-encoding") {
            layers.push(match token.to_ascii_lowercase().as_slice() {
                b"gzip" | b"x-gzip" => Layer::Gzip(flate2::write::MultiGzDecoder::new(sink())),
                b"deflate" => Layer::Deflate(Vec::new()),
                b"br" => Layer::Brotli(Box::new(brotli::DecompressorWriter::new(sink(), 4096))),
                b"zstd" => Layer::Zstd(zstd::stream::write::Decoder::new(sink())?),
                b"identity" => continue,
                _ => return Err(unknown(token)),
            });
        }
        if layers.len() > MOST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more than four content codings on one body"));
        }
        layers.reverse();
        Ok((!layers.is_empty()).then_some(Self { layers, left: max, begun: false }))
    }

    /// Takes the body's next bytes, and gives what comes out of them.
    ///
    /// # Errors
    /// Bytes that are none of the coding, or more than may come out.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.begun |= !bytes.is_empty();
        let mut bytes = bytes.to_vec();
        for layer in &mut self.layers {
            bytes = layer.push(&bytes, self.left)?;
        }
        Ok(bytes)
    }

    /// The end of the body: what is still to come out.
    ///
    /// # Errors
    /// A body that is cut short.
    pub fn finish(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if !self.begun {
            return Ok(bytes);
        }
        for layer in &mut self.layers {
            let mut out = layer.push(&bytes, self.left)?;
            out.extend(layer.finish()?);
            bytes = out;
        }
        Ok(bytes)
    }
}

fn unknown(token: &[u8]) -> io::Error {
    let name = String::from_utf8_lossy(token).into_owned();
    io::Error::new(io::ErrorKind::Unsupported, format!("the content coding {name} is not known"))
}

impl Layer {
    fn push(&mut self, bytes: &[u8], max: u64) -> io::Result<Vec<u8>> {
        if let Self::Deflate(first) = self {
            first.extend_from_slice(bytes);
            let [method, check, ..] = first.as_slice() else { return Ok(Vec::new()) };
            let zlib = method & 15 == 8 && (u16::from(*method) << 8 | u16::from(*check)) % 31 == 0;
            let (first, sink) = (std::mem::take(first), Sink { bytes: Vec::new(), left: max });
            *self = if zlib {
                Self::Zlib(flate2::write::ZlibDecoder::new(sink))
            } else {
                Self::Raw(flate2::write::DeflateDecoder::new(sink))
            };
            return self.push(&first, max);
        }
        let writer: &mut dyn Write = match self {
            Self::Gzip(w) => w,
            Self::Zlib(w) => w,
            Self::Raw(w) => w,
            Self::Brotli(w) => w,
            Self::Zstd(w) => w,
            Self::Deflate(_) => return Ok(Vec::new()),
        };
        writer.write_all(bytes)?;
        writer.flush()?;
        Ok(self.taken())
    }

    fn taken(&mut self) -> Vec<u8> {
        let sink = match self {
            Self::Gzip(w) => w.get_mut(),
            Self::Zlib(w) => w.get_mut(),
            Self::Raw(w) => w.get_mut(),
            Self::Brotli(w) => w.get_mut(),
            Self::Zstd(w) => w.get_mut(),
            Self::Deflate(_) => return Vec::new(),
        };
        std::mem::take(&mut sink.bytes)
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(w) => w.try_finish()?,
            Self::Zlib(w) => w.try_finish()?,
            Self::Raw(w) => w.try_finish()?,
            Self::Brotli(w) => w.close()?,
            Self::Zstd(w) => w.flush()?,
            Self::Deflate(first) if first.is_empty() => {}
            Self::Deflate(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(self.taken())
    }
}

/// Takes out of a response's headers what no longer holds once its body was decoded and edited.
pub fn unlike(headers: &mut Headers) {
    for name in ["content-encoding", "content-length", "etag", "content-md5", "digest", "content-digest"] {
        headers.remove(name);
    }
}

/// A whole body without its codings.
///
/// # Errors
/// As [`Decoder`].
pub fn decode(headers: &Headers, body: &[u8], max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(mut decoder) = Decoder::of(headers, max)? else { return Ok(None) };
    let mut out = decoder.push(body)?;
    out.extend(decoder.finish()?);
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(coding: &str) -> Headers {
        [("Content-Encoding", coding)].into_iter().collect()
    }

    fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
        match coding {
            "gzip" => {
                let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                w.write_all(body).unwrap();
                w.finish().unwrap()
            }
            "deflate" => {
                let mut w = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                w.write_all(body).unwrap();
                w.finish().unwrap()
            }
            "raw" => {
                let mut w = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                w.write_all(body).unwrap();
                w.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::BrotliCompress(&mut &*body, &mut out, &brotli::enc::BrotliEncoderParams::default()).unwrap();
                out
            }
            _ => zstd::stream::encode_all(body, 3).unwrap(),
        }
    }

    #[test]
    fn every_coding_is_undone_however_it_comes() {
        let body = b"a body that repeats itself, a body that repeats itself".repeat(200);
        for (name, coding) in
            [("gzip", "gzip"), ("deflate", "deflate"), ("raw", "deflate"), ("br", "br"), ("zstd", "zstd")]
        {
            let raw = coded(name, &body);
            for step in [1, 7, raw.len()] {
                let mut decoder = Decoder::of(&headers(coding), 1 << 20).unwrap().unwrap();
                let mut out = Vec::new();
                for piece in raw.chunks(step) {
                    out.extend(decoder.push(piece).unwrap());
                }
                out.extend(decoder.finish().unwrap());
                assert!(out == body, "{name} by {step}");
            }
        }
        let twice = coded("br", &coded("gzip", &body));
        assert_eq!(decode(&headers("gzip, br"), &twice, 1 << 20).unwrap().unwrap(), body);
        assert!(decode(&headers("identity"), b"x", 9).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_undone_is_an_error() {
        assert!(decode(&headers("compress"), b"x", 9).is_err());
        assert!(decode(&headers("gzip, gzip, gzip, gzip, gzip"), b"x", 9).is_err());
        for coding in ["gzip", "br", "zstd"] {
            assert!(decode(&headers(coding), b"{\"plain\": \"json\"}", 99).is_err(), "{coding}");
        }
        for coding in ["gzip", "br"] {
            let raw = coded(coding, &b"body ".repeat(99));
            assert!(decode(&headers(coding), &raw[..raw.len() - 9], 999).is_err(), "{coding}");
        }
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        for coding in ["gzip", "br", "zstd"] {
            let raw = coded(coding, &vec![0; 10 << 20]);
            assert!(decode(&headers(coding), &raw, 1 << 20).is_err(), "{coding}");
        }
    }
}
