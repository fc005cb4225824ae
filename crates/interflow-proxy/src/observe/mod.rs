//! Observation of flows: the guard that ends each flow exactly once, counters, rate-limited logging.

pub(crate) mod flow_guard;
pub(crate) mod forked_flow;
pub(crate) mod log_limit;
pub(crate) mod login_watch;
pub(crate) mod original_messages;
pub(crate) mod shared_capture;
pub mod stats;
