//! Finds the complete entries of a zip whose directory is missing or damaged, by its local headers.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use flate2::bufread::DeflateDecoder;
use rawzip::CompressionMethod;

use super::entry::{LocalHeader, MAX_ENTRIES, MAX_ENTRY, MAX_NAMES, ZipEntry, entry_name};

/// `PK\x07\x08`, before the checksum and the sizes that follow the data (4.3.9).
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";

/// The entries in the order of the file, and the end of the last one.
pub(super) fn entries(file: &mut (impl Read + Seek), len: u64) -> io::Result<(Vec<ZipEntry>, u64)> {
    let (mut entries, mut names) = (Vec::new(), 0);
    let mut at = 0;
    while entries.len() < MAX_ENTRIES && names < MAX_NAMES {
        file.seek(SeekFrom::Start(at))?;
        match entry(file, at, len) {
            Ok(Some((entry, end))) => {
                names += entry.name.len();
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
fn entry(file: &mut (impl Read + Seek), at: u64, len: u64) -> io::Result<Option<(ZipEntry, u64)>> {
    let mut file = BufReader::new(file);
    let Some(header) = LocalHeader::read(&mut file)? else { return Ok(None) };
    let (mut name, mut extra) = (vec![0; usize::from(header.name_len)], vec![0; usize::from(header.extra_len)]);
    file.read_exact(&mut name)?;
    file.read_exact(&mut extra)?;
    let begin = at + header.size();
    let (packed, crc, end) = if !header.has_descriptor() {
        let packed = header.packed(&extra);
        (packed, header.crc, begin.saturating_add(packed))
    } else if header.method == CompressionMethod::DEFLATE {
        // Deflate data is self-terminating: decompressed only to find its end.
        let mut decoder = DeflateDecoder::new(&mut file);
        io::copy(&mut decoder.by_ref().take(MAX_ENTRY), &mut io::sink())?;
        let (packed, size) = (decoder.total_in(), decoder.total_out());
        let mut descriptor = [0; 8];
        file.read_exact(&mut descriptor)?;
        let [a, b, c, d, crc @ ..] = descriptor;
        if [a, b, c, d] != DESCRIPTOR {
            return Ok(None);
        }
        let is_wide = packed > u64::from(u32::MAX) || size > u64::from(u32::MAX);
        (packed, u32::from_le_bytes(crc), begin + packed + if is_wide { 24 } else { 16 })
    } else {
        // Stored data with unknown size has no recognisable end.
        return Ok(None);
    };
    let is_encrypted = header.is_encrypted();
    let entry = ZipEntry { name: entry_name(&name), method: header.method, is_encrypted, packed, crc, at };
    Ok((end <= len).then_some((entry, end)))
}
