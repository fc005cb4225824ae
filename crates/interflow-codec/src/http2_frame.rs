//! Frames of HTTP/2 (RFC 9113 4.1), for readers of a copy of a connection: h2 parses those that Interflow serves.

use crate::cursor::Cursor;

/// The client connection preface (RFC 9113 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes before the payload.
const HEAD: usize = 9;

/// Types of frames (RFC 9113 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames (RFC 9113 6).
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    /// Without the reserved bit.
    pub stream: u32,
    pub payload: &'a [u8],
}

impl<'a> Http2Frame<'a> {
    /// The frame at the beginning of `bytes`, if it is complete.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(bytes);
        let (length, kind, flags) = (rest.u24()?, rest.u8()?, rest.u8()?);
        let stream = rest.u32()? & 0x7fff_ffff;
        Some(Self { kind, flags, stream, payload: rest.take(length as usize)? })
    }

    /// Its length with the head.
    pub const fn byte_len(&self) -> usize {
        HEAD + self.payload.len()
    }

    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The content of a DATA, HEADERS or PUSH_PROMISE frame: without padding, priority and, for PUSH_PROMISE, the number of
    /// the promised stream.
    pub fn content(&self) -> &'a [u8] {
        let (padding, mut rest) = match self.payload.split_first() {
            Some((padding, rest)) if self.has(flag::PADDED) => (usize::from(*padding), rest),
            _ => (0, self.payload),
        };
        rest = &rest[..rest.len().saturating_sub(padding)];
        let skipped = match self.kind {
            // Dependency and weight.
            kind::HEADERS if self.has(flag::PRIORITY) => 5,
            kind::PUSH_PROMISE => 4,
            _ => 0,
        };
        rest.get(skipped..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_priority_and_promised_stream_are_no_content() {
        let bytes = [
            &[0, 0, 10, kind::HEADERS, flag::PADDED | flag::PRIORITY, 0x80, 0, 0, 3][..],
            b"\x02\0\0\0\x01\x10hi\0\0...",
        ]
        .concat();
        let frame = Http2Frame::parse(&bytes).unwrap();
        assert_eq!((frame.stream, frame.byte_len(), frame.content()), (3, 19, &b"hi"[..]));
        let bytes = [&[0, 0, 8, kind::PUSH_PROMISE, flag::PADDED, 0, 0, 0, 1][..], b"\x01\0\0\0\x02hi\0"].concat();
        let frame = Http2Frame::parse(&bytes).unwrap();
        assert_eq!(frame.content(), b"hi");
        assert_eq!(Http2Frame::parse(&bytes[..16]), None);
        // More padding than there are bytes.
        let bytes = [&[0, 0, 2, kind::DATA, flag::PADDED, 0, 0, 0, 1][..], b"\xffx"].concat();
        assert_eq!(Http2Frame::parse(&bytes).unwrap().content(), b"");
    }
}
