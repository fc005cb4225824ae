//! Body processing by rules: buffered where a rule needs the whole body, otherwise streamed.

pub(crate) mod accept_encoding;
pub(crate) mod content;
pub(crate) mod content_coding;
pub(crate) mod edit;
pub(crate) mod fault_injection;
pub(crate) mod html;
mod save;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use interflow_codec::grpc;
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Body, CollectError, Error, ErrorKind, Headers, Result};

use crate::body::fault_injection::{BodyFault, Throttle};
use crate::files::private_files::PrivateFiles;
use content::BodyContent;
use content_coding::BodyOwner;
use edit::BodyChange;

/// What decides on each chunk of a body as it is sent.
pub(crate) trait ChunkFilter: fmt::Debug + Send + Sync {
    /// The body, each chunk passed on, replaced, or cut off. `exchange` identifies the exchange to the filter.
    fn filter_chunks(self: Arc<Self>, exchange: String, body: Body) -> Body;
}

/// What the rules of a phase requested for a body; applied together when all have run.
#[derive(Debug, Default)]
pub(crate) struct BodyEdits {
    pub changes: Vec<BodyChange>,
    /// What they make of the whole body, if that was computed already; the inner value is `None` if nothing changes.
    pub changed: Option<Result<Option<Bytes>>>,
    /// The names of the rules that requested them.
    pub by: Vec<String>,
    pub faults: Vec<BodyFault>,
    /// Speed limit of this direction; the last rule wins.
    pub throttle: Option<Arc<Throttle>>,
    /// Services that receive its chunks, with the id of their exchange.
    pub chunks: Vec<(Arc<dyn ChunkFilter>, String)>,
    /// Files to which the body is saved as it is sent, unless they are private.
    pub save: Vec<(PathBuf, PrivateFiles)>,
}

impl BodyEdits {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.faults.is_empty()
            && self.throttle.is_none()
            && self.save.is_empty()
            && self.chunks.is_empty()
    }

    /// Whether the body may change, so that validators and length no longer apply.
    pub fn may_change_body(&self) -> bool {
        !self.changes.is_empty() || !self.faults.is_empty() || !self.chunks.is_empty()
    }

    /// Whether the edits are made of what is in the body, rather than put another in its place.
    pub fn needs_content(&self) -> bool {
        let sets = self.changes.iter().any(|c| matches!(c, BodyChange::Set(_)));
        !self.chunks.is_empty() || !self.changes.is_empty() && !sets
    }

    /// The edits that have an effect, and the text that they start from, if not that of the body: those before the last
    /// `Set` have none.
    fn effective(&self) -> (Option<&Bytes>, &[BodyChange]) {
        let set = self.changes.iter().rposition(|c| matches!(c, BodyChange::Set(_)));
        match self.changes.get(set.unwrap_or(0)..) {
            Some([BodyChange::Set(text), changes @ ..]) => (Some(text), changes),
            Some(changes) => (None, changes),
            None => (None, &[]),
        }
    }

    /// The edits, and the text that they are for, if they change JSON and the text is long: they are applied away from
    /// the thread that serves the connection.
    pub fn long_json(&self, seen: &BodyReadState, headers: &Headers) -> Option<(Vec<BodyChange>, Bytes)> {
        let BodyReadState::Whole(WholeBody { content: Some(content), .. }) = seen else { return None };
        let (text, changes) = self.effective();
        let text = text.unwrap_or(content.text());
        if text.len() <= MAX_INLINE_JSON || is_event_stream(headers) || !changes.iter().any(BodyChange::is_json) {
            return None;
        }
        Some((changes.to_vec(), text.clone()))
    }

    /// Whether the edits need the whole text of a body with this head.
    pub fn needs_whole(&self, headers: &Headers) -> bool {
        let sets = self.changes.iter().rposition(|c| matches!(c, BodyChange::Set(_)));
        let after = &self.changes[sets.unwrap_or(0)..];
        let converts = content::is_wide(headers);
        !is_event_stream(headers) && after.iter().any(|c| !c.streams() || converts && !matches!(c, BodyChange::Set(_)))
    }
}

/// In a text up to this size, JSON is edited on the calling thread.
const MAX_INLINE_JSON: usize = 16 << 10;

/// A body, streaming or buffered, depending on what the rules need.
#[derive(Debug)]
pub(crate) enum BodyReadState {
    Stream(Body),
    Whole(WholeBody),
}

#[derive(Clone, Debug)]
pub(crate) struct WholeBody {
    /// As received, to be forwarded if nothing changes.
    pub raw: Bytes,
    /// What conditions and edits see; `None` if it cannot be read.
    pub content: Option<BodyContent>,
    pub trailers: Option<Headers>,
}

/// Buffers a body of at most `cap` bytes; a larger one is returned as a stream. The second value says why its content
/// cannot be read.
///
/// # Errors
/// The body broke off, the memory budget is exhausted, or the body must not be held.
pub(crate) async fn collect(
    body: Body,
    headers: &Headers,
    cap: usize,
    owner: BodyOwner,
) -> Result<(BodyReadState, Option<Error>)> {
    match body.collect_held(headers, cap, true).await {
        Ok((raw, trailers)) => {
            let (content, unread) = match read_content(headers, &raw, owner).await {
                Ok(content) => (Some(content), None),
                Err(e) if e.kind() == ErrorKind::Overloaded => return Err(e),
                Err(e) => (None, Some(e)),
            };
            Ok((BodyReadState::Whole(WholeBody { raw, content, trailers }), unread))
        }
        Err(CollectError::TooLarge(body)) => {
            let why = format!("the body is larger than {cap} bytes (rules.max_body)");
            Ok((BodyReadState::Stream(body), Some(Error::new(ErrorKind::BodyTooLarge, why))))
        }
        Err(CollectError::Broken(e)) => Err(e),
    }
}

async fn read_content(headers: &Headers, raw: &Bytes, owner: BodyOwner) -> Result<BodyContent> {
    // Content codings and charsets say nothing about a body that is not there.
    if raw.is_empty() {
        return Ok(BodyContent::default());
    }
    let plain = content_coding::decode(headers, raw, owner).await?;
    let unread = |charset| Error::new(ErrorKind::StageFailed, format!("the charset {charset} is not supported"));
    let messages = decompressed_messages(headers, &plain)?;
    Ok(BodyContent::read(headers, plain).await?.map_err(unread)?.with_messages(messages))
}

/// The messages of a gRPC body without their compression, one after the other; `None` if none is compressed.
///
/// # Errors
/// The body is not divided into messages, or one cannot be decompressed.
fn decompressed_messages(headers: &Headers, body: &Bytes) -> Result<Option<Bytes>> {
    /// What all of them may have.
    const MAX_SIZE: usize = 16 << 20;
    let media = headers.get_str("content-type").unwrap_or_default().trim().to_ascii_lowercase();
    if !media.starts_with("application/grpc") {
        return Ok(None);
    }
    let unread =
        |why: &str| Error::new(ErrorKind::StageFailed, format!("the messages of its gRPC cannot be read: {why}"));
    if media.starts_with("application/grpc-web-text") {
        return Err(unread("they are in base64"));
    }
    let encoding = headers.get_str("grpc-encoding").unwrap_or_default().trim().to_ascii_lowercase();
    let (mut rest, mut clear, mut is_compressed) = (BytesMut::from(&body[..]), Vec::new(), false);
    while let Some(message) = grpc::next_message(&mut rest, MAX_SIZE).map_err(|e| unread(&e.to_string()))? {
        is_compressed |= message.compressed;
        let most = MAX_SIZE.saturating_sub(clear.len());
        let data =
            if message.compressed { grpc::decompress(&encoding, &message.data, most) } else { Some(message.data) };
        clear.extend_from_slice(&data.ok_or_else(|| unread("one cannot be decompressed from grpc-encoding"))?);
    }
    if !rest.is_empty() {
        return Err(unread("the body ends within one"));
    }
    let held = PROCESS_BUDGET.reserve(clear.len() as u64)?;
    Ok(is_compressed.then(|| held.attach_to(clear)))
}

/// Whether a head announces server-sent events.
pub(crate) fn is_event_stream(headers: &Headers) -> bool {
    headers
        .get_str("content-type")
        .is_some_and(|t| t.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Applies the edits. A streaming body must not need buffering.
///
/// # Errors
/// An edit that does not apply, or an unknown content coding.
pub(crate) fn finish(work: BodyEdits, seen: BodyReadState, headers: &mut Headers, owner: BodyOwner) -> Result<Body> {
    let mut work = work;
    let mut body =
        if work.changes.is_empty() { into_body(seen) } else { apply_changes(&mut work, seen, headers, owner)? };
    if !work.chunks.is_empty() && !body.is_empty() {
        let coded = content_coding::is_encoded(headers)?;
        // Services get plain chunks.
        body = content_coding::decode_stream(headers, body, owner);
        strip_body_headers(headers, coded);
        for (filter, exchange) in work.chunks {
            body = filter.filter_chunks(exchange, body);
        }
    }
    for (path, private) in work.save {
        body = save::tee_to_file(body, path, private);
    }
    for fault in work.faults {
        body = fault.apply_to(body);
    }
    Ok(match work.throttle {
        Some(throttle) => throttle.limit_body(body),
        None => body,
    })
}

/// The unchanged body, with its content coding.
pub(crate) fn into_body(seen: BodyReadState) -> Body {
    match seen {
        BodyReadState::Stream(body) => body,
        BodyReadState::Whole(whole) => Body::with_trailers(whole.raw, whole.trailers),
    }
}

fn apply_changes(work: &mut BodyEdits, seen: BodyReadState, headers: &mut Headers, owner: BodyOwner) -> Result<Body> {
    let changed = work.changed.take();
    let (text, changes) = work.effective();
    // A message without a body gets none, and no framing of one.
    let is_absent = match &seen {
        BodyReadState::Stream(body) => body.is_empty(),
        BodyReadState::Whole(whole) => whole.raw.is_empty(),
    };
    if text.is_none() && is_absent {
        return Ok(into_body(seen));
    }
    let apply = |text: &Bytes| changed.unwrap_or_else(|| edit::apply_all(changes, text));
    if let Some(text) = text {
        let body = apply(text)?.unwrap_or_else(|| text.clone());
        strip_body_headers(headers, true);
        return Ok(Body::from(match &seen {
            BodyReadState::Whole(WholeBody { content: Some(content), .. }) if content.is_wide() => content.encode(body),
            _ => content::encode_new(headers, body),
        }));
    }
    let coded = content_coding::is_encoded(headers)?;
    match seen {
        BodyReadState::Whole(WholeBody { raw, content, trailers }) if !is_event_stream(headers) => {
            let content = content.ok_or_else(|| Error::new(ErrorKind::StageFailed, "its content cannot be read"))?;
            let Some(new) = apply(content.text())? else {
                return Ok(Body::with_trailers(raw, trailers));
            };
            strip_body_headers(headers, coded);
            Ok(Body::with_trailers(content.encode(new), trailers))
        }
        seen => {
            let events = is_event_stream(headers);
            let mut body = content_coding::decode_stream(headers, into_body(seen), owner);
            strip_body_headers(headers, coded);
            if events {
                return Ok(edit::edit_events(changes.to_vec(), body));
            }
            for change in changes {
                body = edit::stream_change(change, body);
            }
            Ok(body)
        }
    }
}

/// Removes fields that no longer describe the body. `Content-Length` is left to the codec.
pub(crate) fn strip_body_headers(headers: &mut Headers, decoded: bool) {
    for name in ["content-length", "content-md5", "digest", "content-digest", "repr-digest", "accept-ranges"] {
        headers.remove(name);
    }
    if decoded {
        headers.remove("content-encoding");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const OWNER: BodyOwner =
        BodyOwner { flow: interflow_types::FlowId::from_u128(1), side: interflow_types::Direction::Response };

    fn gzip(text: &[u8]) -> Bytes {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(text).unwrap();
        e.finish().unwrap().into()
    }

    fn html(coding: &str) -> Headers {
        [("Content-Type", "text/html"), ("Content-Encoding", coding), ("Content-Length", "9"), ("Digest", "x")]
            .into_iter()
            .collect()
    }

    fn find(a: &'static str, b: &'static str) -> BodyChange {
        BodyChange::Find(Bytes::from_static(a.as_bytes()), Bytes::from_static(b.as_bytes()))
    }

    #[tokio::test]
    async fn compressed_body_is_edited_buffered_or_streamed() {
        for whole in [true, false] {
            let mut headers = html("gzip");
            let body = Body::from(gzip(b"one two"));
            let seen =
                if whole { collect(body, &headers, 1000, OWNER).await.unwrap().0 } else { BodyReadState::Stream(body) };
            let work = BodyEdits { changes: vec![find("two", "three")], ..BodyEdits::default() };
            let body = finish(work, seen, &mut headers, OWNER).unwrap();
            assert_eq!(&body.collect(100).await.unwrap().0[..], b"one three");
            let left: Vec<_> = headers.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect();
            assert_eq!(left, ["Content-Type"], "{whole}");
        }
    }

    #[tokio::test]
    async fn unedited_body_keeps_its_bytes() {
        let mut headers = html("gzip");
        let raw = gzip(b"one two");
        let (seen, _) = collect(Body::from(raw.clone()), &headers, 1000, OWNER).await.unwrap();
        let work = BodyEdits { changes: vec![find("four", "five")], ..BodyEdits::default() };
        let body = finish(work, seen, &mut headers, OWNER).unwrap();
        assert_eq!(body.collect(100).await.unwrap().0, raw);
        assert_eq!(headers, html("gzip"));
    }

    #[tokio::test]
    async fn unknown_coding_is_an_error_unless_the_body_is_replaced() {
        let body = || BodyReadState::Stream(Body::from(Bytes::from_static(b"??")));
        let work = |c| BodyEdits { changes: vec![c], ..BodyEdits::default() };
        let error = finish(work(find("a", "b")), body(), &mut html("aws-chunked"), OWNER).unwrap_err();
        assert!(error.to_string().contains("aws-chunked"), "{error}");
        let new = finish(work(BodyChange::Set("new".into())), body(), &mut html("aws-chunked"), OWNER).unwrap();
        assert_eq!(&new.collect(9).await.unwrap().0[..], b"new");
    }

    #[tokio::test]
    async fn a_message_without_a_body_gets_none_unless_one_is_set() {
        let path = crate::text::json::JsonPath::parse("$.a").unwrap();
        let any = regex::bytes::Regex::new("^").unwrap();
        for change in [
            find("a", "b"),
            BodyChange::Regex(any, vec![edit::ReplacementPart::Text("x".into())]),
            BodyChange::JsonSet(vec![(path, 1.into())]),
            BodyChange::Html("head".into(), "x".into()),
        ] {
            for whole in [true, false] {
                let mut headers: Headers = [("Content-Length", "0")].into_iter().collect();
                let seen = match whole {
                    true => collect(Body::Empty, &headers, 9, OWNER).await.unwrap().0,
                    false => BodyReadState::Stream(Body::Empty),
                };
                let faults = vec![BodyFault::Truncate(1), BodyFault::Corrupt(0)];
                let work = BodyEdits { changes: vec![change.clone()], faults, ..BodyEdits::default() };
                let body = finish(work, seen, &mut headers, OWNER).unwrap();
                assert!(matches!(body, Body::Empty), "{change:?}");
                assert_eq!(headers.get_str("content-length"), Some("0"), "{change:?}");
            }
        }
        let work = BodyEdits { changes: vec![BodyChange::Set("new".into())], ..BodyEdits::default() };
        let body = finish(work, BodyReadState::Stream(Body::Empty), &mut Headers::new(), OWNER).unwrap();
        assert_eq!(body.remaining(), Some(3));
    }

    #[tokio::test]
    async fn a_new_body_is_in_the_declared_charset_or_declares_another() {
        for (media, text, sent, declared) in [
            ("text/plain; charset=utf-16le", "é", &b"\xe9\0"[..], "text/plain; charset=utf-16le"),
            ("text/plain; charset=\"UTF-16\"", "é", b"\xfe\xff\0\xe9", "text/plain; charset=\"UTF-16\""),
            ("text/html;charset=ISO-8859-1; x=y", "é", "é".as_bytes(), "text/html; x=y; charset=utf-8"),
            ("text/html; charset=ISO-8859-1", "e", b"e", "text/html; charset=ISO-8859-1"),
            ("text/html; charset=utf-7", "e", b"e", "text/html; charset=utf-8"),
            ("text/html; charset=UTF-8", "é", "é".as_bytes(), "text/html; charset=UTF-8"),
            ("text/html", "é", "é".as_bytes(), "text/html"),
        ] {
            for whole in [true, false] {
                let mut headers: Headers = [("Content-Type", media)].into_iter().collect();
                let body = Body::from(Bytes::from_static(b"old."));
                let seen = match whole {
                    true => collect(body, &headers, 9, OWNER).await.unwrap().0,
                    false => BodyReadState::Stream(body),
                };
                let work = BodyEdits { changes: vec![BodyChange::Set(text.into())], ..BodyEdits::default() };
                let new = finish(work, seen, &mut headers, OWNER).unwrap().collect(9).await.unwrap().0;
                // Bytes without a mark are read as big-endian, and without one written again.
                let sent = sent.strip_prefix(b"\xfe\xff").filter(|_| whole).unwrap_or(sent);
                assert_eq!((&new[..], headers.get_str("content-type")), (sent, Some(declared)), "{media} {whole}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_is_to_be_forwarded_as_it_comes_is_not_collected() {
        let headers: Headers = [("Incremental", "?1")].into_iter().collect();
        let body = Body::replay(Vec::new(), Body::Empty);
        let refused = collect(body, &headers, 1000, OWNER).await.err().map(|e| e.kind());
        assert_eq!(refused, Some(ErrorKind::IncrementalRefused));
    }

    #[tokio::test]
    async fn oversized_body_is_returned_as_a_stream() {
        let (seen, unread) =
            collect(Body::from(Bytes::from_static(b"abcdef")), &Headers::new(), 3, OWNER).await.unwrap();
        assert!(matches!(seen, BodyReadState::Stream(_)) && unread.unwrap().kind() == ErrorKind::BodyTooLarge);
        assert_eq!(&into_body(seen).collect(9).await.unwrap().0[..], b"abcdef");
    }
}
