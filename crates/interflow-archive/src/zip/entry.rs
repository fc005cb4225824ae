//! The entries of a zip, and their local headers.

use std::io::{self, Read};

use rawzip::CompressionMethod;
use rawzip::extra_fields::{ExtraFieldId, ExtraFields};

/// Maximum number of entries.
pub(super) const MAX_ENTRIES: usize = 2_000_000;
/// Maximum length of all names together, in bytes.
pub(super) const MAX_NAMES: usize = 256 << 20;
/// Maximum expanded size of an entry, in bytes. Entries are read into memory as a whole.
pub(super) const MAX_ENTRY: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct ZipEntry {
    /// The name with `/` between folders. It is never used as a path.
    pub name: String,
    pub(super) method: CompressionMethod,
    pub(super) is_encrypted: bool,
    pub(super) packed: u64,
    pub(super) crc: u32,
    /// Offset of its local header.
    pub(super) at: u64,
}

/// The facts before the data of an entry that depend on nothing else (4.3.7).
pub(super) struct LocalHeader {
    flags: u16,
    pub method: CompressionMethod,
    pub crc: u32,
    /// The compressed and the expanded size, in bytes; all ones if they are elsewhere.
    packed: u32,
    unpacked: u32,
    pub name_len: u16,
    pub extra_len: u16,
}

impl LocalHeader {
    const LEN: usize = 30;

    /// `None` if there is something else.
    pub fn read(file: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; Self::LEN];
        file.read_exact(&mut head)?;
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let header = Self {
            flags: u16_at(6),
            method: CompressionMethod::new(u16_at(8)),
            crc: u32_at(14),
            packed: u32_at(18),
            unpacked: u32_at(22),
            name_len: u16_at(26),
            extra_len: u16_at(28),
        };
        Ok(head.starts_with(b"PK\x03\x04").then_some(header))
    }

    /// Its length with the name and the extra field.
    pub fn size(&self) -> u64 {
        Self::LEN as u64 + u64::from(self.name_len) + u64::from(self.extra_len)
    }

    pub const fn is_encrypted(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether checksum and sizes follow the data.
    pub const fn has_descriptor(&self) -> bool {
        self.flags & (1 << 3) != 0
    }

    /// The compressed size: all ones stand for a 64-bit value in the extra field, behind that of the size (4.5.3).
    pub fn packed(&self, extra: &[u8]) -> u64 {
        if self.packed != u32::MAX {
            return self.packed.into();
        }
        let wide = ExtraFields::new(extra).find(|(id, _)| *id == ExtraFieldId::ZIP64).map_or(&[][..], |(_, data)| data);
        let index = usize::from(self.unpacked == u32::MAX);
        wide.as_chunks::<8>().0.get(index).map_or(u64::MAX, |n| u64::from_le_bytes(*n))
    }
}

/// Names of flows' files are ASCII; others are decoded lossily.
pub(super) fn entry_name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\\', "/")
}
