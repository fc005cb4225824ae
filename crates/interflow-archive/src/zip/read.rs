//! Reads a zip whose directory may be false, or missing because the file was truncated.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipArchive};

use super::entry::{LocalHeader, MAX_ENTRIES, MAX_ENTRY, MAX_NAMES, ZipEntry, entry_name};
use super::truncated;

/// An entry may always expand to this size, in bytes; larger ones are subject to the ratio limit.
const UNCHECKED_BYTES: u64 = 64 << 20;
/// Maximum compression ratio beyond [`UNCHECKED_BYTES`].
pub(crate) const MAX_RATIO: u64 = 200;

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
        match directory(&mut file) {
            Ok(entries) => Ok(Self { file, entries, cut: None, budget }),
            Err(DirectoryError::Io(e)) => Err(e),
            Err(DirectoryError::Invalid(why)) => {
                let (entries, end) = truncated::entries(&mut file, len)?;
                if entries.is_empty() && end == 0 {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("this is not a zip: {why}")));
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
        if rawzip::crc32(&content) != entry.crc {
            return Err(named("does not fit its checksum".to_owned()));
        }
        Ok(content)
    }

    /// Reads at most one byte more than the limit.
    fn unpack(&mut self, entry: &ZipEntry, limit: u64) -> io::Result<Vec<u8>> {
        if entry.is_encrypted {
            return Err(io::Error::other("is encrypted: save the archive without a password"));
        }
        self.file.seek(SeekFrom::Start(entry.at))?;
        let mut file = BufReader::new(&mut self.file);
        let Some(header) = LocalHeader::read(&mut file)? else {
            return Err(io::Error::other("is not where the directory says"));
        };
        // The local header has a name and an extra field of its own, whose lengths may differ from the directory's.
        let skip = u64::from(header.name_len) + u64::from(header.extra_len);
        io::copy(&mut file.by_ref().take(skip), &mut io::sink())?;
        let packed = file.take(entry.packed);
        let mut content = Vec::new();
        // One byte more than the limit shows that there is more.
        match entry.method {
            CompressionMethod::STORE => packed.take(limit + 1).read_to_end(&mut content)?,
            CompressionMethod::DEFLATE => DeflateDecoder::new(packed).take(limit + 1).read_to_end(&mut content)?,
            other => {
                let number = other.as_u16();
                return Err(io::Error::other(format!("is packed by method {number}, which is not known")));
            }
        };
        Ok(content)
    }
}

fn printable_name(name: &str) -> String {
    name.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect()
}

enum DirectoryError {
    Io(io::Error),
    Invalid(&'static str),
}

impl From<rawzip::Error> for DirectoryError {
    fn from(error: rawzip::Error) -> Self {
        match error.into_kind() {
            ErrorKind::IO(e) if e.kind() != io::ErrorKind::UnexpectedEof => Self::Io(e),
            ErrorKind::IO(_) | ErrorKind::Eof => Self::Invalid("its directory is cut off"),
            ErrorKind::MissingEndOfCentralDirectory => Self::Invalid("it has no directory at its end"),
            _ => Self::Invalid("its directory is damaged"),
        }
    }
}

/// The entries listed by the directory at the end.
fn directory(file: &mut (impl Read + Seek)) -> Result<Vec<ZipEntry>, DirectoryError> {
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = ZipArchive::from_seekable(file, &mut buffer)?;
    let (mut entries, mut names) = (Vec::new(), 0);
    let mut records = archive.entries(&mut buffer);
    while let Some(record) = records.next_entry()? {
        let name = entry_name(record.file_path().as_bytes());
        names += name.len();
        if entries.len() == MAX_ENTRIES || names > MAX_NAMES {
            return Err(DirectoryError::Invalid("its directory is too large"));
        }
        entries.push(ZipEntry {
            name,
            method: record.compression_method(),
            is_encrypted: record.flags().is_encrypted(),
            packed: record.compressed_size_hint(),
            crc: record.crc32(),
            at: record.local_header_offset(),
        });
    }
    // A count of 65535 stands for "more".
    let count = archive.entries_hint();
    if entries.len() as u64 != count && count < u64::from(u16::MAX) {
        return Err(DirectoryError::Invalid("its directory has a false length"));
    }
    Ok(entries)
}
