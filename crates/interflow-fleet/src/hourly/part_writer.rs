//! Writes flows to files of bounded size, and sends each to the storage.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cursor::ArchivedFile;
use super::hour::{FileWriter, Hour};
use super::place::{ArchivePlace, TempFile, create};
use super::{ArchiveError, Result};
use interflow_archive::parquet::ParquetWriter;
use interflow_archive::{BodySource, FlowExporter as _};
use interflow_store::FlowRecord;

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenParts {
    pub files: Vec<ArchivedFile>,
    pub flows: u64,
}

/// The files of one hour, from a number on.
pub(super) struct PartWriter<'a> {
    place: ArchivePlace<'a>,
    /// The hour, the writer and the first number: the names.
    hour: Hour,
    writer: FileWriter<'a>,
    first: u32,
    bodies: bool,
    max_bytes: u64,
    current: Option<OpenPart>,
    written: WrittenParts,
}

struct OpenPart {
    writer: ParquetWriter<CountedFile>,
    bytes: Arc<AtomicU64>,
    flows: u64,
    file: TempFile,
}

impl<'a> PartWriter<'a> {
    pub fn new(
        place: ArchivePlace<'a>,
        (hour, writer, first): (Hour, FileWriter<'a>, u32),
        bodies: bool,
        max_bytes: u64,
    ) -> Self {
        let written = WrittenParts::default();
        Self { place, hour, writer, first, bodies, max_bytes, current: None, written }
    }

    /// Whether the bytes of bodies are written.
    pub const fn has_bodies(&self) -> bool {
        self.bodies
    }

    pub fn add(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> Result<()> {
        let cannot = ArchiveError::io("cannot write the archive's file in", self.place.dir);
        let part = match &mut self.current {
            Some(part) => part,
            none => none.insert(OpenPart::create(self.place.file("part.parquet"), self.bodies).map_err(&cannot)?),
        };
        part.writer.flow(row, contents).map_err(cannot)?;
        part.flows += 1;
        if part.bytes.load(Ordering::Relaxed) >= self.max_bytes { self.close_part() } else { Ok(()) }
    }

    pub fn finish(mut self) -> Result<WrittenParts> {
        self.close_part()?;
        Ok(self.written)
    }

    fn close_part(&mut self) -> Result<()> {
        let Some(mut part) = self.current.take() else { return Ok(()) };
        part.writer.finish().map_err(ArchiveError::io("cannot write the archive's file in", self.place.dir))?;
        let number = self.first.saturating_add(u32::try_from(self.written.files.len()).unwrap_or(u32::MAX));
        let name = self.hour.file(&self.writer, number);
        self.place.send(&name, &part.file.0, part.flows)?;
        self.written.files.push(ArchivedFile { name, bytes: part.bytes.load(Ordering::Relaxed) });
        self.written.flows += part.flows;
        Ok(())
    }
}

impl OpenPart {
    fn create(path: PathBuf, bodies: bool) -> io::Result<Self> {
        let file = TempFile(path);
        let bytes = Arc::new(AtomicU64::new(0));
        let out = CountedFile { file: BufWriter::new(create(&file.0)?), bytes: Arc::clone(&bytes) };
        Ok(Self { writer: ParquetWriter::new(out, bodies)?, bytes, flows: 0, file })
    }
}

struct CountedFile {
    file: BufWriter<File>,
    bytes: Arc<AtomicU64>,
}

impl Write for CountedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
