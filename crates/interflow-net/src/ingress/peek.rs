//! Reading ahead: the first bytes of a connection are looked at until they mean something.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use interflow_flow::{Error, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use crate::io::Io;

/// A connection and what was read of it; everything ends at one deadline.
pub(super) struct Peek {
    io: Io,
    pub(super) buf: BytesMut,
    deadline: Instant,
    extended: bool,
}

/// Why there are no further bytes.
pub(super) enum Stop {
    Timeout,
    Ended,
    Broken(std::io::Error),
}

impl Stop {
    /// As an error of a conversation that was cut short.
    pub(super) fn in_the_middle_of(self, what: &str) -> Error {
        match self {
            Self::Timeout => Error::new(Kind::ClientTimeout, format!("the client took too long over {what}")),
            Self::Ended => Error::new(Kind::ClientGone, format!("the client closed in the middle of {what}")),
            Self::Broken(e) => Error::new(Kind::ClientGone, format!("the client went away during {what}")).because(e),
        }
    }
}

impl Peek {
    pub(super) fn new(io: Io, limit: Duration) -> Self {
        Self { io, buf: BytesMut::new(), deadline: Instant::now() + limit, extended: false }
    }

    /// Moves the deadline this far from now.
    pub(super) fn wait_further(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
        self.extended = true;
    }

    /// Whether the deadline was moved.
    pub(super) const fn was_extended(&self) -> bool {
        self.extended
    }

    /// Reads until `look` makes something of the bytes so far. It sees them all each time, and must bound them.
    pub(super) async fn until<T>(&mut self, mut look: impl FnMut(&[u8]) -> Option<T>) -> Result<T, Stop> {
        loop {
            if !self.buf.is_empty()
                && let Some(found) = look(&self.buf)
            {
                return Ok(found);
            }
            self.buf.reserve(2048);
            match timeout_at(self.deadline, self.io.read_buf(&mut self.buf)).await {
                Err(_) => return Err(Stop::Timeout),
                Ok(Err(e)) => return Err(Stop::Broken(e)),
                Ok(Ok(0)) => return Err(Stop::Ended),
                Ok(Ok(_)) => {}
            }
        }
    }

    /// As [`until`](Self::until), for messages that tell their length, which is then consumed.
    pub(super) async fn take<T, E>(
        &mut self,
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Result<T, E>, Stop> {
        let parsed = self.until(|buf| parse(buf).transpose()).await?;
        Ok(parsed.map(|(message, len)| {
            self.buf.advance(len);
            message
        }))
    }

    /// Writes an answer.
    pub(super) async fn say(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        match timeout_at(self.deadline, write).await {
            Err(_) => Err(Stop::Timeout),
            Ok(done) => done.map_err(Stop::Broken),
        }
    }

    /// The connection, what was read and not consumed in front of it again.
    pub(super) fn into_io(self) -> Io {
        self.io.prefixed(self.buf.freeze())
    }
}
