//! Progressive MP4: the samples indexed by the `moov`, and decryption of any byte range of such a file.
//!
//! A player seeks in such a file with range requests. Each of them needs the index, which may be at the file's end, so
//! it is read once ([`IndexProbe`]) and kept ([`ProgressiveFile`]); a range is then decrypted without what precedes it
//! ([`RangeDecrypter`]).

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::decrypt_queue::{DecryptJob, DecryptQueue};
use super::decrypter::{CencDecrypter, DecryptLimits};
use super::error::{CencError, Result};
use super::fragment::plan_table;
use super::init::InitSegment;
use super::keys::ContentKeyRing;
use crate::bmff::{BoxHeader, boxes};

/// Locates a file's index step by step: the caller supplies the ranges it requests.
///
/// ```text
/// let mut probe = IndexProbe::new(keys, length);
/// while let Some(range) = probe.next_range() { probe.push(range.start, &fetch(range))?; }
/// let file = probe.finish()?;
/// ```
pub struct IndexProbe {
    keys: ContentKeyRing,
    length: u64,
    step: ProbeStep,
}

enum ProbeStep {
    /// A box starts at this offset; at or beyond the file's end, the search is over without an index.
    Header(u64),
    /// The index: its range, and the part received so far.
    Index(Range<u64>, BytesMut),
    /// IVs stored outside of the index, at places that the index names.
    Regions(Box<ProgressiveFile>),
    Done(Box<ProgressiveFile>),
}

/// Bytes requested at once when looking for a box header: a small `moov` is often received with it.
const HEADER_READ_BYTES: u64 = 4096;

impl IndexProbe {
    /// For a file of `length` bytes.
    pub fn new(keys: ContentKeyRing, length: u64) -> Self {
        Self { keys, length, step: ProbeStep::Header(0) }
    }

    /// The next range of the file that is needed; `None` if the probe is complete.
    pub fn next_range(&self) -> Option<Range<u64>> {
        match &self.step {
            ProbeStep::Header(at) if *at >= self.length => None,
            ProbeStep::Header(at) => Some(*at..(at + HEADER_READ_BYTES).min(self.length)),
            ProbeStep::Index(range, have) => Some(range.start + have.len() as u64..range.end),
            ProbeStep::Regions(file) => {
                let awaited = file.plan.regions.iter().find(|r| (r.have.len() as u64) < r.len);
                awaited.map(|r| r.offset + r.have.len() as u64..r.offset + r.len)
            }
            ProbeStep::Done(_) => None,
        }
    }

    /// Supplies bytes of the file from byte `offset`: the requested range, or the first part of it.
    ///
    /// # Errors
    /// If the index is malformed or too large, or a key is missing.
    pub fn push(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        // After an error the step stays at the end of any file, and nothing more is requested.
        match std::mem::replace(&mut self.step, ProbeStep::Header(u64::MAX)) {
            ProbeStep::Header(at) => self.read_box_header(at, offset, data),
            // Bytes from any other offset are ignored, and requested again.
            ProbeStep::Index(range, mut have) => {
                if offset == range.start + have.len() as u64 {
                    // A size of 0 means that the box extends to the end of the file.
                    let remaining = (range.end - offset) as usize;
                    have.extend_from_slice(data.get(..remaining).unwrap_or(data));
                }
                self.read(range, have)
            }
            ProbeStep::Regions(mut file) => {
                file.plan.collect(offset, data)?;
                self.finish_index(file);
                Ok(())
            }
            done @ ProbeStep::Done(_) => {
                self.step = done;
                Ok(())
            }
        }
    }

    /// The file, or `None` if it has no index of its own: a fragmented file, or not MP4 at all.
    ///
    /// # Errors
    /// If the file ended too early.
    pub fn finish(self) -> Result<Option<Arc<ProgressiveFile>>> {
        match self.step {
            ProbeStep::Done(file) => Ok(Some(Arc::new(*file))),
            ProbeStep::Header(_) => Ok(None),
            _ => Err(CencError::Truncated { at: self.length, what: "the index of the file".into() }),
        }
    }

    fn read_box_header(&mut self, at: u64, offset: u64, data: &[u8]) -> Result<()> {
        let data = at.checked_sub(offset).and_then(|n| data.get(usize::try_from(n).ok()?..)).unwrap_or_default();
        let Some(header) = BoxHeader::read(data, at)? else {
            return Err(CencError::Truncated { at: at + data.len() as u64, what: "a box header".into() });
        };
        let end = header.size.map_or(self.length, |size| at.saturating_add(size));
        match &header.kind.0 {
            b"moov" => {
                let (kind, size, limit) = (header.kind, end - at, DecryptLimits::default().index);
                if size > limit {
                    return Err(CencError::TooLarge { kind, offset: at, size, limit });
                }
                if end > self.length {
                    return Err(CencError::Truncated { at: self.length, what: "the `moov` box".into() });
                }
                let have = BytesMut::from(data.get(..size as usize).unwrap_or(data));
                self.read(at..end, have)
            }
            // Fragments follow: their samples are indexed by the fragments.
            kind => {
                self.step = ProbeStep::Header(if kind == b"moof" { self.length } else { end });
                Ok(())
            }
        }
    }

    fn read(&mut self, range: Range<u64>, mut have: BytesMut) -> Result<()> {
        // Boxes before the index, media data in particular, are skipped without being fetched.
        if (have.len() as u64) < range.end - range.start {
            self.step = ProbeStep::Index(range, have);
            return Ok(());
        }
        let Some(moov) = boxes(&have, range.start).next() else { return Ok(()) };
        let moov = moov?;
        let init = InitSegment::read(&moov)?;
        // An init segment: its fragments are decrypted as a stream.
        if init.movie.tracks.iter().all(|t| t.table.is_empty()) {
            self.step = ProbeStep::Header(self.length);
            return Ok(());
        }
        let mut plan = DecryptQueue::default();
        plan_table(&moov, &init, &self.keys, &mut plan)?;
        if let Some(region) = plan.regions.iter().find(|r| r.offset.saturating_add(r.len) > self.length) {
            let what = format!("its IVs at byte {} lie behind the end of the file", region.offset);
            return Err(moov.error_here(what).into());
        }
        // The index is rewritten after the samples were read from it: it is output as that of a clear file of the same
        // length.
        init.rewrite(&mut have);
        let file = ProgressiveFile { init, plan, moov: (range.start, have.freeze()), length: self.length };
        self.finish_index(Box::new(file));
        Ok(())
    }

    fn finish_index(&mut self, file: Box<ProgressiveFile>) {
        let is_whole = file.plan.regions.iter().all(|r| r.have.len() as u64 >= r.len);
        self.step = if is_whole { ProbeStep::Done(file) } else { ProbeStep::Regions(file) };
    }
}

/// A progressive file with a parsed index: any range of it can be decrypted independently. Shared by the requests for
/// it.
pub struct ProgressiveFile {
    init: InitSegment,
    plan: DecryptQueue,
    /// The position of the index, and its rewritten bytes.
    moov: (u64, Bytes),
    length: u64,
}

impl ProgressiveFile {
    pub fn init(&self) -> &InitSegment {
        &self.init
    }

    /// Length of the file in bytes, before and after decryption.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The range to fetch for a requested range: extended to whole samples at its ends, because decryption of a
    /// sample starts with its IV at its first byte. Lies within the file if `range` does.
    pub fn cover(&self, range: Range<u64>) -> Range<u64> {
        let jobs = &self.plan.jobs;
        // The sample that contains this byte, if it is in one: the jobs are sorted by offset.
        let around = |at: u64| {
            let after = jobs.partition_point(|j| j.offset <= at);
            after.checked_sub(1).and_then(|i| jobs.get(i)).map(span).filter(|s| s.contains(&at))
        };
        let start = around(range.start).map_or(range.start, |s| s.start);
        let end = range.end.checked_sub(1).and_then(around).map_or(range.end, |s| s.end);
        start..end.max(start)
    }

    /// Decrypts a range: push the bytes of its [`cover`](Self::cover); the output is exactly `range`.
    pub fn range(self: &Arc<Self>, range: Range<u64>) -> RangeDecrypter {
        let cover = self.cover(range.clone());
        let first = self.plan.jobs.partition_point(|j| j.offset < cover.start);
        let last = self.plan.jobs.partition_point(|j| j.offset < cover.end);
        // No regions: all IVs were read by the probe.
        let plan = DecryptQueue {
            jobs: self.plan.jobs.range(first..last).cloned().collect(),
            setups: self.plan.setups.clone(),
            subsamples: Vec::new(),
            regions: Vec::new(),
        };
        let inner = CencDecrypter::raw(self.with_subsamples(plan), cover.start);
        RangeDecrypter { file: Arc::clone(self), range, at: cover.start, inner }
    }

    /// Copies the subsamples that a part of the queue needs, and adapts the references to them.
    fn with_subsamples(&self, mut plan: DecryptQueue) -> DecryptQueue {
        for job in &mut plan.jobs {
            let first = plan.subsamples.len() as u32;
            plan.subsamples.extend_from_slice(self.plan.subsamples_of(job));
            job.subsamples.0 = first;
        }
        plan
    }
}

fn span(job: &DecryptJob) -> Range<u64> {
    job.offset..job.offset.saturating_add(u64::from(job.size))
}

/// Decrypts one range of a [`ProgressiveFile`]: takes the bytes of its [`cover`](ProgressiveFile::cover), and outputs
/// only those of the range itself.
pub struct RangeDecrypter {
    file: Arc<ProgressiveFile>,
    range: Range<u64>,
    /// File offset of the inner decrypter's next output byte.
    at: u64,
    inner: CencDecrypter,
}

impl RangeDecrypter {
    /// Processes the next bytes of the covering range and appends the output to `out`.
    ///
    /// # Errors
    /// As for [`CencDecrypter::push`].
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
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

    /// Ends the range.
    ///
    /// # Errors
    /// If bytes of the range are missing.
    pub fn finish(&mut self) -> Result<()> {
        self.inner.finish()?;
        if self.at < self.range.end {
            return Err(CencError::Truncated { at: self.at, what: "the range that was asked for".into() });
        }
        Ok(())
    }

    /// Overlays the rewritten index on the bytes of the original one, where they overlap.
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
