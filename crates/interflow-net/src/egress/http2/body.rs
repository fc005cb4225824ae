//! A response's body on its way out of an HTTP/2 stream; its window opens as the body is consumed.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use interflow_flow::{BodyStream, Error, Frame, Kind};

use super::conn::OpenStream;
use super::head;
use super::upload::{Upload, UploadEnd};
use crate::egress::http1::LazyTimer;

/// A body that is read from the stream piece by piece. Dropping it early resets the stream (RFC 9113 8.1).
pub(super) struct Download {
    open: OpenStream,
    recv: RecvStream,
    first: Option<Bytes>,
    /// Data handed out whose part of the window is still to be given back.
    unreleased: usize,
    left: Option<u64>,
    upload: Option<Box<Upload>>,
    state: State,
    timer: LazyTimer,
    idle: Duration,
    moved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Data,
    Trailers,
    /// The response is over; the request is not.
    Upload,
}

impl Download {
    pub(super) fn new(
        open: OpenStream,
        recv: RecvStream,
        first: Option<Bytes>,
        left: Option<u64>,
        upload: Option<Box<Upload>>,
        timer: LazyTimer,
        idle: Duration,
    ) -> Self {
        Self { open, recv, first, unreleased: 0, left, upload, state: State::Data, timer, idle, moved: true }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let Some(upload) = &mut self.upload else { return };
        let before = upload.written;
        match upload.poll(cx) {
            Poll::Pending => self.moved |= upload.written != before,
            Poll::Ready(UploadEnd::Sent | UploadEnd::Stopped | UploadEnd::Body(_)) => self.upload = None,
        }
    }

    fn hand_out(&mut self, data: Bytes) -> Poll<Option<Result<Frame, Error>>> {
        self.unreleased = data.len();
        self.moved = true;
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Poll::Ready(Some(Ok(Frame::Data(data))))
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, h2::Error>> {
        loop {
            match self.state {
                State::Data => match std::task::ready!(self.recv.poll_data(cx)) {
                    Some(data) => {
                        let data = data?;
                        if !data.is_empty() {
                            return Poll::Ready(Ok(Some(Frame::Data(data))));
                        }
                    }
                    None => self.state = State::Trailers,
                },
                State::Trailers => {
                    let trailers = std::task::ready!(self.recv.poll_trailers(cx))?;
                    self.state = State::Upload;
                    if let Some(trailers) = trailers {
                        return Poll::Ready(Ok(Some(Frame::Trailers(head::headers(&trailers)))));
                    }
                }
                State::Upload => return Poll::Ready(Ok(None)),
            }
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Error>>> {
        if std::mem::take(&mut self.moved) {
            self.timer.arm(self.idle);
        }
        std::task::ready!(self.timer.poll(cx));
        if self.state == State::Upload {
            self.upload = None;
            return Poll::Ready(None);
        }
        let text = format!("the origin's response stood still for {:?}", self.idle);
        Poll::Ready(Some(Err(Error::new(Kind::UpstreamTimeout, text))))
    }
}

impl BodyStream for Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Error>>> {
        self.poll_upload(cx);
        if let Some(first) = self.first.take() {
            return self.hand_out(first);
        }
        if self.unreleased > 0 {
            let n = std::mem::take(&mut self.unreleased);
            // Fails only for a stream that is over, whose window nobody needs.
            let _ = self.recv.flow_control().release_capacity(n);
        }
        match self.poll_recv(cx) {
            Poll::Ready(Ok(Some(Frame::Data(data)))) => self.hand_out(data),
            Poll::Ready(Ok(Some(trailers))) => Poll::Ready(Some(Ok(trailers))),
            Poll::Ready(Ok(None)) if self.upload.is_none() => Poll::Ready(None),
            Poll::Ready(Ok(None)) | Poll::Pending => self.poll_timeout(cx),
            Poll::Ready(Err(error)) => {
                if let Some(flooded) = self.open.0.flooded() {
                    return Poll::Ready(Some(Err(flooded)));
                }
                let kind = if error.is_library() { Kind::BadResponse } else { Kind::UpstreamClosed };
                let text = "the origin broke its HTTP/2 response off";
                Poll::Ready(Some(Err(Error::new(kind, text).because(error))))
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.left
    }
}
