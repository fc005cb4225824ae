//! The request body of a stream.
//!
//! Window capacity is released when a piece is handed to the reader, so at most one stream window of a client's upload
//! is in memory while the upstream is slow.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::RecvStream;
use http::HeaderMap;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind};
use tokio::time::Instant;

use super::heads;
use crate::deadline_timer::DeadlineTimer;

pub(super) struct StreamBody {
    recv: RecvStream,
    /// What remains of the `Content-Length`; `h2` refuses a body that differs from it.
    remaining: Option<u64>,
    data_over: bool,
    limit: Duration,
    alarm: DeadlineTimer,
    waiting: Option<Instant>,
}

impl StreamBody {
    pub(super) fn open(recv: RecvStream, headers: &HeaderMap, limit: Duration) -> Body {
        if recv.is_end_stream() {
            return Body::Empty;
        }
        let remaining = headers.get(http::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        Body::stream(Self { recv, remaining, data_over: false, limit, alarm: DeadlineTimer::default(), waiting: None })
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, h2::Error>>> {
        while !self.data_over {
            // The end of the data; trailers may follow.
            let Some(data) = ready!(self.recv.poll_data(cx)) else {
                self.data_over = true;
                break;
            };
            let data = data?;
            // An empty frame would look like progress to the reader.
            if data.is_empty() {
                continue;
            }
            // The reader has the data now; one that falls behind does not poll, and the window closes.
            self.recv.flow_control().release_capacity(data.len())?;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
        }
        let trailers = ready!(self.recv.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(BodyFrame::Trailers(heads::trailers(&trailers)))))
    }
}

impl BodyStream for StreamBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        match self.poll_data(cx) {
            Poll::Ready(frame) => {
                self.waiting = None;
                Poll::Ready(frame.map(|f| {
                    f.map_err(|e| {
                        Error::new(ErrorKind::ClientGone, format!("the client aborted its request body: {e}"))
                    })
                }))
            }
            Poll::Pending => {
                let since = *self.waiting.get_or_insert_with(Instant::now);
                self.alarm.poll_at(cx, since + self.limit).map(|()| {
                    let message = format!("the client sent nothing of its request body for {:?}", self.limit);
                    Some(Err(Error::new(ErrorKind::ClientTimeout, message)))
                })
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}
