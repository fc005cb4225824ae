//! The `chunks` column: which chunks make up a flow's bodies.

use interflow_types::Direction;

use crate::error::Result;
use crate::model::FlowRecord;
use crate::store::segments::varint::{VarintReader, write_signed, write_varint};

/// A chunk of a body: `id` is its row in `chunks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    pub id: u64,
    /// Bytes of the body that it contains.
    pub len: u64,
}

/// The index of a direction in pairs: requests first, as everywhere in the store.
pub const fn body_index(direction: Direction) -> usize {
    match direction {
        Direction::Request => 0,
        Direction::Response => 1,
    }
}

/// Bodies per flow: request and response as sent on, followed by the same two as received, if they were edited, and
/// the certificate chains presented to the client and by the origin.
pub const SIDES: usize = 6;

/// The index of the chain presented to the client; the origin's follows.
pub const CERTIFICATES: usize = 4;

/// The index of a body as received, before it was edited.
pub const fn original_body_index(direction: Direction) -> usize {
    2 + body_index(direction)
}

/// The index of a flow's body as received. Only an edited body is stored twice.
pub fn received_body_index(flow: &FlowRecord, direction: Direction) -> usize {
    let is_edited = flow.recorded_body(direction, true).is_some();
    if is_edited { original_body_index(direction) } else { body_index(direction) }
}

/// Encodes the chunk lists of all bodies; `None` if all are empty. The lists after the first two are written only if one
/// of them is not empty. Chunk numbers are stored as differences, because consecutive chunks usually have consecutive
/// numbers.
pub fn encode(refs: [&[ChunkRef]; SIDES]) -> Option<Vec<u8>> {
    if refs.iter().all(|r| r.is_empty()) {
        return None;
    }
    let mut out = Vec::with_capacity(refs[0].len() * 4 + refs[1].len() * 4 + 8);
    // Differences go on from one list to the next.
    let mut last = 0;
    // Flows without TLS that were not edited are frequent, and their rows stay short.
    let lists = if refs[2..].iter().all(|r| r.is_empty()) { &refs[..2] } else { &refs[..] };
    for list in lists {
        write_varint(&mut out, list.len() as u64);
        for r in *list {
            write_signed(&mut out, r.id as i64 - last);
            write_varint(&mut out, r.len);
            last = r.id as i64;
        }
    }
    Some(out)
}

pub fn decode(blob: Option<&[u8]>) -> Result<[Vec<ChunkRef>; SIDES]> {
    let mut all: [Vec<ChunkRef>; SIDES] = Default::default();
    let Some(blob) = blob else { return Ok(all) };
    let mut input = VarintReader(blob);
    let mut last = 0;
    for (side, list) in all.iter_mut().enumerate() {
        // Older rows have two or four lists, and flows with nothing beside their bodies have two.
        if side >= 2 && input.is_empty() {
            break;
        }
        for _ in 0..input.number()? {
            // Wrapping: a damaged blob must not panic; a wrong number is found when the chunk is read.
            last = i64::wrapping_add(last, input.signed()?);
            list.push(ChunkRef { id: last as u64, len: input.number()? });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip(a in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..50),
                            b in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..50),
                            c in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..9),
                            d in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..2)) {
            let list = |v: Vec<(u64, u64)>| v.into_iter().map(|(id, len)| ChunkRef { id, len }).collect::<Vec<_>>();
            let (a, b, c, d) = (list(a), list(b), list(c), list(d));
            let blob = encode([&a, &b, &[], &c, &[], &d]);
            prop_assert_eq!(decode(blob.as_deref()).unwrap(), [a, b, Vec::new(), c, Vec::new(), d]);
        }

        #[test]
        fn arbitrary_chunk_list_blobs_never_panic(blob: Vec<u8>) {
            let _ = decode(Some(&blob));
        }
    }
}
