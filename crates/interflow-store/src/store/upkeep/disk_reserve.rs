//! A file that reserves some disk space, so that flows can be deleted when the disk is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Reserved bytes: enough for the pages and the log needed to delete a few flows at a time, and for SQLite's WAL index,
/// which is created whenever a store is opened.
pub(crate) const RESERVE_BYTES: usize = 4 << 20;

#[derive(Clone, Debug)]
pub(crate) struct DiskReserve(PathBuf);

impl DiskReserve {
    pub(crate) fn for_store(dir: &Path) -> Self {
        Self(dir.join("reserve"))
    }

    /// Creates the file if it is missing; fails if the disk has too little space.
    pub(crate) fn ensure(&self) -> std::io::Result<()> {
        // Already there, from this start or an earlier one.
        if fs::metadata(&self.0).is_ok_and(|m| m.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        let made = fs::File::create(&self.0).and_then(|mut file| {
            // Random bytes, which a file system can neither store as a hole nor compress.
            let mut noise = vec![0; 64 << 10];
            let mut filler = blake3::Hasher::new().update(b"reserve").finalize_xof();
            for _ in 0..RESERVE_BYTES / noise.len() {
                filler.fill(&mut noise);
                file.write_all(&noise)?;
            }
            file.sync_data()
        });
        // A part of the reserve would not suffice, but take space from recording.
        if made.is_err() {
            self.release();
        }
        made
    }

    /// Releases the space; returns false if there was none.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
