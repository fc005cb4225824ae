//! Movie fragments (`moof`, ISO 14496-12 8.8), and the positions of their samples once defaults are applied.

use std::ops::Range;

use super::box_reader::BoxReader;
use super::header::{BoxError, BoxRef, Result};
use super::movie::FragmentDefaults;

/// Maximum number of samples per fragment; a run may declare any number without a byte for each.
pub const MAX_SAMPLES: usize = 1 << 20;

/// The content of a `moof` (ISO 14496-12 8.8.4).
#[derive(Clone, Debug, Default)]
pub struct MovieFragment {
    /// First byte of the `moof` in the file.
    pub offset: u64,
    pub tracks: Vec<TrackFragment>,
}

/// The content of a `traf`: what `tfhd` and `tfdt` state, and the runs. Fields that are absent there take the defaults
/// of the track's `trex`.
#[derive(Clone, Debug, Default)]
pub struct TrackFragment {
    pub track: u32,
    pub base: Option<u64>,
    pub base_is_moof: bool,
    pub description: Option<u32>,
    /// Default duration, size and flags of its samples.
    pub duration: Option<u32>,
    pub size: Option<u32>,
    pub flags: Option<u32>,
    /// `tfdt`: decoding time of the first sample, in units of the track.
    pub time: Option<u64>,
    pub runs: Vec<TrackRun>,
    /// Range of the `traf`, relative to the first byte of the `moof`.
    pub range: Range<usize>,
}

/// The content of a `trun`: samples that follow each other without a gap.
#[derive(Clone, Debug, Default)]
pub struct TrackRun {
    /// Its start relative to the base; `None` if it follows the previous run.
    pub data_offset: Option<i32>,
    pub samples: Vec<RunSample>,
}

/// The per-sample fields of a run; an absent one takes the default of the fragment, or of the track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSample {
    pub duration: Option<u32>,
    pub size: Option<u32>,
    pub flags: Option<u32>,
    /// Composition time minus decoding time, in units of the track.
    pub composition: i32,
}

/// A sample with its position and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedSample {
    pub offset: u64,
    pub size: u32,
    pub duration: u32,
    /// Composition time minus decoding time, in units of the track.
    pub composition: i32,
    pub flags: u32,
    /// The run that contains it, from 0; `saio` may have one offset per run.
    pub run: u32,
}

impl LocatedSample {
    /// Whether decoding may begin here (`sample_is_non_sync_sample` is not set).
    pub fn is_sync(&self) -> bool {
        self.flags & 0x1_0000 == 0
    }
}

impl MovieFragment {
    /// Reads a `moof` box.
    ///
    /// # Errors
    /// If a box is malformed, or declares more than 1,048,576 samples.
    pub fn read(moof: &BoxRef<'_>) -> Result<Self> {
        let mut fragment = Self { offset: moof.offset, tracks: Vec::new() };
        // For all tracks together, since each run may declare any number.
        let mut budget = MAX_SAMPLES;
        for b in moof.children() {
            let b = b?;
            if b.kind() == b"traf" {
                let at = (b.offset - moof.offset) as usize;
                let mut track = TrackFragment { range: at..at + b.whole.len(), ..TrackFragment::default() };
                track.fill(&b, &mut budget)?;
                fragment.tracks.push(track);
            }
        }
        Ok(fragment)
    }

    /// Computes the positions of all samples; `defaults` returns a track's `trex`.
    ///
    /// # Errors
    /// If an offset exceeds 64 bits.
    pub fn locate_samples(&self, mut defaults: impl FnMut(u32) -> FragmentDefaults) -> Result<Vec<Vec<LocatedSample>>> {
        let mut all = Vec::with_capacity(self.tracks.len());
        // ISO 14496-12 8.8.7.1: positions of a track without a base continue after those of the previous one.
        let mut end = self.offset;
        for (i, track) in self.tracks.iter().enumerate() {
            let base = match track.base {
                Some(base) => base,
                // Without a base of its own, a track starts where the previous one ended.
                None if track.base_is_moof || i == 0 => self.offset,
                None => end,
            };
            let placed = track.locate_samples(base, defaults(track.track), self.offset)?;
            end = placed.last().map_or(end, |p| p.offset.saturating_add(u64::from(p.size)));
            all.push(placed);
        }
        Ok(all)
    }
}

impl TrackFragment {
    fn fill(&mut self, traf: &BoxRef<'_>, budget: &mut usize) -> Result<()> {
        let mut has_header = false;
        for b in traf.children() {
            let b = b?;
            match &b.kind().0 {
                b"tfhd" => {
                    self.header(&b)?;
                    has_header = true;
                }
                b"tfdt" => {
                    let mut f = BoxReader::from_box(&b);
                    let (version, _) = f.version()?;
                    self.time = Some(f.u32_or_64(version == 1)?);
                }
                b"trun" => self.runs.push(TrackRun::read(&b, budget)?),
                _ => {}
            }
        }
        if has_header { Ok(()) } else { Err(traf.error_here("it has no tfhd")) }
    }

    fn header(&mut self, b: &BoxRef<'_>) -> Result<()> {
        let mut f = BoxReader::from_box(b);
        let (_, flags) = f.version()?;
        self.track = f.u32()?;
        let has = |bit: u32| flags & bit != 0;
        self.base = has(1).then(|| f.u64()).transpose()?;
        self.description = has(2).then(|| f.u32()).transpose()?;
        self.duration = has(8).then(|| f.u32()).transpose()?;
        self.size = has(0x10).then(|| f.u32()).transpose()?;
        self.flags = has(0x20).then(|| f.u32()).transpose()?;
        self.base_is_moof = has(0x2_0000);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.runs.iter().map(|r| r.samples.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn locate_samples(&self, base: u64, defaults: FragmentDefaults, moof: u64) -> Result<Vec<LocatedSample>> {
        let mut placed = Vec::with_capacity(self.len());
        let mut at = base;
        for (run, r) in (0..).zip(&self.runs) {
            let far = || {
                let what = format!("a run of track {} begins or ends outside of any file", self.track);
                BoxError::new(super::FourCc(*b"trun"), moof, what)
            };
            if let Some(offset) = r.data_offset {
                at = base.checked_add_signed(i64::from(offset)).ok_or_else(far)?;
            }
            for s in &r.samples {
                let size = s.size.or(self.size).unwrap_or(defaults.size);
                placed.push(LocatedSample {
                    offset: at,
                    size,
                    duration: s.duration.or(self.duration).unwrap_or(defaults.duration),
                    composition: s.composition,
                    flags: s.flags.or(self.flags).unwrap_or(defaults.flags),
                    run,
                });
                at = at.checked_add(u64::from(size)).ok_or_else(far)?;
            }
        }
        Ok(placed)
    }
}

impl TrackRun {
    fn read(b: &BoxRef<'_>, budget: &mut usize) -> Result<Self> {
        let mut f = BoxReader::from_box(b);
        let (_, flags) = f.version()?;
        let has = |bit: u32| flags & bit != 0;
        // Four bytes for each field that the flags declare.
        let each = 4 * (flags >> 8 & 15).count_ones() as usize;
        let count = f.count(each)?;
        *budget = budget.checked_sub(count).ok_or_else(|| b.error_here("its fragment has too many samples"))?;
        let data_offset = has(1).then(|| f.i32()).transpose()?;
        let first_flags = has(4).then(|| f.u32()).transpose()?;
        let mut samples = Vec::with_capacity(count);
        for i in 0..count {
            samples.push(RunSample {
                duration: has(0x100).then(|| f.u32()).transpose()?,
                size: has(0x200).then(|| f.u32()).transpose()?,
                flags: if has(0x400) { Some(f.u32()?) } else { first_flags.filter(|_| i == 0) },
                // Version 0 defines it as unsigned, but writers store negative offsets there anyway.
                composition: if has(0x800) { f.i32()? } else { 0 },
            });
        }
        Ok(Self { data_offset, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::boxes;
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(8 + content.len() as u32).to_be_bytes()[..], kind, content].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn read(trafs: &[Vec<u8>]) -> Result<MovieFragment> {
        let moof = boxed(b"moof", &trafs.concat());
        MovieFragment::read(&boxes(&moof, 5000).next().unwrap().unwrap())
    }

    #[test]
    fn sizes_come_from_run_then_header_then_trex() {
        let own = boxed(b"trun", &words(&[0x201, 2, 100, 7, 8]));
        let behind = boxed(b"trun", &words(&[0, 1]));
        let with_header = boxed(b"traf", &[boxed(b"tfhd", &words(&[0x2_0010, 1, 9])), own, behind].concat());
        let bare = boxed(b"trun", &words(&[0x4, 2, 0x1_0000]));
        let without = boxed(b"traf", &[boxed(b"tfhd", &words(&[0, 2])), bare].concat());
        let fragment = read(&[with_header, without]).unwrap();
        let placed = fragment.locate_samples(|_| FragmentDefaults { size: 3, ..FragmentDefaults::default() }).unwrap();
        let shown: Vec<Vec<_>> =
            placed.iter().map(|t| t.iter().map(|p| (p.offset, p.size, p.is_sync())).collect()).collect();
        assert_eq!(shown[0], [(5100, 7, true), (5107, 8, true), (5115, 9, true)]);
        assert_eq!(shown[1], [(5124, 3, false), (5127, 3, true)], "behind the track before it");
    }

    #[test]
    fn absolute_base_offset_and_negative_run_offset_are_applied() {
        let header = boxed(b"tfhd", &words(&[0x1, 1, 0, 20_000]));
        let run = boxed(b"trun", &words(&[0x201, 1, -100_i32 as u32, 4]));
        let fragment = read(&[boxed(b"traf", &[header, run].concat())]).unwrap();
        assert_eq!(fragment.locate_samples(|_| FragmentDefaults::default()).unwrap()[0][0].offset, 19_900);
    }

    #[test]
    fn fragments_with_false_sizes_are_rejected() {
        let header = |flags| boxed(b"tfhd", &words(&[flags, 1, 0, 50]));
        let traf = |parts: &[Vec<u8>]| boxed(b"traf", &parts.concat());
        let bomb = boxed(b"trun", &words(&[0, u32::MAX]));
        assert!(read(&[traf(&[header(1), bomb])]).unwrap_err().to_string().contains("too many samples"));
        let short = boxed(b"trun", &words(&[0x200, 3, 1, 2]));
        assert!(read(&[traf(&[header(1), short])]).unwrap_err().to_string().contains("3 entries"));
        assert!(read(&[traf(&[])]).unwrap_err().to_string().contains("no tfhd"));
        let before_the_file = boxed(b"trun", &words(&[0x1, 1, -100_i32 as u32]));
        let fragment = read(&[traf(&[header(1), before_the_file])]).unwrap();
        assert!(fragment.locate_samples(|_| FragmentDefaults::default()).is_err());
    }
}
