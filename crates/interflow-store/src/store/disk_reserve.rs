//! A file that holds a little disk space back, so that flows can be deleted when the disk is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes held back. Enough for the pages and the log that deleting a few flows at a time takes, and for SQLite's index of its
/// log, which it makes whenever a store is opened.
pub(crate) const RESERVE_BYTES: usize = 4 << 20;

/// The reserve of one store.
#[derive(Clone, Debug)]
pub(crate) struct DiskReserve(PathBuf);

impl DiskReserve {
    pub(crate) fn for_store(dir: &Path) -> Self {
        Self(dir.join("reserve"))
    }

    /// Makes the file when it is not there; an error says that the disk has no room for it.
    pub(crate) fn ensure(&self) -> std::io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|m| m.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        let made = fs::File::create(&self.0).and_then(|mut file| {
            // Bytes that a file system cannot store as a hole, nor compress away.
            let mut noise = vec![0; 64 << 10];
            let mut filler = blake3::Hasher::new().update(b"reserve").finalize_xof();
            for _ in 0..RESERVE_BYTES / noise.len() {
                filler.fill(&mut noise);
                file.write_all(&noise)?;
            }
            file.sync_data()
        });
        if made.is_err() {
            self.release();
        }
        made
    }

    /// Gives the space back; false when there was none.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
