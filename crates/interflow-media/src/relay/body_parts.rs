//! Body slices, and lazily chained bodies.

use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, ErrorKind, Result};

/// `take` bytes of a body after the first `skip`; it is not read any further, so the rest is never fetched. A body
/// that ends early is an error.
pub fn slice_body(body: Body, skip: u64, take: u64) -> Body {
    Body::stream(SlicedBody { body, skip, take })
}

struct SlicedBody {
    body: Body,
    skip: u64,
    take: u64,
}

impl BodyStream for SlicedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        while self.take > 0 {
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(mut data))) => {
                    let skip = self.skip.min(data.len() as u64);
                    self.skip -= skip;
                    data.advance(skip as usize);
                    data.truncate(usize::try_from(self.take).unwrap_or(usize::MAX));
                    self.take -= data.len() as u64;
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                    }
                }
                Some(Ok(BodyFrame::Trailers(_))) => {}
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    let text = format!("the origin's body ended {} bytes before the end of what was asked", self.take);
                    self.take = 0;
                    return Poll::Ready(Some(Err(Error::new(ErrorKind::UpstreamClosed, text))));
                }
            }
        }
        Poll::Ready(None)
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.take)
    }
}

/// Opens the next body, when the one before it has been read.
pub type NextBodyFn = Box<dyn FnOnce() -> BoxFuture<'static, Result<Body>> + Send>;

/// Some bytes, then a body, then the next one, which is opened only when the first was read to its end. Its length is
/// unknown until then.
pub fn chain_body(first: Bytes, body: Body, next: Option<NextBodyFn>) -> Body {
    Body::stream(ChainedBody { first, body, next, asked: None })
}

struct ChainedBody {
    first: Bytes,
    body: Body,
    next: Option<NextBodyFn>,
    asked: Option<BoxFuture<'static, Result<Body>>>,
}

impl BodyStream for ChainedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(BodyFrame::Data(std::mem::take(&mut self.first)))));
        }
        loop {
            if let Some(asked) = &mut self.asked {
                let body = ready!(asked.as_mut().poll(cx))?;
                (self.asked, self.body) = (None, body);
            }
            match ready!(self.body.poll_frame(cx)) {
                None => match self.next.take() {
                    Some(next) => self.asked = Some(next()),
                    None => return Poll::Ready(None),
                },
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        if self.next.is_some() || self.asked.is_some() {
            return None;
        }
        self.body.remaining().map(|r| r + self.first.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Body {
        Body::from(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn slice_returns_the_range_and_reads_no_further() {
        let next: NextBodyFn = Box::new(|| Box::pin(async { Ok(text("fghij")) }));
        let body = chain_body(Bytes::from_static(b"ab"), text("cde"), Some(next));
        assert_eq!(&slice_body(body, 1, 6).collect(100).await.unwrap().0[..], b"bcdefg");
        let never: NextBodyFn = Box::new(|| Box::pin(async { panic!("nobody reads on") }));
        let body = chain_body(Bytes::new(), text("cde"), Some(never));
        assert_eq!(&slice_body(body, 1, 2).collect(100).await.unwrap().0[..], b"de");
        assert!(slice_body(text("abc"), 1, 6).collect(100).await.is_err(), "what is missing is not a silent end");
    }
}
