//! Output compressed according to the file extension: `.gz` gzip, `.zhar` zlib.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

pub enum CompressedOutput<W: Write> {
    Plain(W),
    /// `.gz` (RFC 1952).
    Gzip(GzEncoder<W>),
    /// `.zhar` (RFC 1950).
    Zlib(ZlibEncoder<W>),
}

impl<W: Write> CompressedOutput<W> {
    /// Selects the compression by file extension.
    pub fn new(path: &Path, out: W) -> Self {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("gz") => Self::Gzip(GzEncoder::new(out, Compression::default())),
            Some("zhar") => Self::Zlib(ZlibEncoder::new(out, Compression::default())),
            _ => Self::Plain(out),
        }
    }

    /// Flushes the compressor, writes the trailer, and gives the output back.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(out) => out.finish(),
            Self::Zlib(out) => out.finish(),
        }
    }
}

impl<W: Write> Write for CompressedOutput<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(buf),
            Self::Gzip(out) => out.write(buf),
            Self::Zlib(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(out) => out.flush(),
            Self::Zlib(out) => out.flush(),
        }
    }
}
