//! The queries of child URLs: signed, or encrypted as well.
//!
//! Signed: `path?d=…&m=MAC`. Encrypted: `path?e=SEALED`. Both are bound to their path and token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use chacha20poly1305::aead::Payload;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use super::{TokenError, sealed};

/// Bytes of a signature; 128 bits cannot be guessed online.
const MAC_LEN: usize = 16;

/// Signs and encrypts the queries below one token. Independent keys for each purpose, derived from the token's.
pub struct ChildKey {
    mac: [u8; 32],
    nonce: [u8; 32],
    seal: XChaCha20Poly1305,
}

impl ChildKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let derive = |purpose: &str| *blake3::keyed_hash(key, purpose.as_bytes()).as_bytes();
        Self { mac: derive("mac"), nonce: derive("nonce"), seal: XChaCha20Poly1305::new(&derive("seal").into()) }
    }

    /// Signs `out[from..]`, which is `path?query`: adds `&m=…`. In place, since a playlist has thousands of URLs.
    pub fn sign(&self, out: &mut Vec<u8>, from: usize) {
        let mac = blake3::keyed_hash(&self.mac, out.get(from..).unwrap_or_default());
        out.extend_from_slice(b"&m=");
        let mut text = [0; 22];
        let written = B64.encode_slice(&mac.as_bytes()[..MAC_LEN], &mut text).expect("16 bytes are 22 characters");
        out.extend_from_slice(&text[..written]);
    }

    /// Encrypts the query of `out[from..]`, which is `path?query`; the path is authenticated as well.
    pub fn hide(&self, out: &mut Vec<u8>, from: usize) {
        let text = out.split_off(from);
        let at = text.iter().position(|b| *b == b'?').unwrap_or(text.len());
        let (path, query) = text.split_at(at);
        let query = query.get(1..).unwrap_or_default();
        // As in tokens, the nonce depends on the content: a child URL stays the same from one playlist to the next.
        let nonce = blake3::keyed_hash(&self.nonce, &text);
        out.extend_from_slice(path);
        out.extend_from_slice(b"?e=");
        out.extend_from_slice(sealed::seal(&self.seal, &nonce, Payload { msg: query, aad: path }).as_bytes());
    }

    /// Verifies or decrypts the query for this path; returns it with what a player appended, which is not
    /// authenticated.
    ///
    /// # Errors
    /// [`TokenError::Foreign`], whatever is wrong.
    pub fn open(&self, path: &str, query: &str) -> Result<(String, String), TokenError> {
        if let Some(hidden) = query.strip_prefix("e=") {
            let (hidden, added) = hidden.split_once('&').unwrap_or((hidden, ""));
            let plain = sealed::open(&self.seal, hidden, path.as_bytes()).ok_or(TokenError::Foreign)?;
            let plain = String::from_utf8(plain).map_err(|_| TokenError::Foreign)?;
            return Ok((plain, added.to_owned()));
        }
        let (signed, rest) = query.split_once("&m=").ok_or(TokenError::Foreign)?;
        let (mac, added) = rest.split_once('&').unwrap_or((rest, ""));
        // Path and query together: a signature does not hold for another endpoint.
        let mut hasher = blake3::Hasher::new_keyed(&self.mac);
        hasher.update(path.as_bytes()).update(b"?").update(signed.as_bytes());
        let right = hasher.finalize();
        let mac_bytes = B64.decode(mac).map_err(|_| TokenError::Foreign)?;
        if !constant_time_eq(&mac_bytes, &right.as_bytes()[..MAC_LEN]) {
            return Err(TokenError::Foreign);
        }
        Ok((signed.to_owned(), added.to_owned()))
    }
}

/// Compares in constant time, because the response time would otherwise reveal how much of a forged signature is
/// right. The length is no secret.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(hide: bool) -> (ChildKey, String, String) {
        let key = ChildKey::new(&[7; 32]);
        let mut out = b"prefix/s.ts?d=http://a.test/1.ts%3Fx".to_vec();
        if hide {
            key.hide(&mut out, 6)
        } else {
            key.sign(&mut out, 6)
        }
        let text = String::from_utf8(out).unwrap();
        let (path, query) = text[6..].split_once('?').unwrap();
        (key, path.to_owned(), query.to_owned())
    }

    #[test]
    fn signed_query_is_restored_with_player_parameters() {
        for hide in [false, true] {
            let (key, path, query) = made(hide);
            assert_eq!(query.contains("a.test"), !hide);
            let signed = "d=http://a.test/1.ts%3Fx".to_owned();
            assert_eq!(key.open(&path, &query), Ok((signed.clone(), String::new())));
            assert_eq!(key.open(&path, &format!("{query}&_HLS_msn=3")), Ok((signed, "_HLS_msn=3".into())));
        }
    }

    #[test]
    fn modified_path_query_or_token_is_refused() {
        for hide in [false, true] {
            let (key, path, query) = made(hide);
            assert!(key.open("/other.ts", &query).is_err());
            assert!(key.open(&path, &query.replace(['1', 'a'], "b")).is_err());
            assert!(ChildKey::new(&[8; 32]).open(&path, &query).is_err());
            assert!(key.open(&path, "d=http://b.test/").is_err() && key.open(&path, "").is_err());
        }
    }
}
