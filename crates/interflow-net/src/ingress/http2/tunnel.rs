//! A stream as a connection: CONNECT (RFC 9113 8.5) and extended CONNECT (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that one write hands on.
const PIECE: usize = 64 * 1024;

pub(super) struct Tunnel {
    send: SendStream<Bytes>,
    recv: RecvStream,
    /// What came and was not read yet; its part of the window is given back as it is read.
    read: Bytes,
    shut: bool,
}

impl Tunnel {
    pub(super) fn new(send: SendStream<Bytes>, recv: RecvStream) -> Self {
        Self { send, recv, read: Bytes::new(), shut: false }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.read.is_empty() {
            match ready!(this.recv.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(data)) => this.read = data,
                // A peer that wants no more and has had its say ends its side so.
                Some(Err(e)) if e.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(Ok(())),
                Some(Err(e)) => return Poll::Ready(Err(broken(&e))),
            }
        }
        let n = this.read.len().min(buf.remaining());
        buf.put_slice(&this.read[..n]);
        this.read.advance(n);
        Poll::Ready(this.recv.flow_control().release_capacity(n).map_err(|e| broken(&e)))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let this = &mut *self;
        this.send.reserve_capacity(buf.len().min(PIECE));
        let mut room = this.send.capacity();
        if room == 0 {
            room = match ready!(this.send.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(e)) => return Poll::Ready(Err(broken(&e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let n = room.min(buf.len()).min(PIECE);
        this.send.send_data(Bytes::copy_from_slice(&buf[..n]), false).map_err(|e| broken(&e))?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.shut, true) {
            self.send.send_data(Bytes::new(), true).map_err(|e| broken(&e))?;
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(e: &h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, e.to_string())
}
