//! Takes over a changed configuration while the store is open.

use std::sync::Arc;

use crate::config::RecordConfig;
use crate::store::recording::header_masking::MaskRules;
use crate::store::recording::writer::StoreWriter;
use crate::store::upkeep::size_shares;

impl StoreWriter {
    /// Takes over a configuration that changed since the last round.
    pub(crate) fn apply_config(&mut self) {
        let now = self.shared.config.load_full();
        if Arc::ptr_eq(&now, &self.applied) {
            return;
        }
        self.mask = MaskRules::new(&now.mask_headers, &now.mask_query);
        self.config = RecordConfig::clone(&now);
        self.config.segment_bytes.0 = size_shares::segment_bytes(&now);
        if let Err(error) = size_shares::limit_log(&self.db, &now) {
            tracing::debug!(%error, "the size of the database's log could not be limited anew");
        }
        // A stricter retention is not left to wait for the next interval.
        self.keeper.looked = None;
        self.applied = now;
    }
}
