//! The clients of the event socket, as the statistics and the metrics count them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct EventClients {
    pub(crate) open: AtomicUsize,
    pub(crate) cut: AtomicU64,
    pub(crate) passed_by: AtomicU64,
}

impl EventClients {
    pub(crate) fn count(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Clients disconnected because they did not read.
    pub(crate) fn disconnected_count(&self) -> u64 {
        self.cut.load(Relaxed)
    }

    /// Summaries dropped because a client was too slow.
    pub(crate) fn skipped_count(&self) -> u64 {
        self.passed_by.load(Relaxed)
    }
}
