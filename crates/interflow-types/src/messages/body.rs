//! Message bodies: empty, complete in memory, or a stream of data frames with optional trailers.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use crate::budget::{MemoryBudget, PROCESS_BUDGET};
use crate::{Error, Headers};

/// One frame of a body, as the pipeline passes it from wrapper to wrapper.
#[derive(Debug)]
pub enum BodyFrame {
    /// Content bytes; never empty.
    Data(Bytes),
    /// The trailer section (RFC 9110 6.5); always the last frame.
    Trailers(Headers),
}

/// A body that arrives in frames. Dropping it before the end cancels the transfer: HTTP/2 streams are reset, HTTP/1.1
/// connections closed.
///
/// ```
/// use std::task::{Context, Poll};
///
/// use bytes::Bytes;
/// use interflow_types::{Body, BodyFrame, BodyStream, Error};
///
/// /// Sends lines as one frame each.
/// struct Lines(std::vec::IntoIter<&'static str>);
///
/// impl BodyStream for Lines {
///     fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
///         Poll::Ready(self.0.next().map(|line| Ok(BodyFrame::Data(Bytes::from_static(line.as_bytes())))))
///     }
/// }
///
/// let body = Body::stream(Lines(vec!["a\n", "b\n"].into_iter()));
/// assert_eq!(body.remaining(), None);
/// ```
pub trait BodyStream: Any + Send {
    /// The next frame; `None` at the end. Must not be called again after `None` or an error.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>>;

    /// Adds an observer of the bytes as they are at this body's end so far, before anything that is added to it later.
    /// Returned by a body to which nothing can be added: it is wrapped instead ([`Body::tap`]).
    fn add_tap(&mut self, tap: Box<dyn BodyTap>) -> Option<Box<dyn BodyTap>> {
        Some(tap)
    }

    /// The number of data bytes still to come, if known exactly: from `Content-Length`, or because the end was received.
    /// After 0, a reader need not poll again.
    fn remaining(&self) -> Option<u64> {
        None
    }
}

/// Observes a body while it is relayed. A closure that takes the frames is one.
pub trait BodyTap: Send {
    /// Whether the next frame may come; until then the body waits, too.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Every frame, and once the end (`None`) or the error. Trailers are reported if the end was not known before them.
    fn frame(&mut self, frame: Option<Result<&BodyFrame, &Error>>);
}

impl<F: FnMut(Option<Result<&BodyFrame, &Error>>) + Send> BodyTap for F {
    fn frame(&mut self, frame: Option<Result<&BodyFrame, &Error>>) {
        self(frame);
    }
}

/// The body of a request or response.
///
/// Bodies are pulled: the pipeline polls the last wrapper, and back-pressure reaches the sender through it. A stage
/// that needs all of a body uses [`collect`](Self::collect) with a limit; one that edits on the fly wraps the body in
/// a [`BodyStream`] of its own.
#[derive(Default)]
pub enum Body {
    /// No content. A message with a `Content-Length: 0` has this body too.
    #[default]
    Empty,
    Full(Bytes),
    Stream(Box<dyn BodyStream>),
}

impl Body {
    pub fn stream(stream: impl BodyStream + 'static) -> Self {
        Self::Stream(Box::new(stream))
    }

    /// A buffered body with its trailers: the inverse of [`collect`](Self::collect). With trailers its length is
    /// unknown to those who frame it, since HTTP/1.1 can send trailers only in a chunked body.
    pub fn with_trailers(bytes: Bytes, trailers: Option<Headers>) -> Self {
        match trailers {
            None => Self::from(bytes),
            Some(trailers) => {
                // A body of trailers alone has no data frame.
                let data = (!bytes.is_empty()).then_some(Ok(BodyFrame::Data(bytes)));
                Self::replay(data.into_iter().chain([Ok(BodyFrame::Trailers(trailers))]).collect(), Self::Empty)
            }
        }
    }

    /// A body whose first frames were already read, followed by the rest of it. After an error comes nothing more.
    pub fn replay(read: Vec<Result<BodyFrame, Error>>, rest: Self) -> Self {
        Self::stream(ReplayedBody { read: read.into_iter(), rest })
    }

    /// The number of data bytes still to come, if known. A codec uses it to choose between `Content-Length` and
    /// chunks.
    pub fn remaining(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Full(b) => Some(b.len() as u64),
            Self::Stream(s) => s.remaining(),
        }
    }

    /// Whether the body is known to have no more content; `false` for every stream.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(b) => b.is_empty(),
            Self::Stream(_) => false,
        }
    }

    /// Polls for the next frame. A `Full` body yields one frame.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                // Data frames are never empty, not even that of an empty buffer.
                Poll::Ready((!bytes.is_empty()).then_some(Ok(BodyFrame::Data(bytes))))
            }
            Self::Stream(s) => s.poll_frame(cx),
        }
    }

    /// Waits for the next frame. Cancel-safe: a frame is not lost if the future is dropped.
    pub async fn frame(&mut self) -> Option<Result<BodyFrame, Error>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// As [`collect`](Self::collect), for the body of a message with these fields that is going to be forwarded. One that
    /// is to be forwarded as it comes (`Incremental: ?1`, RFC 10036 3) is read only if it is in memory.
    ///
    /// # Errors
    /// As [`collect`](Self::collect). One that is not read counts as broken if it `must_be_read`, else as too large.
    pub async fn collect_held(
        self,
        headers: &Headers,
        cap: usize,
        must_be_read: bool,
    ) -> Result<(Bytes, Option<Headers>), CollectError> {
        if !self.is_incremental(headers) {
            return self.collect(cap).await;
        }
        if !must_be_read {
            return Err(CollectError::TooLarge(self));
        }
        let message = "the message is to be forwarded as it comes, but has to be inspected as a whole";
        Err(CollectError::Broken(Error::new(crate::ErrorKind::IncrementalRefused, message)))
    }

    /// Whether the body of a message with these fields is to be forwarded as it comes, and is not in memory.
    pub fn is_incremental(&self, headers: &Headers) -> bool {
        let mut values = headers.get_all("incremental").map(|value| value.trim_ascii().strip_prefix(b"?1"));
        // Of several values, none counts (RFC 9651 4.2).
        matches!((values.next(), values.next()), (Some(Some([] | [b';', ..])), None)) && matches!(self, Self::Stream(_))
    }

    /// Reads the whole body, at most `cap` bytes of data, and returns it with its trailers. The bytes count against
    /// the process-wide [memory budget](crate::budget) while they are held.
    ///
    /// # Errors
    /// [`CollectError::TooLarge`] returns a body that replays what was read before the rest, so a caller that chooses
    /// to forward the body unread loses nothing. [`CollectError::Broken`] if the transfer failed, or with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded) if the memory budget is exhausted.
    pub async fn collect(self, cap: usize) -> Result<(Bytes, Option<Headers>), CollectError> {
        self.collect_within(cap, &PROCESS_BUDGET).await
    }

    /// With the budget as a parameter, so that tests can exhaust one of their own.
    async fn collect_within(
        mut self,
        cap: usize,
        budget: &'static MemoryBudget,
    ) -> Result<(Bytes, Option<Headers>), CollectError> {
        // A body that is in memory needs no second copy.
        if let Self::Full(bytes) = &mut self
            && bytes.len() <= cap
        {
            let held = budget.reserve_bytes(std::mem::take(bytes)).map_err(CollectError::Broken)?;
            return Ok((held, None));
        }
        // Empty until the body turns out to have more than one frame.
        let mut held = budget.reserve(0).map_err(CollectError::Broken)?;
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        let mut trailers = None;
        while let Some(frame) = self.frame().await {
            match frame.map_err(CollectError::Broken)? {
                // Before the bytes are copied, so that the cap is never exceeded.
                BodyFrame::Data(data) if first.len() + all.len() + data.len() > cap => {
                    let read = [first, held.attach_to(all), data].into_iter().filter(|b| !b.is_empty());
                    let read = read.map(|b| Ok(BodyFrame::Data(b))).collect();
                    // What was read, then the rest: the body is as if it had not been read.
                    return Err(CollectError::TooLarge(Self::replay(read, self)));
                }
                // The common body is a single frame, which is returned as it is, without a copy.
                BodyFrame::Data(data) if first.is_empty() && all.is_empty() => first = data,
                BodyFrame::Data(data) => {
                    if all.is_empty() {
                        all.extend_from_slice(&std::mem::take(&mut first));
                    }
                    all.extend_from_slice(&data);
                    // The capacity, not the length, is what the buffer takes; it grows by doubling.
                    held.grow_to(all.capacity() as u64).map_err(CollectError::Broken)?;
                }
                BodyFrame::Trailers(t) => trailers = Some(t),
            }
        }
        let whole = match all.is_empty() {
            // A single frame is counted too, although it was not copied.
            true => budget.reserve_bytes(first).map_err(CollectError::Broken)?,
            false => held.attach_to(all),
        };
        Ok((whole, trailers))
    }

    /// The stream, if it is of this type: then more can be added to it than by wrapping it.
    pub fn stream_mut<S: BodyStream>(&mut self) -> Option<&mut S> {
        match self {
            Self::Stream(stream) => (&mut **stream as &mut dyn Any).downcast_mut(),
            _ => None,
        }
    }

    /// The body with an observer. One in memory becomes a stream.
    pub fn tap(self, tap: impl BodyTap + 'static) -> Self {
        let Self::Stream(mut stream) = self else {
            return Self::stream(TappedBody { body: self, tap: Box::new(tap), over: false });
        };
        match stream.add_tap(Box::new(tap)) {
            None => Self::Stream(stream),
            Some(tap) => Self::stream(TappedBody { body: Self::Stream(stream), tap, over: false }),
        }
    }

    /// As [`tap`](Self::tap), for a closure.
    pub fn inspect(self, see: impl FnMut(Option<Result<&BodyFrame, &Error>>) + Send + 'static) -> Self {
        self.tap(see)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Full(b) => write!(f, "Full({} bytes)", b.len()),
            Self::Stream(s) => write!(f, "Stream({:?} bytes to come)", s.remaining()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The body exceeds the cap; this one replays it from the beginning.
    #[error("the body is larger than the cap")]
    TooLarge(Body),
    /// The transfer failed, or the memory budget is exhausted.
    #[error(transparent)]
    Broken(Error),
}

struct ReplayedBody {
    read: std::vec::IntoIter<Result<BodyFrame, Error>>,
    rest: Body,
}

impl BodyStream for ReplayedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        // Errors that were met while reading ahead are met again here, in their place.
        match self.read.next() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => self.rest.poll_frame(cx),
        }
    }

    fn remaining(&self) -> Option<u64> {
        let read = self.read.as_slice().iter().map(|frame| match frame {
            Ok(BodyFrame::Data(data)) => Some(data.len() as u64),
            Ok(BodyFrame::Trailers(_)) | Err(_) => None,
        });
        // Unknown if any part is unknown, or if trailers follow.
        Some(read.sum::<Option<u64>>()? + self.rest.remaining()?)
    }
}

struct TappedBody {
    body: Body,
    tap: Box<dyn BodyTap>,
    over: bool,
}

impl BodyStream for TappedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        ready!(self.tap.poll_ready(cx));
        let polled = self.body.poll_frame(cx);
        // Polled first, so that the observer adds no delay.
        if let Poll::Ready(frame) = &polled
            && !self.over
        {
            // The end or the error is reported once, even if the reader polls again.
            self.over = !matches!(frame, Some(Ok(_)));
            self.tap.frame(frame.as_ref().map(Result::as_ref));
            // A reader that knows that nothing follows does not poll again.
            if !self.over && self.body.remaining() == Some(0) {
                self.over = true;
                self.tap.frame(None);
            }
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;

    /// Polls a future that is expected to be ready.
    fn now<T>(f: impl Future<Output = T>) -> T {
        match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(t) => t,
            Poll::Pending => panic!("it waits"),
        }
    }

    struct Pieces(Vec<&'static str>, bool);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            Poll::Ready(match self.0.is_empty() {
                false => Some(Ok(BodyFrame::Data(Bytes::from_static(self.0.remove(0).as_bytes())))),
                true if std::mem::take(&mut self.1) => {
                    Some(Ok(BodyFrame::Trailers([("T", "1")].into_iter().collect())))
                }
                true => None,
            })
        }
    }

    #[test]
    fn a_body_that_is_still_to_come_is_not_held_if_it_is_to_be_forwarded_as_it_comes() {
        let cases: [(&[&str], bool); 7] = [
            (&["?1"], false),
            (&["?1;a=?0"], false),
            (&["?0"], true),
            (&["1"], true),
            (&["?1x"], true),
            (&["?1", "?1"], true),
            (&[], true),
        ];
        for (values, may_be_held) in cases {
            let headers: Headers = values.iter().map(|value| ("Incremental", *value)).collect();
            let collect = |body: Body, must_be_read| now(body.collect_held(&headers, 9, must_be_read)).err();
            let stream = || Body::stream(Pieces(vec!["a"], false));
            let (refused, unread) = (collect(stream(), true), collect(stream(), false));
            let is_refused =
                matches!(refused, Some(CollectError::Broken(e)) if e.kind() == crate::ErrorKind::IncrementalRefused);
            let is_unread = matches!(unread, Some(CollectError::TooLarge(_)));
            assert_eq!((is_refused, is_unread), (!may_be_held, !may_be_held), "{values:?}");
            assert!(collect(Body::from(Bytes::from_static(b"a")), true).is_none(), "{values:?}");
        }
    }

    #[test]
    fn a_body_within_the_cap_is_collected_with_its_trailers() {
        let (all, trailers) = now(Body::stream(Pieces(vec!["ab", "c", "def"], true)).collect(6)).unwrap();
        assert_eq!(&all[..], b"abcdef");
        assert_eq!(trailers.unwrap().get("t"), Some(&b"1"[..]));
    }

    #[test]
    fn body_with_trailers_collects_to_its_original_parts() {
        for data in ["", "abc"] {
            let trailers: Headers = [("T", "1")].into_iter().collect();
            let body = Body::with_trailers(Bytes::from_static(data.as_bytes()), Some(trailers.clone()));
            assert_eq!(body.remaining(), None, "a length would make HTTP/1.1 drop the trailers");
            assert_eq!(now(body.collect(10)).unwrap(), (Bytes::from_static(data.as_bytes()), Some(trailers)));
            let plain = Body::with_trailers(Bytes::from_static(data.as_bytes()), None);
            assert_eq!(plain.remaining(), Some(data.len() as u64));
            assert_eq!(now(plain.collect(10)).unwrap(), (Bytes::from_static(data.as_bytes()), None));
        }
    }

    #[test]
    fn frames_already_read_are_replayed_before_the_rest() {
        let read = |text: &'static str| Ok(BodyFrame::Data(Bytes::from_static(text.as_bytes())));
        let body = Body::replay(vec![read("ab"), read("c")], Body::Full(Bytes::from_static(b"def")));
        assert_eq!(body.remaining(), Some(6));
        assert_eq!(&now(body.collect(10)).unwrap().0[..], b"abcdef");
        let failed = Error::new(crate::ErrorKind::BadRequest, "cut off");
        let body = Body::replay(vec![read("ab"), Err(failed)], Body::Empty);
        assert_eq!(body.remaining(), None);
        assert!(matches!(now(body.collect(10)), Err(CollectError::Broken(e)) if e.message() == "cut off"));
    }

    /// A stream of this many chunks of 64 KiB.
    struct Large(usize);

    impl BodyStream for Large {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            let more = self.0 > 0;
            self.0 = self.0.saturating_sub(1);
            Poll::Ready(more.then(|| Ok(BodyFrame::Data(Bytes::from(vec![0; 64 << 10])))))
        }
    }

    #[test]
    fn collected_bytes_count_against_the_budget_and_are_refused_when_it_is_exhausted() {
        static BUDGET: MemoryBudget = MemoryBudget::new(8 << 20);
        let size = 4 << 20;
        let (held, _) = now(Body::stream(Large(64)).collect_within(size, &BUDGET)).unwrap();
        assert!(BUDGET.reserved() >= size as u64);
        drop(held);
        assert_eq!(BUDGET.reserved(), 0);
        let Err(CollectError::Broken(e)) = now(Body::stream(Large(200)).collect_within(usize::MAX, &BUDGET)) else {
            panic!("the budget was not enforced");
        };
        assert_eq!(e.kind(), crate::ErrorKind::Overloaded);
    }

    #[test]
    fn body_over_the_cap_is_returned_in_full() {
        let Err(CollectError::TooLarge(body)) = now(Body::stream(Pieces(vec!["ab", "c", "def"], true)).collect(5))
        else {
            panic!("collected");
        };
        let (all, trailers) = now(body.collect(100)).unwrap();
        assert_eq!(&all[..], b"abcdef");
        assert!(trailers.is_some());
    }

    #[test]
    fn inspect_reports_each_frame_and_the_end_once() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = seen.clone();
        let body = Body::stream(Pieces(vec!["ab", "c"], false)).inspect(move |f| {
            log.lock().unwrap().push(match f {
                Some(Ok(BodyFrame::Data(d))) => d.len(),
                _ => 0,
            });
        });
        now(body.collect(10)).unwrap();
        assert_eq!(*seen.lock().unwrap(), [2, 1, 0]);
    }

    /// One frame, and the knowledge that it is the last.
    struct LastPiece(Option<&'static str>);

    impl BodyStream for LastPiece {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            Poll::Ready(self.0.take().map(|text| Ok(BodyFrame::Data(Bytes::from_static(text.as_bytes())))))
        }

        fn remaining(&self) -> Option<u64> {
            Some(self.0.map_or(0, |text| text.len() as u64))
        }
    }

    #[test]
    fn inspect_reports_a_known_end_to_readers_that_do_not_poll_again() {
        let ends = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = ends.clone();
        let mut body = Body::stream(LastPiece(Some("ab"))).inspect(move |frame| {
            count.fetch_add(usize::from(frame.is_none()), std::sync::atomic::Ordering::Relaxed);
        });
        let mut poll = || body.poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll(), Poll::Ready(Some(Ok(BodyFrame::Data(_))))));
        assert_eq!(ends.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(matches!(poll(), Poll::Ready(None)));
        assert_eq!(ends.load(std::sync::atomic::Ordering::Relaxed), 1, "reported once");
    }
}
