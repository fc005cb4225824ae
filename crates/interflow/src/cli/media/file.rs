//! Reads a media file box by box and skips the media data.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use interflow_media::bmff::{BoxHeader, BoxNode, FourCc, boxes};
use interflow_media::cenc::InitSegment;

use crate::Result;

/// Maximum size of a box that is read into memory.
const MAX_BOX_BYTES: u64 = 64 << 20;
/// Maximum number of top-level boxes.
const MAX_BOXES: usize = 20_000;

pub struct MediaFile {
    /// File name, for messages.
    pub path: PathBuf,
    /// Top-level boxes with their content.
    pub boxes: Vec<BoxNode>,
    /// The `moov` box, if any.
    pub init: Option<InitSegment>,
    /// Byte range of the first fragment and its media data.
    pub fragment: Option<(u64, u64)>,
}

impl MediaFile {
    pub fn read(path: &Path) -> Result<Self> {
        let unreadable = |e: std::io::Error| super::unreadable(path, &e);
        let wrong = |e: &dyn std::fmt::Display| super::failed(path, e);
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let mut parsed = Self { path: path.to_owned(), boxes: Vec::new(), init: None, fragment: None };
        let mut at = 0;
        while at < length && parsed.boxes.len() < MAX_BOXES {
            let mut head = Vec::new();
            file.seek(SeekFrom::Start(at)).map_err(unreadable)?;
            (&mut file).take(BoxHeader::MAX_HEADER_LEN as u64).read_to_end(&mut head).map_err(unreadable)?;
            let header = BoxHeader::read(&head, at).map_err(|e| wrong(&e))?;
            let header = header.ok_or_else(|| wrong(&format!("it ends at byte {length}, inside a box header")))?;
            if !is_plausible(header.kind) {
                return Err(wrong(&format!("no box at byte {at}: this is not an MP4 file")));
            }
            let size = header.size.unwrap_or(length - at);
            parsed.note_fragment(header.kind, at, size);
            if header.kind == b"mdat" || size > MAX_BOX_BYTES || at.saturating_add(size) > length {
                let is_cut = at.saturating_add(size) > length;
                let cut = format!("cut short: the file ends at byte {length}");
                let note = if is_cut { cut } else { String::new() };
                let (kind, size) = (header.kind, header.size);
                parsed.boxes.push(BoxNode { kind, offset: at, size, note, children: Vec::new() });
            } else {
                let mut whole = vec![0; size as usize];
                file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut whole)).map_err(unreadable)?;
                let b = boxes(&whole, at).next().ok_or_else(|| wrong(&"a box is empty"))?.map_err(|e| wrong(&e))?;
                parsed.boxes.push(BoxNode::read(&b));
                if header.kind == b"moov" && parsed.init.is_none() {
                    parsed.init = Some(InitSegment::read(&b).map_err(|e| wrong(&e))?);
                }
            }
            at = at.saturating_add(size);
        }
        Ok(parsed)
    }

    fn note_fragment(&mut self, kind: FourCc, at: u64, size: u64) {
        match (&mut self.fragment, &kind.0) {
            (None, b"moof") => self.fragment = Some((at, 0)),
            (Some((_, end @ 0)), b"mdat") => *end = at.saturating_add(size),
            _ => {}
        }
    }
}

fn is_plausible(kind: FourCc) -> bool {
    kind.0.iter().all(|b| matches!(b, b' '..=b'~' | 0xa9))
}
