//! Pieces of bodies: a part of one, and one that another follows only when somebody reads on.

use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use interflow_flow::{Body, BodyStream, BoxFuture, Error, Frame, Kind, Result};

/// What a `Range` field asks of something of this length (RFC 9110 14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of it: no field, one that is not understood, or several ranges.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// None that there are.
    Nothing,
}

impl Asked {
    /// Reads the field's value.
    pub fn read(range: Option<&str>, length: u64) -> Self {
        let Some(text) = range.and_then(|r| r.trim().strip_prefix("bytes=")) else { return Self::Whole };
        let Some((first, last)) = text.trim().split_once('-').filter(|(_, l)| !l.contains(',')) else {
            return Self::Whole;
        };
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u64>().unwrap_or(u64::MAX));
        let (first, last) = (first.trim(), last.trim());
        let range = match (first.is_empty(), last.is_empty()) {
            (true, true) => return Self::Whole,
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

/// So many bytes of a body behind the first ones; it is not read further than that.
pub fn cut(body: Body, skip: u64, take: u64) -> Body {
    Body::stream(Cut { body, skip, take })
}

struct Cut {
    body: Body,
    skip: u64,
    take: u64,
}

impl BodyStream for Cut {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        while self.take > 0 {
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(mut data))) => {
                    let skip = self.skip.min(data.len() as u64);
                    self.skip -= skip;
                    data.advance(skip as usize);
                    data.truncate(usize::try_from(self.take).unwrap_or(usize::MAX));
                    self.take -= data.len() as u64;
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(data))));
                    }
                }
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    let text = format!("the origin's body ended {} bytes before the end of what was asked", self.take);
                    self.take = 0;
                    return Poll::Ready(Some(Err(Error::new(Kind::UpstreamClosed, text))));
                }
            }
        }
        Poll::Ready(None)
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.take)
    }
}

/// How the next body is had.
pub type Next = Box<dyn FnOnce() -> BoxFuture<'static, Result<Body>> + Send>;

/// Some bytes, then a body, then the next one, which is asked for only when the first is read to its end.
pub fn followed(first: Bytes, body: Body, next: Option<Next>) -> Body {
    Body::stream(Followed { first, body, next, asked: None })
}

struct Followed {
    first: Bytes,
    body: Body,
    next: Option<Next>,
    asked: Option<BoxFuture<'static, Result<Body>>>,
}

impl BodyStream for Followed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::Data(std::mem::take(&mut self.first)))));
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
    fn ranges_are_read() {
        for (text, wanted) in [
            (None, Asked::Whole),
            (Some("bytes=0-"), Asked::Part(0..100)),
            (Some("bytes=5-9"), Asked::Part(5..10)),
            (Some("bytes=5-900"), Asked::Part(5..100)),
            (Some("bytes=-10"), Asked::Part(90..100)),
            (Some("bytes=-1000"), Asked::Part(0..100)),
            (Some("bytes=100-"), Asked::Nothing),
            (Some("bytes=-0"), Asked::Nothing),
            (Some("bytes=99999999999999999999999-"), Asked::Nothing),
            (Some("bytes=9-5"), Asked::Whole),
            (Some("bytes=NaN-"), Asked::Whole),
            (Some("bytes=+1-2"), Asked::Whole),
            (Some("bytes=0-1,4-5"), Asked::Whole),
            (Some("bytes=-"), Asked::Whole),
            (Some("items=0-1"), Asked::Whole),
        ] {
            assert_eq!(Asked::read(text, 100), wanted, "{text:?}");
        }
        assert_eq!(Asked::read(Some("bytes=0-"), 0), Asked::Nothing);
    }

    #[tokio::test]
    async fn a_part_is_cut_out_and_no_more_is_read() {
        let next: Next = Box::new(|| Box::pin(async { Ok(text("fghij")) }));
        let body = followed(Bytes::from_static(b"ab"), text("cde"), Some(next));
        assert_eq!(&cut(body, 1, 6).collect(100).await.unwrap().0[..], b"bcdefg");
        let never: Next = Box::new(|| Box::pin(async { panic!("nobody reads on") }));
        let body = followed(Bytes::new(), text("cde"), Some(never));
        assert_eq!(&cut(body, 1, 2).collect(100).await.unwrap().0[..], b"de");
        assert!(cut(text("abc"), 1, 6).collect(100).await.is_err(), "what is missing is no silent end");
    }
}
