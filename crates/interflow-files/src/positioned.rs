//! Reading at an offset, for readers that share a file.

use std::fs::File;
use std::io;

/// Fills `buffer` from the bytes at `offset`. On Windows this moves the file's cursor.
///
/// # Errors
/// The file ends before, or cannot be read.
#[cfg(unix)]
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Fills `buffer` from the bytes at `offset`. On Windows this moves the file's cursor.
///
/// # Errors
/// The file ends before, or cannot be read.
#[cfg(windows)]
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_at_the_offset_are_read_or_none() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let mut four = [0; 4];
        read_exact_at(&file, &mut four, 6).unwrap();
        assert_eq!(&four, b"6789");
        assert_eq!(read_exact_at(&file, &mut four, 7).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
