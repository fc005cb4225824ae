//! Writes flows to files of bounded size, sends each to the storage, and reads it back before it counts.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use interflow_files::owner_only;
use interflow_objects::ObjectStorage;
use interflow_store::FlowRow;

use super::hour::Hour;
use super::{ArchiveError, Result, cursor};
use crate::parquet::ParquetWriter;
use crate::{BodySource, FlowExporter as _};

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenParts {
    pub files: u32,
    pub bytes: u64,
    pub flows: u64,
}

/// The files of one hour, from a number on.
pub(super) struct PartWriter<'a> {
    storage: &'a ObjectStorage,
    dir: &'a Path,
    /// The hour, the replica and the first number: the names.
    hour: Hour,
    replica: &'a str,
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
        (storage, dir): (&'a ObjectStorage, &'a Path),
        (hour, replica, first): (Hour, &'a str, u32),
        bodies: bool,
        max_bytes: u64,
    ) -> Self {
        let written = WrittenParts::default();
        Self { storage, dir, hour, replica, first, bodies, max_bytes, current: None, written }
    }

    pub fn add(&mut self, row: &FlowRow, contents: &dyn BodySource) -> Result<()> {
        let cannot = ArchiveError::io("cannot write the archive's file in", self.dir);
        let part = match &mut self.current {
            Some(part) => part,
            none => none.insert(OpenPart::create(self.dir, self.bodies).map_err(&cannot)?),
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
        part.writer.finish().map_err(ArchiveError::io("cannot write the archive's file in", self.dir))?;
        let name = self.hour.file(self.replica, self.first + self.written.files);
        send(self.storage, &name, &part.file.0, part.flows)?;
        self.written.files += 1;
        self.written.flows += part.flows;
        self.written.bytes += part.bytes.load(Ordering::Relaxed);
        Ok(())
    }
}

/// Writes a file to the storage, and reads it back: only what was read as it was written counts.
pub(super) fn send(storage: &ObjectStorage, name: &str, file: &Path, flows: u64) -> Result<()> {
    storage.wait(storage.put_file(name, file))?;
    let back = TempFile(file.with_extension("read-back"));
    fetch(storage, name, &back.0)?;
    let differs = |why: &str| ArchiveError::Differs { name: format!("{}/{name}", storage.url()), why: why.to_owned() };
    if digest(file)? != digest(&back.0)? {
        return Err(differs("its bytes are not those that were written"));
    }
    if rows(&back.0)? != flows {
        return Err(differs("it does not hold as many flows as were written"));
    }
    Ok(())
}

/// Reads an object into a file that only its owner may read.
pub(super) fn fetch(storage: &ObjectStorage, name: &str, to: &Path) -> Result<()> {
    create(to).map_err(ArchiveError::io("cannot create", to))?;
    storage.wait(storage.get_to_file(name, to))?;
    Ok(())
}

/// The number of rows of a Parquet file.
pub(super) fn rows(file: &Path) -> Result<u64> {
    let opened = File::open(file).map_err(ArchiveError::io("cannot read", file))?;
    let reader =
        SerializedFileReader::new(opened).map_err(|e| ArchiveError::io("cannot read", file)(io::Error::other(e)))?;
    Ok(reader.metadata().file_metadata().num_rows().unsigned_abs())
}

fn digest(file: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let read = File::open(file).and_then(|mut file| io::copy(&mut file, &mut hasher));
    read.map_err(ArchiveError::io("cannot read", file))?;
    Ok(hasher.finalize())
}

/// Recorded traffic: for its owner alone.
pub(super) fn create(path: &Path) -> io::Result<File> {
    owner_only(File::options().create(true).write(true).truncate(true)).open(path)
}

impl OpenPart {
    fn create(dir: &Path, bodies: bool) -> io::Result<Self> {
        // One at a time, under the lock of the archive.
        let file = TempFile(cursor::folder(dir).join("part.parquet"));
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

/// A file that is removed when it is no longer needed.
pub(super) struct TempFile(pub PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        // Left behind after a crash, it is overwritten by the next run.
        let _ = std::fs::remove_file(&self.0);
    }
}
