//! Reads the bodies and messages of a page of flows along with their rows: with one view of the database, segment files that
//! stay open, and no row read twice.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;

use crate::error::Result;
use crate::store::segments::body::{ChunkReader, SegmentFiles, StoredBodyParts, joined};
use crate::store::segments::messages;
use crate::stored_flow::{BODIES, FlowParts, LoadedFlow, StoredFlow};

/// Longer bodies are left to be read piece by piece.
const MAX_BODY: u64 = 1 << 20;
/// Bytes of bodies and messages that a page holds; one flow's messages may exceed it.
const MAX_PAGE: u64 = 16 << 20;
/// Longer lists of messages are left to be read in parts.
const MAX_MESSAGES: u64 = 256;

pub(crate) fn load(db: &Connection, dir: &Path, page: Vec<StoredFlow>, parts: FlowParts) -> Result<Vec<LoadedFlow>> {
    let (mut files, mut remaining) = (SegmentFiles::default(), MAX_PAGE);
    let mut chunks = ChunkReader { db, dir, files: &mut files };
    let mut flows = Vec::with_capacity(page.len());
    for stored in page {
        let (mut bodies, mut messages): ([Option<Bytes>; BODIES.len()], _) = Default::default();
        for (side, body) in bodies.iter_mut().enumerate().take(parts.bodies()) {
            let length = stored.stored_bytes(side);
            if length > 0 && length <= remaining.min(MAX_BODY) {
                remaining -= length;
                *body = Some(intact(&mut chunks, StoredBodyParts::for_side(db, &stored, side)?, length)?);
            }
        }
        if parts == FlowParts::All && (1..=MAX_MESSAGES).contains(&stored.row.messages) && remaining > 0 {
            messages = match messages::read(db, &mut chunks, stored.position, 0..stored.row.messages) {
                Err(e) if e.is_lost_data() => None,
                read => Some(read?),
            };
            let bytes = messages.iter().flatten().map(|message| message.payload.len() as u64).sum();
            remaining = remaining.saturating_sub(bytes);
        }
        let position = Some(stored.position.unsigned_abs());
        flows.push(LoadedFlow { row: stored.row, position, parts, bodies, messages });
    }
    Ok(flows)
}

/// The first bytes of a body, up to `length` of them, or to where they are damaged.
fn intact(chunks: &mut ChunkReader<'_>, parts: StoredBodyParts, length: u64) -> Result<Bytes> {
    let mut bytes = Bytes::new();
    for chunk in parts.chunks {
        match chunks.read(chunk) {
            Err(e) if e.is_lost_data() => return Ok(bytes),
            read => bytes = joined(bytes, read?),
        }
    }
    bytes = joined(bytes, parts.tail);
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    Ok(bytes)
}
