//! Sizes that follow from the size limit: of segments, and of the database's log.

use rusqlite::Connection;

use crate::config::RecordConfig;
use crate::error::Result;
use crate::store::upkeep::checkpoint::CHECKPOINT_BYTES;

/// Segments and the database's log are limited to a sixteenth of the size limit, but not below this.
const MIN_SHARE: u64 = 512 << 10;
/// Retention starts at this percentage of the limit, so that concurrent writes stay below it.
pub(crate) const EARLY_PERCENT: u64 = 95;

/// SQLite truncates the log file to this size when it restarts it. One and a half times the checkpoint size leaves a
/// margin, so that a restart does not free space that is needed again.
pub(crate) fn limit_log(db: &Connection, config: &RecordConfig) -> Result<()> {
    if config.retention_bytes.0 > 0 {
        db.pragma_update(None, "journal_size_limit", (log_bytes(config) * 3 / 2) as i64)?;
    }
    Ok(())
}

/// Segments are small compared to the size limit, so that expiring the oldest flows deletes whole files.
pub(crate) fn segment_bytes(config: &RecordConfig) -> u64 {
    share_of_limit(config, config.segment_bytes.0)
}

/// Maximum size of the database's log: small compared to the size limit.
pub(crate) fn log_bytes(config: &RecordConfig) -> usize {
    share_of_limit(config, CHECKPOINT_BYTES as u64) as usize
}

fn share_of_limit(config: &RecordConfig, usual: u64) -> u64 {
    match config.retention_bytes.0 {
        0 => usual,
        bound => usual.min((bound / 16).max(MIN_SHARE)),
    }
}
