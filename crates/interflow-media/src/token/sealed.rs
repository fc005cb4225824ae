//! Sealed texts: base64 of a nonce and what XChaCha20-Poly1305 made of the content with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

/// XChaCha20's nonce, long enough to be derived from a hash.
const NONCE_LEN: usize = 24;

/// Seals a content, with the beginning of `nonce` as its nonce.
pub(super) fn seal(cipher: &XChaCha20Poly1305, nonce: &blake3::Hash, content: Payload<'_, '_>) -> String {
    let mut sealed = nonce.as_bytes()[..NONCE_LEN].to_vec();
    let nonce = XNonce::try_from(&sealed[..]).expect("a nonce is NONCE_LEN bytes");
    sealed.extend(cipher.encrypt(&nonce, content).expect("a link is far below the cipher's limit"));
    B64.encode(sealed)
}

/// Opens what [`seal`] made with the same `aad`; `None` for anything else.
pub(super) fn open(cipher: &XChaCha20Poly1305, text: &str, aad: &[u8]) -> Option<Vec<u8>> {
    let sealed = B64.decode(text).ok()?;
    let (nonce, msg) = sealed.split_first_chunk::<NONCE_LEN>()?;
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg, aad }).ok()
}
