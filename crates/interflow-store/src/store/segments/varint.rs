//! Little-endian base-128 numbers and tagged fields: the encoding of blobs in the database.
//!
//! A field is a tag byte, a length and that many bytes. Readers skip unknown tags, so fields may be added without a new
//! schema version.

use crate::error::{Result, StoreError};

pub(crate) fn write_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Zigzag encoding: small negative numbers take few bytes, too.
pub(crate) fn write_signed(out: &mut Vec<u8>, n: i64) {
    write_varint(out, ((n << 1) ^ (n >> 63)) as u64);
}

pub(crate) fn write_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field that contains a number.
pub(crate) fn write_number(out: &mut Vec<u8>, tag: u8, n: u64) {
    out.push(tag);
    let at = out.len();
    out.push(0);
    write_varint(out, n);
    // A 64-bit number takes ten bytes at most, so its length is always one byte.
    out[at] = (out.len() - at - 1) as u8;
}

/// Appends a field whose content is written by `fill`.
pub(crate) fn write_nested(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    // Two bytes encode lengths below 16 KiB, which covers nearly every field.
    out.extend_from_slice(&[0, 0]);
    fill(out);
    let len = out.len() - at - 2;
    if len < 1 << 14 {
        // The first byte always has its continuation bit set, even if one byte would do, because the place is fixed.
        out[at] = len as u8 | 0x80;
        out[at + 1] = (len >> 7) as u8;
    } else {
        let mut prefix = Vec::with_capacity(5);
        write_varint(&mut prefix, len as u64);
        out.splice(at..at + 2, prefix);
    }
}

/// Reads what the functions above wrote; reading past the end is an error.
#[derive(Clone, Copy)]
pub(crate) struct VarintReader<'a>(pub(crate) &'a [u8]);

impl<'a> VarintReader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.0.split_first().ok_or_else(truncated_error)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut n = 0u64;
        // Ten bytes hold 64 bits; an eleventh cannot belong to a valid number.
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(n);
            }
        }
        Err(truncated_error())
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// Takes the next `len` bytes. The length comes from the database and is checked before it is used.
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| truncated_error())?;
        let (head, rest) = self.0.split_at_checked(len).ok_or_else(truncated_error)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.number()?;
        self.take(len)
    }

    /// The next field, or `None` at the end; its reader covers only its own bytes.
    pub(crate) fn field(&mut self) -> Result<Option<(u8, Self)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.byte()?;
        Ok(Some((tag, VarintReader(self.bytes()?))))
    }

    /// The rest as text; invalid UTF-8 is replaced by U+FFFD.
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

fn truncated_error() -> StoreError {
    StoreError::damaged("a row", "it ends before its last field")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(n: u64, d: i64) {
            let mut out = Vec::new();
            write_varint(&mut out, n);
            write_signed(&mut out, d);
            write_number(&mut out, 7, n);
            let mut input = VarintReader(&out);
            prop_assert_eq!(input.number().unwrap(), n);
            prop_assert_eq!(input.signed().unwrap(), d);
            let (tag, mut field) = input.field().unwrap().unwrap();
            prop_assert_eq!((tag, field.number().unwrap()), (7, n));
            prop_assert!(input.field().unwrap().is_none());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut input = VarintReader(&bytes);
            while let Ok(Some((_, mut field))) = input.field() {
                let _ = field.number();
                let _ = field.signed();
            }
        }
    }

    #[test]
    fn nested_fields_of_any_length_round_trip() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let mut out = Vec::new();
            write_nested(&mut out, 3, |o| o.resize(o.len() + len, 9));
            write_number(&mut out, 4, 5);
            let mut input = VarintReader(&out);
            assert_eq!(input.field().unwrap().unwrap().1.0.len(), len);
            assert_eq!(input.field().unwrap().unwrap().1.number().unwrap(), 5);
        }
    }
}
