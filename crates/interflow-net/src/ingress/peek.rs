//! Reads ahead: buffers the first bytes of a connection until they can be interpreted.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use interflow_codec::client_hello::looks_like_tls;
use interflow_types::{Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use crate::io::IoStream;

/// The most bytes after the current request that are read ahead to detect a disconnect.
pub(super) const MAX_READ_AHEAD: usize = 64 * 1024;

/// Runs `call`, which decides about a connection, and stops it if the client disconnects meanwhile: it reset the
/// connection, or closed its direction where nothing can be sent to it any more. That is so in the middle of a TLS
/// handshake; if it has sent nothing at all, `keep_half_closed` decides. What it sent is put back into the connection.
/// `None` if it disconnected.
pub async fn while_connected<T>(
    mut io: IoStream,
    keep_half_closed: bool,
    call: impl Future<Output = T>,
) -> Option<(T, IoStream)> {
    let mut buf = BytesMut::new();
    let gone = async {
        // Only for a call that has to wait.
        buf.reserve(2048);
        while buf.len() < MAX_READ_AHEAD {
            match io.read_buf(&mut buf).await {
                Ok(0) if looks_like_tls(&buf).map_or(keep_half_closed, |is_tls| !is_tls) => break,
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        std::future::pending().await
    };
    let done = tokio::select! {
        biased;
        done = call => done,
        () = gone => return None,
    };
    Some((done, io.prefixed(buf.freeze())))
}

/// A connection and the bytes read from it, with one deadline for everything.
pub(super) struct PeekReader {
    io: IoStream,
    pub(super) buf: BytesMut,
    deadline: Instant,
    pub(super) extended: bool,
}

pub(super) enum PeekError {
    Timeout,
    Ended,
    Broken(std::io::Error),
}

impl PeekError {
    /// Converts to the error of an interrupted negotiation.
    pub(super) fn into_error(self, what: &str) -> Error {
        match self {
            Self::Timeout => Error::new(ErrorKind::ClientTimeout, format!("the client took too long over {what}")),
            Self::Ended => Error::new(ErrorKind::ClientGone, format!("the client closed in the middle of {what}")),
            Self::Broken(e) => {
                Error::new(ErrorKind::ClientGone, format!("the client went away during {what}")).with_source(e)
            }
        }
    }
}

impl PeekReader {
    pub(super) fn new(io: IoStream, limit: Duration) -> Self {
        Self { io, buf: BytesMut::new(), deadline: Instant::now() + limit, extended: false }
    }

    /// Sets the deadline this far from now.
    pub(super) fn extend_deadline(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
        self.extended = true;
    }

    /// Reads until `look` returns a result for the bytes so far. It is passed all of them each time, and must limit
    /// them.
    pub(super) async fn read_until<T>(&mut self, mut look: impl FnMut(&[u8]) -> Option<T>) -> Result<T, PeekError> {
        loop {
            if !self.buf.is_empty()
                && let Some(found) = look(&self.buf)
            {
                return Ok(found);
            }
            // Enough for a ClientHello with a post-quantum key share, in one read. `reserve` does nothing while there
            // is that much space.
            self.buf.reserve(2048);
            match timeout_at(self.deadline, self.io.read_buf(&mut self.buf)).await {
                Err(_) => return Err(PeekError::Timeout),
                Ok(Err(e)) => return Err(PeekError::Broken(e)),
                // Some bytes may have arrived before: the caller decides what they mean.
                Ok(Ok(0)) => return Err(PeekError::Ended),
                Ok(Ok(_)) => {}
            }
        }
    }

    /// As [`read_until`](Self::read_until), for messages with a length, which are then consumed.
    pub(super) async fn read_message<T, E>(
        &mut self,
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Result<T, E>, PeekError> {
        // An incomplete message yields `None`, and more is read.
        let parsed = self.read_until(|buf| parse(buf).transpose()).await?;
        Ok(parsed.map(|(message, len)| {
            self.buf.advance(len);
            message
            // What follows the message stays in the buffer.
        }))
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), PeekError> {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        match timeout_at(self.deadline, write).await {
            Err(_) => Err(PeekError::Timeout),
            Ok(done) => done.map_err(PeekError::Broken),
        }
    }

    /// The connection, with the unconsumed bytes in front of it.
    pub(super) fn into_io(self) -> IoStream {
        self.io.prefixed(self.buf.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_half_close_ends_a_call_only_if_the_client_cannot_go_on() {
        for (sent, keep_half_closed, goes_on) in [
            (&b""[..], false, false),
            (b"", true, true),
            (b"GET ", false, true),
            // Not a record of TLS.
            (b"\x16GET", false, true),
            (b"\x16\x03\x01\x02", true, false),
        ] {
            let (mut client, io) = tokio::io::duplex(64);
            client.write_all(sent).await.unwrap();
            client.shutdown().await.unwrap();
            // The end was read at most two turns before.
            let call = async {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            };
            let ended = while_connected(IoStream::other(io), keep_half_closed, call).await;
            assert_eq!(ended.is_some(), goes_on, "{sent:?}");
            let mut rest = Vec::new();
            if let Some(((), mut io)) = ended {
                io.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, sent);
            }
        }
    }

    #[tokio::test]
    async fn a_call_that_does_not_wait_reads_nothing() {
        let (client, io) = tokio::io::duplex(64);
        drop(client);
        assert!(while_connected(IoStream::other(io), false, async {}).await.is_some());
    }
}
