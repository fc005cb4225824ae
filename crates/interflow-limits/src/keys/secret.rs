//! The key itself: made from the system's random numbers, shown once, kept as a hash.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// What every key of ours begins with, so that one is told from a provider's key at a glance.
pub const PREFIX: &str = "ifk_";

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Characters behind the prefix: 43 of 62 letters are 256 bits.
const LENGTH: usize = 43;

/// A key in the clear. It is shown once, when it is made.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Makes one.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn mint() -> Result<Self, getrandom::Error> {
        let mut text = String::from(PREFIX);
        let mut pool = [0u8; 64];
        while text.len() < PREFIX.len() + LENGTH {
            getrandom::fill(&mut pool)?;
            // 248 is the largest multiple of 62 in a byte: what lies above would favour some letters.
            let letters = pool.iter().filter(|b| **b < 248).map(|b| char::from(LETTERS[usize::from(b % 62)]));
            text.extend(letters.take(PREFIX.len() + LENGTH - text.len()));
        }
        Ok(Self(text))
    }

    /// The key in the clear.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a key. A key holds 256 random bits, so a slow hash would protect nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Reads `sha256:HEX`; `sha256$HEX` is what Philter's proxy writes.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").or_else(|| text.strip_prefix("sha256$"))?.as_bytes();
        let mut out = [0u8; 32];
        if hex.len() != 64 {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |b: u8| char::from(b).to_digit(16);
            let [high, low] = [digit(pair[0])?, digit(pair[1])?];
            *byte = (high * 16 + low) as u8;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_never_alike() {
        let (a, b) = (Secret::mint().unwrap(), Secret::mint().unwrap());
        assert_eq!(a.reveal().len(), 47);
        assert!(a.reveal().starts_with(PREFIX) && a != b);
        assert!(a.reveal()[4..].bytes().all(|b| b.is_ascii_alphanumeric()));
    }

    #[test]
    fn a_hash_is_read_as_it_was_written() {
        let d = Digest::of("ifk_x");
        assert_eq!(Digest::parse(&d.to_string()), Some(d));
        assert_eq!(Digest::parse(&d.to_string().replace(':', "$").to_uppercase().replace("SHA", "sha")), Some(d));
        for bad in ["", "sha256:", "sha256:zz", "md5:00", &format!("sha256:{}", "g".repeat(64)), &format!("{d}0")] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
