//! The segment index (ISO 14496-12 8.16.3): positions of a file's subsegments.

use super::box_reader::BoxReader;
use super::header::{BoxRef, Result};

/// A `sidx` box (ISO 14496-12 8.16.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Units per second of all times in the box.
    pub timescale: u32,
    /// Presentation time of the first subsegment, in units.
    pub earliest: u64,
    /// File offset of the first referenced subsegment; the others follow without gaps.
    pub first: u64,
    pub references: Vec<IndexReference>,
}

/// One reference of a `sidx`: the bytes of a subsegment, or of another index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexReference {
    /// Whether it refers to another `sidx` instead of media, which has to be read as well.
    pub index: bool,
    pub offset: u64,
    pub size: u32,
    /// Duration in units of the index's `timescale`.
    pub duration: u32,
    /// Whether it begins with a stream access point, where decoding may begin.
    pub starts_with_sap: bool,
}

impl SegmentIndex {
    /// Reads the box; offsets are relative to its end, as the standard defines.
    ///
    /// # Errors
    /// If the box is truncated or declares more references than it contains.
    pub fn read(b: &BoxRef<'_>) -> Result<Self> {
        let mut f = BoxReader::from_box(b);
        let (version, _) = f.version()?;
        f.skip(4)?;
        let timescale = f.u32()?;
        if timescale == 0 {
            return Err(b.error_here("its timescale is 0"));
        }
        let earliest = f.u32_or_64(version != 0)?;
        let gap = f.u32_or_64(version != 0)?;
        f.skip(2)?;
        let count = f.u16()?;
        let far = || b.error_here("its offsets are too large");
        let first = (b.offset + b.whole.len() as u64).checked_add(gap).ok_or_else(far)?;
        let mut offset = first;
        let mut references = Vec::with_capacity(usize::from(count).min(f.rest().len() / 12));
        for _ in 0..count {
            let (word, duration, sap) = (f.u32()?, f.u32()?, f.u32()?);
            let size = word & 0x7fff_ffff;
            let (index, starts_with_sap) = (word >> 31 == 1, sap >> 31 == 1);
            references.push(IndexReference { index, offset, size, duration, starts_with_sap });
            offset = offset.checked_add(u64::from(size)).ok_or_else(far)?;
        }
        Ok(Self { timescale, earliest, first, references })
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::boxes;
    use super::*;

    #[test]
    fn sidx_references_are_contiguous_after_the_index() {
        let mut data = vec![0, 0, 0, 56];
        data.extend(b"sidx");
        for word in [0, 1, 90_000, 180_000, 10, 2, 1000, 90_000, 1 << 31, 1 << 31 | 500, 180_000, 0] {
            data.extend(u32::to_be_bytes(word));
        }
        let one = boxes(&data, 100).next().unwrap().unwrap();
        let index = SegmentIndex::read(&one).unwrap();
        assert_eq!((index.timescale, index.earliest, index.first), (90_000, 180_000, 166));
        let shown: Vec<_> = index.references.iter().map(|r| (r.index, r.offset, r.size, r.starts_with_sap)).collect();
        assert_eq!(shown, [(false, 166, 1000, true), (true, 1166, 500, false)]);
        let short = boxes(&data[..56], 0).next().unwrap().unwrap();
        let cut = BoxRef { whole: &short.whole[..50], ..short };
        assert_eq!(
            SegmentIndex::read(&cut).unwrap_err().to_string(),
            "box `sidx` at byte 0: it is shorter than its fields"
        );
    }
}
