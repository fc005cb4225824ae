//! The response body of an HTTP/1 connection, and the rest of the request body while the response is read.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use interflow_codec::h1::{BodyDecoder, BodyFraming, DecodeStep};
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind};
use tokio::runtime::Handle;

use super::ExchangeOptions;
use super::request_writer::{Http1RequestWriter, UploadError};
use crate::deadline_timer::while_moving;
use crate::egress::pool::ConnectionLease;

/// Whole bodies up to this size are copied out of the read buffer.
const MAX_COPY_BYTES: usize = 2 * 1024;

/// A body that reads the connection piece by piece. Dropping it early closes the connection, because the rest of the
/// response would be taken for the next one. Of a request that has not ended with its response, a task sends the rest: the
/// origin may still read it.
pub(crate) struct Http1ResponseBody {
    /// `None` once the connection was released or dropped.
    lease: Option<ConnectionLease>,
    decoder: BodyDecoder,
    /// Frames that were received together with the head.
    ahead: VecDeque<BodyFrame>,
    /// The rest of an upload, if the response began before its end.
    upload: Option<Box<Http1RequestWriter>>,
    reusable: bool,
    idle: Duration,
    /// There was progress since the timer was armed.
    moved: bool,
}

impl Http1ResponseBody {
    /// The body after a head. If it was received whole in the same bytes, the connection is released at once.
    pub(crate) fn start(
        lease: ConnectionLease,
        framing: BodyFraming,
        upload: Option<Box<Http1RequestWriter>>,
        reusable: bool,
        options: &ExchangeOptions,
    ) -> Result<Body, Error> {
        let mut lease = lease;
        if upload.is_none() {
            match framing {
                BodyFraming::None => {
                    release_or_close(lease, reusable);
                    return Ok(Body::Empty);
                }
                // All of the body is in the buffer: no stream is needed, and the connection is free again before the
                // response is forwarded.
                BodyFraming::Length(n) if n <= lease.conn.buf.len() as u64 => {
                    let data = take_bytes(&mut lease.conn.buf, n as usize);
                    release_or_close(lease, reusable);
                    return Ok(Body::Full(data));
                }
                _ => {}
            }
        }
        let mut decoder = BodyDecoder::for_response(framing, &options.head);
        let mut ahead = VecDeque::new();
        // Short chunked responses usually arrive with their head. Decoding them here releases the connection before the
        // response is forwarded, and gives the consumer a body of known length.
        // With an upload in progress the connection is not free in any case.
        if framing == BodyFraming::Chunked && upload.is_none() {
            let mut whole = Bytes::new();
            loop {
                match decoder.decode(&mut lease.conn.buf)? {
                    DecodeStep::Data(data) if whole.is_empty() && ahead.is_empty() => whole = data,
                    DecodeStep::Data(data) => ahead.push_back(BodyFrame::Data(data)),
                    DecodeStep::Trailers(trailers) => ahead.push_back(BodyFrame::Trailers(trailers)),
                    DecodeStep::NeedMore => break,
                    DecodeStep::Done if ahead.is_empty() => {
                        release_or_close(lease, reusable);
                        return Ok(Body::from(whole));
                    }
                    DecodeStep::Done => break,
                }
                // More than one piece or trailers: the frames go through the stream, which releases the connection
                // itself.
            }
            if !whole.is_empty() {
                ahead.push_front(BodyFrame::Data(whole));
            }
        }
        let mut download =
            Self { lease: Some(lease), decoder, ahead, upload, reusable, idle: options.body_timeout, moved: true };
        download.finish_if_done();
        Ok(Body::stream(download))
    }

    /// Releases the connection as soon as both directions have ended, even if no more frames are polled.
    fn finish_if_done(&mut self) {
        if self.decoder.is_done()
            && self.upload.is_none()
            && let Some(lease) = self.lease.take()
        {
            release_or_close(lease, self.reusable);
        }
    }

    /// Continues sending the rest of the request.
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        let (Some(upload), Some(lease)) = (&mut self.upload, &mut self.lease) else { return };
        let before = upload.written;
        match upload.poll(&mut lease.conn.io, cx) {
            Poll::Pending => {
                self.moved |= upload.written != before;
                return;
            }
            Poll::Ready(Ok(())) => {}
            // The response may be complete all the same, and is judged by itself.
            Poll::Ready(Err(UploadError::Io(_) | UploadError::Body(_))) => self.reusable = false,
        }
        // Sent, failed or given up: in each case only the response remains.
        self.upload = None;
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
        if std::mem::take(&mut self.moved) {
            lease.conn.timer.arm(self.idle);
        }
        if lease.conn.timer.poll(cx).is_pending() {
            return Poll::Pending;
        }
        // The connection is in an unknown state, so it is dropped and not released.
        self.lease = None;
        self.upload = None;
        let text = format!("the origin's response stalled for {:?}", self.idle);
        Poll::Ready(Some(Err(Error::new(ErrorKind::UpstreamTimeout, text))))
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.lease = None;
        self.upload = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl BodyStream for Http1ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        // Reading the response drives the upload too; there is no other task to do so.
        self.poll_upload(cx);
        // After the upload, which must go on while received frames are consumed.
        if let Some(frame) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        loop {
            let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
            match self.decoder.decode(&mut lease.conn.buf) {
                Ok(DecodeStep::Data(data)) => {
                    self.moved = true;
                    self.finish_if_done();
                    return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                }
                Ok(DecodeStep::Trailers(trailers)) => {
                    self.finish_if_done();
                    return Poll::Ready(Some(Ok(BodyFrame::Trailers(trailers))));
                }
                Ok(DecodeStep::Done) => {
                    self.finish_if_done();
                    return Poll::Ready(None);
                }
                Ok(DecodeStep::NeedMore) => {}
                Err(error) => return self.fail(error.into()),
            }
            match lease.conn.poll_fill(&lease.pool, cx) {
                Poll::Ready(Ok(0)) => match self.decoder.eof() {
                    // The end of the connection is the end of the body where neither length nor chunks frame it (RFC
                    // 9112 6.3).
                    Ok(()) => self.reusable = false,
                    Err(error) => return self.fail(error.into()),
                },
                // More bytes arrived: decode again.
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    let text = "the origin closed the connection within its response";
                    return self.fail(Error::new(ErrorKind::UpstreamClosed, text).with_source(error));
                }
                Poll::Pending => return self.poll_timeout(cx),
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        // Frames received with the head are kept only for chunked bodies, whose length is unknown.
        self.decoder.remaining().filter(|_| self.ahead.is_empty())
    }
}

impl Drop for Http1ResponseBody {
    fn drop(&mut self) {
        if self.decoder.is_done()
            && let (Some(mut upload), Some(mut lease)) = (self.upload.take(), self.lease.take())
            && let Ok(runtime) = Handle::try_current()
        {
            let (reusable, idle) = (self.reusable, self.idle);
            runtime.spawn(async move {
                let timer = std::mem::take(&mut lease.conn.timer);
                let sent = while_moving(timer, idle, |cx| {
                    (upload.poll(&mut lease.conn.io, cx).map(|end| end.is_ok()), upload.written)
                });
                if sent.await {
                    release_or_close(lease, reusable);
                }
            });
        }
    }
}

/// The first `n` bytes. Small pieces are copied, so that they do not keep a whole read buffer alive.
fn take_bytes(buf: &mut BytesMut, n: usize) -> Bytes {
    if n > MAX_COPY_BYTES {
        return buf.split_to(n).freeze();
    }
    let copy = Bytes::copy_from_slice(buf.get(..n).unwrap_or_default());
    buf.advance(n);
    copy
}

/// Releases the connection, unless it must not be reused or has unread bytes.
fn release_or_close(lease: ConnectionLease, reusable: bool) {
    // Bytes behind the response belong to no request; a pooled connection with them would answer the next one wrongly.
    if reusable && lease.conn.buf.is_empty() {
        lease.release();
    }
}
