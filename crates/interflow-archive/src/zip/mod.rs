//! Zip files, as needed for archives of flows: written in one pass to any output, and read defensively, since a zip's
//! directory may contain false data (PKWARE APPNOTE 6.3).

mod read;
mod write;

pub(super) use read::{ZipEntry, ZipReader};
pub(super) use write::ZipWriter;

mod signature {
    pub const LOCAL: u32 = 0x0403_4b50;
    pub const DESCRIPTOR: u32 = 0x0807_4b50;
    pub const CENTRAL: u32 = 0x0201_4b50;
    pub const END: u32 = 0x0605_4b50;
    pub const END_64: u32 = 0x0606_4b50;
    pub const LOCATOR_64: u32 = 0x0706_4b50;
}

/// Compression methods: stored or deflate.
mod method {
    pub const STORED: u16 = 0;
    pub const DEFLATE: u16 = 8;
}

mod flag {
    pub const ENCRYPTED: u16 = 1;
    /// The sizes follow the data.
    pub const DESCRIPTOR: u16 = 1 << 3;
    pub const UTF8: u16 = 1 << 11;
}
