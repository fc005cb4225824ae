//! The place of an archive, as one run reads and writes it: no longer than the right to do so lasts.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;

use interflow_archive::parquet::rows;
use interflow_files::owner_only;

use super::cursor::folder;
use super::record::ArchivedRecord;
use super::{ArchiveError, Result};

use crate::objects::{ObjectEntry, ObjectStorage};

/// A storage with a folder of this machine for files on their way.
#[derive(Clone, Copy)]
pub(super) struct ArchivePlace<'a> {
    pub storage: &'a ObjectStorage,
    pub dir: &'a Path,
    pub record: ArchivedRecord<'a>,
}

impl ArchivePlace<'_> {
    /// Writes a file to the storage, and reads it back: only what was read as it was written counts.
    pub fn send(&self, name: &str, file: &Path, flows: u64) -> Result<()> {
        self.run(self.storage.put_file(name, file))?;
        let back = TempFile(file.with_extension("read-back"));
        self.fetch(name, &back.0)?;
        let differs = |why: &str| {
            let name = format!("{}/{name}", self.storage.url());
            ArchiveError::Differs { name, why: why.to_owned() }
        };
        if digest(file)? != digest(&back.0)? {
            return Err(differs("its bytes are not those that were written"));
        }
        let read = File::open(&back.0).and_then(|file| rows(&file));
        if read.map_err(ArchiveError::io("cannot read", &back.0))? != flows {
            return Err(differs("it does not hold as many flows as were written"));
        }
        Ok(())
    }

    /// Reads an object into a file that only its owner may read.
    pub fn fetch(&self, name: &str, to: &Path) -> Result<()> {
        create(to).map_err(ArchiveError::io("cannot create", to))?;
        self.run(self.storage.get_to_file(name, to)).map(drop)
    }

    pub fn list(&self, folder: &str) -> Result<Vec<ObjectEntry>> {
        self.run(self.storage.list(folder))
    }

    pub fn delete_all(&self, names: Vec<String>) -> Result<()> {
        if names.is_empty() { Ok(()) } else { self.run(self.storage.delete_all(names)) }
    }

    /// The path of a file on its way. One run at a time uses them, under the lock of the archive.
    pub fn file(&self, name: &str) -> PathBuf {
        folder(self.dir).join(name)
    }

    fn run<T>(&self, operation: impl Future<Output = crate::objects::Result<T>>) -> Result<T> {
        let mut ended = self.record.ended();
        self.storage.wait(async {
            let mut operation = pin!(operation);
            poll_fn(|cx| {
                // First: nothing is begun that another process may do by now.
                if ended.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(ArchiveError::TakenOver));
                }
                operation.as_mut().poll(cx).map_err(ArchiveError::from)
            })
            .await
        })
    }
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

/// A file that is removed when it is no longer needed.
pub(super) struct TempFile(pub PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        // Left behind after a crash, it is overwritten by the next run.
        let _ = std::fs::remove_file(&self.0);
    }
}
