//! When SQLite's write-ahead log is checkpointed, and when its file is truncated.

use std::time::Duration;

/// The write-ahead log is checkpointed at this size, or after this time.
pub(crate) const CHECKPOINT_BYTES: usize = 16 << 20;
const CHECKPOINT_TIME: Duration = Duration::from_secs(10);
/// The thresholds under low load, so that a log much larger than its content does not persist.
const CHECKPOINT_SOON: (usize, Duration) = (2 << 20, Duration::from_secs(1));

/// The checkpoint needed for the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointNeed {
    Nothing,
    /// Checkpoint the log; its file is reused from the beginning.
    Taking,
    /// Checkpoint the log and truncate its file.
    Cutting,
}

impl CheckpointNeed {
    /// Decides for a log that has grown by about `logged` bytes since its last checkpoint, and may grow by `bound`;
    /// `uncut` if its file has not been truncated since it was written.
    pub fn for_log(logged: usize, bound: usize, uncut: bool, waited: Duration) -> Self {
        let soon = logged >= CHECKPOINT_SOON.0 && waited >= CHECKPOINT_SOON.1;
        // In this order: the time limit also truncates the file, which is worth a moment's wait.
        match waited >= CHECKPOINT_TIME {
            true if logged > 0 || uncut => Self::Cutting,
            _ if logged >= bound || soon => Self::Taking,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_need_follows_from_log_size_and_age() {
        let seconds = Duration::from_secs_f64;
        for (logged, uncut, waited, due) in [
            (0, false, seconds(60.0), CheckpointNeed::Nothing),
            (0, true, seconds(9.0), CheckpointNeed::Nothing),
            (0, true, seconds(10.0), CheckpointNeed::Cutting),
            (1, false, seconds(9.0), CheckpointNeed::Nothing),
            (1, false, seconds(10.0), CheckpointNeed::Cutting),
            (CHECKPOINT_SOON.0, true, seconds(0.9), CheckpointNeed::Nothing),
            (CHECKPOINT_SOON.0, true, seconds(1.0), CheckpointNeed::Taking),
            (CHECKPOINT_BYTES, false, Duration::ZERO, CheckpointNeed::Taking),
            (CHECKPOINT_BYTES, true, seconds(10.0), CheckpointNeed::Cutting),
        ] {
            assert_eq!(
                CheckpointNeed::for_log(logged, CHECKPOINT_BYTES, uncut, waited),
                due,
                "{logged} {uncut} {waited:?}"
            );
        }
    }
}
