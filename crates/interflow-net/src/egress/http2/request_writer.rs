//! Writes a request body to an HTTP/2 stream, within the peer's flow-control windows.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::SendStream;
use interflow_types::{Body, BodyFrame, Error};

use super::head;
use crate::egress::replayable_body::ReplayableBody;

pub(super) struct Http2RequestWriter {
    stream: SendStream<Bytes>,
    piece: Bytes,
    pub(super) body: ReplayableBody,
    pub(super) held: bool,
    ended: bool,
    /// Bytes passed to the connection.
    pub(super) written: u64,
}

/// How much of a streamed body is kept for a replay, in case that the origin refuses the request.
const MAX_REPLAY: usize = 64 * 1024;
/// How much of a body is sent without capacity, in bytes: the smallest maximum size of a frame (RFC 9113, section 6.5.2).
const MAX_EARLY: usize = 16 * 1024;

pub(super) enum UploadEnd {
    Sent,
    /// The peer reset the stream or no longer reads; its response explains why.
    Stopped,
    Body(Error),
}

impl Http2RequestWriter {
    /// Sends `body`, unless the request `ended` with its head.
    pub(super) fn new(stream: SendStream<Bytes>, body: Body, held: bool, ended: bool) -> Self {
        Self { stream, piece: Bytes::new(), body: ReplayableBody::new(body, MAX_REPLAY), held, ended, written: 0 }
    }

    /// Whether the upload waits for the body rather than for the peer.
    pub(super) fn waits_for_body(&self) -> bool {
        !self.held && self.piece.is_empty()
    }

    /// The sending half of the stream, for a tunnel.
    pub(super) fn into_stream(self) -> SendStream<Bytes> {
        self.stream
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<UploadEnd> {
        loop {
            // The whole request was handed to the connection; the windows may still delay it there.
            if self.ended {
                return Poll::Ready(UploadEnd::Sent);
            }
            if self.held {
                return Poll::Pending;
            }
            if !self.piece.is_empty() {
                match self.poll_piece(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(_)) => return Poll::Ready(UploadEnd::Stopped),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let Poll::Ready(frame) = self.body.poll_frame(cx) else { return Poll::Pending };
            let sent = match frame {
                Some(Ok(BodyFrame::Data(data))) => {
                    // Capacity is reserved for what is there, so a stream without data does not tie up the connection's
                    // window.
                    self.stream.reserve_capacity(data.len());
                    self.piece = data;
                    Ok(())
                }
                Some(Ok(BodyFrame::Trailers(trailers))) => {
                    self.ended = true;
                    self.stream.send_trailers(head::fields(&trailers, false))
                }
                Some(Err(error)) => {
                    // The request is incomplete, and a normal end would make it look complete.
                    self.stream.send_reset(h2::Reason::CANCEL);
                    return Poll::Ready(UploadEnd::Body(error));
                }
                None => {
                    self.ended = true;
                    self.stream.send_data(Bytes::new(), true)
                }
            };
            if sent.is_err() {
                return Poll::Ready(UploadEnd::Stopped);
            }
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let capacity = match self.stream.capacity() {
            // A stream has none before the connection's task has opened it. What is sent sooner waits there with the head, and
            // both are written at once.
            0 if self.written == 0 => MAX_EARLY,
            0 => match std::task::ready!(self.stream.poll_capacity(cx)) {
                Some(capacity) => capacity?,
                None => return Poll::Ready(Err(h2::Reason::STREAM_CLOSED.into())),
            },
            capacity => capacity,
        };
        // As much as the windows allow now; the rest of the piece waits.
        let data = self.piece.split_to(capacity.min(self.piece.len()));
        self.written += data.len() as u64;
        // If nothing follows, the last piece ends the stream.
        self.ended = self.piece.is_empty() && self.body.is_empty();
        Poll::Ready(self.stream.send_data(data, self.ended))
    }
}
