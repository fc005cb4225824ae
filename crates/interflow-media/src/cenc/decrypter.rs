//! The streaming decrypter: bytes are decrypted in place as they arrive, and the same number of bytes comes out.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::decrypt_queue::DecryptQueue;
use super::error::{CencError, Result};
use super::fragment::{fragment_patches, plan_fragment, plan_table, replace_with_free};
use super::init::InitSegment;
use super::keys::ContentKeyRing;
use super::sample::SampleCursor;
use crate::bmff::{BoxHeader, BoxRef, FourCc};

/// What a [`CencDecrypter`] may buffer, 64 MiB of each by default. Sizes come from the file, so they cannot be
/// trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecryptLimits {
    /// Maximum size of a `moov` or `moof`, in bytes.
    pub index: u64,
    /// Maximum size of media data buffered until its decryption parameters arrive, in bytes.
    pub waiting: u64,
}

impl Default for DecryptLimits {
    fn default() -> Self {
        Self { index: 64 << 20, waiting: 64 << 20 }
    }
}

/// Decrypts one stream: an init segment, media segments, both, or a progressive file from its beginning.
///
/// The output has the same length as the input and is available at once: only a `moov` or `moof` is buffered
/// completely, and of media data at most 15 bytes of an incomplete cipher block (or, where IVs follow the samples,
/// everything before them). A chunk that is not shared is decrypted in place, any other is copied once.
///
/// After an error no more input is accepted; earlier output is valid.
#[derive(Default)]
pub struct CencDecrypter {
    keys: ContentKeyRing,
    pub(super) limits: DecryptLimits,
    init: Option<Arc<InitSegment>>,
    state: DecrypterState,
    /// File offset of the next unprocessed byte.
    pos: u64,
    plan: DecryptQueue,
    /// The sample being decrypted, and how many of its bytes have not been processed.
    cursor: Option<(SampleCursor, u64)>,
    /// Input that cannot be processed until there are `need` bytes of it.
    // Bytes of a box header, of an index, or of a cipher block.
    stash: BytesMut,
    need: usize,
    failed: Option<CencError>,
    /// File offset of the end of the stream, if known.
    end: Option<u64>,
    /// Whether an index describing the media data was read. Without one, encrypted samples could not be told from
    /// clear bytes.
    is_indexed: bool,
    /// Whether the last fragment describes no sample of any track, although the file declares encryption.
    is_undescribed: bool,
    /// Whether a box was read, and whether media data was reached.
    seen: (bool, bool),
}

/// What the next byte of the input belongs to. Every state but `Raw` returns to `Header` at the end of its box.
#[derive(Clone, Copy, Debug, Default)]
enum DecrypterState {
    /// At the start of a box.
    #[default]
    Header,
    /// In a box that passes unchanged, with the remaining length if known.
    Pass(FourCc, Option<u64>),
    /// In an `mdat`, with the remaining length if known.
    Media(Option<u64>),
    /// In a range of a progressive file, which is described only by the queue.
    Raw,
}

/// How far a buffer was processed, and how many bytes from there are needed to continue; 0 if any number will do.
struct DecryptProgress {
    done: usize,
    need: usize,
}

impl CencDecrypter {
    /// For a stream that begins with its own `moov`: an init segment, or a whole file.
    pub fn new(keys: ContentKeyRing) -> Self {
        Self { keys, ..Self::default() }
    }

    /// For media segments of an init segment that was read before.
    pub fn for_segment(keys: ContentKeyRing, init: Arc<InitSegment>) -> Self {
        Self { init: Some(init), ..Self::new(keys) }
    }

    /// Sets the file offset of the stream's first byte, which must be a box boundary. Only fragments with absolute
    /// offsets need it.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.pos = offset;
        self
    }

    /// Sets the length of the stream: a box that would extend beyond its end is rejected at its start.
    pub fn with_length(mut self, length: Option<u64>) -> Self {
        self.end = length.map(|length| self.pos.saturating_add(length));
        self
    }

    /// Whether media data was reached: before that, an error can still become an error response.
    pub fn has_media(&self) -> bool {
        self.seen.1
    }

    /// For a range of a progressive file whose samples are queued.
    pub(super) fn raw(plan: DecryptQueue, offset: u64) -> Self {
        Self { plan, state: DecrypterState::Raw, ..Self::default().at_offset(offset) }
    }

    /// The stream's `moov`, once it was read, or the one that was given.
    pub fn init(&self) -> Option<&Arc<InitSegment>> {
        self.init.as_ref()
    }

    /// Processes the next bytes and appends the output to `out`.
    ///
    /// # Errors
    /// If a box is malformed, a key is missing, or a limit is exceeded. Nothing of the box in question has been output
    /// then.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        // What had been output before the error is valid, so the error is reported on every further call instead of
        // output from the middle of a broken box.
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.take(chunk, out).inspect_err(|e| self.failed = Some(e.clone()))
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// If the stream ended inside a box or before the data of a sample.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let at = self.pos + self.stash.len() as u64;
        let inside = match (&self.state, self.plan.jobs.front()) {
            (DecrypterState::Header, _) if !self.seen.0 && self.stash.is_empty() => {
                "an MP4 file, of which nothing came".to_owned()
            }
            _ if self.cursor.is_some() => "an encrypted sample".to_owned(),
            (DecrypterState::Media(Some(left)), _) if *left > 0 => format!("media data, {left} bytes before its end"),
            (DecrypterState::Pass(kind, Some(left)), _) if *left > 0 => {
                format!("box `{kind}`, {left} bytes before its end")
            }
            _ if !self.stash.is_empty() => "a box".to_owned(),
            (_, Some(job)) if !matches!(self.state, DecrypterState::Raw) => {
                format!("a fragment, before the sample of track {} at byte {}", job.track, job.offset)
            }
            _ => return Ok(()),
        };
        let error = CencError::Truncated { at, what: inside };
        self.failed = Some(error.clone());
        Err(error)
    }

    fn take(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        let mut chunk = chunk.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        // Only as much of the chunk is copied as the stash needs: the rest is decrypted in place. A loop, because the
        // header completed by this may belong to a box that must be buffered itself.
        while !self.stash.is_empty() && !chunk.is_empty() {
            let more = self.need.saturating_sub(self.stash.len()).min(chunk.len());
            self.stash.unsplit(chunk.split_to(more));
            if self.stash.len() < self.need {
                return Ok(());
            }
            let stash = std::mem::take(&mut self.stash);
            self.run(stash, out)?;
        }
        if chunk.is_empty() { Ok(()) } else { self.run(chunk, out) }
    }

    /// Processes as much of a buffer as possible, outputs it, and keeps the rest.
    fn run(&mut self, mut data: BytesMut, out: &mut Vec<Bytes>) -> Result<()> {
        let from = self.pos;
        let progress = self.advance(&mut data);
        // `pos` is advanced by everything that was processed even if an error followed, which makes the output before
        // the error available.
        let done = (self.pos - from) as usize;
        let rest = data.split_off(done.min(data.len()));
        if !data.is_empty() {
            out.push(data.freeze());
        }
        (self.stash, self.need) = (rest, progress?.need);
        Ok(())
    }

    fn advance(&mut self, data: &mut [u8]) -> Result<DecryptProgress> {
        // Before anything else: the bytes may contain IVs that samples wait for.
        self.plan.collect(self.pos, data)?;
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|r| !r.is_empty()) {
            let step = match self.state {
                DecrypterState::Header => self.header(rest)?,
                DecrypterState::Pass(kind, left) => {
                    let n = clamp_to_left(left, rest.len());
                    self.state = state_after(left, n, |left| DecrypterState::Pass(kind, left));
                    DecryptProgress { done: n, need: 0 }
                }
                DecrypterState::Media(left) => {
                    let n = clamp_to_left(left, rest.len());
                    let (media, _) = rest.split_at_mut(n);
                    let end = left.map(|left| self.pos.saturating_add(left));
                    let step = self.media(media, end)?;
                    self.state = state_after(left, step.done, DecrypterState::Media);
                    step
                }
                DecrypterState::Raw => self.media(rest, None)?,
            };
            done += step.done;
            self.pos += step.done as u64;
            if matches!(self.state, DecrypterState::Header) {
                // Regions awaited by the index just read may be in this buffer already.
                self.plan.collect(self.pos, data.get(done..).unwrap_or_default())?;
            }
            if step.need > 0 {
                return Ok(DecryptProgress { done, need: step.need });
            }
        }
        Ok(DecryptProgress { done, need: 0 })
    }

    /// Reads the header of the box at `data` and decides how its content is processed. Takes only the header.
    fn header(&mut self, data: &mut [u8]) -> Result<DecryptProgress> {
        let Some(header) = BoxHeader::read(data, self.pos)? else {
            // A header takes 8 bytes, or 16 with a 64-bit size, and 16 more for a `uuid`: ask for the next 8 until it
            // can be read.
            let need = (data.len() + 8).next_multiple_of(8).min(BoxHeader::MAX_HEADER_LEN);
            return Ok(DecryptProgress { done: 0, need });
        };
        self.check(&header)?;
        let content = header.size.map(|size| size - header.len as u64);
        match &header.kind.0 {
            b"moov" | b"moof" => return self.index(&header, data),
            // Passing the media data on without parameters would output encrypted samples as if they were clear.
            b"mdat" if self.is_lost() => return Err(CencError::IndexAtEnd { offset: self.pos }),
            // So the fragment is damaged.
            b"mdat" if self.is_undescribed && content != Some(0) => {
                return Err(CencError::NoSamples { offset: self.pos });
            }
            b"mdat" if self.init.is_none() => return Err(CencError::IndexAtEnd { offset: self.pos }),
            b"mdat" => (self.state, self.seen.1) = (DecrypterState::Media(content), true),
            _ => self.state = DecrypterState::Pass(header.kind, content),
        }
        // An empty box ends with its header.
        if content == Some(0) {
            self.state = DecrypterState::Header;
        }
        Ok(DecryptProgress { done: header.len, need: 0 })
    }

    /// Whether a box can start here: noise and other file types are rejected instead of being passed on as clear. An
    /// input that is not MP4 at all fails with its first box.
    fn check(&mut self, header: &BoxHeader) -> Result<()> {
        let (kind, offset) = (header.kind, self.pos);
        let is_first = !std::mem::replace(&mut self.seen.0, true);
        // Some files end in zeros, which read as a box of type 0 that extends to the end of the file.
        let is_padding = kind.0 == [0; 4] && header.size.is_none();
        let is_name = kind.0.iter().all(|b| matches!(b, b' '..=b'~' | 0xa9)) || is_padding && !is_first;
        if !is_name || is_first && !FIRST.contains(&&kind.0) {
            let what = "a box of this type in this place (it is damaged, or no MP4)";
            return Err(CencError::Unsupported { kind, offset, what });
        }
        match (header.size, self.end) {
            (Some(size), Some(end)) if offset.saturating_add(size) > end => {
                let what = format!("box `{kind}`, which says that it has {size} bytes from byte {offset} on");
                Err(CencError::Truncated { at: end, what })
            }
            _ => Ok(()),
        }
    }

    /// Whether the media data lacks encryption parameters although the file declares encryption.
    fn is_lost(&self) -> bool {
        let is_protected = |init: &Arc<InitSegment>| init.protected().next().is_some();
        !self.is_indexed && self.init.as_ref().is_some_and(is_protected)
    }

    /// A `moov` or `moof` is read and rewritten once it is complete, so it is the only part that is buffered as a
    /// whole.
    fn index(&mut self, header: &BoxHeader, data: &mut [u8]) -> Result<DecryptProgress> {
        let (kind, offset) = (header.kind, self.pos);
        let Some(size) = header.size else {
            return Err(CencError::Unsupported { kind, offset, what: "a size of 0 (to the end of the file)" });
        };
        // Checked before anything is buffered.
        if size > self.limits.index {
            return Err(CencError::TooLarge { kind, offset, size, limit: self.limits.index });
        }
        let size = size as usize;
        let Some(whole) = data.get_mut(..size) else { return Ok(DecryptProgress { done: 0, need: size }) };
        if kind == b"moov" {
            let b = BoxRef { header: *header, offset, at: 0, whole };
            let init = InitSegment::read(&b)?;
            // A second `moov` (a stream after a discontinuity) makes the first one's samples obsolete.
            self.plan.tidy();
            plan_table(&b, &init, &self.keys, &mut self.plan)?;
            self.check_regions(&b)?;
            init.rewrite(whole);
            self.is_indexed |= init.movie.tracks.iter().any(|t| !t.table.is_empty());
            self.init = Some(Arc::new(init));
        } else {
            let b = BoxRef { header: *header, offset, at: 0, whole };
            let Some(init) = self.init.clone() else {
                return Err(CencError::NoInit { offset, track: first_track(&b) });
            };
            self.is_undescribed = false;
            if init.tracks.iter().any(|t| t.entries.iter().any(Option::is_some)) {
                let samples = plan_fragment(&b, &init, &self.keys, &mut self.plan)?;
                self.is_undescribed = samples == 0;
                self.check_regions(&b)?;
            }
            // A fragment also indexes the media data of clear tracks, which then passes unchanged.
            self.is_indexed = true;
            // Positions first, and then the changes: the boxes borrow the buffer.
            let patches = fragment_patches(&b);
            replace_with_free(whole, &patches);
        }
        Ok(DecryptProgress { done: size, need: 0 })
    }

    /// Information located before the index that refers to it has already passed, and a stream cannot be rewound.
    fn check_regions(&self, index: &BoxRef<'_>) -> Result<()> {
        let end = index.offset + index.whole.len() as u64;
        match self.plan.regions.iter().find(|r| r.offset < end && (r.have.len() as u64) < r.len) {
            Some(_) => Err(index.error_here("it keeps IVs before itself, which a stream cannot go back to").into()),
            None => Ok(()),
        }
    }

    /// Media data: clear bytes pass, samples are decrypted. `end` is the file offset of the end of the `mdat`, if
    /// known.
    fn media(&mut self, data: &mut [u8], end: Option<u64>) -> Result<DecryptProgress> {
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|r| !r.is_empty()) {
            let at = self.pos + done as u64;
            if let Some((cursor, left)) = &mut self.cursor {
                let n = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let (part, _) = rest.split_at_mut(n);
                let n = cursor.feed(&self.plan, part);
                *left -= n as u64;
                done += n;
                if *left == 0 {
                    self.cursor = None;
                } else if n < part.len() {
                    // An incomplete cipher block is processed once its rest has arrived.
                    return Ok(DecryptProgress { done, need: 16 });
                }
                continue;
            }
            // Bytes after the last known sample, and those between samples, belong to no encrypted track.
            let Some(job) = self.plan.jobs.front() else { return Ok(DecryptProgress { done: data.len(), need: 0 }) };
            if job.offset > at {
                done += usize::try_from(job.offset - at).unwrap_or(usize::MAX).min(rest.len());
                continue;
            }
            // The sample begins in bytes that were already output.
            if job.offset < at {
                return Err(CencError::Misplaced { track: job.track, offset: job.offset });
            }
            // Its IV comes later in the same `mdat`: everything up to the end of the IVs is buffered.
            if let Some(until) = self.plan.awaited_until(job) {
                return self.wait(done, at, until, end);
            }
            let size = u64::from(job.size);
            let fits = end.is_none_or(|end| at + size <= end);
            let Some(cursor) = SampleCursor::new(&self.plan, job).filter(|_| fits) else {
                return Err(CencError::Misplaced { track: job.track, offset: job.offset });
            };
            self.cursor = Some((cursor, size));
            self.plan.jobs.pop_front();
        }
        Ok(DecryptProgress { done, need: 0 })
    }

    /// The IV of the next sample follows later, and ends at byte `until`: asks for the bytes up to there.
    fn wait(&self, done: usize, at: u64, until: u64, end: Option<u64>) -> Result<DecryptProgress> {
        let kind = FourCc(*b"mdat");
        let size = until.saturating_sub(at);
        if size == 0 || end.is_some_and(|end| until > end) {
            let what = "the place of its IVs, outside of the media data that they are for,";
            return Err(CencError::Unsupported { kind, offset: at, what });
        }
        if size > self.limits.waiting {
            return Err(CencError::TooLarge { kind, offset: at, size, limit: self.limits.waiting });
        }
        Ok(DecryptProgress { done, need: size as usize })
    }
}

/// The boxes that a file or segment may begin with (ISO 14496-12, DASH, CMAF, QuickTime).
const FIRST: [&[u8; 4]; 16] = [
    b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"mdat", b"free", b"skip", b"wide", b"emsg", b"prft", b"uuid",
    b"meta", b"ssix", b"pdin", b"mfra",
];

/// The smaller of `n` and the remaining length; `None` extends to the end of the file.
fn clamp_to_left(left: Option<u64>, n: usize) -> usize {
    left.map_or(n, |left| usize::try_from(left).unwrap_or(usize::MAX).min(n))
}

/// The state after `n` bytes of a box were processed: the same, or the next header.
fn state_after(left: Option<u64>, n: usize, go_on: impl Fn(Option<u64>) -> DecrypterState) -> DecrypterState {
    match left.map(|left| left - n as u64) {
        Some(0) => DecrypterState::Header,
        left => go_on(left),
    }
}

/// The first track of a fragment, for an error message.
fn first_track(moof: &BoxRef<'_>) -> u32 {
    let fragment = crate::bmff::MovieFragment::read(moof).unwrap_or_default();
    fragment.tracks.first().map_or(0, |t| t.track)
}
