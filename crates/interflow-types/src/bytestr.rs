//! [`ByteStr`]: UTF-8 text over shared, reference-counted bytes.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

/// UTF-8 text over reference-counted bytes. Cloning copies no text, and parts of a message can be shared with its
/// buffer.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteStr(ByteString);

impl ByteStr {
    pub const fn from_static(s: &'static str) -> Self {
        Self(ByteString::from_static(s))
    }

    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        ByteString::try_from(bytes).ok().map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }
}

impl Deref for ByteStr {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for ByteStr {
    fn from(s: &str) -> Self {
        Self(ByteString::from(s))
    }
}

impl From<String> for ByteStr {
    fn from(s: String) -> Self {
        Self(ByteString::from(s))
    }
}

impl PartialEq<str> for ByteStr {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ByteStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for ByteStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ByteStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
