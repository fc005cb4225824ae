//! Reads a zip whose directory may be false, or missing because the file was truncated: then complete entries are found
//! by scanning local headers.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::DeflateDecoder;

use super::{flag, method, signature};

/// Maximum number of entries, which bounds the memory for names.
const MAX_ENTRIES: usize = 2_000_000;
const MAX_DIRECTORY: u64 = 256 << 20;
/// An entry may always expand to this size, in bytes; larger ones are subject to the ratio limit.
const UNCHECKED_BYTES: u64 = 64 << 20;
/// Maximum expanded size of an entry, in bytes. Entries are read into memory as a whole.
const MAX_ENTRY: u64 = 1 << 30;
/// Maximum compression ratio beyond [`UNCHECKED_BYTES`].
const MAX_RATIO: u64 = 200;

#[derive(Clone, Debug)]
pub(crate) struct ZipEntry {
    /// The name with `/` between folders.
    pub name: String,
    method: u16,
    flags: u16,
    packed: u64,
    crc: u32,
    /// Offset of its local header.
    at: u64,
}

pub(crate) struct ZipReader<R> {
    file: R,
    /// Its entries in the order of the directory.
    pub entries: Vec<ZipEntry>,
    /// Why the file is incomplete, if it is truncated.
    pub cut: Option<String>,
    /// Remaining budget of expanded bytes, for all entries together: many small bombs count as one.
    budget: u64,
}

impl<R: Read + Seek> ZipReader<R> {
    /// Finds the entries. A damaged directory is replaced by a scan for local headers, which finds what is complete.
    ///
    /// # Errors
    /// The file cannot be read, or is not a zip.
    pub fn open(mut file: R) -> io::Result<Self> {
        let len = file.seek(SeekFrom::End(0))?;
        let budget = (1 << 30) + len.saturating_mul(MAX_RATIO);
        match directory(&mut file, len) {
            Ok(entries) => Ok(Self { file, entries, cut: None, budget }),
            Err(DirectoryError::Io(e)) => Err(e),
            Err(DirectoryError::Wrong(why)) => {
                let (entries, end) = scan_local_headers(&mut file, len)?;
                if entries.is_empty() && end == 0 {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("this is no zip: {why}")));
                }
                let cut = format!("byte {end} of {len}: the archive breaks off there ({why})");
                Ok(Self { file, entries, cut: Some(cut), budget })
            }
        }
    }

    /// The content of an entry, verified against its checksum.
    ///
    /// # Errors
    /// The error, prefixed by the entry's name.
    pub fn read(&mut self, entry: &ZipEntry) -> Result<Vec<u8>, String> {
        let named = |why: String| format!("'{}': {why}", printable_name(&entry.name));
        // The sizes in the archive are claims: only the bytes that are read count against the limit and the budget.
        let limit = entry.packed.saturating_mul(MAX_RATIO).clamp(UNCHECKED_BYTES, MAX_ENTRY).min(self.budget);
        let content = self.unpack(entry, limit).map_err(|e| named(e.to_string()))?;
        if content.len() as u64 > limit {
            return Err(named(format!("grows beyond {limit} bytes, {} packed: this is a bomb", entry.packed)));
        }
        self.budget -= content.len() as u64;
        if crc32fast::hash(&content) != entry.crc {
            return Err(named("does not fit its checksum".to_owned()));
        }
        Ok(content)
    }

    /// Reads at most one byte more than the limit.
    fn unpack(&mut self, entry: &ZipEntry, limit: u64) -> io::Result<Vec<u8>> {
        if entry.flags & flag::ENCRYPTED != 0 {
            return Err(io::Error::other("is encrypted: save the archive without a password"));
        }
        self.file.seek(SeekFrom::Start(entry.at))?;
        let mut file = BufReader::new(&mut self.file);
        let head: [u8; 30] = take(&mut file)?;
        if u32_at(&head, 0) != signature::LOCAL {
            return Err(io::Error::other("is not where the directory says"));
        }
        // The local header has a name and an extra field of its own, whose lengths may differ from the directory's.
        let skip = u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
        io::copy(&mut file.by_ref().take(skip), &mut io::sink())?;
        let packed = file.take(entry.packed);
        let mut content = Vec::new();
        // One byte more than the limit shows that there is more.
        match entry.method {
            method::STORED => packed.take(limit + 1).read_to_end(&mut content)?,
            method::DEFLATE => DeflateDecoder::new(packed).take(limit + 1).read_to_end(&mut content)?,
            other => return Err(io::Error::other(format!("is packed by method {other}, which is not known"))),
        };
        Ok(content)
    }
}

fn printable_name(name: &str) -> String {
    name.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect()
}

enum DirectoryError {
    Io(io::Error),
    Wrong(&'static str),
}

impl From<io::Error> for DirectoryError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::Wrong("its directory is cut off"),
            _ => Self::Io(e),
        }
    }
}

/// The entries listed by the directory at the end.
fn directory(file: &mut (impl Read + Seek), len: u64) -> Result<Vec<ZipEntry>, DirectoryError> {
    let (count, size, at) = end(file, len)?;
    if size > MAX_DIRECTORY || count > MAX_ENTRIES as u64 {
        return Err(DirectoryError::Wrong("its directory is too large"));
    }
    if at.checked_add(size).is_none_or(|end| end > len) {
        return Err(DirectoryError::Wrong("its directory has a false offset"));
    }
    file.seek(SeekFrom::Start(at))?;
    let mut records = BufReader::new(file.take(size));
    let mut entries = Vec::new();
    while entries.len() < MAX_ENTRIES && !records.fill_buf()?.is_empty() {
        entries.push(record(&mut records)?);
    }
    // A count of 65535 stands for "see the zip64 record".
    if entries.len() as u64 != count && count < u64::from(u16::MAX) {
        return Err(DirectoryError::Wrong("its directory has a false length"));
    }
    Ok(entries)
}

/// Entry count, size and offset of the directory.
fn end(file: &mut (impl Read + Seek), len: u64) -> Result<(u64, u64, u64), DirectoryError> {
    // A comment of up to 64 KiB may follow the record.
    let begin = len.saturating_sub(22 + 0xffff);
    file.seek(SeekFrom::Start(begin))?;
    let mut tail = Vec::new();
    file.take(22 + 0xffff).read_to_end(&mut tail)?;
    // Searched from the end: earlier data may contain the signature too.
    let places = (0..tail.len().saturating_sub(21)).rev();
    let found = places.into_iter().find(|&at| u32_at(&tail, at) == signature::END);
    let at = found.ok_or(DirectoryError::Wrong("it has no directory at its end"))?;
    let usual =
        (u64::from(u16_at(&tail, at + 10)), u64::from(u32_at(&tail, at + 12)), u64::from(u32_at(&tail, at + 16)));
    // The locator of the zip64 record, if any, stands right before.
    let large = at.checked_sub(20).filter(|&l| u32_at(&tail, l) == signature::LOCATOR_64);
    let Some(locator) = large else { return Ok(usual) };
    file.seek(SeekFrom::Start(u64_at(&tail, locator + 8).min(len)))?;
    let record: [u8; 56] = take(file)?;
    if u32_at(&record, 0) != signature::END_64 {
        return Err(DirectoryError::Wrong("its directory has a false end"));
    }
    Ok((u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48)))
}

fn record(records: &mut impl Read) -> Result<ZipEntry, DirectoryError> {
    let head: [u8; 46] = take(records)?;
    if u32_at(&head, 0) != signature::CENTRAL {
        return Err(DirectoryError::Wrong("its directory is damaged"));
    }
    let name = text(records, u16_at(&head, 28))?;
    let extra = bytes(records, u16_at(&head, 30))?;
    bytes(records, u16_at(&head, 32))?;
    let [packed, size, at] = [20, 24, 42].map(|place| u32_at(&head, place));
    let mut large = large_sizes(&extra);
    // A value of all ones stands for a 64-bit value in the extra field.
    let mut wide = |n: u32| if n == u32::MAX { large.next().unwrap_or(u64::MAX) } else { u64::from(n) };
    // The order in the extra field is fixed (4.5.3).
    let (_, packed, at) = (wide(size), wide(packed), wide(at));
    let (flags, method, crc) = (u16_at(&head, 8), u16_at(&head, 10), u32_at(&head, 16));
    Ok(ZipEntry { name, method, flags, packed, crc, at })
}

/// The 64-bit values of an extra field: those of the record with id 1 (zip64).
fn large_sizes(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let mut found: &[u8] = &[];
    while rest.len() >= 4 {
        let (id, len) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let Some(body) = rest.get(4..4 + len) else { break };
        if id == 1 {
            found = body;
        }
        rest = &rest[4 + len..];
    }
    found.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).collect::<Vec<_>>().into_iter()
}

/// Finds complete entries by scanning, and the end of the last one.
fn scan_local_headers(file: &mut (impl Read + Seek), len: u64) -> io::Result<(Vec<ZipEntry>, u64)> {
    let mut entries = Vec::new();
    let mut at = 0;
    while entries.len() < MAX_ENTRIES {
        file.seek(SeekFrom::Start(at))?;
        match local(file, at, len) {
            Ok(Some((entry, end))) => {
                entries.push(entry);
                at = end;
            }
            Ok(None) => break,
            Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput) => break,
            Err(e) => return Err(e),
        }
    }
    Ok((entries, at))
}

/// The entry of the next local header, and its end; `None` if there is no complete one.
fn local(file: &mut (impl Read + Seek), at: u64, len: u64) -> io::Result<Option<(ZipEntry, u64)>> {
    let mut file = BufReader::new(file);
    let head: [u8; 30] = take(&mut file)?;
    if u32_at(&head, 0) != signature::LOCAL {
        return Ok(None);
    }
    let (flags, method) = (u16_at(&head, 6), u16_at(&head, 8));
    let (mut crc, packed, size) = (u32_at(&head, 14), u32_at(&head, 18), u32_at(&head, 22));
    let name = text(&mut file, u16_at(&head, 26))?;
    let extra = bytes(&mut file, u16_at(&head, 28))?;
    let begin = at + 30 + u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
    // Without a data descriptor, the sizes are in the header.
    let (packed, end) = if flags & flag::DESCRIPTOR == 0 {
        let mut large = large_sizes(&extra);
        let _ = (size == u32::MAX).then(|| large.next());
        let packed = if packed == u32::MAX { large.next().unwrap_or(u64::MAX) } else { u64::from(packed) };
        (packed, begin.saturating_add(packed))
    } else if method == method::DEFLATE {
        // Deflate data is self-terminating.
        // Decompressed only to find its end.
        let mut decoder = DeflateDecoder::new(&mut file);
        io::copy(&mut decoder.by_ref().take(MAX_ENTRY), &mut io::sink())?;
        let (packed, size) = (decoder.total_in(), decoder.total_out());
        let wide = packed > u64::from(u32::MAX) || size > u64::from(u32::MAX);
        let tail: [u8; 8] = take(&mut file)?;
        if u32_at(&tail, 0) != signature::DESCRIPTOR {
            return Ok(None);
        }
        crc = u32_at(&tail, 4);
        // The descriptor has a signature, a checksum and two sizes of four or eight bytes.
        (packed, begin + packed + if wide { 24 } else { 16 })
    } else {
        // Stored data with unknown size has no recognisable end.
        return Ok(None);
    };
    let entry = ZipEntry { name, method, flags, packed, crc, at };
    Ok((end <= len).then_some((entry, end)))
}

fn text(file: &mut impl Read, len: u16) -> io::Result<String> {
    // Names of flows' files are ASCII; others are decoded lossily.
    Ok(String::from_utf8_lossy(&bytes(file, len)?).replace('\\', "/"))
}

fn bytes(file: &mut impl Read, len: u16) -> io::Result<Vec<u8>> {
    let mut out = vec![0; usize::from(len)];
    file.read_exact(&mut out)?;
    Ok(out)
}

fn take<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut out = [0; N];
    file.read_exact(&mut out)?;
    Ok(out)
}

/// Little-endian integers; zero if out of range.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
