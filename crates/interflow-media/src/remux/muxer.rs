//! The muxer: fragments in, transport packets out.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};

use super::RemuxError;
use super::access_unit::ElementaryFormat;
use super::packets::{PesMarker, PidCounter, pes_header};
use super::tables::{FIRST, PMT, PmtStream, pat, pmt};
use crate::bmff::{BoxError, BoxHeader, FourCc, LocatedSample, Movie, MovieFragment, MovieTrack, boxes};

/// How timestamps are shifted and how much is buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemuxOptions {
    /// Offset added to all timestamps, in ticks of 90 kHz. Negative results wrap.
    pub shift: i64,
    /// Maximum size of a buffered fragment (`moof` with its `mdat`), in bytes.
    pub limit: u64,
}

impl Default for RemuxOptions {
    /// 1.4 seconds, so that decoding times before the first picture stay positive; 64 MiB.
    fn default() -> Self {
        Self { shift: 126_000, limit: 64 << 20 }
    }
}

/// A parsed init segment, usable for any number of segments, also at the same time.
pub struct TsMuxer {
    options: RemuxOptions,
    streams: Vec<MuxedStream>,
    /// The stream that carries the PCR: the first video, else the first stream.
    clock: usize,
}

/// A track and how its samples are written.
struct MuxedStream {
    track: MovieTrack,
    forms: Vec<ElementaryFormat>,
    listed: PmtStream,
    is_video: bool,
}

/// Maximum audio PES in bytes: short enough for a quick start, long enough not to waste packets.
const AUDIO_BYTES: usize = 2_900;
/// Maximum duration of an audio PES in ticks of 90 kHz: 200 ms.
const AUDIO_TICKS: i64 = 18_000;
/// Maximum number of streams that fit into a one-packet PMT.
const MAX_STREAMS: usize = 8;

impl TsMuxer {
    /// Reads a clear init segment.
    ///
    /// # Errors
    /// If it is malformed, encrypted, or has a codec without a mapping to MPEG-TS.
    pub fn new(init: &[u8], options: RemuxOptions) -> Result<Arc<Self>, RemuxError> {
        let moov = boxes(init, 0).find(|b| b.as_ref().is_ok_and(|b| b.kind() == b"moov"));
        let moov = moov.unwrap_or_else(|| Err(BoxError::new(FourCc(*b"moov"), 0, "it is missing")))?;
        let mut streams = Vec::new();
        for track in Movie::read(&moov)?.tracks {
            if !matches!(&track.handler.0, b"vide" | b"soun") || track.entries.is_empty() {
                continue;
            }
            let mut forms = Vec::new();
            let mut listed = None;
            for entry in &track.entries {
                let (form, l) = ElementaryFormat::for_track(&track, entry)?;
                forms.push(form);
                listed.get_or_insert(l);
            }
            let is_video = track.handler == b"vide";
            streams.extend(listed.map(|listed| MuxedStream { track, forms, listed, is_video }));
        }
        if streams.is_empty() {
            return Err(RemuxError::NoTracks);
        }
        if streams.len() > MAX_STREAMS {
            return Err(moov.error_here(format!("it has more than {MAX_STREAMS} tracks")).into());
        }
        let clock = streams.iter().position(|s| s.is_video).unwrap_or(0);
        Ok(Arc::new(Self { options, streams, clock }))
    }

    /// Starts a segment. It needs nothing from other segments.
    pub fn segment(self: &Arc<Self>) -> TsSegment {
        let pids = (0..self.streams.len()).map(|i| PidCounter::new(FIRST + i as u16)).collect();
        TsSegment {
            muxer: Arc::clone(self),
            tables: [PidCounter::new(0), PidCounter::new(PMT)],
            pids,
            held: self.streams.iter().map(|_| None).collect(),
            input: BytesMut::new(),
            need: 8,
            skip: 0,
            pos: 0,
            moof: None,
        }
    }
}

/// A segment being generated. Each fragment is buffered until its media data is complete.
///
/// `input` collects the current box until it has `need` bytes, from position `pos` of the segment on; `skip` counts
/// what is left of a box that is not needed.
pub struct TsSegment {
    muxer: Arc<TsMuxer>,
    tables: [PidCounter; 2],
    pids: Vec<PidCounter>,
    /// The last PES of each stream. It is written only by [`finish`](Self::finish), with as many additional packets as
    /// make the stream's packet count a multiple of 16.
    held: Vec<Option<PesPacket>>,
    input: BytesMut,
    need: u64,
    skip: u64,
    pos: u64,
    moof: Option<PendingMoof>,
}

/// A `moof` that waits for its `mdat`, with the positions of its samples.
struct PendingMoof {
    fragment: MovieFragment,
    placed: Vec<Vec<LocatedSample>>,
}

/// A PES with its header, ready to be packetized.
struct PesPacket {
    data: Vec<u8>,
    mark: PesMarker,
}

/// One sample of a fragment, with its times in ticks of 90 kHz.
struct PendingSample {
    stream: usize,
    form: usize,
    pts: i64,
    dts: i64,
    placed: LocatedSample,
}

/// The samples of one PES: a picture, or several audio frames, with the times of the first.
struct PesBatch {
    stream: usize,
    stream_id: u8,
    pts: i64,
    dts: i64,
    data: Vec<u8>,
    mark: PesMarker,
}

impl TsSegment {
    /// Processes the next bytes of the segment and appends the output to `out`.
    ///
    /// # Errors
    /// If a box is malformed or too large, or samples are invalid for their codec.
    pub fn push(&mut self, mut chunk: Bytes, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        while !chunk.is_empty() {
            if self.skip > 0 {
                let n = usize::try_from(self.skip).unwrap_or(usize::MAX).min(chunk.len());
                chunk.advance(n);
                (self.skip, self.pos) = (self.skip - n as u64, self.pos + n as u64);
                continue;
            }
            let missing = usize::try_from(self.need).unwrap_or(usize::MAX).saturating_sub(self.input.len());
            self.input.extend_from_slice(&chunk.split_to(missing.min(chunk.len())));
            if self.input.len() as u64 >= self.need {
                self.step(out)?;
            }
        }
        Ok(())
    }

    /// Ends the segment.
    ///
    /// # Errors
    /// If it ended inside a box, or before the media data of a fragment.
    pub fn finish(mut self, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        if !self.input.is_empty() || self.skip > 0 || self.moof.is_some() {
            return Err(RemuxError::Truncated(self.pos + self.input.len() as u64));
        }
        let mut bytes = Vec::new();
        for (pid, held) in self.pids.iter_mut().zip(&mut self.held) {
            if let Some(pes) = held.take() {
                let extra = pid.missing(PidCounter::packets(&pes.data, pes.mark));
                pid.pes(&pes.data, pes.mark, extra, &mut bytes);
            }
        }
        // There is no last PES to stretch: tables are repeated until their counters match.
        while self.tables.iter().any(|t| t.missing(0) > 0) {
            self.tables(&mut bytes);
        }
        out.push(bytes.into());
        Ok(())
    }

    /// Processes `input`, which contains what was needed: a header, or a complete box.
    fn step(&mut self, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        let Some(header) = BoxHeader::read(&self.input, self.pos)? else {
            // The size of the header is not known before it is complete.
            self.need = (self.input.len() as u64 + 8).min(BoxHeader::MAX_HEADER_LEN as u64);
            return Ok(());
        };
        let has = self.input.len() as u64;
        let is_wanted = header.kind == b"moof" || (header.kind == b"mdat" && self.moof.is_some());
        let size = match header.size {
            Some(size) => size,
            None if is_wanted => return Err(BoxError::new(header.kind, self.pos, "its size is not stated").into()),
            // A skipped box may extend to the end of the file.
            None => u64::MAX,
        };
        if !is_wanted {
            (self.skip, self.need, self.pos) = (size.saturating_sub(has), 8, self.pos.saturating_add(has));
            self.input.clear();
            return Ok(());
        }
        if size > self.muxer.options.limit {
            return Err(RemuxError::TooLarge { offset: self.pos, size, limit: self.muxer.options.limit });
        }
        if has < size {
            self.need = size;
            return Ok(());
        }
        let whole = std::mem::take(&mut self.input);
        if header.kind == b"moof" {
            self.moof = Some(self.index(&whole)?);
        } else if let Some(moof) = self.moof.take() {
            let mut bytes = Vec::with_capacity(whole.len() + whole.len() / 16);
            self.fragment(&moof, &whole, &mut bytes)?;
            out.push(bytes.into());
        }
        (self.pos, self.need) = (self.pos + size, 8);
        Ok(())
    }

    /// Parses a `moof`, and finds its samples before the media data arrives.
    fn index(&self, moof: &[u8]) -> Result<PendingMoof, RemuxError> {
        let broken = BoxError::new(FourCc(*b"moof"), self.pos, "it is empty");
        let b = boxes(moof, self.pos).next().unwrap_or(Err(broken))?;
        let fragment = MovieFragment::read(&b)?;
        let streams = &self.muxer.streams;
        let placed = fragment.locate_samples(|id| {
            streams.iter().find(|s| s.track.id == id).map(|s| s.track.defaults).unwrap_or_default()
        })?;
        Ok(PendingMoof { fragment, placed })
    }

    /// Writes a fragment: tables, then the samples of all tracks.
    fn fragment(&mut self, moof: &PendingMoof, media: &[u8], out: &mut Vec<u8>) -> Result<(), RemuxError> {
        let muxer = Arc::clone(&self.muxer);
        self.tables(out);
        let mut gathered: Vec<Option<PesBatch>> = muxer.streams.iter().map(|_| None).collect();
        // All streams in decoding order, so that sound and picture of the same time are close to each other in the
        // segment.
        for unit in units(&muxer, moof) {
            let (Some(stream), Some(slot)) = (muxer.streams.get(unit.stream), gathered.get_mut(unit.stream)) else {
                continue;
            };
            let (track, offset) = (stream.track.id, unit.placed.offset);
            let form = stream.forms.get(unit.form).ok_or(RemuxError::Sample { track, offset })?;
            let start = offset.checked_sub(self.pos).and_then(|at| usize::try_from(at).ok());
            // The fragment's data begins at the position of its box.
            let sample = start.and_then(|at| media.get(at..)?.get(..unit.placed.size as usize));
            let sample = sample.ok_or(RemuxError::Misplaced { track, offset })?;
            let joins = |g: &PesBatch| {
                !stream.is_video && g.data.len() + sample.len() < AUDIO_BYTES && unit.pts - g.pts < AUDIO_TICKS
            };
            if let Some(done) = slot.take_if(|g| !joins(g)) {
                self.close(done, out);
            }
            let is_sync = unit.placed.is_sync();
            let pcr = (unit.stream == muxer.clock).then_some(unit.dts);
            let into = slot.get_or_insert_with(|| PesBatch {
                stream: unit.stream,
                stream_id: form.stream_id(&stream.listed),
                pts: unit.pts,
                dts: unit.dts,
                data: Vec::with_capacity(sample.len() + 64),
                mark: PesMarker { pcr, random_access: is_sync || !stream.is_video },
            });
            form.write(sample, is_sync, &mut into.data).ok_or(RemuxError::Sample { track, offset })?;
        }
        for rest in gathered.into_iter().flatten() {
            self.close(rest, out);
        }
        Ok(())
    }

    /// Completes a PES; the previous one is written.
    fn close(&mut self, done: PesBatch, out: &mut Vec<u8>) {
        let mut data = Vec::with_capacity(done.data.len() + 19);
        pes_header(done.stream_id, done.pts, done.dts, done.data.len(), &mut data);
        data.extend_from_slice(&done.data);
        let (Some(held), Some(pid)) = (self.held.get_mut(done.stream), self.pids.get_mut(done.stream)) else { return };
        if let Some(before) = held.replace(PesPacket { data, mark: done.mark }) {
            // Only the PES before is written: this one may be the last.
            pid.pes(&before.data, before.mark, 0, out);
        }
    }

    /// Writes PAT and PMT, one packet each.
    fn tables(&mut self, out: &mut Vec<u8>) {
        let listed: Vec<PmtStream> = self.muxer.streams.iter().map(|s| s.listed.clone()).collect();
        let [first, second] = &mut self.tables;
        first.section(&pat(), out);
        second.section(&pmt(&listed, self.muxer.clock), out);
    }
}

/// The samples of a fragment in decoding order, all tracks together.
fn units(muxer: &TsMuxer, moof: &PendingMoof) -> Vec<PendingSample> {
    let mut units = Vec::new();
    for (traf, placed) in moof.fragment.tracks.iter().zip(&moof.placed) {
        let track_stream = muxer.streams.iter().enumerate().find(|(_, s)| s.track.id == traf.track);
        let Some((index, stream)) = track_stream else { continue };
        let scale = i128::from(stream.track.timescale.max(1));
        let ticks = |units: i128| (units * 90_000).div_euclid(scale) as i64 + muxer.options.shift;
        let description = traf.description.unwrap_or(stream.track.defaults.description);
        // Composition times may precede decoding times in the file, but not in a decoder, so decoding is moved ahead.
        let ahead = i128::from(placed.iter().map(|p| p.composition).min().unwrap_or(0).min(0));
        let mut time = i128::from(traf.time.unwrap_or(0)) - i128::from(stream.track.media_start());
        for p in placed {
            units.push(PendingSample {
                stream: index,
                form: (description as usize).wrapping_sub(1),
                pts: ticks(time + i128::from(p.composition)),
                dts: ticks(time + ahead),
                placed: *p,
            });
            time += i128::from(p.duration);
        }
    }
    units.sort_by_key(|u| u.dts);
    units
}
