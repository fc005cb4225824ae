//! An HTTP/2 stream as a byte stream, downstream or upstream: CONNECT (RFC 9113 8.5) and extended CONNECT (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes passed on per write.
const MAX_WRITE: usize = 64 * 1024;

/// Both halves of a stream; `_held` is dropped with them.
pub(crate) struct H2Stream<H> {
    send: SendStream<Bytes>,
    recv: RecvStream,
    /// Received but unread bytes; their window capacity is released as they are read.
    unread: Bytes,
    shut: bool,
    _held: H,
}

impl<H> H2Stream<H> {
    pub(crate) fn new(send: SendStream<Bytes>, recv: RecvStream, held: H) -> Self {
        Self { send, recv, unread: Bytes::new(), shut: false, _held: held }
    }
}

impl<H: Unpin> AsyncRead for H2Stream<H> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.unread.is_empty() {
            match ready!(this.recv.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(data)) => this.unread = data,
                // A peer that has finished and wants no more data ends its side this way.
                Some(Err(e)) if e.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(Ok(())),
                Some(Err(e)) => return Poll::Ready(Err(io_error(e))),
            }
        }
        let n = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..n]);
        this.unread.advance(n);
        // Fails only for a closed stream, whose window does not matter.
        let _ = this.recv.flow_control().release_capacity(n);
        Poll::Ready(Ok(()))
    }
}

impl<H: Unpin> AsyncWrite for H2Stream<H> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(buf.len().min(MAX_WRITE));
        let capacity = match self.send.capacity() {
            0 => match ready!(self.send.poll_capacity(cx)) {
                Some(capacity) => capacity.map_err(io_error)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            capacity => capacity,
        };
        let n = capacity.min(buf.len()).min(MAX_WRITE);
        self.send.send_data(Bytes::copy_from_slice(&buf[..n]), false).map_err(io_error)?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.shut, true) {
            self.send.send_data(Bytes::new(), true).map_err(io_error)?;
        }
        Poll::Ready(Ok(()))
    }
}

fn io_error(error: h2::Error) -> io::Error {
    if error.is_io() {
        return error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
    }
    let kind = if error.is_reset() { io::ErrorKind::ConnectionReset } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}
