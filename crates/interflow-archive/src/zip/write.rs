//! Writes a zip in one pass: sizes follow the data, so that the output need not be seekable.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};

pub(crate) struct ZipWriter<W> {
    /// `None` when it is finished.
    archive: Option<ZipArchiveWriter<W>>,
    /// The time of every entry.
    modified: UtcDateTime,
}

impl<W: Write> ZipWriter<W> {
    pub fn new(out: W) -> Self {
        // 1980-01-01: flows contain their own times, and the output is deterministic.
        Self { archive: Some(ZipArchiveWriter::new(out)), modified: UtcDateTime::from_unix(315_532_800) }
    }

    /// Writes one compressed entry; `fill` writes its content.
    pub fn entry(&mut self, name: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let archive = self.archive.as_mut().ok_or_else(|| io::Error::other("the zip is finished"))?;
        let builder =
            archive.new_file(name).compression_method(CompressionMethod::DEFLATE).last_modified(self.modified);
        let (mut entry, config) = builder.start().map_err(io_error)?;
        // Fast compression: bodies are often compressed already.
        let mut content = config.wrap(DeflateEncoder::new(&mut entry, Compression::fast()));
        fill(&mut content)?;
        let (encoder, descriptor) = content.finish().map_err(io_error)?;
        encoder.finish()?;
        entry.finish(descriptor).map(drop).map_err(io_error)
    }

    /// Writes the directory, and flushes.
    pub fn finish(&mut self) -> io::Result<()> {
        self.archive.take().map_or(Ok(()), |archive| archive.finish().map(drop).map_err(io_error))
    }
}

fn io_error(error: rawzip::Error) -> io::Error {
    match error.into_kind() {
        rawzip::ErrorKind::IO(e) => e,
        other => io::Error::other(other.to_string()),
    }
}
