//! `application/vnd.amazon.eventstream`, the binary framing in which Bedrock and other AWS services stream: messages
//! of typed headers and a payload, with checksums (AWS, "Event stream encoding").

use bytes::{Bytes, BytesMut};
use interflow_types::ByteStr;

use crate::cursor::Cursor;

/// The size of the prelude: two lengths and their CRC.
const PRELUDE: usize = 12;
/// The size of the CRC that ends each message.
const TRAILER: usize = 4;

/// One message: its headers in wire order, its payload, and all of its bytes as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStreamMessage {
    pub headers: Vec<(ByteStr, HeaderValue)>,
    pub payload: Bytes,
    pub raw: Bytes,
}

/// The value of a header, by type. On the wire the types are numbered in this order from 0, except that true and false
/// have types of their own (0 and 1). `Bytes` and `String` have at most 32,767 bytes; `Timestamp` is in milliseconds
/// since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    Bool(bool),
    Byte(i8),
    Short(i16),
    Integer(i32),
    Long(i64),
    Bytes(Bytes),
    String(ByteStr),
    Timestamp(i64),
    Uuid([u8; 16]),
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventStreamError {
    #[error("the checksum of an event stream prelude does not match")]
    PreludeChecksum,
    #[error("the checksum of an event stream message does not match")]
    MessageChecksum,
    #[error("the lengths of an event stream message contradict each other")]
    Length,
    /// A header that cannot be parsed, or is too long to be written.
    #[error("a header of an event stream message is malformed")]
    Header,
    #[error("an event stream message of {0} bytes is larger than the limit")]
    TooLarge(u32),
}

impl EventStreamMessage {
    /// The value of this header, if it is a string: `:event-type`, `:message-type`, `:exception-type`.
    pub fn header_str(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(n, value)| match value {
            HeaderValue::String(text) if n == name => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Whether bytes begin with the prelude of a message; `None` if they are too few to tell.
pub fn has_prelude(begun: &[u8]) -> Option<bool> {
    let (lengths, checksum) = begun.first_chunk::<PRELUDE>()?.split_at(PRELUDE - 4);
    Some(Cursor(checksum).u32() == Some(crc32fast::hash(lengths)))
}

/// Takes the next message of at most `max` bytes in total from the front of `buf`, without copying its payload;
/// `None` if it is incomplete.
///
/// # Errors
/// An invalid checksum, length or header, or a length over `max`. The buffer is left unchanged.
pub fn next_message(buf: &mut BytesMut, max: usize) -> Result<Option<EventStreamMessage>, EventStreamError> {
    // Checked before the lengths are trusted: a damaged length would make the stream wait for gigabytes.
    match has_prelude(buf) {
        None => return Ok(None),
        Some(false) => return Err(EventStreamError::PreludeChecksum),
        Some(true) => {}
    }
    let mut c = Cursor(buf);
    let (total, headers) = c.u32().zip(c.u32()).ok_or(EventStreamError::Length)?;
    // Refused as soon as the length is known, before any of the message is buffered.
    let size = usize::try_from(total).ok().filter(|&n| n <= max).ok_or(EventStreamError::TooLarge(total))?;
    let headers = headers as usize;
    // The headers must fit between the prelude and the trailing CRC.
    if size < PRELUDE + TRAILER || headers > size - PRELUDE - TRAILER {
        return Err(EventStreamError::Length);
    }
    let Some(message) = buf.get(..size) else { return Ok(None) };
    let (summed, checksum) = message.split_at(size - TRAILER);
    if Cursor(checksum).u32() != Some(crc32fast::hash(summed)) {
        return Err(EventStreamError::MessageChecksum);
    }
    let section = message.get(PRELUDE..PRELUDE + headers).ok_or(EventStreamError::Length)?;
    let parsed = parse_headers(section).ok_or(EventStreamError::Header)?;
    // Nothing is taken from the buffer before all checks have passed, so that after an error it can be forwarded as
    // it is.
    let raw = buf.split_to(size).freeze();
    let payload = raw.slice(PRELUDE + headers..size - TRAILER);
    Ok(Some(EventStreamMessage { headers: parsed, payload, raw }))
}

/// Appends a message.
///
/// # Errors
/// A name or value that is too long for its length field, or a message of 4 GiB or more.
pub fn write_message(
    out: &mut Vec<u8>,
    headers: &[(ByteStr, HeaderValue)],
    payload: &[u8],
) -> Result<(), EventStreamError> {
    let mut section = Vec::new();
    for (name, value) in headers {
        write_header(&mut section, name, value).ok_or(EventStreamError::Header)?;
    }
    let length = |n: usize| u32::try_from(n).map_err(|_| EventStreamError::Length);
    let total = length(PRELUDE + section.len() + payload.len() + TRAILER)?;
    let start = out.len();
    out.extend_from_slice(&total.to_be_bytes());
    out.extend_from_slice(&length(section.len())?.to_be_bytes());
    let checksum = crc32fast::hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(&section);
    out.extend_from_slice(payload);
    // Covers the prelude and its CRC too.
    let checksum = crc32fast::hash(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&checksum.to_be_bytes());
    Ok(())
}

fn parse_headers(section: &[u8]) -> Option<Vec<(ByteStr, HeaderValue)>> {
    let mut c = Cursor(section);
    let mut headers = Vec::new();
    while !c.is_empty() {
        // Names are never empty: a length of 0 would make no progress.
        let name = text(c.counted8().filter(|name| !name.is_empty())?)?;
        let value = match c.u8()? {
            0 => HeaderValue::Bool(true),
            1 => HeaderValue::Bool(false),
            2 => HeaderValue::Byte(i8::from_be_bytes(c.array()?)),
            3 => HeaderValue::Short(i16::from_be_bytes(c.array()?)),
            4 => HeaderValue::Integer(i32::from_be_bytes(c.array()?)),
            5 => HeaderValue::Long(i64::from_be_bytes(c.array()?)),
            6 => HeaderValue::Bytes(Bytes::copy_from_slice(c.counted16()?)),
            7 => HeaderValue::String(text(c.counted16()?)?),
            8 => HeaderValue::Timestamp(i64::from_be_bytes(c.array()?)),
            9 => HeaderValue::Uuid(c.array()?),
            // An unknown type has an unknown length, so nothing after it can be read.
            _ => return None,
        };
        headers.push((name, value));
    }
    Some(headers)
}

fn text(raw: &[u8]) -> Option<ByteStr> {
    std::str::from_utf8(raw).ok().map(ByteStr::from)
}

fn write_header(out: &mut Vec<u8>, name: &str, value: &HeaderValue) -> Option<()> {
    out.push(u8::try_from(name.len()).ok().filter(|&n| n > 0)?);
    out.extend_from_slice(name.as_bytes());
    let mut typed = |kind: u8, value: &[u8]| {
        out.push(kind);
        out.extend_from_slice(value);
    };
    match value {
        // True is type 0 and false type 1, without a value.
        HeaderValue::Bool(yes) => typed(u8::from(!yes), &[]),
        HeaderValue::Byte(n) => typed(2, &n.to_be_bytes()),
        HeaderValue::Short(n) => typed(3, &n.to_be_bytes()),
        HeaderValue::Integer(n) => typed(4, &n.to_be_bytes()),
        HeaderValue::Long(n) => typed(5, &n.to_be_bytes()),
        HeaderValue::Bytes(bytes) => {
            typed(6, &u16::try_from(bytes.len()).ok()?.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        HeaderValue::String(text) => {
            typed(7, &u16::try_from(text.len()).ok()?.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        HeaderValue::Timestamp(n) => typed(8, &n.to_be_bytes()),
        HeaderValue::Uuid(id) => typed(9, id),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(headers: &[(ByteStr, HeaderValue)], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_message(&mut out, headers, payload).unwrap();
        out
    }

    fn next(raw: &[u8]) -> Result<Option<EventStreamMessage>, EventStreamError> {
        next_message(&mut BytesMut::from(raw), 1 << 20)
    }

    /// The empty message, and the one with a payload from AWS's SDK test suite.
    #[test]
    fn published_messages_round_trip() {
        let empty = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x7d\x98\xc8\xff";
        assert_eq!(written(&[], b""), empty);
        let m = next(empty).unwrap().unwrap();
        assert_eq!((m.headers.len(), m.payload.len(), &m.raw[..]), (0, 0, &empty[..]));
        let payload = b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
        assert_eq!(next(payload).unwrap().unwrap().payload, "{'foo':'bar'}");
        assert_eq!(written(&[], b"{'foo':'bar'}"), payload);
    }

    #[test]
    fn every_header_type_round_trips() {
        let headers: Vec<(ByteStr, HeaderValue)> = vec![
            (":event-type".into(), HeaderValue::String("chunk".into())),
            ("t".into(), HeaderValue::Bool(true)),
            ("f".into(), HeaderValue::Bool(false)),
            ("b".into(), HeaderValue::Byte(-1)),
            ("s".into(), HeaderValue::Short(-2)),
            ("i".into(), HeaderValue::Integer(-3)),
            ("l".into(), HeaderValue::Long(-4)),
            ("y".into(), HeaderValue::Bytes(Bytes::from_static(b"\0\xff"))),
            ("d".into(), HeaderValue::Timestamp(1_500_000_000_000)),
            ("u".into(), HeaderValue::Uuid([7; 16])),
        ];
        let m = next(&written(&headers, b"p")).unwrap().unwrap();
        assert_eq!((m.headers.as_slice(), &m.payload[..]), (headers.as_slice(), &b"p"[..]));
        assert_eq!((m.header_str(":event-type"), m.header_str("t")), (Some("chunk"), None));
    }

    #[test]
    fn corruption_is_reported_as_prelude_or_message_checksum() {
        let good = written(&[("a".into(), HeaderValue::Bool(true))], b"payload");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let expected = if at < 12 { EventStreamError::PreludeChecksum } else { EventStreamError::MessageChecksum };
            assert_eq!(next(&bad), Err(expected), "{at}");
        }
    }

    #[test]
    fn invalid_lengths_and_headers_are_refused() {
        let summed = |total: u32, headers: u32, rest: &[u8]| {
            let mut out = [total.to_be_bytes(), headers.to_be_bytes()].concat();
            out.extend(crc32fast::hash(&out).to_be_bytes());
            out.extend(rest);
            out.extend(crc32fast::hash(&out).to_be_bytes());
            out
        };
        assert_eq!(next(&summed(15, 0, b"")), Err(EventStreamError::Length));
        assert_eq!(next(&summed(16, 1, b"")), Err(EventStreamError::Length));
        assert_eq!(next(&summed(u32::MAX, 0, b"")), Err(EventStreamError::TooLarge(u32::MAX)));
        for header in
            [&b"\x00\x00"[..], b"\x01a", b"\x01a\x0a", b"\x01a\x07\x00\x05ab", b"\x01a\x07\x00\x01\xff", b"\x02a"]
        {
            let length = u32::try_from(header.len()).unwrap();
            assert_eq!(next(&summed(16 + length, length, header)), Err(EventStreamError::Header), "{header:?}");
        }
        assert!(write_message(&mut Vec::new(), &[("".into(), HeaderValue::Bool(true))], b"").is_err());
    }

    #[test]
    fn a_truncated_message_needs_more_bytes() {
        let raw = written(&[("a".into(), HeaderValue::Byte(1))], b"payload");
        for end in 0..raw.len() {
            assert_eq!(next(&raw[..end]), Ok(None), "{end}");
        }
        let mut two = BytesMut::from(&raw.repeat(2)[..]);
        assert!(next_message(&mut two, 100).unwrap().is_some());
        assert!(next_message(&mut two, 100).unwrap().is_some());
        assert!(two.is_empty());
    }

    proptest! {
        #[test]
        fn no_input_panics(noise in prop::collection::vec(any::<u8>(), 0..60), headers: u32) {
            let _ = next(&noise);
            let mut raw = [u32::try_from(noise.len() + 16).unwrap().to_be_bytes(), (headers % 80).to_be_bytes()].concat();
            raw.extend(crc32fast::hash(&raw).to_be_bytes());
            raw.extend(noise);
            raw.extend(crc32fast::hash(&raw).to_be_bytes());
            let _ = next(&raw);
        }
    }
}
