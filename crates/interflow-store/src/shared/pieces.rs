//! The bodies of flows that are not part of their rows, in pieces as they are stored.

use bytes::Bytes;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::rows::uuid_of;
use crate::error::Result;
use crate::store::chunk_refs::{CERTIFICATES, SIDES};
use crate::store::rows::StoredRow;
use crate::store::{BodyReader, SqliteStore};

/// Bodies up to this length are part of their flow's row; lists read them along.
pub(crate) const MAX_INLINE: u64 = 4096;
/// Longer bodies are stored in pieces of about this length.
const PIECE: usize = 512 << 10;
/// Pieces up to this length are not compressed.
const MIN_COMPRESSED: usize = 512;

/// Where a piece belongs, and how it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceRow {
    pub(crate) flow: Uuid,
    side: i16,
    /// Its offset in the body.
    at: i64,
    size: i64,
    coding: i16,
    pub(crate) stored_size: i64,
}

impl PieceRow {
    /// Its columns, as far as they do not say where the bytes are.
    pub(crate) fn values(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.flow, &self.side, &self.at, &self.size, &self.coding, &self.stored_size]
    }
}

/// Reads and compresses the pieces of flows in an embedded store, one at a time.
pub(crate) struct Pieces<'a> {
    source: &'a SqliteStore,
    left: std::vec::IntoIter<(&'a StoredRow, usize)>,
    current: Option<(Uuid, i16, BodyReader)>,
    at: i64,
    compress: bool,
    buffer: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(source: &'a SqliteStore, flows: &'a [StoredRow], compress: bool) -> Self {
        let sides = flows.iter().flat_map(|flow| (0..SIDES).map(move |side| (flow, side)));
        let left = sides.filter(|(flow, side)| is_apart(flow, *side)).collect::<Vec<_>>().into_iter();
        Self { source, left, current: None, at: 0, compress, buffer: Vec::new() }
    }

    /// The bytes of the bodies that were not begun yet, before compression.
    pub(crate) fn bytes(&self) -> u64 {
        self.left.as_slice().iter().map(|(flow, side)| SqliteStore::stored_len(flow, *side)).sum()
    }

    fn read_next(&mut self) -> Result<Option<(PieceRow, Bytes)>> {
        loop {
            let Some((flow, side, body)) = &mut self.current else {
                let Some((flow, side)) = self.left.next() else { return Ok(None) };
                self.current = Some((uuid_of(flow.row.id), side as i16, self.source.stored_body(flow, side)?));
                self.at = 0;
                continue;
            };
            // Chunks are collected into pieces: a row per chunk would cost more than it holds.
            while self.buffer.len() < PIECE
                && let Some(chunk) = body.next_piece()?
            {
                self.buffer.extend_from_slice(&chunk);
            }
            if self.buffer.is_empty() {
                self.current = None;
                continue;
            }
            let (coding, stored) = encode(&self.buffer, self.compress);
            let size = self.buffer.len() as i64;
            let stored_size = stored.len() as i64;
            let row = PieceRow { flow: *flow, side: *side, at: self.at, size, coding, stored_size };
            self.at += size;
            self.buffer.clear();
            return Ok(Some((row, stored)));
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<(PieceRow, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_next().transpose()
    }
}

/// Whether there is a body that is stored apart from its flow's row.
pub(crate) fn is_apart(flow: &StoredRow, side: usize) -> bool {
    SqliteStore::stored_len(flow, side) > 0 && !is_inline(flow, side)
}

/// Whether a body is part of its flow's row. Certificate chains never are: they are read rarely.
pub(crate) fn is_inline(flow: &StoredRow, side: usize) -> bool {
    side < CERTIFICATES && SqliteStore::stored_len(flow, side) <= MAX_INLINE
}

/// The coding of a piece, and its bytes as they are stored.
fn encode(bytes: &[u8], compress: bool) -> (i16, Bytes) {
    if compress && bytes.len() > MIN_COMPRESSED {
        // A body that is compressed already gets no shorter.
        if let Ok(short) = zstd::bulk::compress(bytes, 1)
            && short.len() < bytes.len() / 10 * 9
        {
            return (1, short.into());
        }
    }
    (0, Bytes::copy_from_slice(bytes))
}
