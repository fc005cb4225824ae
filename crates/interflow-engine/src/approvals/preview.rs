//! What is shown of a request that waits for an answer: its head, and its body as far as it is short and has come already.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use interflow_flow::{Body, BodyStream, Flow, Frame, RequestHead, Result, Step, Verdict};
use parking_lot::Mutex;

/// The longest body that is read while its request waits, in bytes.
const MOST_READ: u64 = 64 << 10;

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its URL, with the query.
    pub url: String,
    /// Its fields.
    pub headers: Vec<(String, String)>,
    /// How long its body is, as far as the client said.
    pub size: Option<u64>,
    body: Option<Preview>,
}

impl Asked {
    pub(super) fn of(flow: &Flow, head: &RequestHead) -> Self {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Self {
            url: head.url.to_string(),
            headers: head.headers.iter().map(|(n, v)| (text(n), text(v))).collect(),
            size: head.headers.get_str("content-length").and_then(|n| n.parse().ok()),
            body: flow.note::<Preview>().cloned(),
        }
    }

    /// The body, once all of it has come: as text, when it is one, and none when it is empty, long, coded, or still coming.
    pub fn body(&self) -> Option<String> {
        let preview = self.body.as_ref()?.0.lock();
        preview.whole.then(|| String::from_utf8(preview.bytes.to_vec()).ok()).flatten()
    }
}

/// What has come of a body so far: a note on the flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preview(Arc<Mutex<Read>>);

#[derive(Debug, Default)]
struct Read {
    bytes: BytesMut,
    whole: bool,
}

/// Waits for an answer; meanwhile a short body of known length is read, for whoever is asked. A client that waits for
/// `100 Continue` sends it later: nothing is asked of it for a look.
pub(crate) async fn wait_and_read(
    preview: Option<Preview>,
    step: Step<'_, Verdict>,
    mut body: Body,
) -> (Verdict, Body) {
    let Some(preview) = preview else { return (step.get().await, body) };
    let mut read: Vec<Frame> = Vec::new();
    let mut failed = None;
    let mut over = false;
    let verdict = {
        let mut answer = pin!(step.get());
        loop {
            if over {
                break answer.await;
            }
            tokio::select! {
                biased;
                verdict = &mut answer => break verdict,
                frame = body.frame() => match frame {
                    Some(Ok(frame)) => {
                        if let Frame::Data(data) = &frame {
                            preview.0.lock().bytes.extend_from_slice(data);
                        }
                        read.push(frame);
                        if body.remaining() == Some(0) {
                            preview.0.lock().whole = true;
                        }
                    }
                    Some(Err(e)) => {
                        failed = Some(e);
                        over = true;
                    }
                    None => {
                        preview.0.lock().whole = true;
                        over = true;
                    }
                }
            }
        }
    };
    if read.is_empty() && failed.is_none() {
        return (verdict, body);
    }
    if let ([Frame::Data(data)], true, None) = (read.as_slice(), over, &failed) {
        return (verdict, Body::from(data.clone()));
    }
    (verdict, Body::stream(Joined { read: read.into_iter(), failed, rest: if over { Body::Empty } else { body } }))
}

/// A place for a look at this body, if it is one that is read beforehand.
pub(crate) fn preview_of(flow: &mut Flow, head: &RequestHead, body: &Body) -> Option<Preview> {
    let length = head.headers.get_str("content-length").and_then(|n| n.parse::<u64>().ok());
    let short = length.is_some_and(|n| (1..=MOST_READ).contains(&n));
    let coded = interflow_wire::content_coding::is_coded(&head.headers);
    let waits = head.headers.has_token("expect", "100-continue");
    (short && !coded && !waits && !body.is_empty()).then(|| flow.note_mut::<Preview>().clone())
}

/// A body of which some was read.
struct Joined {
    read: std::vec::IntoIter<Frame>,
    failed: Option<interflow_flow::Error>,
    rest: Body,
}

impl BodyStream for Joined {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        if let Some(frame) = self.read.next() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match self.failed.take() {
            Some(e) => Poll::Ready(Some(Err(e))),
            None => self.rest.poll_frame(cx),
        }
    }

    fn remaining(&self) -> Option<u64> {
        let length = |f: &Frame| if let Frame::Data(data) = f { data.len() as u64 } else { 0 };
        let read: u64 = self.read.as_slice().iter().map(length).sum();
        self.rest.remaining().map(|rest| rest + read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    struct Pieces(Vec<Bytes>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(Frame::Data(self.0.remove(0)))))
        }
    }

    #[tokio::test]
    async fn a_body_is_read_while_its_request_waits_and_goes_on_whole() {
        let preview = Preview::default();
        let body = Body::stream(Pieces(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")]));
        let shown = Asked { url: String::new(), headers: Vec::new(), size: None, body: Some(preview.clone()) };
        let look = shown.clone();
        let step = Step::later(async move {
            while look.body().is_none() {
                tokio::task::yield_now().await;
            }
            Verdict::Continue
        });
        let (verdict, body) = wait_and_read(Some(preview), step, body).await;
        assert!(matches!(verdict, Verdict::Continue));
        assert_eq!(shown.body().as_deref(), Some("one two"));
        assert_eq!(&body.collect(99).await.unwrap().0[..], b"one two");
    }
}
