//! Timestamps and durations of flows, in microseconds, for both sides (downstream and upstream).

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::schema::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point in wall-clock time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("format" = "unix-micros"))]
pub struct Timestamp(u64);

impl Timestamp {
    pub fn now() -> Self {
        // A clock before 1970 yields 0 rather than an error.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_micros() as u64)
    }

    /// The current time from a clock that never jumps: the wall clock at the first call in this process, plus the
    /// time elapsed since. For expiry within this process, which clock corrections must not affect.
    pub fn monotonic() -> Self {
        static START: OnceLock<FlowClock> = OnceLock::new();
        let start = START.get_or_init(FlowClock::start);
        Self(start.born.0.saturating_add(start.micros()))
    }

    /// Converts a [`monotonic`](Self::monotonic) timestamp to wall-clock time, for display.
    pub fn to_wall(self) -> Self {
        // Both clocks are read now, so the result follows corrections made since the start.
        Self::shifted(self.0, Self::monotonic().0, Self::now().0)
    }

    /// Converts a wall-clock timestamp to [`monotonic`](Self::monotonic) time.
    pub fn to_monotonic(self) -> Self {
        Self::shifted(self.0, Self::now().0, Self::monotonic().0)
    }

    const fn shifted(at: u64, from: u64, to: u64) -> Self {
        // Saturating: a display of times must not panic.
        Self(if to >= from { at.saturating_add(to - from) } else { at.saturating_sub(from - to) })
    }

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    pub const fn micros(self) -> u64 {
        self.0
    }

    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000
    }

    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(Microseconds::from(span).0))
    }
}

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, JsonSchema)]
#[schemars(extend("format" = "micros"))]
pub struct Microseconds(u64);

impl From<Duration> for Microseconds {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

/// The clock of one flow: the wall-clock time of its start and a monotonic offset from it, so that wall-clock jumps
/// never make a duration negative.
#[derive(Clone, Copy, Debug)]
pub struct FlowClock {
    born: Timestamp,
    start: Instant,
}

impl FlowClock {
    pub fn start() -> Self {
        Self { born: Timestamp::now(), start: Instant::now() }
    }

    pub const fn started_at(&self) -> Timestamp {
        self.born
    }

    pub fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// Events of a flow, in microseconds after its start; absent if the event did not occur (a reused connection has no
/// `dns`, `connect` or `tls`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Timings")]
pub struct FlowTimings {
    /// The request head was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_head: Option<u64>,
    /// The last byte of the request body was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_body: Option<u64>,
    /// How long the request waited for a pooled connection after `request_head` (a duration).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<u64>,
    /// How long name resolution took (a duration).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<u64>,
    /// How long the TCP connection took, including an upstream proxy's handshake (a duration).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<u64>,
    /// How long the TLS handshake with the upstream took (a duration).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<u64>,
    /// The request was written to the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_sent: Option<u64>,
    /// The response head was received from the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<u64>,
    /// The last byte of the response was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_byte: Option<u64>,
    /// The flow ended on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_convert_between_monotonic_and_wall_clock() {
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
