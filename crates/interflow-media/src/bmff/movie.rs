//! The `moov` box: tracks, their sample entries, defaults for fragments (ISO 14496-12 8.2 to 8.8).

use std::ops::Range;

use super::box_reader::BoxReader;
use super::header::{BoxIterator, BoxRef, FourCc, Result, boxes, child, find};
use super::samples::SampleTable;

/// Maximum number of tracks and sample entries; real files have fewer than a hundred.
const MAX_TRACKS: usize = 256;

/// A movie: an init segment, or the index of a progressive file.
#[derive(Clone, Debug, Default)]
pub struct Movie {
    /// Units per second of `duration`.
    pub timescale: u32,
    /// Total duration in units; 0 if unknown.
    pub duration: u64,
    pub tracks: Vec<MovieTrack>,
    /// Whether fragments follow (`mvex`).
    pub fragmented: bool,
}

/// One track (`trak`) with its formats and samples.
#[derive(Clone, Debug)]
pub struct MovieTrack {
    pub id: u32,
    /// `vide`, `soun`, `text`, `subt`, …
    pub handler: FourCc,
    /// Units per second of the track's durations and times.
    pub timescale: u32,
    /// Duration in units of the movie or track, whichever contains it; 0 if unknown.
    pub duration: u64,
    /// ISO 639-2 code, `und` if there is none.
    pub language: String,
    /// Sample entries (`stsd`); files refer to the first one as 1.
    pub entries: Vec<SampleEntry>,
    /// Edit list (`elst`) in the movie's and the track's units.
    pub edits: Vec<EditListEntry>,
    /// Defaults for fragments (`trex`); absent fields of a fragment take them.
    pub defaults: FragmentDefaults,
    /// Samples indexed by the movie itself; empty in an init segment.
    pub table: SampleTable,
    /// Range of the `stbl`, relative to the first byte of the `moov` box.
    pub stbl: Range<usize>,
}

/// `trex` (ISO 14496-12 8.8.3): defaults for the samples of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentDefaults {
    /// Sample-description-index, from 1.
    pub description: u32,
    pub duration: u32,
    pub size: u32,
    /// Sample flags (8.8.3.1).
    pub flags: u32,
}

impl Default for FragmentDefaults {
    fn default() -> Self {
        Self { description: 1, duration: 0, size: 0, flags: 0 }
    }
}

/// One edit (8.6.6), whose duration counts in units of the movie and whose start in units of the track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditListEntry {
    pub duration: u64,
    /// Media time at which it starts, in units of the track; -1 for an empty edit.
    pub media_time: i64,
}

/// A sample entry: sample format and decoder configuration.
#[derive(Clone, Debug, Default)]
pub struct SampleEntry {
    /// The type as stored: `avc1`, `encv`, …
    pub kind: FourCc,
    /// The original format below encryption (`frma`); the same as `kind` if clear.
    pub format: FourCc,
    /// Range, relative to the first byte of the `moov` box.
    pub range: Range<usize>,
    /// Size in pixels; 0 for anything but video.
    pub width: u16,
    pub height: u16,
    /// Channels declared by the entry; 0 for anything but audio.
    pub channels: u16,
    /// Samples per second declared by the entry; 0 for anything but audio.
    pub rate: u32,
    raw: Vec<u8>,
    /// Where its first child is, from the first byte of the entry on.
    inner: usize,
    /// Where it is in the file, for error messages.
    pub(super) offset: u64,
}

impl Movie {
    /// Reads a `moov` box.
    ///
    /// # Errors
    /// If a box in it is malformed, or there are more than 256 tracks.
    pub fn read(moov: &BoxRef<'_>) -> Result<Self> {
        let mut movie = Self::default();
        let mut defaults = Vec::new();
        for b in moov.children() {
            let b = b?;
            match &b.kind().0 {
                b"mvhd" => (movie.timescale, movie.duration, _) = media_header(&b)?,
                b"trak" => {
                    let track = MovieTrack::read(&b, moov)?;
                    if movie.tracks.len() == MAX_TRACKS || movie.tracks.iter().any(|t| t.id == track.id) {
                        return Err(b.error_here("there are too many tracks, or two with the same id"));
                    }
                    movie.tracks.push(track);
                }
                b"mvex" => {
                    movie.fragmented = true;
                    for trex in b.children() {
                        let trex = trex?;
                        if trex.kind() == b"trex" {
                            defaults.push(track_extends(&trex)?);
                        }
                    }
                }
                _ => {}
            }
        }
        for track in &mut movie.tracks {
            if let Some((_, found)) = defaults.iter().find(|(id, _)| *id == track.id) {
                track.defaults = *found;
            }
        }
        Ok(movie)
    }

    pub fn track(&self, id: u32) -> Option<&MovieTrack> {
        self.tracks.iter().find(|t| t.id == id)
    }
}

impl MovieTrack {
    fn read(trak: &BoxRef<'_>, moov: &BoxRef<'_>) -> Result<Self> {
        let missing = |what: &'static str| move || trak.error_here(what);
        let tkhd = child(trak, b"tkhd")?.ok_or_else(missing("it has no tkhd"))?;
        let mut f = BoxReader::from_box(&tkhd);
        let (version, _) = f.version()?;
        f.skip(if version == 1 { 16 } else { 8 })?;
        let id = f.u32()?;
        let mdia = child(trak, b"mdia")?.ok_or_else(missing("it has no mdia"))?;
        let mdhd = child(&mdia, b"mdhd")?.ok_or_else(missing("it has no mdhd"))?;
        let (timescale, duration, language) = media_header(&mdhd)?;
        let handler = child(&mdia, b"hdlr")?.map_or(Ok(FourCc(*b"    ")), |hdlr| handler(&hdlr))?;
        let stbl = find(&mdia, &[b"minf", b"stbl"])?.ok_or_else(missing("it has no stbl"))?;
        let entries = child(&stbl, b"stsd")?.map_or(Ok(Vec::new()), |stsd| entries(&stsd, handler, moov))?;
        let edits = find(trak, &[b"edts", b"elst"])?.map_or(Ok(Vec::new()), |elst| edits(&elst))?;
        let at = (stbl.offset - moov.offset) as usize;
        Ok(Self {
            id,
            handler,
            timescale,
            duration,
            language,
            entries,
            edits,
            defaults: FragmentDefaults::default(),
            table: SampleTable::read(&stbl)?,
            stbl: at..at + stbl.whole.len(),
        })
    }

    /// Start of the presentation on the track's timeline, from the first edit that is not empty; B-frames usually
    /// shift it.
    pub fn media_start(&self) -> i64 {
        self.edits.iter().map(|e| e.media_time).find(|t| *t >= 0).unwrap_or(0)
    }
}

impl SampleEntry {
    /// The child boxes: decoder configuration, `sinf`, `pasp`, …
    pub fn children(&self) -> BoxIterator<'_> {
        boxes(self.raw.get(self.inner..).unwrap_or_default(), self.offset + self.inner as u64)
    }

    /// The first child of a type; a malformed child hides those after it, which then count as absent.
    pub fn child(&self, kind: &[u8; 4]) -> Option<BoxRef<'_>> {
        self.children().flatten().find(|b| b.kind() == kind)
    }

    /// Whether its samples are encrypted, or may be (ISO 14496-12 8.12).
    pub fn is_protected(&self) -> bool {
        matches!(&self.kind.0, b"encv" | b"enca" | b"enct" | b"encs" | b"encu" | b"encm" | b"enc3" | b"encf")
    }

    fn read(b: &BoxRef<'_>, handler: FourCc, moov: &BoxRef<'_>) -> Result<Self> {
        let at = (b.offset - moov.offset) as usize;
        let mut entry = Self {
            kind: b.kind(),
            format: b.kind(),
            range: at..at + b.whole.len(),
            raw: b.whole.to_vec(),
            inner: b.whole.len(),
            offset: b.offset,
            ..Self::default()
        };
        let mut f = BoxReader::from_box(b);
        f.skip(8)?;
        match (&handler.0, &entry.kind.0) {
            (b"vide" | b"pict", _) | (_, b"encv") => {
                f.skip(16)?;
                (entry.width, entry.height) = (f.u16()?, f.u16()?);
                f.skip(50)?;
                entry.inner = 86;
            }
            (b"soun", _) | (_, b"enca") => {
                f.skip(8)?;
                entry.channels = f.u16()?;
                f.skip(6)?;
                entry.rate = f.u32()? >> 16;
                // QuickTime's versions 1 and 2 put 16 or 36 bytes before the boxes; ISO's version 1 does not.
                entry.inner = [36, 52, 72].into_iter().find(|n| entry.holds_boxes_at(*n)).unwrap_or(36);
            }
            _ => entry.inner = entry.text_children(),
        }
        if entry.is_protected() {
            let sinf = entry.child(b"sinf").ok_or_else(|| b.error_here("it is protected, but has no sinf"))?;
            let frma = child(&sinf, b"frma")?.ok_or_else(|| sinf.error_here("it has no frma"))?;
            entry.format = FourCc(BoxReader::from_box(&frma).array()?);
        }
        Ok(entry)
    }

    /// Whether well-formed boxes extend from here to the end of the entry.
    fn holds_boxes_at(&self, at: usize) -> bool {
        let Some(rest) = self.raw.get(at..) else { return false };
        let named = |b: &BoxRef<'_>| b.kind().0.iter().all(|c| matches!(c, b' '..=b'~'));
        boxes(rest, 0).all(|b| b.is_ok_and(|b| named(&b)))
    }

    /// Text, subtitle and metadata entries have variable-length strings before their child boxes: finds the first
    /// offset from which well-formed boxes extend to the end.
    fn text_children(&self) -> usize {
        let end = self.raw.len();
        (16..end.saturating_sub(7).min(4096)).find(|at| self.holds_boxes_at(*at)).unwrap_or(end)
    }
}

/// Timescale, duration and language of `mvhd` and `mdhd`, which begin alike.
fn media_header(b: &BoxRef<'_>) -> Result<(u32, u64, String)> {
    let mut f = BoxReader::from_box(b);
    let (version, _) = f.version()?;
    f.skip(if version == 1 { 16 } else { 8 })?;
    let timescale = f.u32()?;
    let duration = f.u32_or_64(version == 1)?;
    let unknown = if version == 1 { u64::MAX } else { u64::from(u32::MAX) };
    let language = f.u16().unwrap_or(0);
    // Three letters of five bits each (ISO 14496-12 8.4.2.3).
    let letter = |shift: u16| char::from(((language >> shift & 31) as u8 + 0x60).min(b'z'));
    let language = match language {
        0 | 0x7fff.. => "und".to_owned(),
        _ => [10, 5, 0].into_iter().map(letter).collect(),
    };
    if timescale == 0 {
        return Err(b.error_here("its timescale is 0"));
    }
    Ok((timescale, if duration == unknown { 0 } else { duration }, language))
}

fn handler(hdlr: &BoxRef<'_>) -> Result<FourCc> {
    let mut f = BoxReader::from_box(hdlr);
    f.skip(8)?;
    f.array().map(FourCc)
}

fn entries(stsd: &BoxRef<'_>, handler: FourCc, moov: &BoxRef<'_>) -> Result<Vec<SampleEntry>> {
    let mut f = BoxReader::from_box(stsd);
    f.version()?;
    let count = f.count(8)?;
    let entries = boxes(f.rest(), stsd.content_offset() + 8).take(count.min(MAX_TRACKS));
    entries.map(|b| SampleEntry::read(&b?, handler, moov)).collect()
}

fn edits(elst: &BoxRef<'_>) -> Result<Vec<EditListEntry>> {
    let mut f = BoxReader::from_box(elst);
    let (version, _) = f.version()?;
    let count = f.count(if version == 1 { 20 } else { 12 })?;
    (0..count)
        .map(|_| {
            let duration = f.u32_or_64(version == 1)?;
            let media_time = if version == 1 { f.i64()? } else { i64::from(f.i32()?) };
            f.skip(4)?;
            Ok(EditListEntry { duration, media_time })
        })
        .collect()
}

fn track_extends(trex: &BoxRef<'_>) -> Result<(u32, FragmentDefaults)> {
    let mut f = BoxReader::from_box(trex);
    f.version()?;
    let id = f.u32()?;
    Ok((id, FragmentDefaults { description: f.u32()?, duration: f.u32()?, size: f.u32()?, flags: f.u32()? }))
}
