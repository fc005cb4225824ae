//! Writes flows to files of bounded size, and sends each to the storage.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use super::cursor::ArchivedFile;
use super::hour::{FileWriter, Hour};
use super::place::{ArchivePlace, TempFile, create};
use super::{ArchiveError, Result};
use interflow_archive::parquet::ParquetWriter;
use interflow_archive::{ArchiveFormat, BodySource, FlowExporter as _};
use interflow_store::{FlowParts, FlowRecord};

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
    writer: ParquetWriter<BufWriter<File>>,
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

    /// What is written of a flow.
    pub const fn parts(&self) -> FlowParts {
        ArchiveFormat::Parquet.parts(self.bodies)
    }

    pub fn add(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> Result<()> {
        let cannot = ArchiveError::io("cannot write the archive's file in", self.place.dir);
        let part = match &mut self.current {
            Some(part) => part,
            none => none.insert(OpenPart::create(self.place.file("part.parquet"), self.bodies).map_err(&cannot)?),
        };
        part.writer.flow(row, contents).map_err(cannot)?;
        part.flows += 1;
        if part.writer.bytes_written() >= self.max_bytes { self.close_part() } else { Ok(()) }
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
        self.written.files.push(ArchivedFile { name, bytes: part.writer.bytes_written() });
        self.written.flows += part.flows;
        Ok(())
    }
}

impl OpenPart {
    fn create(path: PathBuf, bodies: bool) -> io::Result<Self> {
        let file = TempFile(path);
        let out = BufWriter::new(create(&file.0)?);
        Ok(Self { writer: ParquetWriter::new(out, bodies)?, flows: 0, file })
    }
}
