//! Content-addressed chunk storage: equal bytes are stored once and referenced by chunk number.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Result;
use crate::store::segments::chunk_refs::ChunkRef;
use crate::store::segments::compress::Compressor;
use crate::store::segments::segment::{RecordLocation, SegmentAppender};

/// Chunk hashes remembered in memory, per generation; there are two generations.
const MAX_RECENT_HASHES: usize = 32 << 10;

/// How long a chunk can be found for deduplication.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkIndexing {
    /// While its hash is remembered in memory.
    Memory,
    /// Permanently, by a row in an index; worthwhile for chunks of long bodies.
    Lasting,
}

pub(crate) struct ChunkWriter {
    pub(crate) next: u64,
    /// The value of `next` when the batch began.
    pub(crate) committed: u64,
    recent: RecentHashes,
    squeezer: Compressor,
    /// Chunks found again since garbage collection began, if it is running.
    pub(crate) revived: Option<Vec<u64>>,
}

impl ChunkWriter {
    pub(crate) fn open(db: &Connection, compress: bool) -> Result<Self> {
        // Numbers are never reused within a process; rows of deleted chunks may leave gaps.
        let last: Option<u64> = db.query_row("SELECT max(id) FROM chunks", [], |r| r.get(0))?;
        let next = last.unwrap_or(0) + 1;
        Ok(Self {
            next,
            committed: next,
            recent: RecentHashes::default(),
            squeezer: Compressor::new(compress),
            revived: None,
        })
    }

    /// Stores bytes, or returns the existing chunk with the same content.
    pub(crate) fn insert(
        &mut self,
        db: &Connection,
        segments: &mut SegmentAppender,
        raw: &[u8],
        index: ChunkIndexing,
    ) -> Result<ChunkRef> {
        let hash = blake3::hash(raw);
        // 128 bits of BLAKE3: an accidental collision is out of the question, and rows are shorter.
        let (key, _) = hash.as_bytes().split_first_chunk::<16>().expect("a hash has 32 bytes");
        let len = raw.len() as u64;
        let recent = match self.recent.get(key) {
            // Short bodies are looked up in memory only, see `BodyAssembly::finish`.
            None if index == ChunkIndexing::Lasting => {
                db.prepare_cached("SELECT id FROM chunks WHERE hash = ?")?.query_row([key], |r| r.get(0)).optional()?
            }
            found => found,
        };
        if let Some(id) = recent {
            // The collector may have judged it garbage already; see `retention`.
            if let Some(revived) = &mut self.revived {
                revived.push(id);
            }
            self.recent.insert(*key, id);
            return Ok(ChunkRef { id, len });
        }
        // The segment first: a row must never refer to bytes that were not written.
        let location = segments.append(raw, self.squeezer.compress(raw), &hash)?;
        let id = self.next;
        // Without a hash the row is not in the index.
        let lasting = (index == ChunkIndexing::Lasting).then_some(key);
        db.prepare_cached("INSERT INTO chunks(id, segment, offset, len, hash) VALUES(?,?,?,?,?)")?.execute(params![
            id,
            location.segment,
            location.offset,
            location.len,
            lasting
        ])?;
        self.next += 1;
        self.recent.insert(*key, id);
        Ok(ChunkRef { id, len })
    }

    /// Stores the bytes of an existing chunk again, at a new location.
    pub(crate) fn rewrite(
        &mut self,
        segments: &mut SegmentAppender,
        raw: &[u8],
        hash: &blake3::Hash,
    ) -> Result<RecordLocation> {
        segments.append(raw, self.squeezer.compress(raw), hash)
    }

    pub(crate) const fn commit(&mut self) {
        self.committed = self.next;
    }

    pub(crate) fn rollback(&mut self) {
        self.next = self.committed;
        // Hashes of the failed batch may be among them. Forgetting them costs duplicates only.
        self.recent = RecentHashes::default();
    }

    pub(crate) fn forget(&mut self, dead: impl Fn(u64) -> bool) {
        // A chunk that was collected must not be found again.
        self.recent.young.retain(|_, id| !dead(*id));
        self.recent.old.retain(|_, id| !dead(*id));
    }
}

/// Hashes of recently used chunks, in two generations; the older one is dropped when the younger one is full.
#[derive(Default)]
struct RecentHashes {
    young: HashMap<[u8; 16], u64>,
    old: HashMap<[u8; 16], u64>,
}

impl RecentHashes {
    fn get(&self, key: &[u8; 16]) -> Option<u64> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn insert(&mut self, key: [u8; 16], id: u64) {
        // A hash used while in the old generation moves to the young one, which approximates least recent use without
        // lists.
        if self.young.len() >= MAX_RECENT_HASHES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, id);
    }
}
