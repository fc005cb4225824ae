//! Streamed responses: server-sent events, JSON lines, AWS event streams, and growing JSON arrays. Every input byte is
//! returned in an event's `raw` or in the rest, so that a relay can forward what it inspected.

use bytes::{Bytes, BytesMut};
use interflow_codec::aws_event_stream::{self, HeaderValue, has_prelude};
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

/// What a request says about the form of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseForm {
    pub is_stream: bool,
    /// Whether a stream has the form of a growing JSON array (Gemini without `alt=sse`), whose media type is that of plain
    /// JSON.
    pub grows: bool,
    /// Whether the provider's streams are lines of JSON, which may come without their media type.
    pub has_lines: bool,
    /// Whether it is a model's reply rather than a file, which may be anything.
    pub is_reply: bool,
}

impl ResponseForm {
    /// The framing to expect of a response with this head.
    pub fn framing(self, headers: &Headers) -> StreamFraming {
        let media_type = || headers.get_str("content-type").unwrap_or_default().trim_start().to_ascii_lowercase();
        match StreamFraming::from_headers(headers) {
            StreamFraming::Whole if self.grows => StreamFraming::Array,
            StreamFraming::Whole if self.is_stream && self.has_lines && self.is_reply => StreamFraming::Lines,
            // It may be the results of a batch.
            StreamFraming::Whole if !self.is_reply && media_type().starts_with("application/octet") => {
                StreamFraming::Lines
            }
            framing => framing,
        }
    }
}

impl StreamFraming {
    /// The framing of a response by its media type.
    fn from_headers(headers: &Headers) -> Self {
        let media_type = headers.get_str("content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "text/event-stream" => Self::Sse,
            "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines" | "application/stream+json" => {
                Self::Lines
            }
            "application/vnd.amazon.eventstream" => Self::EventStream,
            _ => Self::Whole,
        }
    }

    /// The framing of a response that begins with these bytes and is expected to have this one: its media type may be
    /// wrong. `None` if more bytes are needed.
    pub fn sniff(self, begun: &[u8]) -> Option<Self> {
        let is_events = matches!(self, Self::Sse | Self::EventStream);
        match first_text(begun) {
            [] => None,
            [b'[', ..] if is_events => Some(Self::Array),
            [b'{', ..] if is_events => Some(Self::Lines),
            // The length of a message is less than 16 MiB.
            text @ [0, ..] => has_prelude(text).map(|is_message| if is_message { Self::EventStream } else { self }),
            text if SSE_FIELDS.iter().any(|field| text.starts_with(field)) => Some(Self::Sse),
            text if SSE_FIELDS.iter().any(|field| field.starts_with(text)) => None,
            // Its text would be taken for fields without a meaning.
            _ if self == Self::Sse => Some(Self::Whole),
            _ => Some(self),
        }
    }
}

/// How the lines of server-sent events begin that have data.
const SSE_FIELDS: [&[u8]; 5] = [b":", b"data:", b"event:", b"retry:", b"id:"];

/// Whether a body begins as a JSON object or array does.
pub fn begins_json(body: &[u8]) -> bool {
    matches!(first_text(body), [b'{' | b'[', ..])
}

/// A text without a byte order mark and spaces before it.
fn first_text(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start()
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
    /// Whether it is a whole response.
    pub is_whole: bool,
}

impl StreamEvent {
    /// An event for a WebSocket message, which needs no framing.
    pub fn from_message(payload: Bytes) -> Self {
        Self { raw: payload.clone(), data: payload, at: Some(0), name: None, headers: Vec::new(), is_whole: false }
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
        Self { raw, data: Bytes::new(), at: None, name: None, headers: Vec::new(), is_whole: false }
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
    framing: StreamFraming,
    is_json: bool,
    kind: ReaderKind,
    max: usize,
}

#[derive(Debug)]
enum ReaderKind {
    /// The framing is not known yet.
    Unknown(BytesMut),
    Whole(BytesMut),
    Sse(SseParser),
    EventStream(BytesMut),
    /// Lines, or the elements of an array.
    Json(BytesMut, JsonScanner),
}

impl EventReader {
    /// `expected` is the framing unless the first bytes have another; `max` is the maximum size of an event in bytes, which
    /// also bounds what is buffered.
    pub fn new(expected: StreamFraming, max: usize) -> Self {
        let mut reader = Self { framing: expected, is_json: false, kind: ReaderKind::Unknown(BytesMut::new()), max };
        if expected == StreamFraming::Messages {
            reader.begin(expected);
        }
        reader
    }

    /// The framing; `None` until enough bytes came to tell.
    pub fn framing(&self) -> Option<StreamFraming> {
        (!matches!(self.kind, ReaderKind::Unknown(_))).then_some(self.framing)
    }

    /// Whether the body begins as a JSON object or array does.
    pub const fn is_json(&self) -> bool {
        self.is_json
    }

    fn begin(&mut self, framing: StreamFraming) {
        let ReaderKind::Unknown(begun) = &mut self.kind else { return };
        let begun = begun.split();
        (self.framing, self.is_json) = (framing, begins_json(&begun));
        self.kind = match framing {
            StreamFraming::Whole | StreamFraming::Messages => ReaderKind::Whole(begun),
            StreamFraming::Sse => {
                let mut parser = SseParser::new(self.max);
                parser.push(&begun);
                ReaderKind::Sse(parser)
            }
            StreamFraming::EventStream => ReaderKind::EventStream(begun),
            StreamFraming::Lines | StreamFraming::Array => ReaderKind::Json(begun, JsonScanner::default()),
        };
    }

    /// Adds received bytes. Take all events before adding more: the size limit is checked only then.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.kind {
            ReaderKind::Unknown(buf)
            | ReaderKind::Whole(buf)
            | ReaderKind::EventStream(buf)
            | ReaderKind::Json(buf, _) => {
                buf.extend_from_slice(bytes);
            }
            ReaderKind::Sse(parser) => parser.push(bytes),
        }
        if let ReaderKind::Unknown(begun) = &self.kind
            && let Some(framing) = self.framing.sniff(begun)
        {
            self.begin(framing);
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
            ReaderKind::Unknown(buf) | ReaderKind::Whole(buf) => check_size(buf, max).map(|()| None),
            ReaderKind::Sse(parser) => {
                Ok(parser.next_event().map_err(|_| EventError::TooLarge(max))?.map(|e| sse_event(e.raw)))
            }
            ReaderKind::Json(buf, scan) => match scan.next_end(buf, self.framing == StreamFraming::Array) {
                Some(end) => Ok(Some(json_event(buf.split_to(end).freeze()))),
                None => check_size(buf, max).map(|()| None),
            },
            ReaderKind::EventStream(buf) => match aws_event_stream::next_message(buf, max) {
                Ok(message) => Ok(message.map(message_event)),
                Err(aws_event_stream::EventStreamError::TooLarge(_)) => Err(EventError::TooLarge(max)),
                Err(e) => Err(EventError::Malformed(e.to_string())),
            },
        }
    }

    /// The end of input: the rest, as an event if it can be one (a body read as a whole, a last line).
    pub fn finish(&mut self) -> Option<StreamEvent> {
        self.begin(self.framing);
        let rest = match &mut self.kind {
            ReaderKind::EventStream(buf) => buf.split().freeze(),
            // Some servers reply with a single object although an array was requested.
            ReaderKind::Json(buf, _) if self.framing == StreamFraming::Array && !buf.contains(&b'{') => {
                buf.split().freeze()
            }
            ReaderKind::Unknown(buf) | ReaderKind::Whole(buf) | ReaderKind::Json(buf, _) => {
                let is_whole = self.framing == StreamFraming::Whole;
                return (!buf.is_empty()).then(|| StreamEvent { is_whole, ..json_event(buf.split().freeze()) });
            }
            ReaderKind::Sse(parser) => return Some(parser.rest()).filter(|rest| !rest.is_empty()).map(sse_event),
        };
        (!rest.is_empty()).then(|| StreamEvent::separator(rest))
    }
}

fn message_event(message: aws_event_stream::EventStreamMessage) -> StreamEvent {
    let name = message.header_str(":event-type").or_else(|| message.header_str(":exception-type")).map(ByteStr::from);
    // The payload may be forwarded changed: its place in `raw` is then needed.
    let at = offset_in(&message.raw, &message.payload);
    StreamEvent { raw: message.raw, data: message.payload, at, name, headers: message.headers, is_whole: false }
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
    StreamEvent { raw, data, at: Some(start), name: None, headers: Vec::new(), is_whole: false }
}

/// Parses the fields of an SSE block; a payload on one line is given by its offset. Data on several lines is joined
/// by line feeds, as the specification demands, and then has no offset.
fn sse_event(raw: Bytes) -> StreamEvent {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    let (mut name, mut is_text) = (None, false);
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
        } else {
            is_text |= !(line.is_empty() || SSE_FIELDS.iter().any(|field| line.starts_with(field)));
        }
        at += end + 1;
    }
    let (data, at) = match pieces.as_slice() {
        // What is no field is nothing to clients of events, but those that read it as text see it.
        [] if is_text => return StreamEvent { name, ..json_event(raw) },
        [] => (Bytes::new(), None),
        [(from, to)] => (raw.slice(*from..*to), Some(*from)),
        many => {
            let lines: Vec<&[u8]> = many.iter().map(|(from, to)| &raw[*from..*to]).collect();
            (lines.join(&b'\n').into(), None)
        }
    };
    StreamEvent { raw, data, at, name, headers: Vec::new(), is_whole: false }
}

/// Finds the ends of JSON values that follow one another. Its state survives between chunks, so no byte is examined twice.
#[derive(Debug, Default)]
struct JsonScanner {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The input is a single object rather than an array: its nested objects are no elements.
    alone: bool,
}

impl JsonScanner {
    /// The offset after the next element of a growing array that is an object, or after the next line: a value may have
    /// several, but none ends in a string.
    fn next_end(&mut self, buf: &[u8], is_array: bool) -> Option<usize> {
        for (i, &byte) in buf.iter().enumerate().skip(self.at) {
            self.at = i + 1;
            if !is_array && byte == b'\n' && (self.depth == 0 || self.in_string) {
                return Some(std::mem::take(self).at);
            }
            self.alone |= self.depth == 0 && byte == b'{' && !self.in_string;
            let is_closed = self.read(byte);
            if is_array && is_closed && self.depth == 1 && byte == b'}' && !self.alone {
                return Some(std::mem::take(&mut self.at));
            }
        }
        None
    }

    /// Whether the byte closes an object or array. Brackets within strings do not count, and quotes after a backslash do not
    /// end them.
    fn read(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return true;
            }
            _ => {}
        }
        false
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
            b"event: x\ndata: {\"a\":1}\n\n: ping\n\n{\"b\":\n2}\n\ndata:[DONE]\n\ncut",
            &["{\"a\":1}", "", "{\"b\":\n2}", "[DONE]", "cut"],
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
    fn the_first_bytes_decide_on_the_framing_whatever_the_type_says() {
        let (sse, json) = (b": hi\n\ndata: {\"a\":1}\n\n", b"\xef\xbb\xbf {\n\"a\": [1,\n2]\n}\n{\"b\":2}\n");
        for expected in [StreamFraming::Whole, StreamFraming::Lines, StreamFraming::EventStream] {
            check(expected, sse, &["", "{\"a\":1}"]);
        }
        for expected in [StreamFraming::Lines, StreamFraming::Sse, StreamFraming::EventStream] {
            check(expected, &json[4..], &["{\n\"a\": [1,\n2]\n}", "{\"b\":2}"]);
            assert_eq!(expected.sniff(json), Some(StreamFraming::Lines));
        }
        check(StreamFraming::Sse, b"[{\"a\":1},{\"b\":2}]", &["{\"a\":1}", "{\"b\":2}", ""]);
        check(StreamFraming::Sse, b"a text\n\nof lines", &["a text\n\nof lines"]);
        let mut message = Vec::new();
        aws_event_stream::write_message(&mut message, &[], b"{}").unwrap();
        check(StreamFraming::Whole, &message, &["{}"]);
        check(StreamFraming::Whole, b"\0\0\0 no message", &["\0\0\0 no message"]);
        for undecided in [&b""[..], b" \n", b"dat", b"\0\0\0\x40", b"\xef\xbb\xbf"] {
            assert_eq!(StreamFraming::Whole.sniff(undecided), None, "{undecided:?}");
        }
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
        let of = |value: &str, grows| {
            let form = ResponseForm { grows, ..ResponseForm::default() };
            form.framing(&[("Content-Type", value)].into_iter().collect())
        };
        assert_eq!(of("text/event-stream; charset=utf-8", false), StreamFraming::Sse);
        assert_eq!(of("application/x-ndjson", false), StreamFraming::Lines);
        assert_eq!(of("application/vnd.amazon.eventstream", false), StreamFraming::EventStream);
        assert_eq!(of("application/json; charset=UTF-8", true), StreamFraming::Array);
        assert_eq!(of("application/json", false), StreamFraming::Whole);
        assert_eq!(of("", true), StreamFraming::Array);
        assert_eq!(of("application/octet-stream", false), StreamFraming::Lines, "the results of a batch");
    }
}
