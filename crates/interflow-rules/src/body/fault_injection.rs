//! Fault injection: throttled, truncated, broken and corrupted bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// A byte budget that several bodies may share. Unused time is not accumulated.
#[derive(Debug, Default)]
pub struct ThrottleBudget {
    next: Mutex<Option<Instant>>,
}

/// A speed limit, whose budget several bodies may share.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: u64,
    budget: Arc<ThrottleBudget>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64, budget: Arc<ThrottleBudget>) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), budget }
    }

    /// The most that is sent at once: a tenth of a second's worth, so that the speed is even.
    fn chunk_size(&self) -> usize {
        usize::try_from(self.bytes_per_second / 10).unwrap_or(usize::MAX).clamp(1, 64 << 10)
    }

    /// The time from which this many more bytes may be sent. Reserving under the lock keeps the bodies that share the
    /// budget below the limit together.
    fn reserve(&self, bytes: usize) -> Instant {
        let mut next = self.budget.next.lock();
        let from = next.unwrap_or_else(Instant::now).max(Instant::now());
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        *next = Some(from + takes);
        from + takes
    }

    /// Limits the speed of the body by delaying its chunks; nothing is dropped.
    pub fn limit_body(self: &Arc<Self>, body: Body) -> Body {
        match body {
            Body::Empty => Body::Empty,
            body => Body::stream(ThrottledBody { body, cap: Arc::clone(self), held: Bytes::new(), sleep: None }),
        }
    }
}

struct ThrottledBody {
    body: Body,
    cap: Arc<Throttle>,
    held: Bytes,
    /// The chunk at the front of `held` may be sent when this timer fires.
    sleep: Option<(Pin<Box<Sleep>>, usize)>,
}

impl BodyStream for ThrottledBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some((sleep, len)) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                let piece = self.held.split_to(*len);
                self.sleep = None;
                return Poll::Ready(Some(Ok(BodyFrame::Data(piece))));
            }
            if self.held.is_empty() {
                match ready!(self.body.poll_frame(cx)) {
                    Some(Ok(BodyFrame::Data(data))) => self.held = data,
                    other => return Poll::Ready(other),
                }
            }
            let len = self.held.len().min(self.cap.chunk_size());
            let at = self.cap.reserve(len);
            self.sleep = Some((Box::pin(tokio::time::sleep_until(at)), len));
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining().map(|n| n + self.held.len() as u64)
    }
}

/// An injected body fault, for tests of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyFault {
    /// Ends cleanly after this many bytes, as if the body were complete.
    Truncate(u64),
    /// Breaks the connection after this many bytes.
    Reset(u64),
    /// Flips one bit per this many bytes, always at the same positions.
    Corrupt(u64),
}

impl BodyFault {
    pub fn apply_to(self, body: Body) -> Body {
        match (self, body) {
            (Self::Truncate(_) | Self::Corrupt(_), Body::Empty) => Body::Empty,
            (_, body) => Body::stream(FaultyBody { body, fault: self, seen: 0 }),
        }
    }
}

struct FaultyBody {
    body: Body,
    fault: BodyFault,
    seen: u64,
}

impl BodyStream for FaultyBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        match self.fault {
            BodyFault::Truncate(after) if self.seen >= after => return Poll::Ready(None),
            BodyFault::Reset(after) if self.seen >= after => {
                let text = "a rule broke the connection at this place";
                return Poll::Ready(Some(Err(Error::new(ErrorKind::UpstreamClosed, text))));
            }
            _ => {}
        }
        let frame = ready!(self.body.poll_frame(cx));
        let Some(Ok(BodyFrame::Data(mut data))) = frame else { return Poll::Ready(frame) };
        match self.fault {
            BodyFault::Truncate(after) | BodyFault::Reset(after) => {
                let remaining = usize::try_from(after - self.seen).unwrap_or(usize::MAX);
                data.truncate(remaining);
            }
            BodyFault::Corrupt(every) => data = flip_bits(data, self.seen, every.max(1)),
        }
        self.seen += data.len() as u64;
        Poll::Ready(Some(Ok(BodyFrame::Data(data))))
    }
}

/// Flips the lowest bit of the last byte of each `every`-byte interval.
fn flip_bits(data: Bytes, seen: u64, every: u64) -> Bytes {
    let mut out = BytesMut::from(&data[..]);
    for (i, byte) in out.iter_mut().enumerate() {
        if (seen + i as u64 + 1).is_multiple_of(every) {
            *byte ^= 1;
        }
    }
    out.freeze()
}

/// `time` plus or minus a random part of `jitter`.
pub(crate) fn with_jitter(time: Duration, jitter: Duration) -> Duration {
    if jitter.is_zero() {
        return time;
    }
    let bytes = interflow_types::random_bytes::<16>();
    let part = f64::from(u16::from_be_bytes([bytes[0], bytes[1]])) / f64::from(u16::MAX) * 2.0 - 1.0;
    Duration::from_secs_f64((time.as_secs_f64() + jitter.as_secs_f64() * part).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(Vec<&'static str>);

    impl BodyStream for Pieces {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
            let next = (!self.0.is_empty()).then(|| self.0.remove(0));
            Poll::Ready(next.map(|p| Ok(BodyFrame::Data(Bytes::from_static(p.as_bytes())))))
        }
    }

    async fn read(mut body: Body) -> (String, bool) {
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(BodyFrame::Data(d)) => all.extend_from_slice(&d),
                Ok(BodyFrame::Trailers(_)) => {}
                Err(_) => return (String::from_utf8(all).unwrap(), false),
            }
        }
        (String::from_utf8(all).unwrap(), true)
    }

    #[tokio::test]
    async fn body_faults_are_injected_as_configured() {
        for (fault, text, whole) in [
            (BodyFault::Truncate(4), "abcd", true),
            (BodyFault::Truncate(0), "", true),
            (BodyFault::Truncate(99), "abcdef", true),
            (BodyFault::Reset(4), "abcd", false),
            (BodyFault::Reset(0), "", false),
            (BodyFault::Reset(99), "abcdef", true),
            (BodyFault::Corrupt(3), "abbdeg", true),
        ] {
            let got = read(fault.apply_to(Body::stream(Pieces(vec!["ab", "cde", "f"])))).await;
            assert_eq!(got, (text.to_owned(), whole), "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn throttled_body_is_paced_without_accumulating_credit() {
        let cap = Arc::new(Throttle::new(10_000, Arc::default()));
        tokio::time::sleep(Duration::from_secs(50)).await;
        let began = Instant::now();
        let (text, _) = read(cap.limit_body(Body::from(Bytes::from(vec![b'x'; 2000])))).await;
        assert_eq!(text.len(), 2000);
        assert!((190..=210).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn flows_may_share_a_budget() {
        let budget = Arc::new(ThrottleBudget::default());
        let body = || Body::from(Bytes::from(vec![b'x'; 1000]));
        let cap = || Arc::new(Throttle::new(10_000, Arc::clone(&budget)));
        let began = Instant::now();
        let (a, b) = (cap(), cap());
        tokio::join!(read(a.limit_body(body())), read(b.limit_body(body())));
        assert!((190..=210).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        for _ in 0..200 {
            let t = with_jitter(Duration::from_millis(100), Duration::from_millis(50)).as_millis();
            assert!((50..=150).contains(&t), "{t}");
        }
        assert!(with_jitter(Duration::ZERO, Duration::from_secs(1)) <= Duration::from_secs(1));
    }
}
