//! One HTTP/2 connection to an upstream: its task, its number of streams, and its liveness.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use interflow_codec::fingerprint::Http2Fingerprint;
use interflow_types::{Error, ErrorKind, UpstreamInfo};
use tokio::sync::watch;
use tokio::time::Instant;

use super::counted::{Counted, TlsFailure};
use super::preface;
use crate::deadline_timer::DeadlineTimer;
use crate::egress::http1::ExchangeOptions;
use crate::egress::pool::PoolLimits;
use crate::egress::shared_limits::ConnectionPermit;
use crate::http2_control::FloodFlag;
use crate::io::IoStream;
use crate::tls;

/// Flow-control windows of a stream and of the whole connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How much of an upload may wait in the connection's own buffers.
const SEND_BUFFER: usize = 128 * 1024;
/// How many streams that were cancelled here are remembered, and for how long. What the origin sent before it learnt
/// of the end is then dropped; for a stream that is forgotten, each late frame is answered with RST_STREAM.
const MAX_REMEMBERED_RESETS: usize = 1024;
const REMEMBER_RESETS: Duration = Duration::from_secs(10);
/// The ping interval of a connection with open streams, and the timeout of the reply.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// How long to wait for a new connection's settings if a request depends on them.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection shared by many exchanges. Its frames are processed by a task of its own, which ends with the connection
/// and sets `closed`. `used` is the time of the last stream's end, in microseconds after `born`.
pub(crate) struct Http2Connection {
    pub(super) send: SendRequest<Bytes>,
    pub(super) info: UpstreamInfo,
    pub(crate) born: Instant,
    used: AtomicU64,
    pub(super) exchanges: AtomicU64,
    streams: AtomicUsize,
    closed: Arc<AtomicBool>,
    /// Set if the peer sent too many frames that carry no response.
    flood: FloodFlag,
    tls_failure: TlsFailure,
    /// True once the peer's settings were received.
    settled: watch::Receiver<bool>,
}

impl Http2Connection {
    /// Sends the connection preface, with the fingerprint `shape` if there is one, and spawns the connection's task.
    ///
    /// # Errors
    /// The connection failed at once.
    pub(crate) async fn open(
        io: IoStream,
        info: UpstreamInfo,
        options: &ExchangeOptions,
        open: Option<ConnectionPermit>,
        shape: Option<&Http2Fingerprint>,
    ) -> Result<Arc<Self>, Error> {
        let mut builder = h2::client::Builder::new();
        match shape {
            Some(shape) => preface::apply_fingerprint(&mut builder, shape),
            None => {
                builder
                    .initial_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    // More than is allowed, so that a head over the limit can be told from an invalid one.
                    .max_header_list_size(u32::try_from(options.head.max_bytes.saturating_mul(2)).unwrap_or(u32::MAX))
                    .enable_push(false);
            }
        }
        // No bound on late frames of forgotten streams: the connection is shared, and a client that cancels many
        // downloads must not end those of others. An origin that abuses this spends as much as it costs here.
        builder
            .max_concurrent_reset_streams(MAX_REMEMBERED_RESETS)
            .reset_stream_duration(REMEMBER_RESETS)
            .max_local_error_reset_streams(None);
        let (io, flood, tls_failure) = Counted::new(io);
        let (send, mut connection) =
            builder.max_send_buffer_size(SEND_BUFFER).handshake::<_, Bytes>(io).await.map_err(|e| {
                let failed = match tls_failure.get() {
                    Some(why) => tls::ended_error(why),
                    None => Error::new(ErrorKind::UpstreamClosed, "the HTTP/2 connection could not be established"),
                };
                failed.with_source(e)
            })?;
        let closed = Arc::new(AtomicBool::new(false));
        let (settle, settled) = watch::channel(false);
        let ping = connection.ping_pong();
        let conn = Arc::new(Self {
            send,
            info,
            born: Instant::now(),
            used: AtomicU64::new(0),
            exchanges: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            closed: closed.clone(),
            flood,
            tls_failure,
            settled,
        });
        let mut life = KeepAliveTask::new(ping, shape.is_none(), Arc::downgrade(&conn), settle);
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            poll_fn(|cx| {
                if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                    if let Err(error) = end {
                        tracing::debug!(%error, "an HTTP/2 connection to an upstream ended");
                    }
                    return Poll::Ready(());
                }
                life.poll(cx)
            })
            .await;
            // Set last: until then the connection may still accept streams.
            closed.store(true, Ordering::Relaxed);
            // Only now does the connection stop counting towards the limit.
            drop(open);
        });
        Ok(conn)
    }

    pub(crate) fn is_reusable(&self, now: Instant, limits: &PoolLimits) -> bool {
        let age = now.saturating_duration_since(self.born);
        let used = Duration::from_micros(self.used.load(Ordering::Relaxed));
        !self.is_retired()
            && age < limits.max_lifetime
            // A connection with open streams is never idle, however old its last use is.
            && (age.saturating_sub(used) < limits.idle_timeout || self.streams() > 0)
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Whether another stream can be opened at once.
    pub(crate) fn has_stream_capacity(&self) -> bool {
        self.streams() < self.send.current_max_send_streams()
    }

    /// The reason why the connection was ended, if the peer flooded it.
    pub(super) fn flooded(&self) -> Option<Error> {
        let text = "the origin sent too many HTTP/2 frames that carry no response (PING, SETTINGS, PRIORITY, \
                    WINDOW_UPDATE, RST_STREAM, or empty ones), so that the connection was ended";
        self.flood.load(Ordering::Relaxed).then(|| Error::new(ErrorKind::BadResponse, text))
    }

    /// The reason why the connection was ended, if TLS failed.
    pub(super) fn tls_failed(&self) -> Option<Error> {
        self.tls_failure.get().map(|why| tls::ended_error(why))
    }

    /// Whether it takes no further requests.
    pub(crate) fn is_retired(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn retire(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the peer supports extended CONNECT (RFC 8441 3).
    pub(super) async fn allows_extended_connect(&self) -> bool {
        let mut settled = self.settled.clone();
        // If no settings arrive in time the flag is read as it is, which means unsupported.
        let _ = tokio::time::timeout(SETTINGS_TIMEOUT, settled.wait_for(|s| *s)).await;
        self.send.is_extended_connect_protocol_enabled()
    }
}

/// Counts a stream of a connection until it is dropped.
pub(super) struct StreamPermit(pub(super) Arc<Http2Connection>);

impl StreamPermit {
    pub(super) fn new(conn: &Arc<Http2Connection>) -> Self {
        conn.streams.fetch_add(1, Ordering::Relaxed);
        Self(conn.clone())
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let conn = &self.0;
        conn.streams.fetch_sub(1, Ordering::Relaxed);
        // Microseconds after `born` fit an atomic, an `Instant` does not.
        conn.used.store(conn.born.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

/// Runs in the connection's task: waits for the peer's settings, and sends pings.
struct KeepAliveTask {
    ping: Option<PingPong>,
    ping_sent: bool,
    conn: Weak<Http2Connection>,
    settle: watch::Sender<bool>,
    timer: DeadlineTimer,
}

impl KeepAliveTask {
    fn new(
        mut ping: Option<PingPong>,
        at_once: bool,
        conn: Weak<Http2Connection>,
        settle: watch::Sender<bool>,
    ) -> Self {
        // Frames are processed in order, so once this ping is answered the settings have been received (RFC 9113
        // 3.4). Not sent when impersonating, because other clients do not do so.
        let ping_sent = at_once && ping.as_mut().is_some_and(|p| p.send_ping(Ping::opaque()).is_ok());
        let mut timer = DeadlineTimer::default();
        timer.arm(KEEPALIVE_INTERVAL);
        Self { ping, ping_sent, conn, settle, timer }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ping) = &mut self.ping else { return Poll::Pending };
        if self.ping_sent
            && let Poll::Ready(answer) = ping.poll_pong(cx)
        {
            self.ping_sent = false;
            if answer.is_ok() {
                self.settle.send_replace(true);
            }
        }
        // One interval without a reply and the connection is dead: a peer that vanished without a FIN or RST is noticed
        // within 40 s.
        while self.timer.poll(cx).is_ready() {
            if self.ping_sent {
                // Ends the connection's task, and with it all streams.
                return Poll::Ready(());
            }
            // Idle connections are not pinged, so that they can time out at the peer.
            let busy = self.conn.upgrade().is_some_and(|c| c.streams() > 0);
            self.ping_sent = busy && ping.send_ping(Ping::opaque()).is_ok();
            if self.ping_sent {
                // Registers for the reply; one that is already there is found in the next iteration.
                if ping.poll_pong(cx).is_ready() {
                    self.ping_sent = false;
                }
            }
            self.timer.arm(KEEPALIVE_INTERVAL);
        }
        Poll::Pending
    }
}
