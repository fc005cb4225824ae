//! What is unpacked from an archive, bounded by what is read of it.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use crate::zip::MAX_RATIO;

/// Unpacked bytes that are always read; beyond them, as many for each packed byte as of a zip.
const UNCHECKED_BYTES: u64 = 1 << 30;

/// What is unpacked from a file, unless it is out of proportion to what was read of it.
pub(crate) struct Unpacked<R> {
    plain: R,
    packed: Rc<Cell<u64>>,
    unpacked: u64,
    unchecked: u64,
}

impl<R: Read> Unpacked<R> {
    pub fn reader<P: Read>(file: P, unpack: impl FnOnce(Counted<P>) -> R) -> BufReader<Self> {
        let packed = Rc::new(Cell::new(0));
        let plain = unpack(Counted(file, Rc::clone(&packed)));
        BufReader::new(Self { plain, packed, unpacked: 0, unchecked: UNCHECKED_BYTES })
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buf)?;
        self.unpacked += n as u64;
        if self.unpacked > self.packed.get().saturating_mul(MAX_RATIO).max(self.unchecked) {
            let why = format!("grows beyond {} bytes, {} packed: this is a bomb", self.unpacked, self.packed.get());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(n)
    }
}

/// Counts what is read of a file.
pub(crate) struct Counted<R>(R, Rc<Cell<u64>>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1.set(self.1.get() + n as u64);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn unpacking_is_bounded_by_what_was_packed() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&vec![b' '; 8 << 20]).unwrap();
        let packed = packed.finish().unwrap();
        for (unchecked, is_read) in [(1 << 20, false), (16 << 20, true)] {
            let reader = Unpacked::reader(&packed[..], flate2::read::MultiGzDecoder::new).into_inner();
            let read = io::copy(&mut Unpacked { unchecked, ..reader }, &mut io::sink());
            assert_eq!(read.is_ok(), is_read);
        }
    }
}
