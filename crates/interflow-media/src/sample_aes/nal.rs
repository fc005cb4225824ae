//! SAMPLE-AES of H.264: slices are encrypted after their first 32 bytes, one block in ten, and escaped again.
//!
//! Encryption happens on the escaped NAL unit, as a player would read it; as the ciphertext may contain start codes,
//! the result was escaped a second time. Only the second escaping is undone before decryption.

use memchr::memmem::Finder;

use crate::cenc::{AesKey, CbcCipher};

/// Clear bytes at the start of a slice, including its type byte.
const CLEAR_LEADER_LEN: usize = 32;
/// Slices up to this length are not encrypted.
const MIN_ENCRYPTED_LEN: usize = 48;
const BLOCK: usize = 16;
/// Clear bytes after each encrypted block: nine more blocks.
const CLEAR_SKIP_LEN: usize = 144;

/// Decrypts the slices of an access unit in Annex B format. `None` if it does not begin with a start code.
pub fn decrypt(stream: &[u8], key: &AesKey, iv: [u8; 16]) -> Option<Vec<u8>> {
    let codes = Finder::new(&[0, 0, 1]);
    let first = codes.find(stream)?;
    if stream.get(..first)?.iter().any(|b| *b != 0) {
        return None;
    }
    let mut out = Vec::with_capacity(stream.len());
    let mut rest = stream;
    let mut begins = Some(first);
    while let Some(at) = begins {
        let (code, unit) = rest.split_at(at + 3);
        out.extend_from_slice(code);
        begins = codes.find(unit);
        let (unit, after) = unit.split_at(begins.unwrap_or(unit.len()));
        // Zeros before a start code belong to it; no unit ends in zeros.
        let end = unit.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
        let (unit, zeros) = unit.split_at(end);
        decrypt_unit(unit, key, iv, &mut out);
        out.extend_from_slice(zeros);
        (rest, begins) = (after, begins.map(|_| 0));
    }
    Some(out)
}

/// Appends a NAL unit, decrypted if it is an encrypted slice (types 1 and 5).
fn decrypt_unit(unit: &[u8], key: &AesKey, iv: [u8; 16], out: &mut Vec<u8>) {
    let is_slice = unit.first().is_some_and(|b| matches!(b & 31, 1 | 5));
    if !is_slice || unit.len() <= MIN_ENCRYPTED_LEN {
        out.extend_from_slice(unit);
        return;
    }
    let from = out.len();
    unescape(unit, out);
    let mut chain = CbcCipher::new(iv);
    let mut rest = out.get_mut(from + CLEAR_LEADER_LEN..).unwrap_or_default();
    // The last block of a slice stays clear if nothing follows it.
    while rest.len() > BLOCK {
        let (block, after) = rest.split_at_mut(BLOCK);
        chain.apply(key, block);
        rest = after.get_mut(CLEAR_SKIP_LEN..).unwrap_or_default();
    }
}

/// Removes the emulation prevention bytes added after encryption; those added before are part of the content.
fn unescape(unit: &[u8], out: &mut Vec<u8>) {
    let escapes = Finder::new(&[0, 0, 3]);
    let mut rest = unit;
    while let Some(at) = escapes.find(rest) {
        let (head, after) = rest.split_at(at + 2);
        out.extend_from_slice(head);
        rest = after.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cenc::ContentKey;
    use aes::cipher::{Array, BlockModeEncrypt as _, KeyIvInit as _};

    /// The encrypter's side: one block in ten, then escapes.
    fn seal(unit: &[u8]) -> Vec<u8> {
        let mut data = unit.to_vec();
        if matches!(unit[0] & 31, 1 | 5) && unit.len() > MIN_ENCRYPTED_LEN {
            let mut encryptor = cbc::Encryptor::<aes::Aes128>::new(&Array([7; 16]), &Array([9; 16]));
            let mut at = CLEAR_LEADER_LEN;
            while data.len() - at > BLOCK {
                let (blocks, _) = data[at..at + BLOCK].as_chunks_mut::<BLOCK>();
                encryptor.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
                at = data.len().min(at + BLOCK + CLEAR_SKIP_LEN);
            }
        }
        let (mut out, mut zeros) = (Vec::new(), 0);
        for b in data {
            if zeros >= 2 && b <= 3 {
                out.push(3);
                zeros = 0;
            }
            zeros = if b == 0 { zeros + 1 } else { 0 };
            out.push(b);
        }
        out
    }

    #[test]
    fn only_slices_are_decrypted() {
        let key = AesKey::new(&ContentKey([7; 16]));
        let slice = |kind: u8, n: usize| -> Vec<u8> {
            std::iter::once(kind).chain((1..n).map(|i| (i % 251) as u8 | 4)).collect()
        };
        for n in [1, 47, 48, 49, 64, 65, 200, 1000, 5000] {
            let units = [vec![9, 0xf0], slice(0x67, 60), slice(0x65, n), slice(0x41, n + 3)];
            let join = |seal: fn(&[u8]) -> Vec<u8>| -> Vec<u8> {
                units.iter().flat_map(|u| [vec![0, 0, 0, 1], seal(u)].concat()).collect()
            };
            let opened = decrypt(&join(seal), &key, [9; 16]).unwrap();
            assert!(opened == join(<[u8]>::to_vec), "{n} bytes");
        }
    }

    #[test]
    fn emulation_prevention_bytes_are_removed_once() {
        let mut out = Vec::new();
        unescape(&[1, 0, 0, 3, 0, 0, 3, 3, 0, 3, 0, 0, 3], &mut out);
        assert_eq!(out, [1, 0, 0, 0, 0, 3, 0, 3, 0, 0]);
    }

    #[test]
    fn invalid_access_unit_is_refused() {
        let key = AesKey::new(&ContentKey([7; 16]));
        for bad in [&[][..], &[1, 2, 3], &[7, 0, 0, 1, 9]] {
            assert_eq!(decrypt(bad, &key, [0; 16]), None);
        }
    }
}
