//! Rewrites the texts in the events of a stream in place; everything else is forwarded byte for byte.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use interflow_codec::json::replace_ranges;
use interflow_llm::event_stream::{StreamEvent, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::reply_error;
use interflow_llm::spans::{EndedChannels, MarkedText, SpanKind, TextChannel, TextSpan};

use super::abort::StreamAbort;
use super::stream::StreamRest;

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

    /// Whether what is found must not pass. Then events that cannot be parsed are blocked, as they could contain anything,
    /// and tokens with their probabilities are left out, as they have the text in pieces.
    fn is_strict(&self) -> bool {
        true
    }

    /// Rewrites a text outside of JSON, where nothing is escaped; `None` if it is unchanged.
    fn rewrite_plain(&mut self, _text: &str) -> Result<Option<String>, StreamAbort> {
        Ok(None)
    }

    /// Something passes that could not be read.
    fn skipped(&mut self) {}

    /// Whether a field or a comment beside the data of an event is left out.
    fn drops(&mut self, _field: &str) -> Result<bool, StreamAbort> {
        Ok(false)
    }

    /// The span of the text or fragment that is rewritten next.
    fn next_span(&mut self, _span: &TextSpan) {}
}

/// Rewrites the texts of the events of a stream.
pub(crate) struct EventRewriter<P> {
    framing: StreamFraming,
    pub rewriter: P,
    open: HashMap<u64, OpenText>,
    texts: usize,
    /// Whether the provider's error has passed, which ends the stream.
    pub has_failed: bool,
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
}

/// Replaces a range of bytes by a text.
pub(crate) type ByteReplacement = (Range<usize>, String);

impl<P: TextRewriter> EventRewriter<P> {
    pub fn new(framing: StreamFraming, rewriter: P) -> Self {
        Self { framing, rewriter, open: HashMap::new(), texts: 0, has_failed: false }
    }

    /// Processes the end of the stream, and what it ended in; returns the bytes that are sent last.
    pub fn finish(&mut self, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> StreamRest {
        // A stream that ended at an event boundary.
        let Some(rest) = rest else { return self.finish_texts(&[EndedChannels::All], out).map(|()| None) };
        let (raw, data) = (rest.raw(), &rest.event().data);
        // Some providers end the last event with the stream; one that does not parse was truncated.
        let whole = self.framing == StreamFraming::Whole || &data[..] == b"[DONE]";
        if !data.is_empty() && (whole || rest.marked().is_ok()) {
            let end: &[u8] = match self.framing {
                StreamFraming::Sse => b"\n\n",
                StreamFraming::Lines if !raw.ends_with(b"\n") => b"\n",
                _ => b"",
            };
            // Buffered text follows as an event of its own.
            let raw = [&raw[..], end].concat().into();
            self.rewrite(StreamEvent { raw, ..rest.into_event() }.into(), out)?;
            return self.finish_texts(&[EndedChannels::All], out).map(|()| None);
        }
        self.finish_texts(&[EndedChannels::All], out)?;
        // The end of an array belongs to it; comments and empty events have no texts.
        let idle = match self.framing {
            StreamFraming::Sse => data.is_empty() && !raw.starts_with(b"data"),
            _ => raw.iter().all(|b| b.is_ascii_whitespace() || matches!(b, b']' | b'[' | b',')),
        };
        if !idle {
            return Err(StreamAbort::new("response_cut", "the stream ended inside an event"));
        }
        self.without_dropped(rest).map(Some)
    }

    /// The event without those comments, names and ids that are left out.
    fn without_dropped(&mut self, event: ParsedEvent) -> Result<ParsedEvent, StreamAbort> {
        if self.framing != StreamFraming::Sse {
            return Ok(event);
        }
        let (mut at, mut dropped) = (0, Vec::new());
        for line in event.raw().split_inclusive(|b| matches!(b, b'\r' | b'\n')) {
            let range = at..at + line.len();
            at = range.end;
            let field = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
            let is_beside = !field.starts_with(b"data:") && !matches!(field, b"" | b"data");
            if is_beside && self.rewriter.drops(&String::from_utf8_lossy(field))? {
                dropped.push((range, String::new()));
            }
        }
        if dropped.is_empty() {
            return Ok(event);
        }
        Ok(StreamEvent::from_raw(self.framing, splice(event.raw(), &dropped).into()).into())
    }

    /// Rewrites a WebSocket message: the messages to send before it, and its new payload.
    pub fn rewrite_message(&mut self, payload: Bytes) -> (Vec<Bytes>, Result<Bytes, StreamAbort>) {
        let mut out = Vec::new();
        let rewritten = self.rewrite(StreamEvent::from_message(payload).into(), &mut out);
        let own = rewritten.map(|()| out.pop().map(|event| event.raw().clone()).unwrap_or_default());
        (out.iter().map(|event| event.raw().clone()).collect(), own)
    }

    /// The end of a WebSocket: the messages to send before it.
    pub fn finish_messages(&mut self) -> (Vec<Bytes>, Result<(), StreamAbort>) {
        let mut out = Vec::new();
        let closed = self.finish_texts(&[EndedChannels::All], &mut out);
        (out.iter().map(|event| event.raw().clone()).collect(), closed)
    }

    /// Rewrites an event; appends what is sent in its place, which ends with the event itself.
    pub fn rewrite(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        let event = self.without_dropped(event)?;
        // Comments and keep-alives carry no data.
        if event.event().data.is_empty() {
            if self.framing == StreamFraming::Array && event.raw().contains(&b']') {
                self.finish_texts(&[EndedChannels::All], out)?;
            }
            out.push(event);
            return Ok(());
        }
        let bare = event.marked().ok().filter(|_| self.rewriter.is_strict());
        let event = match bare.and_then(|marked| marked.without_logprobs(event.json())) {
            Some(json) => with_json(&event, &json)?,
            None => event,
        };
        let edits = match event.marked() {
            Ok(marked) => self.event_edits(&event, marked, out)?,
            Err(_) if &event.event().data[..] == b"[DONE]" => {
                self.finish_texts(&[EndedChannels::All], out)?;
                Vec::new()
            }
            Err(e) if self.rewriter.is_strict() => {
                return Err(StreamAbort::new("response_unreadable", format!("an event contains {e}")));
            }
            // A rewriter that only restores has nothing to lose by an event that it cannot parse.
            Err(_) => {
                self.rewriter.skipped();
                Vec::new()
            }
        };
        out.push(if edits.is_empty() { event } else { with_json(&event, &splice(event.json(), &edits))? });
        Ok(())
    }

    fn event_edits(
        &mut self,
        event: &ParsedEvent,
        marked: &MarkedText,
        out: &mut Vec<ParsedEvent>,
    ) -> Result<Vec<ByteReplacement>, StreamAbort> {
        let json = event.json();
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
        // Buffered text is sent before the event that ends it. On a WebSocket errors end nothing.
        let is_choice = |e: &EndedChannels| matches!(e, EndedChannels::Group(_));
        if self.framing != StreamFraming::Messages
            && !marked.ended.iter().any(is_choice)
            && reply_error(event.name(), json).is_some()
        {
            self.release(out)?;
            self.has_failed = true;
        } else {
            self.finish_texts(&marked.ended, out)?;
        }
        for id in here {
            if let Some(open) = self.open.get_mut(&id) {
                open.last = EventTemplate::new(event, marked, id);
            }
        }
        Ok(edits)
    }

    /// Sends all buffered text, before an error. A placeholder that the error cut off is left out.
    pub fn release(&mut self, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        loop {
            match self.finish_texts(&[EndedChannels::All], out) {
                Err(halt) if halt.code == "open_placeholder" => {}
                released => return released,
            }
        }
    }

    /// Sends buffered text of the channels that end, in the order in which the texts began.
    fn finish_texts(&mut self, ended: &[EndedChannels], out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        if ended.is_empty() || self.open.is_empty() {
            return Ok(());
        }
        let ends = |o: &OpenText| ended.iter().any(|e| *e == EndedChannels::All || *e == EndedChannels::Group(o.group));
        let mut over: Vec<(usize, u64)> =
            self.open.iter().filter(|(_, o)| ends(o)).map(|(id, o)| (o.began, *id)).collect();
        over.sort_unstable();
        for (_, id) in over {
            let mut rest = String::new();
            let open = self.open.remove(&id);
            self.rewriter.finish(id, &mut rest)?;
            if let Some(OpenText { last: Some(template), .. }) = open
                && !rest.is_empty()
            {
                out.push(template.with_text(self.framing, rest)?);
            }
        }
        Ok(())
    }
}

impl EventTemplate {
    /// A template of the event, with all fragment texts emptied, so that sending it again adds only the rest of this
    /// text.
    fn new(event: &ParsedEvent, marked: &MarkedText, id: u64) -> Option<Self> {
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
        Some(Self { event: event.event().clone(), json: splice(event.json(), &edits), at: at? })
    }

    /// The template with this text, and with the separator if it is not part of the event.
    fn with_text(&self, framing: StreamFraming, text: String) -> Result<ParsedEvent, StreamAbort> {
        let json = splice(&self.json, &[(self.at..self.at, text)]);
        match framing {
            StreamFraming::Array => Ok(StreamEvent::from_raw(framing, [b",\r\n", &json[..]].concat().into()).into()),
            _ => with_json(&self.event.clone().into(), &json),
        }
    }
}

fn with_json(event: &ParsedEvent, json: &[u8]) -> Result<ParsedEvent, StreamAbort> {
    let edited = event.with_json(json).map(ParsedEvent::from);
    edited.map_err(StreamAbort::broken)
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
    replace_ranges(bytes, edits.iter().map(|(range, with)| (range.clone(), with.as_bytes())))
}
