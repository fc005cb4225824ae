//! The two clocks: of the wall for what is shown and stored, a monotonic one for what ends.

use interflow_types::Timestamp;

pub(crate) fn now() -> u64 {
    Timestamp::now().secs()
}

/// Seconds by a monotonic clock, for state of this process: a correction of the wall clock must not end sessions.
pub(crate) fn monotonic_secs() -> u64 {
    Timestamp::monotonic().secs()
}

/// Converts [`monotonic_secs`] to seconds since the Unix epoch, for display.
pub(crate) fn to_unix_secs(at: u64) -> u64 {
    at.checked_mul(1_000_000).map_or(at, |micros| Timestamp::from_micros(micros).to_wall().micros() / 1_000_000)
}
