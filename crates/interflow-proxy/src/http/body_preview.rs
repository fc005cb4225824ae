//! Reads a short request body while its request waits for an operator's decision, so that the operator can see it.

use std::pin::pin;

use interflow_types::{
    Body, BodyFrame, BodyPreview, Flow, MaybeFuture, OriginalBody, OriginalMessage, OriginalMessages, RequestHead,
    RequestVerdict,
};

/// The longest body that is previewed, in bytes. A longer one stays with the client until the decision, held back by
/// flow control.
const MOST_READ: u64 = 64 << 10;

/// Waits for the decision; meanwhile reads a short body of known length for preview. A client that waits for `100
/// Continue` is not asked for its body.
pub(crate) async fn wait_and_read(
    preview: Option<BodyPreview>,
    step: MaybeFuture<'_, RequestVerdict>,
    mut body: Body,
) -> (RequestVerdict, Body) {
    let Some(preview) = preview else { return (step.resolve().await, body) };
    let mut read: Vec<BodyFrame> = Vec::new();
    let mut failed = None;
    let mut over = false;
    let verdict = {
        let mut answer = pin!(step.resolve());
        loop {
            // At its end, the body must not be polled again: only the decision is outstanding.
            if over {
                break answer.await;
            }
            tokio::select! {
                // `biased`: once the decision is made, no further frame is taken from the body.
                biased;
                verdict = &mut answer => break verdict,
                frame = body.frame() => match frame {
                    Some(Ok(frame)) => {
                        if let BodyFrame::Data(data) = &frame {
                            preview.append(data);
                        }
                        read.push(frame);
                        // `Content-Length` is used up, although the end of the body has not been polled yet.
                        if body.remaining() == Some(0) {
                            preview.finish();
                        }
                    }
                    Some(Err(e)) => {
                        // The error is replayed to whoever reads the body; it does not change the decision.
                        failed = Some(e);
                        over = true;
                    }
                    None => {
                        preview.finish();
                        over = true;
                    }
                }
            }
        }
    };
    if let Some((_, edited)) = preview.replacement() {
        // Only trailers are kept; the data that was read precedes them.
        read.retain(|frame| !matches!(frame, BodyFrame::Data(_)));
        if !edited.is_empty() {
            read.insert(0, BodyFrame::Data(edited));
        }
    }
    // Nothing was read: the body is returned as it came, without a wrapper around it.
    if read.is_empty() && failed.is_none() && !over {
        return (verdict, body);
    }
    // Complete and in one piece: it needs no stream around it.
    if let ([BodyFrame::Data(data)], true, None) = (read.as_slice(), over, &failed) {
        return (verdict, Body::from(data.clone()));
    }
    let read = read.into_iter().map(Ok).chain(failed.map(Err)).collect();
    (verdict, Body::replay(read, if over { Body::Empty } else { body }))
}

/// Applies an edited body: keeps the original request for the recorder, removes the digests that no longer match, and
/// sets the new `Content-Length`.
pub(crate) fn apply_replacement(preview: &BodyPreview, flow: &mut Flow, head: &mut RequestHead) {
    let Some((came, edited)) = preview.replacement() else { return };
    let original = OriginalMessage { head: head.clone(), body: Some(OriginalBody::Full(came)) };
    flow.extension_mut::<OriginalMessages>().request = Some(Box::new(original));
    for name in DIGESTS {
        head.headers.remove(name);
    }
    let _ = head.headers.set("Content-Length", edited.len().to_string());
}

/// Digests of the body, invalid once it is edited: RFC 1864, RFC 3230 and RFC 9530.
const DIGESTS: [&str; 4] = ["content-md5", "digest", "content-digest", "repr-digest"];

/// A preview for this body, if it can be read ahead: short, of known length, without a content coding, and not
/// awaited by `Expect`.
pub(crate) fn preview_of(flow: &mut Flow, head: &RequestHead, body: &Body) -> Option<BodyPreview> {
    let length = head.headers.get_str("content-length").and_then(|n| n.parse::<u64>().ok());
    let short = length.is_some_and(|n| (1..=MOST_READ).contains(&n));
    let coded = interflow_codec::content_coding::has_content_coding(&head.headers);
    let waits = head.headers.has_token("expect", "100-continue");
    (short && !coded && !waits && !body.is_empty()).then(|| flow.extension_mut::<BodyPreview>().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use interflow_types::{BodyStream, Result};
    use std::task::{Context, Poll};

    struct Pieces(Vec<Bytes>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(BodyFrame::Data(self.0.remove(0)))))
        }
    }

    #[tokio::test]
    async fn body_is_previewed_while_a_stage_waits_and_forwarded_whole() {
        let preview = BodyPreview::default();
        let body = Body::stream(Pieces(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")]));
        let look = preview.clone();
        let step = MaybeFuture::pending(async move {
            while look.complete().is_none() {
                tokio::task::yield_now().await;
            }
            RequestVerdict::Continue
        });
        let (verdict, body) = wait_and_read(Some(preview.clone()), step, body).await;
        assert!(matches!(verdict, RequestVerdict::Continue));
        assert_eq!(preview.complete().as_deref(), Some(&b"one two"[..]));
        assert_eq!(&body.collect(99).await.unwrap().0[..], b"one two");
    }

    #[tokio::test]
    async fn an_edited_body_replaces_the_original() {
        for (edit, goes_on) in [("one, 2 and three", "one, 2 and three"), ("", ""), ("one two", "one two")] {
            let preview = BodyPreview::default();
            let body = Body::stream(Pieces(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")]));
            let look = preview.clone();
            let step = MaybeFuture::pending(async move {
                look.replace("too early".into());
                while look.complete().is_none() {
                    tokio::task::yield_now().await;
                }
                look.replace(edit.into());
                RequestVerdict::Continue
            });
            let (_, body) = wait_and_read(Some(preview.clone()), step, body).await;
            assert_eq!(preview.current().as_deref(), Some(edit.as_bytes()), "who is asked about a second host sees it");
            assert_eq!(&body.collect(99).await.unwrap().0[..], goes_on.as_bytes());
            let came = preview.replacement().map(|(came, _)| came);
            assert_eq!(came.as_deref(), (edit != "one two").then_some(&b"one two"[..]));
        }
    }
}
