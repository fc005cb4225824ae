//! Progressive MP4: the samples that the `moov` itself indexes, and decryption of any byte range of such a file.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::decrypter::{Decrypter, Limits};
use super::error::Error;
use super::fragment::{Place, Source, plan_samples};
use super::init::Init;
use super::keys::KeyRing;
use super::plan::{Job, Plan};
use crate::bmff::{BoxRef, Header, boxes};

/// Plans the samples of the tables in a `moov`; there are none in an init segment.
pub(super) fn plan_table(moov: &BoxRef<'_>, init: &Init, keys: &KeyRing, plan: &mut Plan) -> Result<(), Error> {
    for (track, protection) in init.movie.tracks.iter().zip(&init.tracks) {
        if track.table.is_empty() || protection.entries.iter().all(Option::is_none) {
            continue;
        }
        let entry = |description: u32| (description as usize).wrapping_sub(1);
        let places = track.table.iter().map(|s| Place {
            offset: s.offset,
            size: s.size,
            run: s.chunk,
            entry: entry(s.description),
        });
        let samples: Vec<Place> = places.collect();
        let stbl = moov.whole.get(track.stbl.clone()).unwrap_or_default();
        let Some(Ok(holder)) = boxes(stbl, moov.offset + track.stbl.start as u64).next() else { continue };
        if samples.len() != track.table.len() {
            return Err(holder.broken("its chunks do not hold all of its samples").into());
        }
        plan_samples(
            &Source {
                track: track.id,
                holder,
                around: *moov,
                base: 0,
                entries: &protection.entries,
                groups: &protection.groups,
                samples: &samples,
            },
            keys,
            plan,
        )?;
    }
    plan.sort(0)
}

/// What is asked for, and what was found so far, on the way to a file's index. Give it the ranges that it wants.
///
/// ```text
/// let mut probe = Probe::new(keys, length);
/// while let Some(range) = probe.wants() { probe.give(range.start, &fetch(range))?; }
/// let file = probe.finish()?;
/// ```
pub struct Probe {
    keys: KeyRing,
    limits: Limits,
    length: u64,
    step: Step,
}

enum Step {
    /// A box begins here.
    Header(u64),
    /// The index: where it is, and what has come of it.
    Index(Range<u64>, BytesMut),
    /// The IVs that lie elsewhere.
    Regions(Box<Progressive>),
    Done(Box<Progressive>),
}

/// How much is asked for at once where a box header is looked for.
const GLANCE: u64 = 4096;

impl Probe {
    /// For a file of so many bytes.
    pub fn new(keys: KeyRing, length: u64) -> Self {
        Self { keys, limits: Limits::default(), length, step: Step::Header(0) }
    }

    /// The range of the file that is needed next; `None` when nothing is.
    pub fn wants(&self) -> Option<Range<u64>> {
        match &self.step {
            Step::Header(at) if *at >= self.length => None,
            Step::Header(at) => Some(*at..(at + GLANCE).min(self.length)),
            Step::Index(range, have) => Some(range.start + have.len() as u64..range.end),
            Step::Regions(file) => {
                let awaited = file.plan.regions.iter().find(|r| (r.have.len() as u64) < r.len);
                awaited.map(|r| r.offset + r.have.len() as u64..r.offset + r.len)
            }
            Step::Done(_) => None,
        }
    }

    /// Hands over bytes of the file that begin at byte `offset`: the range that was wanted, or the first part of it.
    ///
    /// # Errors
    /// When the index is broken or too large, or a key is missing.
    pub fn give(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        match std::mem::replace(&mut self.step, Step::Header(u64::MAX)) {
            Step::Header(at) => self.look(at, offset, data),
            Step::Index(range, mut have) => {
                if offset == range.start + have.len() as u64 {
                    let left = (range.end - offset) as usize;
                    have.extend_from_slice(data.get(..left).unwrap_or(data));
                }
                self.read(range, have)
            }
            Step::Regions(mut file) => {
                file.plan.collect(offset, data)?;
                self.settle(file);
                Ok(())
            }
            done @ Step::Done(_) => {
                self.step = done;
                Ok(())
            }
        }
    }

    /// The file, or `None` when it has no index of its own: a fragmented file, or no MP4 at all.
    ///
    /// # Errors
    /// When the file ended too early.
    pub fn finish(self) -> Result<Option<Arc<Progressive>>, Error> {
        match self.step {
            Step::Done(file) => Ok(Some(Arc::new(*file))),
            Step::Header(_) => Ok(None),
            _ => Err(Error::Truncated { at: self.length, what: "the index of the file".into() }),
        }
    }

    fn look(&mut self, at: u64, offset: u64, data: &[u8]) -> Result<(), Error> {
        let data = at.checked_sub(offset).and_then(|n| data.get(usize::try_from(n).ok()?..)).unwrap_or_default();
        let Some(header) = Header::read(data, at)? else {
            return Err(Error::Truncated { at: at + data.len() as u64, what: "a box header".into() });
        };
        let end = header.size.map_or(self.length, |size| at.saturating_add(size));
        match &header.kind.0 {
            b"moov" => {
                let (kind, size, limit) = (header.kind, end - at, self.limits.index);
                if size > limit {
                    return Err(Error::TooLarge { kind, offset: at, size, limit });
                }
                if end > self.length {
                    return Err(Error::Truncated { at: self.length, what: "the `moov` box".into() });
                }
                let have = BytesMut::from(data.get(..size as usize).unwrap_or(data));
                self.read(at..end, have)
            }
            // Fragments follow: what they hold is found from them.
            b"moof" => {
                self.step = Step::Header(self.length);
                Ok(())
            }
            _ => {
                self.step = Step::Header(end);
                Ok(())
            }
        }
    }

    fn read(&mut self, range: Range<u64>, mut have: BytesMut) -> Result<(), Error> {
        if (have.len() as u64) < range.end - range.start {
            self.step = Step::Index(range, have);
            return Ok(());
        }
        let Some(moov) = boxes(&have, range.start).next() else { return Ok(()) };
        let moov = moov?;
        let init = Init::read(&moov)?;
        if init.movie.tracks.iter().all(|t| t.table.is_empty()) {
            self.step = Step::Header(self.length);
            return Ok(());
        }
        let mut plan = Plan::default();
        plan_table(&moov, &init, &self.keys, &mut plan)?;
        if let Some(region) = plan.regions.iter().find(|r| r.offset.saturating_add(r.len) > self.length) {
            let what = format!("its IVs at byte {} lie behind the end of the file", region.offset);
            return Err(moov.broken(what).into());
        }
        init.rewrite(&mut have);
        let file = Progressive { init, plan, moov: (range.start, have.freeze()), length: self.length };
        self.settle(Box::new(file));
        Ok(())
    }

    fn settle(&mut self, file: Box<Progressive>) {
        let is_whole = file.plan.regions.iter().all(|r| r.have.len() as u64 >= r.len);
        self.step = if is_whole { Step::Done(file) } else { Step::Regions(file) };
    }
}

/// A progressive file whose index was read: any range of it can be decrypted by itself.
pub struct Progressive {
    init: Init,
    plan: Plan,
    /// Where the index begins, and its bytes as they are written.
    moov: (u64, Bytes),
    length: u64,
}

impl Progressive {
    /// What the index says.
    pub fn init(&self) -> &Init {
        &self.init
    }

    /// Length of the file in bytes, before and after decryption.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The range to fetch for a range that is asked for: as much more as whole samples need at its ends.
    pub fn cover(&self, range: Range<u64>) -> Range<u64> {
        let jobs = &self.plan.jobs;
        let around = |at: u64| {
            let after = jobs.partition_point(|j| j.offset <= at);
            after.checked_sub(1).and_then(|i| jobs.get(i)).map(span).filter(|s| s.contains(&at))
        };
        let start = around(range.start).map_or(range.start, |s| s.start);
        let end = range.end.checked_sub(1).and_then(around).map_or(range.end, |s| s.end);
        start..end.max(start)
    }

    /// Decrypts a range: push the bytes of [`cover`](Self::cover) of it, out come exactly those of `range`.
    pub fn range(self: &Arc<Self>, range: Range<u64>) -> RangeDecrypter {
        let cover = self.cover(range.clone());
        let first = self.plan.jobs.partition_point(|j| j.offset < cover.start);
        let last = self.plan.jobs.partition_point(|j| j.offset < cover.end);
        let plan = Plan {
            jobs: self.plan.jobs.range(first..last).cloned().collect(),
            setups: self.plan.setups.clone(),
            subsamples: Vec::new(),
            regions: Vec::new(),
        };
        let inner = Decrypter::raw(self.with_pool(plan), cover.start);
        RangeDecrypter { file: Arc::clone(self), range, at: cover.start, inner }
    }

    /// Gives a part of the plan the subsamples that it needs.
    fn with_pool(&self, mut plan: Plan) -> Plan {
        for job in &mut plan.jobs {
            let first = plan.subsamples.len() as u32;
            plan.subsamples.extend_from_slice(self.plan.of(job));
            job.subsamples.0 = first;
        }
        plan
    }
}

fn span(job: &Job) -> Range<u64> {
    job.offset..job.offset.saturating_add(u64::from(job.size))
}

/// Decrypts one range of a [`Progressive`] file.
pub struct RangeDecrypter {
    file: Arc<Progressive>,
    range: Range<u64>,
    /// File offset of the next byte that comes out of the inner decrypter.
    at: u64,
    inner: Decrypter,
}

impl RangeDecrypter {
    /// Takes the next bytes of the covering range and puts what is ready into `out`.
    ///
    /// # Errors
    /// As for [`Decrypter::push`].
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.inner.push(chunk, &mut ready)?;
        for piece in ready {
            let from = self.at;
            self.at += piece.len() as u64;
            let piece = self.with_index(from, piece);
            let skip = self.range.start.saturating_sub(from).min(piece.len() as u64) as usize;
            let keep = self.range.end.saturating_sub(from).min(piece.len() as u64) as usize;
            if skip < keep {
                out.push(piece.slice(skip..keep));
            }
        }
        Ok(())
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// When bytes of the range are missing.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()?;
        if self.at < self.range.end {
            return Err(Error::Truncated { at: self.at, what: "the range that was asked for".into() });
        }
        Ok(())
    }

    /// Lays the rewritten index over the bytes of the old one.
    fn with_index(&self, from: u64, piece: Bytes) -> Bytes {
        let (start, moov) = (self.file.moov.0, &self.file.moov.1);
        let (end, to) = (start + moov.len() as u64, from + piece.len() as u64);
        if to <= start || from >= end {
            return piece;
        }
        let mut piece = piece.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let (first, last) = (from.max(start), to.min(end));
        if let (Some(place), Some(new)) = (
            piece.get_mut((first - from) as usize..(last - from) as usize),
            moov.get((first - start) as usize..(last - start) as usize),
        ) {
            place.copy_from_slice(new);
        }
        piece.freeze()
    }
}
