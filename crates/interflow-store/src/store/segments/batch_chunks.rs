//! Reads the chunks of many bodies: their places are looked up together, and a chunk that several bodies share is read once.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use rusqlite::OptionalExtension as _;

use crate::error::Result;
use crate::store::connection_pool::PooledConnection;
use crate::store::segments::body::{CHUNK_PLACE, ChunkReader, SegmentFiles, chunk_place};
use crate::store::segments::chunk_refs::ChunkRef;
use crate::store::segments::segment::RecordLocation;

/// Bytes of shared chunks that are kept.
const MAX_KEPT: usize = 4 << 20;

pub struct BatchChunks {
    db: PooledConnection,
    dir: PathBuf,
    files: SegmentFiles,
    chunks: HashMap<u64, BatchChunk>,
    kept: usize,
}

#[derive(Default)]
struct BatchChunk {
    place: Option<RecordLocation>,
    /// How often it is still read.
    uses: usize,
    bytes: Option<Bytes>,
}

impl BatchChunks {
    /// `ids` has each chunk as often as it is read.
    pub(crate) fn new(db: PooledConnection, dir: PathBuf, ids: impl Iterator<Item = u64>) -> Result<Self> {
        let mut chunks: HashMap<u64, BatchChunk> = HashMap::new();
        for id in ids {
            chunks.entry(id).or_default().uses += 1;
        }
        if !chunks.is_empty() {
            // One snapshot: taking one for each chunk costs more than its lookup.
            let view = db.unchecked_transaction()?;
            let mut statement = view.prepare_cached(CHUNK_PLACE)?;
            for (id, chunk) in &mut chunks {
                // That one is not there is found when it is read.
                chunk.place = statement.query_row([id], chunk_place).optional()?;
            }
        }
        Ok(Self { db, dir, files: SegmentFiles::default(), chunks, kept: 0 })
    }

    pub fn read(&mut self, chunk: ChunkRef) -> Result<Bytes> {
        let mut unknown = BatchChunk::default();
        let chunk_use = self.chunks.get_mut(&chunk.id).unwrap_or(&mut unknown);
        chunk_use.uses = chunk_use.uses.saturating_sub(1);
        let bytes = match chunk_use.bytes.take() {
            Some(bytes) => {
                self.kept -= bytes.len();
                bytes
            }
            None => ChunkReader { db: &self.db, dir: &self.dir, files: &mut self.files }
                .read_at_place(chunk, chunk_use.place)?,
        };
        if chunk_use.uses > 0 && self.kept + bytes.len() <= MAX_KEPT {
            self.kept += bytes.len();
            chunk_use.bytes = Some(bytes.clone());
        }
        Ok(bytes)
    }
}
