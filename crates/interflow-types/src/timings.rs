//! When things happened, in microseconds, on both legs of a flow.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// A point in wall-clock time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_micros() as u64)
    }

    /// Now by a clock that never jumps: the wall clock as it was when this process first asked, and the time that has passed
    /// since. For what expires in this process, which a correction of the wall clock must neither end nor prolong.
    pub fn monotonic() -> Self {
        static START: OnceLock<FlowClock> = OnceLock::new();
        let start = START.get_or_init(FlowClock::start);
        Self(start.born.0.saturating_add(start.micros()))
    }

    /// The moment of the wall clock that one of [`steady`](Self::steady) is by now, for people.
    #[must_use]
    pub fn to_wall(self) -> Self {
        Self::shifted(self.0, Self::monotonic().0, Self::now().0)
    }

    /// The moment of [`steady`](Self::steady) that one of the wall clock is by now.
    #[must_use]
    pub fn to_monotonic(self) -> Self {
        Self::shifted(self.0, Self::now().0, Self::monotonic().0)
    }

    const fn shifted(at: u64, from: u64, to: u64) -> Self {
        Self(if to >= from { at.saturating_add(to - from) } else { at.saturating_sub(from - to) })
    }

    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From seconds since the Unix epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Later by this long.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(Microseconds::from(span).0))
    }
}

/// As every instant of the API: microseconds since the Unix epoch.
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

/// A length of time as the API tells it: in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Microseconds(u64);

impl From<Duration> for Microseconds {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Serialize for Microseconds {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

/// A flow's own clock: wall time of its birth and a monotonic count from there, so that a jump of the wall clock
/// never makes a duration negative.
#[derive(Clone, Copy, Debug)]
pub struct FlowClock {
    born: Timestamp,
    start: Instant,
}

impl FlowClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { born: Timestamp::now(), start: Instant::now() }
    }

    /// Wall time of the start.
    pub const fn started_at(&self) -> Timestamp {
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
pub struct FlowTimings {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_carried_from_one_clock_to_the_other() {
        let (wall, steady) = (1_000_000, 400_000);
        assert_eq!(Timestamp::shifted(400_500, steady, wall).micros(), 1_000_500);
        assert_eq!(Timestamp::shifted(1_000_500, wall, steady).micros(), 400_500);
        assert_eq!(Timestamp::shifted(u64::MAX, steady, wall).micros(), u64::MAX);
        assert_eq!(Timestamp::shifted(5, wall, steady).micros(), 0);
        let now = Timestamp::monotonic();
        assert!(now.to_wall().micros().abs_diff(Timestamp::now().micros()) < 1_000_000);
        assert!(Timestamp::monotonic() >= now);
    }
}
