//! Takes over a changed configuration while the store is open.

use std::sync::Arc;

use rusqlite::Connection;

use crate::config::RecordConfig;
use crate::error::Result;
use crate::store::recording::header_masking::MaskRules;
use crate::store::recording::writer::StoreWriter;
use crate::store::upkeep::disk_space;

/// SQLite truncates the log file to this size when it restarts it. One and a half times the checkpoint size leaves a
/// margin, so that a restart does not free space that is needed again.
pub(crate) fn limit_log(db: &Connection, config: &RecordConfig) -> Result<()> {
    if config.retention_bytes.0 > 0 {
        db.pragma_update(None, "journal_size_limit", (disk_space::log_bytes(config) * 3 / 2) as i64)?;
    }
    Ok(())
}

impl StoreWriter {
    /// Takes over a configuration that changed since the last round.
    pub(crate) fn apply_config(&mut self) {
        let now = self.shared.config.load_full();
        if Arc::ptr_eq(&now, &self.applied) {
            return;
        }
        self.mask = MaskRules::new(&now.mask_headers, &now.mask_query);
        self.config = RecordConfig::clone(&now);
        self.config.segment_bytes.0 = disk_space::segment_bytes(&now);
        if let Err(error) = limit_log(&self.db, &now) {
            tracing::debug!(%error, "the size of the database's log could not be limited anew");
        }
        // A stricter retention is not left to wait for the next interval.
        self.keeper.check_soon();
        self.applied = now;
    }
}
