//! Box headers (ISO 14496-12 4.2), and iteration over child boxes.

use std::borrow::Cow;
use std::fmt;

pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// A malformed box, with its position in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("box `{kind}` at byte {offset}: {what}")]
pub struct BoxError {
    pub kind: FourCc,
    /// Its offset in bytes from the start of the file or segment.
    pub offset: u64,
    pub what: Cow<'static, str>,
}

impl BoxError {
    pub fn new(kind: FourCc, offset: u64, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, offset, what: what.into() }
    }
}

/// The four characters of a box type; any bytes are possible, QuickTime's `©` among them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FourCc(pub [u8; 4]);

impl FourCc {
    /// The four bytes at `at`, if the slice is long enough.
    pub fn at(data: &[u8], at: usize) -> Option<Self> {
        data.get(at..)?.first_chunk().map(|b| Self(*b))
    }
}

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| match b {
            b' '..=b'~' => write!(f, "{}", char::from(*b)),
            0xa9 => f.write_str("©"),
            _ => write!(f, "\\x{b:02x}"),
        })
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

impl PartialEq<&[u8; 4]> for FourCc {
    fn eq(&self, other: &&[u8; 4]) -> bool {
        self.0 == **other
    }
}

/// The header of a box: its type, and its size with the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxHeader {
    pub kind: FourCc,
    /// The user type of a `uuid` box (ISO 14496-12 11.1).
    pub uuid: Option<[u8; 16]>,
    /// Length of the header itself: 8, 16, 24 or 32 bytes.
    pub len: usize,
    /// Length of the box including its header; `None` if it extends to the end of the file (size 0).
    pub size: Option<u64>,
}

impl BoxHeader {
    /// The longest header: 64-bit size and user type.
    pub const MAX_HEADER_LEN: usize = 32;

    /// Reads a header at byte `offset` of the file. `Ok(None)` means that more bytes are needed.
    ///
    /// # Errors
    /// If the declared size is smaller than the header.
    pub fn read(data: &[u8], offset: u64) -> Result<Option<Self>> {
        let (Some(size), Some(kind)) = (data.first_chunk(), FourCc::at(data, 4)) else { return Ok(None) };
        let (mut len, size) = match u32::from_be_bytes(*size) {
            0 => (8, None),
            1 => match data.get(8..16).and_then(|b| b.first_chunk()) {
                Some(large) => (16, Some(u64::from_be_bytes(*large))),
                None => return Ok(None),
            },
            n => (8, Some(u64::from(n))),
        };
        let mut uuid = None;
        if kind == b"uuid" {
            match data.get(len..len + 16).and_then(|b| b.first_chunk()) {
                Some(user) => uuid = Some(*user),
                None if size.is_some_and(|s| s < len as u64 + 16) => {
                    return Err(BoxError::new(kind, offset, "its size is too small for the user type"));
                }
                None => return Ok(None),
            }
            len += 16;
        }
        if size.is_some_and(|s| s < len as u64) {
            return Err(BoxError::new(kind, offset, "its size is smaller than its header"));
        }
        Ok(Some(Self { kind, uuid, len, size }))
    }
}

/// A complete box inside a buffer, including its header; `offset` is its position in the file, for offsets and error
/// messages.
#[derive(Clone, Copy, Debug)]
pub struct BoxRef<'a> {
    pub header: BoxHeader,
    pub offset: u64,
    /// Its offset in the buffer passed to `boxes`, to change it there.
    pub at: usize,
    pub whole: &'a [u8],
}

impl<'a> BoxRef<'a> {
    pub fn kind(&self) -> FourCc {
        self.header.kind
    }

    pub fn content(&self) -> &'a [u8] {
        self.whole.get(self.header.len..).unwrap_or_default()
    }

    /// The offset of the content in the file, to which stored offsets may be relative.
    pub fn content_offset(&self) -> u64 {
        self.offset + self.header.len as u64
    }

    /// An error about this box, with its position.
    pub fn error_here(&self, what: impl Into<std::borrow::Cow<'static, str>>) -> BoxError {
        BoxError::new(self.header.kind, self.offset, what)
    }

    /// The child boxes, if it is a plain container. Boxes with fields before their children need an offset of their
    /// own.
    pub fn children(&self) -> BoxIterator<'a> {
        boxes(self.content(), self.content_offset())
    }
}

/// Iterates over consecutive boxes in `data`, whose first byte is byte `offset` of the file.
pub fn boxes(data: &[u8], offset: u64) -> BoxIterator<'_> {
    BoxIterator { data, at: 0, offset }
}

/// See [`boxes`]. Ends after the first error, since the size of a malformed box is unknown.
#[derive(Clone, Debug)]
pub struct BoxIterator<'a> {
    data: &'a [u8],
    at: usize,
    offset: u64,
}

impl<'a> Iterator for BoxIterator<'a> {
    type Item = Result<BoxRef<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        // Up to seven bytes of padding after the last box (a 32-bit zero terminator in QuickTime's udta) are ignored.
        if rest.len() < 8 {
            return None;
        }
        let offset = self.offset + self.at as u64;
        let one = whole_box(rest, offset, self.at);
        self.at = if let Ok(b) = &one { self.at + b.whole.len() } else { self.data.len() };
        Some(one)
    }
}

fn whole_box(rest: &[u8], offset: u64, at: usize) -> Result<BoxRef<'_>> {
    let kind = FourCc::at(rest, 4).unwrap_or(FourCc(*b"    "));
    let header =
        BoxHeader::read(rest, offset)?.ok_or_else(|| BoxError::new(kind, offset, "its header is cut short"))?;
    let size = header.size.unwrap_or(rest.len() as u64);
    let whole = usize::try_from(size).ok().and_then(|n| rest.get(..n)).ok_or_else(|| {
        BoxError::new(header.kind, offset, format!("it states {size} bytes where its parent has {} left", rest.len()))
    })?;
    Ok(BoxRef { header, offset, at, whole })
}

/// The length of the initialization section at the beginning of a fragmented file: its boxes up to the first index or
/// fragment. `None` if it has no `moov`, or `data` ends before such a box.
pub fn init_length(data: &[u8]) -> Option<u64> {
    let (mut at, mut has_movie) = (0_u64, false);
    loop {
        let rest = data.get(usize::try_from(at).ok()?..)?;
        let header = BoxHeader::read(rest, at).ok()??;
        match &header.kind.0 {
            b"sidx" | b"ssix" | b"styp" | b"moof" | b"emsg" | b"prft" => return has_movie.then_some(at),
            b"mdat" => return None,
            kind => has_movie |= kind == b"moov",
        }
        at = at.checked_add(header.size?)?;
    }
}

/// The first child of a type. Later ones are ignored.
///
/// # Errors
/// If a box before it is malformed.
pub fn child<'a>(parent: &BoxRef<'a>, kind: &[u8; 4]) -> Result<Option<BoxRef<'a>>> {
    first_of_kind(parent.children(), kind)
}

/// The first box of a type; an error if a box before it is malformed.
pub fn first_of_kind<'a>(mut boxes: BoxIterator<'a>, kind: &[u8; 4]) -> Result<Option<BoxRef<'a>>> {
    boxes.find(|b| b.as_ref().map_or(true, |b| b.kind() == kind)).transpose()
}

/// Follows a path of box types downward, taking the first of each type.
///
/// # Errors
/// If a box on the way is malformed.
pub fn find<'a>(parent: &BoxRef<'a>, path: &[&[u8; 4]]) -> Result<Option<BoxRef<'a>>> {
    let mut at = *parent;
    for kind in path {
        let Some(next) = child(&at, kind)? else { return Ok(None) };
        at = next;
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_form_are_read() {
        let uuid = [7; 16];
        let large = [&[0, 0, 0, 1][..], b"mdat", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        let user = [&[0, 0, 0, 30][..], b"uuid", &uuid].concat();
        let both = [&[0, 0, 0, 1][..], b"uuid", &[0, 0, 0, 0, 0, 0, 0, 40], &uuid].concat();
        for (data, kind, len, size, id) in [
            (&[0, 0, 0, 8, b'f', b'r', b'e', b'e'][..], b"free", 8, Some(8), None),
            (&[0, 0, 0, 0, b'm', b'd', b'a', b't'][..], b"mdat", 8, None, None),
            (&large, b"mdat", 16, Some(1 << 32), None),
            (&user, b"uuid", 24, Some(30), Some(uuid)),
            (&both, b"uuid", 32, Some(40), Some(uuid)),
        ] {
            let header = BoxHeader::read(data, 0).unwrap().unwrap();
            assert_eq!(header, BoxHeader { kind: FourCc(*kind), uuid: id, len, size });
            for cut in 0..data.len() {
                assert_eq!(BoxHeader::read(&data[..cut], 0), Ok(None), "{cut} of {kind:?}");
            }
        }
    }

    #[test]
    fn sizes_smaller_than_the_header_are_refused_with_box_and_offset() {
        for data in [
            &[0, 0, 0, 7, b'm', b'o', b'o', b'v'][..],
            &[0, 0, 0, 1, b'm', b'o', b'o', b'v', 0, 0, 0, 0, 0, 0, 0, 15][..],
            &[0, 0, 0, 23, b'u', b'u', b'i', b'd'][..],
        ] {
            let e = BoxHeader::read(data, 1234).unwrap_err().to_string();
            assert!(e.contains("1234") && (e.contains("`moov`") || e.contains("`uuid`")), "{e}");
        }
    }

    #[test]
    fn a_child_that_is_longer_than_its_parent_is_refused() {
        let data = [&[0, 0, 0, 8][..], b"free", &[0, 0, 1, 0], b"trak", &[0; 8]].concat();
        let all: Vec<_> = boxes(&data, 100).collect();
        assert_eq!(all.len(), 2);
        let e = all[1].as_ref().unwrap_err().to_string();
        assert_eq!(e, "box `trak` at byte 108: it states 256 bytes where its parent has 16 left");
    }
}
