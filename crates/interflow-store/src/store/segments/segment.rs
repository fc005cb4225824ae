//! Segment files: append-only, each record with its lengths, a CRC-32 and the BLAKE3 hash of its content.
//!
//! A file starts with [`FILE_HEAD`]. A record is a header of [`RECORD_HEAD`] bytes and the stored bytes: mark (1),
//! flags (1), stored length (4), raw length (4), CRC-32 over everything else (4), hash of the raw bytes (32); numbers
//! are little-endian.
//!
//! Records are found only through the `chunks` table; a file is never scanned for them. Bytes after the last record
//! that a committed row names belong to no one, and are truncated when the file is opened for appending.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use interflow_files::{owner_only, read_exact_at};

use crate::error::{Result, StoreError};
use crate::store::segments::compress::decompress;

const FILE_HEAD: &[u8; 16] = b"interflow seg 1\n";
pub(crate) const RECORD_HEAD: usize = 46;
const MARK: u8 = 0xD6;
const ZSTD: u8 = 1;
/// Maximum size of a record, raw or stored: a damaged length must not cause a huge allocation.
pub(crate) const MAX_RECORD: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// Bytes in the file, including the header.
    pub(crate) len: u64,
}

pub(crate) fn path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment:08}.seg"))
}

/// Numbers and sizes of the segments in a folder, ascending.
pub(crate) fn list(dir: &Path) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::io("could not list", dir))? {
        let entry = entry.map_err(StoreError::io("could not list", dir))?;
        let name = entry.file_name();
        // Other files in the folder are not segments and are ignored.
        let number = name.to_str().and_then(|n| n.strip_suffix(".seg")).and_then(|n| n.parse().ok());
        if let (Some(number), Ok(meta)) = (number, entry.metadata()) {
            found.push((number, meta.len()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Appends to the newest segment; appended data becomes part of the store with [`commit`](Self::commit).
pub(crate) struct SegmentAppender {
    dir: PathBuf,
    file: File,
    segment: u64,
    /// The length of the file up to the last committed record. `written` bytes of the open batch follow it in the file,
    /// and `buffer` after those.
    committed: u64,
    buffer: Vec<u8>,
    written: u64,
    synced: bool,
    /// Set by tests to simulate a full disk.
    pub(crate) fault: Arc<AtomicBool>,
}

impl SegmentAppender {
    /// Opens segment `segment` for appending at `end`, truncating anything after it. Returns the number of bytes
    /// truncated.
    pub(crate) fn open(dir: &Path, segment: u64, end: u64) -> Result<(Self, u64)> {
        let path = path(dir, segment);
        let mut file = owner_only(OpenOptions::new().create(true).read(true).append(true))
            .open(&path)
            .map_err(StoreError::io("could not open", &path))?;
        let len = file.metadata().map_err(StoreError::io("could not read", &path))?.len();
        // A segment without a named record still keeps its head.
        let end = end.max(FILE_HEAD.len() as u64);
        let cut = if len > end && len > FILE_HEAD.len() as u64 {
            file.set_len(end).map_err(StoreError::io("could not cut", &path))?;
            len - end
        } else {
            0
        };
        // A new file, or one whose creation was cut short.
        if len < FILE_HEAD.len() as u64 {
            file.set_len(0)
                .and_then(|()| file.write_all(FILE_HEAD))
                .map_err(StoreError::io("could not write", &path))?;
        }
        // Asked from the file again: it is shorter than `end` if committed bytes were lost, and appends go to its
        // real end.
        let committed = file.metadata().map_err(StoreError::io("could not read", &path))?.len();
        let new = Self {
            dir: dir.to_owned(),
            file,
            segment,
            committed,
            buffer: Vec::new(),
            written: 0,
            synced: false,
            fault: Arc::default(),
        };
        Ok((new, cut))
    }

    pub(crate) const fn segment(&self) -> u64 {
        self.segment
    }

    /// Length of the file including committed data.
    pub(crate) const fn len(&self) -> u64 {
        self.committed
    }

    pub(crate) const fn has_records(&self) -> bool {
        self.committed > FILE_HEAD.len() as u64
    }

    /// Appends a record. `stored` is the compressed form, if there is one.
    pub(crate) fn append(&mut self, raw: &[u8], stored: Option<&[u8]>, hash: &blake3::Hash) -> Result<RecordLocation> {
        let body = stored.unwrap_or(raw);
        debug_assert!(raw.len() <= MAX_RECORD && body.len() <= MAX_RECORD);
        let offset = self.committed + self.written + self.buffer.len() as u64;
        let mut head = [0u8; RECORD_HEAD];
        head[0] = MARK;
        head[1] = if stored.is_some() { ZSTD } else { 0 };
        head[2..6].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[6..10].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[14..].copy_from_slice(hash.as_bytes());
        // The field of the checksum is still zero and is left out of it.
        let crc = checksum(&head, body);
        head[10..14].copy_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(body);
        // Large batches are written in pieces; before the commit nothing refers to them, so a failure in between is
        // harmless.
        if self.buffer.len() >= 1 << 20 {
            self.flush()?;
        }
        Ok(RecordLocation { segment: self.segment, offset, len: (RECORD_HEAD + body.len()) as u64 })
    }

    /// Writes everything to the file system; must happen before the rows that refer to it are committed.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.fault.load(Ordering::Relaxed) {
            return Err(self.error("could not write")(std::io::ErrorKind::StorageFull.into()));
        }
        self.file.write_all(&self.buffer).map_err(self.error("could not write"))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        // One large record must not keep its memory for ever.
        self.buffer.shrink_to(4 << 20);
        Ok(())
    }

    /// Makes the batch part of the store.
    pub(crate) fn commit(&mut self) {
        // Set only if bytes were written, so that `sync` has nothing to do on an idle store.
        if self.written > 0 {
            self.synced = false;
        }
        self.committed += self.written;
        self.written = 0;
    }

    /// Discards the batch: its bytes are truncated.
    pub(crate) fn rollback(&mut self) {
        self.buffer.clear();
        self.written = 0;
        // If even truncation fails, the bytes after `committed` are garbage that the next open removes. Appends go to
        // the end of the file, so `committed` must match its real length.
        if self.file.set_len(self.committed).is_err()
            && let Ok(meta) = self.file.metadata()
        {
            self.committed = meta.len();
        }
    }

    /// Tests whether the disk accepts writes, leaving nothing behind.
    pub(crate) fn probe(&mut self) -> Result<()> {
        self.buffer.resize(64 << 10, 0);
        let flushed = self.flush();
        self.rollback();
        flushed
    }

    /// Waits until all data is durable (`fdatasync`). Does nothing if nothing was written since the last call.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if !self.synced {
            self.file.sync_data().map_err(self.error("could not sync"))?;
            self.synced = true;
        }
        Ok(())
    }

    /// Closes this segment and starts the next one.
    pub(crate) fn roll(&mut self) -> Result<()> {
        // A closed segment is never synced again, so it has to be durable now.
        self.sync()?;
        let (mut next, _) = Self::open(&self.dir, self.segment + 1, 0)?;
        // The switch for tests stays valid across segments.
        next.fault = self.fault.clone();
        *self = next;
        Ok(())
    }

    fn error(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
        StoreError::io(what, path(&self.dir, self.segment))
    }
}

/// Reads and verifies the record at `place`; returns its raw bytes and their hash.
pub(crate) fn read(file: &File, place: RecordLocation) -> Result<(Bytes, blake3::Hash)> {
    let damaged = |what: &str| StoreError::damaged(format!("segment {} at {}", place.segment, place.offset), what);
    let len = usize::try_from(place.len).unwrap_or(usize::MAX);
    // The length is from the database. It is checked before allocating, because the database may be damaged too.
    if !(RECORD_HEAD..=MAX_RECORD + RECORD_HEAD).contains(&len) {
        return Err(damaged("its length is out of range"));
    }
    let mut bytes = vec![0u8; len];
    read_exact_at(file, &mut bytes, place.offset).map_err(|e| damaged(&e.to_string()))?;
    let (head, body) = bytes.split_at(RECORD_HEAD);
    let Ok(head) = <&[u8; RECORD_HEAD]>::try_from(head) else { return Err(damaged("it is short")) };
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[0] != MARK || number(2) as usize != body.len() {
        return Err(damaged("there is no record of this length"));
    }
    if checksum(head, body) != number(10) {
        return Err(damaged("its checksum does not hold"));
    }
    let raw_len = number(6) as usize;
    let stored_hash: [u8; 32] = std::array::from_fn(|i| head[14 + i]);
    let raw: Bytes = match head[1] {
        0 => Bytes::from(bytes).slice(RECORD_HEAD..),
        ZSTD if raw_len <= MAX_RECORD => decompress(body, raw_len).map_err(|e| damaged(&e.to_string()))?.into(),
        _ => return Err(damaged("its flags are unknown")),
    };
    let hash = blake3::hash(&raw);
    // The CRC finds damage of the disk, the hash also an error of our own, such as a wrong location.
    if raw.len() != raw_len || hash.as_bytes() != &stored_hash {
        return Err(damaged("its content is not what its hash says"));
    }
    Ok((raw, hash))
}

/// CRC-32 of the header without its checksum field, and of the stored bytes.
fn checksum(head: &[u8; RECORD_HEAD], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..10]);
    crc.update(&head[14..]);
    crc.update(body);
    crc.finalize()
}
