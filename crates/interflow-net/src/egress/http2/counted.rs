//! Counts the frames that an upstream sends over HTTP/2, and ends a connection on which too many of them carry no
//! response.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2_control::{FloodFlag, FrameLimiter};
use crate::io::IoStream;
use crate::tls;

/// GOAWAY with last stream 0 and ENHANCE_YOUR_CALM (RFC 9113 6.8).
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

/// Why TLS failed, once it has: `h2` passes on no more than the text of an I/O error.
pub(super) type TlsFailure = Arc<OnceLock<&'static str>>;

pub(super) struct Counted {
    io: IoStream,
    control: Box<FrameLimiter>,
    left: bool,
    tls_failure: TlsFailure,
    /// A failed write, while the alert is awaited.
    write_error: Option<io::Error>,
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Counted {
    pub(super) fn new(io: IoStream) -> (Self, FloodFlag, TlsFailure) {
        let (control, flood) = FrameLimiter::of_upstream();
        let tls_failure = TlsFailure::default();
        let control = Box::new(control);
        let counted = Self { io, control, left: false, tls_failure: tls_failure.clone(), write_error: None };
        (counted, flood, tls_failure)
    }

    fn note_failure(&self, error: &io::Error) {
        if let Some(why) = tls::explain(error) {
            let _ = self.tls_failure.set(why);
        }
    }

    /// After a failed write: reads on for the alert that says why the origin left. It missed a client certificate, for
    /// instance, which with TLS 1.3 it notices only after the handshake.
    fn fail_write<T>(&mut self, cx: &mut Context<'_>, error: io::Error) -> Poll<io::Result<T>> {
        let mut space = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut space);
            match Pin::new(&mut self.io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(error)) => {
                    self.note_failure(&error);
                    break;
                }
                // The end of the connection, which made the write fail, has yet to reach the reader.
                Poll::Pending if is_closed(&error) => {
                    self.write_error = Some(error);
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Err(error))
    }

    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        count: impl FnOnce(&mut FrameLimiter, usize),
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) => self.fail_write(cx, error),
            Poll::Ready(Ok(n)) => {
                count(&mut self.control, n);
                Poll::Ready(Ok(n))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends GOAWAY if it can be written at once, and ends the connection; the `h2` crate's client cannot do so
    /// itself.
    fn leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // GOAWAY within another frame would be read as its content.
        // At most once; later reads and writes only see the error.
        if !self.left && self.control.is_between_frames() {
            // An upstream that does not read is not notified.
            let _ = Pin::new(&mut self.io).poll_write(cx, &GOAWAY);
            let _ = Pin::new(&mut self.io).poll_flush(cx);
        }
        self.left = true;
        Poll::Ready(Err(io::Error::other("the origin sent too many HTTP/2 frames that carry no response")))
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.control.is_flood() {
            return self.leave(cx);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            self.note_failure(error);
        }
        self.control.on_read(buf.filled().get(before..).unwrap_or_default());
        if self.control.is_flood() {
            // `h2` must not process the frames that exceeded the limit.
            buf.set_filled(before);
            return self.leave(cx);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(error) = self.write_error.take() {
            return self.fail_write(cx, error);
        }
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.after_write(cx, written, |control, n| control.on_write(buf.get(..n).unwrap_or_default()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.write_error.take() {
            return self.fail_write(cx, error);
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.after_write(cx, written, |control, n| control.written_from(bufs, n))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.write_error.take() {
            return self.fail_write(cx, error);
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Err(error)) => self.fail_write(cx, error),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
