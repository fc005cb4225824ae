//! The fields of a box one after the other, and the error that names the box in which they end too early.

use std::borrow::Cow;

use super::header::{BoxRef, FourCc};

/// A box that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("box `{kind}` at byte {offset}: {what}")]
pub struct BoxError {
    /// Its type.
    pub kind: FourCc,
    /// Where it begins, in bytes from the start of the file or segment.
    pub offset: u64,
    /// What is wrong.
    pub what: Cow<'static, str>,
}

impl BoxError {
    /// From parts.
    pub fn new(kind: FourCc, offset: u64, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, offset, what: what.into() }
    }
}

/// A cursor over a box's content. Every read checks what is left.
#[derive(Clone, Debug)]
pub struct BoxReader<'a> {
    data: &'a [u8],
    kind: FourCc,
    offset: u64,
}

macro_rules! numbers {
    ($($name:ident $type:ty;)*) => {$(
        /// A big-endian number.
        ///
        /// # Errors
        /// When the box ends before it.
        pub fn $name(&mut self) -> Result<$type, BoxError> {
            self.array().map(<$type>::from_be_bytes)
        }
    )*};
}

impl<'a> BoxReader<'a> {
    /// Over the content of a box.
    pub fn from_box(b: &BoxRef<'a>) -> Self {
        Self { data: b.content(), kind: b.kind(), offset: b.offset }
    }

    /// Over some bytes of a box of this type that begins at byte `offset`.
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
    /// When the box ends before them.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BoxError> {
        let (head, rest) = self.data.split_first_chunk().ok_or_else(|| self.truncated_error())?;
        self.data = rest;
        Ok(*head)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// When the box ends before them.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], BoxError> {
        let (head, rest) = self.data.split_at_checked(n).ok_or_else(|| self.truncated_error())?;
        self.data = rest;
        Ok(head)
    }

    /// Passes over `n` bytes.
    ///
    /// # Errors
    /// When the box ends before that.
    pub fn skip(&mut self, n: usize) -> Result<(), BoxError> {
        self.bytes(n).map(drop)
    }

    /// Version and flags of a full box.
    ///
    /// # Errors
    /// When the box ends before them.
    pub fn version(&mut self) -> Result<(u8, u32), BoxError> {
        let word = self.u32()?;
        Ok(((word >> 24) as u8, word & 0xff_ffff))
    }

    /// A number of 64 bits when `wide`, else of 32.
    ///
    /// # Errors
    /// When the box ends before it.
    pub fn u32_or_64(&mut self, wide: bool) -> Result<u64, BoxError> {
        if wide { self.u64() } else { self.u32().map(u64::from) }
    }

    /// How many entries follow, each at least `each` bytes long: a count that cannot fit in what is left is a lie.
    ///
    /// # Errors
    /// When there is no count, or it is one.
    pub fn count(&mut self, each: usize) -> Result<usize, BoxError> {
        let n = self.u32()? as usize;
        if n.saturating_mul(each) > self.data.len() {
            return Err(self.error_here(format!("it states {n} entries, but has only {} bytes left", self.data.len())));
        }
        Ok(n)
    }

    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.data
    }

    /// An error about this box.
    pub fn error_here(&self, what: impl Into<Cow<'static, str>>) -> BoxError {
        BoxError::new(self.kind, self.offset, what)
    }

    fn truncated_error(&self) -> BoxError {
        self.error_here("it is shorter than its fields")
    }
}
