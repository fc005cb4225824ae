//! Reads bodies back: chunk by chunk, each verified, from any offset.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes, BytesMut};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Result, StoreError};
use crate::store::connection_pool::PooledConnection;
use crate::store::segments::chunk_refs::ChunkRef;
use crate::store::segments::segment::{self, RecordLocation};
use crate::store::{rows, schema};
use crate::stored_flow::StoredFlow;

/// Segment files kept open by one reader.
const OPEN_FILES: usize = 8;

/// Finds the place of a chunk, which [`chunk_place`] reads.
pub(crate) const CHUNK_PLACE: &str = "SELECT segment, offset, len FROM chunks WHERE id = ?";

pub(crate) fn chunk_place(row: &Row<'_>) -> rusqlite::Result<RecordLocation> {
    Ok(RecordLocation { segment: row.get(0)?, offset: row.get(1)?, len: row.get(2)? })
}

/// Reads chunks, keeping the most recently used segment files open.
pub(crate) struct ChunkReader<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) dir: &'a Path,
    pub(crate) files: &'a mut SegmentFiles,
}

/// The most recently opened segment files, newest first.
#[derive(Default)]
pub(crate) struct SegmentFiles(VecDeque<(u64, File)>);

impl ChunkReader<'_> {
    pub(crate) fn read(&mut self, chunk: ChunkRef) -> Result<Bytes> {
        self.read_at_place(chunk, None)
    }

    /// Reads a chunk whose place may have been looked up before.
    pub(crate) fn read_at_place(&mut self, chunk: ChunkRef, place: Option<RecordLocation>) -> Result<Bytes> {
        let location = place.map_or_else(|| chunk_location(self.db, chunk.id), Ok)?;
        let bytes = match self.read_at(location) {
            // Garbage collection may move a chunk between the lookup and opening its file; then look it up again, with a view
            // of its own: that of a transaction does not change.
            Err(StoreError::Io { .. }) => {
                let db = schema::open_reader(self.dir.parent().unwrap_or(self.dir))?;
                let location = chunk_location(&db, chunk.id)?;
                self.read_at(location).map_err(|e| without_file(e, location))
            }
            read => read,
        }?;
        if bytes.len() as u64 != chunk.len {
            return Err(StoreError::damaged(format!("chunk {}", chunk.id), "it has another length than its flow says"));
        }
        Ok(bytes)
    }

    fn read_at(&mut self, place: RecordLocation) -> Result<Bytes> {
        let open = &mut self.files.0;
        if !open.iter().any(|(n, _)| *n == place.segment) {
            let path = segment::path(self.dir, place.segment);
            let file = File::open(&path).map_err(StoreError::io("could not open", path))?;
            // New files go to the front, so the one opened first is closed.
            // Before the push, so that never more than the bound are open.
            open.truncate(OPEN_FILES - 1);
            open.push_front((place.segment, file));
        }
        let file = open.iter().find(|(n, _)| *n == place.segment).map(|(_, f)| f).ok_or(StoreError::Closed)?;
        segment::read(file, place).map(|(bytes, _)| bytes)
    }
}

fn chunk_location(db: &Connection, id: u64) -> Result<RecordLocation> {
    let location = db.prepare_cached(CHUNK_PLACE)?.query_row([id], chunk_place).optional()?;
    location.ok_or_else(|| StoreError::damaged(format!("chunk {id}"), "it is not there"))
}

/// A segment that is gone is damage of the bodies in it, and of nothing else.
fn without_file(error: StoreError, place: RecordLocation) -> StoreError {
    match error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            StoreError::damaged(format!("segment {}", place.segment), "its file is missing")
        }
        error => error,
    }
}

/// The parts of a stored body, in order.
pub(crate) struct StoredBodyParts {
    pub(crate) chunks: Vec<ChunkRef>,
    /// Bytes after the last chunk, stored in the database.
    pub(crate) tail: Bytes,
}

impl StoredBodyParts {
    /// Loads the parts of one body of a stored flow.
    pub(crate) fn for_side(db: &Connection, flow: &StoredFlow, side: usize) -> Result<Self> {
        let chunks = flow.refs[side].clone();
        let mut tail = flow.inline[side].clone();
        // An ended flow has its tail in its row, a running one in the table.
        if tail.is_empty() && chunks.iter().map(|chunk| chunk.len).sum::<u64>() < flow.stored_bytes(side) {
            let sql = "SELECT bytes FROM tails WHERE seq = ? AND direction = ? ORDER BY at";
            let parts = rows::query_all(db, sql, params![flow.position, side], |r| Ok(r.get::<_, Vec<u8>>(0)?))?;
            tail = parts.concat().into();
        }
        Ok(Self { chunks, tail })
    }
}

/// Reads a body or a range of it piece by piece. Holds one piece in memory at a time. Of the embedded store it verifies
/// each chunk's checksum and content hash before returning any of its bytes.
pub struct BodyReader {
    source: BodyPieces,
    /// Bytes to skip before the requested range.
    skip: u64,
    /// Bytes of the range not yet returned.
    left: u64,
    current: Bytes,
}

/// Returns the bytes of a body from an offset on, as many as are stored together; `None` at the end.
pub(crate) type FetchPiece = Box<dyn FnMut(u64) -> Result<Option<Bytes>> + Send>;

enum BodyPieces {
    Segments(Box<SegmentPieces>),
    /// Elsewhere.
    Fetched(FetchPiece),
}

/// A body in segment files.
struct SegmentPieces {
    db: PooledConnection,
    dir: PathBuf,
    files: SegmentFiles,
    parts: std::vec::IntoIter<ChunkRef>,
    tail: Option<Bytes>,
}

impl BodyReader {
    pub(crate) fn new(db: PooledConnection, dir: PathBuf, parts: StoredBodyParts, range: Range<u64>) -> Self {
        let source = BodyPieces::Segments(Box::new(SegmentPieces {
            db,
            dir,
            files: SegmentFiles::default(),
            parts: parts.chunks.into_iter(),
            // After the last chunk; taken once.
            tail: Some(parts.tail),
        }));
        Self { source, skip: range.start, left: range.end.saturating_sub(range.start), current: Bytes::new() }
    }

    /// A reader of bytes that are fetched as they are read.
    pub fn fetched(fetch: FetchPiece, range: Range<u64>) -> Self {
        let remaining = range.end.saturating_sub(range.start);
        Self { source: BodyPieces::Fetched(fetch), skip: range.start, left: remaining, current: Bytes::new() }
    }

    /// Reads a body over an existing connection, at most `cap` bytes of it.
    pub(crate) fn pieces(db: &Connection, dir: &Path, parts: StoredBodyParts, cap: usize) -> Result<Bytes> {
        let mut files = SegmentFiles::default();
        let mut reader = ChunkReader { db, dir, files: &mut files };
        let mut all = Vec::new();
        for r in parts.chunks {
            if all.len() >= cap {
                break;
            }
            // Each chunk is verified as a whole, so none is read in part.
            all.extend_from_slice(&reader.read(r)?);
        }
        all.extend_from_slice(&parts.tail);
        all.truncate(cap);
        Ok(all.into())
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// A damaged or missing chunk; the error names its location.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>> {
        while self.left > 0 {
            let mut piece = match &mut self.source {
                BodyPieces::Segments(pieces) => {
                    let SegmentPieces { db, dir, files, parts, tail } = &mut **pieces;
                    let mut piece = match parts.next() {
                        // Chunks that lie entirely before the range are not read.
                        Some(r) if r.len <= self.skip => {
                            self.skip -= r.len;
                            continue;
                        }
                        Some(r) => ChunkReader { db, dir, files }.read(r)?,
                        None => match tail.take() {
                            Some(tail) => tail,
                            None => return Ok(None),
                        },
                    };
                    // The first piece of the range begins within a chunk.
                    let skip = self.skip.min(piece.len() as u64);
                    piece.advance(skip as usize);
                    self.skip -= skip;
                    piece
                }
                BodyPieces::Fetched(fetch) => match fetch(self.skip)? {
                    Some(piece) if !piece.is_empty() => {
                        // Here, the offset of what comes next.
                        self.skip += piece.len() as u64;
                        piece
                    }
                    _ => return Ok(None),
                },
            };
            piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= piece.len() as u64;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// The remaining bytes, at most `cap` of them.
    ///
    /// # Errors
    /// As for [`next_piece`](Self::next_piece).
    pub fn read_all(mut self, cap: usize) -> Result<Bytes> {
        // A smaller range, so that no chunk beyond the cap is read.
        self.left = self.left.min(cap as u64);
        let mut all = Bytes::new();
        while let Some(piece) = self.next_piece()? {
            all = joined(all, piece);
        }
        Ok(all)
    }

    /// The remaining bytes up to where they are damaged.
    ///
    /// # Errors
    /// A database or disk error.
    pub fn read_intact(mut self) -> Result<Bytes> {
        let mut all = Bytes::new();
        loop {
            match self.next_piece() {
                Err(e) if e.is_lost_data() => return Ok(all),
                piece => match piece? {
                    Some(piece) => all = joined(all, piece),
                    None => return Ok(all),
                },
            }
        }
    }
}

/// Most bodies are one piece, which is not copied.
pub(crate) fn joined(bytes: Bytes, more: Bytes) -> Bytes {
    if bytes.is_empty() {
        return more;
    }
    // Grows in place.
    let mut all = BytesMut::from(bytes);
    all.extend_from_slice(&more);
    all.freeze()
}

impl io::Read for BodyReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.next_piece() {
                Ok(Some(piece)) => self.current = piece,
                Ok(None) => return Ok(0),
                // Damage ends the read: bytes after a hole would be taken for the bytes in it.
                Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e)),
            }
        }
        let n = buf.len().min(self.current.len());
        self.current.copy_to_slice(&mut buf[..n]);
        Ok(n)
    }
}
