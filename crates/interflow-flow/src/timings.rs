//! When things happened, in microseconds, on both legs of a flow.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A point in wall-clock time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_micros() as u64)
    }

    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }
}

/// A flow's own clock: wall time of its birth and a monotonic count from there, so that a jump of the wall clock
/// never makes a duration negative.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    born: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { born: Timestamp::now(), start: Instant::now() }
    }

    /// Wall time of the start.
    pub const fn born(&self) -> Timestamp {
        self.born
    }

    /// Microseconds since the start.
    pub fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// Moments of a flow in microseconds after its start; `None` where a moment never came or had no part in it
/// (a reused connection has no `dns`, `connect` or `tls`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The request's head was complete.
    pub request_head: Option<u64>,
    /// The last byte of the request body had come from the client.
    pub request_body: Option<u64>,
    /// A pooled connection was waited for since `request_head`, in microseconds (a duration).
    pub blocked: Option<u64>,
    /// Name resolution took this long (a duration).
    pub dns: Option<u64>,
    /// The TCP connection (and an upstream proxy's handshake) took this long (a duration).
    pub connect: Option<u64>,
    /// The TLS handshake with the upstream took this long (a duration).
    pub tls: Option<u64>,
    /// The request had been written to the upstream.
    pub request_sent: Option<u64>,
    /// The response's head had come from the upstream.
    pub first_byte: Option<u64>,
    /// The response's last byte had come from the upstream.
    pub last_byte: Option<u64>,
    /// The flow was over on both legs.
    pub done: Option<u64>,
}
