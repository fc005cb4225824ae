//! A connection whose writes fail if the peer reads nothing for a while, which the `h2` crate does not check.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::deadline_timer::DeadlineTimer;
use crate::io::IoStream;

pub(super) struct WriteTimeoutIo {
    io: IoStream,
    limit: Duration,
    alarm: DeadlineTimer,
    since: Option<Instant>,
}

impl WriteTimeoutIo {
    pub(super) fn new(io: IoStream, limit: Duration) -> Self {
        Self { io, limit, alarm: DeadlineTimer::default(), since: None }
    }

    fn check_timeout<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        // Any progress restarts the time.
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.alarm.poll_at(cx, since + self.limit).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeoutIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Reads are bounded by the timeouts of heads and bodies; only writes lack one.
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteTimeoutIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.check_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.check_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_timeout(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_timeout(cx, shut)
    }
}
