//! Decryption of hand-made MP4s in every structure that the standard allows and writers use.

mod bad_input;
pub mod media;
mod progressive;
mod shapes;

use bytes::Bytes;

use super::{CencDecrypter, CencError, ContentKey, ContentKeyRing, KeyId};
use media::*;

fn ring() -> ContentKeyRing {
    ContentKeyRing::from_pairs([(KeyId(KID), ContentKey(KEY)), (KeyId(OTHER_KID), ContentKey(OTHER_KEY))])
}

/// Pushes all data in pieces of `step` bytes.
fn decrypt_in(decrypter: &mut CencDecrypter, data: &[u8], step: usize) -> Result<Vec<u8>, CencError> {
    let mut out = Vec::new();
    for piece in data.chunks(step) {
        decrypter.push(Bytes::copy_from_slice(piece), &mut out)?;
    }
    decrypter.finish()?;
    Ok(out.concat())
}

fn decrypt(data: &[u8]) -> Result<Vec<u8>, CencError> {
    decrypt_in(&mut CencDecrypter::new(ring()), data, usize::MAX)
}

/// Decrypts in pieces of many sizes with identical results; the output must end with `clear`, and no box concerning
/// encryption may be left.
fn check(data: &[u8], clear: &[u8]) -> Vec<u8> {
    let out = decrypt(data).unwrap();
    for step in [1, 2, 3, 7, 15, 16, 17, 61, 500] {
        assert!(decrypt_in(&mut CencDecrypter::new(ring()), data, step).unwrap() == out, "in pieces of {step} bytes");
    }
    assert_eq!(out.len(), data.len());
    assert!(out.ends_with(clear), "the media data is not what was encrypted");
    let head = &out[..out.len() - clear.len()];
    for kind in [b"sinf", b"encv", b"enca", b"pssh", b"senc", b"saiz", b"saio", b"sgpd", b"sbgp"] {
        assert!(!head.windows(4).any(|w| w == kind), "{}", String::from_utf8_lossy(kind));
    }
    out
}
