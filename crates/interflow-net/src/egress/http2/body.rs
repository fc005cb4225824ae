//! The response body of an HTTP/2 stream.
//!
//! Flow control joins the two sides: the window capacity of a piece is returned to the origin when the consumer asks
//! for the next one, which it does after writing the piece to the client. A slow client thus limits how much one origin
//! can send, to one stream window (RFC 9113 5.2.2).

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use interflow_codec::h1::is_forbidden_trailer;
use interflow_types::{BodyFrame, BodyStream, Error, ErrorKind};
use tokio::runtime::Handle;

use super::conn::StreamPermit;
use super::head;
use super::request_writer::{Http2RequestWriter, UploadEnd};
use crate::deadline_timer::{DeadlineTimer, while_moving};

/// A body that reads the stream frame by frame. Dropping it early resets the stream (RFC 9113 8.1).
pub(super) struct Http2ResponseBody {
    open: StreamPermit,
    recv: RecvStream,
    first: Option<Bytes>,
    /// Bytes passed to the reader whose window capacity is not released yet.
    unreleased: usize,
    left: Option<u64>,
    upload: Option<Box<Http2RequestWriter>>,
    state: Http2BodyState,
    timer: DeadlineTimer,
    idle: Duration,
    moved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2BodyState {
    Data,
    Trailers,
    Ended,
}

impl Http2ResponseBody {
    pub(super) fn new(
        open: StreamPermit,
        recv: RecvStream,
        first: Option<Bytes>,
        left: Option<u64>,
        upload: Option<Box<Http2RequestWriter>>,
        timer: DeadlineTimer,
        idle: Duration,
    ) -> Self {
        Self { open, recv, first, unreleased: 0, left, upload, state: Http2BodyState::Data, timer, idle, moved: true }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let Some(upload) = &mut self.upload else { return };
        let before = upload.written;
        match upload.poll(cx) {
            Poll::Pending => self.moved |= upload.written != before,
            // The response may be complete although the upload is not, so its failure is not a failure of the body.
            Poll::Ready(UploadEnd::Sent | UploadEnd::Stopped | UploadEnd::Body(_)) => self.upload = None,
        }
    }

    fn emit_data(&mut self, data: Bytes) -> Poll<Option<Result<BodyFrame, Error>>> {
        // Released at the next poll, when the consumer has passed the piece on.
        self.unreleased = data.len();
        self.moved = true;
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Poll::Ready(Some(Ok(BodyFrame::Data(data))))
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<BodyFrame>, h2::Error>> {
        loop {
            match self.state {
                Http2BodyState::Data => match std::task::ready!(self.recv.poll_data(cx)) {
                    Some(data) => {
                        let data = data?;
                        // Empty DATA frames carry nothing.
                        if !data.is_empty() {
                            return Poll::Ready(Ok(Some(BodyFrame::Data(data))));
                        }
                    }
                    None => self.state = Http2BodyState::Trailers,
                },
                Http2BodyState::Trailers => {
                    let trailers = std::task::ready!(self.recv.poll_trailers(cx))?;
                    self.state = Http2BodyState::Ended;
                    if let Some(trailers) = trailers {
                        let mut trailers = head::headers(&trailers);
                        trailers.retain(|name, _| !is_forbidden_trailer(name));
                        return Poll::Ready(Ok(Some(BodyFrame::Trailers(trailers))));
                    }
                }
                Http2BodyState::Ended => return Poll::Ready(Ok(None)),
            }
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        if std::mem::take(&mut self.moved) {
            self.timer.arm(self.idle);
        }
        std::task::ready!(self.timer.poll(cx));
        let text = format!("the origin's response stalled for {:?}", self.idle);
        Poll::Ready(Some(Err(Error::new(ErrorKind::UpstreamTimeout, text))))
    }
}

impl BodyStream for Http2ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.poll_upload(cx);
        // Received with the head, so it comes before anything that is read now.
        if let Some(first) = self.first.take() {
            return self.emit_data(first);
        }
        if self.unreleased > 0 {
            let n = std::mem::take(&mut self.unreleased);
            // Fails only for a closed stream, whose window does not matter.
            let _ = self.recv.flow_control().release_capacity(n);
        }
        match self.poll_recv(cx) {
            Poll::Ready(Ok(Some(BodyFrame::Data(data)))) => self.emit_data(data),
            Poll::Ready(Ok(Some(trailers))) => Poll::Ready(Some(Ok(trailers))),
            Poll::Ready(Ok(None)) => Poll::Ready(None),
            Poll::Pending => self.poll_timeout(cx),
            Poll::Ready(Err(error)) => {
                // The connection was ended by the frame limiter; the stream's error would only state the consequence.
                if let Some(flooded) = self.open.0.flooded() {
                    return Poll::Ready(Some(Err(flooded)));
                }
                let kind = if error.is_library() { ErrorKind::BadResponse } else { ErrorKind::UpstreamClosed };
                let text = "the origin aborted its HTTP/2 response";
                Poll::Ready(Some(Err(Error::new(kind, text).with_source(error))))
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.left
    }
}

impl Drop for Http2ResponseBody {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take().filter(|_| self.state == Http2BodyState::Ended) {
            finish_upload(&self.open, upload, std::mem::take(&mut self.timer), self.idle);
        }
    }
}

/// Sends the rest of a request whose response has ended: the origin may still read it (RFC 9113 8.1).
pub(super) fn finish_upload(
    open: &StreamPermit,
    mut upload: Box<Http2RequestWriter>,
    timer: DeadlineTimer,
    idle: Duration,
) {
    let open = StreamPermit::new(&open.0);
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            while_moving(timer, idle, |cx| (upload.poll(cx).map(|_| true), upload.written)).await;
            drop(open);
        });
    }
}
