//! An upstream's HTTP/2 connection that breaks when the upstream sends too many frames that carry nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2_control::Control;
use crate::io::Io;

pub(super) struct Counted {
    io: Io,
    control: Box<Control>,
}

impl Counted {
    pub fn new(io: Io) -> Self {
        Self { io, control: Box::new(Control::of_upstream().0) }
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.control.read(buf.filled().get(before..).unwrap_or_default());
        if self.control.is_flood() {
            let what = "the upstream sent too many HTTP/2 frames that carry nothing (PING, SETTINGS, PRIORITY, \
                        WINDOW_UPDATE, RST_STREAM, or empty ones)";
            return Poll::Ready(Err(io::Error::other(what)));
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &written {
            self.control.written(buf.get(..*n).unwrap_or_default());
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(n)) = &written {
            let mut left = *n;
            for buf in bufs {
                let taken = left.min(buf.len());
                self.control.written(buf.get(..taken).unwrap_or_default());
                left -= taken;
            }
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
