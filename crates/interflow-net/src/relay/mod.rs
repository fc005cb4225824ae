//! Tunnels: bytes both ways until both sides have ended.
//!
//! Each direction reads into a pooled buffer at first. One between two plain TCP connections whose bytes come faster than
//! they are carried moves on to `splice(2)` where the system has it, so that they never enter the process, and back when
//! they come in short pieces.

pub(crate) mod buffer;
mod direction;
#[cfg(target_os = "linux")]
mod splice;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use interflow_types::{ByteCounts, Direction, Error, ErrorKind};
use tokio::time::Instant;

use crate::io::IoStream;
use direction::{DirectionCopy, DirectionError, TransferStep};

/// How a tunnel is run.
#[derive(Clone, Debug)]
pub struct TunnelOptions {
    /// A tunnel that carries nothing in either direction for this long is closed.
    pub idle: Duration,
    /// Whether `splice(2)` may be used where it can be.
    pub splice: bool,
}

impl Default for TunnelOptions {
    /// Ten minutes, and `splice(2)`.
    fn default() -> Self {
        Self { idle: Duration::from_secs(600), splice: true }
    }
}

/// What a tunnel has carried so far, to be read while it runs. A byte counts once it was handed to the other side.
#[derive(Debug, Default)]
pub struct TunnelCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl TunnelCounters {
    /// The counts now.
    pub fn get(&self) -> ByteCounts {
        ByteCounts { sent: self.sent.load(Ordering::Relaxed), received: self.received.load(Ordering::Relaxed) }
    }
}

/// Carries bytes between two connections until both directions have ended; an end in one direction is passed on and
/// leaves the other open. When one side resets, the other is reset too. Dropping the future closes both.
///
/// # Errors
/// [`ErrorKind::ClientGone`] and [`ErrorKind::UpstreamClosed`] when that side broke off, [`ErrorKind::ClientTimeout`] when the tunnel
/// idled; `bytes` holds what was carried until then.
pub async fn tunnel(
    client: IoStream,
    upstream: IoStream,
    options: &TunnelOptions,
    bytes: &TunnelCounters,
) -> Result<ByteCounts, Error> {
    let mut tunnel = TunnelCopy::new(client, upstream, options.splice);
    let mut idle = pin!(tokio::time::sleep(options.idle));
    let mut seen = ByteCounts::default();
    let mut last = Instant::now();
    poll_fn(|cx| {
        if let Poll::Ready(ended) = tunnel.poll(cx, bytes) {
            return Poll::Ready(ended.map(|()| bytes.get()));
        }
        let now = bytes.get();
        if now != seen {
            (seen, last) = (now, Instant::now());
        }
        // The timer is moved only when it rings: most tunnels carry far more often than they idle.
        while idle.as_mut().poll(cx).is_ready() {
            let due = last + options.idle;
            if due <= Instant::now() {
                let message = format!("the tunnel carried nothing for {} s", options.idle.as_secs_f32());
                return Poll::Ready(Err(Error::new(ErrorKind::ClientTimeout, message)));
            }
            idle.as_mut().reset(due);
        }
        Poll::Pending
    })
    .await
}

struct TunnelCopy {
    client: IoStream,
    upstream: IoStream,
    up: DirectionCopy,
    down: DirectionCopy,
    /// A sink that takes no more. What it had sent before may still be on its way, so the other direction goes on.
    deaf: Option<Error>,
}

impl TunnelCopy {
    fn new(client: IoStream, upstream: IoStream, splice: bool) -> Self {
        let (client, up_first) = split_read_ahead(client);
        let (upstream, down_first) = split_read_ahead(upstream);
        let splice = splice && client.tcp_ref().is_some() && upstream.tcp_ref().is_some();
        let (up, down) = (DirectionCopy::new(up_first, splice), DirectionCopy::new(down_first, splice));
        Self { client, upstream, up, down, deaf: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>, bytes: &TunnelCounters) -> Poll<Result<(), Error>> {
        let up = self.up.poll(cx, &mut self.client, &mut self.upstream, &bytes.sent);
        let up = self.tolerate_sink_failure(up, Direction::Request)?;
        let down = self.down.poll(cx, &mut self.upstream, &mut self.client, &bytes.received);
        let down = self.tolerate_sink_failure(down, Direction::Response)?;
        if up.is_ready() && down.is_ready() {
            return Poll::Ready(self.deaf.take().map_or(Ok(()), Err));
        }
        Poll::Pending
    }

    /// A direction whose sink fails is over; one whose source fails ends the tunnel.
    fn tolerate_sink_failure(
        &mut self,
        polled: Poll<Result<(), DirectionError>>,
        way: Direction,
    ) -> Result<Poll<()>, Error> {
        match polled {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(ended)) if ended.step == TransferStep::Write => {
                self.deaf.get_or_insert(direction_error(ended, way));
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Err(ended)) => {
                // Cut visibly, so that nobody takes what came for the whole.
                self.client.reset_on_drop();
                self.upstream.reset_on_drop();
                Err(direction_error(ended, way))
            }
        }
    }
}

fn direction_error(ended: DirectionError, way: Direction) -> Error {
    let by_client = (ended.step == TransferStep::Read) == (way == Direction::Request);
    let (kind, who) =
        if by_client { (ErrorKind::ClientGone, "client") } else { (ErrorKind::UpstreamClosed, "upstream") };
    let how = match (ended.step, ended.error.kind()) {
        (TransferStep::Write, _) => "closed the tunnel while bytes were on their way to it",
        (TransferStep::Read, io::ErrorKind::ConnectionReset) => "reset the tunnel",
        (TransferStep::Read, _) => "broke off the tunnel",
    };
    Error::new(kind, format!("the {who} {how}")).with_source(ended.error)
}

/// The connection, and what was read ahead of it, as the first bytes to carry.
fn split_read_ahead(io: IoStream) -> (IoStream, bytes::Bytes) {
    match io.into_tcp() {
        Ok((tcp, first)) => (IoStream::from(tcp), first),
        Err(io) => (io, bytes::Bytes::new()),
    }
}

#[cfg(test)]
mod tests;
