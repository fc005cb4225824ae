//! Sends a response on a stream, within the client's flow-control window.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use interflow_types::{Body, BodyFrame, Error, ErrorKind, Method, Response, ResponseHead, StatusCode};
use tokio::time::Instant;

use super::heads;
use crate::deadline_timer::DeadlineTimer;
use crate::h2_stream::H2Stream;
use crate::http2_fields::field_map;
use crate::io::IoStream;

pub(super) struct ResponseSender {
    pub respond: SendResponse<Bytes>,
    pub method: Method,
    pub write_timeout: Duration,
}

/// The client cancelled its request, or the connection has ended.
pub(super) struct StreamReset;

impl ResponseSender {
    /// Sends a response. A body that fails or has the wrong length resets the stream.
    pub(super) async fn send_response(&mut self, response: Response) -> Result<(), StreamReset> {
        let Response { head, mut body } = response;
        if head.status.is_informational() {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
        // Also decided by the method, because to HEAD the head is the same as to GET.
        let contentless =
            self.method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let remaining = body.remaining();
        let mut message = heads::response(&head);
        set_length_headers(message.headers_mut(), &head, contentless, remaining);
        if contentless {
            // Polled once, so that observers of the body see its end.
            // If the body is pending, it is dropped unfinished: nobody would read it.
            let _ = poll_fn(|cx| Poll::Ready(body.poll_frame(cx))).await;
            body = Body::Empty;
        }
        let over = body.is_empty();
        // END_STREAM goes with the head if there is no body.
        let stream = self.respond.send_response(message, over).map_err(|_| StreamReset)?;
        if over {
            return Ok(());
        }
        let remaining = if contentless { None } else { remaining };
        BodySender { stream, body, remaining, limit: self.write_timeout, alarm: DeadlineTimer::default() }.run().await
    }

    /// Sends the head of a tunnel and converts the stream to a connection.
    pub(super) fn tunnel(&mut self, head: &ResponseHead, recv: RecvStream) -> Option<IoStream> {
        let mut message = heads::response(head);
        // A tunnel has no content (RFC 9113 8.5).
        message.headers_mut().remove(CONTENT_LENGTH);
        let send = self.respond.send_response(message, false).ok()?;
        Some(IoStream::other(H2Stream::new(send, recv, ())))
    }

    pub(super) fn reset(&mut self, error: &Error) {
        self.respond.send_reset(reset_reason(error));
    }
}

/// Sets `Content-Length` to the length of the body.
fn set_length_headers(headers: &mut http::HeaderMap, head: &ResponseHead, contentless: bool, remaining: Option<u64>) {
    match remaining {
        // RFC 9110 8.6 forbids the field in a 204.
        _ if head.status == StatusCode::NO_CONTENT => {
            headers.remove(CONTENT_LENGTH);
        }
        // HEAD and 304 state the length that GET would have (RFC 9110 8.6).
        _ if contentless => {}
        // END_STREAM with the head tells it already; gRPC's trailers-only responses have no length.
        Some(0) if !headers.contains_key(CONTENT_LENGTH) => {}
        Some(n) => {
            headers.insert(CONTENT_LENGTH, n.into());
        }
        None => {
            headers.remove(CONTENT_LENGTH);
        }
    }
}

/// The error code for the client. REFUSED_STREAM tells it that the request was not processed, so that it may retry (RFC
/// 9113 8.7); it is used for a shutdown only.
fn reset_reason(error: &Error) -> Reason {
    match error.kind() {
        ErrorKind::Draining => Reason::REFUSED_STREAM,
        ErrorKind::ClientGone | ErrorKind::ClientTimeout | ErrorKind::Dropped => Reason::CANCEL,
        ErrorKind::Limited => Reason::ENHANCE_YOUR_CALM,
        _ => Reason::INTERNAL_ERROR,
    }
}

struct BodySender {
    stream: SendStream<Bytes>,
    body: Body,
    remaining: Option<u64>,
    limit: Duration,
    alarm: DeadlineTimer,
}

impl BodySender {
    async fn run(mut self) -> Result<(), StreamReset> {
        match self.send().await {
            Ok(()) => Ok(()),
            Err(SendFailure::Gone) => Err(StreamReset),
            // Without a reset, a body that ended early would be taken for complete.
            Err(SendFailure::Broken(error)) => {
                // Includes a client that reads nothing: CANCEL tells it why.
                self.stream.send_reset(reset_reason(&error));
                Ok(())
            }
        }
    }

    async fn send(&mut self) -> Result<(), SendFailure> {
        let mut next = self.next().await?;
        loop {
            match next {
                None if self.remaining.is_some_and(|remaining| remaining > 0) => return Err(length_mismatch()),
                None => return Ok(self.stream.send_data(Bytes::new(), true)?),
                Some(BodyFrame::Trailers(trailers)) => {
                    return Ok(self.stream.send_trailers(field_map(&trailers, |_| false))?);
                }
                Some(BodyFrame::Data(data)) => {
                    if let Some(remaining) = &mut self.remaining {
                        *remaining = remaining.checked_sub(data.len() as u64).ok_or_else(length_mismatch)?;
                    }
                    // If the end is already known, it is flagged on the last frame.
                    let behind = poll_fn(|cx| Poll::Ready(self.body.poll_frame(cx))).await;
                    // One frame ahead, without waiting for it.
                    match behind {
                        Poll::Ready(None) if self.remaining.is_none_or(|remaining| remaining == 0) => {
                            return self.data(data, true).await;
                        }
                        Poll::Ready(frame) => {
                            self.data(data, false).await?;
                            next = frame.transpose().map_err(SendFailure::Broken)?;
                        }
                        Poll::Pending => {
                            self.data(data, false).await?;
                            next = self.next().await?;
                        }
                    }
                }
            }
        }
    }

    /// The next frame of the body, unless the client cancels first.
    async fn next(&mut self) -> Result<Option<BodyFrame>, SendFailure> {
        poll_fn(|cx| match self.body.poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(SendFailure::Broken)),
            // Otherwise a body that produces nothing would keep a cancelled stream open.
            Poll::Pending => self.stream.poll_reset(cx).map(|_| Err(SendFailure::Gone)),
        })
        .await
    }

    /// Sends a piece as the flow-control windows allow.
    async fn data(&mut self, mut data: Bytes, end: bool) -> Result<(), SendFailure> {
        while !data.is_empty() {
            // Reserving makes `h2` report capacity as the client's window opens; `capacity` may be less than was
            // reserved.
            self.stream.reserve_capacity(data.len());
            let mut capacity = self.stream.capacity();
            if capacity == 0 {
                // Restarted for each wait, so the limit applies to a client that reads nothing.
                let deadline = Instant::now() + self.limit;
                capacity = poll_fn(|cx| self.poll_capacity(cx, deadline)).await?;
            }
            let piece = data.split_to(capacity.min(data.len()));
            let last = end && data.is_empty();
            self.stream.send_data(piece, last)?;
        }
        Ok(())
    }

    fn poll_capacity(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<Result<usize, SendFailure>> {
        match self.stream.poll_capacity(cx) {
            Poll::Ready(Some(Ok(capacity))) => Poll::Ready(Ok(capacity)),
            Poll::Ready(None | Some(Err(_))) => Poll::Ready(Err(SendFailure::Gone)),
            Poll::Pending => {
                ready!(self.alarm.poll_at(cx, deadline));
                let message = format!("the client took nothing of its response for {:?}", self.limit);
                Poll::Ready(Err(SendFailure::Broken(Error::new(ErrorKind::ClientTimeout, message))))
            }
        }
    }
}

enum SendFailure {
    Gone,
    Broken(Error),
}

impl From<h2::Error> for SendFailure {
    fn from(_: h2::Error) -> Self {
        Self::Gone
    }
}

fn length_mismatch() -> SendFailure {
    SendFailure::Broken(Error::new(ErrorKind::Internal, "a response body is not as long as its head says"))
}
