//! Tunnels: copy bytes in both directions until both have ended.
//!
//! Each direction starts with a pooled buffer. Between two plain TCP connections, a direction whose data arrives
//! faster than it is copied switches to `splice(2)` where available, so that the data never enters user space, and
//! back when the data arrives in short pieces.

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
use direction::{DirectionCopy, DirectionError, TransferPoll, TransferStep};

options! {
    /// Options of a tunnel: how long it may carry no data in either direction before it is closed, and whether `splice(2)`
    /// may be used. By default ten minutes, and it may.
    #[derive(Clone, Debug)]
    pub struct TunnelOptions {
        pub idle: Duration = Duration::from_secs(600),
        pub splice: bool = true,
    }
}

/// Live byte counts of a tunnel. A byte counts once it was written to the other side.
#[derive(Debug, Default)]
pub struct TunnelCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl TunnelCounters {
    pub fn get(&self) -> ByteCounts {
        ByteCounts { sent: self.sent.load(Ordering::Relaxed), received: self.received.load(Ordering::Relaxed) }
    }
}

/// Copies bytes between two connections until both directions have ended. A half-close in one direction is propagated
/// (TCP allows the other to continue for any time), and the other direction stays open. If one side resets, the other
/// is reset too. Dropping the future closes both.
///
/// # Errors
/// [`ErrorKind::ClientGone`] or [`ErrorKind::UpstreamClosed`] if that side failed, [`ErrorKind::ClientTimeout`] on the
/// idle timeout; `bytes` has the counts until then.
pub async fn tunnel(
    client: IoStream,
    upstream: IoStream,
    options: &TunnelOptions,
    bytes: &TunnelCounters,
) -> Result<ByteCounts, Error> {
    let mut tunnel = TunnelCopy::new(client, upstream, options.splice);
    let mut idle = pin!(tokio::time::sleep(options.idle));
    let mut counts = ByteCounts::default();
    let mut last = Instant::now();
    poll_fn(|cx| {
        if let Poll::Ready(ended) = tunnel.poll(cx, bytes) {
            return Poll::Ready(ended.map(|()| bytes.get()));
        }
        // Data was carried since the last look: the idle time starts again.
        let now = bytes.get();
        if now != counts {
            (counts, last) = (now, Instant::now());
        }
        // The timer is rearmed only when it fires: most tunnels have data far more often than they idle.
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
    /// The error of a sink that no longer accepts data. The tunnel goes on without it: what that side sent before may
    /// still arrive, and must reach the other.
    deaf: Option<Error>,
}

impl TunnelCopy {
    fn new(client: IoStream, upstream: IoStream, splice: bool) -> Self {
        let (client, up_first) = split_read_ahead(client);
        let (upstream, down_first) = split_read_ahead(upstream);
        // Splicing needs a socket on both sides: where TLS is terminated, the bytes have to pass through user space.
        let splice = splice && client.tcp_ref().is_some() && upstream.tcp_ref().is_some();
        let (up, down) = (DirectionCopy::new(up_first, splice), DirectionCopy::new(down_first, splice));
        Self { client, upstream, up, down, deaf: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>, bytes: &TunnelCounters) -> Poll<Result<(), Error>> {
        // Both directions are polled each time, because one waker serves all four ends of the connections.
        // Client to upstream; its end half-closes the upstream, and leaves the other direction open.
        let up = self.up.poll(cx, &mut self.client, &mut self.upstream, &bytes.sent);
        // A failed source returns here at once, so that both connections are reset.
        let up = self.tolerate_sink_failure(up, Direction::Request)?;
        let down = self.down.poll(cx, &mut self.upstream, &mut self.client, &bytes.received);
        let down = self.tolerate_sink_failure(down, Direction::Response)?;
        // Only now: either direction may go on for hours after the other has ended.
        if up.is_ready() && down.is_ready() {
            // A sink that failed is an error even though everything that its peer sent was delivered.
            return Poll::Ready(self.deaf.take().map_or(Ok(()), Err));
        }
        Poll::Pending
    }

    /// A direction whose sink fails has ended; one whose source fails ends the tunnel.
    fn tolerate_sink_failure(&mut self, polled: TransferPoll, way: Direction) -> Result<Poll<()>, Error> {
        match polled {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(ended)) if ended.step == TransferStep::Write => {
                // The first error is kept: the second one is usually its consequence.
                self.deaf.get_or_insert(direction_error(ended, way));
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Err(ended)) => {
                // Reset rather than close, so that the peer does not take what it received as complete.
                self.client.reset_on_drop();
                self.upstream.reset_on_drop();
                Err(direction_error(ended, way))
            }
        }
    }
}

fn direction_error(ended: DirectionError, way: Direction) -> Error {
    // Reading fails at the source and writing at the sink; for responses the client is the sink.
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

/// Separates the connection from the bytes read ahead of it, which are copied first.
fn split_read_ahead(io: IoStream) -> (IoStream, bytes::Bytes) {
    // Bytes read ahead would block the use of the raw socket, so they are sent first and separately.
    match io.into_tcp() {
        Ok((tcp, first)) => (IoStream::from(tcp), first),
        Err(io) => (io, bytes::Bytes::new()),
    }
}

#[cfg(test)]
mod tests;
