//! The sample table of a progressive file (ISO 14496-12 8.6 and 8.7): position and time of each sample.

use super::box_reader::BoxReader;
use super::header::{BoxRef, Result};

/// Maximum number of samples per track: more than 18 hours of video at 60 frames per second.
const MAX_TABLE_SAMPLES: usize = 4 << 20;

/// The boxes of an `stbl` that position samples, as stored: expanded, a long film would take many times the memory.
#[derive(Clone, Debug, Default)]
pub struct SampleTable {
    sizes: SampleSizes,
    chunks: Vec<u64>,
    /// First chunk (from 1), samples per chunk, sample-description-index.
    runs: Vec<(u32, u32, u32)>,
    /// Number of samples, and the duration of each (`stts`).
    times: Vec<(u32, u32)>,
    /// Number of samples, and the composition offset of each (`ctts`).
    offsets: Vec<(u32, i32)>,
    /// Numbers of the sync samples from 1 (`stss`); `None` if every sample is one.
    sync: Option<Vec<u32>>,
}

#[derive(Clone, Debug)]
enum SampleSizes {
    Same(u32, usize),
    Each(Vec<u32>),
}

impl Default for SampleSizes {
    fn default() -> Self {
        Self::Same(0, 0)
    }
}

/// One sample of a progressive file: `size` bytes from byte `offset`. Times are in units of the track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedSample {
    pub offset: u64,
    pub size: u32,
    /// Sample-description-index, from 1.
    pub description: u32,
    /// The chunk that contains it, from 0.
    pub chunk: u32,
    /// Decoding time in units of the track, from 0.
    pub dts: u64,
    pub duration: u32,
    /// Composition time minus decoding time, in units of the track.
    pub composition: i32,
    /// Whether decoding may begin here: a sync sample.
    pub sync: bool,
}

impl SampleTable {
    /// Reads the position tables of an `stbl`.
    ///
    /// # Errors
    /// If a box is malformed or declares more than 4,194,304 samples.
    pub fn read(stbl: &BoxRef<'_>) -> Result<Self> {
        let mut table = Self::default();
        for b in stbl.children() {
            let b = b?;
            let mut f = BoxReader::from_box(&b);
            match &b.kind().0 {
                b"stsz" => table.sizes = sizes(&mut f)?,
                b"stz2" => table.sizes = compact_sizes(&mut f)?,
                b"stco" => table.chunks = list(&mut f, 4, |f| f.u32().map(u64::from))?,
                b"co64" => table.chunks = list(&mut f, 8, BoxReader::u64)?,
                b"stsc" => table.runs = list(&mut f, 12, |f| Ok((f.u32()?, f.u32()?, f.u32()?)))?,
                b"stts" => table.times = list(&mut f, 8, |f| Ok((f.u32()?, f.u32()?)))?,
                b"ctts" => table.offsets = list(&mut f, 8, |f| Ok((f.u32()?, f.i32()?)))?,
                b"stss" => table.sync = Some(list(&mut f, 4, BoxReader::u32)?),
                _ => {}
            }
        }
        if table.len() > MAX_TABLE_SAMPLES {
            return Err(
                stbl.error_here(format!("it has {} samples; {MAX_TABLE_SAMPLES} are taken at the most", table.len()))
            );
        }
        Ok(table)
    }

    pub fn len(&self) -> usize {
        match &self.sizes {
            SampleSizes::Same(_, n) => *n,
            SampleSizes::Each(all) => all.len(),
        }
    }

    /// Whether there are no samples, as in an init segment, whose samples come with fragments.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples in decoding order. Ends early if the chunks do, so compare the count with [`len`](Self::len).
    pub fn iter(&self) -> impl Iterator<Item = IndexedSample> + '_ {
        let mut times = RunLengthIter::new(&self.times);
        let mut offsets = RunLengthIter::new(&self.offsets);
        let mut sync = self.sync.as_ref().map(|s| s.iter().copied().peekable());
        let (mut chunk, mut run, mut in_chunk, mut at, mut dts) = (0_usize, 0_usize, 0_u32, None, 0_u64);
        (0..self.len()).map_while(move |i| {
            let size = match &self.sizes {
                SampleSizes::Same(size, _) => *size,
                SampleSizes::Each(all) => *all.get(i)?,
            };
            let offset: u64 = if let Some(at) = at { at } else { *self.chunks.get(chunk)? };
            // A run applies from its first chunk on, until that of the next run.
            while self.runs.get(run + 1).is_some_and(|next| next.0 as usize <= chunk + 1) {
                run += 1;
            }
            let (_, per_chunk, description) = *self.runs.get(run)?;
            let duration = times.next().unwrap_or(0);
            let sync = sync.as_mut().is_none_or(|s| s.next_if(|n| *n as usize == i + 1).is_some());
            let composition = offsets.next().unwrap_or(0);
            let sample =
                IndexedSample { offset, size, description, chunk: chunk as u32, dts, duration, composition, sync };
            dts = dts.saturating_add(u64::from(duration));
            in_chunk += 1;
            at = Some(offset.checked_add(u64::from(size))?);
            // The next chunk has an offset of its own.
            if in_chunk >= per_chunk {
                (in_chunk, at, chunk) = (0, None, chunk + 1);
            }
            Some(sample)
        })
    }
}

/// Expands run-length encoded values, and ends when the runs do.
struct RunLengthIter<'a, T> {
    runs: std::slice::Iter<'a, (u32, T)>,
    left: u32,
    value: Option<T>,
}

impl<'a, T: Copy> RunLengthIter<'a, T> {
    fn new(runs: &'a [(u32, T)]) -> Self {
        Self { runs: runs.iter(), left: 0, value: None }
    }

    fn next(&mut self) -> Option<T> {
        while self.left == 0 {
            let (count, value) = *self.runs.next()?;
            (self.left, self.value) = (count, Some(value));
        }
        self.left -= 1;
        self.value
    }
}

/// A list with its count, each entry of which takes at least `each` bytes.
fn list<'a, T>(
    f: &mut BoxReader<'a>,
    each: usize,
    mut one: impl FnMut(&mut BoxReader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    f.version()?;
    let count = f.count(each)?;
    (0..count).map(|_| one(f)).collect()
}

fn sizes(f: &mut BoxReader<'_>) -> Result<SampleSizes> {
    f.version()?;
    let same = f.u32()?;
    if same != 0 {
        return Ok(SampleSizes::Same(same, f.u32()? as usize));
    }
    let count = f.count(4)?;
    (0..count).map(|_| f.u32()).collect::<Result<_, _>>().map(SampleSizes::Each)
}

/// `stz2`: sizes of 4, 8 or 16 bits.
fn compact_sizes(f: &mut BoxReader<'_>) -> Result<SampleSizes> {
    f.version()?;
    let width = f.u32()? & 0xff;
    let count = f.u32()? as usize;
    let bytes = f.rest();
    if bytes.len().saturating_mul(8) < count.saturating_mul(width as usize) {
        return Err(f.error_here("it states more entries than it has"));
    }
    let all = match width {
        4 => (0..count).map(|i| u32::from(bytes[i / 2] >> (4 * (1 - i % 2)) & 15)).collect(),
        8 => bytes[..count].iter().map(|b| u32::from(*b)).collect(),
        16 => bytes[..2 * count].chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).collect(),
        _ => return Err(f.error_here("its field size is not 4, 8 or 16")),
    };
    Ok(SampleSizes::Each(all))
}

#[cfg(test)]
mod tests {
    use super::super::header::boxes;
    use super::*;

    fn boxed(kind: &[u8; 4], words: &[u32]) -> Vec<u8> {
        let mut out = (8 + 4 * words.len() as u32).to_be_bytes().to_vec();
        out.extend(kind);
        out.extend(words.iter().flat_map(|w| w.to_be_bytes()));
        out
    }

    #[test]
    fn samples_are_located_by_chunk_and_timed_by_run() {
        let content = [
            boxed(b"stsz", &[0, 0, 5, 10, 20, 30, 40, 50]),
            boxed(b"stco", &[0, 3, 1000, 2000, 3000]),
            boxed(b"stsc", &[0, 2, 1, 2, 1, 3, 1, 2]),
            boxed(b"stts", &[0, 2, 3, 100, 2, 50]),
            boxed(b"ctts", &[0, 1, 5, 7]),
            boxed(b"stss", &[0, 2, 1, 4]),
        ]
        .concat();
        let mut stbl = (8 + content.len() as u32).to_be_bytes().to_vec();
        stbl.extend(b"stbl");
        stbl.extend(content);
        let table = SampleTable::read(&boxes(&stbl, 0).next().unwrap().unwrap()).unwrap();
        let shown: Vec<_> =
            table.iter().map(|s| (s.offset, s.size, s.description, s.dts, s.composition, s.sync)).collect();
        assert_eq!(
            shown,
            [
                (1000, 10, 1, 0, 7, true),
                (1010, 20, 1, 100, 7, false),
                (2000, 30, 1, 200, 7, false),
                (2030, 40, 1, 300, 7, true),
                (3000, 50, 2, 350, 7, false),
            ]
        );
    }

    #[test]
    fn impossible_sample_counts_are_refused() {
        for (kind, words) in [
            (b"stsz", &[0, 0, u32::MAX][..]),
            (b"stco", &[0, 2, 0]),
            (b"stsc", &[0, u32::MAX]),
            (b"stz2", &[0, 4, 100, 0]),
            (b"stsz", &[0, 1, u32::MAX]),
        ] {
            let inner = boxed(kind, words);
            let mut stbl = (8 + inner.len() as u32).to_be_bytes().to_vec();
            stbl.extend(b"stbl");
            stbl.extend(inner);
            assert!(SampleTable::read(&boxes(&stbl, 0).next().unwrap().unwrap()).is_err(), "{kind:?} {words:?}");
        }
    }
}
