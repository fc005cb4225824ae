//! Rewrites the texts in the events of a stream in place; everything else is forwarded byte for byte.

use std::collections::HashMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::aws_event_stream;
use interflow_llm::event_stream::{EventReader, StreamEvent, StreamFraming};
use interflow_llm::spans::{self, EndedChannels, MarkedText, SpanKind, TextChannel, TextSpan};
use interflow_types::ByteStr;

/// The largest event that is parsed. A larger one ends the stream with an error, because its texts could not be
/// inspected.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Why a stream is cut off. `code` goes to the client, the audit log and the metrics.
#[derive(Debug)]
pub(crate) struct StreamAbort {
    pub code: &'static str,
    pub message: String,
}

impl StreamAbort {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// What was found in a text cannot be replaced in it.
    pub fn not_written() -> Self {
        Self::new("response_unreadable", "a text of the response is not UTF-8, so that nothing in it can be replaced")
    }
}

/// Rewrites texts. All texts are raw: as they are between the quotes of a JSON string, with escapes.
///
/// Streams deliver a text in fragments, and what has to be found may be split between two of them. An implementation
/// may therefore hold back the end of a fragment, and emits it with the next one or in [`finish`](Self::finish).
/// Fragments of one text share a `channel`.
pub(crate) trait TextRewriter: Send {
    /// Rewrites a complete text; `None` if it is unchanged.
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort>;

    /// Rewrites a fragment of a text: what is sent in its place, or `None` if it is unchanged. May be shorter than
    /// the fragment, if its end is held back.
    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort>;

    /// The text has ended: appends what was buffered of it.
    fn finish(&mut self, channel: u64, out: &mut String) -> Result<(), StreamAbort>;

    /// Whether part of a text is buffered. If so, the event is kept as a template for the rest.
    fn has_buffered(&self, channel: u64) -> bool;

    /// Whether events that cannot be parsed must be blocked: they could contain anything.
    fn is_strict(&self) -> bool;

    /// Something passes that could not be read.
    fn skipped(&mut self) {}

    /// The span of the text or fragment that is rewritten next.
    fn next_span(&mut self, _span: &TextSpan) {}
}

/// Splits a stream into events and rewrites them. Events may begin and end anywhere in the chunks that are fed.
pub(crate) struct EventRewriter<P> {
    framing: StreamFraming,
    reader: EventReader,
    rewriter: P,
    open: HashMap<u64, OpenText>,
    texts: usize,
    /// End offsets in the output of the events inserted before the current one. WebSocket messages have no
    /// separators, so the output is cut there.
    cuts: Vec<usize>,
}

/// A text in progress: one choice, content block or tool call of the response.
struct OpenText {
    group: u64,
    /// Its number in the order in which texts began.
    began: usize,
    /// The last event of which a fragment was buffered, used as a template to send the rest. A copy of the whole
    /// event keeps ids and indexes that the client's parser relies on.
    last: Option<EventTemplate>,
}

/// An event without its texts, and the position of one of them.
struct EventTemplate {
    event: StreamEvent,
    json: Vec<u8>,
    at: usize,
    chunk: bool,
}

/// Replaces a range of bytes by a text.
pub(crate) type ByteReplacement = (Range<usize>, String);

impl<P: TextRewriter> EventRewriter<P> {
    pub fn new(framing: StreamFraming, rewriter: P) -> Self {
        Self {
            framing,
            reader: EventReader::new(framing, MAX_EVENT_BYTES),
            rewriter,
            open: HashMap::new(),
            texts: 0,
            cuts: Vec::new(),
        }
    }

    /// Processes the stream's next bytes; appends the output to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        // Buffers at most one incomplete event, of at most `MAX_EVENT_BYTES`.
        self.reader.push(bytes);
        let broken =
            |e: interflow_llm::event_stream::EventError| StreamAbort::new("response_unreadable", e.to_string());
        while let Some(event) = self.reader.next_event().map_err(broken)? {
            self.rewrite_event(&event, out)?;
        }
        Ok(())
    }

    /// Processes the end of the stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        // A stream that ended at an event boundary.
        let Some(rest) = self.reader.finish() else { return self.finish_texts(&[EndedChannels::All], out) };
        // Some providers end the last event with the stream; one that does not parse was truncated.
        let whole = self.framing == StreamFraming::Whole || &rest.data[..] == b"[DONE]";
        if !rest.data.is_empty() && (whole || spans::mark_event(&rest.data, rest.name.as_deref()).is_ok()) {
            let end: &[u8] = match self.framing {
                StreamFraming::Sse => b"\n\n",
                StreamFraming::Lines if !rest.raw.ends_with(b"\n") => b"\n",
                _ => b"",
            };
            // Buffered text follows as an event of its own.
            let raw = [&rest.raw[..], end].concat().into();
            self.rewrite_event(&StreamEvent { raw, ..rest }, out)?;
            return self.finish_texts(&[EndedChannels::All], out);
        }
        self.finish_texts(&[EndedChannels::All], out)?;
        // The end of an array belongs to it; comments and empty events have no texts.
        let idle = match self.framing {
            StreamFraming::Sse => rest.data.is_empty() && !rest.raw.starts_with(b"data"),
            _ => rest.raw.iter().all(|b| b.is_ascii_whitespace() || matches!(b, b']' | b'[' | b',')),
        };
        if !idle {
            return Err(StreamAbort::new("response_cut", "the stream ended inside an event"));
        }
        out.extend_from_slice(&rest.raw);
        Ok(())
    }

    /// Rewrites a WebSocket message: the messages to send before it, and its new payload.
    pub fn rewrite_message(&mut self, payload: Bytes) -> (Vec<Bytes>, Result<Bytes, StreamAbort>) {
        let mut out = Vec::new();
        self.cuts.clear();
        let edited = self.rewrite_event(&StreamEvent::from_message(payload), &mut out);
        let mut rest = Bytes::from(out);
        let before = self.split_at_cuts(&mut rest);
        (before, edited.map(|()| rest))
    }

    /// The end of a WebSocket: the messages to send before it.
    pub fn finish_messages(&mut self) -> (Vec<Bytes>, Result<(), StreamAbort>) {
        let mut out = Vec::new();
        self.cuts.clear();
        let closed = self.finish_texts(&[EndedChannels::All], &mut out);
        let mut rest = Bytes::from(out);
        (self.split_at_cuts(&mut rest), closed)
    }

    fn split_at_cuts(&mut self, out: &mut Bytes) -> Vec<Bytes> {
        let mut consumed = 0;
        let pieces = self.cuts.drain(..).map(|end| {
            let piece = out.split_to(end.saturating_sub(consumed).min(out.len()));
            consumed = end;
            piece
        });
        pieces.collect()
    }

    fn rewrite_event(&mut self, event: &StreamEvent, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        // Comments and keep-alives carry no data.
        if event.data.is_empty() {
            out.extend_from_slice(&event.raw);
            return Ok(());
        }
        // Bedrock's InvokeModel wraps the provider's JSON in base64.
        let inner = decode_chunk(&event.data);
        let json = inner.as_deref().unwrap_or(&event.data);
        let marked = match spans::mark_event(json, event.name.as_deref()) {
            Ok(marked) => marked,
            Err(_) if &event.data[..] == b"[DONE]" => {
                self.finish_texts(&[EndedChannels::All], out)?;
                out.extend_from_slice(&event.raw);
                return Ok(());
            }
            Err(e) if self.rewriter.is_strict() => {
                return Err(StreamAbort::new("response_unreadable", format!("an event contains {e}")));
            }
            // A rewriter that only restores has nothing to lose by an event that it cannot parse.
            Err(_) => {
                self.rewriter.skipped();
                out.extend_from_slice(&event.raw);
                return Ok(());
            }
        };
        let edits = self.event_edits(event, json, inner.is_some(), &marked, out)?;
        if edits.is_empty() {
            out.extend_from_slice(&event.raw);
            return Ok(());
        }
        write(event, &splice(json, &edits), inner.is_some(), out)
    }

    fn event_edits(
        &mut self,
        event: &StreamEvent,
        json: &[u8],
        is_chunk: bool,
        marked: &MarkedText,
        out: &mut Vec<u8>,
    ) -> Result<Vec<ByteReplacement>, StreamAbort> {
        let mut edits = Vec::new();
        let mut here = Vec::new();
        for span in &marked.spans {
            let Some(raw) = span_text(json, span) else {
                let is_binary = matches!(span.kind, SpanKind::Base64Text | SpanKind::Media(_));
                match self.rewriter.is_strict() {
                    _ if is_binary => {}
                    true => return Err(StreamAbort::new("response_unreadable", "a text of an event is not UTF-8")),
                    false => self.rewriter.skipped(),
                }
                continue;
            };
            self.rewriter.next_span(span);
            // A text without a channel is complete within its event.
            let Some(TextChannel { id, group }) = span.channel else {
                if let Some(with) = self.rewriter.rewrite_whole(raw, &span.kind)? {
                    edits.push((span.range.clone(), with));
                }
                continue;
            };
            self.texts += 1;
            let began = self.texts;
            self.open.entry(id).or_insert(OpenText { group, began, last: None });
            let mut with = self.rewriter.rewrite_piece(id, raw, &span.kind)?;
            // The event that ends a text contains its last fragment: what was held back is appended to it.
            if marked.ended.iter().any(|e| *e == EndedChannels::All || *e == EndedChannels::Group(group)) {
                let mut rest = String::new();
                self.rewriter.finish(id, &mut rest)?;
                if !rest.is_empty() {
                    with.get_or_insert_with(|| raw.to_owned()).push_str(&rest);
                }
                self.open.remove(&id);
            } else if self.rewriter.has_buffered(id) {
                here.push(id);
            }
            if let Some(with) = with.filter(|w| w != raw) {
                edits.push((span.range.clone(), with));
            }
        }
        // Buffered text is sent before the event that ends it.
        self.finish_texts(&marked.ended, out)?;
        for id in here {
            if let Some(open) = self.open.get_mut(&id) {
                open.last = EventTemplate::new(event, json, is_chunk, marked, id);
            }
        }
        Ok(edits)
    }

    /// Sends buffered text of the channels that end, in the order in which the texts began.
    fn finish_texts(&mut self, ended: &[EndedChannels], out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        if ended.is_empty() || self.open.is_empty() {
            return Ok(());
        }
        let ends = |o: &OpenText| ended.iter().any(|e| *e == EndedChannels::All || *e == EndedChannels::Group(o.group));
        let mut over: Vec<(usize, u64)> =
            self.open.iter().filter(|(_, o)| ends(o)).map(|(id, o)| (o.began, *id)).collect();
        over.sort_unstable();
        for (_, id) in over {
            let mut rest = String::new();
            self.rewriter.finish(id, &mut rest)?;
            if let Some(OpenText { last: Some(template), .. }) = self.open.remove(&id)
                && !rest.is_empty()
            {
                template.write(self.framing, &rest, out)?;
                self.cuts.push(out.len());
            }
        }
        Ok(())
    }
}

impl EventTemplate {
    /// A template of the event, with all fragment texts emptied, so that sending it again adds only the rest of this
    /// text.
    fn new(event: &StreamEvent, json: &[u8], chunk: bool, marked: &MarkedText, id: u64) -> Option<Self> {
        let mut edits = Vec::new();
        let mut at = None;
        let mut removed = 0;
        for span in marked.spans.iter().filter(|s| s.channel.is_some()) {
            if span.channel.is_some_and(|c| c.id == id) {
                // The earlier fragments of the event are empty in the template, so the position moves by their
                // length.
                at = Some(span.range.start - removed);
            }
            removed += span.range.len();
            edits.push((span.range.clone(), String::new()));
        }
        Some(Self { event: event.clone(), json: splice(json, &edits), at: at?, chunk })
    }

    /// Writes the template with this text, adding the separator if it is not part of the event.
    fn write(&self, framing: StreamFraming, text: &str, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
        let json = splice(&self.json, &[(self.at..self.at, text.to_owned())]);
        match framing {
            StreamFraming::Array => {
                out.extend_from_slice(b",\r\n");
                out.extend_from_slice(&json);
                Ok(())
            }
            StreamFraming::Lines if !self.event.raw.ends_with(b"\n") => {
                out.push(b'\n');
                out.extend_from_slice(&json);
                Ok(())
            }
            _ => write(&self.event, &json, self.chunk, out),
        }
    }
}

/// The raw text of a span, unless it is binary content, which is not rewritten here.
pub(crate) fn span_text<'j>(json: &'j [u8], span: &TextSpan) -> Option<&'j str> {
    match span.kind {
        SpanKind::Base64Text | SpanKind::Media(_) => None,
        _ => std::str::from_utf8(json.get(span.range.clone())?).ok(),
    }
}

/// Applies replacements, which are sorted and do not overlap.
pub(crate) fn splice(bytes: &[u8], edits: &[ByteReplacement]) -> Vec<u8> {
    let grown: usize = edits.iter().map(|(_, with)| with.len()).sum();
    let mut out = Vec::with_capacity(bytes.len() + grown);
    let mut at = 0;
    for (range, with) in edits {
        out.extend_from_slice(bytes.get(at..range.start).unwrap_or_default());
        out.extend_from_slice(with.as_bytes());
        at = range.end;
    }
    out.extend_from_slice(bytes.get(at..).unwrap_or_default());
    out
}

const CHUNK_PREFIX: &[u8] = b"{\"bytes\":\"";

/// The JSON in InvokeModel's `{"bytes":"…"}`, if the event has exactly this beginning.
fn decode_chunk(payload: &[u8]) -> Option<Vec<u8>> {
    let text = payload.strip_prefix(CHUNK_PREFIX)?;
    STANDARD.decode(text.get(..memchr::memchr(b'"', text)?)?).ok()
}

/// Writes an event with another payload. Everything else, headers and field order included, stays as the provider
/// sent it.
fn write(event: &StreamEvent, json: &[u8], is_chunk: bool, out: &mut Vec<u8>) -> Result<(), StreamAbort> {
    let wrapped;
    let data = if is_chunk {
        let rest = event.data.get(CHUNK_PREFIX.len()..).unwrap_or_default();
        let rest = memchr::memchr(b'"', rest).and_then(|end| rest.get(end..)).unwrap_or_default();
        wrapped = [CHUNK_PREFIX, STANDARD.encode(json).as_bytes(), rest].concat();
        &wrapped[..]
    } else {
        json
    };
    // AWS event streams have checksums over the whole message, so it is written anew.
    if !event.headers.is_empty() {
        return aws_event_stream::write_message(out, &event.headers, data)
            .map_err(|e| StreamAbort::new("response_unreadable", e.to_string()));
    }
    if let Some(at) = event.at {
        out.extend_from_slice(event.raw.get(..at).unwrap_or_default());
        out.extend_from_slice(data);
        out.extend_from_slice(event.raw.get(at + event.data.len()..).unwrap_or_default());
        return Ok(());
    }
    let text =
        std::str::from_utf8(data).map_err(|_| StreamAbort::new("response_unreadable", "an event is not UTF-8"))?;
    let event = interflow_codec::sse::SseEvent {
        event: event.name.as_ref().map(ByteStr::to_string),
        data: Some(text.to_owned()),
        ..Default::default()
    };
    event.write_to(out);
    Ok(())
}
