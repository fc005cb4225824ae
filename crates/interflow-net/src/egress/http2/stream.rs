//! An HTTP/2 stream as a stream of bytes: what a tunnel over extended CONNECT is (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::conn::OpenStream;
use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest piece copied at once for sending.
const PIECE: usize = 16 * 1024;

/// Both halves of a stream.
pub(super) struct H2Io {
    _open: OpenStream,
    send: SendStream<Bytes>,
    recv: RecvStream,
    unread: Bytes,
    shut: bool,
}

impl H2Io {
    pub(super) fn new(send: SendStream<Bytes>, recv: RecvStream, open: OpenStream) -> Self {
        Self { _open: open, send, recv, unread: Bytes::new(), shut: false }
    }
}

impl AsyncRead for H2Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(self.recv.poll_data(cx)) {
                Some(Ok(data)) => self.unread = data,
                // A peer that wants no more and has had its say ends its side so.
                Some(Err(e)) if e.reason() == Some(h2::Reason::NO_ERROR) => return Poll::Ready(Ok(())),
                Some(Err(e)) => return Poll::Ready(Err(io_error(e))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..n]);
        self.unread.advance(n);
        // Fails only for a stream that is over, whose window nobody needs.
        let _ = self.recv.flow_control().release_capacity(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for H2Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(buf.len().min(PIECE));
        let room = match self.send.capacity() {
            0 => match ready!(self.send.poll_capacity(cx)) {
                Some(room) => room.map_err(io_error)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            room => room,
        };
        let n = room.min(buf.len()).min(PIECE);
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
