//! The boxes of a file as a tree with short descriptions, for display.

use super::box_reader::BoxReader;
use super::header::{BoxIterator, BoxRef, FourCc, Result, boxes};

/// Maximum depth, since boxes are read recursively and files may be hostile.
const MAX_DEPTH: usize = 16;
/// Maximum number of boxes per tree; a note says that there are more.
const MAX_BOXES: usize = 50_000;

/// One box of a tree made for display (`interflow media`, the UI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxNode {
    pub kind: FourCc,
    pub offset: u64,
    /// Its length in bytes including the header; `None` if it extends to the end of the file.
    pub size: Option<u64>,
    /// A short description of its content; empty for unknown types, and the error for a malformed box.
    pub note: String,
    pub children: Vec<BoxNode>,
}

impl BoxNode {
    /// Reads a box with all its descendants. Malformed content is reported in the notes.
    pub fn read(b: &BoxRef<'_>) -> Self {
        Self::read_at_depth(b, 0, &mut MAX_BOXES.clone())
    }

    fn read_at_depth(b: &BoxRef<'_>, depth: usize, budget: &mut usize) -> Self {
        let note = describe_box(b).unwrap_or_else(|e| format!("broken: {}", e.what));
        let mut node =
            Self { kind: b.kind(), offset: b.offset, size: Some(b.whole.len() as u64), note, children: Vec::new() };
        for inner in children(b).into_iter().flatten() {
            if depth == MAX_DEPTH || *budget == 0 {
                node.note = "more boxes than are shown".into();
                break;
            }
            *budget -= 1;
            match inner {
                Ok(inner) => node.children.push(Self::read_at_depth(&inner, depth + 1, budget)),
                Err(e) => node.note = format!("broken: {e}"),
            }
        }
        node
    }
}

/// The children of a box of a known container type; `None` for any other, whose content may look like boxes by
/// chance.
fn children<'a>(b: &BoxRef<'a>) -> Option<BoxIterator<'a>> {
    let after = |n: usize| Some(boxes(b.content().get(n..)?, b.content_offset() + n as u64));
    match &b.kind().0 {
        b"moov" | b"trak" | b"mdia" | b"minf" | b"dinf" | b"stbl" | b"edts" | b"udta" | b"mvex" | b"moof" | b"traf"
        | b"mfra" | b"sinf" | b"schi" | b"tref" => after(0),
        b"stsd" | b"dref" => after(8),
        // QuickTime's `meta` has no version field.
        b"meta" => after(if b.content().get(4..8) == Some(b"hdlr") { 0 } else { 4 }),
        b"avc1" | b"avc3" | b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" | b"av01" | b"vp08" | b"vp09" | b"encv" => after(78),
        b"mp4a" | b"ac-3" | b"ec-3" | b"ac-4" | b"Opus" | b"fLaC" | b".mp3" | b"enca" => after(28),
        b"wvtt" | b"encs" | b"enct" => after(8),
        _ => None,
    }
}

fn describe_box(b: &BoxRef<'_>) -> Result<String> {
    let mut f = BoxReader::from_box(b);
    Ok(match &b.kind().0 {
        b"ftyp" | b"styp" => {
            let major = FourCc(f.array()?);
            f.skip(4)?;
            let brands: Vec<String> = f.rest().as_chunks::<4>().0.iter().map(|b| FourCc(*b).to_string()).collect();
            format!("{major}; {}", brands.join(" "))
        }
        b"mvhd" | b"mdhd" => {
            let (version, _) = f.version()?;
            f.skip(if version == 1 { 16 } else { 8 })?;
            let (timescale, duration) = (f.u32()?, f.u32_or_64(version == 1)?);
            format!("timescale {timescale}, duration {duration}")
        }
        b"tkhd" => {
            let (version, _) = f.version()?;
            f.skip(if version == 1 { 16 } else { 8 })?;
            format!("track {}", f.u32()?)
        }
        b"hdlr" => {
            f.skip(8)?;
            FourCc(f.array()?).to_string()
        }
        b"frma" => FourCc(f.array()?).to_string(),
        b"schm" | b"sgpd" | b"sbgp" => {
            f.version()?;
            FourCc(f.array()?).to_string()
        }
        b"tenc" => track_encryption(&mut f)?,
        b"pssh" => {
            f.version()?;
            format!("system {}", hex::encode(f.array::<16>()?))
        }
        b"mfhd" => format!("sequence {}", first_number(&mut f)?),
        b"tfhd" => {
            let (_, flags) = f.version()?;
            format!("track {}, flags {flags:06x}", f.u32()?)
        }
        b"tfdt" => {
            let (version, _) = f.version()?;
            format!("time {}", f.u32_or_64(version == 1)?)
        }
        b"trun" => {
            let (_, flags) = f.version()?;
            let samples = f.u32()?;
            let offset = if flags & 1 != 0 { format!(", data at {:+}", f.i32()?) } else { String::new() };
            format!("{samples} samples{offset}")
        }
        b"senc" => {
            let (_, flags) = f.version()?;
            let with = if flags & 2 != 0 { " with subsamples" } else { "" };
            format!("{} samples{with}", f.u32()?)
        }
        b"stsd" | b"stts" | b"ctts" | b"stsc" | b"stco" | b"co64" | b"stss" | b"dref" | b"elst" => {
            format!("{} entries", first_number(&mut f)?)
        }
        b"stsz" => {
            f.skip(8)?;
            format!("{} samples", f.u32()?)
        }
        b"sidx" => {
            let index = super::sidx::SegmentIndex::read(b)?;
            format!("{} references, timescale {}", index.references.len(), index.timescale)
        }
        b"trex" => format!("track {}", first_number(&mut f)?),
        b"uuid" => b.header.uuid.map(hex::encode).unwrap_or_default(),
        _ => String::new(),
    })
}

/// The number behind the version and flags.
fn first_number(f: &mut BoxReader<'_>) -> Result<u32> {
    f.version()?;
    f.u32()
}

fn track_encryption(f: &mut BoxReader<'_>) -> Result<String> {
    f.version()?;
    f.skip(1)?;
    let (pattern, protected, iv) = (f.u8()?, f.u8()?, f.u8()?);
    let kid = hex::encode(f.array::<16>()?);
    let state = if protected == 0 { "clear" } else { "encrypted" };
    Ok(format!("{state}, KID {kid}, IV of {iv} bytes, pattern {}:{}", pattern >> 4, pattern & 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(8 + content.len() as u32).to_be_bytes()[..], kind, content].concat()
    }

    fn read(data: &[u8]) -> BoxNode {
        BoxNode::read(&boxes(data, 0).next().unwrap().unwrap())
    }

    #[test]
    fn containers_are_parsed_and_described() {
        let traf = boxed(b"traf", &[boxed(b"tfhd", &[0, 2, 0, 0, 0, 0, 0, 7]), boxed(b"abcd", &[1])].concat());
        let node = read(&boxed(b"moof", &[boxed(b"mfhd", &[0, 0, 0, 0, 0, 0, 0, 9]), traf].concat()));
        assert_eq!(node.children[0].note, "sequence 9");
        let traf = &node.children[1];
        assert_eq!((traf.offset, traf.children[0].note.as_str()), (24, "track 7, flags 020000"));
        assert_eq!(traf.children[1].kind, FourCc(*b"abcd"));
    }

    #[test]
    fn malformed_boxes_are_reported_at_their_position() {
        let node = read(&boxed(b"moov", &[boxed(b"mvhd", &[0; 3]), vec![0, 0, 1, 0], b"trak".to_vec()].concat()));
        assert!(node.children[0].note.contains("shorter"), "{node:?}");
        assert!(node.note.contains("`trak` at byte 19"), "{node:?}");
        let deep = (0..40).fold(Vec::new(), |inner, _| boxed(b"moov", &inner));
        let mut node = read(&deep);
        for depth in 0.. {
            assert!(depth < 20);
            match node.children.pop() {
                Some(inner) => node = inner,
                None => break,
            }
        }
        assert_eq!(node.note, "more boxes than are shown");
    }
}
