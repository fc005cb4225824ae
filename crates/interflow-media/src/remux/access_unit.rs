//! Converts samples to elementary stream format: Annex B with parameter sets and delimiters, ADTS for AAC, others
//! unchanged.

use super::RemuxError;
use super::tables::PmtStream;
use crate::bmff::{AacConfig, ElementaryStreamInfo, MovieTrack, ParameterSets, SampleEntry};

/// The elementary stream format of a sample entry.
#[derive(Clone, Debug)]
pub enum ElementaryFormat {
    /// H.264 (`true`: HEVC): length fields become start codes.
    AnnexB(ParameterSets, bool),
    /// AAC: a 7-byte header before each frame.
    Adts(AacConfig),
    /// AC-3, E-AC-3, MP3: frames that carry their own length, and are copied.
    Plain,
}

/// A start code, then an access unit delimiter that allows any slice type.
const AVC_DELIMITER: [u8; 6] = [0, 0, 0, 1, 0x09, 0xf0];
const HEVC_DELIMITER: [u8; 7] = [0, 0, 0, 1, 0x46, 0x01, 0x50];

impl ElementaryFormat {
    /// The format of a sample entry, and its PMT entry.
    ///
    /// # Errors
    /// If the codec cannot be carried in MPEG-TS, or its configuration is malformed.
    pub fn for_track(track: &MovieTrack, entry: &SampleEntry) -> Result<(Self, PmtStream), RemuxError> {
        if entry.is_protected() {
            return Err(RemuxError::Encrypted(track.id));
        }
        let listed = |stream_type, registration| {
            let language = track.language.as_bytes().first_chunk().filter(|l| *l != b"und").copied();
            PmtStream { stream_type, registration, language }
        };
        Ok(match &entry.format.0 {
            b"avc1" | b"avc3" => (Self::AnnexB(ParameterSets::avc(entry)?, false), listed(0x1b, None)),
            b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => {
                (Self::AnnexB(ParameterSets::hevc(entry)?, true), listed(0x24, Some(*b"HEVC")))
            }
            b"ac-3" => (Self::Plain, listed(0x81, Some(*b"AC-3"))),
            b"ec-3" => (Self::Plain, listed(0x87, Some(*b"EAC3"))),
            b".mp3" => (Self::Plain, listed(0x03, None)),
            b"mp4a" => return Self::for_mpeg_audio(entry, listed),
            _ => return Err(RemuxError::Codec(entry.format)),
        })
    }

    /// MPEG audio in an `mp4a` entry: AAC, or MP3 by its object type.
    fn for_mpeg_audio(
        entry: &SampleEntry,
        listed: impl Fn(u8, Option<[u8; 4]>) -> PmtStream,
    ) -> Result<(Self, PmtStream), RemuxError> {
        match ElementaryStreamInfo::read(entry)? {
            // Rates below 32 kHz are MPEG-2's.
            ElementaryStreamInfo { object_type: 0x69 | 0x6b, .. } => {
                Ok((Self::Plain, listed(if entry.rate < 32_000 { 0x04 } else { 0x03 }, None)))
            }
            ElementaryStreamInfo { aac: Some(aac), .. } => match aac {
                AacConfig { object_type: 1..=4, channels: 1..=7, rate_index: 0..=12, .. } => {
                    Ok((Self::Adts(aac), listed(0x0f, None)))
                }
                AacConfig { signalled, channels, .. } => Err(RemuxError::Aac(signalled, channels)),
            },
            _ => Err(RemuxError::Codec(entry.format)),
        }
    }

    /// The stream id of its PES packets (ISO 13818-1 2.4.3.7).
    pub fn stream_id(&self, listed: &PmtStream) -> u8 {
        match (self, listed.stream_type) {
            (Self::AnnexB(..), _) => 0xe0,
            (_, 0x81 | 0x87) => 0xbd,
            _ => 0xc0,
        }
    }

    /// Writes a sample; `None` if it is invalid for its codec. Parameter sets precede a `sync` sample, so that
    /// decoding can begin there.
    pub fn write(&self, sample: &[u8], sync: bool, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::AnnexB(sets, hevc) => return annex_b(sets, *hevc, sample, sync, out),
            Self::Adts(aac) => {
                out.extend_from_slice(&adts(aac, sample.len())?);
                out.extend_from_slice(sample);
            }
            Self::Plain => out.extend_from_slice(sample),
        }
        Some(())
    }
}

/// The ADTS header of a frame (ISO 14496-3 1.A.2.2); `None` if the frame is too long for it.
fn adts(aac: &AacConfig, frame: usize) -> Option<[u8; 7]> {
    let length = u32::try_from(frame + 7).ok().filter(|n| *n < 1 << 13)?;
    let profile = u32::from(aac.object_type.checked_sub(1)?) & 3;
    // Buffer fullness of all ones: variable rate.
    let word = profile << 30 | u32::from(aac.rate_index) << 26 | u32::from(aac.channels) << 22 | length << 5 | 0x1f;
    let [a, b, c, d] = word.to_be_bytes();
    Some([0xff, 0xf1, a, b, c, d, 0xfc])
}

/// NAL units with start codes: delimiter first, which MPEG-TS requires, and parameter sets before a sync sample that
/// has none.
fn annex_b(sets: &ParameterSets, hevc: bool, sample: &[u8], sync: bool, out: &mut Vec<u8>) -> Option<()> {
    let kind = |unit: &[u8]| unit.first().map(|b| if hevc { b >> 1 & 63 } else { b & 31 });
    let is_set = |k: u8| if hevc { (32..=34).contains(&k) } else { matches!(k, 7 | 8) };
    let delimiter = if hevc { 35 } else { 9 };
    let mut units = NalUnits { rest: sample, length_size: sets.length_size };
    let first = units.clone().next()??;
    let has_sets = units.clone().flatten().any(|u| kind(u).is_some_and(is_set));
    if kind(first) == Some(delimiter) {
        push_start_code(first, out);
        units.next();
    } else if hevc {
        out.extend_from_slice(&HEVC_DELIMITER);
    } else {
        out.extend_from_slice(&AVC_DELIMITER);
    }
    if sync && !has_sets {
        sets.units.iter().for_each(|unit| push_start_code(unit, out));
    }
    for unit in units {
        push_start_code(unit?, out);
    }
    Some(())
}

/// Empty units are dropped: a start code needs a unit.
fn push_start_code(unit: &[u8], out: &mut Vec<u8>) {
    if !unit.is_empty() {
        out.extend_from_slice(&[0, 0, 0, 1]);
        out.extend_from_slice(unit);
    }
}

/// The NAL units of a sample; the last item is `None` if their lengths do not add up.
#[derive(Clone)]
struct NalUnits<'a> {
    rest: &'a [u8],
    length_size: usize,
}

impl<'a> Iterator for NalUnits<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let unit = self.rest.split_at_checked(self.length_size).and_then(|(length, rest)| {
            let length = length.iter().fold(0_usize, |n, b| n << 8 | usize::from(*b));
            rest.split_at_checked(length)
        });
        self.rest = unit.map_or(&[], |(_, rest)| rest);
        Some(unit.map(|(unit, _)| unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets() -> ParameterSets {
        ParameterSets { length_size: 4, units: vec![vec![0x67, 1], vec![0x68, 2]] }
    }

    #[test]
    fn sync_samples_get_delimiter_and_parameter_sets_once() {
        let sample = [0, 0, 0, 2, 0x65, 9, 0, 0, 0, 1, 0x65];
        for (sync, data, expected) in [
            (true, &sample[..], "00000001 09f0 00000001 6701 00000001 6802 00000001 6509 00000001 65"),
            (false, &sample[..], "00000001 09f0 00000001 6509 00000001 65"),
            (true, &[0, 0, 0, 1, 9, 0, 0, 0, 1, 0x67], "00000001 09 00000001 67"),
        ] {
            let mut out = Vec::new();
            annex_b(&sets(), false, data, sync, &mut out).unwrap();
            let shown: String = out.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(shown, expected.replace(' ', ""));
        }
    }

    #[test]
    fn inconsistent_nal_units_are_refused() {
        for bad in [&[][..], &[0, 0, 0], &[0, 0, 0, 9, 1], &[0, 0, 0, 1, 0x65, 0, 0, 0, 5, 1]] {
            assert_eq!(annex_b(&sets(), false, bad, true, &mut Vec::new()), None, "{bad:?}");
        }
    }

    #[test]
    fn adts_header_encodes_rate_channels_and_length() {
        let aac = AacConfig { object_type: 2, signalled: 2, rate_index: 3, channels: 2 };
        assert_eq!(adts(&aac, 100), Some([0xff, 0xf1, 0x4c, 0x80, 0x0d, 0x7f, 0xfc]));
        assert_eq!(adts(&aac, 8190), None, "longer than 13 bits");
    }
}
