//! The clients of the event socket, as the statistics and the metrics count them.

use std::sync::atomic::{AtomicU64, AtomicUsize};

#[derive(Debug, Default)]
pub(crate) struct EventClients {
    pub open: AtomicUsize,
    /// Clients disconnected because they did not read.
    pub cut: AtomicU64,
    /// Summaries dropped because a client was too slow.
    pub passed_by: AtomicU64,
}
