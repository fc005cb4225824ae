//! Body edits with rendered templates, applied to a whole text or to a stream.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_codec::sse::SseParser;
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result};
use regex::bytes::Regex;
use serde_json::Value;

use super::html::{HtmlInjector, StreamEdit};
use crate::flow::json_answers::JSON_SLOTS;
use crate::matching::regex_limits::group;
use crate::text::json::{JsonPath, PatchOperation};
use crate::text::json_document::{JsonDocument, JsonFailure};

/// Maximum size of a server-sent event that is edited; a larger one ends the editing, not the stream.
const MAX_EVENT_SIZE: usize = 16 << 20;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Clone, Debug)]
pub(crate) enum BodyChange {
    Find(Bytes, Bytes),
    Regex(Regex, Vec<ReplacementPart>),
    Set(Bytes),
    /// Sets values by JSONPath.
    JsonSet(Vec<(JsonPath, Value)>),
    /// Removes values by JSONPath.
    JsonRemove(Vec<JsonPath>),
    /// Applies a JSON Patch (RFC 6902), as a whole or not at all.
    JsonPatch(Vec<PatchOperation>),
    /// Inserts HTML after the first opening tag of this name.
    Html(Arc<str>, Bytes),
}

/// A part of a replacement text, rendered but for the groups of each match.
#[derive(Clone, Debug)]
pub(crate) enum ReplacementPart {
    Text(Bytes),
    /// A capture group by number or name.
    Group(String),
}

impl BodyChange {
    /// Whether it can be applied to a stream, without knowing what follows.
    pub fn streams(&self) -> bool {
        matches!(self, Self::Find(..) | Self::Html(..) | Self::Set(_))
    }

    /// Whether it replaces text, whatever the text is part of.
    fn is_text(&self) -> bool {
        matches!(self, Self::Find(..) | Self::Regex(..))
    }

    pub fn is_json(&self) -> bool {
        matches!(self, Self::JsonSet(_) | Self::JsonRemove(_) | Self::JsonPatch(_))
    }

    /// Applies the edit; `None` if nothing changes.
    ///
    /// # Errors
    /// A JSON edit of text that is not JSON, or a patch that does not apply.
    pub fn apply(&self, text: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Self::Set(new) => Ok(Some(new.clone())),
            Self::Find(find, with) => Ok(replace_all(text, find, with).map(Into::into)),
            Self::Regex(regex, parts) => {
                let mut changed = false;
                let out = regex.replace_all(text, |groups: &regex::bytes::Captures<'_>| {
                    changed = true;
                    expand(parts, groups)
                });
                Ok(changed.then(|| out.into_owned().into()))
            }
            Self::JsonSet(sets) => edit_json(text, sets, "value", |(path, new), document| path.set(document, new)),
            Self::JsonRemove(paths) => edit_json(text, paths, "path", JsonPath::remove),
            Self::JsonPatch(operations) => edit_json(text, operations, "operation", PatchOperation::apply),
            Self::Html(tag, html) => {
                let mut injector = HtmlInjector::new(Arc::clone(tag), html.clone());
                let mut out = injector.feed(text);
                out.extend_from_slice(&injector.rest());
                Ok(injector.is_done().then(|| out.into()))
            }
        }
    }
}

pub(crate) fn expand(parts: &[ReplacementPart], groups: &regex::bytes::Captures<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            ReplacementPart::Text(text) => out.extend_from_slice(text),
            ReplacementPart::Group(name) => out.extend_from_slice(group(groups, name).unwrap_or_default()),
        }
    }
    out
}

/// Applies edits of JSON, each to what the one before it made; every byte that they are not about stays. `what` names
/// an edit in errors.
fn edit_json<E>(
    text: &[u8],
    edits: &[E],
    what: &str,
    apply: impl Fn(&E, &JsonDocument) -> Result<Option<Bytes>, JsonFailure>,
) -> Result<Option<Bytes>> {
    let mut now = PROCESS_BUDGET.reserve(text.len() as u64)?.attach_to(text.to_vec());
    let (mut unchanged, mut changed) = (None, false);
    for (i, edit) in edits.iter().enumerate() {
        // What an edit did not change is not read again.
        let document = unchanged.take().map_or_else(|| JsonDocument::read(now.clone()), Ok);
        let why = match document.and_then(|document| Ok((apply(edit, &document)?, document))) {
            Ok((new, document)) => {
                match new {
                    Some(new) => (now, changed) = (new, true),
                    None => unchanged = Some(document),
                }
                continue;
            }
            Err(JsonFailure::Exceeds(e)) if e.kind() == ErrorKind::Overloaded => return Err(e),
            Err(JsonFailure::Exceeds(e)) => format!("{what} {i}: {e}"),
            Err(JsonFailure::NotJson(e)) => e.to_string(),
        };
        return Err(Error::new(ErrorKind::StageFailed, format!("the JSON of this body cannot be changed: {why}")));
    }
    Ok(changed.then_some(now))
}

/// Replaces every occurrence; `None` if there is none, so that an unchanged body is not copied.
fn replace_all(text: &[u8], find: &[u8], with: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let end = replace_into(text, find, with, &mut out);
    (end > 0).then(|| {
        out.extend_from_slice(&text[end..]);
        out
    })
}

/// Appends the text up to the end of the last occurrence, each of them replaced; returns that end.
fn replace_into(text: &[u8], find: &[u8], with: &[u8], out: &mut Vec<u8>) -> usize {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text[from..], find) {
        out.reserve(text.len() - from);
        out.extend_from_slice(&text[from..from + at]);
        out.extend_from_slice(with);
        from += at + find.len();
    }
    from
}

/// Applies all edits in order; `None` if nothing changes.
///
/// # Errors
/// As [`BodyChange::apply`].
pub(crate) fn apply_all(changes: &[BodyChange], text: &[u8]) -> Result<Option<Bytes>> {
    let mut now: Option<Bytes> = None;
    for change in changes {
        if let Some(new) = change.apply(now.as_deref().unwrap_or(text))? {
            now = Some(new);
        }
    }
    Ok(now)
}

/// As [`apply_all`], on a blocking thread: edits of JSON take long, and much memory, for a long text.
///
/// # Errors
/// As [`apply_all`].
pub(crate) async fn apply_all_off_thread(changes: Vec<BodyChange>, text: Bytes) -> Result<Option<Bytes>> {
    let failed = |e: String| Error::new(ErrorKind::Internal, e);
    let slot = Arc::clone(&JSON_SLOTS).acquire_owned().await.map_err(|e| failed(e.to_string()))?;
    let applied = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        apply_all(&changes, &text)
    });
    applied.await.map_err(|e| failed(e.to_string()))?
}

/// Applies one edit to a streaming body.
pub(crate) fn stream_change(change: &BodyChange, body: Body) -> Body {
    match change {
        BodyChange::Find(find, with) => {
            edit_stream(body, FindReplace { find: find.clone(), with: with.clone(), held: BytesMut::new() })
        }
        BodyChange::Html(tag, html) => edit_stream(body, HtmlInjector::new(Arc::clone(tag), html.clone())),
        BodyChange::Set(new) => Body::from(new.clone()),
        _ => body,
    }
}

struct EditedBody<E> {
    body: Body,
    edit: E,
    /// What ended the body, delivered after the held bytes.
    ended: Option<Option<Result<BodyFrame>>>,
}

fn edit_stream(body: Body, edit: impl StreamEdit) -> Body {
    Body::stream(EditedBody { body, edit, ended: None })
}

impl<E: StreamEdit> BodyStream for EditedBody<E> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(end) = self.ended.take() {
                return Poll::Ready(end);
            }
            let frame = ready!(self.body.poll_frame(cx));
            match frame {
                _ if self.edit.is_idle() => return Poll::Ready(frame),
                Some(Ok(BodyFrame::Data(data))) => {
                    let out = self.edit.feed(&data);
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(BodyFrame::Data(out.into()))));
                    }
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                end => {
                    let out = self.edit.rest();
                    if out.is_empty() {
                        return Poll::Ready(end);
                    }
                    self.ended = Some(end);
                    return Poll::Ready(Some(Ok(BodyFrame::Data(out))));
                }
            }
        }
    }
}

/// Replaces a text in a stream. Only a possible start of a match is held back, at most one byte less than the text.
struct FindReplace {
    find: Bytes,
    with: Bytes,
    held: BytesMut,
}

impl FindReplace {
    fn take(&mut self, last: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.held.len());
        let replaced = replace_into(&self.held, &self.find, &self.with, &mut out);
        let rest = &self.held[replaced..];
        let keep = if last { 0 } else { suffix_overlap(rest, &self.find) };
        out.extend_from_slice(&rest[..rest.len() - keep]);
        let at = self.held.len() - keep;
        let _ = self.held.split_to(at);
        out
    }
}

impl StreamEdit for FindReplace {
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.take(false)
    }

    fn rest(&mut self) -> Bytes {
        self.take(true).into()
    }
}

/// Length of the longest suffix of the text that is a prefix of `find`: it may become a match with the next bytes.
fn suffix_overlap(text: &[u8], find: &[u8]) -> usize {
    (1..find.len().min(text.len() + 1)).rev().find(|n| text.ends_with(&find[..*n])).unwrap_or(0)
}

/// Edits server-sent events as they stream (WHATWG HTML, section 9.2.6): the data of each, and by text each of its other lines. Every other byte stays.
pub(crate) fn edit_events(changes: Vec<BodyChange>, body: Body) -> Body {
    edit_stream(body, SseEdit { changes, parser: SseParser::new(MAX_EVENT_SIZE), is_first: true, lost: false })
}

struct SseEdit {
    changes: Vec<BodyChange>,
    parser: SseParser,
    /// The next event is the first one, before which there may be a byte order mark.
    is_first: bool,
    /// An event was too large: the rest is passed on unchanged, since event boundaries are no longer known.
    lost: bool,
}

impl StreamEdit for SseEdit {
    fn feed(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.parser.push(data);
        loop {
            match self.parser.next_event() {
                Ok(Some(event)) => {
                    let data = event.data.as_ref().and_then(|data| edit_part(&self.changes, data.as_bytes(), |_| true));
                    let is_marked = std::mem::take(&mut self.is_first) && event.raw.starts_with(BYTE_ORDER_MARK);
                    let (mark, lines) = event.raw.split_at(if is_marked { BYTE_ORDER_MARK.len() } else { 0 });
                    out.extend_from_slice(mark);
                    edit_lines(&self.changes, lines, data.as_deref(), &mut out);
                }
                Ok(None) => return out,
                Err(_) => {
                    self.lost = true;
                    out.extend_from_slice(&self.parser.rest());
                    return out;
                }
            }
        }
    }

    /// The event that the stream ends in. Clients do not dispatch it, but they have its bytes.
    fn rest(&mut self) -> Bytes {
        let rest = self.parser.rest();
        edit_part(&self.changes, &rest, BodyChange::is_text).unwrap_or(rest)
    }

    fn is_idle(&self) -> bool {
        self.lost
    }
}

/// Applies the changes that `applies` selects to a part of an event; `None` if it stays as it is. JSON edits skip what is not JSON, such as
/// `[DONE]`.
fn edit_part(changes: &[BodyChange], text: &[u8], applies: impl Fn(&BodyChange) -> bool) -> Option<Bytes> {
    let mut edited: Option<Bytes> = None;
    for change in changes.iter().filter(|change| applies(change)) {
        if let Ok(Some(new)) = change.apply(edited.as_deref().unwrap_or(text)) {
            edited = Some(new);
        }
    }
    edited
}

/// Writes an event with new data, if there are any, in the place of its first `data` line.
fn edit_lines(changes: &[BodyChange], raw: &[u8], data: Option<&[u8]>, out: &mut Vec<u8>) {
    let mut data = data;
    let replaces = data.is_some();
    let mut rest = raw;
    while !rest.is_empty() {
        let length = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
        let end = length + if rest[length..].starts_with(b"\r\n") { 2 } else { usize::from(length < rest.len()) };
        let (line, line_end) = (&rest[..length], &rest[length..end]);
        rest = &rest[end..];
        let is_data = line.strip_prefix(b"data").is_some_and(|value| value.is_empty() || value.starts_with(b":"));
        if !is_data {
            out.extend_from_slice(edit_part(changes, line, BodyChange::is_text).as_deref().unwrap_or(line));
            out.extend_from_slice(line_end);
        } else if let Some(new) = data.take() {
            for part in new.split(|byte| *byte == b'\n') {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(part);
                out.extend_from_slice(line_end);
            }
        } else if !replaces {
            out.extend_from_slice(line);
            out.extend_from_slice(line_end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::matching::regex_limits::build_regex;

    struct Pieces(Vec<Bytes>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
            let next = (!self.0.is_empty()).then(|| self.0.remove(0));
            Poll::Ready(next.map(|p| Ok(BodyFrame::Data(p))))
        }
    }

    fn pieces(text: &str, size: usize) -> Body {
        Body::stream(Pieces(text.as_bytes().chunks(size.max(1)).map(Bytes::copy_from_slice).collect()))
    }

    fn read(mut body: Body) -> String {
        let mut all = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(frame)) = body.poll_frame(&mut cx) {
            if let BodyFrame::Data(d) = frame.unwrap() {
                all.extend_from_slice(&d);
            }
        }
        String::from_utf8(all).unwrap()
    }

    fn find(a: &str, b: &str) -> BodyChange {
        BodyChange::Find(Bytes::copy_from_slice(a.as_bytes()), Bytes::copy_from_slice(b.as_bytes()))
    }

    #[test]
    fn text_edits_are_applied() {
        let group = vec![ReplacementPart::Group("1".into()), ReplacementPart::Text("!".into())];
        for (change, before, after) in [
            (find("cat", "dog"), "a cat, a cat", Some("a dog, a dog")),
            (find("cat", ""), "concatcat", Some("con")),
            (find("cat", "dog"), "a ca", None),
            (BodyChange::Regex(build_regex("(a)+b", false).unwrap(), group), "aab x ab", Some("a! x a!")),
            (BodyChange::Set("new".into()), "old", Some("new")),
            (
                BodyChange::JsonSet(vec![(JsonPath::parse("$.a").unwrap(), json!(2))]),
                r#"{"b":1,"a":1}"#,
                Some(r#"{"b":1,"a":2}"#),
            ),
            (BodyChange::JsonRemove(vec![JsonPath::parse("$.c").unwrap()]), r#"{"b":1}"#, None),
            (
                BodyChange::JsonPatch(
                    crate::text::json::parse_patch(&[json!({"op": "add", "path": "/x", "value": 1})]).unwrap(),
                ),
                "{}",
                Some(r#"{"x":1}"#),
            ),
            (BodyChange::Html("head".into(), "<i>".into()), "<HEAD a='>'>x", Some("<HEAD a='>'><i>x")),
        ] {
            let got = change.apply(before.as_bytes()).unwrap().map(|b| String::from_utf8(b.to_vec()).unwrap());
            assert_eq!(got.as_deref(), after, "{change:?}");
        }
        let no_json = BodyChange::JsonRemove(vec![JsonPath::parse("$.c").unwrap()]).apply(b"<html>").unwrap_err();
        assert!(no_json.to_string().contains("JSON of this body cannot be changed"), "{no_json}");
    }

    #[test]
    fn matching_events_are_edited_and_others_are_unchanged() {
        let change = BodyChange::JsonSet(vec![(JsonPath::parse("$.a").unwrap(), json!(0))]);
        let stream = "event: x\ndata: {\"a\":1}\n\n: ping\n\ndata: [DONE]\n\ndata: cut";
        for size in [1, 5, 1000] {
            let got = read(edit_events(vec![change.clone()], pieces(stream, size)));
            assert_eq!(got, "event: x\ndata: {\"a\":0}\n\n: ping\n\ndata: [DONE]\n\ndata: cut", "{size}");
        }
    }

    #[test]
    fn text_is_replaced_in_every_line_of_an_event_stream() {
        let secret = [
            BodyChange::JsonSet(vec![(JsonPath::parse("$.a").unwrap(), json!(0))]),
            find("s3cret", "-"),
            BodyChange::Regex(build_regex("k[0-9]+", false).unwrap(), vec![ReplacementPart::Text("k".into())]),
        ];
        for (before, after) in [
            ("id: s3cret\nevent: k12\ndata: s3cret 1\n\n", "id: -\nevent: k\ndata: - 1\n\n"),
            (": s3cret\n\ndata: [DONE]\n\n", ": -\n\ndata: [DONE]\n\n"),
            (": x\r\ndata: one\r\ndata: s3cret\r\nid: 1\r\n\r\n", ": x\r\ndata: one\r\ndata: -\r\nid: 1\r\n\r\n"),
            ("data: {\"a\": \"s3cret\"}\n\n", "data: {\"a\": 0}\n\n"),
            ("database: 1\ndata\n\n", "database: 1\ndata\n\n"),
            ("data: 1\n\ndata: s3cret", "data: 1\n\ndata: -"),
            ("\u{feff}data: {\"a\": 1}\n\ndata: {\"a\": 1}\n\n", "\u{feff}data: {\"a\": 0}\n\ndata: {\"a\": 0}\n\n"),
            ("\u{feff}id: s3cret\n\n\u{feff}data: 1\n\n", "\u{feff}id: -\n\n\u{feff}data: 1\n\n"),
        ] {
            for size in [1, 3, 1000] {
                assert_eq!(read(edit_events(secret.to_vec(), pieces(before, size))), after, "{size}");
            }
        }
    }

    #[test]
    fn only_a_possible_match_prefix_is_buffered() {
        assert_eq!(suffix_overlap(b"xxca", b"cat"), 2);
        assert_eq!(suffix_overlap(b"cat", b"cat"), 0);
        assert_eq!(suffix_overlap(b"abab", b"abac"), 2);
        assert_eq!(suffix_overlap(b"", b"cat"), 0);
    }

    proptest! {
        #[test]
        fn streamed_edit_equals_buffered_edit(text in "[abc]{0,40}", a in "[ab]{1,4}", b in "[xyz]{0,3}", size in 1usize..9) {
            let whole = text.replace(&a, &b);
            prop_assert_eq!(read(stream_change(&find(&a, &b), pieces(&text, size))), whole);
        }
    }
}
