//! Content-defined chunking: boundaries depend on the content, so that a body extended by one turn shares all chunks
//! before the change with its predecessor.
//!
//! The algorithm is FastCDC (v2020). Requests of an LLM conversation repeat all earlier messages, so most of each body
//! is stored already; with blocks of fixed size, one inserted byte would shift all that follow.

use fastcdc::v2020::{self, MASKS};

/// Bodies below this size are a single chunk.
pub(crate) const MAX_UNCUT_LEN: usize = 12 << 10;
/// Up to this offset chunks are small; larger bodies are mostly media and downloads, where larger chunks keep the index
/// small.
const FINE_UNTIL: u64 = 2 << 20;

struct ChunkSizes {
    min: usize,
    average_bits: usize,
    max: usize,
}

const FINE: ChunkSizes = ChunkSizes { min: 2 << 10, average_bits: 13, max: 32 << 10 };
const COARSE: ChunkSizes = ChunkSizes { min: 16 << 10, average_bits: 16, max: 128 << 10 };

const fn chunk_sizes(at: u64) -> ChunkSizes {
    if at < FINE_UNTIL { FINE } else { COARSE }
}

/// Bytes that must be available at this offset of a body, unless it ends before, for a boundary to be final.
pub(crate) const fn window(at: u64) -> usize {
    chunk_sizes(at).max
}

/// Length of the chunk that starts at `bytes`, at offset `at` of the body. `bytes` contains a whole [`window`], or the
/// rest of the body.
pub(crate) fn next_boundary(bytes: &[u8], at: u64) -> usize {
    let g = chunk_sizes(at);
    // A stricter mask before the average size and a looser one after it narrow the distribution of sizes (normalised
    // chunking).
    let (small, large) = (MASKS[g.average_bits + 1], MASKS[g.average_bits - 1]);
    v2020::cut(bytes, g.min, 1 << g.average_bits, g.max, small, large, small << 1, large << 1).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, seed: u8) -> Vec<u8> {
        let mut out = vec![0; len];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut out);
        out
    }

    fn cuts(body: &[u8]) -> Vec<&[u8]> {
        let (mut rest, mut at, mut chunks) = (body, 0u64, Vec::new());
        while !rest.is_empty() {
            let len = next_boundary(&rest[..rest.len().min(window(at))], at);
            let (chunk, tail) = rest.split_at(len);
            chunks.push(chunk);
            at += len as u64;
            rest = tail;
        }
        chunks
    }

    #[test]
    fn chunks_cover_the_body_within_the_bounds() {
        for len in [1, 2048, 40_000, 5 << 20] {
            let body = noise(len, 1);
            let chunks = cuts(&body);
            assert_eq!(chunks.concat(), body);
            assert!(chunks.iter().all(|c| !c.is_empty() && c.len() <= COARSE.max));
        }
    }

    #[test]
    fn an_insertion_changes_only_chunks_around_it() {
        let old = noise(400_000, 2);
        let mut new = old.clone();
        new.splice(200_000..200_000, noise(3_000, 3));
        let before: std::collections::HashSet<&[u8]> = cuts(&old).into_iter().collect();
        let fresh: usize = cuts(&new).into_iter().filter(|c| !before.contains(c)).map(<[u8]>::len).sum();
        assert!(fresh < 60_000, "{fresh} bytes would be stored again");
    }
}
