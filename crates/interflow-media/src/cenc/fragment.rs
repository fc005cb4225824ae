//! Queues samples with the encryption parameters from `traf` and `stbl`, which have the same boxes for them.

use super::auxiliary::{AuxiliarySizes, SencReader, is_senc, offsets, sized_sample};
use super::cipher::CipherBlock;
use super::decrypt_queue::{AuxiliaryRegion, DecryptJob, DecryptQueue};
use super::error::{CencError, Result};
use super::groups::{GroupAssignment, describe, descriptions, is_seig};
use super::init::{FREE, InitSegment, TrackProtection, is_encryption, write_kind};
use super::keys::ContentKeyRing;
use super::protection::SampleProtection;
use crate::bmff::{BoxReader, BoxRef, MovieFragment, boxes};

/// A sample as located by its index.
#[derive(Clone, Copy)]
pub(super) struct SampleLocation {
    pub offset: u64,
    pub size: u32,
    /// The run (`trun`) or chunk that contains it; `saio` may have an offset for each.
    pub run: u32,
    /// The sample entry, from 0. Files count from 1.
    pub entry: usize,
}

/// The samples of one track described by one box.
pub(super) struct SampleSource<'a> {
    pub track: u32,
    /// The `traf` or `stbl` that describes the samples.
    pub holder: BoxRef<'a>,
    /// The enclosing `moof` or `moov`.
    pub around: BoxRef<'a>,
    /// The base of `saio` offsets: the file, or the fragment (ISO 14496-12 8.7.9).
    pub base: u64,
    pub protection: &'a TrackProtection,
    pub samples: &'a [SampleLocation],
}

/// Queues the samples of a `moof` whose media data follows. Clear tracks add nothing. Returns how many samples all
/// tracks have.
pub(super) fn plan_fragment(
    moof: &BoxRef<'_>,
    init: &InitSegment,
    keys: &ContentKeyRing,
    plan: &mut DecryptQueue,
) -> Result<usize> {
    let fragment = MovieFragment::read(moof)?;
    let placed = fragment.locate_samples(|id| init.movie.track(id).map(|t| t.defaults).unwrap_or_default())?;
    plan.tidy();
    for (track, placed) in fragment.tracks.iter().zip(&placed) {
        let matching_track = init.movie.tracks.iter().zip(&init.tracks).find(|(t, _)| t.id == track.track);
        let Some((movie_track, protection)) = matching_track else {
            return Err(CencError::NoInit { offset: moof.offset, track: track.track });
        };
        if protection.entries.iter().all(Option::is_none) {
            continue;
        }
        let description = track.description.unwrap_or(movie_track.defaults.description);
        // Counted from 1; 0, which is invalid, becomes an index that no entry has.
        let entry = (description as usize).wrapping_sub(1);
        let samples: Vec<SampleLocation> =
            placed.iter().map(|p| SampleLocation { offset: p.offset, size: p.size, run: p.run, entry }).collect();
        let Some(Ok(holder)) = moof
            .whole
            .get(track.range.clone())
            .and_then(|traf| boxes(traf, moof.offset + track.range.start as u64).next())
        else {
            continue;
        };
        let base = track.base.unwrap_or(moof.offset);
        let source = SampleSource { track: track.track, holder, around: *moof, base, protection, samples: &samples };
        plan_samples(&source, keys, plan)?;
    }
    plan.sort(moof.offset + moof.whole.len() as u64)?;
    Ok(placed.iter().map(Vec::len).sum())
}

/// Positions of the type fields of all boxes of a `moof` that concern encryption. The boxes keep their size, so no
/// offset changes.
pub(super) fn fragment_patches(moof: &BoxRef<'_>) -> Vec<usize> {
    let type_at = |b: &BoxRef<'_>| (b.offset - moof.offset) as usize + 4;
    let mut patches = Vec::new();
    for b in moof.children().flatten() {
        if b.kind() == b"traf" {
            patches.extend(b.children().flatten().filter(is_encryption).map(|b| type_at(&b)));
        } else if is_encryption(&b) {
            patches.push(type_at(&b));
        }
    }
    patches
}

/// Overwrites the types at these positions with `free`, which readers skip (ISO 14496-12 8.1.2).
pub(super) fn replace_with_free(data: &mut [u8], patches: &[usize]) {
    patches.iter().for_each(|at| write_kind(data, *at, FREE));
}

/// Queues the samples of a `traf` or `stbl`. Boxes may come in any order, so all are read before the first sample is
/// queued.
pub(super) fn plan_samples(source: &SampleSource<'_>, keys: &ContentKeyRing, plan: &mut DecryptQueue) -> Result<()> {
    let scheme = source.protection.entries.iter().flatten().map(|p| p.scheme).next();
    let Some(scheme) = scheme else { return Ok(()) };
    let (mut local, mut assigned) = (Vec::new(), GroupAssignment::default());
    let mut information = AuxiliaryInfo::default();
    for b in source.holder.children() {
        let b = b?;
        if is_senc(&b) {
            let senc = SencReader::open(&b)?;
            senc.expect(source.samples.len())?;
            information.senc = Some(senc);
        } else if is_seig(&b) && b.kind() == b"sgpd" {
            local = descriptions(&b, scheme)?;
        } else if is_seig(&b) {
            assigned = GroupAssignment::read(&b)?;
        } else if b.kind() == b"saiz" {
            information.sizes = AuxiliarySizes::read(&b)?.or(information.sizes);
        } else if b.kind() == b"saio" {
            information.offsets = offsets(&b)?.or(information.offsets);
        }
    }
    for (i, (sample, group)) in source.samples.iter().zip(assigned.each()).enumerate() {
        let entry = source.protection.entries.get(sample.entry).ok_or_else(|| {
            source
                .holder
                .error_here(format!("its samples have sample entry {}, which is missing", sample.entry.wrapping_add(1)))
        })?;
        let Some(entry) = entry else { continue };
        // ISO 23001-7 6: a sample group overrides the track's `tenc`; PIFF's `senc` overrides both if there is no
        // group.
        let grouped = describe(group, &local, &source.protection.groups, &source.holder)?;
        let mut protection = grouped.or(information.override_protection()).copied().unwrap_or(*entry);
        protection.scheme = if information.override_protection().is_some() { protection.scheme } else { entry.scheme };
        let first = plan.subsamples.len();
        let (iv, awaits) = information.next(i, sample, &protection, source, plan)?;
        // A clear sample may have information too, which had to be read to find that of the next one.
        if !protection.protected || sample.size == 0 {
            plan.subsamples.truncate(first);
            continue;
        }
        let setup = plan.setup(keys, &protection, source.track)?;
        let (SampleLocation { offset, size, .. }, track) = (*sample, source.track);
        plan.add(DecryptJob { offset, size, setup, track, iv, subsamples: (0, 0), awaits }, first)?;
    }
    Ok(())
}

/// Where a sample's IV and subsamples come from: `senc`, or `saiz` and `saio`. `senc` comes first: it needs no
/// offsets, which rewriting tools often get wrong.
#[derive(Default)]
struct AuxiliaryInfo<'a> {
    senc: Option<SencReader<'a>>,
    sizes: Option<AuxiliarySizes<'a>>,
    offsets: Option<Vec<u64>>,
    /// Run and position of the next information.
    at: Option<(u32, u64)>,
    /// The region being queued, with its run; adjacent information joins it.
    region: Option<(u32, u32)>,
}

/// The IV, or the region that will contain it with offset and length there.
type SampleIv = (CipherBlock, Option<(u32, u32, u8)>);

impl AuxiliaryInfo<'_> {
    fn override_protection(&self) -> Option<&SampleProtection> {
        self.senc.as_ref()?.over.as_ref()
    }

    /// The information for sample `i`; its subsamples are added to the pool. Must be called for each sample in order.
    fn next(
        &mut self,
        i: usize,
        sample: &SampleLocation,
        protection: &SampleProtection,
        source: &SampleSource<'_>,
        plan: &mut DecryptQueue,
    ) -> Result<SampleIv> {
        if let Some(senc) = &mut self.senc {
            return Ok((senc.next(protection, &mut plan.subsamples)?, None));
        }
        let size = self.sizes.as_ref().map_or(0, |s| s.sample_size(i));
        if size == 0 {
            // Without auxiliary information the whole sample is encrypted with the constant IV.
            if protection.protected && protection.constant_iv.is_none() {
                let what = format!("its sample {} is encrypted, but neither senc nor saiz and saio tell its IV", i + 1);
                return Err(source.holder.error_here(what).into());
            }
            return Ok((protection.constant_iv.unwrap_or_default(), None));
        }
        let at = self.auxiliary_offset(i, sample.run, size, source)?;
        let inside = at.checked_sub(source.around.offset).and_then(|n| usize::try_from(n).ok());
        let around = source.around.whole;
        // Inside the index if possible: then it is available at once.
        match inside.filter(|n| *n < around.len()) {
            Some(n) => {
                let info =
                    around.get(n..n + size).ok_or_else(|| source.holder.error_here("saio points past its fragment"))?;
                let mut f = BoxReader::from_content(info, source.holder.kind(), source.holder.offset);
                Ok((sized_sample(&mut f, protection, &mut plan.subsamples)?, None))
            }
            None => Ok(self.read_from_region(at, sample.run, size, &mut plan.regions)),
        }
    }

    /// The offset of a sample's information: contiguous for all samples, or, with several `saio` entries, per run.
    fn auxiliary_offset(&mut self, i: usize, run: u32, size: usize, source: &SampleSource<'_>) -> Result<u64> {
        let missing = || source.holder.error_here("it has saiz, but no saio that leads to its samples");
        let offsets = self.offsets.as_ref().ok_or_else(missing)?;
        let per_run = offsets.len() > 1;
        let at = match self.at {
            Some((of, at)) if !per_run || of == run => at,
            _ => {
                let index = if per_run { run as usize } else { 0 };
                let offset = offsets.get(index).ok_or_else(missing)?;
                source.base.checked_add(*offset).ok_or_else(missing)?
            }
        };
        debug_assert!(i > 0 || self.at.is_none());
        self.at = Some((run, at.checked_add(size as u64).ok_or_else(missing)?));
        Ok(at)
    }

    /// Information within media data, which has to be waited for. Its length is added to the region.
    fn read_from_region(&mut self, at: u64, run: u32, size: usize, regions: &mut Vec<AuxiliaryRegion>) -> SampleIv {
        let joins = |r: &AuxiliaryRegion| r.offset + r.len == at;
        let index = match self.region {
            Some((index, of)) if of == run && regions.get(index as usize).is_some_and(joins) => index,
            _ => {
                regions.push(AuxiliaryRegion { offset: at, len: 0, have: Vec::new() });
                regions.len() as u32 - 1
            }
        };
        self.region = Some((index, run));
        let within = regions.get_mut(index as usize).map_or(0, |region| {
            let within = region.len as u32;
            region.len += size as u64;
            within
        });
        ([0; 16], Some((index, within, size as u8)))
    }
}

/// Queues the samples of the tables in a `moov`; an init segment has none, and its samples come with fragments.
pub(super) fn plan_table(
    moov: &BoxRef<'_>,
    init: &InitSegment,
    keys: &ContentKeyRing,
    plan: &mut DecryptQueue,
) -> Result<()> {
    for (track, protection) in init.movie.tracks.iter().zip(&init.tracks) {
        if track.table.is_empty() || protection.entries.iter().all(Option::is_none) {
            continue;
        }
        let entry = |description: u32| (description as usize).wrapping_sub(1);
        let locations = track.table.iter().map(|s| SampleLocation {
            offset: s.offset,
            size: s.size,
            run: s.chunk,
            entry: entry(s.description),
        });
        let samples: Vec<SampleLocation> = locations.collect();
        let stbl = moov.whole.get(track.stbl.clone()).unwrap_or_default();
        let Some(Ok(holder)) = boxes(stbl, moov.offset + track.stbl.start as u64).next() else { continue };
        if samples.len() != track.table.len() {
            return Err(holder.error_here("its chunks do not hold all of its samples").into());
        }
        let source = SampleSource { track: track.id, holder, around: *moov, base: 0, protection, samples: &samples };
        plan_samples(&source, keys, plan)?;
    }
    // Unlike in a fragment, samples may lie before the index.
    plan.sort(0)
}
