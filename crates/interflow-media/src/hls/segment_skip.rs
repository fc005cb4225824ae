//! Removes time ranges from a playlist: intros, credits.
//!
//! Tags precede the segment that they describe, so lines are held until the segment's URL shows whether they are to be
//! written. Tags that also apply to later segments (keys, initialization sections, unknown ones) survive the segment.

use std::borrow::Cow;
use std::collections::HashMap;

use super::tags::{PlaylistLine, attribute, attribute_text, length_and_offset, lines, tag};

/// Time ranges to remove, in seconds from the first segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkipRanges(Vec<(f64, f64)>);

impl SkipRanges {
    /// Parses `0-112,280-300`; `None` if a range is invalid.
    pub fn read(text: &str) -> Option<Self> {
        let one = |part: &str| {
            let (from, to) = part.trim().split_once('-')?;
            let (from, to): (f64, f64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            (from.is_finite() && to.is_finite() && from < to).then_some((from, to))
        };
        text.split(',').map(one).collect::<Option<_>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a segment overlaps one of them, even partly.
    pub fn overlaps(&self, from: f64, to: f64) -> bool {
        self.0.iter().any(|(start, end)| from < *end && to > *start)
    }
}

/// Removes the segments that overlap one of these ranges. Only applies to playlists with a fixed start (`ENDLIST`, or
/// type `VOD` or `EVENT`): in a sliding window, times from its start are meaningless.
///
/// Segment numbers become contiguous, so segments whose IV is their number get an explicit IV, and byte ranges relative
/// to the previous one get an offset.
pub fn skip_segments<'a>(text: &'a [u8], stretches: &SkipRanges) -> Cow<'a, [u8]> {
    if stretches.is_empty() || !has_fixed_start(text) {
        return Cow::Borrowed(text);
    }
    let mut cutter = SegmentSkipper {
        text,
        stretches,
        out: Vec::with_capacity(text.len()),
        time: 0.0,
        duration: None,
        sequence: 0,
        held: Vec::new(),
        key: None,
        range: None,
        ends: HashMap::new(),
        cut: false,
        gap: false,
    };
    for line in lines(text) {
        cutter.line(line);
    }
    let SegmentSkipper { mut out, held, .. } = cutter;
    held.iter().for_each(|l| out.extend_from_slice(l.with_line_end(text)));
    Cow::Owned(out)
}

/// Whether the first segment is the start of the programme.
fn has_fixed_start(text: &[u8]) -> bool {
    let has = |needle: &[u8]| memchr::memmem::find(text, needle).is_some();
    has(b"#EXT-X-ENDLIST") || has(b"#EXT-X-PLAYLIST-TYPE:VOD") || has(b"#EXT-X-PLAYLIST-TYPE:EVENT")
}

struct SegmentSkipper<'a, 's> {
    text: &'a [u8],
    stretches: &'s SkipRanges,
    out: Vec<u8>,
    /// Start of the next segment in seconds.
    time: f64,
    duration: Option<f64>,
    sequence: u64,
    /// Lines since the last segment, which belong to the next one.
    held: Vec<PlaylistLine>,
    /// The tag of the active key, if its IV is the segment's number. The numbers of later segments change once anything
    /// is `cut`.
    key: Option<PlaylistLine>,
    /// Length and offset of the next byte range. Without an offset it continues after the last range of the same URL
    /// (RFC 8216 4.3.2.2).
    range: Option<(u64, Option<u64>)>,
    /// End of the last byte range of each URL.
    ends: HashMap<&'a [u8], u64>,
    cut: bool,
    gap: bool,
}

impl SegmentSkipper<'_, '_> {
    fn line(&mut self, line: PlaylistLine) {
        let bytes = line.content(self.text);
        let Some((name, value)) = tag(bytes) else {
            return match bytes.first() {
                None | Some(b'#') => self.held.push(line),
                Some(_) => self.segment(line),
            };
        };
        let value_text = std::str::from_utf8(value).unwrap_or_default().trim();
        match name {
            b"EXTINF" => self.duration = value_text.split(',').next().and_then(|d| d.trim().parse().ok()),
            b"EXT-X-BYTERANGE" => self.range = length_and_offset(value_text),
            b"EXT-X-MEDIA-SEQUENCE" => self.sequence = value_text.parse().unwrap_or(0),
            b"EXT-X-KEY" => {
                let numbered = attribute(value, b"IV").is_none() && attribute_text(value, b"METHOD") != Some("NONE");
                let identity = attribute_text(value, b"KEYFORMAT").is_none_or(|f| f == "identity");
                if identity {
                    self.key = numbered.then_some(line);
                }
            }
            _ => {}
        }
        self.held.push(line);
    }

    /// A segment's URL: writes or drops it with the lines before it.
    fn segment(&mut self, line: PlaylistLine) {
        let duration = self.duration.take().unwrap_or(0.0);
        let (from, to) = (self.time, self.time + duration);
        self.time = to;
        let range = self.place_range(line);
        let number = self.sequence;
        self.sequence += 1;
        let held = std::mem::take(&mut self.held);
        if self.stretches.overlaps(from, to) {
            (self.cut, self.gap) = (true, true);
            // Tags that apply to later segments are kept.
            let stays = |l: &PlaylistLine| !tag(l.content(self.text)).is_some_and(|(name, _)| is_of_one_segment(name));
            held.iter().filter(|l| stays(l)).for_each(|l| self.out.extend_from_slice(l.with_line_end(self.text)));
            return;
        }
        let has =
            |wanted: &[u8]| held.iter().any(|l| tag(l.content(self.text)).is_some_and(|(name, _)| name == wanted));
        // The timestamps of the next segment do not continue those of the last one written. At the start of the
        // playlist there is nothing that they would have to continue.
        let is_parted = self.gap && !self.out.is_empty() && !has(b"EXT-X-DISCONTINUITY") && has(b"EXTINF");
        self.before_segment(&held, number, range, is_parted);
        self.gap = false;
        self.out.extend_from_slice(line.with_line_end(self.text));
    }

    /// The byte range of a segment with an explicit offset.
    fn place_range(&mut self, line: PlaylistLine) -> Option<(u64, u64)> {
        let (length, offset) = self.range.take()?;
        let address = line.content(self.text).trim_ascii();
        let offset = offset.unwrap_or_else(|| self.ends.get(address).copied().unwrap_or(0));
        self.ends.insert(address, offset.saturating_add(length));
        Some((length, offset))
    }

    /// Writes the lines before a segment that stays, with what changed for it.
    fn before_segment(&mut self, held: &[PlaylistLine], number: u64, range: Option<(u64, u64)>, part: bool) {
        let mut parted = !part;
        let numbered = self.key.filter(|_| self.cut);
        let mut written = false;
        for line in held {
            let bytes = line.content(self.text);
            let name = tag(bytes).map(|(name, _)| name);
            let own = name.is_some_and(is_of_one_segment);
            if own && !parted {
                parted = true;
                self.out.extend_from_slice(b"#EXT-X-DISCONTINUITY\n");
            }
            // The key with the original number is repeated before every segment, since each has an IV of its own; the
            // original tag is replaced if it is among the held lines.
            match (name, numbered, range) {
                (Some(b"EXT-X-KEY"), Some(key), _) if key == *line => {
                    self.write_key(key, number);
                    written = true;
                    continue;
                }
                (Some(b"EXTINF"), Some(key), _) if !written => {
                    self.write_key(key, number);
                    written = true;
                }
                // The range before it, from which the player would count, is no longer in the playlist.
                (Some(b"EXT-X-BYTERANGE"), _, Some((length, offset))) if self.gap => {
                    self.out.extend_from_slice(format!("#EXT-X-BYTERANGE:{length}@{offset}\n").as_bytes());
                    continue;
                }
                _ => {}
            }
            self.out.extend_from_slice(line.with_line_end(self.text));
        }
    }

    fn write_key(&mut self, key: PlaylistLine, number: u64) {
        self.out.extend_from_slice(key.content(self.text));
        self.out.extend_from_slice(format!(",IV=0x{number:032x}\n").as_bytes());
    }
}

/// Whether a tag applies to a single segment (RFC 8216bis 4.4.4), and is dropped with it.
fn is_of_one_segment(name: &[u8]) -> bool {
    const NAMES: &str = "EXTINF EXT-X-BYTERANGE EXT-X-DISCONTINUITY EXT-X-PROGRAM-DATE-TIME EXT-X-GAP EXT-X-PART \
                         EXT-X-BITRATE";
    std::str::from_utf8(name).is_ok_and(|name| interflow_types::data_file::has_word(NAMES, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_text(text: &str, stretches: &str) -> String {
        String::from_utf8(skip_segments(text.as_bytes(), &SkipRanges::read(stretches).unwrap()).into_owned()).unwrap()
    }

    fn vod(n: usize) -> String {
        let segments: String = (0..n).map(|i| format!("#EXTINF:4,\n{i}.ts\n")).collect();
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:7\n{segments}#EXT-X-ENDLIST\n")
    }

    #[test]
    fn segments_overlapping_a_skipped_range_are_removed() {
        let text = cut_text(&vod(6), "0-4,9-13");
        let left: Vec<_> = text.lines().filter(|l| !l.starts_with("#EXT-X-T")).skip(1).collect();
        assert_eq!(
            left,
            [
                "#EXT-X-MEDIA-SEQUENCE:7",
                "#EXT-X-DISCONTINUITY",
                "#EXTINF:4,",
                "1.ts",
                "#EXT-X-DISCONTINUITY",
                "#EXTINF:4,",
                "4.ts",
                "#EXTINF:4,",
                "5.ts",
                "#EXT-X-ENDLIST"
            ]
        );
    }

    #[test]
    fn live_and_multivariant_playlists_are_not_cut() {
        let live = vod(6).replace("#EXT-X-ENDLIST\n", "");
        assert_eq!(cut_text(&live, "0-8"), live);
        let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\na.m3u8\n";
        assert_eq!(cut_text(master, "0-8"), master);
        assert!(["x", "5-2", "-", "0-8,x"].iter().all(|text| SkipRanges::read(text).is_none()));
    }

    #[test]
    fn implicit_ivs_are_written_out() {
        let text = vod(4).replace("#EXTINF:4,\n0.ts", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:4,\n0.ts");
        let text = cut_text(&text, "0-4");
        let vectors: Vec<_> = text.lines().filter_map(|l| l.split("IV=").nth(1)).collect();
        assert_eq!(vectors, [8, 9, 10].map(|n| format!("0x{n:032x}")));
        let untouched =
            vod(2).replace("#EXTINF:4,\n0.ts", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1\n#EXTINF:4,\n0.ts");
        assert_eq!(cut_text(&untouched, "4-8").matches("IV=").count(), 1);
    }

    #[test]
    fn byte_ranges_keep_their_offsets() {
        let segments: String = (0..3).map(|_| "#EXTINF:4,\n#EXT-X-BYTERANGE:100\nf.mp4\n".to_owned()).collect();
        let text =
            format!("#EXTM3U\n#EXT-X-MAP:URI=\"f.mp4\"\n{segments}#EXT-X-ENDLIST\n").replacen(":100\n", ":100@50\n", 1);
        let text = cut_text(&text, "4-8");
        assert!(text.contains("#EXT-X-BYTERANGE:100@50\n") && text.contains("#EXT-X-BYTERANGE:100@250\n"), "{text}");
        assert!(text.contains("#EXT-X-MAP"), "{text}");
    }
}
