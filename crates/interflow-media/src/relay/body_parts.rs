//! Body slices, and lazily chained bodies.

use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, ErrorKind, Result};

/// The meaning of a `Range` field for a resource of a given length (RFC 9110 14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// The whole resource: no field, an invalid one, or several ranges, all of which a server may ignore.
    Whole,
    Part(Range<u64>),
    /// Not satisfiable: to be answered with 416 (RFC 9110 15.5.17).
    Nothing,
}

impl RequestedRange {
    /// Reads the field's value for a resource of `length` bytes.
    pub fn read(range: Option<&str>, length: u64) -> Self {
        let Some(text) = range.and_then(|r| r.trim().strip_prefix("bytes=")) else { return Self::Whole };
        let Some((first, last)) = text.trim().split_once('-').filter(|(_, l)| !l.contains(',')) else {
            return Self::Whole;
        };
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u64>().unwrap_or(u64::MAX));
        let (first, last) = (first.trim(), last.trim());
        let range = match (first.is_empty(), last.is_empty()) {
            (true, true) => return Self::Whole,
            // A suffix range: the last `n` bytes.
            (true, false) => number(last).map(|n| length.saturating_sub(n)..length),
            (false, true) => number(first).map(|f| f..length),
            (false, false) => match (number(first), number(last)) {
                (Some(f), Some(l)) if f > l => return Self::Whole,
                (f, l) => f.zip(l).map(|(f, l)| f..l.saturating_add(1).min(length)),
            },
        };
        match range {
            None => Self::Whole,
            Some(r) if r.start >= length || r.is_empty() => Self::Nothing,
            Some(r) => Self::Part(r),
        }
    }
}

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
                match ready!(asked.as_mut().poll(cx)) {
                    Ok(body) => (self.asked, self.body) = (None, body),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                }
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

    #[test]
    fn range_headers_are_parsed() {
        for (text, wanted) in [
            (None, RequestedRange::Whole),
            (Some("bytes=0-"), RequestedRange::Part(0..100)),
            (Some("bytes=5-9"), RequestedRange::Part(5..10)),
            (Some("bytes=5-900"), RequestedRange::Part(5..100)),
            (Some("bytes=-10"), RequestedRange::Part(90..100)),
            (Some("bytes=-1000"), RequestedRange::Part(0..100)),
            (Some("bytes=100-"), RequestedRange::Nothing),
            (Some("bytes=-0"), RequestedRange::Nothing),
            (Some("bytes=99999999999999999999999-"), RequestedRange::Nothing),
            (Some("bytes=9-5"), RequestedRange::Whole),
            (Some("bytes=NaN-"), RequestedRange::Whole),
            (Some("bytes=+1-2"), RequestedRange::Whole),
            (Some("bytes=0-1,4-5"), RequestedRange::Whole),
            (Some("bytes=-"), RequestedRange::Whole),
            (Some("items=0-1"), RequestedRange::Whole),
        ] {
            assert_eq!(RequestedRange::read(text, 100), wanted, "{text:?}");
        }
        assert_eq!(RequestedRange::read(Some("bytes=0-"), 0), RequestedRange::Nothing);
    }

    #[tokio::test]
    async fn slice_returns_the_range_and_reads_no_further() {
        let next: NextBodyFn = Box::new(|| Box::pin(async { Ok(text("fghij")) }));
        let body = chain_body(Bytes::from_static(b"ab"), text("cde"), Some(next));
        assert_eq!(&slice_body(body, 1, 6).collect(100).await.unwrap().0[..], b"bcdefg");
        let never: NextBodyFn = Box::new(|| Box::pin(async { panic!("nobody reads on") }));
        let body = chain_body(Bytes::new(), text("cde"), Some(never));
        assert_eq!(&slice_body(body, 1, 2).collect(100).await.unwrap().0[..], b"de");
        assert!(slice_body(text("abc"), 1, 6).collect(100).await.is_err(), "what is missing is no silent end");
    }
}
