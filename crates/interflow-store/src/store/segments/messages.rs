//! Storage of WebSocket and event stream messages in blocks, one block per sweep of the writer.

use bytes::{Bytes, BytesMut};
use interflow_types::{Direction, MessageKind, StreamMessage, Timestamp};
use rusqlite::{Connection, params};

use crate::error::{Result, StoreError};
use crate::model::{MessageRecord, signed};
use crate::store::rows;
use crate::store::segments::body::ChunkReader;
use crate::store::segments::body_assembly::{ChunkSink, MAX_INLINE_TAIL};
use crate::store::segments::chunk_refs::{self, ChunkRef};
use crate::store::segments::chunks::ChunkIndexing;
use crate::store::segments::varint::{VarintReader, write_signed, write_varint};

/// Payloads of a block are split into chunks of this size.
const PIECE: usize = 1 << 20;

/// Writes a block of messages; `first` is the index of the first one.
pub(crate) fn insert(shelf: &mut ChunkSink<'_>, seq: i64, first: u64, block: &[(StreamMessage, u64)]) -> Result<()> {
    let mut meta = Vec::with_capacity(block.len() * 8);
    let mut payload = BytesMut::with_capacity(block.iter().map(|(m, _)| m.payload.len()).sum());
    let mut last = 0;
    for (m, size) in block {
        // The kind is the upper bits and the direction the lowest one, so both fit into one byte.
        let kind = MessageKind::ALL.iter().position(|k| *k == m.kind).unwrap_or_default() as u8;
        meta.push(kind << 1 | chunk_refs::body_index(m.direction) as u8);
        let at = m.at.micros() as i64;
        // Times are stored as differences, which take one or two bytes for messages in quick succession.
        write_signed(&mut meta, at.wrapping_sub(last));
        write_varint(&mut meta, *size);
        write_varint(&mut meta, m.payload.len() as u64);
        payload.extend_from_slice(&m.payload);
        last = at;
    }
    // Payloads too small for a chunk stay in the row.
    let (mut inline, mut chunks) = (None, Vec::new());
    if payload.len() <= MAX_INLINE_TAIL {
        inline = Some(&payload[..]);
    } else {
        for piece in payload.chunks(PIECE) {
            chunks.push(shelf.chunks.insert(shelf.db, shelf.segments, piece, ChunkIndexing::Memory)?);
        }
    }
    shelf
        .db
        .prepare_cached("INSERT INTO messages(seq, first, count, meta, payload, chunks) VALUES(?,?,?,?,?,?)")?
        .execute(params![
            seq,
            first,
            block.len(),
            meta,
            inline,
            chunk_refs::encode([&chunks, &[], &[], &[], &[], &[]])
        ])?;
    Ok(())
}

/// A block as stored in the database.
struct MessageBlock {
    first: u64,
    meta: Vec<u8>,
    inline: Option<Vec<u8>>,
    chunks: Vec<ChunkRef>,
}

/// Reads the messages of a flow whose indexes are in `range`.
pub(crate) fn read(
    db: &Connection,
    chunks: &mut ChunkReader<'_>,
    seq: i64,
    range: std::ops::Range<u64>,
) -> Result<Vec<MessageRecord>> {
    // A block overlaps the range if it begins before its end and ends after its begin.
    let sql = "SELECT first, meta, payload, chunks FROM messages WHERE seq = ?1 AND first < ?3 AND first + count > ?2 ORDER BY first";
    // SQLite has signed integers only; a range that is open to the end exceeds them.
    let params = params![seq, signed(range.start), signed(range.end)];
    let blocks = rows::query_all(db, sql, params, |row| {
        let [list, ..] = chunk_refs::decode(row.get_ref(3)?.as_blob_or_null().map_err(rusqlite::Error::from)?)?;
        Ok(MessageBlock { first: row.get(0)?, meta: row.get(1)?, inline: row.get(2)?, chunks: list })
    })?;
    // The statement's snapshot ends here: chunks moved since then are found at their new location.
    let mut rows = Vec::new();
    for block in blocks {
        let mut payload = BytesMut::from(&block.inline.unwrap_or_default()[..]);
        for r in block.chunks {
            payload.extend_from_slice(&chunks.read(r)?);
        }
        decode(block.first, &block.meta, payload.freeze(), &range, &mut rows)?;
    }
    Ok(rows)
}

fn decode(
    first: u64,
    meta: &[u8],
    mut payload: Bytes,
    range: &std::ops::Range<u64>,
    found: &mut Vec<MessageRecord>,
) -> Result<()> {
    let damaged = || StoreError::damaged("a block of messages", "it does not fit its payload");
    let (mut input, mut index, mut at) = (VarintReader(meta), first, 0i64);
    while !input.is_empty() {
        let kind = input.byte()?;
        at = at.wrapping_add(input.signed()?);
        let (size, len) = (input.number()?, input.number()? as usize);
        // Checked for every message: `split_to` panics beyond the end.
        if len > payload.len() {
            return Err(damaged());
        }
        let payload = payload.split_to(len);
        // Messages outside the range are decoded as well, because times and payloads follow from the ones before.
        if range.contains(&index) {
            found.push(MessageRecord {
                index,
                direction: Direction::ALL[usize::from(kind & 1)],
                kind: *MessageKind::ALL.get(usize::from(kind >> 1)).ok_or_else(damaged)?,
                at: Timestamp::from_micros(at as u64),
                size,
                payload,
            });
        }
        index += 1;
    }
    Ok(())
}
