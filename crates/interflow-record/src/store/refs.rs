//! Which chunks make up a flow's two bodies: the `chunks` column.

use interflow_flow::Direction;

use super::varint::{Input, put, put_signed};
use crate::error::Result;

/// A chunk of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    /// Its row in `chunks`.
    pub(crate) id: u64,
    /// Bytes of the body that it holds.
    pub(crate) len: u64,
}

/// The place of a direction in pairs.
pub(crate) const fn side(direction: Direction) -> usize {
    match direction {
        Direction::Request => 0,
        Direction::Response => 1,
    }
}

/// Both directions' chunks as one blob; `None` when there are none.
pub(crate) fn encode(refs: [&[ChunkRef]; 2]) -> Option<Vec<u8>> {
    if refs.iter().all(|r| r.is_empty()) {
        return None;
    }
    let mut out = Vec::with_capacity(refs[0].len() * 4 + refs[1].len() * 4 + 8);
    let mut last = 0;
    for list in refs {
        put(&mut out, list.len() as u64);
        for r in list {
            put_signed(&mut out, r.id as i64 - last);
            put(&mut out, r.len);
            last = r.id as i64;
        }
    }
    Some(out)
}

/// What [`encode`] wrote.
pub(crate) fn decode(blob: Option<&[u8]>) -> Result<[Vec<ChunkRef>; 2]> {
    let mut both = [Vec::new(), Vec::new()];
    let Some(blob) = blob else { return Ok(both) };
    let mut input = Input(blob);
    let mut last = 0;
    for list in &mut both {
        for _ in 0..input.number()? {
            last = i64::wrapping_add(last, input.signed()?);
            list.push(ChunkRef { id: last as u64, len: input.number()? });
        }
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip(a in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..50),
                            b in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..50)) {
            let list = |v: Vec<(u64, u64)>| v.into_iter().map(|(id, len)| ChunkRef { id, len }).collect::<Vec<_>>();
            let (a, b) = (list(a), list(b));
            let blob = encode([&a, &b]);
            prop_assert_eq!(decode(blob.as_deref()).unwrap(), [a, b]);
        }

        #[test]
        fn any_blob_is_read_without_a_panic(blob: Vec<u8>) {
            let _ = decode(Some(&blob));
        }
    }
}
