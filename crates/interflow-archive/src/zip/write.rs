//! Writes a zip in one pass: sizes follow the data, so that the output need not be seekable.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::{flag, method, signature};

struct CentralEntry {
    name: String,
    crc: u32,
    packed: u64,
    size: u64,
    at: u64,
}

pub(crate) struct ZipWriter<W: Write> {
    out: CountingWriter<W>,
    entries: Vec<CentralEntry>,
    /// Date and time in MS-DOS format.
    when: u32,
}

impl<W: Write> ZipWriter<W> {
    pub fn new(out: W) -> Self {
        // 1980-01-01: flows contain their own times, and the output is deterministic.
        Self { out: CountingWriter { out, count: 0 }, entries: Vec::new(), when: 0x0021_0000 }
    }

    /// Writes one compressed entry; `fill` writes its content.
    pub fn entry(&mut self, name: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let at = self.out.count;
        let mut head = Vec::with_capacity(50 + name.len());
        put32(&mut head, signature::LOCAL);
        // Version 4.5 of the format is the first with 64-bit sizes.
        put16(&mut head, 45);
        put16(&mut head, flag::DESCRIPTOR | flag::UTF8);
        put16(&mut head, method::DEFLATE);
        put32(&mut head, self.when);
        // The checksum and both sizes follow the data.
        [0, 0, 0].iter().for_each(|n| put32(&mut head, *n));
        put16(&mut head, name.len() as u16);
        put16(&mut head, 0);
        head.extend_from_slice(name.as_bytes());
        self.out.write_all(&head)?;
        let begin = self.out.count;
        let (crc, size) = {
            // Fast compression: bodies are often compressed already.
            let out = DeflateEncoder::new(&mut self.out, Compression::fast());
            let mut content = EntryWriter { out, crc: 0, size: 0 };
            fill(&mut content)?;
            content.out.try_finish()?;
            (content.crc, content.size)
        };
        let packed = self.out.count - begin;
        self.descriptor(crc, packed, size)?;
        self.entries.push(CentralEntry { name: name.to_owned(), crc, packed, size, at });
        Ok(())
    }

    /// The data descriptor (4.3.9) has no flag for its width: readers detect four or eight bytes per size by whether
    /// the sizes match.
    fn descriptor(&mut self, crc: u32, packed: u64, size: u64) -> io::Result<()> {
        let mut tail = Vec::with_capacity(24);
        put32(&mut tail, signature::DESCRIPTOR);
        put32(&mut tail, crc);
        if packed > u64::from(u32::MAX) || size > u64::from(u32::MAX) {
            put64(&mut tail, packed);
            put64(&mut tail, size);
        } else {
            put32(&mut tail, packed as u32);
            put32(&mut tail, size as u32);
        }
        self.out.write_all(&tail)
    }

    pub fn finish(&mut self) -> io::Result<()> {
        let begin = self.out.count;
        for entry in &self.entries {
            let record = central(entry, self.when);
            self.out.write_all(&record)?;
        }
        let end = end(self.entries.len() as u64, self.out.count - begin, begin);
        self.out.write_all(&end)?;
        self.out.flush()
    }
}

/// A record of the directory; values above 32 bits are stored in the extra field (4.5.3).
fn central(entry: &CentralEntry, when: u32) -> Vec<u8> {
    let mut extra = Vec::new();
    let mut fitting = |n: u64| {
        u32::try_from(n).ok().filter(|n| *n != u32::MAX).unwrap_or_else(|| {
            put64(&mut extra, n);
            u32::MAX
        })
    };
    // The order is that of the extra field, which `fitting` fills.
    let (size, packed, at) = (fitting(entry.size), fitting(entry.packed), fitting(entry.at));
    let mut out = Vec::with_capacity(50 + entry.name.len());
    put32(&mut out, signature::CENTRAL);
    put16(&mut out, 45);
    put16(&mut out, 45);
    put16(&mut out, flag::DESCRIPTOR | flag::UTF8);
    put16(&mut out, method::DEFLATE);
    put32(&mut out, when);
    [entry.crc, packed, size].iter().for_each(|n| put32(&mut out, *n));
    put16(&mut out, entry.name.len() as u16);
    put16(&mut out, if extra.is_empty() { 0 } else { extra.len() as u16 + 4 });
    // No comment, disk 0, no attributes.
    out.extend_from_slice(&[0; 10]);
    put32(&mut out, at);
    out.extend_from_slice(entry.name.as_bytes());
    if !extra.is_empty() {
        put16(&mut out, 1);
        put16(&mut out, extra.len() as u16);
        out.extend_from_slice(&extra);
    }
    out
}

/// The end of the directory, preceded by its zip64 form if the values require it.
fn end(count: u64, size: u64, at: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if count >= u64::from(u16::MAX) || size >= u64::from(u32::MAX) || at >= u64::from(u32::MAX) {
        put32(&mut out, signature::END_64);
        // The size of the rest of this record.
        put64(&mut out, 44);
        put16(&mut out, 45);
        put16(&mut out, 45);
        out.extend_from_slice(&[0; 8]);
        [count, count, size, at].iter().for_each(|n| put64(&mut out, *n));
        put32(&mut out, signature::LOCATOR_64);
        put32(&mut out, 0);
        // The locator points to the zip64 record, which follows the directory.
        put64(&mut out, at + size);
        put32(&mut out, 1);
    }
    put32(&mut out, signature::END);
    put32(&mut out, 0);
    // A reader takes values of all ones from the zip64 record.
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    put16(&mut out, count);
    put16(&mut out, count);
    put32(&mut out, u32::try_from(size).unwrap_or(u32::MAX));
    put32(&mut out, u32::try_from(at).unwrap_or(u32::MAX));
    put16(&mut out, 0);
    out
}

struct EntryWriter<W: Write> {
    out: DeflateEncoder<W>,
    crc: u32,
    size: u64,
}

impl<W: Write> Write for EntryWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only what the encoder took counts: it may take less than it was given.
        let n = self.out.write(bytes)?;
        let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
        crc.update(&bytes[..n]);
        self.crc = crc.finalize();
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Not passed on: a flush in the middle would make the compression worse.
        Ok(())
    }
}

struct CountingWriter<W> {
    out: W,
    count: u64,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.count += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn put16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}
