//! The hash function of the lexicon; also used by the build script.

/// The initial hash state.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of a folded word, eight bytes at a time.
#[inline(always)]
pub fn hash(folded: &[u8]) -> u64 {
    let mut hash = SEED ^ folded.len() as u64;
    let mut chunks = folded.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = step(hash, u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
        hash = step(hash, word);
    }
    finish(hash)
}

/// The hash of a word of ASCII letters in any case, at `start..end` of a text.
#[inline(always)]
#[allow(dead_code)]
pub fn hash_letters(text: &[u8], start: usize, end: usize) -> u64 {
    const SMALL: u64 = 0x2020_2020_2020_2020;
    let Some(word) = text.get(start..end) else { return 0 };
    let mut hash = SEED ^ word.len() as u64;
    let mut at = start;
    while at < end {
        let rest = end - at;
        let keep = if rest >= 8 { u64::MAX } else { (1 << (rest * 8)) - 1 };
        // The text usually continues after the word: eight bytes can be read and the excess masked.
        let eight = match text.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
            Some(bytes) => u64::from_le_bytes(bytes),
            None => text[at..].iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)),
        };
        hash = step(hash, (eight | SMALL) & keep);
        at += 8;
    }
    finish(hash)
}

#[inline(always)]
const fn step(hash: u64, word: u64) -> u64 {
    let h = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 32)
}

/// Mixes the bits before the hash is used as an index.
#[inline(always)]
const fn finish(hash: u64) -> u64 {
    let h = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 29)
}

/// The fingerprint stored in a slot: 20 bits, never zero.
#[inline(always)]
pub const fn fingerprint(finished: u64) -> u32 {
    ((finished >> 44) as u32) | 1
}
