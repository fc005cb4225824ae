//! Bodies that arrive in pieces, with pauses between them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result};
use tokio::time::{Instant, Sleep};

/// A body that arrives in these pieces, each after a pause.
pub fn paced(pieces: VecDeque<Bytes>, first: Duration, between: Duration) -> Body {
    Body::stream(PacedBody { pieces, pause: Box::pin(tokio::time::sleep(first)), between, is_cut: false })
}

/// A body that breaks off after this piece.
pub fn cut(piece: Bytes, pause: Duration) -> Body {
    let pieces = VecDeque::from([piece, Bytes::new()]);
    let pause_at_first = Box::pin(tokio::time::sleep(Duration::ZERO));
    Body::stream(PacedBody { pieces, pause: pause_at_first, between: pause, is_cut: true })
}

struct PacedBody {
    pieces: VecDeque<Bytes>,
    pause: Pin<Box<Sleep>>,
    between: Duration,
    /// Whether the last piece is an error.
    is_cut: bool,
}

impl BodyStream for PacedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        if self.pieces.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.pause.as_mut().poll(cx));
        self.pause.as_mut().reset(Instant::now() + self.between);
        let piece = self.pieces.pop_front();
        if self.is_cut && self.pieces.is_empty() {
            let error = Error::new(ErrorKind::Internal, "the response breaks off, as it is meant to");
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(piece.map(|piece| Ok(BodyFrame::Data(piece))))
    }
}
