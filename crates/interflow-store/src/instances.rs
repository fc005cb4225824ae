//! The processes that record to one store.

use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

/// What a process reports of itself every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceReport {
    pub version: String,
    /// Where its API or its proxy listens.
    pub address: String,
    /// Distinguishes configurations: equal ones have equal digests.
    pub config_digest: String,
    pub started: Timestamp,
    /// Flows in progress.
    pub open_flows: u64,
    /// Open connections of clients.
    pub connections: u64,
}

/// A process that records to the store, as it last reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstanceRow {
    /// Its host, and a number for this start of it.
    pub name: String,
    pub version: String,
    /// Where its API or its proxy listens.
    pub address: String,
    /// Distinguishes configurations: equal ones have equal digests.
    pub config_digest: String,
    pub started: Timestamp,
    /// Flows in progress.
    pub open_flows: u64,
    /// Open connections of clients.
    pub connections: u64,
    /// Finished flows on its disk that were not moved to the shared store yet.
    pub waiting_flows: u64,
    /// By how much its clock is ahead of the shared store's, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Its last sign of life, by the shared store's clock.
    pub seen: Timestamp,
    /// Whether it has been silent for several reports: it has ended without a word, or cannot reach the store.
    pub silent: bool,
    /// Whether it indexes conversations for all.
    pub indexes_conversations: bool,
    /// Whether it archives the record for all.
    pub archives: bool,
    /// Whether it is the process that answers.
    pub own: bool,
}

impl InstanceRow {
    /// Beyond this, in milliseconds, flows of this replica are listed at visibly wrong places.
    pub const MAX_CLOCK_DIFFERENCE_MILLIS: i64 = 2000;

    /// Whether its clock differs enough from the shared store's to be set right.
    pub const fn has_wrong_clock(&self) -> bool {
        self.clock_ahead_millis.abs() > Self::MAX_CLOCK_DIFFERENCE_MILLIS
    }
}
