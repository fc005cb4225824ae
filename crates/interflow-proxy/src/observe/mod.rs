//! Observation of flows: the guard that ends each flow exactly once, counters, rate-limited logging.

pub(crate) mod flow_guard;
pub(crate) mod log_limit;
pub mod stats;
