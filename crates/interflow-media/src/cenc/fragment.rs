//! From boxes to samples: what `traf` and `stbl` say of the encryption of their samples goes into the plan.

use super::auxiliary::{Senc, Sizes, is_senc, offsets, sized_sample};
use super::cipher::Block;
use super::error::Error;
use super::groups::{Assignment, describe, descriptions, is_seig};
use super::init::{FREE, Init, is_encryption, write_kind};
use super::keys::KeyRing;
use super::plan::{Job, Plan, Region};
use super::protection::Protection;
use crate::bmff::{BoxRef, Fields, Fragment, boxes};

/// A sample as its index places it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub offset: u64,
    pub size: u32,
    /// The run or chunk that holds it.
    pub run: u32,
    /// The sample entry, from 0.
    pub entry: usize,
}

/// The samples of one track that one box describes.
pub(super) struct Source<'a> {
    pub track: u32,
    /// The `traf` or `stbl`.
    pub holder: BoxRef<'a>,
    /// The `moof` or `moov` around it.
    pub around: BoxRef<'a>,
    /// From where `saio` counts.
    pub base: u64,
    /// Per sample entry; `None` is clear.
    pub entries: &'a [Option<Protection>],
    /// Groups of the whole track.
    pub groups: &'a [Protection],
    pub samples: &'a [Place],
}

/// Plans the samples of a `moof`.
pub(super) fn plan_fragment(moof: &BoxRef<'_>, init: &Init, keys: &KeyRing, plan: &mut Plan) -> Result<(), Error> {
    let fragment = Fragment::read(moof)?;
    let placed = fragment.place(|id| init.movie.track(id).map(|t| t.defaults).unwrap_or_default())?;
    plan.tidy();
    for (track, placed) in fragment.tracks.iter().zip(&placed) {
        let known = init.movie.tracks.iter().zip(&init.tracks).find(|(t, _)| t.id == track.track);
        let Some((movie_track, protection)) = known else {
            return Err(Error::NoInit { offset: moof.offset, track: track.track });
        };
        if protection.entries.iter().all(Option::is_none) {
            continue;
        }
        let description = track.description.unwrap_or(movie_track.defaults.description);
        let entry = (description as usize).wrapping_sub(1);
        let samples: Vec<Place> =
            placed.iter().map(|p| Place { offset: p.offset, size: p.size, run: p.run, entry }).collect();
        let Some(Ok(holder)) = moof
            .whole
            .get(track.range.clone())
            .and_then(|traf| boxes(traf, moof.offset + track.range.start as u64).next())
        else {
            continue;
        };
        plan_samples(
            &Source {
                track: track.track,
                holder,
                around: *moof,
                base: track.base.unwrap_or(moof.offset),
                entries: &protection.entries,
                groups: &protection.groups,
                samples: &samples,
            },
            keys,
            plan,
        )?;
    }
    plan.sort(moof.offset + moof.whole.len() as u64)
}

/// Where the boxes of a `moof` that speak of encryption have their types.
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

/// Writes `free` over the types at these places.
pub(super) fn free_all(data: &mut [u8], patches: &[usize]) {
    patches.iter().for_each(|at| write_kind(data, *at, FREE));
}

/// Plans the samples of a `traf` or `stbl`.
pub(super) fn plan_samples(source: &Source<'_>, keys: &KeyRing, plan: &mut Plan) -> Result<(), Error> {
    let scheme = source.entries.iter().flatten().map(|p| p.scheme).next();
    let Some(scheme) = scheme else { return Ok(()) };
    let (mut local, mut assigned) = (Vec::new(), Assignment::default());
    let mut information = Information::default();
    for b in source.holder.children() {
        let b = b?;
        if is_senc(&b) {
            let senc = Senc::open(&b)?;
            senc.expect(source.samples.len())?;
            information.senc = Some(senc);
        } else if is_seig(&b) && b.kind() == b"sgpd" {
            local = descriptions(&b, scheme)?;
        } else if is_seig(&b) {
            assigned = Assignment::read(&b)?;
        } else if b.kind() == b"saiz" {
            information.sizes = Sizes::read(&b)?.or(information.sizes);
        } else if b.kind() == b"saio" {
            information.offsets = offsets(&b)?.or(information.offsets);
        }
    }
    for (i, (sample, group)) in source.samples.iter().zip(assigned.each()).enumerate() {
        let entry = source.entries.get(sample.entry).ok_or_else(|| {
            source
                .holder
                .broken(format!("its samples have sample entry {}, which is missing", sample.entry.wrapping_add(1)))
        })?;
        let Some(entry) = entry else { continue };
        let grouped = describe(group, &local, source.groups, &source.holder)?;
        let mut protection = grouped.or(information.over()).copied().unwrap_or(*entry);
        protection.scheme = if information.over().is_some() { protection.scheme } else { entry.scheme };
        let first = plan.subsamples.len();
        let found = information.next(i, sample, &protection, source, plan)?;
        if !protection.protected || sample.size == 0 {
            plan.subsamples.truncate(first);
            continue;
        }
        let setup = plan.setup(keys, &protection, source.track)?;
        let (iv, awaits) = found;
        let job = Job {
            offset: sample.offset,
            size: sample.size,
            setup,
            track: source.track,
            iv,
            subsamples: (0, 0),
            awaits,
        };
        plan.add(job, first)?;
    }
    Ok(())
}

/// Where IVs and subsamples come from.
#[derive(Default)]
struct Information<'a> {
    senc: Option<Senc<'a>>,
    sizes: Option<Sizes<'a>>,
    offsets: Option<Vec<u64>>,
    /// Run and place of the information that comes next.
    at: Option<(u32, u64)>,
    /// The region that is being planned, with the run that it is for.
    region: Option<(u32, u32)>,
}

type Found = (Block, Option<(u32, u32, u8)>);

impl Information<'_> {
    fn over(&self) -> Option<&Protection> {
        self.senc.as_ref()?.over.as_ref()
    }

    /// What there is for the sample `i`; its subsamples go to the plan's pool.
    fn next(
        &mut self,
        i: usize,
        sample: &Place,
        protection: &Protection,
        source: &Source<'_>,
        plan: &mut Plan,
    ) -> Result<Found, Error> {
        if let Some(senc) = &mut self.senc {
            return Ok((senc.next(protection, &mut plan.subsamples)?, None));
        }
        let size = self.sizes.as_ref().map_or(0, |s| s.of(i));
        if size == 0 {
            // Without information of its own, all of a sample is encrypted, with the constant IV.
            if protection.protected && protection.constant_iv.is_none() {
                let what = format!("its sample {} is encrypted, but neither senc nor saiz and saio tell its IV", i + 1);
                return Err(source.holder.broken(what).into());
            }
            return Ok((protection.constant_iv.unwrap_or_default(), None));
        }
        let at = self.place(i, sample.run, size, source)?;
        let inside = at.checked_sub(source.around.offset).and_then(|n| usize::try_from(n).ok());
        let around = source.around.whole;
        match inside.filter(|n| *n < around.len()) {
            Some(n) => {
                let info =
                    around.get(n..n + size).ok_or_else(|| source.holder.broken("saio points past its fragment"))?;
                let mut f = Fields::over(info, source.holder.kind(), source.holder.offset);
                Ok((sized_sample(&mut f, protection, &mut plan.subsamples)?, None))
            }
            None => Ok(self.outside(at, sample.run, size, &mut plan.regions)),
        }
    }

    /// Where the information of a sample begins: in one row for all of them, or in one row for each run.
    fn place(&mut self, i: usize, run: u32, size: usize, source: &Source<'_>) -> Result<u64, Error> {
        let missing = || source.holder.broken("it has saiz, but no saio that leads to its samples");
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

    /// Information that lies in media data, and has to be waited for.
    fn outside(&mut self, at: u64, run: u32, size: usize, regions: &mut Vec<Region>) -> Found {
        let joins = |r: &Region| r.offset + r.len == at;
        let index = match self.region {
            Some((index, of)) if of == run && regions.get(index as usize).is_some_and(joins) => index,
            _ => {
                regions.push(Region { offset: at, len: 0, have: Vec::new() });
                regions.len() as u32 - 1
            }
        };
        self.region = Some((index, run));
        let within = match regions.get_mut(index as usize) {
            Some(region) => {
                let within = region.len as u32;
                region.len += size as u64;
                within
            }
            None => 0,
        };
        ([0; 16], Some((index, within, size as u8)))
    }
}
