//! An incremental parser for server-sent events (WHATWG HTML 9.2) that returns each event's fields and raw bytes.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use interflow_types::budget::MemoryReservation;

/// Parses an event stream incrementally.
///
/// Every input byte is returned once, in order, in an event's `raw` or by [`rest`](Self::rest), so a relay can forward
/// exactly what it inspected. An event is returned as soon as its final empty line has arrived.
///
/// ```
/// use interflow_codec::sse::SseParser;
///
/// let mut parser = SseParser::new(1 << 20);
/// parser.push(b"event: delta\ndata: hello\n\ndata: not comp");
/// let event = parser.next_event()?.expect("the first event is complete");
/// assert_eq!((event.event.as_deref(), event.data.as_deref()), (Some("delta"), Some("hello")));
/// assert_eq!(&event.raw[..], b"event: delta\ndata: hello\n\n");
/// assert!(parser.next_event()?.is_none());
/// assert_eq!(&parser.rest()[..], b"data: not comp");
/// # Ok::<(), interflow_codec::sse::EventTooLarge>(())
/// ```
#[derive(Debug, Default)]
pub struct SseParser {
    buf: BytesMut,
    max_event: usize,
    /// Where the current line starts, and up to where it has been searched for its end.
    line: usize,
    searched: usize,
    /// The last line ended in a CR at the end of the input, so a following LF belongs to it.
    after_cr: bool,
    started: bool,
    /// Counts the bytes of an incomplete event against the memory budget.
    held: MemoryReservation,
}

/// A block of lines with the empty line that ends it, and its fields as WHATWG HTML 9.2.6 interprets them. `raw` has
/// the bytes as received, `id` is the last `id` field without NUL, and `retry` is in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub raw: Bytes,
    pub event: Option<String>,
    /// The `data` fields joined by LF. Without any, browsers do not dispatch the event (a comment, or a lone `id`).
    pub data: Option<String>,
    pub id: Option<String>,
    pub retry: Option<u64>,
}

/// The event exceeds the limit or the process's [memory budget](interflow_types::budget); [`SseParser::rest`] returns
/// its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream exceeds the size limit")]
pub struct EventTooLarge;

impl SseParser {
    /// A parser for a stream whose events have at most `max_event` bytes each.
    pub fn new(max_event: usize) -> Self {
        Self { max_event, ..Self::default() }
    }

    /// Adds received bytes. Call [`next_event`](Self::next_event) until it returns `None` before adding more, because
    /// the limit is checked there.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// The next complete event, if there is one.
    ///
    /// # Errors
    /// [`EventTooLarge`], at every call until [`rest`](Self::rest) is called.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, EventTooLarge> {
        loop {
            self.join_crlf();
            // Only the bytes that have not been searched, so that a long event in small pieces takes linear time.
            let Some(found) = self.buf.get(self.searched..).and_then(|rest| memchr::memchr2(b'\r', b'\n', rest)) else {
                self.searched = self.buf.len();
                // Only an incomplete event is limited here; a complete one is checked below.
                let fits = self.buf.len() <= self.max_event && self.held.resize(self.buf.len()).is_ok();
                return if fits { Ok(None) } else { Err(EventTooLarge) };
            };
            let end = self.searched + found;
            let line = self.buf.get(self.line..end).unwrap_or_default();
            // A byte order mark at the start of the stream is ignored.
            let empty = line.is_empty() || (!self.started && self.line == 0 && line == BOM);
            // The LF of this CRLF may be in the next read. The event is returned without it, because waiting could
            // delay it until the next one; the LF then begins the next block, where it is skipped.
            self.after_cr = self.buf.get(end) == Some(&b'\r');
            self.line = end + 1;
            self.searched = self.line;
            self.join_crlf();
            // Set back, so that the next call finds the same line end and fails again.
            // Checked after the line end as well: a read may bring a whole event that is too large.
            if self.line > self.max_event {
                self.searched = end;
                self.line = end;
                return Err(EventTooLarge);
            }
            if empty {
                return Ok(Some(self.take_event()));
            }
        }
    }

    /// The bytes that are not part of a complete event: forward them when the stream ends or is no longer inspected.
    /// Browsers do not dispatch a truncated event. The parser is reset.
    pub fn rest(&mut self) -> Bytes {
        // Nothing of the old stream may influence what follows.
        (self.line, self.searched, self.after_cr) = (0, 0, false);
        self.held = MemoryReservation::default();
        self.buf.split().freeze()
    }

    /// Takes the LF of a CRLF into the line that the CR ended.
    fn join_crlf(&mut self) {
        if !self.after_cr {
            return;
        }
        match self.buf.get(self.line) {
            Some(b'\n') => {
                self.line += 1;
                self.searched = self.line;
                self.after_cr = false;
            }
            Some(_) => self.after_cr = false,
            // The CR was the last byte so far; the next call decides.
            None => {}
        }
    }

    fn take_event(&mut self) -> SseEvent {
        let raw = self.buf.split_to(self.line).freeze();
        (self.line, self.searched) = (0, 0);
        // The mark is not part of the first field's name.
        let text = if self.started { &raw[..] } else { raw.strip_prefix(BOM).unwrap_or(&raw) };
        self.started = true;
        let mut event = SseEvent::default();
        for line in lines(text) {
            event.take_line(line);
        }
        event.raw = raw;
        event
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl SseEvent {
    /// Writes an event with these fields; `raw` is ignored. No value can inject a field or end the event: line breaks
    /// in `data` start a new `data` line, and in other fields they are removed.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut field = |name: &str, value: &str| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            // A line break would start a field of the value's choosing.
            out.extend(value.bytes().filter(|b| !matches!(b, b'\r' | b'\n')));
            out.push(b'\n');
        };
        if let Some(event) = &self.event {
            field("event", event);
        }
        if let Some(id) = &self.id {
            field("id", id);
        }
        if let Some(retry) = self.retry {
            field("retry", &retry.to_string());
        }
        for line in self.data.iter().flat_map(|data| data.split('\n')) {
            let line = line.strip_suffix('\r').unwrap_or(line);
            line.split('\r').for_each(|part| field("data", part));
        }
        out.push(b'\n');
    }

    fn take_line(&mut self, line: &[u8]) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (name, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                // One space after the colon is part of the syntax, not of the value.
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            // A line without a colon is a field with an empty value.
            None => (line, &[][..]),
        };
        match name {
            b"data" => {
                // Several data lines are joined by LF.
                let data = match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data
                    }
                    none => none.insert(String::new()),
                };
                data.push_str(&text(value));
            }
            b"event" => self.event = Some(text(value).into_owned()),
            // The standard ignores an id that contains NUL.
            b"id" if !value.contains(&0) => self.id = Some(text(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            }
            _ => {}
        }
    }
}

/// Decodes UTF-8 with replacement characters; valid input, the common case, is not copied.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The lines of a block; CR, LF and CRLF each end one.
fn lines(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = memchr::memchr2(b'\r', b'\n', text)?;
        let (line, rest) = text.split_at(end);
        text = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(raw: &[u8]) -> (Vec<SseEvent>, Bytes) {
        pieces(&[raw])
    }

    fn pieces(raw: &[&[u8]]) -> (Vec<SseEvent>, Bytes) {
        let mut parser = SseParser::new(1000);
        let mut events = Vec::new();
        for piece in raw {
            parser.push(piece);
            while let Some(event) = parser.next_event().unwrap() {
                events.push(event);
            }
        }
        (events, parser.rest())
    }

    /// The events without their bytes.
    fn fields(raw: &str) -> Vec<SseEvent> {
        said(&events(raw.as_bytes()).0)
    }

    fn said(events: &[SseEvent]) -> Vec<SseEvent> {
        events.iter().map(|e| SseEvent { raw: Bytes::new(), ..e.clone() }).collect()
    }

    fn data(raw: &str) -> Vec<Option<String>> {
        events(raw.as_bytes()).0.into_iter().map(|e| e.data).collect()
    }

    #[test]
    fn event_fields_are_parsed() {
        let s = |text: &str| Some(text.to_owned());
        let first =
            SseEvent { event: s("add"), data: s("73857293"), id: s("1"), retry: Some(10), ..SseEvent::default() };
        let second = SseEvent { data: s(""), id: s(""), ..SseEvent::default() };
        assert_eq!(fields("event: add\ndata: 73857293\nid: 1\nretry: 10\n\n:c\nid\ndata\n\n"), [first, second]);
        assert_eq!(fields("id: a\0b\nretry: 1x\nretry:\nother: x\n\n"), [SseEvent::default()]);
    }

    /// The examples of the WHATWG specification.
    #[test]
    fn data_lines_are_joined_as_in_the_whatwg_examples() {
        let s = |text: &str| Some(text.to_owned());
        assert_eq!(data("data: YHOO\ndata: +2\ndata: 10\n\n"), [s("YHOO\n+2\n10")]);
        assert_eq!(data("data\n\ndata\ndata\n\ndata:"), [s(""), s("\n")]);
        assert_eq!(data("data:test\n\ndata: test\n\n"), [s("test"), s("test")]);
        assert_eq!(data(": test stream\n\ndata: first\n\n"), [None, s("first")]);
        assert_eq!(data("data:  two\n\n"), [s(" two")]);
    }

    #[test]
    fn every_line_ending_is_accepted() {
        for raw in [
            "data: a\n\ndata: b\n\n",
            "data: a\r\rdata: b\r\r",
            "data: a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\n\ndata: b\n\r\n",
        ] {
            let (got, rest) = events(raw.as_bytes());
            let texts: Vec<_> = got.iter().map(|e| e.data.as_deref().unwrap()).collect();
            assert_eq!((texts, rest.len()), (vec!["a", "b"], 0), "{raw:?}");
            assert_eq!(got.iter().flat_map(|e| e.raw.to_vec()).collect::<Vec<_>>(), raw.as_bytes());
        }
    }

    #[test]
    fn event_ending_in_cr_is_returned_before_a_possible_lf() {
        let (got, rest) = pieces(&[b"data: a\r\n\r"]);
        assert_eq!((got.len(), rest.len()), (1, 0));
        let (got, _) = pieces(&[b"data: a\r\n\r", b"\ndata: b\r\n\r\n"]);
        assert_eq!(got.iter().map(|e| e.data.as_deref().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(&got[1].raw[..], b"\ndata: b\r\n\r\n");
    }

    #[test]
    fn one_byte_order_mark_is_skipped_at_the_start() {
        assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\n"), [Some("a".to_owned()), None]);
        assert_eq!(events("\u{feff}\n".as_bytes()).0.len(), 1);
    }

    #[test]
    fn a_truncated_event_is_returned_as_bytes() {
        let (got, rest) = events(b"data: a\n\ndata: cut\n");
        assert_eq!((got.len(), &rest[..]), (1, &b"data: cut\n"[..]));
    }

    #[test]
    fn event_over_the_limit_is_an_error_and_keeps_its_bytes() {
        for (raw, max) in [(vec![b'x'; 2000], 1000), (b"data: x\n".repeat(200), 1000), (b"data: abc\n\n".to_vec(), 5)] {
            let mut parser = SseParser::new(max);
            parser.push(&raw);
            assert_eq!(parser.next_event(), Err(EventTooLarge));
            assert_eq!(parser.next_event(), Err(EventTooLarge));
            assert_eq!(parser.rest(), raw);
            parser.push(b"a\n\n");
            assert!(parser.next_event().unwrap().is_some());
        }
    }

    #[test]
    fn no_value_can_inject_a_field() {
        let event = SseEvent {
            event: Some("a\ndata: x".to_owned()),
            data: Some("one\r\ntwo\rthree\n\nevent: x".to_owned()),
            ..SseEvent::default()
        };
        let mut out = Vec::new();
        event.write_to(&mut out);
        let (got, _) = events(&out);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].event.as_deref(), Some("adata: x"));
        assert_eq!(got[0].data.as_deref(), Some("one\ntwo\nthree\n\nevent: x"));
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_they_arrive(
            raw in "(data|id|event|:| |\r|\n|\r\n|\n\n|x|\u{feff}){0,30}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let (whole, rest) = events(raw.as_bytes());
            let joined: Vec<u8> = whole.iter().flat_map(|e| e.raw.to_vec()).chain(rest).collect();
            prop_assert_eq!(joined, raw.as_bytes());
            let mut ends: Vec<usize> = cuts.iter().map(|c| c.index(raw.len() + 1)).collect();
            ends.push(raw.len());
            ends.sort_unstable();
            let mut start = 0;
            let split: Vec<&[u8]> =
                ends.into_iter().map(|end| &raw.as_bytes()[std::mem::replace(&mut start, end)..end]).collect();
            for arrival in [split, raw.as_bytes().chunks(1).collect()] {
                let (got, rest) = pieces(&arrival);
                let joined: Vec<u8> = got.iter().flat_map(|e| e.raw.to_vec()).chain(rest).collect();
                prop_assert_eq!(joined, raw.as_bytes());
                prop_assert_eq!(said(&got), said(&whole));
            }
        }

        #[test]
        fn written_events_parse_back(event in prop::option::of("[a-z]{1,5}"), id in prop::option::of("[a-z ]{0,5}"), retry: Option<u64>, data in prop::option::of("[a-z :\n]{0,20}")) {
            let event = SseEvent { raw: Bytes::new(), event, data, id, retry };
            let mut out = Vec::new();
            event.write_to(&mut out);
            let (got, rest) = events(&out);
            prop_assert!(rest.is_empty());
            prop_assert_eq!(vec![event], said(&got));
        }
    }
}
