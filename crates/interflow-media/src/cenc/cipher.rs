//! AES-128 in CTR and CBC mode over pieces of a stream, in place.

use aes::cipher::{
    Array, BlockCipherDecrypt, BlockModeDecrypt as _, BlockSizeUser, InnerIvInit as _, StreamCipher as _,
    StreamCipherCoreWrapper, consts::U16,
};
use aes::{Aes128, Aes256};
use ctr::flavors::Ctr64BE;

use super::keys::AesKey;

pub const BLOCK: usize = 16;

pub type CipherBlock = [u8; BLOCK];

/// The state of a CTR stream. The counter is the low 64 bits of the block and wraps within them (ISO 23001-7 9.3),
/// unlike the 128-bit counter of plain AES-CTR; the stream continues across any cuts, also within a block.
#[derive(Clone, Copy, Debug)]
pub struct CtrCipher {
    counter: CipherBlock,
    /// Bytes of the current keystream block already used.
    used: usize,
}

impl CtrCipher {
    /// The state at the start of a sample. An 8-byte IV is in the high half, followed by a zero counter.
    pub fn new(iv: CipherBlock) -> Self {
        Self { counter: iv, used: 0 }
    }

    /// Decrypts the next bytes of the stream, of any number.
    pub fn apply(&mut self, key: &AesKey, data: &mut [u8]) {
        // The rest of a keystream block that an earlier call began is used up first, at its place within the block.
        let head = if self.used == 0 { 0 } else { data.len().min(BLOCK - self.used) };
        let (first, rest) = data.split_at_mut(head);
        if !first.is_empty() {
            let mut block = [0; BLOCK];
            if let Some(part) = block.get_mut(self.used..self.used + head) {
                part.copy_from_slice(first);
            }
            self.stream(key, &mut block);
            if let Some(part) = block.get(self.used..self.used + head) {
                first.copy_from_slice(part);
            }
            self.advance(head);
        }
        if !rest.is_empty() {
            self.stream(key, rest);
            self.advance(rest.len());
        }
    }

    /// Decrypts the blocks selected by a pattern; `data` begins with a block to decrypt. The keystream covers the
    /// encrypted blocks only.
    pub fn apply_pattern(&mut self, key: &AesKey, data: &mut [u8], crypt: usize, skip: usize) {
        for_each_batch(data, crypt, skip, |blocks| self.apply(key, blocks.as_flattened_mut()));
    }

    fn stream(&self, key: &AesKey, data: &mut [u8]) {
        let core = ctr::CtrCore::<&Aes128, Ctr64BE>::inner_iv_init(&key.0, &Array(self.counter));
        StreamCipherCoreWrapper::from_core(core).apply_keystream(data);
    }

    fn advance(&mut self, n: usize) {
        let at = self.used + n;
        self.used = at % BLOCK;
        let [.., a, b, c, d, e, f, g, h] = self.counter;
        let low = u64::from_be_bytes([a, b, c, d, e, f, g, h]).wrapping_add((at / BLOCK) as u64);
        if let Some(part) = self.counter.get_mut(8..) {
            part.copy_from_slice(&low.to_be_bytes());
        }
    }
}

/// Blocks of a pattern decrypted per batch: enough to fill the pipelines of the widest AES units.
const BATCH: usize = 32;

/// The state of a CBC chain: the previous ciphertext block, which is needed for the next one.
#[derive(Clone, Copy, Debug)]
pub struct CbcCipher {
    previous: CipherBlock,
}

impl CbcCipher {
    /// The state at the start of a chain: a sample, or a subsample with `cbcs`.
    pub fn new(iv: CipherBlock) -> Self {
        Self { previous: iv }
    }

    /// Decrypts consecutive blocks. A remainder shorter than a block is left unchanged.
    pub fn apply(&mut self, key: &AesKey, data: &mut [u8]) {
        let (blocks, _) = data.as_chunks_mut::<BLOCK>();
        self.chain(&key.0, blocks);
    }

    /// Like [`apply`](Self::apply), with a 256-bit key.
    pub fn apply_256(&mut self, key: &Aes256, data: &mut [u8]) {
        let (blocks, _) = data.as_chunks_mut::<BLOCK>();
        self.chain(key, blocks);
    }

    /// Decrypts `crypt` blocks, skips `skip` blocks, and so on; `data` begins with a block to decrypt. The chain covers
    /// the encrypted blocks only.
    pub fn apply_pattern(&mut self, key: &AesKey, data: &mut [u8], crypt: usize, skip: usize) {
        for_each_batch(data, crypt, skip, |blocks| self.chain(&key.0, blocks));
    }

    fn chain<C>(&mut self, key: &C, blocks: &mut [CipherBlock])
    where
        C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
    {
        // Kept before decrypting, which overwrites it.
        let Some(last) = blocks.last().copied() else { return };
        let mut decryptor = cbc::Decryptor::inner_iv_init(key, &Array(self.previous));
        decryptor.decrypt_blocks(Array::cast_slice_from_core_mut(blocks));
        self.previous = last;
    }
}

/// Gathers the blocks selected by a pattern into a batch, processes it, and scatters them back: single blocks would
/// leave the AES pipelines empty.
fn for_each_batch(data: &mut [u8], crypt: usize, skip: usize, mut each: impl FnMut(&mut [CipherBlock])) {
    let (blocks, _) = data.as_chunks_mut::<BLOCK>();
    // A pattern has at most 15 encrypted blocks (a field of 4 bits), so the bound only guards the arithmetic.
    let crypt = crypt.clamp(1, BATCH);
    let period = crypt + skip;
    let mut side = [[0; BLOCK]; BATCH];
    for group in blocks.chunks_mut(BATCH / crypt * period) {
        let mut n = 0;
        for (to, from) in side.iter_mut().zip(group.chunks(period).flat_map(|p| p.iter().take(crypt))) {
            *to = *from;
            n += 1;
        }
        let Some(chosen) = side.get_mut(..n) else { return };
        each(chosen);
        for (to, from) in group.chunks_mut(period).flat_map(|p| p.iter_mut().take(crypt)).zip(chosen) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::ContentKey;
    use super::*;
    use proptest::prelude::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let bytes: Vec<u8> =
            (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }

    const KEY: &str = "2b7e151628aed2a6abf7158809cf4f3c";
    const CLEAR: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";

    /// NIST SP 800-38A F.5.2 and F.2.2.
    #[test]
    fn aes_matches_nist_test_vectors() {
        let key = AesKey::new(&ContentKey(hex(KEY)));
        let mut data: [u8; 64] = hex("874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
             5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee");
        CtrCipher::new(hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")).apply(&key, &mut data);
        assert_eq!(data, hex(CLEAR));
        let mut data: [u8; 64] = hex("7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
             73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7");
        CbcCipher::new(hex("000102030405060708090a0b0c0d0e0f")).apply(&key, &mut data);
        assert_eq!(data, hex(CLEAR));
    }

    #[test]
    fn the_counter_wraps_within_its_64_bits() {
        let key = AesKey::new(&ContentKey(hex(KEY)));
        let (mut run, mut wrapped) = ([0; 32], [0; 16]);
        CtrCipher::new(hex("0102030405060708ffffffffffffffff")).apply(&key, &mut run);
        CtrCipher::new(hex("01020304050607080000000000000000")).apply(&key, &mut wrapped);
        assert_eq!(run[16..], wrapped);
    }

    proptest! {
        #[test]
        fn ctr_keystream_is_independent_of_segmentation(data: Vec<u8>, cuts: Vec<u8>) {
            let key = AesKey::new(&ContentKey([3; 16]));
            let mut whole = data.clone();
            CtrCipher::new([0xfe; 16]).apply(&key, &mut whole);
            let (mut parts, mut ctr, mut at) = (data, CtrCipher::new([0xfe; 16]), 0);
            for cut in cuts.into_iter().chain([255; 100]) {
                let end = parts.len().min(at + usize::from(cut));
                ctr.apply(&key, &mut parts[at..end]);
                at = end;
            }
            prop_assert_eq!(parts[..at].to_vec(), whole[..at].to_vec());
        }

        #[test]
        fn pattern_decryption_chains_only_over_the_encrypted_blocks(blocks in 0_usize..100, crypt in 1_usize..4, skip in 1_usize..12) {
            let key = AesKey::new(&ContentKey([3; 16]));
            let data: Vec<u8> = (0..blocks * 16 + 7).map(|i| (i * 31) as u8).collect();
            let mut patterned = data.clone();
            CbcCipher::new([1; 16]).apply_pattern(&key, &mut patterned, crypt, skip);
            let is_chosen = |i: usize| i / 16 % (crypt + skip) < crypt && i / 16 < blocks;
            let mut chosen: Vec<u8> = (0..data.len()).filter(|i| is_chosen(*i)).map(|i| data[i]).collect();
            CbcCipher::new([1; 16]).apply(&key, &mut chosen);
            let mut chosen = chosen.into_iter();
            let expected: Vec<u8> = (0..data.len()).map(|i| if is_chosen(i) { chosen.next().unwrap() } else { data[i] }).collect();
            prop_assert_eq!(patterned, expected);
        }
    }
}
