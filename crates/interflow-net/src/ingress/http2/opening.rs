//! Reads along with what a client sends: its first frames for its fingerprint, all of them to count the idle ones.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use interflow_flow::ByteStr;
use interflow_wire::http2_opening::{Opening, Read};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stalled::Stalled;
use crate::http2_control::{Control, Flood};

/// Where the fingerprint is found once the first request is there.
pub(super) type Fingerprint = Arc<OnceLock<ByteStr>>;

pub(super) struct Watched {
    io: Stalled,
    opening: Option<Box<Opening>>,
    found: Fingerprint,
    control: Box<Control>,
}

impl Watched {
    pub(super) fn new(io: Stalled) -> (Self, Fingerprint, Flood) {
        let found = Fingerprint::default();
        let (control, flood) = Control::of_client();
        let watched = Self { io, opening: Some(Box::default()), found: Arc::clone(&found), control: Box::new(control) };
        (watched, found, flood)
    }

    fn see(&mut self, bytes: &[u8]) {
        let Some(opening) = &mut self.opening else { return };
        match opening.feed(bytes) {
            Read::More => return,
            Read::Done(text) => {
                let _ = self.found.set(text.into());
            }
            Read::Strange => {}
        }
        self.opening = None;
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.control.is_flood() {
            // Whoever polls sees it too, and closes the connection.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let came = buf.filled().get(before..).unwrap_or_default();
        self.control.read(came);
        if self.opening.is_some() {
            self.see(came);
        }
        read
    }
}

impl AsyncWrite for Watched {
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
