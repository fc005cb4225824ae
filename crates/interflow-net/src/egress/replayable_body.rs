//! The body of a request that may have to be sent again.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, Error};

/// A body that is being sent, with what was read of it.
pub(super) struct ReplayableBody {
    body: Body,
    /// `None` if it cannot be sent again.
    read: Option<Vec<Bytes>>,
    /// How much of it is kept.
    keep: usize,
}

impl ReplayableBody {
    /// Of a stream, `keep` bytes are kept; a body in memory is shared, whatever its size.
    pub fn new(body: Body, keep: usize) -> Self {
        let keep = if matches!(body, Body::Stream(_)) { keep } else { usize::MAX };
        Self { body, read: Some(Vec::new()), keep }
    }

    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let frame = ready!(self.body.poll_frame(cx));
        let kept = self.read.iter().flatten().map(Bytes::len).sum::<usize>();
        match &frame {
            // Its stream must not be polled again.
            None => self.body = Body::Empty,
            Some(Ok(BodyFrame::Data(data))) if kept + data.len() <= self.keep => {
                self.read.iter_mut().for_each(|read| read.push(data.clone()));
            }
            // Too long, or trailers, which no body could be begun with again.
            Some(_) => self.read = None,
        }
        Poll::Ready(frame)
    }

    /// Forgets what was read: the body is not going to be sent again.
    pub fn forget(&mut self) {
        self.read = None;
    }

    /// The body from its beginning, if it can be sent again.
    pub fn into_replay(self) -> Option<Body> {
        let mut read = self.read?;
        match self.body {
            rest if read.is_empty() => Some(rest),
            Body::Empty if read.len() == 1 => read.pop().map(Body::from),
            rest => Some(Body::replay(read.into_iter().map(|data| Ok(BodyFrame::Data(data))).collect(), rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use interflow_types::BodyStream;

    use super::*;

    /// Panics if it is polled after its end.
    struct Pieces(Option<std::slice::Iter<'static, &'static str>>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            let piece = self.0.as_mut().expect("it has not ended").next();
            if piece.is_none() {
                self.0 = None;
            }
            Poll::Ready(piece.map(|piece| Ok(BodyFrame::Data((*piece).into()))))
        }
    }

    #[test]
    fn a_body_is_sent_again_if_all_that_was_read_of_it_is_kept() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let stream = |pieces: &'static [&'static str]| Body::stream(Pieces(Some(pieces.iter())));
        for (body, keep, polls, replayed) in [
            (stream(&["a", "b"]), 0, 0, Some("ab")),
            (stream(&["a", "b"]), 0, 1, None),
            (stream(&["a", "b"]), 2, 1, Some("ab")),
            (stream(&["a", "b"]), 2, 3, Some("ab")),
            (stream(&["a", "b"]), 1, 2, None),
            (stream(&[]), 0, 1, Some("")),
            (Body::Full("abc".into()), 0, 2, Some("abc")),
            (Body::Empty, 0, 1, Some("")),
        ] {
            let mut sent = ReplayableBody::new(body, keep);
            for _ in 0..polls {
                assert!(sent.poll_frame(&mut cx).is_ready());
            }
            let text = sent.into_replay().map(|mut body| {
                let mut text = String::new();
                while let Poll::Ready(Some(Ok(BodyFrame::Data(data)))) = body.poll_frame(&mut cx) {
                    text.push_str(std::str::from_utf8(&data).unwrap());
                }
                text
            });
            assert_eq!(text.as_deref(), replayed, "{keep} {polls}");
        }
    }
}
