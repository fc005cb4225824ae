//! Counts the frames that an upstream sends over HTTP/2, and ends a connection on which too many of them carry no
//! response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2_control::{FloodFlag, FrameLimiter};
use crate::io::IoStream;

/// GOAWAY with last stream 0 and ENHANCE_YOUR_CALM (RFC 9113 6.8).
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

pub(super) struct Counted {
    io: IoStream,
    control: Box<FrameLimiter>,
    left: bool,
}

impl Counted {
    pub(super) fn new(io: IoStream) -> (Self, FloodFlag) {
        let (control, flood) = FrameLimiter::of_upstream();
        (Self { io, control: Box::new(control), left: false }, flood)
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
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &written {
            self.control.on_write(buf.get(..*n).unwrap_or_default());
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(n)) = &written {
            self.control.written_from(bufs, *n);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
