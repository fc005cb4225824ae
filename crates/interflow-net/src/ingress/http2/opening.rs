//! Reads along with what a client sends first, for its fingerprint.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use interflow_flow::ByteStr;
use interflow_wire::http2_opening::{Opening, Read};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stalled::Stalled;

/// Where the fingerprint is found once the first request is there.
pub(super) type Fingerprint = Arc<OnceLock<ByteStr>>;

pub(super) struct Watched {
    io: Stalled,
    opening: Option<Box<Opening>>,
    found: Fingerprint,
}

impl Watched {
    pub(super) fn new(io: Stalled) -> (Self, Fingerprint) {
        let found = Fingerprint::default();
        (Self { io, opening: Some(Box::default()), found: Arc::clone(&found) }, found)
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
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if self.opening.is_some() {
            self.see(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
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
