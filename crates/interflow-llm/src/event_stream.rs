//! Streamed responses: server-sent events, JSON lines, AWS event streams, and growing JSON arrays. Every input byte is
//! returned in an event's `raw` or in the rest, so that a relay can forward what it inspected.

use bytes::{Bytes, BytesMut};
use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_codec::sse::SseParser;
use interflow_types::{ByteStr, Headers};

/// How a response body is divided into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFraming {
    /// One JSON value, read as a whole.
    Whole,
    /// `text/event-stream` (WHATWG HTML 9.2).
    Sse,
    /// One JSON value per line (Ollama, Cohere v1).
    Lines,
    /// `application/vnd.amazon.eventstream` (Bedrock).
    EventStream,
    /// The elements of a JSON array, sent as they are generated (Gemini without `alt=sse`), so that the array is
    /// incomplete until the end.
    Array,
    /// Messages of a WebSocket, one event each.
    Messages,
}

impl StreamFraming {
    /// The framing of a response by its media type; `grows` means that the request asked for a stream in the form of
    /// a growing array, whose media type is that of plain JSON.
    pub fn from_headers(headers: &Headers, grows: bool) -> Self {
        let media_type = headers.get_str("content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "text/event-stream" => Self::Sse,
            "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines" | "application/stream+json" => {
                Self::Lines
            }
            "application/vnd.amazon.eventstream" => Self::EventStream,
            "application/json" if grows => Self::Array,
            _ => Self::Whole,
        }
    }
}

/// One event of a response. `raw` has all bytes as received, separators included, so that the concatenation of all
/// events is the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    pub raw: Bytes,
    /// Its payload: JSON, or a word such as `[DONE]`. Empty for comments and keep-alives.
    pub data: Bytes,
    /// The offset of the payload in `raw`, so that it can be replaced in place; `None` if it is not contiguous there.
    pub at: Option<usize>,
    /// The event name: SSE's `event` field, or the header `:event-type` or `:exception-type`.
    pub name: Option<ByteStr>,
    /// The headers of an AWS event stream message.
    pub headers: Vec<(ByteStr, HeaderValue)>,
}

impl StreamEvent {
    /// An event for a WebSocket message, which needs no framing.
    pub fn from_message(payload: Bytes) -> Self {
        Self { raw: payload.clone(), data: payload, at: Some(0), name: None, headers: Vec::new() }
    }

    /// The event that these bytes, separators included, are in a stream of this framing.
    pub fn from_raw(framing: StreamFraming, raw: Bytes) -> Self {
        match framing {
            StreamFraming::Sse => sse_event(raw),
            StreamFraming::Messages => Self::from_message(raw),
            StreamFraming::EventStream => {
                match aws_event_stream::next_message(&mut BytesMut::from(&raw[..]), raw.len()) {
                    Ok(Some(message)) => message_event(message),
                    _ => Self::separator(raw),
                }
            }
            StreamFraming::Whole | StreamFraming::Lines | StreamFraming::Array => json_event(raw),
        }
    }

    /// Bytes between events.
    pub const fn separator(raw: Bytes) -> Self {
        Self { raw, data: Bytes::new(), at: None, name: None, headers: Vec::new() }
    }
}

/// A stream that cannot be divided into events. What was read before remains valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// An event exceeds the limit in bytes.
    #[error("an event of the stream is larger than {0} bytes")]
    TooLarge(usize),
    /// The bytes do not conform to the framing.
    #[error("the stream is malformed: {0}")]
    Malformed(String),
}

/// Divides a stream into events: [`push`](Self::push) bytes, take events until there is none, and
/// [`finish`](Self::finish) at the end. After an error the stream cannot be divided any further.
#[derive(Debug)]
pub struct EventReader {
    kind: ReaderKind,
    max: usize,
}

#[derive(Debug)]
enum ReaderKind {
    Whole(BytesMut),
    Sse(SseParser),
    Lines(BytesMut, usize),
    EventStream(BytesMut),
    Array(BytesMut, ArrayScanner),
}

impl EventReader {
    /// `max` is the maximum size of an event in bytes, which also bounds what is buffered.
    pub fn new(framing: StreamFraming, max: usize) -> Self {
        let kind = match framing {
            StreamFraming::Whole | StreamFraming::Messages => ReaderKind::Whole(BytesMut::new()),
            StreamFraming::Sse => ReaderKind::Sse(SseParser::new(max)),
            StreamFraming::Lines => ReaderKind::Lines(BytesMut::new(), 0),
            StreamFraming::EventStream => ReaderKind::EventStream(BytesMut::new()),
            StreamFraming::Array => ReaderKind::Array(BytesMut::new(), ArrayScanner::default()),
        };
        Self { kind, max }
    }

    /// Adds received bytes. Take all events before adding more: the size limit is checked only then.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.kind {
            ReaderKind::Whole(buf)
            | ReaderKind::Lines(buf, _)
            | ReaderKind::EventStream(buf)
            | ReaderKind::Array(buf, _) => {
                buf.extend_from_slice(bytes);
            }
            ReaderKind::Sse(parser) => parser.push(bytes),
        }
    }

    /// The next complete event, if there is one.
    ///
    /// # Errors
    /// An event over the limit, or malformed framing.
    pub fn next_event(&mut self) -> Result<Option<StreamEvent>, EventError> {
        let max = self.max;
        match &mut self.kind {
            // A whole body is an event only at its end, see `finish`.
            ReaderKind::Whole(buf) => check_size(buf, max).map(|()| None),
            ReaderKind::Sse(parser) => {
                Ok(parser.next_event().map_err(|_| EventError::TooLarge(max))?.map(|e| sse_event(e.raw)))
            }
            ReaderKind::Lines(buf, searched) => {
                // Bytes that were searched before are not searched again when more arrive.
                let Some(end) = memchr::memchr(b'\n', buf.get(*searched..).unwrap_or_default()) else {
                    *searched = buf.len();
                    return check_size(buf, max).map(|()| None);
                };
                let raw = buf.split_to(*searched + end + 1).freeze();
                *searched = 0;
                Ok(Some(json_event(raw)))
            }
            ReaderKind::EventStream(buf) => match aws_event_stream::next_message(buf, max) {
                Ok(message) => Ok(message.map(message_event)),
                Err(aws_event_stream::EventStreamError::TooLarge(_)) => Err(EventError::TooLarge(max)),
                Err(e) => Err(EventError::Malformed(e.to_string())),
            },
            ReaderKind::Array(buf, scan) => match scan.next_element(buf) {
                Some(end) => Ok(Some(json_event(buf.split_to(end).freeze()))),
                None => check_size(buf, max).map(|()| None),
            },
        }
    }

    /// The end of input: the rest, as an event if it can be one (a body read as a whole, a last line).
    pub fn finish(&mut self) -> Option<StreamEvent> {
        let rest = match &mut self.kind {
            ReaderKind::Whole(buf) | ReaderKind::Lines(buf, _) => {
                return (!buf.is_empty()).then(|| json_event(buf.split().freeze()));
            }
            // Some servers reply with a single object although an array was requested.
            ReaderKind::Array(buf, _) if buf.contains(&b'{') => return Some(json_event(buf.split().freeze())),
            ReaderKind::EventStream(buf) | ReaderKind::Array(buf, _) => buf.split().freeze(),
            ReaderKind::Sse(parser) => return Some(parser.rest()).filter(|rest| !rest.is_empty()).map(sse_event),
        };
        (!rest.is_empty()).then(|| StreamEvent::separator(rest))
    }
}

fn message_event(message: aws_event_stream::EventStreamMessage) -> StreamEvent {
    let name = message.header_str(":event-type").or_else(|| message.header_str(":exception-type")).map(ByteStr::from);
    // The payload may be forwarded changed: its place in `raw` is then needed.
    let at = offset_in(&message.raw, &message.payload);
    StreamEvent { raw: message.raw, data: message.payload, at, name, headers: message.headers }
}

fn check_size(buf: &BytesMut, max: usize) -> Result<(), EventError> {
    if buf.len() > max { Err(EventError::TooLarge(max)) } else { Ok(()) }
}

/// The offset of a slice in the buffer that it was cut from, by address. `None` if it was copied.
fn offset_in(raw: &Bytes, part: &Bytes) -> Option<usize> {
    (part.as_ptr() as usize).checked_sub(raw.as_ptr() as usize).filter(|at| at + part.len() <= raw.len())
}

/// An event whose payload is the text without surrounding brackets, commas and spaces, which separate the elements of
/// an array.
fn json_event(raw: Bytes) -> StreamEvent {
    let start = raw.iter().position(|b| !b.is_ascii_whitespace() && *b != b',').unwrap_or(raw.len());
    let start = match raw.get(start..) {
        // The opening bracket of a growing array does not belong to its element.
        Some([b'[', rest @ ..]) if raw.last() == Some(&b'}') => {
            start + 1 + rest.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0)
        }
        _ => start,
    };
    let data = raw.slice(start..);
    let data = data.slice(..data.trim_ascii_end().len());
    StreamEvent { raw, data, at: Some(start), name: None, headers: Vec::new() }
}

/// Parses the fields of an SSE block; a payload on one line is given by its offset. Data on several lines is joined
/// by line feeds, as the specification demands, and then has no offset.
fn sse_event(raw: Bytes) -> StreamEvent {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    let mut name = None;
    // A byte order mark may precede the first event.
    let mut at = if raw.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    while let Some(rest) = raw.get(at..).filter(|r| !r.is_empty()) {
        let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        let value_at = |field: &[u8]| {
            let skip = field.len() + usize::from(line.get(field.len()) == Some(&b' '));
            (at + skip, at + end)
        };
        if line.starts_with(b"data:") {
            pieces.push(value_at(b"data:"));
        } else if line.starts_with(b"event:") {
            let (from, to) = value_at(b"event:");
            name = ByteStr::from_utf8(raw.slice(from..to));
        }
        at += end + 1;
    }
    let (data, at) = match pieces.as_slice() {
        [] => (Bytes::new(), None),
        [(from, to)] => (raw.slice(*from..*to), Some(*from)),
        many => {
            let lines: Vec<&[u8]> = many.iter().map(|(from, to)| &raw[*from..*to]).collect();
            (lines.join(&b'\n').into(), None)
        }
    };
    StreamEvent { raw, data, at, name, headers: Vec::new() }
}

/// Finds the end of the next element of a growing array. Its state survives between chunks, so no byte is examined
/// twice.
#[derive(Debug, Default)]
struct ArrayScanner {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The input is a single object rather than an array: its nested objects are no elements.
    alone: bool,
}

impl ArrayScanner {
    /// The offset after the next element that is an object.
    fn next_element(&mut self, buf: &[u8]) -> Option<usize> {
        for (i, &byte) in buf.iter().enumerate().skip(self.at) {
            self.at = i + 1;
            // Brackets within strings do not count, and quotes after a backslash do not end them.
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.alone |= self.depth == 0 && byte == b'{';
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 1 && byte == b'}' && !self.alone {
                        let end = self.at;
                        self.at = 0;
                        return Some(end);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: StreamFraming, pieces: &[&[u8]]) -> (Vec<StreamEvent>, Vec<u8>) {
        let mut reader = EventReader::new(framing, 1000);
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece);
            while let Some(event) = reader.next_event().unwrap() {
                events.push(event);
            }
        }
        events.extend(reader.finish());
        let joined = events.iter().flat_map(|e| e.raw.to_vec()).collect();
        (events, joined)
    }

    fn data(events: &[StreamEvent]) -> Vec<&str> {
        events.iter().map(|e| std::str::from_utf8(&e.data).unwrap()).collect()
    }

    fn check(framing: StreamFraming, raw: &[u8], wanted: &[&str]) {
        let halves = raw.split_at(raw.len() / 2);
        let bytes: Vec<&[u8]> = raw.chunks(1).collect();
        for pieces in [&[raw][..], &[halves.0, halves.1], &bytes] {
            let (events, joined) = read(framing, pieces);
            assert_eq!(joined, raw, "{framing:?}");
            assert_eq!(data(&events), wanted, "{framing:?}");
            for e in events.iter().filter(|e| !e.data.is_empty()) {
                let Some(at) = e.at else { continue };
                assert_eq!(&e.raw[at..at + e.data.len()], &e.data[..]);
            }
        }
    }

    #[test]
    fn events_of_every_framing_are_split_without_losing_bytes() {
        check(
            StreamFraming::Sse,
            b"event: x\ndata: {\"a\":1}\n\n: ping\n\ndata:[DONE]\n\ncut",
            &["{\"a\":1}", "", "[DONE]", ""],
        );
        check(StreamFraming::Lines, b"{\"a\":1}\n{\"b\":2}\r\n{\"c\":3}", &["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        check(
            StreamFraming::Array,
            b"[{\"a\":\"}]\"}\n,\r\n{\"b\":[{}]}\n]\n",
            &["{\"a\":\"}]\"}", "{\"b\":[{}]}", ""],
        );
        check(StreamFraming::Whole, b" {\"a\":1}\n", &["{\"a\":1}"]);
    }

    #[test]
    fn a_payload_on_several_lines_is_joined() {
        let (events, _) = read(StreamFraming::Sse, &[b"data: {\ndata: }\n\n"]);
        assert_eq!((data(&events), events[0].at), (vec!["{\n}"], None));
    }

    #[test]
    fn aws_event_stream_yields_payload_and_name() {
        let mut raw = Vec::new();
        let headers = [(ByteStr::from(":event-type"), HeaderValue::String("chunk".into()))];
        aws_event_stream::write_message(&mut raw, &headers, b"{\"bytes\":\"e30=\"}").unwrap();
        check(StreamFraming::EventStream, &raw, &["{\"bytes\":\"e30=\"}"]);
        assert_eq!(read(StreamFraming::EventStream, &[&raw]).0[0].name, Some("chunk".into()));
        let mut broken = raw.clone();
        broken[9] ^= 1;
        let mut reader = EventReader::new(StreamFraming::EventStream, 1000);
        reader.push(&broken);
        assert!(matches!(reader.next_event(), Err(EventError::Malformed(_))));
    }

    #[test]
    fn oversized_event_is_an_error() {
        for framing in [StreamFraming::Sse, StreamFraming::Lines, StreamFraming::Array, StreamFraming::Whole] {
            let mut reader = EventReader::new(framing, 100);
            reader.push(&b"[{\"x\":".repeat(30));
            assert_eq!(reader.next_event(), Err(EventError::TooLarge(100)), "{framing:?}");
        }
    }

    #[test]
    fn stream_framing_is_selected_by_media_type() {
        let of =
            |value: &str, grows| StreamFraming::from_headers(&[("Content-Type", value)].into_iter().collect(), grows);
        assert_eq!(of("text/event-stream; charset=utf-8", false), StreamFraming::Sse);
        assert_eq!(of("application/x-ndjson", false), StreamFraming::Lines);
        assert_eq!(of("application/vnd.amazon.eventstream", false), StreamFraming::EventStream);
        assert_eq!(of("application/json; charset=UTF-8", true), StreamFraming::Array);
        assert_eq!(of("application/json", false), StreamFraming::Whole);
    }
}
