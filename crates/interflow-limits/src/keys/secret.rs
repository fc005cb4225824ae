//! Generation and hashing of virtual keys.

use std::fmt;

use interflow_types::random_bytes;
use sha2::{Digest as _, Sha256};

/// Prefix of every key, which makes it recognizable beside providers' keys, and to secret scanners.
pub const KEY_PREFIX: &str = "ifk_";

const KEY_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Characters after the prefix: 43 of a 62-letter alphabet are 256 bits.
const KEY_LENGTH: usize = 43;

/// Whether there is something like a key anywhere in a text.
pub fn holds_key(text: &str) -> bool {
    let is_key = |rest: &str| rest.bytes().take_while(u8::is_ascii_alphanumeric).count() >= KEY_LENGTH;
    // Hardly any text has the prefix, and this search is the cheaper one.
    text.contains(KEY_PREFIX) && text.match_indices(KEY_PREFIX).any(|(at, prefix)| is_key(&text[at + prefix.len()..]))
}

/// A key in plain text, displayed once when it is generated.
#[derive(Clone, PartialEq, Eq)]
pub struct PlaintextKey(String);

impl PlaintextKey {
    /// A new key of 256 random bits from the operating system.
    pub fn generate() -> Self {
        let mut text = String::from(KEY_PREFIX);
        while text.len() < KEY_PREFIX.len() + KEY_LENGTH {
            let pool = random_bytes::<64>();
            // 248 is the largest multiple of 62 in a byte; larger values would bias the distribution.
            let letters = pool.iter().filter(|b| **b < 248).map(|b| char::from(KEY_ALPHABET[usize::from(b % 62)]));
            text.extend(letters.take(KEY_PREFIX.len() + KEY_LENGTH - text.len()));
        }
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlaintextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a key. A key holds 256 random bits, so a slow hash would protect nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyDigest([u8; 32]);

impl KeyDigest {
    pub fn from_key(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Parses `sha256:HEX`.
    ///
    /// # Errors
    /// It has another form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut digest = [0; 32];
        let digits = text.strip_prefix("sha256:").filter(|digits| hex::decode_to_slice(digits, &mut digest).is_ok());
        digits.map(|_| Self(digest)).ok_or_else(|| {
            "its hash is not sha256:… with 64 hex digits; make keys with `interflow keys add`".to_owned()
        })
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        f.write_str(&hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_are_long_and_unique() {
        let (a, b) = (PlaintextKey::generate(), PlaintextKey::generate());
        assert_eq!(a.reveal().len(), 47);
        assert!(a.reveal().starts_with(KEY_PREFIX) && a != b);
        assert!(a.reveal()[4..].bytes().all(|b| b.is_ascii_alphanumeric()));
    }

    #[test]
    fn a_key_is_found_within_a_text() {
        let key = PlaintextKey::generate();
        for text in [key.reveal().to_owned(), format!("ifk_é Bearer {},", key.reveal()), format!("{}0", key.reveal())]
        {
            assert!(holds_key(&text), "{text}");
        }
        for text in ["ifk_", "ifk_short", &key.reveal()[1..], &key.reveal()[..46]] {
            assert!(!holds_key(text), "{text}");
        }
    }

    #[test]
    fn key_digest_round_trips() {
        let d = KeyDigest::from_key("ifk_x");
        assert_eq!(KeyDigest::parse(&d.to_string()), Ok(d));
        assert_eq!(KeyDigest::parse(&d.to_string().to_uppercase().replace("SHA", "sha")), Ok(d));
        let (letters, longer) = (format!("sha256:{}", "g".repeat(64)), format!("{d}0"));
        let (separator, bcrypt) = (d.to_string().replace(':', "$"), "$2b$10$CCCCCCCCCCCCCCCCCCCCC.");
        for bad in ["", "sha256:", "sha256:zz", "md5:00", &letters, &longer, &separator, bcrypt] {
            assert!(KeyDigest::parse(bad).is_err_and(|why| why.contains("interflow keys add")), "{bad}");
        }
    }
}
