//! Body processing by rules: buffered where a rule needs the whole body, otherwise streamed.

pub(crate) mod content_coding;
pub(crate) mod edit;
pub(crate) mod fault_injection;
pub(crate) mod html;
mod save;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Body, CollectError, Error, ErrorKind, Headers, Result};

use crate::body::fault_injection::{BodyFault, Throttle};
use crate::files::private_files::PrivateFiles;
use edit::BodyChange;

/// What the rules of a phase requested for a body; applied together when all have run.
#[derive(Debug, Default)]
pub(crate) struct BodyEdits {
    pub changes: Vec<BodyChange>,
    /// The names of the rules that requested them.
    pub by: Vec<String>,
    pub faults: Vec<BodyFault>,
    /// Speed limit of this direction; the last rule wins.
    pub throttle: Option<Arc<Throttle>>,
    /// Services that receive its chunks, with the id of their exchange.
    pub chunks: Vec<(Arc<crate::service::ExternalService>, String)>,
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

    /// Whether the edits need the whole text of a body with this head.
    pub fn needs_whole(&self, headers: &Headers) -> bool {
        let sets = self.changes.iter().rposition(|c| matches!(c, BodyChange::Set(_)));
        let after = &self.changes[sets.unwrap_or(0)..];
        !is_event_stream(headers) && after.iter().any(|c| !c.streams())
    }
}

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
    /// Without its content coding, as conditions and edits see it.
    pub plain: Bytes,
    pub trailers: Option<Headers>,
}

/// Buffers a body of at most `cap` bytes; a larger one is returned as a stream.
///
/// # Errors
/// The body broke off or could not be decoded.
pub(crate) async fn collect(body: Body, headers: &Headers, cap: usize) -> Result<BodyReadState> {
    match body.collect(cap).await {
        Ok((raw, trailers)) => {
            let plain = match content_coding::is_encoded(headers) {
                Some(true) => content_coding::decode(headers, &raw).await?,
                _ => raw.clone(),
            };
            Ok(BodyReadState::Whole(WholeBody { raw, plain, trailers }))
        }
        Err(CollectError::TooLarge(body)) => Ok(BodyReadState::Stream(body)),
        Err(CollectError::Broken(e)) => Err(e),
    }
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
pub(crate) fn finish(work: BodyEdits, seen: BodyReadState, headers: &mut Headers) -> Result<Body> {
    let mut body = if work.changes.is_empty() { into_body(seen) } else { apply_changes(&work.changes, seen, headers)? };
    if !work.chunks.is_empty() {
        let coded = content_coding::is_encoded(headers) == Some(true);
        // Services get plain chunks.
        body = content_coding::decode_stream(headers, body);
        strip_body_headers(headers, coded);
        for (service, id) in work.chunks {
            body = crate::service::pass_chunks(service, id, body);
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

fn apply_changes(changes: &[BodyChange], seen: BodyReadState, headers: &mut Headers) -> Result<Body> {
    // Edits before the last `Set` have no effect.
    let set = changes.iter().rposition(|c| matches!(c, BodyChange::Set(_)));
    let changes = &changes[set.unwrap_or(0)..];
    if let Some(BodyChange::Set(text)) = changes.first() {
        let body = edit::apply_all(&changes[1..], text)?.unwrap_or_else(|| text.clone());
        strip_body_headers(headers, true);
        return Ok(Body::from(body));
    }
    let Some(coded) = content_coding::is_encoded(headers) else {
        return Err(Error::new(
            ErrorKind::StageFailed,
            "a rule cannot change this body: its content coding is not known; ask for none with the action `anticomp`",
        ));
    };
    match seen {
        BodyReadState::Whole(whole) if !is_event_stream(headers) => {
            let Some(new) = edit::apply_all(changes, &whole.plain)? else {
                return Ok(Body::with_trailers(whole.raw, whole.trailers));
            };
            strip_body_headers(headers, coded);
            Ok(Body::with_trailers(new, whole.trailers))
        }
        seen => {
            let events = is_event_stream(headers);
            let mut body = content_coding::decode_stream(headers, into_body(seen));
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
            let seen = if whole { collect(body, &headers, 1000).await.unwrap() } else { BodyReadState::Stream(body) };
            let work = BodyEdits { changes: vec![find("two", "three")], ..BodyEdits::default() };
            let body = finish(work, seen, &mut headers).unwrap();
            assert_eq!(&body.collect(100).await.unwrap().0[..], b"one three");
            let left: Vec<_> = headers.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect();
            assert_eq!(left, ["Content-Type"], "{whole}");
        }
    }

    #[tokio::test]
    async fn unedited_body_keeps_its_bytes() {
        let mut headers = html("gzip");
        let raw = gzip(b"one two");
        let seen = collect(Body::from(raw.clone()), &headers, 1000).await.unwrap();
        let work = BodyEdits { changes: vec![find("four", "five")], ..BodyEdits::default() };
        let body = finish(work, seen, &mut headers).unwrap();
        assert_eq!(body.collect(100).await.unwrap().0, raw);
        assert_eq!(headers, html("gzip"));
    }

    #[tokio::test]
    async fn unknown_coding_is_an_error_unless_the_body_is_replaced() {
        let body = || BodyReadState::Stream(Body::from(Bytes::from_static(b"??")));
        let work = |c| BodyEdits { changes: vec![c], ..BodyEdits::default() };
        let error = finish(work(find("a", "b")), body(), &mut html("aws-chunked")).unwrap_err();
        assert!(error.to_string().contains("anticomp"), "{error}");
        let new = finish(work(BodyChange::Set("new".into())), body(), &mut html("aws-chunked")).unwrap();
        assert_eq!(&new.collect(9).await.unwrap().0[..], b"new");
    }

    #[tokio::test]
    async fn oversized_body_is_returned_as_a_stream() {
        let seen = collect(Body::from(Bytes::from_static(b"abcdef")), &Headers::new(), 3).await.unwrap();
        assert!(matches!(seen, BodyReadState::Stream(_)));
        assert_eq!(&into_body(seen).collect(9).await.unwrap().0[..], b"abcdef");
    }
}
