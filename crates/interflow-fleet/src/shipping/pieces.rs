//! The bodies of flows that are not part of their rows, in pieces as they are stored.

use bytes::Bytes;
use interflow_store::stored_form::chunk_refs::{ChunkRef, SIDES};
use interflow_store::stored_form::{BatchChunks, Compressor};
use interflow_store::{Result, SqliteStore};
use uuid::Uuid;

use crate::database::copy_format::CopyRows;
use crate::shipping::spooled_flow::SpooledFlow;

/// Longer bodies are stored in pieces of about this length.
const PIECE: usize = 512 << 10;

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
    pub(crate) const COLUMNS: &str = "flow, side, at, size, coding, stored_size";
    pub(crate) const COUNT: i16 = 6;

    pub(crate) fn write(&self, rows: &mut CopyRows) {
        rows.uuid(self.flow);
        rows.int2(self.side);
        rows.int8(self.at);
        rows.int8(self.size);
        rows.int2(self.coding);
        rows.int8(self.stored_size);
    }
}

/// Reads and compresses the pieces of flows in an embedded store, one at a time.
pub(crate) struct Pieces<'a> {
    chunks: BatchChunks,
    left: std::vec::IntoIter<(&'a SpooledFlow, usize)>,
    current: Option<CurrentBody<'a>>,
    compressor: Compressor,
    buffer: Vec<u8>,
}

/// A body of which pieces are left.
struct CurrentBody<'a> {
    flow: Uuid,
    side: usize,
    at: i64,
    chunks: std::slice::Iter<'a, ChunkRef>,
    end: &'a [u8],
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(source: &SqliteStore, flows: &'a [SpooledFlow], compress: bool) -> Result<Self> {
        let sides = flows.iter().flat_map(|flow| (0..SIDES).map(move |side| (flow, side)));
        let remaining: Vec<_> = sides.filter(|(flow, side)| flow.is_apart(*side)).collect();
        let chunks = source.batch_chunks(remaining.iter().flat_map(|(flow, side)| &flow.refs[*side]))?;
        let compressor = Compressor::new(compress && !remaining.is_empty());
        Ok(Self { chunks, left: remaining.into_iter(), current: None, compressor, buffer: Vec::new() })
    }

    /// The bytes of the bodies that were not begun yet, before compression.
    pub(crate) fn bytes(&self) -> u64 {
        self.left.as_slice().iter().map(|(flow, side)| flow.body_len(*side)).sum()
    }

    fn read_next(&mut self) -> Result<Option<(PieceRow, Bytes)>> {
        loop {
            let Some(body) = &mut self.current else {
                let Some((flow, side)) = self.left.next() else { return Ok(None) };
                let chunks = flow.refs[side].iter();
                self.current = Some(CurrentBody { flow: flow.uuid(), side, at: 0, chunks, end: flow.end(side) });
                continue;
            };
            let Some(raw) = collect(&mut self.chunks, &mut self.buffer, body)? else {
                self.current = None;
                continue;
            };
            // A piece that is compressed already gets no shorter.
            let (coding, stored) = match self.compressor.compress(&raw) {
                Some(short) => (1, Bytes::copy_from_slice(short)),
                None => (0, raw.clone()),
            };
            let (size, stored_size) = (raw.len() as i64, stored.len() as i64);
            let row = PieceRow { flow: body.flow, side: body.side as i16, at: body.at, size, coding, stored_size };
            body.at += size;
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

/// The next bytes of a body, as many as are stored together; `None` at its end. Chunks are collected into pieces: a row per
/// chunk would cost more than it holds.
fn collect(chunks: &mut BatchChunks, buffer: &mut Vec<u8>, body: &mut CurrentBody<'_>) -> Result<Option<Bytes>> {
    while buffer.len() < PIECE
        && let Some(chunk) = body.chunks.next()
    {
        let bytes = chunks.read(*chunk)?;
        if buffer.is_empty() && body.chunks.len() == 0 && body.end.is_empty() {
            // Most bodies are one chunk, which is not copied.
            return Ok(Some(bytes));
        }
        buffer.extend_from_slice(&bytes);
    }
    if buffer.len() < PIECE {
        buffer.extend_from_slice(std::mem::take(&mut body.end));
    }
    Ok((!buffer.is_empty()).then(|| std::mem::take(buffer).into()))
}
