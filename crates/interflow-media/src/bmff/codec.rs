//! Decoder configurations in sample entries, and RFC 6381 codec names.

use super::box_reader::BoxReader;
use super::header::{BoxError, BoxRef, FourCc, Result};
use super::movie::SampleEntry;

/// Parameter sets that a decoder needs before the first picture, and how NAL units are framed in samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterSets {
    /// Size of the length field before each NAL unit: 1, 2 or 4 bytes.
    pub length_size: usize,
    /// VPS (HEVC only), SPS and PPS in this order.
    pub units: Vec<Vec<u8>>,
}

impl ParameterSets {
    /// From the `avcC` of an entry (ISO 14496-15 5.3.3).
    ///
    /// # Errors
    /// When it is missing or cut short.
    pub fn avc(entry: &SampleEntry) -> Result<Self> {
        let b = required_child(entry, b"avcC")?;
        let mut f = BoxReader::from_box(&b);
        f.skip(4)?;
        let length_size = usize::from(f.u8()? & 3) + 1;
        let mut units = Vec::new();
        // The sequence parameter sets, whose number has five bits, and the picture parameter sets.
        for count_mask in [31, 0xff] {
            for _ in 0..f.u8()? & count_mask {
                units.push(unit(&mut f)?);
            }
        }
        Ok(Self { length_size, units })
    }

    /// From the `hvcC` of an entry (ISO 14496-15 8.3.3).
    ///
    /// # Errors
    /// When it is missing or cut short.
    pub fn hevc(entry: &SampleEntry) -> Result<Self> {
        let b = required_child(entry, b"hvcC")?;
        let mut f = BoxReader::from_box(&b);
        f.skip(21)?;
        let length_size = usize::from(f.u8()? & 3) + 1;
        let mut units = Vec::new();
        for _ in 0..f.u8()? {
            f.skip(1)?;
            for _ in 0..f.u16()? {
                units.push(unit(&mut f)?);
            }
        }
        Ok(Self { length_size, units })
    }
}

/// A parameter set, preceded by its length in 16 bits.
fn unit(f: &mut BoxReader<'_>) -> Result<Vec<u8>> {
    let n = f.u16()?;
    f.bytes(usize::from(n)).map(<[u8]>::to_vec)
}

fn required_child<'a>(entry: &'a SampleEntry, kind: &[u8; 4]) -> Result<BoxRef<'a>> {
    entry.child(kind).ok_or_else(|| BoxError::new(entry.kind, entry.offset, format!("it has no `{}`", FourCc(*kind))))
}

/// The content of an `esds` (ISO 14496-1 7.2.6): the object type, and the configuration of AAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementaryStreamInfo {
    /// `objectTypeIndication`: 0x40 is AAC, 0x69 and 0x6b are MP3.
    pub object_type: u8,
    /// The AAC configuration of an `mp4a` entry.
    pub aac: Option<AacConfig>,
}

/// The part of an `AudioSpecificConfig` (ISO 14496-3 1.6.2.1) that ADTS can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AacConfig {
    /// Audio object type of the core: 2 is AAC-LC.
    pub object_type: u8,
    /// The object type that is signalled: 5 for HE-AAC, 29 for its second version.
    pub signalled: u8,
    /// Index of the core's sampling rate; 15 if the rate has no index.
    pub rate_index: u8,
    /// Channel configuration; 0 if it is defined in the stream.
    pub channels: u8,
}

impl ElementaryStreamInfo {
    /// From the `esds` of an entry, whose descriptors are nested and of variable length.
    ///
    /// # Errors
    /// If it is missing or truncated.
    pub fn read(entry: &SampleEntry) -> Result<Self> {
        let b = required_child(entry, b"esds")?;
        let mut f = BoxReader::from_box(&b);
        f.version()?;
        let mut object_type = 0;
        loop {
            let tag = f.u8()?;
            let length = descriptor_length(&mut f)?;
            match tag {
                3 => {
                    let flags = (f.u16()?, f.u8()?).1;
                    f.skip(if flags & 0x80 != 0 { 2 } else { 0 })?;
                    if flags & 0x40 != 0 {
                        let n = f.u8()?;
                        f.skip(usize::from(n))?;
                    }
                    f.skip(if flags & 0x20 != 0 { 2 } else { 0 })?;
                }
                4 => {
                    object_type = f.u8()?;
                    f.skip(12)?;
                    // MP3 has no further configuration.
                    if f.rest().first() != Some(&5) {
                        return Ok(Self { object_type, aac: None });
                    }
                }
                5 => return Ok(Self { object_type, aac: aac(f.bytes(length.min(f.rest().len()))?) }),
                _ => f.skip(length)?,
            }
        }
    }
}

/// The length of a descriptor: up to four bytes of seven bits each (ISO 14496-1 8.3.3).
fn descriptor_length(f: &mut BoxReader<'_>) -> Result<usize> {
    let mut length = 0;
    for _ in 0..4 {
        let byte = f.u8()?;
        length = length << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(length)
}

/// Reads bits, most significant first; `None` at the end.
struct BitReader<'a> {
    data: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn take(&mut self, n: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..n {
            let byte = *self.data.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    fn object_type(&mut self) -> Option<u8> {
        match self.take(5)? {
            // The escape value for object types from 32 on.
            31 => Some(32 + self.take(6)? as u8),
            n => Some(n as u8),
        }
    }

    fn rate_index(&mut self) -> Option<u8> {
        let index = self.take(4)?;
        if index == 15 {
            // An explicit rate, which ADTS cannot express.
            self.take(24)?;
        }
        Some(index as u8)
    }
}

fn aac(config: &[u8]) -> Option<AacConfig> {
    let mut bits = BitReader { data: config, at: 0 };
    let signalled = bits.object_type()?;
    let rate_index = bits.rate_index()?;
    let channels = bits.take(4)? as u8;
    // SBR and PS name their own rate first; the core follows.
    let object_type = if matches!(signalled, 5 | 29) {
        bits.rate_index()?;
        bits.object_type()?
    } else {
        signalled
    };
    Some(AacConfig { object_type, signalled, rate_index, channels })
}

/// The codec of a sample entry as used in `CODECS` and `codecs` (RFC 6381 3.3): `avc1.64001f`, `mp4a.40.2`, `ec-3`, ….
/// Only the bare type where the parameters are unknown.
pub fn codec_string(entry: &SampleEntry) -> String {
    let format = entry.format;
    let full = match &format.0 {
        b"avc1" | b"avc3" => entry.child(b"avcC").and_then(|b| avc_name(b.content())),
        b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => entry.child(b"hvcC").and_then(|b| hevc_name(b.content())),
        b"av01" => entry.child(b"av1C").and_then(|b| av1_name(b.content())),
        b"vp08" | b"vp09" => entry.child(b"vpcC").and_then(|b| vp_name(b.content())),
        b"mp4a" => ElementaryStreamInfo::read(entry).ok().map(|e| match e.aac {
            Some(aac) => format!(".40.{}", aac.signalled),
            None => format!(".{:x}", e.object_type),
        }),
        b"Opus" => return "opus".into(),
        b"fLaC" => return "flac".into(),
        b"stpp" => return "stpp.ttml.im1t".into(),
        _ => None,
    };
    format!("{format}{}", full.unwrap_or_default())
}

/// The codec parameter of AVC: profile, constraint flags and level in hex (RFC 6381 3.3).
fn avc_name(c: &[u8]) -> Option<String> {
    let [_, profile, compatibility, level, ..] = c else { return None };
    Some(format!(".{profile:02x}{compatibility:02x}{level:02x}"))
}

/// The codec parameter of HEVC (ISO 14496-15 annex E.3).
fn hevc_name(c: &[u8]) -> Option<String> {
    let [_, profile, c0, c1, c2, c3, rest @ ..] = c else { return None };
    let (constraints, level) = (rest.get(..6)?, rest.get(6)?);
    let space = ["", "A", "B", "C"].get(usize::from(profile >> 6))?;
    let tier = if profile & 0x20 == 0 { 'L' } else { 'H' };
    let compatibility = u32::from_be_bytes([*c0, *c1, *c2, *c3]).reverse_bits();
    let mut name = format!(".{space}{}.{compatibility:X}.{tier}{level}", profile & 31);
    // Trailing zero bytes of the constraint flags are left out.
    let used = constraints.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    for byte in constraints.get(..used)? {
        name.push_str(&format!(".{byte:X}"));
    }
    Some(name)
}

/// The codec parameter of AV1 (AV1 in ISO BMFF, section 5).
fn av1_name(c: &[u8]) -> Option<String> {
    let [_, one, two, ..] = c else { return None };
    let tier = if two & 0x80 == 0 { 'M' } else { 'H' };
    let depth = match two >> 5 & 3 {
        0 | 1 => 8,
        2 => 10,
        _ => 12,
    };
    Some(format!(".{}.{:02}{tier}.{depth:02}", one >> 5, one & 31))
}

/// The codec parameter of VP8 and VP9 (VP codec ISO media file format binding).
fn vp_name(c: &[u8]) -> Option<String> {
    let [_, _, _, _, profile, level, depth, ..] = c else { return None };
    Some(format!(".{profile:02}.{level:02}.{:02}", depth >> 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_strings_are_derived_from_the_configuration() {
        assert_eq!(avc_name(&[1, 0x64, 0, 0x1f, 0xff]).unwrap(), ".64001f");
        assert_eq!(hevc_name(&[1, 1, 0x60, 0, 0, 0, 0x90, 0, 0, 0, 0, 0, 93]).unwrap(), ".1.6.L93.90");
        assert_eq!(hevc_name(&[1, 0x22, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 120]).unwrap(), ".2.4.H120");
        assert_eq!(av1_name(&[0x81, 0x04, 0x4c, 0]).unwrap(), ".0.04M.10");
        assert_eq!(vp_name(&[1, 0, 0, 0, 0, 31, 0x82, 2]).unwrap(), ".00.31.08");
        assert_eq!((avc_name(&[1]), hevc_name(&[1; 9])), (None, None));
    }

    #[test]
    fn aac_config_gives_core_type_and_signalled_extension() {
        let lc = aac(&[0x11, 0x90]).unwrap();
        assert_eq!((lc.object_type, lc.signalled, lc.rate_index, lc.channels), (2, 2, 3, 2));
        let he = aac(&[0x2b, 0x11, 0x88, 0x00]).unwrap();
        assert_eq!((he.object_type, he.signalled, he.rate_index, he.channels), (2, 5, 6, 2));
        assert_eq!(aac(&[0x11]), None);
    }
}
