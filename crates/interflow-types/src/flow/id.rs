//! Flow ids: sortable by start time, unique across machines without coordination.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::schema::JsonSchema;

use crate::{Timestamp, random_bytes};

/// The id of a flow: 48 bits of Unix milliseconds, 16 random bits per process, a 64-bit counter.
///
/// The text form is 26 characters of Crockford's base 32, which sort like the ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub struct FlowId(#[schemars(with = "String")] u128);

impl FlowId {
    /// A new id for a flow that starts at `now`.
    pub fn new(now: Timestamp) -> Self {
        // The counter starts at a random value, so that two processes (or two runs) with the same 16 random bits do
        // not collide. Within a process it only increases, so ids of one millisecond keep their order.
        static SEED: std::sync::LazyLock<(u16, u64)> = std::sync::LazyLock::new(|| {
            let [a, b, rest @ ..] = random_bytes::<10>();
            // Half of the range, so that the counter cannot wrap around.
            (u16::from_be_bytes([a, b]), u64::from_be_bytes(rest) >> 1)
        });
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, start) = *SEED;
        // Relaxed: only uniqueness matters.
        let count = start + COUNT.fetch_add(1, Ordering::Relaxed);
        // 48 bits last until the year 10889.
        let millis = (now.micros() / 1000) & ((1 << 48) - 1);
        Self(u128::from(millis) << 80 | u128::from(process) << 64 | u128::from(count))
    }

    /// The id as a number; numeric order is id order.
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    pub const fn from_u128(n: u128) -> Self {
        Self(n)
    }

    /// When the flow started, in milliseconds since the Unix epoch.
    pub const fn unix_millis(self) -> u64 {
        (self.0 >> 80) as u64
    }
}

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 26];
        let mut rest = self.0;
        // Five bits per character, from the last to the first.
        for place in text.iter_mut().rev() {
            *place = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        f.pad(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a flow id is 26 letters and digits such as 01JD3V7T2M00000000000000AB")]
pub struct FlowIdError;

impl FromStr for FlowId {
    type Err = FlowIdError;

    fn from_str(s: &str) -> Result<Self, FlowIdError> {
        if s.len() != 26 {
            return Err(FlowIdError);
        }
        let mut n: u128 = 0;
        for (i, c) in s.bytes().enumerate() {
            // Lower case is accepted, as Crockford suggests; his aliases for similar letters are not.
            let c = c.to_ascii_uppercase();
            let digit = ALPHABET.iter().position(|&a| a == c).ok_or(FlowIdError)? as u128;
            // 26 characters hold 130 bits, so only the low three bits of the first digit may be set.
            if i == 0 && digit > 7 {
                return Err(FlowIdError);
            }
            n = n << 5 | digit;
        }
        Ok(Self(n))
    }
}

/// A random secret of 256 bits as text: an admin token, a one-time code, a key.
pub fn random_token() -> String {
    hex::encode(random_bytes::<32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_never_the_same() {
        assert_ne!(random_token(), random_token());
        assert_eq!(random_token().len(), 64);
    }

    #[test]
    fn flow_ids_of_one_process_are_increasing() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let a = FlowId::new(now);
        let b = FlowId::new(now);
        assert!(a < b);
        assert!(a.to_string() < b.to_string());
        assert_eq!(a.unix_millis(), 1_700_000_000_000);
    }

    #[test]
    fn text_form_round_trips() {
        for n in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = FlowId::from_u128(n);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().to_lowercase().parse(), Ok(id));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in
            ["", "short", "80000000000000000000000000", "0000000000000000000000000U", "00000000000000000000000000é"]
        {
            assert_eq!(bad.parse::<FlowId>(), Err(FlowIdError), "{bad}");
        }
    }
}
