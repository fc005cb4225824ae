//! An HTTP/2 stream as a byte stream, downstream or upstream: CONNECT (RFC 9113 8.5) and extended CONNECT (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes passed on per write.
const MAX_WRITE: usize = 64 * 1024;

/// Both halves of a stream. Received bytes return their flow-control credit when they are read, not when they arrive,
/// so a reader that stalls stalls its peer (RFC 9113 5.2). `_held` is dropped with the stream; upstream, it counts the
/// stream among those of its connection.
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
            // Empty frames are skipped: a read of 0 bytes would mean the end.
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
        // Reserved capacity is taken from the connection's window, which all streams share; a larger reservation would
        // starve the others.
        // Reserved again with each write, since a reservation is used up by what is sent.
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
        // `send_data` queues frames, and the connection's task writes them; there is nothing to flush here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A second END_STREAM would be a stream error; callers may shut down more than once.
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
