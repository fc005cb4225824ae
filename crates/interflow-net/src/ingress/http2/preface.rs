//! Taps a client's bytes: the first frames for its fingerprint, all of them to count those without a request.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use interflow_codec::http2_preface::{PrefaceReader, PrefaceState};
use interflow_types::ByteStr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::write_timeout::WriteTimeoutIo;
use crate::http2_control::{FloodFlag, FrameLimiter};

/// Holds the fingerprint once the first request has arrived.
pub(super) type PrefaceFingerprint = Arc<OnceLock<ByteStr>>;

pub(super) struct PrefaceTap {
    io: WriteTimeoutIo,
    opening: Option<Box<PrefaceReader>>,
    found: PrefaceFingerprint,
    control: Box<FrameLimiter>,
}

impl PrefaceTap {
    pub(super) fn new(io: WriteTimeoutIo) -> (Self, PrefaceFingerprint, FloodFlag) {
        let fingerprint = PrefaceFingerprint::default();
        let (control, flood) = FrameLimiter::of_client();
        let watched =
            Self { io, opening: Some(Box::default()), found: Arc::clone(&fingerprint), control: Box::new(control) };
        (watched, fingerprint, flood)
    }

    fn inspect(&mut self, bytes: &[u8]) {
        let Some(opening) = &mut self.opening else { return };
        match opening.feed(bytes) {
            PrefaceState::More => return,
            PrefaceState::Done(text) => {
                // Set once: the preface is followed by one first request only.
                let _ = self.found.set(text.into());
            }
            // Not a preface that can be described; the connection itself is checked by `h2`.
            PrefaceState::Strange => {}
        }
        // The reader is needed for the first frames only.
        self.opening = None;
    }
}

impl AsyncRead for PrefaceTap {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.control.is_flood() {
            // The connection's task checks the flag too, and closes the connection.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let came = buf.filled().get(before..).unwrap_or_default();
        self.control.on_read(came);
        if self.opening.is_some() {
            self.inspect(came);
        }
        read
    }
}

impl AsyncWrite for PrefaceTap {
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
