//! Compression, with a cheap test for whether it is worthwhile.

use std::io;

use parking_lot::Mutex;
use zstd::bulk::Decompressor;

/// Below this size, the record header outweighs the savings.
const MIN_COMPRESSED_LEN: usize = 256;
/// zstd level: the fastest, so that compression keeps up with a busy proxy.
const LEVEL: i32 = 1;

/// Decompressors that are not in use: to make one takes longer than to decompress a short body.
static IDLE: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());
const MAX_IDLE: usize = 4;
/// Bytes that a compressor keeps for its output.
const MAX_IDLE_BUFFER: usize = 1 << 20;

/// Decompresses at most `len` bytes.
///
/// # Errors
/// The bytes are damaged, or of more than `len`.
pub fn decompress(bytes: &[u8], len: usize) -> io::Result<Vec<u8>> {
    let idle = IDLE.lock().pop();
    let mut decompressor = idle.map_or_else(Decompressor::new, Ok)?;
    let raw = decompressor.decompress(bytes, len);
    let mut idle = IDLE.lock();
    if idle.len() < MAX_IDLE {
        idle.push(decompressor);
    }
    raw
}

/// A compressor that reuses its working memory.
pub struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
}

impl Compressor {
    /// Creates a compressor; it does nothing if `on` is false or zstd cannot allocate memory.
    pub fn new(on: bool) -> Self {
        let zstd = if on { zstd::bulk::Compressor::new(LEVEL).ok() } else { None };
        Self { zstd, buffer: Vec::new() }
    }

    /// The compressed form, if it is at least an eighth smaller.
    pub fn compress(&mut self, raw: &[u8]) -> Option<&[u8]> {
        let zstd = self.zstd.as_mut()?;
        if raw.len() < MIN_COMPRESSED_LEN || !looks_compressible(raw) {
            return None;
        }
        self.buffer.clear();
        self.buffer.shrink_to(MAX_IDLE_BUFFER);
        self.buffer.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        // The buffer is as large as zstd can need, so this fails only for reasons that make raw storage the safe
        // choice.
        let len = zstd.compress_to_buffer(raw, &mut self.buffer).ok()?;
        // Less is not worth decompressing at every read.
        (len < raw.len() - raw.len() / 8).then(|| &self.buffer[..len])
    }
}

/// Samples up to 512 bytes from the middle. In compressed, encrypted and media data all byte values are about equally
/// frequent, so the 64 most frequent values cover little more than a quarter of the sample; in text and structured
/// binary data they cover nearly all of it.
fn looks_compressible(raw: &[u8]) -> bool {
    const SAMPLE: usize = 512;
    let start = (raw.len().saturating_sub(SAMPLE)) / 2;
    let sample = &raw[start..(start + SAMPLE).min(raw.len())];
    let mut counts = [0u16; 256];
    for &b in sample {
        counts[b as usize] += 1;
    }
    let (top, _, _) = counts.select_nth_unstable_by(64, |a, b| b.cmp(a));
    let frequent: u32 = top.iter().map(|c| u32::from(*c)).sum();
    // Two thirds, halfway between a quarter (random) and nearly all (text).
    frequent as usize * 100 > sample.len() * 65
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressed_and_round_trips() {
        let text = br#"{"role":"user","content":"what is the weather in Ulm"},"#.repeat(50);
        let mut s = Compressor::new(true);
        let squeezed = s.compress(&text).unwrap().to_vec();
        assert!(squeezed.len() < text.len() / 4);
        assert_eq!(zstd::bulk::decompress(&squeezed, text.len()).unwrap(), text);
    }

    #[test]
    fn random_short_and_disabled_input_is_not_compressed() {
        let mut random = vec![0u8; 8192];
        blake3::Hasher::new().update(b"seed").finalize_xof().fill(&mut random);
        assert_eq!(Compressor::new(true).compress(&random), None);
        assert_eq!(Compressor::new(true).compress(&[b'a'; 100]), None);
        assert_eq!(Compressor::new(false).compress(&[b'a'; 10_000]), None);
    }
}
