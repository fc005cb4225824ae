//! One HTTP/1 connection to an upstream: its stream, read buffer and timer, and whether it can be reused.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use interflow_types::{Headers, UpstreamInfo};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::Instant;

use crate::deadline_timer::DeadlineTimer;
use crate::egress::pool::{ConnectionPool, PoolLimits, READ_BUFFER_SIZE};
use crate::egress::shared_limits::ConnectionPermit;
use crate::io::IoStream;

/// The size of a read buffer once a body has turned out to be long.
const LONG_READ_SIZE: usize = 128 * 1024;

pub(crate) struct Http1Connection {
    pub(crate) io: IoStream,
    /// Received bytes that are not consumed yet.
    pub(crate) buf: BytesMut,
    pub(crate) timer: DeadlineTimer,
    pub(crate) info: UpstreamInfo,
    /// How many exchanges were started on it.
    pub(crate) exchanges: u64,
    /// Set for a connection to an HTTP proxy: requests are written in absolute-form, with these credentials.
    pub(crate) forward: Option<ProxyHop>,
    /// The buffer for the next request's head.
    pub(crate) scratch: Vec<u8>,
    /// A read filled its buffer, so the next buffer is larger.
    long: bool,
    born: Instant,
    pub(crate) idle_since: Instant,
    /// When it was created or last checked for reuse. An exchange starts right after the check and takes its deadline
    /// from here, which saves it a clock reading.
    pub(crate) asked_at: Instant,
    /// The idle timeout that the origin announced.
    idle_timeout: Option<Duration>,
    _open: Option<ConnectionPermit>,
}

/// What a request through a cleartext HTTP proxy has besides its own fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyHop {
    pub(crate) authorization: Option<String>,
}

impl Http1Connection {
    pub(crate) fn new(
        io: IoStream,
        info: UpstreamInfo,
        forward: Option<ProxyHop>,
        open: Option<ConnectionPermit>,
    ) -> Box<Self> {
        let now = Instant::now();
        Box::new(Self {
            io,
            buf: BytesMut::new(),
            timer: DeadlineTimer::default(),
            info,
            exchanges: 0,
            forward,
            scratch: Vec::new(),
            long: false,
            born: now,
            idle_since: now,
            asked_at: now,
            idle_timeout: None,
            _open: open,
        })
    }

    /// Reads available bytes into the buffer; 0 at the end. No buffer is held while there is nothing to read.
    pub(crate) fn poll_fill(&mut self, pool: &ConnectionPool, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        // Between pieces, and while waiting for the origin, thousands of connections would each hold a buffer.
        if self.buf.is_empty()
            && let Some(tcp) = self.io.tcp_ref()
            && tcp.poll_read_ready(cx)?.is_pending()
        {
            self.release_buffer(pool);
            return Poll::Pending;
        }
        self.reserve_read_buffer(pool);
        let spare = self.buf.capacity() - self.buf.len();
        let n = ready!(pin!(self.io.read_buf(&mut self.buf)).poll(cx))?;
        // A full buffer means that more is probably waiting.
        self.long = n == spare;
        Poll::Ready(Ok(n))
    }

    fn reserve_read_buffer(&mut self, pool: &ConnectionPool) {
        let want = if self.long { LONG_READ_SIZE } else { READ_BUFFER_SIZE };
        // `try_reclaim` succeeds once the consumers of earlier pieces have dropped theirs.
        if self.buf.capacity() - self.buf.len() >= want / 2 || self.buf.try_reclaim(want) {
            return;
        }
        // Part of a head or chunk line is kept; it must stay contiguous with what follows.
        if !self.buf.is_empty() {
            self.buf.reserve(want);
        } else if self.long {
            self.buf = BytesMut::with_capacity(LONG_READ_SIZE);
        } else {
            self.buf = pool.take_buffer();
        }
    }

    fn release_buffer(&mut self, pool: &ConnectionPool) {
        if self.buf.capacity() > 0 {
            let buffer = std::mem::take(&mut self.buf);
            // Only buffers of the usual size are pooled: a long one would keep its memory.
            if !self.long {
                pool.return_buffer(buffer);
            }
        }
    }

    /// Prepares for an idle period; returns the read buffer if others can reuse it.
    pub(crate) fn prepare_idle(&mut self, now: Instant) -> Option<BytesMut> {
        self.idle_since = now;
        let buffer = std::mem::take(&mut self.buf);
        let ordinary = !std::mem::take(&mut self.long) && buffer.capacity() > 0;
        ordinary.then_some(buffer)
    }

    /// The stream for another protocol, and the bytes of it that were received already.
    pub(crate) fn into_stream(mut self) -> (IoStream, Bytes) {
        (self.io, self.buf.split().freeze())
    }

    /// Whether another request may use it: it must be young enough, open, and have no unread bytes, since an
    /// unsolicited byte could be taken for the response.
    pub(crate) fn is_reusable(&mut self, now: Instant, limits: &PoolLimits) -> bool {
        // The shorter of the two applies: the origin would close the connection, or the operator does not trust it
        // longer.
        let patience = self.idle_timeout.map_or(limits.idle_timeout, |p| p.min(limits.idle_timeout));
        self.asked_at = now;
        now.saturating_duration_since(self.idle_since) < patience
            // The cheap tests first; the last one may cost a system call.
            && now.saturating_duration_since(self.born) < limits.max_lifetime
            && self.is_quiet_cached()
    }

    fn is_quiet_cached(&mut self) -> bool {
        let mut byte = [0; 1];
        if let Some(tcp) = self.io.tcp_ref() {
            // Makes no system call as long as the reactor has reported nothing.
            return matches!(tcp.try_read(&mut byte), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
        }
        // With TLS, polling is the only way to find out; it processes session tickets, and any content or end makes it
        // ready. The waker does nothing, because the connection has no task while it is idle.
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut self.io).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Asks the kernel whether the connection is open and without unread bytes, for requests that must not be sent
    /// twice.
    pub(crate) fn is_quiet(&self) -> bool {
        let Some(tcp) = self.io.socket() else { return true };
        let mut byte = [std::mem::MaybeUninit::uninit(); 1];
        match socket2::SockRef::from(tcp).peek(&mut byte) {
            // Under TLS, bytes may be a session ticket; only the end counts there.
            Ok(n) => n > 0 && self.io.tcp_ref().is_none(),
            Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// Applies `Keep-Alive: timeout=N`: the connection is not used in the last second before the origin closes it.
    pub(crate) fn apply_keep_alive(&mut self, headers: &Headers) {
        // Not standardised: a parameter of the obsolete Keep-Alive field (RFC 2068 19.7.1.1) that many servers still
        // send.
        let seconds = headers.list_items("Keep-Alive").find_map(|t| {
            let n = t.strip_prefix(b"timeout=").or_else(|| t.strip_prefix(b"Timeout="))?;
            std::str::from_utf8(n).ok()?.parse::<u32>().ok()
        });
        if let Some(seconds) = seconds {
            self.idle_timeout = Some(Duration::from_secs(u64::from(seconds)).saturating_sub(Duration::from_secs(1)));
        }
    }
}
