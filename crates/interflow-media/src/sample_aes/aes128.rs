//! `METHOD=AES-128` and `METHOD=AES-256`: CBC over the whole segment, with PKCS#7 padding.

use aes::Aes256;
use aes::cipher::{Array, KeyInit as _};
use bytes::{Bytes, BytesMut};

use super::SampleAesError;
use crate::cenc::{AesKey, CbcCipher, ContentKey};

const BLOCK: usize = 16;

/// The IV of a segment without an `IV` attribute: its media sequence number (RFC 8216 5.2).
pub fn iv_from_sequence(sequence: u64) -> [u8; 16] {
    u128::from(sequence).to_be_bytes()
}

/// Parses the `IV` attribute: `0x` and up to 32 hex digits.
pub fn parse_iv(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    (is_hex && (1..=32).contains(&digits.len()))
        .then(|| u128::from_str_radix(digits, 16).ok())
        .flatten()
        .map(u128::to_be_bytes)
}

/// A key of 128 or 256 bits, expanded.
enum WholeKey {
    Short(Box<AesKey>),
    Long(Box<Aes256>),
}

/// Decrypts one segment as a stream. At most 16 bytes are held back: an incomplete block, or the padding.
pub struct Aes128Cbc {
    key: WholeKey,
    chain: CbcCipher,
    /// Ciphertext not yet processed: 1 to 16 bytes once the segment has begun.
    held: BytesMut,
    length: u64,
}

impl Aes128Cbc {
    /// For `METHOD=AES-128`.
    pub fn new(key: &ContentKey, iv: [u8; 16]) -> Self {
        Self::with_key(WholeKey::Short(Box::new(AesKey::new(key))), iv)
    }

    /// For `METHOD=AES-256`.
    pub fn new_256(key: &[u8; 32], iv: [u8; 16]) -> Self {
        Self::with_key(WholeKey::Long(Box::new(Aes256::new(&Array(*key)))), iv)
    }

    fn with_key(key: WholeKey, iv: [u8; 16]) -> Self {
        Self { key, chain: CbcCipher::new(iv), held: BytesMut::new(), length: 0 }
    }

    /// Decrypts whole blocks in place; the chain continues over calls.
    fn decrypt(&mut self, data: &mut [u8]) {
        match &self.key {
            WholeKey::Short(key) => self.chain.apply(key, data),
            WholeKey::Long(key) => self.chain.apply_256(key, data),
        }
    }

    /// Processes the next bytes and appends the output to `out`. A chunk that is not shared is decrypted in place.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        self.length += chunk.len() as u64;
        let mut chunk = chunk.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        if !self.held.is_empty() {
            let missing = BLOCK - self.held.len();
            self.held.extend_from_slice(&chunk.split_to(missing.min(chunk.len())));
            if chunk.is_empty() {
                return;
            }
            // More data follows, so this block does not contain the padding.
            let mut block = std::mem::take(&mut self.held);
            self.decrypt(&mut block);
            out.push(block.freeze());
        }
        // At least one byte stays, since the last block contains the padding.
        let ready = chunk.len().saturating_sub(1) / BLOCK * BLOCK;
        self.held = chunk.split_off(ready);
        if !chunk.is_empty() {
            self.decrypt(&mut chunk);
            out.push(chunk.freeze());
        }
    }

    /// Ends the segment: outputs the last block without its padding.
    ///
    /// # Errors
    /// If the segment is not a whole number of blocks or its padding is invalid. Earlier output may then be garbage, so
    /// the response must not end regularly.
    pub fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), SampleAesError> {
        let mut last = std::mem::take(&mut self.held);
        if last.len() != BLOCK {
            return Err(SampleAesError::Length(self.length));
        }
        self.decrypt(&mut last);
        let n = last.last().map_or(0, |n| usize::from(*n));
        let is_padding = (1..=BLOCK).contains(&n) && last.iter().skip(BLOCK - n).all(|b| usize::from(*b) == n);
        if !is_padding {
            return Err(SampleAesError::Padding);
        }
        last.truncate(BLOCK - n);
        if !last.is_empty() {
            out.push(last.freeze());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{BlockModeEncrypt as _, KeyIvInit as _};
    use proptest::prelude::*;

    fn encrypt(data: &[u8]) -> Vec<u8> {
        let n = BLOCK - data.len() % BLOCK;
        let mut data = [data, &vec![n as u8; n]].concat();
        let (blocks, _) = data.as_chunks_mut::<BLOCK>();
        cbc::Encryptor::<aes::Aes128>::new(&Array([7; 16]), &Array(iv_from_sequence(300)))
            .encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
        data
    }

    fn decrypt<'a>(pieces: impl Iterator<Item = &'a [u8]>, iv: [u8; 16]) -> Result<Vec<u8>, SampleAesError> {
        let mut cipher = Aes128Cbc::new(&ContentKey([7; 16]), iv);
        let mut out = Vec::new();
        pieces.for_each(|p| cipher.push(Bytes::copy_from_slice(p), &mut out));
        cipher.finish(&mut out)?;
        Ok(out.concat())
    }

    #[test]
    fn iv_is_parsed_or_derived_from_the_sequence_number() {
        assert_eq!(iv_from_sequence(0x1_02)[13..], [0, 1, 2]);
        assert_eq!(parse_iv("0x00000000000000000000000000000102"), Some(iv_from_sequence(0x102)));
        assert_eq!(parse_iv("0X1"), Some(iv_from_sequence(1)));
        for bad in ["", "0x", "12", "0x+1", "0x000000000000000000000000000000001", "0xg"] {
            assert_eq!(parse_iv(bad), None, "{bad}");
        }
    }

    #[test]
    fn truncated_data_or_a_wrong_key_is_refused() {
        let data = encrypt(&[0x55; 100]);
        let iv = iv_from_sequence(300);
        assert_eq!(decrypt([&data[..90]].into_iter(), iv), Err(SampleAesError::Length(90)));
        assert_eq!(decrypt([&data[..96]].into_iter(), iv), Err(SampleAesError::Padding));
        let mut cipher = Aes128Cbc::new(&ContentKey([8; 16]), iv);
        cipher.push(Bytes::from(data), &mut Vec::new());
        assert_eq!(cipher.finish(&mut Vec::new()), Err(SampleAesError::Padding));
        assert_eq!(decrypt(std::iter::empty(), iv), Err(SampleAesError::Length(0)), "even nothing has padding");
    }

    proptest! {
        #[test]
        fn decryption_is_independent_of_segmentation(data in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..60) {
            let sealed = encrypt(&data);
            prop_assert_eq!(decrypt(sealed.chunks(step), iv_from_sequence(300)), Ok(data));
        }
    }
}
