//! Assembles one body for storage: takes pieces and emits chunks as soon as their boundaries are final.

use bytes::{Bytes, BytesMut};
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use crate::error::Result;
use crate::model::Sha256Digest;
use crate::store::segments::chunk_refs::ChunkRef;
use crate::store::segments::chunker;
use crate::store::segments::chunks::{ChunkIndexing, ChunkWriter};
use crate::store::segments::segment::SegmentAppender;

/// Remainders up to this size are stored in the flow's row: a separate chunk would cost more.
pub(crate) const MAX_INLINE_TAIL: usize = 512;

pub(crate) struct ChunkSink<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) segments: &'a mut SegmentAppender,
    pub(crate) chunks: &'a mut ChunkWriter,
}

/// A body being recorded: the chunks that were cut off, and the bytes after them.
///
/// A boundary is final once a whole window from the chunk's start is present, since the chunker looks no further.
/// Chunks are cut when two windows are present, which bounds the tail.
#[derive(Default)]
pub(crate) struct BodyAssembly {
    pub(crate) refs: Vec<ChunkRef>,
    cut: u64,
    tail: Vec<Bytes>,
    tail_len: usize,
    /// Bytes of the tail saved in the table `tails`.
    saved: usize,
    /// A part was lost, so everything after it is rejected.
    broken: bool,
    /// A running hash over all recorded bytes, for a body of which possibly only a head is recorded.
    hash: Option<Box<Sha256>>,
}

impl BodyAssembly {
    pub(crate) const fn stored_bytes(&self) -> u64 {
        self.cut + self.tail_len as u64
    }

    pub(crate) fn hash_from_here(&mut self) {
        // A hash that began later would not cover the whole head.
        if self.hash.is_none() && self.stored_bytes() == 0 {
            self.hash = Some(Box::default());
        }
    }

    /// The hash of the recorded bytes, if hashing was started.
    pub(crate) fn digest(&self) -> Option<Sha256Digest> {
        // After a loss, the recorded bytes are not the beginning of the body any more.
        let hash = self.hash.as_ref().filter(|_| !self.broken)?;
        Some(Sha256Digest(hash.as_ref().clone().finalize().into()))
    }

    /// Appends pieces and cuts off chunks once enough data is present; returns whether it cut any. `seq` is the flow's
    /// row.
    pub(crate) fn push(
        &mut self,
        shelf: &mut ChunkSink<'_>,
        seq: i64,
        side: usize,
        pieces: Vec<Bytes>,
    ) -> Result<bool> {
        // Accepting more would leave a hole that no reader could see.
        if self.broken {
            return Ok(false);
        }
        if let Some(hash) = &mut self.hash {
            pieces.iter().for_each(|p| hash.update(p));
        }
        self.tail_len += pieces.iter().map(Bytes::len).sum::<usize>();
        if self.tail.is_empty() {
            self.tail = pieces;
        } else {
            self.tail.extend(pieces);
        }
        // Cutting only once two windows are present keeps the cost of joining pieces linear.
        if self.tail_len >= 2 * chunker::window(self.cut) {
            self.cut_chunks(shelf, false)?;
            // Its bytes are part of chunks now, or will be saved again.
            self.delete_saved_tail(shelf.db, seq, side)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Stores bytes that are complete as one chunk, in place of what was there.
    pub(crate) fn replace(&mut self, shelf: &mut ChunkSink<'_>, bytes: &[u8]) -> Result<()> {
        self.refs.clear();
        self.cut = 0;
        // Certificates of a host return for months.
        self.add(shelf, bytes, ChunkIndexing::Lasting)
    }

    /// Saves the bytes without a chunk to the database, so that a running stream can be read and survives a crash.
    pub(crate) fn save_tail(&mut self, db: &Connection, seq: i64, side: usize) -> Result<()> {
        // After a rollback, when it is unknown how much of the table survived.
        if self.saved > self.tail_len {
            self.delete_saved_tail(db, seq, side)?;
        }
        if self.saved == self.tail_len {
            return Ok(());
        }
        // Only what was added since the last save.
        let fresh = self.take_tail().slice(self.saved..);
        db.prepare_cached("INSERT INTO tails(seq, direction, at, bytes) VALUES(?,?,?,?)")?.execute(params![
            seq,
            side,
            self.saved as i64,
            &fresh[..]
        ])?;
        self.saved = self.tail_len;
        Ok(())
    }

    /// Ends the body: all bytes become chunks, or are returned to the caller if they are few.
    pub(crate) fn finish(&mut self, shelf: &mut ChunkSink<'_>, seq: i64, side: usize) -> Result<Bytes> {
        self.delete_saved_tail(shelf.db, seq, side)?;
        if self.tail_len == 0 {
            return Ok(Bytes::new());
        }
        // A short body needs no chunk: its bytes go into the flow's row.
        if self.refs.is_empty() && self.tail_len <= MAX_INLINE_TAIL {
            return Ok(self.take_tail());
        }
        // Short bodies are rarely repeated after hours, so a memory index suffices and their rows stay out of the
        // database's index.
        if self.refs.is_empty() && self.tail_len < chunker::MAX_UNCUT_LEN {
            let whole = self.take_tail();
            self.add(shelf, &whole, ChunkIndexing::Memory)?;
            self.set_tail(Bytes::new());
        } else {
            self.cut_chunks(shelf, true)?;
        }
        Ok(Bytes::new())
    }

    /// Reverts after a failed batch: chunks from `first` on do not exist, and the tail is discarded.
    pub(crate) fn rollback(&mut self, first: u64) {
        // Numbers of the failed batch will be given to other chunks.
        if let Some(at) = self.refs.iter().position(|r| r.id >= first) {
            self.refs.truncate(at);
        }
        self.cut = self.refs.iter().map(|r| r.len).sum();
        self.set_tail(Bytes::new());
        // Rows of `tails` may have survived: the next write deletes them.
        // Larger than any tail, so that the next write deletes first.
        self.saved = usize::MAX;
        self.broken = true;
    }

    /// Ends the body early because a part of it could not be recorded.
    pub(crate) const fn give_up(&mut self) {
        self.broken = true;
    }

    fn cut_chunks(&mut self, shelf: &mut ChunkSink<'_>, all: bool) -> Result<()> {
        let mut rest = self.take_tail();
        while !rest.is_empty() {
            let window = chunker::window(self.cut);
            // The boundary might change with more data.
            if !all && rest.len() < window {
                break;
            }
            // Depends only on the window, so equal content gets equal boundaries.
            let len = chunker::next_boundary(&rest[..rest.len().min(window)], self.cut);
            let chunk = rest.split_to(len);
            self.add(shelf, &chunk, ChunkIndexing::Lasting)?;
        }
        self.set_tail(rest);
        Ok(())
    }

    fn add(&mut self, shelf: &mut ChunkSink<'_>, chunk: &[u8], index: ChunkIndexing) -> Result<()> {
        self.refs.push(shelf.chunks.insert(shelf.db, shelf.segments, chunk, index)?);
        self.cut += chunk.len() as u64;
        Ok(())
    }

    fn take_tail(&mut self) -> Bytes {
        if self.tail.len() > 1 {
            // Joined once, and kept joined.
            let mut all = BytesMut::with_capacity(self.tail_len);
            self.tail.drain(..).for_each(|b| all.extend_from_slice(&b));
            self.tail.push(all.freeze());
        }
        self.tail.first().cloned().unwrap_or_default()
    }

    fn set_tail(&mut self, tail: Bytes) {
        self.tail_len = tail.len();
        self.tail.clear();
        if !tail.is_empty() {
            self.tail.push(tail);
        }
    }

    fn delete_saved_tail(&mut self, db: &Connection, seq: i64, side: usize) -> Result<()> {
        if self.saved > 0 {
            db.prepare_cached("DELETE FROM tails WHERE seq = ? AND direction = ?")?.execute(params![seq, side])?;
            self.saved = 0;
        }
        Ok(())
    }
}
