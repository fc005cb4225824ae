//! Reads the fields of a box in sequence; errors name the box that ends too early.

use std::borrow::Cow;

use super::header::{BoxError, BoxRef, FourCc, Result};

/// A cursor over a box's content. Every read checks the remaining length, so no declared size can lead outside of the
/// box.
#[derive(Clone, Debug)]
pub struct BoxReader<'a> {
    data: &'a [u8],
    kind: FourCc,
    offset: u64,
}

macro_rules! numbers {
    ($($name:ident $type:ty;)*) => {$(
        /// A big-endian integer.
        ///
        /// # Errors
        /// If the box ends before it.
        pub fn $name(&mut self) -> Result<$type> {
            self.array().map(<$type>::from_be_bytes)
        }
    )*};
}

impl<'a> BoxReader<'a> {
    /// Reads the content of a box, after its header (and its `uuid`).
    pub fn from_box(b: &BoxRef<'a>) -> Self {
        Self { data: b.content(), kind: b.kind(), offset: b.offset }
    }

    /// Over some bytes of a box of this type that begins at byte `offset`, for error messages.
    pub fn from_content(data: &'a [u8], kind: FourCc, offset: u64) -> Self {
        Self { data, kind, offset }
    }

    numbers! {
        u8 u8;
        u16 u16;
        u32 u32;
        u64 u64;
        i16 i16;
        i32 i32;
        i64 i64;
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.data.split_first_chunk().ok_or_else(|| self.truncated_error())?;
        self.data = rest;
        Ok(*head)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// When the box ends before them.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.data.split_at_checked(n).ok_or_else(|| self.truncated_error())?;
        self.data = rest;
        Ok(head)
    }

    /// Skips `n` bytes.
    ///
    /// # Errors
    /// When the box ends before that.
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(drop)
    }

    /// Version and flags of a full box (ISO 14496-12 4.2): 8 and 24 bits.
    ///
    /// # Errors
    /// If the box ends before them.
    pub fn version(&mut self) -> Result<(u8, u32)> {
        let word = self.u32()?;
        Ok(((word >> 24) as u8, word & 0xff_ffff))
    }

    /// An integer of 64 bits if `wide`, else of 32.
    ///
    /// # Errors
    /// When the box ends before it.
    pub fn u32_or_64(&mut self, wide: bool) -> Result<u64> {
        if wide { self.u64() } else { self.u32().map(u64::from) }
    }

    /// The entry count that follows, where each entry takes at least `each` bytes; larger counts than the rest can
    /// hold are rejected, so that a count can be used to reserve memory.
    ///
    /// # Errors
    /// If there is no count, or it is too large for the box.
    pub fn count(&mut self, each: usize) -> Result<usize> {
        let n = self.u32()? as usize;
        if n.saturating_mul(each) > self.data.len() {
            return Err(self.error_here(format!("it states {n} entries, but has only {} bytes left", self.data.len())));
        }
        Ok(n)
    }

    pub fn rest(&self) -> &'a [u8] {
        self.data
    }

    /// An error about this box, with its position.
    pub fn error_here(&self, what: impl Into<Cow<'static, str>>) -> BoxError {
        BoxError::new(self.kind, self.offset, what)
    }

    fn truncated_error(&self) -> BoxError {
        self.error_here("it is shorter than its fields")
    }
}
