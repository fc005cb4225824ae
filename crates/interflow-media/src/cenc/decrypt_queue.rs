//! The queue of samples to decrypt, in file order, with the parameters of each.
//!
//! A sample takes few bytes here, because a long film has hundreds of thousands of them: keys, subsamples and auxiliary
//! information are kept in shared pools and referred to by index.

use std::collections::VecDeque;
use std::sync::Arc;

use super::auxiliary::{Subsample, sized_sample};
use super::cipher::CipherBlock;
use super::error::{CencError, Result};
use super::keys::{AesKey, ContentKeyRing};
use super::protection::SampleProtection;
use crate::bmff::{BoxError, BoxReader, FourCc, MAX_SAMPLES};

/// One encrypted sample: `size` bytes (at least 1) from byte `offset` of the file. The track is kept for error
/// messages.
#[derive(Clone, Debug)]
pub struct DecryptJob {
    pub offset: u64,
    pub size: u32,
    pub setup: u32,
    pub track: u32,
    /// The IV; zeros until its auxiliary information has arrived.
    pub iv: CipherBlock,
    /// Its subsamples in the queue's pool: first index and count; 0 means that the whole sample is protected.
    pub subsamples: (u32, u32),
    /// The pending region that will contain its IV and subsamples, with offset and length in it; the sample cannot be
    /// decrypted before.
    pub awaits: Option<(u32, u32, u8)>,
}

/// Key and mode, shared by many samples: usually by all of a track.
#[derive(Clone)]
pub struct DecryptSetup {
    pub protection: SampleProtection,
    pub key: Arc<AesKey>,
}

/// Auxiliary information (`saio`) that lies outside of the index, usually within media data: `len` bytes from byte
/// `offset` of the file, of which `have` has arrived.
#[derive(Clone, Debug)]
pub struct AuxiliaryRegion {
    pub offset: u64,
    pub len: u64,
    pub have: Vec<u8>,
}

impl AuxiliaryRegion {
    fn is_whole(&self) -> bool {
        self.have.len() as u64 == self.len
    }
}

/// The samples that wait for their data, and the pools that they refer to. Jobs are in file order, so the data
/// decrypts the first ones first.
#[derive(Clone, Default)]
pub struct DecryptQueue {
    pub jobs: VecDeque<DecryptJob>,
    pub setups: Vec<DecryptSetup>,
    pub subsamples: Vec<Subsample>,
    pub regions: Vec<AuxiliaryRegion>,
}

/// Maximum number of queued samples of fragments; those of a progressive file are bounded by its index.
const MAX_WAITING: usize = 4 * MAX_SAMPLES;

impl DecryptQueue {
    /// Drops processed entries; called before samples are added. Pools can be emptied only when no job refers to
    /// them.
    pub fn tidy(&mut self) {
        if self.jobs.is_empty() {
            self.setups.clear();
            self.subsamples.clear();
            self.regions.clear();
        }
    }

    /// The setup for these protection parameters, with its key looked up.
    ///
    /// # Errors
    /// If the key is missing.
    pub fn setup(&mut self, keys: &ContentKeyRing, protection: &SampleProtection, track: u32) -> Result<u32> {
        // With rotating keys the latest setup is the most likely one.
        if let Some(at) = self.setups.iter().rposition(|s| s.protection == *protection) {
            return Ok(at as u32);
        }
        let key = keys.find(protection.kid).ok_or(CencError::NoKey { kid: protection.kid, track })?;
        self.setups.push(DecryptSetup { protection: *protection, key: Arc::clone(key) });
        Ok(self.setups.len() as u32 - 1)
    }

    /// Adds a sample whose subsamples are at the end of the pool, from `first` on.
    ///
    /// # Errors
    /// If the subsamples do not add up to the sample, or too many samples are queued.
    pub fn add(&mut self, mut job: DecryptJob, first: usize) -> Result<()> {
        if self.jobs.len() >= MAX_WAITING {
            return Err(BoxError::new(FourCc(*b"moof"), job.offset, "too many samples wait for their data").into());
        }
        job.subsamples = (first as u32, (self.subsamples.len() - first) as u32);
        self.check(&job)?;
        self.jobs.push_back(job);
        Ok(())
    }

    /// Subsamples that do not add up would decrypt the wrong bytes of this sample and of all that follow.
    fn check(&self, job: &DecryptJob) -> Result<(), BoxError> {
        let subsamples = self.subsamples_of(job);
        let sum: u64 = subsamples.iter().map(|(clear, crypt)| u64::from(*clear) + u64::from(*crypt)).sum();
        if subsamples.is_empty() || sum == u64::from(job.size) {
            return Ok(());
        }
        let what = format!(
            "the subsamples of the sample at byte {} (track {}) add up to {sum} bytes, but it has {}",
            job.offset, job.track, job.size
        );
        Err(BoxError::new(FourCc(*b"senc"), job.offset, what))
    }

    /// The subsamples of a sample, in order; none if all of it is protected.
    pub fn subsamples_of(&self, job: &DecryptJob) -> &[Subsample] {
        let (first, n) = (job.subsamples.0 as usize, job.subsamples.1 as usize);
        self.subsamples.get(first..first + n).unwrap_or_default()
    }

    /// Sorts the samples by file offset after an addition; none may begin before byte `from`, the first that has not
    /// been output.
    ///
    /// # Errors
    /// If samples begin before that, or overlap.
    pub fn sort(&mut self, from: u64) -> Result<()> {
        let jobs = self.jobs.make_contiguous();
        if !jobs.is_sorted_by_key(|j| j.offset) {
            // Tracks are added one after another, but their samples are interleaved in the file.
            jobs.sort_by_key(|j| j.offset);
        }
        let mut free = from;
        for job in jobs {
            if job.offset < free {
                return Err(CencError::Misplaced { track: job.track, offset: job.offset });
            }
            free = job.offset.saturating_add(u64::from(job.size));
        }
        Ok(())
    }

    /// Copies the parts of pending regions from `data`, which begins at byte `at` of the file. Data that has been
    /// seen before is ignored.
    ///
    /// # Errors
    /// If a region's content is invalid.
    pub fn collect(&mut self, at: u64, data: &[u8]) -> Result<()> {
        for i in 0..self.regions.len() {
            let Some(region) = self.regions.get_mut(i) else { break };
            // A region arrives in order: only its next byte is of interest.
            let next = region.offset + region.have.len() as u64;
            let remaining = (region.len - region.have.len() as u64) as usize;
            let Some(skip) = next.checked_sub(at).and_then(|n| usize::try_from(n).ok()) else { continue };
            let Some(part) = data.get(skip..) else { continue };
            if remaining == 0 || part.is_empty() {
                continue;
            }
            region.have.extend_from_slice(part.get(..remaining).unwrap_or(part));
            if region.is_whole() {
                self.fill(i as u32)?;
            }
        }
        Ok(())
    }

    /// Fills in the samples that wait for a region, once it is complete.
    fn fill(&mut self, region: u32) -> Result<()> {
        let Self { jobs, setups, subsamples, regions } = self;
        let Some(AuxiliaryRegion { offset, have, .. }) = regions.get(region as usize) else { return Ok(()) };
        for job in jobs.iter_mut() {
            let Some((of, at, len)) = job.awaits.filter(|a| a.0 == region) else { continue };
            debug_assert_eq!(of, region);
            let info = have.get(at as usize..at as usize + usize::from(len)).unwrap_or_default();
            let mut f = BoxReader::from_content(info, FourCc(*b"saio"), *offset);
            let Some(setup) = setups.get(job.setup as usize) else { continue };
            let first = subsamples.len() as u32;
            job.iv = sized_sample(&mut f, &setup.protection, subsamples)?;
            job.subsamples = (first, subsamples.len() as u32 - first);
            job.awaits = None;
        }
        if let Some(region) = self.regions.get_mut(region as usize) {
            // `have` is not emptied: its length marks the region as complete.
            region.have.shrink_to_fit();
        }
        Ok(self.jobs.iter().filter(|job| job.awaits.is_none()).try_for_each(|job| self.check(job))?)
    }

    /// The end of the information that a sample waits for; `None` if it waits for none.
    pub fn awaited_until(&self, job: &DecryptJob) -> Option<u64> {
        let (region, ..) = job.awaits?;
        self.regions.get(region as usize).map(|r| r.offset + r.len)
    }
}
